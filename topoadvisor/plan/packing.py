"""How many rings of one speed fit into what links carry: whole rings, in whole units of room.

A linear program over the room that is left says which rings to take, and what no number of rings can pass. Rings that
turn out to be in the way are taken out again, a few at a time, to put more in their place.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from topoadvisor.plan import pricing
from topoadvisor.plan.linear import maximise
from topoadvisor.plan.optimum import Optimum, Space
from topoadvisor.plan.pricing import ENUMERATED, EXACT, Orders
from topoadvisor.plan.problem import SAME, Problem

_STARTERS: Final = 40
_AT_ONCE: Final = 60
_MOST_UNITS: Final = 64
"""Loads that have no common unit of which they are as few are not counted in units."""
_OUT: Final = (2, 3, 4)
"""How many rings are taken out to put in one more."""

Vector = npt.NDArray[np.float64]
Columns = npt.NDArray[np.float64]
Packed = Counter[tuple[int, ...]]


class Packing:
    """The rings of a space, and what they load in units: the share of a link that divides all its loads."""

    def __init__(self, problem: Problem, space: Space, best: Optimum) -> None:
        self._space = space
        self._listed = space.n <= ENUMERATED
        rings = np.array([ring.order for ring in best.rings], dtype=np.int64)
        self._orders: Orders = space.every if self._listed else np.unique(np.vstack([rings, space.starters()]), axis=0)
        columns = space.columns(self._orders)
        self._known = {tuple(order) for order in self._orders.tolist()}
        self.unit, self._whole = _units(columns if self._listed else space.share)
        self._hops = space.share / self.unit
        self._columns = columns / self.unit
        """(rings, links): units of each link that a ring takes."""
        prices = np.array([best.prices.get(int(link), 0.0) * problem.capacity[link] for link in space.links])
        self._cuts: list[tuple[float, Vector]] = [(0.0, prices * self.unit)]
        """Prices at which each ring that fits pays 1 at least, and the speed from which on that is so."""
        self._random = random.Random(0)
        self.effort = math.inf
        """What may still be spent, one linear program being 1."""

    @property
    def exact(self) -> bool:
        """Every load is a whole number of units, so that only some speeds are worth trying."""
        return bool(self._whole.all())

    def speeds(self, above: float, below: float) -> list[float]:
        """The speeds between these, GB/s, at which whole units fill a link."""
        found: set[float] = set()
        for unit in np.unique(np.round(self.unit[self._whole], 12)).tolist():
            parts = np.arange(math.floor(1 / (unit * below)), math.ceil(1 / (unit * above)) + 1)
            found.update((1 / (unit * parts[parts > 0])).tolist())
        return sorted(speed for speed in found if above * (1 + SAME) < speed < below * (1 - SAME))

    def speed(self, rings: Packed) -> float:
        """GB/s at which all these can run at once."""
        columns = self._space.columns(np.array(list(rings), dtype=np.int64))
        return 1 / float((columns * np.array(list(rings.values()))[:, None]).sum(axis=0).max())

    def refuted(self, gbps: float, count: int) -> bool:
        """Whether prices that were found prove that `count` rings of this speed do not fit."""
        room = self._room(gbps)
        return any(gbps >= least * (1 - SAME) and float(prices @ room) < count - SAME for least, prices in self._cuts)

    def fitting(self, gbps: float, count: int) -> Packed:
        """Up to `count` rings of this speed; `refuted` says afterwards whether fewer are all there is room for."""
        room = self._room(gbps)
        _, most, prices = self._solved(room, count)
        if most < count - SAME:
            self._cuts.append((gbps, prices))
            return Packed()
        return self._written(self._filled(room, count))

    def more(self, gbps: float, count: int, packed: Packed) -> Packed:
        """The same after taking rings out and putting more in, until there are `count` or the effort is spent."""
        place = {tuple(order): number for number, order in enumerate(self._orders.tolist())}
        rings = [place[order] for order, times in packed.items() for _ in range(times)]
        room = self._room(gbps) - self._columns[rings].sum(axis=0)
        while len(rings) < count and self.effort > 0:
            out = self._random.sample(range(len(rings)), min(self._random.choice(_OUT), len(rings)))
            taken = [rings[at] for at in out]
            wider = room + self._columns[taken].sum(axis=0)
            put = self._filled(wider, len(taken) + 1, chance=True)
            if len(put) >= len(taken):
                rings = [ring for at, ring in enumerate(rings) if at not in out] + put
                room = wider - self._columns[put].sum(axis=0)
        return self._written(rings)

    def carried(self, shares: Vector) -> float:
        """GB/s that listed rings can carry in these shares of the links."""
        there = shares > SAME
        fits = np.nonzero((self._columns[:, ~there] <= 0).all(axis=1))[0]
        values, _, _ = self._solved(np.where(there, shares, 1.0) / self.unit, math.inf, fits)
        return sum(values.values())

    def _written(self, rings: Sequence[int]) -> Packed:
        return Packed(tuple(self._orders[ring].tolist()) for ring in rings)

    def _room(self, gbps: float) -> Vector:
        room = 1 / (gbps * self.unit)
        return np.where(self._whole, np.floor(room * (1 + SAME)), room * (1 + SAME / 10))

    def _filled(self, room: Vector, count: int, *, chance: bool = False) -> list[int]:
        """Up to `count` rings that fit: what the linear program takes whole, or else the one that it takes most of."""
        found: list[int] = []
        while len(found) < count and self.effort > 0:
            values, most, _ = self._solved(room, count - len(found))
            if not values or (chance and most < count - len(found) - SAME):
                break
            parts = [ring for ring, value in values.items() for _ in range(int(value + SAME))]
            if not parts:
                weight = self._random.random if chance else lambda: 1.0
                scores = {ring: value * weight() for ring, value in values.items()}
                parts = [max(scores, key=lambda ring: (round(scores[ring], 6), -ring))]
            parts = parts[: count - len(found)]
            found += parts
            room = room - self._columns[parts].sum(axis=0)
        return found

    def _solved(
        self, room: Vector, wanted: float, fits: npt.NDArray[np.int64] | None = None
    ) -> tuple[dict[int, float], float, Vector]:
        """How many of which rings fit, fractions allowed, what no number can pass, and the prices that say so.

        It stops where as many as wanted fit, or cannot.
        """
        scale = np.maximum(room, SAME)
        if fits is None:
            fits = np.nonzero((self._columns <= room + SAME).all(axis=1))[0]
        scaled = self._columns[fits] / scale
        chosen = list(range(min(_STARTERS, len(fits))))
        most, best_prices, values = math.inf, np.zeros(len(room)), {}
        while True:
            prices = np.ones(len(room)) / len(room)
            if chosen:
                solution = maximise(scaled[chosen])
                prices = solution.prices
                values = {
                    int(fits[at]): value
                    for at, value in zip(chosen, solution.values.tolist(), strict=True)
                    if value > SAME
                }
            self.effort -= 1
            costs = scaled @ prices
            order = np.argsort(costs, kind="stable")[:_AT_ONCE]
            new = [int(at) for at in order if costs[at] < 1 - SAME and at not in chosen]
            least = float(costs.min(initial=math.inf)) if self._listed else 0.0
            if not new and not self._listed and self._space.n <= EXACT:
                least, added = self._priced(prices / scale, room)
                scaled = np.vstack([scaled, self._columns[added] / scale])
                new = list(range(len(fits), len(fits) + len(added)))
                fits = np.append(fits, added)
            if least > 0 and prices.sum() / least < most:
                most, best_prices = float(prices.sum() / least), prices / scale / least
            reached = sum(values.values())
            if not new or (most < wanted - SAME and wanted < math.inf) or reached >= wanted - SAME or self.effort <= 0:
                return values, most, best_prices
            chosen += new

    def _priced(self, prices: Vector, room: Vector) -> tuple[float, list[int]]:
        """What no ring costs less than, and rings that fit, cost less than 1 and were not listed before."""
        n = self._space.n
        self.effort -= n**2 * 2.0 ** (n - 19)
        there = self._space.exists & (self._hops <= room + SAME).all(axis=1)
        costs = np.where(there, self._hops @ prices, np.inf).reshape(n, n)
        orders, least = pricing.cheapest(costs)
        new = [order for order in orders.tolist() if tuple(order) not in self._known]
        if not new:
            return least, []
        columns = self._space.columns(np.array(new, dtype=np.int64)) / self.unit
        kept = (columns <= room + SAME).all(axis=1) & (columns @ prices < 1 - SAME)
        first = len(self._orders)
        self._orders = np.vstack([self._orders, np.array(new, dtype=np.int64)[kept]])
        self._columns = np.vstack([self._columns, columns[kept]])
        self._known.update(tuple(order) for order, keep in zip(new, kept.tolist(), strict=True) if keep)
        return least, list(range(first, len(self._orders)))


def _units(loads: Columns) -> tuple[Vector, npt.NDArray[np.bool_]]:
    """For each link the largest share that all loads are whole multiples of, and whether there is one."""
    units, whole = np.ones(loads.shape[1]), np.ones(loads.shape[1], dtype=bool)
    for link, column in enumerate(loads.T):
        if not column.any():
            continue
        values = np.unique(np.round(column[column > 0] / column.max(), 9))
        unit = 0.0
        for value in values.tolist():
            while value > SAME:
                unit, value = value, abs(unit - value * round(unit / value))
        whole[link] = unit * _MOST_UNITS >= 1
        units[link] = (unit if whole[link] else values[0]) * column.max()
    return units, whole
