"""`topoadvisor matrix`."""

import sys
from typing import Annotated, Literal

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
    readable,
)

Model = Literal["nvidia-smi", "nccl"]
ModelOption = Annotated[
    Model,
    typer.Option(
        "--model",
        help="Whose words: nvidia-smi's link classes, or NCCL's path types with the bandwidths that it reckons with.",
    ),
]


def matrix(
    sources: SourceArgument = None,
    format: FormatOption = "text",
    model: ModelOption = "nvidia-smi",
    gpus: GpusOption = None,
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """How every two devices are joined.

    As nvidia-smi prints it, or with --model nccl as NCCL sees it. What nvidia-smi prints can be read back:
    `topoadvisor matrix X | topoadvisor matrix -` changes nothing.
    """
    from topoadvisor.topology import graph
    from topoadvisor.topology import matrix as pairs
    from topoadvisor.topology.model import together

    if gpus is not None and model != "nccl":
        from topoadvisor.errors import TopoAdvisorError

        raise TopoAdvisorError("--gpus chooses the GPUs of a job, which only --model nccl asks for")
    snapshot = load_snapshot(sources, assume, assume_file)
    if model == "nccl":
        from topoadvisor.render import nccl_matrix
        from topoadvisor.topology import nccl_view

        view = nccl_view.of(snapshot, gpu_indexes(gpus))
        if format == "json":
            emit_json(nccl_matrix.document(view))
        else:
            emit_text(nccl_matrix.text(view))
        return
    from topoadvisor.ingest import topo_matrix
    from topoadvisor.render import matrix as render

    for told in snapshot.sources:
        if told.name == topo_matrix.NAME and told.status == "partial":
            print(f"topoadvisor: {readable(f'{told.name}: {told.reason}')}", file=sys.stderr)
    topology = graph.build(snapshot)
    # The table is shown as it was printed.
    printed = [each for each in topology.disagreements if any(topo_matrix.NAME in source for source, _ in each.values)]
    for each in together(printed):
        print(f"topoadvisor: {readable(str(each))}", file=sys.stderr)
    if not snapshot.matrices and any(pair.link_class is None for pair in topology.pairs.values()):
        for note in topology.notes:
            print(f"topoadvisor: {readable(note)}", file=sys.stderr)
    matrices = pairs.of(snapshot, topology)
    if format == "json":
        emit_json(render.document(matrices))
    else:
        emit_text(render.text(matrices))
