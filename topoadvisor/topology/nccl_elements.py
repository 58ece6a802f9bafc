"""Single elements of NCCL's topology XML, from what a snapshot holds about a CPU, a PCI function or a GPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from topoadvisor import cpu_lists, pci
from topoadvisor.nccl import topo_xml
from topoadvisor.nccl.topo_xml import Element
from topoadvisor.snapshot import Cpu, Gpu, Host, NumaNode, NvLink, PciDevice, Snapshot
from topoadvisor.topology import bandwidth
from topoadvisor.topology.model import Topology

GPU_CLASS: Final = "0x030200"
_NIC_CLASS: Final = "0x020700"
_SWITCH_CLASS, _NPU_CLASS, _BRIDGE_CLASS = "0x068000", "0x068001", "0x060400"
_SWITCH_CLASSES: Final = (_SWITCH_CLASS, _SWITCH_CLASS[:6])
"""As sysfs prints it, and as lspci does."""
_HIDDEN: Final = "fffffff:ff:ff.0"
"""The address that NVML gives a guest for the far end of its NVLinks; NCCL takes what it cannot see for an NVSwitch."""
_NPU: Final = "ffff:90:00.0"
"""Stands for the end of NVLinks in a POWER CPU where its address was not read. No device has this domain."""
_PRINTED: Final = "the NVLinks are those of the printed matrix"
_TWO_LEVEL: Final = ("0xc010", "0xc030")
"""Broadcom's switches that may show themselves as two levels."""
_LINK: Final = ("link_speed", "link_width")
_MOST_CPUS: Final = 8192
"""More than the largest kernel is built for; a longer mask is not written."""
_GTS: Final = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
_ARCHITECTURES: Final = {"aarch64": "arm64", "ppc64le": "ppc64", "amd64": "x86_64"}
_VENDORS: Final = {"Intel": "GenuineIntel", "AMD": "AuthenticAMD", "Zhaoxin": "CentaurHauls"}


def cpu_element(numa: int | None, why: str, host: Host) -> Element:
    """A `<cpu>`, which is a NUMA node; `why` says why its number is not known when it is None."""
    element = Element("cpu")
    if numa is None:
        element.missing["numaid"] = why
    else:
        element.attributes["numaid"] = str(numa)
        element.attributes.update(_affinity(numa, host.numa_nodes or ()))
    put_cpu(element, host.cpu)
    return element


def put_cpu(element: Element, cpu: Cpu | None) -> None:
    """`arch`, `vendor`, `familyid` and `modelid` as NCCL writes them, as far as they are known."""
    arch, vendor = (cpu.architecture, cpu.vendor) if cpu is not None else (None, None)
    if arch is None and vendor in _VENDORS:
        arch = "x86_64"
    if arch is not None:
        element.attributes["arch"] = _ARCHITECTURES.get(arch, arch)
    if cpu is not None and element.attributes.get("arch") == "x86_64":
        # NCCL shifts the extended family by four; everybody else adds it as it is.
        family = cpu.family if cpu.family is None or cpu.family <= 0xF else 0xF + (cpu.family - 0xF << 4)
        told = {"vendor": _VENDORS.get(vendor or "", vendor), "familyid": family, "modelid": cpu.model}
        element.attributes.update({name: str(value) for name, value in told.items() if value is not None})
    if "arch" not in element.attributes:
        what = "cpu.vendor" if vendor is None else "cpu.architecture"
        which = "the CPU was" if vendor is None else f"the architecture of {vendor}'s CPU was"
        element.missing["arch"] = f"{which} not read (--assume {what}=… supplies it)"


def _affinity(numa: int, nodes: Sequence[NumaNode]) -> dict[str, str]:
    """The mask of a NUMA node's CPUs as sysfs prints it: 32 bits a word, highest first."""
    text = next((node.cpus for node in nodes if node.id == numa), None)
    cpus = cpu_lists.parse(text or "")
    if not cpus or max(cpus) >= _MOST_CPUS:
        return {}
    bits = sum(1 << cpu for cpu in cpus)
    words = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(0, bits.bit_length(), 32)]
    mask = ",".join(reversed(words))
    return {"affinity": mask} if topo_xml.writable(mask) else {}


def pci_element(device: PciDevice, port: PciDevice | None) -> Element:
    """A `<pci>`; its link is what device and port above reach together. Below a root bus NCCL reads 0 lanes."""
    element = Element("pci", {"busid": device.address})
    told = {
        "class": device.class_code,
        "vendor": device.vendor,
        "device": device.device,
        "subsystem_vendor": device.subsystem_vendor,
        "subsystem_device": device.subsystem_device,
    }
    element.attributes.update({name: value for name, value in told.items() if value is not None})
    if device.max_link_speed_gts is not None:
        ends = [end.max_link_speed_gts for end in (device, port) if end is not None and end.max_link_speed_gts]
        element.attributes["link_speed"] = _speed(min(ends))
    widths = [end.max_link_width for end in (device, port) if end is not None]
    if port is None:
        element.attributes["link_width"] = "0"
    elif None not in widths:
        element.attributes["link_width"] = str(min(width for width in widths if width is not None))
    if device.vendor == "0x1000" and device.device in _TWO_LEVEL and device.subsystem_device is None:
        element.missing["subsystem_device"] = "it was not read"
    return element


