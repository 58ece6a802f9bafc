"""The verdict on a log: what went wrong in this job, what the machine could do better, what cannot be told."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from topoadvisor.ingest.nccl_log_rings import walk_pairs
from topoadvisor.ingest.nccl_log_summary import Communicator, Ring, SettingSeen, Summary, Warned
from topoadvisor.ingest.nccl_log_warnings import BY_NAME
from topoadvisor.joblog import transports
from topoadvisor.joblog.document import SEVERITIES, Finding, Log, Undecided, finding, judged
from topoadvisor.joblog.view import View, by_rank, shortened
from topoadvisor.nccl import versions
from topoadvisor.nccl.levels import NcclPath, parse_int
from topoadvisor.nccl.settings import registry
from topoadvisor.snapshot import Snapshot

_VIRTUAL: Final = re.compile(
    r"lo|(?:docker|virbr|veth|vnet|cni|flannel|cali|cilium|tunl|tun|tap|tailscale|wg|podman|lxc|lxd|kube|vmnet|zt)[\w.-]*|br-.*"
)
"""Interfaces that lead to no other host, or by a detour: loop, bridges of containers and guests, tunnels."""

_OWN: Final = frozenset(
    {
        "NCCL_DEBUG_FILE",
        "NCCL_TOPO_FILE",
        "NCCL_TOPO_DUMP_FILE",
        "NCCL_GRAPH_FILE",
        "NCCL_GRAPH_DUMP_FILE",
        "NCCL_HOSTID",
        "NCCL_COMM_ID",
        "NCCL_PROXY_CPUSET",
    }
)
"""Of each process its own, or printed by one rank only."""

_SMALLEST_BUFFER: Final = 65_536
"""NCCL cuts a buffer into 8 steps of at least some kilobytes; a value below this was meant in another unit."""


def judge(summary: Summary, snapshot: Snapshot | None = None, source: str | None = None) -> Log:
    """The document for a log; `snapshot` adds what the log cannot show. Pure."""
    view = View(summary, snapshot, source)
    found: list[Finding] = []
    unknown: list[Undecided] = []
    for part in (transports.judge, _versions, _networks, _settings, _rings, _bootstrap, _unfinished, _warned, _nvls):
        for each in part(view):
            if isinstance(each, Finding):
                found.append(each)
            else:
                unknown.append(each)
    summary = _with_origins(summary, snapshot)
    if view.stranger:
        note = f"No GPU of the log has an address that {view.source} knows: is it another machine?"
        summary = msgspec.structs.replace(summary, notes=[*summary.notes, note])
    return judged(summary, found, unknown, source if snapshot is not None else None)


def _processes(count: int) -> str:
    return f"{count} process{'es' if count != 1 else ''}"


def _with_origins(summary: Summary, snapshot: Snapshot | None) -> Summary:
    """Settings with where they stand, as far as the snapshot's files and environment hold the same value."""
    if snapshot is None or not snapshot.settings:
        return summary
    places = {}
    for setting in reversed(snapshot.settings):
        places[setting.name, setting.value] = setting.place
    settings = [msgspec.structs.replace(each, origin=places.get((each.name, each.value))) for each in summary.settings]
    return msgspec.structs.replace(summary, settings=settings)


def _versions(view: View) -> Iterator[Finding]:
    seen = view.summary.versions
    if len({each.version for each in seen}) > 1:
        said = [f"{each.version} on {shortened(each.hosts) or 'ranks not named'}" for each in seen]
        yield finding(
            "LOG005",
            "error",
            f"the ranks run different versions of NCCL: {'; '.join(said)}",
            subjects=[each.version for each in seen],
            evidence=[f"NCCL version {each.version}: {_processes(each.processes)}" for each in seen],
            advice=["Use one image or environment for all ranks; NCCL refuses mixed versions, or hangs."],
        )
    elif len(seen) > 1:
        yield finding(
            "LOG005",
            "warning",
            f"the ranks run NCCL {seen[0].version} built with different CUDA: "
            + ", ".join(str(each.cuda) for each in seen),
            evidence=[f"+cuda{each.cuda} on {shortened(each.hosts)}" for each in seen],
        )


def _networks(view: View) -> Iterator[Finding]:
    for kind in ("network", "net plugin", "net plugin release"):
        seen = [plugin for plugin in view.summary.plugins if plugin.kind == kind]
        names = sorted({plugin.name for plugin in seen})
        # A process may well load two, for two communicators; ranks differ when some lack what others have.
        if len(names) > 1 and any(plugin.processes < view.summary.processes for plugin in seen):
            said = [f"{plugin.name} on {shortened(plugin.hosts) or 'ranks not named'}" for plugin in seen]
            yield finding(
                "LOG006",
                "error" if kind == "network" else "warning",
                f"the ranks use different {kind}s: {'; '.join(said)}",
                subjects=names,
                evidence=[f"{plugin.name}: {_processes(plugin.processes)}" for plugin in seen],
                advice=["All ranks need the same plugin, and RDMA devices that work: look at those that fell back."],
            )


