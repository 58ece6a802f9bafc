"""How wide a text will be, without asking a font: a layout does not depend on what is installed."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Advance widths in thousandths of the font size, of DejaVu Sans: wider than Helvetica and Arial, so that a text which
# fits by this table fits in all of them.
_WIDTHS = {
    290: "'ijlIJ",
    330: " ,./:;\\|·",
    370: "f-",
    400: "()[]t!r",
    500: '"*_`sz–',
    550: "c?L",
    590: "FkvxyPTYao",
    640: "eESbdghnpqu$0123456789{}",
    700: "KAVBRXZC",
    780: "UHNDGOQ&",
    850: "w#+<=>^~M×",
    1000: "%mW@…",
}
_ADVANCE = {character: width for width, characters in _WIDTHS.items() for character in characters}
_BOLD = 1.12
_HINTED = 1.06
# Drawing programs round each advance to whole pixels, which at small sizes makes lines a little longer.
_OTHER = 700
_FULL_WIDTH = 1050


def clean(text: str) -> str:
    """One line of visible text: line ends, control characters and what XML forbids become a space each."""
    kept = ("" if unicodedata.category(c) == "Cf" else " " if _invisible(c) else c for c in text)
    return " ".join("".join(kept).split())


def _invisible(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Cn", "Zl", "Zp")


@lru_cache(maxsize=4096)
def width(text: str, size: float, *, bold: bool = False) -> float:
    """Estimated width in points of one line at font size `size`; seldom too small."""
    thousandths = sum(_ADVANCE.get(character) or _unlisted(character) for character in text)
    return thousandths / 1000 * size * _HINTED * (_BOLD if bold else 1.0)


def _unlisted(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return _FULL_WIDTH if unicodedata.east_asian_width(character) in "WF" else _OTHER


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
