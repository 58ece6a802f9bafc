"""Facts of each network device and each PCIe bridge, and of the network as a whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from topoadvisor.numbers import natural
from topoadvisor.rules.assumed import Assumed
from topoadvisor.rules.functions import version_ge
from topoadvisor.rules.scope import (
    NETWORK,
    PCI,
    PROC,
    Fact,
    Known,
    Scope,
    Sources,
    Unknown,
    any_of,
    blend,
    follow,
    none_of,
)
from topoadvisor.snapshot import Nic, PciDevice, Snapshot
from topoadvisor.topology.links import PCIE_ORDER

if TYPE_CHECKING:
    from topoadvisor.topology.model import Topology

_PACKETS: Final = (256, 512, 1024, 2048, 4096)
_HEADERS: Final = 96
"""Bytes that RoCE puts around a packet at most (`iboe_get_mtu` in Linux, `include/rdma/ib_addr.h`)."""
_NO_RATE: Final = "the rate of a port next to the GPUs was not read"
_NO_PACKET: Final = "the packet size of an InfiniBand port is not the interface's MTU; `ibv_devinfo` prints it"
_BELOW_A_SWITCH: Final = ("PIX", "PXB")
_ORDER: Final = {"X": 0, "C2C": 1, **{str(name): place for place, name in enumerate(PCIE_ORDER, start=2)}}

_VIRTUAL_KINDS: Final = ("bridge", "veth", "tunnel", "virtual")
_VIRTUAL_NAMES: Final = re.compile(
    r"docker|br-|virbr|veth|cni|cali|flannel|cilium|lxc|tun|tap|wg|tailscale|zt|ipvs|kube|podman"
)
_VIRBR_SKIPPED: Final = "2.28"
"""First NCCL that passes over libvirt's bridges by itself."""

_BY_NAME: Final = "inferred: first by name, the order of the kernel was not read"

_CHOSEN: Final = "an NCCL topology XML names only the network devices that NCCL chose in that run"

_MOST_INTERFACES: Final = 16
"""NCCL keeps no more (`MAX_IFS` in `src/include/socket.h`)."""


def gather(snapshot: Snapshot, topology: Topology, sources: Sources, assumed: Assumed) -> dict[str, Scope]:
    """NIC name → its facts."""
    scopes: dict[str, Scope] = {}
    devices = {device.address: device for device in snapshot.pci or []}
    labels = {name: label for matrix in snapshot.matrices for label, name in matrix.nic_legend.items()}
    for nic in snapshot.nics or []:
        scope = Scope(assumed.of("nic", f"nic:{nic.name}"), sources.said(f"nic:{nic.name}"))
        _device(scope, nic, sources)
        _slot(scope, nic, devices, sources)
        scope.put("nic.label", Known(labels.get(nic.name, nic.name), "derived"))
        _nearest(scope, nic, topology)
        scopes[nic.name] = scope
    _siblings(scopes)
    return scopes


def _siblings(scopes: Mapping[str, Scope]) -> None:
    """Other active RDMA devices whose nearest GPU is as near as this one's."""
    devices = [scope for scope in scopes.values() if scope.value("nic.rdma")]
    for scope in scopes.values():
        mine = scope.facts["nic.nearest_class"]
        states = [
            none_of(
                [
                    follow(lambda state: state != "ACTIVE", other.facts["nic.state"]),
                    follow(lambda theirs, own: _ORDER[theirs] > _ORDER[own], other.facts["nic.nearest_class"], mine),
                ]
            )
            for other in devices
            if other is not scope
        ]
        scope.put(
            "nic.siblings_active", follow(lambda *values: sum(values), *states) if states else Known(0, "derived")
        )


