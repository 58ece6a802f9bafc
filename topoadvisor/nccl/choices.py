"""The lists in NCCL_ALGO and NCCL_PROTO, read as NCCL 2.24 and newer do (parseList in `src/graph/tuning.cc`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

FUNCTIONS: Final = frozenset({"broadcast", "reduce", "allgather", "reducescatter", "allreduce"})
ALGORITHMS: Final = frozenset({"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"})
PROTOCOLS: Final = frozenset({"ll", "ll128", "simple"})


@dataclass(frozen=True)
class Choice:
    """One entry: `allreduce:^LL128` is function `allreduce`, inverted, names `("ll128",)`. Names are in lower case."""

    function: str | None
    """None = all collectives."""
    inverted: bool
    names: tuple[str, ...]


def parse(text: str) -> list[Choice]:
    """The entries between `;`. NCCL compares names without regard to case and trims no blanks."""
    return list(_entries(text.lower()))


def _entries(text: str) -> Iterator[Choice]:
    for entry in text.split(";"):
        function, colon, names = entry.partition(":")
        listed = names if colon else entry
        inverted = listed.startswith("^")
        yield Choice(function if colon else None, inverted, tuple(listed.removeprefix("^").split(",")))


def forces_ll128(text: str) -> bool:
    """Whether a NCCL_PROTO value enables LL128 past NCCL's own safety check, for some collective.

    A list that names LL128 does, and so does an exclusion list that does not name it: `^LL` allows everything else.
    """
    return any(("ll128" in choice.names) != choice.inverted for choice in parse(text)) if text else False


def unknown_words(text: str, names: frozenset[str]) -> list[str]:
    """What NCCL does not know in a value; from 2.24 on one such word ends initialization. `names` are those allowed."""
    choices = parse(text) if text else []
    functions = [choice.function for choice in choices if choice.function is not None]
    wrong = [word for word in functions if word not in FUNCTIONS]
    return wrong + [word for choice in choices for word in choice.names if word not in names]
