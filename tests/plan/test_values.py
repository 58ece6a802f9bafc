"""What sets of GPUs carry, against solving each for itself; and divisions, against all that there are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from random_machines import machine

from topoadvisor import planning
from topoadvisor.plan import Model, divisions, nearness, values
from topoadvisor.plan.link_model import LinkModel
from topoadvisor.plan.optimum import optimum
from topoadvisor.plan.values import Values
from topoadvisor.topology import graph


def carried(model: LinkModel, places: Sequence[int]) -> float:
    own = model.among(places)
    assert own is not None
    found = optimum(own)
    return found.gbps if found else 0.0


@pytest.mark.parametrize("size", [2, 3, 4, 6])
@pytest.mark.parametrize("seed", range(12))
def test_no_set_passes_its_limit_or_misses_what_it_is_said_to_reach(seed: int, size: int) -> None:
    here = planning.Machine(machine(seed, 9), "expected")
    whole = here.links(here.gpus, job=size)
    found = Values(here.links, here.gpus, size)
    rows = found.rows(itertools.combinations(here.gpus, size))
    true = [carried(whole, each) for each in itertools.combinations(range(9), size)]
    for solved in (None, *random.Random(seed).sample(rows.tolist(), 5)):
        if solved is not None:
            found.solve(solved)
        for row, gbps in zip(rows, true, strict=True):
            assert found.lower[row] <= gbps * (1 + 1e-5)
            assert found.upper[row] >= gbps * (1 - 1e-5)


@pytest.mark.parametrize("model", ["expected", "nccl"])
@pytest.mark.parametrize("seed", range(16))
def test_the_links_of_some_gpus_are_those_of_the_whole(seed: int, model: Model) -> None:
    """Beside them the whole has links that no hop between these GPUs uses; a hop through an absent GPU is said."""
    here = planning.Machine(machine(seed), model)
    n = len(here.gpus)
    pick = random.Random(seed)
    for size in range(2, n):
        whole = here.links(here.gpus, job=size)
        places = sorted(pick.sample(range(n), size))
        own = whole.among(places)
        alone = here.links([here.gpus[place] for place in places])
        if own is None:
            assert any(not set(through) <= set(places) for through in whole.through.values())
            continue
        assert own.loads.keys() == alone.loads.keys()
        for hop in own.loads:
            mine = sorted((round(own.capacity[link], 6), factor) for link, factor in own.loads[hop])
            assert mine == sorted((round(alone.links[link].gbps, 6), factor) for link, factor in alone.loads[hop])


@pytest.mark.parametrize(("gpus", "size"), [(7, 3), (8, 2), (8, 4), (9, 4)])
@pytest.mark.parametrize("seed", range(6))
def test_no_division_is_better(seed: int, gpus: int, size: int) -> None:
    snapshot = machine(seed, gpus)
    here = planning.Machine(snapshot, "expected")
    near = nearness.of(graph.build(snapshot), here.gpus)
    found = Values(here.links, here.gpus, size)
    sets = list(itertools.combinations(here.gpus, size))
    for row in found.rows(sets):
        found.solve(int(row))
    gbps = {each: found.value(int(row)) for each, row in zip(sets, found.rows(sets), strict=True)}

    def score(groups: Sequence[tuple[int, ...]]) -> tuple[list[float], int, int]:
        far = [near.of(group) for group in groups]
        return sorted(gbps[group] for group in groups), -sum(nic for nic, _ in far), -sum(host for _, host in far)

    def every(left: tuple[int, ...], count: int) -> list[list[tuple[int, ...]]]:
        if count == 0:
            return [[]]
        first = itertools.combinations(left, size)
        return [
            [group, *rest]
            for group in first
            for rest in every(tuple(gpu for gpu in left if gpu > group[0] and gpu not in group), count - 1)
        ]

    lazily = Values(here.links, here.gpus, size)
    lazily.rows(sets)
    division = divisions.best(lazily, near, size, tuple(here.gpus))
    assert division.exact
    assert score(division.groups) == max(map(score, every(tuple(here.gpus), gpus // size)))


@pytest.mark.parametrize("size", [3, 4, 8])
def test_sixteen_gpus_of_which_no_two_are_alike(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """12,870 sets of eight are held down by limits that rings reach: hardly any is solved for itself."""
    solved = []
    monkeypatch.setattr(values, "optimum", lambda problem: solved.append(problem) or optimum(problem))
    found = planning.pick(machine(0, 16), size)
    assert found.exact
    assert found.groups_exact
    assert len(solved) < 40
    assert sorted([*itertools.chain(*(group.gpus for group in found.groups)), *found.idle]) == list(range(16))


def test_where_too_many_would_have_to_be_solved_the_gap_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_WORK", 0)
    snapshot = next(each for seed in range(40) if not planning.pick(each := machine(seed, 8), 4).exact)
    short = planning.pick(snapshot, 4)
    (said,) = [note for note in short.notes if "not proven best: there are more sets" in note]
    monkeypatch.undo()
    whole = planning.pick(snapshot, 4)
    assert whole.exact
    assert short.best.gbps is not None
    assert whole.best.gbps is not None
    assert short.best.gbps <= whole.best.gbps
    assert float(said.rpartition("more than ")[2].removesuffix(" GB/s.")) >= whole.best.gbps * 0.999
