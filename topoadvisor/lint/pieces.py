"""A piece of a file, as a reader sees it, and where each letter of it stands in the file."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """A text cut out of a file, without the indentation or the escapes that the file puts around it."""

    body: str
    begins: tuple[int, ...] = (0,)
    """Offsets in `body` at which a stretch begins that stands in one piece in the file, in order."""
    offsets: tuple[int, ...] = (0,)
    """Offset in the file of each stretch."""

    def at(self, index: int) -> int:
        """Offset in the file of a letter of the body."""
        place = bisect_right(self.begins, index) - 1
        return self.offsets[place] + index - self.begins[place]

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """Where a part stands in the file; None when it is not in one piece there."""
        first, last = self.at(start), self.at(end - 1) + 1 if end > start else self.at(start)
        return (first, last) if last - first == end - start else None

    def cut(self, start: int, end: int) -> Piece:
        """A part of this piece."""
        inside = [
            (begin, offset) for begin, offset in zip(self.begins, self.offsets, strict=True) if start < begin < end
        ]
        begins = (0, *(begin - start for begin, _ in inside))
        return Piece(self.body[start:end], begins, (self.at(start), *(offset for _, offset in inside)))

    def written(self, body: str) -> Piece:
        """The same place with other letters, as many as before."""
        assert len(body) == len(self.body)
        return Piece(body, self.begins, self.offsets)

    def dedented(self, columns: int) -> Piece:
        """Without so many leading blanks of each line."""
        lines, begins, offsets, there, here = [], [], [], 0, 0
        for line in self.body.splitlines(keepends=True):
            kept = line[min(columns, len(line) - len(line.lstrip(" "))) :]
            begins.append(here)
            offsets.append(self.at(there + len(line) - len(kept)))
            lines.append(kept)
            there += len(line)
            here += len(kept)
        if not lines:
            return self
        return Piece("".join(lines), tuple(begins), tuple(offsets))
