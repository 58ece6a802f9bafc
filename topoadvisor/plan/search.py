"""The best directed ring over n nodes whose hops share links: exact for few nodes, a heuristic above.

A problem is abstract: nodes are 0 … n-1, a hop is an ordered pair of nodes, and each hop loads some links once.
A ring runs at the smallest `capacity / number of its hops that use the link` over all links.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Hop = tuple[int, int]

EXACT_LIMIT = 8
"""Up to this many nodes the best ring is found exactly."""

_EPSILON = 1e-9
_CROSSING = 10**12
"""Cost of one crossing against the sum of hop bandwidths, which is counted in kB/s."""


@dataclass(frozen=True)
class Problem:
    """Which hops exist, which links each of them loads, and how often each crosses between sockets."""

    n: int
    links: Mapping[Hop, tuple[int, ...]]
    """Hop → link numbers; a hop that is not a key does not exist."""
    crossings: Mapping[Hop, int]


@dataclass(frozen=True)
class Found:
    """One ring: its nodes in order, and the bandwidth that every hop carries at once."""

    order: tuple[int, ...]
    gbps: float


@dataclass(frozen=True)
class Bound:
    """An upper limit on the total of any set of rings: what leaves `group` must pass links of this capacity."""

    gbps: float
    group: tuple[int, ...]
    link: int | None = None
    """The limit is this one link, used by every ring at least `uses` times."""
    uses: int = 1


def hops_of(order: Sequence[int]) -> list[Hop]:
    """The hops of a ring, the last one back to the first node."""
    return [(order[i], order[(i + 1) % len(order)]) for i in range(len(order))]


def rate(problem: Problem, capacity: Sequence[float], order: Sequence[int]) -> tuple[float, int]:
    """GB/s of a ring and the link that limits it. A hop that does not exist makes it 0, with link -1."""
    load: dict[int, int] = {}
    for hop in hops_of(order):
        if hop not in problem.links:
            return 0.0, -1
        for link in problem.links[hop]:
            load[link] = load.get(link, 0) + 1
    return min((capacity[link] / count, link) for link, count in load.items())


def best_ring(problem: Problem, capacity: Sequence[float]) -> Found | None:
    """The best ring, or None when no ring runs at more than zero.

    Up to EXACT_LIMIT nodes: the highest rate; among those the fewest crossings, then the largest sum of what each hop
    carries alone, then the first in index order. Above that a local search, which may miss the best.
    """
    reduced = _Reduced(problem, capacity)
    if problem.n > EXACT_LIMIT:
        return _local_search(problem, capacity, reduced)
    levels = reduced.levels()
    low, high = 0, len(levels)
    while low < high:
        middle = (low + high) // 2
        if reduced.first_ring(levels[middle], any_will_do=True) is not None:
            high = middle
        else:
            low = middle + 1
    if low == len(levels):
        return None
    order = reduced.first_ring(levels[low], any_will_do=False)
    assert order is not None
    return Found(order, rate(problem, capacity, order)[0])


def ring_set(problem: Problem, capacity: Sequence[float], *, least: float) -> tuple[list[Found], Bound | None]:
    """Rings that run at once, fastest first, and the limit that their total was held against.

    First one after another, each the best on what the earlier ones leave, while one runs at `least` × the first's rate.
    Where that stays below the limit, slices of half the first's rate are tried: each goes to the ring with the most
    room left, which serves meshes where a first ring at full speed spoils the rest. The larger total wins. Empty and
    None when there is no ring; no limit when nothing limits the first.
    """
    first = best_ring(problem, capacity)
    if first is None:
        return [], None
    if math.isinf(first.gbps):
        return [first], None
    rings = _one_after_another(problem, capacity, [], floor=least * first.gbps)
    total = sum(ring.gbps for ring in rings)
    bound = upper_bound(problem, capacity, reached=total)
    if problem.n <= EXACT_LIMIT and total < bound.gbps * (1 - _EPSILON):
        slices = _slices(problem, capacity, first.gbps / 2)
        finer = _one_after_another(problem, capacity, slices, floor=least * first.gbps)
        if sum(ring.gbps for ring in finer) > total * (1 + _EPSILON):
            rings = finer
    return sorted(rings, key=lambda ring: (-ring.gbps, ring.order)), bound


def remaining(problem: Problem, capacity: Sequence[float], rings: Sequence[Found]) -> list[float]:
    """What the rings leave of each link, GB/s."""
    left = list(capacity)
    for ring in rings:
        for hop in hops_of(ring.order):
            for link in problem.links[hop]:
                left[link] -= ring.gbps
    return [0.0 if rest < _EPSILON * full else rest for rest, full in zip(left, capacity, strict=True)]


def _one_after_another(
    problem: Problem, capacity: Sequence[float], taken: Sequence[Found], *, floor: float
) -> list[Found]:
    rings = list(taken)
    while (ring := best_ring(problem, remaining(problem, capacity, rings))) is not None and ring.gbps >= floor:
        rings.append(ring)
    return _merged(rings)


def _slices(problem: Problem, capacity: Sequence[float], thickness: float) -> list[Found]:
    rings: list[Found] = []
    left = list(capacity)
    while True:
        order = _Reduced(problem, left).first_ring(thickness, any_will_do=False)
        if order is None:
            return rings
        rings.append(Found(order, thickness))
        left = remaining(problem, left, rings[-1:])


def _merged(rings: Sequence[Found]) -> list[Found]:
    """Rings of the same order as one."""
    gbps: dict[tuple[int, ...], float] = {}
    for ring in rings:
        gbps[ring.order] = gbps.get(ring.order, 0.0) + ring.gbps
    return [Found(order, value) for order, value in gbps.items()]


def upper_bound(problem: Problem, capacity: Sequence[float], *, reached: float) -> Bound:
    """The smallest limit found on the total of any set of rings; the search ends once the limit is `reached`.

    Two kinds of limit, both true for every set: a link that every ring uses at least k times carries 1/k of its
    capacity in rings; and every ring leaves each group of nodes, so it pays on any links that cover all ways out.
    Groups: all of them up to EXACT_LIMIT nodes, above that single nodes and all but one.
    """
    order = list(problem.links)
    bit = {hop: 1 << position for position, hop in enumerate(order)}
    users: dict[int, int] = {}
    for hop, links in problem.links.items():
        for link in links:
            users[link] = users.get(link, 0) | bit[hop]
    out = [sum(bit[hop] for hop in order if hop[0] == node) for node in range(problem.n)]
    into = [sum(bit[hop] for hop in order if hop[1] == node) for node in range(problem.n)]

    best = Bound(math.inf, ())
    for link, mask in users.items():
        uses = max(
            sum(1 for hops in out if hops and hops & ~mask == 0),
            sum(1 for hops in into if hops and hops & ~mask == 0),
        )
        if uses > 1 and capacity[link] / uses < best.gbps:
            best = Bound(capacity[link] / uses, (), link, uses)

    # Links with the same users differ only in capacity: the smallest is the one to pay on.
    cheapest: dict[int, float] = {}
    for link, mask in users.items():
        cheapest[mask] = min(capacity[link], cheapest.get(mask, math.inf))
    choices = sorted(cheapest.items(), key=lambda choice: choice[1])
    for group in _groups(problem.n):
        if best.gbps <= reached * (1 + _EPSILON):
            break
        inside = set(group)
        leaving = sum(bit[hop] for hop in order if hop[0] in inside and hop[1] not in inside)
        gbps = _cover(leaving, choices, best.gbps)
        if gbps < best.gbps:
            best = Bound(gbps, group)
    return best


def _groups(n: int) -> list[tuple[int, ...]]:
    sizes = range(1, n) if n <= EXACT_LIMIT else (1, n - 1)
    return [group for size in sizes for group in itertools.combinations(range(n), size)]


def _cover(hops: int, choices: list[tuple[int, float]], limit: float) -> float:
    """Capacity of links that together carry all `hops` (greedy, so not always the least); `limit` when not below it."""
    total = 0.0
    # A group of one node uses few of the links of a large machine.
    choices = [(mask & hops, gbps) for mask, gbps in choices if mask & hops]
    while hops:
        covered, price = 0, math.inf
        for mask, gbps in choices:
            count = (mask & hops).bit_count()
            if count and gbps / count < price:
                covered, price, paid = mask & hops, gbps / count, gbps
        if not covered or total + paid >= limit:
            return limit
        total += paid
        hops &= ~covered
    return total


class _Reduced:
    """A problem at given capacities, with each link that only one hop of a ring can load folded into the hops."""

    def __init__(self, problem: Problem, capacity: Sequence[float]) -> None:
        n = problem.n
        self.n = n
        self.alone = [[0.0] * n for _ in range(n)]
        """(n, n), row = source: GB/s that a hop carries when nothing else runs; 0 = no hop."""
        self.crossings = problem.crossings
        users: dict[int, list[Hop]] = {}
        for hop, links in problem.links.items():
            self.alone[hop[0]][hop[1]] = min(capacity[link] for link in links)
            for link in links:
                users.setdefault(link, []).append(hop)

        merged: dict[tuple[Hop, ...], float] = {}
        for link, users_of_link in users.items():
            key = tuple(users_of_link)
            merged[key] = min(capacity[link], merged.get(key, math.inf))
        self.ceiling = min(
            *(max(row) for row in self.alone),
            *(max(column) for column in zip(*self.alone, strict=True)),
        )
        self.shared: list[tuple[float, int]] = []
        """Capacity and highest load of each link that several hops of one ring can load, where that can matter."""
        self.uses: list[list[tuple[int, ...]]] = [[()] * n for _ in range(n)]
        for hops, gbps in merged.items():
            sources, targets = {hop[0] for hop in hops}, {hop[1] for hop in hops}
            most = min(len(sources), len(targets))
            if most < 2 or gbps / most >= self.ceiling:
                continue
            forced = max(
                sum(1 for node in sources if all((node, to) in hops for to in range(n) if self.alone[node][to])),
                sum(1 for node in targets if all((of, node) in hops for of in range(n) if self.alone[of][node])),
            )
            if forced:
                self.ceiling = min(self.ceiling, gbps / forced)
            for a, b in hops:
                self.uses[a][b] += (len(self.shared),)
            self.shared.append((gbps, most))

    def levels(self) -> list[float]:
        """Every rate that a ring can have, highest first."""
        values = {gbps for row in self.alone for gbps in row}
        values |= {gbps / load for gbps, most in self.shared for load in range(2, most + 1)}
        return sorted((value for value in values if 0 < value <= self.ceiling * (1 + _EPSILON)), reverse=True)

    def first_ring(self, level: float, *, any_will_do: bool) -> tuple[int, ...] | None:
        """A ring of at least this rate: any, or the one with the fewest crossings, largest sum, lowest indexes."""
        n = self.n
        least = level * (1 - _EPSILON)
        cost = [[0] * n for _ in range(n)]
        into = [0] * n
        for a, row in enumerate(self.alone):
            for b, gbps in enumerate(row):
                if gbps >= least and a != b:
                    into[b] |= 1 << a
                    kilobytes = 0 if any_will_do or math.isinf(gbps) else round(gbps * 1e6)
                    cost[a][b] = 0 if any_will_do else self.crossings[a, b] * _CROSSING - kilobytes
        rest = self._costs_of_the_rest(into, cost)
        everything = (1 << n) - 2
        if 0 not in rest[everything]:
            return None
        limits = [
            self.n if math.isinf(gbps) else int(gbps / level * (1 + _EPSILON) + _EPSILON) for gbps, _ in self.shared
        ]
        return _Walk(self, into, cost, rest, limits).best()

    def _costs_of_the_rest(self, into: list[int], cost: list[list[int]]) -> list[dict[int, int]]:
        """For each set of unvisited nodes: node → least cost of a way from it through all of them back to node 0.

        Held and Karp's recurrence, links counted as if never shared: exact without sharing, a lower bound with it.
        """
        n = self.n
        rest: list[dict[int, int]] = [{} for _ in range(1 << n)]
        rest[0] = {a: cost[a][0] for a in range(n) if into[0] >> a & 1}
        for unvisited in range(2, 1 << n, 2):
            row = rest[unvisited]
            for b in range(1, n):
                if not unvisited >> b & 1:
                    continue
                onward = rest[unvisited ^ (1 << b)].get(b)
                if onward is None:
                    continue
                sources = into[b] & ~unvisited
                for a in range(n):
                    if sources >> a & 1:
                        total = cost[a][b] + onward
                        if a not in row or total < row[a]:
                            row[a] = total
        return rest


class _Walk:
    """Depth-first search in index order, cut off by the cost of the rest and by full links."""

    def __init__(
        self,
        reduced: _Reduced,
        into: list[int],
        cost: list[list[int]],
        rest: list[dict[int, int]],
        limits: list[int],
    ) -> None:
        self._n = reduced.n
        self._uses = reduced.uses
        self._into = into
        self._cost = cost
        self._rest = rest
        self._limits = limits
        self._load = [0] * len(limits)
        self._path = [0]
        self._found: tuple[int, ...] | None = None
        self._found_cost = 0
        self._target = rest[(1 << self._n) - 2][0]

    def best(self) -> tuple[int, ...] | None:
        self._visit(0, (1 << self._n) - 2, 0)
        return self._found

    def _visit(self, a: int, unvisited: int, spent: int) -> bool:
        """Extend the path from `a`; True once a ring of the least possible cost is found."""
        for b in range(1, self._n) if unvisited else (0,):
            if unvisited and not unvisited >> b & 1:
                continue
            if not self._into[b] >> a & 1:
                continue
            after = unvisited & ~(1 << b)
            paid = spent + self._cost[a][b]
            onward = self._rest[after].get(b) if unvisited else 0
            if onward is None or (self._found is not None and paid + onward >= self._found_cost):
                continue
            uses = self._uses[a][b]
            for link in uses:
                self._load[link] += 1
            if all(self._load[link] <= self._limits[link] for link in uses):
                if not unvisited:
                    self._found, self._found_cost = tuple(self._path), paid
                else:
                    self._path.append(b)
                    done = self._visit(b, after, paid)
                    self._path.pop()
                    if done:
                        return True
            for link in uses:
                self._load[link] -= 1
        return self._found is not None and self._found_cost == self._target


_MOST_STARTS: Final = 32
_MOST_HOPS: Final = 250_000
"""Hops of rings that a local search looks at, less than half a second of work; 16 nodes need a tenth of it."""


def _local_search(problem: Problem, capacity: Sequence[float], reduced: _Reduced) -> Found | None:
    """Index order, and the nearest-neighbour way from each node; the best of them improved by moving segments.

    From the first `_MOST_STARTS` nodes, and as far as `_MOST_HOPS` lets it: it ends soon on a machine of any size.
    """

    def score(order: Sequence[int]) -> tuple[float, int, float]:
        hops = hops_of(order)
        return (
            round(rate(problem, capacity, order)[0], 9),
            -sum(problem.crossings.get(hop, 0) for hop in hops),
            round(sum(reduced.alone[a][b] for a, b in hops), 6),
        )

    starts: list[list[int]] = [list(range(problem.n))]
    for first in range(min(problem.n, _MOST_STARTS)):
        order, left = [first], {*range(problem.n)} - {first}
        while left:
            order.append(max(left, key=lambda node: (reduced.alone[order[-1]][node], -node)))
            left.remove(order[-1])
        starts.append(order)
    best = max(starts, key=score)
    best_score = score(best)
    improved, tries = True, _MOST_HOPS // problem.n
    while improved:
        improved = False
        for candidate in itertools.islice(_neighbours(best), tries):
            tries -= 1
            candidate_score = score(candidate)
            if candidate_score > best_score:
                best, best_score, improved = candidate, candidate_score, True
                break
    if best_score[0] <= 0:
        return None
    zero = best.index(0)
    best = best[zero:] + best[:zero]
    return Found(tuple(best), rate(problem, capacity, best)[0])


def _neighbours(order: list[int]) -> Iterator[list[int]]:
    """Rings with one segment reversed, or one node moved elsewhere."""
    n = len(order)
    for i in range(n):
        for j in range(i + 2, n + 1):
            yield order[:i] + order[i:j][::-1] + order[j:]
    for i in range(n):
        without = order[:i] + order[i + 1 :]
        for j in range(n):
            if j != i:
                yield [*without[:j], order[i], *without[j:]]
