"""Device tables in text, found by their structure.

A table is a header of device names and rows of *label, cells, rest*, where the cell of a device with itself is `X`.
Where it stands, what is around it and in front of its lines, and how its columns are separated does not matter.
What the cells mean is for `topo_matrix` and `nvidia_smi_text`; how a row's cells fit its columns is for `cells`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Literal

from topoadvisor.errors import InputError
from topoadvisor.ingest.lines import Line

MAX_DEVICES = 256
"""More columns than any machine has; a wider table is refused instead of being read for minutes."""
MAX_TABLES = 1000
MAX_CANDIDATES = 50_000
"""Lines that could belong to a table; a text with more is no paste, and reading it would take too long."""

Affinity = Literal["cpu", "numa", "gpu-numa"]
AFFINITIES: Final[tuple[Affinity, ...]] = ("cpu", "numa", "gpu-numa")
"""The columns after the devices, in the order of `nvidia-smi`."""

MAX_NVLINKS = 36
"""Links that NVML can tell of one GPU: NVML_NVLINK_MAX_LINKS of the nvml.h of CUDA 13."""

ELLIPSIS = ("...", "..", "…", "[...]", "[…]")
UNKNOWN = "?"
"""A cell that says of itself that it is not known (what `matrix` prints); not damage."""

_WORD = r"X|NV[0-9]{1,3}|C2C|PIX|PXB|PSB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|U"
_RELATION = re.compile(_WORD)
_GLUED_CELLS = re.compile(rf"((?:{_WORD})+)([0-9]+[,\-][0-9,\-]*(?:N/A)*|N/A)?")
_DEVICE = r"(?:GPU|NIC|NVMe)[0-9]{1,4}"
_LABEL = re.compile(rf"(?:^|[^A-Za-z0-9_.])({_DEVICE}|mlx[0-9]+_\w+):?$")
_FIRST = re.compile(r"(?<![A-Za-z0-9_])(?:GPU|NVMe)[0-9]{1,4}")
_GLUED_LABEL = re.compile(rf"({_DEVICE}|mlx[0-9]+_[0-9])((?:{_WORD})+)([0-9N][0-9,\-/NA]*)?$")
_WORDS = re.compile(r"\S+")
_IDENTIFIER = re.compile(r"[A-Za-z][\w.\-]*[0-9]\w*")
_PROBE = re.compile(rf"{_DEVICE}|\b(?:{_WORD})\b|Affinity")
_LIST = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
_AFFINITY_CELL = re.compile(r"N/A|[0-9][0-9,\-]*")
_HEADER = re.compile(
    rf"""(?P<cpu>CPU\s*Affinity | CPU\s*Aff\w*\.?(?!\w) | CPU(?![\w/]))
      | (?P<gpunuma>GPU\s*NUMA\s*ID | GPU\s*NUMA(?!\w))
      | (?P<numa>NUMA\s*Affinity | NUMA\s*(?:Aff\w*\.?|Node)(?!\w) | NUMA(?!\w))
      | (?P<device>{_DEVICE})
      | (?P<elided>\[?(?:\.{{2,3}}|…)\]?)
      | (?P<word>[^\s|]+?(?=$|[\s|]|{_DEVICE}|mlx[0-9]|CPU\s*Aff|NUMA\s*Aff|GPU\s*NUMA))""",
    re.X,
)
_KINDS: Final[dict[str, Affinity]] = {"cpu": "cpu", "numa": "numa", "gpunuma": "gpu-numa"}
_PREFIX_TOKENS = 12
"""A row's label is looked for among this many words: log and quotation marks in front of it are few."""
_BARS = "|│┃"
_DOUBLED = re.compile(r"\s*\|?(?!\|)[^|]*(?:\|\|[^|]*){2,}")
"""A row of a wiki, whose cells have two bars between them: none of them is empty."""
_MAX_BARS = 4 * MAX_DEVICES
"""In one line of a drawn table, with those of its frame and of a second table beside it."""
_MAX_AGAIN = 16
"""Rows of one table that come again and are looked at."""
_HEADER_DISTANCE = 8
"""Lines between a header and its first row."""
_ROW_DISTANCE = 20
"""Lines between two rows of one table."""


