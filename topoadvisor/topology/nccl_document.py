"""What a snapshot says, as the topology XML that NCCL would write down for the same machine.

A dump of NCCL's is taken as it is and completed from the rest of the snapshot. Otherwise the XML is built, by
`nccl_tree`, as NCCL's own detection does. Without a list of PCI functions the tree that link classes imply takes its
place; such a file is good for reckoning, not for NCCL.

Every value that nobody read is either absent with a reason (`Element.missing`) or marked (`Element.inferred`).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Final

from topoadvisor import pci
from topoadvisor.hardware import catalogue
from topoadvisor.nccl import rates, topo_xml, versions
from topoadvisor.nccl.system import integer
from topoadvisor.nccl.topo_xml import Element
from topoadvisor.snapshot import Gpu, Snapshot
from topoadvisor.topology import bandwidth, graph, nccl_elements, nccl_tree
from topoadvisor.topology.model import Topology
from topoadvisor.topology.nccl_tree import Document

_CPU_FACTS: Final = frozenset({"cpu.architecture", "cpu.vendor", "cpu.family", "cpu.model"})
_LINK_FACTS: Final = frozenset({"pcie.max_gen", "pcie.max_width"})
_ASKS_NVML_SINCE: Final = "2.30.7"
"""First release that takes the PCIe link of a GPU from NVML, as it is now; before, from sysfs, as it can be."""


def describe(snapshot: Snapshot, version: str | None, topology: Topology | None = None) -> Document:
    """The topology XML of a snapshot, GPUs with a `rank` each. `<cpu>` elements of several hosts stay apart.

    `version` is NCCL's, None = the newest: what it reads differs. `topology` is the snapshot's, where it has been built
    already. Raises InputError when a dump inside the snapshot is broken.
    """
    raw = next((raw for raw in snapshot.raw if raw.source == topo_xml.SOURCE), None)
    if raw is not None:
        document = _from_dump(raw.text, snapshot)
    elif {gpu.address for gpu in snapshot.gpus} & {device.address for device in snapshot.pci or ()}:
        asks_nvml = versions.at_least(version or rates.NEWEST, _ASKS_NVML_SINCE)
        document = nccl_tree.from_functions(snapshot, topology or graph.build(snapshot), asks_nvml)
    else:
        document = nccl_tree.from_classes(snapshot, topology or graph.build(snapshot))
    _rank(document)
    return document


def _rank(document: Document) -> None:
    """One rank for each GPU; in a dump only those with a rank were in the job."""
    gpus = [element for element in document.root.walk() if element.tag == "gpu"]
    if any("rank" in gpu.attributes for gpu in gpus):
        left_out = [gpu.attributes.get("dev", "?") for gpu in gpus if "rank" not in gpu.attributes]
        if left_out:
            document.notes.append(f"GPUs without a rank took no part in that job: {', '.join(left_out[:16])}.")
        return
    for rank, gpu in enumerate(sorted(gpus, key=lambda gpu: integer(gpu, "dev") or 0)):
        gpu.attributes["rank"] = str(rank)


def _from_dump(text: str, snapshot: Snapshot) -> Document:
    root = deepcopy(topo_xml.parse(text, file="the NCCL topology in this snapshot"))
    assumed = {assumption.fact for assumption in snapshot.assumptions}
    gpus = {gpu.address: gpu for gpu in snapshot.gpus if gpu.address is not None}
    if len({cpu.attributes.get("host_hash") for cpu in root.each("cpu")}) > 1:
        gpus = {}  # the snapshot holds the GPUs of the first host, and the others have the same addresses
    shows_nvlinks = any(element.tag == "nvlink" for element in root.walk())
    for cpu in root.each("cpu"):
        if not assumed.isdisjoint(_CPU_FACTS) or "arch" not in cpu.attributes:
            nccl_elements.put_cpu(cpu, snapshot.host.cpu)
        for element in cpu.walk():
            if element.tag == "pci":
                gpu = gpus.get(_normalized(element.attributes.get("busid", "")))
                _complete(element, gpu, assumed, shows_nvlinks=shows_nvlinks)
    return Document(root, addressed=True)


def _normalized(text: str) -> str:
    try:
        return pci.normalize(text)
    except ValueError:
        return ""


def _complete(element: Element, gpu: Gpu | None, assumed: set[str], *, shows_nvlinks: bool) -> None:
    """Say what a `<pci>` leaves out, and put in what the snapshot knows of its GPU, assumed facts before all."""
    nccl_elements.miss_link(element, "the file leaves its PCIe link to NCCL")
    if gpu is None:
        return
    if not any(element.each("gpu")):
        element.children.append(nccl_elements.bare_gpu(gpu))
    changed = {fact.rpartition("].")[2].removeprefix("gpu.") for fact in assumed if fact.startswith("gpu")}
    if not changed.isdisjoint(_LINK_FACTS):
        element.attributes.update(nccl_elements.link_of(gpu))
        element.missing = {name: why for name, why in element.missing.items() if name not in element.attributes}
    for child in element.each("gpu"):
        # A file that shows NVLinks of some GPU shows them of all.
        if not any(child.each("nvlink")) and not shows_nvlinks and _leaves_nvlinks(child, element, gpu):
            child.missing["nvlink"] = "the file leaves the NVLinks to NCCL"
        if "sm" not in child.attributes or "compute_capability" in changed:
            nccl_elements.put_capability(child, gpu)


def _leaves_nvlinks(element: Element, above: Element, gpu: Gpu) -> bool:
    """Whether a GPU without NVLinks in the file may have some: a dump shows all, but somebody may have written this.

    A dump states `sm` and the device. A board that always has NVLinks and shows none was not looked at.
    """
    if "sm" not in element.attributes:
        return True
    model = bandwidth.model_of(gpu)
    if model is not None:
        return bool(model.nvswitch)
    known = gpu.compute_capability
    return "device" not in above.attributes and known is not None and catalogue.sold_on_nvswitch_boards(known)
