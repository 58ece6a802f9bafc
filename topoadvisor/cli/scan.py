"""`topoadvisor scan`."""

from __future__ import annotations

import shutil
from typing import Annotated, Literal

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    RulesOption,
    SourceArgument,
    emit_text,
    load_snapshot,
    use_color,
)

_WIDEST = 120


def scan(
    sources: SourceArgument = None,
    output_format: FormatOption = "text",
    fail_on: Annotated[
        Literal["error", "warning", "never"],
        typer.Option("--fail-on", help="Exit with 1 when there is a finding of this severity or worse."),
    ] = "error",
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
    rules: RulesOption = None,
    preview: Annotated[bool, typer.Option("--preview", help="Ask the preview rules too.")] = False,
) -> None:
    """What this machine is, what is wrong, what to set, and rings.

    Says in which order the GPUs should form rings, and what could not be known.

    Exit codes: 0 fine, 1 findings at or above --fail-on, 2 unreadable input or wrong usage, 3 no GPU was found.
    """
    from topoadvisor import advise
    from topoadvisor.errors import NothingDetermined

    snapshot = load_snapshot(sources, assume, assume_file)
    if not snapshot.gpus:
        nvml = snapshot.source("nvml")
        raise NothingDetermined(
            "no NVIDIA GPU was found" + (f": {nvml.reason}" if nvml and nvml.reason else ""),
            hint="Give the text of `nvidia-smi topo -m`, `nvidia-smi -q` or `lspci -tv` of the same machine too."
            if sources
            else "On a machine without one give a SOURCE: a snapshot, a pasted `nvidia-smi topo -m`, "
            "a bug report, or fixture:NAME (`topoadvisor scan fixture:` lists them).",
        )
    analysis = advise.analyse(snapshot, rule_directories=rules or (), preview=preview)
    if output_format == "json":
        import msgspec

        emit_text(msgspec.json.format(msgspec.json.encode(analysis.advice), indent=2).decode() + "\n")
    else:
        from topoadvisor.render import scan_text
        from topoadvisor.topology import matrix

        tables = matrix.of(snapshot, analysis.topology)
        width = min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)
        emit_text(scan_text.render(analysis.advice, tables[0] if tables else None, width=width, color=use_color()))
    failing = {"error": ["error"], "warning": ["error", "warning"], "never": []}[fail_on]
    if any(finding.severity in failing for finding in analysis.advice.findings):
        raise typer.Exit(1)
