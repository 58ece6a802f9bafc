from __future__ import annotations

from collections.abc import Mapping

import networkx as nx
import pytest

from topoadvisor.snapshot import Cpu, Host, NumaNode
from topoadvisor.topology import host
from topoadvisor.topology.pcie_tree import Hierarchy, add_node


def grown(described: Host, homes: Mapping[str, int | None]) -> tuple[Hierarchy, nx.Graph[str], list[str]]:
    graph: nx.Graph[str] = nx.Graph()
    hierarchy = Hierarchy()
    for root in homes:
        add_node(graph, hierarchy, root, "root", root)
    notes = host.grow(graph, hierarchy, described, homes, origin="sysfs")
    return hierarchy, graph, notes


def sockets(described: Host, ids: range) -> list[str | None]:
    hierarchy, _, _ = grown(described, {f"root:{id}": id for id in ids})
    return [hierarchy.parent.get(f"numa:{id}") for id in ids]


TWO, FOUR = range(2), range(4)
NEAR_IN_TURNS = [[10, 32, 12, 32], [32, 10, 32, 12], [12, 32, 10, 32], [32, 12, 32, 10]]


@pytest.mark.parametrize(
    ("cpu", "distances", "ids", "expected"),
    [
        (Cpu(sockets=2), None, TWO, [0, 1]),
        (Cpu(sockets=1), None, TWO, [0, 0]),
        (Cpu(sockets=2), None, FOUR, [0, 0, 1, 1]),
        (Cpu(sockets=2), NEAR_IN_TURNS, FOUR, [0, 1, 0, 1]),
        (None, NEAR_IN_TURNS, FOUR, [0, 1, 0, 1]),
        (None, None, TWO, [0, 1]),
        (None, None, FOUR, None),
        (Cpu(architecture="aarch64"), None, FOUR, [0, 1, 2, 3]),
        (Cpu(sockets=3), None, FOUR, None),
        (Cpu(sockets=2), None, range(1), None),
    ],
)
def test_numa_nodes_are_put_into_sockets(
    cpu: Cpu | None, distances: list[list[int]] | None, ids: range, expected: list[int] | None
) -> None:
    nodes = [NumaNode(id=id, cpus=str(id), distances=distances[id] if distances else None) for id in ids]
    wanted = [None] * len(ids) if expected is None else [f"socket:{number}" for number in expected]
    assert sockets(Host(cpu=cpu, numa_nodes=nodes), ids) == wanted


def test_nodes_of_gpu_memory_are_not_shown() -> None:
    nodes = [
        NumaNode(id=0, cpus="0-71"),
        NumaNode(id=1, cpus="72-143"),
        NumaNode(id=2, cpus=""),
        NumaNode(id=10, cpus=""),
    ]
    _, graph, _ = grown(Host(numa_nodes=nodes), {"root:a": 0})
    assert sorted(node for node in graph if node.startswith("numa:")) == ["numa:0", "numa:1"]


def test_a_root_complex_without_a_node_joins_the_only_one() -> None:
    hierarchy, graph, notes = grown(Host(numa_nodes=[NumaNode(id=0, cpus="0-31")]), {"root:a": None})
    assert hierarchy.parent["root:a"] == "numa:0"
    assert graph.edges["root:a", "numa:0"]["inferred"]
    assert notes == []


def test_a_root_complex_without_a_node_joins_none_of_several() -> None:
    nodes = [NumaNode(id=0, cpus="0"), NumaNode(id=1, cpus="1")]
    hierarchy, _, notes = grown(Host(numa_nodes=nodes), {"root:a": None, "root:b": 1})
    assert "root:a" not in hierarchy.parent
    assert "root:a" in notes[0]


def test_links_between_sockets_carry_what_the_catalogue_says() -> None:
    cpu = Cpu(vendor="AMD", family=25, model=17, sockets=2)
    nodes = [NumaNode(id=id, cpus=str(id)) for id in TWO]
    _, graph, _ = grown(Host(cpu=cpu, numa_nodes=nodes), {"root:a": 0, "root:b": 1})
    edge = graph.edges["socket:0", "socket:1"]
    assert (edge["kind"], edge["gbps"], edge["nccl_gbps"], edge["origin"]) == ("inter-socket", 192.0, 16.0, "catalogue")
    _, graph, _ = grown(Host(cpu=Cpu(sockets=2), numa_nodes=nodes), {"root:a": 0, "root:b": 1})
    assert graph.edges["socket:0", "socket:1"]["gbps"] is None
