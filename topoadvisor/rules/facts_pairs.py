"""Facts of each pair of GPUs, and of the pairs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from topoadvisor.hardware import catalogue
from topoadvisor.nccl import model
from topoadvisor.nccl.levels import NcclPath, parse_int
from topoadvisor.rules.assumed import Assumed
from topoadvisor.rules.functions import version_ge
from topoadvisor.rules.scope import (
    ASSUMED,
    DERIVED,
    FROM_ASSUMED,
    NVML,
    PCI,
    Fact,
    Known,
    Scope,
    Sources,
    Unknown,
    any_of,
    blend,
    by_model,
    follow,
    none_of,
)
from topoadvisor.snapshot import P2p, Snapshot
from topoadvisor.topology import links
from topoadvisor.topology.links import PCIE_ORDER, LinkClass
from topoadvisor.topology.model import some
from topoadvisor.topology.reconcile import UNSURE, is_refusal

if TYPE_CHECKING:
    from topoadvisor.topology.model import Pair, Topology

REFUSED_BY_STOCK: Final = "inferred: stock drivers refuse P2P on this model"
_GRANTED_BY_NVLINK: Final = "inferred: NVLinks are up between the two"
_GRANTED_AS_READS: Final = "inferred: the driver grants reads, and was not asked about writes"
_PATCHED: Final = "inferred: the driver grants P2P on a model on which stock drivers refuse it"
_HONEST_SINCE: Final = "550.40.07"
"""Older stock drivers claim P2P between GeForce cards of the Ada generation, and it does not work."""

_LL128_PATHS: Final = ("LOC", "NVL", "NVB", "C2C")

Key = tuple[int, int]


def gather(
    snapshot: Snapshot,
    topology: Topology,
    sources: Sources,
    assumed: Assumed,
    node: Scope,
    gpus: Mapping[int, Scope],
) -> dict[Key, Scope]:
    """Pair of GPU indexes (lower first) → its facts."""
    status = {(entry.a, entry.b): entry for entry in snapshot.p2p or []}
    indexes = [gpu.index for gpu in snapshot.gpus]
    bridges = {f"pci:{device.address}": device for device in snapshot.pci or []}
    refusing = _refusing(snapshot, gpus)
    relays = _direct_neighbours(topology)
    relayed = not parse_int(node.value("env.NCCL_NVB_DISABLE") or "0")
    scopes: dict[Key, Scope] = {}
    for place, a in enumerate(indexes):
        for b in indexes[place + 1 :]:
            said = sources.said(f"gpu:{b}>gpu:{a}") | sources.said(f"gpu:{a}>gpu:{b}")
            scope = Scope(assumed.of("pair", f"gpu:{a}-gpu:{b}"), said)
            pair = _pair(topology, f"gpu:{a}", f"gpu:{b}")
            _wires(scope, pair, gpus[a], gpus[b], node)
            _nccl_path(scope, relayed and bool(relays.get(f"gpu:{a}", set()) & relays.get(f"gpu:{b}", set())))
            _p2p(scope, [status.get((a, b)), status.get((b, a))], snapshot, sources, node, bool(refusing & {a, b}))
            _path(scope, pair, bridges, snapshot, sources, node)
            _transport(scope, node)
            scopes[(a, b)] = scope
    return scopes


def summarise(
    node: Scope,
    pairs: Mapping[Key, Scope],
    gpus: Mapping[int, Scope],
    snapshot: Snapshot,
    topology: Topology,
    sources: Sources,
) -> None:
    """Record the node facts `nvlink.*` and `p2p.*`, and recognise a patched driver by what it grants."""
    scopes = list(pairs.values())
    refusing = _refusing(snapshot, gpus)
    if _granted_beyond_stock(node, (scope for key, scope in pairs.items() if refusing.intersection(key))):
        node.put("driver.patched_p2p", Known(True, _PATCHED))

    def column(name: str) -> list[Fact]:
        return [scope.facts[name] for scope in scopes]

    counts = column("pair.nvlinks")
    linked = [follow(lambda count: count > 0, count) for count in counts]
    node.put("nvlink.any", _any_link(snapshot, sources, linked))
    node.put("nvlink.full_mesh", none_of([follow(lambda up: not up, up) for up in linked]) if linked else _alone(False))
    node.put("nvlink.switch", _switch(snapshot, sources, column("pair.through_switch")))
    read = bool(snapshot.gpus) and all(gpu.nvlinks is not None for gpu in snapshot.gpus)
    hidden = topology.hidden_switches > 0 or (False if read else None)
    if hidden is None and gpus and all(gpu.value("gpu.form") in ("pcie", "mobile") for gpu in gpus.values()):
        node.put("nvlink.hidden_switch", Known(False, "catalogue"))
    else:
        node.read("nvlink.hidden_switch", hidden, sources.origin(*NVML), sources.why(*NVML, call="NvLinkRemote"))
    node.put("p2p.any_refused", any_of(column("pair.p2p.refused")))
    granted = column("pair.p2p.ok")
    node.put("p2p.none_ok", none_of(granted) if granted else _alone(False))
    node.put("p2p.summary", _summary(column("pair.p2p.read")))
    node.put("nvlink.summary", _summary([follow(nvlink_or_none, name) for name in column("pair.link_class")]))
    node.put("p2p.all_ok", none_of([follow(lambda ok: not ok, ok) for ok in granted]))
    without = follow(lambda *values: sum(value == 0 for value in values), *counts) if counts else _alone(0)
    node.put("p2p.pairs_without_nvlink", without)
    node.put("p2p.acs_bridges", _acs_bridges(scopes))
    redirected = [each for each in scopes if each.value("pair.path.acs_redirect") and not each.value("pair.nvlinks")]
    node.put("p2p.redirected_pairs", Known(len(redirected), "derived"))
    paths = column("pair.nccl_path")
    node.put("p2p.worst_nccl_path", follow(_worst, *paths) if paths else _alone(""))
    node.put("nvlink.ll128_by_itself", _ll128(node))
    classes = column("pair.pcie_class")
    node.put("p2p.worst_class", follow(_farthest, *classes) if classes else _alone(""))
    node.put("p2p.switch_pairs", follow(lambda *names: sum(name in ("PIX", "PXB") for name in names), *classes))
    node.put("nvlink.refused_pairs", _refused_pairs(pairs))
    _beyond_level(node, pairs)
    bare = [path for path, up in zip(paths, linked, strict=True) if not (isinstance(up, Known) and up.value)]
    node.put("p2p.worst_nvlinkless_path", follow(_worst, *bare) if bare else _alone(""))


def _refused_pairs(pairs: Mapping[Key, Scope]) -> Fact:
    """Pairs with NVLink that the driver refuses peer access; NCCL stops there."""
    if not pairs:
        return _alone("")
    needed = ("pair.nvlinks", "pair.p2p.refused", "pair.p2p.refused_way")
    named = [
        follow(
            lambda links, refused, way, key=key: (way or f"GPU{key[0]}-GPU{key[1]}") if links and refused else "",
            *(scope.facts[name] for name in needed),
        )
        for key, scope in pairs.items()
    ]
    return follow(lambda *texts: some([text for text in texts if text]), *named)


def _acs_bridges(pairs: Sequence[Scope]) -> Fact:
    """Whoever clears ACS for one pair only leaves the others as they were."""
    named = [
        follow(
            lambda granted, nvlinks, bridges: bridges if granted and not nvlinks else [],
            *(pair.facts[name] for name in ("pair.p2p.ok", "pair.nvlinks", "pair.path.acs_bridges")),
        )
        for pair in pairs
    ]
    if not named:
        return _alone([])
    return follow(lambda *lists: sorted({bridge for bridges in lists for bridge in bridges}), *named)


def _alone(value: Any) -> Fact:
    return Known(value, "derived")


def _ll128(node: Scope) -> Fact:
    """Whether NCCL uses LL128 within the machine without being told (`ncclTopoTuneModel` in `src/graph/tuning.cc`)."""
    near = follow(lambda path: path in ("", *_LL128_PATHS), node.facts["p2p.worst_nccl_path"])
    if isinstance(near, Unknown) or not near.value:
        return near
    low, high = node.facts["gpus.compute_capability_min"], node.facts["gpus.compute_capability_max"]
    return follow(lambda least, most: least >= 9.0 or least == most >= 7.0, low, high)


def _worst(*names: str) -> str:
    return max(NcclPath[name] for name in names).name


def _farthest(*classes: str) -> str:
    return max(classes, key=lambda name: PCIE_ORDER.index(LinkClass(name)))


def nvlink_or_none(link_class: str) -> str:
    """`NV12` of `NV12`, `no NVLink` of any other class."""
    return link_class if link_class.startswith("NV") else "no NVLink"


def tally(words: Collection[str]) -> str:
    """How many pairs have each word: `CNS on 28 of 28 pairs`."""
    counted = Counter(words).most_common()
    return ", ".join(f"{word} on {number}" for word, number in counted) + f" of {len(words)} pairs"


def _summary(facts: Sequence[Fact]) -> Fact:
    return follow(lambda *words: tally(words), *facts) if facts else Unknown("there are no two GPUs")


def _beyond_level(node: Scope, pairs: Mapping[Key, Scope]) -> None:
    """Pairs that could use P2P and are farther than NCCL's level."""
    level = node.facts["nccl.p2p_level"]
    states: dict[str, Fact] = {}
    for (a, b), scope in pairs.items():
        within = follow(
            lambda path, farthest: NcclPath[path] <= NcclPath[farthest], scope.facts["pair.nccl_path"], level
        )
        linked = follow(lambda count: count > 0, scope.facts["pair.nvlinks"])
        states[f"GPU{a}-GPU{b}"] = none_of([follow(lambda ok: not ok, scope.facts["pair.p2p.ok"]), linked, within])
    inputs = list(states.values())
    node.put("gpus.beyond_level", follow(lambda *values: sum(values), *inputs))
    names = [name for name, state in states.items() if isinstance(state, Known) and state.value]
    node.put("gpus.beyond_level_pairs", follow(lambda *_: some(names), *inputs))


