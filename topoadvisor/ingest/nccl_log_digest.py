"""The records of a log → the summary: communicators put together from their ranks, texts of connections read."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from topoadvisor.ingest import nccl_log_rings as rings
from topoadvisor.ingest import nccl_log_warnings
from topoadvisor.ingest.nccl_log_records import NO_VERBS, UNREAD, Member, Records, Table, Tally
from topoadvisor.ingest.nccl_log_summary import (
    MAX_CHOICES,
    MAX_COMMUNICATORS,
    MAX_WARNINGS,
    Choice,
    Communicator,
    Connection,
    Gdr,
    Graph,
    Interface,
    Plugin,
    Rank,
    SettingSeen,
    Summary,
    Version,
    Warned,
)
from topoadvisor.ingest.nccl_log_topology import address
from topoadvisor.nccl import levels

_CONNECTION: Final = re.compile(
    r"([0-9]{1,7})(?:\[[0-9a-f]{1,16}\])? -> ([0-9]{1,7})(?:\[[0-9a-f]{1,16}\])?"
    r"(?: \[(send|receive)\])? via (\S.{0,200})"
)
_OWN_RANK: Final = re.compile(rb"->([0-9]{1,7})->")
"""Who prints a line of trees stands in the middle of it."""
_COMM: Final = re.compile(r" comm 0x[0-9a-f]{1,16}.*$")
_NET: Final = re.compile(r"NET/(.{1,60}?)/([0-9]{1,5})(?:\(([0-9]{1,7})\))?((?:/[A-Za-z][^/]{0,40})*)")
_CHOICE: Final = re.compile(
    r"(?:([A-Za-z]{1,30})(?: \[([A-Za-z ]{1,30})\])?: )?([0-9]{1,18}) Bytes -> "
    r"(?:Algo (\S{1,30}) proto (\S{1,30})|(?:Kernel )?(\S{1,80}))"
    r"(?:.*(?:channel\{Lo\.\.Hi\}=\{([0-9]{1,4})\.\.([0-9]{1,4})\}|nchannels ([0-9]{1,4})))?"
)
_GDR: Final = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for (?:GPU ([0-9a-f]{1,16})(?:\[[0-9]{1,4}\])? / )?HCA ([0-9a-f]{1,16})"
    r"(?: '([^']{1,80})')?(?: \(distance ([0-9]{1,4}) (?:<=|>=|<|>) ([0-9]{1,4})\))?(.*)"
)
_ALGORITHMS: Final = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS: Final = ("LL", "LL128", "Simple")
"""Numbers that NCCL 2.20 to 2.24 prints instead of names (`NCCL_ALGO_*` and `NCCL_PROTO_*` in `nccl_common.h`)."""
_PATTERNS: Final = {1: "balanced tree", 2: "split tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet direct"}
"""`NCCL_TOPO_PATTERN_*` in `src/include/graph.h`."""
_MOST_HOSTS: Final = 64


def digest(records: Records, *, files: list[str], size_bytes: int, lines: int, notes: list[str]) -> Summary:
    """The summary of all records."""
    for member in records.members:
        if member.rank is None and (own := _OWN_RANK.search(member.trees or b"")) is not None:
            member.rank = int(own[1])
    groups = _groups(records.members)
    chosen = sorted(groups.items(), key=lambda item: (-_size(item[1]), item[0]))
    notes = [*notes, *(f"{count} {what} were not kept" for what, count in sorted(records.dropped.items()))]
    if len(chosen) > MAX_COMMUNICATORS:
        notes.append(f"{len(chosen)} communicators; the {MAX_COMMUNICATORS} largest are shown in full")
    transports: Counter[str] = Counter()
    communicators = []
    for number, (key, members) in enumerate(chosen):
        connections = _connections(members)
        transports.update(connection.via for connection in connections)
        if number < MAX_COMMUNICATORS:
            communicators.append(_communicator(key, number, members, connections))
    version = max(records.versions, key=lambda key: records.versions[key].count)[0] if records.versions else None
    named = [process for process in records.processes.values() if process.host is not None]
    return Summary(
        files=files,
        size_bytes=size_bytes,
        lines=lines,
        nccl_lines=records.nccl_lines,
        info=records.info,
        unread=sum(records.dropped[what] for what in UNREAD),
        processes=len(named),
        hosts=sorted({process.host for process in named if process.host is not None}),
        versions=[
            Version(version=version, cuda=cuda or None, processes=_voices(tally, records), hosts=_hosts(tally))
            for (version, cuda), tally in sorted(records.versions.items())
        ],
        cuda_driver=records.cuda_driver,
        settings=[
            SettingSeen(
                name=name, value=value, processes=_voices(tally, records), hosts=_hosts(tally), place=tally.place
            )
            for (name, value), tally in sorted(records.settings.items())
        ],
        bootstrap=_interfaces(records.bootstrap, records),
        ib_devices=[
            Interface(name=name, index=int(number), processes=_voices(tally, records), hosts=_hosts(tally))
            for (name, number), tally in sorted(records.ib_devices.items(), key=lambda item: int(item[0][1]))
        ],
        ib_asked=records.ib_asked,
        ib_absent_on=sorted({host for tally in records.ib_absent.values() for host in _hosts(tally)}),
        verbs_missing_on=[
            host for (_, why), tally in records.ib_absent.items() if why == NO_VERBS for host in _hosts(tally)
        ],
        socket_interfaces=_interfaces(records.sockets, records),
        plugins=[
            Plugin(kind=kind, name=name, processes=_voices(tally, records), hosts=_hosts(tally))  # type: ignore[arg-type]
            for (kind, name), tally in sorted(records.plugins.items())
        ],
        gdr=list(_gdr(records.gdr, version)),
        topologies=[
            printed.frozen(host) for host, printed in sorted(records.topologies.items(), key=lambda item: item[0] or "")
        ],
        topology_xml=records.xml.get("system"),
        graph_xml=records.xml.get("graphs"),
        graphs=_graphs(records.graphs),
        communicators=communicators,
        communicators_seen=len(chosen),
        transports=dict(sorted(transports.items())),
        choices=_choices(records.choices, notes),
        operations={name.decode("ascii", "replace"): count for name, count in sorted(records.operations.items())},
        warnings=_warnings(records, notes),
        notes=notes,
    )


def _voices(tally: Tally, records: Records) -> int:
    unnamed = records.processes.get((None, None))
    return len(tally.processes - {unnamed.number} if unnamed is not None else tally.processes)


def _hosts(tally: Tally) -> list[str]:
    return sorted(tally.hosts)[:_MOST_HOSTS]


def _interfaces(table: Table, records: Records) -> list[Interface]:
    return [
        Interface(name=name, address=where or None, processes=_voices(tally, records), hosts=_hosts(tally))
        for (name, where), tally in sorted(table.items())
    ]


def _graphs(table: Mapping[tuple[str, ...], Tally]) -> list[Graph]:
    found = [
        Graph(
            pattern=_PATTERNS.get(int(pattern), pattern),
            cross_nic=int(cross_nic),
            channels=int(channels),
            intra_gbps=float(intra_gbps),
            inter_gbps=float(inter_gbps),
            intra=intra,
            inter=inter,
            hosts=_hosts(tally),
        )
        for (pattern, cross_nic, channels, intra_gbps, inter_gbps, intra, inter), tally in table.items()
    ]
    return sorted(found, key=lambda graph: (graph.pattern, -graph.channels, graph.intra_gbps, graph.intra))


def _groups(members: Iterable[Member]) -> dict[tuple[str, ...], list[Member]]:
    """Communicator → its ranks. Without an id, the n-th time a rank of that size appears is the n-th communicator."""
    groups: dict[tuple[str, ...], list[Member]] = defaultdict(list)
    seen: Counter[tuple[int | None, int | None]] = Counter()
    communicators: dict[int, set[tuple[str, ...]]] = defaultdict(set)
    homeless: list[Member] = []
    for member in members:
        if member.rank is None or member.size is None:
            if not member.empty:
                homeless.append(member)
            continue
        if member.key is not None:
            key = (*member.key, str(member.size))
        else:
            seen[member.size, member.rank] += 1
            key = ("", str(seen[member.size, member.rank]), str(member.size))
        groups[key].append(member)
        communicators[member.process.number].add(key)
    for member in homeless:
        # The log begins late, or these connect a send and a receive: the process's only communicator, if it has one.
        own = communicators.get(member.process.number, set())
        groups[next(iter(own)) if len(own) == 1 else ("lost", "?")].append(member)
    return dict(groups)


def _size(members: Sequence[Member]) -> int:
    return max((member.size or 0 for member in members), default=0)


def _communicator(
    key: tuple[str, ...], number: int, members: list[Member], connections: list[Connection]
) -> Communicator:
    by_rank: dict[int, Member] = {}
    for member in members:
        if member.rank is not None and (member.rank not in by_rank or member.complete):
            by_rank[member.rank] = member
    printed_size = _size(members)
    size = printed_size
    if not size:
        size = max((max(connection.a, connection.b) + 1 for connection in connections), default=0)
    printed, cut = rings.printed(members, size)
    found = printed if printed and not cut else rings.from_neighbours(members, size)
    found = found or rings.from_connections(members, size) or printed
    return Communicator(
        id=key[1] if key[0] == "id" else f"#{number + 1}",
        size=size,
        at_least=not printed_size,
        ranks=[_rank(rank, member) for rank, member in sorted(by_rank.items())],
        complete=sum(member.complete for member in by_rank.values()),
        started=sum(member.started for member in by_rank.values()),
        nodes=next((member.nodes for member in members if member.nodes is not None), None),
        channels=_most(member.channels for member in members) or rings.count(found) or None,
        nvls_channels=_most(member.nvls_channels for member in members),
        nvls=next((member.nvls for member in members if member.nvls is not None), None),
        mnnvl=next((member.mnnvl for member in members if member.mnnvl is not None), None),
        connections=connections,
        collnet=sorted({text for member in members for text in member.collnet}),
        rings=found,
        trees=rings.trees(by_rank, size),
        tuner=next((member.tuner for member in members if member.tuner), []),
    )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _rank(rank: int, member: Member) -> Rank:
    return Rank(
        rank=rank,
        host=member.process.host,
        pid=member.process.pid,
        cuda_device=member.cuda_device,
        nvml_device=member.nvml_device,
        address=address(member.bus) if member.bus else None,
        complete=member.complete,
    )


class _Link(NamedTuple):
    """What one text of a connection says."""

    a: int
    b: int
    via: str
    device: int | None
    gdr: bool | None
    proxy: bool


class _Ends:
    """What both ends of a connection say of it."""

    __slots__ = ("bits", "devices", "gdr", "proxy")

    def __init__(self) -> None:
        self.bits = 0
        self.devices: set[int] = set()
        self.gdr: set[bool] = set()
        self.proxy = False


def _connections(members: Sequence[Member]) -> list[Connection]:
    found: dict[tuple[int, int, str], _Ends] = defaultdict(_Ends)
    homes: dict[int, str] = {}
    nodes = max((member.nodes or 0 for member in members), default=0)
    for member in members:
        if member.rank is not None and member.process.host is not None:
            homes[member.rank] = member.process.host
        for table in (member.rings, member.others):
            for text, bits in table.items():
                link = _link(text)
                if link is None:
                    continue
                ends = found[link.a, link.b, link.via]
                ends.bits |= bits
                ends.proxy |= link.proxy
                if link.device is not None:
                    ends.devices.add(link.device)
                if link.gdr is not None:
                    ends.gdr.add(link.gdr)
    if nodes > len(set(homes.values())):
        # Several machines have one name, or some printed nothing: then the names decide nothing.
        homes = homes if len(homes) < _size(members) else {}
    return [
        Connection(
            a=a,
            b=b,
            transport=via.partition("/")[0],
            via=via,
            channels=ends.bits.bit_count(),
            devices=sorted(ends.devices),
            gdr=_of(ends.gdr),
            proxy=ends.proxy,
            same_host=homes[a] == homes[b] if a in homes and b in homes else None,
        )
        for (a, b, via), ends in sorted(found.items())
    ]


@lru_cache(maxsize=1 << 14)
def _link(text: bytes) -> _Link | None:
    """Communicators of one job repeat each other's texts."""
    match = _CONNECTION.match(text.decode("utf-8", "replace")) if b" via " in text else None
    if match is None:
        return None
    via = _COMM.sub("", match[4]).strip()
    if net := _NET.fullmatch(via):
        return _Link(
            int(match[1]), int(match[2]), f"NET/{net[1]}", int(net[2]), "GDRDMA" in net[4], proxy=net[3] is not None
        )
    if via == "direct shared memory":
        via = "SHM/direct shared memory"  # before 2.13
    if via.partition("/")[0] not in ("P2P", "SHM", "NET"):
        return None
    return _Link(int(match[1]), int(match[2]), via, None, None, proxy=False)


