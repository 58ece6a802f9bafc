"""Texts and lists of texts in Python that are commands: as a shell, or a program, gets them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Final

from topoadvisor.lint import pieces
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import launchers

_LITERAL: Final = re.compile(
    r"(?P<prefix>[A-Za-z]{0,2})(?P<quote>\"\"\"|'''|\"|')(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)", re.S
)
_ESCAPE: Final = re.compile(r"\\(\r?\n|[nt\"'\\])")
_ESCAPED: Final = {"n": "\n", "t": "\t"}
_EXPRESSION: Final = re.compile(r"\{\{|\}\}|\{(?:[^{}]|\{[^{}]*\})*\}")
_FILLED_IN: Final = re.compile(r"(?<!\$)\{[\w.:!]*\}|%[sdr]|%\(\w+\)[sdr]")
"""What `format` and `%` replace."""
_KEEPS: Final = frozenset({"format", "strip", "split", "encode"})
"""Methods that leave a text the command that it is."""

Place = Callable[[int, int], int]
"""(line from 1, column in bytes) → offset in the text of the program."""


def of_text(node: ast.expr, program: Piece, place: Place) -> Piece | None:
    """The text of a constant, of an f-string, or of several that are joined; None when it is none of them.

    What is only known when it runs is an expansion of the shell.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        node = node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS:
        node = node.func.value
    if not (isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))):
        return None
    start = place(node.lineno, node.col_offset)
    end = place(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return pieces.joined(
        (text, program.at(at))
        for literal in _LITERAL.finditer(program.body, start, end)
        for text, at in _stretches(literal)
    )


def _stretches(literal: re.Match[str]) -> Iterator[tuple[str, int]]:
    """What a literal stands for: texts, and where each begins."""
    prefix, text, start = literal["prefix"].lower(), literal["text"], literal.start("text")
    marks = [] if "r" in prefix else [(match.span(), _meaning(match[1])) for match in _ESCAPE.finditer(text)]
    filled = _EXPRESSION if "f" in prefix else _FILLED_IN
    marks += [
        (match.span(), match[0][0] if match[0] in ("{{", "}}") else "$x")
        for match in filled.finditer(text)
        if not any(first < match.end() and match.start() < last for (first, last), _ in marks)
    ]
    at = 0
    for (first, last), meaning in sorted(marks):
        yield text[at:first], start + at
        yield meaning, start + first
        at = last
    yield text[at:], start + at


def _meaning(escaped: str) -> str:
    return "" if escaped.endswith("\n") else _ESCAPED.get(escaped, escaped)


def of_list(items: list[ast.expr], program: Piece, place: Place) -> Piece:
    """A command that is a list."""

    def word(item: ast.expr) -> tuple[str, int] | None:
        if not isinstance(item, ast.Constant) or not isinstance(item.value, str):
            return None
        found = of_text(item, program, place)
        # A text that is put together, or holds escapes, does not stand in the file as it is.
        whole = found is not None and found.body == item.value and len(found.begins) == 1
        return (item.value, found.at(0)) if found is not None and whole else None

    return launchers.written_out(word(item) for item in items)
