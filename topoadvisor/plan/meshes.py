"""Rings of one speed where hops share no links, as in a mesh of NVLinks.

N rings are N ways to go on from every node to another, that take no hop more often than it fits. Ways that fall apart
into several circles are found at once. Then a few are drawn anew, from what they take and what no way takes, and kept
when they have no more circles than before, until each way is one ring.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from topoadvisor.plan.problem import MOST_CHANNELS, SAME

if TYPE_CHECKING:
    from topoadvisor.plan.optimum import Space

Hops = list[list[int]]
"""For each node those that it can go on to, one as often as the hop fits."""
Way = list[int]
"""Where each node goes on to."""

_DRAWS: Final = 4_000
"""Draws for one number of rings; a full mesh of 16 nodes takes about 1000."""
_ALL_DRAWS: Final = 12_000
"""The same in all; with 16 nodes one takes about 0.1 ms."""
_AT_ONCE: Final = (1, 2, 2, 3)
"""How many ways are drawn anew. Two of them stay both odd or both even permutations or change both; three do not."""


class Mesh:
    """The hops of a space that load nothing that could be short but a link of their own."""

    def __init__(self, space: Space, bound: float) -> None:
        n = self._n = space.n
        # A ring leaves each node once and enters it once, and takes of a link what these hops do at most.
        by_ends = space.share.reshape(n, n, -1)
        most = np.minimum(by_ends.max(axis=1).sum(axis=0), by_ends.max(axis=0).sum(axis=0))
        short = most * bound > 1 + SAME
        loads = space.share[:, short]
        number = (loads > 0).sum(axis=1)
        shared = (loads[number == 1] > 0).sum(axis=0) > 1
        hops = np.nonzero(space.exists & (number <= 1) & ~(loads[:, shared] > 0).any(axis=1))[0]
        self._hops = list(zip((hops // n).tolist(), (hops % n).tolist(), strict=True))
        self._shares = loads[hops].max(axis=1, initial=0.0).tolist()
        self._chance = random.Random(0)
        self._left = _ALL_DRAWS

    def most(self) -> Counter[tuple[int, ...]]:
        """The rings of one speed at which some hop is full that carry the most, if they are found."""
        fits = [(gbps, self._fitting(gbps)) for gbps in {1 / share for share in self._shares if share}]
        gbps, count = max(
            ((gbps, _least(hops)) for gbps, hops in fits), key=lambda each: each[0] * each[1], default=(0, 0)
        )
        return self.rings(gbps, count) if count else Counter()

    def rings(self, gbps: float, count: int) -> Counter[tuple[int, ...]]:
        """`count` rings of this speed; none when none were found."""
        hops = self._fitting(gbps)
        found = _regular(hops, count, self._chance) if _least(hops) >= count else None
        return Counter(map(_order, self._joined(*found, count))) if found else Counter()

    def _fitting(self, gbps: float) -> Hops:
        """How often each hop fits at this speed, at most as often as there may be rings."""
        hops: Hops = [[] for _ in range(self._n)]
        for (node, to), share in zip(self._hops, self._shares, strict=True):
            times = int((1 + SAME) / (gbps * share)) if share else MOST_CHANNELS
            hops[node] += [to] * min(times, MOST_CHANNELS)
        return hops

    def _joined(self, taken: Hops, spare: Hops, count: int) -> list[Way]:
        """So many ways that are rings; empty when they are not found."""
        ways, _ = self._drawn(taken, count)
        circles = [_circles(way) for way in ways]
        for _ in range(min(_DRAWS, self._left)):
            broken = [at for at in range(count) if circles[at] > 1]
            if not broken:
                return ways
            self._left -= 1
            first = self._chance.choice(broken)
            others = [at for at in range(count) if at != first]
            again = [first, *self._chance.sample(others, min(self._chance.choice(_AT_ONCE) - 1, len(others)))]
            pool = [hops + [ways[at][node] for at in again] for node, hops in enumerate(spare)]
            drawn, left = self._drawn(pool, len(again))
            if len(drawn) == len(again) and sum(map(_circles, drawn)) <= sum(circles[at] for at in again):
                spare = left
                for at, way in zip(again, drawn, strict=True):
                    ways[at], circles[at] = way, _circles(way)
        return []

    def _drawn(self, hops: Hops, count: int) -> tuple[list[Way], Hops]:
        """Up to `count` ways at random, one after the other, and what is left."""
        ways: list[Way] = []
        while len(ways) < count and (found := _regular(hops, 1, self._chance)):
            way, hops = found
            ways.append([to for (to,) in way])
        return ways, hops


def _regular(hops: Hops, times: int, chance: random.Random) -> tuple[Hops, Hops] | None:
    """So many of the hops out of each node and into each, at random, and the rest; None when there are not so many."""
    left = [chance.sample(each, len(each)) for each in hops]
    into: Hops = [[] for _ in hops]

    def extend(node: int, tried: set[int]) -> bool:
        """Take one more hop out of a node, if need be in place of one of another, which takes another one."""
        for to in left[node]:
            if to in tried:
                continue
            tried.add(to)
            if len(into[to]) == times:
                other = next((other for other in into[to] if extend(other, tried)), None)
                if other is None:
                    continue
                into[to].remove(other)
                left[other].append(to)
            left[node].remove(to)
            into[to].append(node)
            return True
        return False

    if not all(extend(node, set()) for node in range(len(hops)) for _ in range(times)):
        return None
    taken: Hops = [[] for _ in hops]
    for to, nodes in enumerate(into):
        for node in nodes:
            taken[node].append(to)
    return taken, left


def _least(hops: Hops) -> int:
    """The fewest hops out of any node, or into one."""
    into = Counter(to for each in hops for to in each)
    return min(min(len(each), into[node]) for node, each in enumerate(hops))


def _circles(way: Way) -> int:
    found, seen = 0, [False] * len(way)
    for node in range(len(way)):
        found += not seen[node]
        while not seen[node]:
            seen[node] = True
            node = way[node]
    return found


def _order(way: Sequence[int]) -> tuple[int, ...]:
    order = [0]
    while way[order[-1]]:
        order.append(way[order[-1]])
    return tuple(order)
