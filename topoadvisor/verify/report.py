"""The report of `verify` as text and as JSON."""

from __future__ import annotations

import statistics

from topoadvisor.measurements import runs
from topoadvisor.measurements.judge import Judgement
from topoadvisor.measurements.judge_hosts import HostJudgement
from topoadvisor.measurements.judge_patterns import PatternJudgement
from topoadvisor.measurements.model import Measurement
from topoadvisor.numbers import size_text
from topoadvisor.topology.links import nvlink_count
from topoadvisor.verify import selection
from topoadvisor.verify.belief import Belief
from topoadvisor.verify.documents import Believed, Host, Links, Pair, Pattern
from topoadvisor.verify.run import Report
from topoadvisor.verify.tables import table

_PAIRS: tuple[str, ...] = ("pair", "class", "→", "←", "both", "µs", "P2P off", "NCCL", "expected", "verdict")
_HOSTS: tuple[str, ...] = ("host", "link", "to GPU", "from GPU", "both", "expected", "verdict")
_PATTERNS: tuple[str, ...] = ("at once", "all", "slowest", "alone", "verdict")
_OPINIONS: tuple[str, ...] = ("pair", "how", "→", "←", "both")


def to_text(report: Report) -> str:
    """Tables of pairs, hosts and patterns with causes below their rows, notes, and how it was measured."""
    options = report.options
    believed = {(each.a, each.b): each.nccl_gbps for each in report.beliefs}
    lines: list[str] = ["Copies, GB/s (10⁹ bytes per second)"]
    lines += table(_PAIRS, [(_pair_row(each, believed), each.cause) for each in report.pairs], words=(0, 1, 8, 9))
    lines += table(_HOSTS, [(_host_row(each), each.cause) for each in report.hosts], words=(0, 1, 5, 6))
    lines += table(_PATTERNS, [(_pattern_row(each), each.cause) for each in report.patterns], words=(0, 4))
    opinions = [row for each in report.pairs for row in _opinions(each)]
    lines += table(_OPINIONS, [(row, None) for row in opinions], words=(0, 1))
    lines.append("")
    if report.pairs:
        lines.append(
            f"µs: a copy of {selection.SMALL_BYTES} bytes. P2P off: through host memory"
            f"{'' if options.full else ', measured for one pair of each class'}. NCCL: what its own model plans with. "
            "Expected: one way / both ways, published for such links"
            f"{'; without peer access the lowest to the highest one way' * any(map(_through_host, report.pairs))}."
        )
    lines += _classes(report)
    lines += report.notes
    lines.append(
        "Method: cudaMemcpyPeerAsync between GPUs, cudaMemcpyAsync to the host (copy engines), "
        f"{report.method}, driver {report.driver or 'not read'}; {_sizes(report)} buffers, "
        f"median of {options.repeats}{_scatter(report)}, new random data each time and every byte compared; "
        f"{report.date}."
    )
    return "\n".join(lines) + "\n"


def _classes(report: Report) -> list[str]:
    """How far the directions of one link class lie apart, where there are more than the two of one pair."""
    rates: dict[str, list[float]] = {}
    for each in report.pairs:
        found = [m.gbps for m in (each.forward, each.backward) if m and m.outcome == "ok" and m.gbps]
        rates.setdefault(each.pair.link_class or "?", []).extend(found)
    return [
        f"{link_class}: {min(found):.1f} to {max(found):.1f} GB/s over {len(found)} directions, a spread of "
        f"{(max(found) - min(found)) / statistics.median(found):.1%} of the median."
        for link_class, found in rates.items()
        if len(found) > 2
    ]


def _scatter(report: Report) -> str:
    """How far the batches of one measurement lay apart at the most; latencies are too short to say."""
    spreads = [each.spread for each in report.measurements if each.gbps is not None and each.spread is not None]
    return f" that lie up to {max(spreads):.1%} apart" if spreads else ""


def _sizes(report: Report) -> str:
    large = {
        each.size_bytes for each in report.measurements if each.size_bytes and each.size_bytes > selection.SMALL_BYTES
    }
    return " and ".join(map(size_text, sorted(large, reverse=True))) or size_text(report.options.size_bytes)


def _pair_row(judgement: Judgement, believed: dict[tuple[int, int], float]) -> tuple[str, ...]:
    pair = judgement.pair
    latencies = [each for each in judgement.other(runs.LATENCY) if each.latency_us is not None]
    slowest = max(latencies, key=lambda each: each.latency_us or 0, default=None)
    staged = next(iter(judgement.other(runs.STAGED)), None)
    return (
        f"GPU{pair.a} GPU{pair.b}",
        pair.link_class or "?",
        _cell(judgement.forward),
        _cell(judgement.backward),
        _cell(judgement.both),
        "-" if slowest is None else f"{slowest.latency_us:.1f}",
        _cell(staged),
        f"{believed[pair.a, pair.b]:.0f}" if (pair.a, pair.b) in believed else "?",
        _expected(judgement),
        judgement.verdict,
    )


