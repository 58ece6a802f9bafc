"""Which cell of a row belongs to which column, when rows are cut, elided, shifted or damaged.

A row fits its header when the counts agree and its own cell is the `X`. Otherwise the X is the anchor: what stands
before it belongs before it. Cells that could belong to more than one column are reported as damaged, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from topoadvisor.ingest.tables import (
    ELLIPSIS,
    UNKNOWN,
    Row,
    Table,
    Token,
    is_affinity,
    is_device,
    is_possible,
    is_relation,
)
from topoadvisor.snapshot import DamagedCell

_SLACK = 3
"""Screen columns by which cells of one column may stand apart."""

_MOST_NAMED = 8
_NEXT_TO = 2
"""Lines from a row to the one that repeats it; further away it may belong to another table."""

_Fit = list[tuple[str | None, Token]]


@dataclass(frozen=True, slots=True)
class FittedRow:
    """One row with every cell in its column; `rest` are the tokens after the device cells."""

    row: Row
    cells: dict[str, str]
    damaged: tuple[DamagedCell, ...]
    last: Token | None
    """The last device cell; None when there is none."""
    rest: tuple[Token, ...]
    found: int
    """Device cells that the row has."""
    own: int | None
    """Place of the row's own column."""
    own_token: Token | None = None
    """What stands in it."""

    @property
    def own_text(self) -> str | None:
        return self.own_token.text.upper() if self.own_token is not None else None


@dataclass(frozen=True, slots=True)
class FittedTable:
    columns: tuple[str | None, ...]
    rows: tuple[FittedRow, ...]
    notes: tuple[str, ...] = ()
    """What stands there twice, and what was read under another name."""


def fit(table: Table) -> FittedTable:
    """Fit every row of a table to the columns that its diagonal bears out."""
    table, renamed = _relabelled(table)
    columns = _columns(table)
    named = _named(table.rows, columns)
    screen = _screen_columns(named, columns)
    mirror = _mirror(named, columns)
    clipped = len({min(len(row.tokens), len(columns)) for row in named}) == 1
    rows = [
        _fit_row(row, columns, screen, mirror.get(row.label, {}), may_end=clipped or row is named[-1]) for row in named
    ]
    if 2 * sum(row.own_text == "X" for row in rows) > len(rows):
        rows = [_with_own_cell(row) for row in rows]
    places = [(row.found, row.own) for row in rows if row.own is not None]
    lower = all(found == own + 1 for found, own in places)
    upper = all(found == len(columns) - own for found, own in places)
    if len(places) > 1 and (lower or upper):
        rows = [_without_missing(row) for row in rows]
    repeated = [_fit_row(row, columns, screen, {}, may_end=False) for row in _named(table.again, columns)]
    return FittedTable(
        columns, tuple(_agreed(row, repeated, columns) for row in rows), (*renamed, *_repetitions(table, columns))
    )


def _relabelled(table: Table) -> tuple[Table, tuple[str, ...]]:
    """Rows and columns under one name, where damage set the label of a row apart from the column with its X; and what
    was read so.
    """
    if table.header is None:
        return table, ()
    names = list(table.header.columns)
    labels = {row.label for row in table.rows}
    rows, notes = [], []
    for row in table.rows:
        place = next((index for index, token in enumerate(row.tokens) if token.text == "X"), len(names))
        name = names[place] if place < len(names) else None
        if name is not None and row.label not in names and name not in labels and _is_damaged(row.label, name):
            if _is_better(row.label, name, place):
                names[place] = row.label
                notes.append(f"{name} in line {table.header.line.number} is read as {row.label}, the row with its X")
            else:
                notes.append(f"{row.label} in line {row.line.number} is read as {name}, the column of its X")
                row = replace(row, label=name)
        rows.append(row)
    return replace(table, rows=rows, header=replace(table.header, columns=tuple(names))), tuple(notes)


def _is_better(label: str, name: str, place: int) -> bool:
    """Whether a row's label, and not the name of its column at `place`, is the one that was not damaged."""
    common = [re.fullmatch(r"(?:GPU|NIC|NVMe)[0-9]+|mlx[0-9]+_\w+", text) is not None for text in (label, name)]
    return common[0] > common[1] or (common[0] == common[1] and label == f"GPU{place}")


