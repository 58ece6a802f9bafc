"""The most that any set of rings can carry at once, with the prices that prove it.

The problem: rings are directed and visit all n nodes, a hop loads links by a factor, a link has a capacity, rings run
at any bandwidth. It is a linear program with one column a ring; rings are brought in only when they are worth it
(column generation), and the prices of the links prove that no further ring is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from topoadvisor.plan import pricing
from topoadvisor.plan.linear import maximise
from topoadvisor.plan.meshes import Mesh
from topoadvisor.plan.problem import SAME, Problem, Ring, limit, rate

_STARTERS: Final = 40
_AT_ONCE: Final = 60
"""Rings that a round of column generation brings in; more rounds cost more than a larger program."""
_ROUNDS: Final = 400
_WORK: Final = 40_000
"""Above `pricing.EXACT` nodes a round costs about n², and after this much the bound that was found stands."""
_LEAST_ROUNDS: Final = 8


@dataclass(frozen=True)
class Optimum:
    """The best set of rings and its certificate."""

    rings: tuple[Ring, ...]
    gbps: float
    bound: float
    """Σ price · capacity over all links: no set of rings can pass it."""
    prices: Mapping[int, float]
    """Link → price per GB/s, where above 0. Every ring pays at least 1 for each GB/s."""

    @property
    def proven(self) -> bool:
        """The rings reach the bound."""
        return self.gbps >= self.bound * (1 - SAME)


class Space:
    """The rings of a problem, and the share of each link that one GB/s of a ring takes."""

    def __init__(self, problem: Problem) -> None:
        self.n = problem.n
        limits = [link for link, gbps in enumerate(problem.capacity) if math.isfinite(gbps)]
        place = {link: position for position, link in enumerate(limits)}
        share = np.zeros((self.n * self.n, len(limits)))
        self.exists = np.zeros(self.n * self.n, dtype=bool)
        for (a, b), loads in problem.loads.items():
            self.exists[a * self.n + b] = True
            for link, factor in loads:
                if link in place:
                    share[a * self.n + b, place[link]] += factor / problem.capacity[link]
        # Of links that the same hops load alike, the first speaks for all; of a tighter and a looser one, the tighter.
        shares, first = np.unique(share, axis=1, return_index=True)
        used = shares.any(axis=0)
        self.links = np.array(limits, dtype=np.int64)[first[used]]
        self.share = shares[:, used]
        """(n², links): share of a link that one GB/s of a hop takes; row `source · n + target`."""

    @cached_property
    def every(self) -> pricing.Orders:
        """All rings of at most `pricing.ENUMERATED` nodes."""
        orders = pricing.every_ring(self.n)
        return orders[self.exists[pricing.hops(orders, self.n)].all(axis=1)]

    @cached_property
    def _columns(self) -> npt.NDArray[np.float64]:
        return self.columns(self.every)

    def columns(self, orders: pricing.Orders) -> npt.NDArray[np.float64]:
        """(rings, links): share of a link that one GB/s of a ring takes; also of rings through some nodes only."""
        hops = pricing.hops(orders, self.n)
        total = np.zeros((len(orders), self.share.shape[1]))
        for position in range(hops.shape[1]):
            total += self.share[hops[:, position]]
        return total

    def cheapest(self, prices: npt.NDArray[np.float64], *, prove: bool = True) -> tuple[pricing.Orders, float]:
        """Rings that cost little at these prices (per share of a link), and what no ring can cost less than."""
        if self.n <= pricing.ENUMERATED:
            costs = self._columns @ prices
            chosen = np.argsort(costs, kind="stable")[:_AT_ONCE]
            return self.every[chosen], float(costs.min(initial=math.inf))
        costs = np.where(self.exists, self.share @ prices, np.inf).reshape(self.n, self.n)
        return pricing.cheapest(costs, prove=prove)

    def starters(self) -> pricing.Orders:
        """A few rings that are fast alone, index order first where it exists."""
        if self.n <= pricing.ENUMERATED:
            fast = np.argsort(self._columns.max(axis=1, initial=0.0), kind="stable")[:_STARTERS]
            return self.every[np.sort(fast)]
        first = np.arange(self.n).reshape(1, -1)
        costs = np.where(self.exists, self.share.max(axis=1, initial=0.0), np.inf).reshape(self.n, self.n)
        orders, _ = pricing.cheapest(costs, prove=False)
        rings = np.vstack([first, orders]) if len(orders) else first
        return rings[self.exists[pricing.hops(rings, self.n)].all(axis=1)]


def optimum(problem: Problem, space: Space | None = None) -> Optimum | None:
    """The best set of rings; None when there is no ring, or nothing limits one.

    Exact up to `pricing.EXACT` nodes. Above that `bound` may be higher than what rings can reach, and a ring may be
    missed where few hops exist.
    """
    if (found := _in_index_order(problem)) is not None:
        return found
    space = space or Space(problem)
    orders = space.starters()
    if not len(orders):
        return None
    columns = space.columns(orders)
    if not columns.any(axis=1).all():
        return None
    unit = float(1 / columns.max(axis=1).min())
    # Equal prices for all links: a bound to begin with.
    prices = np.ones(columns.shape[1])
    _, least = space.cheapest(prices)
    if least <= 0:
        return None
    prices = min(prices / least, *_cuts(space), key=lambda each: float(each.sum()))
    bound = float(prices.sum())
    if problem.n > pricing.ENUMERATED:
        drawn = Mesh(space, bound).most()
        orders = np.vstack([orders, *(order for order in sorted(drawn) if order not in map(tuple, orders.tolist()))])
        columns = space.columns(orders)
    rounds = _rounds(problem.n)
    for done in range(1, rounds + 1):
        solution = maximise(columns * unit)
        reached = float(solution.values.sum() * unit)
        last = done == rounds
        if reached >= bound * (1 - SAME):
            break
        more, least = space.cheapest(solution.prices * unit, prove=last or problem.n <= pricing.EXACT)
        new = _without(more, orders)
        if not new and not last and problem.n > pricing.EXACT:
            _, least = space.cheapest(solution.prices * unit)
        if least > 0 and solution.prices.sum() * unit / least < bound:
            bound = float(solution.prices.sum() * unit / least)
            prices = solution.prices * unit / least
        if reached >= bound * (1 - SAME) or not new or last:
            break
        orders = np.vstack([orders, np.array(new)])
        columns = np.vstack([columns, space.columns(np.array(new))])
    gbps = solution.values * unit
    if (alone := _alone(orders, columns, float(gbps.sum()))) is not None:
        gbps = np.zeros(len(orders))
        gbps[alone] = 1 / columns[alone].max()
    return _written(problem, space, orders, columns, gbps, bound, prices)


def _in_index_order(problem: Problem) -> Optimum | None:
    """The ring in index order where a link proves by itself that nothing carries more."""
    order = tuple(range(problem.n))
    reached, most = rate(problem, order), limit(problem)
    if most.link is None or not 0 < reached < math.inf or reached < most.gbps * (1 - SAME):
        return None
    return Optimum((Ring(order, reached),), reached, most.gbps, {most.link: 1 / most.uses})


def _cuts(space: Space) -> Iterator[npt.NDArray[np.float64]]:
    """For each node the prices of the links by which it is left, and entered, so that every ring pays at least 1."""
    n = space.n
    share, exists = space.share.reshape(n, n, -1), space.exists.reshape(n, n)
    for node in range(n):
        for hops in (share[node, exists[node]], share[exists[:, node], node]):
            tightest = hops.max(axis=1, initial=0.0)
            if tightest.all():
                prices = np.zeros(hops.shape[1])
                np.maximum.at(prices, hops.argmax(axis=1), 1 / tightest)
                yield prices


def _without(more: pricing.Orders, orders: pricing.Orders) -> list[list[int]]:
    known = {tuple(order) for order in orders.tolist()}
    return [order for order in more.tolist() if tuple(order) not in known]


def _rounds(n: int) -> int:
    return _ROUNDS if n <= pricing.EXACT else min(_ROUNDS, max(_LEAST_ROUNDS, _WORK // n**2))


def _alone(orders: pricing.Orders, columns: npt.NDArray[np.float64], total: float) -> int | None:
    """The ring that carries the total alone: the one that loads the links least, first in index order among equals."""
    fast = np.nonzero(1 / columns.max(axis=1) >= total * (1 - SAME))[0]
    weight = {int(ring): (round(float(columns[ring].sum()), 9), tuple(orders[ring].tolist())) for ring in fast}
    return min(weight, key=weight.__getitem__, default=None)


def _written(
    problem: Problem,
    space: Space,
    orders: pricing.Orders,
    columns: npt.NDArray[np.float64],
    gbps: npt.NDArray[np.float64],
    bound: float,
    prices: npt.NDArray[np.float64],
) -> Optimum:
    gbps = np.where(gbps < SAME * gbps.sum(), 0.0, gbps)
    gbps = gbps / max(1.0, float((columns.T @ gbps).max()))
    rings = [Ring(tuple(order), value) for order, value in zip(orders.tolist(), gbps.tolist(), strict=True) if value]
    per_gbps = {
        int(link): float(price) / problem.capacity[link]
        for link, price in zip(space.links, prices, strict=True)
        if price > 0
    }
    return Optimum(
        rings=tuple(sorted(rings, key=lambda ring: (-round(ring.gbps, 9), ring.order))),
        gbps=float(gbps.sum()),
        bound=bound,
        prices=per_gbps,
    )
