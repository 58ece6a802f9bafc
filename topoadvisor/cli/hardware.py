"""`topoadvisor hardware list|show`."""

from __future__ import annotations

from typing import Annotated

import typer

from topoadvisor.cli.common import FormatOption, emit_json, emit_text

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What GPUs, CPUs, links and machines can do.")


@app.command("list")
def list_(output_format: FormatOption = "text") -> None:
    """List the catalogue: GPU families, CPUs, link generations, machines with a known topology."""
    from topoadvisor.hardware import entries

    found = entries.entries()
    if output_format == "json":
        emit_json({"schema": entries.SCHEMA, "entries": found})
    else:
        emit_text(entries.table(found))


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="As in the list, or as a machine, GPU or CPU calls itself.")
    ],
    output_format: FormatOption = "text",
) -> None:
    """Say everything about one entry, and where each value is from.

    A source with a date was read at its address on that day; one without was named when the value was written down and
    has not been read again.
    """
    from topoadvisor.hardware import entries

    found = entries.find(name)
    if output_format == "json":
        emit_json({"schema": entries.SCHEMA, "entries": [found]})
    else:
        emit_text(entries.describe(found))


@app.command()
def results(
    gpu: Annotated[
        str | None, typer.Argument(metavar="[GPU]", help="Only this one, by its name.", show_default=False)
    ] = None,
    output_format: FormatOption = "text",
) -> None:
    """Peer copies that others published or that were measured here, with origin and date."""
    from topoadvisor.hardware import results as published

    found = published.of(gpu)
    if output_format == "json":
        emit_json(published.document(found))
    else:
        emit_text(published.table(found))
