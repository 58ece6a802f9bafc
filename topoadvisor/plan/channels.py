"""The best rings that all run at one speed, as NCCL's channels do.

The fractional optimum bounds them. Where its rings do not divide into a few equal parts, each number of rings is tried
at the speeds at which whole rings fill a link, and what does not fit is proven not to, or stays open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from topoadvisor.plan.meshes import Mesh
from topoadvisor.plan.optimum import Optimum, Space
from topoadvisor.plan.packing import Packed, Packing
from topoadvisor.plan.pricing import ENUMERATED
from topoadvisor.plan.problem import MOST_CHANNELS, SAME, Problem, Ring, loads_of

_EFFORT: Final = 150
"""Linear programs in looking for rings one by one, and again in exchanging them; 8 GPUs take about 2 ms for each."""
_EFFORT_LARGE: Final = 1000
"""The same above `pricing.ENUMERATED` nodes; 16 GPUs take 3 s at most."""
_PEELING: Final = 60
"""The same in looking for fewer rings of different speeds."""
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
    """No set of equal-speed rings, of as many as were asked for, carries more."""

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
    search = _Search(Packing(problem, space, best), best, counts)
    search.round(space)
    if problem.n > ENUMERATED:
        search.draw(Mesh(space, best.bound))
    search.run(_EFFORT if problem.n <= ENUMERATED else _EFFORT_LARGE)
    rings = search.rings
    each = min(search.gbps / rings.total(), best.bound / rings.total())
    written = tuple(order for order in sorted(rings) for _ in range(rings[order]))
    return Channels(written, each, optimal=each * len(written) >= best.bound * (1 - SAME) or search.proven)


class _Search:
    """The best rings of one speed that were found so far."""

    def __init__(self, packing: Packing, best: Optimum, counts: Iterable[int]) -> None:
        self._packing, self._best, self._counts = packing, best, list(counts)
        self.rings = Packed()
        self.gbps = 0.0
        """What they carry together."""
        self.proven = False
        """All that would carry more was proven not to fit."""

    def round(self, space: Space) -> None:
        """Take each number of rings from the fractional optimum, as near to its shares as whole numbers are."""
        orders = np.array([ring.order for ring in self._best.rings], dtype=np.int64)
        columns = space.columns(orders)
        shares = np.array([ring.gbps for ring in self._best.rings]) / self._best.gbps
        for count in self._counts:
            times = _rounded(shares * count)
            gbps = _total(columns, times)
            if gbps > self.gbps * (1 + SAME):
                self._take(_counted(orders, times), gbps)

    def draw(self, mesh: Mesh) -> None:
        """Take the best that the hops of a mesh give."""
        for speed, count in self._open():
            if self._better(speed, count):
                self._judge(mesh.rings(speed, count))

    def run(self, effort: float) -> None:
        """Look for more, and for fewer rings that carry as much."""
        begun: dict[tuple[float, int], Packed] = {}
        self._packing.effort = effort
        while new := [each for each in self._open() if each not in begun]:
            for speed, count in new:
                if self._packing.effort > 0 and self._better(speed, count):
                    begun[speed, count] = self._packing.fitting(speed, count)
                    self._judge(begun[speed, count])
            if self._packing.effort <= 0:
                break
        self._packing.effort = effort
        for speed, count in begun:
            if self._packing.effort > 0 and self._better(speed, count):
                self._judge(self._packing.more(speed, count, begun[speed, count]))
        self.proven = self._best.proven and not self._open()

    def _open(self) -> list[tuple[float, int]]:
        """Speeds and numbers of rings that would be better and are not proven impossible, the best first."""
        wanted = []
        for count in self._counts:
            most, least = self._best.gbps / count, self.gbps / count
            speeds = [most, *self._packing.speeds(least, most)]
            if not self._packing.exact:
                speeds.append(least * (1 + 2 * SAME))
            wanted += [(speed, count) for speed in speeds if self._better(speed, count)]
        return sorted(wanted, key=lambda each: (-round(each[0] * each[1], 6), each[1]))

    def _better(self, speed: float, count: int) -> bool:
        """Whether so many rings would be better, and may fit."""
        return self._preferred(speed, count) and not self._packing.refuted(speed, count)

    def _preferred(self, speed: float, count: int) -> bool:
        total = speed * count
        return total > self.gbps * (1 + SAME) or (total >= self.gbps * (1 - SAME) and count < self.rings.total())

    def _judge(self, rings: Packed) -> None:
        if rings.total() in self._counts:
            speed = self._packing.speed(rings)
            if self._preferred(speed, rings.total()):
                self._take(rings, speed * rings.total())

    def _take(self, rings: Packed, gbps: float) -> None:
        self.rings, self.gbps = rings, gbps


def fewer(problem: Problem, best: Optimum, space: Space) -> tuple[Ring, ...]:
    """The rings of an optimum, or as good ones that are fewer, where some are found."""
    if problem.n > ENUMERATED or len(best.rings) < 3:
        return best.rings
    found = _peeled(space, Packing(problem, space, best), best.gbps)
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


def _counted(orders: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> Packed:
    return Packed({tuple(order): int(each) for order, each in zip(orders.tolist(), times, strict=True) if each})


def _peeled(space: Space, packing: Packing, gbps: float) -> list[Ring] | None:
    """Rings that carry the total, the fastest that spoils nothing first; None when that leads nowhere."""
    columns = space.columns(space.every)
    room, left, rings = np.ones(columns.shape[1]), gbps, []
    packing.effort = _PEELING
    tiny = SAME * gbps
    while left > tiny:
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(columns > 0, room / columns, np.inf).min(axis=1)
        for ring in np.argsort(-np.round(rates, 6), kind="stable")[:_TRIES]:
            take = min(float(rates[ring]), left)
            if take <= tiny:
                return None
            after = np.maximum(room - take * columns[ring], 0.0)
            if left - take <= tiny or packing.carried(after) >= left - take - tiny:
                break
        else:
            return None
        rings.append(Ring(tuple(space.every[ring].tolist()), take))
        room, left = after, left - take
    return rings
