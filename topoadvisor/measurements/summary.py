"""What the measurements of a snapshot say, in lines for the screen. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topoadvisor.measurements import counted, opinions, runs
from topoadvisor.measurements.model import Measurement
from topoadvisor.numbers import size_text
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology.model import Topology

_MOST_TOLD = 3
"""Failures, older and doubted measurements that are named."""


def lines(snapshot: Snapshot, topology: Topology) -> list[str]:
    """One line per kind of link and per collective that was measured, failures first, and what of it does not count."""
    measured = counted.of(snapshot, topology)
    found = measured.counted
    return [
        *_pairs(found, topology),
        *_hosts(found),
        *_patterns(found),
        *_collectives(found, len(snapshot.gpus)),
        *_elsewhere(found, snapshot.driver.version),
        *_otherwise(measured.failed_otherwise, "Failed {}: "),
        *_otherwise(measured.otherwise, "Measured {}, not counted: "),
        *_doubted(measured.doubted),
        *_older(measured.older),
    ]


def _elsewhere(found: Sequence[Measurement], driver: str | None) -> Iterator[str]:
    for other in runs.other_drivers(found, driver):
        count = sum(each.driver == other for each in found)
        what = "all of this" if count == len(found) else f"{count} of these measurements"
        yield f"Measured with driver {other}: {what}; this is {driver}, so `topoadvisor verify --save` again"


def _otherwise(found: Sequence[tuple[Measurement, str]], words: str) -> Iterator[str]:
    by_how: dict[str, list[Measurement]] = {}
    for run, how in found:
        by_how.setdefault(how, []).append(run)
    for how, measured in by_how.items():
        named = [_with_date(each) for each in measured[:_MOST_TOLD]]
        more = f", and {len(measured) - _MOST_TOLD} more" if len(measured) > _MOST_TOLD else ""
        yield f"{words.format(how)}{'; '.join(named)}{more}"


def _doubted(found: Sequence[tuple[Measurement, str]]) -> Iterator[str]:
    for _, why in found[:_MOST_TOLD]:
        yield f"DOUBTED, not counted: {why}"
    if len(found) > _MOST_TOLD:
        yield f"DOUBTED, not counted: {len(found) - _MOST_TOLD} more"


def _older(found: Sequence[Measurement]) -> Iterator[str]:
    if found:
        named = [_with_date(each) for each in found[:_MOST_TOLD]]
        more = f", and {len(found) - _MOST_TOLD} more" if len(found) > _MOST_TOLD else ""
        yield f"Older, not counted: {'; '.join(named)}{more}"


def _with_date(run: Measurement) -> str:
    """`peer-copy GPU0 → GPU1 390.1 GB/s (2026-10-01, driver 550.54.15)`."""
    size = f" at {size_text(run.size_bytes)}" if runs.collective(run) and run.size_bytes else ""
    how = runs.ended(run) if runs.failed(run) else f"{run.gbps:.1f} GB/s" if run.gbps is not None else ""
    made = ", ".join(filter(None, ((run.date or "no date")[:10], f"driver {run.driver}" if run.driver else "")))
    return f"{run.kind} {runs.in_words(run.subject)}{size} {how}".rstrip() + f" ({made})"


def _pairs(measurements: Sequence[Measurement], topology: Topology) -> Iterator[str]:
    by_class: dict[str, list[Measurement]] = {}
    for each in measurements:
        if (ends := runs.pair(each)) is not None:
            pair = topology.find(*(f"gpu:{index}" for index in ends))
            by_class.setdefault((pair.link_class if pair else None) or "?", []).append(each)
    for link_class, found in sorted(by_class.items()):
        staged = [each for each in found if each.peer_access is False]
        direct = [each for each in found if each.peer_access is not False]
        told = [
            _failures(found),
            _range(direct, runs.PEER, "one way"),
            _range(direct, runs.PEER_BOTH, "both ways at once"),
            _range(staged, runs.PEER, "one way through host memory, as no peer access was allowed"),
            _range(staged, runs.PEER_BOTH, "both ways at once through host memory"),
            _range(found, runs.READ, "read by the target"),
            _range(found, runs.KERNEL, "by a kernel"),
            _range(found, runs.STAGED, "with P2P off"),
            _latency(found),
        ]
        if any(told):
            yield f"{link_class} between GPUs: {', '.join(filter(None, told))}{_when(found)}"


def _hosts(measurements: Sequence[Measurement]) -> Iterator[str]:
    found = [each for each in measurements if runs.host_gpu(each) is not None]
    told = [
        _failures(found),
        _range(found, runs.TO_HOST, "one way"),
        _range(found, runs.HOST_BOTH, "both ways at once"),
    ]
    if any(told):
        yield f"GPU to host memory: {', '.join(filter(None, told))}{_when(found)}"


def _patterns(measurements: Sequence[Measurement]) -> Iterator[str]:
    for each in measurements:
        if not runs.at_once(each) or runs.ended(each) == "skipped":
            continue
        told = [_failures([each]), _rate(each)]
        what = "all hops of the ring" if ">" in each.subject else "all pairs of"
        yield f"At once {what} {runs.in_words(each.subject)}: {', '.join(filter(None, told))}{_when([each])}"


def _rate(run: Measurement) -> str:
    if runs.failed(run) or not run.gbps:
        return ""
    slowest = f", {run.slowest_gbps:.1f} GB/s the slowest" if run.slowest_gbps else ""
    return f"{run.gbps:.1f} GB/s together{slowest}"


def _failures(found: Sequence[Measurement]) -> str:
    """`2 FAILED (peer-copy GPU0→GPU1 timeout, …)`; empty without any."""
    broken = [each for each in found if runs.failed(each)]
    if not broken:
        return ""
    named = [f"{each.kind} {runs.in_words(each.subject)} {runs.ended(each)}" for each in broken[:_MOST_TOLD]]
    more = f", and {len(broken) - _MOST_TOLD} more" if len(broken) > _MOST_TOLD else ""
    return f"{len(broken)} FAILED ({', '.join(named)}{more})"


def _collectives(measurements: Sequence[Measurement], gpus: int) -> Iterator[str]:
    groups: dict[tuple[str, tuple[str, ...]], list[Measurement]] = {}
    for each in measurements:
        if runs.collective(each):
            groups.setdefault((each.kind, tuple(sorted(runs.ends(each)))), []).append(each)
    for (kind, _), found in sorted(groups.items()):
        broken = [each for each in found if runs.failed(each)]
        at = [size_text(each.size_bytes) for each in broken if each.size_bytes]
        where = f" at {', '.join(at)}" if at else ""
        told = [f"FAILED{where} ({runs.worst(broken)})"] if broken else []
        good = [each for each in found if not runs.failed(each) and each.gbps]
        best = max(good, key=lambda each: each.gbps or 0.0, default=None)
        if best is not None:
            size = f" at {size_text(best.size_bytes)}" if best.size_bytes else ""
            told.append(f"{best.gbps:.1f} GB/s bus bandwidth{size}")
        if wide := [each for each in good if opinions.unsteady([each])]:
            sizes = ", ".join(size_text(each.size_bytes) for each in wide if each.size_bytes)
            widest = max(each.spread or 0.0 for each in wide)
            told.append(f"SCATTERED{f' at {sizes}' if sizes else ''} (batches up to {widest:.0%} apart: measure again)")
        if told:
            yield f"{kind} {runs.over(found[0], gpus)}: {', '.join(told)}{_when([best or broken[0]])}"


def _range(found: Sequence[Measurement], kind: str, words: str) -> str:
    rates = [each.gbps for each in found if each.kind == kind and not runs.failed(each) and each.gbps is not None]
    if not rates:
        return ""
    low, high = min(rates), max(rates)
    return f"{low:.1f} GB/s {words}" if high - low < 0.1 else f"{low:.1f} to {high:.1f} GB/s {words}"


def _latency(found: Sequence[Measurement]) -> str:
    times = [run.latency_us for run in found if run.kind == runs.LATENCY and run.latency_us and not runs.failed(run)]
    return f"{max(times):.1f} µs for a small copy" if times else ""


def _when(found: Sequence[Measurement]) -> str:
    dates = sorted({each.date[:10] for each in found if each.date})
    if not dates:
        return ""
    return f" ({dates[0]})" if len(dates) == 1 else f" ({dates[0]} to {dates[-1]})"
