"""Shell lines: `export NAME=value` and `unset NAME`, for a POSIX shell to source or evaluate."""

from __future__ import annotations

import shlex

import msgspec

from topoadvisor.advice import Advice, SettingClass
from topoadvisor.emit import blocks
from topoadvisor.emit.selection import select
from topoadvisor.snapshot import Snapshot


def render(advice: Advice, include: frozenset[SettingClass] = frozenset(), nccl_version: str | None = None) -> str:
    """The managed block as shell lines. Same classes as `nccl_conf.render`; variables to unset are unset.

    Raises TopoAdvisorError for a value that cannot be written, or for two values of one variable.
    """
    selection = select(advice, include, nccl_version)
    exports = {chosen.name: f"export {chosen.name}={_quoted(chosen.value)}" for chosen in selection.chosen}
    lines = list(blocks.body(selection, exports))
    for setting in selection.unset:
        lines += ["#", *blocks.comment(f"[{setting.rule}] {setting.reason}"), f"unset {setting.name}"]
    return blocks.wrap(lines)


def own_exports(existing: str) -> dict[str, str]:
    """What the managed block of a script exports: name → value."""
    exports: dict[str, str] = {}
    for line in blocks.managed_part(existing):
        words = shlex.split(line, comments=True)
        if len(words) == 2 and words[0] == "export" and "=" in words[1]:
            name, _, value = words[1].partition("=")
            exports[name] = value
    return exports


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