@dataclass(frozen=True, slots=True)
class Token:
    """One cell, at `start` of its line's text."""

    text: str
    start: int
    line: Line


@dataclass(frozen=True, slots=True)
class Header:
    """Device columns (None = elided) and affinity columns, with the screen columns where they begin."""

    columns: tuple[str | None, ...]
    starts: tuple[int, ...]
    affinities: tuple[tuple[Affinity, int], ...]
    line: Line
    last_position: int
    """Where it ends; it may be wrapped."""
    text: str
    """All of it on one line."""
    leading: tuple[int, ...] = ()
    """Of the last affinity columns, which stand in front of the labels: how many fields in front of them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: everything after its label. In a `grid` (drawn with `|`) empty cells are tokens too."""

    label: str
    label_start: int
    tokens: tuple[Token, ...]
    grid: bool

    @property
    def line(self) -> Line:
        return self.tokens[0].line


@dataclass(slots=True)
class Table:
    """A header, if there is one, and the rows below it."""

    header: Header | None
    rows: list[Row] = field(default_factory=list)
    context: str = ""
    """The last words before the table, such as the command that printed it."""
    again: list[Row] = field(default_factory=list)
    """Rows of a device that has one already."""

    @property
    def first(self) -> Line:
        return self.header.line if self.header else self.rows[0].line

    @property
    def last(self) -> Line:
        return self.rows[-1].tokens[-1].line


def is_relation(text: str) -> bool:
    return _RELATION.fullmatch(text) is not None


def is_possible(text: str) -> bool:
    """A relation that can be: `NV0` is none, for a pair without NVLinks shows its PCIe class, nor is `NV999`."""
    count = text.removeprefix("NV")
    return is_relation(text) and (count == text or (count[0] != "0" and int(count) <= MAX_NVLINKS))


def is_device(name: str) -> bool:
    """Could name a device: `GPU0`, `NIC10`, `NVMe0`, or an RDMA device such as `mlx5_0`; not a damaged one of those."""
    if re.search(r"GPU|NIC[0-9]|NVMe|mlx[0-9]", name):
        return re.fullmatch(rf"{_DEVICE}|mlx[0-9]+_\w+", name) is not None
    return _IDENTIFIER.fullmatch(name) is not None and not is_relation(name)


def is_affinity(text: str) -> bool:
    """Looks like a cell of an affinity column: a list of CPUs or nodes, or `N/A`."""
    return _AFFINITY_CELL.fullmatch(text) is not None


def is_header(line: Line) -> bool:
    """The line names devices as the header of a table does."""
    return _PROBE.search(line.text) is not None and _header(line) is not None


def find(lines: Iterable[Line], *, file: str) -> list[Table]:
    """All tables of a text in order, link and peer-to-peer tables alike, at most `MAX_TABLES`.

    Raises InputError for a table with more columns than `MAX_DEVICES`.
    """
    finder = _Finder(file)
    for line in lines:
        finder.feed(line)
        if len(finder.tables) > MAX_TABLES:
            break
    return [table for table in finder.tables[:MAX_TABLES] if _has_diagonal(table)]


