"""The network ports that NCCL would use, put into its topology XML.

A dump of NCCL's has them. Otherwise they are the RDMA devices with an active port, by name; NCCL itself takes them in
the order of the verbs library, and joins the ports of one NIC since 2.24.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from topoadvisor.nccl.selection import Selection
from topoadvisor.nccl.system import integer
from topoadvisor.nccl.topo_xml import Element
from topoadvisor.numbers import natural
from topoadvisor.snapshot import Gpu, IbPort, Nic, Snapshot
from topoadvisor.topology import bandwidth
from topoadvisor.topology.nccl_tree import Document


@dataclass(frozen=True)
class Wanted:
    """Which ports a job uses, and what they can do."""

    rdma: bool = True
    """False: a variable forbids RDMA."""
    hca: Selection | None = None
    """NCCL_IB_HCA."""
    gdr: bool | None = None
    """There is a way for GPUDirect RDMA; None = not known."""
    why_gdr: str = "whether there is a way for GPUDirect RDMA was not read"

    def picks(self, name: str, port: int) -> bool:
        return self.rdma and (self.hca is None or self.hca.picks(name, port))


def put(document: Document, snapshot: Snapshot, wanted: Wanted) -> None:
    """Add the ports to a document made from a snapshot, take those that are not wanted out of a dump, and say in
    `document.notes` what is missing.
    """
    refused: dict[int | None, str | None] = {gpu.index: _refuses_gdr(gpu) for gpu in snapshot.gpus}
    for element in document.root.walk():
        if element.tag == "nic":
            element.children = [
                port for port in element.children if port.tag != "net" or not _is_rdma(port) or _picked(port, wanted)
            ]
        if element.tag in ("gpu", "net") and "gdr" not in element.attributes:
            _say_gdr(element, wanted)
            if element.tag == "gpu" and (why := refused.get(integer(element, "dev"))) is not None:
                element.attributes["gdr"] = "0"
                element.missing.pop("gdr", None)
                element.inferred["gdr"] = why
    given = {nic.name: nic for nic in snapshot.nics or ()}
    number = 0
    for name, pci in sorted(document.nics.items(), key=lambda entry: natural(entry[0])):
        nic = Element("nic")
        for port in _ports(given.get(name)):
            if wanted.picks(name, port.port if port is not None else 1):
                nic.children.append(_net(name, number, port, wanted))
                number += 1
        if nic.children:
            pci.children.append(nic)
    if document.nics and wanted.rdma and len(document.nics) < len([nic for nic in given.values() if nic.rdma]):
        document.notes.append("Some RDMA devices are left out: where they hang is not known.")


def _refuses_gdr(gpu: Gpu) -> str | None:
    """Why a board has no GPUDirect RDMA, where its model is known not to."""
    model = bandwidth.model_of(gpu)
    if model is not None and model.geforce:
        return "stock drivers do not offer it on GeForce boards"
    return "GB10 does not offer it" if model is not None and model.family == "GB10" else None


def _is_rdma(port: Element) -> bool:
    # A dump does not say which network it is of; only sockets have the names of interfaces.
    return "guid" in port.attributes and port.attributes["guid"] not in ("0x0", "0")


def _picked(port: Element, wanted: Wanted) -> bool:
    number = port.attributes.get("port", "1")
    return wanted.picks(port.attributes.get("name", ""), int(number) if number.isdecimal() else 1)


def _ports(nic: Nic | None) -> Iterator[IbPort | None]:
    """The ports that may carry traffic; one that is not known where none was read."""
    if nic is None or nic.ports is None:
        yield None
        return
    yield from (port for port in nic.ports if port.state in (None, "ACTIVE"))


def _net(name: str, number: int, port: IbPort | None, wanted: Wanted) -> Element:
    element = Element("net", {"name": name, "dev": str(number), "port": str(port.port if port is not None else 1)})
    rate = port.rate_gbit if port is not None else None
    if rate is None:
        element.missing["speed"] = f"the rate of {name} was not read"
    else:
        element.attributes["speed"] = str(round(rate * 1000))
    _say_gdr(element, wanted)
    return element


def _say_gdr(element: Element, wanted: Wanted) -> None:
    if wanted.gdr is None:
        element.missing["gdr"] = wanted.why_gdr
        return
    element.attributes["gdr"] = str(int(wanted.gdr))
    element.missing.pop("gdr", None)
    element.inferred["gdr"] = wanted.why_gdr
