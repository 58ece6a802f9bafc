"""Schematic → positions.

The picture reads like the machine: CPUs at the top, below them root complexes and switches as bars as wide as what
hangs off them, NICs, then one row of GPUs, and under the GPUs whatever joins them directly. A machine with many GPUs
on several sockets gets a second, mirrored band, so that both rows of GPUs face the NVLink fabric between them; very
many sockets get further bands outside these two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from topoadvisor.render.bands import PLAIN_GAP, SOCKET_GAP, STEP, WIDE_STEP, Band, Layout, narrowest
from topoadvisor.render.columns import Plan
from topoadvisor.render.schematic import Part, Schematic
from topoadvisor.render.shapes import MARGIN_ROUTE, NARROWEST, Placement
from topoadvisor.render.wiring import NvlinkArea, between_frames, ports

PREFERRED_WIDTH = 920.0
"""What the columns try to fill: with margins about 1250 CSS pixels."""
COLUMN_MAX, COLUMN_MAX_OF_FEW = 150.0, 220.0
"""The second is for machines so small that the page would be wider than they are."""
COLUMNS_PER_BAND = 12
"""More GPUs than this in one band are stacked two, three, … high."""
ONE_BAND = 10
"""More GPUs than this on at least two sockets are drawn in two bands."""
FRAMES_PER_BAND = 9
NIC_ROWS = (2, 3, 4, 6)
"""NICs above one GPU, others get columns of their own: the first that keeps the picture within `WIDEST`."""
WIDEST = 1060.0
STRIP = 2.4
"""A picture wider than this many times its height gets more space between its levels."""
BAND_GAP = 24.0
"""Between two bands on the same side of the fabric."""


def place(schematic: Schematic) -> Placement:
    """Positions of everything that `schematic` holds. Deterministic, and independent of installed fonts."""
    for nic_rows in NIC_ROWS:
        placement = _place(schematic, nic_rows, STEP)
        if placement.w <= WIDEST:
            break
    return _place(schematic, nic_rows, WIDE_STEP) if placement.w > STRIP * placement.h else placement


def _place(schematic: Schematic, nic_rows: int, step: float) -> Placement:
    above, below = _bands(schematic.parts)
    rows = [*above, *below]
    stack = max(1, *(ceil(_gpus(parts) / COLUMNS_PER_BAND) for parts in rows))
    linked = any(wire.kind == "inter-socket" for wire in schematic.wires)
    plans = [Plan(parts, stack, nic_rows, SOCKET_GAP if linked else PLAIN_GAP) for parts in rows]
    margin = MARGIN_ROUTE if len(plans) > 1 else 0.0
    column = min(_column_width(plan, PREFERRED_WIDTH - 2 * margin) for plan in plans)
    leaving = ports(schematic)
    chips = {wire.a: wire for wire in schematic.wires if wire.kind == "c2c"}
    bands = [Layout(plan, column, leaving, chips, step).band() for plan in plans]
    inner = max(band.w for band in bands)
    # Where several bands are on one side, the gaps between their sockets must line up: no centring there.
    free = 0.5 if len(bands) <= 2 else 0.0
    bands = [band.moved(margin + (inner - band.w) * free, 0.0) for band in bands]

    area = NvlinkArea(schematic, bands)
    bands, top, height = _pile(bands, len(above), area.height)
    boxes, lines = area.draw(bands, top)
    for band in bands:
        lines += band.lines
    lines += between_frames(schematic.wires, bands)
    frames = tuple(frame for band in bands for frame in band.frames)
    return Placement(inner + 2 * margin, height, frames, tuple(boxes), tuple(lines))


def _column_width(plan: Plan, room: float) -> float:
    """The width of GPU columns at which a band fills `room`, within readable limits."""
    columns = max(plan.columns, 1)
    most = max(COLUMN_MAX, min((NARROWEST - plan.fixed) / columns, COLUMN_MAX_OF_FEW))
    return min(max((room - plan.fixed) / columns, narrowest(plan)), most)


def _pile(bands: Sequence[Band], above: int, between: float) -> tuple[list[Band], float, float]:
    """Put bands below each other, `between` points after the first `above` of them, the later ones mirrored.

    Returns the bands, the y where the space between begins, and the height of everything.
    """
    piled: list[Band] = []
    y = top = 0.0
    for number, band in enumerate(bands):
        upper = number < above
        outer = number < above - 1 or number > above
        piled.append(replace(band if upper else band.mirrored(), outer=outer).moved(0.0, y))
        y += band.h
        if number == above - 1:
            top = y
            y += between
        elif number < len(bands) - 1:
            y += BAND_GAP
    return piled, top, y


def _gpus(parts: Sequence[Part]) -> int:
    return sum(part.kind == "gpu" for top in parts for part in top.walk())


def _bands(parts: tuple[Part, ...]) -> tuple[list[tuple[Part, ...]], list[tuple[Part, ...]]]:
    """The bands above and those below the fabric, each as its sockets: about as many GPUs on both sides."""
    total = _gpus(parts)
    if total <= ONE_BAND or len(parts) < 2:
        return [parts], []
    cut = min(range(1, len(parts)), key=lambda cut: abs(total / 2 - _gpus(parts[:cut])))
    return _rows(parts[:cut]), _rows(parts[cut:])


def _rows(parts: tuple[Part, ...]) -> list[tuple[Part, ...]]:
    rows = ceil(len(parts) / FRAMES_PER_BAND)
    cuts = [round(len(parts) * row / rows) for row in range(rows + 1)]
    return [parts[start:end] for start, end in pairwise(cuts)]
