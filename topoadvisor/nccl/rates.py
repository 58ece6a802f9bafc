"""NCCL's constants: what its model of the machine counts for each kind of link, by version. GB/s per direction.

These are no measurements; NCCL plans with them. Source: `src/graph/topo.h` and `src/graph/topo.cc` of the releases
2.18.1 to 2.30.7, compared tag by tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from topoadvisor.nccl import versions

OLDEST: Final = "2.18.1"
NEWEST: Final = "2.30.7"
"""The releases between which these constants and rules were compared."""

LOCAL_GBPS: Final = 5000.0
"""Inside one device, and everywhere that NCCL sees no limit (`LOC_BW`)."""
DEFAULT_WIDTH: Final = 16
"""Lanes that NCCL takes for a PCIe link of width 0, which is what guests and root buses show."""
INTEL_P2P_OVERHEAD: Final = 1.2
"""GPU-to-GPU traffic through an Intel CPU takes this much more of a PCIe link while rings are searched, because the CPU
splits it into 64-byte packets (`INTEL_P2P_OVERHEAD`). The bandwidth of a path leaves it out."""

_PCIE: Final = (
    ("2.5 GT/s", 15),
    ("5 GT/s", 30),
    ("8 GT/s", 60),
    ("16 GT/s", 120),
    ("32 GT/s", 240),
    ("5.0 GT/s PCIe", 30),
    ("8.0 GT/s PCIe", 60),
    ("16.0 GT/s PCIe", 120),
    ("32.0 GT/s PCIe", 240),
    ("64.0 GT/s PCIe", 480),
)
"""100 Mbit/s a lane; a text counts by how it begins (`kvDictPciGen`)."""
_PCIE_OTHERWISE: Final = 60


@dataclass(frozen=True)
class Rules:
    """What differs between releases."""

    nvlink: tuple[tuple[int, float], ...]
    """(lowest compute capability × 10, GB/s of one NVLink), newest first."""
    intel: tuple[tuple[int, float], ...]
    """(lowest model of family 6, GB/s between NUMA nodes), newest first."""
    amd_gbps: float
    c2c_is_nvlink: bool
    """A chip-to-chip link to the CPU is an NVLink."""
    merges_c2c: bool
    """C2C and PHB together are P2C."""
    flattens_gen5: bool
    """Broadcom's gen5 switches are flattened, not only those of gen4."""
    device_nodes: bool
    """A device stands between a GPU and its links, so that several ranks may share it."""
    type_first: bool
    """Of two ways the one of the nearer type counts; before, the one with fewer hops."""
    ampere_reads: bool
    """GPUs since Ampere send with GPUDirect RDMA without NVLink too."""
    diverts_far: bool
    """A path to a port that leads through the CPU anyhow is led through the CPU next to the GPU."""
    c2c_level: bool
    """P2C is NCCL's own level for GPUDirect RDMA; before, PXB, and P2C paths pass as C2C."""
    pxn_keeps_near: bool
    """PXN does not replace a path that is P2C or nearer."""
    pxn_needs_gdr: bool
    spreads_ports: bool
    """A GPU starts with a port by its place among the GPUs that share them; before, by its number."""


def rules(version: str | None) -> Rules:
    """The rules of a release, None = the newest. One newer than `NEWEST` counts as that.

    Raises ValueError for a text that is no version, or a release older than `OLDEST`.
    """
    release = NEWEST if version is None else version

    def since(first: str) -> bool:
        return versions.at_least(release, first)

    if not since(OLDEST):
        raise ValueError(f"NCCL before {OLDEST} counts differently")
    newer_intel = ((0xCF, 40.0), (0x8F, 22.0)) if since("2.26.2") else ()
    blackwell = (100, 40.1 if since("2.27.5") else 40.0)
    return Rules(
        nvlink=(
            *((blackwell,) if since("2.25.1") else ()),
            (90, 20.6 if since("2.20.3") else 20.0),
            (87, 20.0),
            (86, 12.0),
            (70, 20.0),
            (60, 18.0),
            (0, 20.0),
        ),
        intel=(*newer_intel, (0x55, 10.0), (0, 6.0)),
        amd_gbps=16.0 if since("2.19.1") else LOCAL_GBPS,
        c2c_is_nvlink=not since("2.26.2"),
        merges_c2c=since("2.27.5"),
        flattens_gen5=since("2.20.3"),
        device_nodes=since("2.30.3"),
        type_first=since("2.30.7"),
        ampere_reads=since("2.19.1"),
        diverts_far=not since("2.21.5"),
        c2c_level=since("2.29.2"),
        pxn_keeps_near=since("2.27.7"),
        pxn_needs_gdr=since("2.30.3"),
        spreads_ports=since("2.30.7"),
    )


def nvlink_gbps(rules: Rules, capability: int) -> float:
    """One NVLink of a GPU whose compute capability × 10 is `capability`, 90 for example."""
    return next((gbps for lowest, gbps in rules.nvlink if capability >= lowest), rules.nvlink[-1][1])


def pcie_gbps(speed: str, width: int) -> float:
    """A PCIe link by the text of its rate, `16.0 GT/s PCIe`, and its lanes. An unknown rate counts as 8 GT/s."""
    lane = next((rate for text, rate in _PCIE if speed.startswith(text)), _PCIE_OTHERWISE)
    return (width or DEFAULT_WIDTH) * lane / 80


def between_cpus(rules: Rules, arch: str, vendor: str, family: int | None, model: int | None) -> float | None:
    """From one NUMA node to another, by what the XML says of the first; None when the model counts and is not known.

    `arch` and `vendor` are spelt as in the XML: `x86_64`, `GenuineIntel`. What NCCL does not know has no limit.
    """
    if arch.startswith("ppc64"):
        return 32.0
    if arch.startswith("arm64"):
        return 6.0
    if not arch.startswith("x86_64"):
        return LOCAL_GBPS
    if vendor.startswith("GenuineIntel"):
        if family is not None and family != 6:
            return rules.intel[-1][1]
        if family is None or model is None:
            return None
        return next((gbps for lowest, gbps in rules.intel if model >= lowest), rules.intel[-1][1])
    if vendor.startswith("AuthenticAMD"):
        return rules.amd_gbps
    if vendor.startswith(("CentaurHauls", "  Shanghai  ")):
        if family is None or model is None:
            return None
        return 9.0 if (family, model) == (7, 0x5B) else 6.0
    return LOCAL_GBPS
