"""The columns after the devices: CPU affinity, NUMA affinity, the GPU's own NUMA node.

Any of the cells may be empty, and then the rest of the line moves left in a way that depends on who wrote it:
`nvidia-smi` puts one tab after a CPU list, whatever its length, and one more in front of `N/A` and of the GPU's NUMA
node; hands align values with their headings, or do not. With a value for every column the order decides. With fewer,
the cells must be where one of these writers would have put them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from topoadvisor.cpu_lists import is_printed, parse
from topoadvisor.ingest.cells import FittedRow
from topoadvisor.ingest.lines import Line
from topoadvisor.ingest.plausible import NOT_KNOWN, refused
from topoadvisor.ingest.tables import AFFINITIES, Affinity, Header, Token, is_affinity
from topoadvisor.snapshot import DamagedCell

_TAB = 8
_WORDS = re.compile(r"\S+")
_DAMAGED = re.compile(r"(?=[^A-Za-z]*[0-9?OolIN])[0-9A-Za-z?.,:;/~\-]{1,40}")
"""What a list of CPUs or nodes, or `N/A`, may have become; a word of a remark hardly begins like that."""
_RUN_TOGETHER = re.compile(r"(?=.*N/A)(?:N/A|[0-9][0-9,\-]*)+")
"""Cells without a space between them, of which one says that it is not known: where that begins and ends is clear."""
_PIECES = re.compile(r"N/A|[0-9][0-9,\-]*")
_COUNT_AND_LIST = re.compile(r"NV[0-9]+[,\-][0-9,\-]*")
_QUOTED_END = re.compile(r"[\"'”’`],?\]?$")
HEADINGS: Final[dict[Affinity, str]] = {
    "cpu": "CPU Affinity",
    "numa": "NUMA Affinity",
    "gpu-numa": "GPU NUMA ID",
}


def kinds(header: Header | None, rows: Sequence[FittedRow]) -> tuple[Affinity, ...]:
    """The affinity columns of a table: those with a heading, then those that rows have without one.

    Where columns have headings, one that few rows have is none: they hold a stray number.
    """
    named = tuple(kind for kind, _ in header.affinities) if header else ()
    widths = sorted(len(_values(row)) for row in rows) or [0]
    width = widths[(len(widths) - 1) // 2] if named else widths[-1]
    spare = AFFINITIES[max((AFFINITIES.index(kind) + 1 for kind in named), default=0) :]
    return (*named, *spare[: max(0, width - len(named))])


def read(
    rows: Sequence[FittedRow],
    kinds: tuple[Affinity, ...],
    header: Header | None,
    *,
    end: str = "\n",
    complete: bool = True,
) -> tuple[dict[str, dict[Affinity, str | None]], list[DamagedCell]]:
    """The affinities of GPU rows by label, as printed (None = empty cell, or the row was cut before it), and cells in
    which something else stands. `end` is how the text ends when the last of `rows` is its last row; `complete`
    says that no GPU's row is missing.
    """
    if not kinds:
        return {}, []
    values = {row.row.label: _values(row)[: len(kinds)] for row in rows}
    whole = [row for row in rows if len(values[row.row.label]) == len(kinds)]
    if whole:
        # Where some row is complete, a word in the place of what another one lacks is damage and no remark.
        short = [row for row in rows if len(values[row.row.label]) < len(kinds)]
        values |= {row.row.label: _values(row, damaged=True)[: len(kinds)] for row in short}
    values = _without_punctuation(values, len(kinds))
    headings = dict(header.affinities) if header else {}
    every = range(len(kinds))
    writer = _Writer(
        kinds,
        headings,
        tabs=all(_fields(row) in (None, _printed(every, values[row.row.label], kinds)) for row in whole),
        stops=all(_off_tab_stops(row, every, values[row.row.label], kinds, headings) == 0 for row in whole),
        seen=[start for row in whole[:1] for start in _after_cells(row, values[row.row.label])],
    )
    found = {row.row.label: _read_row(row, values[row.row.label], writer) for row in rows}
    widths = {row.row.label: len(_values(row)) for row in rows}
    # Beside rows that fit, one with a value too many does not say which of them it is.
    wide = {label for label, width in widths.items() if width > len(kinds) and len(kinds) in widths.values()}
    bad = refused({label: texts for label, texts in found.items() if label not in wide}, kinds)
    bad |= {(label, kind) for label in wide for kind in kinds}
    for row in rows:
        if len(values[row.row.label]) < len(kinds) and not row.row.grid:
            # Where cells are missing and no space stands in front or behind, there may be none inside either.
            doubtful = _touching(values[row.row.label], _tail(row)[1])
            bad |= {(row.row.label, kind) for kind, text in found[row.row.label].items() if text in doubtful}
    for label in {label for label, _ in bad if len(values[label]) < len(kinds)}:
        found[label] = _without_doubt(found[label], next(kind for kind in kinds if (label, kind) in bad))
    if rows and (kind := _cut_at(rows[-1], found, kinds, end, complete=complete)) is not None:
        bad.add((rows[-1].row.label, kind))
    cells = {
        label: {kind: None if (label, kind) in bad else text for kind, text in texts.items()}
        for label, texts in found.items()
    }
    damaged = [
        _damage(row, kind, text, values[row.row.label])
        for row in rows
        for kind, text in found[row.row.label].items()
        if text is not None and (row.row.label, kind) in bad
    ]
    return cells, damaged


def _without_doubt(texts: Mapping[Affinity, str | None], damaged: Affinity) -> dict[Affinity, str | None]:
    """A row that lacks cells, up to a damaged one, which may hold what is missing. Behind it only `N/A` at the end is
    clear.
    """
    kinds = list(texts)
    behind = kinds[kinds.index(damaged) + 1 :]
    told = [text for kind in behind if (text := texts[kind]) is not None]
    last = told[-1] if told and told[-1] == NOT_KNOWN else None
    return {**texts, **dict.fromkeys(behind), **dict.fromkeys(behind[-1:], last)}


def _touching(values: Sequence[tuple[str, int]], end: int) -> set[str]:
    """The lists that begin where the cell in front of them ends, or end where the next one begins."""
    starts = [place for _, place in values]
    ends = [end, *(place + len(text) for text, place in values)]
    touching = {
        text
        for number, (text, place) in enumerate(values)
        if place == ends[number] or place + len(text) in starts[number + 1 : number + 2]
    }
    return touching - {NOT_KNOWN}


def _cut_at(
    row: FittedRow,
    found: Mapping[str, Mapping[Affinity, str | None]],
    kinds: tuple[Affinity, ...],
    end: str,
    *,
    complete: bool,
) -> Affinity | None:
    """The column of the cell in which the text ends before its last column, or before the last row when it is not
    `complete`; None when another row has the same there.
    """
    texts = found[row.row.label]
    filled = [kind for kind in kinds if texts[kind] is not None]
    text = texts[filled[-1]] if filled else None
    if text is None or text == NOT_KNOWN or not end.endswith(text):
        return None
    others = [other[filled[-1]] for label, other in found.items() if label != row.row.label]
    whole = complete and filled[-1] == kinds[-1]
    if whole and filled[-1] == "cpu":
        # All columns are there, and so is the end of a list that holds as many CPUs as another.
        whole = not others or len(parse(text) or ()) in {len(parse(other or "") or ()) for other in others}
    return None if whole or text in others else filled[-1]


def _damage(row: FittedRow, kind: Affinity, text: str, values: Sequence[tuple[str, int]]) -> DamagedCell:
    if row.row.grid:
        token = next(token for token in row.rest if token.text == text)
        line, place = token.line, token.start
    else:
        line, place = _tail(row)[0], next(place for value, place in values if value == text)
    return DamagedCell(
        row=row.row.label, column=HEADINGS[kind], text=text, line=line.number, text_column=line.column(place)
    )


@dataclass(frozen=True)
class _Writer:
    """What the heading and the complete rows say about how the columns were written."""

    kinds: tuple[Affinity, ...]
    headings: dict[Affinity, int]
    tabs: bool
    """No complete row has its tabs elsewhere than `nvidia-smi` puts them."""
    stops: bool
    """No complete row has its values elsewhere than those tabs would put them."""
    seen: list[int]
    """Distances of the values of a complete row from its last cell; empty when there is none."""


def _read_row(row: FittedRow, values: list[tuple[str, int]], writer: _Writer) -> dict[Affinity, str | None]:
    kinds = writer.kinds
    if row.row.grid:
        texts = [token.text or None for token in row.rest]
        return dict(zip(kinds, [*texts, *[None] * len(kinds)], strict=False))
    places = range(len(kinds)) if len(values) == len(kinds) else _places(row, values, writer)
    if row.last is not None and _COUNT_AND_LIST.fullmatch(row.last.text):
        # The list of CPUs hangs on the device cell in front of it.
        places = range(len(kinds) - len(values), len(kinds))
    cells = {kinds[place]: text for place, (text, _) in zip(places, values, strict=True)}
    return {kind: cells.get(kind) for kind in kinds}


def _tail(row: FittedRow) -> tuple[Line, int]:
    """Where the text after the device cells begins."""
    if row.last is None:
        return row.row.line, len(row.row.line.text)
    wrapped = row.rest and row.rest[0].line is not row.last.line
    return (row.rest[0].line, 0) if wrapped else (row.last.line, row.last.start + len(row.last.text))


def _values(row: FittedRow, *, damaged: bool = False) -> list[tuple[str, int]]:
    """The cells after the devices with their places, up to the first word that cannot be one, or was with `damaged`."""
    if row.row.grid:
        return [(token.text, token.start) for token in row.rest if is_affinity(token.text)]
    if row.rest and not all(_stands(token, row.rest[0].line) for token in row.rest):
        return [(token.text, token.start) for token in row.rest]
    line, start = _tail(row)
    values: list[tuple[str, int]] = []
    for match in _WORDS.finditer(line.text, start):
        text = _bare(match[0])
        if values and values[-1][0].endswith(",") and is_printed(values[-1][0] + text.rstrip(",")):
            values[-1] = (values[-1][0] + text, values[-1][1])
        elif is_affinity(text) or (damaged and _DAMAGED.fullmatch(text) and not _RUN_TOGETHER.fullmatch(text)):
            values.append((text, match.start()))
        elif _RUN_TOGETHER.fullmatch(text):
            values += [(piece[0], match.start() + piece.start()) for piece in _PIECES.finditer(text)]
        elif text.strip(",;\\"):
            break
    return values


def _without_punctuation(values: Mapping[str, list[tuple[str, int]]], width: int) -> dict[str, list[tuple[str, int]]]:
    """A comma behind the same column of every row is punctuation; behind that of one row it is where a list was cut."""
    columns = [[row[place][0] for row in values.values() if len(row) > place] for place in range(width)]
    commas = [len(values) > 1 and all(text.endswith(",") for text in column) for column in columns]
    return {
        label: [(text.rstrip(",") if comma else text, place) for (text, place), comma in zip(row, commas, strict=False)]
        for label, row in values.items()
    }


def _stands(token: Token, line: Line) -> bool:
    """A word of this line, and not one of the next or pieced together of both, where the row was broken."""
    return token.line is line and line.text.startswith(token.text, token.start)


def _bare(text: str) -> str:
    """A cell without what a list of strings, a quotation or a drawn box puts around it."""
    return _QUOTED_END.sub("", text.strip()).strip(" |│┃\"'`*“”‘’")


def _places(row: FittedRow, values: list[tuple[str, int]], writer: _Writer) -> Sequence[int]:
    """Which columns the values stand in when there are fewer values than columns."""
    kinds, headings = writer.kinds, writer.headings
    if _touching(values, -1):
        return _as_usual(values, kinds)
    ways = list(combinations(range(len(kinds)), len(values)))
    fields = _fields(row)
    if writer.tabs and fields is not None:
        exact = [way for way in ways if _printed(way, values, kinds) == fields]
        if exact:
            return exact[0]
    actual = [_tail(row)[0].display(place) for _, place in values]

    def distance(way: Sequence[int]) -> int:
        """How many screen columns the values are away from where this reading would have put them."""
        distances = []
        if writer.stops:
            distances.append(_off_tab_stops(row, way, values, kinds, headings))
        elif writer.seen:
            distances.append(_apart(_after_cells(row, values), [writer.seen[place] for place in way]))
        if not writer.seen and all(kind in headings for kind in kinds):
            distances.append(_apart(actual, [headings[kinds[place]] for place in way]))
        return min(distances)

    best = min(ways, key=distance)
    if distance(best) <= _TAB // 2:
        return best
    return _as_usual(values, kinds)


def _as_usual(values: list[tuple[str, int]], kinds: tuple[Affinity, ...]) -> Sequence[int]:
    """No layout explains the places: `N/A` at the end is the GPU's own node far more often than anything else."""
    count = len(values) - 1 if values and values[-1][0] == NOT_KNOWN else len(values)
    return [*range(count), *([len(kinds) - 1] if count < len(values) else [])]


