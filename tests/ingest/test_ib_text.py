from __future__ import annotations

import msgspec

from topoadvisor.ingest import text
from topoadvisor.snapshot import IbPort, Nic

IBSTAT = """CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.1002
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
		Base lid: 12
		Link layer: InfiniBand
CA 'mlx5_bond_0'
	CA type: MT4125
	Number of ports: 1
	Port 1:
		State: Down
		Physical state: Polling
		Rate: 2.5
		Link layer: Ethernet
"""
DEVINFO = """hca_id:	mlx5_0
	transport:			InfiniBand (0)
	fw_ver:				28.39.1002
	phys_port_cnt:			1
		port:	1
			state:			PORT_ACTIVE (4)
			max_mtu:		4096 (5)
			active_mtu:		4096 (5)
			active_width:		4X (2)
			active_speed:		100.0 Gbps (128)
			phys_state:		LINK_UP (5)
			link_layer:		InfiniBand

hca_id:	mlx5_3
	phys_port_cnt:			1
		port:	1
			state:			PORT_DOWN (1)
			link_layer:		Ethernet
"""


def test_ibstat() -> None:
    snapshot = text.read("$ ibstat\n" + IBSTAT, "ib.txt")
    assert snapshot.nics == [
        Nic(
            name="mlx5_0",
            rdma=True,
            ports=[IbPort(port=1, state="ACTIVE", physical_state="LinkUp", rate_gbit=400.0, link_layer="InfiniBand")],
        ),
        Nic(
            name="mlx5_bond_0",
            rdma=True,
            ports=[IbPort(port=1, state="DOWN", physical_state="Polling", rate_gbit=2.5, link_layer="Ethernet")],
        ),
    ]
    assert [source.name for source in snapshot.sources] == ["ibstat"]


def test_ibv_devinfo() -> None:
    first, second = text.read(DEVINFO, "ib.txt").nics or []
    up = IbPort(port=1, state="ACTIVE", physical_state="LinkUp", rate_gbit=400.0, link_layer="InfiniBand")
    assert first.ports == [msgspec.structs.replace(up, active_mtu=4096)]
    assert second.ports == [IbPort(port=1, state="DOWN", link_layer="Ethernet")]


def test_both_and_a_matrix_are_one_list_of_devices() -> None:
    matrix = (
        "\tGPU0\tNIC0\tNIC1\nGPU0\t X \tPIX\tSYS\nNIC0\tPIX\t X \tSYS\nNIC1\tSYS\tSYS\t X \n\n"
        "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_3\n"
    )
    snapshot = text.read(matrix + DEVINFO + IBSTAT, "all.txt")
    assert [nic.name for nic in snapshot.nics or []] == ["mlx5_0", "mlx5_3", "mlx5_bond_0"]
    assert all(source.status == "ok" for source in snapshot.sources)
    assert snapshot.origins["nic:mlx5_0.ports"] == "ibv_devinfo"
