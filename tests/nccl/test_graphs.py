from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from topoadvisor.nccl import graphs, host, rates, system, topo_xml
from topoadvisor.nccl.board import Board
from topoadvisor.nccl.host import Choices
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.paths import Given
from topoadvisor.nccl.trial import Graph, Pattern

INTEL = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'
AMD = 'arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1"'
GEN4 = 'link_speed="16.0 GT/s PCIe" link_width="16"'
SWITCH = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'


def gpu(index: int, inside: str = "", sm: int = 80) -> str:
    return (
        f'<pci busid="0000:{index + 1:02x}:00.0" class="0x030200" {GEN4}>'
        f'<gpu dev="{index}" sm="{sm}" rank="{index}" gdr="1">{inside}</gpu></pci>'
    )


def nic(number: int, mbit: int = 200_000) -> str:
    return (
        f'<pci busid="0000:{number + 64:02x}:00.0" class="0x020700" {GEN4}><nic>'
        f'<net name="mlx5_{number}" dev="{number}" speed="{mbit}" port="1" guid="0x{number + 1}" gdr="1"/></nic></pci>'
    )


def switch(bus: int, inside: str) -> str:
    return f'<pci busid="0000:{bus:02x}:00.0" class="0x060400" {GEN4}>{inside}</pci>'


def cpu(numa: int, inside: str, kind: str = AMD) -> str:
    return f'<cpu numaid="{numa}" {kind}>{inside}</cpu>'


def board(*cpus: str, version: str = "2.30.7", inter: bool = False) -> Board:
    root = topo_xml.parse(f'<system version="1">{"".join(cpus)}</system>', file="x")

    def build() -> system.System:
        return system.build(root, rates.rules(version))

    given = Given((NcclPath.PXB,))
    seen = host.look(build(), given, Choices(), version)
    assert host.why_no_search(seen) is None
    return host.boards(build, given, Choices(), seen, inter=inter)[0]


def both(of: Board, version: str = "2.30.7", cross_nic: int = 2) -> tuple[Graph, Graph]:
    release = graphs.rules(version)
    rings = graphs.rings(of, release, cross_nic)
    return rings, graphs.trees(of, release, rings, cross_nic)


def summary(graph: Graph) -> tuple[int, float, str]:
    return graph.channels, graph.speed / 1000, graph.type_intra.name


@pytest.mark.parametrize(
    ("sm", "version", "ring", "tree"),
    [
        (90, "2.30.7", (12, 30, "NVL"), (12, 30, "NVL")),
        (90, "2.20.5", (12, 30, "NVL"), (12, 30, "NVL")),
        (100, "2.30.7", (16, 45, "NVL"), (16, 45, "NVL")),
        (100, "2.28.9", (16, 45, "NVL"), (16, 40, "NVL")),
    ],
)
def test_boards_with_switches(
    sm: int, version: str, ring: tuple[int, float, str], tree: tuple[int, float, str]
) -> None:
    """Behind NVSwitches a ring goes from GPU to neighbour. 45 GB/s trees came with 2.29.2."""
    machine = board(cpu(0, "".join(gpu(index, SWITCH, sm) for index in range(8)), INTEL), version=version)
    found, trees = both(machine, version)
    assert (summary(found), summary(trees)) == (ring, tree)
    steps = {(b - a) % 8 for order in found.orders for a, b in pairwise(order)}
    assert steps in ({1}, {7}, {1, 7})


def test_two_sockets_without_nvlink() -> None:
    found, trees = both(board(cpu(0, gpu(0) + gpu(1), INTEL), cpu(1, gpu(2) + gpu(3), INTEL)))
    assert summary(found) == (1, 20, "SYS")
    assert trees.channels == 1
    order = found.orders[0]
    crossings = sum((a < 2) != (b < 2) for a, b in zip(order, order[1:] + order[:1], strict=True))
    assert crossings == 2


def test_intel_takes_more_of_a_pcie_link() -> None:
    on_amd, _ = both(board(cpu(0, gpu(0) + gpu(1) + gpu(2))))
    on_intel, _ = both(board(cpu(0, gpu(0) + gpu(1) + gpu(2), INTEL)))
    assert summary(on_amd)[:2] == (2, 12)
    assert summary(on_intel)[:2] == (1, 20)


def test_rings_over_the_network_lead_through_the_near_ports() -> None:
    halves = [switch(32 + n, gpu(2 * n) + gpu(2 * n + 1) + nic(n)) for n in range(2)]
    found, trees = both(board(cpu(0, "".join(halves), INTEL), inter=True))
    assert found.channels >= 1
    assert trees.channels == found.channels
    near = {0: {0, 1}, 1: {2, 3}}
    for order, (entry, leave) in zip(found.orders, found.ports, strict=True):
        assert sorted(order) == [0, 1, 2, 3]
        assert order[0] in near[entry]
        assert found.cross_nic or entry == leave


@pytest.mark.parametrize("cross_nic", [0, 1, 2])
def test_cross_nic(cross_nic: int) -> None:
    halves = [switch(32 + n, gpu(n, SWITCH, 90) + nic(n)) for n in range(4)]
    found, _ = both(board(cpu(0, "".join(halves), INTEL), inter=True), cross_nic=cross_nic)
    if cross_nic == 0:
        assert all(entry == leave for entry, leave in found.ports)
    if found.cross_nic == 2:
        pairs = list(zip(found.ports[::2], found.ports[1::2], strict=False))
        assert all(one == other[::-1] for one, other in pairs)


def test_a_gpu_that_cannot_be_reached_gives_the_simple_order() -> None:
    machine = board(cpu(0, gpu(0) + gpu(1)))
    found, _ = both(replace(machine, capacities=(0,) * len(machine.capacities)))
    assert (found.channels, found.speed, found.orders) == (1, 100, ((0, 1),))


def test_the_same_answer_every_time() -> None:
    machine = board(cpu(0, "".join(gpu(index) for index in range(5)), INTEL))
    assert both(machine) == both(machine)


def test_rules_by_release() -> None:
    assert graphs.rules("2.24.3").most == 16
    assert graphs.rules("2.25.1").most == 32
    assert 11_000 not in dict(graphs.rules("2.20.5").intra)[90]
    assert 11_000 in dict(graphs.rules("2.21.5").intra)[90]
    assert 45_000 not in dict(graphs.rules("2.28.9").intra)[100]
    assert 100 not in dict(graphs.rules("2.24.3").intra)
    with pytest.raises(ValueError, match="before 2"):
        graphs.rules("2.18.6")


def test_trees_are_chains_of_two_patterns() -> None:
    _, trees = both(board(cpu(0, "".join(gpu(index, SWITCH, 90) for index in range(8)), INTEL)))
    assert trees.pattern in (Pattern.BALANCED_TREE, Pattern.TREE)
    assert all(sorted(order) == list(range(8)) for order in trees.orders)
