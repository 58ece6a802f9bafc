"""How each hop between two GPUs runs through the machine, and which directed links it loads."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from topoadvisor.topology.model import Pair, Topology

Transport = Literal["nvlink", "p2p", "staged", "unread"]
"""NVLink; PCIe peer-to-peer; staged through host memory; over PCIe with nobody knowing whether peer-to-peer works."""

Link = tuple[str, str]
"""One direction of an edge: from node id, to node id."""

NVSWITCHES = "nvswitches"
"""Stands for all NVSwitches together: a GPU spreads its traffic over its links to all of them."""

_LEADS_ON = frozenset({"bridge", "root", "numa", "socket"})
_HOST = ("numa", "socket", "root")
"""Where host memory is reached, best first: a matrix alone may show no NUMA node."""

_NEVER_LIMITS = frozenset({"host", "memory"})
"""Kinds of edges that carry what all ports below them carry."""

_NOMINAL = {"nvlink": 20.0, "c2c": 200.0, "pcie": 12.0}
"""GB/s per direction (NVLink: per link) that only rank links at GPUs whose bandwidth is not known."""


@dataclass(frozen=True)
class Route:
    """One hop, source to destination."""

    transport: Transport
    path: tuple[str, ...]
    links: tuple[Link, ...]
    crossings: int
    """How many links between sockets it uses."""


@dataclass(frozen=True)
class Network:
    """All hops that exist, and what each directed link can carry."""

    routes: Mapping[tuple[int, int], Route]
    """By GPU position (not index) in `Topology.gpus`."""
    capacity: Mapping[Link, float]
    """GB/s; infinite for links that never limit on paper, and for `unread` ones."""
    guessed: frozenset[Link]
    """Links at the GPUs whose bandwidth is not known: their capacity only ranks them against each other."""
    assumed: Mapping[Link, str]
    """Other links whose bandwidth is not known, and what they are taken to carry, in words."""
    unread: frozenset[Link]
    """Other links for which there is nothing to assume, taken as not limiting."""


def network(topology: Topology, transports: Mapping[tuple[str, str], str | None]) -> Network:
    """Route every ordered pair of GPUs over what NCCL would use: "P2P", "SHM" or "NET"; None = not determined.

    A pair joined by NVLink uses it unless its transport is SHM or NET. A staged hop goes up to the memory of the
    source's NUMA node, from there to the destination's NUMA node, and down: also between two GPUs of one switch.
    """
    to_host = {gpu: nearest_host(topology, gpu) for gpu in topology.gpus}
    routes: dict[tuple[int, int], Route] = {}
    for i, a in enumerate(topology.gpus):
        for j, b in enumerate(topology.gpus):
            if i == j:
                continue
            route = _route(topology, topology.pair(a, b), a, b, _transport_of(transports, a, b), to_host)
            if route is not None:
                routes[i, j] = route

    return _with_capacities(topology, routes)


def _with_capacities(topology: Topology, routes: Mapping[tuple[int, int], Route]) -> Network:
    gpus = set(topology.gpus)
    capacity: dict[Link, float] = {}
    guessed, unread = set(), set()
    assumed: dict[Link, str] = {}
    slots = [
        _known_gbps(topology, (gpu, node))
        for gpu in topology.gpus
        for node in topology.graph.neighbors(gpu)
        if topology.graph.edges[gpu, node].get("kind") == "pcie"
    ]
    slot = max((gbps for gbps in slots if gbps is not None), default=None)
    for link in sorted({link for route in routes.values() for link in route.links}):
        gbps = _known_gbps(topology, link)
        edge = topology.graph.get_edge_data(*link) or {}
        if gbps is None and not gpus.isdisjoint(link):
            gbps = _nominal_gbps(topology, link)
            guessed.add(link)
        elif gbps is None and edge.get("kind") == "pcie" and slot is not None:
            gbps = slot
            assumed[link] = f"{gbps:g} GB/s, as the GPUs' own links"
        elif gbps is None:
            gbps = math.inf
            unread.add(link)
        capacity[link] = gbps
    return Network(routes, capacity, frozenset(guessed), assumed, frozenset(unread))


def _transport_of(transports: Mapping[tuple[str, str], str | None], a: str, b: str) -> str | None:
    return transports[a, b] if (a, b) in transports else transports.get((b, a))


def _route(
    topology: Topology,
    pair: Pair,
    a: str,
    b: str,
    transport: str | None,
    to_host: Mapping[str, tuple[str, ...]],
) -> Route | None:
    if transport in ("SHM", "NET"):
        up, down = to_host[a], to_host[b]
        if not up or not down:
            return None
        between = _walk(topology, up[-1], lambda node: node == down[-1])
        if not between:
            return None
        return _routed(topology, "staged", up[:-1] + between + down[::-1][1:])
    if pair.nvlinks:
        path = pair.path if pair.path[:1] == (a,) else pair.path[::-1]
        if pair.through_switch:
            return Route("nvlink", path or (a, b), ((a, NVSWITCHES), (NVSWITCHES, b)), 0)
        return Route("nvlink", (a, b), ((a, b),), 0)
    path = pair.path or pair.pcie_path
    path = path if path[:1] == (a,) else path[::-1]
    if not path or pair.nvlinks is None:  # NVLinks that nobody counted may carry it
        return None
    return _routed(topology, "p2p" if transport == "P2P" else "unread", path)


def _routed(topology: Topology, transport: Transport, path: tuple[str, ...]) -> Route:
    links = tuple(itertools.pairwise(path))
    crossings = sum((topology.graph.get_edge_data(*link) or {}).get("kind") == "inter-socket" for link in links)
    return Route(transport, path, links, crossings)


def nearest_host(topology: Topology, gpu: str) -> tuple[str, ...]:
    """The way from a GPU to its NUMA node, else socket, else root complex; empty when it has none."""
    for kind in _HOST:
        ends = {node for node, attributes in topology.graph.nodes.items() if attributes.get("kind") == kind}
        if path := _walk(topology, gpu, ends.__contains__):
            return path
    return ()


def _walk(topology: Topology, start: str, arrived: Callable[[str], bool]) -> tuple[str, ...]:
    """The shortest way that passes no GPU, NIC or NVSwitch; the first in name order among equals."""
    before: dict[str, str] = {start: start}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if arrived(node):
            way = [node]
            while way[-1] != start:
                way.append(before[way[-1]])
            return tuple(way[::-1])
        for neighbour in sorted(topology.graph.neighbors(node)):
            if neighbour not in before and topology.graph.nodes[neighbour].get("kind") in _LEADS_ON:
                before[neighbour] = node
                queue.append(neighbour)
    return ()


def _known_gbps(topology: Topology, link: Link) -> float | None:
    graph = topology.graph
    if NVSWITCHES not in link:
        edge = graph.get_edge_data(*link) or {}
        return math.inf if edge.get("kind") in _NEVER_LIMITS or edge.get("internal") else _positive(edge.get("gbps"))
    gpu = _gpu_of(link)
    each = [
        _positive(graph.edges[gpu, node].get("gbps"))
        for node in graph.neighbors(gpu)
        if graph.nodes[node].get("kind") == "nvswitch"
    ]
    known = [gbps for gbps in each if gbps is not None]
    return sum(known) if known and len(known) == len(each) else None


def _gpu_of(link: Link) -> str:
    """The GPU of a link to or from the NVSwitches."""
    return link[1] if link[0] == NVSWITCHES else link[0]


def _positive(gbps: object) -> float | None:
    return float(gbps) if isinstance(gbps, (int, float)) and gbps > 0 else None


def _nominal_gbps(topology: Topology, link: Link) -> float:
    if NVSWITCHES in link:
        gpu = _gpu_of(link)
        most = max((topology.pair(gpu, other).nvlinks or 0 for other in topology.gpus if other != gpu), default=0)
        return _NOMINAL["nvlink"] * max(most, 1)
    kind = (topology.graph.get_edge_data(*link) or {}).get("kind", "nvlink")
    if kind == "nvlink":
        return _NOMINAL["nvlink"] * max(topology.pair(*link).nvlinks or 1, 1)
    return _NOMINAL.get(str(kind), _NOMINAL["pcie"])
