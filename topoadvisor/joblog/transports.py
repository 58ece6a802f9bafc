"""The verdict on transports: shared memory, network and GPUDirect RDMA against what the machine could do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from topoadvisor.ingest.nccl_log_summary import Connection, Gdr
from topoadvisor.joblog.document import Finding, Undecided, finding
from topoadvisor.joblog.view import Between, View, by_rank, shortened
from topoadvisor.nccl.levels import NcclPath, parse_int

_GRAPH: Final = "Run once with NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET, or give --topology SOURCE."


def judge(view: View) -> Iterator[Finding | Undecided]:
    """Everything that can be said about transports."""
    yield from _shared_memory(view)
    yield from _sockets(view)
    yield from _inside(view)
    yield from _gdr(view)


def _network(view: View) -> Iterator[Connection]:
    """Connections over the network, of all communicators."""
    for communicator in view.summary.communicators:
        for connection in communicator.connections:
            if connection.transport == "NET":
                yield connection


def _subject(connection: Connection) -> str:
    return f"{connection.a}>{connection.b}"


def _pairs(subjects: Sequence[str], whose: str = "ranks") -> str:
    return f"{len(subjects)} pair{'s' if len(subjects) > 1 else ''} of {whose} ({shortened(subjects)})"


def _shared_memory(view: View) -> Iterator[Finding | Undecided]:
    groups: dict[tuple[str, ...], list[str]] = {}
    user = view.user_level()
    for communicator in view.summary.communicators:
        ranks = by_rank(communicator)
        defaults: dict[str | None, NcclPath | None] = {}
        for connection in communicator.connections:
            if connection.transport != "SHM":
                continue
            a, b = ranks.get(connection.a), ranks.get(connection.b)
            host = a.host if a is not None else None
            if host not in defaults:
                defaults[host] = view.default_level(communicator, host)
            between = view.between(a, b) if a is not None and b is not None else None
            status = view.refused(a, b) if a is not None and b is not None else None
            key = _why_shm(between, status, user, defaults[host])
            groups.setdefault(key, []).append(_subject(connection))
    for key, subjects in groups.items():
        yield from _shm_verdict(view, key, list(dict.fromkeys(subjects)))


def _why_shm(
    between: Between | None, status: str | None, user: tuple[NcclPath, str] | None, default: NcclPath | None
) -> tuple[str, ...]:
    """Kind of the case, then what its sentence needs."""
    path = between.path.name if between is not None else ""
    origin = between.origin if between is not None else ""
    if status is not None:
        return "driver", path, status
    if user is not None and (between is None or between.path > user[0] or user[0] is NcclPath.LOC):
        within = between is not None and (
            between.path <= NcclPath.NVL or (default is not None and between.path <= default)
        )
        return ("variable" if within else "variable, path far or not known"), path, user[1]
    if between is None:
        return ("path not known",)
    limit = user[0] if user is not None else default
    if limit is None and between.path > NcclPath.NVL:
        return "level not known", path
    if limit is None or between.path <= limit:
        return "possible", path, origin
    return "beyond", path, limit.name


def _shm_verdict(view: View, key: tuple[str, ...], subjects: list[str]) -> Iterator[Finding | Undecided]:
    pairs = _pairs(subjects)
    match key:
        case ("driver", path, status):
            yield finding(
                "LOG001",
                "info",
                f"{pairs} use shared memory, as they must: the driver refuses P2P ({status})",
                subjects=subjects,
                evidence=[f"path {path}" if path else "path not known", f"P2P status {status} ({view.source})"],
            )
        case ("variable", path, variable):
            yield finding(
                "LOG001",
                "error",
                f"{pairs} go through shared memory although P2P over {path} is possible: {variable} forbids it",
                subjects=subjects,
                evidence=[f"path {path}", f"{variable} in the log"],
                advice=[f"Unset {variable.partition('=')[0]}; if it went round a fault, find that one first."],
            )
        case ("variable, path far or not known", path, variable):
            yield finding(
                "LOG001",
                "warning",
                f"{pairs} go through shared memory because {variable} forbids P2P"
                + (f"; by default NCCL would not use it over {path} either, or that is not known" if path else ""),
                subjects=subjects,
                evidence=[f"{variable} in the log"],
                advice=[f"Unset {variable.partition('=')[0]} unless a measurement speaks for it."],
            )
        case ("possible", path, origin):
            yield finding(
                "LOG001",
                "error",
                f"{pairs} go through shared memory although P2P over {path} is within NCCL's level",
                subjects=subjects,
                evidence=[f"path {path} ({origin})", "no variable in the log forbids P2P"],
                advice=[
                    "`nvidia-smi topo -p2p r` shows whether the driver grants it; processes in containers also need "
                    "a common /dev/shm and PID or IPC namespace (`--ipc=host`)."
                ],
            )
        case ("beyond", path, limit):
            yield finding(
                "LOG001",
                "info",
                f"{pairs} use shared memory because the path {path} is beyond NCCL's P2P level {limit}",
                subjects=subjects,
                evidence=[f"path {path}", f"level {limit}"],
                advice=[f"Whether NCCL_P2P_LEVEL={path} is faster here can only be measured: `topoadvisor verify`."],
            )
        case ("level not known", path):
            yield Undecided(
                id="LOG001",
                question=f"whether P2P over {path} was possible where {pairs} use shared memory",
                reason="NCCL's default level depends on version, CPU and GPUs, which the log does not all show",
                ask=_GRAPH,
            )
        case _:
            yield Undecided(
                id="LOG001",
                question=f"whether P2P was possible where {pairs} use shared memory",
                reason="the log does not show the path between these GPUs",
                ask=_GRAPH,
            )


def _sockets(view: View) -> Iterator[Finding | Undecided]:
    subjects = [
        _subject(connection)
        for connection in _network(view)
        if connection.via == "NET/Socket" and connection.same_host is not True
    ]
    if not subjects:
        return
    subjects = list(dict.fromkeys(subjects))
    pairs = _pairs(subjects)
    seen = [device.name for device in view.summary.ib_devices]
    missing = view.summary.verbs_missing_on
    present = view.rdma()
    net, disabled = view.values("NCCL_NET"), view.values("NCCL_IB_DISABLE")
    off = [f"NCCL_IB_DISABLE={value}" for value in disabled if parse_int(value)]
    off += [f"NCCL_NET={value}" for value in net if value.lower() == "socket"]
    hca = [f"NCCL_IB_HCA={value}" for value in view.values("NCCL_IB_HCA")]
    if seen or present:
        why = (
            f"{off[0]} forbids it"
            if off
            else f"NCCL could not open libibverbs on {shortened(missing)}"
            if missing
            else f"{hca[0]} may leave it out"
            if hca and not seen
            else "NCCL found none in this process: a container needs /dev/infiniband and libibverbs"
            if view.summary.ib_asked and not seen
            else f"NCCL found none on {shortened(view.summary.ib_absent_on)}"
            if view.summary.ib_absent_on
            else "the log does not say why"
        )
        devices = shortened(seen or present)
        whose = "NCCL itself lists" if seen else f"{view.source} shows"
        yield finding(
            "LOG002",
            "error",
            f"{pairs} use NET/Socket although RDMA is up: {whose} {devices}; {why}",
            subjects=subjects,
            evidence=[f"RDMA devices {devices}", *off, *hca],
            advice=[f"Unset {off[0].partition('=')[0]}." if off else "Make the RDMA devices usable for the process."],
        )
    elif view.snapshot is not None and view.snapshot.nics is not None:
        return
    elif off:
        yield finding(
            "LOG002",
            "warning",
            f"{pairs} use NET/Socket because {off[0]} forbids RDMA",
            subjects=subjects,
            evidence=off,
            advice=["Unset it unless the hosts have no RDMA device."],
        )
    else:
        found = "the log does not show NCCL's search for one"
        if view.summary.ib_asked:
            found = "NCCL could not open libibverbs" if missing else "NCCL found no RDMA device"
        yield Undecided(
            id="LOG002",
            question=f"whether there is InfiniBand or RoCE that {pairs} over NET/Socket could use",
            reason=found,
            ask="Give a capture of one host: --topology SOURCE.",
        )


def _inside(view: View) -> Iterator[Finding]:
    for via in sorted({connection.via for connection in _network(view) if connection.same_host}):
        subjects = [
            _subject(connection) for connection in _network(view) if connection.same_host and connection.via == via
        ]
        subjects = list(dict.fromkeys(subjects))
        variables = [f"NCCL_SHM_DISABLE={value}" for value in view.values("NCCL_SHM_DISABLE") if parse_int(value)]
        if user := view.user_level():
            variables.append(user[1])
        because = " because of " + " and ".join(variables) if variables else ""
        yield finding(
            "LOG003",
            "error" if via == "NET/Socket" or variables else "warning",
            f"{_pairs(subjects, 'ranks of one host')} talk over the network, {via}{because}",
            subjects=subjects,
            evidence=variables,
            advice=[
                f"Unset {shortened(variable.partition('=')[0] for variable in variables)}."
                if variables
                else "Neither P2P nor shared memory worked: containers need a common /dev/shm (`--ipc=host`)."
            ],
        )


def _gdr(view: View) -> Iterator[Finding]:
    connections = [
        connection
        for connection in _network(view)
        if connection.gdr in ("off", "mixed") and connection.via != "NET/Socket"
    ]
    if not connections:
        return
    subjects = list(dict.fromkeys(_subject(connection) for connection in connections))
    via = shortened(sorted({connection.via for connection in connections}))
    refused = [each for each in view.summary.gdr if not each.enabled and "Socket" not in each.device]
    devices = [each for each in refused if each.gpu is None and _is_used(each, view)]
    far = [each for each in refused if each.gpu is not None]
    evidence = [_spelled(each) for each in [*devices, *far][:6]]
    message = f"{_pairs(subjects)} use {via} without GPUDirect RDMA"
    if devices:
        names = shortened(sorted({each.device for each in devices}))
        yield finding(
            "LOG004",
            "error",
            f"{message}: NCCL says that {names} cannot do it",
            subjects=subjects,
            evidence=evidence,
            advice=[
                "Load nvidia-peermem, or use the open kernel modules with a kernel and rdma-core that know DMA-BUF; "
                "a container needs both from its host. Then look for `GPU Direct RDMA Enabled for HCA`."
            ],
        )
    elif far:
        level = [f"NCCL_NET_GDR_LEVEL={value}" for value in view.values("NCCL_NET_GDR_LEVEL")]
        paths = shortened(sorted({each.path or str(each.distance) for each in far if each.distance is not None}))
        limit = shortened(sorted({each.limit_path or str(each.limit) for each in far if each.limit is not None}))
        yield finding(
            "LOG004",
            "warning",
            f"{message}: the way from GPU to NIC ({paths}) is beyond the level {limit}"
            + (f" that {level[0]} sets" if level else ""),
            subjects=subjects,
            evidence=evidence,
            advice=[
                f"Unset {level[0].partition('=')[0]}."
                if level
                else "Use the NIC next to each GPU (NCCL_IB_HCA may hide it); a higher NCCL_NET_GDR_LEVEL only with a "
                "measurement."
            ],
        )
    else:
        yield finding(
            "LOG004",
            "warning",
            f"{message}; the log does not say why",
            subjects=subjects,
            evidence=[],
            advice=["Run once with NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET: NCCL then prints the reason per device."],
        )


def _is_used(each: Gdr, view: View) -> bool:
    """A device that NCCL uses for RDMA; the socket transport reports its interfaces too."""
    return each.device not in {interface.name for interface in view.summary.socket_interfaces}


def _spelled(each: Gdr) -> str:
    who = f"GPU {each.gpu} / {each.hca}" if each.gpu else each.hca
    if each.distance is None:
        return f"GPU Direct RDMA disabled for {who}" + (" (no module)" if each.module_missing else "")
    return f"GPU Direct RDMA disabled for {who}: {each.path or each.distance} is beyond {each.limit_path or each.limit}"
