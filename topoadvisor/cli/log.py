"""`topoadvisor log`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO, Literal

import typer

from topoadvisor.cli.common import FormatOption, emit_json, emit_text, load_snapshot, page_width, use_color


def log(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Logs of one job: plain or gzip, - for standard input. Ranks may be mixed, and prefixed by launchers.",
            show_default=False,
        ),
    ],
    output_format: FormatOption = "text",
    fail_on: Annotated[
        Literal["error", "warning", "never"],
        typer.Option("--fail-on", help="Exit with 1 when the verdict has a finding of this severity or worse."),
    ] = "error",
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="SOURCE",
            help="What the log cannot show: a capture of one of its hosts (any SOURCE that scan takes).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """What NCCL did in a job, by its log, and what is wrong with it.

    Reads NCCL_DEBUG=INFO and says whether the machine could do better. Version and settings, topology as NCCL saw it,
    transports of every pair, rings and trees, the tuner's choices, warnings by kind. Logs of any size are read in one
    pass. NCCL 2.5 and newer.

    Exit codes: 0 fine, 1 findings at or above --fail-on, 2 unreadable input or wrong usage.
    """
    from topoadvisor.errors import TopoAdvisorError
    from topoadvisor.ingest import nccl_log
    from topoadvisor.joblog import verdict

    if [*files, topology].count("-") > 1:
        raise TopoAdvisorError("standard input can be given only once", hint="Give the others as files.")
    snapshot = None if topology is None else load_snapshot(topology)
    summary = nccl_log.read(_streams(files))
    found = verdict.judge(summary, snapshot, topology)
    if output_format == "json":
        emit_json(found)
    else:
        from topoadvisor.render import log_text

        emit_text(log_text.render(found, width=page_width(), color=use_color()))
    failing = {"error": ["error"], "warning": ["error", "warning"], "never": []}[fail_on]
    if any(finding.severity in failing for finding in found.findings):
        raise typer.Exit(1)


def _streams(files: list[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Name and content of each file; no more than one is open at a time, because a job may have thousands."""
    for file in files:
        if file == "-":
            yield "standard input", sys.stdin.buffer
        else:
            with _opened(file) as stream:
                yield file, stream


def _opened(file: str) -> BinaryIO:
    from topoadvisor.errors import InputError

    try:
        return open(file, "rb")  # noqa: PTH123
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        name = file[:200] if file.isprintable() else repr(file[:200])
        raise InputError(f"cannot be read: {reason}", file=name, hint="Give the files of a log, or - for it.") from None
