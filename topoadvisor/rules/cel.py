"""The only door to the CEL library: compiled conditions, what they read, and their three outcomes."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from topoadvisor.rules.functions import FUNCTIONS, Function


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
    *("size", "contains", "startsWith", "endsWith", "type", "dyn", "timestamp", "duration"),
    *("int", "uint", "double", "string", "bytes"),
    *("has", "all", "exists", "exists_one", "map", "filter"),
    *FUNCTIONS,
}
"""Functions and macros that a condition may call."""

_MACROS = {"all", "exists", "exists_one", "map", "filter"}
_MOST_LOOPS: Final = 2
_MOST_TOKENS: Final = 400
_MOST_LETTERS: Final = 8_000
"""Bounds of one condition; the longest that ships has 78 tokens. The library walks a chain such as `1+1+…` by recursion
and crashes on a long one, and while it loops nothing can interrupt it."""
_OF_THE_MESSAGE: Final = ["job", ".", "message", ".", "matches", "("]
_METHODS: Final = {"matches": "re2_matches"}
"""Methods of the library that give way to a function of ours, and the name by which it finds that one."""
_NAMES: Final = {ours: name for name, ours in _METHODS.items()}
_OPENING: Final = ("(", "[", "{")
_CLOSING: Final = (")", "]", "}")
_KEYWORDS = {"true", "false", "null", "in"}
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*)
    |(?P<string>[rRbB]{0,2}(?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>[0-9][\w.]*|\.[0-9]\w*)
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
        self._raised: BaseException | None = None
        functions = {name: self._guarded(name, function) for name, function in FUNCTIONS.items()}
        functions |= {ours: functions[name] for name, ours in _METHODS.items()}
        self._context = _cel.Context(variables=dict(variables), functions=functions)

    def _guarded(self, name: str, function: Function) -> Callable[..., Any]:
        """The function for the library, which prints what a function raises: it is kept, and raised by `test`."""

        def call(*values: Any) -> Any:
            try:
                if not function.accepts(values):
                    raise Fault(f"`{name}` takes {function.wants}")
                return function.call(*values)
            except ValueError as error:
                self._raised = self._raised or Fault(str(error))
                return None
            except BaseException as error:
                self._raised = self._raised or error
                return None

        return call

    def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace one top-level object."""
        self._context.add_variable(name, dict(value))

    def test(self, expression: Expression) -> bool:
        """The truth of a condition.

        Raises Unreadable when it needs something that is absent, Fault when it is no condition or its types clash.
        """
        self._raised = None
        try:
            result = expression.program.execute(self._context)
        except (KeyError, IndexError) as error:
            raise self._raised or Unreadable(str(error)) from None
        except (TypeError, RuntimeError, ValueError, ArithmeticError) as error:
            raise self._raised or Fault(_reading(str(error))) from None
        if self._raised is not None:
            raise self._raised
        if not isinstance(result, bool):
            raise Fault(f"it gives {type(result).__name__}, not true or false")
        return result


@lru_cache(maxsize=4096)
def compile_condition(source: str) -> Expression:
    """Compile a condition. Raises Fault, on one line, for a syntax error and for what could run for ever."""
    stream = tokens(source) if len(source) <= _MOST_LETTERS else []
    if len(source) > _MOST_LETTERS or len(stream) > _MOST_TOKENS:
        raise Fault(f"it is too long: a condition has up to {_MOST_TOKENS} words and signs in {_MOST_LETTERS} letters")
    loops = _loops(stream)
    if len(loops) > _MOST_LOOPS:
        raise Fault(f"it has more than {_MOST_LOOPS} loops; one inside another can take for ever")
    # Our own functions are slow beside those of the library.
    if len(loops) > 1 and (found := next((token.text for token in stream if token.text in FUNCTIONS), None)):
        raise Fault(f"it has loops and calls `{found}`, which together can take for ever")
    _check_calls(stream)
    try:
        program = _cel.compile(_rewritten(source, stream))
    except ValueError:
        raise Fault(_syntax(source)) from None
    return Expression(
        source=source,
        program=program,
        paths=tuple(_paths(stream)),
        functions=tuple(_NAMES.get(name, name) for name in program.functions() if name[0].isalpha()),
    )


def _rewritten(source: str, stream: list[Token]) -> str:
    """The condition with our functions for the library's, and without patterns for a message that nobody told.

    Preparing all patterns takes longer than all rules without them. Left as it is: one that asks for an empty message.
    """
    pieces, end, closes = [], 0, -1
    for at, token in enumerate(stream):
        call = [each.text for each in stream[at : at + 8]]
        if call[:6] == _OF_THE_MESSAGE and call[7:] == [")"] and "^$" not in call[6]:
            pieces += [source[end : token.at], '(job.message != "" && ']
            end, closes = token.at, at + 7
        if token.text in _METHODS and at and stream[at - 1].text == ".":
            pieces += [source[end : token.at], _METHODS[token.text]]
            end = token.at + len(token.text)
        if at == closes:
            pieces += [source[end : token.at + 1], ")"]
            end = token.at + 1
    return "".join([*pieces, source[end:]])


