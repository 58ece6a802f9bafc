"""hwloc XML (`lstopo --of xml FILE`), versions 1, 2 and 3 → Snapshot.

What hwloc writes there: `hwloc/topology-xml.c`, `topology-linux.c` and `topology-nvml.c` of hwloc 3.0, 2.x and 1.11.
A file holds what the lstopo that wrote it was built for and allowed to see: without NVML it names no NVLinks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from topoadvisor import cpu_lists, pci, xml_tree
from topoadvisor.errors import InputError
from topoadvisor.hardware import catalogue, processors
from topoadvisor.ingest import hwloc_devices, hwloc_values, part
from topoadvisor.ingest.hwloc_devices import NVLINKS, Found, Function, Place, infos
from topoadvisor.snapshot import Cpu, Host, NumaNode, PciDevice, RawText, Snapshot
from topoadvisor.xml_tree import Element

SOURCE = "hwloc-xml"
MAX_ELEMENTS = 200_000
MAX_NODES = 1024
"""NUMA nodes; the kernel is built for at most that many."""

_HINT = "`lstopo --of xml topology.xml` writes a whole one; the file may have been cut while it was copied."
_VERSION = re.compile(r"([0-9]{1,3})\.[0-9]{1,3}")
_HOST_BRIDGE = re.compile(r"([0-9a-fA-F]{1,8}):\[([0-9a-fA-F]{2})-[0-9a-fA-F]{2}\]")
_PCI_TYPE = re.compile(
    r"([0-9a-fA-F]{4}) \[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\] \[[0-9a-fA-F]{4}:[0-9a-fA-F]{4}\] [0-9a-fA-F]{2}"
    r"(?: ([0-9a-fA-F]{2}))?"
)
_MEMORY_ONLY = re.compile(r"GPUMemory|HBM|MCDRAM|NVM|SPM|CXL.*")
"""Kinds of memory that no CPU belongs to, as hwloc names them."""
_DMI = {
    "DMISysVendor": "sys_vendor",
    "DMIProductName": "product_name",
    "DMIProductVersion": "product_version",
    "DMIProductFamily": "product_family",
    "DMIBoardVendor": "board_vendor",
    "DMIBoardName": "board_name",
    "DMIBIOSVendor": "bios_vendor",
    "DMIBIOSVersion": "bios_version",
    "DMIChassisVendor": "chassis_vendor",
    "DMIChassisAssetTag": "chassis_asset_tag",
}
_TEXTS = frozenset({"indexes", "u64values"})


def parse(text: str, *, file: str) -> Snapshot:
    """Read one machine from an hwloc XML; of an assembled one (version 1), the first machine.

    GPUs are numbered as their NVML devices are; without those, NVIDIA display devices are numbered in bus order.

    Raises InputError with line and column for broken XML, a document type with entities, or a value that cannot be.
    """
    root = xml_tree.parse(text, file=file, hint=_HINT, max_elements=MAX_ELEMENTS, doctype="topology", texts=_TEXTS)
    reader = _Reader(file)
    if root.tag != "topology":
        reader.wrong(root, f"the root element is <{root.tag}>, not <topology>")
    reader.read(root)
    return reader.snapshot(text)


@dataclass
class _Node:
    """One NUMA node while its CPUs are being sorted out."""

    element: Element
    id: int
    cpus: int | None
    subtype: str


@dataclass
class _Machine:
    """What is known of the place in the tree while it is walked."""

    element: Element
    """The nearest object that has CPUs or memory."""
    numa: int | None = None
    """The NUMA node around it, in version 1."""


@dataclass
class _Reader:
    """Collects what the objects of one machine say."""

    file: str
    notes: list[str] = field(default_factory=list)
    version: int = 1
    infos: dict[str, str] = field(default_factory=dict)
    """Of the whole topology, those of the machine included."""
    nodes: list[_Node] = field(default_factory=list)
    """In file order."""
    packages: list[Element] = field(default_factory=list)
    found: Found = field(default_factory=Found)
    matrices: list[hwloc_values.Matrix] = field(default_factory=list)
    old_distances: list[Element] = field(default_factory=list)
    """Of version 1, below the object around all that they are about."""
    machine: Element | None = None
    again: list[str] = field(default_factory=list)
    """PCI devices that stand in the file a second time, and where."""

    def wrong(self, element: Element, message: str) -> NoReturn:
        raise InputError(message, file=self.file, line=element.line, column=element.column, hint=_HINT)

    def read(self, root: Element) -> None:
        text = root.attributes.get("version", "1.0")
        match = _VERSION.fullmatch(text)
        self.version = int(match[1]) if match else 0
        if self.version not in (1, 2, 3):
            self.wrong(root, f"this is version {text[:20]!r} of the format; 1, 2 and 3 can be read")
        top = next(root.each("object"), None)
        if top is None:
            self.wrong(root, "there is no <object> in this topology")
        machines = list(top.each("object")) if top.attributes.get("type") == "System" else [top]
        self.machine = machines[0] if machines else top
        if len(machines) > 1:
            self.notes.append(f"the file describes {len(machines)} machines; the first one is read")
        self.infos = infos(root) | infos(top) | infos(self.machine)
        self.matrices = [
            hwloc_values.matrix(element, self.wrong)
            for tag in ("distances2", "distances2hetero")
            for element in root.each(tag)
            if element.attributes.get("type") == "NUMANode" or element.attributes.get("name") == NVLINKS
        ]
        self._walk(self.machine, _Machine(self.machine), Place())
        if self.again:
            more = f" and {len(self.again) - 1} more" if len(self.again) > 1 else ""
            self.notes.append(f"a second PCI device {self.again[0]} is left out{more}")

    def _walk(self, element: Element, around: _Machine, place: Place) -> None:
        """One object, then those inside it; `place` is where in the PCI tree it stands."""
        kind = element.attributes.get("type", "")
        match kind:
            case "Bridge" | "PCIDev":
                place = self._read_function(element, kind, around, place)
            case "OSDev":
                self.found.os_devices.setdefault(place.parent, {}).setdefault(
                    element.attributes.get("name", ""), element
                )
            case "Misc":
                return
            case "NUMANode":
                node = self._read_node(element)
                around = _Machine(element, node.id if self.version == 1 else None)
            case _:
                around = _Machine(element, around.numa)
                if kind in ("Package", "Socket"):
                    self.packages.append(element)
        self.old_distances += element.each("distances")
        number = element.attributes.get("gp_index") or element.attributes.get("id", "").removeprefix("obj")
        if re.fullmatch(r"[0-9]{1,18}", number):
            self.found.by_number[int(number)] = element, place.parent
        for child in element.each("object"):
            self._walk(child, around, place)

    def _read_node(self, element: Element) -> _Node:
        id = hwloc_values.number(element, "os_index", self.wrong)
        if id is None:
            self.wrong(element, "this NUMA node has no os_index")
        if any(node.id == id for node in self.nodes):
            self.wrong(element, f"NUMA node {id} stands here a second time")
        if len(self.nodes) == MAX_NODES:
            self.wrong(element, f"there are more than {MAX_NODES} NUMA nodes")
        name = "online_cpuset" if "online_cpuset" in element.attributes else "cpuset"
        cpus = hwloc_values.members(element, name, self.wrong)
        node = _Node(element, id, cpus, element.attributes.get("subtype", ""))
        self.nodes.append(node)
        return node

    def _read_function(self, element: Element, kind: str, around: _Machine, place: Place) -> Place:
        """Where the objects inside a bridge or PCI device stand."""
        attributes = element.attributes
        if kind == "Bridge" and attributes.get("bridge_type", "").startswith("0-"):
            match = _HOST_BRIDGE.fullmatch(attributes.get("bridge_pci", ""))
            return Place(root=f"{int(match[1], 16):04x}:{match[2].lower()}" if match else None, below_host_bridge=True)
        if "pci_busid" not in attributes:
            self.found.nameless += 1
            return Place()
        try:
            address = pci.normalize(attributes["pci_busid"])
        except ValueError:
            self.wrong(element, f"the pci_busid {attributes['pci_busid'][:40]!r} is no PCI address")
        if address in self.found.functions:
            self.again.append(f"{address} in line {element.line}")
            return Place()
        root = place.root
        if place.below_host_bridge:
            # A device on another bus than its root complex hangs below bridges that were filtered out.
            bus = address[:-5]
            root = bus if root in (None, bus) else None
        device = self._device(element, address, place.parent, root)
        self.found.functions[address] = Function(device, element, around.element, around.numa)
        return Place(parent=address, root=root)

    def _device(self, element: Element, address: str, parent: str | None, root: str | None) -> PciDevice:
        match = _PCI_TYPE.fullmatch(element.attributes.get("pci_type", "").lower())
        # All zeros is what hwloc writes when it could not read the configuration space.
        known = match is not None and match[2] != "0000"
        code, vendor, device, interface = match.groups() if match is not None and known else (None, None, None, None)
        gbps = hwloc_values.link_gbps(element, self.wrong)
        model = catalogue.gpu_model(None, f"0x{device}") if vendor == "10de" else None
        lanes = hwloc_values.lanes(gbps, model) if gbps is not None else None
        return PciDevice(
            address=address,
            class_code=f"0x{code}{interface or ''}" if code else None,
            vendor=f"0x{vendor}" if vendor else None,
            device=f"0x{device}" if device else None,
            parent=parent,
            root=root,
            link_speed_gts=lanes[0] if lanes else None,
            link_width=lanes[1] if lanes else None,
            link_gbps=gbps if lanes is None else None,
        )

    def snapshot(self, text: str) -> Snapshot:
        nodes = self._numa_nodes()
        with_cpus = {node.id for node in nodes if node.cpus != ""}
        devices = hwloc_devices.pci_devices(self.found, with_cpus, self.wrong, self.notes)
        gpus = hwloc_devices.gpus(self.found, devices, self._gpu_memory(), self.wrong, self.notes)
        writer = self.infos.get("hwlocVersion", "")
        gpus = hwloc_devices.with_nvlinks(gpus, self.matrices, self.found, writer, self.notes)
        nics = hwloc_devices.nics(self.found, devices, self.version, self.wrong)
        host = self._host(nodes)
        if not gpus:
            self.notes.append("the file shows no NVIDIA GPU; lstopo with --no-io shows none")
        return Snapshot(
            origin=SOURCE,
            sources=[part.source(SOURCE, self.notes)],
            gpus=gpus,
            nics=nics,
            pci=list(devices.values()) or None,
            host=host,
            raw=[RawText(source=SOURCE, text=text)],
        )

    def _numa_nodes(self) -> list[NumaNode]:
        """The nodes by id. CPUs that hwloc gives to several nodes belong to the one that is no mere memory."""
        owned: dict[int, int | None] = {}
        taken = 0
        memory_only = []
        size = {node.id: node.cpus.bit_count() if node.cpus is not None else 0 for node in self.nodes}
        for node in sorted(
            self.nodes, key=lambda node: (bool(_MEMORY_ONLY.fullmatch(node.subtype)), size[node.id], node.id)
        ):
            owned[node.id] = node.cpus
            if node.cpus and not node.cpus & ~taken:
                owned[node.id] = 0
                memory_only.append(node.id)
            taken |= node.cpus or 0
        if memory_only:
            ids = ", ".join(str(id) for id in sorted(memory_only))
            self.notes.append(f"the CPUs listed with NUMA node {ids} belong to others: it is memory only")
        distances = self._distances(sorted(owned)) or {}
        return [
            NumaNode(
                id=node.id,
                cpus=None if (cpus := owned[node.id]) is None else cpu_lists.spell(cpu_lists.of_bits(cpus)),
                memory_bytes=hwloc_values.number(node.element, "local_memory", self.wrong),
                distances=distances.get(node.id),
            )
            for node in sorted(self.nodes, key=lambda node: node.id)
        ]

    def _distances(self, ids: list[int]) -> dict[int, list[int]] | None:
        in_order = [node.id for node in self.nodes]
        old = (hwloc_values.old_node_distances(each, in_order, self.wrong) for each in self.old_distances)
        return next(filter(None, old), None) or hwloc_values.node_distances(self.matrices, ids)

    def _gpu_memory(self) -> dict[str, int]:
        """GPU → the NUMA node that its memory forms."""
        memory: dict[str, int] = {}
        for node in self.nodes:
            address = infos(node.element).get("PCIBusID", "") if node.subtype == "GPUMemory" else ""
            try:
                memory.setdefault(pci.normalize(address), node.id)
            except ValueError:
                continue
        return memory

    def _host(self, nodes: list[NumaNode]) -> Host:
        dmi = {ours: self.infos[name].strip() for name, ours in _DMI.items() if self.infos.get(name, "").strip()}
        return Host(
            hostname=self.infos.get("HostName"),
            kernel=self.infos.get("OSRelease"),
            cpu=self._cpu(),
            numa_nodes=nodes or None,
            dmi=dmi or None,
        )

    def _cpu(self) -> Cpu:
        assert self.machine is not None
        told = self.infos | (infos(self.packages[0]) if self.packages else {})
        name = told.get("CPUModel", "").strip() or None
        vendor = processors.vendor(told["CPUVendor"]) if "CPUVendor" in told else None
        model = _small(told.get("CPUModelNumber"))
        if vendor is None and "CPUImplementer" in told:
            vendor, core = processors.arm(told["CPUImplementer"], told.get("CPUPart"))
            name, model = name or core, _small(told.get("CPUPart"))
        elif vendor is None and name is not None and name.startswith("POWER"):
            vendor = "IBM"
        online = self._online()
        return Cpu(
            architecture=self.infos.get("Architecture"),
            vendor=vendor,
            model_name=name,
            family=_small(told.get("CPUFamilyNumber")),
            model=model,
            sockets=(len(self.packages) or None) if online is not None or self._shows_all_nodes() else None,
            online=None if online is None else cpu_lists.spell(cpu_lists.of_bits(online)),
        )

    def _online(self) -> int | None:
        """CPUs that run; None when the file may have left some out.

        Only hwloc 1 itself tells CPUs that run from those that the process may use; later ones write that format too.
        """
        assert self.machine is not None
        told = self.version == 1 and not self.infos.get("hwlocVersion", "").startswith(("2.", "3."))
        whole = hwloc_values.members(self.machine, "complete_cpuset", self.wrong)
        seen = hwloc_values.members(self.machine, "online_cpuset" if told else "cpuset", self.wrong)
        if seen is None or told or whole in (None, seen):
            return seen
        self.notes.append("CPUs that were offline, or that lstopo was not allowed to use, are missing")
        return None

    def _shows_all_nodes(self) -> bool:
        """Whether no NUMA node, and no package with one, can have been left out with the CPUs."""
        assert self.machine is not None
        seen = hwloc_values.members(self.machine, "nodeset", self.wrong)
        whole = hwloc_values.members(self.machine, "complete_nodeset", self.wrong)
        return seen is not None and seen == whole and all(node.cpus for node in self.nodes)


def _small(text: str | None) -> int | None:
    return int(text, 0) if text is not None and re.fullmatch(r"0x[0-9a-f]{1,5}|0|[1-9][0-9]{0,5}", text) else None
