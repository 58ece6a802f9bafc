"""The words of a shell script, with quotes, expansions, comments, continued lines and here-documents understood.

It reads what bash and POSIX shells share, expands nothing, and fails for nothing: a quote without an end ends with the
text. `{{ … }}`, which templates put there, counts as an expansion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

_OPERATORS: Final = (
    "<<<", "<<-", ";;&", "&>>", "&&", "||", ";;", ";&", "<<", ">>", ">&", "<&", "&>", ">|", "<>", ";", "&", "|", "(",
    ")", "<", ">", "\n",
)  # fmt: skip
_ENDS_WORD: Final = frozenset(" \t\r\n;&|<>()")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.A)
_SET: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.A)
_DEFAULT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:?)([-=])([^$`\"'\\{}]*)", re.A)
_DEEPEST: Final = 40


@dataclass(frozen=True)
class Part:
    """A stretch of a word: literal text, or an expansion."""

    start: int
    end: int
    text: str | None
    """What the shell makes of it; None = an expansion."""
    inner: tuple[int, int] | None = None
    """Where the text stands without quotes, when nothing in it is escaped."""
    quoted: bool = False
    fallback: tuple[str, int, int] | None = None
    """(default, start, end) of `${NAME:-default}`, also inside double quotes when nothing else is there."""
    pieces: tuple[Part, ...] = ()
    """The texts and expansions between double quotes, when both are there."""


@dataclass(frozen=True)
class Word:
    """One word as the shell splits them."""

    start: int
    end: int
    parts: tuple[Part, ...]
    items: tuple[Word, ...] = ()
    """Words of an array, `NAME=( … )`."""

    @property
    def pieces(self) -> tuple[Part, ...]:
        """The parts, those inside of double quotes among them."""
        return tuple(piece for part in self.parts for piece in part.pieces or (part,))

    @property
    def text(self) -> str | None:
        """What the shell makes of it; None when it has to expand something for that."""
        texts = [part.text for part in self.parts]
        return None if None in texts else "".join(text for text in texts if text is not None)


@dataclass(frozen=True)
class Setting:
    """A word of the form NAME=VALUE."""

    name: str
    value: str | None
    at: int
    span: tuple[int, int] | None
    fallback: bool = False
    adds: bool = False
    """`+=`."""
    home: bool = False
    """An unquoted `~` begins the value, which bash expands."""


@dataclass(frozen=True)
class Here:
    """A here-document."""

    start: int
    end: int
    literal: bool
    """Nothing in it is expanded."""


@dataclass
class Token:
    """A word, or an operator (a newline is one)."""

    start: int
    word: Word | None = None
    operator: str = ""
    here: Here | None = None


@dataclass
class Script:
    """All tokens, and what was found inside of words."""

    tokens: list[Token] = field(default_factory=list)
    uses: list[tuple[str, int]] = field(default_factory=list)
    """(name, offset) of every variable that is expanded."""
    inside: list[tuple[int, int]] = field(default_factory=list)
    """Command substitutions."""
    defaults: list[tuple[str, str, int, int]] = field(default_factory=list)
    """(name, text, start, end) of every `${NAME:=text}`."""


def setting(word: Word) -> Setting | None:
    """NAME=VALUE out of a word; None for any other word."""
    if word.parts and word.parts[0].pieces:
        word = replace(word, parts=word.pieces)
    first = word.parts[0] if word.parts else None
    if first is None or first.text is None:
        return None
    match = _SET.match(first.text)
    if match is None or (first.quoted and len(word.parts) > 1):
        return None
    if first.quoted and first.inner is None:
        return None
    begin = first.inner[0] if first.quoted and first.inner else first.start
    adds = bool(match[2])
    after = begin + match.end()
    rest = first.text[match.end() :]
    home = rest.startswith("~") and not first.quoted and first.inner is not None
    others = word.parts[1:]
    if word.items:
        return Setting(match[1], None, begin, None, adds=adds)
    if not others:
        plain = first.inner is not None or first.quoted
        span = (after, after + len(rest)) if plain or first.end - first.start == len(first.text) else None
        return Setting(match[1], None if adds else rest, begin, span, adds=adds, home=home)
    if rest or len(others) > 1:
        texts = [part.text for part in others]
        value = None if None in texts else rest + "".join(text for text in texts if text is not None)
        return Setting(match[1], None if adds else value, begin, None, adds=adds, home=home)
    only = others[0]
    if only.fallback is not None:
        text, start, end = only.fallback
        return Setting(match[1], text, begin, (start, end), fallback=True, adds=adds)
    return Setting(
        match[1], None if adds else only.text, begin, only.inner if only.text is not None else None, adds=adds
    )


def read(text: str) -> Script:
    """All words and operators of a script."""
    return _Lexer(text).script()


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found = Script()
        self._waiting: list[tuple[Token, str, bool, bool]] = []

    def script(self) -> Script:
        self._found.tokens.extend(self._tokens())
        return self._found

    def _tokens(self) -> Iterator[Token]:
        text = self._text
        while self._skip_blanks():
            start = self._at
            if text[start] == "#":
                end = text.find("\n", start)
                self._at = len(text) if end < 0 else end
                continue
            if text.startswith("((", start) and (end := self._arithmetic_end(start + 2)) > 0:
                self._at = end
                yield Token(start, Word(start, end, (Part(start, end, None),)))
                continue
            operator = next((each for each in _OPERATORS if text.startswith(each, start)), "")
            if operator in ("<", ">") and text.startswith("(", start + 1):
                yield Token(start, self._word())
                continue
            if not operator:
                yield Token(start, self._word())
                continue
            self._at = start + len(operator)
            token = Token(start, operator=operator)
            if operator in ("<<", "<<-"):
                self._expect_here(token, operator == "<<-")
            yield token
            if operator == "\n":
                self._read_here()

    def _skip_blanks(self) -> bool:
        text = self._text
        while self._at < len(text):
            if text[self._at] in " \t\r":
                self._at += 1
            elif text[self._at] == "\\" and text[self._at + 1 : self._at + 3].lstrip("\r").startswith("\n"):
                self._at = text.index("\n", self._at) + 1
            else:
                return True
        return False

    def _arithmetic_end(self, start: int) -> int:
        end = self._text.find("))", start)
        line = self._text.find("\n", start)
        return -1 if end < 0 or 0 <= line < end else end + 2

    def _expect_here(self, token: Token, strip: bool) -> None:
        if not self._skip_blanks() or self._text[self._at] in _ENDS_WORD:
            return
        word = self._word()
        raw = self._text[word.start : word.end]
        literal = any(letter in raw for letter in "'\"\\")
        self._waiting.append((token, re.sub(r"['\"\\]", "", raw), literal, strip))

    def _read_here(self) -> None:
        for token, delimiter, literal, strip in self._waiting:
            start = self._at
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                line = self._text[self._at : end if end >= 0 else len(self._text)].removesuffix("\r")
                if (line.lstrip("\t") if strip else line) == delimiter:
                    break
                self._at = len(self._text) if end < 0 else end + 1
            token.here = Here(start, self._at, literal)
            line_end = self._text.find("\n", self._at)
            self._at = len(self._text) if line_end < 0 else line_end + 1
        self._waiting = []

    def _word(self, depth: int = 0) -> Word:
        text, start = self._text, self._at
        parts: list[Part] = []
        items: tuple[Word, ...] = ()
        while self._at < len(text):
            letter = text[self._at]
            if letter in _ENDS_WORD:
                if letter in "<>" and text.startswith("(", self._at + 1):
                    parts.append(self._nested(self._at + 2))
                    continue
                if letter == "(" and _SET.fullmatch(text[start : self._at]) and depth < _DEEPEST:
                    items = tuple(self._array(depth + 1))
                    parts.append(Part(start, self._at, None))
                break
            parts.append(self._part())
        if not parts:  # a lone sign that begins no word
            self._at += 1
            parts.append(Part(start, self._at, text[start : self._at]))
        if items:
            parts.insert(0, Part(start, start, text[start : text.index("=", start) + 1]))
        return Word(start, self._at, tuple(parts), items)

    def _array(self, depth: int) -> Iterator[Word]:
        self._at += 1
        while self._at < len(self._text):
            if not self._skip_blanks():
                return
            letter = self._text[self._at]
            if letter == ")":
                self._at += 1
                return
            if letter == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif letter in _ENDS_WORD:
                self._at += 1
            else:
                yield self._word(depth)

    def _part(self) -> Part:
        text, start = self._text, self._at
        letter = text[start]
        if letter == "'":
            return self._to_quote(start + 1, "'")
        if text.startswith("$'", start):
            part = self._to_quote(start + 2, "'")
            return part if part.text is not None and "\\" not in part.text else Part(start, self._at, None)
        if letter == '"' or text.startswith('$"', start):
            return self._double(start)
        if letter == "$":
            return self._dollar()
        if letter == "`":
            return self._backticks()
        if text.startswith("{{", start) and (end := text.find("}}", start)) > 0 and "\n" not in text[start:end]:
            self._at = end + 2
            return Part(start, self._at, None)
        return self._plain()

    def _plain(self) -> Part:
        text, start = self._text, self._at
        letters: list[str] = []
        escaped = False
        while self._at < len(text):
            letter = text[self._at]
            if letter in _ENDS_WORD or letter in "'\"`$" or text.startswith("{{", self._at):
                if letters or self._at > start:
                    break
                letters.append(letter)  # a lone `{{`
                self._at += 1
                continue
            if letter == "\\":
                escaped = True
                following = text[self._at + 1 : self._at + 2]
                if following == "\n" or text.startswith("\r\n", self._at + 1):
                    self._at = text.index("\n", self._at) + 1
                    continue
                letters.append(following)
                self._at += 2
                continue
            letters.append(letter)
            self._at += 1
        self._at = min(self._at, len(text))
        return Part(start, self._at, "".join(letters), None if escaped else (start, self._at))

    def _to_quote(self, begin: int, quote: str) -> Part:
        start = self._at
        end = self._text.find(quote, begin)
        end = len(self._text) if end < 0 else end
        self._at = min(end + 1, len(self._text))
        return Part(start, self._at, self._text[begin:end], (begin, end), quoted=True)

    def _double(self, start: int) -> Part:
        text = self._text
        self._at = begin = text.index('"', start) + 1
        pieces: list[Part] = []
        letters: list[str] = []
        since, escaped = begin, False

        def flush(end: int) -> None:
            nonlocal escaped
            if end > since:
                pieces.append(Part(since, end, "".join(letters), None if escaped else (since, end)))
            letters.clear()
            escaped = False

        while self._at < len(text) and text[self._at] != '"':
            letter, at = text[self._at], self._at
            if letter == "\\" and text[at + 1 : at + 2] in tuple('\\"$`\n'):
                escaped = True
                letters += text[at + 1].strip("\n")
                self._at += 2
            elif letter in "$`" or text.startswith("{{", at):
                if letter == "{":
                    end = text.find("}}", at)
                    self._at = len(text) if end < 0 else end + 2
                    part = Part(at, self._at, None)
                else:
                    part = self._dollar() if letter == "$" else self._backticks()
                if part.text is None:
                    flush(at)
                    pieces.append(part)
                    since = self._at
                else:
                    letters += part.text
            else:
                letters.append(letter)
                self._at += 1
        end = min(self._at, len(text))
        flush(end)
        self._at = min(end + 1, len(text))
        if not any(piece.text is None for piece in pieces):
            only = pieces[0] if pieces else Part(begin, end, "", (begin, end))
            return Part(start, self._at, only.text, only.inner, quoted=True)
        if len(pieces) == 1:
            return Part(start, self._at, None, quoted=True, fallback=pieces[0].fallback)
        return Part(start, self._at, None, quoted=True, pieces=tuple(pieces))

    def _dollar(self) -> Part:
        text, start = self._text, self._at
        if text.startswith("$(", start):
            return self._nested(start + 2)
        if text.startswith("${", start):
            return self._braces()
        match = _NAME.match(text, start + 1)
        if match is not None:
            self._found.uses.append((match[0], start))
            self._at = match.end()
        elif text[start + 1 : start + 2] in tuple("?!#@*$-0123456789"):
            self._at = start + 2
        else:
            self._at = start + 1
            return Part(start, self._at, "$", (start, self._at))
        return Part(start, self._at, None)

    def _nested(self, begin: int) -> Part:
        """`$( … )` or `<( … )`: what is inside is read by itself."""
        start, depth = self._at, 1
        self._at = begin
        text = self._text
        while self._at < len(text):
            letter = text[self._at]
            if letter in "'\"`":
                end = self._at + 1
                while end < len(text) and text[end] != letter:
                    end += 2 if text[end] == "\\" and letter != "'" else 1
                self._at = min(end + 1, len(text))
                continue
            self._at += 2 if letter == "\\" else 1
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                break
        self._at = min(self._at, len(text))
        self._found.inside.append((begin, self._at - 1))
        found = re.finditer(r"\$\{?([A-Za-z_]\w*)", text[begin : self._at])
        self._found.uses += [(match[1], start) for match in found]
        return Part(start, self._at, None)

    def _backticks(self) -> Part:
        start = self._at
        end = start + 1
        while end < len(self._text) and self._text[end] != "`":
            end += 2 if self._text[end] == "\\" else 1
        self._at = min(end + 1, len(self._text))
        self._found.inside.append((start + 1, min(end, len(self._text))))
        return Part(start, self._at, None)

    def _braces(self) -> Part:
        start, depth, text = self._at, 0, self._text
        self._at += 1
        while self._at < len(text):
            letter = text[self._at]
            self._at += 2 if letter == "\\" else 1
            depth += (letter == "{") - (letter == "}")
            if depth == 0:
                break
        self._at = min(self._at, len(text))
        content = text[start + 2 : self._at - 1]
        names = re.findall(r"(?:^|\$\{?)[#!]?([A-Za-z_]\w*)", content)
        self._found.uses += [(name, start) for name in names]
        match = _DEFAULT.fullmatch(content)
        if match is None:
            return Part(start, self._at, None)
        begin = start + 2 + match.start(4)
        if match[3] == "=":
            self._found.defaults.append((match[1], match[4], begin, self._at - 1))
        return Part(start, self._at, None, fallback=(match[4], begin, self._at - 1))
