"""A log of NCCL → Snapshot: what the job's log shows of one host. All else stays not read.

The log names the GPUs that take part in the job, not all of the machine. NVLinks are counted by dividing the bandwidth
that NCCL prints by the speed that it gives one link; where more than one answer is possible there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from topoadvisor import pci
from topoadvisor.errors import InputError, Unrecognised
from topoadvisor.ingest import host_marks, hosts, nccl_log, nccl_topo_xml
from topoadvisor.ingest.nccl_log_summary import HostTopology, Node, Rank, Summary
from topoadvisor.ingest.nccl_log_topology import address
from topoadvisor.ingest.part import Part
from topoadvisor.nccl import versions
from topoadvisor.snapshot import (
    LOG,
    Cpu,
    Driver,
    Gpu,
    Host,
    IbPort,
    NcclLibrary,
    Nic,
    NumaNode,
    NvLink,
    P2p,
    PciDevice,
    Setting,
    Snapshot,
    Source,
)

_BUS_ORDER: Final = "GPUs are numbered in bus order among those of the job"
_ARCHITECTURES: Final = {1: "x86_64", 2: "ppc64le", 3: "aarch64"}
_VENDORS: Final = {1: "Intel", 2: "AMD", 3: "Zhaoxin"}
"""`NCCL_TOPO_CPU_ARCH_*` and `NCCL_TOPO_CPU_VENDOR_*` in `src/include/graph.h`."""

_ALL_ONES: Final = re.compile("[fF]{8,16}")
"""−1 as NCCL prints it: in 32 bits, or in the 56 that the number of the host leaves."""

_LINK_SPEEDS: Final = (
    ("2.7.3", ((18.0, 4), (21.0, 12), (12.0, 4))),
    ("2.10.3", ((18.0, 4), (22.0, 12), (12.0, 4))),
    ("2.18.1", ((18.0, 4), (20.0, 18), (12.0, 4))),
    ("2.20.3", ((18.0, 4), (20.0, 12), (12.0, 4), (20.6, 18))),
    ("2.25.1", ((18.0, 4), (20.0, 12), (12.0, 4), (20.6, 18), (40.0, 18))),
    ("2.27.5", ((18.0, 4), (20.0, 12), (12.0, 4), (20.6, 18), (40.1, 18))),
)
"""First release → (GB/s that NCCL gives one NVLink, most links of a GPU with such links): `SM*_NVLINK_BW`."""


def convert(summary: Summary, *, file: str) -> Part:
    """The host of which the log shows most GPUs, as a snapshot of origin `nccl-log`."""
    notes = ["it shows the GPUs of the job and what NCCL used, not the whole machine"]
    host = _host(summary, notes)
    ranks = _ranks(summary, host)
    base = _from_xml(summary, file, notes)
    if base is None:
        printed = next((each for each in summary.topologies if each.host == host), None)
        base = _from_tree(printed, ranks, summary, notes) if printed is not None else _from_ranks(ranks, notes)
    version = max(summary.versions, key=lambda each: each.processes, default=None)
    libraries = [NcclLibrary(path=LOG, version=version.version, read_by="NCCL's log")] if version else None
    found = msgspec.structs.replace(
        base,
        origin=LOG,
        sources=[Source(name=LOG, status="partial", reason="; ".join(dict.fromkeys(notes)))],
        p2p=_p2p(summary, host, base.gpus) or None,
        host=msgspec.structs.replace(base.host, hostname=host),
        driver=Driver(cuda=summary.cuda_driver),
        nccl_libraries=libraries,
        settings=_settings(summary, host) or None,
        raw=[],
    )
    return Part(found, file, whole=True, numbered=_BUS_ORDER not in notes)


def beside(others: Callable[[], list[Part]], reader: nccl_log.Reader, file: str) -> list[Part]:
    """The parts that `others` finds in a text, and the log that stands in it.

    A log that may be about another machine than they are is left out, and says so. Where there is nothing else, what
    `others` raises counts unless the log shows GPUs.
    """
    reader.finish()
    summary = reader.summary([file])
    log = convert(summary, file=file)
    try:
        found = others()
    except InputError as error:
        if not log.snapshot.gpus:
            raise
        return [log if isinstance(error, Unrecognised) else log.noted(reason=error.what)]
    why = None
    if len(summary.hosts) > 1:
        why = "which of these hosts the other texts are about is not known"
    elif any(hosts.differ(part.hosts, [host_marks.short(name) for name in summary.hosts]) for part in found):
        why = "the other texts are of another host"
    elif any(matrix.other_machine for part in found for matrix in part.snapshot.matrices):
        why = "which of the machines in this text it is about is not known"
    if why is not None:
        log = replace(log, snapshot=Snapshot(sources=log.snapshot.sources), whole=False)
        log = log.noted(reason=f"it is not used: {why}")
    return [*found, log]


def _host(summary: Summary, notes: list[str]) -> str | None:
    counts: dict[str | None, int] = {
        each.host: sum(node.kind == "GPU" for node in each.nodes) for each in summary.topologies
    }
    for name in summary.hosts:
        counts[name] = max(counts.get(name, 0), len(_ranks(summary, name)))
    host = max(counts, key=lambda name: counts[name], default=None)
    if len(summary.hosts) > 1:
        notes.append(f"the log is of {len(summary.hosts)} hosts; {host} is read")
    return host


def _ranks(summary: Summary, host: str | None) -> list[Rank]:
    """One rank for each GPU of a host, in the order of their numbers."""
    found: dict[str | int, Rank] = {}
    for communicator in summary.communicators:
        for rank in communicator.ranks:
            key = rank.address if rank.address is not None else rank.cuda_device
            if rank.host == host and key is not None:
                found.setdefault(key, rank)
    return sorted(found.values(), key=lambda rank: (rank.nvml_device or 0, rank.cuda_device or 0))


def _from_xml(summary: Summary, file: str, notes: list[str]) -> Snapshot | None:
    if summary.topology_xml is None:
        return None
    try:
        return nccl_topo_xml.parse(summary.topology_xml, file=file)
    except InputError as error:
        notes.append(f"the topology XML in it is damaged: {error.message}")
        return None


def _from_ranks(ranks: Sequence[Rank], notes: list[str]) -> Snapshot:
    notes.append("NCCL prints its topology only with NCCL_DEBUG_SUBSYS=GRAPH, or NCCL_TOPO_DUMP_FILE")
    numbers = _numbers({rank.address: rank for rank in ranks if rank.address is not None}, notes)
    gpus = [Gpu(index=index, address=where) for where, index in sorted(numbers.items(), key=lambda item: item[1])]
    return Snapshot(gpus=gpus)


def _numbers(ranks: Mapping[str, Rank | None], notes: list[str]) -> dict[str, int]:
    """Address → GPU index: NVML's number where the log has it for all, else the place in bus order."""
    told = {where: rank.nvml_device for where, rank in ranks.items() if rank is not None}
    indices = [index for index in told.values() if index is not None]
    if len(indices) == len(ranks) == len(set(indices)) and max(indices, default=0) < 10_000:
        return {where: index for where, index in told.items() if index is not None}
    notes.append(_BUS_ORDER)
    return {where: place for place, where in enumerate(sorted(ranks, key=pci.sort_key))}