class _Finder:
    """Feeds on lines: remembers the last header seen and the table that is growing."""

    def __init__(self, file: str) -> None:
        self.tables: list[Table] = []
        self._file = file
        self._header: Header | None = None
        self._growing: Table | None = None
        self._left: Table | None = None
        """One that ended without its legend, and may go on behind something else."""
        self._labels: set[str] = set()
        self._last_row = 0
        self._context: deque[str] = deque(maxlen=3)
        self._candidates = 0

    def feed(self, line: Line) -> None:
        if self._growing and line.position - self._last_row > _ROW_DISTANCE:
            self._growing, self._left = None, self._growing
        if self._header and line.position - self._header.last_position > _HEADER_DISTANCE:
            self._header = None
        text = line.text
        if not text or text.isspace():
            return
        if self._growing is None and self._header is None and self._left and _PROBE.search(text):
            row = _row(line, self._left.header.columns if self._left.header else (), growing=False)
            if row is not None and row.label not in self._labels and _goes_on(self._left, row):
                self._growing = self._left
        idle = self._growing is None and self._header is None
        if not (idle and "GPU" not in text and "NVMe" not in text) and self._consume(line):
            return
        self._context.append(text)

    def _consume(self, line: Line) -> bool:
        if _PROBE.search(line.text):
            self._count(line)
            row = self._row(line)
            if row is not None:
                self._take(row)
                return True
            if self._take_header(line):
                return True
        elif self._header and line.position == self._header.last_position + 1 and self._take_header(line):
            return True
        if self._take_wrapped(line):
            return True
        if "Legend" in line.text:
            self._growing = self._left = self._header = None
        return False

    def _count(self, line: Line) -> None:
        self._candidates += 1
        if self._candidates > MAX_CANDIDATES:
            raise InputError(
                f"more than {MAX_CANDIDATES} lines up to here look like parts of tables",
                file=self._file,
                line=line.number,
                hint="Cut the part with `nvidia-smi topo -m` out of the file.",
            )

    def _row(self, line: Line) -> Row | None:
        header = self._header or (self._growing.header if self._growing else None)
        row = _row(line, header.columns if header else (), growing=self._growing is not None)
        return _with_leading(row, header) if row is not None and header is not None and header.leading else row

    def _take(self, row: Row) -> None:
        _refuse_if_wide(sum(is_relation(token.text) for token in row.tokens), row.line, self._file)
        again = row.label in self._labels
        if again and self._growing and not self._header:
            repeated = row.label == self._growing.rows[-1].label and row.line.position == self._last_row + 1
            repeated = repeated and len(self._growing.again) < _MAX_AGAIN
            if repeated or row.label != self._growing.rows[0].label:
                self._last_row = row.line.position if repeated else self._last_row
                if len(self._growing.again) < _MAX_AGAIN:
                    self._growing.again.append(row)
                return
        if self._growing is None or self._header or again:
            self._growing = Table(self._header, context="\n".join(words[-200:] for words in self._context))
            self._header, self._labels = None, set()
            self._context.clear()
            self.tables.append(self._growing)
        self._growing.rows.append(row)
        self._labels.add(row.label)
        self._last_row = row.line.position

    def _take_header(self, line: Line) -> bool:
        header = _header(line)
        before = self._header
        if before and line.position == before.last_position + 1 and (header is None or _continues(before, header)):
            header = _joined(before, line) or header
        if header is None:
            return False
        _refuse_if_wide(len(header.columns), line, self._file)
        self._header = header
        return True

    def _take_wrapped(self, line: Line) -> bool:
        """The rest of a row that was broken off: only cells, and the row above lacks some."""
        if not self._growing or self._growing.header is None or line.position != self._last_row + 1:
            return False
        header, row = self._growing.header, self._growing.rows[-1]
        if row.grid:
            return self._take_wrapped_fields(self._growing, line)
        affinities = len(header.affinities) if row.label.startswith("GPU") else 0
        missing = len(header.columns) + affinities - len(row.tokens)
        tokens = _tokens(line)
        if not tokens or _is_line_number(tokens[0], row):
            return False
        cells = (*row.tokens, *tokens)
        whole = _pieced(row.tokens[-1], tokens[0]) if len(tokens) == missing + 1 else None
        if whole is not None:
            # Broken in the middle of a cell, as a narrow terminal does.
            cells = (*row.tokens[:-1], Token(whole, row.tokens[-1].start, row.tokens[-1].line), *tokens[1:])
        elif not 0 < len(tokens) <= missing:
            return False
        if not all(_is_cell(token.text) for token in cells[len(row.tokens) :]):
            return False
        self._growing.rows[-1] = Row(row.label, row.label_start, cells, grid=False)
        self._last_row = line.position
        return True

    def _take_wrapped_fields(self, growing: Table, line: Line) -> bool:
        """The second line of a drawn row whose cells were broken in their columns."""
        row = growing.rows[-1]
        labels = sum(field.start <= row.label_start for field in _fields(row.line))
        fields = _fields(line) if _is_grid(line) else ()
        rest = [field.text for field in fields[labels:]]
        if not any(rest) or any(field.text for field in fields[:labels]) or len(rest) > len(row.tokens):
            return False
        if not all(_is_cell(more.strip(",-")) for more in rest if more):
            return False
        # Whether what makes no cell together was one or two is not known: with a space it shows as damaged.
        cells = [
            replace(cell, text=_rejoined(cell.text, more) if more else cell.text)
            for cell, more in zip(row.tokens, rest, strict=False)
        ]
        growing.rows[-1] = replace(row, tokens=(*cells, *row.tokens[len(rest) :]))
        self._last_row = line.position
        return True


