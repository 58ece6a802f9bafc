"""The catalogue as a list of entries, each value with the sources that speak for it."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from topoadvisor.errors import TopoAdvisorError
from topoadvisor.hardware import catalogue, tables
from topoadvisor.hardware.tables import Chip, Family, NcclRule, NvlinkKind, Part, PcieRow, SourceRow, System

SCHEMA: Final = "topoadvisor.hardware/1"
Kind = Literal["gpu", "cpu", "nvlink", "pcie", "system"]


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """One source of one value."""

    what: str
    url: str | None
    read: datetime.date | None
    """When it was read there for the catalogue; None = stated from it and not read again since."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Any
    sources: list[Citation]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU family, CPU, link or machine."""

    kind: Kind
    name: str
    summary: str
    values: list[Value]
    unknown: list[str]
    """Names of what the catalogue would hold and nobody published."""


class _Values:
    """Gathers values, each cited by those of a row's sources that give its column, and the names of those that lack."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.unknown: list[str] = []

    def entry(self, kind: Kind, name: str, summary: str) -> Entry:
        return Entry(kind=kind, name=name, summary=summary, values=self.values, unknown=self.unknown)

    def add(self, row: Any, legend: Mapping[str, SourceRow], columns: Mapping[str, str], **renamed: Any) -> None:
        """Take the columns (name in the table → name shown) of a row that are set; `renamed` gives other values."""
        keys = (*row.sources, *getattr(row, "measured", ()))
        for column, name in columns.items():
            value = renamed.get(column, getattr(row, column, None))
            if value is None:
                self.unknown.append(name)
            if value is None or value == () or value == {}:
                continue
            self.put(name, value, (legend[key] for key in keys if column in legend[key].gives))

    def put(self, name: str, value: Any, sources: Iterable[SourceRow]) -> None:
        known = sorted(sources, key=lambda each: each.read is None)
        cited = [Citation(what=each.what, url=each.url, read=each.read) for each in known]
        self.values.append(Value(name=name, value=msgspec.to_builtins(value), sources=cited))


def entries() -> list[Entry]:
    """Everything in the catalogue, by kind, in the order of the tables."""
    return [
        *(_gpu(family) for family in tables.gpus().families),
        *(_cpu(part) for part in tables.cpus().cpus),
        *_rules(),
        *(_nvlink(kind) for kind in tables.links().nvlink),
        *(_pcie(gen, row) for gen, row in tables.links().pcie.items()),
        *(_system(system) for system in tables.systems().systems),
    ]


def find(name: str) -> Entry:
    """The entry of that name, or of the machine, GPU or CPU that goes by it.

    Raises TopoAdvisorError with what comes near.
    """
    if not name.strip():
        raise TopoAdvisorError("the name is empty", hint=_LISTED)
    known = {entry.name: entry for entry in entries()}
    found = _named(name, known)
    if found is not None:
        return known[found]
    near = _near(name.strip().lower(), known)
    hint = f"Did you mean {' or '.join(filter(None, (', '.join(near[:-1]), *near[-1:])))}? " if near else ""
    shown = name if name.isprintable() else repr(name)
    raise TopoAdvisorError(f"the catalogue holds nothing called {shown[:80]}", hint=hint + _LISTED)


_LISTED: Final = "`topoadvisor hardware list` names all."
_MOST_NEAR: Final = 8
_MACHINE: Final = re.compile(r"\b[dh]gx")
"""A machine, and no name of the GPUs in it."""


