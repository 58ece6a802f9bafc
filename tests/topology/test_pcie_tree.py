from __future__ import annotations

import msgspec
import pytest

from topoadvisor.snapshot import Gpu, Host, Nic, NumaNode, PciDevice, Snapshot
from topoadvisor.topology.graph import build


def test_only_bridges_on_the_way_to_a_device_are_kept(server: Snapshot) -> None:
    stray = PciDevice(address="0000:40:01.0", root="0000:40", class_code="0x060400")
    topology = build(msgspec.structs.replace(server, pci=[*(server.pci or ()), stray]))
    assert "pci:0000:40:01.0" not in topology.graph
    assert "root:0000:40" not in topology.graph


def test_roles_alternate_below_a_root_port(server: Snapshot) -> None:
    nodes = build(server).graph.nodes
    roles = {node: nodes[node]["role"] for node in nodes if nodes[node]["kind"] == "bridge"}
    assert roles["pci:0000:00:01.0"] == "root-port"
    assert roles["pci:0000:01:00.0"] == roles["pci:0000:05:00.0"] == "upstream"
    assert roles["pci:0000:02:02.0"] == roles["pci:0000:06:00.0"] == "downstream"


def test_ways_inside_a_switch_carry_what_their_port_carries(server: Snapshot) -> None:
    graph = build(server).graph
    inside = graph.edges["pci:0000:02:00.0", "pci:0000:01:00.0"]
    wire = graph.edges["gpu:0", "pci:0000:02:00.0"]
    assert inside["internal"]
    assert not wire["internal"]
    assert inside["gbps"] == wire["gbps"] == pytest.approx(28.8, abs=0.1)
    assert graph.edges["root:0000:00", "numa:0"]["gbps"] == pytest.approx(57.6, abs=0.1)


def test_two_functions_of_one_card_on_the_root_bus() -> None:
    pci = [PciDevice(address="0000:00:05.0", root="0000:00"), PciDevice(address="0000:00:06.0", root="0000:00")]
    nics = [Nic(name=name, rdma=True, address="0000:00:05.0") for name in ("mlx5_0", "mlx5_1")]
    gpu = Gpu(index=0, address="0000:00:06.0", nvlinks=[])
    topology = build(Snapshot(gpus=[gpu], nics=nics, pci=pci))
    hierarchy = topology.attributes["hierarchy"]
    assert hierarchy.relate("nic:mlx5_0", "nic:mlx5_1").link_class == "PIX"
    assert topology.pair("gpu:0", "nic:mlx5_0").link_class == "PHB"


def test_a_dump_shows_a_switch_as_one_bridge() -> None:
    pci = [
        PciDevice(address="0000:01:00.0", numa_node=0, class_code="0x060400"),
        PciDevice(address="0000:02:00.0", parent="0000:01:00.0", numa_node=0),
        PciDevice(address="0000:03:00.0", parent="0000:01:00.0", numa_node=0),
        PciDevice(address="0000:04:00.0", numa_node=0),
        PciDevice(address="0000:05:00.0", numa_node=1),
    ]
    places = ["0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "0000:05:00.0"]
    gpus = [Gpu(index=index, address=address, nvlinks=[]) for index, address in enumerate(places)]
    topology = build(Snapshot(origin="nccl-topology-xml", gpus=gpus, pci=pci))
    assert topology.pair("gpu:0", "gpu:1").link_class == "PIX"
    assert not topology.pair("gpu:0", "gpu:1").inferred
    assert topology.pair("gpu:0", "gpu:2").link_class == "PHB"
    assert topology.pair("gpu:0", "gpu:2").inferred, "it may be NODE"
    assert topology.pair("gpu:0", "gpu:3").link_class == "SYS"


def test_names_that_come_twice_stay_apart() -> None:
    pci = [PciDevice(address=f"0000:00:0{slot}.0", root="0000:00") for slot in range(3)]
    nics = [Nic(name="eth0", address=device.address) for device in pci[:2]]
    topology = build(Snapshot(gpus=[Gpu(index=0, address="0000:00:02.0")], nics=nics, pci=pci))
    assert topology.nics == ("nic:eth0", "nic:eth0#1")


def test_devices_of_one_root_complex_that_name_different_numa_nodes() -> None:
    pci = [PciDevice(address=f"0000:00:0{slot}.0", root="0000:00", numa_node=min(slot, 1)) for slot in range(3)]
    gpus = [Gpu(index=slot, address=device.address, nvlinks=[]) for slot, device in enumerate(pci)]
    topology = build(Snapshot(gpus=gpus, pci=pci))
    assert topology.pair("gpu:0", "gpu:1").link_class == "PHB"
    assert topology.attributes["hierarchy"].numa("gpu:0") == "numa:1"
    assert any("different NUMA nodes" in note for note in topology.notes)


def test_a_way_with_a_missing_bridge_is_unknown_but_numa_nodes_still_tell_apart() -> None:
    pci = [
        PciDevice(address="0000:03:00.0", parent="0000:02:00.0", root="0000:00", numa_node=0),
        PciDevice(address="0000:04:00.0", root="0000:00", numa_node=0),
        PciDevice(address="0000:85:00.0", numa_node=1),
    ]
    gpus = [Gpu(index=index, address=device.address, nvlinks=[]) for index, device in enumerate(pci)]
    nodes = [NumaNode(id=0, cpus="0-3"), NumaNode(id=1, cpus="4-7")]
    topology = build(Snapshot(gpus=gpus, pci=pci, host=Host(numa_nodes=nodes)))
    assert topology.pair("gpu:0", "gpu:1").link_class is None
    assert topology.pair("gpu:0", "gpu:2").link_class == "SYS"
    assert topology.attributes["hierarchy"].numa("gpu:0") == "numa:0"
    assert any("0000:02:00.0 above 0000:03:00.0 is not in the list" in note for note in topology.notes)


def test_a_bandwidth_alone_counts_for_switches_and_not_for_gpus_that_idle() -> None:
    pci = [
        PciDevice(address="0000:00:01.0", root="0000:00", class_code="0x0604"),
        PciDevice(address="0000:01:00.0", root="0000:00", parent="0000:00:01.0", class_code="0x0604", link_gbps=15.754),
        PciDevice(address="0000:02:00.0", root="0000:00", parent="0000:01:00.0", class_code="0x0604"),
        PciDevice(address="0000:03:00.0", root="0000:00", parent="0000:02:00.0", link_gbps=4.0),
    ]
    gpu = Gpu(index=0, name="NVIDIA A100-SXM4-80GB", address="0000:03:00.0", nvlinks=[])
    graph = build(Snapshot(gpus=[gpu], pci=pci)).graph
    assert graph.edges["pci:0000:01:00.0", "pci:0000:00:01.0"]["gbps"] == pytest.approx(15.754 * 256 / 280, abs=0.01)
    idle = graph.edges["gpu:0", "pci:0000:02:00.0"]
    assert (idle["gen"], idle["width"], idle["inferred"]) == (4, 16, True)
