"""Speed of finding the parts of long texts: what no part begins with, and what almost looks like a table.

Prints figures and judges nothing. `python benchmarks/long_text.py [MEGABYTES]`.
"""

from __future__ import annotations

import gzip
import io
import sys
import time

from topoadvisor.errors import InputError
from topoadvisor.ingest import detect

MATRIX = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
REPEATED = {
    "prose": "the quick brown fox jumps over the lazy dog at step 12345, loss 0.1234, learning rate 1e-4\n",
    "a GPU in each line": "2026-12-01 01:20:04 rank 3 GPU memory 81559 MiB NVIDIA utilization 98 % step 12345\n",
    "one number per GPU": "GPU0: 35 %\nGPU 1: 36 %\nGPU2 = 37 %\n",
    "GPU0 hello": "GPU0 hello\n",
    "controller": "scheduler controller 12 assigned a job to the bridge of node 7 under Linux\n",
    "nvidia-smi dmon": "# gpu   pwr gtemp    sm   mem\n# Idx     W     C     %     %\n    0    70    31     0     0\n"
    * 2,
}


def main() -> None:
    """Read each text, plain and compressed, with a small matrix behind it, and print what it took."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 33
    for name, line in REPEATED.items():
        data = (line * (megabytes * 1_000_000 // len(line)) + MATRIX).encode()
        for kind, given in (("", data), (".gz", gzip.compress(data, 1))):
            start = time.perf_counter()
            try:
                found = f"{len(detect.read('-', stdin=io.BytesIO(given)).gpus)} GPUs"
            except InputError as error:
                found = error.message
            seconds = time.perf_counter() - start
            print(f"{name + kind:22} {len(data) / 1e6 / seconds:6.0f} MB/s, {seconds:.2f} s, {found}")


if __name__ == "__main__":
    main()