def _opinions(judgement: Judgement) -> list[tuple[str, ...]]:
    rows = []
    for how, one_way, both in (
        ("reads", runs.READ, runs.READ_BOTH),
        ("kernel", runs.KERNEL, runs.KERNEL_BOTH),
        ("P2P off", runs.STAGED, runs.STAGED_BOTH),
    ):
        found = {each.subject: each for each in judgement.other(one_way, both)}
        if found and (how != "P2P off" or judgement.other(runs.READ)):
            a, b = judgement.pair.a, judgement.pair.b
            subjects = (f"gpu:{a}>gpu:{b}", f"gpu:{b}>gpu:{a}", f"gpu:{a}<>gpu:{b}")
            rows.append((f"GPU{a} GPU{b}", how, *(_cell(found.get(subject)) for subject in subjects)))
    return rows


def _host_row(judgement: HostJudgement) -> tuple[str, ...]:
    return (
        f"GPU{judgement.host.gpu}",
        judgement.host.link,
        _cell(judgement.to_gpu),
        _cell(judgement.from_gpu),
        _cell(judgement.both),
        "?" if judgement.host.band is None else f"{judgement.host.band.expected_uni:.0f}",
        judgement.verdict,
    )


def _pattern_row(judgement: PatternJudgement) -> tuple[str, ...]:
    measured = judgement.measured
    what = "ring" if measured.kind == runs.RING else "all pairs of"
    return (
        f"{what} {runs.in_words(measured.subject)}",
        _cell(measured),
        "-" if measured.slowest_gbps is None else f"{measured.slowest_gbps:.1f}",
        "?" if judgement.expected_gbps is None else f"{judgement.expected_gbps:.1f}",
        judgement.verdict,
    )


def _expected(judgement: Judgement) -> str:
    band, staged = judgement.pair.band, judgement.pair.staged
    if _through_host(judgement):
        return "?" if staged is None else f"{staged[0]:.0f} to {staged[1]:.0f}"
    if band is None:
        return "?"
    return f"{band.expected_uni:.0f} / {'?' if band.expected_bi is None else format(band.expected_bi, '.0f')}"


def _through_host(judgement: Judgement) -> bool:
    """The pair is judged by what copies through host memory reach; over NVLink they never should."""
    return judgement.staged and not nvlink_count(judgement.pair.link_class or "")


def _cell(measurement: Measurement | None) -> str:
    if measurement is None:
        return "-"
    if measurement.outcome != "ok":
        return measurement.outcome
    return "?" if measurement.gbps is None else f"{measurement.gbps:.1f}"


def document(report: Report) -> Links:
    """The same as a JSON document."""
    believed = {(each.a, each.b): each for each in report.beliefs}
    return Links(
        date=report.date,
        driver=report.driver,
        method=report.method,
        size_bytes=report.options.size_bytes,
        repeats=report.options.repeats,
        interrupted=report.interrupted,
        pairs=[_pair(judgement, believed.get((judgement.pair.a, judgement.pair.b))) for judgement in report.pairs],
        hosts=[_host(judgement) for judgement in report.hosts],
        patterns=[_pattern(judgement) for judgement in report.patterns],
        notes=report.notes,
    )


def _pair(judgement: Judgement, believed: Belief | None) -> Pair:
    pair = judgement.pair
    return Pair(
        gpus=(pair.a, pair.b),
        link_class=pair.link_class,
        verdict=judgement.verdict,
        cause=judgement.cause,
        expected=None if _through_host(judgement) else pair.band,
        expected_staged=pair.staged if _through_host(judgement) else None,
        nccl=None if believed is None else Believed(path=believed.path, gbps=believed.nccl_gbps),
        forward=judgement.forward,
        backward=judgement.backward,
        both=judgement.both,
        others=list(judgement.others),
    )


def _host(judgement: HostJudgement) -> Host:
    return Host(
        gpu=judgement.host.gpu,
        link=judgement.host.link,
        verdict=judgement.verdict,
        cause=judgement.cause,
        expected=judgement.host.band,
        to_gpu=judgement.to_gpu,
        from_gpu=judgement.from_gpu,
        both=judgement.both,
    )


def _pattern(judgement: PatternJudgement) -> Pattern:
    return Pattern(
        measured=judgement.measured,
        alone_gbps=judgement.expected_gbps,
        verdict=judgement.verdict,
        cause=judgement.cause,
    )
