"""What a check says, before it is put into words for a file."""

from __future__ import annotations

from dataclasses import dataclass

from topoadvisor.lint.document import Severity
from topoadvisor.lint.model import Assignment, Repair


@dataclass(frozen=True)
class Found:
    """One thing that is wrong."""

    code: str
    at: int
    variable: str
    message: str
    severity: Severity | None = None
    """None = that of the code."""
    becomes: str | None = None
    advice: tuple[str, ...] = ()
    repair: Repair | None = None
    name: str | None = None
    """Of a rule; None = that of the code."""
    statement: int | None = None


@dataclass(frozen=True)
class Judge:
    """What is judged for."""

    version: str | None = None
    """NCCL's; None = the newest known."""
    nccl_library: frozenset[str] | None = None
    """Names in the string table of a library of that version; None = there is none to ask."""
    machine: bool = False
    """A machine is given, which has NVIDIA's GPUs."""


def about(
    assignment: Assignment,
    code: str,
    message: str,
    *,
    severity: Severity | None = None,
    becomes: str | None = None,
    advice: tuple[str, ...] = (),
    repair: Repair | None = None,
) -> Found:
    """Something that is wrong with one assignment."""
    return Found(
        code,
        assignment.at,
        assignment.name,
        message,
        severity,
        becomes,
        advice,
        repair,
        statement=assignment.statement,
    )


def renamed(assignment: Assignment, name: str) -> Repair:
    """Another name in the same place."""
    place = (assignment.at, assignment.at + len(assignment.name))
    return Repair(f"write {name}", ((place, name),))


def rewritten(assignment: Assignment, value: str) -> Repair | None:
    """Another value in the same place; None when it is not written in one piece."""
    if assignment.span is None:
        return None
    text = f'"{value}"' if assignment.bare_text and value.isdecimal() else value
    return Repair(f"write {text}", ((assignment.span, text),))
