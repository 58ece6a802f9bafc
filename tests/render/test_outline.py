from __future__ import annotations

from collections.abc import Callable

import pytest

from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.render.schematic import Part, Schematic
from topoadvisor.snapshot import Gpu, Nic, PciDevice, Snapshot


def test_ports_of_one_switch_are_one_box_and_root_ports_none(plain: Callable[..., Schematic]) -> None:
    def bridge(address: str, parent: str | None, port_type: str | None) -> PciDevice:
        return PciDevice(
            address=address, class_code="0x060400", parent=parent, root="0000:00", numa_node=0, port_type=port_type
        )

    pci = [
        bridge("0000:00:01.0", None, "root-port"),
        bridge("0000:01:00.0", "0000:00:01.0", "upstream"),
        *(bridge(f"0000:02:0{i}.0", "0000:01:00.0", "downstream") for i in range(3)),
        *(PciDevice(address=f"0000:0{i + 3}:00.0", parent=f"0000:02:0{i}.0", root="0000:00") for i in range(3)),
    ]
    gpus = [Gpu(index=i, address=f"0000:0{i + 3}:00.0", numa_node=0) for i in range(2)]
    nics = [Nic(name="mlx5_0", rdma=True, address="0000:05:00.0", numa_node=0)]
    top = plain(Snapshot(gpus=gpus, pci=pci, nics=nics)).parts
    bars = [part for each in top for part in each.walk() if part.kind in ("root", "switch")]
    assert [(part.kind, part.detail) for part in bars] == [("root", "0000:00"), ("switch", "0000:01:00.0")]
    assert [child.title for child in bars[1].children] == ["GPU0", "GPU1", "mlx5_0"]


def test_an_unknown_part_of_the_tree_is_said(plain: Callable[..., Schematic]) -> None:
    parts: tuple[Part, ...] = plain(Snapshot(gpus=[Gpu(index=0)])).parts
    assert [part.title for part in parts] == ["NUMA node not known"]
    assert parts[0].inferred


def test_a_tree_deeper_than_any_machine_is_a_sentence(plain: Callable[..., Schematic]) -> None:
    addresses = [f"{i:04x}:00:00.0" for i in range(400)]
    parents = [None, *addresses]
    pci = [
        PciDevice(address=address, class_code="0x060400", parent=parent, root="0000:00", numa_node=0)
        for address, parent in zip(addresses, parents, strict=False)
    ]
    with pytest.raises(InputError, match="levels deep"):
        plain(Snapshot(gpus=[Gpu(index=0, address=addresses[-1], numa_node=0)], pci=pci))


def test_no_gpu_is_a_sentence(plain: Callable[..., Schematic]) -> None:
    with pytest.raises(NothingDetermined, match="no GPU was found"):
        plain(Snapshot())