def _any_link(snapshot: Snapshot, sources: Sources, linked: Sequence[Fact]) -> Fact:
    """Links count even when a single GPU, or a hidden peer, leaves no pair to show them."""
    states = [gpu.nvlinks for gpu in snapshot.gpus]
    if any(link.active for gpu_links in states for link in gpu_links or []):
        return Known(True, sources.origin(*NVML))
    if isinstance(pairs := any_of(linked), Known) and pairs.value:
        return pairs
    if states and all(gpu_links is not None for gpu_links in states):
        unread = any(link.active is None for gpu_links in states for link in gpu_links or [])
        return Unknown(sources.why(*NVML, call="NvLinkState")) if unread else Known(False, sources.origin(*NVML))
    return pairs if linked else Unknown(sources.why(*NVML, call="NvLink"))


def _switch(snapshot: Snapshot, sources: Sources, through: Sequence[Fact]) -> Fact:
    if any(link.remote_type == "switch" for gpu in snapshot.gpus for link in gpu.nvlinks or []):
        return Known(True, sources.origin(*NVML))
    if through:
        return any_of(through)
    read = bool(snapshot.gpus) and all(gpu.nvlinks is not None for gpu in snapshot.gpus)
    return Known(False, sources.origin(*NVML)) if read else Unknown(sources.why(*NVML, call="NvLink"))


