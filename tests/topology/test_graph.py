from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import msgspec
import pytest

from topoadvisor.snapshot import (
    Cpu,
    Gpu,
    Host,
    Matrix,
    Nic,
    NumaNode,
    NvLink,
    P2p,
    PciDevice,
    PcieLink,
    Snapshot,
)
from topoadvisor.topology.graph import build
from topoadvisor.topology.model import Topology


def classes(topology: Topology) -> dict[tuple[int, int], str | None]:
    numbers = {node: topology.graph.nodes[node]["index"] for node in topology.gpus}
    return {(numbers[a], numbers[b]): topology.pair(a, b).link_class for a, b in combinations(topology.gpus, 2)}


def kinds(topology: Topology, kind: str) -> list[str]:
    return sorted(node for node, facts in topology.graph.nodes(data=True) if facts["kind"] == kind)


def test_eight_4090s_from_the_matrix_alone(pasted: Callable[..., Snapshot], eight_4090s: str) -> None:
    topology = build(pasted(eight_4090s, numa=[0] * 8))
    seen = classes(topology)
    assert seen[0, 1] == seen[6, 7] == "PIX"
    assert seen[0, 2] == seen[2, 3] == seen[4, 7] == "PXB"
    assert seen[3, 4] == seen[0, 7] == "NODE"
    assert kinds(topology, "numa") == ["numa:0"]
    assert kinds(topology, "root") == ["root:0", "root:1"]
    assert len(kinds(topology, "bridge")) == 8
    assert all(topology.graph.nodes[node]["inferred"] for node in kinds(topology, "bridge"))
    assert not topology.pair("gpu:0", "gpu:1").inferred
    assert topology.pair("gpu:0", "gpu:1").pcie_path[1] == topology.pair("gpu:1", "gpu:0").pcie_path[1]
    assert "numa:0" in topology.pair("gpu:0", "gpu:7").pcie_path
    assert topology.notes == ()
    assert topology.disagreements == ()


def test_bandwidth_needs_the_model(pasted: Callable[..., Snapshot], eight_4090s: str) -> None:
    assert build(pasted(eight_4090s)).pair("gpu:0", "gpu:1").gbps is None
    known = build(pasted(eight_4090s, model="NVIDIA GeForce RTX 4090"))
    assert known.pair("gpu:0", "gpu:1").gbps == pytest.approx(28.8, abs=0.1)
    assert known.pair("gpu:0", "gpu:7").gbps is None, "nobody read the uplinks of the switches"
    (edge,) = (facts for _, _, facts in known.graph.edges("gpu:0", data=True))
    assert (edge["origin"], edge["inferred"]) == ("catalogue", True)


@pytest.mark.parametrize(
    ("model", "cell", "gbps"),
    [
        ("NVIDIA H100 80GB HBM3", "NV18", 450.0),
        ("NVIDIA B200", "NV18", 900.0),
        ("NVIDIA A100-SXM4-40GB", "NV4", 100.0),
        ("NVIDIA GeForce RTX 3090", "NV4", 56.25),
        (None, "NV4", None),
    ],
)
def test_nvlink_class_means_different_bandwidth_on_each_model(
    pasted: Callable[..., Snapshot], model: str | None, cell: str, gbps: float | None
) -> None:
    pair = build(pasted(f"GPU0 GPU1\nGPU0 X {cell}\nGPU1 {cell} X", model=model)).pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.gbps) == (cell, gbps)


def test_classes_of_a_live_tree(server: Snapshot) -> None:
    topology = build(server)
    assert classes(topology) == {
        (0, 1): "PXB",
        (0, 2): "PHB",
        (0, 3): "NODE",
        (0, 4): "SYS",
        (1, 2): "PHB",
        (1, 3): "NODE",
        (1, 4): "SYS",
        (2, 3): "NODE",
        (2, 4): "SYS",
        (3, 4): "SYS",
    }
    assert topology.nics == ("nic:mlx5_0", "nic:mlx5_1")
    assert [topology.pair(gpu, "nic:mlx5_0").link_class for gpu in topology.gpus] == [
        "PIX",
        "PXB",
        "PHB",
        "NODE",
        "SYS",
    ]
    assert not any(pair.inferred for pair in topology.pairs.values())
    assert {pair.origin for pair in topology.pairs.values()} == {"sysfs"}


def test_ports_named_by_their_capability_give_the_same_classes(server: Snapshot) -> None:
    types = dict.fromkeys(["0000:00:01.0", "0000:00:02.0", "0000:20:01.0", "0000:80:01.0"], "root-port")
    types |= dict.fromkeys(["0000:01:00.0", "0000:05:00.0"], "upstream")
    types |= dict.fromkeys(["0000:02:00.0", "0000:02:01.0", "0000:02:02.0", "0000:06:00.0"], "downstream")
    pci = [msgspec.structs.replace(device, port_type=types.get(device.address)) for device in server.pci or ()]
    assert classes(build(msgspec.structs.replace(server, pci=pci))) == classes(build(server))