def _goes_on(table: Table, row: Row) -> bool:
    """The row is that of a column which has none yet, with its X there."""
    columns = table.header.columns if table.header else ()
    return row.label in columns and len(row.tokens) >= len(columns) and row.tokens[columns.index(row.label)].text == "X"


def _is_cell(text: str) -> bool:
    return is_relation(text) or is_affinity(text)


def _pieced(end: Token, start: Token) -> str | None:
    """The cell that two lines hold the halves of; None when they are two."""
    above, below = end.line.text, start.line.text
    if above[-1:].isspace() or below[:1].isspace():
        return None
    whole = f"{end.text}{',' if above.endswith(',') or below.startswith(',') else ''}{start.text}"
    return whole if _is_whole(whole) else None


def _rejoined(text: str, more: str) -> str:
    return text + more if _is_whole(text + more) else f"{text} {more}"


def _is_whole(text: str) -> bool:
    """A cell, and when it is a list of CPUs or nodes one that counts upwards."""
    if text[0].isdecimal() and not _LIST.fullmatch(text):
        return False
    runs = [[int(number) for number in run.split("-")] for run in re.findall(r"[0-9]+-[0-9]+", text)]
    return _is_cell(text) and all(first <= last for first, last in runs)


def _is_line_number(token: Token, above: Row) -> bool:
    """An empty line behind the table, with the number that an editor puts in front of every line."""
    before = re.search(r"([0-9]{1,6})\W*$", above.line.text[: above.label_start])
    return before is not None and token.text.isdecimal() and int(token.text) == int(before[1]) + 1


def _joined(before: Header, line: Line) -> Header | None:
    """A header and the line that it goes on in, broken at a space or inside a name; None when it does not go on."""
    best: Header | None = None
    for between in (" ", ""):
        text = f"{before.text.rstrip()}{between}{line.text.strip()}"
        joined = _header(Line(before.line.position, before.line.number, text))
        if joined is None or len(joined.columns) != len(set(joined.columns)) or not _is_heading(line.text, between):
            continue
        if best is None or _width(joined) > _width(best):
            best = joined
    if best is None or _width(best) <= _width(before):
        return None
    return Header(best.columns, best.starts, best.affinities, before.line, line.position, best.text)


def _width(header: Header) -> int:
    return len(header.columns) + len(header.affinities)


def _is_heading(text: str, between: str) -> bool:
    """A line of nothing but names of devices and headings of affinities, whose first may be the end of one."""
    words = text.split()[0 if between else 1 :]
    headings = ("CPU", "NUMA", "GPU", "Affinity", "ID", "Node")
    return all(is_device(word) or any(heading.startswith(word) for heading in headings) for word in words)


