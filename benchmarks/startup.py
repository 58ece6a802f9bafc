"""Cold start of the commands that people run most: median, minimum and maximum of several fresh processes.

Prints figures and judges nothing. `python benchmarks/startup.py [RUNS]`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = (
    ("--help",),
    ("scan", "fixture:8x4090"),
    ("scan", "fixture:dgx-h100"),
    ("scan", "fixture:dgx-1v"),
    ("scan", "fixture:dgx-h100", "--format", "json"),
    ("matrix", "fixture:dgx-a100"),
    ("emit", "nccl-conf", "fixture:dgx-h100"),
    ("render", "fixture:dgx-h100", "--format", "svg", "-o", "-"),
)


def main() -> None:
    """Run every command `RUNS` times (default 10) after one warm-up and print a table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    program = str(Path(sys.executable).with_name("topoadvisor"))
    print(f"{'command':<50} {'median':>8} {'min':>8} {'max':>8}   seconds, {runs} fresh processes")
    for arguments in COMMANDS:
        times = [_once([program, *arguments]) for _ in range(runs + 1)][1:]
        print(
            f"{'topoadvisor ' + ' '.join(arguments):<50} "
            f"{statistics.median(times):8.3f} {min(times):8.3f} {max(times):8.3f}"
        )


def _once(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
