"""Numbers inside texts that strangers wrote: ASCII digits only, and never more of them than a number can have."""

from __future__ import annotations

import re
from typing import Final

_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_LONGEST: Final = 70
"""Letters of 64 bits in binary, and a few more, so that a longer text is no number."""
_RUNS: Final = re.compile(r"([0-9]{1,18})|([^0-9]+)")


def whole(text: str | None) -> int | None:
    """The number that the text is; None when it is anything else, or beyond 64 bits."""
    return int(text) if text and _WHOLE.fullmatch(text) else None


def spelled(text: str | None) -> int | None:
    """A number of 64 bits as the kernel and others spell it: decimal, `0x…`, `0o…`, with a sign; None otherwise."""
    try:
        number = int((text or "").strip()[:_LONGEST], 0)
    except ValueError:
        return None
    return number if -(1 << 63) <= number < 1 << 63 else None


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key in which `mlx5_2` stands before `mlx5_10`."""
    return tuple((0, int(digits), "") if digits else (1, 0, other) for digits, other in _RUNS.findall(name))
