"""What NCCL does on one machine with one set of variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topoadvisor.errors import NothingDetermined
from topoadvisor.nccl import graphs, host, topo_xml, versions
from topoadvisor.nccl.board import Board
from topoadvisor.nccl.host import Connection, Host
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.system import System, TooLarge
from topoadvisor.nccl.trial import Graph
from topoadvisor.predict import features
from topoadvisor.predict.document import Channels, Feature, GpuPort, Group, Pair, State
from topoadvisor.predict.variables import Variables
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import nccl_nics, nccl_view
from topoadvisor.topology.nccl_nics import Wanted
from topoadvisor.topology.nccl_view import Job

_FAST_CHANNELS: Final = 45_000
"""MB/s."""
_FEW_CHANNELS: Final = 16
_MOST_CHANNELS: Final = 64


@dataclass(frozen=True)
class Outlook:
    """The answer for one set of variables."""

    version: str
    gpus: list[str]
    pairs: list[Pair]
    groups: list[Group]
    ports: list[GpuPort]
    features: list[Feature]
    notes: list[str]


@dataclass
class Searches:
    """Searches that were made, because one machine is asked with many sets of variables."""

    found: dict[tuple[Board, str, int], tuple[Graph, Graph]] = field(default_factory=dict)

    def of(self, board: Board, version: str, cross_nic: int) -> tuple[Graph, Graph]:
        """Rings and trees."""
        key = (board, version, cross_nic)
        if key not in self.found:
            release = graphs.rules(version)
            rings = graphs.rings(board, release, cross_nic)
            self.found[key] = rings, graphs.trees(board, release, rings, cross_nic)
        return self.found[key]


@dataclass(frozen=True)
class Asked:
    """What is asked, beside the snapshot whose variables may change."""

    gpus: Sequence[int] | None
    gdr: bool | None
    """There is a way for GPUDirect RDMA; None = not known."""
    why_gdr: str
    searches: Searches
    hosts: int = 1
    """Hosts like this one in the job."""


def look(snapshot: Snapshot, asked: Asked) -> Outlook:
    """Raises NothingDetermined without a GPU, for a machine that is too large or an NCCL that is too old."""
    job, variables, machine, seen = _seen(snapshot, asked)
    told = features.Told(snapshot, machine, variables, job.version)
    groups = _groups(job, seen, variables, asked, _from_file(snapshot, variables))
    return Outlook(
        version=job.version,
        gpus=sorted((job.label(gpu) for gpu in seen.gpus), key=lambda label: int(label.removeprefix("GPU"))),
        pairs=_pairs(job, seen, told, _topo_file(snapshot, variables)),
        groups=groups,
        ports=_ports(job, seen),
        features=[
            told.cumem,
            told.nvls(),
            features.pxn(seen, snapshot, variables, job),
            told.mnnvl(),
            features.ll128(groups, machine, variables, job.version),
        ],
        notes=list(dict.fromkeys([*job.notes, *job.document.notes])),
    )


def ports(snapshot: Snapshot, asked: Asked) -> list[GpuPort]:
    """The ways between GPUs and network ports alone. Raises as `look` does."""
    job, _, _, seen = _seen(snapshot, asked)
    return _ports(job, seen)


def _seen(snapshot: Snapshot, asked: Asked) -> tuple[Job, Variables, System, Host]:
    job = nccl_view.prepare(snapshot, asked.gpus)
    variables = Variables(snapshot.settings or [], job.version)
    wanted = Wanted(variables.no_rdma() is None, variables.hca(), asked.gdr, asked.why_gdr)
    nccl_nics.put(job.document, snapshot, wanted)
    try:
        machine = job.system()
        return job, variables, machine, host.look(machine, job.given, variables.choices(), job.version)
    except TooLarge as error:
        raise NothingDetermined(str(error), hint="--gpus chooses the GPUs of a smaller job.") from None


def _pairs(job: Job, seen: Host, told: features.Told, described: str | None) -> list[Pair]:
    pairs = [_pair(job.label(a), job.label(b), each, told, described) for (a, b), each in seen.connections.items()]
    return sorted(pairs, key=lambda pair: (int(pair.a.removeprefix("GPU")), int(pair.b.removeprefix("GPU"))))


def _pair(a: str, b: str, connection: Connection, told: features.Told, described: str | None) -> Pair:
    reach, choice = connection.reach, connection.choice
    taken = nccl_view.GRANTED in connection.inferred
    foreign = [f"what NCCL_TOPO_FILE={described} says about it was not read"] if described is not None else []
    return Pair(
        a=a,
        b=b,
        transport=choice.kind or "unknown",
        via=told.via(connection) if choice.kind == "P2P" else None,
        path=reach.kind.name if reach.kind is not None else None,
        gbps=round(reach.gbps, 4) if reach.gbps is not None else None,
        why=choice.why.replace("driver grants", "driver is taken to grant") if taken else choice.why,
        unknown=reach.unknown,
        inferred=list(dict.fromkeys([*reach.inferred, *connection.inferred, *foreign])),
    )


def _groups(job: Job, seen: Host, variables: Variables, asked: Asked, from_file: str | None) -> list[Group]:
    labels = [[job.label(gpu) for gpu in group] for group in seen.groups]
    inter = asked.hosts > 1
    why = from_file or _no_search(job, seen, inter)
    if why is not None:
        return [Group(gpus=group, rings=None, trees=None, channels=None, why=why, inferred=[]) for group in labels]
    boards = host.boards(job.system, job.given, variables.choices(), seen, inter=inter)
    return [
        _group(group, board, job.version, variables, asked.searches)
        for group, board in zip(labels, boards, strict=True)
    ]


def _topo_file(snapshot: Snapshot, variables: Variables) -> str | None:
    """The file that NCCL completes the machine from, where there may be one and a dump does not show the outcome."""
    file = variables.text("NCCL_TOPO_FILE")
    setting = next((each for each in snapshot.settings or () if each.name == "NCCL_TOPO_FILE"), None)
    missing = setting is not None and setting.exists is False
    dumped = any(raw.source == topo_xml.SOURCE for raw in snapshot.raw)
    return None if missing or dumped else file


def _from_file(snapshot: Snapshot, variables: Variables) -> str | None:
    """Why a file decides about rings and trees, and not NCCL's search of the machine as it was read."""
    graph_file, described = variables.text("NCCL_GRAPH_FILE"), _topo_file(snapshot, variables)
    if graph_file is not None:
        return (
            f"NCCL takes those that NCCL_GRAPH_FILE={graph_file} holds and does not search; it was not read, and "
            "where NCCL cannot open it initialization fails"
        )
    if described is not None:
        return f"NCCL takes parts of the machine from NCCL_TOPO_FILE={described}, which was not read; give it as SOURCE"
    return None


