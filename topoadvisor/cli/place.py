"""`topoadvisor place`."""

from __future__ import annotations

from typing import Annotated

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    SourceArgument,
    emit_json,
    emit_text,
    load_snapshot,
    need_numpy,
    page_width,
    use_color,
)


def place(
    sources: SourceArgument = None,
    tp: Annotated[int, typer.Option("--tp", min=1, metavar="N", help="Tensor-parallel size.")] = 1,
    pp: Annotated[int, typer.Option("--pp", min=1, metavar="N", help="Pipeline-parallel size.")] = 1,
    dp: Annotated[int, typer.Option("--dp", min=1, metavar="N", help="Data-parallel size.")] = 1,
    ep: Annotated[int, typer.Option("--ep", min=1, metavar="N", help="Expert-parallel size, a part of --dp.")] = 1,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", min=1, metavar="N", help="Nodes like this one; as few as fit.", show_default=False),
    ] = None,
    format: FormatOption = "text",
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """Which rank goes on which GPU for tensor, expert, data and pipeline parallelism.

    Tensor groups take the fastest links, pipeline stages lie farthest apart. With the order of GPUs for torchrun or MPI
    and what each group's communication costs.
    """
    need_numpy()
    from topoadvisor import placing

    document = placing.place(load_snapshot(sources, assume, assume_file), placing.Sizes(tp, pp, dp, ep, nodes))
    if format == "json":
        emit_json(document)
        return
    from topoadvisor.render import place_text

    emit_text(place_text.render(document, width=page_width(), color=use_color()))
