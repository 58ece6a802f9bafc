"""What GPUs, NVLink, PCIe and sockets are capable of, from the tables beside this module.

All rates are GB/s (10⁹ bytes per second) per direction. Every function answers None for what the tables do not hold:
nothing here guesses. The tables are read on first use and kept.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import msgspec

from topoadvisor.hardware import tables
from topoadvisor.hardware.tables import Family, Form, NvlinkKind, PcieRow, PeerCopy
from topoadvisor.numbers import whole


class GpuModel(msgspec.Struct, frozen=True, kw_only=True):
    """One family of boards."""

    family: str
    architecture: str
    """`pascal`, `volta`, `turing`, `ampere`, `ada`, `hopper`, `blackwell`."""
    compute_capability: str
    """`9.0`."""
    form: Form | None
    """`soc` sits on one package with its CPU; None = the name does not tell."""
    geforce: bool
    nvlink_generation: str | None
    """`4.0`; None for chips without NVLink."""
    nvlink_gbps: float | None
    """Payload of one NVLink; None for boards without NVLink."""
    max_nvlinks: int | None
    """NVLinks that the board brings out; 0 = none; None = not known."""
    pcie_gen: int | None
    pcie_width: int | None
    p2p_over_pcie: bool | None
    """A stock driver grants peer-to-peer over PCIe; None = not known."""
    nvswitch: bool | None
    """Sold on NVSwitch baseboards; None = the name does not tell."""
    sources: tuple[str, ...]


class CpuModel(msgspec.Struct, frozen=True, kw_only=True):
    """One CPU, as a stage between PCIe devices."""

    name: str | None
    """`Genoa`; None when only NCCL's rule for the vendor is known."""
    nccl_gbps: float
    """What NCCL's model counts for a hop between NUMA nodes."""
    nccl_p2p_overhead: float
    """NCCL divides GPU-to-GPU bandwidth through this CPU by it."""
    inter_socket_gbps: float | None
    """All links between two sockets together, on paper."""
    pcie_gen: int | None
    peer_copy_across: PeerCopy | None
    peer_copy_through: float
    """Peer copy through the CPU's root ports / the same through those of other makers."""


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer copy between two GPUs should reach, copy engine, large buffers, peer access on."""

    expected_uni: float
    warn_below: float
    fail_below: float
    expected_bi: float | None
    """Both directions at once, summed; None when nobody published it."""
    theoretical_uni: float
    origin: str
    """The arithmetic and where its numbers are from."""


def gpu_model(name: str | None, pci_device: str | None = None) -> GpuModel | None:
    """The family of a GPU by its name, else by its PCI device id (`0x2335`)."""
    return (_by_name(name) if name else None) or (_by_id(pci_device) if pci_device else None)


def sold_on_nvswitch_boards(compute_capability: str) -> bool:
    """Whether any board with this compute capability (`9.0`) sits on an NVSwitch baseboard."""
    table = tables.gpus()
    return any(
        family.nvswitch and table.chips[family.chip].compute_capability == compute_capability
        for family in table.families
    )


def nvlink_kind(
    *, compute_capability: str | None = None, raw_mbps: int | None = None, generation: str | None = None
) -> NvlinkKind | None:
    """The NVLink rate that compute capability, else line rate, else generation stands for."""
    kinds = tables.links().nvlink
    if compute_capability is not None:
        return next((kind for kind in kinds if compute_capability in kind.compute_capabilities), None)
    if raw_mbps is not None:
        near = (kind for kind in kinds for raw in kind.raw_mbps if abs(raw - raw_mbps) <= 0.002 * raw)
        if (kind := next(near, None)) is not None:
            return kind
    return next((kind for kind in kinds if generation in kind.generations), None)


def nvlink_payload_gbps(generation: str | None, model: GpuModel | None = None) -> float | None:
    """Payload of one NVLink. The model decides where it is known: GA10x links are slower than their generation."""
    if model is not None:
        return model.nvlink_gbps
    kind = nvlink_kind(generation=generation)
    return kind.gbps if kind else None


def pcie_gbps(gen: int | None, width: int | None) -> float | None:
    """Payload of a PCIe link of `width` lanes with 256-byte packets."""
    row = tables.links().pcie.get(gen) if gen is not None else None
    return round(row.payload_lane_gbps * width, 3) if row is not None and width else None


def pcie_raw_gbps(gen: int | None, width: int | None) -> float | None:
    """Rate of a PCIe link of `width` lanes after line coding, headers included."""
    row = tables.links().pcie.get(gen) if gen is not None else None
    return round(row.raw_lane_gbps * width, 3) if row is not None and width else None


def pcie_payload_gbps(raw_gbps: float | None) -> float | None:
    """Payload with 256-byte packets of a link by its rate after line coding; the same part in all generations."""
    row = tables.links().pcie[3]
    return round(raw_gbps * row.payload_lane_gbps / row.raw_lane_gbps, 3) if raw_gbps else None


def pcie_gen(gts: float | None) -> int | None:
    """The PCIe generation of a lane rate in GT/s."""
    return next((gen for gen, row in tables.links().pcie.items() if row.gts == gts), None)


def pcie_gts(gen: int) -> float | None:
    """The lane rate of a PCIe generation in GT/s."""
    row = tables.links().pcie.get(gen)
    return row.gts if row is not None else None


_MAKERS: Final = {
    ("amd", "epyc", "ryzen", "threadripper"): "AMD",
    ("intel", "xeon", "core(tm)"): "Intel",
    ("grace", "neoverse", "ampere altra"): "Arm",
    ("power9", "power10"): "IBM",
}


def cpu_model(
    vendor: str | None, family: int | None = None, model: int | None = None, architecture: str | None = None
) -> CpuModel | None:
    """A CPU by vendor (`Intel`, `AMD`, … or as CPUID spells it), family and model, else by architecture."""
    maker = _VENDORS.get((vendor or "").strip(), vendor) or _ARCHITECTURES.get(architecture or "")
    if maker is None:
        return None
    if maker == "AMD" and family is not None and family > 0x7F:
        family = (family >> 4) + (family & 0xF)
    table = tables.cpus()
    rule = next((rule for rule in table.nccl if rule.fits(maker, family, model)), None)
    if rule is None:
        return None
    part = next((part for part in table.cpus if part.fits(maker, family, model)), None)
    return CpuModel(
        name=part.name if part else None,
        nccl_gbps=rule.gbps,
        nccl_p2p_overhead=rule.p2p_overhead,
        inter_socket_gbps=part.inter_socket_gbps if part else None,
        pcie_gen=part.pcie_gen if part else None,
        peer_copy_across=part.peer_copy_across if part else None,
        peer_copy_through=table.peer_copy_through[maker].share if maker in table.peer_copy_through else 1.0,
    )


def cpu_generation(name: str) -> str | None:
    """The generation of a CPU by its model name (`AMD EPYC 7742` is Rome), None when it shows none."""
    folded = " ".join(re.sub(r"\((?:r|tm)\)|\bcpu\b", " ", name.lower()).split())
    return next((part.name for part in tables.cpus().cpus if any(re.search(each, folded) for each in part.names)), None)


def cpu_maker(name: str) -> str | None:
    """The maker of a CPU by its model name, None when the name does not say."""
    folded = name.lower()
    return next((maker for words, maker in _MAKERS.items() if any(word in folded for word in words)), None)


def peer_copy_band(
    link_class: str,
    *,
    model: GpuModel | None = None,
    nvlink_generation: str | None = None,
    pcie_gen: int | None = None,
    pcie_width: int | None = None,
    cpu: CpuModel | None = None,
) -> Band | None:
    """What a peer copy over `link_class` (`NV12`, `PIX` … `SYS`) should reach.

    NVLink classes need the model or the generation, PCIe classes the generation and width of the narrower of the two
    GPUs' links; `cpu` sharpens what passes its root ports (`PHB`, `NODE`, `SYS`). None where no public measurement
    stands behind a number.
    """
    if count := _nvlinks(link_class):
        kind = nvlink_kind(
            compute_capability=model.compute_capability if model else None,
            generation=None if model else nvlink_generation,
        )
        return _nvlink_band(kind, count) if kind is not None else None
    if link_class not in ("PIX", "PXB", "PHB", "NODE", "SYS"):
        return None
    through = cpu.peer_copy_through if cpu is not None and link_class in ("PHB", "NODE", "SYS") else 1.0
    return _pcie_band(pcie_gen, pcie_width, cpu, across=link_class == "SYS", through=through)


def host_copy_band(gen: int | None, width: int | None) -> Band | None:
    """What a copy between a GPU and pinned host memory near it should reach, either way, over its PCIe link."""
    row = tables.links().pcie.get(gen) if gen is not None else None
    raw = pcie_raw_gbps(gen, width)
    if row is None or row.host is None or raw is None:
        return None
    return _band(raw, row.host, None, f"PCIe {gen} x{width}, {raw:.1f} GB/s raw × {row.host:g}", _behind(row, "host"))


def staged_copy_range(gen: int | None, width: int | None) -> tuple[float, float] | None:
    """Lowest and highest published copy between two GPUs through host memory, peer access off."""
    row = tables.links().pcie.get(gen) if gen is not None else None
    if row is None or row.staged is None or not width:
        return None
    low, high = row.staged
    return low * width / 16, high * width / 16


def _nvlink_band(kind: NvlinkKind, count: int) -> Band | None:
    efficiency = kind.efficiency_by_count.get(count, kind.efficiency)
    if efficiency is None:
        return None
    return _band(
        count * kind.gbps,
        efficiency,
        kind.bi_over_uni_by_count.get(count, kind.bi_over_uni),
        f"{count} × {kind.kind} of {kind.gbps:g} GB/s × {efficiency:g}",
        kind.measured,
    )


def _pcie_band(
    gen: int | None, width: int | None, cpu: CpuModel | None, *, across: bool, through: float
) -> Band | None:
    raw = pcie_raw_gbps(gen, width)
    if gen is None or raw is None:
        return None
    row = tables.links().pcie[gen]
    share, bi_over_uni = (row.copy.across, None) if across else (row.copy.within, row.copy.bi_within)
    where = "across sockets" if across else "within a socket"
    if across and gen >= 5 and cpu is not None and cpu.peer_copy_across is not None:
        share, bi_over_uni = cpu.peer_copy_across.uni, cpu.peer_copy_across.bi_over_uni
        where = f"across {cpu.name} sockets"
    if share is None:
        return None
    what = f"PCIe {gen} x{width}, {raw:.1f} GB/s raw × {share:g} {where}"
    if through < 1:
        # How both directions fare there nobody has published.
        what, bi_over_uni = f"{what} × {through:g} through this maker's root ports", None
    return _band(raw, share * through, bi_over_uni, what, _behind(row, "copy"))


def _behind(row: PcieRow, column: str) -> tuple[str, ...]:
    """Keys of the sources that give a measured column."""
    return tuple(key for key in row.measured if column in tables.links().sources[key].gives)


def _band(theoretical: float, share: float, bi_over_uni: float | None, what: str, measured: tuple[str, ...]) -> Band:
    table = tables.links()
    expected = theoretical * share
    return Band(
        expected_uni=round(expected, 1),
        warn_below=round(expected * table.judge["warn"], 1),
        fail_below=round(expected * table.judge["fail"], 1),
        expected_bi=round(expected * bi_over_uni, 1) if bi_over_uni is not None else None,
        theoretical_uni=round(theoretical, 1),
        origin=f"{what} ({'; '.join(table.sources[key].what for key in measured)})",
    )


def _nvlinks(link_class: str) -> int:
    return whole(link_class[2:]) or 0 if link_class.startswith("NV") else 0


_VENDORS = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "HygonGenuine": "AMD",
    "CentaurHauls": "Zhaoxin",
    "Shanghai": "Zhaoxin",
    "ARM": "Arm",
    "NVIDIA": "Arm",
    "Ampere": "Arm",
}
_ARCHITECTURES = {"aarch64": "Arm", "arm64": "Arm", "ppc64le": "IBM", "ppc64": "IBM"}


@cache
def _words() -> tuple[tuple[tuple[tuple[str, ...], ...], Family], ...]:
    return tuple((tuple(tuple(name.split()) for name in family.names), family) for family in tables.gpus().families)


@cache
def _by_name(name: str) -> GpuModel | None:
    words = set(re.findall(r"[a-z0-9]+", name.lower()))

    def has(wanted: str) -> bool:
        if "#" not in wanted:
            return wanted in words
        pattern = re.compile(wanted.replace("#", r"\d"))
        return any(pattern.fullmatch(word) for word in words)

    for names, family in _words():
        if any(all(has(word) for word in wanted) for wanted in names):
            return _model(family)
    return None


@cache
def _by_id(pci_device: str) -> GpuModel | None:
    wanted = pci_device.lower().removeprefix("0x").zfill(4)
    return next((_model(family) for family in tables.gpus().families if wanted in family.ids), None)


def _model(family: Family) -> GpuModel:
    chip = tables.gpus().chips[family.chip]
    wired = chip.nvlink_generation is not None and family.max_nvlinks != 0
    kind = nvlink_kind(compute_capability=chip.compute_capability) if wired else None
    legend = tables.gpus().sources
    return GpuModel(
        family=family.family,
        architecture=chip.architecture,
        compute_capability=chip.compute_capability,
        form=family.form,
        geforce=family.geforce,
        nvlink_generation=chip.nvlink_generation,
        nvlink_gbps=kind.gbps if kind else None,
        max_nvlinks=family.max_nvlinks,
        pcie_gen=chip.pcie_gen,
        pcie_width=family.pcie_width,
        p2p_over_pcie=family.p2p_over_pcie,
        nvswitch=family.nvswitch if family.nvswitch is not None or family.form is None else False,
        sources=tuple(dict.fromkeys(legend[key].what for key in (*chip.sources, *family.sources))),
    )