def _no_search(job: Job, seen: Host, inter: bool) -> str | None:
    network = seen.network
    if len(seen.gpus) == 1 and not inter:
        return "one GPU alone has nobody to talk to"
    if not versions.at_least(job.version, graphs.OLDEST):
        return f"the search of NCCL {job.version} is not known here, that of {graphs.OLDEST} and newer is"
    if inter or len(seen.groups) > 1:
        if not versions.at_least(job.version, graphs.OLDEST_INTER):
            return f"the search over the network is known here from {graphs.OLDEST_INTER} on"
        if not network.ports:
            return "rings over several hosts lead through network ports, and none is known here"
        unread = next((way.unknown for row in network.send for way in row if way.unknown), None)
        if unread is not None:
            return f"of a way to a network port the bandwidth is not known: {unread}"
    return host.why_no_search(seen)


def _group(gpus: list[str], board: Board, version: str, variables: Variables, searches: Searches) -> Group:
    rings, trees = searches.of(board, version, variables.number("NCCL_CROSS_NIC"))
    count = min(rings.channels, trees.channels)
    channels, why = variables.channels(final_channels(board, rings, trees))
    unread = [why for port in board.ports if (why := port.node.element.missing.get("gdr"))] if board.inter else []
    return Group(
        gpus=gpus,
        rings=_channels(rings, gpus, board, count),
        trees=_channels(trees, gpus, board, count),
        channels=channels,
        why=why,
        inferred=[f"GPUDirect RDMA is taken to work: {why}" for why in dict.fromkeys(unread)],
    )


def final_channels(board: Board, rings: Graph, trees: Graph) -> int:
    """How often NCCL uses the channels of its search: twice, and few fast ones over the network four times.

    (`ncclTopoPostset` in `src/graph/connect.cc`, before the limits of the user.)
    """
    found = 2 * min(rings.channels, trees.channels)
    few = board.inter and board.capability >= 90 and rings.speed > _FAST_CHANNELS and found < _FEW_CHANNELS
    return min(2 * found if few else found, _MOST_CHANNELS)


def _channels(graph: Graph, gpus: list[str], board: Board, count: int) -> Channels:
    orders = [[gpus[place] for place in order] for order in graph.orders[:count]]
    names = [port.name for port in board.ports]
    return Channels(
        searched=len(orders),
        gbps=graph.speed / 1000,
        total_gbps=graph.speed * len(orders) / 1000,
        path=graph.type_intra.name,
        network_path=graph.type_inter.name if board.inter else None,
        orders=orders,
        ports=[[names[port] for port in pair] for pair in graph.ports[:count]],
        same_order=all(order == orders[0] for order in orders),
    )


def _ports(job: Job, seen: Host) -> list[GpuPort]:
    network = seen.network
    found = []
    for g, gpu in enumerate(seen.gpus):
        own = network.local_ports(g)
        for n, port in enumerate(network.ports):
            if network.send[g][n].kind is NcclPath.DIS:
                continue
            send, receive = network.gdr(g, n, read=True), network.gdr(g, n, read=False)
            why = send.why if send.why == receive.why or send.on == receive.on else f"{receive.why}; {send.why}"
            unread = send.unread or receive.unread
            relay = network.relays.get((g, n))
            found.append(
                GpuPort(
                    gpu=job.label(gpu),
                    port=port.name,
                    path=network.send[g][n].kind.name,
                    gbps=None if network.send[g][n].unknown else round(network.send[g][n].gbps, 4),
                    unknown=network.send[g][n].unknown,
                    own=n in own,
                    relay=job.label(seen.gpus[relay]) if relay is not None else None,
                    send=_state(send.on, unread),
                    receive=_state(receive.on, unread),
                    why=f"{why}, but {unread}" if unread and (send.on or receive.on) else why,
                )
            )
    return sorted(found, key=lambda each: int(each.gpu.removeprefix("GPU")))


def _state(on: bool, unread: str | None) -> State:
    return ("unknown" if unread else "on") if on else "off"