def _check_calls(stream: list[Token]) -> None:
    """Raises Fault when one of our functions gets too few or too many values."""
    for at, token in enumerate(stream):
        function = FUNCTIONS.get(token.text)
        if function is None or token.kind != "name" or _text(stream, at + 1) != "(":
            continue
        # `a.f(b)` is `f(a, b)`.
        method = at > 0 and stream[at - 1].text == "."
        if method + _values(stream, at + 2) != len(function.takes):
            raise Fault(f"`{token.text}` takes {function.wants}")


def _values(stream: list[Token], start: int) -> int:
    """How many values stand between the parenthesis before token `start` and the one that closes it."""
    depth, count = 0, 0
    for at in range(start, len(stream)):
        text = stream[at].text if stream[at].kind == "mark" else ""
        if depth == 0 and text == ")":
            return count + (at > start)
        depth += (text in _OPENING) - (text in _CLOSING)
        count += depth == 0 and text == ","
    return count + 1


def _syntax(source: str) -> str:
    """What the library says about a syntax error, without its internals; it lists several, and the first is telling."""
    try:
        _cel.compile(source)
        listed = ""
    except ValueError as error:
        listed = str(error).removeprefix(f"Failed to parse expression '{source}'")
    for found in re.finditer(r"<input>:([0-9]+):([0-9]+): (?:Syntax error: )?([^\n]*)", listed):
        reading = _reading(re.sub(r" expecting \{.*", "", found[3]))
        if reading and "Context`" not in reading:
            place = f"column {found[2]}" if found[1] == "1" else f"line {found[1]}, column {found[2]}"
            return f"{reading} at {place} of the expression"
    return _NO_CEL


_NO_CEL: Final = "it is no CEL expression"
_INTERNALS: Final = re.compile(r"\W*\b[A-Z]\w* ?[({].*", re.S)
"""A structure of the library as Rust prints it: `ParseError { … }`."""


def _reading(message: str) -> str:
    """An error of the library as a part of a sentence: no internals, no general advice, on one line."""
    if message.startswith("Internal"):
        return _NO_CEL
    message = re.split(r"\. (?:Check|CEL|The value|Convert)\b", message, maxsplit=1)[0]
    return " ".join(_INTERNALS.sub("", message).split()).rstrip(".:")


def tokens(source: str) -> list[Token]:
    """The tokens of an expression, blanks and comments left out."""
    return [
        Token(str(match.lastgroup), match.group(), match.start())
        for match in _TOKEN.finditer(source)
        if match.lastgroup != "blank"
    ]


def _paths(stream: list[Token]) -> Iterator[str]:
    """Dotted names that the expression reads, each once: no functions, no loop variables, nothing inside strings."""
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


def demanded(source: str) -> list[str]:
    """The conditions that must all be true for this one to be true, each as source."""
    found = [(source[part[0].at : part[-1].at + len(part[-1].text)], holds) for part, holds in parts(source, True)]
    return [text if holds else f"!({text})" for text, holds in found]


def parts(source: str, positive: bool) -> Iterator[tuple[list[Token], bool]]:
    """What must be true (or false) for a condition to be true, or to be false when not `positive`.

    Alternatives are given as one part.
    """
    pending = [(tokens(source), positive)]
    while pending:
        part, positive = _bare(*pending.pop())
        # `||` binds more weakly than `&&`.
        sign = "||" if len(_pieces(part, ("||",))) > 1 else "&&"
        pieces = _pieces(part, (sign,))
        if len(pieces) > 1 and positive is (sign == "&&"):
            pending += [(piece, positive) for piece in reversed(pieces)]
        elif part:
            yield part, positive


def _split(stream: list[Token]) -> Iterator[list[Token]]:
    pending = [stream]
    while pending:
        part, _ = _bare(pending.pop(), True)
        pieces = _pieces(part, ("&&", "||"))
        if len(pieces) > 1:
            pending += reversed(pieces)
        elif part:
            yield part


def _bare(part: list[Token], positive: bool) -> tuple[list[Token], bool]:
    """A part without the parentheses and `!` around the whole of it, and whether it is still asked to be true."""
    while part:
        if part[0].text == "(" and _closes(part) == len(part) - 1:
            part = part[1:-1]
        elif part[0].text == "!" and len(_pieces(part, ("&&", "||", *_COMPARING))) == 1:
            part, positive = part[1:], not positive
        else:
            break
    return part, positive


_COMPARING: Final = ("==", "!=", "<", "<=", ">", ">=", "in")


def _pieces(stream: list[Token], signs: tuple[str, ...]) -> list[list[Token]]:
    """The parts that these signs join on the outermost level; the whole when there is `? :`."""
    depth, start, pieces = 0, 0, []
    for at, token in enumerate(stream):
        depth += _step(token)
        if depth == 0 and token.text == "?":
            return [stream]
        if depth == 0 and token.text in signs and token.kind != "string":
            pieces.append(stream[start:at])
            start = at + 1
    return [*pieces, stream[start:]]


def _closes(stream: list[Token]) -> int:
    depth = 0
    for at, token in enumerate(stream):
        depth += _step(token)
        if depth == 0:
            return at
    return -1


def _step(token: Token) -> int:
    """How a token changes the depth of brackets."""
    return (token.text in _OPENING) - (token.text in _CLOSING) if token.kind == "mark" else 0
