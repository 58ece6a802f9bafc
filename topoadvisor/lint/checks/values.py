"""Values: what NCCL's parsers make of them, by the version judged for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from topoadvisor.lint.document import Severity
from topoadvisor.lint.found import Found, Judge, about, rewritten
from topoadvisor.lint.model import Assignment, Contents, Repair
from topoadvisor.nccl import choices, levels, reading, settings, versions, words
from topoadvisor.nccl.reading import Reading
from topoadvisor.nccl.settings import SettingInfo

_STRICT_WORDS: Final = (words.STRICT_SINCE, "2.30.4")
_BOUNDARIES: Final = (
    (choices.STRICT_SINCE, "2.23.4"),
    _STRICT_WORDS,
    (words.FRACTIONS_SINCE, "2.30.7"),
)
"""Release that brought a stricter parser, and the last one before it that the parsers are asked about."""
_CLOUDS: Final = ("NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "FI_EFA_", "FI_PROVIDER", "OFI_NCCL_")
"""How names of plugins of clouds begin; their guides fix algorithms, protocols and sizes."""
_ON: Final = frozenset({"true", "yes", "on", "enable", "enabled", "y", "t"})
_OFF: Final = frozenset({"false", "no", "off", "disable", "disabled", "n", "f", "none"})
_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"\s*([0-9]+)\s*([kmg])(ib)?\s*", re.I | re.A)
_FUNCTIONS: Final = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "allgather": "AllGather",
    "reducescatter": "ReduceScatter",
    "allreduce": "AllReduce",
}
_LISTS: Final = frozenset({"algo", "proto", "ifname", "hca", "debug-subsys"})


def check(assignment: Assignment, judge: Judge) -> Iterator[Found]:
    """What becomes of the value."""
    if assignment.quote is not None:
        yield _no_text(assignment, judge.version)
        return
    info = settings.find(assignment.name)
    if info is None or assignment.value is None:
        return
    if info.parser is None:
        yield from _neighbour(assignment, info)
        return
    version = judge.version
    if not info.exists_in(version):
        return
    if assignment.surprises and info.parser in ("path", "text", "list"):
        return  # What is wrong with the line is all that is wrong with such a value.
    found = reading.read(info, assignment.value, version)
    if found is None:
        return
    if not found.surprises and not found.fatal:
        if version is None and (info.parser == "strict-bool" or _trimmed(info, assignment.value)):
            yield from _strict_only(assignment, info, assignment.value)
        return
    yield from _judged(assignment, info, assignment.value, found, version)


def _judged(
    assignment: Assignment, info: SettingInfo, text: str, found: Reading, version: str | None
) -> Iterator[Found]:
    forced = [each for each in found.surprises if "LL128" in each]
    surprises = [each for each in found.reasons if each not in forced]
    if not surprises and not found.fatal:
        return  # ENV115 says it.
    repair = _repair(assignment, info, text, version)
    told = "; ".join(surprises) + _before(info, text, found, version)
    shown = f"{info.name}={text}"
    advice = () if repair is not None else _instead(info, found)
    if found.fatal:
        result = f"is read as {found.becomes}, and NCCL dies of it" if found.becomes else "keeps NCCL from starting"
        message = f"{shown} {result}: {told}"
        yield about(assignment, "ENV111", message, becomes=found.becomes, advice=advice, repair=repair)
    elif found.becomes is None:
        yield about(assignment, "ENV113", f"{shown} counts as not set: {told}", advice=advice, repair=repair)
    elif found.outside:
        yield about(assignment, "ENV114", f"{shown} is out of range: {told}", becomes=found.becomes, advice=advice)
    else:
        meant = text.strip().lower() in _OFF and found.becomes == "0" and _is_switch(info)
        severity: Severity | None = "info" if meant else None if _is_number(info) else "warning"
        by_luck = ", which is what is meant, but so is every other word" if meant else ""
        message = f"{shown} is read as {found.becomes}{by_luck}: {told}"
        yield about(
            assignment, "ENV112", message, severity=severity, becomes=found.becomes, advice=advice, repair=repair
        )


def _instead(info: SettingInfo, found: Reading) -> tuple[str, ...]:
    """What to write, where what was meant is not certain."""
    if info.kind == "bytes" and not found.outside:
        return ("Write the number of bytes, without a unit.",)
    if found.outside and info.minimum is not None and info.maximum is not None:
        return (f"Write a number from {info.minimum} to {info.maximum}.",)
    if found.outside and info.minimum is not None:
        return (f"Write a number from {info.minimum} on.",)
    if _is_switch(info) and info.maximum == 2:
        return ("Write 1 to switch it on, 0 to switch it off, or leave it out: NCCL decides by itself.",)
    if _is_switch(info) and _is_number(info):
        return ("Write 1 to switch it on, 0 to switch it off.",)
    return ()


def _before(info: SettingInfo, text: str, found: Reading, version: str | None) -> str:
    """What older releases make of it, when the version is not known and they differ."""
    if version is not None or _is_number(info):
        return ""
    said = []
    for since, last in reversed(_BOUNDARIES):
        if not info.exists_in(last):
            break
        old = reading.read(info, text, last)
        if old is None or (old.becomes, old.fatal) == (found.becomes, found.fatal):
            continue
        result = (
            "NCCL does not start"
            if old.fatal and old.becomes is None
            else f"NCCL takes it as {old.becomes or 'not set'}"
        )
        said.append(f"before {since} {result}")
        found = old
    return f" ({'; '.join(said)})" if said else ""


def _strict_only(assignment: Assignment, info: SettingInfo, text: str) -> Iterator[Found]:
    since, last = _STRICT_WORDS
    if info.exists_in(last):
        old = reading.read(info, text, last)
        new = reading.read(info, text)
        if old is not None and new is not None and old.becomes != new.becomes:
            words_differ = info.parser == "strict-bool"
            instead = "write a number" if words_differ else "leave the blanks out"
            taken = old.becomes or "not set"
            message = f"{info.name}={text} is {new.becomes} since {since}, and {taken} before: {instead}"
            meant = new.becomes if words_differ else "".join(text.split())
            repair = rewritten(assignment, meant) if meant else None
            yield about(assignment, "ENV112", message, severity="info", becomes=old.becomes, repair=repair)


def _trimmed(info: SettingInfo, text: str) -> bool:
    """Whether only the strict parsers pass over the blanks in a value."""
    return (
        info.parser in ("debug", "debug-subsys", "debug-levels")
        and len(text.split()) > 0
        and text != "".join(text.split())
    )


def _is_switch(info: SettingInfo) -> bool:
    return info.kind == "switch" or info.parser in ("bool-int", "strict-bool") or (info.minimum, info.maximum) == (0, 2)


def _is_number(info: SettingInfo) -> bool:
    return info.parser in ("int", "bool-int")


def _repair(assignment: Assignment, info: SettingInfo, text: str, version: str | None) -> Repair | None:
    """The value that was certainly meant, when NCCL takes that one as it stands."""
    meant = _certain(info, text, version)
    return None if meant is None else rewritten(assignment, meant)


def _certain(info: SettingInfo, text: str, version: str | None) -> str | None:
    meant = _meant(info, text)
    if meant is None or meant == text:
        return None
    found = reading.read(info, meant, version)
    if found is None or found.becomes is None or found.fatal or found.surprises:
        return None
    return meant


def _meant(info: SettingInfo, text: str) -> str | None:
    word = text.strip()
    if _is_switch(info) and word.lower() in _OFF:
        return "0"
    # Where 2 means that NCCL looks for itself, `true` may mean that as well as 1.
    if _is_switch(info) and info.maximum != 2 and word.lower() in _ON:
        return "1"
    if info.kind == "bytes" and (match := _SIZE.fullmatch(text)):
        return str(int(match[1][:18]) * _UNITS[match[2].lower()])
    if info.parser == "level" and word.upper() in {path.name for path, _, _ in levels.names()}:
        return word.upper()
    if info.parser == "choice-exact" and (exact := [each for each in info.values if each.upper() == word.upper()]):
        return exact[0]
    if info.parser in _LISTS:
        return re.sub(r"\s*([,;:])\s*", r"\1", word)
    return None


def _no_text(assignment: Assignment, version: str | None) -> Found:
    repair = None
    info = settings.find(assignment.name)
    if assignment.span is not None and assignment.quote is not None:
        meant = _certain(info, assignment.value or "", version) if info is not None else None
        quote = assignment.quote if meant is None else f'"{meant}"'
        repair = Repair(f"write {quote}", ((assignment.span, quote),))
    return about(assignment, "ENV118", f"{assignment.name}: {assignment.refused}", repair=repair)


def _neighbour(assignment: Assignment, info: SettingInfo) -> Iterator[Found]:
    text = assignment.value or ""
    if info.values and text and text.lower() not in {value.lower() for value in info.values}:
        message = f"{info.name}={text}: {info.owner} knows {' and '.join(info.values)}"
        yield about(assignment, "ENV113", message)


def without_machine(assignment: Assignment, contents: Contents, judge: Judge) -> Iterator[Found]:
    """What rules would say, had they a machine: about NCCL_ALGO, NCCL_PROTO and Gloo's interface."""
    text = assignment.value
    if assignment.name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME") and text and text.startswith(("^", "=")):
        message = f"whole names of interfaces count here: {text[0]} is part of the name, and there is no such one"
        yield about(assignment, "ENV113", f"{assignment.name}={text}: {message}", severity="error")
    if assignment.name not in ("NCCL_ALGO", "NCCL_PROTO") or not text or measures(assignment):
        return
    if for_a_cloud(contents):
        return
    names = choices.algorithms(judge.version) if assignment.name == "NCCL_ALGO" else choices.PROTOCOLS
    found = choices.read(text, names, judge.version)
    listed = found.choices
    if found.error or found.ignored or not any(each.names for each in listed):
        return
    if assignment.name == "NCCL_PROTO" and choices.forces_ll128(text):
        how = "leaves LL128 in and so " if text.lstrip().startswith("^") else ""
        message = (
            f"NCCL_PROTO={text} {how}forces LL128 past NCCL's own safety check: where it is not safe it corrupts data"
        )
        yield about(assignment, "ENV115", message, advice=("NCCL_PROTO=^LL128 excludes it.",))
        return
    named = [frozenset(each.names) for each in listed if not each.inverted]
    if all(each == names for each in named):
        return
    allowed = " and ".join(_allowed(each) for each in listed if not each.inverted)
    what = "algorithm" if assignment.name == "NCCL_ALGO" else "protocol"
    strict = judge.version is None or versions.at_least(judge.version, choices.STRICT_SINCE)
    without = _without(listed) if strict and what == "algorithm" else []
    ends = f"; {', '.join(without)} cannot use that, and fail" if without else ""
    several = any(len(each) > 1 for each in named)
    picks = f"picks the {what} by size among these" if several else f"no longer picks the {what} by size"
    severity: Severity | None = "info" if several and not without else None
    yield about(
        assignment,
        "ENV116",
        f"{assignment.name}={text} allows only {allowed}: NCCL {picks}{ends}",
        severity=severity,
    )


def _allowed(choice: choices.Choice) -> str:
    names = ", ".join(choices.SPELLING.get(name, name) for name in choice.names)
    return names if choice.function is None else f"{names} for {_FUNCTIONS[choice.function]}"


def _without(listed: Sequence[choices.Choice]) -> list[str]:
    """Collectives for which nothing is left of the algorithms that they have."""
    left = dict(choices.KNOWS)
    for each in listed:
        for function in left if each.function is None else [each.function]:
            named = frozenset(each.names)
            left[function] = choices.KNOWS[function] - named if each.inverted else choices.KNOWS[function] & named
    return [_FUNCTIONS[function] for function, algorithms in left.items() if not algorithms]


def for_a_cloud(contents: Contents) -> bool:
    """Whether a file speaks to the plugin of a cloud, whose guide it may follow."""
    return any(each.name.startswith(_CLOUDS) for each in contents.assignments)


def measures(assignment: Assignment) -> bool:
    """Whether it is set for one command that measures."""
    return any(program.endswith(("_perf", "_perf_mpi")) for program in assignment.programs)
