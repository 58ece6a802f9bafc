"""Which GPUs a smaller job should take, where it makes a difference: a part of the advice for a machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from topoadvisor.advice import Pick
from topoadvisor.plan import link_model
from topoadvisor.plan.link_model import Failures, LinkModel
from topoadvisor.plan.loads import Network, network
from topoadvisor.plan.problem import SAME, rate
from topoadvisor.topology.model import Topology

_SIZES: Final = (2, 4, 8)
_MOST_GPUS: Final = 16

Transports = Mapping[tuple[str, str], str | None]


def picks(topology: Topology, transports: Callable[[int], Transports], failures: Failures) -> list[Pick]:
    """The best sets of two, four and eight GPUs, where the first ones in index order are slower.

    `transports` says for a job of so many GPUs what NCCL would use between each pair, and `failures` which copies
    failed, as `rings.plan` takes them.
    """
    n = len(topology.gpus)
    if n > _MOST_GPUS or (not failures and _all_alike(topology)):
        return []
    indexes = [int(gpu.rpartition(":")[2]) for gpu in topology.gpus]
    found = []
    for size in _SIZES:
        if size < n:
            links = _Links(topology, network(topology, transports(size)), failures)
            if not _first_are_best(links, indexes, size) and (pick := _pick(links, indexes, size)) is not None:
                found.append(pick)
    return found


class _Links:
    """The link models of jobs of one size."""

    def __init__(self, topology: Topology, net: Network, failures: Failures) -> None:
        self.topology, self._net, self._failures = topology, net, failures

    def __call__(self, chosen: Sequence[int], *, job: int | None = None) -> LinkModel:
        return link_model.without(link_model.expected(self.topology, self._net, chosen), self._failures)


def _first_are_best(links: _Links, indexes: Sequence[int], size: int) -> bool:
    """The first GPUs in index order reach what no set can pass, seen without a solver."""
    if links(indexes[:size]).failed:
        return False
    first = rate(links(indexes[:size]).problem(), range(size))
    of = links(indexes).problem()
    away: list[dict[int, float]] = [{} for _ in indexes]
    for (a, _), loads in of.loads.items():
        gbps, link = min(((of.capacity[link] / factor, link) for link, factor in loads), default=(math.inf, -1))
        away[a][link] = max(away[a].get(link, 0.0), gbps)
    most = max(sum(sorted(hops.values(), reverse=True)[: size - 1]) for hops in away)
    return first >= most * (1 - SAME)


def _pick(links: _Links, indexes: Sequence[int], size: int) -> Pick | None:
    from topoadvisor.plan import nearness
    from topoadvisor.plan.subsets import Chooser

    chooser = Chooser(links, nearness.of(links.topology, indexes), indexes)
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


def _all_alike(topology: Topology) -> bool:
    """Every pair of GPUs is joined in the same way, so there is nothing to choose."""
    gpus = set(topology.gpus)
    ways = {(pair.link_class, pair.gbps) for ends, pair in topology.pairs.items() if gpus.issuperset(ends)}
    return len(ways) <= 1