def _is_damaged(text: str, name: str) -> bool:
    """One letter more, less or other, or the end of the name alone."""
    if len(text) > 1 and name.endswith(text):
        return True
    differs = (place for place, (one, other) in enumerate(zip(text, name, strict=False)) if one != other)
    same = next(differs, min(len(text), len(name)))
    return any(text[same + more :] == name[same + less :] for more, less in ((1, 1), (1, 0), (0, 1)))


def _agreed(row: FittedRow, repeated: Sequence[FittedRow], columns: tuple[str | None, ...]) -> FittedRow:
    """The row without the cells about which the same row, coming again, says something else: neither is preferred."""
    for again in repeated:
        apart = again.row.line.position - row.row.line.position
        if again.row.label != row.row.label or again.found != len(columns) or again.damaged or apart > _NEXT_TO:
            continue
        tokens = dict(zip(columns, again.row.tokens, strict=False))
        other = {name for name, text in again.cells.items() if row.cells.get(name, text) != text}
        cells = {name: text for name, text in row.cells.items() if name not in other}
        damaged = [_damage(again.row, name, tokens[name].text, tokens[name]) for name in again.cells if name in other]
        row = replace(row, cells=cells, damaged=(*row.damaged, *damaged))
    return row


def _repetitions(table: Table, columns: tuple[str | None, ...]) -> tuple[str, ...]:
    """What stands more than once, and counts once."""
    notes = []
    if twice := [name for name in dict.fromkeys(columns) if name is not None and columns.count(name) > 1]:
        line = table.first.number
        notes.append(f"{', '.join(twice[:_MOST_NAMED])} stands more than once in the header in line {line}")
    if table.again:
        names = [f"{row.label} in line {row.line.number}" for row in table.again]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        notes.append(f"rows come again: {', '.join(names[:_MOST_NAMED])}{more}")
    return tuple(notes)


def _named(rows: Sequence[Row], columns: tuple[str | None, ...]) -> list[Row]:
    """The rows that have a name. Where a label is damaged, the place of the X says whose row it is."""
    labels = {row.label for row in rows if is_device(row.label)}
    named: list[Row] = []
    for row in rows:
        place = next((index for index, token in enumerate(row.tokens) if token.text == "X"), len(columns))
        owner = columns[place] if place < len(columns) else None
        if row.label in columns or (is_device(row.label) and owner is None):
            named.append(row)
        elif owner is not None and owner not in labels:
            labels.add(owner)
            named.append(replace(row, label=owner))
    return named


def _screen_columns(rows: Sequence[Row], columns: tuple[str | None, ...]) -> list[int] | None:
    """Where on the screen each column's cells begin, by the complete rows; None when they do not agree."""
    seen: list[set[int]] = [set() for _ in columns]
    for row in rows:
        if row.label.startswith("GPU") and not row.grid and _fits_as_it_is(row.tokens, columns, _place(row, columns)):
            for places, token in zip(seen, row.tokens, strict=False):
                if token.text != "X":
                    places.add(token.line.display(token.start))
    if not all(places and max(places) - min(places) <= _SLACK for places in seen):
        return None
    return [min(places) for places in seen]


def _mirror(rows: Sequence[Row], columns: tuple[str | None, ...]) -> dict[str, dict[str, str]]:
    """Device → what the complete rows of others say about it, by the other's name."""
    seen: dict[str, dict[str, str]] = {}
    for row in rows:
        if _fits_as_it_is(row.tokens, columns, _place(row, columns)):
            for name, token in zip(columns, row.tokens, strict=False):
                if name is not None and is_possible(token.text):
                    seen.setdefault(name, {})[row.label] = token.text.upper()
    return seen


def _with_own_cell(row: FittedRow) -> FittedRow:
    """In a table whose diagonal is X, another word there is damage."""
    token = row.own_token
    if token is None or row.own_text in ("X", "", UNKNOWN) or token.text in ELLIPSIS:
        return row
    own = _damage(row.row, row.row.label, token.text, token)
    return replace(row, damaged=tuple(sorted((*row.damaged, own), key=lambda cell: (cell.line, cell.text_column))))