def _settings(view: View) -> Iterator[Finding]:
    by_name: dict[str, list[SettingSeen]] = defaultdict(list)
    for setting in view.summary.settings:
        by_name[setting.name].append(setting)
    initialised = {(rank.host, rank.pid) for each in view.summary.communicators for rank in each.ranks if rank.complete}
    for name, seen in by_name.items():
        if name in _OWN:
            continue
        info = registry().get(name)
        apart = info is not None and (info.equal == "no" or (info.scope == "node" and _by_host(seen)))
        must = info is not None and info.equal == "yes"
        if len(seen) > 1 and not apart:
            said = [f"{setting.value} on {shortened(setting.hosts) or 'ranks not named'}" for setting in seen]
            yield finding(
                "LOG007",
                "error" if must else "warning",
                f"{name} differs between ranks: {'; '.join(said[:6])}",
                subjects=[name],
                evidence=[f"{setting.value}: {_processes(setting.processes)}" for setting in seen[:6]],
                advice=["Set it to one value for all ranks, in one place."],
            )
        elif len(seen) == 1 and 0 < seen[0].processes < len(initialised):
            yield finding(
                "LOG007",
                "warning",
                f"{name}={seen[0].value} is set in {seen[0].processes} of {len(initialised)} processes "
                f"({shortened(seen[0].hosts)}), as far as the log shows",
                subjects=[name],
                evidence=[f"{seen[0].processes} of {len(initialised)} processes printed it"],
                advice=["Pass it to every rank: `mpirun -x`, `srun --export`, or /etc/nccl.conf on every host."],
            )
        if name == "NCCL_BUFFSIZE":
            yield from _buffer(seen[0])


def _by_host(seen: list[SettingSeen]) -> bool:
    """Whether no host has two of the values."""
    hosts = [host for setting in seen for host in setting.hosts]
    return bool(hosts) and len(hosts) == len(set(hosts))


def _buffer(setting: SettingSeen) -> Iterator[Finding]:
    size = parse_int(setting.value)
    if size is not None and 0 <= size < _SMALLEST_BUFFER:
        yield finding(
            "LOG012",
            "error",
            f"NCCL read NCCL_BUFFSIZE as {size} bytes: it drops what follows the digits, such as the M of 8M",
            subjects=["NCCL_BUFFSIZE"],
            evidence=[f"NCCL_BUFFSIZE set to {setting.value}"],
            advice=["Write it in bytes (8388608), or unset it."],
        )


def _rings(view: View) -> Iterator[Finding | Undecided]:
    worst: dict[tuple[str, int, int], list[int]] = {}
    homeless = False
    for communicator in view.summary.communicators:
        for ring in communicator.rings:
            if not ring.complete or len(ring.order) < 3:
                continue
            counted = _crossings(view, communicator, ring)
            if counted is None:
                homeless = True
                continue
            host, crossed, needed = counted
            if crossed > needed:
                order = ">".join(map(str, ring.order[:32]))
                worst.setdefault((f"{host}: {order}", crossed, needed), []).extend(ring.channels)
    for (where, crossed, needed), channels in worst.items():
        yield finding(
            "LOG008",
            "warning",
            f"a ring crosses between NUMA nodes or sockets {crossed} times where {needed} would do ({where})",
            subjects=[where],
            evidence=[f"{len(channels)} channels run it"],
            advice=["Compare with `topoadvisor scan`, which plans rings; ranks in the order of their GPUs help NCCL."],
        )
    if homeless and not worst:
        yield Undecided(
            id="LOG008",
            question="whether the rings cross the sockets more often than needed",
            reason="the log does not show which GPU hangs on which socket",
            ask="Run once with NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH, or give --topology SOURCE.",
        )


def _crossings(view: View, communicator: Communicator, ring: Ring) -> tuple[str, int, int] | None:
    """(host, crossings, fewest possible) of the host where the ring is worst; None when the GPUs' places are unknown.

    NVLink hops cross no socket's link and do not count.
    """
    ranks = by_rank(communicator)
    if any(rank not in ranks for rank in ring.order):
        return None
    homes = {rank: view.home(ranks[rank]) for rank in ring.order}
    if any(home is None for home in homes.values()):
        return None
    crossed: dict[str, int] = defaultdict(int)
    places: dict[str, set[str | None]] = defaultdict(set)
    whole = len({ranks[rank].host for rank in ring.order}) == 1
    for a, b in walk_pairs(ring.order):
        host = str(ranks[a].host)
        places[host].add(homes[a])
        if ranks[a].host != ranks[b].host or homes[a] == homes[b]:
            continue
        between = view.between(ranks[a], ranks[b])
        if between is None:
            return None
        if between.path > NcclPath.NVB:
            crossed[host] += 1
    if not places:
        return None
    excess = {host: crossed[host] - _fewest(len(homes_of), whole) for host, homes_of in places.items()}
    host = max(excess, key=lambda name: excess[name])
    return host, crossed[host], _fewest(len(places[host]), whole)


def _fewest(places: int, whole: bool) -> int:
    """A ring inside one host has to come back; one over several hosts only passes through."""
    return (places if places > 1 else 0) if whole else places - 1


