"""Sizes and times as options of measuring verbs give them, and the time of a measurement."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import typer

from topoadvisor.numbers import size_text

_LONGEST_DEADLINE = 86_400
_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)(?:iB|B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_bytes(text: str, *, least: int = 4096, most: int = 1 << 40) -> int:
    """`512M`, `1G`, `4096` as bytes, within these limits: those of what can be measured. Raises BadParameter."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if not least <= size <= most:
        limits = f"from {size_text(least)} to {size_text(most)}"
        raise typer.BadParameter(f"{text!r} is no size {limits}; write 512M or 1G, in powers of 1024")
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
