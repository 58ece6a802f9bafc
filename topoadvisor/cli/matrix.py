"""`topoadvisor matrix`."""

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    SourceArgument,
    emit_json,
    emit_text,
    load_snapshot,
)


def matrix(
    source: SourceArgument = None,
    format: FormatOption = "text",
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """How every two devices are joined, as nvidia-smi prints it.

    The text can be read back: `topoadvisor matrix X | topoadvisor matrix -` changes nothing.
    """
    from topoadvisor.render import matrix as render
    from topoadvisor.topology import graph
    from topoadvisor.topology import matrix as pairs

    snapshot = load_snapshot(source, assume, assume_file)
    matrices = pairs.of(snapshot, graph.build(snapshot))
    if format == "json":
        emit_json(render.document(matrices))
    else:
        emit_text(render.text(matrices))
