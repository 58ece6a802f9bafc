"""Facts of each GPU, and of the GPUs together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from topoadvisor.hardware import catalogue
from topoadvisor.rules.assumed import Assumed
from topoadvisor.rules.scope import (
    ASSUMED,
    NVML,
    PCI,
    Fact,
    Known,
    Scope,
    Sources,
    Unknown,
    any_of,
    by_model,
    follow,
    negate,
    none_of,
)
from topoadvisor.snapshot import Fabric, Gpu, PciDevice, PcieLink, Snapshot

if TYPE_CHECKING:
    from topoadvisor.topology.model import Pair, Topology

_IDLE_ABOVE = 2
"""Performance states above this one let the PCIe link run at a lower generation."""


_FIRST_WITH_MIG: Final = 8.0
"""Compute capability of the A100, the first GPU that can be cut into MIG slices (NVIDIA, MIG User Guide)."""

_FIXED_BAR1: Final = 256 << 20
"""BAR1 of cards without Resizable BAR. Whatever this program knows has more memory."""


def gather(snapshot: Snapshot, topology: Topology, sources: Sources, assumed: Assumed) -> dict[int, Scope]:
    """GPU index → its facts."""
    devices = {device.address: device for device in snapshot.pci or []}
    scopes: dict[int, Scope] = {}
    for gpu in snapshot.gpus:
        scope = Scope(assumed.of("gpu", f"gpu:{gpu.index}"), sources.said(f"gpu:{gpu.index}"))
        device = devices.get(gpu.address or "")
        _identity(scope, gpu, sources)
        _memory(scope, gpu, sources)
        _nvlinks(scope, gpu, topology, sources)
        _pcie(scope, gpu, device, devices.get(device.parent or "") if device else None, sources)
        _state(scope, gpu, device, sources)
        scopes[gpu.index] = scope
    _peers_mode(scopes)
    return scopes


def summarise(node: Scope, gpus: Mapping[int, Scope], origin: str) -> None:
    """Record the node facts `gpus.*`, `nvlink.gbps`, `c2c.any`, `numa.gpu_nodes`; `origin` says who counted GPUs."""
    scopes = list(gpus.values())
    node.put("gpus.count", Known(len(scopes), origin))
    names = _column(scopes, "gpu.name")
    node.put("gpus.models", follow(lambda *values: list(dict.fromkeys(values)), *names))
    node.put("gpus.same_model", _same(names))
    node.put("gpus.model", _common(names, "the GPUs are of different models"))
    architectures = _column(scopes, "gpu.architecture")
    node.put("gpus.architecture", _common(architectures, "the GPUs are of different architectures"))
    if node.value("gpus.same_model") is False:
        node.deny("gpus.model", node.facts["gpus.models"])
    geforce = _column(scopes, "gpu.geforce")
    node.put("gpus.geforce", negate(any_of([negate(fact) for fact in geforce])) if geforce else _none())
    forms = _column(scopes, "gpu.form")
    node.put("gpus.sxm", any_of([follow(lambda form: form == "sxm", form) for form in forms]))
    states = _column(scopes, "gpu.fabric.state")
    node.put("fabric.completed", _completed(states))
    node.put("gpus.mig", any_of(_column(scopes, "gpu.mig")) if scopes else _none())
    now, most = _column(scopes, "gpu.pcie.current_width"), _column(scopes, "gpu.pcie.max_width")
    wide = [follow(lambda a, b: a >= b, *widths) for widths in zip(now, most, strict=True)]
    node.put("gpus.full_width", follow(lambda *states: sum(states), *wide) if wide else _none())
    covered = _column(scopes, "gpu.bar1_covers_memory")
    node.put("gpus.bar1_covers_memory", none_of([negate(fact) for fact in covered]) if covered else _none())
    node.put("gpus.same_architecture", _same(architectures))
    capabilities = _column(scopes, "gpu.compute_capability")
    node.put("gpus.compute_capability_min", follow(lambda *values: min(values), *capabilities) if scopes else _none())
    node.put("gpus.compute_capability_max", follow(lambda *values: max(values), *capabilities) if scopes else _none())
    linked = any_of([_linked_to_its_cpu(scope) for scope in scopes])
    if isinstance(linked, Unknown) and node.value("cpu.vendor") in ("AMD", "Intel"):
        linked = Known(False, "inferred: only NVIDIA's own CPUs have the link")
    node.put("c2c.any", linked)
    speeds = _column(scopes, "gpu.nvlinks.gbps")
    node.put("nvlink.gbps", follow(lambda *values: min(values), *speeds) if scopes else _none())
    node.put("numa.gpu_nodes", _numa_nodes(node, _column(scopes, "gpu.numa_node")))


def _linked_to_its_cpu(gpu: Scope) -> Fact:
    """Whether the GPU has a chip-to-chip link: where that was not read, one on a package with its CPU has."""
    read = follow(lambda gbps: gbps > 0, gpu.facts["gpu.c2c_gbps"])
    return Known(True, "catalogue") if isinstance(read, Unknown) and gpu.value("gpu.form") == "soc" else read


def _completed(states: Sequence[Fact]) -> Fact:
    """Whether every GPU has joined its fabric."""
    return none_of([follow(lambda state: state != "completed", each) for each in states]) if states else _none()


def _none() -> Fact:
    return Unknown("there is no GPU")


def _column(scopes: Sequence[Scope], name: str) -> list[Fact]:
    return [scope.facts[name] for scope in scopes]


def _same(facts: Sequence[Fact]) -> Fact:
    """Whether all values are equal: false as soon as two known ones differ, else unknown when one is."""
    known = [fact for fact in facts if isinstance(fact, Known)]
    if len({fact.value for fact in known}) > 1:
        return follow(lambda *_: False, *known)
    return follow(lambda *_: True, *facts) if facts else _none()


def _common(facts: Sequence[Fact], otherwise: str) -> Fact:
    """The value that all share; unknown with `otherwise` when they differ."""
    same = _same(facts)
    if isinstance(same, Unknown):
        return same
    return follow(lambda first, *_: first, *facts) if same.value else Unknown(otherwise)


def _numa_nodes(node: Scope, facts: Sequence[Fact]) -> Fact:
    if not facts:
        return _none()
    known = [fact for fact in facts if isinstance(fact, Known) and fact.value >= 0]
    if len(known) == len(facts):
        return follow(lambda *values: len(set(values)), *known)
    if node.value("numa.count") == 1:
        return follow(lambda _: 1, node.facts["numa.count"])
    missing = next((fact for fact in facts if isinstance(fact, Unknown)), None)
    return missing or Unknown("the platform does not say which NUMA node the GPUs are nearest to")


def _identity(scope: Scope, gpu: Gpu, sources: Sources) -> None:
    subject = f"gpu:{gpu.index}"
    origin, why = sources.origin(*NVML), sources.why(*NVML, call="Name", subject=subject)
    scope.read("gpu.index", gpu.index, origin, why)
    scope.read("gpu.label", f"GPU{gpu.index}", origin, why)
    scope.read("gpu.address", gpu.address, origin, sources.why(*NVML, *PCI, call="Pci", subject=subject))
    name = scope.read("gpu.name", gpu.name, origin, why)
    model = catalogue.gpu_model(scope.value("gpu.name"), gpu.pci_device)
    stranger = f"the catalogue has no {name.value}" if isinstance(name, Known) else why

    def from_catalogue(fact: str, value: Any | None) -> None:
        scope.read(fact, value, "catalogue", stranger)

    # Who assumes another model has said what it can do; what the driver said is about the one that is there.
    told = isinstance(name, Known) and name.origin == ASSUMED and model is not None
    if not told and gpu.compute_capability and re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", gpu.compute_capability):
        scope.read("gpu.compute_capability", float(gpu.compute_capability), origin, why)
    else:
        from_catalogue("gpu.compute_capability", float(model.compute_capability) if model else None)
    from_catalogue("gpu.architecture", model and model.architecture)
    from_catalogue("gpu.form", model and model.form)
    geforce = model.geforce if model else None
    if geforce is None and isinstance(name, Known):
        geforce = "geforce" in name.value.lower()
    from_catalogue("gpu.geforce", geforce)
    from_catalogue("gpu.nvlinks.expected", model and model.max_nvlinks)


def _memory(scope: Scope, gpu: Gpu, sources: Sources) -> None:
    subject, origin = f"gpu:{gpu.index}", sources.origin(*NVML)
    memory = scope.read(
        "gpu.memory_bytes", gpu.memory_bytes, origin, sources.why(*NVML, call="MemoryInfo", subject=subject)
    )
    bar1 = scope.read("gpu.bar1_bytes", gpu.bar1_bytes, origin, sources.why(*NVML, call="BAR1", subject=subject))
    if isinstance(memory, Unknown) and isinstance(bar1, Known) and bar1.value <= _FIXED_BAR1:
        scope.put("gpu.bar1_covers_memory", follow(lambda _: False, bar1))
    else:
        scope.put("gpu.bar1_covers_memory", follow(lambda window, size: window >= size, bar1, memory))
    scope.read("gpu.numa_node", gpu.numa_node, sources.origin(*PCI, *NVML), sources.why(*PCI, *NVML))


def _nvlinks(scope: Scope, gpu: Gpu, topology: Topology, sources: Sources) -> None:
    links, origin = gpu.nvlinks, sources.origin(*NVML)
    why = sources.why(*NVML, call="NvLink", subject=f"gpu:{gpu.index}")
    name, expected = scope.facts["gpu.name"], scope.value("gpu.nvlinks.expected")
    if links is not None and isinstance(name, Known) and name.origin == ASSUMED and expected != len(links):
        for fact in ("total", "inactive", "active", "gbps", "errors"):
            scope.put(f"gpu.nvlinks.{fact}", Unknown("the NVLinks that were read are those of another model"))
        return
    scope.read("gpu.nvlinks.total", None if links is None else len(links), origin, why)
    read = links is not None and all(link.active is not None for link in links)
    down = sum(not link.active for link in links) if links is not None and read else None
    lost = scope.read("gpu.nvlinks.inactive", down, origin, why)
    if isinstance(lost, Known) and lost.origin == ASSUMED:
        whole = scope.facts["gpu.nvlinks.total"] if links else scope.facts["gpu.nvlinks.expected"]
        scope.put("gpu.nvlinks.active", follow(lambda count, down: max(0, count - down), whole, lost))
    elif links is not None and read:
        scope.put("gpu.nvlinks.active", Known(sum(bool(link.active) for link in links), origin))
    else:
        scope.put("gpu.nvlinks.active", _links_of_pairs(gpu, topology, why))
    model = catalogue.gpu_model(scope.value("gpu.name"), gpu.pci_device)
    each = model.nvlink_gbps if model else None
    active = scope.value("gpu.nvlinks.active")
    if active is not None and expected is not None and active > expected:
        scope.put("gpu.nvlinks.expected", Unknown("more NVLinks are up than boards of this model have"))
    scope.put("gpu.nvlinks.gbps", by_model(scope.facts["gpu.name"], scope.facts["gpu.nvlinks.active"], each))
    errors = [count for link in links or [] for count in (link.recovery_errors, link.replay_errors, link.crc_errors)]
    counted = [count for count in errors if count is not None]
    up = None if links is None else any(link.active is not False for link in links)
    total = sum(counted) if counted else 0 if up is False else None
    scope.read("gpu.nvlinks.errors", total, origin, "no error counter was read" if links else why)


def _links_of_pairs(gpu: Gpu, topology: Topology, why: str) -> Fact:
    """Active NVLinks of one GPU from what joins it to the others: through switches every pair shares the same ones."""
    me = f"gpu:{gpu.index}"
    found = (topology.find(me, other) for other in topology.gpus if other != me)
    pairs: list[Pair] = [pair for pair in found if pair is not None]
    counts = [pair.nvlinks for pair in pairs if pair.nvlinks is not None]
    if not pairs or len(counts) != len(pairs):
        return Unknown(why)
    shared = any(pair.through_switch for pair in pairs)
    return Known(max(counts) if shared else sum(counts), f"inferred: from the NVLinks of its pairs ({pairs[0].origin})")


def _pcie(scope: Scope, gpu: Gpu, device: PciDevice | None, port: PciDevice | None, sources: Sources) -> None:
    subject = f"gpu:{gpu.index}"
    nvml = sources.origin(*NVML)
    why = sources.why(*NVML, *PCI, call="PcieLink", subject=subject)

    def first(fact: str, *candidates: tuple[int | None, str]) -> None:
        value, origin = next(((value, origin) for value, origin in candidates if value), (None, ""))
        scope.read(fact, value, origin, why)

    def listed(of: PciDevice, key: str) -> str:
        return sources.place(f"pci:{of.address}", key, *PCI)

    link = gpu.pcie or PcieLink()
    model = catalogue.gpu_model(scope.value("gpu.name"), gpu.pci_device)
    function = device or PciDevice(address="")
    current, top = catalogue.pcie_gen(function.link_speed_gts), catalogue.pcie_gen(function.max_link_speed_gts)
    first("gpu.pcie.current_gen", (link.current_gen, nvml), (current, listed(function, "link_speed_gts")))
    first("gpu.pcie.max_gen", (link.max_gen, nvml))
    first(
        "gpu.pcie.device_max_gen",
        (link.device_max_gen, nvml),
        (top, listed(function, "max_link_speed_gts")),
        (model.pcie_gen if model else None, "catalogue"),
    )
    first("gpu.pcie.current_width", (link.current_width, nvml), (function.link_width, listed(function, "link_width")))
    # NVML's maximum is that of device and slot together; the device's own stands in its PCIe capability.
    first(
        "gpu.pcie.max_width",
        (function.max_link_width, listed(function, "max_link_width")),
        (link.max_width, nvml),
        (model.pcie_width if model else None, "catalogue"),
    )
    first("gpu.pcie.port_width", (port.max_link_width, listed(port, "max_link_width")) if port else (None, ""))
    state = gpu.performance_state
    scope.read(
        "gpu.pcie.replays",
        gpu.pcie_replays,
        nvml,
        sources.why(*NVML, call="ReplayCounter", subject=subject),
    )
    scope.read(
        "gpu.pcie.idle",
        None if state is None else state > _IDLE_ABOVE,
        nvml,
        sources.why(*NVML, call="PerformanceState", subject=subject),
    )


def _state(scope: Scope, gpu: Gpu, device: PciDevice | None, sources: Sources) -> None:
    subject, origin, fabric = f"gpu:{gpu.index}", sources.origin(*NVML), gpu.fabric
    why = sources.why(*NVML, call="Fabric", subject=subject)
    scope.read("gpu.fabric.state", fabric and fabric.state, origin, why)
    scope.read("gpu.fabric.status", fabric and fabric.status, origin, why)
    _health(scope, fabric, origin, why)
    if gpu.mig is None and (scope.value("gpu.compute_capability") or _FIRST_WITH_MIG) < _FIRST_WITH_MIG:
        scope.put("gpu.mig", Known(False, "catalogue"))
    else:
        scope.read("gpu.mig", gpu.mig, origin, sources.why(*NVML, call="Mig", subject=subject))
    scope.read("gpu.virtualization", gpu.virtualization, origin, sources.why(*NVML, call="Virtual", subject=subject))
    form = scope.value("gpu.form")
    if gpu.c2c_gbps is None and form not in (None, "soc"):
        # Only a GPU on one package with its CPU has the link, and only some drivers say "none" elsewhere.
        scope.put("gpu.c2c_gbps", Known(0.0, "catalogue"))
    else:
        scope.read("gpu.c2c_gbps", gpu.c2c_gbps, origin, sources.why(*NVML, call="C2c", subject=subject))
    scope.read("gpu.driver", device and device.driver, sources.origin(*PCI), sources.why(*PCI))


def _health(scope: Scope, fabric: Fabric | None, origin: str, why: str) -> None:
    """Two of the two-bit fields of NVML's fabric health mask (`nvmlGpuFabricInfo_v2_t`): 1 yes, 2 no."""
    mask = fabric.health_mask if fabric else None
    for fact, shift in (("gpu.fabric.degraded", 0), ("gpu.fabric.route_unhealthy", 4)):
        scope.read(fact, None if mask is None else (mask >> shift) & 3 == 1, origin, why)


def _peers_mode(scopes: Mapping[int, Scope]) -> None:
    for index, scope in scopes.items():
        model = scope.value("gpu.name")
        counts = [
            other.facts["gpu.nvlinks.active"]
            for peer, other in scopes.items()
            if peer != index and other.value("gpu.name") == model
        ]
        known = [fact for fact in counts if isinstance(fact, Known)]
        if known:
            scope.put("gpu.nvlinks.peers_mode", follow(lambda *values: _mode(values), *known))
        else:
            why = counts[0] if counts else Unknown("no other GPU of this model is here")
            scope.put("gpu.nvlinks.peers_mode", why)
        expected, mode = scope.facts["gpu.nvlinks.expected"], scope.facts["gpu.nvlinks.peers_mode"]
        scope.put("gpu.nvlinks.wanted", expected if isinstance(expected, Known) else mode)


def _mode(values: Sequence[int]) -> int:
    """The most frequent value, the larger one of two that are equally frequent."""
    counted = Counter(values)
    return max(counted, key=lambda value: (counted[value], value))
