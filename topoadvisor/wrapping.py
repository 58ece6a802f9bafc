"""Text in lines: words stay whole, and only what can be no word and no sentence any more is cut."""

from __future__ import annotations

import re
import textwrap
from typing import Final

_ENDLESS: Final = re.compile(r"\S{1001,}")
"""Values of settings, paths and lists have no blanks; none that is meant is so long."""
_LONGEST: Final = 10_000
"""Letters of a paragraph; those that people write have a tenth of it."""
_SHORT: Final = 200
"""Letters of a value that are shown whole."""


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Lines of at most `width` columns, indented by `first` and `rest`; a longer word has a line of its own."""
    return textwrap.wrap(
        cut(text), width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def cut(text: str) -> str:
    """The text, with the beginning and the length of what is far too long for a reader."""
    text = _ENDLESS.sub(lambda word: f"{word[0][:200]}… ({len(word[0])} letters)", text)
    return text if len(text) <= _LONGEST else f"{text[:2000]}… ({len(text)} letters)"


def brief(text: str) -> str:
    """A value for a reader: of a long text or one of several lines its first line or the beginning of it."""
    lines = [line.strip() for line in text.replace("\\n", "\n").splitlines() if line.strip()]
    if len(text) <= _SHORT and len(lines) <= 1:
        return text
    size = f"{len(lines)} lines, {len(text):,} letters" if len(lines) > 1 else f"{len(text):,} letters"
    first = lines[0] if lines else ""
    return f"{first if len(first) <= _SHORT else first[:_SHORT].rstrip()}… ({size})"
