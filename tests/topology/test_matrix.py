from __future__ import annotations

from collections.abc import Callable

import msgspec

from topoadvisor.ingest import detect
from topoadvisor.snapshot import Gpu, Matrix, Snapshot
from topoadvisor.topology import matrix
from topoadvisor.topology.graph import build


def test_a_printed_table_is_given_back_as_printed(guest: Snapshot, table: Callable[..., Matrix]) -> None:
    printed = table("GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X")
    snapshot = msgspec.structs.replace(guest, matrices=[printed])
    assert matrix.of(snapshot, build(snapshot)) == [printed]


def test_a_computed_table(server: Snapshot) -> None:
    (computed,) = matrix.of(server, build(server))
    assert computed.gpus == [f"GPU{number}" for number in range(5)]
    assert computed.nic_legend == {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}
    assert computed.cells["GPU0"] == {
        "GPU1": "PXB",
        "GPU2": "PHB",
        "GPU3": "NODE",
        "GPU4": "SYS",
        "NIC0": "PIX",
        "NIC1": "PIX",
    }
    assert computed.cells["NIC0"]["NIC1"] == "PIX"
    assert all(computed.cells[b][a] == text for a, row in computed.cells.items() for b, text in row.items())
    assert computed.numa_affinity == {"GPU0": "0", "GPU1": "0", "GPU2": "0", "GPU3": "0", "GPU4": "1"}
    assert computed.cpu_affinity["GPU4"] == "32-63"


def test_a_computed_table_shows_the_nodes_of_gpu_memory(server: Snapshot) -> None:
    gpus = [msgspec.structs.replace(server.gpus[0], memory_numa_node=255), *server.gpus[1:]]
    (computed,) = matrix.of(msgspec.structs.replace(server, gpus=gpus), build(server))
    assert computed.gpu_numa_id == {"GPU0": "255", "GPU1": None, "GPU2": None, "GPU3": None, "GPU4": None}


def test_unknown_cells_are_left_out(guest: Snapshot) -> None:
    gpus = [msgspec.structs.replace(gpu, nvlinks=None) for gpu in guest.gpus]
    snapshot = msgspec.structs.replace(guest, gpus=gpus)
    (computed,) = matrix.of(snapshot, build(snapshot))
    assert computed.cells == {"GPU0": {}, "GPU1": {}}


def test_both_kinds_of_table_are_put_together(table: Callable[..., Matrix]) -> None:
    nvlinks = table("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X")
    classes = table("GPU0 GPU1\nGPU0 X NODE\nGPU1 NODE X")
    pair = build(Snapshot(origin="matrix", matrices=[nvlinks, classes])).pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.pcie_class) == ("NV4", "NODE")


def test_a_table_of_another_machine_is_left_out(table: Callable[..., Matrix]) -> None:
    first = table("GPU0 GPU1\nGPU0 X NODE\nGPU1 NODE X")
    other = table("GPU0 GPU1 GPU2\nGPU0 X SYS SYS\nGPU1 SYS X SYS\nGPU2 SYS SYS X")
    topology = build(Snapshot(origin="matrix", matrices=[first, other]))
    assert topology.pair("gpu:0", "gpu:1").link_class == "NODE"
    assert len(topology.gpus) == 2
    assert any("another machine" in note for note in topology.notes)


def test_words_of_old_drivers(table: Callable[..., Matrix]) -> None:
    topology = build(Snapshot(matrices=[table("GPU0 GPU1 GPU2\nGPU0 X SOC PSB\nGPU1 SOC X SOC\nGPU2 PSB SOC X")]))
    assert topology.pair("gpu:0", "gpu:1").link_class == "SYS"
    assert topology.pair("gpu:0", "gpu:2").link_class == "PIX"
    assert any("SOC" in note for note in topology.notes)


def test_a_word_that_is_no_class_is_noted(table: Callable[..., Matrix]) -> None:
    topology = build(Snapshot(matrices=[table("GPU0 GPU1\nGPU0 X FOO\nGPU1 FOO X")]))
    assert topology.pair("gpu:0", "gpu:1").link_class is None
    assert any("FOO" in note for note in topology.notes)


def test_gpus_that_only_an_old_table_shows_are_left_out_and_told(table: Callable[..., Matrix]) -> None:
    printed = table("GPU0 GPU1\nGPU0 X NV18\nGPU1 NV18 X")
    one = build(Snapshot(gpus=[Gpu(index=0)], matrices=[printed]))
    assert one.gpus == ("gpu:0",)
    assert "The printed matrix shows GPU1, which this machine has not: left out." in one.notes
    both = build(Snapshot(matrices=[printed]))
    assert both.gpus == ("gpu:0", "gpu:1")


def test_what_scan_shows_is_what_is_believed() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV18\tSOC\nGPU1\tNV18\t X \tSOC\nGPU2\tSOC\tSOC\t X \n"
    for gpu in (0, 1):
        text += f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-4000-8000-00000000000{gpu})\n"
        text += "".join(f"\t Link {link}: {'26.562 GB/s' if link < 16 else '<inactive>'}\n" for link in range(18))
    snapshot = detect.from_bytes(text.encode(), file="paste")
    shown = matrix.shown(snapshot, build(snapshot))
    assert shown.cells["GPU0"] == {"GPU1": "NV16", "GPU2": "SOC"}
    assert snapshot.matrices[0].cells["GPU0"] == {"GPU1": "NV18", "GPU2": "SOC"}