def _bootstrap(view: View) -> Iterator[Finding]:
    seen = view.summary.bootstrap
    wrong = [each for each in seen if _VIRTUAL.fullmatch(each.name)]
    ifname = [f"NCCL_SOCKET_IFNAME={value}" for value in view.values("NCCL_SOCKET_IFNAME")]
    if wrong and view.several_hosts:
        names = shortened(sorted({f"{each.name} ({each.address})" for each in wrong}))
        yield finding(
            "LOG009",
            "error",
            f"NCCL bootstraps over {names}, which leads to no other host",
            subjects=sorted({each.name for each in wrong}),
            evidence=ifname,
            advice=["Name the interface of the hosts' common network: NCCL_SOCKET_IFNAME=^lo,docker or =eth0."],
        )
    elif wrong and any(each.name != "lo" for each in wrong):
        names = shortened(sorted({each.name for each in wrong}))
        yield finding(
            "LOG009",
            "info",
            f"NCCL bootstraps over {names}; on one host that works, with more hosts it will not",
            subjects=sorted({each.name for each in wrong}),
            evidence=ifname,
        )
    different = sorted({each.name for each in seen})
    if view.several_hosts and not wrong and len(different) > 1:
        said = "; ".join(f"{each.name} ({each.address}) on {shortened(each.hosts, 3)}" for each in seen[:6])
        yield finding(
            "LOG009",
            "info",
            f"the hosts bootstrap over interfaces of different names: {said}",
            subjects=different,
            evidence=ifname,
            advice=["Fine when both are in one network; otherwise set NCCL_SOCKET_IFNAME on each host."],
        )


def _unfinished(view: View) -> Iterator[Finding | Undecided]:
    missing = 0
    for communicator in view.summary.communicators:
        started = communicator.started
        waiting = [rank for rank in communicator.ranks if not rank.complete]
        if started and waiting:
            named = shortened(f"{rank.rank} ({rank.host})" if rank.host else f"rank {rank.rank}" for rank in waiting)
            yield finding(
                "LOG010",
                "error",
                f"communicator {communicator.id} of {communicator.size} ranks was begun and not finished by "
                f"{len(waiting)} of them: {named}",
                subjects=[str(rank.rank) for rank in waiting],
                evidence=[f"ranks that printed Init START: {started}, Init COMPLETE: {communicator.complete}"],
                advice=["Either the log ends too early, or these ranks hang or failed: look at their last lines."],
            )
        missing += len(communicator.ranks) < communicator.size
    if missing:
        where = f"{missing} communicator{'s' if missing > 1 else ''}"
        yield Undecided(
            id="LOG010",
            question=f"what the ranks did that the log does not name, in {where}",
            reason="the log does not hold the lines of all ranks, or not those with their numbers",
            ask="Give the logs of all ranks: `topoadvisor log rank*.log`.",
        )


def _warned(view: View) -> Iterator[Finding]:
    by_kind: dict[str, list[Warned]] = defaultdict(list)
    for warned in view.summary.warnings:
        by_kind[warned.kind].append(warned)
    for kind, seen in by_kind.items():
        first = min(seen, key=lambda warned: (SEVERITIES.index(warned.severity), warned.place.line))
        count = sum(warned.count for warned in seen)
        hosts = sorted({host for warned in seen for host in warned.hosts})
        yield finding(
            "LOG011",
            first.severity,
            f"{kind}, {count} time{'s' if count > 1 else ''}"
            + (f" on {shortened(hosts)}" if hosts else "")
            + f": {first.message[:300]}",
            subjects=hosts,
            evidence=[f"{warned.place.file}:{warned.place.line}: {warned.message[:200]}" for warned in seen[:3]],
            advice=[BY_NAME[kind].advice] if BY_NAME[kind].advice else [],
        )


def _nvls(view: View) -> Iterator[Finding]:
    values = view.values("NCCL_NVLS_ENABLE")
    off = [value for value in values if parse_int(value) == 0]
    version = view.version
    if version is None or not versions.at_least(version, "2.17.1"):
        return
    switched = [
        each
        for each in view.summary.communicators
        if each.ranks and view.has_nvswitch(each.ranks[0].host) and (each.nvls is False or off)
    ]
    if switched and off:
        yield finding(
            "LOG013",
            "info",
            f"NVLink SHARP (NVLS) is switched off by NCCL_NVLS_ENABLE={off[0]} on a machine with NVSwitches",
            subjects=["NCCL_NVLS_ENABLE"],
            evidence=[f"NCCL_NVLS_ENABLE={off[0]} in the log"],
            advice=["Unset it to let NCCL decide, unless NVLS failed here."],
        )
    elif switched:
        yield finding(
            "LOG013",
            "info",
            "NCCL says that NVLink SHARP (NVLS) is not available, on a machine with NVSwitches",
            subjects=sorted({str(rank.host) for each in switched for rank in each.ranks})[:8],
            evidence=["NVLS multicast support is not available"],
            advice=["Normal before Hopper, and where a guest or driver does not offer multicast."],
        )
