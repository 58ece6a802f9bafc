"""What measured copies between GPUs and host memory mean. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from topoadvisor.hardware.catalogue import Band
from topoadvisor.measurements import opinions, runs
from topoadvisor.measurements.judge import (
    CLASS_LEAST,
    Verdict,
    against,
    broken_by,
    by_lanes,
    index,
    too_small,
)
from topoadvisor.measurements.model import Measurement

_BOTH_LEAST = 1.1
"""Both ways at once / one way: 1.5 to 2 on healthy hosts; 1 where one resource carries both."""
_ALIKE_SHARE = 0.9
"""GPUs with the same link scatter by a few percent against the host."""


@dataclass(frozen=True)
class HostFacts:
    """One GPU by index, and what copies to and from the host should reach."""

    gpu: int
    band: Band | None
    link: str
    """`Gen5 x16`, `C2C`, or `?`."""
    slots: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostJudgement:
    """The way between one GPU and the host judged."""

    host: HostFacts
    to_gpu: Measurement | None
    from_gpu: Measurement | None
    both: Measurement | None
    verdict: Verdict
    cause: str | None


def judge_hosts(hosts: Sequence[HostFacts], measurements: Sequence[Measurement]) -> list[HostJudgement]:
    """One judgement per GPU that was measured against the host."""
    found = index(measurements)
    judged = []
    for host in hosts:
        up = found.get((runs.TO_HOST, f"host>gpu:{host.gpu}"))
        down = found.get((runs.TO_HOST, f"gpu:{host.gpu}>host"))
        both = found.get((runs.HOST_BOTH, f"host<>gpu:{host.gpu}"))
        if up or down or both:
            verdict, cause = _judge_host(host, [m for m in (up, down) if m], [m for m in (up, down, both) if m])
            judged.append(HostJudgement(host, up, down, both, verdict, cause))
    return _against_the_others(judged)


def _judge_host(
    host: HostFacts, one_way: Sequence[Measurement], measured: Sequence[Measurement]
) -> tuple[Verdict, str | None]:
    broken = broken_by(measured)
    if broken:
        return "fail", broken
    rates = [m.gbps for m in one_way if m.outcome == "ok" and m.gbps]
    if not rates:
        reasons = [m.note for m in measured if m.note]
        return "unknown", f"not measured: {reasons[0]}" if reasons else "not measured"
    if host.band is None:
        return "unknown", f"no public number says what {host.link} should reach"
    slower = min(rates)
    if doubted := runs.doubt(measured, host.band.theoretical_uni, host.link):
        return "unknown", doubted
    verdict = against(slower, host.band.expected_uni, host.band)
    if verdict == "pass":
        return (
            ("warn", f"{'; '.join(host.slots)}: as fast as that allows") if host.slots else _both_ways(slower, measured)
        )
    if small := too_small(measured):
        return "unknown", small
    share = slower / host.band.expected_uni
    what = f"{share:.0%} of what {host.link} reaches elsewhere"
    if slower < _ALIKE_SHARE * max(rates) and against(max(rates), host.band.expected_uni, host.band) == "pass":
        return verdict, f"{what}, in one direction only: host memory on another NUMA node, or a busy or slow host"
    if host.slots:
        return verdict, f"{what}: {'; '.join(host.slots)}"
    return verdict, f"{what}: {by_lanes(share) or 'host memory on another NUMA node, or a busy or slow host'}"


def _both_ways(slower: float, measured: Sequence[Measurement]) -> tuple[Verdict, str | None]:
    """What is odd about a way to the host that is as fast as it should be one way."""
    both = next((m for m in measured if m.kind == runs.HOST_BOTH), None)
    if both is not None and both.outcome == "skipped":
        return "unknown", f"both ways at once were not measured: {both.note}"
    if both is not None and both.gbps and both.gbps < _BOTH_LEAST * slower:
        return (
            "warn",
            f"both ways at once are only {both.gbps / slower:.1f} × one: host memory or the PCIe path is short",
        )
    told = opinions.unsteady(measured)
    return ("pass", None) if told is None else ("warn", told)


def _against_the_others(judged: list[HostJudgement]) -> list[HostJudgement]:
    """GPUs with the same link should be alike."""
    rates: dict[str, list[float]] = {}
    for each in judged:
        if each.verdict != "unknown":
            rates.setdefault(each.host.link, []).extend(
                m.gbps for m in (each.to_gpu, each.from_gpu) if m and m.outcome == "ok" and m.gbps
            )
    sharper = []
    for each in judged:
        alike = rates.get(each.host.link, [])
        slowest = min((m.gbps for m in (each.to_gpu, each.from_gpu) if m and m.gbps), default=None)
        if each.verdict == "pass" and slowest and len(alike) > CLASS_LEAST:
            median = statistics.median(alike)
            if slowest < _ALIKE_SHARE * median:
                cause = f"{1 - slowest / median:.0%} below the other GPUs of this machine with {each.host.link}"
                each = replace(each, verdict="warn", cause=cause)
        sharper.append(each)
    return sharper
