"""The best equal-speed rings as a file for NCCL_GRAPH_FILE, where they beat the rings that NCCL chooses itself.

Both are rated on the same links, those of NCCL's own model or as they were measured, so a difference is one of the
rings and not of the numbers that NCCL writes beside them. NCCL checks almost nothing of such a file, so it is checked
here, and read back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from topoadvisor import __version__, planning
from topoadvisor.errors import Declined, InputError, NothingDetermined, TopoAdvisorError
from topoadvisor.nccl import graph_xml
from topoadvisor.nccl.graph_xml import Channel, Graph
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.plan import Model, link_model
from topoadvisor.plan.link_model import LinkModel
from topoadvisor.predict.outlook import Asked, Searches, look
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import nccl_view
from topoadvisor.topology.nccl_view import View

MARGIN: Final = 5.0
"""Percent by which the rings must beat NCCL's own; less than that, measurements on real machines do not show."""

_HOW: Final = "What it really chose: run the job once with NCCL_GRAPH_DUMP_FILE=graph.xml and give that to --against."
_ENOUGH_GBPS: Final = 25.0
"""A channel of more than this is split in two, as NCCL does with its own (`ncclTopoDupChannels`)."""


@dataclass(frozen=True)
class Given:
    """NCCL's own choice, as its dump holds it."""

    text: str
    file: str


def render(
    snapshot: Snapshot,
    *,
    gpus: Sequence[int] | None = None,
    model: Model = "nccl",
    against: Given | None = None,
    margin: float = MARGIN,
    force: bool = False,
) -> tuple[str, list[str]]:
    """The file, and what its user must know, one sentence each.

    Raises Declined when NCCL's own rings are as good or copies between these GPUs failed, TopoAdvisorError when there
    is nothing to compare with, when the dump is of other GPUs, or when NCCL's bandwidths are not known.
    """
    document = planning.best_rings(snapshot, model=model, gpus=gpus)
    machine = planning.Machine(snapshot, model, as_advised=True)
    rests_on = machine.rests_on(document.gpus)
    snapshot = machine.snapshot(len(document.gpus))
    view = nccl_view.of(snapshot, document.gpus)
    links = link_model.nccl(view)
    usable = machine.usable(document.gpus)
    if usable.failed and not force:
        raise Declined(
            "set no graph file: copies failed when they were measured between "
            f"{link_model.shortened(list(usable.failed.values()))}, and trees and point-to-point traffic go there with "
            "any rings",
            hint="Repair that first; --force writes rings without these pairs.",
        )
    if not document.channels:
        raise TopoAdvisorError(
            "there are no rings to write", hint=f"`topoadvisor rings --model {model}` says why: {document.notes[0]}"
        )
    if links.unknown:
        raise TopoAdvisorError(
            f"NCCL's bandwidths are not known here: {links.unknown}",
            hint="The file has to hold them. Capture on the machine itself: `topoadvisor capture -o node.json`.",
        )
    if document.equal_speed is None:
        raise TopoAdvisorError(
            f"the bandwidths of the model {model} are not known here", hint="--model nccl takes NCCL's own."
        )
    ours = [tuple(channel.order) for channel in document.equal_speed.channels]
    if against is not None:
        theirs = [channel.gpus for channel in _own(against, document.gpus, view.version).channels]
    else:
        theirs = _predicted(snapshot, document.gpus)
    least = max(len(theirs), 1)
    orders = _as_many(ours, least, link_model.together(ours, links), graph_xml.most_channels(view.version))
    rated = _Rated(usable, "by measured copies") if model == "measured" else _Rated(links, "by NCCL's constants")
    told, remark = _margin(orders, theirs, rated, margin, force)
    if against is None and theirs:
        remark.append(f"NCCL's own rings are those that its search finds when it is repeated here. {_HOW}")
    graph = _graph(orders, link_model.together(orders, links), view)
    if theirs and _farthest(theirs, view) <= NcclPath.NVB < _farthest(orders, view):
        remark.append(
            f"NCCL's own rings stay on NVLink; these also go over PCIe ({graph.type_intra}), and then NCCL uses LL128 "
            "with none of them. Measure sizes around a megabyte too."
        )
    comment = [*_comment(snapshot, document.gpus, view), told, *rests_on, "Way back: unset NCCL_GRAPH_FILE."]
    text = graph_xml.write(graph, comment)
    _read_back(text, graph, document.gpus, view.version)
    return text, [*remark, *_remarks(document.gpus, graph, document.notes if model == "nccl" else rests_on)]


def _own(given: Given, gpus: Sequence[int], version: str) -> Graph:
    graph = graph_xml.ring(graph_xml.read(given.text, file=given.file))
    if graph is None or not graph.channels:
        raise InputError("this file holds no ring graph (id 0) with channels", file=given.file, hint=_HOW)
    if faults := graph_xml.faults(graph, gpus, version=version):
        raise InputError(
            f"these are not NCCL's rings over {_listed(gpus)} of one node: {faults[0]}",
            file=given.file,
            hint=f"{_HOW} --gpus says which GPUs are meant.",
        )
    return graph


def _predicted(snapshot: Snapshot, gpus: Sequence[int]) -> list[tuple[int, ...]]:
    """The rings that NCCL's own search finds; none where it cannot be repeated, or divides the GPUs."""
    others = [setting for setting in snapshot.settings or () if setting.name != "NCCL_GRAPH_FILE"]
    if snapshot.settings is not None:
        snapshot = msgspec.structs.replace(snapshot, settings=others)
    try:
        seen = look(snapshot, Asked(sorted(gpus), None, "not asked", Searches()))
    except NothingDetermined:
        return []
    rings = seen.groups[0].rings if len(seen.groups) == 1 else None
    return [tuple(int(label.removeprefix("GPU")) for label in order) for order in rings.orders] if rings else []


