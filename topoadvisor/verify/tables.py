"""Plain tables for the reports of measurements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def table(
    head: tuple[str, ...], rows: Sequence[tuple[tuple[str, ...], str | None]], words: tuple[int, ...]
) -> list[str]:
    """Numbers to the right, words to the left; nothing at all without rows.

    What is said of a row stands below it, once for several in a row of which the same is to be said.
    """
    if not rows:
        return []
    cells = [head, *(row for row, _ in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row: tuple[str, ...]) -> str:
        fitted = [
            text.ljust(width) if column in words else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(fitted).rstrip()

    lines = ["", line(head)]
    for cause, alike in itertools.groupby(rows, key=lambda row: row[1]):
        lines += [line(row) for row, _ in alike]
        if cause:
            lines.append(f"    {cause}")
    return lines
