"""How each pair of devices is joined, once the graph stands."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import networkx as nx

from topoadvisor.topology import bandwidth, matrix, reconcile
from topoadvisor.topology.inputs import TEXTS, Inputs
from topoadvisor.topology.links import LinkClass
from topoadvisor.topology.model import Disagreement, Pair
from topoadvisor.topology.nvlink import Wiring
from topoadvisor.topology.pcie_tree import Hierarchy, Relation, meet
from topoadvisor.topology.reconcile import Settled


def derive(
    graph: nx.Graph[str],
    hierarchy: Hierarchy,
    given: Inputs,
    relations: Mapping[tuple[str, str], Relation],
    wiring: Wiring,
    counted: Mapping[tuple[str, str], int | None],
    disagreements: list[Disagreement],
) -> dict[tuple[str, str], Pair]:
    """All GPU pairs and GPU–NIC pairs. Adds to `disagreements` where sources differ about one.

    `counted` is the number of NVLinks per GPU pair as the links themselves give it.
    """
    pairs: dict[tuple[str, str], Pair] = {}
    for pair, relation in relations.items():
        a, b = pair
        pcie = _pcie_class(given, pair, relation, disagreements)
        links = _nvlinks(given, pair, counted.get(pair), disagreements) if b in given.gpus else Settled("0", None)
        count = int(links.value) if links.value is not None else None
        through = bool(count) and wiring.through_switch(a, b)
        link_class, origin = pcie.value if count == 0 else None, pcie.origin or ""
        path, gbps = _host_path(graph, hierarchy, given, pair, relation)
        if count:
            link_class, origin = f"NV{count}", links.origin or ""
            path = (a, wiring.switch_on_the_way(a, b), b) if through else (a, b)
            gbps = bandwidth.nvlinks_gbps(count, given.gpus[a], given.gpus[b])
        elif pair in given.printed.c2c:
            link_class, origin = "C2C", matrix.ORIGIN
        pairs[pair] = Pair(
            a=a,
            b=b,
            link_class=link_class,
            pcie_class=pcie.value,
            nvlinks=count,
            through_switch=through,
            gbps=gbps,
            path=path,
            pcie_path=relation.path,
            origin=origin,
            inferred=not count
            and (origin == "inferred" or (origin != matrix.ORIGIN and _on_inferred_root(graph, relation))),
            pcie_origin=pcie.origin or "",
        )
    return pairs


def _pcie_class(given: Inputs, pair: tuple[str, str], relation: Relation, disagreements: list[Disagreement]) -> Settled:
    said = [("nvml", given.ancestors.get(pair)), (matrix.ORIGIN, given.printed.pcie.get(pair))]
    why = "NVML was asked on the machine itself."
    if given.has_tree and given.snapshot.origin in TEXTS:
        # Somebody's copy of a list, whose NUMA nodes may be missing: the driver's own word comes first.
        said.append((given.tree_origin, relation.link_class))
        why = "The driver printed it on the machine itself."
    elif given.has_tree:
        said.insert(0, (given.tree_origin, relation.link_class))
        why = "The kernel's list of PCI devices is what NCCL walks."
    values = [(source, str(value) if value is not None else None) for source, value in said]
    settled = reconcile.settle(f"{pair[0]}-{pair[1]}", "PCIe class", values, why, disagreements)
    if settled.value is None and relation.link_class is not None:
        return Settled(str(relation.link_class), "inferred")
    return settled


def _nvlinks(given: Inputs, pair: tuple[str, str], counted: int | None, disagreements: list[Disagreement]) -> Settled:
    """NVLinks of a GPU pair. A matrix without any NV# may be `topo -mp`, which does not show them."""
    printed = given.printed.nvlinks.get(pair)
    if counted is not None and not any(given.printed.nvlinks.values()):
        printed = None
    said = [(given.link_origin, counted), (matrix.ORIGIN, printed)]
    values = [(source, str(value) if value is not None else None) for source, value in said]
    why = "The state of each link was read one by one."
    return reconcile.settle(f"{pair[0]}-{pair[1]}", "NVLinks", values, why, disagreements)


def _host_path(
    graph: nx.Graph[str], hierarchy: Hierarchy, given: Inputs, pair: tuple[str, str], relation: Relation
) -> tuple[tuple[str, ...], float | None]:
    """The faster of the ways over PCIe and over the GPUs' own links to the CPUs, and what it carries in GB/s."""
    path = relation.path
    if any(_has_own_link(graph, hierarchy, node) for node in pair):
        up, down = (_own_chain(graph, hierarchy, node) for node in pair)
        _, other = meet(up, down)
        if all(graph.has_edge(*edge) for edge in pairwise(other)) and _is_faster(graph, other, path):
            path = other
    return path, bandwidth.bottleneck(graph, path)


def _is_faster(graph: nx.Graph[str], one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether what only the first way runs over carries more: an edge of both, known or not, decides nothing."""
    edges = [{tuple(sorted(edge)) for edge in pairwise(way)} for way in (one, other)]
    own, others = (
        bandwidth.limits_of(graph, [(a, b) for a, b in mine - theirs]) for mine, theirs in (edges, edges[::-1])
    )
    known = [gbps for gbps in own if gbps is not None]
    if not known or len(known) < len(own):
        return False
    return min(known) > min((gbps for gbps in others if gbps is not None), default=0)


def _has_own_link(graph: nx.Graph[str], hierarchy: Hierarchy, node: str) -> bool:
    """A chip-to-chip link or, on POWER machines, NVLinks lead from the device to its NUMA node."""
    return graph.get_edge_data(node, hierarchy.numa(node) or "", {}).get("kind") in ("c2c", "nvlink")


def _own_chain(graph: nx.Graph[str], hierarchy: Hierarchy, node: str) -> tuple[str, ...]:
    """The way up over the device's own link where there is one, else over PCIe."""
    if _has_own_link(graph, hierarchy, node):
        return (node, *hierarchy.chain(hierarchy.numa(node) or ""))
    return hierarchy.chain(node)


def _on_inferred_root(graph: nx.Graph[str], relation: Relation) -> bool:
    """PHB that may be NODE: the root complex on the way is a stand-in for all of its NUMA node."""
    roots = (graph.nodes[node] for node in relation.path if graph.nodes[node]["kind"] == "root")
    return relation.link_class is LinkClass.PHB and any(root["inferred"] for root in roots)
