"""What NCCL believes of each link, beside what the catalogue expects and what was measured. Pure.

NCCL searches rings and numbers of channels by constants of its own (`src/graph/topo.h`), and measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from topoadvisor.errors import TopoAdvisorError
from topoadvisor.ingest.nccl_log_summary import Graph
from topoadvisor.measurements import runs
from topoadvisor.measurements.model import Measurement
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.system import Kind
from topoadvisor.predict.document import PLACEHOLDER_GBPS
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import nccl_view

FAR: Final = 0.25
"""From this relative difference on NCCL's choices may be others than the link deserves."""

_NONE: Final = "{} no rings that it deems fast enough and {} the GPUs in their own order"


@dataclass(frozen=True)
class Belief:
    """One pair of GPUs, by index. Rates in GB/s per direction."""

    a: int
    b: int
    path: str
    """NCCL's type of the path."""
    nccl_gbps: float
    measured_gbps: float | None
    """The slower direction, with peer access; None = not measured, or only through host memory."""
    across_amd: bool
    """The path crosses between NUMA nodes of AMD CPUs, for which NCCL has one constant whatever the CPU."""

    @property
    def off(self) -> float | None:
        """How much faster the link is than NCCL believes: 0.5 = half as fast again."""
        return None if self.measured_gbps is None else self.measured_gbps / self.nccl_gbps - 1


def beliefs(snapshot: Snapshot, measurements: Sequence[Measurement]) -> list[Belief]:
    """One per pair whose bandwidth NCCL's model knows; empty where it knows nothing about the machine."""
    try:
        view = nccl_view.of(snapshot)
    except TopoAdvisorError:
        return []
    rated = {
        each.subject: each.gbps
        for each in measurements
        if each.kind == runs.PEER and each.outcome == "ok" and each.peer_access is not False and each.gbps
    }
    found = []
    for (first, second), reach in view.pairs.items():
        a, b = int(first.removeprefix("GPU")), int(second.removeprefix("GPU"))
        if a < b and reach.gbps and reach.kind is not None:
            ways = [rated[way] for way in (f"gpu:{a}>gpu:{b}", f"gpu:{b}>gpu:{a}") if way in rated]
            makers = [node.element.attributes.get("vendor") for node in reach.nodes if node.kind is Kind.CPU]
            across = reach.kind is NcclPath.SYS and "AuthenticAMD" in makers
            found.append(Belief(a, b, reach.kind.name, reach.gbps, min(ways, default=None), across))
    return sorted(found, key=lambda each: (each.a, each.b))


@dataclass(frozen=True)
class Rings:
    """What NCCL's search chooses."""

    count: int
    gbps: float
    """Of each, in NCCL's model, per direction."""
    predicted_for: str | None = None
    """The version of NCCL that it is predicted for; None = NCCL's log says it."""


def logged(graphs: Sequence[Graph]) -> Rings | None:
    """The rings of NCCL's log."""
    ring = next((graph for graph in graphs if graph.pattern == "ring"), None)
    return None if ring is None else Rings(ring.channels, ring.intra_gbps)


def planned(snapshot: Snapshot, gpus: Sequence[int]) -> Rings | None:
    """The rings that `topoadvisor predict` finds for a job over these GPU indexes; None where it cannot tell."""
    from topoadvisor.predict.predict import predict

    try:
        prediction = predict(snapshot, gpus)
    except TopoAdvisorError:
        return None
    rings = prediction.groups[0].rings if len(prediction.groups) == 1 else None
    return None if rings is None else Rings(rings.searched, rings.gbps, prediction.nccl.version)


def remarks(found: Sequence[Belief], chosen: Callable[[], Rings | None] = lambda: None) -> list[str]:
    """A sentence for each kind of pair of which NCCL is wrong by more than `FAR`, what it chooses by that, what helps.

    `chosen` is asked only when there is something to say.
    """
    kinds: dict[tuple[str, float, bool, bool], list[Belief]] = {}
    for each in found:
        if each.off is not None and abs(each.off) > FAR:
            kinds.setdefault((each.path, each.nccl_gbps, each.across_amd, each.off > 0), []).append(each)
    rings = chosen() if kinds else None
    return [_sentence(pairs, rings) for pairs in kinds.values()]


def _sentence(pairs: Sequence[Belief], rings: Rings | None) -> str:
    first = pairs[0]
    measured = [each.measured_gbps for each in pairs if each.measured_gbps is not None]
    low, high = min(measured), max(measured)
    rate = f"{low:.1f}" if high - low < 0.1 else f"{low:.1f} to {high:.1f}"
    who = f"GPU{first.a} and GPU{first.b}" + (f" and {len(pairs) - 1} more pairs" if len(pairs) > 1 else "")
    told = f"NCCL plans with {first.nccl_gbps:g} GB/s ({first.path}) between {who}; {rate} were measured."
    chose = _choice(rings) if rings else ""
    if (first.off or 0) < 0:
        return (
            f"{told}{chose} It lays as many rings over this link as over a healthy one, and all of them wait for it: "
            f"mend the link first. {_meanwhile(first)}"
        )
    why = " It has one constant between the NUMA nodes of all AMD CPUs." if first.across_amd else ""
    return (
        f"{told}{why}{chose} It takes fewer or slower rings over it than it could. After --save FILE, `topoadvisor "
        "emit nccl-graph FILE --model measured` writes rings by the measured speeds where they are better, and "
        "`topoadvisor prove NCCL_GRAPH_FILE=…` tells whether they win."
    )


def _choice(rings: Rings) -> str:
    what = f"{rings.count} ring{'s' * (rings.count != 1)} of {rings.gbps:g} GB/s"
    none = rings.gbps <= PLACEHOLDER_GBPS
    if rings.predicted_for is None:
        return f" {_NONE.format('Its search found', 'took')} by that." if none else f" It chose {what} by that."
    told = _NONE.format("finds", "takes") if none else f"chooses {what}"
    return f" By that NCCL {rings.predicted_for} {told}, as `topoadvisor predict` shows."


def _meanwhile(belief: Belief) -> str:
    if belief.path == "NVL":
        return "No variable makes up for NVLink that is down."
    return "Until then `topoadvisor prove NCCL_P2P_DISABLE=1` tells whether the way through host memory is better."
