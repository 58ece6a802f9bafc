"""Makefiles: what they export to their recipes, and what the recipes set, also by variables that hold parts of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from topoadvisor.lint.model import Assignment, Contents, watched
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import launchers, shell, shell_words

_DEFINES: Final = re.compile(
    r"(?P<target>[^\s:=#][^:=#]*:[ \t]*)?(?:(?:override|private)[ \t]+)*(?P<export>export[ \t]+)?"
    r"(?P<name>[A-Za-z_]\w*)[ \t]*(?P<how>[?+]|:{1,3})?=[ \t]*(?P<value>.*)",
    re.A,
)
_EXPORTS: Final = re.compile(r"[ ]*export(?P<names>(?:[ \t]+[A-Za-z_]\w*)*)[ \t]*(?:#.*)?", re.A)
_EXPORTS_ALL: Final = re.compile(r"^\.EXPORT_ALL_VARIABLES[ \t]*:", re.M)
_SCRIPT: Final = re.compile(
    r"^[ ]*(?:(?:override|export)[ \t]+)*define[ \t]+(?P<name>\S+).*\n"
    r"(?P<script>(?:(?![ ]*define\b).*\n)*?)[ \t]*endef\b",
    re.M,
)
_PARTS: Final = re.compile(
    r"^[ ]*(?:(?:override|export|private)[ \t]+)*(?P<name>[\w.-]+)[ \t]*(?:[?+]|:{1,3})?=[ \t]*"
    r"(?P<script>(?:.*\\\r?\n)*.*)",
    re.M | re.A,
)
_EXPANDED: Final = re.compile(r"\$[({](?:call[ \t]+)?([\w.-]+)[)},]", re.A)
_PRINTS: Final = re.compile(r"^\t[ \t@+-]*(?:echo|printf)\b.*$|\$\((?:info|warning|error)\b.*$", re.M)
"""Lines that show a text to people."""
_PREFIX: Final = re.compile(r"\t[ \t@+-]*")


def read(piece: Piece) -> Contents:
    """Everything that a Makefile sets. A variable that it neither exports nor writes into a recipe reaches nobody."""
    defined: list[tuple[bool, Assignment]] = []
    exported: set[str] = set()
    everything = _EXPORTS_ALL.search(piece.body) is not None
    whole, piece = piece, _without_scripts(piece)
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
    for at, inside in _parts(whole, piece):
        shell.merge(contents, inside, at=at)
    contents.assignments += [each for exports, each in defined if exports or everything or each.name in exported]
    return contents


def _without_scripts(piece: Piece) -> Piece:
    """With blanks in the place of what stands between `define` and `endef`."""
    return piece.written(_SCRIPT.sub(lambda match: re.sub(r"[^\r\n]", " ", match[0]), piece.body))


def _parts(whole: Piece, plain: Piece) -> Iterator[tuple[int, Contents]]:
    """What variables that others of its lines expand hold of commands: (where, what it sets)."""
    expanded = set(_EXPANDED.findall(_PRINTS.sub("", whole.body)))
    for piece, pattern in ((whole, _SCRIPT), (plain, _PARTS)):
        for match in pattern.finditer(piece.body):
            name, (begin, end) = match["name"], match.span("script")
            if watched(name) or name not in expanded:
                continue
            part = piece.cut(begin, end)
            part = part.written(part.body.replace("$$", "$_"))
            words = [token.word for token in shell_words.read(part.body).tokens if token.word is not None]
            if words and (words[0].text or "").startswith("-"):
                given = [each.setting for each in launchers.options(words) if each.setting is not None]
                inside = Contents([shell.assignment(part, each, "launcher") for each in given if watched(each.name)])
            else:
                inside = shell.read(part)
                # Without a command, these stand in front of one where the variable is used.
                inside.assignments = [
                    replace(each, way="command") if each.way == "plain" else each for each in inside.assignments
                ]
            yield piece.at(begin), inside


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
