"""The managed block: the lines of a file that topoadvisor writes, between two marker lines. All others are foreign."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from topoadvisor.emit.selection import Selection, version_words
from topoadvisor.errors import InputError
from topoadvisor.measurements.proven import TRIAL
from topoadvisor.nccl.conf import MANAGED_BEGIN, MANAGED_END

BEGIN: Final = f"{MANAGED_BEGIN}: `topoadvisor emit` rewrites these lines >>>"
END: Final = f"{MANAGED_END} <<<"
_WIDTH: Final = 100
_MOST_NAMED: Final = 8
_CLASSES: Final = {"tuning": "This is tuning.", "workaround": "This is a workaround."}
_COMMAND: Final = re.compile(r": `topoadvisor prove [^`]*`")
"""A command with assignments, which no comment can hold."""
_EQUALS_IN_WORDS: Final = (
    (re.compile(r"\b([A-Z][A-Z0-9_]+)==(?=\w)"), r"\1 set to exactly "),
    (re.compile(r"\b([A-Z][A-Z0-9_]+)=(?=[^\s=])"), r"\1 set to "),
    (re.compile(r">="), " at least "),
    (re.compile(r"<="), " at most "),
    (re.compile(r"=+"), " equals "),
)


def foreign_part(text: str, *, file: str | None = None) -> str:
    """All lines outside managed blocks, byte for byte. Raises InputError when a marker has lost its partner."""
    foreign = []
    opened: int | None = None
    for number, line in enumerate(lines_of(text), start=1):
        if line.startswith(MANAGED_BEGIN):
            if opened is not None:
                raise _torn(file, opened, "begins and never ends")
            opened = number
        if opened is None:
            if line.startswith(MANAGED_END):
                raise _torn(file, number, "ends and never began")
            foreign.append(line)
        if line.startswith(MANAGED_END):
            opened = None
    if opened is not None:
        raise _torn(file, opened, "begins and never ends")
    return "".join(foreign)


def numbered(text: str, *, managed: bool) -> Iterator[tuple[int, str]]:
    """(line number, line) of the lines inside managed blocks, or of those outside; markers left out."""
    inside = False
    for number, line in enumerate(lines_of(text), start=1):
        if line.startswith((MANAGED_BEGIN, MANAGED_END)):
            inside = line.startswith(MANAGED_BEGIN)
        elif inside is managed:
            yield number, line


def _torn(file: str | None, line: int, what: str) -> InputError:
    return InputError(
        f"the managed block {what}",
        file=file,
        line=line,
        hint=f"Remove this marker by hand, or put back the missing one: `{BEGIN}` above the lines or `{END}` below.",
    )


def stays_in_force(file: str, assignments: Sequence[str]) -> list[str]:
    """One sentence about foreign lines that set NCCL's variables and that the advice did not see; none without any."""
    if not assignments:
        return []
    more = f" and {len(assignments) - _MOST_NAMED} more" if len(assignments) > _MOST_NAMED else ""
    named = ", ".join(assignments[:_MOST_NAMED])
    return [f"{file}: the advice did not take into account, and leaves in force: {named}{more}"]


def lines_of(text: str) -> list[str]:
    """The lines with their endings; only LF ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def wrap(body: Iterable[str]) -> str:
    """A block of the given lines, with its markers."""
    return "\n".join((BEGIN, *body, END, ""))


def body(selection: Selection, assignments: dict[str, str]) -> Iterator[str]:
    """The lines of a block: above every variable why it is set, then what was left out and what should go.

    `assignments` holds the line to write for each chosen name.
    """
    named = [
        *(setting for chosen in selection.chosen for setting in chosen.settings),
        *(left_out.setting for left_out in selection.left_out),
        *selection.unset,
    ]
    if any(setting.rule != TRIAL for setting in named):
        yield from comment("`topoadvisor rules explain ID` says more about each id in brackets.")
    for chosen in selection.chosen:
        yield "#"
        for setting in chosen.settings:
            yield from comment(f"[{setting.rule}] {setting.reason}")
            if setting.setting_class != "system":
                yield from comment(_CLASSES[setting.setting_class])
            if setting.remove_when:
                yield from comment(f"Remove it when {setting.remove_when}")
            if setting.cost:
                yield from comment(f"Cost: {setting.cost}")
            if setting.nccl:
                yield from comment(f"For NCCL {version_words(setting.nccl)}.")
        yield assignments[chosen.name]
    if selection.nothing:
        yield from comment(f"No variable is set here. {selection.nothing}")
    for left_out in selection.left_out:
        yield "#"
        yield from comment(f"Not written: {left_out.setting.name} [{left_out.setting.rule}], {left_out.why}.")
    for sentence in selection.passed_over:
        yield "#"
        yield from comment(f"Not written: {_COMMAND.sub('; `topoadvisor scan` names the trial that tells', sentence)}")


def comment(text: str) -> list[str]:
    """Comment lines for one text. They hold no `=`: NCCL before 2.26.2 would take such a line for a variable."""
    text = "".join(character if character.isprintable() else " " for character in text)
    for pattern, words in _EQUALS_IN_WORDS:
        text = pattern.sub(words, text)
    return textwrap.wrap(
        " ".join(text.split()), _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False
    )
