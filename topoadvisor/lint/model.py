"""What the readers find: a variable that is set, where, how, and by whom it is seen."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from topoadvisor.lint import spelling
from topoadvisor.lint.asked import Asked
from topoadvisor.lint.document import Severity
from topoadvisor.nccl import settings

Span = tuple[int, int]
Branch = tuple[tuple[int, int], ...]
"""The conditions, loops and functions around a place, outermost first: (which, which arm of it)."""


@dataclass(frozen=True)
class Repair:
    """Stretches of the file and what takes their place."""

    message: str
    edits: tuple[tuple[Span, str], ...]


Way = Literal[
    "conf",
    "export",
    "plain",
    "command",
    "launcher",
    "image",
    "layer",
    "container",
    "service",
    "file",
    "python",
    "process",
]
"""How a variable is set: a line of nccl.conf; exported by a shell; set in it and not exported; for one command; handed
to all ranks by a launcher; in an image; in a step of its build; for a container of a job; for a service that stays; in
a file of NAME=VALUE lines; in Python; in the environment of this process."""

LASTING: Final[frozenset[Way]] = frozenset({"conf", "image", "service"})
"""Ways that stay when whoever set it has gone."""

_PREFIXES: Final = ("NCCL_", "RCCL_", "TORCH_NCCL_", "TORCH_FR_", "NVSHMEM_", "OFI_NCCL_", "UCX_", "FI_", "GLOO_")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.A)


def printable(text: str) -> str:
    """A text without bytes that are no UTF-8, which no document and no rule can hold; they become `\\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode()


def shown(text: str) -> str:
    """The same for a sentence: what would steer a terminal or end a line, such as ESC, becomes `\\x1b`, too."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in printable(text))


def watched(name: str) -> bool:
    """Whether a variable is one of those that are looked at: known, made up, or named like one."""
    return (
        name.startswith(_PREFIXES)
        or settings.find(name) is not None
        or name in settings.inventions()
        or spelling.wrong_beginning(name) is not None
        or (name.upper().startswith("NCCL_") and name != name.upper() and _NAME.fullmatch(name) is not None)
    )


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One place where a variable gets a value. Offsets count the letters of the file from 0."""

    name: str
    value: str | None
    """None = only known when it runs: a variable, a template, the output of a command."""
    at: int
    """Where the name stands."""
    span: tuple[int, int] | None = None
    """Where the value stands, without quotes around it; None when it is not written in one piece."""
    way: Way
    fallback: bool = False
    """It counts only where nothing else has set the variable: `${NAME:-value}`, `setdefault`."""
    branch: Branch = ()
    step: int = 0
    """Grows with every program that runs before it."""
    group: int = 0
    """Who gets it: assignments of different groups never meet. 0 = whatever runs afterwards."""
    statement: int | None = None
    """Where its statement begins."""
    only: Asked | None = None
    """Whether the condition around it, or its value, asks for the rank or for the host."""
    role: str | None = None
    """Which pods of a job get it."""
    programs: tuple[str, ...] = ()
    """Names of the programs of its command."""
    surprises: tuple[str, ...] = ()
    """What is unexpected about the line itself, one sentence each."""
    whole: tuple[int, int] | None = None
    """Where the whole line or item stands that sets it."""
    quote: str | None = None
    """The text with which the value is to be replaced, because it is no text and only a text is taken."""
    refused: str = ""
    """Who takes only texts, and what it does otherwise."""
    bare_text: bool = False
    """A text of YAML without quotes: a number in its place would be none."""


@dataclass(frozen=True)
class Remark:
    """Something that a reader itself has seen, with its code."""

    code: str
    at: int
    message: str
    variable: str = ""
    severity: Severity | None = None
    """None = that of the code."""
    repair: Repair | None = None


@dataclass
class Contents:
    """Everything that a file says about variables."""

    assignments: list[Assignment] = field(default_factory=list)
    removed: list[tuple[int, str]] = field(default_factory=list)
    """(offset, name) of every `unset`."""
    uses: set[str] = field(default_factory=set)
    """Names whose value the file itself asks for."""
    exported: set[str] = field(default_factory=set)
    exports_all: bool = False
    """`set -a`."""
    programs: int = 0
    """Programs that a script runs."""
    remarks: list[Remark] = field(default_factory=list)
    starts: list[tuple[int, Branch, str]] = field(default_factory=list)
    """(offset, conditions around it, name) of every call that starts the communication between ranks."""
    runs_jobs: bool = False
    """A script that starts ranks, on other hosts or on this one."""
    last_command: int = 0
    """Offset of the last command of a script that could see a variable."""
    launches: list[tuple[int, Branch]] = field(default_factory=list)
    """(offset, conditions around it) of every command that starts ranks on other hosts."""
    roles: set[str] = field(default_factory=set)
    """Kinds of pods of a job."""


class Unreadable(Exception):
    """A file that is not what its name says, with the place where that shows."""

    def __init__(
        self, message: str, line: int | None = None, column: int | None = None, *, templates: bool = False
    ) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column
        self.templates = templates
