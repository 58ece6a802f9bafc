"""Makefiles: what they export to their recipes, and what the recipes set."""

from __future__ import annotations

import re
from typing import Final

from topoadvisor.lint.model import Assignment, Contents, watched
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import shell

_DEFINES: Final = re.compile(
    r"(?P<target>[^\s:=#][^:=#]*:[ \t]*)?(?:(?:override|private)[ \t]+)*(?P<export>export[ \t]+)?"
    r"(?P<name>[A-Za-z_]\w*)[ \t]*(?P<how>[?+]|:{1,3})?=[ \t]*(?P<value>.*)",
    re.A,
)
_EXPORTS: Final = re.compile(r"[ ]*export(?P<names>(?:[ \t]+[A-Za-z_]\w*)*)[ \t]*(?:#.*)?", re.A)
_EXPORTS_ALL: Final = re.compile(r"^\.EXPORT_ALL_VARIABLES[ \t]*:", re.M)
_PREFIX: Final = re.compile(r"\t[ \t@+-]*")


def read(piece: Piece) -> Contents:
    """Everything that a Makefile sets. A variable that it neither exports nor writes into a recipe reaches nobody."""
    defined: list[tuple[bool, Assignment]] = []
    exported: set[str] = set()
    everything = _EXPORTS_ALL.search(piece.body) is not None
    recipes, start, continued = [], 0, False
    for line in piece.body.splitlines(keepends=True):
        text = line.rstrip("\r\n")
        if (prefix := _PREFIX.match(text)) is not None and not continued:
            # `$$` is the shell's `$`; the letter in its place keeps the length.
            recipes.append(" " * prefix.end() + line[prefix.end() :].replace("$$", "$_"))
            start += len(line)
            continue
        recipes.append(re.sub(r"[^\r\n]", " ", line))
        if not continued and (each := _EXPORTS.fullmatch(text)) is not None:
            exported |= set(each["names"].split())
            everything |= not each["names"]
        elif not continued and (match := _DEFINES.fullmatch(text.lstrip(" "))) is not None and watched(match["name"]):
            indent = len(text) - len(text.lstrip(" "))
            defined.append((match["export"] is not None, _defined(piece, match, start, start + indent)))
        continued = text.endswith("\\")
        start += len(line)
    contents = shell.read(piece.written("".join(recipes)))
    contents.assignments += [each for exports, each in defined if exports or everything or each.name in exported]
    return contents


def _defined(piece: Piece, match: re.Match[str], statement: int, begin: int) -> Assignment:
    """A definition; quotes are letters of its value, and a comment ends it."""
    value = match["value"].partition("#")[0].rstrip()
    known = "$" not in value and not value.endswith("\\") and match["how"] != "+"
    at = begin + match.start("value")
    return Assignment(
        name=match["name"],
        value=value if known else None,
        at=piece.at(begin + match.start("name")),
        span=piece.span(at, at + len(value)) if known else None,
        way="file",
        fallback=match["how"] == "?",
        statement=piece.at(statement),
        # What is set for one target is of its own.
        group=piece.at(statement) + 1 if match["target"] else 0,
    )
