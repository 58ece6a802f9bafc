"""What a printed matrix of NVLink counts implies: switches, and links of one GPU that are down."""

from __future__ import annotations

import pytest

from topoadvisor import advise, plans
from topoadvisor.ingest import assume, detect
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph

H100 = ["gpu.name=NVIDIA H100 80GB HBM3", "nccl.version=2.28.9"]


def pasted(cells: dict[tuple[int, int], str], count: int, *assumed: str) -> Snapshot:
    names = [f"GPU{number}" for number in range(count)]
    rows = [
        "\t".join([name, *("X" if a == b else cells[min(a, b), max(a, b)] for b in range(count))])
        for a, name in enumerate(names)
    ]
    text = "\n".join(["\t" + "\t".join(names), *rows]) + "\n"
    return assume.apply(detect.from_bytes(text.encode(), file="paste"), assume.gather(list(assumed), None))


def switched(links: list[int]) -> dict[tuple[int, int], str]:
    """Cells of an NVSwitch machine: a pair shows what the GPU with fewer links has."""
    numbers = range(len(links))
    return {
        (a, b): f"NV{count}" if (count := min(links[a], links[b])) else "SYS" for a in numbers for b in numbers if a < b
    }


def test_one_gpu_with_links_down_behind_a_switch() -> None:
    snapshot = pasted(switched([18, 18, 18, 18, 18, 16, 18, 18]), 8, *H100)
    found = plans.analyse(snapshot)
    assert [(finding.id, finding.subject) for finding in found.advice.findings] == [("NVL002", "gpu:5")]
    assert "GPU5 has only 16 active NVLinks of 18" in found.advice.findings[0].message
    assert found.advice.plan is not None
    assert found.advice.plan.total_gbps == 400.0
    assert found.topology.pair("gpu:0", "gpu:5").through_switch


def test_one_gpu_that_lost_all_its_links_is_not_silent() -> None:
    """A MIG slice would look the same, so it is a hypothesis until that is known."""
    snapshot = pasted(switched([18, 18, 18, 0, 18, 18, 18, 18]), 8, *H100)
    for facts, hypothesis in ([], True), (["gpu.mig=false"], False):
        found = advise.analyse(assume.apply(snapshot, assume.gather(facts, None))).advice
        told = [(each.subject, each.hypothesis) for each in found.findings if each.id == "NVL002"]
        assert told == [("gpu:3", hypothesis)]


@pytest.mark.parametrize("links", [[6] * 16, [12] * 8, [18, 18, 17, 18]])
def test_more_links_than_a_board_has_mean_a_switch(links: list[int]) -> None:
    topology = graph.build(pasted(switched(links), len(links)))
    assert all(pair.through_switch for pair in topology.pairs.values())
    assert [topology.pair("gpu:0", "gpu:2").nvlinks] == [min(links[0], links[2])]


def test_a_mesh_is_no_switch() -> None:
    cube = {(0, 1): "NV1", (0, 2): "NV1", (0, 3): "NV2", (1, 2): "NV2", (1, 3): "NV1", (2, 3): "NV2"}
    topology = graph.build(pasted(cube, 4))
    assert not any(pair.through_switch for pair in topology.pairs.values())


def test_counts_that_no_switch_can_give_are_left_alone() -> None:
    cells = switched([18] * 8) | {(0, 1): "NV9"}
    topology = graph.build(pasted(cells, 8))
    assert not any(pair.through_switch for pair in topology.pairs.values())


def test_cards_that_came_before_mig_are_not_asked_about_it() -> None:
    snapshot = pasted({(0, 1): "NV2", (0, 2): "NV2", (1, 2): "NV1"}, 3, "gpu.name=Tesla V100-SXM2-32GB")
    assert "NVL016" not in {verdict.rule for verdict in advise.analyse(snapshot).advice.unknown}


def test_a_gpu_with_fewer_links_than_its_neighbours_shows_without_its_name() -> None:
    found = advise.analyse(pasted(switched([18, 18, 18, 18, 18, 16, 18, 18]), 8)).advice
    assert [(finding.id, finding.subject) for finding in found.findings] == [("NVL002", "gpu:5")]


def test_half_of_a_cube_mesh_is_no_fault() -> None:
    """Four GPUs of an eight-GPU cube mesh, as a cloud sells them: the links that are missing lead to the other four."""
    cells = {(0, 1): "NV1", (0, 2): "NV1", (0, 3): "NV2", (1, 2): "NV2", (1, 3): "NV1", (2, 3): "NV2"}
    found = advise.analyse(pasted(cells, 4, "gpu.name=Tesla V100-SXM2-16GB")).advice
    assert found.findings == []


def test_far_ends_that_a_cut_listing_lost_leave_the_matrix_believed() -> None:
    """`nvlink -R` that breaks off within the first GPU: the others' links are up, their far ends unread."""
    gpu = "GPU {}: NVIDIA H200 (UUID: GPU-0000000{})\n"
    states = "".join(
        gpu.format(n, n) + "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(18)) for n in range(2)
    )
    ends = "".join(
        gpu.format(n, n) + "".join(f"\t Link {link}: Remote Device FFFFFFFF:FF:FF.0: Link 0\n" for link in range(count))
        for n, count in ((0, 18), (1, 10))
    )
    matrix = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"
    read = detect.from_bytes((states + ends + matrix).encode(), file="paste")
    topology = graph.build(read)
    assert topology.pair("gpu:0", "gpu:1").nvlinks == 18
    assert not topology.disagreements


def listed(name: str, *up: int, of: int) -> str:
    """`nvidia-smi nvlink -s` of one GPU for each number of links that are up."""
    return "".join(
        f"GPU {index}: {name} (UUID: GPU-0000000{index})\n"
        + "".join(f"\t Link {link}: {'25 GB/s' if link < count else '<inactive>'}\n" for link in range(of))
        for index, count in enumerate(up)
    )


@pytest.mark.parametrize(
    ("name", "most", "up", "believed"),
    [
        ("NVIDIA GeForce RTX 3090", 4, (3, 3), 3),
        ("NVIDIA GeForce RTX 3090", 4, (4, 4), 4),
        ("NVIDIA A100-SXM4-80GB", 12, (11, 12), 11),
    ],
)
def test_links_that_are_down_count_for_more_than_the_printed_number(
    name: str, most: int, up: tuple[int, int], believed: int
) -> None:
    matrix = f"\tGPU0\tGPU1\nGPU0\t X \tNV{most}\nGPU1\tNV{most}\t X \n"
    topology = graph.build(detect.from_bytes((matrix + listed(name, *up, of=most)).encode(), file="paste"))
    assert topology.pair("gpu:0", "gpu:1").nvlinks == believed
    told = [(each.subject, each.values, each.believed) for each in topology.disagreements]
    values = (("nvidia-smi nvlink", str(believed)), ("nvidia-smi topo -m", str(most)))
    assert told == ([] if believed == most else [("gpu:0-gpu:1", values, str(believed))])


def test_links_that_are_down_somewhere_in_a_mesh() -> None:
    """Two links to each of three peers, and five are up: one pair has lost one, and nothing says which."""
    cells = {(a, b): "NV2" for a in range(4) for b in range(4) if a < b}
    text = pasted(cells, 4).raw[0].text + listed("Tesla V100-SXM2-16GB", 5, 6, 6, 5, of=6)
    topology = graph.build(detect.from_bytes(text.encode(), file="paste"))
    assert {pair.nvlinks for pair in topology.pairs.values()} == {2}
    assert [(each.subject, each.believed) for each in topology.disagreements] == [("gpu:0", "5"), ("gpu:3", "5")]
