"""How two devices are joined: `nvidia-smi`'s words, NCCL's words, and the one function between them."""

from __future__ import annotations

import re
from enum import StrEnum

from topoadvisor.nccl.levels import NcclPath


class LinkClass(StrEnum):
    """A PCIe or chip-to-chip link class in `nvidia-smi` words. NVLink classes are texts such as `NV12`."""

    SELF = "X"
    C2C = "C2C"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"


PCIE_ORDER = (LinkClass.PIX, LinkClass.PXB, LinkClass.PHB, LinkClass.NODE, LinkClass.SYS)
"""PCIe link classes, nearest first."""

_NVLINK = re.compile(r"NV([0-9]{1,4})")


def nvlink_count(link_class: str) -> int:
    """The number of bonded NVLinks in a class such as `NV12`; 0 for every other class."""
    match = _NVLINK.fullmatch(link_class)
    return int(match.group(1)) if match else 0


def to_nccl(link_class: str) -> NcclPath:
    """The NCCL path type of an `nvidia-smi` class.

    NCCL has no NODE: two host bridges of one NUMA node are PHB for it, like one host bridge is.
    `SOC` is what drivers before 2017 printed for what is now NODE or SYS.

    Raises ValueError for a text that is no link class.
    """
    if _NVLINK.fullmatch(link_class):
        return NcclPath.NVL
    match link_class:
        case "X":
            return NcclPath.LOC
        case "C2C" | "PIX" | "PXB" | "PHB" | "SYS":
            return NcclPath[link_class]
        case "NODE":
            return NcclPath.PHB
        case "SOC":
            return NcclPath.SYS
    raise ValueError(f"not a link class: {link_class!r}")
