"""Functions that conditions may call beyond CEL's own. They never raise on a text: the CEL library would print that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from topoadvisor.nccl import selection, versions


def version_ge(a: str, b: str) -> bool:
    """Whether version `a` is `b` or newer; missing parts count as 0. False when one of them is no version."""
    try:
        return versions.at_least(a, b)
    except ValueError:
        return False


def matches_set(pattern: str, names: list[str]) -> list[str]:
    """The names that a pattern in the style of NCCL_IB_HCA selects, in their order; ports are not looked at."""
    selected = selection.parse(pattern)
    return [name for name in names if selected.picks(name)]


def exact(pattern: str) -> str:
    """The same pattern with `=`, so that its names are exact."""
    exclude = "^" if pattern.startswith("^") else ""
    return f"{exclude}={pattern.removeprefix('^').removeprefix('=')}"


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"version_ge": version_ge, "matches_set": matches_set}
"""By name."""