def _device(scope: Scope, nic: Nic, sources: Sources) -> None:
    origin, why = sources.origin(*NETWORK), sources.why(*NETWORK)
    ports = nic.ports or []
    active = [port for port in ports if port.state == "ACTIVE"]
    port = next(iter(active or ports), None)
    scope.read("nic.name", nic.name, origin, why)
    scope.read("nic.rdma", nic.rdma, origin, why)
    scope.read("nic.interface", nic.interface, origin, "it has no network interface, or none was read")
    scope.read("nic.state", port.state if port else None if nic.rdma else nic.state, origin, why)
    scope.read("nic.link_layer", port and port.link_layer, origin, why if nic.rdma else "it is no RDMA device")
    rates = [each.rate_gbit for each in active or ports if each.rate_gbit is not None]
    # A link that is down reports the speed -1.
    speed = nic.speed_mbit / 1000 if nic.speed_mbit is not None and nic.speed_mbit > 0 else None
    scope.read("nic.rate_gbit", max(rates, default=speed), origin, why)
    scope.read("nic.driver", nic.driver, origin, why)
    mtu = scope.read("nic.mtu", nic.mtu, origin, why)
    if port is not None and port.active_mtu is not None:
        scope.read("nic.packet_bytes", port.active_mtu, origin, why)
    else:
        scope.put("nic.packet_bytes", follow(_packet, mtu, scope.facts["nic.link_layer"], reason=_NO_PACKET))
    scope.read("nic.numa_node", nic.numa_node, origin, why)
    scope.read("nic.kind", nic.kind, origin, why)


def _together(names: Sequence[str], devices: Mapping[str, Scope]) -> float | None:
    """Their rates in GB/s, of 8 Gbit each; None when one was not read."""
    read = [devices[name].value("nic.rate_gbit") for name in names if name in devices]
    rates = [float(rate) for rate in read if rate is not None]
    return sum(rates) / 8 if len(rates) == len(names) else None


def _bonds_named(node: Scope) -> Known | None:
    """The bonds that a list of devices names where none was read."""
    hca = node.value("env.NCCL_IB_HCA") or ""
    names = [name.split(":")[0] for name in hca.lstrip("=").split(",") if "bond" in name]
    return Known(names, "inferred: from NCCL_IB_HCA") if names and not hca.startswith("^") else None


def _packet(mtu: int, layer: str) -> int | None:
    """The largest RDMA packet that fits an Ethernet interface, in bytes; None for other link layers."""
    return max((size for size in _PACKETS if size + _HEADERS <= mtu), default=0) if layer == "Ethernet" else None


def _slot(scope: Scope, nic: Nic, devices: Mapping[str, PciDevice], sources: Sources) -> None:
    """The PCIe link of a card; ports of one card are functions of one device and share it."""
    device = devices.get(nic.address or "")
    origin, why = sources.origin(*PCI), sources.why(*PCI)
    scope.read("nic.pcie.current_width", device and device.link_width, origin, why)
    scope.read("nic.pcie.max_width", device and device.max_link_width, origin, why)
    scope.read("nic.pcie.current_gts", device and device.link_speed_gts, origin, why)
    scope.read("nic.pcie.max_gts", device and device.max_link_speed_gts, origin, why)
    downed = [port.link_downed for port in nic.ports or [] if port.link_downed is not None]
    unread = "no port counter was read" if nic.ports else sources.why(*NETWORK)
    scope.read("nic.link_downed", max(downed, default=None), sources.origin(*NETWORK), unread)


def _nearest(scope: Scope, nic: Nic, topology: Topology) -> None:
    pairs = ((gpu, topology.find(gpu, f"nic:{nic.name}")) for gpu in topology.gpus)
    found = [
        (_ORDER[pair.link_class], place, gpu, pair)
        for place, (gpu, pair) in enumerate(pairs)
        if pair is not None and pair.link_class in _ORDER
    ]
    if not found:
        why = "no path from a GPU to it is known"
        for name in ("nic.nearest_gpu", "nic.nearest_class", "nic.gpu_local"):
            scope.put(name, Unknown(why))
        return
    _, _, gpu, pair = min(found, key=lambda entry: entry[:2])
    origin = f"inferred: from {pair.origin}" if pair.inferred else pair.origin
    scope.put("nic.nearest_gpu", Known(f"GPU{gpu.removeprefix('gpu:')}", origin))
    near = scope.put("nic.nearest_class", Known(pair.link_class, origin))
    scope.put("nic.gpu_local", follow(lambda name: name in _BELOW_A_SWITCH, near))


