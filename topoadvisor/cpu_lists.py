"""Sets of CPUs or NUMA nodes as the kernel writes them: lists (`0-3,8`) and masks (`00000000,0000010f`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST = 1 << 17
"""Numbers beyond this are no CPU."""

_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_WORDS = re.compile(r"[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{1,8})*")


def parse(text: str) -> set[int] | None:
    """The numbers of a list; None when it is none. Empty text is the empty set."""
    numbers: set[int] = set()
    count = 0
    for part in text.split(",") if text.strip() else ():
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        count += last - first + 1
        if last < first or last > MOST or count > MOST:
            return None
        numbers.update(range(first, last + 1))
    return numbers


def is_printed(text: str) -> bool:
    """The text is a list as programs print it: every number once, ascending, without zeros in front."""
    before = -1
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return False
        numbers = [int(number) for number in match.groups() if number is not None]
        if part != "-".join(map(str, numbers)) or not before < numbers[0] <= numbers[-1] <= MOST:
            return False
        before = numbers[-1]
    return True


def parse_mask(text: str) -> set[int] | None:
    """The numbers of a mask of 32-bit words, highest first; None when it is none."""
    if len(text) > MOST or not _WORDS.fullmatch(text.strip()):
        return None
    return set(of_bits(int("".join(word.zfill(8) for word in text.strip().split(",")), 16)))


def of_bits(mask: int) -> list[int]:
    """The places of the ones in a mask, ascending."""
    return [place for place, bit in enumerate(reversed(f"{mask:b}")) if bit == "1"]


def spell(numbers: Iterable[int]) -> str:
    """The list, `0-3,8`; empty text for no number."""
    parts: list[str] = []
    first = last = -2
    for number in [*sorted(numbers), -1]:
        if number == last + 1:
            last = number
            continue
        if first >= 0:
            parts.append(f"{first}-{last}" if last > first else str(first))
        first = last = number
    return ",".join(parts)
