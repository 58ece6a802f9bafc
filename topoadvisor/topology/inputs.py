"""What of a snapshot the topology is built from: devices by node id, their models, and which sources there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from topoadvisor.hardware.catalogue import GpuModel
from topoadvisor.snapshot import LOG, Gpu, Nic, Snapshot
from topoadvisor.topology import bandwidth, matrix
from topoadvisor.topology.links import PCIE_ORDER, LinkClass

DUMP = "nccl-topology-xml"
HWLOC = "hwloc-xml"
TEXTS = ("matrix", "text")

_ANCESTORS = {"X": LinkClass.PIX} | {str(link_class): link_class for link_class in PCIE_ORDER}
"""NVML's levels; one board with two GPUs has a switch between them."""


@dataclass(frozen=True)
class Inputs:
    """Devices by node id, GPUs in index order, and what was said about them."""

    snapshot: Snapshot
    gpus: Mapping[str, Gpu]
    nics: Mapping[str, Nic]
    models: Mapping[str, GpuModel | None]
    printed: matrix.Printed
    ancestors: Mapping[tuple[str, str], LinkClass]
    """GPU pair → NVML's nearest common ancestor."""
    has_tree: bool
    """There is a tree of PCI functions, and GPUs are in it."""
    dump: bool
    """That list, and the NVLinks, are NCCL's: from its dump, or from the tree in its log."""
    notes: tuple[str, ...]

    @property
    def tree_origin(self) -> str:
        if self.snapshot.origin in TEXTS:
            return "lspci"
        return self.snapshot.origin if self.snapshot.origin in (DUMP, HWLOC, LOG) else "sysfs"

    @property
    def link_origin(self) -> str:
        said = [self.snapshot.origins.get(f"{node}.nvlinks") for node in self.gpus]
        if listing := next((name for name in said if name is not None), None):
            return "nvidia-smi nvlink" if listing.startswith("nvidia-smi nvlink") else listing
        if self.snapshot.origin in TEXTS:
            return "nvidia-smi nvlink"
        if self.snapshot.origin == LOG:
            return "inferred: from the bandwidth of the links in NCCL's log"
        return self.snapshot.origin if self.snapshot.origin in (DUMP, HWLOC) else "nvml"

    def pairs(self) -> list[tuple[str, str]]:
        """GPU pairs in index order, then each GPU with each NIC."""
        return [*combinations(self.gpus, 2), *((gpu, nic) for gpu in self.gpus for nic in self.nics)]


def read(snapshot: Snapshot) -> Inputs:
    """Sort out the devices of a snapshot, NICs included that only a printed matrix shows.

    GPUs are taken from a printed matrix where none was read otherwise.
    """
    notes: list[str] = []
    nics = _nics(snapshot.nics or ())
    names = {nic.name: node for node, nic in reversed(nics.items())}
    printed = matrix.read(snapshot.matrices, names, {gpu.index for gpu in snapshot.gpus})
    gpus = _gpus(snapshot.gpus, printed.devices, notes)
    dump = snapshot.origin in (DUMP, LOG)
    # A plain list of functions does not say what is above them; NCCL's says it by leaving it out.
    placed = (device for device in snapshot.pci or () if dump or device.parent is not None or device.root is not None)
    listed = {device.address for device in placed}
    has_tree = any(gpu.address in listed for gpu in gpus.values())
    if not has_tree:
        nics = nics | {node: Nic(name=name, rdma=True) for node, name in printed.nic_names.items() if node not in nics}
    elif missing := [name for node, name in printed.nic_names.items() if node not in nics]:
        notes.append(f"The printed matrix shows {', '.join(missing)}, which were not read as NICs.")
    ancestors = {
        (f"gpu:{p2p.a}", f"gpu:{p2p.b}"): _ANCESTORS[p2p.common_ancestor]
        for p2p in snapshot.p2p or ()
        if p2p.a < p2p.b and p2p.common_ancestor in _ANCESTORS
    }
    models = {node: bandwidth.model_of(gpu) for node, gpu in gpus.items()}
    return Inputs(snapshot, gpus, nics, models, printed, ancestors, has_tree, dump, tuple(notes))


def _gpus(read: Iterable[Gpu], printed: Iterable[str], notes: list[str]) -> dict[str, Gpu]:
    gpus: dict[int, Gpu] = {}
    for gpu in read:
        if gpu.index in gpus:
            notes.append(f"Two GPUs have the index {gpu.index}: this is more than one machine, the first is taken.")
        gpus.setdefault(gpu.index, gpu)
    for node in printed:
        if node.startswith("gpu:"):
            index = int(node.removeprefix("gpu:"))
            gpus.setdefault(index, Gpu(index=index))
    return {f"gpu:{index}": gpus[index] for index in sorted(gpus)}


def _nics(read: Iterable[Nic]) -> dict[str, Nic]:
    """NICs that are hardware; a name that comes again gets a number."""
    nics: dict[str, Nic] = {}
    for nic in read:
        if nic.address is None and not nic.rdma:
            continue
        node, again = f"nic:{nic.name}", 1
        while node in nics:
            node, again = f"nic:{nic.name}#{again}", again + 1
        nics[node] = nic
    return nics
