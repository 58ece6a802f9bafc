"""The best rings that all run at one speed, as NCCL's channels do.

The fractional optimum bounds them. It is met where its rings, or others on what is left of the links, divide into a
few equal parts; otherwise each number of rings is tried at the speeds that fill a link, and the best that was found
stands, and is not called optimal.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from topoadvisor.plan.linear import maximise
from topoadvisor.plan.optimum import Optimum, Space
from topoadvisor.plan.pricing import ENUMERATED
from topoadvisor.plan.problem import SAME, Problem, Ring, loads_of

MOST_CHANNELS: Final = 32
"""`MAXCHANNELS` allows more, but NCCL's search and its graph files stop here (`src/graph/search.cc`)."""

_PROGRAMS: Final = 60
"""Linear programs that are solved at most in looking for equal parts."""
_PROGRAMS_IN_ALL: Final = 160
"""The same in looking for the number of rings that carries most; 8 V100s take 74 of some 2 ms."""
_STARTERS: Final = 40
_AT_ONCE: Final = 60
_TRIES: Final = 8
"""Rings that are tried as the next one."""

Vector = npt.NDArray[np.float64]
Columns = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Channels:
    """Rings of one speed; an order may come several times."""

    orders: tuple[tuple[int, ...], ...]
    gbps_each: float
    optimal: bool
    """No set of equal-speed rings carries more, because none of any speeds does."""

    @property
    def gbps(self) -> float:
        """The total."""
        return self.gbps_each * len(self.orders)


def equal_speed(
    problem: Problem, best: Optimum, *, channels: int | None = None, space: Space | None = None
) -> Channels:
    """The best set of at most MOST_CHANNELS equal-speed rings, fewest first; or of exactly `channels` of them."""
    space = space or Space(problem)
    counts = range(1, MOST_CHANNELS + 1) if channels is None else (channels,)
    orders = np.array([ring.order for ring in best.rings], dtype=np.int64)
    columns = space.columns(orders)
    shares = np.array([ring.gbps for ring in best.rings]) / best.gbps
    found: list[tuple[float, int, Counter[tuple[int, ...]]]] = []
    for count in counts:
        times = _rounded(shares * count)
        found.append((_total(columns, times), count, _counted(orders, times)))
    total, count, rings = max(found, key=lambda each: (each[0] > best.gbps * (1 - SAME), round(each[0], 6), -each[1]))
    met = total >= best.gbps * (1 - SAME)
    fewer_or_any = [wanted for wanted in counts if not met or wanted < count]
    search = _Search(space, orders, best) if fewer_or_any else None
    for wanted in fewer_or_any:
        if search is None or not search.may_fill(wanted):
            continue
        if (orders_found := search.split(best.gbps, wanted)) is not None:
            met, count, rings = True, wanted, orders_found
            break
    if not met and search is not None:
        search.programs_left = _PROGRAMS_IN_ALL
        for wanted in (count, *(each for each in counts if each != count)):
            if (faster := search.fastest(wanted, total / wanted, best.gbps / wanted)) is not None:
                rings, count = faster, wanted
                total = count * _each(space, rings)
    written = tuple(order for order in sorted(rings) for _ in range(rings[order]))
    each = min(_each(space, rings), best.bound / count)
    return Channels(written, each, optimal=each * count >= best.bound * (1 - SAME))


def _each(space: Space, rings: Counter[tuple[int, ...]]) -> float:
    """GB/s at which all these rings can run at once."""
    columns = space.columns(np.array(list(rings), dtype=np.int64))
    return 1 / float((columns * np.array(list(rings.values()))[:, None]).sum(axis=0).max())


def fewer(problem: Problem, best: Optimum, space: Space) -> tuple[Ring, ...]:
    """The rings of an optimum, or as good ones that are fewer, where some are found."""
    if problem.n > ENUMERATED or len(best.rings) < 3:
        return best.rings
    orders = np.array([ring.order for ring in best.rings], dtype=np.int64)
    found = _Search(space, orders, best).peeled(best.gbps)
    if found is None or len(found) >= len(best.rings):
        return best.rings
    scale = best.gbps / sum(ring.gbps for ring in found)
    loads = loads_of(problem, found)
    most = max(load / problem.capacity[link] for link, load in loads.items())
    written = [Ring(ring.order, ring.gbps * min(scale, 1 / most)) for ring in found]
    return tuple(sorted(written, key=lambda ring: (-round(ring.gbps, 9), ring.order)))


def _rounded(shares: Vector) -> npt.NDArray[np.int64]:
    """Whole numbers near the shares, with the same sum (largest remainders)."""
    whole = np.floor(shares + SAME).astype(np.int64)
    missing = round(float(shares.sum())) - int(whole.sum())
    whole[np.argsort(whole - shares, kind="stable")[:missing]] += 1
    return whole


def _total(columns: Columns, times: npt.NDArray[np.int64]) -> float:
    return float(times.sum() / (columns * times[:, None]).sum(axis=0).max())


