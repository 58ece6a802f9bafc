"""Plans in the advice: GPUs as `pick` chooses them, tensor groups as `place` does, and only where that matters."""

from __future__ import annotations

import io

import pytest
from random_machines import machine

from topoadvisor import estimates, files, placing, planning, plans
from topoadvisor.errors import NothingDetermined
from topoadvisor.ingest import assume, detect
from topoadvisor.snapshot import Snapshot

FIXTURES = sorted(path.name for path in files.shipped("fixtures").iterdir() if path.is_dir())


@pytest.mark.parametrize("name", FIXTURES)
def test_the_advice_picks_as_pick_does(name: str) -> None:
    snapshot = detect.read(str(files.shipped("fixtures") / name), stdin=io.BytesIO())
    plan = plans.analyse(snapshot).advice.plan
    if plan is None:
        pytest.skip("no plan")
    told = {pick.size: pick for pick in plan.picks}
    for size in (2, 4):
        if size >= len(snapshot.gpus):
            continue
        first = [gpu.index for gpu in snapshot.gpus][:size]
        found = planning.pick(snapshot, size, compare=first)
        assert found.compared is not None
        if size not in told:
            assert not found.compared.loss_gbps
            continue
        pick = told[size]
        assert pick.gpus == found.best.gpus
        assert pick.gbps == pytest.approx(found.best.gbps, abs=1e-3)
        assert pick.instead_of == first
        assert pick.instead_gbps == pytest.approx(found.compared.choice.gbps, abs=1e-3)
        assert pick.groups == [group.gpus for group in found.groups]


def fixture(name: str) -> Snapshot:
    return detect.read(str(files.shipped("fixtures") / name), stdin=io.BytesIO())


def carried(snapshot: Snapshot, gpus: list[int]) -> float:
    return planning.best_rings(snapshot, gpus=gpus).total_gbps or 0.0


@pytest.mark.parametrize("snapshot", [*map(fixture, FIXTURES), *(machine(seed, 8) for seed in range(3))])
def test_tensor_groups_are_those_of_place_and_told_exactly_where_they_matter(snapshot: Snapshot) -> None:
    plan = plans.analyse(snapshot).advice.plan
    if plan is None:
        pytest.skip("no plan")
    told = {placement.tensor: placement for placement in plan.placements}
    gpus = [gpu.index for gpu in snapshot.gpus]
    for size in (2, 4, 8):
        if size >= len(gpus) or len(gpus) % size:
            continue
        placed = placing.place(snapshot, placing.Sizes(size, 1, len(gpus) // size, 1, 1))
        if None in placed.tensor_gbps:
            assert size not in told
            continue
        slowest = min(gbps for gbps in placed.tensor_gbps if gbps is not None)
        in_order = min(carried(snapshot, gpus[at : at + size]) for at in range(0, len(gpus), size))
        if size not in told:
            assert slowest == pytest.approx(in_order, rel=1e-4)
            # Hops over PCIe beside NVLink are not planned where they add less than a tenth.
            assert slowest <= 1.1 / 0.9 * carried(snapshot, gpus)
            continue
        placement = told[size]
        assert [gpu for group in placement.groups for gpu in group] == [rank.gpu for rank in placed.ranks]
        assert placement.gbps == pytest.approx(placed.tensor_gbps, abs=1e-3)
        assert placement.in_order_gbps == pytest.approx(in_order, abs=2e-3)
        assert placement.together_gbps >= carried(snapshot, gpus) * 0.9999
        assert slowest > min(in_order, placement.together_gbps)
        doubts = [warning for warning in placed.warnings if "is a bad idea" in warning]
        assert [doubt.startswith(str(placement.doubt)) for doubt in doubts] == [True] * (placement.doubt is not None)
        if placement.doubt is not None:
            break


def test_bridged_pairs_keep_tensor_parallelism_inside() -> None:
    plan = plans.analyse(fixture("4xa100-pcie")).advice.plan
    assert plan is not None
    (pairs,) = plan.placements
    assert (pairs.tensor, pairs.groups, pairs.gbps) == (2, [[0, 1], [2, 3]], [300.0, 300.0])
    assert (pairs.in_order_gbps, pairs.together_gbps, pairs.doubt) == (300.0, 57.614, None)


def test_a_hybrid_cube_mesh_puts_tensor_groups_on_double_links() -> None:
    plan = plans.analyse(fixture("dgx-1v")).advice.plan
    assert plan is not None
    (pairs,) = plan.placements
    assert pairs.groups == [[0, 3], [1, 2], [4, 7], [5, 6]]
    assert (pairs.gbps, pairs.in_order_gbps) == ([50.0] * 4, 25.0)


def test_an_nccl_too_old_to_be_counted_with_still_gets_its_plan() -> None:
    plan = plans.analyse(assume.apply(fixture("dgx-1v"), assume.gather(["nccl.version=2.4.7"], None))).advice.plan
    assert plan is not None
    (pairs,) = plan.placements
    assert (pairs.groups, pairs.doubt) == ([[0, 3], [1, 2], [4, 7], [5, 6]], None)


@pytest.mark.parametrize(("told", "why"), [("nccl=2.4.8", "NCCL 2.4.8 counts differently"), ("cpu.vendor=Foo", "CPU")])
def test_a_tensor_group_whose_speed_is_not_known_is_said_to_be_so(told: str, why: str) -> None:
    plan = plans.analyse(assume.apply(fixture("8x4090"), assume.gather([told], None))).advice.plan
    assert plan is not None
    assert not any(placement.doubt for placement in plan.placements)
    (note,) = [note for note in plan.notes if "not determined" in note]
    assert note.startswith("Whether tensor parallelism of 2 or 4 is fast enough here")
    assert why in note


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (
            ["pair[0-3].p2p.read=NS", "pair[0-3].p2p.write=NS"],
            "NVLink joins GPU0-GPU3, but the driver refuses peer access there: NCCL stops with an error",
        ),
        (
            ["pair[0-3].p2p.nvlink=NS"],
            "NVLink joins GPU0-GPU3, but the driver answers that peers do not reach each other over it",
        ),
        (
            ["pair[0-3].p2p.read=NS", "pair[0-3].p2p.write=NS", "NCCL_IGNORE_DISABLED_P2P=1"],
            "NVLink joins GPU0-GPU3, but the driver refuses peer access there, which NCCL_IGNORE_DISABLED_P2P hides",
        ),
    ],
)
def test_where_nvlink_is_refused_everybody_says_the_same(answers: list[str], said: str) -> None:
    given = assume.apply(fixture("dgx-1v"), assume.gather(answers, None))
    assert plans.analyse(given).advice.plan is None
    for refused in (
        lambda: planning.best_rings(given),
        lambda: planning.pick(given, 2),
        lambda: placing.place(given, placing.Sizes(4, 1, 2, 1, 1)),
        lambda: estimates.cost(given, "all_reduce", [1 << 20]),
    ):
        with pytest.raises(NothingDetermined, match=said):
            refused()
    assert planning.pick(given, 2, busy=[3]).best.gpus == [1, 2]


