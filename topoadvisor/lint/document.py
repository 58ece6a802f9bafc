"""The document that `topoadvisor lint --format json` prints."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SCHEMA: Final = "topoadvisor.lint/1"

Severity = Literal["error", "warning", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all types of the document."""


class Edit(Struct, frozen=True, kw_only=True):
    """A stretch of the file, from the first position up to, not including, the second, and what takes its place."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Fix(Struct, frozen=True, kw_only=True):
    """A repair whose meaning is certain."""

    message: str
    edits: list[Edit]


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with one line. Lines and columns count from 1, columns in letters."""

    file: str
    line: int
    column: int
    code: str
    """`ENV…` of the page about lint, or the id of a rule."""
    name: str
    severity: Severity
    variable: str
    message: str
    becomes: str | None = None
    """What NCCL works with instead of the text that is written."""
    advice: list[str] = []
    fix: Fix | None = None


class Ignored(Struct, frozen=True, kw_only=True):
    """A finding that a comment in the file silences."""

    finding: Finding
    reason: str


class Undecided(Struct, frozen=True, kw_only=True):
    """Something that could not be judged, and why."""

    file: str
    line: int
    column: int
    code: str
    variable: str
    reason: str
    facts: list[str] = []
    """Facts that nobody read and that would decide it."""


class FileRead(Struct, frozen=True, kw_only=True):
    file: str
    kind: str
    settings: int
    """Places that set a variable."""


class NotRead(Struct, frozen=True, kw_only=True):
    """A file that could not be parsed as what its name says."""

    file: str
    line: int | None = None
    column: int | None = None
    reason: str
    templates: bool = False
    """It is one, before templates in it are filled in: that it cannot be parsed is no fault of it."""


class Report(Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """Everything that was found, in the order of files and lines."""

    nccl: str | None
    """Version of NCCL that was judged for; None = not known, and the newest is taken."""
    nccl_from: str
    """Where the version is from, in words."""
    nccl_library: str | None = msgspec.field(name="library", default=None)
    """NCCL library whose own names decided which exist."""
    topology: str | None = None
    """The machine that was judged for; None = none was given."""
    files: list[FileRead]
    not_read: list[NotRead] = []
    findings: list[Finding]
    ignored: list[Ignored] = []
    unknown: list[Undecided] = []
    """What stays open: without a topology, all that depends on a machine."""
