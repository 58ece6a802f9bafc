"""What NCCL's search works on: every path as the links that it takes bandwidth from (`followPath` in
`src/graph/search.cc`).

Bandwidths are in MB/s, because NCCL rounds what is left of a link to a thousandth of a GB/s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from topoadvisor.nccl import rates
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.network import Network, Port
from topoadvisor.nccl.paths import Path, Reach, Ways
from topoadvisor.nccl.system import Kind, Link, Node, System, integer

_NEVER_FULL: Final = round(rates.LOCAL_GBPS * 1000)
"""All channels together take less than NCCL's bandwidth within a device, so such links need no account."""
_READ_BACK: Final = 8
"""Before Ampere, writing into a GPU from a NIC takes an eighth of the way back too."""

Charges = tuple[tuple[int, int], ...]
"""(link, MB/s) that one channel takes."""


@dataclass(frozen=True)
class Route:
    """One path, ready to be walked."""

    kind: NcclPath
    gbps: float
    hops: int
    links: tuple[int, ...]
    weights: tuple[tuple[int, int], ...]
    """What a channel takes of each link: (numerator, denominator) of its speed."""

    def charges(self, speed: int) -> Charges:
        """For a channel of this speed in MB/s."""
        return tuple(
            (link, speed * top // bottom) for link, (top, bottom) in zip(self.links, self.weights, strict=True)
        )


@dataclass(frozen=True)
class Board:
    """A host as NCCL's search sees it. GPUs and ports are numbered by their place in NCCL's lists."""

    ranks: tuple[int, ...]
    capacities: tuple[int, ...]
    """MB/s of each link."""
    between: tuple[tuple[Route | None, ...], ...]
    """[source][destination]; None where there is no way."""
    to_port: tuple[tuple[Route | None, ...], ...]
    from_port: tuple[tuple[Route | None, ...], ...]
    uplinks: tuple[tuple[int, ...], ...]
    """The numbers of each GPU's own PCIe link, up and down; empty without one."""
    ports: tuple[Port, ...]
    port_gpu: tuple[int | None, ...]
    """[port]: the GPU that it belongs to."""
    near_gpus: tuple[tuple[int, ...], ...]
    """[port]: the GPUs that reach it best."""
    gpu_ports: tuple[tuple[int, ...], ...]
    """[GPU]: its ports in the order in which channels take them."""
    hosts: int
    devices: int
    switched: bool
    """There are NVSwitches."""
    capability: int
    """The lowest compute capability, times ten."""
    amd: bool
    fastest: float
    """GB/s of the fastest path between two devices, or with the network to a port (`maxBw`)."""
    widest: float
    """GB/s of all NVLinks of a device, or its PCIe link (`totalBw`)."""
    inter: bool
    """Other hosts take part, so rings lead through ports."""


def build(
    system: System,
    known: Mapping[Node, Ways],
    reached: Mapping[tuple[Node, Node], Reach],
    network: Network | None,
    *,
    inter: bool,
) -> Board:
    """The board of a system whose paths between GPUs are all known. `known` are the paths to GPUs and ports."""
    gpus = system.nodes[Kind.GPU]
    ledger = _Ledger()
    between = tuple(
        tuple(
            None if a is b or (path := reached[a, b].path) is None else ledger.route(path, a, b, from_gpu=True)
            for b in gpus
        )
        for a in gpus
    )
    to_port: tuple[tuple[Route | None, ...], ...] = ()
    from_port: tuple[tuple[Route | None, ...], ...] = ()
    if network is not None:
        ports = [port.node for port in network.ports]
        to_port = tuple(
            tuple(ledger.route(network.send[g][n], gpu, port, from_gpu=True) for n, port in enumerate(ports))
            for g, gpu in enumerate(gpus)
        )
        from_port = tuple(
            tuple(ledger.route(network.receive[n][g], port, gpu, from_gpu=False) for g, gpu in enumerate(gpus))
            for n, port in enumerate(ports)
        )
    uplinks = tuple(tuple(ledger.number(link) for link in _uplink(gpu)) for gpu in gpus)
    listed = network.ports if network is not None else []
    cpu = system.nodes[Kind.CPU][0].element.attributes
    devices = system.devices()
    single = len(gpus) == 1 and not inter
    return Board(
        ranks=tuple(integer(gpu.element, "rank") or 0 for gpu in gpus),
        capacities=tuple(ledger.capacities),
        between=between,
        to_port=to_port,
        from_port=from_port,
        uplinks=uplinks,
        ports=tuple(listed),
        port_gpu=tuple(network.local_gpu(n) for n in range(len(listed))) if network is not None else (),
        near_gpus=tuple(tuple(network.near_gpus(n)) for n in range(len(listed))) if network is not None else (),
        gpu_ports=tuple(tuple(network.local_ports(g)) for g in range(len(gpus))) if network is not None else (),
        hosts=len(system.hosts),
        devices=len(devices),
        switched=bool(system.nodes[Kind.NVS]),
        capability=min((integer(gpu.element, "sm") or 0 for gpu in gpus), default=0),
        amd=(cpu.get("arch"), cpu.get("vendor")) == ("x86_64", "AuthenticAMD"),
        fastest=rates.LOCAL_GBPS if single else max(_fastest(system, known, reached, devices, inter), default=0.0),
        widest=rates.LOCAL_GBPS if single else max(_width(device) for device in devices),
        inter=inter,
    )


class _Ledger:
    """Numbers directed links as they are met."""

    def __init__(self) -> None:
        self.capacities: list[int] = []
        self._number: dict[int, int] = {}

    def route(self, path: Path, start: Node, end: Node, *, from_gpu: bool) -> Route | None:
        if path.kind >= NcclPath.DIS:
            return None
        weights: dict[int, tuple[int, int]] = {}
        steps = list(_steps(path, end))
        through_intel = path.kind is NcclPath.PHB and from_gpu and any(_is_cpu(link.to, "intel") for _, link in steps)
        for node, link in steps:
            top, bottom = (6, 5) if through_intel and link.kind is NcclPath.PIX else (1, 1)
            self._take(weights, link, top, bottom)
            old = (integer(link.to.element, "sm") or 0) < 80 and link.to.kind in (Kind.DEV, Kind.GPU)
            if old and not from_gpu and link.kind is not NcclPath.LOC:
                self._take(weights, _back(node, link), 1, _READ_BACK)
            if link.kind is NcclPath.NVL and _is_cpu(link.to, "power"):
                self._take(weights, _back(node, link), 1, 1)
        return Route(path.kind, path.gbps, len(steps), tuple(weights), tuple(weights.values()))

    def number(self, link: Link) -> int:
        number = self._number.setdefault(id(link), len(self._number))
        if number == len(self.capacities):
            self.capacities.append(round(link.gbps * 1000))
        return number

    def _take(self, weights: dict[int, tuple[int, int]], link: Link, top: int, bottom: int) -> None:
        if round(link.gbps * 1000) >= _NEVER_FULL:
            return
        number = self.number(link)
        before, under = weights.get(number, (0, 1))
        weights[number] = (before * bottom + top * under, under * bottom)


def _steps(path: Path, end: Node) -> Iterator[tuple[Node, Link]]:
    """(node, link from it) from the source to the destination; the path is kept from the destination outwards."""
    nodes = [end, *(link.to for link in path.links)]
    for place in range(len(path.links) - 1, -1, -1):
        outwards = path.links[place]
        start, to = nodes[place + 1], nodes[place]
        yield start, next(link for link in start.links if link.to is to and link.kind is outwards.kind)


def _back(node: Node, link: Link) -> Link:
    return next(each for each in link.to.links if each.to is node and each.kind is link.kind)


def _is_cpu(node: Node, maker: str) -> bool:
    if node.kind is not Kind.CPU:
        return False
    attributes = node.element.attributes
    if maker == "power":
        return attributes.get("arch") == "ppc64"
    return (attributes.get("arch"), attributes.get("vendor")) == ("x86_64", "GenuineIntel")


def _uplink(gpu: Node) -> Iterator[Link]:
    device = gpu.parent or gpu
    up = next((link for link in device.links if link.kind is NcclPath.PIX), None)
    if up is not None:
        yield up
        yield next(link for link in up.to.links if link.to is device)


def _fastest(
    system: System,
    known: Mapping[Node, Ways],
    reached: Mapping[tuple[Node, Node], Reach],
    devices: list[Node],
    inter: bool,
) -> Iterator[float]:
    if inter:
        for port in system.nodes[Kind.NET]:
            yield from (known[port][device].gbps for device in devices if device in known[port])
    elif system.rules.device_nodes:
        for to in system.nodes[Kind.GPU]:
            others = (device for device in devices if device is not to.parent and device in known[to])
            yield from (known[to][device].gbps for device in others)
    else:
        yield from (reach.path.gbps for reach in reached.values() if reach.path is not None)


def _width(device: Node) -> float:
    nvlink = sum(link.gbps for link in device.links if link.kind is NcclPath.NVL)
    pcie = [link.gbps for link in device.links if link.kind is NcclPath.PIX]
    return max(nvlink, pcie[-1] if pcie else 0.0)