def _place(row: Row, columns: tuple[str | None, ...]) -> int | None:
    return columns.index(row.label) if row.label in columns else None


def _columns(table: Table) -> tuple[str | None, ...]:
    if table.header is None:
        return _columns_of_rows(table.rows)
    named = _completed(table.header.columns, table.rows)
    whole = [row for row in table.rows if not any(token.text in ELLIPSIS for token in row.tokens)]
    if not whole:
        return named
    # One shifted row does not speak against a header; rows that it does not name do, and so do most rows.
    believed = _on_diagonal(whole, named)
    if all(row.label in named for row in whole) and 2 * believed > len(whole):
        nameless = min(_relations_end(row.tokens) for row in whole) - len(named)
        return (*named, *[None] * nameless) if believed == len(whole) else named
    from_rows = _columns_of_rows(whole)
    return from_rows if _on_diagonal(whole, from_rows) > believed else named


def _completed(columns: tuple[str | None, ...], rows: Sequence[Row]) -> tuple[str | None, ...]:
    """A column whose name is damaged or elided is that of the row which has its X there."""
    if None not in columns:
        return columns
    complete = list(columns)
    for row in rows:
        place = next((index for index, token in enumerate(row.tokens) if token.text == "X"), len(columns))
        fits = place < len(columns) and complete[place] is None and row.label not in complete
        if fits and is_device(row.label) and not any(token.text in ELLIPSIS for token in row.tokens):
            complete[place] = row.label
    return tuple(complete)


def _on_diagonal(rows: Sequence[Row], columns: tuple[str | None, ...]) -> int:
    place = {name: index for index, name in enumerate(columns)}
    return sum(
        row.label in place and len(row.tokens) > place[row.label] and row.tokens[place[row.label]].text == "X"
        for row in rows
    )


def _columns_of_rows(rows: Sequence[Row]) -> tuple[str | None, ...]:
    """Columns by where each row has its X; GPUs between them are numbered through when all others are."""
    places = [next((index for index, token in enumerate(row.tokens) if token.text == "X"), None) for row in rows]
    width = max(max(_relations_end(row.tokens), (place or 0) + 1) for row, place in zip(rows, places, strict=True))
    columns: list[str | None] = [None] * width
    for row, place in zip(rows, places, strict=True):
        if place is not None and columns[place] is None and is_device(row.label):
            columns[place] = row.label
    numbers = {index: name for index, name in enumerate(columns) if name and name.startswith("GPU")}
    if all(name == f"GPU{index}" for index, name in numbers.items()):
        for index in range(max(numbers, default=0)):
            columns[index] = columns[index] or f"GPU{index}"
    return tuple(columns)


def _relations_end(tokens: Sequence[Token]) -> int:
    return next((index for index, token in enumerate(tokens) if not is_relation(token.text)), len(tokens))


def _fit_row(
    row: Row,
    columns: tuple[str | None, ...],
    screen: list[int] | None,
    mirror: Mapping[str, str],
    *,
    may_end: bool,
) -> FittedRow:
    """Every cell to its column. `mirror` is what other rows say of this device; the row `may_end` before its last cell
    when it is the last one of a text that was cut, or when all rows are as short.
    """
    own = _place(row, columns)
    # Words between the label and the cells, such as the GPU's name that somebody added.
    added = next((index for index, token in enumerate(row.tokens) if is_relation(token.text)), 0)
    if added and own is not None and _fits_as_it_is(row.tokens[added:], columns, own):
        row = replace(row, tokens=row.tokens[added:])
    tokens = row.tokens
    if row.grid or _fits_as_it_is(tokens, columns, own):
        count = len(columns)
        return _fitted(row, list(zip(columns, tokens[:count], strict=False)), count, columns, [], own)
    end = _cells_end(tokens, len(columns))
    region = tokens[:end]
    anchor = _anchor(region, own, len(columns))
    cut = may_end and (end == len(tokens) or not row.label.startswith("GPU"))
    if own is None or anchor is None:
        pairs = _fit_side(region, columns, screen, mirror, cut=cut and (own is None or len(region) <= own))
        return _fitted(row, pairs or [], end, columns, [] if pairs else [(columns, region)], own)
    if screen is not None:
        shift = region[anchor].line.display(region[anchor].start) - screen[own]
        screen = [start + (shift if abs(shift) > _SLACK else 0) for start in screen]
    left = _fit_side(region[:anchor], columns[:own], screen and screen[:own], mirror) if anchor else []
    right = _fit_side(region[anchor + 1 :], columns[own + 1 :], screen and screen[own + 1 :], mirror, cut=cut)
    lost = []
    if left is None:
        lost.append((columns[:own], region[:anchor]))
    if right is None:
        lost.append((columns[own + 1 :], region[anchor + 1 :]))
    return _fitted(row, [*(left or []), (row.label, region[anchor]), *(right or [])], end, columns, lost, own)


