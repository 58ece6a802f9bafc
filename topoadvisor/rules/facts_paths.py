"""Facts about the PCIe tree between GPUs and network devices, and about each GPU's slot and CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from topoadvisor import cpu_lists
from topoadvisor.rules.facts_nics import ancestors
from topoadvisor.rules.facts_node import is_gpu
from topoadvisor.rules.scope import ASSUMED, NVML, PCI, PROC, Fact, Known, Scope, Sources, Unknown, follow
from topoadvisor.snapshot import Gpu, Host, PciDevice, Snapshot

if TYPE_CHECKING:
    from topoadvisor.topology.model import Topology

_AMD, _INTEL = "0x1022", "0x8086"
_AMD_CHIPSET_PORTS: Final = frozenset(
    f"0x{code}" for code in ("43b0", "43b4", "43c6", "43c7", "43e9", "43ea", "43f4", "43f5", "57a3", "57a4", "57ad")
)
"""Ports of AMD's desktop chipsets (pci.ids: 300 to 600 series, X570)."""
_INTEL_CHIPSET_SLOTS: Final = frozenset({"1b", "1c", "1d"})
"""Device numbers on bus 0 of the root ports that belong to Intel's chipsets."""


def gather(
    node: Scope,
    gpus: Mapping[int, Scope],
    pairs: Mapping[tuple[int, int], Scope],
    snapshot: Snapshot,
    topology: Topology,
    sources: Sources,
) -> None:
    """Record `gdr.*` about paths, `pcie.*`, which GPUs are on the bus or lost, and each GPU's slot and CPUs."""
    devices = {device.address: device for device in snapshot.pci or []}
    read = snapshot.pci is not None
    origin, why = sources.origin(*PCI), sources.why(*PCI)
    present = [device for device in devices.values() if is_gpu(device) and device.sriov_of is None]
    node.read("gpus.pci_count", len(present) if read and present else None, origin, why)
    loose = [device.address for device in present if device.driver is None]
    told = read and any(device.driver for device in devices.values())
    node.read("gpus.unbound", loose if told else None, origin, why)
    lost = snapshot.lost_gpus()
    labels = None if lost is None else [f"GPU{index}" for index in lost]
    node.read("gpus.lost", labels, sources.origin(*NVML), sources.why(*NVML))
    for gpu in snapshot.gpus:
        chipset = _in_chipset(devices, gpu) if read and gpu.address in devices else None
        gpus[gpu.index].read("gpu.pcie.chipset", chipset, origin, why)
        gpus[gpu.index].put("gpu.local_cpus_allowed", _local_cpus(gpu, snapshot.host, sources))
    inside = [f"GPU{index}" for index, scope in gpus.items() if scope.value("gpu.pcie.chipset")]
    known = read and all(gpu.address in devices for gpu in snapshot.gpus)
    node.read("pcie.chipset_gpus", inside if known else None, origin, why)
    node.read("pcie.unknown_speeds", _unknown_speeds(devices, snapshot.gpus) if known else None, origin, why)
    bridges = node.put("gdr.acs_bridges", _acs_to_nics(node, snapshot, topology, devices, sources))
    between = [each.facts["pair.path.acs_redirect"] for each in pairs.values()]
    by_hand = [fact.value for fact in between if isinstance(fact, Known) and fact.origin == ASSUMED]
    if by_hand and node.value("rdma.near_gpus"):
        node.put("gdr.acs_redirect", Known(any(by_hand), "inferred: from what was told of the GPUs"))
    else:
        node.put("gdr.acs_redirect", follow(bool, bridges))
    node.put("gdr.far_gpus", _far_gpus(node, snapshot, topology))


def _in_chipset(devices: Mapping[str, PciDevice], gpu: Gpu) -> bool:
    above = [devices[address] for address in ancestors(devices, gpu.address) if address in devices]
    if any(each.vendor == _AMD and each.device in _AMD_CHIPSET_PORTS for each in above):
        return True
    top = above[-1] if above else None
    if top is None or top.vendor != _INTEL or not top.address.startswith("0000:00:"):
        return False
    return top.address[8:10] in _INTEL_CHIPSET_SLOTS


def _local_cpus(gpu: Gpu, host: Host, sources: Sources) -> Fact:
    """Whether an allowed CPU is among those next to the GPU."""
    near = next((each.cpus for each in host.numa_nodes or [] if each.id == gpu.numa_node), None)
    if near is None:
        # Second, for `nvidia-smi topo -m` prints no more than the beginning of a list of single CPUs.
        near = gpu.cpu_affinity
    close = cpu_lists.parse(near) if near else None
    allowed = cpu_lists.parse(host.allowed_cpus) if host.allowed_cpus is not None else None
    if not close or allowed is None:
        return Unknown(sources.why(*PROC) if allowed is None else "which CPUs are next to the GPU was not read")
    return Known(bool(close & allowed), "derived")


def _unknown_speeds(devices: Mapping[str, PciDevice], gpus: Sequence[Gpu]) -> list[str]:
    chain = [address for gpu in gpus for address in (gpu.address, *ancestors(devices, gpu.address)) if address]
    return [
        address
        for address in dict.fromkeys(chain)
        if address in devices and devices[address].max_link_speed_gts is None and devices[address].link_width == 0
    ]


def _acs_to_nics(
    node: Scope, snapshot: Snapshot, topology: Topology, devices: Mapping[str, PciDevice], sources: Sources
) -> Fact:
    """Redirecting bridges on the paths between GPUs and the ports below their switches."""
    local = node.facts["rdma.gpu_local"]
    if isinstance(local, Unknown):
        return local
    if node.value("vm.guest"):
        return Unknown("a guest does not see the bridges of its host")
    on_path = list(dict.fromkeys(_bridges(topology, devices, local.value)))
    states = [each.acs_redirect for each in on_path if each.port_type != "upstream"]
    redirecting = sorted(each.address for each in on_path if each.acs_redirect)
    if redirecting or (on_path and None not in states) or not local.value:
        return Known(redirecting, sources.origin(*PCI))
    return Unknown("reading ACS needs root" if snapshot.origin == "live" else sources.why(*PCI))


def _bridges(topology: Topology, devices: Mapping[str, PciDevice], nics: Sequence[str]) -> Iterator[PciDevice]:
    for gpu in topology.gpus:
        for name in nics:
            pair = topology.find(gpu, f"nic:{name}")
            if pair is not None and pair.pcie_class in ("PIX", "PXB"):
                for step in pair.pcie_path:
                    device = devices.get(step.removeprefix("pci:"))
                    if device is not None and (device.class_code or "").startswith("0x0604"):
                        yield device


def _far_gpus(node: Scope, snapshot: Snapshot, topology: Topology) -> Fact:
    def far(local: list[str]) -> list[str]:
        return [
            f"GPU{gpu.index}"
            for gpu in snapshot.gpus
            if not any(
                (pair := topology.find(f"gpu:{gpu.index}", f"nic:{name}")) is not None
                and pair.pcie_class in ("PIX", "PXB")
                for name in local
            )
        ]

    return follow(far, node.facts["rdma.gpu_local"])
