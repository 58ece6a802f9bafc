from __future__ import annotations

import networkx as nx
import pytest

from topoadvisor.snapshot import Gpu, NvLink, PciDevice, PcieLink
from topoadvisor.topology import bandwidth


@pytest.mark.parametrize(
    ("gpu", "gbps"),
    [
        (Gpu(index=0, name="NVIDIA GeForce RTX 3090"), 14.0625),
        (Gpu(index=0, compute_capability="8.6"), 14.0625),
        (Gpu(index=0, compute_capability="9.0"), 25.0),
        (Gpu(index=0, nvlinks=[NvLink(link=0, active=True, raw_mbps=26562, generation="4.0")]), 25.0),
        (Gpu(index=0, nvlinks=[NvLink(link=0, active=True, raw_mbps=14062, generation="3.0")]), 14.0625),
        (Gpu(index=0, nvlinks=[NvLink(link=0, active=True, generation="5.0")]), 50.0),
        (Gpu(index=0, nvlinks=[NvLink(link=0, active=False, generation="5.0")]), None),
        (Gpu(index=0, pci_device="0x2901"), 50.0),
        (Gpu(index=0), None),
    ],
)
def test_payload_of_one_nvlink(gpu: Gpu, gbps: float | None) -> None:
    assert bandwidth.nvlink_gbps(gpu) == gbps


def test_the_slower_kind_of_nvlink_decides() -> None:
    fast, slow = Gpu(index=0, name="NVIDIA A100-PCIE-40GB"), Gpu(index=1, name="NVIDIA RTX A6000")
    assert bandwidth.nvlinks_gbps(4, fast, slow) == 56.25
    assert bandwidth.nvlinks_gbps(4, fast, Gpu(index=1)) is None


def device(**facts: object) -> PciDevice:
    return PciDevice(address="0000:01:00.0", **facts)  # type: ignore[arg-type]


def test_both_ends_of_a_pcie_link_must_reach_its_generation() -> None:
    card = device(max_link_speed_gts=32.0, link_speed_gts=2.5, link_width=16)
    assert bandwidth.pcie_link(card, device(max_link_speed_gts=16.0), None)[:2] == (4, 16)
    assert bandwidth.pcie_link(card, None, None)[:2] == (5, 16)


def test_a_link_that_trained_narrow_is_narrow() -> None:
    gpu = Gpu(index=0, pcie=PcieLink(current_gen=1, max_gen=4, current_width=8, max_width=16))
    assert bandwidth.pcie_link(device(max_link_width=16), None, gpu)[:3] == (4, 8, pytest.approx(14.4, abs=0.01))


def test_the_board_completes_what_was_not_read() -> None:
    rate = bandwidth.pcie_link(device(max_link_speed_gts=32.0, link_width=0), None, Gpu(index=0, name="NVIDIA H200"))
    assert (rate.gen, rate.width, rate.inferred) == (5, 16, True)
    assert bandwidth.pcie_link(device(max_link_speed_gts=32.0), None, None).gbps is None


def test_an_emulated_bridge_is_no_wire() -> None:
    emulated = device(vendor="0x104c", device="0x8232", link_speed_gts=2.5, link_width=1, max_link_speed_gts=2.5)
    assert bandwidth.pcie_link(emulated, None, None).gbps is None
    card = device(max_link_speed_gts=32.0, link_width=16)
    assert bandwidth.pcie_link(card, emulated, None).gen == 5


def test_the_narrowest_edge_limits_and_unknown_stays_unknown() -> None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", kind="pcie", gbps=28.8)
    graph.add_edge("b", "c", kind="host", gbps=None)
    graph.add_edge("c", "d", kind="pcie", gbps=14.4)
    graph.add_edge("d", "e", kind="pcie", gbps=None)
    assert bandwidth.bottleneck(graph, "abcd") == 14.4
    assert bandwidth.bottleneck(graph, "abcde") is None
    assert bandwidth.bottleneck(graph, "") is None
