"""The variables that a file gives to a job: an env file, nccl.conf, a job script, a Dockerfile, a manifest."""

from __future__ import annotations

import re
from typing import Final

from topoadvisor.errors import InputError
from topoadvisor.lint.model import Assignment, Contents, Unreadable
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import embedded
from topoadvisor.snapshot import Setting

_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def read(text: str, file: str) -> tuple[list[Setting], list[str]]:
    """What is set in the end, the first of a name in force, and what was left out, one sentence each.

    Raises InputError for a file that is no text, or cannot be parsed.
    """
    if _NO_TEXT.search(text):
        raise InputError(
            "this is no text: it holds control characters", file=file, hint="Give a script or a file of settings."
        )
    kind = embedded.kind_of_name(file) or embedded.kind_of_text(text)
    try:
        contents = embedded.read(Piece(text), kind)
    except Unreadable as error:
        raise InputError(error.message, file=file, line=error.line, column=error.column) from None
    found: dict[str, Setting] = {}
    notes: list[str] = []
    events: list[tuple[int, str | Assignment]] = [(each.at, each) for each in contents.assignments]
    for at, event in sorted([*events, *contents.removed], key=lambda entry: entry[0]):
        if isinstance(event, str):
            found.pop(event, None)
            continue
        line = text.count("\n", 0, at) + 1
        left_out = _left_out(event, contents)
        if left_out is not None:
            notes.append(f"{event.name} ({file}:{line}) is left out: {left_out}.")
        elif event.value is not None and not (event.fallback and event.name in found):
            found.pop(event.name, None)
            found[event.name] = Setting(name=event.name, value=event.value, origin=file, line=line)
    if not found:
        notes.append(f"{file} sets no variable that matters here.")
    return list(found.values()), notes


def _left_out(assignment: Assignment, contents: Contents) -> str | None:
    if assignment.value is None:
        return "its value is known only when the job runs"
    if assignment.branch:
        return "it is set under a condition"
    if assignment.way == "plain" and not contents.exports_all and assignment.name not in contents.exported:
        return "it is not exported"
    return None
