"""What copies mean that ran at the same time: contention, which pairs alone never show. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topoadvisor import runs
from topoadvisor.evidence import Measurement
from topoadvisor.verify.judge import Found, Verdict, broken_by, index

_PATTERN_LEAST = {runs.RING: 0.85, runs.SWITCH: 0.7}
"""Share of the undisturbed rate that the slowest flow of a pattern keeps where nothing is shared."""
_COLLAPSE = 0.8
"""Of what each flow would keep if all GPUs shared one uplink fairly; below that something breaks."""


@dataclass(frozen=True)
class PatternJudgement:
    """Copies that ran at the same time judged by what each reaches alone."""

    measured: Measurement
    expected_gbps: float | None
    """Of the slowest flow, if GPUs shared nothing but their own links."""
    verdict: Verdict
    cause: str | None


def judge_patterns(
    measurements: Sequence[Measurement], *, over_nvlink: Callable[[int, int], bool] = lambda a, b: False
) -> list[PatternJudgement]:
    """One judgement per ring or switch group that was measured.

    `over_nvlink` says of two GPUs, by index, whether NVLink joins them.
    """
    found = index(measurements)
    judged = []
    for measured in measurements:
        if measured.kind in _PATTERN_LEAST:
            expected = _alone(measured, found)
            verdict, cause = _judge_pattern(measured, expected, over_nvlink)
            judged.append(PatternJudgement(measured, expected, verdict, cause))
    return judged


def _alone(measured: Measurement, found: Found) -> float | None:
    """What the slowest flow would reach if only the GPUs' own links were shared; None unless all were measured."""
    flows = _flows(measured)
    sharing = 1 if measured.kind == runs.RING else len({a for a, _ in flows}) - 1
    alone = [found.get((runs.PEER, f"{a}>{b}")) for a, b in flows]
    rates = [m.gbps for m in alone if m is not None and m.outcome == "ok" and m.gbps]
    return round(min(rates) / sharing, 2) if rates and len(rates) == len(flows) else None


def _flows(measured: Measurement) -> list[tuple[str, str]]:
    if measured.kind == runs.RING:
        return list(itertools.pairwise(measured.subject.split(">")))
    return list(itertools.permutations(measured.subject.split(","), 2))


def _judge_pattern(
    measured: Measurement, expected: float | None, over_nvlink: Callable[[int, int], bool]
) -> tuple[Verdict, str | None]:
    broken = broken_by([measured])
    if broken:
        return "fail", broken
    if measured.outcome != "ok" or not measured.slowest_gbps:
        return "unknown", f"not measured: {measured.note}" if measured.note else "not measured"
    if expected is None:
        return "unknown", "not every pair of it was measured alone"
    share = measured.slowest_gbps / expected
    if share >= _PATTERN_LEAST[measured.kind]:
        return "pass", None
    what = f"the slowest flow keeps {share:.0%} of what it would have without contention"
    flows = _flows(measured)
    gpus = {name for flow in flows for name in flow}
    if share < _COLLAPSE / len(gpus):
        return "fail", f"{what}: worse than if all of them shared one uplink"
    if all(over_nvlink(*(int(name.removeprefix("gpu:")) for name in flow)) for flow in flows):
        return "warn", f"{what}: nothing is shared over NVLink, so check the links' errors and what else uses the GPUs"
    return "warn", f"{what}: flows share an uplink or a link between sockets"
