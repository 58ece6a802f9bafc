from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pydot
import pytest

from topoadvisor.render import dot
from topoadvisor.render.drawing import compose
from topoadvisor.render.schematic import Schematic
from topoadvisor.snapshot import Gpu, Nic, Snapshot

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pydot")


class Read:
    """DOT source as a parser that is not ours understands it."""

    def __init__(self, schematic: Schematic) -> None:
        (self.graph,) = pydot.graph_from_dot_data(dot.source(compose(schematic)))
        (defaults,) = self.graph.get_node("graph")
        self.layout = defaults.get("layout")
        nodes = {node.get_name(): node.get_attributes() for node in self._all("get_nodes")}
        self.nodes = {name: attributes for name, attributes in nodes.items() if name not in ("graph", "node", "edge")}
        self.edges = [((e.get_source(), e.get_destination()), e.get_attributes()) for e in self._all("get_edges")]

    def _all(self, what: str) -> Iterator[Any]:
        waiting = [self.graph]
        while waiting:
            graph = waiting.pop()
            waiting += graph.get_subgraphs()
            yield from getattr(graph, what)()


@pytest.mark.parametrize("name", ["2xh200-kvm", "gh200"])
def test_devices_are_nodes_and_links_edges_with_positions(schematic: Callable[[str], Schematic], name: str) -> None:
    drawn = schematic(name)
    graph = Read(drawn)
    devices = [part for top in drawn.parts for part in top.walk() if part.kind in ("gpu", "nic")]
    for part in devices:
        assert sum(f">{part.title}<" in node.get("label", "") for node in graph.nodes.values()) == 1
    assert graph.layout == "nop2"
    assert all("pos" in node for node in graph.nodes.values())
    assert all("pos" in attributes for _, attributes in graph.edges)
    nvlinks = [ends for ends, attributes in graph.edges if ">NV" in attributes.get("label", "")]
    assert len(nvlinks) == sum(wire.kind == "nvlink" for wire in drawn.wires)


def test_the_same_machine_gives_the_same_bytes(schematic: Callable[[str], Schematic], any_fixture: str) -> None:
    assert dot.source(compose(schematic(any_fixture))) == dot.source(compose(schematic(any_fixture)))


def test_two_nodes_whose_names_look_alike_stay_two(plain: Callable[..., Schematic]) -> None:
    nics = [Nic(name=name, rdma=True, address=f"0000:0{i}:00.0") for i, name in enumerate(("a-b", "a_b", "a b"))]
    graph = Read(plain(Snapshot(gpus=[Gpu(index=0)], nics=nics)))
    assert len([name for name in graph.nodes if name.startswith("nic_a_b")]) == 3


def test_names_cannot_add_nodes_edges_or_attributes(plain: Callable[..., Schematic], hostile: Snapshot) -> None:
    tame = Snapshot(
        gpus=[Gpu(index=gpu.index, name="A", address=gpu.address, numa_node=0) for gpu in hostile.gpus],
        nics=[Nic(name="n", rdma=True, address="0000:03:00.0", numa_node=0)],
        host=hostile.host,
    )
    attack = replace(plain(hostile), title='">]; evil [label=<x>]; }')
    drawn, wanted = Read(attack), Read(plain(tame))
    assert len(drawn.nodes) == len(wanted.nodes)
    assert len(drawn.edges) == len(wanted.edges)
    assert "evil" not in drawn.nodes