def test_path_across_sockets_goes_through_them(server: Snapshot) -> None:
    pair = build(server).pair("gpu:0", "gpu:4")
    ends = ("gpu:0", "pci:0000:02:00.0", "pci:0000:01:00.0", "pci:0000:00:01.0", "root:0000:00", "numa:0", "socket:0")
    assert pair.path[:7] == ends
    assert pair.path[7:] == ("socket:1", "numa:1", "root:0000:80", "pci:0000:80:01.0", "gpu:4")


def test_idle_link_speed_does_not_count_but_width_does(server: Snapshot) -> None:
    gpus = list(server.gpus)
    gpus[2] = msgspec.structs.replace(gpus[2], pcie=PcieLink(current_gen=1, max_gen=4, current_width=8, max_width=16))
    topology = build(msgspec.structs.replace(server, gpus=gpus))
    assert topology.pair("gpu:0", "gpu:3").gbps == pytest.approx(28.8, abs=0.1)
    assert topology.pair("gpu:0", "gpu:2").gbps == pytest.approx(14.4, abs=0.1)


def test_flat_guest(guest: Snapshot) -> None:
    topology = build(guest)
    pair = topology.pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.pcie_class, pair.through_switch, pair.gbps) == ("NV18", "PHB", True, 450.0)
    assert pair.path == ("gpu:0", "nvswitch:0", "gpu:1")
    assert topology.graph.nodes["nvswitch:0"]["hidden"]
    assert topology.hidden_switches == 2
    assert topology.attributes["hidden_pcie_switches"]
    assert topology.disagreements == ()


def test_the_same_boards_on_bare_metal_hide_nothing(guest: Snapshot) -> None:
    topology = build(msgspec.structs.replace(guest, host=Host(hypervisor="none", numa_nodes=guest.host.numa_nodes)))
    assert not topology.attributes["hidden_pcie_switches"]
    assert topology.disagreements == ()


