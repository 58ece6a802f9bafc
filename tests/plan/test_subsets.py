"""The best GPUs for a job, against a search through all sets and all divisions that knows no symmetry."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from topoadvisor import files, planning
from topoadvisor.ingest import assume, detect
from topoadvisor.plan import Model, nearness, symmetry
from topoadvisor.plan.linear import maximise
from topoadvisor.plan.link_model import LinkModel
from topoadvisor.plan.optimum import optimum
from topoadvisor.plan.problem import Problem
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph

FIXTURES = sorted(path.name for path in files.shipped("fixtures").iterdir() if path.is_dir())


def read(name: str) -> Snapshot:
    return detect.read(str(files.shipped("fixtures") / name), stdin=io.BytesIO())


def ring_bandwidth(model: LinkModel) -> float:
    """By one program over every ring there is, as far as they can be listed; else by the planner's own."""
    n = len(model.gpus)
    if n > 6:
        found = optimum(model.problem())
        return found.gbps if found else 0.0
    columns = []
    for rest in itertools.permutations(range(1, n)):
        ring = (0, *rest)
        hops = [(ring[at], ring[(at + 1) % n]) for at in range(n)]
        if all(hop in model.loads for hop in hops):
            column = np.zeros(len(model.links))
            for hop in hops:
                for link, factor in model.loads[hop]:
                    column[link] += factor / model.links[link].gbps
            columns.append(column)
    return float(maximise(np.array(columns)).values.sum()) if columns else 0.0


