"""The ring search against a checker that tries every order."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.plan.search import Bound, Problem, best_ring, hops_of, remaining, ring_set, upper_bound

BANDWIDTHS = st.sampled_from([8.0, 12.0, 24.0, 25.0, 50.0, 75.0, 31.7])


def mesh(n: int, gbps: dict[tuple[int, int], float]) -> tuple[Problem, list[float]]:
    """A machine in which each hop has a link of its own."""
    hops = list(gbps)
    return (
        Problem(n, {hop: (number,) for number, hop in enumerate(hops)}, dict.fromkeys(hops, 0)),
        [gbps[hop] for hop in hops],
    )


@st.composite
def meshes(draw: st.DrawFn) -> tuple[Problem, list[float]]:
    n = draw(st.integers(2, 6))
    hops = list(itertools.permutations(range(n), 2))
    present = draw(st.lists(st.sampled_from(hops), unique=True, min_size=1))
    return mesh(n, {hop: draw(BANDWIDTHS) for hop in sorted(present)})


@st.composite
def trees(draw: st.DrawFn) -> tuple[Problem, list[float]]:
    """GPUs in groups: own links up and down, one uplink per group, one link per direction between groups."""
    n = draw(st.integers(2, 6))
    groups = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    staged = draw(st.booleans())
    bridged = draw(st.sets(st.sampled_from(list(itertools.permutations(range(n), 2))), max_size=4))
    capacity: list[float] = []

    def link() -> int:
        capacity.append(draw(BANDWIDTHS))
        return len(capacity) - 1

    up, down = [link() for _ in range(n)], [link() for _ in range(n)]
    uplink, downlink = [link() for _ in range(3)], [link() for _ in range(3)]
    between = {pair: link() for pair in itertools.permutations(range(3), 2)}
    links, crossings = {}, {}
    for i, j in itertools.permutations(range(n), 2):
        crossings[i, j] = 0
        if (i, j) in bridged:
            links[i, j] = (link(),)
            continue
        way = [up[i], down[j]]
        if staged or groups[i] != groups[j]:
            way += [uplink[groups[i]], downlink[groups[j]]]
        if groups[i] != groups[j]:
            way.append(between[groups[i], groups[j]])
            crossings[i, j] = 1
        links[i, j] = tuple(way)
    return Problem(n, links, crossings), capacity


def best_by_trying_all(problem: Problem, capacity: list[float]) -> tuple[tuple[int, ...], float] | None:
    """Independent of the search: every order, loads counted from scratch, the documented order of preference."""
    candidates = []
    for tail in itertools.permutations(range(1, problem.n)):
        order = (0, *tail)
        hops = [(a, b) for a, b in zip(order, (*tail, 0), strict=True)]
        if any(hop not in problem.links for hop in hops):
            continue
        used = [link for hop in hops for link in problem.links[hop]]
        gbps = min(capacity[link] / used.count(link) for link in used)
        if gbps > 0:
            crossings = sum(problem.crossings[hop] for hop in hops)
            alone = sum(round(min(capacity[link] for link in problem.links[hop]) * 1e6) for hop in hops)
            candidates.append((-round(gbps, 9), crossings, -alone, order, gbps))
    return min(candidates)[3:] if candidates else None


def test_a_slow_link_that_no_ring_has_to_use_limits_none() -> None:
    """Some hops share links of 8 GB/s; one ring stays off all of them and runs at 12."""
    links = {
        (0, 1): (0, 6, 10, 14, 16), (0, 2): (0, 7, 10, 14, 16), (0, 3): (0, 8, 10, 15, 17), (0, 4): (0, 9),
        (1, 0): (1, 5, 11, 13, 18), (1, 2): (1, 7), (1, 3): (1, 8, 11, 15, 19), (1, 4): (1, 9, 11, 13, 18),
        (2, 0): (2, 5, 11, 13, 18), (2, 1): (2, 6), (2, 3): (2, 8, 11, 15, 19), (2, 4): (2, 9, 11, 13, 18),
        (3, 0): (3, 5, 12, 13, 20), (3, 1): (3, 6, 12, 14, 21), (3, 2): (3, 7, 12, 14, 21), (3, 4): (3, 9, 12, 13, 20),
        (4, 0): (4, 5), (4, 1): (22,), (4, 2): (4, 7, 10, 14, 16), (4, 3): (4, 8, 10, 15, 17),
    }  # fmt: skip
    capacity = [12.0] * 23
    capacity[13] = 24.0
    for slow in (4, 6, 14, 16, 19, 21):
        capacity[slow] = 8.0
    near = {(0, 4), (1, 2), (2, 1), (4, 0), (4, 1)}
    found = best_ring(Problem(5, links, {hop: int(hop not in near) for hop in links}), capacity)
    assert found is not None
    assert (found.order, found.gbps) == ((0, 3, 4, 1, 2), 12.0)


@given(st.one_of(meshes(), trees()))
@settings(max_examples=300, deadline=None)
def test_the_best_ring_is_the_one_that_trying_all_finds(machine: tuple[Problem, list[float]]) -> None:
    problem, capacity = machine
    expected = best_by_trying_all(problem, capacity)
    found = best_ring(problem, capacity)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.order == expected[0]
        assert found.gbps == pytest.approx(expected[1])


@given(st.one_of(meshes(), trees()))
@settings(max_examples=100, deadline=None)
def test_a_ring_set_overloads_no_link_and_passes_no_bound(machine: tuple[Problem, list[float]]) -> None:
    problem, capacity = machine
    rings, bound = ring_set(problem, capacity, least=0.1)
    load = [0.0] * len(capacity)
    for ring in rings:
        for hop in hops_of(ring.order):
            for link in problem.links[hop]:
                load[link] += ring.gbps
    assert all(used <= full * (1 + 1e-9) for used, full in zip(load, capacity, strict=True))
    if rings:
        assert bound is not None
        total = sum(ring.gbps for ring in rings)
        assert total <= bound.gbps * (1 + 1e-9)
        assert total <= upper_bound(problem, capacity, reached=0).gbps * (1 + 1e-9)


def test_full_mesh_of_four_takes_slices_where_whole_rings_would_block_each_other() -> None:
    problem, capacity = mesh(4, dict.fromkeys(itertools.permutations(range(4), 2), 80.0))
    rings, bound = ring_set(problem, capacity, least=0.1)
    assert sum(ring.gbps for ring in rings) == pytest.approx(240)
    assert bound is not None
    assert bound.gbps == pytest.approx(240)


def test_rings_below_the_least_share_are_not_listed() -> None:
    gbps = {(0, 1): 100.0, (1, 2): 100.0, (2, 0): 100.0, (0, 2): 9.0, (2, 1): 9.0, (1, 0): 9.0}
    rings, _ = ring_set(*mesh(3, gbps), least=0.1)
    assert [ring.order for ring in rings] == [(0, 1, 2)]
    rings, _ = ring_set(*mesh(3, gbps), least=0.05)
    assert [ring.order for ring in rings] == [(0, 1, 2), (0, 2, 1)]


def test_no_ring_without_a_way_back() -> None:
    problem, capacity = mesh(3, {(0, 1): 10.0, (1, 2): 10.0, (0, 2): 10.0})
    assert best_ring(problem, capacity) is None
    assert ring_set(problem, capacity, least=0.1) == ([], None)


def test_a_link_that_every_hop_needs_is_a_bound_of_its_own() -> None:
    hops = list(itertools.permutations(range(3), 2))
    problem = Problem(3, {(a, b): (a, 3 + b, 6) for a, b in hops}, dict.fromkeys(hops, 0))
    assert upper_bound(problem, [50.0] * 6 + [60.0], reached=0) == Bound(20.0, (), link=6, uses=3)


def test_what_remains_is_clean_of_rounding_dust() -> None:
    problem, capacity = mesh(2, {(0, 1): 0.3, (1, 0): 0.1 + 0.2})
    ring = best_ring(problem, capacity)
    assert ring is not None
    assert remaining(problem, capacity, [ring]) == [0.0, 0.0]


def test_above_eight_the_search_still_gives_a_ring_that_uses_the_fast_links() -> None:
    n = 10
    fast = [(i, (i + 3) % n) for i in range(n)]
    gbps = {hop: 100.0 if hop in fast else 10.0 for hop in itertools.permutations(range(n), 2)}
    found = best_ring(*mesh(n, gbps))
    assert found is not None
    assert set(hops_of(found.order)) == set(fast)
    assert found.order[0] == 0


def test_unlimited_links_never_limit() -> None:
    problem = Problem(2, {(0, 1): (0, 1), (1, 0): (0, 1)}, {(0, 1): 0, (1, 0): 0})
    found = best_ring(problem, [math.inf, 30.0])
    assert found is not None
    assert found.gbps == pytest.approx(15)


def test_a_large_machine_is_searched_for_a_while_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    from topoadvisor.plan import search

    shade = random.Random(5)
    problem, capacity = mesh(64, {hop: shade.choice([8.0, 12.0, 24.0]) for hop in itertools.permutations(range(64), 2)})
    rated = []

    def counted(*parts: object, really: Callable[..., tuple[float, int]] = search.rate) -> tuple[float, int]:
        rated.append(1)
        return really(*parts)

    monkeypatch.setattr(search, "rate", counted)
    assert best_ring(problem, capacity) is not None
    assert len(rated) <= search._MOST_HOPS // 64 + search._MOST_STARTS + 3
