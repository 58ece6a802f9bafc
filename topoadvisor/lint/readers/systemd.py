"""Units of systemd, and of Podman in the same form: `Environment=` and the commands of a service."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from topoadvisor.lint.model import Contents, Remark, watched
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import shell, shell_words

_LINE: Final = re.compile(r"^[ \t]*(?P<key>[A-Za-z]+)[ \t]*=[ \t]*(?P<text>(?:[^\\\r\n]|\\\r?\n|\\.)*)", re.M)
_SPECIFIER: Final = re.compile(r"%(?=[a-zA-Z%])")


def read(piece: Piece) -> Contents:
    """Everything that a unit sets, for a service that stays."""
    contents = Contents()
    for match in _LINE.finditer(piece.body):
        text = piece.cut(*match.span("text"))
        if match["key"] == "Environment":
            _environment(text, contents)
        elif match["key"].startswith("Exec"):
            # Letters in front of a command say how it is run.
            command = text.written(re.sub(r"\A[@\-:+!|]+", lambda found: " " * len(found[0]), text.body))
            shell.merge(contents, shell.read(command, way="service"), at=text.at(0))
        elif match["key"] == "PassEnvironment":
            contents.uses |= set(text.body.split())
    return contents


def _environment(text: Piece, contents: Contents) -> None:
    # Nothing is expanded here but specifiers such as %h.
    body = text.body.replace("$", "_")
    for token in shell_words.read(body).tokens:
        found = shell_words.setting(token.word) if token.word is not None else None
        if found is not None and watched(found.name):
            value = text.body[slice(*found.span)] if found.span else found.value
            unknown = value is None or _SPECIFIER.search(value) is not None
            read = shell.assignment(text, replace(found, value=None if unknown else value), "service")
            contents.assignments.append(read)
        elif token.word is not None and contents.assignments and contents.assignments[-1].at >= text.at(0):
            last = contents.assignments[-1]
            message = f"a blank ends the value of {last.name}: put quotes around NAME=VALUE as a whole"
            contents.remarks.append(Remark("ENV122", text.at(token.start), message, last.name))
