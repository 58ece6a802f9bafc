from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from topoadvisor.snapshot import Gpu, Host, Matrix, NumaNode, PciDevice, Snapshot
from topoadvisor.topology import matrix
from topoadvisor.topology.graph import build

Place = tuple[int, int, int, int]
"""NUMA node, root complex, first switch, second switch (0 = none)."""


def machine(places: list[Place]) -> Snapshot:
    """GPUs on bare metal: each under its switches, below a root port, below a root complex, on a NUMA node."""
    pci: dict[str, PciDevice] = {}
    gpus = []
    for index, (numa, root, first, second) in enumerate(places):
        complex_, bus = f"{numa}{root}00:00", f"{numa}{root}"
        parent: str | None = None
        levels = [f"{bus}00:00:0{first}.0"]
        if first:
            levels += [f"{bus}00:1{first}:00.0", f"{bus}00:2{first}:0{second}.0"]
        if first and second:
            levels += [f"{bus}00:3{first}:0{second}.0", f"{bus}00:4{first}:0{second}.0"]
        if not first:
            levels = [f"{bus}00:00:1{index % 8}.{index // 8}"]
        for address in levels:
            pci[address] = PciDevice(address=address, parent=parent, root=complex_, numa_node=numa)
            parent = address
        address = f"{bus}00:{0x50 + index:02x}:00.0"
        pci[address] = PciDevice(address=address, parent=parent, root=complex_, numa_node=numa)
        gpus.append(Gpu(index=index, address=address, nvlinks=[]))
    nodes = [NumaNode(id=numa, cpus=str(numa)) for numa in sorted({place[0] for place in places})]
    return Snapshot(gpus=gpus, pci=list(pci.values()), host=Host(numa_nodes=nodes))


@given(st.lists(st.tuples(*(st.integers(0, most) for most in (1, 1, 2, 2))), min_size=2, max_size=10))
def test_a_tree_inferred_from_a_matrix_has_the_classes_of_the_tree_it_was_printed_from(places: list[Place]) -> None:
    real = build(machine(places))
    (printed,) = matrix.of(machine(places), real)
    guessed = build(Snapshot(origin="matrix", matrices=[printed]))
    for a, b in combinations(real.gpus, 2):
        assert real.pair(a, b).link_class is not None
        assert guessed.pair(a, b).link_class == real.pair(a, b).link_class
        assert guessed.attributes["hierarchy"].relate(a, b).link_class == real.pair(a, b).link_class
    assert guessed.notes == () or all("socket" in note for note in guessed.notes)


WORDS = ["X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "NV2", "NV12", "C2C", "-", "N/A", ""]


@given(st.integers(1, 5), st.integers(0, 2), st.data())
def test_no_matrix_is_too_strange(gpus: int, nics: int, data: st.DataObject) -> None:
    labels = [f"GPU{number}" for number in range(gpus)] + [f"NIC{number}" for number in range(nics)]
    cell = st.sampled_from(WORDS)
    cells = {a: {b: data.draw(cell) for b in labels if b != a} for a in labels if data.draw(st.booleans())}
    numa = {label: data.draw(st.sampled_from(["0", "1", "0-1", "N/A", "", None])) for label in labels[:gpus]}
    matrix = Matrix(gpus=labels[:gpus], nics=labels[gpus:], cells=cells, numa_affinity=numa)
    topology = build(Snapshot(origin="matrix", matrices=[matrix]))
    for a, b in combinations(labels[:gpus], 2):
        there, back = (cells.get(row, {}).get(column) for row, column in ((a, b), (b, a)))
        seen = topology.pair(f"gpu:{a[3:]}", f"gpu:{b[3:]}").link_class
        if there == back and there in ("PIX", "PXB", "PHB", "NODE", "SYS", "NV2", "NV12"):
            assert seen == there
        if there not in (None, back) and back is not None:
            assert seen is None


def test_nvlink_hides_a_class_that_a_nic_gives_away(pasted: Callable[..., Snapshot]) -> None:
    text = """
    GPU0 GPU1 GPU2 NIC0 NIC1
    GPU0 X NV4 NV4 PIX SYS
    GPU1 NV4 X NV4 NODE SYS
    GPU2 NV4 NV4 X SYS PIX
    """
    topology = build(pasted(text))
    joined = {pair: topology.pair(*pair) for pair in combinations(topology.gpus, 2)}
    assert joined["gpu:0", "gpu:1"].pcie_class == "NODE"
    assert joined["gpu:1", "gpu:2"].pcie_class == "SYS"
    assert joined["gpu:0", "gpu:2"].pcie_class == "SYS"


def test_the_same_distance_to_everything_gives_nothing_away(pasted: Callable[..., Snapshot]) -> None:
    topology = build(pasted("GPU0 GPU1 NIC0\nGPU0 X NV4 NODE\nGPU1 NV4 X NODE"))
    assert topology.pair("gpu:0", "gpu:1").pcie_class is None


def test_numa_columns_tell_gpus_apart(pasted: Callable[..., Snapshot]) -> None:
    text = "GPU0 GPU1 GPU2\nGPU0 X NV4 NV4\nGPU1 NV4 X NV4\nGPU2 NV4 NV4 X"
    topology = build(pasted(text, numa=[0, 0, 3]))
    assert topology.pair("gpu:0", "gpu:2").pcie_class == "SYS"
    assert topology.pair("gpu:0", "gpu:1").pcie_class is None
    assert topology.graph.has_edge("gpu:2", "numa:3")
    assert not topology.graph.nodes["numa:3"]["inferred"]


def test_cpu_lists_stand_in_for_the_numa_column_of_old_drivers(table: Callable[..., Matrix]) -> None:
    matrix = table("GPU0 GPU1\nGPU0 X NV1\nGPU1 NV1 X")
    apart = Matrix(gpus=matrix.gpus, nics=[], cells=matrix.cells, cpu_affinity={"GPU0": "0-19", "GPU1": "20-39"})
    assert build(Snapshot(matrices=[apart])).pair("gpu:0", "gpu:1").pcie_class == "SYS"
    alike = Matrix(gpus=matrix.gpus, nics=[], cells=matrix.cells, cpu_affinity={"GPU0": "0-39", "GPU1": "0-39"})
    assert build(Snapshot(matrices=[alike])).pair("gpu:0", "gpu:1").pcie_class is None


def test_printed_numa_node_against_printed_sys(pasted: Callable[..., Snapshot]) -> None:
    topology = build(pasted("GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X", numa=[0, 0]))
    assert topology.pair("gpu:0", "gpu:1").link_class == "SYS"
    assert any("NUMA node 0" in note for note in topology.notes)
    assert sum(facts["kind"] == "numa" for _, facts in topology.graph.nodes(data=True)) == 2


def test_what_was_reasoned_and_has_no_address_is_told_apart_by_its_gpus(pasted: Callable[..., Snapshot]) -> None:
    names = [f"GPU{gpu}" for gpu in range(6)]
    near = (" ".join("X" if a == b else "PIX" if a // 3 == b // 3 else "SYS" for b in range(6)) for a in range(6))
    rows = (f"{name} {cells}" for name, cells in zip(names, near, strict=True))
    nodes = build(pasted("\n".join([" ".join(names), *rows]))).graph.nodes(data=True)
    labels = [data["label"] for _, data in nodes if data["kind"] in ("root", "bridge") and data["inferred"]]
    assert len(set(labels)) == len(labels)
    assert {"PCIe root of GPU0 and 2 more", "PCIe switch of GPU3 and 2 more"} <= set(labels)
