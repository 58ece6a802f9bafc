"""Where each rank of a log sits, and which path lies between two of them: from the log itself, or from a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from topoadvisor.ingest.nccl_log_summary import Communicator, HostTopology, Rank, Summary
from topoadvisor.nccl import defaults, levels, versions
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph, links
from topoadvisor.topology.model import Topology

_ARCHITECTURES = {1: "x86_64", 2: "ppc64le", 3: "aarch64"}
_VENDORS = {1: "Intel", 2: "AMD", 3: "Zhaoxin"}
"""`NCCL_TOPO_CPU_ARCH_*` and `NCCL_TOPO_CPU_VENDOR_*` in `src/include/graph.h`."""


@dataclass(frozen=True)
class Between:
    """NCCL's path between two GPUs of one host, and who says so."""

    path: NcclPath
    origin: str


class View:
    """A log with what was known beside it. With a snapshot, every host of the job counts as a machine like it."""

    def __init__(self, summary: Summary, snapshot: Snapshot | None = None, source: str | None = None) -> None:
        self.summary = summary
        self.snapshot = snapshot
        self.source = source or "the topology given"
        self.topology: Topology | None = graph.build(snapshot) if snapshot is not None and snapshot.gpus else None
        gpus = snapshot.gpus if snapshot is not None else []
        self._indices = {gpu.index for gpu in gpus}
        self._addresses = {gpu.address: gpu.index for gpu in gpus if gpu.address is not None}
        self._refused: dict[frozenset[str], str] = {}
        for pair in (snapshot.p2p if snapshot is not None else None) or ():
            for status in (pair.read, pair.write):
                if status not in (None, "OK"):
                    self._refused.setdefault(frozenset((f"gpu:{pair.a}", f"gpu:{pair.b}")), str(status))
        self._printed = {printed.host: _Printed(printed) for printed in summary.topologies}

    @property
    def version(self) -> str | None:
        """The version that most processes run."""
        best = max(self.summary.versions, key=lambda each: each.processes, default=None)
        return best.version if best is not None and versions.is_version(best.version) else None

    @property
    def several_hosts(self) -> bool:
        return len(self.summary.hosts) > 1 or any((each.nodes or 1) > 1 for each in self.summary.communicators)

    def values(self, name: str) -> list[str]:
        """The values of a variable that the log shows."""
        return [setting.value for setting in self.summary.settings if setting.name == name]

    def user_level(self) -> tuple[NcclPath, str] | None:
        """The P2P level that variables of the job set, and which; None when the log shows none."""
        disable, level = self.values("NCCL_P2P_DISABLE"), self.values("NCCL_P2P_LEVEL")
        reading = levels.user_p2p_level(disable[0] if disable else None, level[0] if level else None, self.version)
        if reading.level is None:
            return None
        off = bool(disable) and levels.parse_int(disable[0]) == 1
        return reading.level, f"NCCL_P2P_DISABLE={disable[0]}" if off else f"NCCL_P2P_LEVEL={level[0]}"

    def default_level(self, communicator: Communicator, host: str | None) -> NcclPath | None:
        """NCCL's own P2P level for a communicator on a host; None when the log does not tell enough."""
        printed = self._printed.get(host)
        arch, vendor = printed.cpu if printed is not None else (None, None)
        family = model = None
        cpu = self.snapshot.host.cpu if self.snapshot is not None else None
        if arch is None and cpu is not None:
            arch, vendor, family, model = cpu.architecture, cpu.vendor, cpu.family, cpu.model
        gpus = sum(rank.host == host for rank in communicator.ranks) or None
        return defaults.p2p_level(
            self.version, arch=arch, cpu_vendor=vendor, cpu_family=family, cpu_model=model, gpus=gpus
        )

    def between(self, a: Rank, b: Rank) -> Between | None:
        """NCCL's path between the GPUs of two ranks of one host."""
        printed = self._printed.get(a.host)
        if printed is not None and a.address and b.address:
            path = printed.paths.get((a.address, b.address))
            if path is not None:
                return Between(path, "the log")
        nodes = [self.node(rank) for rank in (a, b)]
        if self.topology is None or nodes[0] is None or nodes[1] is None or nodes[0] == nodes[1]:
            return None
        link_class = self.topology.pair(nodes[0], nodes[1]).link_class
        return Between(links.to_nccl(link_class), self.source) if link_class is not None else None

    def node(self, rank: Rank) -> str | None:
        """The GPU of a rank in the snapshot: by PCI address, else by NVML's number."""
        index = self._addresses.get(rank.address) if rank.address else None
        if index is None and not (self._addresses and rank.address):
            index = rank.nvml_device if rank.nvml_device is not None else rank.cuda_device
        return f"gpu:{index}" if index in self._indices else None

    @property
    def stranger(self) -> bool:
        """Log and snapshot both name PCI addresses of GPUs, and share none."""
        ours = {rank.address for each in self.summary.communicators for rank in each.ranks if rank.address}
        return bool(self._addresses and ours) and not ours & set(self._addresses)

    def refused(self, a: Rank, b: Rank) -> str | None:
        """What the driver says against P2P between two GPUs in the snapshot (`CNS`, …); None = nothing, or not read."""
        nodes = (self.node(a), self.node(b))
        return self._refused.get(frozenset(node for node in nodes if node is not None))

    def home(self, rank: Rank) -> str | None:
        """The socket or NUMA node that a rank's GPU hangs on."""
        printed = self._printed.get(rank.host)
        if printed is not None and rank.address in printed.homes:
            return printed.homes[rank.address]
        node = self.node(rank)
        if self.topology is None or node is None:
            return None
        hierarchy = self.topology.attributes["hierarchy"]
        chain = hierarchy.chain(node)
        return next((each for each in reversed(chain) if each.startswith(("socket:", "numa:"))), None)

    def has_nvswitch(self, host: str | None) -> bool:
        printed = self._printed.get(host)
        return printed is not None and printed.nvswitch

    def rdma(self) -> list[str]:
        """RDMA devices with an active port in the snapshot."""
        nics = (self.snapshot.nics if self.snapshot is not None else None) or []
        return [nic.name for nic in nics if nic.rdma and any(port.state == "ACTIVE" for port in nic.ports or ())]


