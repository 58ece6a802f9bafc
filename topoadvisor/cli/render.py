"""`topoadvisor render`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    RulesOption,
    SourceArgument,
    file_to_write,
    load_snapshot,
    need_numpy,
)

if TYPE_CHECKING:
    from topoadvisor.advice import Ring
    from topoadvisor.placing import Sizes
    from topoadvisor.render.schematic import Schematic

Format = Literal["text", "dot", "svg", "png", "pdf"]
_SIZES = ("tp", "pp", "dp", "ep", "nodes")
_SUFFIXES: dict[str, Format] = {
    **{".svg": "svg", ".png": "png", ".pdf": "pdf", ".dot": "dot", ".gv": "dot"},
    **{".txt": "text", "": "text"},
}


def render(
    sources: SourceArgument = None,
    format: Annotated[
        Format | None,
        typer.Option("--format", help="Default: by the suffix of -o, else text.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            parser=file_to_write,
            help="Where to write; - is standard output.",
            show_default=False,
        ),
    ] = None,
    rings: Annotated[bool, typer.Option("--rings", help="Draw the best rings too.")] = False,
    pick: Annotated[
        int | None,
        typer.Option("--pick", min=1, metavar="K", help="Mark what `pick K` chooses.", show_default=False),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(
            "--place",
            metavar="tp=4,pp=2",
            help="Mark where `place --tp 4 --pp 2` puts ranks; also dp, ep, nodes.",
            show_default=False,
        ),
    ] = None,
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
    rules: RulesOption = None,
) -> None:
    """Draw the machine, with the findings on it.

    Shows sockets, NUMA nodes, PCIe switches, GPUs, NICs and NVLink.

    Needs no system package and no font. What was inferred is dashed, what is broken or degraded is red.
    """
    from topoadvisor import advise, plans
    from topoadvisor.errors import InputError
    from topoadvisor.render import outline

    to_file = output is not None and str(output) != "-"
    wanted = format or _format_of(output)
    if wanted in ("png", "pdf") and not to_file and sys.stdout.isatty():
        raise InputError(
            f"a {wanted.upper()} is no text for a terminal",
            hint=f"Write it to a file: -o topology.{wanted}, or into a pipe.",
        )
    if pick is not None and place is not None:
        raise InputError("--pick and --place both mark GPUs", hint="Draw one picture for each.")
    sizes = None if place is None else _sizes(place)
    snapshot = load_snapshot(sources, assume, assume_file)
    if rings or pick is not None or sizes is not None:
        need_numpy()
    analysis = (plans.analyse if rings else advise.analyse)(snapshot, rule_directories=rules or ())
    planned = analysis.advice.plan.rings if analysis.advice.plan else []
    schematic = outline.outline(snapshot, analysis.topology, analysis.advice)
    if pick is not None:
        from topoadvisor import planning
        from topoadvisor.render import tags

        schematic = tags.picked(schematic, planning.pick(snapshot, pick))
    if sizes is not None:
        from topoadvisor import placing
        from topoadvisor.render import tags

        schematic = tags.placed(schematic, placing.place(snapshot, sizes))
    data = _rendered(schematic, planned, wanted)
    if output is not None and to_file:
        _write(output, data)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _sizes(text: str) -> Sizes:
    """`tp=4,pp=2` as the options of `place`."""
    from topoadvisor.errors import InputError
    from topoadvisor.placing import Sizes

    told: dict[str, int] = {}
    for entry in text.split(","):
        name, _, number = entry.strip().partition("=")
        if name not in _SIZES or name in told or not re.fullmatch(r"0*[1-9][0-9]{0,5}", number):
            raise InputError(
                f"--place cannot be read at {entry.strip()[:40]!r}",
                hint=f"Write it as tp=4,pp=2: each of {', '.join(_SIZES)} at most once, with a number from 1.",
            )
        told[name] = int(number)
    tp, pp, dp, ep = (told.get(name, 1) for name in _SIZES[:4])
    return Sizes(tp, pp, dp, ep, told.get("nodes"))


def _format_of(output: Path | None) -> Format:
    from topoadvisor.errors import InputError

    _, dot, ending = output.name.rpartition(".") if output is not None else ("", "", "")
    suffix = dot + ending.lower() if dot else ""
    if suffix not in _SUFFIXES:
        raise InputError(
            f"there is no telling from {suffix[:20]} what to draw",
            hint="Use .svg, .png, .pdf, .dot or .txt, or --format.",
        )
    return _SUFFIXES[suffix]


def _rendered(schematic: Schematic, rings: list[Ring], wanted: Format) -> bytes:
    if wanted == "text":
        from topoadvisor.render import topology_text

        return topology_text.render(schematic, rings).encode()
    need_numpy()
    from topoadvisor.render import dot, picture
    from topoadvisor.render.drawing import compose

    drawing = compose(schematic, rings)
    return dot.source(drawing).encode() if wanted == "dot" else picture.draw(drawing, wanted)


def _write(output: Path, data: bytes) -> None:
    from topoadvisor.errors import InputError
    from topoadvisor.files import write_atomically

    try:
        write_atomically(output, data)
    except OSError as error:
        raise InputError(
            f"cannot write here: {error.strerror or error}",
            file=str(output),
            hint="Give a file in a folder that exists and that you may write to.",
        ) from None
