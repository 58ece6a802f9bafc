"""What the rings of each of many sets of GPUs carry: limits for all at once, solutions where those do not decide.

Whatever the links cost, no ring of a set is cheaper than the cheapest hops out of its GPUs are together, or into them,
or than one hop between parts that free hops do not join. One link that alone has a price so limits every set, and so do
the prices that prove the optimum of one set. The ring in index order, and the rings of sets that were solved, are what
others reach at least. A set is solved for itself only where the two differ.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from topoadvisor.plan.link_model import LinkModel
from topoadvisor.plan.optimum import Space, optimum
from topoadvisor.plan.pricing import hops, quickly
from topoadvisor.plan.problem import SAME, TIE

_WORK: Final = 4_000
"""After so much work no further set of one size is solved; all sets of 10 GPUs take less."""
_WORK_OF_ONE: Final = ((6, 4), (7, 10), (8, 40), (12, 100), (math.inf, 500))
"""What solving a set takes, by its size: about milliseconds."""
_TOLD_AT_ONCE: Final = 200
"""Sets that take as much to be told what another's solution means for them."""
_MOST_RINGS: Final = 4
"""Rings of a solution that are tried on other sets; more of them seldom fit any other."""

Set = tuple[int, ...]
"""GPU indexes in index order."""
Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


class Links(Protocol):
    """The link model of a job over some GPUs, of `job` GPUs when they are only candidates."""

    def __call__(self, chosen: Sequence[int], *, job: int | None = None) -> LinkModel: ...


