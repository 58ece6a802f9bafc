"""Lines of text for a terminal: wrapped, with headings, coloured or not."""

from __future__ import annotations

import re

from topoadvisor.wrapping import wrap

MARKS = {"error": "✗", "warning": "!", "info": "i"}
COLORS = {"error": "31;1", "warning": "33;1", "info": "36;1"}
_LEAST_ROOM = 12
"""Columns for the text beside what a line starts with."""
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Page:
    """Lines of one width, coloured or not."""

    def __init__(self, width: int, color: bool) -> None:
        self.width = max(width, 40)
        self.color = color
        self.lines: list[str] = []

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and text else text

    def blank(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def heading(self, text: str) -> None:
        self.blank()
        self.paragraph(text, rest="  ", code="1")

    def paragraph(self, text: str, first: str = "", rest: str = "", code: str = "") -> None:
        """Wrap `text`; the first line starts with `first`, the others with `rest`. Prefixes are not coloured.

        A `first` that leaves too little room is wrapped on lines of its own.
        """
        if self.width - len(_ESCAPE.sub("", first)) < _LEAST_ROOM:
            self.lines += wrap(first.rstrip(), self.width, rest=rest)
            first = rest
        wrapped = wrap(text, max(self.width - max(len(_ESCAPE.sub("", first)), len(rest)), _LEAST_ROOM)) or [""]
        for number, line in enumerate(wrapped):
            self.lines.append((rest if number else first) + (self.paint(line, code) if code else line))
