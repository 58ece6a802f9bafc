"""The topology file that NCCL reads with NCCL_TOPO_FILE, from a snapshot.

What stands in the file wins over what NCCL finds, and what is missing NCCL adds when it loads the file. So only what
was read is written: nothing inferred, and nothing that belongs to one job or one boot (`keep`, `host_hash`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from topoadvisor import __version__, pci
from topoadvisor.errors import NothingDetermined, TopoAdvisorError
from topoadvisor.nccl import topo_xml, versions
from topoadvisor.nccl.topo_xml import Element
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import nccl_document

_OF_ONE_RUN: Final = ("keep", "host_hash")
_REQUIRED: Final = {"cpu": ("numaid",), "pci": ("busid",), "gpu": ("dev",), "nvlink": ("target", "count")}
"""NCCL stops with an error without these, and does not find them by itself."""
_READ_IT: Final = (
    "`topoadvisor capture -o node.json` on the machine reads it; {} of it beside this source may tell it, too."
)
_ROOM: Final = 64
"""Elements left for what NCCL adds itself: network ports, NVLinks, GPUs."""
_NAMES: Final = {
    "arch": "the kind of the CPU",
    "class": "the PCI class",
    "gdr": "GPUDirect RDMA support",
    "link_speed": "the PCIe rate",
    "link_width": "the PCIe width",
    "nvlink": "the NVLinks",
    "sm": "the compute capability",
    "subsystem_device": "the subsystem ids",
}


def render(snapshot: Snapshot) -> tuple[str, list[str]]:
    """The file, and what its reader must know, one sentence each.

    Raises TopoAdvisorError where a file would do harm: no PCI addresses, no NUMA node, more than NCCL has room for.
    """
    found = next((each.version for each in snapshot.nccl_libraries or () if each.version), None)
    version = found if found is not None and versions.is_version(found) else None
    document = nccl_document.describe(snapshot, version)
    root = document.root
    if not document.addressed:
        lacking = "no GPU" if not snapshot.gpus else "neither PCI addresses nor bridges"
        if any(gpu.address for gpu in snapshot.gpus):
            lacking = "not the bridges above the GPUs"
        raise (TopoAdvisorError if snapshot.gpus else NothingDetermined)(
            f"a topology file says at which PCI addresses and below which bridges devices are; this shows {lacking}",
            hint=_READ_IT.format("`lspci -tv` with `lspci -vv` and `nvidia-smi -q`"),
        )
    remarks = [*document.notes, *_keep_one_host(root)]
    if not any(element.tag == "pci" for element in root.walk()):
        raise TopoAdvisorError(
            "there is no PCI device here to write down", hint="`topoadvisor scan` says what was asked."
        )
    remarks += [f"Left to NCCL, because it was not read: {what}." for what in _missing(root)]
    if not any(element.tag == "net" for element in root.walk()):
        remarks.append("Left to NCCL: which ports of which NICs it uses.")
    written = _written(root, remarks)
    _check(written, topo_xml.most_children(version))
    comment = [f"Topology of one machine, written by topoadvisor {__version__} for NCCL_TOPO_FILE"]
    return topo_xml.write(written, comment), remarks


def _keep_one_host(root: Element) -> list[str]:
    """NCCL takes every CPU of the file for one of its own machine."""
    hosts = list(dict.fromkeys(cpu.attributes.get("host_hash") for cpu in root.each("cpu")))
    if len(hosts) <= 1:
        return []
    root.children = [child for child in root.children if child.attributes.get("host_hash") == hosts[0]]
    return [f"The source describes {len(hosts)} hosts; only the first is written, a file is for one machine."]


def _missing(root: Element) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for element in root.walk():
        gone = dict.fromkeys([*element.missing, *(name for name in element.inferred if name != "pci")])
        for name in gone:
            counts[name] += name not in _REQUIRED.get(element.tag, ())
    for name, count in counts.items():
        if name in _NAMES and count:
            yield f"{_NAMES[name]} of {count} {'device' if count == 1 else 'devices'}"


def _written(element: Element, remarks: list[str]) -> Element:
    """A copy with what NCCL reads and with what was read, addresses spelt as NCCL compares them.

    NVLinks of a GPU are written all or not at all: NCCL looks for them only where the file has none
    (`ncclTopoGetXmlFromGpu` in `src/graph/xml.cc`).
    """
    attributes = {
        name: value
        for name, value in topo_xml.known(element).items()
        if name not in _OF_ONE_RUN and name not in element.inferred
    }
    for name in ("busid", "target"):
        if name in attributes:
            attributes[name] = _spelt(attributes[name])
    lost = [name for name, value in attributes.items() if not topo_xml.writable(value)]
    remarks.extend(f"<{element.tag}> loses its {name}: NCCL would misread {attributes[name][:60]!r}." for name in lost)
    attributes = {name: value for name, value in attributes.items() if name not in lost}
    children = [
        _written(child, remarks)
        for child in element.children
        if topo_xml.is_known(child.tag) and child.tag not in {*element.inferred, *element.missing}
    ]
    kept = [child for child in children if child.tag != "net" or "name" in child.attributes]
    return Element(element.tag, attributes, children=kept)


def _spelt(address: str) -> str:
    """NCCL looks addresses up as texts, in lower case with four digits of domain."""
    try:
        return address.lower() if pci.is_placeholder(address) else pci.normalize(address)
    except ValueError:
        return address.lower()


def _check(root: Element, most_children: int) -> None:
    """Raises TopoAdvisorError when NCCL would refuse the file and fail to start."""
    elements = list(root.walk())
    for element in elements:
        for name in _REQUIRED.get(element.tag, ()):
            if name not in element.attributes:
                if name == "numaid":
                    raise TopoAdvisorError(
                        "which NUMA node devices are near was not read, and NCCL stops at a topology file without it",
                        hint=_READ_IT.format("`nvidia-smi topo -m` or `lspci -vv`"),
                    )
                raise TopoAdvisorError(
                    f"a <{element.tag}> would have no {name}, and NCCL stops at such a file",
                    hint="Without a file NCCL finds the topology by itself.",
                )
        if len(element.children) > most_children:
            raise TopoAdvisorError(
                f"a <{element.tag}> has {len(element.children)} elements inside; NCCL reads {most_children}",
                hint="Without a file NCCL finds the topology by itself.",
            )
    if len(elements) > topo_xml.MOST_NODES - _ROOM:
        raise TopoAdvisorError(
            f"this takes {len(elements)} elements, and NCCL has room for {topo_xml.MOST_NODES} with those it adds",
            hint="Without a file NCCL finds the topology by itself.",
        )
