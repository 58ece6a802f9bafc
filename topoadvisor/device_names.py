"""Names of devices in the order in which people count them."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"([0-9]{1,18})")


def natural_key(name: str) -> list[tuple[bool, int, str]]:
    """Sort key in which `mlx5_2` stands before `mlx5_10`."""
    return [
        (is_number, int(part) if is_number else 0, part)
        for place, part in enumerate(_DIGITS.split(name))
        for is_number in (place % 2 == 1,)
    ]
