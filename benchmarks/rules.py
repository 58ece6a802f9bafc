"""Time that all rules take on one machine once they are loaded: median, minimum and maximum of several rounds.

Prints figures and judges nothing. `python benchmarks/rules.py [ROUNDS]`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from topoadvisor import files, snapshot
from topoadvisor.rules import engine, facts, load
from topoadvisor.topology import graph

MACHINES = ("dgx-a100", "dgx-h100", "8x4090", "paste-8xa100")
"""The first has 8 GPUs and 10 network cards."""


def main() -> None:
    """Evaluate all rules on each machine `ROUNDS` times (default 20) and print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rules = load.load()
    stable = sum(rule.status == "stable" for rule in rules)
    print(f"{stable} stable rules, {rounds} rounds after one warm-up; milliseconds, median (minimum to maximum)")
    print(f"{'machine':<16} {'GPUs':>4} {'NICs':>4}   {'facts':>24}   {'rules':>24}")
    for name in MACHINES:
        path = files.shipped("fixtures") / name / "snapshot.json"
        machine = snapshot.decode(path.read_bytes(), file=str(path))
        topology = graph.build(machine)
        base = facts.gather(machine, topology)
        gathered = _times(lambda machine=machine, topology=topology: facts.gather(machine, topology), rounds)
        judged = _times(lambda base=base: engine.evaluate(rules, base), rounds)
        nics = sum(nic.rdma for nic in machine.nics or [])
        print(f"{name:<16} {len(machine.gpus):>4} {nics:>4}   {gathered:>24}   {judged:>24}")


def _times(work: Callable[[], object], rounds: int) -> str:
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})"


if __name__ == "__main__":
    main()
