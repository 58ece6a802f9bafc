"""What is written into a box of a given width."""

from __future__ import annotations

from topoadvisor.render.lettering import fit, width, wrap
from topoadvisor.render.schematic import Badge, Part, Tag
from topoadvisor.render.shapes import Row

GPU_NAME, NAME, SMALL, BADGE = 11, 9, 8, 7
PADDING = 4.0
NARROWEST = width("0000:00:00.0", SMALL)
"""The text that every device box must hold."""
BADGE_HEIGHT = 10.5


def badge_width(badge: Badge) -> float:
    """Points that a finding's mark takes."""
    return width(badge.rule, BADGE, bold=True) + 8


def tag_width(tag: Tag) -> float:
    """Points that the tag of a plan's group takes."""
    return width(tag.text, SMALL, bold=True) + 8


def device(part: Part, w: float) -> tuple[Row, ...]:
    """Name, model, bus id and PCIe link of a GPU or NIC in a box `w` points wide."""
    room = w - 2 * PADDING
    size = GPU_NAME if part.kind == "gpu" else NAME
    rows = [_name(part.title, room, size)]
    for line in part.lines:
        rows += [Row(text, SMALL) for text in wrap(line, room, SMALL, lines=2)]
    if part.uplink.text:
        rows.append(_uplink(part, room))
    return tuple(rows)


def bar(part: Part, w: float) -> tuple[Row, ...]:
    """Name, bus id or CPUs, and PCIe link of what devices hang off: one line each, or joined when there is room."""
    room = w - 2 * PADDING
    if width(part.heading, NAME, bold=True) <= room:
        rows = [Row(part.heading, NAME, bold=True)]
    else:
        rows = [_name(part.title, room, NAME)]
        if part.detail:
            rows.append(Row(fit(part.detail, room, SMALL), SMALL))
    if part.uplink.text:
        rows.append(_uplink(part, room))
    return tuple(rows)


def header(part: Part, w: float) -> Row:
    """Title and detail of a socket or NUMA node on one line."""
    return Row(fit(part.heading, w - 2 * PADDING, NAME, bold=True), NAME, bold=True)


def fabric(part: Part, w: float) -> tuple[Row, ...]:
    """Title and detail of the NVLink fabric."""
    room = w - 2 * PADDING
    rows = [Row(fit(part.title, room, GPU_NAME, bold=True), GPU_NAME, bold=True)]
    if part.detail:
        rows.append(Row(fit(part.detail, room, SMALL), SMALL))
    return tuple(rows)


def height(rows: tuple[Row, ...]) -> float:
    """Points that a box with these lines needs."""
    return sum(row.height for row in rows) + 6


def _name(text: str, room: float, size: int) -> Row:
    """A name in bold, smaller if need be; one that is still too long keeps its end, where names differ."""
    for smaller in (size, size - 1, size - 2):
        if width(text, smaller, bold=True) <= room:
            return Row(text, smaller, bold=True)
    return Row(fit(text, room, size - 2, bold=True, end=4), size - 2, bold=True)


def _uplink(part: Part, room: float) -> Row:
    return Row(fit(part.uplink.text, room, SMALL), SMALL, tone="broken" if part.uplink.degraded else "pcie")