class Values:
    """GB/s of the rings of sets of one size, two GPUs or more, each set working alone."""

    def __init__(self, links: Links, free: Sequence[int], size: int) -> None:
        self._links, self._n, self._size = links, len(free), size
        self.place = {gpu: position for position, gpu in enumerate(free)}
        self._whole = links(free, job=size) if len(free) > 1 else LinkModel(tuple(free), (), {})
        self.problem = self._whole.problem()
        self._space = Space(self.problem)
        self._priced = [(float(price.sum()), self._costs(price)) for price in self._first_prices()]
        """Sums of the prices of all links, and what the hops cost then, (n, n)."""
        self._rings: list[list[tuple[float, Rows]]] = list(self._first_rings())
        """Rings that run at once: GB/s, and the place of each GPU; without the others they are rings of a set."""
        self._told: list[float] = []
        self._row: dict[Set, int] = {}
        self.sets: list[Set] = []
        self.members = np.zeros((0, self._n), dtype=bool)
        """(sets, n): by position."""
        self._own = np.zeros(0, dtype=bool)
        """(sets,): the links of the whole do not hold, as a hop runs through a GPU that is not in the set."""
        self.upper, self.lower = np.zeros(0), np.zeros(0)
        """(sets,): GB/s that the rings of a set cannot pass, and that they reach."""
        self._solved = np.zeros(0, dtype=bool)

    def rows(self, sets: Iterable[Set]) -> Rows:
        """Where these sets are in `sets`, to which those are added that are new."""
        sets = list(sets)
        if new := [each for each in dict.fromkeys(sets) if each not in self._row]:
            self._row.update({each: len(self.sets) + place for place, each in enumerate(new)})
            self.sets += new
            self._add(np.array([[self.place[gpu] for gpu in each] for each in new], dtype=np.int64))
        return np.array([self._row[each] for each in sets], dtype=np.int64)

    @property
    def decided(self) -> npt.NDArray[np.bool_]:
        """(sets,): whether the rings that were found reach the limit."""
        decided: npt.NDArray[np.bool_] = self.upper <= self.lower * (1 + SAME)
        return decided

    @property
    def open(self) -> npt.NDArray[np.bool_]:
        """(sets,): whether solving may find more; no longer once too many were solved."""
        each = next(work for size, work in _WORK_OF_ONE if self._size <= size) + len(self.sets) / _TOLD_AT_ONCE
        spent = int(self._solved.sum()) * each > _WORK
        return np.zeros_like(self._solved) if spent else ~self.decided & ~self._solved

    def highest(self, rows: Rows) -> tuple[float, bool]:
        """The most that one of these sets reaches, and whether none passes it. Solves those that may."""
        while True:
            most = self.lower[rows].max()
            may = rows[self.open[rows] & (self.upper[rows] > most * (1 + SAME))]
            if not len(may):
                proven = bool((self.upper[rows] <= most * (1 + TIE)).all())
                return self.value(int(rows[np.argmax(self.lower[rows])])), proven
            self.solve(int(may[np.argmax(self.upper[may])]))

    def limit(self, rows: Rows) -> float:
        """GB/s that none of these sets can pass; infinite where nothing says so."""
        return float(self.upper[rows].max())

    def reaches(self, row: int, gbps: float) -> bool:
        """Whether a set reaches that much, as far as is known. Solves it where it may."""
        least = gbps * (1 - TIE)
        if self.open[row] and self.lower[row] < least <= self.upper[row]:
            self.solve(row)
        return bool(self.lower[row] >= least)

    def value(self, row: int) -> float:
        """What the rings of a set reach, one number for all that reach the same. Solves nothing."""
        gbps = float(self.lower[row])
        at = bisect.bisect_left(self._told, gbps)
        for known in self._told[max(at - 1, 0) : at + 1]:
            if abs(known - gbps) <= TIE * gbps:
                return known
        self._told.insert(at, gbps)
        return gbps

    def solve(self, row: int) -> None:
        """Find the best rings of a set, and with them what others reach and cannot pass."""
        gpus = self.sets[row]
        places = [self.place[gpu] for gpu in gpus]
        own = self._whole.among(places)
        best = optimum(own or self._links(gpus).problem())
        self._solved[row] = True
        self.upper[row], self.lower[row] = (best.bound, best.gbps) if best else (0.0, 0.0)
        if best is None or own is None:
            return
        # What was proven counts as reached: the rest of it is the solver's accuracy.
        if best.proven:
            self.upper[row] = self.lower[row]
        price = np.array([best.prices.get(int(link), 0.0) for link in self._space.links])
        price *= np.array([self._whole.links[link].gbps for link in self._space.links])
        if not price.any():
            return
        self._priced.append((float(price.sum()), self._costs(price)))
        undecided = np.nonzero(~self.decided & ~self._own)[0]
        self._limit(undecided, *self._priced[-1])
        if len(best.rings) <= _MOST_RINGS:
            rings = [(ring.gbps, self._ranks([places[node] for node in ring.order])) for ring in best.rings]
            self._rings.append(rings)
            self._reach(undecided[~self.decided[undecided]], rings)

    def _first_prices(self) -> Iterator[Vector]:
        """Each link alone, and with the one that is loaded by the same hops the other way."""
        units = np.eye(len(self._space.links))
        yield from units
        loads = self._space.share.reshape(self._n, self._n, -1)
        number = {loads[:, :, link].tobytes(): link for link in range(len(units))}
        for link in range(len(units)):
            back = number.get(loads[:, :, link].T.tobytes(), link)
            if link < back and (loads[:, :, link] > 0).any(axis=1).sum() > 1:
                yield units[link] + units[back]

    def _first_rings(self) -> Iterator[list[tuple[float, Rows]]]:
        """Index order, and a ring that loads links little, each alone and both ways at once."""
        little = quickly(self._costs(np.ones(len(self._space.links))))[:1].tolist()
        for order in (list(range(self._n)), *little):
            there, back = self._ranks(order), self._ranks(order[::-1])
            yield from ([(1.0, there)], [(1.0, there), (1.0, back)])

    def _ranks(self, order: Sequence[int]) -> Rows:
        """The place of each GPU in a ring through all of them that has this one in it."""
        ranks = np.arange(self._n) + self._n
        ranks[list(order)] = np.arange(len(order))
        return ranks

    def _costs(self, price: Vector) -> Matrix:
        costs = np.where(self._space.exists, self._space.share @ price, np.inf).reshape(self._n, self._n)
        np.fill_diagonal(costs, np.inf)
        return costs

    def _add(self, positions: Rows) -> None:
        first = len(self.upper)
        members = np.zeros((len(positions), self._n), dtype=bool)
        np.put_along_axis(members, positions, True, axis=1)
        own, failed = np.zeros((2, len(positions)), dtype=bool)
        for pair in self._whole.failed:
            a, b = (self.place[gpu] for gpu in pair)
            failed |= members[:, a] & members[:, b]
        for (a, b), between in self._whole.through.items():
            own |= members[:, a] & members[:, b] & ~members[:, list(between)].all(axis=1)
        self._own = np.append(self._own, own)
        self.members = np.vstack([self.members, members])
        # Rings could avoid a pair whose copies failed, but those are NCCL's to choose.
        self.upper = np.append(self.upper, np.where(failed, 0.0, np.inf))
        self.lower = np.append(self.lower, np.zeros(len(positions)))
        self._solved = np.append(self._solved, np.zeros(len(positions), dtype=bool))
        rows = first + np.nonzero(~own & ~failed)[0]
        self.upper[rows] = self._leaving(self.members[rows])
        for worth, costs in self._priced:
            self._limit(rows, worth, costs)
        for rings in self._rings:
            self._reach(rows, rings)

    def _leaving(self, members: npt.NDArray[np.bool_]) -> Vector:
        """GB/s that can leave the slowest GPU, or enter it; of hops that one link holds down the fastest one counts."""
        with np.errstate(divide="ignore"):
            rate = 1 / self._space.share.max(axis=1, initial=0.0)
        rate = np.where(self._space.exists, rate, 0.0).reshape(self._n, self._n)
        links = self._space.share.shape[1]
        tightest = (np.argmax(self._space.share, axis=1) if links else np.zeros(self._n**2)).reshape(self._n, self._n)
        most = np.full(len(members), np.inf)
        for rates, links in ((rate, tightest), (rate.T, tightest.T)):
            for gpu in range(self._n):
                having = members[:, gpu]
                others = members[having]
                total = np.zeros(len(others))
                for link in np.unique(links[gpu]):
                    total += np.where(others, np.where(links[gpu] == link, rates[gpu], 0.0), 0.0).max(axis=1)
                most[having] = np.minimum(most[having], total)
        return most

    def _limit(self, rows: Rows, worth: float, costs: Matrix) -> None:
        with np.errstate(divide="ignore"):
            self.upper[rows] = np.minimum(self.upper[rows], worth / _least(costs, self.members[rows]))

    def _reach(self, rows: Rows, rings: Sequence[tuple[float, Rows]]) -> None:
        if not len(rows):
            return
        positions = np.nonzero(self.members[rows])[1].reshape(-1, self._size)
        load = np.zeros((len(rows), self._space.share.shape[1]))
        there = np.ones(len(rows), dtype=bool)
        for gbps, ranks in rings:
            orders = np.take_along_axis(positions, np.argsort(ranks[positions], axis=1), axis=1)
            load += gbps * self._space.columns(orders)
            there &= self._space.exists[hops(orders, self._n)].all(axis=1)
        most = load.max(axis=1, initial=0.0)
        with np.errstate(divide="ignore"):
            reached = np.where(there & (most > 0), sum(gbps for gbps, _ in rings) / most, 0.0)
        self.lower[rows] = np.maximum(self.lower[rows], reached)


