"""Shell lines: `export NAME=value` and `unset NAME`, for a POSIX shell to source or evaluate."""

from __future__ import annotations

import shlex

from topoadvisor.advice import Advice, SettingClass
from topoadvisor.emit import blocks
from topoadvisor.emit.selection import select


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