def _as_many(orders: list[tuple[int, ...]], least: int, each: float, most: int) -> list[tuple[int, ...]]:
    """The rings, each several times at a lower speed: as many channels as NCCL would have, and none too fast."""
    times = 1
    while len(orders) * (times + 1) <= most and (len(orders) * times < least or each / times > _ENOUGH_GBPS):
        times += 1
    return [order for order in orders for _ in range(times)]


@dataclass(frozen=True)
class _Rated:
    """What rings are held against each other on."""

    links: LinkModel
    how: str

    def knows(self, orders: Sequence[tuple[int, ...]]) -> bool:
        """Every hop of these rings is among them."""
        place = {gpu: number for number, gpu in enumerate(self.links.gpus)}
        hops = (hop for order in orders for hop in pairwise([*order, order[0]]))
        return all((place[a], place[b]) in self.links.loads for a, b in hops)

    def gbps(self, orders: Sequence[tuple[int, ...]]) -> float:
        """GB/s of all these rings together, all as fast as the slowest."""
        return link_model.together(orders, self.links) * len(orders)


def _margin(
    ours: Sequence[tuple[int, ...]], theirs: Sequence[tuple[int, ...]], rated: _Rated, margin: float, force: bool
) -> tuple[str, list[str]]:
    """The line about the margin, and what is to be said when there is none to speak of. Raises Declined."""
    if not rated.knows(theirs):
        theirs = ()
    total = rated.gbps(ours)
    if not theirs:
        if not force:
            raise TopoAdvisorError(
                "there is nothing to compare these rings with: NCCL's own search cannot be repeated here",
                hint=f"{_HOW} Or: --force.",
            )
        return (
            f"{total:.4g} GB/s {rated.how}; not compared with NCCL's own rings.",
            ["Not compared with NCCL's own rings, which may be as good or better: measure with and without the file."],
        )
    before = rated.gbps(theirs)
    gain = 100 * (total / before - 1)
    line = f"{total:.4g} GB/s against {before:.4g} of NCCL's own {len(theirs)} rings, {rated.how}: {gain:+.1f}%."
    if gain >= margin:
        return line, []
    if not force:
        less = f"only {gain:.1f}% more than" if gain >= 0.05 else "no more than"
        raise Declined(
            f"set no graph file: {rated.how} the best rings carry {total:.4g} GB/s, {less} NCCL's own ({before:.4g})",
            hint="--margin sets the percentage; --force writes the file all the same.",
        )
    return line, [
        f"This file gains {gain:.1f}%, less than the margin of {margin:g}%, and is written because of --force."
    ]


def _graph(orders: Sequence[tuple[int, ...]], each: float, view: View) -> Graph:
    return Graph(
        id=graph_xml.RING,
        pattern=graph_xml.RING_PATTERN,
        speed_intra=_rounded(each),
        speed_inter=_rounded(each),
        type_intra=_farthest(orders, view).name,
        type_inter=NcclPath.PIX.name,
        channels=tuple(Channel(order) for order in orders),
        same_channels=int(len(set(orders)) == 1),
    )


def _farthest(orders: Sequence[tuple[int, ...]], view: View) -> NcclPath:
    hops = {hop for order in orders for hop in pairwise([*order, order[0]])}
    kinds = [view.pairs[f"GPU{a}", f"GPU{b}"].kind for a, b in hops]
    return max(kind for kind in kinds if kind is not None)


def _rounded(gbps: float) -> float:
    """Never above what fits."""
    return int(gbps * 1000 + 1e-6) / 1000 if gbps >= 0.01 else gbps


def _comment(snapshot: Snapshot, gpus: Sequence[int], view: View) -> list[str]:
    addresses = {gpu.index: gpu.address for gpu in snapshot.gpus}
    known = [f"GPU{gpu} {addresses[gpu]}" for gpu in gpus if addresses.get(gpu)]
    return [
        f"Rings for NCCL_GRAPH_FILE, written by topoadvisor {__version__} for NCCL {view.version}.",
        f"For one node, and communicators over exactly {_listed(gpus)} (NVML indexes)"
        + (f": {', '.join(known)}." if known else "."),
    ]


def _read_back(text: str, graph: Graph, gpus: Sequence[int], version: str) -> None:
    (found,) = graph_xml.read(text, file="the file written here")
    faults = graph_xml.faults(found, gpus, version=version)
    if found.channels != graph.channels or faults:
        raise TopoAdvisorError(
            f"no file that NCCL could use can be written: {faults[0] if faults else 'it reads otherwise'}"
        )


def _remarks(gpus: Sequence[int], graph: Graph, notes: Sequence[str]) -> list[str]:
    return [
        f"For one node, and for communicators over exactly {_listed(gpus)}: NCCL reads this file for every "
        "communicator, and one over other GPUs fails or hangs. A job that also makes smaller groups must not have it "
        "set.",
        "NCCL took it when NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH prints "
        f"`Search 0 : {len(graph.channels)} channels loaded from XML graph`. Measure with and without it, and keep it "
        "only when it pays. Way back: unset NCCL_GRAPH_FILE.",
        f"Trees and NVLS are not in it: NCCL searches them itself. It wants {_trees(len(graph.channels))}. Where it "
        "prints `Could not find a path for pattern` instead, it uses only the first ring of this file: do not keep it.",
        *notes,
    ]


def _trees(count: int) -> str:
    """As many as there are rings, or none (`initTransportsRank` in `src/init.cc`, `ncclTopoCompute`)."""
    return "one tree" if count == 1 else f"{count} trees, as many as there are rings"


def _listed(gpus: Sequence[int]) -> str:
    return ", ".join(f"GPU{gpu}" for gpu in gpus)
