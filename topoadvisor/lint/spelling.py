"""Names that are meant for others: by a letter, by the order of letters."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from topoadvisor.nccl import settings

_BEGINNING: Final = "NCCL"


def one_letter_apart(one: str, other: str) -> bool:
    """Whether one letter too many, too few, wrong, or exchanged with the next makes the difference."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[:2][::-1] and a[2:] == b[2:])


def nearest(name: str) -> list[str]:
    """The real names that a name of NCCL's kind was probably meant to be, best first; none when none is near."""
    from difflib import get_close_matches

    if f"TORCH_{name}" in settings.neighbours():
        return [f"TORCH_{name}"]
    found = get_close_matches(name[:100], settings.registry(), n=2, cutoff=0.85)
    return found[:1] if found and one_letter_apart(name, found[0]) else found


@lru_cache(4096)
def wrong_beginning(name: str) -> str | None:
    """The variable of NCCL whose name has only its beginning misspelt: `NCLL_DEBUG`, `NCC_DEBUG`, `NCCLDEBUG`.

    Another first letter is another library: RCCL, HCCL, oneCCL.
    """
    if not name.startswith("N") or name.startswith(f"{_BEGINNING}_"):
        return None
    beginning, blank, rest = name.partition("_")
    if beginning.startswith(_BEGINNING) and f"{_BEGINNING}_{name[4:]}" in settings.registry():
        return f"{_BEGINNING}_{name[4:]}"
    close = one_letter_apart(beginning, _BEGINNING) or sorted(beginning) == sorted(_BEGINNING)
    meant = f"{_BEGINNING}_{rest}"
    return meant if blank and close and meant in settings.registry() else None
