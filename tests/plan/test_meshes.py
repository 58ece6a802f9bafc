"""Rings of one speed in meshes: regular ones have as many as links leave a node, as theorems say."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from topoadvisor.plan.channels import equal_speed
from topoadvisor.plan.meshes import Mesh
from topoadvisor.plan.optimum import Space, optimum
from topoadvisor.plan.problem import Problem, hops_of

FULL = {n: list(itertools.combinations(range(n), 2)) for n in (9, 16, 18, 24)}
HYPERCUBE = [(a, a ^ bit) for a in range(16) for bit in (1, 2, 4, 8) if a < a ^ bit]
TORUS = [(4 * x + y, to) for x in range(4) for y in range(4) for to in (4 * x + (y + 1) % 4, (4 * x + 4) % 16 + y)]
HALVES = [(a, b) for a in range(8) for b in range(8, 16)]


def mesh(n: int, pairs: list[tuple[int, int]], gbps: float = 20.0, behind: float = 5000.0) -> Problem:
    """Links both ways; each GPU itself passes `behind` GB/s out and in."""
    loads, capacity = {}, [behind] * (2 * n)
    for a, b in pairs:
        for hop in ((a, b), (b, a)):
            loads[hop] = [(hop[0], 1.0), (len(capacity), 1.0), (n + hop[1], 1.0)]
            capacity.append(gbps)
    return Problem(n, loads, capacity)


@pytest.mark.parametrize(
    ("n", "pairs", "rings"),
    [
        pytest.param(9, FULL[9], 8, id="full 9"),
        pytest.param(16, FULL[16], 15, id="full 16"),
        pytest.param(18, FULL[18], 17, id="full 18"),
        pytest.param(24, FULL[24], 23, id="full 24"),
        pytest.param(16, HYPERCUBE, 4, id="hypercube"),
        pytest.param(16, TORUS, 4, id="torus"),
        pytest.param(16, HALVES, 8, id="two halves"),
    ],
)
def test_a_regular_mesh_has_as_many_rings_as_links_leave_a_node(
    n: int, pairs: list[tuple[int, int]], rings: int
) -> None:
    problem = mesh(n, pairs)
    best = optimum(problem)
    assert best is not None
    assert best.proven
    assert best.gbps == pytest.approx(20.0 * rings)
    split = equal_speed(problem, best)
    assert (len(split.orders), split.gbps_each, split.optimal) == (rings, pytest.approx(20.0), True)
    assert all(sorted(order) == list(range(n)) for order in split.orders)
    used = Counter(hop for order in split.orders for hop in hops_of(order))
    assert set(used) <= set(problem.loads)
    assert max(used.values()) == 1


def test_rings_of_a_mesh_are_the_same_each_time() -> None:
    drawn = [Mesh(Space(mesh(16, FULL[16])), 300.0).rings(20.0, 15) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert drawn[0].total() == 15


def test_more_rings_than_links_leave_a_node_are_not_drawn() -> None:
    assert not Mesh(Space(mesh(16, HYPERCUBE)), 80.0).rings(20.0, 5)


def test_two_parts_that_two_links_join_have_two_rings() -> None:
    # Each node has links for more, but every ring goes over by one of two links and back by the other.
    parts = [(a, b) for part in (range(5), range(5, 10)) for a, b in itertools.combinations(part, 2)]
    problem = mesh(10, [*parts, (3, 5), (4, 6)])
    drawn = Mesh(Space(problem), 40.0)
    assert drawn.rings(20.0, 2).total() == 2
    assert not drawn.rings(20.0, 3)


def test_hops_that_share_a_link_make_no_mesh() -> None:
    # All that leaves a GPU passes one link that is short.
    assert not Mesh(Space(mesh(9, FULL[9], behind=20.0)), 160.0).rings(20.0, 2)