def _pair(topology: Topology, a: str, b: str) -> Pair | None:
    try:
        return topology.pair(a, b)
    except KeyError:
        return None


def _direct_neighbours(topology: Topology) -> dict[str, set[str]]:
    """GPU node id → GPUs that it has NVLinks to without a switch between."""
    neighbours: dict[str, set[str]] = {}
    for (a, b), pair in topology.pairs.items():
        if a.startswith("gpu:") and b.startswith("gpu:") and pair.nvlinks and not pair.through_switch:
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
    return neighbours


def _wires(scope: Scope, pair: Pair | None, a: Scope, b: Scope, node: Scope) -> None:
    scope.put("pair.a", a.facts["gpu.label"])
    scope.put("pair.b", b.facts["gpu.label"])
    why = "how the two are joined could not be determined"
    origin, pcie_origin, derived = _origins(pair)
    scope.read("pair.link_class", pair and pair.link_class, origin, why)
    below = f"{pair.link_class} joins the two, and the PCIe path beside it was not read" if pair else why
    scope.read("pair.pcie_class", pair and pair.pcie_class, pcie_origin, below if pair and pair.link_class else why)
    joined = scope.facts["pair.link_class"]
    if isinstance(joined, Known) and joined.origin == ASSUMED:
        # Who assumes a link class has said how many NVLinks there are, and over what the pair goes without any.
        nvlinks = scope.put("pair.nvlinks", Known(links.nvlink_count(joined.value), FROM_ASSUMED))
        if not links.nvlink_count(joined.value) and joined.value != "C2C":
            scope.put("pair.pcie_class", Known(joined.value, FROM_ASSUMED))
    else:
        nvlinks = scope.read("pair.nvlinks", pair.nvlinks if pair else None, origin, why)
    through = pair.through_switch if pair and isinstance(nvlinks, Known) else None
    scope.read("pair.through_switch", through, origin, why)
    speed = scope.read("pair.gbps", pair and pair.gbps, derived, "the bandwidth of this path is not known")
    gpu = catalogue.gpu_model(a.value("gpu.name"))
    if isinstance(speed, Unknown) and gpu and scope.value("pair.nvlinks"):
        scope.put("pair.gbps", by_model(a.facts["gpu.name"], scope.facts["pair.nvlinks"], gpu.nvlink_gbps))
    scope.put("pair.same_numa", _same_numa(a.facts["gpu.numa_node"], b.facts["gpu.numa_node"], node))
    scope.put("pair.same_model", follow(lambda x, y: x == y, a.facts["gpu.name"], b.facts["gpu.name"]))


