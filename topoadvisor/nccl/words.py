"""Words that NCCL knows: log levels, subsystems, switches, policies; by release."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topoadvisor.nccl import versions
from topoadvisor.nccl.levels import parse_int
from topoadvisor.nccl.selection import atoi

STRICT_SINCE: Final = "2.30.7"
"""First release whose log variables are read by the strict parsers: blanks trimmed, one unknown word rejects all."""
_PER_WORD_BEFORE: Final = "2.5.6"
"""Before, `^` belonged to single words, and the list added to the default."""

_LEVELS: Final[Mapping[str, str]] = {
    "VERSION": "1.2.1",
    "WARN": "1.2.1",
    "ATTN": "2.32.3",
    "INFO": "1.2.1",
    "ABORT": "1.2.1",
    "TRACE": "1.2.1",
}
_SUBSYSTEMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("INIT", "COLL", "P2P", "SHM", "NET"), "2.3.5"),
    **dict.fromkeys(("GRAPH", "TUNING"), "2.5.6"),
    "ENV": "2.7.3",
    "ALLOC": "2.9.9",
    "CALL": "2.13.4",
    "NVLS": "2.17.1",
    "PROXY": "2.18.1",
    **dict.fromkeys(("BOOTSTRAP", "REG"), "2.21.5"),
    "PROFILE": "2.22.3",
    "RAS": "2.24.3",
    "DESTROY": "2.30.3",
    "ALLOC_HOST": "2.30.7",
}
"""Subsystem → first release that knows it (`NCCL_DEBUG_SUBSYS` in `src/debug.cc`)."""
_DEFAULT_MASKS: Final = (("2.23.4", ("INIT", "BOOTSTRAP", "ENV")), ("2.16.5", ("INIT", "ENV")), ("2.3.5", ("INIT",)))

FRACTIONS_SINCE: Final = "2.31.2"
"""First release in which NCCL_RAS_TIMEOUT_FACTOR may have fractions."""
_FLOAT: Final = re.compile(
    r"[ \t\n\v\f\r]*[+-]?(?:(?P<hex>0[xX](?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?\d+)?)"
    r"|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)",
    re.A | re.I,
)
"""A finite number as `strtod` reads it."""
_BLANKS: Final = " \t\n\v\f\r"
_POLICIES: Final = ("DEFAULT", "EFFICIENCY", "ZERO")


@dataclass(frozen=True)
class WordReading:
    """What NCCL makes of a text; `becomes` None = it counts as not set."""

    becomes: str | None
    surprises: tuple[str, ...] = ()


def levels(version: str | None = None) -> tuple[str, ...]:
    """The log levels of a release, quietest first."""
    return tuple(name for name, since in _LEVELS.items() if _since(version, since))


def subsystems(version: str | None = None) -> tuple[str, ...]:
    """The log subsystems of a release, without ALL."""
    return tuple(name for name, since in _SUBSYSTEMS.items() if _since(version, since))


def default_subsystems(version: str | None = None) -> tuple[str, ...]:
    """What is logged when NCCL_DEBUG_SUBSYS is not set."""
    return next((names for since, names in _DEFAULT_MASKS if _since(version, since)), ("INIT",))


def strict_bool(text: str, version: str | None = None) -> WordReading:
    """A switch of the strict kind: 1, T, TRUE, 0, F, FALSE in any case; before `STRICT_SINCE` it was a number."""
    if not _since(version, STRICT_SINCE):
        number = parse_int(text)
        if number is None:
            return WordReading(None)
        plain = text in ("0", "1")
        return WordReading(str(number), () if plain else (f"NCCL before {STRICT_SINCE} reads a number here: {number}",))
    word = text.lower()
    if word in ("1", "t", "true"):
        return WordReading("1")
    if word in ("0", "f", "false"):
        return WordReading("0")
    return WordReading(None, ("only 1, T, TRUE, 0, F and FALSE count; this is as if it were not set",))


def factor(text: str, version: str | None = None) -> WordReading:
    """NCCL_RAS_TIMEOUT_FACTOR (`src/ras/ras_param.cc`): a whole number until 2.31.2, since then one with fractions."""
    if not _since(version, FRACTIONS_SINCE):
        number = parse_int(text)
        why = () if text == str(number) else (f"NCCL before {FRACTIONS_SINCE} reads a whole number here: {number}",)
        return WordReading(None if number is None else str(number), why if text else ())
    if not text:
        return WordReading(None)
    found = _FLOAT.fullmatch(text)
    if found is None:
        return WordReading(None, ("only a finite number with nothing behind it counts; this is as if it were not set",))
    try:
        value = float.fromhex(text.strip(_BLANKS)) if found["hex"] else float(text)
    except OverflowError:
        value = math.inf
    if not 0 < value < math.inf:
        return WordReading(None, ("only a finite number above 0 counts; this is as if it were not set",))
    return WordReading(f"{value:g}")


def debug_level(text: str, version: str | None = None) -> WordReading:
    """NCCL_DEBUG. An unknown word logs nothing, as if it were not set."""
    word = text.strip(_BLANKS) if _since(version, STRICT_SINCE) else text
    known = levels(version)
    if word.upper() in known:
        return WordReading(word.upper())
    if not word:
        return WordReading(None)
    late = _LEVELS.get(word.upper())
    why = f"NCCL knows {word.upper()} only since {late}" if late else f"there is no such level; they are {_list(known)}"
    return WordReading(None, (f"{why}; nothing is logged",))


def debug_subsystems(text: str, version: str | None = None) -> WordReading:
    """NCCL_DEBUG_SUBSYS: the subsystems that are logged, `ALL`, or `none`."""
    known = subsystems(version)
    if not _since(version, _PER_WORD_BEFORE):
        return _per_word(text, known, set(default_subsystems(version)))
    return _bitset(text, known, version, unset=f"the default stays: {','.join(default_subsystems(version))}")


def debug_levels(text: str, version: str | None = None) -> WordReading:
    """NCCL_DEBUG_TIMESTAMP_LEVELS and NCCL_DEBUG_LEVELS: a set of log levels."""
    return _bitset(text, levels(version), version, unset="the default stays")


def _bitset(text: str, known: tuple[str, ...], version: str | None, *, unset: str) -> WordReading:
    strict = _since(version, STRICT_SINCE)
    inverted = text.startswith("^")
    words = [word for word in text.removeprefix("^").split(",") if word]
    if strict:
        words = [trimmed for word in words if (trimmed := word.strip(_BLANKS))]
    wrong = [word for word in words if word.upper() not in (*known, "ALL")]
    if wrong and strict:
        return WordReading(None, (f"{_unknown(wrong[0])}, and one such word discards the whole list; {unset}",))
    named = {word.upper() for word in words}
    listed = set(known) if "ALL" in named else named & set(known)
    chosen = [name for name in known if (name in listed) != inverted]
    surprises = tuple(f"{_unknown(word)} and drops it" for word in wrong)
    if not text:
        surprises = ("an empty list is a list of nothing, and not the default",)
    return WordReading("ALL" if len(chosen) == len(known) else ",".join(chosen) or "none", surprises)


def _per_word(text: str, known: tuple[str, ...], chosen: set[str]) -> WordReading:
    surprises = []
    for word in filter(None, text.split(",")):
        name = word.removeprefix("^").upper()
        if name not in (*known, "ALL"):
            surprises.append(f"{_unknown(word)} and drops it")
            continue
        group = set(known) if name == "ALL" else {name}
        chosen = chosen - group if word.startswith("^") else chosen | group
    return WordReading(",".join(name for name in known if name in chosen) or "none", tuple(surprises))


def _unknown(word: str) -> str:
    meant = {"ALLREDUCE": "COLL", "ALLGATHER": "COLL", "TOPO": "GRAPH", "IB": "NET", "NVLINK": "P2P"}.get(word.upper())
    return f"NCCL does not know `{word}`" + (f" ({meant} is meant)" if meant else "")


def choice(text: str, values: list[str], *, exact: bool) -> WordReading:
    """One of a few words; NCCL trims no blanks, and what it does not know counts as not set."""
    found = next((word for word in values if text == word or (not exact and text.upper() == word.upper())), None)
    if found is not None:
        return WordReading(found)
    case = " in exactly this spelling" if exact else ""
    return WordReading(None, (f"NCCL knows {_list(values)}{case}; this is as if it were not set",) if text else ())


def netdevs_policy(text: str) -> WordReading:
    """NCCL_NETDEVS_POLICY (`getNetDevsPolicyOnce` in `src/graph/topo.cc`): AUTO, ALL or MAX:N."""
    word = text.upper()
    if word in ("AUTO", "ALL"):
        return WordReading(word)
    if word.startswith("MAX:") and (number := atoi(text[4:])) > 0:
        plain = text[4:] == str(number)
        return WordReading(f"MAX:{number}", () if plain else (f"NCCL reads MAX:{number} and drops the rest",))
    return WordReading("AUTO", ("NCCL knows AUTO, ALL and MAX:N with N above 0, and takes AUTO for anything else",))


def cta_policy(text: str, version: str | None = None) -> WordReading:
    """NCCL_CTA_POLICY (`getEnvCtaPolicyOnce` in `src/init.cc`): a digit, since 2.29.2 also names joined by `|`."""
    if not _since(version, "2.29.2"):
        number = parse_int(text)
        if number is None:
            return WordReading(None)
        known = number in range(3 if _since(version, "2.28.3") else 2)
        why = () if known and text == str(number) else (f"this NCCL knows numbers only, and reads {number}",)
        return WordReading(_POLICIES[number] if known else "DEFAULT", why)
    if text[:1] in tuple("0123456789"):
        if text[0] in "012":
            cut = () if len(text) == 1 else (f"NCCL looks at the first digit only: {text[0]}",)
            return WordReading(_POLICIES[int(text[0])], cut)
        return WordReading(None, ("NCCL knows 0, 1 and 2, and keeps its default",))
    words = [word for word in text.split("|") if word]
    named = [word.upper() for word in words if word.upper() in _POLICIES]
    surprises = [f"NCCL does not know `{word}` and drops it" for word in words if word.upper() not in _POLICIES]
    if "ZERO" in named and "EFFICIENCY" in named:
        named = [word for word in named if word != "EFFICIENCY"]
        surprises.append("ZERO and EFFICIENCY exclude each other, and EFFICIENCY goes")
    chosen = [word for word in _POLICIES if word in named and (word != "DEFAULT" or len(set(named)) == 1)]
    return WordReading("|".join(chosen) or None, tuple(surprises))


def _list(words: list[str] | tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _since(version: str | None, first: str) -> bool:
    return version is None or versions.at_least(version, first)
