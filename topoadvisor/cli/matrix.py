"""`topoadvisor matrix`."""

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    SourceArgument,
    emit_text,
    load_snapshot,
)


def matrix(
    sources: SourceArgument = None,
    format: FormatOption = "text",
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """How every two devices are joined, as nvidia-smi prints it.

    The text can be read back: `topoadvisor matrix X | topoadvisor matrix -` changes nothing.
    """
    import json

    from topoadvisor.render import matrix as render
    from topoadvisor.topology import graph
    from topoadvisor.topology import matrix as pairs

    snapshot = load_snapshot(sources, assume, assume_file)
    matrices = pairs.of(snapshot, graph.build(snapshot))
    if format == "json":
        emit_text(json.dumps(render.document(matrices), indent=1) + "\n")
    else:
        emit_text(render.text(matrices))