class _Printed:
    """Look-ups in one printed tree."""

    def __init__(self, topology: HostTopology) -> None:
        nodes = {f"{node.kind}/{node.id}": node for node in topology.nodes}
        addresses = {name: node.address for name, node in nodes.items() if node.kind == "GPU" and node.address}
        self.paths = {
            (addresses[path.a], addresses[path.b]): NcclPath[path.type]
            for path in topology.paths
            if path.a in addresses and path.b in addresses and path.type in NcclPath.__members__
        }
        self.homes: dict[str | None, str] = {}
        for name, address in addresses.items():
            above, steps = name, 0
            while (parent := nodes[above].parent) is not None and parent in nodes and steps < len(nodes):
                above, steps = parent, steps + 1
            if nodes[above].kind == "CPU":
                self.homes[address] = above
        cpu = next((node.cpu for node in topology.nodes if node.cpu is not None), None)
        self.cpu = (_ARCHITECTURES.get(cpu[0]), _VENDORS.get(cpu[1])) if cpu is not None else (None, None)
        self.nvswitch = any(name.startswith("NVS/") for wire in topology.wires for name in (wire.a, wire.b))


def by_rank(communicator: Communicator) -> dict[int, Rank]:
    return {rank.rank: rank for rank in communicator.ranks}


def shortened(items: Iterable[str], most: int = 6) -> str:
    """`a, b, c and 5 more`."""
    listed = list(items)
    shown = ", ".join(listed[:most])
    return shown if len(listed) <= most else f"{shown} and {len(listed) - most} more"