def _refuse_if_wide(count: int, line: Line, file: str) -> None:
    if count > MAX_DEVICES:
        raise InputError(
            f"a table of {count} columns is wider than any machine",
            file=file,
            line=line.number,
            hint="Paste the output of `nvidia-smi topo -m` from one machine.",
        )


def _has_diagonal(table: Table) -> bool:
    """Some row has its X, or rows below a header are long enough to have had one.

    A second table of one class of devices (NVMe columns only) has none to show.
    """
    if any(token.text == "X" for row in table.rows for token in row.tokens):
        return True
    if table.header is None:
        return False
    columns = table.header.columns
    if all(name is None or name.startswith("NVMe") for name in columns):
        return True
    return len(table.rows) > 1 and all(row.label in columns and len(row.tokens) >= len(columns) for row in table.rows)


def _tokens(line: Line, start: int = 0) -> tuple[Token, ...]:
    tokens = []
    for match in _WORDS.finditer(line.text, start):
        text = match[0].strip("\"'`*,;|│┃“”‘’")
        offset = match.start() + (match[0].find(text) if text else 0)
        text = "X" if text == "x" else text
        glued = None if is_relation(text) else _GLUED_CELLS.fullmatch(text)
        if glued:
            tokens += _unglued(glued[1], glued[2] or "", Token(text, offset, line))
        elif text:
            tokens.append(Token(text, offset, line))
    return tuple(tokens)


def _fields(line: Line) -> tuple[Token, ...]:
    """The cells between the bars of a drawn table, empty ones too."""
    tokens, start = [], 0
    bar = r"(\|\|?)" if _DOUBLED.fullmatch(line.text) else r"([|│┃])"
    pieces = re.split(bar, line.text)
    for part, end in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        text = part.strip().strip("*`").strip()
        at = start + (part.find(text) if text else 0)
        tokens.append(Token("X" if text == "x" else text, at, line))
        start += len(part) + len(end)
    return tuple(tokens if tokens[-1].text else tokens[:-1])


def _is_grid(line: Line) -> bool:
    return sum(map(line.text.count, _BARS)) >= 3


def _row(line: Line, columns: tuple[str | None, ...], *, growing: bool) -> Row | None:
    """The line as a row, or None. With a header's `columns` a label may be any of them."""
    grid = _is_grid(line)
    if grid and sum(map(line.text.count, _BARS)) > _MAX_BARS:
        return None
    tokens = _fields(line) if grid else _tokens(line)
    for index, token in enumerate(tokens[:_PREFIX_TOKENS]):
        rest = tokens[index + 1 :]
        glued = None if grid else _GLUED_LABEL.search(token.text)
        if glued:
            behind = Token("", token.start + glued.start(2), line)
            cells = (*_unglued(glued[2], glued[3] or "", behind), *rest)
            return Row(glued[1], token.start + glued.start(1), cells, grid)
        if not rest:
            return None
        match = _LABEL.search(token.text)
        label = match[1] if match else token.text.rstrip(":")
        known = match is not None or label in columns
        if not known and not growing and not columns:
            continue
        if _plausible(label, rest, columns, known=known):
            return Row(label, token.start + (match.start(1) if match else 0), rest, grid)
    return None


def _with_leading(row: Row, header: Header) -> Row:
    """A drawn row with the affinities in front of its label where they stand in other tables: behind the cells."""
    before = [token for token in _fields(row.line) if token.start < row.label_start]
    leading = [before[-distance] for distance in header.leading if distance <= len(before)]
    width = len(header.columns)
    missing = [Token("", len(row.line.text), row.line)] * (width - len(row.tokens))
    return replace(row, tokens=(*row.tokens[:width], *missing, *leading)) if row.grid else row


