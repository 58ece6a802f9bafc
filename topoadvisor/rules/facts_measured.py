"""What measurements say about GPUs and pairs, and about all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, TypeVar

from topoadvisor.measurements import expectation
from topoadvisor.measurements import runs as saved
from topoadvisor.measurements.judge import Judgement, judge
from topoadvisor.measurements.judge_hosts import HostJudgement, judge_hosts
from topoadvisor.measurements.judge_patterns import PatternJudgement, judge_patterns
from topoadvisor.measurements.model import Measurement
from topoadvisor.rules.scope import Known, Scope
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology.model import Topology

_ONE_WAY_SLOW: Final = 0.9
"""A direction below this share of the other one is named."""
_GROUP: Final = "pair.measured."
_ORIGIN: Final = "measurement"
_NOT_MEASURED: Final = "it was not measured; `topoadvisor verify` does"

Key = tuple[int, int]
_Any = TypeVar("_Any", Judgement, HostJudgement)


@dataclass(frozen=True)
class Judged:
    """Copies that count, by whom they are between, and what `topoadvisor verify` says of them."""

    runs: Mapping[Key, Sequence[Measurement]]
    """By pair of GPU indexes, lower first."""
    pairs: Mapping[Key, Judgement]
    hosts: Mapping[int, HostJudgement]
    patterns: Sequence[PatternJudgement]


def judged(snapshot: Snapshot, topology: Topology) -> Judged:
    """What was measured between the GPUs of a machine, and between them and the host."""
    copies = [run for run in snapshot.measurements if not saved.collective(run)]
    by_pair: dict[Key, list[Measurement]] = {}
    for run in copies:
        if (key := saved.pair(run)) is not None:
            by_pair.setdefault(key, []).append(run)
    pairs = [
        expectation.pair_facts(snapshot, topology, a, b)
        for a, b in combinations(sorted(snapshot.gpus, key=lambda gpu: gpu.index), 2)
        if (a.index, b.index) in by_pair and topology.find(f"gpu:{a.index}", f"gpu:{b.index}") is not None
    ]
    hosts = [expectation.host_facts(gpu) for gpu in snapshot.gpus]
    bare = judge([replace(each, slots=(), down=()) for each in pairs], copies)
    found = [_worse(*each) for each in zip(judge(pairs, copies), bare, strict=True)]
    bare_hosts = judge_hosts([replace(each, slots=()) for each in hosts], copies)
    found_hosts = [_worse(*each) for each in zip(judge_hosts(hosts, copies), bare_hosts, strict=True)]
    return Judged(
        by_pair,
        {(each.pair.a, each.pair.b): each for each in found},
        {each.host.gpu: each for each in found_hosts},
        judge_patterns(copies, found),
    )


def _worse(full: _Any, bare: _Any) -> _Any:
    """Missing lanes and NVLinks, which have rules of their own, explain what is slow, and are nothing by themselves."""
    return bare if bare.verdict in ("pass", "unknown") else full


def of_gpu(scope: Scope, found: HostJudgement | None) -> None:
    """Record how copies between the GPU and host memory ended, how fast they are, and what is to be said of that."""
    ways = (found.to_gpu, found.from_gpu) if found else ()
    rates = [run.gbps for run in ways if run and not saved.failed(run) and run.gbps]
    scope.put("gpu.measured.host_gbps", Known(min(rates, default=0.0), _ORIGIN if rates else "not measured"))
    band = found.host.band if found else None
    why = "nothing is published for its PCIe link, or that was not read"
    scope.read("gpu.measured.host_usual_gbps", band.expected_uni if band else None, "catalogue", why)
    worst = saved.worst(run for run in (*ways, found.both) if run) if found else None
    scope.read("gpu.measured.host_outcome", worst, _ORIGIN, _NOT_MEASURED)
    scope.put("gpu.measured.host_failed", Known(scope.value("gpu.measured.host_outcome") in saved.FAILED, "derived"))
    _verdict(scope, "gpu.measured.host_", found)


def _verdict(scope: Scope, prefix: str, found: Judgement | HostJudgement | None) -> None:
    """Record what `topoadvisor verify` says of a link."""
    scope.read(f"{prefix}verdict", found.verdict if found else None, _ORIGIN, _NOT_MEASURED)
    scope.read(f"{prefix}cause", (found.cause or "") if found else None, _ORIGIN, _NOT_MEASURED)


def of_pair(scope: Scope, runs: Sequence[Measurement], found: Judgement | None) -> None:
    """Record how fast copies between the two are, how they ended, direct or through host memory, and what that says."""
    refused = scope.value("pair.p2p.refused") is True
    staged = [run for run in runs if refused or saved.through_host(run)]
    direct = [run for run in runs if run not in staged]
    _rate(scope, "pair.measured.uni_gbps", [run for run in runs if run.kind == saved.PEER])
    _rate(scope, "pair.measured.bi_gbps", [run for run in runs if run.kind == saved.PEER_BOTH])
    writes = [run for run in direct if run.kind == saved.PEER]
    denied = [run for run in staged if run.kind == saved.PEER]
    why_none = _why_not_direct(scope, staged) if denied else _NOT_MEASURED
    _rate(scope, "pair.measured.p2p_gbps", writes, peer_access=True, why_none=why_none)
    one_way = [run for run in staged if run.kind in (saved.PEER, saved.STAGED)]
    _rate(scope, "pair.measured.staged_gbps", one_way, peer_access=False)

    checked = [run.data_ok for run in direct if run.data_ok is not None]
    intact = scope.read("pair.measured.data_ok", all(checked) if checked else None, _ORIGIN, _NOT_MEASURED)
    # A second opinion that was left out says nothing about the link; one that broke does.
    told = saved.worst(run for run in direct if run.kind in saved.FIRST or run.outcome != "skipped")
    if told not in saved.FAILED and isinstance(intact, Known) and not intact.value:
        told = "wrong-data"
    why = _why_not_direct(scope, staged) if staged and not direct else _NOT_MEASURED
    scope.read("pair.measured.outcome", told, _ORIGIN, why)
    scope.read("pair.measured.staged_outcome", saved.worst(staged), _ORIGIN, _NOT_MEASURED)
    known = {name for name, fact in scope.facts.items() if name.startswith(_GROUP) and isinstance(fact, Known)}
    scope.put("pair.measured.any", Known(bool(known), "derived"))
    scope.put("pair.measured.slow_way", Known(_slow_way(scope, writes), _ORIGIN if writes else "derived"))
    granted = scope.value("pair.p2p.ok") is True
    scope.put("pair.measured.peer_denied", Known(granted and bool(denied), _ORIGIN if denied else "derived"))
    _verdict(scope, "pair.measured.", found)
    band = found.pair.band if found else None
    why = "it was not measured, or nothing is published for such a link"
    scope.read("pair.measured.usual_gbps", band.expected_uni if band else None, "catalogue", why)
    both = {"pair.measured.p2p_gbps", "pair.measured.staged_gbps"} <= known
    scope.put("pair.measured.both_ways", Known(both, "derived"))
    scope.put("pair.measured.failed", Known(scope.value("pair.measured.outcome") in saved.FAILED, "derived"))
    broken = sorted({_in_words(run) for run in direct if saved.failed(run)})
    scope.put("pair.measured.failed_copies", Known(broken, _ORIGIN if broken else "derived"))


def _why_not_direct(scope: Scope, staged: Sequence[Measurement]) -> str:
    """Why copies between the two went through host memory."""
    if all(run.kind in (saved.STAGED, saved.STAGED_BOTH) for run in staged):
        return _NOT_MEASURED
    by = "CUDA allowed" if scope.value("pair.p2p.ok") is True else "the driver grants"
    return f"its copies went through host memory, as {by} no peer access"


def _slow_way(scope: Scope, writes: Sequence[Measurement]) -> str:
    """The direction that is slower, else both GPUs."""
    rates = sorted((run.gbps, run.subject) for run in writes if run.gbps and not saved.failed(run))
    if len(rates) > 1 and rates[0][0] < _ONE_WAY_SLOW * rates[-1][0]:
        return saved.in_words(rates[0][1])
    return f"{scope.value('pair.a')} and {scope.value('pair.b')}"


def _rate(
    scope: Scope,
    fact: str,
    runs: Sequence[Measurement],
    *,
    peer_access: bool | None = None,
    why_none: str = _NOT_MEASURED,
) -> None:
    """Record the slower direction of those that arrived intact."""
    good = [run for run in runs if not saved.failed(run) and peer_access in (None, run.peer_access)]
    how = saved.worst(runs)
    why = f"the copy failed ({how})" if how in saved.FAILED else why_none
    scope.read(fact, min((run.gbps for run in good if run.gbps), default=None), _ORIGIN, why)


def _in_words(run: Measurement) -> str:
    """`peer-copy GPU0>GPU1 (timeout)`; a list of them has commas between."""
    return f"{run.kind} {run.subject.replace('gpu:', 'GPU').replace(',', ' ')} ({saved.ended(run)})"


def summarise(
    node: Scope, pairs: Mapping[Key, Scope], patterns: Sequence[PatternJudgement], runs: Sequence[Measurement]
) -> None:
    """Record what copies at once suffer from, what failed, and whether anything was measured."""
    some = any(scope.value("pair.measured.any") for scope in pairs.values())
    node.put("measured.any", Known(some, "derived"))
    named = {f"GPU{a}-GPU{b}": scope for (a, b), scope in pairs.items()}
    _put_list(node, "measured.failed_pairs", [name for name in named if named[name].value("pair.measured.failed")])
    staged = [name for name in named if named[name].value("pair.measured.staged_outcome") in saved.FAILED]
    _put_list(node, "measured.failed_staged_pairs", staged)
    broken = [run for run in runs if saved.failed(run)]
    gpus = len({gpu for pair in pairs for gpu in pair})
    over = [f"{run.kind} {saved.over(run, gpus)} ({saved.ended(run)})" for run in broken if saved.collective(run)]
    _put_list(node, "measured.failed_collectives", sorted(set(over)))
    _put_list(node, "measured.failed_patterns", [_in_words(run) for run in broken if saved.at_once(run)])
    bad = [each for each in patterns if each.verdict in ("warn", "fail") and not saved.failed(each.measured)]
    worst = min(bad, key=lambda each: (each.measured.slowest_gbps or 0.0) / (each.expected_gbps or 1.0), default=None)
    node.put("measured.contention", Known(_at_once(worst) if worst else "", _ORIGIN if patterns else "derived"))


def _at_once(found: PatternJudgement) -> str:
    run = found.measured
    what = "All hops of the ring" if run.kind == saved.RING else "All pairs of"
    return f"{what} {saved.in_words(run.subject)} at once, the slowest {run.slowest_gbps:.1f} GB/s: {found.cause}"


def _put_list(node: Scope, name: str, found: list[str]) -> None:
    node.put(name, Known(found, _ORIGIN if found else "derived"))
