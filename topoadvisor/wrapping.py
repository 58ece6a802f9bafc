"""Text in lines: words stay whole, and only what can be no word and no sentence any more is cut."""

from __future__ import annotations

import re
import textwrap
from typing import Final

_ENDLESS: Final = re.compile(r"\S{1001,}")
"""Values of settings, paths and lists have no blanks; none that is meant is so long."""
_LONGEST: Final = 10_000
"""Letters of a paragraph; those that people write have a tenth of it."""


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Lines of at most `width` columns, indented by `first` and `rest`; a longer word has a line of its own."""
    return textwrap.wrap(
        cut(text), width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def cut(text: str) -> str:
    """The text, with the beginning and the length of what is far too long for a reader."""
    text = _ENDLESS.sub(lambda word: f"{word[0][:200]}… ({len(word[0])} letters)", text)
    return text if len(text) <= _LONGEST else f"{text[:2000]}… ({len(text)} letters)"
