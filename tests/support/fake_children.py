"""A machine of H200, and children that answer as if they measured it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import networkx as nx

from topoadvisor.snapshot import Driver, Gpu, PcieLink, Snapshot
from topoadvisor.topology.model import Pair, Topology
from topoadvisor.verify.child import Converse, End
from topoadvisor.verify.messages import Job, Line, Look, Measured, Step
from topoadvisor.verify.run import Report, verify
from topoadvisor.verify.selection import Options

OPTIONS = Options(size_bytes=512 << 20, repeats=5, deadline_s=20)
DONE = End("finished", "")
SPEED = {
    "peer-copy": 395.8,
    "peer-copy-both": 779.9,
    "staged-copy": 39.0,
    "staged-copy-both": 39.7,
    "host-copy": 55.2,
    "host-copy-both": 98.0,
}
"""GB/s by kind, as a healthy pair of H200 has them."""


def address(index: int) -> str:
    return f"0000:0{index + 1}:00.0"


def machine(n: int = 2, *, mig: Sequence[int] = (), link_class: str = "NV18") -> tuple[Snapshot, Topology]:
    gpus = [
        Gpu(
            index=i,
            name="NVIDIA H200",
            address=address(i),
            mig=i in mig,
            pcie=PcieLink(max_gen=5, max_width=16),
        )
        for i in range(n)
    ]
    pairs = {
        (f"gpu:{a}", f"gpu:{b}"): Pair(
            f"gpu:{a}", f"gpu:{b}", link_class, "NODE", 18, True, 450.0, (), (), "nvml", False
        )
        for a, b in itertools.combinations(range(n), 2)
    }
    topology = Topology(nx.Graph(), tuple(f"gpu:{i}" for i in range(n)), (), pairs)
    return Snapshot(gpus=gpus, driver=Driver(version="580.159.04", cuda="13.0")), topology


def look(n: int = 8, **more: object) -> Look:
    return Look(cupy="14.2.0", runtime="13.2", driver="13.0", addresses=[address(i) for i in range(n)], **more)  # type: ignore[arg-type]


def good(step: Step) -> Measured:
    kind = step.name.partition(" ")[0]
    flows = len(step.flows)
    seconds = 2.1e-6 if kind == "peer-latency" else flows * step.size_bytes / SPEED.get(kind, 390.0) / 1e9
    return Measured(
        name=step.name,
        outcome="ok",
        seconds=[seconds * part for part in (1.002, 1, 1, 1, 0.998)],
        flow_seconds=[seconds] * flows,
        size_bytes=step.size_bytes,
        peer_access=step.peer_access,
        checked="device",
    )


def children(
    copy: Callable[[Job, Callable[[Line], None]], End] | None = None, answer: Look | None = None
) -> tuple[Converse, list[Job]]:
    """Children that answer well, unless `copy` does something else."""
    jobs: list[Job] = []

    def converse(job: Job, deadline_s: float, hear: Callable[[Line], None]) -> End:
        jobs.append(job)
        if job.task == "look":
            hear(Line(look=answer or look()))
            return DONE
        if copy is not None:
            return copy(job, hear)
        for step in job.steps:
            hear(Line(begin=step.name))
            hear(Line(measured=good(step)))
        return DONE

    return converse, jobs


def measure(n: int = 2, converse: Converse | None = None, options: Options = OPTIONS, **more: object) -> Report:
    snapshot, topology = machine(n, **more)  # type: ignore[arg-type]
    return verify(
        snapshot,
        topology,
        options,
        converse=converse or children()[0],
        date="2026-11-29T12:00:00+00:00",
        rings=[list(range(n))],
    )
