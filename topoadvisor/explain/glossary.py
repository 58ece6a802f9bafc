"""Terms of the field, from `glossary.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from topoadvisor import compiled

FILE: Final = Path(__file__).with_name("glossary.yaml")


class Term(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One word of the field."""

    name: str
    what: str
    also: list[str] = []
    """Other spellings."""
    see: list[str] = []
    """Related terms and variables."""


@cache
def terms() -> dict[str, Term]:
    """Every term by name, in the order of the file."""
    return {term.name: term for term in compiled.read(FILE, list[Term], entries)}


def entries(path: Path) -> list[list[dict[str, object]]]:
    """Each term of the file."""
    return [[{"name": name, **row}] for each in compiled.entries(path) for name, row in each.items()]


def find(word: str) -> Term | None:
    """The term with this name or spelling, in any case."""
    wanted = word.lower()
    return next(
        (term for term in terms().values() if wanted in (term.name.lower(), *(other.lower() for other in term.also))),
        None,
    )
