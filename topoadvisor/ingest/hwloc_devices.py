"""The I/O objects of an hwloc XML as devices: the PCI tree, GPUs with their NVLinks, network devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from topoadvisor import cpu_lists, pci
from topoadvisor.hardware import catalogue
from topoadvisor.ingest import hwloc_values
from topoadvisor.ingest.hwloc_values import Matrix, Wrong
from topoadvisor.numbers import natural
from topoadvisor.snapshot import Gpu, IbPort, Nic, NvLink, PciDevice
from topoadvisor.xml_tree import Element

NVLINKS: Final = "NVLinkBandwidth"
"""The name of the matrix of MB/s over NVLink."""
MAX_NVLINKS: Final = 1024
"""Of one GPU; more than that is no count."""
_NVML: Final = re.compile(r"nvml([0-9]{1,4})")
_NAMES_FROM: Final = (_NVML, re.compile(r"cuda[0-9]{1,4}"), re.compile(r"opencl[0-9]{1,4}d[0-9]{1,4}"))
"""OS devices that name a GPU's model, the best first."""
_PORT_STATE: Final = re.compile(r"Port([0-9]{1,3})State")
_PORT_STATES: Final = {"1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE", "5": "ACTIVE_DEFER"}
"""`enum ib_port_state` of the kernel."""
# Types of OS devices: a number in versions 1 and 2, bits in version 3 (`hwloc.h`).
_OLD_NETWORK, _OLD_RDMA = 2, 3
_NETWORK, _RDMA = 1 << 4, 1 << 5


@dataclass(frozen=True)
class Place:
    """Where in the PCI tree an object stands."""

    parent: str | None = None
    """The PCI bridge or device around it."""
    root: str | None = None
    """Its root complex, `0000:16`; None when the way there is not in the file."""
    below_host_bridge: bool = False


@dataclass(frozen=True)
class Function:
    """One PCI function, bridges included. No `root` = the bridges above are not in the file."""

    device: PciDevice
    element: Element
    around: Element
    """The nearest object above that has CPUs or memory."""
    around_node: int | None
    """The NUMA node above it, in version 1."""


@dataclass
class Found:
    """Objects of interest in file order."""

    functions: dict[str, Function] = field(default_factory=dict)
    os_devices: dict[str | None, dict[str, Element]] = field(default_factory=dict)
    """PCI function → the operating system's names for it; None holds those outside the PCI tree."""
    by_number: dict[int, tuple[Element, str | None]] = field(default_factory=dict)
    """Objects, with the PCI function around them, by the number that distance matrices name them by."""
    nameless: int = 0
    """PCI objects without an address."""

    def told_by(self, address: str | None) -> dict[str, Element]:
        """OS devices of one PCI function by name."""
        return self.os_devices.get(address, {})


def infos(element: Element) -> dict[str, str]:
    """The named texts of an object; of those with one name the first."""
    found: dict[str, str] = {}
    for info in element.each("info"):
        found.setdefault(info.attributes.get("name", ""), info.attributes.get("value", ""))
    return found


def pci_devices(found: Found, with_cpus: set[int], wrong: Wrong, notes: list[str]) -> dict[str, PciDevice]:
    """Functions that matter for GPU traffic and every bridge above one, in bus order; `with_cpus` are NUMA nodes."""
    wanted: set[str] = set()
    for address, function in found.functions.items():
        told = function.device
        nvswitch = function.element.attributes.get("subtype") == "NVSwitch"
        above: str | None = address
        if nvswitch or (told.class_code and pci.matters(told.class_code, told.vendor)):
            while above is not None and above not in wanted:
                wanted.add(above)
                above = found.functions[above].device.parent
    if lost := sum(found.functions[address].device.root is None for address in wanted):
        notes.append(f"the bridges above {lost} PCI devices are not in the file, so how near those are is not known")
    if found.nameless:
        notes.append(f"{found.nameless} PCI objects without an address are left out")
    virtual = pci.virtual_gpus(address for address in wanted if _is_graphics(found.functions[address].device))
    near: dict[int, int | None] = {}
    devices = {}
    for address in sorted(wanted, key=pci.sort_key):
        function = found.functions[address]
        numa = function.around_node
        if numa is None and (numa := near.get(id(function.around), -1)) == -1:
            numa = near[id(function.around)] = _node(function.around, with_cpus, wrong)
        devices[address] = msgspec.structs.replace(function.device, numa_node=numa, sriov_of=virtual.get(address))
    return devices


