"""`topoadvisor predict`: the time of NCCL's search as it is repeated here, and of the whole prediction.

Prints figures and judges nothing. `python benchmarks/predict.py [RUNS]`. Times are those of this process alone.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from topoadvisor.files import shipped
from topoadvisor.predict.predict import predict
from topoadvisor.snapshot import decode

MACHINES = (
    ("dgx-1v", 1),
    ("dgx-a100", 1),
    ("dgx-h100", 1),
    ("8x4090", 1),
    ("8xl40s", 1),
    ("4xa100-pcie", 1),
    ("dgx-h100", 2),
    ("dgx-a100", 2),
    ("dgx-1v", 2),
)


def main() -> None:
    """Predict every machine `RUNS` times (default 3) after one warm-up and print a table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'machine':<20} {'hosts':>5} {'median':>8} {'min':>8} {'max':>8}   CPU seconds, {runs} runs")
    for name, hosts in MACHINES:
        snapshot = decode((shipped("fixtures") / name / "snapshot.json").read_bytes())
        gpus = [gpu.index for gpu in snapshot.gpus]
        times = [_timed(lambda: predict(snapshot, gpus, hosts=hosts)) for _ in range(runs + 1)][1:]  # noqa: B023
        print(f"{name:<20} {hosts:>5} {statistics.median(times):8.3f} {min(times):8.3f} {max(times):8.3f}")


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
