"""What a drawing is made of. Lengths are points (1/72 inch), x to the right, y downwards, boxes by their upper left."""

from __future__ import annotations

from dataclasses import dataclass

from topoadvisor.render.schematic import Part, Wire

Point = tuple[float, float]

NARROWEST = 480.0
"""Title, legend and findings want a page of this width even when the machine is small."""
GAP = 8.0
"""Between two boxes beside each other."""
NVLINK_DROP = 30.0
"""From the floor of a band to the NVLink fabric."""
MARGIN_ROUTE = 30.0
"""Left and right of two bands, for the link between their sockets."""


@dataclass(frozen=True)
class Row:
    """One line of text inside a box. Sizes are whole points: Graphviz cuts off fractions."""

    text: str
    size: int
    bold: bool = False
    tone: str = "text"
    """What the text is about; the drawing maps it to a colour."""

    @property
    def height(self) -> float:
        return self.size * 1.25


@dataclass(frozen=True)
class Box:
    """One node of the drawing."""

    part: Part
    x: float
    y: float
    w: float
    h: float
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Frame:
    """A socket or NUMA node around what belongs to it."""

    part: Part
    x: float
    y: float
    w: float
    h: float
    title: Row | None
    title_below: bool
    frames: tuple[Frame, ...]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Line:
    """One connection, as a chain of straight segments."""

    a: str
    b: str
    wire: Wire
    points: tuple[Point, ...]
    label_at: Point | None = None


@dataclass(frozen=True)
class Placement:
    """The body of the picture: without title, legend and findings."""

    w: float
    h: float
    frames: tuple[Frame, ...]
    boxes: tuple[Box, ...]
    """Boxes in no frame: the NVLink fabric."""
    lines: tuple[Line, ...]