def _fits_as_it_is(tokens: tuple[Token, ...], columns: tuple[str | None, ...], own: int | None) -> bool:
    count = len(columns)
    cells = tokens[:count]
    if len(cells) < count or any(is_affinity(cell.text) and cell.text != "N/A" for cell in cells):
        return False
    if any(cell.text in ELLIPSIS and name is not None for cell, name in zip(cells, columns, strict=True)):
        return False
    if len(tokens) > count and is_relation(tokens[count].text):
        return False
    if own is None:
        return all(is_relation(cell.text) for cell in cells)
    return cells[own].text == "X" or not any(cell.text == "X" for cell in cells)


def _cells_end(tokens: tuple[Token, ...], count: int) -> int:
    """Where the device cells end: before the first affinity that no relation follows, or after the last relation."""
    last = 0
    for index, token in enumerate(tokens):
        if is_relation(token.text) or token.text in ELLIPSIS or token.text == UNKNOWN:
            last = index + 1
        elif is_affinity(token.text) and not any(is_relation(after.text) for after in tokens[index + 1 : index + 2]):
            return index
    while last < min(count, len(tokens)):
        last += 1
    return last


def _anchor(region: tuple[Token, ...], own: int | None, count: int) -> int | None:
    """Index of the token that is the row's own X."""
    candidates = [index for index, token in enumerate(region) if token.text == "X"]
    if own is None or not candidates:
        return None
    if own in candidates:
        return own
    return next((index for index in candidates if len(region) - index == count - own), candidates[0])


def _fit_side(
    tokens: tuple[Token, ...],
    columns: tuple[str | None, ...],
    screen: list[int] | None,
    mirror: Mapping[str, str],
    *,
    cut: bool = False,
) -> _Fit | None:
    """Tokens to columns on one side of the X, or None when more than one way is possible.

    With `cut` the line may have ended early, so that the tokens are the first of the columns, if `mirror` agrees.
    """
    elided = [index for index, token in enumerate(tokens) if token.text in ELLIPSIS]
    if elided and len(tokens) != len(columns):
        head, tail = tokens[: elided[0]], tokens[elided[-1] + 1 :]
        if len(head) + len(tail) > len(columns):
            return None
        return [*zip(columns, head, strict=False), *zip(columns[len(columns) - len(tail) :], tail, strict=True)]
    if len(tokens) == len(columns):
        return list(zip(columns, tokens, strict=True))
    if not tokens:
        return []
    if len(tokens) > len(columns):
        return _around_damage(tokens, columns)
    aligned = _aligned(tokens, columns, screen) if screen else None
    if aligned and (not cut or aligned[0][0] == columns[0]) and _agrees(aligned, mirror):
        return aligned
    first: _Fit = list(zip(columns, tokens, strict=False))
    if cut and _agrees(first[:-1], mirror):
        # The last cell itself may be cut: `NV1` of `NV18`.
        return first
    return _mirrored(tokens, columns, mirror)


def _agrees(fit: _Fit, mirror: Mapping[str, str]) -> bool:
    """No relation speaks against what other rows say."""
    texts = ((name, token.text.upper()) for name, token in fit)
    return all(not is_relation(text) or mirror.get(name or "", text) == text for name, text in texts)


