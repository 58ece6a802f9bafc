from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topoadvisor.rules.facts import FactBase, Known, Unknown
from topoadvisor.snapshot import Gpu, Host, NumaNode, NvLink, PciDevice, PcieLink

Machines = Callable[..., FactBase]


def of(facts: FactBase, name: str, index: int = 0) -> Any:
    fact = facts.subjects["gpu"][index].facts[name] if name.startswith("gpu.") else facts.fact(name)
    return fact.value if isinstance(fact, Known) else None


def links(*active: bool | None) -> list[NvLink]:
    return [NvLink(link=number, active=state) for number, state in enumerate(active)]


def test_the_catalogue_fills_in_what_a_name_tells(machine: Machines) -> None:
    facts = machine([Gpu(index=0, name="NVIDIA H200")])
    gpu = facts.subjects["gpu"][0].facts
    assert gpu["gpu.architecture"] == Known("hopper", "catalogue")
    assert gpu["gpu.form"] == Known("sxm", "catalogue")
    assert gpu["gpu.geforce"] == Known(False, "catalogue")
    assert gpu["gpu.compute_capability"] == Known(9.0, "catalogue")
    assert gpu["gpu.nvlinks.expected"] == Known(18, "catalogue")


def test_a_stranger_is_unknown_and_named(machine: Machines) -> None:
    gpu = machine([Gpu(index=0, name="Frobnicator 9000")]).subjects["gpu"][0].facts
    assert gpu["gpu.architecture"] == Unknown("the catalogue has no Frobnicator 9000")


@pytest.mark.parametrize(
    ("names", "same", "model", "models"),
    [
        (["A", "A"], True, "A", ["A"]),
        (["A", "B"], False, None, ["A", "B"]),
        (["A", None], None, None, None),
        (["A", None, "B"], False, None, None),
    ],
)
def test_models(
    machine: Machines, names: list[str | None], same: bool | None, model: str | None, models: list[str] | None
) -> None:
    facts = machine([Gpu(index=index, name=name) for index, name in enumerate(names)])
    assert of(facts, "gpus.same_model") is same
    assert of(facts, "gpus.model") == model
    assert of(facts, "gpus.models") == models


@pytest.mark.parametrize(
    ("names", "geforce", "sxm"),
    [
        (["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"], True, False),
        (["NVIDIA GeForce RTX 4090", "NVIDIA L40S"], False, False),
        (["NVIDIA H200", None], False, True),
        (["NVIDIA GeForce RTX 4090", None], None, None),
    ],
)
def test_kinds(machine: Machines, names: list[str | None], geforce: bool | None, sxm: bool | None) -> None:
    facts = machine([Gpu(index=index, name=name) for index, name in enumerate(names)])
    assert of(facts, "gpus.geforce") is geforce
    assert of(facts, "gpus.sxm") is sxm


def test_compute_capabilities_span_from_lowest_to_highest(machine: Machines) -> None:
    facts = machine([Gpu(index=0, compute_capability="12.0"), Gpu(index=1, compute_capability="8.6")])
    assert of(facts, "gpus.compute_capability_min") == 8.6
    assert of(facts, "gpus.compute_capability_max") == 12.0


def test_nvlinks_are_counted(machine: Machines) -> None:
    facts = machine([Gpu(index=0, nvlinks=links(True, True, False)), Gpu(index=1, nvlinks=links(True, None))])
    assert [of(facts, f"gpu.nvlinks.{name}") for name in ("total", "active", "inactive")] == [3, 2, 1]
    assert of(facts, "gpu.nvlinks.active", 1) is None


def test_no_nvlink_is_zero_and_not_unknown(machine: Machines) -> None:
    facts = machine([Gpu(index=0, nvlinks=[])])
    assert of(facts, "gpu.nvlinks.active") == 0
    assert of(facts, "nvlink.any") is False


def test_active_nvlinks_follow_from_the_pairs_when_nobody_counted(machine: Machines, pair: Any) -> None:
    cube = machine(3, {(0, 1): "NV2", (0, 2): "NV1", (1, 2): "NV2"})
    assert [of(cube, "gpu.nvlinks.active", index) for index in range(3)] == [3, 4, 3]
    switched = {
        (a, b): pair(f"gpu:{a}", f"gpu:{b}", f"NV{10 if 2 in (a, b) else 12}", through_switch=True)
        for a, b in ((0, 1), (0, 2), (1, 2))
    }
    facts = machine(3, switched)
    assert [of(facts, "gpu.nvlinks.active", index) for index in range(3)] == [12, 12, 10]
    fact = facts.subjects["gpu"][0].facts["gpu.nvlinks.active"]
    assert isinstance(fact, Known)
    assert fact.origin.startswith("inferred: ")


