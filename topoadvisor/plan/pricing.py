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


def cheapest(costs: Costs) -> tuple[Orders, float]:
    """Cheap rings, the cheapest first, and what no ring can cost less than.

    Exact up to EXACT nodes. Above that the rings are those of a local search, and the limit is that of the cheapest
    assignment of a next node to each node.
    """
    n = len(costs)
    if n <= EXACT:
        return _held_karp(costs)
    found = {tuple(_improved(order, costs)) for order in _nearest_next(costs)}
    orders = np.array(sorted(found, key=lambda order: (_cost(order, costs), order)), dtype=np.int64)
    return orders, _assignment(costs)


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


def _nearest_next(costs: Costs) -> list[list[int]]:
    """Index order, and from each node the way that always goes on to the nearest; rotated to start with 0."""
    n = len(costs)
    found = [list(range(n))]
    for first in range(n):
        order, left = [first], set(range(n)) - {first}
        while left:
            order.append(min(left, key=lambda node: (costs[order[-1], node], node)))
            left.remove(order[-1])
        start = order.index(0)
        found.append(order[start:] + order[:start])
    return found


_ROUNDS: Final = 20


def _improved(order: list[int], costs: Costs) -> list[int]:
    """The ring after moving single nodes to where they cost least, while that helps."""
    for _ in range(_ROUNDS):
        moved = False
        for node in order[1:]:
            at = order.index(node)
            rest = order[:at] + order[at + 1 :]
            ends = np.roll(rest, -1)
            prices = costs[rest, node] + costs[node, ends] - costs[rest, ends]
            place = int(np.argmin(np.nan_to_num(prices, nan=np.inf)))
            candidate = [*rest[: place + 1], node, *rest[place + 1 :]]
            if _cost(candidate, costs) < _cost(order, costs) * (1 - 1e-9):
                order, moved = candidate, True
        if not moved:
            break
    return order


def _assignment(costs: Costs) -> float:
    """The least cost of giving each node another node to go on to, each taken once: no ring costs less."""
    from topoadvisor.plan.linear import maximise

    n = len(costs)
    sources, targets = np.nonzero(np.isfinite(costs) & ~np.eye(n, dtype=bool))
    if len(set(sources)) < n or len(set(targets)) < n:
        return math.inf
    rows = np.zeros((len(sources), 2 * n))
    rows[np.arange(len(sources)), sources] = 1
    rows[np.arange(len(sources)), n + targets] = 1
    prices = costs[sources, targets]
    # As many hops as possible, each worth more than it costs: a full assignment of least cost.
    worth = float(prices.max()) * n + 1
    solution = maximise(rows, worth - prices)
    return float(prices @ solution.values)