def _of(values: set[bool]) -> Literal["on", "off", "mixed"] | None:
    if not values:
        return None
    return "mixed" if len(values) > 1 else "on" if True in values else "off"


def _gdr(table: Table, version: str | None) -> Iterator[Gdr]:
    for (text, _), tally in sorted(table.items()):
        match = _GDR.match(text)
        if match is None:
            continue
        distance, limit = (int(number) if number else None for number in (match[5], match[6]))
        yield Gdr(
            device=match[4] or match[3],
            enabled=match[1] == "Enabled",
            gpu=match[2],
            distance=distance,
            limit=limit,
            path=levels.printed_path(distance, version),
            limit_path=levels.printed_path(limit, version),
            module_missing="no module" in match[7],
            count=tally.count,
            hosts=_hosts(tally),
        )


def _choices(counted: Mapping[bytes, int], notes: list[str]) -> list[Choice]:
    sizes: dict[tuple[str, str, str, int | None], list[tuple[int, int]]] = defaultdict(list)
    for body, count in counted.items():
        match = _CHOICE.match(body.decode("ascii", "replace"))
        if match is None:
            continue
        algorithm, protocol = match[4], match[5]
        if algorithm is None:
            algorithm, protocol = match[2] or "other", match[6]
        algorithm, protocol = _named(algorithm, _ALGORITHMS), _named(protocol, _PROTOCOLS)
        channels = int(match[8]) - int(match[7]) + 1 if match[7] else int(match[9]) if match[9] else None
        sizes[match[1] or "any", algorithm, protocol, channels].append((int(match[3]), count))
    found = [
        Choice(
            collective=collective,
            algorithm=algorithm,
            protocol=protocol,
            min_bytes=min(size for size, _ in used),
            max_bytes=max(size for size, _ in used),
            channels=channels,
            count=sum(count for _, count in used),
        )
        for (collective, algorithm, protocol, channels), used in sizes.items()
    ]
    found.sort(key=lambda choice: (choice.collective, choice.min_bytes, choice.max_bytes, choice.algorithm))
    if len(found) > MAX_CHOICES:
        notes.append(f"{len(found) - MAX_CHOICES} of the tuner's choices are left out")
    return found[:MAX_CHOICES]


def _named(text: str, names: Sequence[str]) -> str:
    return names[int(text)] if re.fullmatch(r"[0-9]", text) and int(text) < len(names) else text


def _warnings(records: Records, notes: list[str]) -> list[Warned]:
    kinds = nccl_log_warnings.BY_NAME
    found = [
        Warned(
            kind=name,
            severity=kinds[name].severity,
            message=records.examples.get((name, shape), ""),
            count=tally.count,
            place=tally.place,
            hosts=_hosts(tally),
        )
        for (name, shape), tally in records.warnings.items()
        if tally.place is not None
    ]
    order = ("error", "warning", "info")
    found.sort(key=lambda warned: (order.index(warned.severity), -warned.count, warned.message))
    if len(found) > MAX_WARNINGS:
        notes.append(f"{len(found) - MAX_WARNINGS} more wordings of warnings are left out")
    return found[:MAX_WARNINGS]
