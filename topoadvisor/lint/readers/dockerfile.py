"""Dockerfiles: what an image sets, and what only a step of its build saw."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from topoadvisor.lint.model import Assignment, Contents, watched
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import launchers, shell, shell_words

_INSTRUCTION: Final = re.compile(r"[ \t]*(?:ONBUILD[ \t]+|HEALTHCHECK[ \t]+(?:--\S+[ \t]+)*)?([A-Za-z]+)[ \t]+", re.I)
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)
_GAP: Final = r"(?:\s|\\[ \t]*\r?\n)*"
_ITEM: Final = rf'"(?:[^"\\]|\\.)*"{_GAP}'
_LIST: Final = re.compile(rf"{_GAP}\[{_GAP}(?:{_ITEM}(?:,{_GAP}{_ITEM})*)?\]{_GAP}", re.S)


def read(piece: Piece) -> Contents:
    """Everything that a Dockerfile sets."""
    contents = Contents()
    defaults: dict[str, Assignment] = {}
    for word, start, end in _instructions(piece.body):
        part = _without_comments(piece.cut(start, end))
        match word:
            case "ENV":
                contents.assignments += (_with_default(each, part, defaults) for each in _env(part))
            case "ARG":
                contents.uses |= set(re.findall(r"[A-Za-z_]\w*", part.body.split("=")[0])[:1])
                defaults |= _defaults(part)
            case "RUN":
                found = shell.read(_command(_heredoc_body(part)), way="layer")
                shell.merge(contents, found, at=piece.at(start))
            case "CMD" | "ENTRYPOINT":
                shell.merge(contents, shell.read(_command(part)), at=piece.at(start))
            case "FROM":
                contents.removed += [(piece.at(start), each.name) for each in contents.assignments]
            case _:
                pass
        if word not in ("RUN", "ENV"):
            contents.uses |= set(re.findall(r"\$\{?([A-Za-z_]\w*)", part.body))
    return contents


def _instructions(text: str) -> Iterator[tuple[str, int, int]]:
    """(instruction, start of its text, end), continued lines and here-documents joined."""
    at = 0
    while at < len(text):
        end = _line_end(text, at)
        match = _INSTRUCTION.match(text, at, end)
        goes_on = match is not None and text[at:end].rstrip().endswith("\\")
        while goes_on and end < len(text):
            following = _line_end(text, end + 1)
            line = text[end + 1 : following]
            end = following
            # Comments and empty lines between continued lines are dropped, and the instruction goes on.
            if line.strip() and not line.lstrip().startswith("#"):
                goes_on = line.rstrip().endswith("\\")
        if match is not None:
            word = match[1].upper()
            if word in ("RUN", "COPY") and (here := re.search(r"<<-?[\"']?(\w+)[\"']?", text[match.end() : end])):
                closing = re.compile(rf"^\t*{re.escape(here[1])}\r?$", re.M).search(text, end)
                end = closing.end() if closing else len(text)
            yield word, match.end(), end
        at = end + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _without_comments(piece: Piece) -> Piece:
    """Comment lines between continued lines become blanks, and so do the line ends before them."""
    body = piece.body
    if "\\" not in body:
        return piece
    body = re.sub(r"(?m)^[ \t]*#.*\n", lambda match: " " * len(match[0]), body)
    return piece.written(body)


def _heredoc_body(piece: Piece) -> Piece:
    """The script of `RUN <<EOF`."""
    match = re.match(r"(?:--\S+\s+)*<<-?[\"']?(\w+)[\"']?[ \t]*\r?\n", piece.body)
    if match is None:
        return piece
    closing = re.compile(rf"^\t*{re.escape(match[1])}\r?$", re.M).search(piece.body, match.end())
    return piece.cut(match.end(), closing.start() if closing else len(piece.body))


def _command(piece: Piece) -> Piece:
    """A command in the form of a list (what is no valid one, Docker gives to a shell as it stands)."""
    if _LIST.fullmatch(piece.body) is None:
        return piece
    words = (None if "\\" in match[1] else (match[1], piece.at(match.start(1))) for match in _TEXT.finditer(piece.body))
    return launchers.written_out(words)


def _defaults(piece: Piece) -> dict[str, Assignment]:
    """What the arguments of a build are where nobody gives them."""
    found = (shell_words.setting(token.word) for token in shell_words.read(piece.body).tokens if token.word is not None)
    return {each.name: shell.assignment(piece, each, "image") for each in found if each is not None}


def _with_default(each: Assignment, piece: Piece, defaults: dict[str, Assignment]) -> Assignment:
    """`ENV NAME=$ARGUMENT` with the default of the argument."""
    text = piece.body[each.at - piece.at(0) :] if each.value is None else ""
    given = re.match(rf"{re.escape(each.name)}(?:=|[ \t]+)\"?\$(?:(\w+)|\{{(\w+)\}})\"?(?:\s|$)", text, re.A)
    default = defaults.get(given[1] or given[2]) if given is not None else None
    if default is None or default.value is None:
        return each
    return replace(each, value=default.value, span=default.span, fallback=True)


def _env(piece: Piece) -> Iterator[Assignment]:
    words = [token.word for token in shell_words.read(piece.body).tokens if token.word is not None]
    settings = [shell_words.setting(word) for word in words]
    if words and settings[0] is None and words[0].text and watched(words[0].text):
        # The old form, `ENV NAME VALUE`: the rest of the line is the value.
        name = words[0].text
        value = piece.body[words[0].end :].strip()
        begin = piece.body.index(value, words[0].end) if value else len(piece.body)
        unknown = "$" in value or "\\" in value
        yield Assignment(
            name=name,
            value=None if unknown else value.strip("\"'"),
            at=piece.at(words[0].start),
            span=None if unknown else piece.span(begin, begin + len(value)),
            way="image",
            statement=piece.at(0),
        )
        return
    for found in settings:
        if found is not None and watched(found.name):
            yield shell.assignment(piece, found, "image")
