"""Choices of GPUs in the advice: the same as `pick` makes, and only where the first ones are slower."""

from __future__ import annotations

import io

import pytest

from topoadvisor import advise, estimates, files, planning
from topoadvisor.errors import NothingDetermined
from topoadvisor.ingest import assume, detect

FIXTURES = sorted(path.name for path in files.shipped("fixtures").iterdir() if path.is_dir())


@pytest.mark.parametrize("name", FIXTURES)
def test_the_advice_picks_as_pick_does(name: str) -> None:
    snapshot = detect.read(str(files.shipped("fixtures") / name), stdin=io.BytesIO())
    plan = advise.advise(snapshot).plan
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


def test_where_the_first_are_as_good_nothing_is_said_and_no_solver_is_loaded() -> None:
    import subprocess
    import sys

    program = (
        "import io, sys; from topoadvisor import advise, files; from topoadvisor.ingest import detect; "
        "plan = advise.advise(detect.read(str(files.shipped('fixtures') / 'dgx-h100'), stdin=io.BytesIO())).plan; "
        "print(plan.picks, 'numpy' in sys.modules, 'highspy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False False\n"


def test_nothing_is_planned_over_gpus_in_mig_mode() -> None:
    given = detect.read("fixture:dgx-a100", stdin=io.BytesIO())
    given = assume.apply(given, assume.gather(["gpu[2].mig=true"], None))
    assert advise.advise(given).plan is None
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