def cube_mesh(links: Callable[..., list[NvLink]]) -> Snapshot:
    joins = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2, (2, 6): 1}
    joins |= {(3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2}
    address = [f"0000:0{number}:00.0" for number in range(1, 9)]
    pci = [
        PciDevice(address=at, root=f"0000:{number // 4}0", numa_node=number // 4) for number, at in enumerate(address)
    ]
    gpus = []
    for number in range(8):
        peers = [(b if a == number else a, count) for (a, b), count in joins.items() if number in (a, b)]
        nvlinks = links(*((address[peer], count) for peer, count in peers))
        gpus.append(Gpu(index=number, name="Tesla V100-SXM2-16GB", address=address[number], nvlinks=nvlinks))
    return Snapshot(gpus=gpus, pci=pci)


def test_cube_mesh(links: Callable[..., list[NvLink]]) -> None:
    topology = build(cube_mesh(links))
    seen = classes(topology)
    assert (seen[0, 3], seen[0, 1], seen[0, 5], seen[5, 6]) == ("NV2", "NV1", "SYS", "NV2")
    assert topology.pair("gpu:0", "gpu:3").gbps == 50.0
    assert topology.pair("gpu:0", "gpu:3").pcie_class == "PHB"
    assert not kinds(topology, "nvswitch")


def test_visible_switches(links: Callable[..., list[NvLink]]) -> None:
    switches = [(f"switch 0000:c{number}:00.0", 2) for number in range(6)]
    gpus = [Gpu(index=index, name="NVIDIA A100-SXM4-80GB", nvlinks=links(*switches)) for index in range(8)]
    topology = build(Snapshot(gpus=gpus))
    pair = topology.pair("gpu:0", "gpu:7")
    assert (pair.link_class, pair.gbps, pair.through_switch, pair.pcie_class) == ("NV12", 300.0, True, None)
    assert len(kinds(topology, "nvswitch")) == 6
    assert topology.graph.edges["gpu:0", "nvswitch:3"]["gbps"] == 50.0
    assert topology.hidden_switches == 0


def test_a_broken_link_narrows_its_pairs_and_contradicts_the_matrix(
    links: Callable[..., list[NvLink]], table: Callable[..., Matrix]
) -> None:
    whole, broken = links(("hidden", 12)), links(("hidden", 11), down=1)
    model = "NVIDIA A100-SXM4-80GB"
    gpus = [Gpu(index=index, name=model, nvlinks=broken if index == 0 else whole) for index in range(3)]
    matrix = table("GPU0 GPU1 GPU2\nGPU0 X NV12 NV12\nGPU1 NV12 X NV12\nGPU2 NV12 NV12 X")
    topology = build(Snapshot(gpus=gpus, matrices=[matrix]))
    assert classes(topology) == {(0, 1): "NV11", (0, 2): "NV11", (1, 2): "NV12"}
    assert [(each.subject, each.quantity, each.believed) for each in topology.disagreements] == [
        ("gpu:0-gpu:1", "NVLinks", "11"),
        ("gpu:0-gpu:2", "NVLinks", "11"),
    ]
    assert topology.disagreements[0].values == (("nvml", "11"), ("nvidia-smi topo -m", "12"))


def test_a_table_without_nvlinks_does_not_contradict(guest: Snapshot, table: Callable[..., Matrix]) -> None:
    matrix = table("GPU0 GPU1\nGPU0 X PHB\nGPU1 PHB X")
    topology = build(msgspec.structs.replace(guest, matrices=[matrix]))
    assert topology.pair("gpu:0", "gpu:1").link_class == "NV18"
    assert topology.disagreements == ()


def test_matrix_and_tree_that_differ_are_both_kept(server: Snapshot, table: Callable[..., Matrix]) -> None:
    matrix = table("GPU0 GPU1 GPU2 GPU3 GPU4\nGPU0 X PHB PHB NODE SYS")
    topology = build(msgspec.structs.replace(server, matrices=[matrix]))
    (found,) = topology.disagreements
    assert (found.subject, found.believed) == ("gpu:0-gpu:1", "PXB")
    assert found.values == (("sysfs", "PXB"), ("nvidia-smi topo -m", "PHB"))


def test_one_pair_printed_in_two_ways_is_unknown(pasted: Callable[..., Snapshot]) -> None:
    topology = build(pasted("GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PHB X SYS\nGPU2 SYS SYS X"))
    assert topology.pair("gpu:0", "gpu:1").link_class is None
    assert topology.disagreements[0].subject == "gpu:0-gpu:1"


def test_a_partial_matrix_leaves_the_rest_unknown(pasted: Callable[..., Snapshot]) -> None:
    topology = build(pasted("GPU0 GPU1 GPU2\nGPU0 X PIX -\nGPU1 - X -\nGPU2 - - X"))
    assert classes(topology) == {(0, 1): "PIX", (0, 2): None, (1, 2): None}


def test_classes_that_contradict_each_other_are_noted(pasted: Callable[..., Snapshot]) -> None:
    topology = build(pasted("GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PIX X PIX\nGPU2 SYS PIX X"))
    assert topology.pair("gpu:0", "gpu:2").link_class == "SYS"
    assert topology.pair("gpu:0", "gpu:2").pcie_path == ()
    assert any("contradict" in note for note in topology.notes)


def test_levels_of_nvml_stand_in_for_a_missing_tree() -> None:
    p2p = [P2p(a=0, b=1, common_ancestor="NODE"), P2p(a=1, b=0, common_ancestor="NODE")]
    gpus = [Gpu(index=index, name="NVIDIA L4") for index in range(2)]
    pair = build(Snapshot(gpus=gpus, p2p=p2p)).pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.origin, pair.inferred) == ("NODE", "nvml", False)


def test_unread_links_leave_the_class_unknown() -> None:
    p2p = [P2p(a=0, b=1, common_ancestor="NODE")]
    gpus = [Gpu(index=index, name="NVIDIA A100-PCIE-40GB") for index in range(2)]
    pair = build(Snapshot(gpus=gpus, p2p=p2p)).pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.pcie_class, pair.nvlinks) == (None, "NODE", None)


def test_chip_to_chip_is_the_better_way_to_a_nic() -> None:
    pci = [
        PciDevice(address="0008:01:00.0", root="0008:00", numa_node=0),
        PciDevice(address="0000:03:00.0", root="0000:00", numa_node=0, max_link_speed_gts=32.0, link_width=16),
    ]
    slow = PcieLink(max_gen=5, current_width=1)
    gpu = Gpu(index=0, name="NVIDIA GB200", address="0008:01:00.0", c2c_gbps=223.6, pcie=slow, nvlinks=[])
    nic = Nic(name="mlx5_0", rdma=True, address="0000:03:00.0")
    pair = build(Snapshot(gpus=[gpu], nics=[nic], pci=pci)).pair("gpu:0", "nic:mlx5_0")
    assert (pair.link_class, pair.path) == ("NODE", ("gpu:0", "numa:0", "root:0000:00", "nic:mlx5_0"))
    assert pair.gbps == pytest.approx(57.6, abs=0.1)