def _is_graphics(device: PciDevice) -> bool:
    return device.vendor == pci.NVIDIA and (device.class_code or "").startswith("0x03")


def _node(around: Element, with_cpus: set[int], wrong: Wrong) -> int | None:
    """The one NUMA node of an object; None when there are several, as for a device that firmware says nothing about."""
    mask = hwloc_values.members(around, "nodeset", wrong)
    nodes = with_cpus.intersection(cpu_lists.of_bits(mask)) if mask is not None else set()
    return nodes.pop() if len(nodes) == 1 else None


def gpus(
    found: Found, devices: Mapping[str, PciDevice], memory: Mapping[str, int], wrong: Wrong, notes: list[str]
) -> list[Gpu]:
    """NVIDIA GPUs by index: NVML's numbers where the file has them, the rest after those in bus order.

    `memory` maps a GPU to the NUMA node that its memory forms.
    """
    numbered: dict[int, Gpu] = {}
    rest: list[Gpu] = []
    for address, device in devices.items():
        if _is_graphics(device) and device.sriov_of is None:
            gpu = _gpu(found.told_by(address), address, device, memory.get(address))
            number = _nvml_number(found.told_by(address), numbered, wrong)
            if number is None:
                rest.append(gpu)
            else:
                numbered[number] = msgspec.structs.replace(gpu, index=number)
    # Without the right to see PCI devices hwloc hangs what NVML tells below the machine.
    for name, element in found.told_by(None).items():
        number = _nvml_number({name: element}, numbered, wrong)
        if number is not None:
            numbered[number] = msgspec.structs.replace(_gpu({name: element}, None, None, None), index=number)
    if numbered and rest:
        some = ", ".join(str(gpu.address) for gpu in rest[:4]) + (" …" if len(rest) > 4 else "")
        notes.append(f"NVML did not show {some} to lstopo: numbered after the others")
    following = max(numbered, default=-1) + 1
    numbered |= {index: msgspec.structs.replace(gpu, index=index) for index, gpu in enumerate(rest, following)}
    return [numbered[index] for index in sorted(numbered)]


def _nvml_number(told: Mapping[str, Element], numbered: Mapping[int, Gpu], wrong: Wrong) -> int | None:
    for name, element in told.items():
        if match := _NVML.fullmatch(name):
            if int(match[1]) in numbered:
                wrong(element, f"the NVML device {name} stands here a second time")
            return int(match[1])
    return None


def _gpu(told: Mapping[str, Element], address: str | None, device: PciDevice | None, memory: int | None) -> Gpu:
    texts: dict[str, str] = {}
    for pattern in reversed(_NAMES_FROM):
        for name, element in told.items():
            if pattern.fullmatch(name):
                texts |= {key: value for key, value in infos(element).items() if value}
    return Gpu(
        index=0,
        name=texts.get("GPUModel"),
        address=address,
        uuid=texts.get("NVIDIAUUID"),
        pci_device=device.device if device is not None else None,
        numa_node=device.numa_node if device is not None else None,
        memory_numa_node=memory,
    )


def with_nvlinks(
    gpus: list[Gpu], matrices: Iterable[Matrix], found: Found, version: str, notes: list[str]
) -> list[Gpu]:
    """The GPUs with the links that the matrix `NVLinkBandwidth` counts: its MB/s through those of one link.

    `version` is that of the hwloc that wrote the file. Without such a matrix the links stay not read: hwloc writes none
    when it cannot name a link's other end.
    """
    links: dict[int, list[NvLink] | None] = {}
    for matrix in matrices:
        if matrix.name == NVLINKS and matrix.bandwidth:
            ends = [_end(*found.by_number.get(index, (None, None))) for _, index in matrix.objects]
            at = {gpu.address if gpu.address is not None else f"nvml{gpu.index}": gpu for gpu in gpus}
            for place, end in enumerate(ends):
                gpu = at.get(end[1] or "")
                if (
                    gpu is not None
                    and (read := _links(gpu, matrix.row(place), ends, place, version, notes)) is not None
                ):
                    links[gpu.index] = read
    return [msgspec.structs.replace(gpu, nvlinks=links.get(gpu.index)) for gpu in gpus]