def _origins(pair: Pair | None) -> tuple[str, str, str]:
    """Who said the link class, who the PCIe class, and what the bandwidth follows from."""
    if pair is None:
        return "", "", ""
    said = (pair.origin, pair.pcie_origin or pair.origin)
    if pair.inferred:
        link, pcie = (f"inferred: from {origin}" for origin in said)
        return link, pcie, link
    return *said, DERIVED


def _same_numa(a: Fact, b: Fact, node: Scope) -> Fact:
    if node.value("numa.count") == 1:
        return follow(lambda _: True, node.facts["numa.count"])
    if any(isinstance(fact, Known) and fact.value < 0 for fact in (a, b)):
        return Unknown("the platform does not say which NUMA node a GPU is nearest to")
    return follow(lambda x, y: x == y, a, b)


def _nccl_path(scope: Scope, relayed: bool) -> None:
    """NCCL also counts NVLink through one GPU in between, which no link class shows."""

    def name(link_class: str, nvlinks: int) -> str:
        path = links.to_nccl(link_class)
        return NcclPath.NVB.name if relayed and not nvlinks and path > NcclPath.NVB else path.name

    link_class = scope.facts["pair.link_class"]
    if isinstance(link_class, Known) and not _is_class(link_class.value):
        scope.put("pair.nccl_path", Unknown(f"{link_class.value} is no link class"))
    else:
        scope.put("pair.nccl_path", follow(name, link_class, scope.facts["pair.nvlinks"]))


def _is_class(text: str) -> bool:
    try:
        links.to_nccl(text)
    except ValueError:
        return False
    return True


def _p2p(
    scope: Scope,
    both: Sequence[P2p | None],
    snapshot: Snapshot,
    sources: Sources,
    node: Scope,
    stock_refuses: bool,
) -> None:
    origin = sources.origin(*NVML, "nvidia-smi topo -p2p r")
    told = {name: [pick(entry) if entry is not None else None for entry in both] for name, pick in _CAPABILITIES}
    answers = {name: _worse(each) for name, each in told.items()}
    inferred = _inferred(scope, node, stock_refuses)
    refusal = next((answer for answer in answers.values() if answer not in (None, "OK")), None)
    if inferred is not None and inferred.value == "OK" and refusal is not None:
        inferred = None
    for name, answer in answers.items():
        why = "one direction was not read" if any(told[name]) else sources.why(*NVML, call="P2PStatus")
        disputed = _disputed(both, name.rpartition(".")[2])
        if disputed:
            answer, why = None, f"texts contradict each other about it: {' and '.join(disputed)}"
        elif answer is None and inferred is not None and not (name == "pair.p2p.nvlink" and inferred.value != "OK"):
            scope.put(name, inferred)
            continue
        elif name == "pair.p2p.write" and not any(told[name]) and scope.value("pair.p2p.read") == "OK":
            scope.put(name, Known("OK", _GRANTED_AS_READS))
            continue
        scope.read(name, answer, origin, why)
    read, write = scope.facts["pair.p2p.read"], scope.facts["pair.p2p.write"]
    refused = any_of([_refused(read), _refused(write)])
    scope.put("pair.p2p.refused", refused)
    scope.put("pair.p2p.ok", none_of([refused]))
    scope.put("pair.p2p.refused_way", follow(lambda _: _refused_way(both), refused))


_CAPABILITIES: Final[tuple[tuple[str, Callable[[P2p], str | None]], ...]] = (
    ("pair.p2p.read", lambda entry: entry.read),
    ("pair.p2p.write", lambda entry: entry.write),
    ("pair.p2p.nvlink", lambda entry: entry.nvlink),
)


def _disputed(both: Sequence[P2p | None], capability: str) -> list[str]:
    """The answers about a pair that contradict each other."""
    answers = (answer for way in both if way is not None for answer in way.disputed.get(capability, ()))
    return list(dict.fromkeys(answers))


