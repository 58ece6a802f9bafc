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
    listed: Annotated[
        bool, typer.Option("--list", help="Names, values and meanings of all facts instead; no machine is read.")
    ] = False,
    find: Annotated[
        str | None,
        typer.Option(
            "--find",
            metavar="WORDS",
            help="The same for those that have one of the words in name, meaning or values.",
            show_default=False,
        ),
    ] = None,
    format: FormatOption = "text",
) -> None:
    """Every fact that a rule can read, and where it is from.

    A fact that is not known comes with the reason. --find says how a fact is called that is to be assumed.
    """
    from topoadvisor.errors import TopoAdvisorError
    from topoadvisor.rules import fact_list
    from topoadvisor.rules.facts import gather
    from topoadvisor.topology import graph

    if find is not None and not find.strip():
        raise TopoAdvisorError("--find got no word", hint="Is a variable of the script empty? --list shows all facts.")
    if listed or find:
        if sources or assume or assume_file or prefix or format == "json":
            raise TopoAdvisorError(
                "--list and --find read no machine",
                hint="Leave out SOURCE and the other options, or --list and --find.",
            )
        emit_text(fact_list.meanings(fact_list.names(find or "")))
        return
    snapshot = load_snapshot(sources, assume, assume_file)
    rows = fact_list.select(gather(snapshot, graph.build(snapshot)), prefix)
    if format == "json":
        emit_json(fact_list.document(rows))
    else:
        emit_text(fact_list.table(rows))
