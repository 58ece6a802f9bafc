"""Shell lines: `export NAME=value` and `unset NAME`, for a POSIX shell to source or evaluate."""

from __future__ import annotations

import re
import shlex
from typing import Final

import msgspec

from topoadvisor.advice import Advice, SettingClass
from topoadvisor.emit import blocks
from topoadvisor.emit.selection import Selection, select
from topoadvisor.snapshot import Snapshot

_ASSIGNMENT: Final = re.compile(r"[ \t]*(?:export[ \t]+)?(NCCL_[A-Z0-9_]+)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s;#]*)")


def render(advice: Advice, include: frozenset[SettingClass] = frozenset(), nccl_version: str | None = None) -> str:
    """The managed block as shell lines. Same classes as `nccl_conf.render`; variables to unset are unset.

    Raises TopoAdvisorError for a value that cannot be written, or for two values of one variable.
    """
    selection = select(advice, include, nccl_version)
    exports = {chosen.name: f"export {chosen.name}={_quoted(chosen.value)}" for chosen in selection.chosen}
    lines = list(blocks.body(selection, exports))
    for setting in selection.unset:
        lines += ["#", *blocks.comment(f"[{setting.rule}] {setting.reason}")]
        if setting.where not in (None, "environment", "assumed"):
            lines += blocks.comment(f"It is set in {setting.where}: take it out of the file too, which unset does not.")
        lines.append(f"unset {setting.name}")
    return blocks.wrap(lines)


def own_exports(existing: str) -> dict[str, str]:
    """What the managed block of a script exports: name → value."""
    exports: dict[str, str] = {}
    for _, line in blocks.numbered(existing, managed=True):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue  # an open quote: somebody else wrote this, and it goes with the block
        if len(words) == 2 and words[0] == "export" and "=" in words[1]:
            name, _, value = words[1].partition("=")
            exports[name] = value
    return exports


def kept(selection: Selection, existing: str, snapshot: Snapshot, *, file: str) -> list[str]:
    """The NCCL variables that plain lines outside the managed block assign and nobody has looked at; one sentence.

    The last assignment of a name counts. What the environment of this machine holds has been looked at.
    """
    asked = {(setting.name, setting.value) for setting in snapshot.settings or [] if setting.origin == "environment"}
    told = {chosen.name for chosen in selection.chosen} | {setting.name for setting in selection.unset}
    found: dict[str, tuple[str, int]] = {}
    for number, line in blocks.numbered(existing, managed=False):
        if (match := _ASSIGNMENT.match(line)) and match[1] not in told:
            found[match[1]] = match[2], number
    return blocks.stays_in_force(
        file,
        [
            f"{name}={value} (line {number})"
            for name, (value, number) in found.items()
            if (name, value.strip("\"'")) not in asked
        ],
    )


def without_own_exports(snapshot: Snapshot, existing: str) -> Snapshot:
    """The snapshot without environment variables that this script's managed block has put there."""
    own = own_exports(existing)
    kept = [
        setting
        for setting in snapshot.settings or []
        if not (setting.origin == "environment" and own.get(setting.name) == setting.value)
    ]
    return snapshot if snapshot.settings is None else msgspec.structs.replace(snapshot, settings=kept)


def merge(existing: str, block: str, *, file: str | None = None) -> str:
    """Put a block at the end of a script, in place of the one that is there; the last assignment counts in a shell.

    Raises InputError when a marker of the present block is missing.
    """
    foreign = blocks.foreign_part(existing, file=file)
    if foreign and not foreign.endswith("\n"):
        foreign += "\n"
    return foreign + block


def _quoted(value: str) -> str:
    # zsh would look up `=name` at the start of a value as a command.
    return f"'{value}'" if value.startswith("=") else shlex.quote(value)