def _bare(name: str) -> str:
    """Letters and digits alone: `DGX H100`, `dgx-h100` and `DGXH100` are one name."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _named(name: str, known: Mapping[str, Entry]) -> str | None:
    wanted = _bare(name)
    for entry in known:
        if _bare(entry) == wanted != "":
            return entry
    for system in tables.systems().systems:
        if wanted in map(_bare, system.names):
            return system.name
    if not _MACHINE.search(name.lower()) and (model := catalogue.gpu_model(name)) is not None:
        return model.family
    sold = " ".join(re.sub(r"\((?:r|tm)\)|\bcpu\b", " ", name.lower()).split())
    return next((part.name for part in tables.cpus().cpus if any(re.search(each, sold) for each in part.names)), None)


def _near(wanted: str, known: Mapping[str, Entry]) -> list[str]:
    """Entries in which all words come, those of their other names too; else names that are spelt alike."""
    other: dict[str, tuple[str, ...]] = {part.name: part.names for part in tables.cpus().cpus}
    other |= {system.name: system.names for system in tables.systems().systems}
    words = re.findall(r"[a-z0-9]+", wanted)
    texts = {name: " ".join((name, entry.summary, *other.get(name, ()))).lower() for name, entry in known.items()}
    having = [name for name, text in texts.items() if words and all(word in text for word in words)]
    if having:
        return having[:_MOST_NEAR]
    spelt = {name.lower(): name for name in known}
    return [spelt[near] for near in difflib.get_close_matches(wanted, spelt, n=3, cutoff=0.5)]


_BOARD: Final = {
    "form": "form",
    "max_nvlinks": "NVLinks",
    "pcie_width": "PCIe width",
    "p2p_over_pcie": "P2P over PCIe with the stock driver",
    "nvswitch": "on NVSwitch baseboards",
    "ids": "PCI device ids",
}
_CHIP: Final = {
    "architecture": "architecture",
    "compute_capability": "compute capability",
    "nvlink_generation": "NVLink generation",
    "pcie_gen": "PCIe generation",
}


def _gpu(family: Family) -> Entry:
    table = tables.gpus()
    chip: Chip = table.chips[family.chip]
    values = _Values()
    values.add(chip, table.sources, {name: _CHIP[name] for name in ("architecture", "compute_capability")})
    values.add(family, table.sources, {"form": _BOARD["form"]})
    wired = chip.nvlink_generation is not None and family.max_nvlinks != 0
    if wired:
        values.add(chip, table.sources, {"nvlink_generation": _CHIP["nvlink_generation"]})
    values.add(family, table.sources, {"max_nvlinks": _BOARD["max_nvlinks"]})
    kind = catalogue.nvlink_kind(compute_capability=chip.compute_capability) if wired else None
    if kind is not None:
        values.add(kind, tables.links().sources, {"gbps": "one NVLink, GB/s per direction"})
    values.add(chip, table.sources, {"pcie_gen": _CHIP["pcie_gen"]})
    told = [
        name for name in list(_BOARD)[2:] if name != "nvswitch" or family.nvswitch is not None or family.form is None
    ]
    values.add(family, table.sources, {name: _BOARD[name] for name in told})
    links = f"{family.max_nvlinks} NVLinks" if family.max_nvlinks else "no NVLink" if family.max_nvlinks == 0 else ""
    parts = (chip.architecture, f"sm {chip.compute_capability}", family.form, links)
    return values.entry("gpu", family.family, ", ".join(filter(None, parts)))


def _cpu(part: Part) -> Entry:
    table = tables.cpus()
    values = _Values()
    model = part.models[0] if part.models else None
    rule = next((rule for rule in table.nccl if rule.fits(part.vendor, part.family, model)), None)
    values.add(
        part,
        table.sources,
        {"models": "models (/proc/cpuinfo)", "inter_socket_gbps": "between two sockets, GB/s per direction"},
    )
    if rule is not None:
        _constants(values, rule)
    values.add(part, table.sources, {"pcie_gen": "PCIe generation", "peer_copy_across": "peer copy across sockets"})
    real = f"{part.inter_socket_gbps:g} GB/s between sockets, " if part.inter_socket_gbps else ""
    nccl = f"NCCL counts {rule.gbps:g}" if rule else "no rule of NCCL"
    return values.entry("cpu", part.name, f"{part.vendor}, {real}{nccl}")


def _constants(values: _Values, rule: NcclRule) -> None:
    source = [tables.cpus().sources["nccl"]]
    values.put("NCCL's constant for a hop between NUMA nodes, GB/s", rule.gbps, source)
    values.put("NCCL divides GPU-to-GPU bandwidth through it by", rule.p2p_overhead, source)
    through = tables.cpus().peer_copy_through.get(rule.vendor)
    if through is not None:
        measured = [tables.cpus().sources[key] for key in through.sources]
        values.put("peer copy through its root ports / through other makers'", through.share, measured)


def _rules() -> Iterator[Entry]:
    """NCCL's rules for all CPUs of a vendor, whether a part of it is listed or not."""
    for rule in tables.cpus().nccl:
        values = _Values()
        _constants(values, rule)
        about = "" if rule.family is None else f" family {rule.family}"
        about += "" if rule.model_from is None else f" from model {rule.model_from}"
        summary = f"NCCL counts {rule.gbps:g} GB/s between NUMA nodes"
        yield values.entry("cpu", f"any {rule.vendor}{about}", summary)


