"""Numbers: read from texts that strangers wrote, never more digits than a number can have; sizes in words."""

from __future__ import annotations

import re
from typing import Final

_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_LONGEST: Final = 70
"""Letters of 64 bits in binary, and a few more, so that a longer text is no number."""
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
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


def size_text(size_bytes: int) -> str:
    """`1 GiB`, `1.5 KiB`, `8 bytes`: binary units, four significant digits; what is negative is `unlimited`."""
    if size_bytes < 0:
        return "unlimited"
    power = min((max(size_bytes, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    unit = "byte" if size_bytes == 1 else _UNITS[power]
    return f"{size_bytes / 1024**power:.4g} {unit}"


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key in which `mlx5_2` stands before `mlx5_10`."""
    return tuple((0, int(digits), "") if digits else (1, 0, other) for digits, other in _RUNS.findall(name))