def _least(costs: Matrix, members: npt.NDArray[np.bool_]) -> Vector:
    """(sets,): what no ring through the members of a set costs less than; `costs` is infinite where there is no hop."""
    if not len(members):
        return np.zeros(0)
    n, size = len(costs), int(members[0].sum())
    # A ring leaves each GPU once, and enters each once.
    leaving, entering, through = np.zeros((3, len(members)))
    for each, total in ((costs, leaving), (costs.T, entering)):
        for gpu in np.nonzero((each > 0).sum(axis=1) >= size)[0]:
            cheapest = np.where(members, each[gpu], np.inf).min(axis=1)
            total += np.where(members[:, gpu], cheapest, 0.0)
    # It comes to a GPU from one and goes on to another. Counted for GPUs whose hops mostly cost something, and half for
    # a hop between two of these.
    dear = ((costs > 0) & (costs.T > 0)).sum(axis=1) * 2 > n
    shared = np.where(dear[:, None] & dear[None, :], costs / 2, costs)
    for gpu in np.nonzero(dear)[0] if size > 2 else ():
        of_gpu = members[:, gpu]
        others = members[of_gpu]
        rows = np.arange(len(others))
        out, into = (np.where(others, each, np.inf) for each in (shared[gpu], shared[:, gpu]))
        to, come = out.argmin(axis=1), into.argmin(axis=1)
        leave, enter = out[rows, to], into[rows, come]
        both = leave + enter
        same = np.nonzero(to == come)[0]
        out[same, to[same]] = into[same, to[same]] = np.inf
        both[same] = np.minimum(leave[same] + into[same].min(axis=1), out[same].min(axis=1) + enter[same])
        through[of_gpu] += both
    least = np.maximum(np.maximum(leaving, entering), through)
    parts = _parts(costs)
    apart = parts[:, None] != parts[None, :]
    if not apart.any():
        return least
    several = sum(members[:, parts == part].any(axis=1).astype(np.int64) for part in range(parts.max() + 1)) > 1
    between = float(costs[apart].min(where=costs[apart] > 0, initial=np.inf))
    return np.maximum(least, np.where(several, between, 0.0))


def _parts(costs: Matrix) -> Rows:
    """(n,): the part of each GPU, of those between which hops cost nothing there and back."""
    joined = (costs <= 0) | np.eye(len(costs), dtype=bool)
    for _ in range(len(costs).bit_length()):
        joined = joined.astype(np.float32) @ joined.astype(np.float32) > 0
    return np.unique(np.argmax(joined & joined.T, axis=1), return_inverse=True)[1]
