"""One host of a job as NCCL sees it after all its decisions: paths, transports, and the groups it is divided into.

`initTransportsRank` in `src/init.cc`, `ncclTopoComputePaths` and `ncclTopoTrimSystem` in `src/graph/paths.cc`,
`p2pCanConnect` and `shmCanConnect` in `src/transport/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from topoadvisor.nccl import board, model, paths, versions
from topoadvisor.nccl.board import Board
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.model import TransportChoice
from topoadvisor.nccl.network import Network, Switches
from topoadvisor.nccl.paths import Given, Reach, Ways
from topoadvisor.nccl.system import Kind, Node, System, integer, local_cpu

_SHM_BETWEEN_GROUPS: Final = "2.30.3"
"""First release that, when it connects two GPUs of one host which it counts as two, does not ask about the network."""
_NVLINK_IS_FASTER: Final = "NVLink is taken to be faster than the PCIe link of the GPU, which leads to the network"
_READS: Final = 80
"""Compute capability × 10 whose GPUs read over NVLink by themselves (`ncclTopoCheckP2p`)."""


@dataclass(frozen=True)
class Choices:
    """The variables that decide about transports inside a host, read."""

    shm: bool = True
    network_inside: bool = True
    """Two GPUs of one host may talk over the network where NCCL thinks it faster (not NCCL_NET_DISABLE_INTRA)."""
    switches: Switches = field(default_factory=Switches)


@dataclass(frozen=True)
class Connection:
    """How two GPUs of the host are connected."""

    choice: TransportChoice
    reach: Reach
    faster_network: bool | None = False
    """NCCL thinks the network faster than the path between them; None = not known."""
    inferred: tuple[str, ...] = ()
    """What was taken for granted and decides: that the driver grants access, that NVLink is faster than a NIC."""
    read: bool = False
    """The receiver reads, where otherwise the sender writes."""


@dataclass(frozen=True)
class Host:
    """All GPUs of the job on one host, by their place in NCCL's list."""

    gpus: list[Node]
    connections: dict[tuple[Node, Node], Connection]
    """Ordered pairs, the source first."""
    network: Network
    groups: list[list[Node]]
    """Usually one. NCCL plans rings within each group, and between groups as between hosts."""


def look(system: System, given: Given, choices: Choices, version: str) -> Host:
    """What NCCL decides about the pairs of a host. Raises TooLarge."""
    _, reached, network = _seen(system, given, choices)
    gpus = list(system.nodes[Kind.GPU])
    number = {gpu: place for place, gpu in enumerate(gpus)}
    found: dict[tuple[Node, Node], Connection] = {}
    for (a, b), reach in reached.items():
        faster: bool | None = False
        if choices.network_inside and network.ports and reach.shortest is not NcclPath.NVB:
            gbps = reach.path.gbps if reach.path is not None and not reach.unknown else None
            if gbps is not None or reach.kind is not NcclPath.NVL:
                faster = network.faster_than(number[a], number[b], gbps)
        found[a, b] = _connect(a, b, reach, given, choices, faster)
        if faster is False and reach.kind is NcclPath.NVL and reach.unknown and network.ports:
            found[a, b] = replace(found[a, b], inferred=(*found[a, b].inferred, _NVLINK_IS_FASTER))
    groups = _groups(gpus, found)
    group_of = {gpu: place for place, group in enumerate(groups) for gpu in group}
    asks = not versions.at_least(version, _SHM_BETWEEN_GROUPS)
    for (a, b), each in found.items():
        if group_of[a] != group_of[b]:
            found[a, b] = replace(each, choice=_between_groups(each, asks or not choices.shm), read=False)
    return Host(gpus, found, network, groups)


def _seen(
    system: System, given: Given, choices: Choices
) -> tuple[dict[Node, Ways], dict[tuple[Node, Node], Reach], Network]:
    known = paths.all_ways(system, given, (Kind.CPU, Kind.GPU, Kind.NET))
    reached = paths.between_gpus(system, given, known)
    return known, reached, Network(system, known, reached, choices.switches)