def implied_switch(number: int) -> Element:
    """A switch that link classes imply."""
    why = "the link of a switch that the link classes imply is not known"
    attributes = {"busid": stand_in(0xFE00 + number), "class": _BRIDGE_CLASS}
    return Element("pci", attributes, missing=dict.fromkeys(_LINK, why))


def infer_switch(switch: Element, gpu: Element) -> None:
    """The link of an implied switch as that of a GPU below it, where that is known: boards are built so."""
    for name in _LINK:
        if name in switch.missing and name in gpu.attributes:
            switch.attributes[name] = gpu.attributes[name]
            del switch.missing[name]
            switch.inferred[name] = "the links of switches that the link classes imply are taken as those of the GPUs"


def nic_element(number: int) -> Element:
    """A NIC of which only link classes are known."""
    attributes = {"busid": stand_in(0x8000 + number), "class": _NIC_CLASS}
    return Element("pci", attributes, missing=dict.fromkeys(_LINK, "the PCIe link of the NIC was not read"))


def stand_in(number: int) -> str:
    """An address for the GPU at one place of the list, where none was read. No device has this domain."""
    return f"ffff:{number >> 8 & 255:02x}:{number & 255:02x}.0"


def miss_link(element: Element, why: str) -> None:
    """Give the reason for the parts of the PCIe link that are not there."""
    element.missing.update({name: why for name in _LINK if name not in element.attributes})


def link_of(gpu: Gpu, *, now: bool = False) -> dict[str, str]:
    """The PCIe link as NVML says. The generation is the highest that both ends reach: it drops while the device idles,
    and NCCL asks when it does not. The width is that in use with `now`, where it was read.
    """
    link = gpu.pcie
    told: dict[str, str] = {}
    if link is None:
        return told
    if link.max_gen in _GTS:
        told["link_speed"] = _speed(_GTS[link.max_gen])
    width = (link.current_width if now else None) or link.max_width
    if width is not None:
        told["link_width"] = str(width)
    return told


def infer_link(element: Element, gpu: Gpu) -> None:
    """What the board is known to have, where its PCIe link was not read."""
    model = bandwidth.model_of(gpu)
    if model is None:
        return
    speed = _speed(_GTS[model.pcie_gen]) if model.pcie_gen in _GTS else None
    width = str(model.pcie_width) if model.pcie_width else None
    for name, value in zip(_LINK, (speed, width), strict=True):
        if name in element.missing and value is not None:
            element.attributes[name] = value
            del element.missing[name]
            element.inferred[name] = f"the PCIe link is that of the board ({model.family})"


def _speed(gts: float) -> str:
    return f"{gts:.1f} GT/s PCIe"


def gpu_element(gpu: Gpu, snapshot: Snapshot, topology: Topology) -> Element:
    """A `<gpu>` with its NVLinks and its chip-to-chip link."""
    element = _gpu(gpu)
    if gpu.nvlinks is None:
        _put_counted(element, gpu, snapshot, topology)
    else:
        _put_read(element, gpu.nvlinks, snapshot, topology)
        if "nvlink" in element.missing:
            _put_printed(element, gpu.nvlinks, _to_peers(gpu, snapshot, topology))
    if gpu.c2c_gbps:
        element.children.append(Element("c2c", {"bw": str(round(gpu.c2c_gbps * 1000)), "count": "1"}))
    elif gpu.c2c_gbps is None and (why := _may_reach_the_cpu(element, gpu, snapshot.host.cpu)) is not None:
        element.missing["c2c"] = why
    return element


def _may_reach_the_cpu(element: Element, gpu: Gpu, cpu: Cpu | None) -> str | None:
    """Why it is not known that a GPU has no way to the CPU but PCIe; None when it has none."""
    arch = cpu.architecture if cpu is not None else None
    capability = int(element.attributes.get("sm", "0"))
    if capability >= 90 and arch in ("aarch64", "arm64"):
        return "the chip-to-chip link was not read"
    model = bandwidth.model_of(gpu)
    counted = sum(int(link.attributes["count"]) for link in element.each("nvlink"))
    spare = model is not None and model.max_nvlinks is not None and counted < model.max_nvlinks
    if gpu.nvlinks is None and spare and capability in (60, 70) and arch in (None, "ppc64le", "ppc64"):
        return "NVLinks to the CPU, as POWER machines have them, are not in a matrix (--assume cpu.architecture=…)"
    return None


def bare_gpu(gpu: Gpu) -> Element:
    """A `<gpu>` for a device that a file names without one."""
    element = _gpu(gpu)
    element.missing["nvlink"] = "the file leaves the NVLinks to NCCL"
    return element


