"""Speed of plans: rings and choices of GPUs on the bundled machines, a made-up tree of 16 GPUs, and 72 behind switches.

Prints figures and judges nothing. `python benchmarks/plans.py`.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable

from topoadvisor import files, planning
from topoadvisor.ingest import assume, detect
from topoadvisor.snapshot import Snapshot


def machine(n: int, cell: Callable[[int, int], str], model: str) -> Snapshot:
    """A pasted matrix of n GPUs."""
    rows = ["\t" + "\t".join(f"GPU{gpu}" for gpu in range(n))]
    rows += [f"GPU{a}\t" + "\t".join(" X " if a == b else cell(a, b) for b in range(n)) for a in range(n)]
    read = detect.from_bytes("\n".join(rows).encode(), file="matrix.txt")
    facts = [f"gpu.name={model}", "pair.p2p.read=OK", "pair.p2p.write=OK", "nccl.version=2.28.9", "cpu.vendor=Intel"]
    return assume.apply(read, assume.gather(facts, None))


def seconds(run: Callable[[], object]) -> float:
    """Of one run after import."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Print the figures."""
    bundled = [path for path in sorted(files.shipped("fixtures").iterdir()) if path.is_dir()]
    machines = {path.name: detect.read(str(path), stdin=io.BytesIO()) for path in bundled}
    machines = {name: snapshot for name, snapshot in machines.items() if len(snapshot.gpus) > 1}
    machines["16 below 4 switches"] = machine(
        16, lambda a, b: "PIX" if a // 4 == b // 4 else "NODE" if a // 8 == b // 8 else "SYS", "NVIDIA L40S"
    )
    machines["72 behind switches"] = machine(72, lambda a, b: "NV18", "NVIDIA GB200")
    planning.best_rings(machines["dgx-1v"])
    rings = {name: planning.best_rings(snapshot).seconds for name, snapshot in machines.items()}
    eight = [spent for name, spent in rings.items() if len(machines[name].gpus) <= 8]
    print(f"rings, up to 8 GPUs: median {statistics.median(eight) * 1000:.1f} ms, worst {max(eight) * 1000:.0f} ms")
    for name in ("16 below 4 switches", "72 behind switches"):
        print(f"rings, {name}: {rings[name] * 1000:.0f} ms")
    for name, snapshot in machines.items():
        size = max(2, min(8, len(snapshot.gpus) // 2))
        spent = seconds(lambda snapshot=snapshot, size=size: planning.pick(snapshot, size))  # type: ignore[misc]
        print(f"pick {size} of {len(snapshot.gpus)}, {name}: {spent * 1000:.0f} ms")


if __name__ == "__main__":
    main()
