"""`nccl.conf`: a managed block at the head of the file, written for a reader that takes everything literally."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from topoadvisor.advice import Advice, SettingClass
from topoadvisor.emit import blocks
from topoadvisor.emit.selection import Selection, select
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.nccl import conf
from topoadvisor.snapshot import Snapshot

SYSTEM_FILE: Final = conf.SYSTEM_FILE

_READERS: Final = ("2.4.2", "2.26.2", "2.30.7")
"""One NCCL of each kind of reader: without comments, with them, and with a line buffer."""


def render(advice: Advice, include: frozenset[SettingClass] = frozenset(), nccl_version: str | None = None) -> str:
    """The managed block for one topology: `NAME=VALUE` lines, each below comments that say which rule wants it and why.

    Only `system` settings, and the classes in `include`. The block is read back as old and new NCCL would.

    Raises TopoAdvisorError for a value that NCCL could not read back, or for two values of one variable.
    """
    selection = select(advice, include, nccl_version, for_conf=True)
    block = blocks.wrap(
        [
            *blocks.body(selection, {chosen.name: f"{chosen.name}={chosen.value}" for chosen in selection.chosen}),
            *_to_remove(selection),
        ]
    )
    wanted = [(chosen.name, chosen.value) for chosen in selection.chosen]
    for version in _READERS:
        _require(conf.definitions(block, version) == wanted, version)
    return block


def _to_remove(selection: Selection) -> Iterator[str]:
    for setting in selection.unset:
        yield "#"
        yield from blocks.comment(f"[{setting.rule}] {setting.name} should not be set: {setting.reason}")


def merge(existing: str, block: str, *, file: str | None = None) -> str:
    """Put a block at the head of a file, in place of the one that is there; every foreign line stays as it is.

    The head, because NCCL takes the first line of a name.

    Raises InputError when a marker of the present block is missing, TopoAdvisorError when it would not be read back.
    """
    foreign = blocks.foreign_part(existing, file=file)
    merged = block + foreign
    for version in _READERS:
        apart = conf.definitions(block, version) + conf.definitions(foreign, version)
        _require(conf.definitions(merged, version) == apart, version)
    return merged


def _require(holds: bool, version: str) -> None:
    if not holds:
        raise TopoAdvisorError(
            f"NCCL {version} would not read back from this file what is meant, so it is not written",
            hint="This is a fault in topoadvisor. Please report it with the snapshot and the file.",
        )


def remarks(selection: Selection, text: str, *, file: str, nccl_version: str | None) -> list[str]:
    """What the foreign lines of a file mean for the block, with line numbers in `text`; one sentence each.

    Lines that no longer count because the block sets the same variable first, and lines to remove by hand.
    """
    foreign = [line for line in conf.parse(text, nccl_version) if not line.managed]
    found = []
    for chosen in selection.chosen:
        found += [
            f"{file}:{line.line}: {line.name}={line.value} does not count below the managed block, which sets it to "
            f"{chosen.value}: NCCL takes the first line of a name"
            for line in foreign
            if line.name == chosen.name
        ]
    for setting in selection.unset:
        found += [
            f"{file}:{line.line}: remove {line.name}={line.value} by hand: {setting.reason} [{setting.rule}]"
            for line in foreign
            if line.name == setting.name
        ]
    return found


def kept(selection: Selection, text: str, snapshot: Snapshot, *, file: str, nccl_version: str | None) -> list[str]:
    """The NCCL variables of foreign lines that nobody has looked at, because they are not those of the machine.

    Where SOURCE is another machine or a snapshot, or NCCL does not read this file by itself; one sentence.
    """
    asked = {(setting.name, setting.value) for setting in snapshot.settings or [] if setting.origin == file}
    told = {chosen.name for chosen in selection.chosen} | {setting.name for setting in selection.unset}
    lines: dict[str, str] = {}
    for line in conf.parse(text, nccl_version):
        foreign = line.name.startswith("NCCL_") and not line.managed
        if foreign and line.name not in told and (line.name, line.value) not in asked:
            lines.setdefault(line.name, f"{line.name}={line.value} (line {line.line})")
    return blocks.stays_in_force(file, list(lines.values()))


def removals(selection: Selection, *, file: str | None) -> list[str]:
    """The variables to unset elsewhere than in `file`, one sentence each."""
    found = []
    for setting in selection.unset:
        places = (setting.where or "where it is set").split(" and ")
        if elsewhere := [place for place in places if file is None or not place.startswith(f"{file}:")]:
            found.append(f"{' and '.join(elsewhere)}: unset {setting.name}: {setting.reason} [{setting.rule}]")
    return found


def overruled(selection: Selection, snapshot: Snapshot, *, file: str) -> list[str]:
    """Chosen variables that a stronger place than `file` sets to something else, one sentence each.

    The process environment wins over every file, and the per-user file over the system's.
    """
    wanted = {chosen.name: chosen.value for chosen in selection.chosen}
    return [
        f"{setting.origin} sets {setting.name}={setting.value}, which wins over {file}"
        for setting in snapshot.settings or []
        if setting.name in wanted
        and setting.value != wanted[setting.name]
        and (
            setting.origin == "environment" or (file == SYSTEM_FILE and setting.origin not in (SYSTEM_FILE, "assumed"))
        )
    ]


def without_own_lines(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the settings that stand in managed blocks: the machine as it is without our advice.

    Otherwise a variable written yesterday would be found in force today, need no advice, and be taken out again.
    """
    kept = [setting for setting in snapshot.settings or [] if not setting.managed]
    return snapshot if snapshot.settings is None else msgspec.structs.replace(snapshot, settings=kept)
