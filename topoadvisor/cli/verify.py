"""`topoadvisor verify`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topoadvisor.cli.common import (
    DeadlineOption,
    FormatOption,
    NcclOption,
    SaveOption,
    TextOrJson,
    emit_json,
    emit_text,
    page_width,
    say,
    wrapped,
)
from topoadvisor.cli.quantities import now, size_bytes

if TYPE_CHECKING:
    from topoadvisor.snapshot import Measurement, Snapshot
    from topoadvisor.verify.selection import Options


def verify(
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick",
            help="Also reads, copies by kernels and P2P off for every pair, larger samples, a process for each pair.",
        ),
    ] = False,
    collectives: Annotated[
        bool,
        typer.Option("--collectives", help="Run NCCL's collectives instead: bandwidth by size, values, its log."),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            metavar="BYTES",
            parser=size_bytes,
            help="Largest buffer: 512M, with --collectives 1G.",
            show_default=False,
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", min=5, max=1000, help="Timed and checked batches: 5, with --full 11."),
    ] = None,
    deadline: DeadlineOption = "30",  # type: ignore[assignment]  # typer parses the default too
    nccl: NcclOption = None,
    save: SaveOption = None,
    format: FormatOption = "text",
) -> None:
    """Measure all links between GPUs and to the host, and check the data.

    Says which are slow, and the likely cause.

    Every pair one way, the other way and both at once, the latency of small copies, peer access off, each GPU's way to
    host memory, the planned ring and all pairs of a switch at once. All in child processes: one that hangs is ended at
    its deadline. --collectives asks NCCL instead, one process per GPU. Needs CuPy.

    Exit code: 0 all is well, 1 something failed or could not be measured, 3 nothing could be, 130 interrupted.
    """
    from topoadvisor import collect
    from topoadvisor.errors import TopoAdvisorError
    from topoadvisor.verify import run, selection

    if collectives and full:
        raise TopoAdvisorError(
            "--full is for copies, and --collectives has none", hint="Leave out the one or the other."
        )
    if nccl is not None and not collectives:
        raise TopoAdvisorError("--nccl names a library for --collectives", hint="Copies do not go through NCCL.")
    live = collect.capture_live()
    base = run.base_for(save, live) if save else live
    if collectives:
        _collectives(live, base, save, size or 1 << 30, repeats or 5, deadline, nccl, format)
        return
    options = selection.Options(
        size_bytes=size or 512 << 20, repeats=repeats or (11 if full else 5), deadline_s=deadline, full=full
    )
    _links(live, save, options, format)


def _links(live: Snapshot, save: Path | None, options: Options, format: TextOrJson) -> None:
    from topoadvisor.cli import progress
    from topoadvisor.topology import graph
    from topoadvisor.verify import child, report, run

    with progress.bar("verify") as tell:
        found = run.verify(
            live,
            graph.build(live),
            options,
            converse=child.converse_with(child.command(), child.environment(os.environ)),
            date=now(),
            rings=_planned_rings(live),
            progress=tell,
        )
    try:
        _save(live, found.measurements, save)
    finally:
        if format == "json":
            emit_json(report.document(found))
        else:
            emit_text(wrapped(report.to_text(found), page_width()))
    _end(found.exit_code)


def _collectives(
    live: Snapshot,
    base: Snapshot,
    save: Path | None,
    size: int,
    repeats: int,
    deadline: float,
    nccl: str | None,
    format: TextOrJson,
) -> None:
    from topoadvisor.cli import progress
    from topoadvisor.verify import collectives, collectives_report, group, rank_messages

    with progress.bar("collectives") as tell:
        here, ranks, library = collectives.ranks_here(live, os.environ, nccl=nccl, deadline_s=deadline, progress=tell)
        sizes = [each for each in collectives.DEFAULT_SIZES if each <= size] or [size]
        found = collectives.check(
            live,
            here.gpus,
            ranks,
            cases=group.cases(rank_messages.COLLECTIVES, sizes, len(here.gpus), batches=repeats),
            library=library,
            expect=lambda version, largest: collectives.expected(
                live, [gpu.index for gpu in here.gpus], version, largest
            ),
            measured=base.measurements,
            notes=here.notes,
            date=now(),
        )
    try:
        _save(live, found.measurements, save)
    finally:
        if format == "json":
            emit_json(collectives_report.document(found))
        else:
            emit_text(wrapped(collectives_report.to_text(found), page_width()))
    _end(found.exit_code)


def _save(live: Snapshot, measurements: list[Measurement], save: Path | None) -> None:
    """Before anything is printed: who reads that may leave."""
    from topoadvisor.verify import run

    if save and measurements:
        say(run.save(save, live, measurements=measurements))


def _end(exit_code: int) -> None:
    if exit_code:
        raise typer.Exit(exit_code)


def _planned_rings(live: Snapshot) -> list[list[int]]:
    if len(live.gpus) < 3:
        return []
    from topoadvisor import advise

    plan = advise.advise(live).plan
    return [ring.order for ring in plan.rings[:1]] if plan else []