def summarise(node: Scope, nics: Mapping[str, Scope], snapshot: Snapshot, sources: Sources) -> None:
    """Record the node facts `rdma.*` and `net.*`."""
    origin, why = sources.origin(*NETWORK), sources.why(*NETWORK)
    network = unread = None if snapshot.nics is not None else Unknown(why)
    devices = {name: scope for name, scope in nics.items() if scope.value("nic.rdma")}
    if snapshot.origin == "nccl-topology-xml" and not devices:
        network = unread = unread or Unknown(_CHOSEN)
    counted = node.put("rdma.count", unread or Known(len(devices), origin))
    if unread and isinstance(counted, Known) and counted.value == 0:
        unread, origin = None, counted.origin
    node.put("rdma.names", unread or Known(_natural(devices), origin))
    states = [scope.facts["nic.state"] for scope in devices.values()]
    missing = unread or next((state for state in states if isinstance(state, Unknown)), None)
    active = [name for name in _natural(devices) if devices[name].value("nic.state") == "ACTIVE"]
    node.put("rdma.active", missing or Known(active, blend(states) if states else origin))
    active = node.value("rdma.active") or []
    unseen = [name for name in active if name not in devices]
    missing = missing or (Unknown(f"nothing is known of {', '.join(unseen)} but the name") if unseen else None)
    any_active = follow(bool, node.facts["rdma.active"])
    if isinstance(any_active, Unknown) and str(node.value("job.transport")).startswith("NET/IB"):
        any_active = Known(True, "inferred: the job's transport is NET/IB")
    node.put("rdma.any", any_active)
    told = origin if all(isinstance(state, Known) and state.origin == origin for state in states) else blend(states)
    layers = [devices[name].facts["nic.link_layer"] for name in active if name in devices]
    missing_layer = missing or next((layer for layer in layers if isinstance(layer, Unknown)), None)
    node.put("rdma.link_layers", missing_layer or Known(_layers(active, devices), told))
    elsewhere = node.value("platform.cloud") not in (None, "aws")
    efa = unread or any_of([_efa(name, scope, origin, snapshot) for name, scope in devices.items()])
    node.put("rdma.efa", Known(False, "inferred: only Amazon's machines have EFA") if unread and elsewhere else efa)
    near = unread or _near_gpus(devices)
    # What is below no switch with a GPU is not next to one, whatever its state.
    local = near if isinstance(near, Known) and not near.value else _local(active, devices, missing)
    local = node.put("rdma.gpu_local", local)
    node.put("rdma.gbps", follow(lambda names: _together(names, devices), local, reason=_NO_RATE))
    node.put("rdma.near_gpus", local if isinstance(near, Unknown) else near)
    others = follow(lambda near: [name for name in active if name not in near], local)
    node.put("rdma.others", others)
    beside = follow(
        lambda names: [name for name in names if name in devices and devices[name].value("nic.gpu_local")], others
    )
    node.put("rdma.others_near", beside)
    known = node.facts["rdma.link_layers"]
    beside_gpus = follow(lambda names: _layers(names, devices), local)
    node.put("rdma.local_link_layers", known if isinstance(known, Unknown) else beside_gpus)
    node.put(
        "rdma.others_near_other_layer",
        follow(
            lambda odd, near: [name for name in odd if not set(_layers([name], devices)) & set(_layers(near, devices))],
            beside,
            local,
        ),
    )
    bonds = [name for name in [*_not_down(devices), *unseen] if "bond" in name]
    node.put("rdma.bonds", Known(bonds, "derived") if bonds or unread is None else _bonds_named(node) or unread)
    _groups(node, active, snapshot, unread or missing)
    node.put("rdma.hca_exact", follow(lambda near, far: "=" + ",".join(near) if near and far else "", local, others))
    default = snapshot.host.default_interface
    node.read("net.default_interface", default, sources.origin(*PROC), sources.why(*PROC))
    chosen = Unknown(_CHOSEN) if snapshot.origin == "nccl-topology-xml" else network
    interfaces = node.put("net.interfaces", _interfaces(snapshot.nics, chosen, origin))
    candidates = _candidates(interfaces, node)
    node.put("net.candidates", candidates)
    kinds = {nic.interface: nic.kind for nic in snapshot.nics or []}
    suspicious = follow(
        lambda names: [name for name in names if name != default and _virtual(name, kinds.get(name))], candidates
    )
    node.put("net.suspicious", suspicious)
    fast = [
        scope.facts["nic.rate_gbit"]
        for scope in nics.values()
        if scope.value("nic.kind") in ("physical", "bond", None) and scope.value("nic.state") in ("up", "ACTIVE")
    ]
    rates = [rate.value for rate in fast if isinstance(rate, Known)]
    same = all(isinstance(rate, Known) and rate.origin == origin for rate in fast)
    node.put("net.fastest_gbit", network or Known(max(rates, default=0.0), origin if same else blend(fast)))
    first = node.put("net.bootstrap", _bootstrap(snapshot.nics or [], candidates))
    node.put("net.bootstrap_suspicious", follow(lambda name, names: name in names, first, suspicious))


