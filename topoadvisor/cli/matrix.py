"""`topoadvisor matrix`."""

from typing import Annotated, Literal

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    SourceArgument,
    emit_text,
    load_snapshot,
)

Model = Literal["nvidia-smi", "nccl"]
ModelOption = Annotated[
    Model,
    typer.Option(
        "--model",
        help="Whose words: nvidia-smi's link classes, or NCCL's path types with the bandwidths that it reckons with.",
    ),
]
GpusOption = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="LIST",
        help="With --model nccl: the GPUs of the job, e.g. 0,1,4,5; otherwise all.",
        show_default=False,
    ),
]


def matrix(
    source: SourceArgument = None,
    format: FormatOption = "text",
    model: ModelOption = "nvidia-smi",
    gpus: GpusOption = None,
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """How every two devices are joined, as nvidia-smi prints it, or as NCCL sees it.

    The text can be read back: `topoadvisor matrix X | topoadvisor matrix -` changes nothing. Not so with --model nccl.
    """
    import json

    from topoadvisor.errors import TopoAdvisorError
    from topoadvisor.topology import graph
    from topoadvisor.topology import matrix as pairs

    chosen = _indexes(gpus) if gpus is not None else None
    if chosen is not None and model != "nccl":
        raise TopoAdvisorError("--gpus chooses the GPUs of a job, which only --model nccl asks for")
    snapshot = load_snapshot(source, assume, assume_file)
    if model == "nccl":
        from topoadvisor.render import nccl_matrix
        from topoadvisor.topology import nccl_view

        view = nccl_view.of(snapshot, chosen)
        document, text = nccl_matrix.document, nccl_matrix.text
        emit_text(json.dumps(document(view), indent=1) + "\n" if format == "json" else text(view))
        return
    from topoadvisor.render import matrix as render

    matrices = pairs.of(snapshot, graph.build(snapshot))
    if format == "json":
        emit_text(json.dumps(render.document(matrices), indent=1) + "\n")
    else:
        emit_text(render.text(matrices))


def _indexes(text: str) -> list[int]:
    import re

    from topoadvisor.errors import TopoAdvisorError

    if not re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", text):
        raise TopoAdvisorError(f"--gpus {text[:40]!r} is no list of GPU numbers", hint="Write it as 0,1,4,5.")
    return [int(number) for number in text.split(",")]
