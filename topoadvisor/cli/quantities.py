"""Sizes and times as options of measuring verbs give them, and the time of a measurement."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import typer

_LONGEST_DEADLINE = 86_400
_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)(?:iB|B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_bytes(text: str) -> int:
    """`512M`, `1G`, `4096` as bytes. Raises BadParameter."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if not 4096 <= size <= 1 << 40:
        raise typer.BadParameter(f"{text!r} is no size from 4K to 1024G; write 512M or 1G, in powers of 1024")
    return size


def some_bytes(text: str) -> int:
    """The same for what is only reckoned with, from 1 byte on: `1G`, `64K`, `8`. Raises BadParameter."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if not 1 <= size <= 1 << 44:
        raise typer.BadParameter(f"{text!r} is no size from 1 byte to 16384G; write 512M or 1G, in powers of 1024")
    return size


def seconds(text: str) -> float:
    """Seconds of a deadline. Raises BadParameter."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 1 <= value <= _LONGEST_DEADLINE:  # nan is neither
        raise typer.BadParameter(f"{text!r} is no number of seconds from 1 to {_LONGEST_DEADLINE}")
    return value


def now() -> str:
    """The time of a measurement: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