def _mirrored(tokens: tuple[Token, ...], columns: tuple[str | None, ...], mirror: Mapping[str, str]) -> _Fit | None:
    """Tokens to the columns whose own rows say the same of this device, when there is one way to do so."""
    if any(name is None or name not in mirror for name in columns):
        return None
    fit: _Fit = []
    for way in (1, -1):
        # The leftmost and the rightmost way are one way when there is only one.
        names = list(columns)[::way]
        found: _Fit = []
        for token in tokens[::way]:
            while names and mirror[names[0] or ""] != token.text.upper():
                names.pop(0)
            if not names:
                return None
            found.append((names.pop(0), token))
        if way == 1:
            fit = found
        elif [name for name, _ in found[::-1]] != [name for name, _ in fit]:
            return None
    return fit


def _around_damage(tokens: tuple[Token, ...], columns: tuple[str | None, ...]) -> _Fit | None:
    """Too many tokens, because a cell was broken apart (`NV 12`): what stands before and behind it keeps its place."""
    broken = [index for index, token in enumerate(tokens) if not is_relation(token.text)]
    if not broken:
        return None
    head, middle, tail = tokens[: broken[0]], tokens[broken[0] : broken[-1] + 1], tokens[broken[-1] + 1 :]
    if len(head) + len(tail) >= len(columns):
        return None
    pieces = Token(" ".join(token.text for token in middle), middle[0].start, middle[0].line)
    behind = columns[len(columns) - len(tail) :]
    return [*zip(columns, [*head, pieces], strict=False), *zip(behind, tail, strict=True)]


def _aligned(tokens: tuple[Token, ...], columns: tuple[str | None, ...], screen: list[int]) -> _Fit | None:
    """Tokens below the cells of the complete rows, when every one stands clearly below another column."""
    if len(columns) < 2:
        return None
    tolerance = min(b - a for a, b in pairwise(screen)) // 2 - 1
    places: list[int] = []
    for token in tokens:
        at = token.line.display(token.start)
        place = min(range(len(screen)), key=lambda index: abs(screen[index] - at))
        if abs(screen[place] - at) > tolerance or (places and place <= places[-1]):
            return None
        places.append(place)
    return [(columns[place], token) for place, token in zip(places, tokens, strict=True)]


def _fitted(
    row: Row,
    pairs: _Fit,
    end: int,
    columns: tuple[str | None, ...],
    lost: list[tuple[tuple[str | None, ...], tuple[Token, ...]]],
    own: int | None,
) -> FittedRow:
    cells: dict[str, str] = {}
    damaged = [
        _damage(row, names[0] or "" if names else "", " ".join(token.text for token in tokens), tokens[0])
        for names, tokens in lost
        if tokens
    ]
    for name, token in pairs:
        text = token.text.upper()
        if name is None or name == row.label or text in ELLIPSIS or text in ("", UNKNOWN):
            continue
        if is_possible(text) and text != "X":
            cells[name] = text
        else:
            damaged.append(_damage(row, name, token.text, token))
    region = row.tokens[:end]
    elided = any(token.text in ELLIPSIS for token in region)
    read = {name for name, token in pairs if token.text or row.grid}
    missing = next((place for place, name in enumerate(columns) if name and name not in read), None)
    if missing is not None and region and not lost and not elided:
        before = [token for name, token in pairs if name in columns[:missing]]
        damaged.append(_damage(row, columns[missing] or "", "", before[-1] if before else None))
    return FittedRow(
        row=row,
        cells=cells,
        damaged=tuple(sorted(damaged, key=lambda cell: (cell.line, cell.text_column))),
        last=region[-1] if region else None,
        rest=row.tokens[end:],
        found=len(region),
        own=own,
        own_token=next((token for name, token in pairs if name == row.label), None),
    )


def _damage(row: Row, column: str, text: str, token: Token | None) -> DamagedCell:
    """A cell with what stands there; a missing one, without text, is where it would begin: behind `token`."""
    if token is None:
        line, place = row.line, row.label_start + len(row.label)
    else:
        line, place = token.line, token.start + (0 if text else len(token.text))
    return DamagedCell(row=row.label, column=column, text=text, line=line.number, text_column=line.column(place))


def _without_missing(row: FittedRow) -> FittedRow:
    """A triangle leaves out what its other half would say again; that is no damage."""
    return replace(row, damaged=tuple(cell for cell in row.damaged if cell.text))
