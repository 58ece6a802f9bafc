"""The six tables beside this module (`*.yaml`), typed. Their heads say what each column means.

Each is read on first use and kept. An unknown key or a wrong type raises msgspec.ValidationError.
"""

from __future__ import annotations

import datetime
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from topoadvisor import compiled

Form = Literal["sxm", "pcie", "soc", "mobile"]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all rows."""


class SourceRow(Row, frozen=True, kw_only=True):
    """Where values are from."""

    what: str
    url: str | None = None
    """None: no public address is known."""
    read: datetime.date | None = None
    """When it was read there for this table; None = stated from the named document and not read again since."""
    gives: tuple[str, ...] = ()
    """The columns that it can speak for."""


class PeerCopy(Row, frozen=True, kw_only=True):
    """Measured peer copies across sockets: share of the raw PCIe rate, and both directions / one direction."""

    uni: float
    bi_over_uni: float


class NvlinkKind(Row, frozen=True, kw_only=True):
    """One NVLink rate; see `links.yaml`."""

    kind: str
    generations: tuple[str, ...]
    compute_capabilities: tuple[str, ...]
    gbps: float
    raw_mbps: tuple[int, ...]
    sources: tuple[str, ...]
    measured: tuple[str, ...] = ()
    nccl_gbps: float | None = None
    efficiency: float | None = None
    efficiency_by_count: dict[int, float] = {}
    bi_over_uni: float | None = None
    bi_over_uni_by_count: dict[int, float] = {}


class Chip(Row, frozen=True, kw_only=True):
    architecture: str
    compute_capability: str
    sources: tuple[str, ...]
    nvlink_generation: str | None = None
    pcie_gen: int | None = None


class Family(Row, frozen=True, kw_only=True):
    family: str
    chip: str
    names: tuple[str, ...]
    sources: tuple[str, ...]
    ids: tuple[str, ...] = ()
    form: Form | None = None
    geforce: bool = False
    max_nvlinks: int | None = None
    pcie_width: int | None = None
    p2p_over_pcie: bool | None = None
    nvswitch: bool | None = None


class GpuTable(Row, frozen=True, kw_only=True):
    sources: dict[str, SourceRow]
    chips: dict[str, Chip]
    families: tuple[Family, ...]


class CopyShare(Row, frozen=True, kw_only=True):
    within: float | None = None
    bi_within: float | None = None
    across: float | None = None


class PcieRow(Row, frozen=True, kw_only=True):
    gts: float
    raw_lane_gbps: float
    payload_lane_gbps: float
    sources: tuple[str, ...]
    measured: tuple[str, ...] = ()
    copy: CopyShare = CopyShare()
    host: float | None = None
    staged: tuple[float, float] | None = None


class LinkTable(Row, frozen=True, kw_only=True):
    sources: dict[str, SourceRow]
    nvlink: tuple[NvlinkKind, ...]
    pcie: dict[int, PcieRow]
    judge: dict[str, float]


class NcclRule(Row, frozen=True, kw_only=True):
    vendor: str
    gbps: float
    family: int | None = None
    model_from: int | None = None
    p2p_overhead: float = 1.0

    def fits(self, vendor: str, family: int | None, model: int | None) -> bool:
        return (
            vendor == self.vendor
            and self.family in (None, family)
            and (self.model_from is None or (model is not None and model >= self.model_from))
        )


class Part(Row, frozen=True, kw_only=True):
    name: str
    vendor: str
    models: tuple[int, ...]
    sources: tuple[str, ...]
    family: int | None = None
    inter_socket_gbps: float | None = None
    pcie_gen: int | None = None
    peer_copy_across: PeerCopy | None = None
    names: tuple[str, ...] = ()

    def fits(self, vendor: str, family: int | None, model: int | None) -> bool:
        return vendor == self.vendor and self.family in (None, family) and (not self.models or model in self.models)


class Through(Row, frozen=True, kw_only=True):
    share: float
    sources: tuple[str, ...]


class CpuTable(Row, frozen=True, kw_only=True):
    sources: dict[str, SourceRow]
    peer_copy_through: dict[str, Through]
    nccl: tuple[NcclRule, ...]
    cpus: tuple[Part, ...]


class System(Row, frozen=True, kw_only=True):
    """One machine that many have; see `systems.yaml`."""

    name: str
    what: str
    gpu: str
    gpus: int
    pairs: dict[str, int]
    sources: tuple[str, ...]
    nvswitches: int | None = None
    numa_nodes: int | None = None
    names: tuple[str, ...] = ()


class SystemTable(Row, frozen=True, kw_only=True):
    sources: dict[str, SourceRow]
    systems: tuple[System, ...]


class ResultSource(Row, frozen=True, kw_only=True):
    """Who published peer copies; see `results.yaml`."""

    what: str
    method: str
    taken: datetime.date
    """When the figures were taken down."""
    url: str | None = None


class Result(Row, frozen=True, kw_only=True):
    """Peer copies of one pair, or of a range of pairs."""

    id: str
    gpu: str
    link: str
    uni: tuple[float, ...]
    source: str
    gen: int | None = None
    width: int = 16
    cpu: tuple[str, int, int] | None = None
    peer_access: bool = True
    bi: float | None = None
    staged: float | None = None
    latency_us: float | None = None
    note: str | None = None


class ResultTable(Row, frozen=True, kw_only=True):
    sources: dict[str, ResultSource]
    results: tuple[Result, ...]


class Stale(Row, frozen=True, kw_only=True):
    """What a vendor says of a variable that older recipes set."""

    what: str
    source: str


class Profile(Row, frozen=True, kw_only=True):
    """What a vendor publishes for one machine; see `profiles.yaml`."""

    name: str
    what: str
    cloud: str
    machines: str
    by: Literal["plugin", "file", "script", "example", "nobody"]
    where: str
    sources: tuple[str, ...]
    link_layer: str | None = None
    values: dict[str, tuple[str, ...]] = {}
    local: dict[str, str] = {}
    optional: dict[str, tuple[str, ...]] = {}
    stale: dict[str, str] = {}


class ProfileTable(Row, frozen=True, kw_only=True):
    sources: dict[str, SourceRow]
    stale: dict[str, dict[str, Stale]]
    profiles: tuple[Profile, ...]


_Table = TypeVar("_Table")


def _read(file: str, kind: type[_Table]) -> _Table:
    return compiled.read(Path(__file__).with_name(file), kind)


@cache
def gpus() -> GpuTable:
    """Chips and families of boards."""
    return _read("gpus.yaml", GpuTable)


@cache
def links() -> LinkTable:
    """NVLink and PCIe rates, and what peer copies reach."""
    return _read("links.yaml", LinkTable)


@cache
def systems() -> SystemTable:
    """Machines whose topology is known."""
    return _read("systems.yaml", SystemTable)


@cache
def cpus() -> CpuTable:
    """What joins the sockets of a host."""
    return _read("cpus.yaml", CpuTable)


@cache
def results() -> ResultTable:
    """Peer copies that were published or measured, good and bad."""
    return _read("results.yaml", ResultTable)


@cache
def profiles() -> ProfileTable:
    """What vendors publish for NCCL on their machines."""
    return _read("profiles.yaml", ProfileTable)