def _gpu(gpu: Gpu) -> Element:
    element = Element("gpu", {"dev": str(gpu.index)}, missing={"gdr": "GPUDirect RDMA was not read"})
    put_capability(element, gpu)
    return element


def put_capability(element: Element, gpu: Gpu) -> None:
    """`sm`: the compute capability × 10 as read, else as the board is known to have."""
    text, inferred = gpu.compute_capability, False
    if text is None and (model := bandwidth.model_of(gpu)) is not None:
        text, inferred = model.compute_capability, True
    if text is None or not re.fullmatch(r"[0-9]{1,3}\.[0-9]", text):
        element.missing["sm"] = "the compute capability was not read (--assume gpu.name=… supplies it)"
        return
    element.attributes["sm"] = str(int(text.replace(".", "")))
    if inferred:
        element.inferred["sm"] = "the compute capability is that of the board"


def _put_read(element: Element, read: Sequence[NvLink], snapshot: Snapshot, topology: Topology) -> None:
    """NCCL counts the active links by what is at their far end."""
    elements = {topology.graph.nodes[node]["address"]: _address_of(node, snapshot, topology) for node in topology.gpus}
    switches = {device.address for device in snapshot.pci or () if device.class_code in _SWITCH_CLASSES}
    counts: Counter[tuple[str, str]] = Counter()
    lost = 0
    for link in read:
        far = _far_end(link, elements, switches)
        if link.active is None or (link.active and far is None):
            lost += 1
        elif link.active and far is not None:
            counts[far] += 1
    for (target, device_class), count in counts.items():
        told = {"target": target, "count": str(count), "tclass": device_class}
        element.children.append(Element("nvlink", told))
    if lost:
        element.missing["nvlink"] = f"the state or far end of {lost} NVLinks was not read"


def _far_end(link: NvLink, gpus: Mapping[str | None, str], switches: set[str]) -> tuple[str, str] | None:
    """`busid` and class of the element; None when it is not known which it is. `gpus`: address → `busid`."""
    address = link.remote_address
    if link.remote_type == "npu":
        # NCCL joins it to the CPU above the GPU, whatever the address.
        return address or _NPU, _NPU_CLASS
    if address is None or pci.is_placeholder(address):
        return (_HIDDEN, _SWITCH_CLASS) if link.remote_hidden or link.remote_type == "switch" else None
    if link.remote_type == "gpu" or address in gpus:
        return gpus.get(address, address), GPU_CLASS
    return (address, _SWITCH_CLASS) if link.remote_type == "switch" or address in switches else None


def _put_printed(element: Element, read: Sequence[NvLink], printed: Sequence[Element] | None) -> None:
    """The printed counts, where links were read without their far ends (`nvlink -s`) and as many are up as lead to
    peers: of more, some lead elsewhere; of fewer, it is not known to which peer one is missing.
    """
    up = sum(link.active is True for link in read)
    unread = any(link.active is None for link in read)
    if not printed or (not unread and up != sum(int(link.attributes["count"]) for link in printed)):
        return
    element.children = [child for child in element.children if child.tag != "nvlink"] + list(printed)
    del element.missing["nvlink"]
    element.inferred["nvlink"] = _PRINTED


def _put_counted(element: Element, gpu: Gpu, snapshot: Snapshot, topology: Topology) -> None:
    """From printed counts, or from what the board can have."""
    model = bandwidth.model_of(gpu)
    if model is not None and model.max_nvlinks == 0:
        element.inferred["nvlink"] = f"the board ({model.family}) brings out no NVLinks"
        return
    printed = _to_peers(gpu, snapshot, topology)
    if printed is None:
        element.missing["nvlink"] = "the NVLinks were not read"
        return
    element.inferred["nvlink"] = _PRINTED
    element.children += printed


def _to_peers(gpu: Gpu, snapshot: Snapshot, topology: Topology) -> list[Element] | None:
    """`<nvlink>` for each peer of a GPU, or one for the NVSwitches; None when the NVLinks of a pair are not known."""
    own = f"gpu:{gpu.index}"
    pairs = [(node, topology.pair(own, node)) for node in topology.gpus if node != own]
    if not pairs or any(pair.nvlinks is None for _, pair in pairs):
        return None
    most = max(pair.nvlinks or 0 for _, pair in pairs)
    if any(pair.through_switch for _, pair in pairs):
        return [Element("nvlink", {"target": _HIDDEN, "count": str(most), "tclass": _SWITCH_CLASS})]
    return [
        Element(
            "nvlink",
            {"target": _address_of(node, snapshot, topology), "count": str(pair.nvlinks), "tclass": GPU_CLASS},
        )
        for node, pair in pairs
        if pair.nvlinks
    ]


def _address_of(node: str, snapshot: Snapshot, topology: Topology) -> str:
    """The PCI address of a GPU node, or its stand-in."""
    listed = {device.address for device in snapshot.pci or ()}
    address: str | None = topology.graph.nodes[node]["address"]
    return address if address is not None and address in listed else stand_in(topology.gpus.index(node))
