"""Published and own results of peer copies as a table and as a document, by GPU and link class."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from topoadvisor.errors import InputError
from topoadvisor.hardware import catalogue, tables
from topoadvisor.hardware.tables import Result, ResultSource

_HEAD: Final = ("GPU", "class", "PCIe", "P2P", "one way", "both", "P2P off", "µs", "from")


def of(gpu: str | None = None) -> list[Result]:
    """Results of a GPU family, all without a name. Raises InputError when there is none of that name."""
    found = list(tables.results().results)
    if gpu is None:
        return found
    wanted = catalogue.gpu_model(gpu)
    chosen = [
        each
        for each in found
        if gpu.lower() in each.gpu.lower() or (wanted is not None and catalogue.gpu_model(each.gpu) == wanted)
    ]
    if not chosen:
        known = sorted({each.gpu.removeprefix("NVIDIA ") for each in found})
        raise InputError(f"there is no result of a GPU named {gpu[:60]!r}", hint=f"There are {', '.join(known)}.")
    return chosen


def table(found: list[Result]) -> str:
    """One row per result; GB/s one way, both ways at once, and one way with peer access off."""
    rows = [_HEAD, *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if 4 <= column <= 7 else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines += ["", "GB/s = 10⁹ bytes per second. From:"]
    for key in dict.fromkeys(each.source for each in found):
        source = tables.results().sources[key]
        lines.append(
            f"  {key}: {source.what}, {source.method}, taken {source.taken}{f', {source.url}' if source.url else ''}"
        )
    return "\n".join(lines) + "\n"


def _row(each: Result) -> tuple[str, ...]:
    low, high = min(each.uni), max(each.uni)
    return (
        each.gpu.removeprefix("NVIDIA "),
        each.link,
        f"Gen{each.gen} x{each.width}" if each.gen else "-",
        "on" if each.peer_access else "off",
        f"{low:.1f}" if high - low < 0.1 else f"{low:.1f}-{high:.1f}",
        _number(each.bi),
        _number(each.staged),
        _number(each.latency_us),
        each.source + (f": {each.note}" if each.note else ""),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """`topoadvisor hardware results`: peer copies in GB/s, 10⁹ bytes per second."""

    schema: Literal["topoadvisor.results/1"] = "topoadvisor.results/1"
    results: list[Result]
    sources: dict[str, ResultSource]
    """Those that `source` of the results names."""


def document(found: list[Result]) -> Results:
    """The same with the sources in full."""
    used = {each.source for each in found}
    return Results(results=found, sources={key: each for key, each in tables.results().sources.items() if key in used})
