from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topoadvisor.rules.facts import FactBase, Known, Unknown
from topoadvisor.snapshot import Gpu, Host, IbPort, Matrix, NcclLibrary, Nic, PciDevice

Machines = Callable[..., FactBase]


def value(facts: FactBase, name: str) -> Any:
    fact = facts.fact(name)
    return fact.value if isinstance(fact, Known) else None


def nic(facts: FactBase, name: str, place: int = 0) -> Any:
    fact = facts.subjects["nic"][place].facts[name]
    return fact.value if isinstance(fact, Known) else None


def hca(name: str, state: str | None = "ACTIVE", rate: float = 400.0, layer: str = "InfiniBand", **more: Any) -> Nic:
    ports = None if state is None else [IbPort(port=1, state=state, rate_gbit=rate, link_layer=layer)]
    return Nic(name=name, rdma=True, ports=ports, **more)


def eth(name: str, state: str = "up", kind: str | None = "physical", **more: Any) -> Nic:
    return Nic(name=name, interface=name, state=state, kind=kind, **more)


def test_the_compute_ports_are_the_fastest_active_ones_beside_a_gpu(machine: Machines) -> None:
    nics = [
        hca("mlx5_10"),
        hca("mlx5_2"),
        hca("mlx5_3", state="DOWN"),
        hca("mlx5_4", rate=100.0),
        hca("mlx5_5", layer="Ethernet"),
        hca("mlx5_6"),
    ]
    joins: dict[Any, Any] = {(0, each.name): "PXB" for each in nics} | {(0, "mlx5_6"): "SYS"}
    facts = machine(1, joins, nics=nics)
    assert value(facts, "rdma.names") == ["mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_10"]
    assert value(facts, "rdma.active") == ["mlx5_2", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_10"]
    assert value(facts, "rdma.gpu_local") == ["mlx5_2", "mlx5_10"]
    assert value(facts, "rdma.others") == ["mlx5_4", "mlx5_5", "mlx5_6"]
    assert value(facts, "rdma.others_near") == ["mlx5_4", "mlx5_5"]
    assert value(facts, "rdma.hca_exact") == "=mlx5_2,mlx5_10"
    assert value(facts, "rdma.link_layers") == ["Ethernet", "InfiniBand"]


def test_there_is_nothing_to_choose_among_equal_ports(machine: Machines) -> None:
    facts = machine(1, {(0, "mlx5_0"): "PIX", (0, "mlx5_1"): "PIX"}, nics=[hca("mlx5_0"), hca("mlx5_1")])
    assert value(facts, "rdma.others") == []
    assert value(facts, "rdma.hca_exact") == ""


def test_an_unread_port_leaves_the_choice_open(machine: Machines) -> None:
    facts = machine(1, {(0, "mlx5_0"): "PIX"}, nics=[hca("mlx5_0"), hca("mlx5_1", state=None)])
    assert value(facts, "rdma.count") == 2
    assert isinstance(facts.fact("rdma.active"), Unknown)
    assert isinstance(facts.fact("rdma.hca_exact"), Unknown)


def test_a_machine_whose_network_was_not_read_is_not_one_without_network(machine: Machines) -> None:
    assert value(machine(nics=[]), "rdma.active") == []
    assert isinstance(machine(nics=None).fact("rdma.active"), Unknown)


def test_one_nic(machine: Machines) -> None:
    facts = machine(
        2,
        {(0, "mlx5_0"): "SYS", (1, "mlx5_0"): "PIX"},
        nics=[hca("mlx5_0", interface="ib0", driver="mlx5_core", mtu=4092, numa_node=1)],
        matrices=[Matrix(gpus=["GPU0"], nics=["NIC0"], cells={}, nic_legend={"NIC0": "mlx5_0"})],
    )
    found = {
        name: nic(facts, f"nic.{name}") for name in ("label", "state", "rate_gbit", "nearest_gpu", "nearest_class")
    }
    assert found == {
        "label": "NIC0",
        "state": "ACTIVE",
        "rate_gbit": 400.0,
        "nearest_gpu": "GPU1",
        "nearest_class": "PIX",
    }
    assert nic(facts, "nic.gpu_local") is True
    assert facts.subjects["nic"][0].id == "nic:mlx5_0"


def test_an_interface_that_is_down_has_no_speed(machine: Machines) -> None:
    facts = machine(nics=[eth("eth0", state="down", speed_mbit=-1), eth("eth1", speed_mbit=25000)])
    assert nic(facts, "nic.state") == "down"
    assert nic(facts, "nic.rate_gbit") is None
    assert nic(facts, "nic.rate_gbit", 1) == 25.0


def test_siblings_are_other_active_ports_as_near(machine: Machines) -> None:
    nics = [hca("a", state="DOWN"), hca("b"), hca("c"), hca("d", state="DOWN"), hca("e")]
    joins: dict[Any, Any] = {(0, each.name): "PIX" for each in nics} | {(0, "c"): "SYS"}
    facts = machine(1, joins, nics=nics)
    assert [nic(facts, "nic.siblings_active", place) for place in range(5)] == [2, 1, 2, 2, 1]


@pytest.mark.parametrize(
    ("nics", "version", "candidates"),
    [
        ([eth("lo", kind="loopback"), eth("eth0"), eth("ib0"), eth("ibs1", state="down")], None, ["ib0"]),
        ([eth("lo"), eth("docker0"), eth("eth0"), eth("br-1234", kind="bridge")], None, ["eth0", "br-1234"]),
        ([eth("eth0", state="down"), eth("docker0"), eth("lo")], None, ["docker0"]),
        ([eth("eth0", state="down"), eth("lo", state="unknown")], None, ["lo"]),
        ([eth("virbr0"), eth("eth0")], "2.28.9", ["eth0"]),
        ([eth("virbr0"), eth("eth0")], "2.27.3", ["virbr0", "eth0"]),
        ([eth("eth1", interface_index=2), eth("eth0", interface_index=7)], None, ["eth1", "eth0"]),
        ([hca("mlx5_0")], None, None),
    ],
)
def test_candidates_follow_nccls_order(
    machine: Machines, nics: list[Nic], version: str | None, candidates: Any
) -> None:
    libraries = [NcclLibrary(path="x", version=version)] if version else []
    assert value(machine(nics=nics, nccl_libraries=libraries), "net.candidates") == candidates


def test_bridges_and_tunnels_are_suspicious_unless_the_default_route_uses_them(machine: Machines) -> None:
    nics = [
        eth("br0", kind="bridge", interface_index=3),
        eth("cni0", kind="bridge", interface_index=4),
        eth("tailscale0", kind=None, interface_index=5),
        eth("eth0", interface_index=9),
    ]
    facts = machine(nics=nics, host=Host(default_interface="br0"))
    assert value(facts, "net.suspicious") == ["cni0", "tailscale0"]
    assert value(facts, "net.bootstrap") == "br0"
    assert value(facts, "net.bootstrap_suspicious") is False
    other = machine(nics=nics[1:], host=Host(default_interface="eth0"))
    assert value(other, "net.bootstrap") == "cni0"
    assert value(other, "net.bootstrap_suspicious") is True


def test_the_first_of_several_interfaces_is_inferred_without_their_numbers(machine: Machines) -> None:
    several, one = [eth("eth0"), eth("eth1")], [eth("eth0")]
    guess = machine(nics=several).fact("net.bootstrap")
    sure = machine(nics=one).fact("net.bootstrap")
    assert isinstance(guess, Known)
    assert guess.origin.startswith("inferred")
    assert sure == Known("eth0", "sysfs")


@pytest.mark.parametrize(
    ("each", "efa"),
    [(hca("rdmap0s1", driver="efa"), True), (hca("mlx5_0", driver="mlx5_core"), False), (hca("rdmap0s1"), None)],
)
def test_efa(machine: Machines, each: Nic, efa: bool | None) -> None:
    assert value(machine(nics=[each]), "rdma.efa") is efa


def test_bridges_count_the_gpus_below(machine: Machines) -> None:
    devices = [
        PciDevice(address="0000:00:01.0", class_code="0x060400", port_type="root-port", max_link_width=16),
        PciDevice(address="0000:01:00.0", class_code="0x060400", parent="0000:00:01.0"),
        PciDevice(address="0000:02:00.0", class_code="0x030200", parent="0000:01:00.0"),
        PciDevice(address="0000:03:00.0", class_code="0x030200", parent="0000:00:01.0"),
        PciDevice(address="0000:00:02.0", class_code="0x060400"),
    ]
    gpus = [Gpu(index=0, address="0000:02:00.0"), Gpu(index=1, address="0000:03:00.0")]
    facts = machine(gpus, pci=devices)
    found = {subject.id: subject.facts["bridge.gpus_below"] for subject in facts.subjects["bridge"]}
    assert found == {
        "pci:0000:00:01.0": Known(2, "sysfs"),
        "pci:0000:01:00.0": Known(1, "sysfs"),
        "pci:0000:00:02.0": Known(0, "sysfs"),
    }


def test_a_loop_of_bridges_ends(machine: Machines) -> None:
    devices = [
        PciDevice(address="0000:00:01.0", class_code="0x060400", parent="0000:00:02.0"),
        PciDevice(address="0000:00:02.0", class_code="0x060400", parent="0000:00:01.0"),
        PciDevice(address="0000:01:00.0", parent="0000:00:01.0"),
    ]
    assert len(machine([Gpu(index=0, address="0000:01:00.0")], pci=devices).subjects["bridge"]) == 2


def test_virtual_functions_are_no_ports_of_their_own(machine: Machines) -> None:
    pci = [
        PciDevice(address="0000:3b:00.0"),
        PciDevice(address="0000:3b:00.1"),
        PciDevice(address="0000:3b:00.2", sriov_of="0000:3b:00.0"),
        PciDevice(address="0000:3b:08.3", sriov_of="0000:3b:00.1"),
    ]
    first, second, of_first, of_second = (
        hca(f"mlx5_{number}", address=device.address) for number, device in enumerate(pci)
    )
    assert value(machine(nics=[of_first, first], pci=pci), "rdma.ports_sharing_a_card") == []
    assert value(machine(nics=[of_first, first, second], pci=pci), "rdma.ports_sharing_a_card") == ["mlx5_0", "mlx5_1"]
    assert value(machine(nics=[first, of_second], pci=pci), "rdma.ports_sharing_a_card") == ["mlx5_0", "mlx5_3"]


@pytest.mark.parametrize(
    ("mtu", "active", "layer", "packet"),
    [
        (1500, None, "Ethernet", 1024),
        (4200, None, "Ethernet", 4096),
        (4191, None, "Ethernet", 2048),
        (9000, 1024, "Ethernet", 1024),
        (None, 2048, "InfiniBand", 2048),
        (4092, None, "InfiniBand", None),
        (None, None, "Ethernet", None),
    ],
)
def test_the_packet_size_is_the_ports_own_else_what_the_interface_leaves(
    machine: Machines, mtu: int | None, active: int | None, layer: str, packet: int | None
) -> None:
    port = IbPort(port=1, state="ACTIVE", link_layer=layer, active_mtu=active)
    facts = machine(nics=[Nic(name="mlx5_0", rdma=True, mtu=mtu, ports=[port])])
    assert nic(facts, "nic.packet_bytes") == packet