class Brute:
    free: tuple[int, ...] = ()

    def __init__(self, snapshot: Snapshot, model: Model) -> None:
        self.machine = planning.Machine(snapshot, model, as_advised=True)
        self.near = nearness.of(graph.build(snapshot), self.machine.gpus)
        self.speed = cache(self._speed)

    def _speed(self, gpus: tuple[int, ...]) -> float:
        return float(f"{ring_bandwidth(self.machine.links(gpus)):.4g}") if len(gpus) > 1 else 0.0

    def divisions(self, size: int, left: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
        """Every way to form as many groups as there can be."""
        if len(left) < size:
            yield []
            return
        if len(left) % size:
            for idle in itertools.combinations(left, len(left) % size):
                yield from self.divisions(size, tuple(gpu for gpu in left if gpu not in idle))
            return
        for others in itertools.combinations(left[1:], size - 1):
            group = (left[0], *others)
            for rest in self.divisions(size, tuple(gpu for gpu in left if gpu not in group)):
                yield [group, *rest]

    def score(self, groups: list[tuple[int, ...]]) -> tuple[list[float], int, int]:
        near = [self.near.of(group) for group in groups]
        return sorted(map(self.speed, groups)), -sum(nic for nic, _ in near), -sum(host for _, host in near)

    def best_division(self, size: int, left: tuple[int, ...]) -> tuple[list[float], int, int]:
        return max(self.score(groups) for groups in self.divisions(size, left))

    def leaves(self, gpus: tuple[int, ...]) -> list[object]:
        others = tuple(gpu for gpu in self.free if gpu not in gpus)
        found: list[object] = [self.best_division(len(gpus), others)]
        size = 2 * len(gpus)
        if size <= len(others):
            sets = list(itertools.combinations(others, size))
            top = max(map(self.speed, sets))
            near = min(self.near.of(each) for each in sets if self.speed(each) == top)
            found.append((top, *(-each for each in near)))
        return found

    def best(self, size: int) -> tuple[int, ...]:
        sets = list(itertools.combinations(self.free, size))
        top = max(map(self.speed, sets))
        sets = [each for each in sets if self.speed(each) == top]
        near = min(map(self.near.of, sets))
        sets = [each for each in sets if self.near.of(each) == near]
        left = {each: self.leaves(each) for each in sets}
        return min(each for each in sets if left[each] == max(left.values()))


@pytest.mark.parametrize("model", ["expected", "nccl"])
@pytest.mark.parametrize("name", FIXTURES)
def test_every_size_on_every_machine_against_all_sets_and_all_divisions(name: str, model: Model) -> None:
    """With all GPUs free, and in the quicker model with GPU3 busy where there is one, too."""
    snapshot = read(name)
    gpus = [gpu.index for gpu in snapshot.gpus]
    if not 2 <= len(gpus) <= 10:
        pytest.skip("nothing to choose")
    brute = Brute(snapshot, model)
    for busy in ((), (3,)) if 3 in gpus and model == "expected" else ((),):
        brute.free = tuple(gpu for gpu in gpus if gpu not in busy)
        for size in range(1, len(brute.free) + 1):
            found = planning.pick(snapshot, size, model=model, busy=busy)
            assert tuple(found.best.gpus) == brute.best(size)
            groups = [tuple(group.gpus) for group in found.groups]
            assert sorted([*itertools.chain(*groups), *found.idle]) == list(brute.free)
            assert brute.score(groups) == brute.best_division(size, brute.free)
            assert found.exact
            assert found.groups_exact


def test_every_subset_of_a_shape_has_the_same_rings() -> None:
    """What symmetry rests on: sets that it calls alike carry the same, for machines of several kinds."""
    for name in ("8x4090", "8xl40s", "dgx-1v", "4xa6000-acs", "dgx-h100-broken-link"):
        machine = planning.Machine(read(name), "expected")
        near = nearness.of(graph.build(read(name)), machine.gpus)
        whole = machine.links(machine.gpus, job=3)
        block = symmetry.find(whole.problem(), near.tags(machine.gpus))
        seen: dict[object, float] = {}
        for gpus in itertools.combinations(machine.gpus, 3):
            gbps = ring_bandwidth(machine.links(gpus))
            assert seen.setdefault(symmetry.shape(block, frozenset(gpus)), gbps) == pytest.approx(gbps)
        listed = {symmetry.shape(block, frozenset(each)) for each in symmetry.sets(block, 3, frozenset(machine.gpus))}
        assert listed == set(seen)


def uplinks(n: int, per_switch: int, gbps: Sequence[float]) -> Problem:
    """GPUs below switches; a hop between switches takes both uplinks, one below a switch only the GPUs' own links."""
    capacity = [20.0] * (2 * n)
    place = {}
    for switch, each in enumerate(gbps):
        place[switch] = len(capacity)
        capacity += [each, each]
    loads = {}
    for a, b in itertools.permutations(range(n), 2):
        path = [(a, 1.0), (n + b, 1.0)]
        if a // per_switch != b // per_switch:
            path += [(place[a // per_switch], 1.0), (place[b // per_switch] + 1, 1.0)]
        loads[a, b] = path
    return Problem(n, loads, capacity)


def test_gpus_of_one_switch_and_equal_switches_can_be_exchanged() -> None:
    equal = symmetry.find(uplinks(16, 4, [24.0] * 4), np.zeros((16, 16), dtype=np.int64))
    assert (equal.alike, len(equal.blocks)) == (True, 4)
    everything = frozenset(range(16))
    assert list(symmetry.sets(equal, 4, everything)) == [
        (0, 1, 2, 3),
        (0, 1, 2, 4),
        (0, 1, 4, 5),
        (0, 1, 4, 8),
        (0, 4, 8, 12),
    ]
    odd = symmetry.find(uplinks(16, 4, [24.0, 24.0, 24.0, 12.0]), np.zeros((16, 16), dtype=np.int64))
    assert (odd.alike, sorted(len(block.members) for block in odd.blocks)) == (False, [4, 12])
    tags = np.zeros((16, 16), dtype=np.int64)
    tags[5, 5] = 1
    apart = symmetry.find(uplinks(16, 4, [24.0] * 4), tags)
    assert sorted(len(block.members) for block in apart.blocks) == [1, 3, 12]


def matrix(n: int, joined: str = "NV18", model: str = "NVIDIA GB200") -> Snapshot:
    rows = ["\t" + "\t".join(f"GPU{gpu}" for gpu in range(n))]
    rows += [f"GPU{a}\t" + "\t".join(" X " if a == b else joined for b in range(n)) for a in range(n)]
    read = detect.from_bytes("\n".join(rows).encode(), file="m.txt")
    return assume.apply(read, assume.gather([f"gpu.name={model}"], None))


def test_72_gpus_behind_switches_are_looked_at_as_one_kind() -> None:
    start = time.process_time()
    found = planning.pick(matrix(72), 8, busy=[3, 70])
    assert found.best.gpus == [0, 1, 2, 4, 5, 6, 7, 8]
    assert len(found.groups) == 8
    assert found.exact
    assert time.process_time() - start < 60  # 10¹⁰ sets would not be looked at in a day


def test_equal_sets_too_many_to_tell_apart_leave_no_doubt_about_the_bandwidth() -> None:
    found = planning.pick(matrix(16, "NV1", "NVIDIA H100 80GB HBM3"), 4)
    assert (found.best.gpus, found.best.gbps) == ([0, 1, 2, 3], pytest.approx(75.0))
    assert found.exact
    assert not any("none can carry more" in note for note in found.notes)
    assert any("Equally good sets were not compared" in note for note in found.notes)


def test_the_set_that_leaves_a_whole_switch_is_taken() -> None:
    """One GPU of the first switch is busy: two of the others there leave four together for the next job."""
    found = planning.pick(read("8xl40s"), 2, busy=[3])
    assert found.best.gpus == [0, 1]
    found = planning.pick(read("8xl40s"), 2, busy=[4, 5])
    assert found.best.gpus == [6, 7]


def test_a_given_set_is_told_what_it_loses() -> None:
    found = planning.pick(read("8x4090"), 4, compare=[0, 1, 2, 3])
    assert found.compared is not None
    assert found.compared.loss_percent == pytest.approx(50.0, abs=0.1)
    assert "Without P2P" in found.notes[0]
    assert found.nearest is not None
    assert found.nearest.choice.gpus == [0, 1, 2, 3]
    same = planning.pick(read("8xl40s"), 4, compare=[4, 5, 6, 7]).compared
    assert same is not None
    assert same.loss_gbps == 0


def test_the_order_is_that_of_the_best_ring() -> None:
    found = planning.pick(read("dgx-1v"), 4)
    first = planning.best_rings(read("dgx-1v"), gpus=found.best.gpus).channels[0].order
    assert found.best.order == first
    assert found.best.cuda_visible_devices == ",".join(map(str, first))


def test_the_index_order_where_it_is_as_fast() -> None:
    from topoadvisor.plan.optimum import Optimum
    from topoadvisor.plan.problem import Ring
    from topoadvisor.plan.subsets import _order

    hops = list(itertools.permutations(range(4), 2))
    problem = Problem(4, {hop: [(at, 1.0)] for at, hop in enumerate(hops)}, [10.0] * len(hops))
    best = Optimum((Ring((0, 2, 1, 3), 10.0),), 10.0, 10.0, {})
    assert list(_order(problem, best)) == [0, 1, 2, 3]
    slow = Problem(4, problem.loads, [5.0 if hop == (0, 1) else 10.0 for hop in hops])
    assert list(_order(slow, best)) == [0, 2, 1, 3]


def test_what_was_not_compared_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from topoadvisor.plan import subsets

    machine = detect.read(["fixture:dgx-1v"], stdin=io.BytesIO())
    whole = planning.pick(machine, 2)
    monkeypatch.setattr(subsets, "_MOST_TIED", 1)
    short = planning.pick(machine, 2)
    said = "Equally good sets were not compared by what they leave for a job of twice the size."
    assert (short.best.gbps, said in whole.notes, said in short.notes) == (whole.best.gbps, False, True)