def _from_tree(printed: HostTopology, ranks: Sequence[Rank], summary: Summary, notes: list[str]) -> Snapshot:
    if told := summary.told_topology:
        notes.append(f"its tree begins with {told}, and need not be that of the machine")
    nodes = {f"{node.kind}/{node.id}": node for node in printed.nodes}
    by_address = {rank.address: rank for rank in ranks}
    places = {node.address: name for name, node in nodes.items() if node.kind == "GPU" and node.address is not None}
    numbers = _numbers({where: by_address.get(where) for where in places}, notes)
    links = _nvlinks(printed, nodes, summary, notes)
    gpus = [
        Gpu(
            index=numbers[where],
            address=where,
            numa_node=_numa(name, nodes),
            nvlinks=None if links is None else links.get(name, []),
            c2c_gbps=next(
                (wire.gbps for wire in printed.wires if wire.kind == "C2C" and name in (wire.a, wire.b)), None
            ),
        )
        for where, name in places.items()
    ]
    devices = [
        PciDevice(
            address=where,
            class_code="0x030200" if node.kind == "GPU" else "0x060400",
            vendor="0x10de" if node.kind == "GPU" else None,
            parent=_parent(node, nodes),
            numa_node=_numa(name, nodes),
        )
        for name, node in nodes.items()
        if (where := node.address) is not None
    ]
    nics = list(_nics(nodes, summary))
    listed = {device.address for device in devices}
    for nic in nics:
        if nic.address is not None and nic.address not in listed:
            listed.add(nic.address)
            holder = next(node for node in nodes.values() if node.kind == "NIC" and address(node.id) == nic.address)
            devices.append(
                PciDevice(
                    address=nic.address,
                    class_code="0x020000",
                    parent=_parent(holder, nodes),
                    numa_node=nic.numa_node,
                )
            )
    cpu = next((node.cpu for node in printed.nodes if node.cpu is not None), None)
    numa = sorted({number for node in printed.nodes if (number := _numa_id(node)) is not None and number >= 0})
    return Snapshot(
        gpus=sorted(gpus, key=lambda gpu: gpu.index),
        nics=nics or None,
        pci=devices or None,
        host=Host(
            cpu=Cpu(architecture=_ARCHITECTURES.get(cpu[0]), vendor=_VENDORS.get(cpu[1])) if cpu is not None else None,
            numa_nodes=[NumaNode(id=number) for number in numa] or None,
        ),
    )


