"""`topoadvisor facts`."""

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
)


def facts(
    sources: SourceArgument = None,
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
    prefix: Annotated[
        str, typer.Option("--filter", metavar="PREFIX", help="Only facts whose name starts so.", show_default=False)
    ] = "",
    format: FormatOption = "text",
) -> None:
    """Every fact that a rule can read, and where it is from.

    A fact that is not known comes with the reason.
    """
    from topoadvisor.rules import fact_list
    from topoadvisor.rules.facts import gather
    from topoadvisor.topology import graph

    snapshot = load_snapshot(sources, assume, assume_file)
    rows = fact_list.select(gather(snapshot, graph.build(snapshot)), prefix)
    if format == "json":
        emit_json(fact_list.document(rows))
    else:
        emit_text(fact_list.table(rows))
