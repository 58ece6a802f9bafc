"""What copies mean that ran at the same time: contention, which pairs alone never show. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topoadvisor.hardware.catalogue import Band
from topoadvisor.measurements import runs
from topoadvisor.measurements.judge import Judgement, Verdict, broken_by
from topoadvisor.measurements.model import Measurement
from topoadvisor.topology.links import nvlink_count

_PATTERN_LEAST = {runs.RING: 0.85, runs.SWITCH: 0.7}
"""Share of the undisturbed rate that the slowest flow of a pattern keeps where nothing is shared."""
_COLLAPSE = 0.8
"""Of what each flow would keep if all GPUs shared one uplink fairly; below that something breaks."""
_SICK = 0.85
"""A link below this share of the healthy ones of its class slows down every pattern that it is part of."""
_MOST_NAMED = 3

_Way = tuple[int, int]
"""From one GPU index to another."""


@dataclass(frozen=True)
class PatternJudgement:
    """Copies that ran at the same time judged by what each reaches alone."""

    measured: Measurement
    expected_gbps: float | None
    """Of the slowest flow, if all links were well and GPUs shared nothing but their own links."""
    verdict: Verdict
    cause: str | None


@dataclass(frozen=True)
class _Alone:
    """One way of a pair by itself, while the other way is as busy: in a pattern every GPU sends and receives. GB/s."""

    gbps: float
    healthy: float
    """What it would reach if its link was well."""
    wire: float | None
    """What its link carries; None = not known."""
    over_nvlink: bool


def judge_patterns(measurements: Sequence[Measurement], pairs: Sequence[Judgement]) -> list[PatternJudgement]:
    """One judgement per ring or switch group that was measured; `pairs` are the same machine's pairs, judged."""
    alone = _alone(pairs)
    return [_judge_pattern(each, alone) for each in measurements if each.kind in _PATTERN_LEAST]


def _alone(pairs: Sequence[Judgement]) -> dict[_Way, _Alone]:
    """What each way reaches by itself, where that was measured and can be believed."""
    classes: dict[tuple[str | None, bool | None], list[float]] = {}
    rated: list[tuple[_Way, float, Judgement, bool | None]] = []
    for each in pairs:
        a, b = each.pair.a, each.pair.b
        both = each.both.gbps / 2 if each.both and each.both.outcome == "ok" and each.both.gbps else math.inf
        for way, run in (((a, b), each.forward), ((b, a), each.backward)):
            if run is not None and run.outcome == "ok" and run.gbps and not each.doubt:
                rate = min(run.gbps, both)
                rated.append((way, rate, each, run.peer_access))
                if each.verdict in ("pass", "unknown"):
                    classes.setdefault((each.pair.link_class, run.peer_access), []).append(rate)
    found = {}
    for way, gbps, each, peer_access in rated:
        band, others = each.pair.band, classes.get((each.pair.link_class, peer_access))
        healthy = gbps
        if each.verdict in ("warn", "fail"):
            published = _published(band) if band and peer_access else gbps
            healthy = max(gbps, statistics.median(others) if others else published)
        wire = band.theoretical_uni if band and peer_access else None
        found[way] = _Alone(gbps, healthy, wire, bool(nvlink_count(each.pair.link_class or "")))
    return found


def _published(band: Band) -> float:
    return min(band.expected_uni, band.expected_bi / 2) if band.expected_bi else band.expected_uni


def _ways(measured: Measurement) -> list[_Way]:
    gpus = [int(end.removeprefix("gpu:")) for end in runs.ends(measured)]
    return list(itertools.pairwise(gpus)) if measured.kind == runs.RING else list(itertools.permutations(gpus, 2))


def _judge_pattern(measured: Measurement, alone: Mapping[_Way, _Alone]) -> PatternJudgement:
    ways = _ways(measured)
    flows = {way: alone[way] for way in ways if way in alone}
    sharing = 1 if measured.kind == runs.RING else len({a for a, _ in ways}) - 1
    expected = None
    if len(flows) == len(ways):
        expected = round(min(flow.healthy for flow in flows.values()) / sharing, 2)
    verdict, cause = _verdict(measured, ways, flows, sharing, expected)
    return PatternJudgement(measured, expected, verdict, cause)


def _verdict(
    measured: Measurement, ways: Sequence[_Way], flows: Mapping[_Way, _Alone], sharing: int, expected: float | None
) -> tuple[Verdict, str | None]:
    broken = broken_by([measured])
    if broken:
        return "fail", broken
    slowest = measured.slowest_gbps
    if measured.outcome != "ok" or not slowest:
        return "unknown", f"not measured: {measured.note}" if measured.note else "not measured"
    if expected is None:
        missing = [way for way in ways if way not in flows]
        return "unknown", f"no rate that can be believed is known of {_named(missing)} alone"
    wires = [flow.wire for flow in flows.values() if flow.wire]
    if len(wires) == len(ways) and slowest > runs.IMPOSSIBLE * min(wires) / sharing:
        return "unknown", (
            f"the slowest flow reached {slowest:.1f} GB/s, and a link carries {min(wires) / sharing:.0f} for each: it "
            "is not the link that the topology shows, or this was not measured rightly"
        )
    least = _PATTERN_LEAST[measured.kind]
    if slowest >= least * expected:
        return "pass", None
    sick = [way for way, flow in flows.items() if flow.gbps < _SICK * flow.healthy]
    by_sick = min(flow.gbps for flow in flows.values()) / sharing
    if sick and slowest >= least * by_sick:
        return "warn", (
            f"the slowest flow keeps {slowest / expected:.0%} of what healthy links carry: {_named(sick)} is as slow "
            "alone, so mend that first, and measure again to see what is shared"
        )
    share = slowest / by_sick
    what = f"the slowest flow keeps {share:.0%} of what it would have without contention"
    more = f"; {_named(sick)} is slow alone, too" if sick else ""
    if share < _COLLAPSE / len({gpu for way in ways for gpu in way}):
        return "fail", f"{what}: worse than if all of them shared one uplink{more}"
    if all(flow.over_nvlink for flow in flows.values()):
        return "warn", (
            f"{what}: nothing is shared over NVLink, so check the links' errors and what else uses the GPUs{more}"
        )
    return "warn", f"{what}: flows share an uplink or a link between sockets{more}"


def _named(ways: Sequence[_Way]) -> str:
    """Pairs in words; one GPU where several pairs are all its own."""
    pairs = list(dict.fromkeys((min(way), max(way)) for way in ways))
    common = set.intersection(*map(set, pairs))
    if len(pairs) > 1 and len(common) == 1:
        return f"GPU{common.pop()}"
    named = ", ".join(f"GPU{a} ↔ GPU{b}" for a, b in pairs[:_MOST_NAMED])
    return named + f" and {len(pairs) - _MOST_NAMED} more" * (len(pairs) > _MOST_NAMED)
