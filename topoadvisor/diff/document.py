"""The document that `topoadvisor diff --format json` prints."""

from __future__ import annotations

from typing import Any, Final, Literal

from topoadvisor.advice import Change, Struct

SCHEMA: Final = "topoadvisor.diff/1"

KINDS: Final = {
    "gpu-gone": "GPUs",
    "gpu-replaced": "GPUs",
    "gpu-moved": "GPUs",
    "gpu-new": "GPUs",
    "gpu": "GPUs",
    "nvlink": "NVLinks",
    "fabric": "fabric registration",
    "link-class": "link classes",
    "pcie": "PCIe links",
    "p2p": "P2P",
    "nic-gone": "NICs",
    "nic-new": "NICs",
    "nic": "NICs",
    "pci-gone": "PCI tree",
    "pci-new": "PCI tree",
    "pci": "PCI tree",
    "iommu": "IOMMU",
    "numa": "NUMA",
    "cpu": "CPU",
    "driver": "driver",
    "nccl": "NCCL",
    "setting": "settings",
    "service": "services",
    "command-line": "kernel command line",
    "firmware": "firmware",
    "host": "host",
    "measured": "measurements",
}
"""Kind of a change → the group it is shown in."""


class Unread(Struct, frozen=True, kw_only=True):
    """A value that only one of the two captures holds: no change of the machine, but of what is known about it."""

    subject: str
    field: str
    before: Any
    """None: not read then."""
    after: Any
    """None: not read now."""
    message: str


class Group(Struct, frozen=True, kw_only=True):
    """How many subjects, or measurements, of one group could be compared, and how many of them are as before."""

    group: str
    compared: int
    unchanged: int


class Diff(Struct, frozen=True, kw_only=True):
    """Two captures, compared."""

    schema: Literal["topoadvisor.diff/1"] = "topoadvisor.diff/1"
    same: bool
    """Nothing that both captures hold differs, but for what changes by itself."""
    other_machine: str | None
    """One sentence when the two are visibly different machines."""
    changes: list[Change]
    """Worst first."""
    unread: list[Unread]
    groups: list[Group]
    notes: list[str]
