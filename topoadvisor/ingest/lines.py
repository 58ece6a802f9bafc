"""Pasted text as lines without terminal codes, each remembering where its characters stood in the file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

MAX_LINE = 1 << 15
"""Longer lines are no table rows; those of 256 devices fit in a tenth of this."""
MAX_LITERAL = 2000
"""A string literal with more line ends in it is no table either."""

_TERMINAL = r"""
    \x1b\[[0-?]*[ -/]*[@-~]                            # colour, underline, cursor
  | \x1b[()][0-9A-Za-z]                                # character set, as tput prints it
  | \x1b\][^\x07\x1b]*(?:\x07|\x1b\\)                  # window title, hyperlink
  | (?:\^\[|\\x1b|\\e|\\033|\\u001b|[\u241b\u2190?])\[[0-9;]*m   # the same after a trip through cat -v, JSON or C
  | \[[0-9]{0,3}(?:;[0-9]{1,3})*[mK]                         # the same when only the ESC was lost
  | \^M(?=\$?$)                                        # a line end of Windows, as cat -v shows it
  | [\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u2060\ufeff]
"""
_TAGS = r"t[drh]|table|thead|tbody|pre|code|samp|kbd|tt|br|p|div|span|font|b|i|u|em|strong"
_SUSPECT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\\^\[&<>?\u2190\u241b\xa0\u2000-\u2015\u202f\u2060\u2212\u3000\ufeff]")
_NOISE = re.compile(
    rf"""
    ^(?:(?:>|&gt;)[ ]?)+                                 # a quotation in mail or Markdown
  | (?P<space>&nbsp;|&\#(?:160|xa0);|[\xa0\u2000-\u200a\u202f\u3000])
  | (?P<tab>\\t|\^I|&\#x?0?9;|&tab;)
  | (?P<dash>[\u2010-\u2015\u2212])
  | (?P<bar><t[dh](?:\s[^<>]{{0,200}})?>|</tr>)
  | </?(?:{_TAGS})(?:\s[^<>]{{0,200}})?/?>
  | {_TERMINAL}
  | \\(?=[_*])                                           # Markdown's escapes""",
    re.X | re.I,
)
_LATEX_CELL = re.compile(r"(?<!\\)&(?!\#?[0-9A-Za-z]{1,8};)")
"""Where a cell of LaTeX ends; no entity of HTML."""
_LATEX_LABEL = re.compile(r"\s{0,40}(?:GPU|NIC|mlx)[0-9][\w\\]{0,20}\s{0,20}&")
_LATEX = re.compile(
    r"""
    (?P<bar>(?<!\\)& | \\\\(?:\[[^][]{0,20}\])?)                   # the end of a cell, or of a row
  | (?P<space>~)
  | (?P<dash>---?)
  | \\[a-z]{0,8}(?:rule|line)(?:\{[^{}]{0,20}\}|\([a-z]{0,2}\))*   # the rule below a row
  | \\multicolumn\{[^{}]{0,20}\}\{[^{}]{0,20}\}\{
  | \\[A-Za-z]{1,20}(?:\{|\s{0,8}) | [{}]
  | \\(?=[_&%#])""",
    re.X,
)
_INSTEAD = {"space": " ", "tab": "\t", "dash": "-", "bar": "|"}
_DEVICE = re.compile(r"(?:GPU|NIC|NVMe)[0-9]|mlx[0-9]_")
_HEADER_START = re.compile(r"(?<!\w)GPU0\s(?!\s*X\s)")
_NEXT_LITERAL = re.compile(r"(?<=['\"]), ?(?=['\"])")
"""Between two lines of a list of strings."""
_FIRST_ROW = re.compile(r"(?<!\w)GPU0\s{1,8}X\s")
_ROW_START = re.compile(
    r"(?<!\w)(?:(?:GPU|NIC)[0-9]{1,3}|mlx[0-9]+_\w{1,20})\s{1,8}(?=(?:X|NV[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC)\s)"
    r"|(?:NIC )?Legend:"
)


class Line(NamedTuple):
    """One line of a text, without terminal codes."""

    position: int
    """Place among the lines read, from 0; the order to compare by."""
    number: int
    """Line in the file, from 1; the parts of one string literal share it."""
    text: str
    shifts: tuple[tuple[int, int], ...] = ()
    """(position in `text`, characters removed up to there), ascending."""

    def column(self, offset: int) -> int:
        """Column in the file, from 1, of the character at `offset` of `text`."""
        place = bisect_right(self.shifts, offset, key=lambda shift: shift[0]) - 1
        return offset + (self.shifts[place][1] if place >= 0 else 0) + 1

    def display(self, offset: int) -> int:
        """Column on a screen with tab stops every 8, from 0, of the character at `offset` of `text`."""
        return len(self.text[:offset].expandtabs(8))


def read_lines(text: str) -> Iterator[Line]:
    """The lines of a text.

    Understands LF, CRLF and CR line ends, string literals in which a whole table stands on one line with `\\n` and
    `\\t` written out, and tables that lost their line ends. A line longer than `MAX_LINE` comes back empty.
    """
    text = text.replace("\r\n", "\n")
    if "\n" not in text:
        text = text.replace("\r", "\n")
    clean = not _SUSPECT.search(text)
    position = 0
    for number, raw in enumerate(text.split("\n"), start=1):
        if len(raw) > MAX_LINE:
            parts = [(0, "")]
        elif clean and not (raw.count("GPU0") > 1 and _is_folded(raw)):
            yield Line(position, number, raw)
            position += 1
            continue
        else:
            parts = _parts(raw)
        for offset, part in parts:
            yield cleaned(position, number, part, offset)
            position += 1


def _is_folded(raw: str) -> bool:
    """A header and its first row stand on one line: the line ends of a whole table became spaces."""
    header = _HEADER_START.search(raw)
    return header is not None and _FIRST_ROW.search(raw, header.end()) is not None


def _parts(raw: str) -> list[tuple[int, str]]:
    """The lines that one line of the file holds, each with its offset."""
    written = raw.count("\\n")
    if "GPU0" not in raw and not (written and _DEVICE.search(raw)):
        return [(0, raw)]
    if 0 < written <= MAX_LITERAL:
        starts = [0, *(match.end() for match in re.finditer(r"\\n", raw))]
        ends = [start - 2 for start in starts[1:]]
    elif len(starts := [0, *(match.end() for match in islice(_NEXT_LITERAL.finditer(raw), MAX_LITERAL))]) > 2:
        ends = starts[1:]
    elif _is_folded(raw):
        starts = [0, *(match.start() for match in islice(_ROW_START.finditer(raw), MAX_LITERAL))]
        ends = starts[1:]
    else:
        return [(0, raw)]
    return [(start, raw[start:end]) for start, end in zip(starts, [*ends, len(raw)], strict=True)]


def cleaned(position: int, number: int, raw: str, offset: int = 0) -> Line:
    """One line without terminal codes; `offset` is where it begins in its line of the file."""
    if offset == 0 and not _SUSPECT.search(raw):
        return Line(position, number, raw)
    if "^I" in raw:
        # `cat -A` shows tabs so, and a `$` where a line ends.
        raw = raw.rstrip().removesuffix("$")
    pieces: list[str] = []
    shifts = [(0, offset)]
    length, last = 0, 0
    for match in (_LATEX if "&" in raw and _is_latex_row(raw) else _NOISE).finditer(raw):
        kept = raw[last : match.start()]
        kept += _INSTEAD.get(match.lastgroup or "", "")
        pieces.append(kept)
        length += len(kept)
        last = match.end()
        shifts.append((length, offset + last - length))
    pieces.append(raw[last:])
    return Line(position, number, "".join(pieces), tuple(shifts))


def without(line: Line, count: int) -> Line:
    """The line without its first `count` characters; columns stay those of the file."""
    if count == 0:
        return line
    removed = line.column(count) - 1
    later = ((place - count, shift + count) for place, shift in line.shifts if place > count)
    return line._replace(text=line.text[count:], shifts=((0, removed), *later))


def _is_latex_row(raw: str) -> bool:
    """Cells end with `&`, and the row with two backslashes or, the last one, without."""
    cells = sum(1 for _ in islice(_LATEX_CELL.finditer(raw), 2))
    return cells > 0 and ("\\\\" in raw[raw.rfind("&") :] or (cells > 1 and _LATEX_LABEL.match(raw) is not None))
