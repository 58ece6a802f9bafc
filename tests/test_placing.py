"""Ranks on GPUs: every rank once, groups as they must be, and sizes that do not fit."""

from __future__ import annotations

import io

import msgspec
import pytest

from topoadvisor import files, placing
from topoadvisor.errors import InputError
from topoadvisor.ingest import detect
from topoadvisor.placing import Document, Sizes
from topoadvisor.snapshot import Measurement, Snapshot


def machine(name: str) -> Snapshot:
    return detect.read(str(files.shipped("fixtures") / name), stdin=io.BytesIO())


def placed(name: str, tp: int, pp: int, dp: int, ep: int = 1, nodes: int | None = None) -> Document:
    return placing.place(machine(name), Sizes(tp, pp, dp, ep, nodes))


@pytest.mark.parametrize(
    ("tp", "pp", "ep", "nodes"),
    [
        *((1, 1, 1, 1), (2, 2, 2, 1), (4, 2, 1, 1), (8, 1, 1, 1), (1, 4, 2, 1), (2, 4, 1, 1)),
        *((1, 4, 2, 2), (4, 1, 2, 2), (8, 2, 1, 2), (2, 2, 2, 4), (4, 4, 2, 4), (8, 1, 2, 4)),
    ],
)
def test_every_rank_has_a_gpu_of_its_own_and_every_group_its_members(tp: int, pp: int, ep: int, nodes: int) -> None:
    dp = 8 * nodes // (tp * pp)
    found = placed("dgx-h100", tp, pp, dp, ep, nodes)
    assert [rank.rank for rank in found.ranks] == list(range(8 * nodes))
    assert len({(rank.node, rank.gpu) for rank in found.ranks}) == 8 * nodes
    assert len({(rank.tensor, rank.data, rank.pipeline) for rank in found.ranks}) == 8 * nodes
    by_rank = {rank.rank: rank for rank in found.ranks}
    for group in found.groups:
        members = [by_rank[rank] for rank in group.ranks]
        if group.kind == "tensor":
            assert len(members) == tp
            assert {(rank.data, rank.pipeline, rank.node) for rank in members} == {
                (members[0].data, members[0].pipeline, members[0].node)
            }
        if group.kind == "expert":
            assert len(members) == ep
            assert len({(rank.tensor, rank.pipeline) for rank in members}) == 1
        if group.kind == "data":
            assert len(members) == dp
            on_each = [{rank.gpu for rank in members if rank.node == node} for node in {rank.node for rank in members}]
            assert all(gpus == on_each[0] for gpus in on_each)  # so that each rank's peers are on its rail
        if group.kind == "pipeline":
            assert members[1].pipeline == members[0].pipeline + 1
            assert (members[1].tensor, members[1].data) == (members[0].tensor, members[0].data)
    order = list(map(int, found.cuda_visible_devices.split(",")))
    assert all(rank.gpu == order[rank.local_rank] for rank in found.ranks)


def test_tensor_groups_take_the_bridges() -> None:
    found = placed("4xa100-pcie", 2, 1, 2)
    assert [group.gpus for group in found.groups if group.kind == "tensor"] == [[0, 1], [2, 3]]
    assert found.warnings == []
    cube = placed("dgx-1v", 2, 1, 4)
    assert [sorted(group.gpus) for group in cube.groups if group.kind == "tensor"] == [[0, 3], [1, 2], [4, 7], [5, 6]]
    blocks = placed("dgx-1v", 2, 1, 4, 2)
    assert next(sorted(group.gpus) for group in blocks.groups if group.kind == "expert")[0] in (0, 3)
    assert {gpu < 4 for group in blocks.groups if group.kind == "expert" for gpu in group.gpus[:1]} == {True, False}


def test_tensor_parallelism_over_slow_links_is_advised_against_with_the_number() -> None:
    (warning,) = placed("8x4090", 4, 1, 2).warnings
    assert "Tensor parallelism of 4 over these links is a bad idea: 11.9 GB/s" in warning
    assert "takes 8.43 ms" in warning
    assert placed("8x4090", 1, 1, 8).warnings == []
    assert placed("dgx-h100", 8, 1, 1).warnings == []


def test_a_part_of_a_node_is_the_best_part() -> None:
    assert placed("8x4090", 1, 1, 4).cuda_visible_devices == "0,1,4,5"


def test_experts_across_nodes_are_told() -> None:
    assert any("Expert groups cross nodes" in warning for warning in placed("dgx-h100", 8, 1, 2, 2).warnings)


def without_copies(name: str, *pairs: tuple[int, int]) -> Snapshot:
    """The machine with copies between these pairs, in one direction, that came out wrong."""
    runs = [
        Measurement(kind=kind, subject=f"gpu:{a}>gpu:{b}", size_bytes=1 << 26, outcome="wrong-data")
        for a, b in pairs
        for kind in ("peer-copy", "staged-copy")
    ]
    return msgspec.structs.replace(machine(name), measurements=runs)


