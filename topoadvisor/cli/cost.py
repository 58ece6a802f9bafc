"""`topoadvisor cost`."""

from __future__ import annotations

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
    page_width,
    use_color,
)
from topoadvisor.cli.quantities import size_bytes
from topoadvisor.plan.cost import Collective


def _size(text: str) -> int:
    """What is only reckoned with may be smaller, and larger, than what can be measured."""
    return size_bytes(text, least=1, most=1 << 44)


def cost(
    collective: Annotated[Collective, typer.Argument(help="What is to be estimated.", show_default=False)],
    sources: SourceArgument = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--bytes",
            parser=_size,
            metavar="1G",
            help="Size of the buffer as nccl-tests counts it; may be repeated. Otherwise a table.",
            show_default=False,
        ),
    ] = None,
    gpus: GpusOption = None,
    format: FormatOption = "text",
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """How long a collective takes on one node, by size.

    NCCL's own estimate with the channels that its search finds here, and the algorithm and protocol that it takes;
    held to measurements of the collective where the snapshot has them.
    """
    need_numpy()
    from topoadvisor import estimates

    document = estimates.cost(load_snapshot(sources, assume, assume_file), collective, sizes or (), gpu_indexes(gpus))
    if format == "json":
        emit_json(document)
        return
    from topoadvisor.render import cost_text

    emit_text(cost_text.render(document, width=page_width(), color=use_color()))