_End = tuple[Literal["gpu", "switch", "npu"] | None, str | None]
"""What stands at one end of a link, and its PCI address (of a GPU without one, the name of its NVML device)."""


def _end(element: Element | None, address: str | None) -> _End:
    kind = element.attributes.get("type", "") if element is not None else ""
    if element is None or kind in ("Bridge", "Misc"):
        return None, None
    if kind == "OSDev":
        return "gpu", address if address is not None else element.attributes.get("name")
    return ("switch", address) if kind == "PCIDev" else ("npu", None)


def _links(
    gpu: Gpu, row: Sequence[int], ends: Sequence[_End], own: int, version: str, notes: list[str]
) -> list[NvLink] | None:
    each = hwloc_values.nvlink_mbps(catalogue.gpu_model(gpu.name, gpu.pci_device), version)
    links: list[NvLink] = []
    for place, mbps in enumerate(row):
        if place == own or not mbps:
            continue
        if each is None or mbps % each or len(links) + mbps // each > MAX_NVLINKS:
            notes.append("the bandwidths in NVLinkBandwidth are no whole number of links of these GPUs")
            return None
        kind, address = ends[place]
        links += [
            NvLink(link=len(links) + more, active=True, remote_type=kind, remote_address=address)
            for more in range(mbps // each)
        ]
    return links


def nics(found: Found, devices: Mapping[str, PciDevice], version: int, wrong: Wrong) -> list[Nic] | None:
    """RDMA devices, each with an interface on its PCI function, then the other interfaces; None without any.

    hwloc lists only devices of hardware.
    """
    entries: list[Nic] = []
    alone: list[Nic] = []
    for address, told in found.os_devices.items():
        rdma = sorted((name for name in told if _type(told[name], version, wrong)[1]), key=natural)
        plain = [name for name in told if name not in rdma and _type(told[name], version, wrong)[0]]
        # The interface of port 1 first.
        plain.sort(key=lambda name: (_port(told[name]), natural(name)), reverse=True)
        for name in rdma:
            interface = plain.pop() if plain and address is not None else None
            entries.append(_nic(name, interface, _ports(told[name]), address, devices))
        alone += [_nic(None, name, None, address, devices) for name in plain]
    entries.sort(key=lambda nic: natural(nic.name))
    alone.sort(key=lambda nic: natural(nic.name))
    return [*entries, *alone] or None


def _type(element: Element, version: int, wrong: Wrong) -> tuple[bool, bool]:
    """Whether an OS device is of a network, and whether it is an RDMA device."""
    number = hwloc_values.number(element, "osdev_type", wrong) or 0
    if version > 2:
        return bool(number & _NETWORK), bool(number & _RDMA)
    # A fabric without RDMA verbs has their type in version 2.
    return number in (_OLD_NETWORK, _OLD_RDMA), number == _OLD_RDMA and element.attributes.get("subtype") != "BXI"


def _nic(
    device: str | None,
    interface: str | None,
    ports: list[IbPort] | None,
    address: str | None,
    devices: Mapping[str, PciDevice],
) -> Nic:
    return Nic(
        name=device or interface or "",
        interface=interface,
        rdma=device is not None,
        address=address,
        kind="physical" if interface is not None and address is not None else None,
        ports=ports,
        numa_node=devices[address].numa_node if address is not None and address in devices else None,
    )


def _port(element: Element) -> int:
    text = infos(element).get("Port", "")
    return int(text) if re.fullmatch(r"[0-9]{1,3}", text) else 0


def _ports(element: Element) -> list[IbPort]:
    """Ports with their states; hwloc writes neither rate nor link layer."""
    states = [(match[1], value) for key, value in infos(element).items() if (match := _PORT_STATE.fullmatch(key))]
    return [
        IbPort(port=port, state=_PORT_STATES.get(value))
        for port, value in sorted((int(port), value) for port, value in states)
    ]
