"""A piece of a file, as a reader sees it, and where each letter of it stands in the file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
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

    def without(self, spans: Sequence[tuple[int, int]]) -> Piece:
        """Without some parts, in order; their line ends stay."""
        texts, begins, offsets, here, there = [], [], [], 0, 0
        for start, end in [*spans, (len(self.body), len(self.body))]:
            kept = self.cut(there, start)
            removed = "\n" * self.body.count("\n", start, end)
            begins += [here + begin for begin in kept.begins] if kept.body else []
            offsets += list(kept.offsets) if kept.body else []
            texts += [kept.body, removed]
            here += len(kept.body)
            for _ in removed:
                begins.append(here)
                offsets.append(self.at(start))
                here += 1
            there = end
        return Piece("".join(texts), tuple(begins) or (0,), tuple(offsets) or (self.at(0),))

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


def joined(stretches: Iterable[tuple[str, int]]) -> Piece:
    """One piece out of texts and the offsets in the file at which they stand, in the order in which they are read."""
    texts: list[str] = []
    begins: list[int] = []
    offsets: list[int] = []
    here = 0
    for text, offset in stretches:
        if text:
            texts.append(text)
            begins.append(here)
            offsets.append(offset)
            here += len(text)
    return Piece("".join(texts), tuple(begins) or (0,), tuple(offsets) or (0,))
