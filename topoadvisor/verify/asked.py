"""Which settings the user wants proved: `NAME=VALUE` words, or an advice document. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from topoadvisor.advice import Advice
from topoadvisor.errors import InputError, TopoAdvisorError
from topoadvisor.measurements import proven, variables
from topoadvisor.measurements.model import setting_fault
from topoadvisor.nccl import versions
from topoadvisor.snapshot import Snapshot
from topoadvisor.verify.group import Settings

_NAME = re.compile(r"[A-Z][A-Z0-9_]{1,63}")


def from_words(words: Sequence[str]) -> Settings:
    """`NAME=VALUE` sets, `NAME=` unsets. Raises TopoAdvisorError for anything else."""
    asked: dict[str, str | None] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not _NAME.fullmatch(name):
            raise TopoAdvisorError(
                f"{word[:60]!r} is no setting", hint="Write it as NCCL_MIN_CTAS=32, or as NCCL_MIN_CTAS= to unset it."
            )
        if name in asked and asked[name] != (value or None):
            raise TopoAdvisorError(f"{name} is given twice", hint="Prove one value after the other.")
        asked[name] = value or None
    return _allowed(asked)


def from_advice(data: bytes, *, file: str) -> Settings:
    """What an advice document (`topoadvisor scan --format json`) sets and unsets.

    Raises InputError when it is none, or asks for nothing.
    """
    try:
        advice = msgspec.json.decode(data, type=Advice)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"this is no advice document ({error})",
            file=file,
            hint="`topoadvisor scan --format json > FILE` writes one; its settings are then proved.",
        ) from None
    if not advice.settings:
        raise InputError(
            "this advice sets nothing, so there is nothing to prove",
            file=file,
            hint="--candidates tries what may be worth setting on this machine.",
        )
    return _allowed({each.name: each.value if each.action == "set" else None for each in advice.settings})


def _allowed(asked: dict[str, str | None]) -> dict[str, str | None]:
    for name, value in asked.items():
        if fault := setting_fault(name, value):
            raise TopoAdvisorError(fault)
        if name in proven.MEASURES_WITH:
            raise TopoAdvisorError(f"{name} cannot be proved: the measurement sets it itself, or stands on it")
    return asked


def remarks(settings: Settings, snapshot: Snapshot, *, library: str | None = None) -> list[str]:
    """What is worth saying before: what NCCL takes otherwise than it is written, settings that change nothing.

    `library` is the path of the NCCL that is tried, one of the snapshot's or another.

    Raises TopoAdvisorError for a variable to unset that stands in a file of NCCL: a process cannot take it out there.
    """
    told = []
    found = next((each.version for each in snapshot.nccl_libraries or () if each.path == library), None)
    version = found if found is not None and versions.is_version(found) else None
    for name, value in settings.items():
        present = [each for each in snapshot.settings or () if each.name == name]
        if value is None:
            in_files = [each.place for each in present if each.origin != "environment"]
            if in_files:
                raise TopoAdvisorError(
                    f"{name} stands in {' and '.join(in_files)}, and cannot be unset for a trial from outside",
                    hint="Take it out there, prove NAME=VALUE with what it was, and put it back if that wins.",
                )
            if not present:
                told.append(f"{name} is not set here, so unsetting it changes nothing.")
            continue
        if present and present[0].value == value:
            told.append(f"{name}={value} is in force already ({present[0].place}), so setting it changes nothing.")
        if why := proven.why_unfit({name: value}, version):
            told.append(f"Whatever it gains, {variables.words({name: value})} will not be advised: {why}.")
    return told
