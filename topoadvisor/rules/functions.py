"""Functions that conditions may call beyond CEL's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
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


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern, in the syntax of RE2 as CEL has it, is found in the text.

    Raises ValueError when it is no pattern.
    """
    return _prepared(pattern).search(text) is not None


@lru_cache(maxsize=4096)
def _prepared(pattern: str) -> Any:
    import re2  # only where a pattern is asked for

    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (reason,) = error.args
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"`{pattern}` is no pattern: {text}") from None


@dataclass(frozen=True)
class Function:
    """One function and the kinds of the values that it takes."""

    call: Callable[..., Any]
    takes: tuple[type, ...]
    wants: str
    """What it takes, in words."""

    def accepts(self, values: Sequence[Any]) -> bool:
        """Whether the values are as many and of the kinds that it takes."""
        return len(values) == len(self.takes) and all(map(_is_a, values, self.takes))


def _is_a(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, kind)


FUNCTIONS: Final[Mapping[str, Function]] = {
    "version_ge": Function(version_ge, (str, str), "two texts"),
    "matches_set": Function(matches_set, (str, list), "a text and a list of texts"),
    "matches": Function(matches, (str, str), "a text and a pattern"),
}
"""By name. The library has a `matches` of its own, which prepares its pattern anew whenever it is asked."""
