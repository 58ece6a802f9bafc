"""NUMA nodes and sockets above the root complexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import networkx as nx

from topoadvisor.snapshot import Cpu, Host, NumaNode
from topoadvisor.topology import bandwidth
from topoadvisor.topology.pcie_tree import Hierarchy, add_node

_SAME_SOCKET = 20
"""Firmware distances below this are within a socket: 10 is local, a split socket shows 11 to 16, another 20 or more."""


def grow(
    graph: nx.Graph[str],
    hierarchy: Hierarchy,
    host: Host,
    homes: Mapping[str, int | None],
    inferred: frozenset[int] = frozenset(),
    *,
    origin: str,
) -> list[str]:
    """Add NUMA nodes and sockets, and hang each node of `homes` below the NUMA node it names.

    None as a home is completed where the host has no more than one NUMA node, or shows a single root complex;
    otherwise that node stays without one.
    `inferred` are NUMA nodes that nobody printed. Returns notes on what could not be placed.
    """
    listed = {node.id: node for node in host.numa_nodes or () if node.id >= 0 and node.cpus != ""}
    ids = sorted({*listed, *(home for home in homes.values() if home is not None)})
    alone = len(homes) == 1 and all(hierarchy.kind[node] == "root" for node in homes)
    if not ids and (alone or (homes and host.numa_nodes is not None)):
        ids, inferred = [0], frozenset({0})
    only = ids[0] if len(ids) == 1 and (alone or host.numa_nodes is not None) else None
    for id in ids:
        cpus = listed[id].cpus if id in listed else None
        add_node(graph, hierarchy, f"numa:{id}", "numa", f"NUMA {id}", id=id, cpus=cpus, inferred=id in inferred)
    for node, home in homes.items():
        numa = home if home is not None else only
        if numa is None:
            continue
        hierarchy.parent[node] = f"numa:{numa}"
        facts: dict[str, object] = {"origin": origin, "inferred": home is None or numa in inferred, "gbps": None}
        if hierarchy.kind[node] == "root":
            graph.add_edge(node, f"numa:{numa}", kind="host", **facts)
        else:
            unknown = {"gen": None, "width": None, "internal": False}
            graph.add_edge(node, f"numa:{numa}", kind="pcie", **(facts | unknown | {"inferred": True}))
    lost = ", ".join(node for node, home in homes.items() if home is None and only is None)
    notes = [f"The NUMA node of {lost} is not known."] if lost else []
    return notes + _add_sockets(graph, hierarchy, host, ids, origin)


def _add_sockets(graph: nx.Graph[str], hierarchy: Hierarchy, host: Host, ids: Sequence[int], origin: str) -> list[str]:
    model = bandwidth.cpu_of(host.cpu)
    between = {
        "kind": "inter-socket",
        "gbps": model.inter_socket_gbps if model else None,
        "nccl_gbps": model.nccl_gbps if model else None,
        "origin": "catalogue",
    }
    sockets, inferred = _sockets(host, ids)
    if sockets is None:
        for a, b in combinations(ids, 2):
            graph.add_edge(f"numa:{a}", f"numa:{b}", inferred=True, **between)
        return ["Which NUMA nodes share a socket is not known."] if len(ids) > 1 else []
    for id, socket in sockets.items():
        above = f"socket:{socket}"
        add_node(graph, hierarchy, above, "socket", f"Socket {socket}", inferred=inferred)
        hierarchy.parent[f"numa:{id}"] = above
        graph.add_edge(f"numa:{id}", above, kind="memory", gbps=None, origin=origin, inferred=inferred)
    for a, b in combinations(sorted(set(sockets.values())), 2):
        graph.add_edge(f"socket:{a}", f"socket:{b}", inferred=inferred, **between)
    return []


def _sockets(host: Host, ids: Sequence[int]) -> tuple[dict[int, int] | None, bool]:
    """NUMA node → socket, and whether that was reasoned; None when it cannot be told."""
    count = (host.cpu.sockets or None) if host.cpu is not None else None
    if not ids or (count is not None and len(ids) < count):
        return None, True
    if count == 1:
        return dict.fromkeys(ids, 0), False
    if count == len(ids):
        return {id: socket for socket, id in enumerate(ids)}, False
    if len(ids) == 1:
        return {ids[0]: 0}, True
    if (near := _by_distance(host.numa_nodes or [], ids)) is not None and count in (None, len(set(near.values()))):
        return near, count is None
    if count is not None:
        size, rest = divmod(len(ids), count)
        return (None if rest else {id: place // size for place, id in enumerate(ids)}), True
    if len(ids) == 2 or _one_node_per_socket(host.cpu):
        return {id: socket for socket, id in enumerate(ids)}, True
    return None, True


def _by_distance(nodes: Sequence[NumaNode], ids: Sequence[int]) -> dict[int, int] | None:
    """Sockets as groups of NUMA nodes near each other; None without a full distance table."""
    distances = {node.id: node.distances or [] for node in nodes if node.id >= 0}
    online = sorted(distances)
    if any(len(distances.get(id, [])) != len(online) for id in ids) or not online:
        return None
    sockets: dict[int, int] = {}
    for id in ids:
        row = distances[id]
        near = [other for other in sockets if row[online.index(other)] < _SAME_SOCKET]
        sockets[id] = sockets[near[0]] if near else len(set(sockets.values()))
    return sockets


def _one_node_per_socket(cpu: Cpu | None) -> bool:
    """Grace and POWER have one NUMA node with CPUs per socket; x86 may split a socket."""
    return cpu is not None and cpu.architecture in ("aarch64", "arm64", "ppc64le")
