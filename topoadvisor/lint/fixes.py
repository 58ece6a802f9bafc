"""Repairs, applied to a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from topoadvisor.lint.document import Finding

_MOST_PASSES = 3
"""One repair may make room for the next on the same line."""


def repaired(text: str, judge: Callable[[str], Sequence[Finding]]) -> str:
    """The text after all repairs; `judge` gives the findings of a text."""
    for _ in range(_MOST_PASSES):
        text, count = apply(text, judge(text))
        if not count:
            break
    return text


def apply(text: str, findings: Sequence[Finding]) -> tuple[str, int]:
    """The text with the repairs of the findings, and how many there were; of two that overlap, the first."""
    starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    edits: list[tuple[int, int, str]] = []
    for finding in findings:
        if finding.fix is not None:
            spans = [
                (starts[edit.line - 1] + edit.column - 1, starts[edit.end_line - 1] + edit.end_column - 1, edit.text)
                for edit in finding.fix.edits
            ]
            if all(end <= first or start >= last for start, end, _ in spans for first, last, _ in edits):
                edits += spans
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text, len(edits)
