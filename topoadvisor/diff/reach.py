"""How far a capture can see: what is missing from one is gone only where it would have been listed."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from topoadvisor.snapshot import LOG, Gpu, Nic, PciDevice, Snapshot

_Placed = TypeVar("_Placed", Gpu, Nic, PciDevice)

_JOB: Final = frozenset({LOG, "nccl-topology-xml"})
_PASTES: Final = frozenset({"matrix", "text"})
_LISTS_FUNCTIONS: Final = frozenset({"live", "text"})
_NUMBERS_LINKS: Final = frozenset({"live", *_PASTES})


def is_job(snapshot: Snapshot) -> bool:
    """It is what NCCL saw in one job: the GPUs that took part, the NICs it would use, switches folded into bridges."""
    return snapshot.origin in _JOB


def lists_functions(snapshot: Snapshot) -> bool:
    """Its list of PCI functions is the kernel's; others leave out what they do not need."""
    return snapshot.origin in _LISTS_FUNCTIONS


def numbers_links(snapshot: Snapshot) -> bool:
    """Its NVLinks have the driver's numbers; elsewhere they are only counted."""
    return snapshot.origin in _NUMBERS_LINKS


def why_unlisted(snapshot: Snapshot) -> str | None:
    """Why a GPU that is missing from this capture may be there all the same; None when it is not there."""
    if is_job(snapshot):
        return "NCCL shows only the GPUs of its job"
    if snapshot.origin in _PASTES and not _shows_all(snapshot):
        return "the text does not show every GPU"
    if snapshot.gpus or snapshot.pci is not None:
        return None
    nvml = snapshot.source("nvml")
    if nvml is not None and nvml.status == "ok":
        return None
    return (nvml and nvml.reason) or "NVML was not read"


def _shows_all(snapshot: Snapshot) -> bool:
    """The numbers of its GPUs have no gap, and no row of its matrix was cut off."""
    rows = all(gpu in matrix.cells for matrix in snapshot.matrices for gpu in matrix.gpus)
    return rows and {gpu.index for gpu in snapshot.gpus} == set(range(len(snapshot.gpus)))


def comparable(before: Snapshot, after: Snapshot) -> tuple[Snapshot, Snapshot]:
    """The captures; of two kinds, without NUMA nodes of −1: that the kernel does not know says nothing of the other."""
    return (before, after) if before.origin == after.origin else (_placed(before), _placed(after))


def _placed(snapshot: Snapshot) -> Snapshot:
    return msgspec.structs.replace(
        snapshot,
        gpus=[_known(gpu) for gpu in snapshot.gpus],
        nics=snapshot.nics and [_known(nic) for nic in snapshot.nics],
        pci=snapshot.pci and [_known(device) for device in snapshot.pci],
    )


def _known(device: _Placed) -> _Placed:
    return msgspec.structs.replace(device, numa_node=None) if device.numa_node == -1 else device