def _groups(node: Scope, active: Sequence[str], snapshot: Snapshot, unread: Fact | None) -> None:
    """Ports that share one card, and the rows of the GID table."""
    physical = {device.address: device.sriov_of for device in snapshot.pci or [] if device.sriov_of is not None}
    cards: dict[str, dict[str, str]] = {}
    for nic in snapshot.nics or []:
        if nic.name in active and nic.address:
            # A virtual function is no port of its own: it uses that of its physical one.
            port = physical.get(nic.address, nic.address)
            names = cards.setdefault(port.rpartition(".")[0], {})
            names[port] = nic.name if port == nic.address else names.get(port, nic.name)
    shared = [name for names in cards.values() if len(names) > 1 for name in names.values()]
    node.put("rdma.ports_sharing_a_card", unread or Known(shared, "derived"))
    tables = [
        port.gid_types
        for nic in snapshot.nics or []
        if nic.name in active
        for port in nic.ports or []
        if port.link_layer == "Ethernet" and port.state == "ACTIVE"
    ]
    if not tables or any(table is None for table in tables):
        why = Unknown("no RoCE port is active" if not tables else "the GID tables were not read")
        node.put("rdma.rocev2_indexes", unread or why)
        return
    rows = [{index for index, kind in (table or {}).items() if kind == "RoCE v2"} for table in tables]
    common = sorted(set.intersection(*rows), key=natural)
    node.put("rdma.rocev2_indexes", Known(common, "sysfs network"))


def _layers(names: Sequence[str], devices: Mapping[str, Scope]) -> list[str]:
    """Link layers of devices; a name that the user assumed may have none."""
    scopes = (devices[name] for name in names if name in devices)
    return sorted({str(layer) for scope in scopes if (layer := scope.value("nic.link_layer"))})


def _bootstrap(nics: Sequence[Nic], candidates: Fact) -> Fact:
    """The first candidate. NCCL sees interfaces by their number in the kernel, which not every snapshot holds."""
    if isinstance(candidates, Unknown):
        return candidates
    numbered = {nic.interface for nic in nics if nic.interface_index is not None}
    names: list[str] = candidates.value
    certain = len(names) < 2 or numbered.issuperset(names)
    return Known(names[0] if names else "", candidates.origin if certain else _BY_NAME)


def _natural(names: Mapping[str, Scope]) -> list[str]:
    """Names in the order a person expects: mlx5_2 before mlx5_10."""
    return sorted(names, key=natural)


def _efa(name: str, scope: Scope, origin: str, snapshot: Snapshot) -> Fact:
    address = next((nic.address for nic in snapshot.nics or [] if nic.name == name), None)
    card = next((each for each in snapshot.pci or [] if address is not None and each.address == address), None)
    if card is not None and card.vendor == "0x1d0f" and (card.device or "").startswith("0xefa"):
        return Known(True, origin)
    driver = scope.facts["nic.driver"]
    if name.startswith("efa_") or scope.value("nic.driver") == "efa":
        return Known(True, origin)
    # EFA devices are renamed after their slot, as those of other makers may be.
    unclear = isinstance(driver, Unknown) and name.startswith("rdmap")
    return driver if unclear else Known(False, origin)


def _not_down(devices: Mapping[str, Scope]) -> list[str]:
    return [name for name in _natural(devices) if devices[name].value("nic.state") in (None, "ACTIVE")]


def _near_gpus(devices: Mapping[str, Scope]) -> Fact:
    return follow(
        lambda *near: [name for name, is_near in zip(_not_down(devices), near, strict=True) if is_near],
        *(devices[name].facts["nic.gpu_local"] for name in _not_down(devices)),
    )


