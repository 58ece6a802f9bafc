"""What measurements say about a pair beyond its own number, and about all pairs together."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from topoadvisor.rules.scope import Known, Scope, Unknown
from topoadvisor.snapshot import Measurement

_CLASS_LEAST: Final = 3
"""Pairs of one class that must be measured before their median says anything about one of them."""

_GROUP: Final = "pair.measured."

Key = tuple[int, int]


def of_pair(scope: Scope, runs: Sequence[Measurement], origin: str, why: str) -> None:
    """Record what peer copies with and without peer access reached, the slower direction."""
    for fact, direct in (("pair.measured.p2p_gbps", True), ("pair.measured.staged_gbps", False)):
        rates = [
            run.gbps
            for run in runs
            if run.kind in ("peer-copy", "staged-copy")
            and run.outcome == "ok"
            and run.gbps
            and run.peer_access is direct
        ]
        scope.read(fact, min(rates, default=None), origin, why)
    known = {name for name, fact in scope.facts.items() if name.startswith(_GROUP) and isinstance(fact, Known)}
    scope.put("pair.measured.any", Known(bool(known), "derived"))
    both = {"pair.measured.p2p_gbps", "pair.measured.staged_gbps"} <= known
    scope.put("pair.measured.both_ways", Known(both, "derived"))


def summarise(node: Scope, pairs: Mapping[Key, Scope], runs: Sequence[Measurement]) -> None:
    """Record each pair's class median, the ring that suffers most, and whether anything was measured."""
    by_class: dict[str, list[float]] = {}
    for scope in pairs.values():
        name, rate = scope.value("pair.link_class"), scope.value("pair.measured.uni_gbps")
        if name is not None and rate is not None:
            by_class.setdefault(name, []).append(rate)
    medians = {name: statistics.median(rates) for name, rates in by_class.items() if len(rates) >= _CLASS_LEAST}
    for scope in pairs.values():
        median = medians.get(scope.value("pair.link_class") or "")
        peers = len(by_class.get(scope.value("pair.link_class") or "", ()))
        scope.put("pair.measured.class_pairs", Known(peers, "derived"))
        few = Unknown("fewer than three pairs of its class were measured")
        scope.put("pair.measured.class_median_gbps", few if median is None else Known(median, "measurement"))
    told = any(scope.value("pair.measured.any") for scope in pairs.values())
    node.put("measured.any", Known(told, "derived"))
    failed = [f"GPU{a}-GPU{b}" for (a, b), scope in pairs.items() if _failed(scope)]
    node.put("measured.failed_pairs", Known(failed, "measurement" if failed else "derived"))
    together, alone = _ring(runs)
    origin = "measurement" if together else "not measured"
    node.put("measured.ring_gbps", Known(together, origin))
    node.put("measured.ring_sum_gbps", Known(alone, origin))


def _failed(scope: Scope) -> bool:
    outcome = scope.value("pair.measured.outcome")
    return outcome in ("timeout", "crashed", "wrong-data") or scope.value("pair.measured.data_ok") is False


def _ring(runs: Sequence[Measurement]) -> tuple[float, float]:
    """Slowest hop of the measured ring that keeps least of it: with all hops at once, and alone; 0 = not measured."""
    hops = {run.subject: run.gbps for run in runs if run.kind == "peer-copy" and run.outcome == "ok" and run.gbps}
    found = []
    for run in runs:
        ends = run.subject.split(">")
        alone = [hops.get(f"{a}>{b}") for a, b in pairwise(ends)]
        known = [rate for rate in alone if rate is not None]
        if run.kind == "ring-copy" and run.outcome == "ok" and run.slowest_gbps and known and len(known) == len(alone):
            found.append((run.slowest_gbps, min(known)))
    return min(found, key=lambda each: each[0] / each[1], default=(0.0, 0.0))
