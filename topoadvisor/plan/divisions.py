"""GPUs in groups of one size: the slowest group as fast as can be, then the next; then near NICs, on few NUMA nodes.

Up to 16 GPUs no division is better. Above that groups are formed one after another, which is the best where each of
them is as good as the best set there is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from topoadvisor.plan.nearness import Nearness
from topoadvisor.plan.problem import TIE
from topoadvisor.plan.values import Rows, Set, Values

MASKED: Final = 16
"""GPUs of which all sets and divisions are looked at."""


@dataclass(frozen=True)
class Division:
    """Groups in index order."""

    groups: tuple[Set, ...]
    score: tuple[tuple[float, ...], int, int]
    """GB/s of the groups, slowest first; then NIC ranks and NUMA nodes, negative: more is better."""
    exact: bool
    """No division is better."""


def best(values: Values, near: Nearness, size: int, left: Set) -> Division:
    """The best division of some of at most MASKED GPUs; `values` has all sets of the size, in index order."""
    bits = 1 << np.arange(values.members.shape[1])
    masks = values.members @ bits
    mask = sum(int(bits[values.place[gpu]]) for gpu in left)
    inside = np.nonzero(masks & ~mask == 0)[0]
    nearness = [near.of(values.sets[row]) for row in inside]
    floor, chosen = 0.0, inside[:0]
    while len(inside):
        # What is not known is taken to be as good as it can be, until the best division is one of known groups.
        hoped = np.where(values.open, values.upper, values.lower)
        may = hoped[inside] >= floor * (1 - TIE)
        allowed = inside[may]
        costs = _costs(hoped[allowed], list(itertools.compress(nearness, may)), len(left) // size)
        chosen = allowed[_cheapest(masks[allowed], costs, size, mask)]
        if not values.open[chosen].any():
            break
        for row in chosen[values.open[chosen]]:
            values.solve(row)
        floor = max(floor, float(values.lower[chosen].min()))
    exact = bool((values.decided | values.open)[inside].all())
    return _written([values.sets[row] for row in chosen], values, near, exact)


def in_turn(
    values: Values, near: Nearness, size: int, left: Set, candidates: Callable[[Set], tuple[Rows, bool]]
) -> Division:
    """Groups formed one after another, each the best of the candidates among what is left."""
    groups: list[Set] = []
    found = []
    exact = True
    while len(left) >= size:
        rows, complete = candidates(left)
        top, proven = values.highest(rows)
        tied = [values.sets[row] for row in rows if values.reaches(row, top)]
        groups.append(min(tied, key=lambda each: (near.of(each), each)))
        found.append((top, near.of(groups[-1])))
        exact = exact and complete and proven and found[-1] == found[0]
        left = tuple(gpu for gpu in left if gpu not in groups[-1])
    return _written(groups, values, near, exact)


def _written(groups: Sequence[Set], values: Values, near: Nearness, exact: bool) -> Division:
    gbps = sorted(values.value(row) for row in values.rows(groups))
    nearness = [near.of(group) for group in groups]
    score = tuple(gbps), -sum(nics for nics, _ in nearness), -sum(hosts for _, hosts in nearness)
    return Division(tuple(sorted(groups)), score, exact)


def _costs(gbps: npt.NDArray[np.float64], near: Sequence[tuple[int, int]], groups: int) -> list[int]:
    """A slow group costs more than any number of faster ones, so that the cheapest sum has the fastest slowest one."""
    order = np.argsort(gbps, kind="stable")
    rises = gbps[order[1:]] > gbps[order[:-1]] * (1 + TIE)
    level = np.zeros(len(gbps), dtype=np.int64)
    level[order[1:]] = np.cumsum(rises)
    worth = [(groups + 1) ** below for below in range(int(level.max(initial=0)), -1, -1)]
    nics, hosts = (max(each) * groups + 1 for each in zip(*near, strict=True))
    return [(worth[each] * nics + far) * hosts + homes for each, (far, homes) in zip(level.tolist(), near, strict=True)]


def _cheapest(masks: Rows, costs: Sequence[int], size: int, mask: int) -> list[int]:
    """The positions of the disjoint sets in a mask that cost least together; of as many as there is room for.

    One GPU after the other is put in a group, or left over. What is cheapest in the last room is looked up.
    """
    order = sorted(range(len(costs)), key=lambda at: (costs[at], at))
    last = np.full(1 << mask.bit_length(), len(order))
    last[masks[order]] = np.arange(len(order))
    for place in range(mask.bit_length()):
        halves = last.reshape(-1, 2, 1 << place)
        halves[:, 1] = np.minimum(halves[:, 0], halves[:, 1])
    starting: dict[int, tuple[Rows, Rows]] = {}
    for bit in (1 << place for place in range(mask.bit_length())):
        at = np.nonzero(masks & -masks == bit)[0]
        starting[bit] = at, masks[at]
    known: dict[int, tuple[int, tuple[int, ...]] | None] = {}

    def search(left: int) -> tuple[int, tuple[int, ...]] | None:
        if left not in known:
            known[left] = found(left)
        return known[left]

    def found(left: int) -> tuple[int, tuple[int, ...]] | None:
        room = left.bit_count()
        if room < 2 * size:
            rank = int(last[left])
            return None if rank == len(order) else (costs[order[rank]], (order[rank],))
        low = left & -left
        at, inside = starting[low]
        fitting = inside & ~left == 0
        least = None
        for row, each in zip(at[fitting].tolist(), inside[fitting].tolist(), strict=True):
            rest = search(left ^ each)
            if rest is not None and (least is None or costs[row] + rest[0] < least[0]):
                least = costs[row] + rest[0], (row, *rest[1])
        if room % size:
            rest = search(left ^ low)
            if rest is not None and (least is None or rest[0] < least[0]):
                least = rest
        return least

    best = search(mask)
    assert best is not None
    return list(best[1])