def _local(active: Sequence[str], devices: Mapping[str, Scope], missing: Fact | None) -> Fact:
    """Active devices below a switch with a GPU: of these the fastest, and of these the more frequent link layer."""
    if missing:
        return missing
    near = [devices[name].facts["nic.gpu_local"] for name in active]
    unknown = next((fact for fact in near if isinstance(fact, Unknown)), None)
    if unknown:
        return unknown
    names = [name for name in active if devices[name].value("nic.gpu_local")]
    rates = {name: devices[name].value("nic.rate_gbit") for name in names}
    known = [rate for rate in rates.values() if rate is not None]
    if known and len(known) == len(names):
        names = [name for name in names if rates[name] == max(known)]
    layers = {name: devices[name].value("nic.link_layer") for name in names}
    if len(set(layers.values())) > 1:
        counted = Counter(layers.values())
        main = max(counted, key=lambda layer: (counted[layer], layer == "InfiniBand"))
        names = [name for name in names if layers[name] == main]
    return Known(names, blend(near))


def _interfaces(nics: Sequence[Nic] | None, unread: Fact | None, origin: str) -> Fact:
    """Interfaces that are up, in the kernel's order."""
    if nics is None or unread:
        return unread or Unknown("no network device was read")
    if not any(nic.interface for nic in nics):
        return Unknown("no network interface was read")
    ordered = sorted(nics, key=lambda nic: nic.interface_index or 0)
    return Known([nic.interface for nic in ordered if nic.interface and nic.state in ("up", "unknown")], origin)


def _candidates(interfaces: Fact, node: Scope) -> Fact:
    """Interfaces in the first group that has one: `ib*`; all but docker, lo and libvirt's; docker; lo."""
    if isinstance(interfaces, Unknown):
        return interfaces
    up: list[str] = interfaces.value
    version = node.value("nccl.version")
    skipped: tuple[str, ...] = ("docker", "lo")
    if version is None or version_ge(version, _VIRBR_SKIPPED):
        skipped += ("virbr",)
    groups = (
        [name for name in up if name.startswith("ib")],
        [name for name in up if not name.startswith(skipped)],
        [name for name in up if name.startswith("docker")],
        [name for name in up if name.startswith("lo")],
    )
    chosen = next((group for group in groups if group), [])
    return Known(chosen[:_MOST_INTERFACES], interfaces.origin)


def _virtual(name: str, kind: str | None) -> bool:
    return kind in _VIRTUAL_KINDS or (kind is None and _VIRTUAL_NAMES.match(name) is not None)


def bridges(snapshot: Snapshot, sources: Sources, assumed: Assumed) -> dict[str, Scope]:
    """PCI address → facts of every bridge."""
    devices = {device.address: device for device in snapshot.pci or []}
    below: dict[str, int] = {}
    for gpu in snapshot.gpus:
        for address in ancestors(devices, gpu.address):
            below[address] = below.get(address, 0) + 1
    origin, why = sources.origin(*PCI), sources.why(*PCI)
    closed = "reading ACS needs root" if snapshot.origin == "live" else why
    scopes: dict[str, Scope] = {}
    for device in devices.values():
        if not (device.class_code or "").startswith("0x0604"):
            continue
        scope = Scope(assumed.of("bridge", f"pci:{device.address}"))
        scope.read("bridge.address", device.address, origin, why)
        scope.read("bridge.acs_redirect", device.acs_redirect, origin, closed)
        scope.read("bridge.link_width", device.link_width, origin, why)
        scope.read("bridge.max_link_width", device.max_link_width, origin, why)
        scope.read("bridge.link_speed_gts", device.link_speed_gts, origin, why)
        scope.read("bridge.max_link_speed_gts", device.max_link_speed_gts, origin, why)
        scope.read("bridge.gpus_below", below.get(device.address, 0), origin, why)
        above = devices.get(device.parent or "")
        widths = [each.max_link_width for each in (device, above) if each is not None]
        both = above is not None and all(widths)
        if device.port_type is None and device.parent is None and device.root is not None:
            scope.put("bridge.port_type", Known("root-port", "inferred: nothing but a root complex is above it"))
        else:
            scope.read("bridge.port_type", device.port_type, origin, why)
        scope.read("bridge.possible_width", min(filter(None, widths)) if both else None, origin, why)
        scopes[device.address] = scope
    return scopes


def ancestors(devices: Mapping[str, PciDevice], address: str | None) -> Iterator[str]:
    """Addresses of the bridges above a device, nearest first."""
    device = devices.get(address or "")
    seen: set[str] = set()
    while device is not None and device.parent is not None and device.parent not in seen:
        seen.add(device.parent)
        yield device.parent
        device = devices.get(device.parent)
