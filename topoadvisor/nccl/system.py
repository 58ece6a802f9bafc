"""The machine as NCCL sees it: the nodes and links that it builds from its topology XML (`src/graph/topo.cc`).

Below a CPU, which is a NUMA node, hang PCI bridges, GPUs and NICs; since 2.30.3 a device node stands between a GPU and
its links. A NIC has a node for itself and one for each of its ports, the NETs. All NVSwitches are one node. Every CPU
is linked to every other one of its host.

Not modelled: MLOPart partitions of one GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from topoadvisor.nccl import levels, rates
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.rates import Rules
from topoadvisor.nccl.topo_xml import Element

_FASTEST_PCIE: Final = "64.0 GT/s PCIe"
_UNKNOWN_MBIT: Final = 10_000
"""Mbit/s that NCCL takes for a NIC that states none."""
MOST_NODES: Final = 640
"""Nodes of one kind for which NCCL has room (`NCCL_TOPO_MAX_NODES`)."""


class TooLarge(ValueError):
    """A topology that NCCL has no room for, or that would take too long here. The text is one sentence."""


class Kind(StrEnum):
    GPU = "GPU"
    DEV = "DEV"
    PCI = "PCI"
    NVS = "NVS"
    CPU = "CPU"
    NIC = "NIC"
    NET = "NET"


_CLASSES: Final = (
    ("0x060400", Kind.PCI),
    ("0x080100", Kind.PCI),
    ("0x068000", Kind.NVS),
    ("0x068001", Kind.CPU),
    ("0x03", Kind.GPU),
    ("0x02", None),
)
"""PCI class → node, by how the class begins; None = a NIC, the rest are bridges (`kvDictPciClass`)."""


@dataclass(eq=False)
class Link:
    """One direction of a link; several between the same two nodes are one."""

    to: Node
    kind: NcclPath
    """LOC, NVL, C2C, PIX (any PCI link) or SYS."""
    gbps: float = 0.0
    """No limit, `rates.LOCAL_GBPS`, where it is not known; of a PCIe link the most that it can be."""
    unknown: str | None = None
    """Why `gbps` is not known."""
    far: str | None = None
    """Why it is not known whether this link is there at all."""
    inferred: tuple[str, ...] = ()


@dataclass(eq=False)
class Node:
    kind: Kind
    key: tuple[int, object]
    """(host, identity within its kind)."""
    label: str
    element: Element
    links: list[Link] = field(default_factory=list)
    pci_id: int = 0
    """Vendor, device and both subsystem ids, 16 bits each."""
    parent: Node | None = None
    """Of a GPU its device node, or itself."""

    def unread(self) -> str | None:
        """Why the NVLinks of this GPU are not known."""
        return self.element.missing.get("nvlink")


def is_intel(node: Node) -> bool:
    """A CPU of Intel's, through which NCCL reckons with more traffic for P2P."""
    attributes = node.element.attributes
    return node.kind is Kind.CPU and (attributes.get("arch"), attributes.get("vendor")) == ("x86_64", "GenuineIntel")


@dataclass
class System:
    """All nodes by kind, in NCCL's order."""

    rules: Rules
    nodes: dict[Kind, list[Node]] = field(default_factory=lambda: {kind: [] for kind in Kind})
    hosts: list[str] = field(default_factory=list)

    def remove_gpu(self, gpu: Node) -> None:
        """Take a GPU out, as NCCL does with those it cannot reach; its device node stays (`ncclTopoRemoveNode`)."""
        self.nodes[Kind.GPU].remove(gpu)
        for nodes in self.nodes.values():
            for node in nodes:
                node.links = [link for link in node.links if link.to is not gpu]

    def devices(self) -> list[Node]:
        """The nodes that hold the links of the GPUs."""
        return self.nodes[Kind.DEV if self.rules.device_nodes else Kind.GPU]

    def find(self, kind: Kind, key: tuple[int, object]) -> Node | None:
        return next((node for node in self.nodes[kind] if node.key == key), None)


def build(root: Element, rules: Rules) -> System:
    """The system of a `<system>` element. GPUs without a `rank` take no part in the job, and are not in it.

    A value that is needed and is not there leaves its link without a limit, and with the reason. Raises TooLarge.
    """
    builder = _Builder(System(rules))
    for cpu in root.each("cpu"):
        builder.add_cpu(cpu)
    builder.add_gpu_links()
    builder.add_pci_links()
    _flatten(builder.system)
    _connect_cpus(builder.system)
    for node in builder.system.nodes[Kind.CPU]:
        _sort(node, None)
    return builder.system