def _connect(a: Node, b: Node, reach: Reach, given: Given, choices: Choices, faster: bool | None) -> Connection:
    """In NCCL's order: P2P, shared memory, network."""
    if a.key[0] != b.key[0]:
        joined = reach.kind is not None and reach.kind <= NcclPath.NVB
        why = "NVLink joins the two hosts" if joined else "the GPUs are in different hosts"
        return Connection(TransportChoice("P2P" if joined else "NET", why), reach)
    grant = given.grant(a, b)
    near = reach.shortest is not None and reach.shortest <= NcclPath.NVB
    # A model that is refused P2P over PCIe has it over NVLink; only a driver that was asked counts there.
    granted = True if near and grant.reason else grant.given
    told = [
        model.transport(path=reach.shortest, p2p_ok=granted, level=level, shm_disabled=not choices.shm)
        for level in given.levels
    ]
    choice = told[0]
    if len({each.kind for each in told}) > 1:
        choice = TransportChoice(None, given.why_levels)
    elif choice.kind is None and reach.unknown is not None:
        choice = TransportChoice(None, reach.unknown)
    matters = any(reach.shortest is None or reach.shortest <= level for level in given.levels)
    asked = (grant.reason,) if grant.reason and matters and not (near and grant.given is False) else ()
    if faster:
        gbps = f"{reach.path.gbps:g} GB/s" if reach.path is not None else "it"
        why = f"NCCL reckons with {gbps} between them, and each reaches a NIC below a switch with more"
        return Connection(TransportChoice("NET", why), reach, faster, asked)
    if faster is None:
        why = "whether NCCL thinks the network faster depends on bandwidths that were not read"
        return Connection(TransportChoice(None, why), reach, faster, asked)
    capabilities = [integer(node.element, "sm") for node in (a, b)]
    read = choice.kind == "P2P" and reach.kind is NcclPath.NVL and capabilities == [_READS, _READS]
    return Connection(choice, reach, faster, asked, read)


def _between_groups(connection: Connection, asks: bool) -> TransportChoice:
    why = "NCCL divides the GPUs of this host and plans rings as if these two were in different hosts"
    if connection.choice.kind == "NET":
        why = f"{connection.choice.why}; it divides the host there"
    if asks:
        return TransportChoice("NET", why)
    return TransportChoice("SHM", f"{why}, but when it connects them, shared memory comes before the network")


def _groups(gpus: list[Node], found: Mapping[tuple[Node, Node], Connection]) -> list[list[Node]]:
    """The GPUs that reach each other without the network, as NCCL joins them (`ncclTopoTrimSystem`)."""
    first = list(range(len(gpus)))
    for g, gpu in enumerate(gpus):
        for p in range(g):
            if found[gpu, gpus[p]].choice.kind != "NET":
                first[g] = min(first[g], first[p])
    return [[gpu for g, gpu in enumerate(gpus) if first[g] == each] for each in dict.fromkeys(first)]


def boards(build: Callable[[], System], given: Given, choices: Choices, host: Host, *, inter: bool) -> list[Board]:
    """What NCCL searches, for each group. `build` makes the system of `host` anew; `inter`: other hosts take part."""
    made = []
    for group in host.groups:
        kept = {id(gpu.element) for gpu in group}
        system = build()
        for gpu in [gpu for gpu in system.nodes[Kind.GPU] if id(gpu.element) not in kept]:
            system.remove_gpu(gpu)
        made.append(board.build(system, *_seen(system, given, choices), inter=inter or len(host.groups) > 1))
    return made


def why_no_search(host: Host) -> str | None:
    """Why rings cannot be searched: what is not known about GPUs, the CPU and paths, each once."""
    reasons: dict[str, None] = {}
    reaches = [connection.reach for connection in host.connections.values()]
    if any(reach.kind is None or reach.kind > NcclPath.NVB for reach in reaches):
        reasons.update(dict.fromkeys(why for gpu in host.gpus if (why := _cpu_unread(gpu))))
    for gpu in host.gpus:
        if integer(gpu.element, "sm") is None:
            reasons[gpu.element.missing.get("sm", "a compute capability is not in the file")] = None
    for connection in host.connections.values():
        reach = connection.reach
        if reach.unknown is not None or reach.kind is None:
            reasons[reach.unknown or "a path between two GPUs is not known"] = None
        elif connection.faster_network is None:
            reasons["whether the network is faster than the path between two GPUs is not known"] = None
    return "; ".join(reasons) or None


def _cpu_unread(gpu: Node) -> str | None:
    """Why the CPU above a GPU is not known. It matters for paths that lead through it."""
    cpu = local_cpu(gpu.parent or gpu)
    if cpu is None or "arch" in cpu.element.attributes:
        return None
    return cpu.element.missing.get("arch", "the CPU is not in the file")
