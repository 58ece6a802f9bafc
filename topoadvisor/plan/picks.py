"""Which GPUs a smaller job should take, where it makes a difference: a part of the advice for a machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from topoadvisor.advice import Pick
from topoadvisor.plan.problem import SAME, Problem, rate

if TYPE_CHECKING:
    from topoadvisor.plan.subsets import Chooser
    from topoadvisor.plan.values import Links

_SIZES: Final = (2, 4, 8)


def picks(links: Links, indexes: Sequence[int], chooser: Callable[[], Chooser]) -> list[Pick]:
    """The best sets of two, four and eight GPUs, where the first ones in index order are slower.

    `chooser`, which takes a solver, is asked only where these may be slower.
    """
    found = []
    for size in _SIZES:
        if size < len(indexes) and not _first_are_best(links, indexes, size):
            pick = _pick(chooser(), indexes, size)
            found += [pick] if pick is not None else []
    return found


def leaving(of: Problem, size: int) -> list[float]:
    """GB/s, by node, that can go from it to others of a set of so many, seen without a solver."""
    away: list[dict[int, float]] = [{} for _ in range(of.n)]
    for (a, _), loads in of.loads.items():
        gbps, link = min(((of.capacity[link] / factor, link) for link, factor in loads), default=(math.inf, -1))
        away[a][link] = max(away[a].get(link, 0.0), gbps)
    return [sum(sorted(hops.values(), reverse=True)[: size - 1]) for hops in away]


def _first_are_best(links: Links, indexes: Sequence[int], size: int) -> bool:
    """The first GPUs in index order reach what no set can pass."""
    first = links(indexes[:size])
    if first.failed:
        return False
    most = max(leaving(links(indexes, job=size).problem(), size))
    return rate(first.problem(), range(size)) >= most * (1 - SAME)


def _pick(chooser: Chooser, indexes: Sequence[int], size: int) -> Pick | None:
    best, exact = chooser.best(size)
    first = tuple(indexes[:size])
    written, slower = chooser.written(best), chooser.written(first)
    usable = not chooser.optimum(first)[0].failed
    if not exact or written.gbps is None or (usable and slower.gbps is None):
        return None
    if chooser.value(first) >= chooser.value(best):
        return None
    return Pick(
        size=size,
        gpus=list(best),
        gbps=round(written.gbps, 3),
        instead_of=list(first),
        instead_gbps=round(slower.gbps or 0.0, 3),
        groups=[list(group) for group in chooser.divided(size)[0]],
    )