def connect(
    node: Node,
    to: Node,
    kind: NcclPath,
    gbps: float,
    *,
    unknown: str | None = None,
    far: str | None = None,
    inferred: tuple[str, ...] = (),
) -> None:
    """Add a link, or its bandwidth to the one of that kind that is there; the fastest stand first."""
    link = next((link for link in node.links if link.to is to and link.kind is kind), None)
    if link is None:
        link = Link(to, kind)
    else:
        node.links.remove(link)
    link.gbps += gbps
    link.unknown, link.far = link.unknown or unknown, link.far or far
    link.inferred = tuple(dict.fromkeys((*link.inferred, *inferred)))
    slower = (place for place, other in enumerate(node.links) if other.gbps < link.gbps)
    node.links.insert(next(slower, len(node.links)), link)


def integer(element: Element, name: str) -> int | None:
    """A whole number as NCCL reads it (`strtol`, base 0), 0 for a text without one; None when there is no attribute."""
    text = element.attributes.get(name)
    return None if text is None else levels.parse_int(text) or 0


def bus_number(text: str) -> int:
    """A PCI address as NCCL compares it: its hexadecimal digits without the marks between them."""
    digits = re.match(r"[0-9a-fA-F:.]*", text)
    return int("".join(re.findall(r"[0-9a-fA-F]", digits[0] if digits else ""))[:16] or "0", 16)


