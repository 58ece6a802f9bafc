"""Ring plans of machines whose answer is known."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import networkx as nx
import pytest

from topoadvisor.advice import Plan
from topoadvisor.plan.rings import plan
from topoadvisor.topology.model import Pair, Topology

DGX1V = """
0 1 1 2 2 0 0 0
1 0 2 1 0 2 0 0
1 2 0 2 0 0 1 0
2 1 2 0 0 0 0 1
2 0 0 0 0 1 1 2
0 2 0 0 1 0 2 1
0 0 1 0 1 2 0 2
0 0 0 1 2 1 2 0
"""


class Machine:
    """A topology put together by hand: GPUs below switches, root complexes, NUMA nodes and sockets."""

    def __init__(
        self, switches: list[int], *, numa: list[int], gbps: float | None = 25.0, uplink: float = 25.0
    ) -> None:
        """`switches[i]`: PCIe switch of GPU i; `numa[s]`: NUMA node of switch s, one per socket."""
        self.graph: nx.Graph[str] = nx.Graph()
        self.pairs: dict[tuple[str, str], Pair] = {}
        self.n = len(switches)
        for switch, node in enumerate(numa):
            for id, kind in ((f"switch:{switch}", "bridge"), (f"root:{switch}", "root"), (f"numa:{node}", "numa")):
                self.graph.add_node(id, kind=kind, label=id)
            self.graph.add_node(f"socket:{node}", kind="socket", label=f"socket {node}")
            self.edge(f"switch:{switch}", f"root:{switch}", "pcie", uplink)
            self.edge(f"root:{switch}", f"numa:{node}", "host", None)
            self.edge(f"numa:{node}", f"socket:{node}", "memory", None)
        for gpu, switch in enumerate(switches):
            self.graph.add_node(f"gpu:{gpu}", kind="gpu", label=f"GPU{gpu}")
            self.edge(f"gpu:{gpu}", f"switch:{switch}", "pcie", gbps, width=16)
        if len(set(numa)) > 1:
            self.edge("socket:0", "socket:1", "inter-socket", 20.0)
        for a, b in itertools.combinations(range(self.n), 2):
            path = tuple(nx.shortest_path(self.graph, f"gpu:{a}", f"gpu:{b}"))
            across = numa[switches[a]] != numa[switches[b]]
            name = "SYS" if across else "PIX" if switches[a] == switches[b] else "NODE"
            self.pair(a, b, name, name, 0, path, path)

    def edge(self, a: str, b: str, kind: str, gbps: float | None, **more: object) -> None:
        self.graph.add_edge(a, b, kind=kind, gbps=gbps, origin="test", inferred=False, **more)

    def pair(
        self,
        a: int,
        b: int,
        link_class: str,
        pcie_class: str,
        nvlinks: int | None,
        path: tuple[str, ...],
        pcie_path: tuple[str, ...],
        through_switch: bool = False,
    ) -> None:
        key = (f"gpu:{a}", f"gpu:{b}")
        self.pairs[key] = Pair(
            *key,
            link_class=link_class,
            pcie_class=pcie_class,
            nvlinks=nvlinks,
            through_switch=through_switch,
            gbps=None,
            path=path,
            pcie_path=pcie_path,
            origin="test",
            inferred=False,
        )

    def nvlink(self, a: int, b: int, count: int, each: float | None) -> None:
        self.edge(f"gpu:{a}", f"gpu:{b}", "nvlink", None if each is None else count * each, count=count)
        old = self.pairs[f"gpu:{a}", f"gpu:{b}"]
        ends = (f"gpu:{a}", f"gpu:{b}")
        self.pair(a, b, f"NV{count}", str(old.pcie_class), count, ends, old.pcie_path)

    def nvswitches(self, how_many: int, links_each: int, each: float) -> None:
        for switch in range(how_many):
            self.graph.add_node(f"nvswitch:{switch}", kind="nvswitch", label=f"NVSwitch {switch}")
            for gpu in range(self.n):
                self.edge(f"gpu:{gpu}", f"nvswitch:{switch}", "nvlink", links_each * each, count=links_each)
        count = how_many * links_each
        for (a, b), old in list(self.pairs.items()):
            path = (a, "nvswitch:0", b)
            self.pair(int(a[4:]), int(b[4:]), f"NV{count}", str(old.pcie_class), count, path, old.pcie_path, True)

    def plan(self, transports: Mapping[tuple[str, str], str | None] | str | None = "P2P") -> Plan:
        if transports is None or isinstance(transports, str):
            transports = dict.fromkeys(self.pairs, transports)
        found = plan(Topology(self.graph, tuple(f"gpu:{i}" for i in range(self.n)), (), self.pairs), transports)
        assert found is not None
        return found


def dual_socket(n: int, **more: float | None) -> Machine:
    """n GPUs, a switch per socket."""
    return Machine([0 if i < n // 2 else 1 for i in range(n)], numa=[0, 1], **more)  # type: ignore[arg-type]


def dgx1v(each: float | None = 25.0) -> Machine:
    machine = Machine([0, 0, 1, 1, 2, 2, 3, 3], numa=[0, 0, 1, 1], gbps=12.0, uplink=12.0)
    for a, row in enumerate(DGX1V.split("\n")[1:-1]):
        for b, count in enumerate(map(int, row.split())):
            if a < b and count:
                machine.nvlink(a, b, count, each)
    return machine


def test_cube_mesh_uses_all_six_links_of_each_gpu() -> None:
    found = dgx1v().plan()
    assert [ring.gbps for ring in found.rings] == [50.0, 50.0, 25.0, 25.0]
    assert found.rings[0].order == [0, 3, 2, 1, 5, 6, 7, 4]
    assert found.rings[1].order == [0, 4, 7, 6, 5, 1, 2, 3]
    assert (found.total_gbps, found.bound_gbps, found.optimal) == (150.0, 150.0, True)
    assert found.transport == "NVLink"
    assert found.rings[0].bottleneck.startswith("NVLink from GPU")
    assert found.notes == [
        "No set of rings over NVLink can pass 150 GB/s: no more can go from GPU0 to the others.",
        "Hops over PCIe beside NVLink may add to that (`topoadvisor rings`).",
    ]


def test_nvswitch_machine_has_one_ring_in_index_order() -> None:
    machine = dual_socket(8)
    machine.nvswitches(4, 3, 25.0)
    found = machine.plan()
    assert [ring.order for ring in found.rings] == [list(range(8))]
    assert (found.total_gbps, found.bound_gbps, found.optimal) == (300.0, 300.0, True)
    assert found.rings[0].hops[7].path == ["gpu:7", "nvswitch:0", "gpu:0"]
    assert found.rings[0].bottleneck.endswith("NVLinks")


def test_sixteen_gpus_on_nvswitches_are_proven_by_the_bound() -> None:
    machine = Machine([i // 4 for i in range(16)], numa=[0, 0, 1, 1])
    machine.nvswitches(6, 1, 25.0)
    found = machine.plan()
    assert [ring.order for ring in found.rings] == [list(range(16))]
    assert found.optimal


def test_bridged_pairs_are_limited_by_pcie_and_the_socket() -> None:
    machine = dual_socket(4)
    machine.nvlink(0, 1, 4, 14.0625)
    machine.nvlink(2, 3, 4, 14.0625)
    found = machine.plan()
    assert found.rings[0].order == [0, 1, 2, 3]
    assert found.rings[0].gbps == 20.0
    assert found.rings[0].bottleneck == "the link from socket 0 to socket 1"
    assert [hop.link_class for hop in found.rings[0].hops] == ["NV4", "SYS", "NV4", "SYS"]
    assert (found.total_gbps, found.optimal) == (20.0, True)
    assert found.transport == "NVLink and PCIe peer-to-peer"


def test_peer_to_peer_ring_crosses_each_switch_once() -> None:
    found = Machine([0, 1, 0, 1], numa=[0, 0]).plan()
    assert found.rings[0].order == [0, 1, 3, 2]
    assert found.rings[0].gbps == 25.0
    assert found.optimal


def test_without_peer_to_peer_every_hop_goes_through_host_memory() -> None:
    found = dual_socket(8).plan("SHM")
    ring = found.rings[0]
    assert ring.gbps == 6.25
    assert ring.bottleneck.endswith(", which 4 hops share")
    assert ring.hops[0].path == ["gpu:0", "switch:0", "root:0", "numa:0", "root:0", "switch:0", "gpu:1"]
    assert ring.order == list(range(8))
    assert found.transport == "staged through host memory"
    assert found.optimal


def test_without_peer_to_peer_the_nearest_gpus_are_not_the_fastest() -> None:
    def total(switches: list[int]) -> float:
        return Machine(switches, numa=[0, 0]).plan("SHM").total_gbps or 0

    assert total([0, 0]) == 12.5
    assert total([0, 1]) == 25.0


def test_a_narrow_link_is_named_with_its_width() -> None:
    machine = dual_socket(4)
    machine.graph.edges["gpu:3", "switch:1"].update(gbps=6.0, width=8)
    found = machine.plan()
    assert found.rings[0].bottleneck == "GPU3's x8 PCIe link"
    assert found.rings[0].gbps == 6.0


def test_disabled_nvlink_is_not_used() -> None:
    machine = dual_socket(2)
    machine.nvlink(0, 1, 12, 25.0)
    assert machine.plan("P2P").total_gbps == 300.0
    staged = machine.plan("SHM")
    assert staged.transport == "staged through host memory"
    assert staged.total_gbps == 20.0


def test_degraded_nvlink_loses_to_faster_pcie() -> None:
    machine = Machine([0, 0, 0], numa=[0], gbps=50.0)
    machine.nvlink(0, 1, 1, 25.0)
    machine.nvlink(1, 2, 1, 25.0)
    machine.nvlink(0, 2, 4, 25.0)
    found = machine.plan()
    assert found.rings[0].gbps == 25.0
    assert found.transport == "NVLink"

    machine = Machine([0, 0, 0, 0], numa=[0], gbps=50.0)
    for a, b in ((0, 1), (1, 2), (2, 3)):
        machine.nvlink(a, b, 4, 25.0)
    machine.nvlink(0, 3, 1, 25.0)
    found = machine.plan()
    assert found.rings[0].gbps == 50.0
    assert [0, 3] not in [sorted(pair) for pair in itertools.pairwise([*found.rings[0].order, found.rings[0].order[0]])]


def test_unknown_bandwidth_orders_by_kind_of_link_and_gives_no_numbers() -> None:
    found = dgx1v(each=None).plan()
    assert found.rings[0].order == [0, 3, 2, 1, 5, 6, 7, 4]
    assert {ring.gbps for ring in found.rings} == {None}
    assert (found.total_gbps, found.bound_gbps, found.optimal) == (None, None, False)
    assert {hop.gbps for ring in found.rings for hop in ring.hops} == {None}
    assert "unknown" in found.notes[0]


def test_unknown_links_between_sockets_are_said() -> None:
    machine = dual_socket(4)
    machine.graph.edges["socket:0", "socket:1"]["gbps"] = None
    found = machine.plan()
    assert found.total_gbps == 25.0
    assert not found.optimal
    assert "Bandwidth not known, not counted: socket 0 – socket 1." in found.notes
    machine.graph.edges["socket:0", "socket:1"]["nccl_gbps"] = 16.0
    assert machine.plan() == found  # NCCL's placeholder is no bandwidth


def test_unknown_uplink_is_taken_to_be_as_wide_as_a_gpus_link_and_said() -> None:
    machine = dual_socket(4)
    machine.graph.edges["switch:1", "root:1"]["gbps"] = None
    found = machine.plan("SHM")
    assert found.total_gbps == 12.5
    assert any("taken as 25 GB/s, as the GPUs' own links: root:1 – switch:1" in note for note in found.notes)


def test_unknown_transport_is_said() -> None:
    assert "not known" in dual_socket(4).plan(None).transport


def test_no_plan_below_two_gpus() -> None:
    machine = Machine([0], numa=[0])
    assert plan(Topology(machine.graph, ("gpu:0",), (), {}), {}) is None
    assert plan(Topology(nx.Graph(), (), (), {}), {}) is None


def test_pairs_that_nobody_knows_make_no_ring() -> None:
    machine = dual_socket(2)
    machine.pair(0, 1, "SYS", "SYS", 0, (), ())
    found = machine.plan()
    assert found.rings == []
    assert found.total_gbps is None
    assert found.notes[0].startswith("No ring")


def test_ten_gpus_on_pcie_are_not_called_proven() -> None:
    machine = Machine([0] * 3 + [1] * 4 + [0] * 3, numa=[0, 1], uplink=10.0)
    found = machine.plan("SHM")
    assert sorted(found.rings[0].order) == list(range(10))
    if not found.optimal:
        assert any(note.startswith("Not proven best") for note in found.notes)


@pytest.mark.parametrize("transport", ["P2P", "SHM", "NET", None])
def test_same_machine_same_plan(transport: str | None) -> None:
    assert dual_socket(8).plan(transport) == dual_socket(8).plan(transport)


def test_a_pair_whose_nvlinks_nobody_counted_is_not_taken_for_pcie() -> None:
    machine = dual_socket(4)
    for (a, b), pair in machine.pairs.items():
        machine.pairs[a, b] = dataclasses.replace(pair, nvlinks=None)
    found = machine.plan()
    assert found.rings == []
    assert "not known which way their traffic runs" in found.notes[0]
