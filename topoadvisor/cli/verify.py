"""`topoadvisor verify`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topoadvisor.cli.common import FormatOption, emit_json, emit_text, file_to_write

if TYPE_CHECKING:
    from topoadvisor.snapshot import Snapshot

_LONGEST_DEADLINE = 86_400
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)(?:iB|B)?", text.strip(), re.IGNORECASE)
    size = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if not 4096 <= size <= 1 << 40:
        raise typer.BadParameter(f"{text!r} is no size from 4K to 1024G; write 512M or 1G, in powers of 1024")
    return size


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= _LONGEST_DEADLINE:  # nan is neither
        raise typer.BadParameter(f"{text!r} is no number of seconds from 1 to {_LONGEST_DEADLINE}")
    return seconds


def verify(
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick",
            help="Also reads, copies by kernels and P2P off for every pair, larger samples, a process for each pair.",
        ),
    ] = False,
    size: Annotated[
        int, typer.Option("--size", metavar="BYTES", parser=_size, help="Buffer of one copy, K, M or G allowed.")
    ] = "512M",  # type: ignore[assignment]  # typer parses the default too
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", min=5, max=1000, help="Timed and checked batches: 5, with --full 11."),
    ] = None,
    deadline: Annotated[
        float, typer.Option("--deadline", parser=_seconds, metavar="SECONDS", help="For one measurement.")
    ] = "30",  # type: ignore[assignment]  # typer parses the default too
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            parser=file_to_write,
            help="Save the numbers into a snapshot: this one when it is of this machine, else a new one.",
            show_default=False,
        ),
    ] = None,
    format: FormatOption = "text",
) -> None:
    """Measure all links between GPUs and to the host, and check the data.

    Says which are slow, and the likely cause.

    Every pair one way, the other way and both at once, the latency of small copies, peer access off, each GPU's way to
    host memory, the planned ring and all pairs of a switch at once. All in child processes: one that hangs is ended at
    its deadline. Needs CuPy. Exit code: 0 all is well, 1 something failed or could not be measured, 3 nothing could be.
    """
    import os
    from datetime import UTC, datetime

    from topoadvisor import collect, snapshot
    from topoadvisor.cli import progress
    from topoadvisor.topology import graph
    from topoadvisor.verify import child, report, run, selection

    live = collect.capture_live()
    base = run.base_for(save, live) if save else live
    with progress.bar("verify") as tell:
        found = run.verify(
            live,
            graph.build(live),
            selection.Options(size_bytes=size, repeats=repeats or (11 if full else 5), deadline_s=deadline, full=full),
            converse=child.converse_with(child.command(), child.environment(os.environ)),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            rings=_planned_rings(live),
            progress=tell,
        )
    if format == "json":
        emit_json(report.document(found))
    else:
        emit_text(report.to_text(found))
    if save and found.measurements:
        snapshot.save(run.with_measurements(base, found.measurements), save)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _planned_rings(live: Snapshot) -> list[list[int]]:
    if len(live.gpus) < 3:
        return []
    from topoadvisor import advise

    plan = advise.advise(live).plan
    return [ring.order for ring in plan.rings[:1]] if plan else []