def _counted(orders: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> Counter[tuple[int, ...]]:
    return Counter({tuple(order): int(each) for order, each in zip(orders.tolist(), times, strict=True) if each})


class _Search:
    """Looks for rings of one speed that fill the links, by solving, taking what is whole, and solving again."""

    def __init__(self, space: Space, orders: npt.NDArray[np.int64], best: Optimum) -> None:
        pool = space.every if space.n <= ENUMERATED else np.unique(np.vstack([orders, space.starters()]), axis=0)
        self._orders = pool
        share = space.columns(pool)
        smallest = np.where(share > 0, share, np.inf).min(axis=0)
        self._columns = share / smallest
        """(rings, links): load of a link in units of the least that a ring puts on it."""
        self._unit = smallest
        whole = np.abs(self._columns - np.round(self._columns)).max(axis=0) < SAME
        self._whole = whole
        """Links on which every load is a whole number of units, so that a part of a unit of room is of no use."""
        self._programs = 0
        self.programs_left = math.inf
        """Programs that may be solved before nothing more is found."""
        priced = np.array([best.prices.get(int(link), 0.0) > 0 for link in space.links], dtype=bool)
        self._full = best.gbps * smallest[whole & priced]
        """What the total takes of a link in one ring, for links that every best set fills, loaded in whole units."""

    def may_fill(self, count: int) -> bool:
        """Whether so many equal rings can fill the links that have a price, as every best set does."""
        units = count / self._full
        return bool((np.abs(units - np.round(units)) < SAME * np.maximum(units, 1)).all())

    def fastest(self, count: int, above: float, below: float) -> Counter[tuple[int, ...]] | None:
        """`count` rings of the highest speed that was found between these, GB/s each; None when there is none.

        A link is full when its share is 1, so the speeds worth trying are those at which whole numbers of loads fill
        a link. More rings of a lower speed always fit where fewer of a higher one do.
        """
        speeds = 1 / np.outer(np.unique(self._unit[np.isfinite(self._unit)]), np.arange(1, 2 * count + 1)).ravel()
        speeds = np.unique(np.round(speeds[(speeds > above * (1 + SAME)) & (speeds < below * (1 - SAME))], 9))
        found = None
        low, high = 0, len(speeds)
        while low < high:
            middle = (low + high) // 2
            self._programs = 0
            rings = self.split(float(speeds[middle]) * count, count)
            if rings is None:
                high = middle
            else:
                found, low = rings, middle + 1
        return found

    def split(self, gbps: float, count: int) -> Counter[tuple[int, ...]] | None:
        """`count` rings of gbps / count each, or None when none were found."""
        room = count / gbps / self._unit
        room = np.where(self._whole, np.floor(room + SAME), room * (1 + SAME / 10))
        taken: Counter[tuple[int, ...]] = Counter()
        while count > 0:
            values = self._solve(room)
            if sum(values.values()) < count - 1e-6:
                return None
            parts = {ring: int(value + SAME) for ring, value in values.items() if value >= 1 - SAME}
            if not parts:
                parts = {max(values, key=lambda ring: (round(values[ring], 6), -ring)): 1}
            for ring, times in parts.items():
                times = min(times, count)
                room = room - times * self._columns[ring]
                taken[tuple(self._orders[ring].tolist())] += times
                count -= times
        return +taken

    def peeled(self, gbps: float) -> list[Ring] | None:
        """Rings that carry the total, the fastest that spoils nothing first; None when that leads nowhere."""
        room, left, rings = 1 / self._unit, gbps, []
        tiny = SAME * gbps
        while left > tiny:
            with np.errstate(divide="ignore", invalid="ignore"):
                rates = np.where(self._columns > 0, room / self._columns, np.inf).min(axis=1)
            for ring in np.argsort(-np.round(rates, 6), kind="stable")[:_TRIES]:
                take = min(float(rates[ring]), left)
                if take <= tiny:
                    return None
                after = np.maximum(room - take * self._columns[ring], 0.0)
                if left - take <= tiny or self._reached(after) >= left - take - tiny:
                    break
            else:
                return None
            rings.append(Ring(tuple(self._orders[ring].tolist()), take))
            room, left = after, left - take
        return rings

    def _reached(self, room: Vector) -> float:
        """GB/s that rings can carry in what is left of the links."""
        open_links = room * self._unit > SAME
        fitting = np.nonzero((self._columns[:, ~open_links] <= 0).all(axis=1))[0]
        return sum(self._solve(np.where(open_links, room, 1.0), fitting).values())

    def _spent(self) -> bool:
        return self._programs >= _PROGRAMS or self.programs_left <= 0

    def _solve(self, room: Vector, fitting: npt.NDArray[np.int64] | None = None) -> dict[int, float]:
        """How many of which rings fit, fractions allowed; nothing once too many programs were solved."""
        if fitting is None:
            fitting = np.nonzero((self._columns <= room + SAME).all(axis=1))[0]
        if not len(fitting) or self._spent():
            return {}
        scaled = self._columns[fitting] / np.maximum(room, SAME)
        chosen = list(range(min(_STARTERS, len(fitting))))
        while True:
            self._programs += 1
            self.programs_left -= 1
            solution = maximise(scaled[chosen])
            worth = 1 - scaled @ solution.prices
            new = [int(at) for at in np.argsort(-worth, kind="stable")[:_AT_ONCE] if worth[at] > SAME]
            new = [at for at in new if at not in chosen]
            if not new or self._spent():
                break
            chosen += new
        return {
            int(fitting[at]): value for at, value in zip(chosen, solution.values.tolist(), strict=True) if value > SAME
        }
