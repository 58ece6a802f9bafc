"""The paths that NCCL computes between GPUs (`src/graph/paths.cc`): type and bandwidth.

A path's type is that of its worst hop, its bandwidth that of its slowest link. Where NCCL may not or cannot use P2P,
the path is led through the CPU next to the destination, which is why two GPUs below one switch may be PHB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from topoadvisor.nccl import rates
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.system import Kind, Link, Node, System, TooLarge

_MOST_STEPS: Final = 4_000_000
"""Links times searches; 72 GPUs of one NVLink domain take 200,000."""


@dataclass(frozen=True)
class Path:
    """The way from one node to another."""

    kind: NcclPath
    gbps: float
    links: tuple[Link, ...]
    """In the direction of the search, from the destination outwards."""

    @property
    def far(self) -> str | None:
        """Why the type is not known."""
        return next((link.far for link in self.links if link.far), None)

    @property
    def unknown(self) -> str | None:
        """Why the bandwidth is not known."""
        return next((link.unknown for link in self.links if link.unknown), None)

    @property
    def inferred(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(why for link in self.links for why in link.inferred))


@dataclass(frozen=True)
class Grant:
    """Whether the driver lets one GPU reach another's memory, or why that is not known."""

    given: bool | None
    reason: str = ""
    """Why `given` is inferred, or None."""
    status: str = ""
    """What the driver said when it refused: `CNS`, `TNS`, …"""


@dataclass(frozen=True)
class Given:
    """What NCCL asks beside the topology."""

    levels: tuple[NcclPath, ...]
    """The farthest path with P2P; several when it is not known which one counts."""
    why_levels: str = ""
    """What is missing when there are several."""
    grant: Callable[[Node, Node], Grant] = lambda a, b: Grant(True)
    """Asked for ordered pairs of GPU nodes."""
    apart: Callable[[Node, Node], bool] = lambda a, b: False
    """Two GPUs are known to be in different NUMA nodes, although the numbers of these are not known."""
    nvb_disabled: bool = False


@dataclass(frozen=True)
class Reach:
    """A pair as NCCL sees it. None = not known, and `unknown` says why; `inferred` says what was taken for granted."""

    kind: NcclPath | None
    gbps: float | None
    inferred: tuple[str, ...] = ()
    unknown: str | None = None
    nodes: tuple[Node, ...] = field(default=(), compare=False)
    """The way from the source to the destination, both included; empty where it is not known."""
    path: Path | None = field(default=None, compare=False)
    """The same with its links; None where it is not known."""
    shortest: NcclPath | None = field(default=None, compare=False)
    """The type of the way that P2P would take; `kind` is another where the traffic is led through the CPU."""


Ways = dict[Node, Path]


def between_gpus(
    system: System, given: Given, known: Mapping[Node, Ways] | None = None
) -> dict[tuple[Node, Node], Reach]:
    """Every ordered pair of two GPUs, keyed (source, destination), in NCCL's order. Raises TooLarge.

    `known` are the paths of `all_ways`, where they are at hand.
    """
    gpus = system.nodes[Kind.GPU]
    known = all_ways(system, given, (Kind.CPU, Kind.GPU)) if known is None else known
    to_cpu = {cpu: known[cpu] for cpu in system.nodes[Kind.CPU]}
    reached: dict[tuple[Node, Node], Reach] = {}
    for to in gpus:
        ways = known[to]
        cpu = nearest_cpu(to, to_cpu)
        for source in gpus:
            if source is not to:
                detour = _detour(system, source, cpu, ways, to_cpu) if cpu is not None else None
                reached[source, to] = _reach(source, to, ways.get(source), detour, given)
    return {(a, b): reached[a, b] for a in gpus for b in gpus if a is not b}


def all_ways(system: System, given: Given, kinds: Iterable[Kind]) -> dict[Node, Ways]:
    """The paths to every node of these kinds. Raises TooLarge."""
    bases = [base for kind in kinds for base in system.nodes[kind]]
    links = sum(len(node.links) for nodes in system.nodes.values() for node in nodes)
    if links * len(bases) > _MOST_STEPS:
        raise TooLarge(f"{len(system.nodes[Kind.GPU])} GPUs and {links} links take too long to reckon with")
    return {base: search(system, base, given.nvb_disabled) for base in bases}


def search(system: System, base: Node, nvb_disabled: bool) -> Ways:
    """The paths of all nodes to `base` (`ncclTopoSetPaths`)."""
    rules = system.rules
    found: Ways = {base: Path(NcclPath.LOC, rates.LOCAL_GBPS, ())}
    turn = [base]
    while turn:
        following: dict[Node, None] = {}
        for node in turn:
            way = found[node]
            for link in node.links:
                if not _may_pass(system, base, node, way, link, nvb_disabled):
                    continue
                candidate = _extended(system, base, node, way, link)
                if _better(candidate, found.get(link.to), rules.type_first):
                    found[link.to] = candidate
                    following[link.to] = None
        turn = list(following)
    return found


def _hops_to_nvlink(system: System, base: Node) -> int:
    """Links of a path that ends behind its first NVLink."""
    return 2 if system.rules.device_nodes and base.kind is Kind.GPU else 1


def _may_pass(system: System, base: Node, node: Node, way: Path, link: Link, nvb_disabled: bool) -> bool:
    """A path runs through a GPU only to end there, or over NVLink when it is the only GPU on the way."""
    device = Kind.DEV if system.rules.device_nodes else Kind.GPU
    start = base.parent if base.kind is Kind.GPU else base
    if node.kind is not device or node is start:
        return True
    if link.kind is NcclPath.LOC and link.to.kind is Kind.GPU:
        return True
    over_nvlink = link.kind is NcclPath.NVL and link.to.kind is device
    return not nvb_disabled and over_nvlink and len(way.links) <= _hops_to_nvlink(system, base)


