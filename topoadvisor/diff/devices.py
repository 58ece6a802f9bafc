"""GPUs and what joins them: identity, PCIe links, NVLinks, fabric, P2P grants, link classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from topoadvisor.advice import Severity
from topoadvisor.diff import reach
from topoadvisor.diff.ledger import Field, Ledger, Who, always, leaves, lower_is
from topoadvisor.diff.match import Matched
from topoadvisor.numbers import size_text
from topoadvisor.snapshot import Gpu, NvLink, P2p, Snapshot
from topoadvisor.topology.links import PCIE_ORDER, LinkClass, nvlink_count
from topoadvisor.topology.model import Topology

BUSY_UP_TO: Final = 2
"""Performance states in which the PCIe generation is that of a working link; above it drops to save power."""
_MEMORY_TOLERANCE: Final = 0.02
"""Drivers reserve different amounts, and some texts round to MiB."""


def _lanes(width: int) -> str:
    return f"x{width}"


_FIELDS: Final = (
    Field("name", "model", always("warning"), "gpu"),
    Field("pci_device", "PCI device id", always("warning"), "gpu"),
    Field("compute_capability", "compute capability", always("warning"), "gpu"),
    Field("memory_bytes", "memory", lower_is("warning"), "gpu", size_text, _MEMORY_TOLERANCE),
    Field("bar1_bytes", "BAR1 aperture", lower_is("warning"), "gpu", size_text),
    Field("mig", "MIG mode", always("warning"), "gpu"),
    Field("virtualization", "virtualization", always("warning"), "gpu"),
    Field("c2c_gbps", "chip-to-chip link, GB/s", lower_is("error"), "gpu"),
    Field("pcie.current_width", "PCIe width", lower_is("error"), "pcie", _lanes),
    Field("pcie.max_width", "highest PCIe width", lower_is("warning"), "pcie", _lanes),
    Field("pcie.max_gen", "highest PCIe generation of GPU and slot", lower_is("warning"), "pcie"),
    Field("pcie.device_max_gen", "highest PCIe generation of the GPU", lower_is("warning"), "pcie"),
    Field("numa_node", "NUMA node", always("warning"), "numa"),
    Field("memory_numa_node", "NUMA node of its memory", always("warning"), "numa"),
    Field("cpu_affinity", "CPU affinity", always("info"), "numa"),
)
_CURRENT_GEN: Final = Field("pcie.current_gen", "PCIe generation while busy", lower_is("warning"), "pcie")
_FABRIC: Final = (
    Field("state", "fabric state", leaves("completed", "error"), "fabric"),
    Field("status", "fabric status code", leaves(0, "error"), "fabric"),
    Field("clique", "fabric clique", always("warning"), "fabric"),
    Field("health_mask", "fabric health mask", always("warning"), "fabric"),
)
_CLUSTER: Final = Field("cluster_uuid", "fabric cluster", always("warning"), "fabric")
_LINKS_UP: Final = Field("nvlinks", "NVLinks up", lower_is("error"), "nvlink")
_LINK: Final = (
    Field("generation", "generation", always("warning"), "nvlink"),
    Field("raw_mbps", "line rate in MB/s", lower_is("error"), "nvlink"),
    Field("remote_type", "far end", always("warning"), "nvlink"),
)
_GRANTS: Final = (
    Field("read", "P2P read", leaves("OK", "error"), "p2p"),
    Field("write", "P2P write", leaves("OK", "error"), "p2p"),
    Field("nvlink", "P2P over NVLink", leaves("OK", "error"), "p2p"),
    Field("atomics", "P2P atomics", leaves("OK", "warning"), "p2p"),
    Field("pci", "P2P over PCIe", leaves("OK", "warning"), "p2p"),
)


def who(gpu: Gpu) -> Who:
    """A GPU by its number and, where it is known, its place."""
    place = f" ({gpu.address})" if gpu.address else ""
    return Who(f"gpu:{gpu.index}", f"GPU{gpu.index}{place}")


def compare(before: Snapshot, after: Snapshot, matched: Matched, ledger: Ledger) -> None:
    """Compare everything about single GPUs and about what the driver grants between them."""
    _existence(before, after, matched, ledger)
    addresses = {new.address: old.address for old, new in matched.pairs if new.address}
    numbered = reach.numbers_links(before) and reach.numbers_links(after)
    for old, new in matched.pairs:
        name = who(old)
        _identity(name, old, new, matched.uuids_tell, ledger)
        ledger.fields(name, _FIELDS, old, new)
        if all(gpu.performance_state is not None and gpu.performance_state <= BUSY_UP_TO for gpu in (old, new)):
            ledger.value(name, _CURRENT_GEN, _CURRENT_GEN.of(old), _CURRENT_GEN.of(new))
        if old.pcie_replays is not None and new.pcie_replays is not None and new.pcie_replays > old.pcie_replays:
            text = f"{name.label}: PCIe replays rose {old.pcie_replays} → {new.pcie_replays}"
            ledger.change("pcie", name.subject, "pcie_replays", old.pcie_replays, new.pcie_replays, "warning", text)
        if old.fabric or new.fabric:
            ledger.fields(name, (*_FABRIC, *((_CLUSTER,) if matched.uuids_tell else ())), old.fabric, new.fabric)
        if numbered or None in (old.nvlinks, new.nvlinks):
            _nvlinks(name, old.nvlinks, new.nvlinks, addresses, ledger)
        else:
            ledger.value(name, _LINKS_UP, *(_up(gpu.nvlinks) for gpu in (old, new)))
    _grants(before.p2p, after.p2p, matched, ledger)


def _existence(before: Snapshot, after: Snapshot, matched: Matched, ledger: Ledger) -> None:
    for gpu in matched.gone:
        if reason := reach.why_unlisted(after):
            ledger.only_one(who(gpu), "gpu", f"it ({reason})", gpu.name or "there", None)
            continue
        text = f"{who(gpu).label} {gpu.name or ''}".rstrip() + " is gone"
        ledger.change("gpu-gone", f"gpu:{gpu.index}", "gpu", _identified(gpu), None, "error", text)
    was_lost = before.lost_gpus() or ()
    for old, new in matched.pairs:
        if new.index in (after.lost_gpus() or ()) and old.index not in was_lost:
            text = f"{who(old).label} does not answer any more: NVML says that it is lost"
            ledger.change("gpu-gone", f"gpu:{old.index}", "lost", False, True, "error", text)
    for gpu in matched.new:
        if reason := reach.why_unlisted(before):
            ledger.only_one(who(gpu), "gpu", f"it ({reason})", None, gpu.name or "there")
            continue
        text = f"{who(gpu).label} {gpu.name or ''}".rstrip() + " is new"
        ledger.change("gpu-new", f"gpu:{gpu.index}", "gpu", None, _identified(gpu), "info", text)


def _identified(gpu: Gpu) -> str:
    return " ".join(part for part in (gpu.uuid, gpu.address, gpu.name) if part) or f"index {gpu.index}"


def _identity(name: Who, old: Gpu, new: Gpu, uuids_tell: bool, ledger: Ledger) -> None:
    ledger.count("gpu", name.subject)
    if uuids_tell and old.uuid and new.uuid and old.uuid != new.uuid:
        text = f"{name.label} was replaced: {old.uuid} → {new.uuid}"
        ledger.change("gpu-replaced", name.subject, "uuid", old.uuid, new.uuid, "warning", text)
    if old.address and new.address and old.address != new.address:
        text = f"GPU{old.index} moved: {old.address} → {new.address}"
        ledger.change("gpu-moved", name.subject, "address", old.address, new.address, "warning", text)
    if old.index != new.index:
        text = (
            f"{name.label}: number {old.index} → {new.index}; variables and scripts that name it by number mean another"
        )
        ledger.change("gpu", name.subject, "index", old.index, new.index, "info", text)


def _nvlinks(
    name: Who, old: list[NvLink] | None, new: list[NvLink] | None, addresses: Mapping[str, str | None], ledger: Ledger
) -> None:
    if old is None or new is None:
        if old or new:
            was, is_now = (None if links is None else f"{_up(links)} up" for links in (old, new))
            ledger.only_one(name, "nvlinks", "NVLinks", was, is_now)
        return
    now = {link.link: link for link in new}
    for link in old:
        _link(name, link, now.pop(link.link, None), addresses, ledger)
    for link in now.values():
        if link.active:
            where = Who(f"{name.subject}/link:{link.link}", f"{name.label}: NVLink {link.link}")
            ledger.change("nvlink", where.subject, "active", None, True, "info", f"{where.label} is new and up")


def _up(links: list[NvLink] | None) -> int:
    return sum(bool(link.active) for link in links or ())


def _link(name: Who, old: NvLink, new: NvLink | None, addresses: Mapping[str, str | None], ledger: Ledger) -> None:
    where = Who(f"{name.subject}/link:{old.link}", f"{name.label}: NVLink {old.link}")
    to = "" if old.remote_address is None else f" (to {old.remote_address})"
    if new is None:
        if old.active:
            text = f"{where.label}{to} up → not there"
            ledger.change("nvlink", where.subject, "active", True, None, "error", text)
        return
    if old.active is None or new.active is None:
        if old.active is not new.active:
            ledger.only_one(where, "active", "up", old.active, new.active)
        return
    ledger.count("nvlink", where.subject)
    if old.active != new.active:
        states = "up → down" if old.active else "down → up"
        severity: Severity = "error" if old.active else "info"
        text = f"{where.label}{to} {states}"
        ledger.change("nvlink", where.subject, "active", old.active, new.active, severity, text)
        return
    ledger.fields(where, _LINK, old, new)
    leads = addresses.get(new.remote_address, new.remote_address) if new.remote_address else None
    if old.remote_address and leads and leads != old.remote_address:
        text = f"{where.label} leads {old.remote_address} → {new.remote_address}"
        ledger.change(
            "nvlink", where.subject, "remote_address", old.remote_address, new.remote_address, "warning", text
        )


def _grants(old: list[P2p] | None, new: list[P2p] | None, matched: Matched, ledger: Ledger) -> None:
    if old is None or new is None:
        if old or new:
            was, is_now = (None if pairs is None else f"{len(pairs)} pairs" for pairs in (old, new))
            ledger.only_one(Who("node", "Node"), "p2p", "P2P grants", was, is_now)
        return
    now = {(pair.a, pair.b): pair for pair in new}
    index = {gpu.index: other.index for gpu, other in matched.pairs}
    nothing = P2p(a=0, b=0)
    for pair in old:
        if pair.a in index and pair.b in index:
            name = Who(f"gpu:{pair.a}>gpu:{pair.b}", f"GPU{pair.a} → GPU{pair.b}")
            ledger.fields(name, _GRANTS, pair, now.get((index[pair.a], index[pair.b]), nothing))


def link_classes(
    before: Topology,
    after: Topology,
    same_node: Mapping[str, str],
    labels: Mapping[str, str],
    ledger: Ledger,
    *,
    rootless: bool,
) -> None:
    """Compare how two devices are joined. `same_node` maps node ids of GPUs and NICs before to those after.

    `rootless`: one of the captures shows no root complexes, so that it calls PHB what may be NODE.
    """
    unread: dict[bool, list[str]] = {True: [], False: []}
    for (a, b), pair in before.pairs.items():
        if a not in same_node or b not in same_node:
            continue
        ends = same_node[a], same_node[b]
        now = after.pairs.get(ends) or after.pairs.get(ends[::-1])
        old, new = pair.link_class, now.link_class if now else None
        if old is None or new is None:
            if old != new:
                unread[old is not None].append(f"{a}-{b}")
            continue
        subject = f"{a}-{b}"
        ledger.count("link-class", subject)
        if old != new and not (rootless and {old, new} == {LinkClass.PHB, LinkClass.NODE}):
            reasoned = " (inferred)" if pair.inferred or (now and now.inferred) else ""
            text = f"{labels.get(a, a)}–{labels.get(b, b)}: link class {old} → {new}{reasoned}"
            ledger.change("link-class", subject, "link_class", old, new, _verdict(old, new), text)
    for was, pairs in unread.items():
        if pairs:
            counted = f"{len(pairs)} pairs"
            name = Who("node", "Node")
            ledger.only_one(name, "link_class", "link classes", counted if was else None, None if was else counted)


def _verdict(old: str, new: str) -> Severity:
    """Fewer NVLinks, or none any more, cost bandwidth; a longer way over PCIe may."""
    if nvlink_count(old) or nvlink_count(new):
        return "error" if nvlink_count(new) < nvlink_count(old) else "info"
    order = [str(each) for each in PCIE_ORDER]
    if old in order and new in order:
        return "warning" if order.index(new) > order.index(old) else "info"
    return "warning"
