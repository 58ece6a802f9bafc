"""The picture as Graphviz source, every position given: `dot -Tsvg` of it draws what `topoadvisor render` draws."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from math import hypot

from graphviz import Graph

from topoadvisor.render.captions import BADGE, BADGE_HEIGHT, PADDING, badge_width
from topoadvisor.render.lettering import fit, width, wrap
from topoadvisor.render.placement import place
from topoadvisor.render.schematic import Badge, Note, Part, Schematic
from topoadvisor.render.shapes import NARROWEST, Box, Frame, Line, Placement, Point, Row

FONT = "Helvetica,Arial,DejaVu Sans,sans-serif"
TITLE_SIZE, SUBTITLE_SIZE, LEGEND_SIZE, NOTE_SIZE = 15, 10, 9, 9
NOTES_SHOWN = 6
CORNER = 5.0
MARK_SIZE, MARK_AWAY = (9.0, 6.0), 7.0

_TEXT = "#1f2933"
_BROKEN = "#d32f2f"
_TONES = {"text": _TEXT, "muted": "#5f6b7a", "pcie": "#4f6787", "broken": _BROKEN}
_SEVERITIES = {"error": _BROKEN, "warning": "#d97706", "info": "#4a6fa5"}
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
_WIRES = {
    "nvlink": ("#6aa500", "#456b00", "NVLink"),
    "c2c": ("#8e44ad", "#7b3596", "chip to chip (C2C)"),
    "pcie": ("#7f93ad", "#4f6787", "PCIe"),
    "host": ("#a9b4c0", "#4f6787", "root complex to CPU"),
    "memory": ("#52606d", "#52606d", "between NUMA nodes"),
    "inter-socket": ("#323f4b", "#323f4b", "between CPUs (SYS)"),
}


def source(schematic: Schematic) -> str:
    """DOT text of the whole picture; the same schematic gives the same bytes."""
    text: str = _Drawing(schematic).graph.source
    return text


class _Drawing:
    """Collects nodes, clusters and edges on a canvas of known height, since Graphviz counts y upwards."""

    def __init__(self, schematic: Schematic) -> None:
        body = place(schematic)
        self.names = _Names()
        self.width = max(body.w, NARROWEST)
        subtitle = wrap(schematic.subtitle, self.width, SUBTITLE_SIZE, lines=2)
        body_top = TITLE_SIZE * 1.3 + len(subtitle) * SUBTITLE_SIZE * 1.3 + 14
        legend_top = body_top + body.h + 16
        notes = _note_lines(schematic.notes, self.width)
        notes_top = legend_top + LEGEND_SIZE * 1.4 + 8
        line = NOTE_SIZE * 1.5
        self.height = notes_top + (len(notes) * line if notes else -8)
        self.top = body_top
        self.graph = Graph(
            "topology",
            graph_attr={
                "layout": "nop2",
                "bb": f"0,0,{self.width:.1f},{self.height:.1f}",
                "pad": "0.2",
                "bgcolor": "white",
                "outputorder": "edgesfirst",
                "fontname": FONT,
            },
            node_attr={"shape": "box", "fixedsize": "true", "fontname": FONT, "fontcolor": _TEXT, "margin": "0"},
            edge_attr={"fontname": FONT},
        )
        self._text("title", schematic.title, 0, 0, TITLE_SIZE, bold=True)
        for number, text in enumerate(subtitle):
            self._text(f"subtitle_{number}", text, 0, TITLE_SIZE * 1.35 + number * SUBTITLE_SIZE * 1.3, SUBTITLE_SIZE)
        # Graphviz sizes the page by clusters and positioned boxes: an unseen one around everything fixes it.
        page = {"bb": self.graph.graph_attr["bb"], "style": "", "color": "transparent", "label": ""}
        with self.graph.subgraph(name="cluster_page", graph_attr=page) as canvas:
            for frame in body.frames:
                self._frame(canvas, frame)
            for box in body.boxes:
                self._box(canvas, box)
        for wire in body.lines:
            self._line(wire)
        self._legend(body, legend_top)
        for number, (badge, text) in enumerate(notes):
            y = notes_top + number * line
            if badge is not None:
                self._badge(f"note_{number}", badge, 0, y + 1)
            self._text(f"note_text_{number}", text, 52, y, NOTE_SIZE)

    def _node(self, name: str, label: str, x: float, y: float, w: float, h: float, **attributes: str) -> dict[str, str]:
        centre = f"{x + w / 2:.1f},{self.height - y - h / 2:.1f}"
        return {
            "name": name,
            "label": label,
            "pos": centre,
            "width": f"{w / 72:.4f}",
            "height": f"{h / 72:.4f}",
            **attributes,
        }

    def _text(self, name: str, text: str, x: float, y: float, size: int, *, bold: bool = False) -> None:
        row = Row(fit(text, self.width - x, size, bold=bold), size, bold)
        height = size * 1.3
        label = _table((row,), self.width - x, height)
        self.graph.node(**self._node(name, label, x, y, self.width - x, height, shape="plain"))

    def _frame(self, graph: Graph, frame: Frame) -> None:
        x, y = frame.x, frame.y + self.top
        fill, border = _FILLS[frame.part.kind]
        style = "rounded,filled" + (",dashed" if frame.part.inferred else "")
        attributes = {
            "bb": f"{x:.1f},{self.height - y - frame.h:.1f},{x + frame.w:.1f},{self.height - y:.1f}",
            "style": style,
            "fillcolor": fill,
            "color": border,
            "label": "",
        }
        with graph.subgraph(name=f"cluster_{self.names.of(frame.part.id)}", graph_attr=attributes) as cluster:
            if frame.title is not None:
                h = frame.title.size * 1.3
                title_y = y + frame.h - h - 3.5 if frame.title_below else y + 3.5
                w = frame.w - 16
                name = self.names.of(frame.part.id)
                label = _table((frame.title,), w, h)
                cluster.node(**self._node(name, label, x + 8, title_y, w, h, shape="plain"))
                self._badges(cluster, frame.part, x, title_y - 2, frame.w)
            for inner in frame.frames:
                self._frame(cluster, inner)
            for box in frame.boxes:
                self._box(cluster, box)

    def _box(self, graph: Graph, box: Box) -> None:
        part = box.part
        x, y = box.x, box.y + self.top
        fill, border = _FILLS["numa-bar" if part.kind == "numa" else part.kind]
        worst = next((badge.severity for badge in part.badges), None)
        node = self._node(
            self.names.of(part.id),
            _table(box.rows, box.w - 2 * PADDING, box.h - 6, top=part.kind in ("gpu", "nic")),
            x,
            y,
            box.w,
            box.h,
            style="rounded,filled" + (",dashed" if part.inferred else ""),
            fillcolor=fill,
            color=_SEVERITIES[worst] if worst else border,
            penwidth="1.8" if worst else "1",
        )
        graph.node(**node)
        self._badges(graph, part, x, y, box.w)

    def _badges(self, graph: Graph, part: Part, x: float, y: float, w: float) -> None:
        """Marks beside each other on the upper border, from the right; what finds no room becomes a number."""
        right = x + w - 4
        room = w - 8
        for number, badge in enumerate(_that_fit(part.badges, room)):
            wide = badge_width(badge)
            right -= wide
            self._badge(f"badge_{self.names.of(part.id)}_{number}", badge, right, y - BADGE_HEIGHT / 2 - 1, graph)
            right -= 2

    def _badge(self, name: str, badge: Badge, x: float, y: float, graph: Graph | None = None) -> None:
        colour = _SEVERITIES[badge.severity]
        wide = badge_width(badge)
        label = f'<<FONT COLOR="white" POINT-SIZE="{BADGE}"><B>{_html(badge.rule)}</B></FONT>>'
        style = {"style": "rounded,filled", "fillcolor": colour, "color": colour}
        (graph or self.graph).node(**self._node(name, label, x, y, wide, BADGE_HEIGHT, **style))

    def _line(self, line: Line) -> None:
        points = [(x, self.height - (y + self.top)) for x, y in line.points]
        stroke, ink, _ = _WIRES[line.wire.kind]
        if line.wire.degraded:
            stroke = ink = _BROKEN
        attributes = {"pos": _spline(points), "color": stroke, "penwidth": f"{_penwidth(line):.1f}"}
        if line.wire.kind == "inter-socket" or line.wire.inferred:
            attributes["style"] = "dashed"
        if line.wire.label and line.label_at is not None:
            x, y = line.label_at
            attributes |= {
                "label": f'<<FONT COLOR="{ink}" POINT-SIZE="8"><B>{_html(line.wire.label)}</B></FONT>>',
                "lp": f"{x:.1f},{self.height - (y + self.top):.1f}",
            }
        self.graph.edge(self.names.of(line.a), self.names.of(line.b), **attributes)
        if line.wire.passed:
            self._passed(line)

    def _passed(self, line: Line) -> None:
        """A small box on a line: a switch that has only this line below it."""
        (x0, y0), (x, y) = line.points[-2:]
        away = min(MARK_AWAY, hypot(x - x0, y - y0) / 2)
        x, y = _between((x, y), (x0, y0), away / hypot(x - x0, y - y0))
        fill, border = _FILLS["switch"]
        style = {"style": "filled", "fillcolor": fill, "color": border}
        w, h = MARK_SIZE
        self.graph.node(
            **self._node(f"passed_{self.names.of(line.b)}", "", x - w / 2, y + self.top - h / 2, w, h, **style)
        )

    def _legend(self, body: Placement, y: float) -> None:
        cells: list[str] = []
        total = 0.0
        height = LEGEND_SIZE * 1.4
        for sample, text in _legend_entries(body):
            wide = width(text, LEGEND_SIZE) + 16
            total += 26 + wide
            cells.append(
                f'<TD FIXEDSIZE="TRUE" WIDTH="26" HEIGHT="{height}">{sample}</TD>'
                f'<TD FIXEDSIZE="TRUE" WIDTH="{wide:.0f}" HEIGHT="{height}" ALIGN="LEFT">'
                f'<FONT POINT-SIZE="{LEGEND_SIZE}"> {escape(text)}</FONT></TD>'
            )
        if cells:
            label = (
                f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR>{"".join(cells)}</TR></TABLE>>'
            )
            self.graph.node(**self._node("legend", label, 0, y, total, height, shape="plain"))


def _legend_entries(body: Placement) -> Iterable[tuple[str, str]]:
    """(sample, words) for what the picture really holds."""
    kinds = {line.wire.kind for line in body.lines}
    for kind in ("nvlink", "c2c", "pcie", "memory", "inter-socket"):
        if kind in kinds:
            colour, _, words = _WIRES[kind]
            yield _sample(colour, 4 if kind in ("nvlink", "c2c") else 2, dashed=kind == "inter-socket"), words
    if any(line.wire.passed for line in body.lines):
        fill, border = _FILLS["switch"]
        yield _sample(border, 7, fill=fill), "one more PCIe switch"
    parts = [part for frame in body.frames for part in frame.part.walk()] + [box.part for box in body.boxes]
    if any(part.inferred for part in parts) or any(line.wire.inferred for line in body.lines):
        yield _sample("#52606d", 9, dashed=True, fill="white"), "inferred, not read"
    if any(line.wire.degraded for line in body.lines):
        yield _sample(_BROKEN, 4), "broken or degraded"


def _sample(colour: str, thick: int, *, dashed: bool = False, fill: str = "") -> str:
    """A piece of line, or with `fill` a small box, for the legend."""

    def bar(wide: int) -> str:
        return f'<TD FIXEDSIZE="TRUE" WIDTH="{wide}" HEIGHT="{thick}" BGCOLOR="{colour}"></TD>'

    if fill:
        style, wide = ("dashed", 20) if dashed else ("solid", 11)
        return (
            f'<TABLE BORDER="1" COLOR="{colour}" STYLE="{style}" BGCOLOR="{fill}" CELLBORDER="0" CELLSPACING="0" '
            f'CELLPADDING="0" FIXEDSIZE="TRUE" WIDTH="{wide}" HEIGHT="{thick}"><TR><TD></TD></TR></TABLE>'
        )
    space = f'<TD FIXEDSIZE="TRUE" WIDTH="4" HEIGHT="{thick}"></TD>'
    cells = space.join([bar(8)] * 2) if dashed else bar(20)
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR>{cells}</TR></TABLE>'


def _note_lines(notes: Sequence[Note], room: float) -> list[tuple[Badge | None, str]]:
    """Findings as lines; a continued line has no badge."""
    lines: list[tuple[Badge | None, str]] = []
    for note in notes[:NOTES_SHOWN]:
        for number, text in enumerate(wrap(note.text, room - 52, NOTE_SIZE, lines=2)):
            lines.append((Badge(note.rule, note.severity) if number == 0 else None, text))
    if len(notes) > NOTES_SHOWN:
        lines.append((None, f"and {len(notes) - NOTES_SHOWN} more: see `topoadvisor scan`"))
    return lines


def _that_fit(badges: Sequence[Badge], room: float) -> list[Badge]:
    for count in range(len(badges), 0, -1):
        more = [Badge(f"+{len(badges) - count}", badges[count].severity)] if count < len(badges) else []
        shown = [*badges[:count], *more]
        if sum(badge_width(badge) + 2 for badge in shown) <= room:
            return shown
    return [Badge(str(len(badges)), badges[0].severity)] if badges else []


def _penwidth(line: Line) -> float:
    links = line.wire.links
    match line.wire.kind:
        case "nvlink":
            return min(6.0, 1.2 + 0.27 * (links or 1))
        case "c2c":
            return 4.5
        case "inter-socket":
            return 2.2
        case "pcie":
            return 1.0 + 1.4 * min(links or 8, 16) / 16
        case _:
            return 1.4


def _table(rows: Sequence[Row], w: float, h: float, *, top: bool = False) -> str:
    """An HTML-like label of left-aligned lines in fixed cells, so that no font decides where a text begins.

    `top`: the lines stand at the upper end of the `h` points, not in the middle.
    """
    used = sum(row.height for row in rows)
    cells = "".join(
        f'<TR><TD ALIGN="LEFT" FIXEDSIZE="TRUE" WIDTH="{w:.0f}" HEIGHT="{row.height:.1f}">'
        f'<FONT COLOR="{_TONES[row.tone]}" POINT-SIZE="{row.size}">{_bold(row)}</FONT></TD></TR>'
        for row in rows
        if row.text
    )
    if top and h - used >= 1:
        cells += f'<TR><TD FIXEDSIZE="TRUE" WIDTH="{w:.0f}" HEIGHT="{h - used:.1f}"></TD></TR>'
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0">{cells}</TABLE>>' if cells else ""


def _bold(row: Row) -> str:
    return f"<B>{_html(row.text)}</B>" if row.bold else _html(row.text)


def _html(text: str) -> str:
    """Foreign text inside an HTML-like label: Graphviz also acts on backslashes there."""
    return escape(text).replace("\\", "&#92;&#92;")


def _spline(points: Sequence[Point]) -> str:
    """A chain of straight segments with rounded corners as the cubic Bézier curves of a `pos` attribute."""
    path: list[Point] = [points[0]]

    def straight(to: Point) -> None:
        start = path[-1]
        path.extend([_between(start, to, 1 / 3), _between(start, to, 2 / 3), to])

    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        into, out = (
            hypot(corner[0] - before[0], corner[1] - before[1]),
            hypot(after[0] - corner[0], after[1] - corner[1]),
        )
        radius = min(CORNER, into / 2, out / 2)
        if radius == 0:
            continue
        straight(_between(corner, before, radius / into))
        leave = _between(corner, after, radius / out)
        path.extend([_between(path[-1], corner, 0.55), _between(leave, corner, 0.55), leave])
    straight(points[-1])
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in path)


def _between(a: Point, b: Point, share: float) -> Point:
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share


class _Names:
    """Node ids as plain Graphviz names: letters, digits and underscores, still unique."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, node: str) -> str:
        if node not in self._known:
            stem = re.sub(r"[^A-Za-z0-9]+", "_", node).strip("_")[:40] or "node"
            name, number = stem, 1
            while name in self._taken:
                number += 1
                name = f"{stem}_{number}"
            self._taken.add(name)
            self._known[node] = name
        return self._known[node]