def _unglued(relations: str, tail: str, token: Token) -> list[Token]:
    """Cells without a space between them; where a count ends and a list of CPUs begins nobody can say."""
    cells = [Token(part[0], token.start + part.start(), token.line) for part in _RELATION.finditer(relations)]
    if tail and cells[-1].text.startswith("NV"):
        last = cells.pop()
        cells.append(Token(last.text + tail, last.start, token.line))
    elif tail:
        cells.append(Token(tail, token.start + len(relations), token.line))
    return cells


def _plausible(label: str, rest: tuple[Token, ...], columns: tuple[str | None, ...], *, known: bool) -> bool:
    if not known:
        own = [token.text for token in rest[: len(columns) or None]].count("X")
        if own == 1 and len(rest) >= len(columns) > 0:
            return all(is_relation(token.text) for token in rest[: len(columns)])
        return is_device(label) and is_relation(rest[0].text) and any(token.text == "X" for token in rest)
    if is_relation(rest[0].text):
        return True
    if label in columns:
        place = columns.index(label)
        if len(rest) > place and rest[place].text == "X":
            return True
        cells = rest[: len(columns) + 2]
        if any(token.text == "X" for token in cells):
            return 3 * sum(is_relation(token.text) for token in cells) >= len(cells)
    cells = rest[: len(columns) or 8]
    return 2 * sum(is_relation(token.text) for token in cells) >= len(cells)


def _header(line: Line) -> Header | None:
    """The line as a header, or None. Names may be glued together; what stands before the first one is ignored."""
    columns: list[str | None] = []
    starts: list[int] = []
    affinities: list[tuple[Affinity, int]] = []
    first = _FIRST.search(line.text)
    matches = _HEADER.finditer(line.text, first.start() if first else len(line.text))
    for match in islice(matches, 16 * MAX_DEVICES):
        kind, text = match.lastgroup, match[0].strip("*`\"',│┃“”‘’")
        glued = not line.text[match.start() - 1 : match.start()].isspace()
        if kind == "device":
            columns.append(text)
        elif kind in _KINDS:
            name = _KINDS[kind]
            if name not in (known for known, _ in affinities):
                affinities.append((name, line.display(match.start())))
            continue
        elif affinities:
            break
        elif kind == "elided":
            columns.append(None)
        elif _IDENTIFIER.fullmatch(text):
            # A name such as GPUU3 is damaged: its column is there, but whose it is the rows must say.
            columns.append(text if is_device(text) else None)
        elif text and not glued:
            break
        else:
            continue
        starts.append(line.display(match.start()))
    # One name in a sentence is no header; one name alone on its line, or with an affinity column, is.
    alone = first is not None and not any(sign.isalnum() for sign in line.text[first.end() :])
    if first is None or not (len(columns) > 1 or affinities or alone):
        return None
    header = Header(tuple(columns), tuple(starts), tuple(affinities), line, line.position, line.text)
    return header if affinities or not _is_grid(line) else _with_headings_in_front(header, first.start())


def _with_headings_in_front(header: Header, first: int) -> Header:
    """The header of a drawn table with the headings of affinities that stand in front of the column of labels."""
    fields = [token for token in _fields(header.line) if token.start < first]
    found = [
        (token, match) for token in fields if (match := _HEADER.fullmatch(token.text)) and match.lastgroup in _KINDS
    ]
    affinities = tuple((_KINDS[match.lastgroup or ""], header.line.display(token.start)) for token, match in found)
    # The last field is that of the labels, which has no heading.
    leading = tuple(len(fields) - 1 - fields.index(token) for token, _ in found)
    return replace(header, affinities=affinities, leading=leading) if all(leading) else header


def _continues(before: Header, header: Header) -> bool:
    """A second line of names that are all new and do not start over is the rest of the header above."""
    return not set(before.columns) & set(header.columns) and header.columns[0] != "GPU0"