@pytest.mark.parametrize("off", ["NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=LOC"])
@pytest.mark.parametrize("machine", ["dgx-1v", "dgx-h100"])
def test_what_keeps_nccl_from_stopping_at_refused_nvlink_stays_and_is_planned_with(machine: str, off: str) -> None:
    refused = ["pair[0-3].p2p.read=NS", "pair[0-3].p2p.write=NS"]
    advice = plans.analyse(assume.apply(fixture(machine), assume.gather([*refused, off], None))).advice
    name = off.partition("=")[0]
    assert all(setting.name != name for setting in advice.settings)
    kept = [
        step.text for finding in advice.findings for step in finding.advice if step.text.startswith("Keep it until")
    ]
    assert len(kept) == 1
    assert "(GPU0-GPU3)" in kept[0]
    assert advice.plan is not None
    assert advice.plan.transport == "staged through host memory"
    without = plans.analyse(assume.apply(fixture(machine), assume.gather([off], None))).advice
    assert [setting.action for setting in without.settings if setting.name == name] == ["unset"]


def test_where_the_first_are_as_good_nothing_is_said_and_no_solver_is_loaded() -> None:
    import subprocess
    import sys

    program = (
        "import io, sys; from topoadvisor import files, plans; from topoadvisor.ingest import detect; "
        "given = detect.read(str(files.shipped('fixtures') / 'dgx-h100'), stdin=io.BytesIO()); "
        "plan = plans.analyse(given).advice.plan; "
        "print(plan.picks, plan.placements, 'numpy' in sys.modules, 'highspy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] [] False False\n"


def test_nothing_is_planned_over_gpus_in_mig_mode() -> None:
    given = detect.read("fixture:dgx-a100", stdin=io.BytesIO())
    given = assume.apply(given, assume.gather(["gpu[2].mig=true"], None))
    assert plans.analyse(given).advice.plan is None
    for plan in (
        lambda gpus: planning.best_rings(given, gpus=gpus),
        lambda gpus: estimates.cost(given, "all_reduce", [1 << 20], gpus),
    ):
        with pytest.raises(NothingDetermined, match="GPU2 is in MIG mode"):
            plan(None)
        assert plan([0, 1])
    with pytest.raises(NothingDetermined, match="GPU2 is in MIG mode"):
        planning.pick(given, 4)
    assert planning.pick(given, 4, busy=[2, 3]).best.gpus == [0, 1, 4, 5]


@pytest.mark.parametrize(
    ("link_class", "transport"), [("PXB", "PCIe peer-to-peer"), ("PHB", "PCIe, where it is not known")]
)
def test_what_every_default_level_reaches_needs_no_cpu_to_be_known(link_class: str, transport: str) -> None:
    matrix = f"\tGPU0\tGPU1\nGPU0\t X \t{link_class}\nGPU1\t{link_class}\t X \n"
    machine = detect.read(["-"], stdin=io.BytesIO(matrix.encode()))
    told = assume.apply(machine, assume.gather(["gpu.name=NVIDIA L40S", "p2p=ok"], None))
    plan = plans.analyse(told).advice.plan
    assert plan is not None
    assert plan.transport.startswith(transport)