def _numa_id(node: Node) -> int | None:
    """NUMA node of a `CPU`, −1 where the kernel does not know it; None for other nodes."""
    if node.kind != "CPU":
        return None
    digits = node.id.rpartition("-")[2]
    if _ALL_ONES.fullmatch(digits):
        return -1
    number = int(digits, 16)
    return number if number < 4096 else None


def _numa(name: str, nodes: Mapping[str, Node]) -> int | None:
    for _ in range(len(nodes)):
        node = nodes[name]
        if node.parent is None or node.parent not in nodes:
            return _numa_id(node)
        name = node.parent
    return None


def _parent(node: Node, nodes: Mapping[str, Node]) -> str | None:
    above = nodes.get(node.parent or "")
    return above.address if above is not None and above.kind == "PCI" else None


def _nics(nodes: Mapping[str, Node], summary: Summary) -> Iterable[Nic]:
    """RDMA devices that NCCL lists, placed by the tree: a `NET` has the number of the device."""
    places = {int(node.id.rpartition("-")[2], 16): node for node in nodes.values() if node.kind == "NET"}
    seen: set[str] = set()
    for device in summary.ib_devices:
        name, _, rest = device.name.partition(":")
        port, _, layer = rest.partition("/")
        if name in seen or not name:
            continue
        seen.add(name)
        net = places.get(device.index if device.index is not None else -1)
        holder = nodes.get(net.parent or "") if net is not None else None
        yield Nic(
            name=name,
            rdma=True,
            address=address(holder.id) if holder is not None and holder.kind == "NIC" else None,
            numa_node=_numa(f"NET/{net.id}", nodes) if net is not None else None,
            ports=[
                IbPort(
                    port=int(port) if port.isascii() and port.isdigit() and len(port) < 4 else 1,
                    state="ACTIVE",
                    link_layer={"IB": "InfiniBand", "RoCE": "Ethernet"}.get(layer.partition("/")[0]),
                )
            ],
        )


