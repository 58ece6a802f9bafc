"""The cheapest ring when every hop has a price, and a price that no ring can go below.

Costs are (n, n) arrays, row = source; infinite where there is no hop. A ring is n positions in order, starting with 0.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

Costs = npt.NDArray[np.float64]
Orders = npt.NDArray[np.int64]
"""(rings, n): each row a ring."""

ENUMERATED: Final = 8
"""Up to this many nodes all (n - 1)! rings are listed."""

EXACT: Final = 16
"""Up to this many nodes the cheapest ring is found exactly (Held and Karp, 2^(n-1) · n² steps)."""


@cache
def every_ring(n: int) -> Orders:
    """All directed rings of n ≤ ENUMERATED nodes, in the order of their indexes."""
    rest = list(itertools.permutations(range(1, n)))
    return np.hstack([np.zeros((len(rest), 1), dtype=np.int64), np.array(rest, dtype=np.int64).reshape(len(rest), -1)])


def hops(orders: Orders, n: int) -> Orders:
    """(rings, n): the number `source · n + target` of each hop, the last one back to the start."""
    return orders * n + np.roll(orders, -1, axis=1)


def cheapest(costs: Costs, *, prove: bool = True) -> tuple[Orders, float]:
    """Cheap rings, the cheapest first, and what no ring can cost less than.

    Exact up to EXACT nodes. Above that the rings are those of `quickly`, and the limit is that of `_relaxed`, or 0
    without `prove`, which takes the time.
    """
    if len(costs) <= EXACT:
        return _held_karp(costs)
    return quickly(costs), _relaxed(costs) if prove else 0.0


def quickly(costs: Costs) -> Orders:
    """Rings that a local search finds, the cheapest first; it may miss them all where few hops exist."""
    n = len(costs)
    there = np.isfinite(costs) & ~np.eye(n, dtype=bool)
    # A hop that does not exist costs more than any ring of hops that do, so that the search leaves it by itself.
    finite = np.where(there, costs, (float(costs[there].max(initial=0.0)) + 1) * n)
    begun = _nearest_next(finite)
    found = {tuple(_improved(order, finite)) for order in [*begun, *([0, *order[:0:-1]] for order in begun)]}
    existing = [order for order in found if all(there[a, b] for a, b in zip(order, [*order[1:], 0], strict=True))]
    existing.sort(key=lambda order: (_cost(order, costs), order))
    return np.array(existing, dtype=np.int64).reshape(-1, n)


def _cost(order: tuple[int, ...] | list[int], costs: Costs) -> float:
    return float(sum(costs[a, b] for a, b in zip(order, [*order[1:], order[0]], strict=True)))


def _held_karp(costs: Costs) -> tuple[Orders, float]:
    """The best ring for each node that can come last, cheapest first."""
    n = len(costs)
    m = n - 1
    inner = costs[1:, 1:]
    best = np.full((1 << m, m), np.inf)
    """(set of visited nodes but 0, last node) → least cost of a way from 0."""
    best[1 << np.arange(m), np.arange(m)] = costs[0, 1:]
    masks = np.arange(1 << m)
    sizes = np.array([mask.bit_count() for mask in range(1 << m)])
    for size in range(2, m + 1):
        of_size = masks[sizes == size]
        for last in range(m):
            having = of_size[of_size >> last & 1 == 1]
            best[having, last] = (best[having ^ (1 << last)] + inner[:, last]).min(axis=1)
    full = (1 << m) - 1
    total = best[full] + costs[1:, 0]
    orders = []
    for last in np.argsort(total, kind="stable"):
        if math.isinf(total[last]):
            break
        mask, at, way = full, int(last), [int(last)]
        while mask.bit_count() > 1:
            mask ^= 1 << at
            at = int(np.argmin(best[mask] + inner[:, at]))
            way.append(at)
        orders.append([0, *(node + 1 for node in reversed(way))])
    return np.array(orders, dtype=np.int64).reshape(-1, n), float(total.min(initial=math.inf))


_STARTS: Final = 12


def _nearest_next(costs: Costs) -> list[list[int]]:
    """Index order, and from some nodes the way that always goes on to the nearest; rotated to start with 0."""
    n = len(costs)
    found = [list(range(n))]
    for first in range(0, n, -(-n // _STARTS)):
        order, left = [first], np.ones(n, dtype=bool)
        left[first] = False
        while left.any():
            order.append(int(np.argmin(np.where(left, costs[order[-1]], np.inf))))
            left[order[-1]] = False
        start = order.index(0)
        found.append(order[start:] + order[:start])
    return found


_ROUNDS: Final = 20


def _improved(order: list[int], costs: Costs) -> list[int]:
    """The ring after moving single nodes to where they cost least, while that helps. All costs are finite."""
    for _ in range(_ROUNDS):
        moved = False
        for node in order[1:]:
            at = order.index(node)
            before, after = order[at - 1], order[(at + 1) % len(order)]
            rest = np.array(order[:at] + order[at + 1 :])
            ends = np.roll(rest, -1)
            prices = costs[rest, node] + costs[node, ends] - costs[rest, ends]
            place = int(np.argmin(prices))
            here = costs[before, node] + costs[node, after] - costs[before, after]
            if prices[place] < here - 1e-9 * abs(costs).max():
                order = [*rest[: place + 1].tolist(), node, *rest[place + 1 :].tolist()]
                moved = True
        if not moved:
            break
    return order


_CUTS: Final = 30
_NO_FLOW: Final = 1e-6
"""Less of a hop than this is the solver's rounding."""


def _relaxed(costs: Costs) -> float:
    """What no ring costs less than: each node goes on to one node and is reached from one, and no group is left alone.

    A linear program. Of the groups that must not be rings of their own, those are forbidden that turn up.
    """
    from topoadvisor.plan.linear import maximise

    n = len(costs)
    sources, targets = np.nonzero(np.isfinite(costs) & ~np.eye(n, dtype=bool))
    if len(set(sources)) < n or len(set(targets)) < n:
        return math.inf
    prices = costs[sources, targets]
    scale = float(prices.max())
    if scale <= 0:
        return 0.0
    rows = np.zeros((len(sources), 2 * n))
    rows[np.arange(len(sources)), sources] = 1
    rows[np.arange(len(sources)), n + targets] = 1
    # As many hops as possible, each worth more than it costs. A ring is one answer, so it costs at least what is left
    # between the worth of n hops and any price of the answer, whatever the solver's accuracy.
    worth = (n + 1) - prices / scale
    least = 0.0
    for _ in range(_CUTS):
        solution = maximise(rows, worth)
        missing = max(0.0, float((worth - rows @ solution.prices).max()))
        least = max(least, n * (n + 1.0 - missing) - float(solution.prices.sum()))
        used = solution.values > _NO_FLOW
        groups = _groups(n, sources[used], targets[used])
        if len(groups) == 1:
            break
        for group in (group for group in groups if len(group) > 1):
            inside = np.isin(sources, group) & np.isin(targets, group)
            rows = np.hstack([rows, np.where(inside, 1 / (len(group) - 1), 0.0).reshape(-1, 1)])
    return least * scale


def _groups(n: int, sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> list[list[int]]:
    """Nodes that these hops join."""
    import networkx as nx

    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(n))
    joined.add_edges_from(zip(sources.tolist(), targets.tolist(), strict=True))
    return [sorted(group) for group in nx.connected_components(joined)]
