"""The only door to the CEL library: compiled conditions, what they read, and their three outcomes."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from topoadvisor.rules.functions import FUNCTIONS


def _library() -> types.ModuleType:
    """The CEL library without its own command line, which its package imports and which costs ten times the rest."""
    command_line = "cel.cli"
    if command_line in sys.modules:
        import cel

        return cel
    placeholder = types.ModuleType(command_line)
    sys.modules[command_line] = placeholder
    try:
        import cel
    finally:
        if sys.modules.get(command_line) is placeholder:
            del sys.modules[command_line]
    if vars(cel).get("cli") is placeholder:
        del cel.cli
    return cel


if TYPE_CHECKING:
    import cel as _cel
else:
    _cel = _library()

BUILT_IN: Final = {
    *("size", "contains", "startsWith", "endsWith", "matches", "type", "dyn", "timestamp", "duration"),
    *("int", "uint", "double", "string", "bytes"),
    *("has", "all", "exists", "exists_one", "map", "filter"),
    *FUNCTIONS,
}
"""Functions and macros that a condition may call."""

_MACROS = {"all", "exists", "exists_one", "map", "filter"}
_MOST_LOOPS: Final = 3
_KEYWORDS = {"true", "false", "null", "in"}
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*)
    |(?P<string>[rRbB]{0,2}(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>\d[\w.]*|\.\d\w*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<mark>\|\||&&|[=!<>]=|.)""",
    re.X | re.S,
)


class Token(NamedTuple):
    """One token of an expression; `at` is its offset."""

    kind: str
    text: str
    at: int


class Unreadable(Exception):
    """A condition touched something that is not in its context: a fact that was not read."""


class Fault(Exception):
    """A condition that cannot be evaluated, whatever the facts are; the text says why."""


@dataclass(frozen=True)
class Expression:
    """A compiled condition."""

    source: str
    program: _cel.Program
    paths: tuple[str, ...]
    """Dotted fact names that it reads, in order of appearance."""
    functions: tuple[str, ...]
    """Named functions that it calls."""


class Context:
    """Values that conditions are evaluated against. A nested value is reached with dots."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._context = _cel.Context(variables=dict(variables), functions=dict(FUNCTIONS))

    def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace one top-level object."""
        self._context.add_variable(name, dict(value))

    def test(self, expression: Expression) -> bool:
        """The truth of a condition.

        Raises Unreadable when it needs something that is absent, Fault when it is no condition or its types clash.
        """
        try:
            result = expression.program.execute(self._context)
        except (KeyError, IndexError) as error:
            raise Unreadable(str(error)) from None
        except (TypeError, RuntimeError, ValueError, ArithmeticError) as error:
            raise Fault(str(error).split(". ", 1)[0]) from None
        if not isinstance(result, bool):
            raise Fault(f"it gives {type(result).__name__}, not true or false")
        return result


@lru_cache(maxsize=4096)
def compile_condition(source: str) -> Expression:
    """Compile a condition. Raises Fault with the library's reading of the syntax error, on one line."""
    if len(_loops(tokens(source))) > _MOST_LOOPS:
        raise Fault(f"it has more than {_MOST_LOOPS} loops; one inside another can take for ever")
    try:
        program = _cel.compile(source)
    except ValueError as error:
        raise Fault(_syntax(str(error))) from None
    return Expression(
        source=source,
        program=program,
        paths=tuple(_paths(source)),
        functions=tuple(name for name in program.functions() if name[0].isalpha()),
    )


def _syntax(message: str) -> str:
    found = re.search(r"<input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)", message)
    if found is None:
        return "it is no CEL expression"
    reading = re.sub(r" expecting \{.*", "", found[3])
    place = f"column {found[2]}" if found[1] == "1" else f"line {found[1]}, column {found[2]}"
    return f"{reading} at {place} of the expression"


def tokens(source: str) -> list[Token]:
    """The tokens of an expression, blanks and comments left out."""
    return [
        Token(str(match.lastgroup), match.group(), match.start())
        for match in _TOKEN.finditer(source)
        if match.lastgroup != "blank"
    ]


def _paths(source: str) -> Iterator[str]:
    """Dotted names that the expression reads, each once: no functions, no loop variables, nothing inside strings."""
    stream = tokens(source)
    bound = set(_loops(stream))
    seen: set[str] = set()
    position = 0
    while position < len(stream):
        path, end = path_at(stream, position)
        if path and path.split(".", 1)[0] not in bound and path not in seen:
            seen.add(path)
            yield path
        position = max(end, position + 1)


def _loops(stream: list[Token]) -> list[str]:
    """The variable of each loop."""
    texts = [token.text for token in stream]
    return [
        texts[at + 3]
        for at in range(len(texts) - 3)
        if texts[at] == "." and texts[at + 1] in _MACROS and texts[at + 2] == "("
    ]


def path_at(stream: list[Token], start: int) -> tuple[str, int]:
    """The dotted name that begins at token `start` and the token after it; an empty name when none begins there.

    `a.b["c"]` is read as `a.b.c`; a method call at the end is left out of the name.
    """
    first = stream[start]
    after_dot = start > 0 and stream[start - 1].text == "."
    if first.kind != "name" or first.text in _KEYWORDS or after_dot or _text(stream, start + 1) == "(":
        return "", start
    parts, at = [first.text], start + 1
    while True:
        if _text(stream, at) == "." and at + 1 < len(stream) and stream[at + 1].kind == "name":
            if _text(stream, at + 2) == "(":
                break
            parts.append(stream[at + 1].text)
            at += 2
        elif _text(stream, at) == "[" and at + 2 < len(stream) and stream[at + 1].kind == "string":
            parts.append(stream[at + 1].text.strip("rR\"'"))
            at += 3
        else:
            break
    return ".".join(parts), at


def _text(stream: list[Token], at: int) -> str:
    return stream[at].text if at < len(stream) else ""


def atoms(source: str) -> list[str]:
    """The comparisons that `&&`, `||`, `!` and parentheses join, so that each can be tried alone."""
    return [source[part[0].at : part[-1].at + len(part[-1].text)] for part in _split(tokens(source))]


def _split(stream: list[Token]) -> Iterator[list[Token]]:
    if not stream:
        return
    depth, start, pieces = 0, 0, []
    for at, token in enumerate(stream):
        depth += (token.text in "([{") - (token.text in ")]}") if token.kind == "mark" else 0
        if depth == 0 and token.text == "?":
            yield stream
            return
        if depth == 0 and token.text in ("&&", "||"):
            pieces.append(stream[start:at])
            start = at + 1
    if pieces:
        for piece in [*pieces, stream[start:]]:
            yield from _split(piece)
    elif stream[0].text == "!":
        yield from _split(stream[1:])
    elif stream[0].text == "(" and _closes(stream) == len(stream) - 1:
        yield from _split(stream[1:-1])
    else:
        yield stream


def _closes(stream: list[Token]) -> int:
    depth = 0
    for at, token in enumerate(stream):
        if token.kind == "mark":
            depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0:
            return at
    return -1