def _nvlinks(
    printed: HostTopology, nodes: Mapping[str, Node], summary: Summary, notes: list[str]
) -> dict[str, list[NvLink]] | None:
    """NVLinks of each GPU that has any; None when they cannot be counted."""
    version = max(summary.versions, key=lambda each: each.processes, default=None)
    speeds = _speeds(version.version if version is not None else None)
    found: dict[str, list[NvLink]] = {}
    wires = [wire for wire in printed.wires if wire.kind == "NVL"]
    # A wire between two GPUs is told once.
    ends = [(a, b, wire) for wire in wires for a, b in ((wire.a, wire.b), (wire.b, wire.a)) if a.startswith("GPU/")]
    for own, other, wire in ends:
        count = _count(wire.gbps, speeds)
        if count is None:
            notes.append(f"how many NVLinks make {wire.gbps:g} GB/s cannot be told, so NVLinks are left out")
            return None
        links = found.setdefault(own, [])
        peer = nodes.get(other)
        kind = other.partition("/")[0]
        for _ in range(count):
            links.append(
                NvLink(
                    link=len(links),
                    active=True,
                    remote_type="gpu" if kind == "GPU" else "switch" if kind == "NVS" else "npu",
                    remote_address=peer.address if peer is not None and kind == "GPU" else None,
                    # NCCL merges all NVSwitches into one node without an address.
                    remote_hidden=kind == "NVS",
                )
            )
    if found:
        notes.append("NVLinks are counted from the bandwidth that NCCL prints (inferred)")
    return found


def _speeds(version: str | None) -> tuple[tuple[float, int], ...]:
    if version is None or not versions.is_version(version):
        return tuple({pair for _, pairs in _LINK_SPEEDS for pair in pairs})
    return next((pairs for since, pairs in reversed(_LINK_SPEEDS) if versions.at_least(version, since)), ())


def _count(gbps: float, speeds: Iterable[tuple[float, int]]) -> int | None:
    """The one number of links that makes this bandwidth; None when there is none, or more than one."""
    answers = set()
    for speed, most in speeds:
        count = round(gbps / speed)
        # Printed with one digit behind the point.
        if 1 <= count <= most and abs(count * speed - gbps) < 0.06:
            answers.add(count)
    return answers.pop() if len(answers) == 1 else None


def _settings(summary: Summary, host: str | None) -> list[Setting]:
    """Variables of this host; of several values the one that most processes have."""
    best: dict[str, tuple[int, str]] = {}
    for setting in summary.settings:
        if not setting.hosts or host in setting.hosts:
            best[setting.name] = max(best.get(setting.name, (-1, "")), (setting.processes, setting.value))
    return [Setting(name=name, value=value, origin=LOG) for name, (_, value) in sorted(best.items())]


def _p2p(summary: Summary, host: str | None, gpus: Sequence[Gpu]) -> list[P2p]:
    """Pairs that NCCL joined by P2P: since 2.12 it asks the driver about reading and writing before it does."""
    index = {gpu.address: gpu.index for gpu in gpus if gpu.address is not None}
    version = max(summary.versions, key=lambda each: each.processes, default=None)
    if version is None or not versions.is_version(version.version) or not versions.at_least(version.version, "2.12.7"):
        return []
    found: dict[tuple[int, int], P2p] = {}
    for communicator in summary.communicators:
        places = {rank.rank: index.get(rank.address or "") for rank in communicator.ranks if rank.host == host}
        for each in communicator.connections:
            a, b = places.get(each.a), places.get(each.b)
            if each.transport == "P2P" and "indirect" not in each.via and a is not None and b is not None and a != b:
                for pair in ((a, b), (b, a)):
                    found[pair] = P2p(a=pair[0], b=pair[1], read="OK", write="OK")
    return [found[pair] for pair in sorted(found)]
