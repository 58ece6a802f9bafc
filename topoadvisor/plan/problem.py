"""The problem that rings solve: nodes, hops between them, and the links that a hop loads. Plain Python, no solver."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Hop = tuple[int, int]
Load = tuple[int, float]
"""A link's number, and GB/s on it for each GB/s of the hop."""

SAME: Final = 1e-6
"""Relative difference below which two totals are one: the solver's accuracy, and what ties are broken with."""
TIE: Final = 1e-5
"""Relative difference below which two sets carry the same: above the solver's accuracy, below that of any bandwidth."""
MOST_CHANNELS: Final = 32
"""`MAXCHANNELS` allows more, but NCCL's search and its graph files stop here (`src/graph/search.cc`)."""


@dataclass(frozen=True)
class Problem:
    """n nodes, what a hop loads, and what the links carry."""

    n: int
    loads: Mapping[Hop, Sequence[Load]]
    """Hops that are not here do not exist."""
    capacity: Sequence[float]
    """GB/s; infinite for links that never limit."""


@dataclass(frozen=True)
class Ring:
    """One ring and what it carries, GB/s."""

    order: tuple[int, ...]
    gbps: float


def loads_of(problem: Problem, rings: Sequence[Ring]) -> dict[int, float]:
    """GB/s on each link."""
    total: dict[int, float] = {}
    for ring in rings:
        for hop in hops_of(ring.order):
            for link, factor in problem.loads[hop]:
                total[link] = total.get(link, 0.0) + factor * ring.gbps
    return total


def hops_of(order: Sequence[int]) -> Iterator[Hop]:
    """The hops of a ring, the last one back to the first node."""
    return zip(order, [*order[1:], order[0]], strict=True)


def rate(problem: Problem, order: Sequence[int]) -> float:
    """GB/s of one ring alone; 0 where a hop does not exist, infinite where nothing limits it."""
    if any(hop not in problem.loads for hop in hops_of(order)):
        return 0.0
    loads = loads_of(problem, [Ring(tuple(order), 1.0)])
    return min((problem.capacity[link] / load for link, load in loads.items()), default=math.inf)


@dataclass(frozen=True)
class Limit:
    """What no set of rings can pass, and why."""

    gbps: float
    node: int | None = None
    """No more can leave this node, or enter it."""
    enters: bool = False
    link: int | None = None
    """Every ring takes `uses` of this link."""
    uses: float = 0.0


def limit(problem: Problem) -> Limit:
    """The lowest limit that can be seen without solving: of what leaves or enters single nodes, and of single links.

    A ring has one hop out of each node and one into each, so it loads a link by the least that any hop out of (into)
    each node does, summed; and it cannot carry more away from a node than all hops out of it can together.
    """
    found = [limit for enters in (False, True) for limit in _limits(problem, enters)]
    return min(found, key=lambda each: (round(each.gbps, 9), each.link is None))


def _limits(problem: Problem, enters: bool) -> Iterator[Limit]:
    least: list[dict[int, float] | None] = [None] * problem.n
    away: list[dict[int, float]] = [{} for _ in range(problem.n)]
    for hop, loads in problem.loads.items():
        own: dict[int, float] = {}
        for link, factor in loads:
            own[link] = own.get(link, 0.0) + factor
        node = hop[enters]
        # Hops that the same link holds down can carry no more together than it does.
        gbps, link = min(
            ((problem.capacity[link] / factor, link) for link, factor in own.items()), default=(math.inf, -1)
        )
        away[node][link] = max(away[node].get(link, 0.0), gbps)
        before = least[node]
        least[node] = (
            own if before is None else {link: min(factor, own[link]) for link, factor in before.items() if link in own}
        )
    for node, by_link in enumerate(away):
        yield Limit(sum(by_link.values()), node, enters)
    uses: dict[int, dict[int, float]] = {}
    for node, each in enumerate(least):
        for link, factor in (each or {}).items():
            uses.setdefault(link, {})[node] = factor
    for link, by_node in uses.items():
        factor = sum(by_node.values())
        if factor > 0:
            only = next(iter(by_node)) if len(by_node) == 1 else None
            yield Limit(problem.capacity[link] / factor, only, enters, link, factor)
