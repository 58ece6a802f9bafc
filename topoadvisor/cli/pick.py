"""`topoadvisor pick`."""

from __future__ import annotations

from typing import Annotated

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
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


def pick(
    size: Annotated[int, typer.Argument(min=1, metavar="K", help="How many GPUs the job takes.", show_default=False)],
    sources: SourceArgument = None,
    busy: Annotated[
        str | None, typer.Option("--busy", metavar="3,5", help="GPUs that others use.", show_default=False)
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="0,1,2,4", help="What this set loses against the best.", show_default=False),
    ] = None,
    model: ModelOption = "expected",
    format: FormatOption = "text",
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """The best K GPUs for a job, and all GPUs in groups of K.

    By the bandwidth of their rings, then by NICs and NUMA nodes, then by what is left for the next job. With the
    CUDA_VISIBLE_DEVICES to use.
    """
    need_numpy()
    from topoadvisor import planning

    document = planning.pick(
        load_snapshot(sources, assume, assume_file),
        size,
        model=model,
        busy=gpu_indexes(busy, "--busy") or [],
        compare=gpu_indexes(compare, "--compare"),
    )
    if format == "json":
        emit_json(document)
        return
    from topoadvisor.render import pick_text

    emit_text(pick_text.render(document, width=page_width(), color=use_color()))
