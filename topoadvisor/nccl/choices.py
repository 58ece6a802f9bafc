"""The lists in NCCL_ALGO and NCCL_PROTO (`parseList` in `src/graph/tuning.cc`), by release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from topoadvisor.nccl import versions

FUNCTIONS: Final = frozenset({"broadcast", "reduce", "allgather", "reducescatter", "allreduce"})
ALGORITHMS: Final = frozenset({"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"})
PROTOCOLS: Final = frozenset({"ll", "ll128", "simple"})

KNOWS: Final[Mapping[str, frozenset[str]]] = {
    "broadcast": frozenset({"ring"}),
    "reduce": frozenset({"ring"}),
    "allgather": frozenset({"ring", "collnetdirect", "nvls", "pat"}),
    "reducescatter": frozenset({"ring", "collnetdirect", "nvls", "pat"}),
    "allreduce": ALGORITHMS - {"pat"},
}
"""Function → algorithms that it has (`ncclTopoTuneModel` in `src/graph/tuning.cc`)."""

SPELLING: Final = {
    **{
        name.lower(): name
        for name in ("Tree", "Ring", "CollNet", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
    },
    **{name.lower(): name for name in ("LL", "LL128", "Simple")},
}
"""The words as NCCL writes them."""

STRICT_SINCE: Final = "2.24.3"
"""First release that knows functions and `;`, and that ends initialization for a word it does not know."""

FALLS_BACK_SINCE: Final = "2.8.3"
"""First release that, up to `STRICT_SINCE`, goes on with Ring and Tree where a list leaves no algorithm."""

_ALGORITHM_LIFE: Final[Mapping[str, tuple[str, str | None]]] = {
    "tree": ("2.5.6", None),
    "ring": ("2.5.6", None),
    "collnet": ("2.6.4", "2.14.3"),
    "collnetdirect": ("2.14.3", None),
    "collnetchain": ("2.14.3", None),
    "nvls": ("2.17.1", None),
    "nvlstree": ("2.18.1", None),
    "pat": ("2.23.4", None),
}
"""Algorithm → release that brought it, release that dropped it (`ncclAlgoStr`)."""


@dataclass(frozen=True)
class Choice:
    """One entry: `allreduce:^LL128` is function `allreduce`, inverted, names `("ll128",)`. Names are in lower case."""

    function: str | None
    """None = all collectives."""
    inverted: bool
    names: tuple[str, ...]


@dataclass(frozen=True)
class ListReading:
    """What NCCL makes of such a list."""

    choices: tuple[Choice, ...]
    error: str | None
    """Why initialization ends; None = it does not."""
    ignored: tuple[str, ...] = ()
    """Words that are dropped without a message."""


def parse(text: str) -> list[Choice]:
    """The entries between `;`. NCCL compares names without regard to case, trims no blanks and skips empty pieces."""
    return [_choice(entry) for entry in text.lower().split(";") if entry]


def _choice(entry: str) -> Choice:
    # strtok: runs of a separator count as one, and what follows a second colon is never looked at.
    pieces = [piece for piece in entry.split(":") if piece]
    function, listed = (pieces[0], pieces[1]) if len(pieces) > 1 else (None, pieces[0] if pieces else "")
    inverted = listed.startswith("^")
    return Choice(function, inverted, tuple(name for name in listed.removeprefix("^").split(",") if name))


def algorithms(version: str | None = None) -> frozenset[str]:
    """The algorithms that a release knows, in lower case; None = the newest. Raises ValueError for no version."""
    if version is None:
        return ALGORITHMS
    return frozenset(
        name
        for name, (since, until) in _ALGORITHM_LIFE.items()
        if versions.at_least(version, since) and not (until and versions.at_least(version, until))
    )


def read(text: str, names: frozenset[str], version: str | None = None) -> ListReading:
    """A whole value; `names` are the words of its kind. Raises ValueError when `version` is no version."""
    if version is not None and not versions.at_least(version, STRICT_SINCE):
        return _read_before_2_24_3(text, names)
    entries = [entry for entry in text.split(";") if entry]
    if any(not entry.strip(":") for entry in entries):
        return ListReading((), "an entry is nothing but colons, and NCCL crashes on it")
    choices = tuple(parse(text))
    # NCCL compares the address of the entry with that of the text, so a leading `;` already makes it not the first.
    for number, choice in enumerate(choices):
        if choice.function is None and (number > 0 or text.startswith(";")):
            return ListReading(choices, "only the first entry may lack a function")
        if choice.function is not None and choice.function not in FUNCTIONS:
            return ListReading(choices, f"it knows no function `{choice.function}`")
        wrong = next((name for name in choice.names if name not in names), None)
        if wrong is not None:
            return ListReading(choices, f"it does not know `{wrong}`")
    return ListReading(choices, None)


def _read_before_2_24_3(text: str, names: frozenset[str]) -> ListReading:
    inverted = text.startswith("^")
    words = [word for word in text.lower().removeprefix("^").split(",") if word]
    kept = tuple(word for word in words if word in names)
    return ListReading((Choice(None, inverted, kept),), None, tuple(word for word in words if word not in names))


def forces_ll128(text: str) -> bool:
    """Whether a NCCL_PROTO value enables LL128 past NCCL's own safety check, for some collective.

    A list that names LL128 does, and so does an exclusion list that does not name it: `^LL` allows everything else.
    """
    return any(("ll128" in choice.names) != choice.inverted for choice in parse(text))


def needs_nvls(text: str) -> bool:
    """Whether a NCCL_ALGO value leaves all_reduce nothing but NVLink SHARP."""
    left = ALGORITHMS
    for choice in parse(text):
        if choice.function in (None, "allreduce") and choice.names:
            named = frozenset(choice.names)
            left = ALGORITHMS - named if choice.inverted else ALGORITHMS & named
    return bool(left) and left <= {"nvls", "nvlstree"}


def unknown_words(text: str, names: frozenset[str]) -> list[str]:
    """What NCCL does not know in a value, and since 2.24.3 dies of. `names` are those allowed."""
    return list(_unknown(parse(text), names))


def _unknown(choices: list[Choice], names: frozenset[str]) -> Iterator[str]:
    yield from (choice.function for choice in choices if choice.function and choice.function not in FUNCTIONS)
    yield from (name for choice in choices for name in choice.names if name not in names)
