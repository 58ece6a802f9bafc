"""What a name looks like on one line, how wide that will be, and what is left of it when the room is short."""

from __future__ import annotations

import re
import unicodedata

from topoadvisor.render import typeface


def clean(text: str) -> str:
    """One line of visible text: line ends, control characters and what XML forbids become a space each."""
    kept = ("" if unicodedata.category(c) == "Cf" else " " if _invisible(c) else c for c in text)
    return " ".join("".join(kept).split())


def _invisible(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Cn", "Zl", "Zp")


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Width in points of one line at font size `size`; kerning, which brings some letters closer, is left out."""
    return sum(typeface.advance(character, bold=bold) for character in text) * size


def fit(text: str, room: float, size: float, *, bold: bool = False, end: int = 0) -> str:
    """`text`, or its beginning, an ellipsis and its last `end` characters, such that it fits into `room` points."""
    if width(text, size, bold=bold) <= room:
        return text
    tail = "…" + (text[-end:] if end else "")
    shown = text[: int(room / size * 4) + 1]
    while shown and width(shown.rstrip() + tail, size, bold=bold) > room:
        shown = shown[:-1]
    return shown.rstrip() + tail


def wrap(text: str, room: float, size: float, *, lines: int) -> list[str]:
    """`text` broken at spaces and after hyphens into at most `lines` lines of `room` points.

    What is left over ends in an ellipsis.
    """
    pieces = re.findall(r"[^\s-]*-+|[^\s-]+\s*|\s+", text)
    broken: list[str] = []
    while pieces and len(broken) < lines - 1:
        count = 1
        while count < len(pieces) and width("".join(pieces[: count + 1]).rstrip(), size) <= room:
            count += 1
        broken.append(fit("".join(pieces[:count]).strip(), room, size))
        pieces = pieces[count:]
    if pieces:
        broken.append(fit("".join(pieces).strip(), room, size))
    return broken
