"""`topoadvisor rings`."""

from __future__ import annotations

import shutil
from typing import Annotated

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    GpusOption,
    SourceArgument,
    emit_json,
    emit_text,
    gpu_indexes,
    load_snapshot,
    need_numpy,
    use_color,
)
from topoadvisor.plan import Model

_WIDEST = 120


def rings(
    sources: SourceArgument = None,
    gpus: GpusOption = None,
    model: Annotated[
        Model,
        typer.Option("--model", help="Bandwidths on paper, as measured by `verify --save`, or as NCCL counts them."),
    ] = "expected",
    channels: Annotated[
        int | None,
        typer.Option(
            "--channels", min=1, max=32, metavar="N", help="Equal-speed channels: exactly N.", show_default=False
        ),
    ] = None,
    format: FormatOption = "text",
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """The best set of rings, with the proof that there is none better.

    Maximises what all rings carry together when every directed link, shared uplinks and links between sockets included,
    carries no more than it can. Says which links hold the total down, and gives the best rings of one speed, which is
    what NCCL's channels are.
    """
    from topoadvisor import advise

    need_numpy()
    document = advise.best_rings(
        load_snapshot(sources, assume, assume_file), model=model, gpus=gpu_indexes(gpus), channels=channels
    )
    if format == "json":
        emit_json(document)
        return
    from topoadvisor.render import rings_text

    width = min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)
    emit_text(rings_text.render(document, width=width, color=use_color()))