def _after_cells(row: FittedRow, values: list[tuple[str, int]]) -> list[int]:
    """Screen columns from the row's last device cell to the values."""
    line = _tail(row)[0]
    begin = line.display(row.last.start) if row.last and row.last.line is line else 0
    return [line.display(place) - begin for _, place in values]


def _apart(actual: Sequence[int], expected: Sequence[int]) -> int:
    return sum(abs(a - b) for a, b in zip(actual, expected, strict=True))


def _off_tab_stops(
    row: FittedRow,
    way: Sequence[int],
    values: list[tuple[str, int]],
    kinds: tuple[Affinity, ...],
    headings: dict[Affinity, int],
) -> int:
    """How far the values are from the tab stops of `nvidia-smi`, counted from the heading or from the row's cells."""
    origin = row.row.line.display(row.row.label_start)
    after_cells = origin + _TAB * (1 + row.found)
    bases = {after_cells, headings.get(kinds[0], after_cells)}
    actual = [_tail(row)[0].display(place) for _, place in values]
    return min(_apart(actual, _tab_stops(way, values, kinds, base, origin)) for base in bases)


def _fields(row: FittedRow) -> list[str] | None:
    """The tab-separated fields after the device cells, without empty ones at the end; None when there is no tab."""
    line, start = _tail(row)
    tail = line.text[start:].lstrip(" ")
    if "\t" not in tail:
        return None
    fields = [_bare(field) for field in tail.removeprefix("\t").split("\t")]
    while fields and not fields[-1]:
        fields.pop()
    return fields