class _Builder:
    def __init__(self, system: System) -> None:
        self.system = system
        self._pci: list[tuple[int, Element, Node]] = []

    def _create(self, kind: Kind, key: tuple[int, object], label: str, element: Element) -> Node:
        if len(self.system.nodes[kind]) == MOST_NODES:
            raise TooLarge(f"NCCL takes {MOST_NODES} {kind} nodes, and here are more")
        node = Node(kind, key, label, element)
        self.system.nodes[kind].append(node)
        return node

    def add_cpu(self, element: Element) -> None:
        name = element.attributes.get("host_hash", "0")
        if name not in self.system.hosts:
            self.system.hosts.append(name)
        host = self.system.hosts.index(name)
        numa = element.attributes.get("numaid")
        label = f"NUMA node {numa}" if numa is not None else "a NUMA node"
        cpu = self._create(Kind.CPU, (host, len(self.system.nodes[Kind.CPU])), label, element)
        for child in element.children:
            if child.tag == "pci":
                self._add_pci(child, cpu, host, numa)
            elif child.tag == "nic":
                self._add_nic(child, cpu, (host, (numa, 0)), None)

    def _add_pci(self, element: Element, parent: Node, host: int, numa: str | None) -> None:
        address = element.attributes.get("busid", "")
        bus = bus_number(address)
        ranks = list(element.each("gpu"))
        if ranks and not all("rank" in gpu.attributes for gpu in ranks):
            return
        for gpu in ranks if self.system.rules.device_nodes else ranks[:1]:
            self._add_gpu(element, gpu, parent, host, bus)
        nic = next(element.each("nic"), None)
        if nic is not None:
            self._add_nic(nic, parent, (host, (numa, bus)), element)
        if ranks or nic is not None or _class_of(element.attributes.get("class", "")) is not Kind.PCI:
            return
        node = self._create(Kind.PCI, (host, bus), address, element)
        node.pci_id = _pci_id(element)
        self._pci.append((host, element, node))
        for child in element.each("pci"):
            self._add_pci(child, node, host, numa)
        _connect_pci(node, parent, element)

    def _add_nic(self, element: Element, parent: Node, key: tuple[int, object], pci: Element | None) -> None:
        """A NIC below a PCI element, or directly below a CPU, where NCCL sees no limit."""
        nic = self.system.find(Kind.NIC, key)
        if nic is None:
            nic = self._create(Kind.NIC, key, "a NIC", element)
            if pci is not None:
                _connect_pci(nic, parent, pci)
            else:
                connect(nic, parent, NcclPath.PIX, rates.LOCAL_GBPS)
                connect(parent, nic, NcclPath.PIX, rates.LOCAL_GBPS)
        for port in element.each("net"):
            number = integer(port, "dev")
            if number is None or integer(port, "net") == 0:
                continue
            net = self._create(Kind.NET, (key[0], number), port.attributes.get("name", f"NET{number}"), port)
            gbps = (speed if (speed := integer(port, "speed") or 0) > 0 else _UNKNOWN_MBIT) / 8000
            connect(nic, net, NcclPath.LOC, gbps, unknown=port.missing.get("speed"))
            connect(net, nic, NcclPath.LOC, gbps, unknown=port.missing.get("speed"))

    def _add_gpu(self, pci: Element, element: Element, parent: Node, host: int, bus: int) -> None:
        label = f"GPU{element.attributes.get('dev', '?')}"
        if not self.system.rules.device_nodes:
            gpu = self._create(Kind.GPU, (host, bus), label, element)
            gpu.parent = gpu
            _connect_pci(gpu, parent, pci)
            return
        device = self.system.find(Kind.DEV, (host, bus))
        if device is None:
            device = self._create(Kind.DEV, (host, bus), label, element)
            _connect_pci(device, parent, pci)
        gpu = self._create(Kind.GPU, (host, (bus, len(self.system.nodes[Kind.GPU]))), label, element)
        gpu.parent = device
        connect(device, gpu, NcclPath.LOC, rates.LOCAL_GBPS)
        connect(gpu, device, NcclPath.LOC, rates.LOCAL_GBPS)

    def add_gpu_links(self) -> None:
        """NVLinks of all GPUs first, then chip-to-chip links."""
        owners = list(dict.fromkeys(gpu.parent for gpu in self.system.nodes[Kind.GPU] if gpu.parent is not None))
        for owner in owners:
            for link in owner.element.each("nvlink"):
                self._add_nvlink(owner, link)
        for owner in owners:
            for link in owner.element.each("c2c"):
                self._add_c2c(owner, link)

    def _add_nvlink(self, owner: Node, element: Element) -> None:
        capability = integer(owner.element, "sm")
        inferred = tuple(
            why for why in (owner.element.inferred.get("sm"), *element.inferred.values()) if why is not None
        )
        count = integer(element, "count") or 0
        unknown = None
        if capability is None:
            unknown = owner.element.missing.get("sm", "the compute capability is not in the file")
        gbps = rates.LOCAL_GBPS if capability is None else count * rates.nvlink_gbps(self.system.rules, capability)
        target = element.attributes.get("target", "")
        other = next((peer for peer in self.system.devices() if peer.key == (owner.key[0], bus_number(target))), None)
        # Without a class NCCL looks the target up, and takes what it does not see for an NVSwitch.
        looked_up = Kind.GPU if other is not None else Kind.NVS
        kind = _class_of(element.attributes["tclass"]) if "tclass" in element.attributes else looked_up
        if kind is Kind.GPU:
            if other is not None:
                connect(owner, other, NcclPath.NVL, gbps, unknown=unknown, inferred=inferred)
            return
        if kind is Kind.CPU:
            other = local_cpu(owner)
        else:
            switches = self.system.nodes[Kind.NVS]
            other = switches[0] if switches else self._create(Kind.NVS, (0, 0), "NVSwitch", element)
        if other is not None:
            connect(owner, other, NcclPath.NVL, gbps, unknown=unknown, inferred=inferred)
            connect(other, owner, NcclPath.NVL, gbps, unknown=unknown, inferred=inferred)

    def _add_c2c(self, owner: Node, element: Element) -> None:
        cpu = local_cpu(owner)
        if cpu is None:
            return
        gbps = (integer(element, "bw") or 0) * (integer(element, "count") or 0) / 1000
        kind = NcclPath.NVL if self.system.rules.c2c_is_nvlink else NcclPath.C2C
        inferred = tuple(element.inferred.values())
        connect(owner, cpu, kind, gbps, inferred=inferred)
        connect(cpu, owner, kind, gbps, inferred=inferred)

    def add_pci_links(self) -> None:
        for host, element, node in self._pci:
            for link in element.each("pcilink"):
                target = self.system.find(Kind.PCI, (host, bus_number(link.attributes.get("target", ""))))
                if target is not None:
                    connect(node, target, NcclPath.LOC, rates.LOCAL_GBPS)


def _class_of(text: str) -> Kind | None:
    return next((kind for begin, kind in _CLASSES if text.startswith(begin)), Kind.PCI)


def _pci_id(element: Element) -> int:
    names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    return sum(
        ((integer(element, name) or 0) & 0xFFFF) << shift for name, shift in zip(names, (48, 32, 16, 0), strict=True)
    )