def test_nvlinks_to_the_cpu_are_the_way_out_of_a_power_machines_gpu() -> None:
    link = NvLink(link=0, active=True, remote_type="npu")
    pci = [
        PciDevice(address=f"000{bus}:01:00.0", root=f"000{bus}:00", numa_node=0, max_link_speed_gts=8.0, link_width=16)
        for bus in (4, 5)
    ]
    gpus = [
        Gpu(index=index, name="Tesla V100-SXM2-16GB", address=device.address, nvlinks=[link])
        for index, device in enumerate(pci)
    ]
    pair = build(Snapshot(gpus=gpus, pci=pci)).pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.path, pair.gbps) == ("NODE", ("gpu:0", "numa:0", "gpu:1"), 25.0)


def test_boards_of_a_tray_without_a_numa_number(pasted: Callable[..., Snapshot]) -> None:
    topology = build(pasted("GPU0 GPU1\nGPU0 X NV18\nGPU1 NV18 X", model="NVIDIA H200"))
    assert topology.pair("gpu:0", "gpu:1").through_switch, "no SXM board has 18 wires to one other"
    assert topology.pair("gpu:0", "gpu:1").pcie_class is None
    bridged = build(pasted("GPU0 GPU1\nGPU0 X NV18\nGPU1 NV18 X", model="NVIDIA H200 NVL"))
    assert not bridged.pair("gpu:0", "gpu:1").through_switch


def test_sockets_of_split_numa_nodes() -> None:
    pci = [PciDevice(address=f"0000:{number}1:00.0", root=f"0000:{number}0", numa_node=number) for number in range(4)]
    gpus = [Gpu(index=index, address=device.address, nvlinks=[]) for index, device in enumerate(pci)]
    near = [[10, 12, 32, 32], [12, 10, 32, 32], [32, 32, 10, 12], [32, 32, 12, 10]]
    nodes = [NumaNode(id=id, cpus=f"{id}", distances=row) for id, row in enumerate(near)]
    topology = build(Snapshot(gpus=gpus, pci=pci, host=Host(numa_nodes=nodes, cpu=Cpu(vendor="AMD", sockets=2))))
    assert kinds(topology, "socket") == ["socket:0", "socket:1"]
    assert topology.graph.has_edge("numa:1", "socket:0")
    assert topology.graph.has_edge("numa:2", "socket:1")
    assert topology.pair("gpu:0", "gpu:1").link_class == "SYS"
    assert "socket:1" not in topology.pair("gpu:0", "gpu:1").path


def test_nothing_at_all() -> None:
    topology = build(Snapshot())
    assert topology.gpus == ()
    assert topology.pairs == {}


@pytest.mark.parametrize(
    "pci",
    [
        [
            PciDevice(address="0000:01:00.0", parent="0000:02:00.0"),
            PciDevice(address="0000:02:00.0", parent="0000:01:00.0"),
        ],
        [PciDevice(address="0000:01:00.0", parent="0000:09:00.0", root="0000:00")],
        [PciDevice(address="0000:01:00.0", parent="0000:01:00.0")],
    ],
)
def test_a_damaged_device_list_is_survived(pci: list[PciDevice]) -> None:
    gpus = [Gpu(index=0, address="0000:01:00.0"), Gpu(index=1, address="0000:05:00.0"), Gpu(index=1)]
    topology = build(Snapshot(gpus=gpus, pci=pci))
    assert topology.pair("gpu:0", "gpu:1").link_class is None
    assert topology.notes


def test_links_with_unread_far_ends_take_what_is_printed(table: Callable[..., Matrix]) -> None:
    lost = [NvLink(link=number, active=True) for number in range(12)]
    gpus = [Gpu(index=index, name="NVIDIA A100-SXM4-80GB", nvlinks=lost) for index in range(2)]
    matrix = table("GPU0 GPU1\nGPU0 X NV12\nGPU1 NV12 X")
    pair = build(Snapshot(gpus=gpus, matrices=[matrix])).pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.through_switch, pair.origin) == ("NV12", True, "nvidia-smi topo -m")
    assert build(Snapshot(gpus=gpus)).pair("gpu:0", "gpu:1").link_class is None


def test_one_root_complex_that_names_no_numa_node() -> None:
    pci = [PciDevice(address=f"0000:00:0{slot}.0", root="0000:00", numa_node=-1) for slot in range(2)]
    gpus = [Gpu(index=slot, address=device.address, nvlinks=[]) for slot, device in enumerate(pci)]
    topology = build(Snapshot(gpus=gpus, pci=pci))
    assert topology.pair("gpu:0", "gpu:1").link_class == "PHB"
    assert topology.graph.nodes["numa:0"]["inferred"]
    assert topology.notes == ()
