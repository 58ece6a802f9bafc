"""Where a command of a shell script stands: the conditions, loops, functions and subshells around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from topoadvisor.lint.asked import Asked, asked
from topoadvisor.lint.model import Branch
from topoadvisor.lint.readers.shell_words import Token, Word

_LONGEST: Final = 2_000
"""Letters of commands joined by `&&` that are looked at."""
_OPENS: Final = frozenset({"for", "select", "while", "until"})

FrameKind = Literal["if", "case", "loop", "function", "group", "subshell"]


@dataclass
class _Frame:
    kind: FrameKind
    number: int
    start: int
    arm: int = 0
    open: bool = False
    """Its condition has been read."""
    condition: str = ""
    pattern: bool = False
    """The next words are a pattern of `case`."""


class Frames:
    """The frames around the present place, while the tokens of a script are walked through in order."""

    def __init__(self, body: str) -> None:
        self._body = body
        self._frames: list[_Frame] = []
        self._count = 0
        self._only_if: int | None = None
        """Number of the `&&` or `||` that the present command hangs on."""
        self._chain = ""
        """The commands before them."""
        self._since = 0
        """Where the present command begins."""

    def function(self, start: int) -> None:
        """Go past `name()`."""
        self._push("function", start)

    def _push(self, kind: FrameKind, start: int) -> None:
        self._count += 1
        self._frames.append(_Frame(kind, self._count, start))

    def _pop(self, *kinds: FrameKind) -> None:
        while self._frames and self._frames[-1].kind not in kinds and self._frames[-1].kind in ("group", "subshell"):
            self._frames.pop()
        if self._frames and self._frames[-1].kind in kinds:
            self._frames.pop()

    def separator(self, token: Token) -> None:
        """Go past an operator that ends a command."""
        top = self._frames[-1] if self._frames else None
        self._only_if = None
        chain, self._chain = (self._chain + self._body[self._since : token.start])[-_LONGEST:], ""
        self._since = token.start
        match token.operator:
            case "&&" | "||":
                self._count += 1
                self._only_if, self._chain = self._count, chain
            case "(":
                if not (top and top.pattern):
                    self._push("subshell", token.start)
            case ")":
                if top and top.pattern:
                    top.pattern, top.open = False, True
                else:
                    self._pop("subshell")
            case ";;" | ";&" | ";;&":
                if top and top.kind == "case":
                    top.arm += 1
                    top.pattern = True

    def in_pattern(self) -> bool:
        """Whether words are a pattern of `case`, and no command."""
        return bool(self._frames) and self._frames[-1].pattern

    def pattern_word(self, token: Token) -> None:
        """Go past a word of a pattern."""
        if token.word is not None and token.word.text == "esac":
            self._frames[-1].pattern = False
            self._pop("case")

    def keyword(self, token: Token, tokens: list[Token], place: int) -> bool:
        """Whether the word is one of the shell's own, which changes what follows."""
        word = token.word
        assert word is not None
        text = self._body[word.start : word.end]
        top = self._frames[-1] if self._frames else None
        match text:
            case "if":
                self._push("if", word.end)
            case "then" if top and top.kind == "if":
                top.condition += self._body[top.start : word.start]
                top.open = True
            case "elif" | "else" if top and top.kind == "if":
                top.arm += 1
                top.start = word.end
            case "fi":
                self._pop("if")
            case "case":
                self._push("case", word.end)
                opened = self._frames[-1]
                for later in tokens[place : place + 4]:
                    if later.word is not None and later.word.text == "in":
                        opened.condition = self._body[word.end : later.word.start]
                        opened.pattern = True
                        later.word = Word(later.word.start, later.word.start, ())
                        break
            case "esac":
                self._pop("case")
            case _ if text in _OPENS:
                self._push("loop", word.end)
                self._frames[-1].open = True
            case "do" | "time" | "!" | "in" | "then" | "elif" | "else":
                pass
            case "done":
                self._pop("loop")
            case "function":
                self._push("function", word.start)
            case "{":
                if top is None or top.kind != "function" or top.open:
                    self._push("group", word.start)
                    # Only `x && { … }` makes it a condition.
                    self._frames[-1].open = self._only_if is not None
                else:
                    top.open = True
            case "}":
                self._pop("group", "function")
            case "":
                pass
            case _:
                return False
        return True

    def after_header(self, keyword: Word, tokens: list[Token], place: int) -> int:
        """Where what follows a keyword begins: the words of `for x in …` and the name of a function are no command."""
        text = self._body[keyword.start : keyword.end]
        most = {"for": len(tokens), "select": len(tokens), "function": 1}.get(text, 0)
        while most and place < len(tokens) and tokens[place].word is not None:
            place, most = place + 1, most - 1
        return place

    def branch(self) -> Branch:
        """The conditions, loops, functions and subshells around the present command."""
        branch = [(frame.number, frame.arm) for frame in self._frames if frame.open or frame.kind == "subshell"]
        return (*branch, (self._only_if, 0)) if self._only_if is not None else tuple(branch)

    def only(self) -> Asked | None:
        """Whether a condition around the present command asks for the rank, or for the host."""
        return asked(" ".join([*(frame.condition for frame in self._frames if frame.open), self._chain]))