def _extended(system: System, base: Node, node: Node, way: Path, link: Link) -> Path:
    kind = link.kind
    if node.kind is Kind.PCI and link.to.kind is Kind.PCI:
        kind = NcclPath.PXB
    if link.kind is NcclPath.PIX and Kind.CPU in (node.kind, link.to.kind):
        kind = NcclPath.PHB
    device = Kind.DEV if system.rules.device_nodes else Kind.GPU
    hops = len(way.links)
    first = _hops_to_nvlink(system, base)
    beyond = hops == first if system.rules.type_first else hops >= first
    if node.kind is device and way.kind is NcclPath.NVL and kind is NcclPath.NVL and beyond:
        kind = NcclPath.NVB
    return Path(max(way.kind, kind), min(way.gbps, link.gbps), (*way.links, link))


def _better(candidate: Path, known: Path | None, type_first: bool) -> bool:
    if known is None:
        return True
    longer = len(known.links) > len(candidate.links)
    if not type_first:
        return len(known.links) >= len(candidate.links) and known.gbps < candidate.gbps
    return (candidate.kind, -candidate.gbps) < (known.kind, -known.gbps) or (
        candidate.kind == known.kind and candidate.gbps == known.gbps and longer
    )


def nearest_cpu(gpu: Node, to_cpu: Mapping[Node, Ways]) -> Node | None:
    """The CPU with the fastest path, then the nearest type, then the fewest hops (`ncclGetLocalCpu`)."""
    ways = [(ways[gpu], cpu) for cpu, ways in to_cpu.items() if gpu in ways]
    best = min(ways, key=lambda entry: (-entry[0].gbps, entry[0].kind, len(entry[0].links)), default=None)
    return best[1] if best is not None else None


def _detour(system: System, source: Node, cpu: Node, ways: Ways, to_cpu: Mapping[Node, Ways]) -> Path | None:
    first, second = to_cpu[cpu].get(source), ways.get(cpu)
    if first is None or second is None:
        return None
    return joined(system, first, second)


def joined(system: System, first: Path, second: Path) -> Path:
    """The path that leads over the first, and from its end over the second (`addInterStep`)."""
    kind = merged(system, first.kind, second.kind)
    return Path(kind, min(first.gbps, second.gbps), (*second.links, *first.links))


def merged(system: System, one: NcclPath, other: NcclPath) -> NcclPath:
    """The type of a path of two parts (`mergePathType`)."""
    if system.rules.merges_c2c and {one, other} == {NcclPath.C2C, NcclPath.PHB}:
        return NcclPath.P2C
    return max(one, other)


def _reach(source: Node, to: Node, way: Path | None, detour: Path | None, given: Given) -> Reach:
    unread = _unread(source, to)
    if unread is not None:
        return Reach(None, None, unknown=unread)
    if way is None:
        return Reach(NcclPath.DIS, 0.0)
    if detour is None:
        return replace(_told(way, given.apart(source, to), to), shortest=way.kind)
    outcomes: dict[tuple[NcclPath, float], Path] = {}
    for level in given.levels:
        if way.kind > level:
            outcomes.setdefault((detour.kind, detour.gbps), detour)
            continue
        grant = _granted(source, to, way, given)
        chosen = detour if grant.given is False else way
        if grant.reason and (detour.kind, detour.gbps) != (way.kind, way.gbps):
            chosen = replace(chosen, links=(*chosen.links, Link(to, NcclPath.LOC, inferred=(grant.reason,))))
        outcomes.setdefault((chosen.kind, chosen.gbps), chosen)
    unread = next((why for node in (source, to) if (why := node.element.missing.get("c2c"))), None)
    if unread is not None and any(kind > NcclPath.NVB for kind, _ in outcomes):
        return Reach(None, None, unknown=unread)
    told = [_told(path, given.apart(source, to), to) for path in outcomes.values()]
    if len(told) == 1:
        return replace(told[0], shortest=way.kind)
    kinds = {reach.kind for reach in told}
    return Reach(told[0].kind if len(kinds) == 1 else None, None, unknown=given.why_levels, shortest=way.kind)


def _told(path: Path, apart: bool, to: Node) -> Reach:
    if path.far is not None and not (apart and path.kind is NcclPath.SYS):
        return Reach(None, None, unknown=path.far)
    # A local link back to the destination is none: it only carries a reason.
    links = tuple(link for link in path.links if link.to is not to or link.kind is not NcclPath.LOC)
    nodes = (to, *(link.to for link in links))
    gbps = None if path.unknown else path.gbps
    return Reach(path.kind, gbps, path.inferred, path.unknown, nodes[::-1], replace(path, links=links))


def _unread(source: Node, to: Node) -> str | None:
    """Why it is not known whether two GPUs are joined by NVLink: one end was not read, and the other has some."""
    for one, other in ((source, to), (to, source)):
        why = one.unread()
        if why is not None and (other.unread() is not None or any(other.element.each("nvlink"))):
            return why
    return None


def _granted(source: Node, to: Node, way: Path, given: Given) -> Grant:
    """What the driver says; of a path through another GPU, hop by hop. NCCL stops when NVLink is refused."""
    if way.kind <= NcclPath.NVB:
        return Grant(True)
    return given.grant(source, to)
