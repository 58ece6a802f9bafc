"""The elements of NCCL's topology XML from the PCI functions of a machine, or from link classes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from topoadvisor.nccl.topo_xml import Element
from topoadvisor.snapshot import Gpu, Host, Nic, PciDevice, Snapshot
from topoadvisor.topology import nccl_elements
from topoadvisor.topology.model import Topology
from topoadvisor.topology.pcie_tree import Hierarchy

_MOST_FUNCTIONS: Final = 64
"""One above the other; a PCI hierarchy has 256 buses, and real machines nest ten deep."""


@dataclass
class Document:
    """The XML and what is to be said about it."""

    root: Element
    addressed: bool
    """Every PCI element has an address that was read."""
    apart: frozenset[tuple[int, int]] = frozenset()
    """Ordered pairs of GPU indexes that are known to be in different NUMA nodes, although not in which ones."""
    notes: list[str] = field(default_factory=list)
    nics: dict[str, Element] = field(default_factory=dict)
    """RDMA device → its PCI element; their ports are not in it (`nccl_nics`). Empty for a dump, which has them."""


def from_functions(snapshot: Snapshot, topology: Topology, asks_nvml: bool) -> Document:
    """As NCCL walks up from each device (`ncclTopoGetXmlFromSys` in `src/graph/xml.cc`).

    Every second PCI function above a device is an element, so that the two ports of a switch are one, up to the NUMA
    node that the topmost element names.

    NICs are there as PCI devices only: which ports NCCL uses it finds out when it starts. `asks_nvml`: the PCIe link of
    a GPU is what NVML says of it.
    """
    listed = {device.address: device for device in snapshot.pci or ()}
    document = Document(_system(), addressed=True)
    tree = _Tree(document, snapshot, listed, asks_nvml)
    for gpu in snapshot.gpus:
        device = listed.get(gpu.address or "")
        if device is None:
            document.notes.append(f"GPU{gpu.index} is not in the list of PCI devices and is left out.")
        else:
            tree.hang(device, gpu).children.append(nccl_elements.gpu_element(gpu, snapshot, topology))
    for nic in snapshot.nics or ():
        device = listed.get(nic.address or "")
        if device is not None and nic.rdma:
            document.nics[nic.name] = tree.hang(device, nic)
    return document


def _system() -> Element:
    return Element("system", {"version": "1"})


class _Tree:
    def __init__(
        self, document: Document, snapshot: Snapshot, listed: Mapping[str, PciDevice], asks_nvml: bool
    ) -> None:
        self._document = document
        self._snapshot = snapshot
        self._listed = listed
        self._asks_nvml = asks_nvml
        self._made: dict[str, Element] = {}
        self._cpus: dict[str, Element] = {}

    def hang(self, device: PciDevice, owner: Gpu | Nic) -> Element:
        """The element of a device, with those above it."""
        chain, seen = [device], {device.address}
        while (above := chain[-1].parent) is not None and above in self._listed and above not in seen:
            if len(chain) == _MOST_FUNCTIONS:
                self._document.notes.append(f"More than {_MOST_FUNCTIONS} PCI functions above {device.address}.")
                break
            chain.append(self._listed[above])
            seen.add(above)
        return self._element(chain, owner)

    def _element(self, chain: Sequence[PciDevice], owner: Gpu | Nic) -> Element:
        """The element of the first function of a chain that leads up from it."""
        gpu = owner if isinstance(owner, Gpu) else None
        top = (len(chain) - 1) // 2 * 2
        parent = self._cpu(chain[top], owner.numa_node)
        for place in range(top, -1, -2):
            device = chain[place]
            if device.address not in self._made:
                element = self._made[device.address] = self._new(chain[place:], gpu if place == 0 else None)
                _insert(parent, element)
            parent = self._made[device.address]
        return parent

    def _new(self, chain: Sequence[PciDevice], gpu: Gpu | None) -> Element:
        element = nccl_elements.pci_element(chain[0], chain[1] if len(chain) > 1 else None)
        if gpu is not None:
            link = nccl_elements.link_of(gpu, now=self._asks_nvml)
            element.attributes = element.attributes | link if self._asks_nvml else link | element.attributes
        nccl_elements.miss_link(element, "the PCIe link was not read")
        if gpu is not None:
            nccl_elements.infer_link(element, gpu)
        return element

    def _cpu(self, top: PciDevice, told: int | None) -> Element:
        """The NUMA node that the topmost function names, else the one that is `told` of the device below it."""
        numa = top.numa_node if top.numa_node is not None else told
        key = str(numa) if numa is not None else f"unknown {top.root}"
        if key not in self._cpus:
            why = f"the NUMA node of {top.address} was not read"
            self._cpus[key] = nccl_elements.cpu_element(numa, why, self._snapshot.host)
            self._document.root.children.append(self._cpus[key])
        return self._cpus[key]


def _insert(parent: Element, element: Element) -> None:
    """NCCL keeps the devices below one in the order of their addresses."""
    address = element.attributes["busid"]
    later = (place for place, other in enumerate(parent.children) if other.attributes.get("busid", "") > address)
    parent.children.insert(next(later, len(parent.children)), element)


def from_classes(snapshot: Snapshot, topology: Topology) -> Document:
    """The tree that link classes imply, with stand-ins for addresses."""
    hierarchy: Hierarchy = topology.attributes["hierarchy"]
    printed = {(a, b) for (a, b), pair in topology.pairs.items() if pair.pcie_class == "SYS"}
    number_of = {node: int(topology.graph.nodes[node]["index"]) for node in topology.gpus}
    across = {(number_of[a], number_of[b]) for a, b in printed if a in number_of and b in number_of}
    apart = frozenset(across | {(b, a) for a, b in across})
    document = Document(_system(), addressed=False, apart=apart)
    given = {f"gpu:{gpu.index}": gpu for gpu in snapshot.gpus}
    implied = _Implied(document, hierarchy, snapshot.host)
    for number, node in enumerate(topology.gpus):
        gpu = given.get(node) or Gpu(index=number_of[node])
        element = Element("pci", {"busid": nccl_elements.stand_in(number), "class": nccl_elements.GPU_CLASS})
        element.attributes.update(nccl_elements.link_of(gpu))
        nccl_elements.miss_link(element, "the PCIe link was not read (--assume gpu.name=… supplies that of the board)")
        element.inferred["pci"] = "how the GPUs hang on the CPUs follows from link classes"
        nccl_elements.infer_link(element, gpu)
        element.children.append(nccl_elements.gpu_element(gpu, snapshot, topology))
        implied.hang(node, element, f"the NUMA node of GPU{gpu.index} is not known")
    for number, node in enumerate(topology.nics):
        facts = topology.graph.nodes[node]
        if facts["rdma"] and implied.knows(node):
            element = nccl_elements.nic_element(number)
            implied.hang(node, element, f"the NUMA node of {facts['name']} is not known")
            document.nics[facts["name"]] = element
    return document


class _Implied:
    """The tree that link classes imply, grown as devices are hung into it."""

    def __init__(self, document: Document, hierarchy: Hierarchy, host: Host) -> None:
        self._document, self._hierarchy, self._host = document, hierarchy, host
        self._made: dict[str, Element] = {}

    def _top(self, node: str) -> tuple[str, str | None]:
        """What stands for the CPU above a device, and the NUMA node if it is one."""
        chain = self._hierarchy.chain(node)
        numa = next((above for above in chain if self._hierarchy.kind[above] == "numa"), None)
        return numa or chain[-1], numa

    def knows(self, node: str) -> bool:
        """Whether a device hangs on something that is known: a NUMA node, or what GPUs hang on too."""
        top, numa = self._top(node)
        return numa is not None or top in self._made

    def hang(self, node: str, element: Element, why: str) -> None:
        """Put the element of a device in its place; `why` its NUMA node is not known, if it is not."""
        top, numa = self._top(node)
        if top not in self._made:
            index = int(numa.removeprefix("numa:")) if numa is not None else None
            self._made[top] = nccl_elements.cpu_element(index, why, self._host)
            self._document.root.children.append(self._made[top])
        parent = self._made[top]
        chain = self._hierarchy.chain(node)[1:]
        for above in reversed([each for each in chain if self._hierarchy.kind[each] == "bridge"]):
            if above not in self._made:
                self._made[above] = nccl_elements.implied_switch(len(self._made))
                parent.children.append(self._made[above])
            parent = self._made[above]
            nccl_elements.infer_switch(parent, element)
        parent.children.append(element)
