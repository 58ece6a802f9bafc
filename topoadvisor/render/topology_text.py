"""The schematic as text: an indented tree from sockets down to devices, then NVLink, then findings."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence

from topoadvisor.advice import Ring
from topoadvisor.render.schematic import Part, Schematic, Wire

MOST_LINES = 4
"""Of one entry; what does not fit ends in an ellipsis."""


def render(schematic: Schematic, rings: Sequence[Ring] = (), *, width: int = 80) -> str:
    """The text, at most `width` columns wide, ending in a newline. Longer lines are broken, single long words cut."""
    lines = [*_wrapped(schematic.title, width), *_wrapped(schematic.subtitle, width), ""]
    for part in schematic.parts:
        lines += _tree(part, "", "", width)
    if nvlinks := [wire for wire in schematic.wires if wire.kind == "nvlink"]:
        lines += ["", *_nvlinks(schematic, nvlinks, width)]
    titles = {part.id: part.title for top in schematic.parts for part in top.walk()}
    others = [wire for wire in schematic.wires if wire.kind == "c2c"]
    if others:
        lines += ["", "Chip to chip"]
        lines += [
            _cut(f"  {wire.label:4} {titles[wire.a]} to {titles[wire.b]}{_doubt(wire)}", width) for wire in others
        ]
    if schematic.planned:
        lines += ["", *_wrapped(schematic.planned, width)]
    for key in schematic.keys:
        first = f"  {f'{{{key.tag.text}}}' if key.tag else '':9} "
        lines += _wrapped(key.text, width, first=first, rest=" " * 12)
    if rings:
        lines += ["", "Rings"]
    for ring in rings:
        speed = f"{ring.gbps:.4g} GB/s" if ring.gbps else "? GB/s"
        order = " → ".join(str(gpu) for gpu in [*ring.order, ring.order[0]])
        lines += _wrapped(order, width, first=f"  {speed:>12}  ", rest=" " * 16)
    if schematic.notes:
        lines += ["", "Findings"]
        for note in schematic.notes:
            lines += _wrapped(note.text, width, first=f"  {note.rule:7} {note.severity:8}", rest=" " * 18)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _tree(part: Part, lead: str, rest: str, width: int) -> Iterator[str]:
    """The lines of a part and all below it; `lead` begins its own line, `rest` those of its children."""
    text = " · ".join(fact for fact in (part.heading, *part.lines, part.uplink.text) if fact)
    if part.uplink.degraded:
        text += " (degraded)"
    if part.passed:
        text += f" · {part.passed} more switch{'es' if part.passed > 1 else ''} above"
    if part.tag is not None:
        text += f"  {{{part.tag.text}}}"
    if part.badges:
        text += "  [" + ", ".join(badge.rule for badge in part.badges) + "]"
    yield from _wrapped(text, width, first=lead, rest=rest + ("│  " if part.children else "   "))
    for number, child in enumerate(part.children, start=1):
        last = number == len(part.children)
        yield from _tree(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), width)


def _nvlinks(schematic: Schematic, wires: Sequence[Wire], width: int) -> Iterator[str]:
    """GPUs on the fabric by number of links, then for each GPU its direct peers."""
    titles = {part.id: part.title for top in schematic.parts for part in top.walk()}
    fabric = schematic.fabric
    direct: dict[str, list[str]] = defaultdict(list)
    through: dict[str, list[str]] = defaultdict(list)
    for wire in wires:
        if fabric is not None and wire.b == fabric.id:
            through[wire.label].append(titles[wire.a] + (" (degraded)" if wire.degraded else ""))
        else:
            direct[wire.a].append(f"{titles[wire.b]} {wire.label}{_doubt(wire)}")
            direct[wire.b].append(f"{titles[wire.a]} {wire.label}{_doubt(wire)}")
    if fabric is not None:
        yield from _wrapped(f"NVLink through {fabric.title}", width)
        for links, gpus in through.items():
            first = f"  {links:6} "
            yield from _wrapped(" ".join(gpus), width, first=first, rest=" " * len(first))
    if direct:
        yield "NVLink from GPU to GPU"
        for gpu in (part for top in schematic.parts for part in top.walk() if part.id in direct):
            first = f"  {gpu.title:6} "
            yield from _wrapped(" · ".join(direct[gpu.id]), width, first=first, rest=" " * len(first))


def _doubt(wire: Wire) -> str:
    return " (degraded)" if wire.degraded else " (inferred)" if wire.inferred else ""


def _wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """`text` between margins; deep in a tree at least 20 columns are left for it."""
    room = max(width, len(rest) + 20)
    wrapper = textwrap.TextWrapper(room, first, rest, break_on_hyphens=False, max_lines=MOST_LINES, placeholder=" …")
    return wrapper.wrap(text) or [first]


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"