def _printed(way: Sequence[int], values: list[tuple[str, int]], kinds: tuple[Affinity, ...]) -> list[str]:
    """The tab-separated fields that `nvidia-smi` prints for these cells, without empty ones at the end."""
    texts = dict(zip(way, (text for text, _ in values), strict=True))
    fields: list[str] = []
    for place, kind in enumerate(kinds):
        text = texts.get(place, "")
        if kind == "gpu-numa" or (kind == "numa" and text == "N/A"):
            fields.append("")
        fields.append(text)
    while fields and not fields[-1]:
        fields.pop()
    return fields


def _tab_stops(
    way: Sequence[int], values: list[tuple[str, int]], kinds: tuple[Affinity, ...], base: int, origin: int
) -> list[int]:
    """Screen columns of the values when printed as `_printed` says, with tab stops counted from `origin`."""
    texts = dict(zip(way, (text for text, _ in values), strict=True))
    starts, cursor = [], base
    for place, kind in enumerate(kinds):
        text = texts.get(place, "")
        if kind == "gpu-numa" or (kind == "numa" and text == "N/A"):
            cursor = origin + ((cursor - origin) // _TAB + 1) * _TAB
        if text:
            starts.append(cursor)
        cursor = origin + ((cursor + len(text) - origin) // _TAB + 1) * _TAB
    return starts
