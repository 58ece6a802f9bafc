"""`topoadvisor scan`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    RulesOption,
    SourceArgument,
    emit_json,
    emit_text,
    load_snapshot,
    page_width,
    room_for_numpy,
    use_color,
)


def scan(
    sources: SourceArgument = None,
    output_format: FormatOption = "text",
    fail_on: Annotated[
        Literal["error", "warning", "never"],
        typer.Option("--fail-on", help="Exit with 1 when there is a finding or change of this severity or worse."),
    ] = "error",
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
    rules: RulesOption = None,
    preview: Annotated[bool, typer.Option("--preview", help="Ask the preview rules too.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="An earlier capture of this machine (any SOURCE): say what changed since.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """What this machine is, what is wrong, what to set, rings and placements.

    Says in which order the GPUs should form rings, which GPUs and which order smaller jobs and tensor groups should
    take where that matters, and what could not be known.

    Exit codes: 0 fine, 1 findings at or above --fail-on, 2 unreadable input or wrong usage, 3 no GPU was found.
    """
    from topoadvisor import advise, plans
    from topoadvisor.errors import NothingDetermined, TopoAdvisorError

    if baseline == "-" and "-" in (sources or []):
        raise TopoAdvisorError("SOURCE and baseline cannot both be standard input", hint="Give one of them as a file.")
    earlier = None if baseline is None else load_snapshot(baseline)
    snapshot = load_snapshot(sources, assume, assume_file)
    if not snapshot.gpus:
        nvml = snapshot.source("nvml")
        before = f"The baseline has {len(earlier.gpus)}: `topoadvisor diff` says what else changed. " if earlier else ""
        raise NothingDetermined(
            "no NVIDIA GPU was found" + (f": {nvml.reason}" if nvml and nvml.reason else ""),
            hint=before
            + (
                "Give the text of `nvidia-smi topo -m`, `nvidia-smi -q` or `lspci -tv` of the same machine too."
                if sources
                else "On a machine without one give a SOURCE: a snapshot, a pasted `nvidia-smi topo -m`, "
                "a bug report, or fixture:NAME (`topoadvisor scan fixture:` lists them)."
            ),
        )
    room = room_for_numpy()
    if not room:
        print("topoadvisor: no rings are planned: there is not enough memory for the solver", file=sys.stderr)
    analyse = plans.analyse if room else advise.analyse
    analysis = analyse(snapshot, rule_directories=rules or (), preview=preview, baseline=earlier)
    if output_format == "json":
        emit_json(analysis.advice)
    else:
        from topoadvisor.render import scan_text
        from topoadvisor.topology import matrix

        table = matrix.shown(snapshot, analysis.topology)
        emit_text(scan_text.render(analysis.advice, table, width=page_width(), color=use_color()))
    failing = {"error": ["error"], "warning": ["error", "warning"], "never": []}[fail_on]
    found = [finding.severity for finding in analysis.advice.findings]
    found += [change.severity for change in analysis.advice.changes or []]
    if any(severity in failing for severity in found):
        raise typer.Exit(1)