def _refused_way(both: Sequence[P2p | None]) -> str:
    """The direction in which access is refused while it is granted in the other one; empty where there is none."""
    for way, back in (both, both[::-1]):
        if way is None or back is None or "OK" not in (back.read, back.write):
            continue
        if any(map(is_refusal, (way.read, way.write))) and not any(map(is_refusal, (back.read, back.write))):
            return f"GPU{way.a}→GPU{way.b}"
    return ""


def _refused(status: Fact) -> Fact:
    if isinstance(status, Known) and status.value == UNSURE:
        return Unknown("the driver itself does not know whether the pair can do it")
    return follow(lambda text: text != "OK", status)


def _worse(answers: Iterable[str | None]) -> str | None:
    """The worse of the directions; None when none was read, or when one was not and the other is OK."""
    known = list(answers)
    return next(
        (answer for answer in known if answer not in (None, "OK")), None if None in known or not known else "OK"
    )


def _inferred(scope: Scope, node: Scope, stock_refuses: bool) -> Known | None:
    """What the driver's answer must be when nobody asked it."""
    if scope.value("pair.nvlinks"):
        return Known("OK", _GRANTED_BY_NVLINK)
    if node.value("driver.patched_p2p") is not False or not stock_refuses:
        return None
    version = node.value("driver.version")
    honest = version is None or version_ge(version, _HONEST_SINCE)
    return Known("NS", REFUSED_BY_STOCK) if honest else None


def _refusing(snapshot: Snapshot, gpus: Mapping[int, Scope]) -> set[int]:
    """Indexes of the GPUs of a model on which no stock driver grants P2P over PCIe."""
    models = {
        gpu.index: catalogue.gpu_model(gpus[gpu.index].value("gpu.name"), gpu.pci_device) for gpu in snapshot.gpus
    }
    return {index for index, found in models.items() if found is not None and found.p2p_over_pcie is False}


def _granted_beyond_stock(node: Scope, pairs: Iterable[Scope]) -> bool:
    """The driver grants one of these pairs what no stock driver of its age grants."""
    version = node.value("driver.version")
    honest = version is not None and version_ge(version, _HONEST_SINCE)
    return honest and any(pair.value("pair.p2p.ok") and not pair.value("pair.nvlinks") for pair in pairs)


def _path(
    scope: Scope, pair: Pair | None, bridges: Mapping[str, Any], snapshot: Snapshot, sources: Sources, node: Scope
) -> None:
    scope.put(
        "pair.path.crosses_host",
        follow(lambda name: name in ("PHB", "NODE", "SYS"), scope.facts["pair.pcie_class"]),
    )
    names = pair.pcie_path if pair else ()
    known = snapshot.pci is not None and bool(names) and not any(name.startswith("switch:") for name in names)
    on_path = [bridges[name] for name in names if name in bridges]
    origin = sources.origin(*PCI)
    why = sources.why(*PCI) if snapshot.pci is None else "the bridges between the two were not read"
    scope.read("pair.path.bridges", [bridge.address for bridge in on_path] if known else None, origin, why)
    # An upstream port passes traffic on; only root ports and downstream ports can redirect it.
    states = [bridge.acs_redirect for bridge in on_path if bridge.port_type != "upstream"]
    redirecting = [bridge.address for bridge in on_path if bridge.acs_redirect]
    if node.value("vm.guest"):
        states, redirecting, why = [None], [], "a guest does not see the bridges of its host"
    elif known:
        why = "reading ACS needs root" if snapshot.origin == "live" else sources.why(*PCI)
    unread = not known or None in states
    acs = scope.read("pair.path.acs_redirect", True if redirecting else None if unread else False, origin, why)
    scope.put("pair.path.acs_known", Known(isinstance(acs, Known), "derived"))
    scope.read("pair.path.acs_bridges", redirecting if redirecting or not unread else None, origin, why)


def _transport(scope: Scope, node: Scope) -> None:
    path, level = scope.value("pair.nccl_path"), node.value("nccl.p2p_level")
    shm = node.facts["env.NCCL_SHM_DISABLE"]
    choice = model.transport(
        path=None if path is None else NcclPath[path],
        p2p_ok=scope.value("pair.p2p.ok"),
        level=None if level is None else NcclPath[level],
        shm_disabled=parse_int(shm.value) == 1 if isinstance(shm, Known) else None,
    )
    inputs = [scope.facts["pair.nccl_path"], scope.facts["pair.p2p.ok"], node.facts["nccl.p2p_level"]]
    scope.read("pair.nccl.transport", choice.kind, blend(inputs), choice.why)
