"""Schematic → everything on the page with its place and colour: what all picture formats are made from.

Lengths are points (1/72 inch), x to the right, y downwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import hypot
from typing import Literal

from topoadvisor.advice import Ring
from topoadvisor.render import ring_strip
from topoadvisor.render.captions import BADGE, BADGE_HEIGHT, PADDING, SMALL, badge_width, tag_width
from topoadvisor.render.lettering import fit, width, wrap
from topoadvisor.render.placement import place
from topoadvisor.render.schematic import Badge, Note, Part, Schematic, Tag, Wire
from topoadvisor.render.shapes import NARROWEST, Box, Frame, Line, Placement, Point, Row

TITLE_SIZE, SUBTITLE_SIZE, LEGEND_SIZE, NOTE_SIZE = 15, 10, 9, 9
NOTES_SHOWN = 6
NOTE_INDENT = 52.0
TAG_HEIGHT = 11.0
MARK_SIZE, MARK_AWAY = (9.0, 6.0), 7.0
SAMPLE, SAMPLE_ROOM = 20.0, 26.0
"""Width of a piece of line in the legend, and what is kept free for it."""
CORNER = 5.0

BROKEN = "#d32f2f"
INKS = {
    "text": "#1f2933",
    "badge": "#ffffff",
    "broken": BROKEN,
    "pcie": "#4f6787",
    "nvlink": "#456b00",
    "c2c": "#7b3596",
    "inter-socket": "#323f4b",
}
"""Colour of a text by its tone."""
_SEVERITIES = {"error": BROKEN, "warning": "#d97706", "info": "#4a6fa5"}
_FILLS = {
    "socket": ("#f4f6f8", "#98a4b3"),
    "numa": ("#ffffff", "#c3ccd6"),
    "numa-bar": ("#d8dfe7", "#98a4b3"),
    "root": ("#eff2f5", "#a9b4c0"),
    "switch": ("#e2e9f2", "#7f93ad"),
    "gpu": ("#eef7dd", "#6aa500"),
    "nic": ("#e8f1fc", "#5a8fd0"),
    "nvswitch": ("#d9edb0", "#5b8f00"),
}
_STROKES = {"nvlink": "#6aa500", "c2c": "#8e44ad", "pcie": "#7f93ad", "host": "#a9b4c0", "inter-socket": "#323f4b"}
_LEGEND = {
    "nvlink": ("NVLink", 4.0),
    "c2c": ("chip to chip (C2C)", 4.0),
    "pcie": ("PCIe", 2.0),
    "inter-socket": ("between CPUs (SYS)", 3.0),
}
"""Words and thickness of the sample for each kind of wire that a reader has to be told."""


@dataclass(frozen=True)
class Look:
    """How a box is painted. A `pen` of 0 draws no border."""

    fill: str
    border: str
    pen: float = 1.0
    dashed: bool = False
    radius: float = 0.0


@dataclass(frozen=True)
class Shape:
    """A box with lines of text in it, or with `look` None the text alone."""

    id: str
    """Unique in the drawing."""
    x: float
    y: float
    w: float
    h: float
    look: Look | None = None
    rows: tuple[Row, ...] = ()
    align: Literal["top", "left", "centre"] = "left"
    """`top`: rows at the upper left; `left`: at the left, half-way down; `centre`: in the middle."""

    @property
    def inset(self) -> Point:
        """From the sides of the box to its text."""
        return (PADDING, 3.0) if self.look else (0.0, 0.0)

    def lines(self) -> Iterator[tuple[Row, Point]]:
        """Every row with the point half-way up its left end, or with `centre` half-way up its middle."""
        used = sum(row.height for row in self.rows)
        x = self.x + (self.w / 2 if self.align == "centre" else self.inset[0])
        y = self.y + (self.inset[1] if self.align == "top" else (self.h - used) / 2)
        for row in self.rows:
            yield row, (x, y + row.height / 2)
            y += row.height


@dataclass(frozen=True)
class Group:
    """A socket or NUMA node: a box and what stands in it."""

    box: Shape
    groups: tuple[Group, ...]
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Stroke:
    """One connection between the shapes `a` and `b`."""

    a: str
    b: str
    points: tuple[Point, ...]
    colour: str
    pen: float
    dashed: bool
    label: Row | None = None
    label_at: Point = (0.0, 0.0)
    """The middle of the label."""


@dataclass(frozen=True)
class Drawing:
    """A page without margins."""

    title: str
    w: float
    h: float
    groups: tuple[Group, ...]
    shapes: tuple[Shape, ...]
    strokes: tuple[Stroke, ...]


def compose(schematic: Schematic, rings: Sequence[Ring] = ()) -> Drawing:
    """Title, machine, tags, rings, legend and findings on one page; the same schematic gives the same drawing."""
    body = place(schematic)
    page = max(body.w, NARROWEST)
    shapes = [_text("title", schematic.title, 0, 0, page, TITLE_SIZE, bold=True)]
    y = TITLE_SIZE * 1.35
    for number, text in enumerate(wrap(schematic.subtitle, page, SUBTITLE_SIZE, lines=2)):
        shapes.append(_text(f"subtitle:{number}", text, 0, y, page, SUBTITLE_SIZE))
        y += SUBTITLE_SIZE * 1.3
    top = y + 13
    groups = tuple(_group(frame, top) for frame in body.frames)
    for box in body.boxes:
        shapes += _box(box, top)
    shapes += [_passed(line, top) for line in body.lines if line.wire.passed]
    y = top + body.h + 16
    keys, y = _keys(schematic, y, page)
    shapes += keys
    ring_shapes, ring_strokes, y = _rings(rings, groups, shapes, y, page)
    shapes += ring_shapes
    legend = _legend(body, y)
    notes = _notes(schematic.notes, y + LEGEND_SIZE * 1.4 + 8, page)
    shapes += [*legend, *notes]
    bottom = max(shape.y + shape.h for shape in shapes)
    return Drawing(
        schematic.title,
        page,
        max(bottom, top + body.h),
        groups,
        tuple(shapes),
        (*(_stroke(line, top) for line in body.lines), *ring_strokes),
    )


def _keys(schematic: Schematic, y: float, page: float) -> tuple[list[Shape], float]:
    """What the tags are about, from `y` down, and where that ends."""
    if not schematic.planned:
        return [], y
    shapes = [_text("planned", schematic.planned, 0, y, page, NOTE_SIZE, bold=True)]
    y += NOTE_SIZE * 1.6
    for number, key in enumerate(schematic.keys):
        if key.tag is not None:
            shapes.append(_tag(f"key:{number}", key.tag, 0, y + (NOTE_SIZE * 1.3 - TAG_HEIGHT) / 2))
        for line, text in enumerate(wrap(key.text, page - NOTE_INDENT, NOTE_SIZE, lines=2)):
            shapes.append(_text(f"key-text:{number}:{line}", text, NOTE_INDENT, y, page - NOTE_INDENT, NOTE_SIZE))
            y += NOTE_SIZE * 1.5
    return shapes, y + 6


def _rings(
    rings: Sequence[Ring], groups: Sequence[Group], shapes: Sequence[Shape], y: float, page: float
) -> tuple[list[Shape], list[Stroke], float]:
    """The shapes and lines of the rings from `y` down, and where they end."""
    boxes = {
        int(shape.id.removeprefix("gpu:")): (shape.x + shape.w / 2, shape.y)
        for shape in (*shapes, *(shape for group in groups for shape in _inside(group)))
        if shape.id.startswith("gpu:")
    }
    found: list[Shape] = []
    strokes: list[Stroke] = []
    places = ring_strip.places(boxes, page)
    w, h = ring_strip.dot_size()
    for number, ring in enumerate(rings[: ring_strip.SHOWN]):
        strip = ring_strip.Strip(number, ring, {gpu: places[gpu] for gpu in ring.order}, y, page)
        found.append(Shape(f"ring:{number}", 0, strip.title_y, page, strip.title.size * 1.3, rows=(strip.title,)))
        for gpu, x, top in strip.dots:
            look = Look(_FILLS["gpu"][0], strip.colour, radius=3.0)
            found.append(Shape(f"ring:{number}:{gpu}", x, top, w, h, look, (ring_strip.label(gpu),), "centre"))
        strokes += [
            Stroke(f"ring:{number}:{a}", f"ring:{number}:{b}", points, strip.colour, 1.6, False)
            for (a, b), points in strip.lines()
        ]
        y = strip.bottom
    if len(rings) > ring_strip.SHOWN:
        more = f"and {len(rings) - ring_strip.SHOWN} more: see `topoadvisor scan --format json`"
        found.append(_text("ring:more", more, 0, y, page, NOTE_SIZE))
        y += NOTE_SIZE * 1.5
    if strokes:
        found.append(
            _text("ring:how", "Hops to the right run below the GPUs, hops to the left above.", 0, y, page, SMALL)
        )
        y += SMALL * 1.5
    return found, strokes, y + 6 if rings else y


def _inside(group: Group) -> Iterator[Shape]:
    yield from group.shapes
    for inner in group.groups:
        yield from _inside(inner)


def rounded(points: Sequence[Point], radius: float = CORNER) -> list[Point]:
    """A chain of straight segments with rounded corners as cubic Bézier curves: the start, then three points each."""
    path: list[Point] = [points[0]]

    def straight(to: Point) -> None:
        start = path[-1]
        path.extend([_between(start, to, 1 / 3), _between(start, to, 2 / 3), to])

    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        into, out = _distance(before, corner), _distance(corner, after)
        reach = min(radius, into / 2, out / 2)
        if reach == 0:
            straight(corner)
            continue
        straight(_between(corner, before, reach / into))
        leave = _between(corner, after, reach / out)
        path.extend([_between(path[-1], corner, 0.55), _between(leave, corner, 0.55), leave])
    straight(points[-1])
    return path


def _between(a: Point, b: Point, share: float) -> Point:
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share


def _distance(a: Point, b: Point) -> float:
    return hypot(b[0] - a[0], b[1] - a[1])


def _text(id: str, text: str, x: float, y: float, w: float, size: int, *, bold: bool = False) -> Shape:
    return Shape(id, x, y, w, size * 1.3, rows=(Row(fit(text, w, size, bold=bold), size, bold),))


def _group(frame: Frame, top: float) -> Group:
    part = frame.part
    y = frame.y + top
    fill, border = _FILLS[part.kind]
    look = Look(fill, border, dashed=part.inferred, radius=9.0 if part.kind == "socket" else 7.0)
    box = Shape(f"frame:{part.id}", frame.x, y, frame.w, frame.h, look)
    shapes: list[Shape] = []
    if frame.title is not None:
        h = frame.title.size * 1.3
        title_y = y + frame.h - h - 3.5 if frame.title_below else y + 3.5
        shapes.append(Shape(part.id, frame.x + 8, title_y, frame.w - 16, h, rows=(frame.title,)))
        shapes += _badges(part, frame.x, title_y - 2, frame.w)
    for inner in frame.boxes:
        shapes += _box(inner, top)
    return Group(box, tuple(_group(inner, top) for inner in frame.frames), tuple(shapes))


def _box(box: Box, top: float) -> list[Shape]:
    """The box and the marks of its findings."""
    part = box.part
    fill, border = _FILLS["numa-bar" if part.kind == "numa" else part.kind]
    pen = 1.0
    if part.tag is not None:
        border, pen = _colour(part.tag), 2.4
    if part.badges:
        border, pen = _SEVERITIES[part.badges[0].severity], 1.8
    look = Look(fill, border, pen, part.inferred, radius=5.0)
    align: Literal["top", "left"] = "top" if part.kind in ("gpu", "nic") else "left"
    shape = Shape(part.id, box.x, box.y + top, box.w, box.h, look, box.rows, align)
    tags = [] if part.tag is None else [_tag(f"tag:{part.id}", part.tag, box.x + 3, shape.y - TAG_HEIGHT + 2.5)]
    return [shape, *_badges(part, box.x, box.y + top, box.w), *tags]


def _badges(part: Part, x: float, y: float, w: float) -> Iterator[Shape]:
    """Marks beside each other on the upper border, from the right; what finds no room becomes a number."""
    right = x + w - 4
    taken = 0.0 if part.tag is None else tag_width(part.tag) + 2
    for number, badge in enumerate(_that_fit(part.badges, w - 8 - taken)):
        right -= badge_width(badge)
        yield _badge(f"badge:{part.id}:{number}", badge, right, y - BADGE_HEIGHT / 2 - 1)
        right -= 2


def _tag(id: str, tag: Tag, x: float, y: float) -> Shape:
    row = Row(tag.text, SMALL, bold=True)
    look = Look("#ffffff", _colour(tag), 1.4, radius=3.5)
    return Shape(id, x, y, tag_width(tag), TAG_HEIGHT, look, (row,), "centre")


def _colour(tag: Tag) -> str:
    return ring_strip.COLOURS[tag.colour % len(ring_strip.COLOURS)]


def _that_fit(badges: Sequence[Badge], room: float) -> list[Badge]:
    for shown in range(len(badges), 0, -1):
        more = [Badge(f"+{len(badges) - shown}", badges[shown].severity)] if shown < len(badges) else []
        marks = [*badges[:shown], *more]
        if sum(badge_width(badge) + 2 for badge in marks) <= room:
            return marks
    return [Badge(str(len(badges)), badges[0].severity)] if badges else []


def _badge(id: str, badge: Badge, x: float, y: float) -> Shape:
    colour = _SEVERITIES[badge.severity]
    row = Row(badge.rule, BADGE, bold=True, tone="badge")
    return Shape(id, x, y, badge_width(badge), BADGE_HEIGHT, Look(colour, colour, 0, radius=3.5), (row,), "centre")


def _stroke(line: Line, top: float) -> Stroke:
    wire = line.wire
    label = None
    if wire.label and line.label_at is not None:
        label = Row(wire.label, SMALL, bold=True, tone="broken" if wire.degraded else wire.kind)
    label_x, label_y = line.label_at or (0.0, 0.0)
    return Stroke(
        line.a,
        line.b,
        tuple((x, y + top) for x, y in line.points),
        BROKEN if wire.degraded else _STROKES[wire.kind],
        _pen(wire),
        wire.inferred,
        label,
        (label_x, label_y + top),
    )


def _pen(wire: Wire) -> float:
    match wire.kind:
        case "nvlink":
            return min(6.0, 1.2 + 0.27 * (wire.links or 1))
        case "c2c":
            return 4.5
        case "inter-socket":
            return 3.0
        case "pcie":
            return 1.0 + 1.4 * min(wire.links or 8, 16) / 16
        case "host":
            return 1.4


def _passed(line: Line, top: float) -> Shape:
    """A small box on a line: a switch that has only this line below it."""
    before, end = line.points[-2:]
    length = _distance(before, end)
    x, y = _between(end, before, min(MARK_AWAY, length / 2) / length)
    w, h = MARK_SIZE
    return Shape(f"passed:{line.b}", x - w / 2, y + top - h / 2, w, h, Look(*_FILLS["switch"]))


def _legend(body: Placement, y: float) -> Iterator[Shape]:
    """Samples and words for what the picture really holds, on one line."""
    x, h = 0.0, LEGEND_SIZE * 1.4
    number = count()
    for pieces, text in _legend_entries(body):
        for left, w, thick, look in pieces:
            yield Shape(f"legend:{next(number)}", x + left, y + (h - thick) / 2, w, thick, look)
        wide = width(text, LEGEND_SIZE)
        x += SAMPLE_ROOM
        yield Shape(f"legend:{next(number)}", x, y, wide, h, rows=(Row(text, LEGEND_SIZE),))
        x += wide + 18


def _legend_entries(body: Placement) -> Iterator[tuple[list[tuple[float, float, float, Look]], str]]:
    """(sample as boxes: left edge, width, height, look; words)."""
    kinds = {line.wire.kind for line in body.lines}
    for kind, (words, thick) in _LEGEND.items():
        if kind in kinds:
            look = Look(_STROKES[kind], _STROKES[kind], 0)
            yield [(0.0, SAMPLE, thick, look)], words
    if any(line.wire.passed for line in body.lines):
        yield [(5.0, *MARK_SIZE, Look(*_FILLS["switch"]))], "one more PCIe switch"
    parts = [part for frame in body.frames for part in frame.part.walk()] + [box.part for box in body.boxes]
    if any(part.inferred for part in parts) or any(line.wire.inferred for line in body.lines):
        yield [(0.0, SAMPLE, 9.0, Look("#ffffff", "#52606d", dashed=True, radius=2.0))], "inferred, not read"
    if any(line.wire.degraded for line in body.lines):
        yield [(0.0, SAMPLE, 4.0, Look(BROKEN, BROKEN, 0))], "broken or degraded"


def _notes(notes: Sequence[Note], y: float, page: float) -> Iterator[Shape]:
    """Findings in words, each behind its mark; a continued line has none."""
    lines: list[tuple[Badge | None, str]] = []
    for note in notes[:NOTES_SHOWN]:
        for number, text in enumerate(wrap(note.text, page - NOTE_INDENT, NOTE_SIZE, lines=2)):
            lines.append((Badge(note.rule, note.severity) if number == 0 else None, text))
    if len(notes) > NOTES_SHOWN:
        lines.append((None, f"and {len(notes) - NOTES_SHOWN} more: see `topoadvisor scan`"))
    for number, (badge, text) in enumerate(lines):
        if badge is not None:
            yield _badge(f"note:{number}", badge, 0, y + (NOTE_SIZE * 1.3 - BADGE_HEIGHT) / 2)
        yield _text(f"note-text:{number}", text, NOTE_INDENT, y, page - NOTE_INDENT, NOTE_SIZE)
        y += NOTE_SIZE * 1.5
