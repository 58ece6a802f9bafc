"""Dotted versions: NCCL's, the driver's, the kernel's."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

_DOTTED = re.compile(r"\s*v?([0-9]{1,9}(?:\.[0-9]{1,9})*)")
_CONDITION = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(v?[0-9]{1,9}(?:\.[0-9]{1,9})*)\s*")
_IN_MESSAGE = re.compile(r"\bNCCL version:? ([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{1,2})(?![0-9])", re.I)
_SPLIT_WRONGLY = 20
_OPERATORS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}

_LAST_OF_SERIES = {
    (2, series): last
    for series, last in zip(
        range(3, 33),
        (7, 8, 7, 4, 8, 4, 9, 3, 4, 12, 4, 3, 5, 5, 1, 6, 4, 5, 5, 3, 4, 3, 1, 6, 7, 9, 7, 7, 2, 3),
        strict=True,
    )
}
"""Series 2.3 to 2.32 → last number of its last public release (the tags of https://github.com/NVIDIA/nccl)."""


def parse(version: str | int) -> tuple[int, ...]:
    """The numbers of a version: `2.28.9`, `v2.28.9-1`, `2.28.9+cuda13.0`, `6.8.0-49-generic`; what follows is dropped.

    A number of four or more digits is NCCL's own code: 22809 is 2.28.9, and 2804 is 2.8.4, because the code
    grew a digit with 2.9 (`NCCL_VERSION` in `nccl.h`).

    Raises ValueError for a text that does not begin with a number.
    """
    match = _DOTTED.match(str(version))
    if match is None:
        raise ValueError(f"not a version: {version!r}")
    numbers = tuple(int(part) for part in match[1].split("."))
    if len(numbers) == 1 and numbers[0] >= 1000:
        code = numbers[0]
        base = 10_000 if code >= 10_000 else 1_000
        return code // base, code % base // 100, code % 100
    return numbers


def is_version(text: str) -> bool:
    """Whether `parse` takes the text."""
    try:
        parse(text)
    except ValueError:
        return False
    return True


def release(text: str) -> str:
    """The release that a text names: `v2.28.9-1` and 22809 are 2.28.9; a series is its last release, 2.27 is 2.27.7.

    Raises ValueError for a text that is no version, or too short to name a series.
    """
    numbers = parse(text)
    if len(numbers) == 1:
        raise ValueError(f"not a release: {text!r}")
    if len(numbers) == 2 and numbers in _LAST_OF_SERIES:
        numbers = (*numbers, _LAST_OF_SERIES[numbers])
    return ".".join(map(str, numbers))


def in_message(text: str) -> str | None:
    """The NCCL release that an error or a log names (`NCCL version 2.18.5+cuda12.2`); None for none, or several.

    Older PyTorch split NCCL's own code wrongly, so that it wrote 21.0.3 for 2.10.3 and 20.9.9 for 2.9.9.
    """
    found = set(_IN_MESSAGE.findall(text))
    if len(found) != 1:
        return None
    major, minor, patch = map(int, found.pop())
    if major < _SPLIT_WRONGLY:
        return f"{major}.{minor}.{patch}"
    return ".".join(map(str, parse(str(major * 1_000 + minor * 100 + patch))))


def at_least(version: str | int, minimum: str | int) -> bool:
    """Whether `version` is `minimum` or newer. Missing parts count as 0. Raises ValueError as `parse` does."""
    return _compare(operator.ge, parse(version), parse(minimum))


def satisfies(version: str | int, conditions: str) -> bool:
    """Whether a version meets every one of comma-separated conditions such as `>=2.21,<2.27`.

    Missing parts count as 0, so that 2.27.3 does not meet `<=2.27`. Raises ValueError for a text of another form.
    """
    numbers = parse(version)
    return all(_compare(_OPERATORS[sign], numbers, parse(bound)) for sign, bound in split(conditions))


def split(conditions: str) -> list[tuple[str, str]]:
    """The conditions as (operator, version). Raises ValueError for a text that is not of this form."""
    parts = []
    for condition in conditions.split(","):
        match = _CONDITION.fullmatch(condition)
        if match is None:
            raise ValueError(f"not a version condition such as '>=2.21,<2.27': {conditions!r}")
        parts.append((match[1], match[2]))
    return parts


def _compare(
    test: Callable[[tuple[int, ...], tuple[int, ...]], bool], left: tuple[int, ...], right: tuple[int, ...]
) -> bool:
    width = max(len(left), len(right))
    return test(left + (0,) * (width - len(left)), right + (0,) * (width - len(right)))
