"""NCCL's path types, and how its level and number variables are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from topoadvisor.nccl import versions


class NcclPath(IntEnum):
    """NCCL's path types, nearest first, as its debug log names them.

    The numbers are those of NCCL 2.27.5 to 2.30.7 (`src/include/graph.h`), not the digits that a user may write.
    """

    LOC = 0
    NVL = 1
    NVB = 2
    C2C = 3
    PIX = 4
    PXB = 5
    P2C = 6
    PXN = 7
    PHB = 8
    SYS = 9
    NET = 10
    DIS = 11


@dataclass(frozen=True)
class LevelReading:
    """What NCCL makes of the text of a level variable."""

    level: NcclPath | None
    """None = the text changes nothing, NCCL keeps its default."""
    ignored: bool
    surprise: str | None = None
    """What a reader of the text would not expect, in one sentence."""


_NAMES_SINCE: Final = {
    NcclPath.LOC: "2.6.4",
    NcclPath.NVL: "2.6.4",
    NcclPath.NVB: "2.8.3",
    NcclPath.C2C: "2.26.2",
    NcclPath.PIX: "2.6.4",
    NcclPath.PXB: "2.6.4",
    NcclPath.P2C: "2.27.3",
    NcclPath.PXN: "2.12.7",
    NcclPath.PHB: "2.6.4",
    NcclPath.SYS: "2.6.4",
}
"""First release whose `topoPathTypeStr` (`src/graph/topo.cc`) has the name. NET and DIS are never accepted."""

_LEGACY: Final = (NcclPath.LOC, NcclPath.PIX, NcclPath.PXB, NcclPath.PHB, NcclPath.SYS, NcclPath.SYS)
"""What the digits mean since 2.6.4 (`levelsOldToNew` in `src/graph/paths.cc`)."""


def names() -> list[tuple[NcclPath, str, list[str]]]:
    """(level, first release that knows its name, old digits for it), nearest first."""
    return [
        (path, since, [str(digit) for digit, level in enumerate(_LEGACY) if level is path])
        for path, since in _NAMES_SINCE.items()
    ]


_MERGE_LEVELS: Final = {
    "LOC": NcclPath.LOC,
    "PORT": NcclPath.NVL,
    "PIX": NcclPath.PIX,
    "PXB": NcclPath.PXB,
    "P2C": NcclPath.P2C,
    "PXN": NcclPath.PXN,
    "PHB": NcclPath.PHB,
    "SYS": NcclPath.SYS,
}
"""`nicPathKvList` in `src/graph/topo.cc`, in its order. PORT has the number of NVL."""

_STRTOLL: Final = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


def parse_int(text: str) -> int | None:
    """The number that NCCL reads (`strtoll`, base 0): hex after 0x, octal after 0, the rest of the text is dropped.

    A text without a number is 0. None = NCCL keeps its default: the text is empty, or the number has more than 64 bits.
    """
    if not text:
        return None
    value = _strtol(text)
    return value if -(2**63) <= value < 2**63 else None


def _strtol(text: str) -> int:
    match = _STRTOLL.match(text)
    if match is None:
        return 0
    digits = match[2].lower()
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    if base == 10:
        digits = digits[:30]  # far beyond 64 bits already, and Python refuses decimal texts of thousands of digits
    return int(match[1] + digits, base)


def parse_level(text: str, version: str | None = None) -> LevelReading:
    """NCCL_P2P_LEVEL or NCCL_NET_GDR_LEVEL as `ncclGetLevel` reads it (`src/graph/paths.cc`).

    Names count only exactly as `NcclPath` spells them; otherwise the first character decides whether it is one of the
    old digits; anything else is ignored without a word. Before 2.6.4 only numbers counted.

    `version` is NCCL's; None = the newest known. Raises ValueError when it is no version.
    """
    if version is not None and not versions.at_least(version, "2.6.4"):
        return _level_before_2_6_4(text, version)
    for path, since in _NAMES_SINCE.items():
        if text == path.name:
            if version is None or versions.at_least(version, since):
                return LevelReading(path, ignored=False)
            return LevelReading(None, ignored=True, surprise=f"NCCL knows the level {text} only since {since}")
    if text[:1] in tuple("0123456789"):
        return _level_of_digits(text)
    return LevelReading(None, ignored=True, surprise=_why_unknown(text))


def _level_of_digits(text: str) -> LevelReading:
    # strtol stops at the largest long, and the assignment to an int keeps its low 32 bits.
    number = min(_strtol(text), 2**63 - 1) & 0xFFFFFFFF
    if number >= 2**31:
        return LevelReading(
            None, ignored=True, surprise="the number overflows, and NCCL reads past its table of levels"
        )
    level = _LEGACY[min(number, len(_LEGACY) - 1)]
    plain = text in ("0", "1", "2", "3", "4", "5")
    return LevelReading(
        level, ignored=False, surprise=None if plain else f"NCCL reads {number}, which means {level.name}"
    )


def _why_unknown(text: str) -> str | None:
    if not text:
        return None
    word = text.strip().strip("\"'").upper()
    if word == "NODE":
        return "NODE is a word of nvidia-smi, NCCL ignores it; its level PHB is meant"
    if word in {path.name for path in _NAMES_SINCE}:
        return f"NCCL ignores it, because only exactly {word} counts"
    return "NCCL ignores it, because it is no level"


def _level_before_2_6_4(text: str, version: str) -> LevelReading:
    # The number was compared as `distance < level`, and NVLink was asked before the distance, but after `level == 0`.
    number = parse_int(text)
    if number is None or number == -2:
        return LevelReading(None, ignored=True)
    if number < 0:
        return LevelReading(NcclPath.NVL, ignored=False, surprise="a negative level leaves only NVLink")
    # Distance 3 was NODE, a neighbour of PHB, since 2.4.6, and SOC, across sockets, before.
    farthest = NcclPath.PHB if versions.at_least(version, "2.4.6") else NcclPath.SYS
    by_number = (NcclPath.LOC, NcclPath.PIX, NcclPath.PXB, NcclPath.PHB, farthest, NcclPath.SYS)
    level = by_number[min(number, 5)]
    surprise = None
    if text != str(number):
        surprise = f"NCCL before 2.6.4 knows only numbers and reads {number}, which means {level.name}"
    return LevelReading(level, ignored=False, surprise=surprise)


def user_p2p_level(disable: str | None, level: str | None, version: str | None = None) -> LevelReading:
    """The P2P level that the texts of NCCL_P2P_DISABLE and NCCL_P2P_LEVEL give together; None = not set.

    NCCL_P2P_DISABLE acts only when it is 1. It wins since 2.6.4; before, NCCL_P2P_LEVEL did.
    Raises ValueError when `version` is no version.
    """
    reading = LevelReading(None, ignored=True) if level is None else parse_level(level, version)
    if disable is None or parse_int(disable) != 1:
        return reading
    level_wins = version is not None and not versions.at_least(version, "2.6.4")
    if level_wins and not reading.ignored:
        return reading
    return LevelReading(NcclPath.LOC, ignored=False)


def parse_merge_level(text: str) -> LevelReading:
    """NCCL_NET_MERGE_LEVEL as `kvConvertToInt` reads it: the first known name that the text begins with.

    Unlike the other levels, a text that is not known does something: it becomes LOC, which switches fusion off.
    PORT, the default, is returned as NVL, whose number it has.
    """
    for name, path in _MERGE_LEVELS.items():
        if text.startswith(name):
            surprise = None if text == name else f"NCCL reads {name} and drops the rest"
            return LevelReading(path, ignored=False, surprise=surprise)
    return LevelReading(
        NcclPath.LOC, ignored=False, surprise="NCCL does not know it and takes LOC, which fuses no NICs at all"
    )


_PRINTED: Final = (
    ("2.6.4", (0, 1, 4, 5, 8, 9, 10)),
    ("2.8.3", (0, 1, 2, 4, 5, 8, 9)),
    ("2.12.7", (0, 1, 2, 4, 5, 7, 8, 9)),
    ("2.18.1", (0, 1, 2, 4, 5, 7, 8, 9, 10, 11)),
    ("2.26.2", (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11)),
    ("2.27.3", (0, 1, 2, 3, 4, 5, 7, 6, 8, 9, 10, 11)),
    ("2.27.5", tuple(range(12))),
)
"""First release → the path type of each number (`PATH_*` in `src/include/graph.h` of that release)."""


def printed_path(number: int | None, version: str | None) -> str | None:
    """The name of a distance as that version's log prints it: 5 is PXB in 2.28, and PHB in 2.10; None = not known.

    Raises ValueError when `version` is no version.
    """
    if number is None or version is None:
        return None
    table = [paths for since, paths in _PRINTED if versions.at_least(version, since)]
    return NcclPath(table[-1][number]).name if table and number < len(table[-1]) else None