def _nvlink(kind: NvlinkKind) -> Entry:
    values = _Values()
    columns = {
        "gbps": "payload of one link, GB/s per direction",
        "raw_mbps": "line rates the driver reports, MB/s",
        "generations": "generations the driver reports",
        "compute_capabilities": "compute capabilities",
        "nccl_gbps": "NCCL's constant per link, GB/s",
        "efficiency": "peer copy / payload",
        "efficiency_by_count": "peer copy / payload by links per pair",
        "bi_over_uni": "both directions / one",
        "bi_over_uni_by_count": "both directions / one by links per pair",
    }
    values.add(kind, tables.links().sources, columns)
    return values.entry("nvlink", kind.kind, f"{kind.gbps:g} GB/s per link")


def _pcie(gen: int, row: PcieRow) -> Entry:
    values = _Values()
    columns = {
        "gts": "GT/s per lane",
        "raw_lane_gbps": "one lane after line coding, GB/s",
        "payload_lane_gbps": "one lane, 256-byte payloads, GB/s",
        "copy": "peer copy / raw rate",
        "host": "copy to or from pinned host memory / raw rate",
        "staged": "copy through host memory over x16, GB/s",
    }
    copy = {name: share for name, share in msgspec.to_builtins(row.copy).items() if share is not None}
    values.add(row, tables.links().sources, columns, copy=copy or None)
    return values.entry("pcie", f"PCIe {gen}", f"{row.payload_lane_gbps * 16:.1f} GB/s over x16")


def _system(system: System) -> Entry:
    values = _Values()
    columns = {
        "gpus": "GPUs",
        "pairs": "GPU pairs by link class",
        "nvswitches": "NVSwitches",
        "numa_nodes": "NUMA nodes with GPUs",
    }
    values.add(system, tables.systems().sources, columns)
    return values.entry("system", system.name, f"{system.what} ({system.gpu})")


def table(found: Iterable[Entry]) -> str:
    """One line per entry."""
    rows = list(found)
    wide = max(len(entry.name) for entry in rows)
    return "".join(f"{entry.kind:<7} {entry.name:<{wide}}  {entry.summary}\n" for entry in rows)


def describe(entry: Entry) -> str:
    """Everything about one entry; below each value where it is from."""
    lines = [f"{entry.name}: {entry.summary}"]
    for value in entry.values:
        lines.append(f"\n{value.name}: {_written(value.value)}")
        for source in value.sources:
            when = f"read {source.read}" if source.read else "not read again"
            lines.append(f"  {source.what} ({when})")
            if source.url:
                lines.append(f"    {source.url}")
    if entry.unknown:
        lines.append(f"\nnot known, for want of a public source: {'; '.join(entry.unknown)}")
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_written(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_written, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
