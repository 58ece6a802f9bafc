"""The report of `verify` as text and as JSON."""

from __future__ import annotations

from typing import Any

from topoadvisor.snapshot import Measurement
from topoadvisor.verify.judge import Judgement
from topoadvisor.verify.run import Report

SCHEMA = "topoadvisor.verify/1"

_HEAD: tuple[str, ...] = ("pair", "class", "→", "←", "both", "expected", "verdict")


def to_text(report: Report) -> str:
    """A table of pairs, causes below their rows, notes, and how it was measured."""
    rows = [_HEAD, *map(_row, report.pairs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["Peer copies between GPUs, GB/s (10⁹ bytes per second)", ""]
    lines.append(_aligned(rows[0], widths))
    for judgement, row in zip(report.pairs, rows[1:], strict=True):
        lines.append(_aligned(row, widths))
        if judgement.cause:
            lines.append(f"    {judgement.cause}")
    lines.append("")
    lines += report.notes
    options = report.options
    lines.append(
        f"Method: {report.method}, driver {report.driver or 'not read'}; {_size(options.size_bytes)} buffers, "
        f"median of {options.repeats}, new random data each time and every byte compared; {report.date}."
    )
    return "\n".join(lines) + "\n"


def _row(judgement: Judgement) -> tuple[str, ...]:
    pair = judgement.pair
    band = pair.band
    expected = "?"
    if band is not None:
        both = "?" if band.expected_bi is None else f"{band.expected_bi:.0f}"
        expected = f"{band.expected_uni:.0f} / {both}"
    return (
        f"GPU{pair.a} GPU{pair.b}",
        pair.link_class or "?",
        _cell(judgement.forward),
        _cell(judgement.backward),
        _cell(judgement.both),
        expected,
        judgement.verdict,
    )


def _cell(measurement: Measurement | None) -> str:
    if measurement is None:
        return "-"
    if measurement.outcome != "ok":
        return measurement.outcome
    return "?" if measurement.gbps is None else f"{measurement.gbps:.1f}"


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    """Numbers to the right, words to the left."""
    cells = [
        text.rjust(width) if 2 <= column <= 4 else text.ljust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _size(size_bytes: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} bytes"


def document(report: Report) -> dict[str, Any]:
    """The same as a JSON document."""
    return {
        "schema": SCHEMA,
        "date": report.date,
        "driver": report.driver,
        "method": report.method,
        "size_bytes": report.options.size_bytes,
        "repeats": report.options.repeats,
        "interrupted": report.interrupted,
        "pairs": [_pair(judgement) for judgement in report.pairs],
        "notes": report.notes,
    }


def _pair(judgement: Judgement) -> dict[str, Any]:
    pair = judgement.pair
    return {
        "gpus": [pair.a, pair.b],
        "link_class": pair.link_class,
        "verdict": judgement.verdict,
        "cause": judgement.cause,
        "expected": pair.band,
        "forward": judgement.forward,
        "backward": judgement.backward,
        "both": judgement.both,
    }
