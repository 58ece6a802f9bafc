"""`topoadvisor verify`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from topoadvisor.snapshot import Snapshot
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
    _deliver(found, report, live, save, format)


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
    from topoadvisor.measurements import counted
    from topoadvisor.measurements.model import COLLECTIVES
    from topoadvisor.topology import graph
    from topoadvisor.verify import collectives, collectives_report, group

    with progress.bar("collectives") as tell:
        here, ranks, library = collectives.ranks_here(live, os.environ, nccl=nccl, deadline_s=deadline, progress=tell)
        sizes = [each for each in collectives.DEFAULT_SIZES if each <= size] or [size]
        found = collectives.check(
            live,
            here.gpus,
            ranks,
            cases=group.cases(COLLECTIVES, sizes, len(here.gpus), batches=repeats),
            library=library,
            expect=lambda version, largest: collectives.expected(
                live, [gpu.index for gpu in here.gpus], version, largest
            ),
            measured=counted.alone(base, graph.build(base)).measurements,
            notes=here.notes,
            date=now(),
        )
    _deliver(found, collectives_report, live, save, format)


def _deliver(found: Any, texts: Any, live: Snapshot, save: Path | None, format: TextOrJson) -> None:
    """Save, before anything is printed, as who reads that may leave; then print, also what could not be saved."""
    from topoadvisor.verify import run

    try:
        if save and found.measurements:
            say(run.save(save, live, measurements=found.measurements))
    finally:
        if format == "json":
            emit_json(texts.document(found))
        else:
            emit_text(wrapped(texts.to_text(found), page_width()))
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _planned_rings(live: Snapshot) -> list[list[int]]:
    if len(live.gpus) < 3:
        return []
    from topoadvisor import plans

    plan = plans.analyse(live).advice.plan
    return [ring.order for ring in plan.rings[:1]] if plan else []
