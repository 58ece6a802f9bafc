"""What rings are reckoned with: the directed links of a machine, and which of them each hop between two GPUs loads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from typing import Final, NamedTuple

from topoadvisor.measurements import runs
from topoadvisor.measurements.model import Measurement
from topoadvisor.nccl import rates, system
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.system import Node
from topoadvisor.plan.loads import NVSWITCHES, Network
from topoadvisor.plan.problem import Load, Problem, Ring, loads_of
from topoadvisor.topology import nccl_view
from topoadvisor.topology.model import Topology
from topoadvisor.topology.nccl_view import View

_MOST_NAMED: Final = 8
"""Pairs that a note names."""


@dataclass(frozen=True)
class Link:
    """One direction of a link."""

    a: str
    b: str
    """From node, to node, in words: `GPU0`, `NVSwitches`, a PCI address, `socket 0`."""
    kind: str
    """`nvlink`, `pcie`, `inter-socket`, `c2c`, …; `measured` is not a link but what one hop was measured at."""
    gbps: float
    """Infinite when it never limits."""


@dataclass(frozen=True)
class LinkModel:
    """Links and hops; nodes are positions in `gpus`."""

    gpus: tuple[int, ...]
    """GPU indexes."""
    links: tuple[Link, ...]
    loads: Mapping[tuple[int, int], tuple[Load, ...]]
    unknown: str | None = None
    """Why the bandwidths only rank the links, in words; None = they are real."""
    notes: tuple[str, ...] = ()
    certain: bool = True
    """Nothing in it was assumed that could make the total lower."""
    ways: tuple[tuple[str, str], ...] = ()
    """For each link its ends as node ids of the topology; empty in NCCL's own model."""
    staged: frozenset[tuple[int, int]] = frozenset()
    """Hops that go through host memory, as peer-to-peer is not used."""
    failed: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Pairs (GPU indexes, lower first) left out because copies between them failed: `GPU0–GPU1 (wrong-data)`."""
    through: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """For hops over the NVLinks of other GPUs the positions of these; without one of them the hop goes another way."""

    def among(self, places: Sequence[int]) -> Problem | None:
        """The problem of some of the GPUs, by position; None where a hop between them runs through another one."""
        number = {place: node for node, place in enumerate(places)}
        hops = {hop: load for hop, load in self.loads.items() if hop[0] in number and hop[1] in number}
        if any(not number.keys() >= set(self.through.get(hop, ())) for hop in hops):
            return None
        loads = {(number[a], number[b]): load for (a, b), load in hops.items()}
        return Problem(len(places), loads, [link.gbps for link in self.links])

    def problem(self) -> Problem:
        return Problem(len(self.gpus), self.loads, [link.gbps for link in self.links])


def expected(topology: Topology, net: Network, chosen: Sequence[int]) -> LinkModel:
    """Every link at its payload bandwidth on paper, for the GPUs with these indexes."""
    position = {int(gpu.removeprefix("gpu:")): place for place, gpu in enumerate(topology.gpus)}
    places = [position[index] for index in chosen]
    routes = {
        (new_a, new_b): net.routes[a, b]
        for new_a, a in enumerate(places)
        for new_b, b in enumerate(places)
        if (a, b) in net.routes
    }
    used = sorted({link for route in routes.values() for link in route.links})
    number = {link: place for place, link in enumerate(used)}
    labels = {node: str(data.get("label") or node) for node, data in topology.graph.nodes.items()}
    labels[NVSWITCHES] = "the NVSwitches"
    kinds = {
        link: "nvlink" if NVSWITCHES in link else str((topology.graph.get_edge_data(*link) or {}).get("kind", "nvlink"))
        for link in used
    }
    unread = sorted({" – ".join(sorted(labels[node] for node in link)) for link in used if link in net.unread})
    assumed = sorted({words for link, words in net.assumed.items() if link in number})
    notes = [f"Bandwidth not known, not counted: {', '.join(unread)}."] if unread else []
    notes += [f"Bandwidth not known for some links, taken as {words}." for words in assumed]
    staged = frozenset(hop for hop, route in routes.items() if route.transport == "staged")
    if staged:
        notes.append("Staged hops also pass through host memory, whose own speed is not in this model.")
    if any(route.transport == "unread" for route in routes.values()):
        notes.append("For some pairs it is not known whether NCCL uses peer-to-peer; they are taken to use it.")
    return LinkModel(
        gpus=tuple(chosen),
        links=tuple(Link(labels[a], labels[b], kinds[a, b], net.capacity[a, b]) for a, b in used),
        loads={
            hop: tuple((number[link], float(route.links.count(link))) for link in dict.fromkeys(route.links))
            for hop, route in routes.items()
        },
        unknown=None if net.guessed.isdisjoint(used) else "GPU model or PCIe link not read",
        notes=tuple(notes),
        certain=not unread and all(route.transport != "unread" for route in routes.values()),
        ways=tuple(used),
        staged=staged,
    )


class Failure(NamedTuple):
    """How measured copies between two GPUs failed: `timeout`, `wrong-data`, …; None where they did not."""

    direct: str | None
    staged: str | None
    """Through host memory."""


Failures = Mapping[tuple[int, int], Failure]
"""By GPU indexes, lower first."""


def without(model: LinkModel, failures: Failures) -> LinkModel:
    """The model without the hops that failed when they were measured, and a note that names them.

    A pair is left out in both directions: receipts go back.
    """
    kept, failed = {}, {}
    for hop, load in model.loads.items():
        a, b = sorted(model.gpus[node] for node in hop)
        known = failures.get((a, b), Failure(None, None))
        if how := known.staged if hop in model.staged else known.direct:
            failed[a, b] = f"GPU{a}–GPU{b} ({how})"
        else:
            kept[hop] = load
    if not failed:
        return model
    named = {pair: failed[pair] for pair in sorted(failed)}
    return replace(model, loads=kept, notes=(left_out(list(named.values())), *model.notes), failed=named)


def left_out(failed: Sequence[str]) -> str:
    """The sentence about pairs that no ring uses."""
    return f"Not used, because copies between them failed when they were measured: {shortened(failed)}."


def shortened(pairs: Sequence[str]) -> str:
    """The pairs in a row, of many the first ones."""
    return f"{', '.join(pairs[:_MOST_NAMED])}{' …' if len(pairs) > _MOST_NAMED else ''}"


def measured(model: LinkModel, measurements: Sequence[Measurement]) -> LinkModel:
    """The model with each hop held to what its own copy was measured at, and no link below what ran over it.

    A hop through host memory is held to the copy with peer access off. A GPU's own link is held to the fastest copy
    over it, with the host too, once all direct hops that it is the narrowest link of were measured: a GPU sends to
    several no faster than to one.
    """
    speeds = _speeds(measurements)
    without_access = {run.subject for run in measurements if run.kind == runs.PEER and runs.through_host(run)}
    loads = dict(model.loads)
    hops: list[Link] = []
    missing: list[str] = []
    denied: list[str] = []
    fastest = _with_the_host(model, measurements)
    narrowest = set(fastest)
    on_paper: set[int] = set()
    for hop, load in model.loads.items():
        a, b = (model.gpus[node] for node in hop)
        gbps = speeds.get((f"gpu:{a}>gpu:{b}", hop in model.staged))
        if hop not in model.staged:
            shares = {number: model.links[number].gbps / factor for number, factor in load}
            (on_paper if gbps is None else narrowest).update(
                number for number in shares if shares[number] == min(shares.values())
            )
        if gbps is None:
            (denied if f"gpu:{a}>gpu:{b}" in without_access else missing).append(f"GPU{a} to GPU{b}")
            continue
        for number, factor in load:
            fastest[number] = max(fastest.get(number, 0.0), gbps * factor)
        loads[hop] = (*load, (len(model.links) + len(hops), 1.0))
        hops.append(Link(f"GPU{a}", f"GPU{b}", "measured", gbps))
    held = {
        number
        for number, way in enumerate(model.ways)
        if number in narrowest - on_paper and any(end.startswith("gpu:") for end in way)
    }
    links = [
        replace(link, gbps=fastest[number] if number in held else max(link.gbps, fastest.get(number, 0.0)))
        for number, link in enumerate(model.links)
    ]
    notes = list(model.notes)
    if missing:
        notes.append(f"Not measured, so as on paper: {shortened(missing)}.")
    if denied:
        notes.append(
            "CUDA allowed no peer access when these were measured, so their copies went through host memory, and they "
            f"stand here as on paper: {shortened(denied)}."
        )
    return replace(model, links=(*links, *hops), loads=loads, notes=tuple(notes))


def _speeds(measurements: Sequence[Measurement]) -> dict[tuple[str, bool], float]:
    """(Subject, through host memory) → GB/s of the one-way copies that arrived intact."""
    return {
        (run.subject, runs.through_host(run)): run.gbps
        for run in measurements
        if run.kind in (runs.PEER, runs.STAGED) and not runs.failed(run) and run.gbps
    }


def _with_the_host(model: LinkModel, measurements: Sequence[Measurement]) -> dict[int, float]:
    """GB/s that copies with the host reached over the GPUs' own PCIe links, by the links' places."""
    rates = {run.subject: run.gbps for run in measurements if run.kind == runs.TO_HOST and not runs.failed(run)}
    found = {
        number: rates.get(f"{a}>{runs.HOST}") or rates.get(f"{runs.HOST}>{b}")
        for number, (a, b) in enumerate(model.ways)
        if model.links[number].kind == "pcie"
    }
    return {number: gbps for number, gbps in found.items() if gbps}


_KINDS: Final = {
    NcclPath.LOC: "local",
    NcclPath.NVL: "nvlink",
    NcclPath.C2C: "c2c",
    NcclPath.PIX: "pcie",
    NcclPath.SYS: "inter-socket",
}


def nccl(view: View) -> LinkModel:
    """What NCCL's own search reckons with: its paths, its constants, and what it adds for P2P through an Intel CPU.

    (`ncclTopoFollowPath` in `src/graph/search.cc`.)
    """
    number: dict[tuple[int, int], int] = {}
    links: list[Link] = []
    loads: dict[tuple[int, int], tuple[Load, ...]] = {}
    unknown, missing = None, []
    reasons: dict[str | None, None] = {}
    owner = {node: place for place, gpu in enumerate(view.gpus) for node in _own(view, gpu)}
    through: dict[tuple[int, int], tuple[int, ...]] = {}
    for a, b in permutations(range(len(view.gpus)), 2):
        reach = view.pairs[view.gpus[a], view.gpus[b]]
        steps = [(start, end, _link(start, end)) for start, end in pairwise(reach.nodes)]
        if not steps or any(link is None for _, _, link in steps):
            missing.append(f"{view.gpus[a]} to {view.gpus[b]}")
            reasons[reach.unknown] = None
            continue
        unknown = unknown or reach.unknown
        intel = reach.kind is NcclPath.PHB and any(map(system.is_intel, reach.nodes))
        hop: dict[int, float] = {}
        for start, end, link in steps:
            assert link is not None
            place = number.setdefault((id(start), id(end)), len(number))
            if place == len(links):
                links.append(Link(start.label, end.label, _KINDS.get(link.kind, "link"), link.gbps))
            factor = rates.INTEL_P2P_OVERHEAD if intel and link.kind is NcclPath.PIX else 1.0
            hop[place] = hop.get(place, 0.0) + factor
        loads[a, b] = tuple(hop.items())
        if between := {owner[node] for node in reach.nodes if node in owner} - {a, b}:
            through[a, b] = tuple(sorted(between))
    notes = list(view.notes)
    if missing:
        why = "".join(f"; {reason}" for reason in reasons if reason)
        notes.append(f"No way is known for {shortened(missing)}{why}.")
    inferred = list(nccl_view.inferred(view))
    return LinkModel(
        gpus=tuple(int(label.removeprefix("GPU")) for label in view.gpus),
        links=tuple(links),
        loads=loads,
        unknown=unknown,
        notes=(*notes, *(f"Inferred: {why}." for why in inferred)),
        certain=not inferred,
        through=through,
    )


def _own(view: View, gpu: str) -> Iterator[Node]:
    """The nodes of a GPU, where a way from it is known."""
    start = next((reach.nodes[0] for (a, _), reach in view.pairs.items() if a == gpu and reach.nodes), None)
    if start is not None:
        yield start
        if start.parent is not None:
            yield start.parent


def _link(start: Node, end: Node) -> system.Link | None:
    return next((link for link in start.links if link.to is end), None)


def finite(gbps: float) -> float | None:
    """For a document: None for a link that never limits."""
    return None if math.isinf(gbps) else round(gbps, 6)


def together(orders: Sequence[Sequence[int]], links: LinkModel) -> float:
    """GB/s at which all these rings (GPU indexes) can run at once on these links."""
    place = {gpu: position for position, gpu in enumerate(links.gpus)}
    rings = [Ring(tuple(place[gpu] for gpu in order), 1.0) for order in orders]
    problem = links.problem()
    return 1 / max(load / problem.capacity[link] for link, load in loads_of(problem, rings).items())