def _connect_pci(node: Node, parent: Node, element: Element) -> None:
    speed, width = element.attributes.get("link_speed"), integer(element, "link_width")
    unknown = None
    if speed is None or width is None:
        gone = "link_speed" if speed is None else "link_width"
        unknown = element.missing.get(gone, "a PCIe link is not in the file")
        # At most this: a chip-to-chip link beside it is still the better way.
        gbps = rates.pcie_gbps(_FASTEST_PCIE if speed is None else speed, rates.DEFAULT_WIDTH)
    else:
        gbps = rates.pcie_gbps(speed, width)
    inferred = tuple(why for name, why in element.inferred.items() if name in ("link_speed", "link_width", "pci"))
    far = None
    if node.kind is parent.kind is Kind.PCI and _may_be_one(element, parent.element):
        far = f"NCCL takes {parent.label} and {node.label} for one switch or two, by subsystem ids that were not read"
    connect(node, parent, NcclPath.PIX, gbps, unknown=unknown, inferred=inferred, far=far)
    connect(parent, node, NcclPath.PIX, gbps, unknown=unknown, inferred=inferred, far=far)


def _may_be_one(inner: Element, outer: Element) -> bool:
    """Two levels of one model of switch, and the ids that would tell were not read."""
    same = all(inner.attributes.get(name) == outer.attributes.get(name) for name in ("vendor", "device"))
    return same and "subsystem_device" in {**inner.missing, **outer.missing}


def local_cpu(node: Node, origin: Node | None = None) -> Node | None:
    """The CPU above a device, along PCI links upwards."""
    if node.kind is Kind.CPU:
        return node
    for link in node.links:
        if link.kind is NcclPath.PIX and link.to is not origin and link.to.kind in (Kind.PCI, Kind.CPU):
            found = local_cpu(link.to, node)
            if found is not None:
                return found
    return None


def _broadcom(rules: Rules, pci_id: int, level: int) -> int:
    """Generation of a Broadcom switch that shows itself as two levels; 0 = it is none (`getBcmGen`)."""
    model = pci_id & ~0xFFF
    if model == 0x1000C0101000A000:
        return 4
    return 5 if rules.flattens_gen5 and model == 0x1000C03010000000 | level * 0x1000 else 0


def _flatten(system: System) -> None:
    """Make one node of a Broadcom switch and the sub-switches that it shows, for which there is no wire."""
    bridges = system.nodes[Kind.PCI]
    for bridge in list(bridges):
        generation = _broadcom(system.rules, bridge.pci_id, 0)
        if not generation or bridge not in bridges:
            continue
        inner = [
            link.to
            for link in bridge.links
            if link.to.kind is Kind.PCI and _broadcom(system.rules, link.to.pci_id, 1) == generation
        ]
        bridge.links = [link for link in bridge.links if link.to not in inner]
        for sub in inner:
            for link in sub.links:
                if link.to is bridge:
                    continue
                bridge.links.append(link)
                back = next((each for each in link.to.links if each.to is sub), None)
                if back is not None:
                    back.to = bridge
            bridges.remove(sub)
        bridge.pci_id |= 0xFFFF


def _connect_cpus(system: System) -> None:
    cpus = system.nodes[Kind.CPU]
    for cpu in cpus:
        gbps, unknown, inferred = _across(system.rules, cpu)
        for other in cpus:
            if other is cpu or other.key[0] != cpu.key[0]:
                continue
            far = next((why for node in (cpu, other) if (why := node.element.missing.get("numaid"))), None)
            connect(cpu, other, NcclPath.SYS, gbps, unknown=unknown, inferred=inferred, far=far)


def _across(rules: Rules, cpu: Node) -> tuple[float, str | None, tuple[str, ...]]:
    element = cpu.element
    arch, vendor = element.attributes.get("arch"), element.attributes.get("vendor")
    gbps = None
    if arch is not None and (vendor is not None or not arch.startswith("x86_64")):
        family, model = integer(element, "familyid"), integer(element, "modelid")
        gbps = rates.between_cpus(rules, arch, vendor or "", family, model)
    inferred = tuple(why for name, why in element.inferred.items() if name != "numaid")
    if gbps is None:
        return rates.LOCAL_GBPS, element.missing.get("arch", "the CPU is not known"), inferred
    return gbps, None, inferred


def _sort(node: Node, above: Node | None) -> None:
    """Put the way up behind all ways down."""
    up = next((link for link in node.links if link.to is above), None)
    if up is not None:
        node.links.remove(up)
        node.links.append(up)
    for link in list(node.links):
        if link.kind is NcclPath.PIX and link.to is not above:
            _sort(link.to, node)
