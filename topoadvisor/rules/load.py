"""The rules that apply."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from topoadvisor import compiled, files
from topoadvisor.rules.model import Rule


def load(directories: Sequence[Path] = ()) -> list[Rule]:
    """The shipped rules and those of more directories (or single files), by id.

    Raises InputError for the first fault.
    """
    shipped = files.shipped("rules")
    return list(_once(shipped)) if not directories else _read([shipped, *directories])


@cache
def _once(shipped: Path) -> list[Rule]:
    """The shipped rules: they do not change while a program runs, and some commands analyse many machines."""
    rules: list[Rule] = []
    for path in shipped.glob("*.yaml"):
        if (found := compiled.load(path, list[Rule])) is None:
            return _read([shipped])
        rules += found
    return sorted(rules, key=lambda rule: rule.id)


def _read(directories: Sequence[Path]) -> list[Rule]:
    from topoadvisor.rules import rule_file

    return rule_file.sound(directories)