def test_the_neighbours_mode_leaves_the_gpu_itself_and_other_models_out(machine: Machines) -> None:
    counts = [18, 18, 17, 18, 4]
    names = ["H", "H", "H", "H", "X"]
    facts = machine(
        [
            Gpu(index=index, name=name, nvlinks=links(*[True] * count))
            for index, (name, count) in enumerate(zip(names, counts, strict=True))
        ]
    )
    assert [of(facts, "gpu.nvlinks.peers_mode", index) for index in range(5)] == [18, 18, 18, 18, None]


def test_the_nvlink_bandwidth_of_a_gpu_counts_its_active_links(machine: Machines) -> None:
    names = ["NVIDIA H100 80GB HBM3", "NVIDIA B200", "no such GPU"]
    facts = machine(
        [Gpu(index=index, name=name, nvlinks=links(*[True] * 17, False)) for index, name in enumerate(names)]
    )
    assert [of(facts, "gpu.nvlinks.gbps", index) for index in range(3)] == [17 * 25, 17 * 50, None]
    assert isinstance(facts.node["nvlink.gbps"], Unknown)
    whole = machine([Gpu(index=index, name=names[0], nvlinks=links(*[True] * 18)) for index in range(2)])
    assert whole.node["nvlink.gbps"] == Known(450.0, "derived")


def test_pcie_width_of_device_and_port(machine: Machines) -> None:
    devices = [
        PciDevice(address="0000:00:01.0", max_link_width=8),
        PciDevice(address="0000:01:00.0", parent="0000:00:01.0", max_link_width=16, link_width=8, link_speed_gts=16.0),
    ]
    gpu = Gpu(
        index=0, address="0000:01:00.0", pcie=PcieLink(current_gen=1, max_gen=4, max_width=8), performance_state=8
    )
    facts = machine([gpu], pci=devices)
    found = {
        name: of(facts, f"gpu.pcie.{name}")
        for name in ("current_gen", "max_gen", "current_width", "max_width", "port_width", "idle")
    }
    assert found == {
        "current_gen": 1,
        "max_gen": 4,
        "current_width": 8,
        "max_width": 16,
        "port_width": 8,
        "idle": True,
    }


@pytest.mark.parametrize(("state", "idle"), [(0, False), (2, False), (8, True), (None, None)])
def test_idle(machine: Machines, state: int | None, idle: bool | None) -> None:
    assert of(machine([Gpu(index=0, performance_state=state)]), "gpu.pcie.idle") is idle


@pytest.mark.parametrize(("bar1", "covers"), [(1 << 28, False), (1 << 35, True), (None, None)])
def test_bar1(machine: Machines, bar1: int | None, covers: bool | None) -> None:
    facts = machine([Gpu(index=0, memory_bytes=24 << 30, bar1_bytes=bar1)])
    assert of(facts, "gpu.bar1_covers_memory") is covers


@pytest.mark.parametrize(
    ("nodes", "count", "gpu_nodes"),
    [([0, 1, 1], 2, 2), ([-1, -1, -1], 2, None), ([-1, -1, -1], 1, 1), ([0, None, 0], 2, None)],
)
def test_numa_nodes_of_gpus(machine: Machines, nodes: list[int | None], count: int, gpu_nodes: int | None) -> None:
    facts = machine(
        [Gpu(index=index, numa_node=node) for index, node in enumerate(nodes)],
        host=Host(numa_nodes=[NumaNode(id=index) for index in range(count)]),
    )
    assert of(facts, "numa.gpu_nodes") == gpu_nodes


def test_only_a_superchip_can_have_a_chip_to_chip_link(machine: Machines) -> None:
    facts = machine([Gpu(index=0, name="NVIDIA L40S")])
    assert of(facts, "c2c.any") is False
    assert of(machine([Gpu(index=0, name="NVIDIA GH200 480GB")]), "c2c.any") is True
    assert of(machine([Gpu(index=0, name="NVIDIA GH200 480GB", c2c_gbps=450.0)]), "c2c.any") is True


def test_the_cpus_of_the_numa_node_count_before_a_list_that_the_driver_may_have_cut(machine: Machines) -> None:
    """`nvidia-smi topo -m` prints the beginning of a list of single CPUs, and nothing tells that it ends there."""
    gpu = Gpu(index=0, numa_node=0, cpu_affinity="0,2,4,6,8,10")
    host = Host(numa_nodes=[NumaNode(id=0, cpus="0,2,4,6,8,10,12,14")], allowed_cpus="12-13")
    assert of(machine([gpu], host=host), "gpu.local_cpus_allowed") is True
