"""`topoadvisor diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from topoadvisor.cli.common import FormatOption, emit_json, emit_text, load_snapshot, page_width, use_color

if TYPE_CHECKING:
    from topoadvisor.snapshot import Snapshot


def diff(
    before: Annotated[
        str,
        typer.Argument(metavar="A", help="The earlier capture: any SOURCE that scan takes.", show_default=False),
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="The later one. Without it: this machine.", show_default=False),
    ] = None,
    output_format: FormatOption = "text",
) -> None:
    """What changed between two captures of one machine.

    Links that went down, widths, GPUs that are gone, moved or replaced, driver, NCCL, settings, P2P grants, NICs, NUMA,
    services. What changes by itself does not count: free memory, the PCIe generation of an idle GPU, dates. A value
    that only one of the two holds is named as such and is no change.

    Exit codes: 0 nothing changed, 1 something did, 2 unreadable input or wrong usage.
    """
    from topoadvisor.diff import compare
    from topoadvisor.errors import TopoAdvisorError

    if before == after == "-":
        raise TopoAdvisorError(
            "only one of the two captures can be standard input", hint="Give the other one as a file."
        )
    old, new = load_snapshot(before), load_snapshot(after)
    found = compare(old, new)
    if output_format == "json":
        emit_json(found)
    else:
        from topoadvisor.render import changes_text

        names = (_named(before, old), _named(after or "this machine", new))
        emit_text(changes_text.render(found, *names, width=page_width(), color=use_color()))
    if not found.same:
        raise typer.Exit(1)


def _named(source: str, snapshot: Snapshot) -> str:
    name = "standard input" if source == "-" else source
    return f"{name} ({snapshot.captured_at})" if snapshot.captured_at else name