def test_no_tensor_group_holds_a_pair_that_failed_where_that_can_be() -> None:
    snapshot = without_copies("dgx-h100", (0, 1), (3, 2))
    found = placing.place(snapshot, Sizes(4, 2, 1, 1, None))
    tensor = [set(group.gpus) for group in found.groups if group.kind == "tensor"]
    assert not any({0, 1} <= group or {2, 3} <= group for group in tensor)
    stages = [set(group.gpus) for group in found.groups if group.kind == "pipeline"]
    assert len(stages) == 4
    assert {0, 1} not in stages
    assert {2, 3} not in stages
    assert found.warnings == []
    assert any(
        "Copies between these failed when they were measured" in note
        and "GPU0–GPU1 (wrong-data), GPU2–GPU3 (wrong-data)." in note
        for note in found.notes
    )
    half = placing.place(snapshot, Sizes(2, 1, 2, 1, None))
    assert half.warnings == []
    assert not any({0, 1} <= set(group.gpus) or {2, 3} <= set(group.gpus) for group in half.groups)


def test_groups_that_cannot_do_without_a_pair_that_failed_are_warned_of() -> None:
    for sizes in (Sizes(8, 1, 1, 1, None), Sizes(1, 1, 16, 1, None)):
        (warning,) = placing.place(without_copies("dgx-h100", (0, 1)), sizes).warnings
        assert warning.endswith("NCCL may use these links: GPU0–GPU1 (wrong-data).")


def test_over_nodes_a_group_takes_what_its_ports_let_through_at_least() -> None:
    found = [group for group in placed("dgx-h100", 8, 1, 4).groups if group.kind == "data"]
    assert [group.rails for group in found] == [
        [f"mlx5_{port}"] for port in (0, 3, 4, 5, 6, 9, 10, 11)
    ]  # ConnectX-7 next to each GPU, 50 GB/s by its line rate and 48 by the PCIe link in NCCL's model
    for group in found:
        assert group.time_us == pytest.approx(2 * 3 / 4 * (256 << 20) / 48e3, rel=1e-3)
        assert group.busbw_gbps == pytest.approx(48, rel=1e-3)
        assert (group.nodes, group.sharing, group.unknown) == (4, 1, None)
    stages = [group for group in placed("dgx-h100", 8, 2, 1).groups if group.kind == "pipeline"]
    assert [group.time_us for group in stages] == pytest.approx([(64 << 20) / 48e3] * 8, rel=1e-3)
    experts = next(group for group in placed("dgx-h100", 1, 1, 16, 16).groups if group.kind == "expert")
    assert experts.time_us == pytest.approx(8 * (64 << 20) / 2 / (8 * 48e3), rel=1e-3)


def test_groups_that_share_a_port_are_counted() -> None:
    groups = [group for group in placed("4xa100-pcie", 2, 1, 4).groups if group.kind == "data"]
    assert [(group.rails, group.sharing) for group in groups] == [(["mlx5_0"], 2)] * 2


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (machine("paste-8xa100"), "the rate of mlx5_0 was not read"),
        (msgspec.structs.replace(machine("dgx-h100"), nics=None), "the NICs were not read"),
        (msgspec.structs.replace(machine("dgx-h100"), nics=[]), "no RDMA port that NCCL would take was found"),
    ],
)
def test_why_nothing_is_known_of_the_network_is_told(snapshot: Snapshot, why: str) -> None:
    crossing = [group for group in placing.place(snapshot, Sizes(4, 1, 4, 1, 2)).groups if group.nodes > 1]
    assert {group.time_us for group in crossing} == {None}
    assert (crossing[0].unknown or "").startswith(why)


def test_a_leftover_variable_that_is_to_go_moves_no_group() -> None:
    found = placed("8xa100-p2p-disabled", 4, 1, 2)
    assert [group.gpus for group in found.groups if group.kind == "tensor"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert found.notes == [
        "This is the machine with NCCL_P2P_DISABLE unset, as advised; as it stands, NCCL takes other ways."
    ]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (Sizes(4, 2, 2, 1, 1), "tp 4 × pp 2 × dp 2 = 16 GPUs on 1 node are 16 each"),
        (Sizes(16, 1, 1, 1, None), "tensor groups of 16 do not divide the GPUs of a node .8."),
        (Sizes(3, 1, 3, 1, None), "= 9 GPUs do not divide into 2 nodes"),
        (Sizes(2, 1, 3, 2, None), "--ep 2 does not divide --dp 3"),
        (Sizes(1, 1, 1_000_000, 1, None), "more than 100000"),
        (Sizes(1, 1, 8, 1, 3), "do not divide into 3 nodes"),
    ],
)
def test_sizes_that_do_not_fit(sizes: Sizes, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        placing.place(machine("dgx-h100"), sizes)
