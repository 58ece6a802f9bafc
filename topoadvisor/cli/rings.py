"""`topoadvisor rings`."""

from __future__ import annotations

from typing import Annotated

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    GpusOption,
    ModelOption,
    SourceArgument,
    emit_json,
    emit_text,
    gpu_indexes,
    load_snapshot,
    need_numpy,
    page_width,
    use_color,
)


def rings(
    sources: SourceArgument = None,
    gpus: GpusOption = None,
    model: ModelOption = "expected",
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
    need_numpy()
    from topoadvisor import planning

    document = planning.best_rings(
        load_snapshot(sources, assume, assume_file), model=model, gpus=gpu_indexes(gpus), channels=channels
    )
    if format == "json":
        emit_json(document)
        return
    from topoadvisor.render import rings_text

    emit_text(rings_text.render(document, asked=channels, width=page_width(), color=use_color()))
