"""The drawing as Graphviz source, every position given: `dot -Tsvg` of it draws what `topoadvisor render` draws."""

from __future__ import annotations

import re
from html import escape

from graphviz import Graph

from topoadvisor.render.drawing import INKS, Drawing, Group, Shape, Stroke, rounded
from topoadvisor.render.shapes import Row

FONT = "Helvetica,Arial,DejaVu Sans,sans-serif"


def source(drawing: Drawing) -> str:
    """DOT text of the whole picture; the same drawing gives the same bytes."""
    text: str = _Writer(drawing).graph.source
    return text


class _Writer:
    """Collects nodes, clusters and edges on a canvas of known height, since Graphviz counts y upwards."""

    def __init__(self, drawing: Drawing) -> None:
        self.names = _Names()
        self.height = drawing.h
        self.graph = Graph(
            "topology",
            graph_attr={
                "layout": "nop2",
                "bb": f"0,0,{drawing.w:.1f},{drawing.h:.1f}",
                "pad": "0.2",
                "bgcolor": "white",
                "outputorder": "edgesfirst",
                "fontname": FONT,
            },
            node_attr={"shape": "box", "fixedsize": "true", "fontname": FONT, "fontcolor": INKS["text"], "margin": "0"},
            edge_attr={"fontname": FONT},
        )
        # Graphviz sizes the page by clusters and positioned boxes: an unseen one around everything fixes it.
        page = {"bb": self.graph.graph_attr["bb"], "style": "", "color": "transparent", "label": ""}
        with self.graph.subgraph(name="cluster_page", graph_attr=page) as canvas:
            for group in drawing.groups:
                self._cluster(canvas, group)
        for shape in drawing.shapes:
            self._node(self.graph, shape)
        for stroke in drawing.strokes:
            self._edge(stroke)

    def _cluster(self, graph: Graph, group: Group) -> None:
        box = group.box
        bottom = self.height - box.y
        attributes = _look(box) | {
            "bb": f"{box.x:.1f},{bottom - box.h:.1f},{box.x + box.w:.1f},{bottom:.1f}",
            "label": "",
        }
        with graph.subgraph(name=f"cluster_{self.names.of(box.id)}", graph_attr=attributes) as cluster:
            for inner in group.groups:
                self._cluster(cluster, inner)
            for shape in group.shapes:
                self._node(cluster, shape)

    def _node(self, graph: Graph, shape: Shape) -> None:
        graph.node(
            self.names.of(shape.id),
            _label(shape),
            pos=f"{shape.x + shape.w / 2:.1f},{self.height - shape.y - shape.h / 2:.1f}",
            width=f"{shape.w / 72:.4f}",
            height=f"{shape.h / 72:.4f}",
            **_look(shape),
        )

    def _edge(self, stroke: Stroke) -> None:
        attributes = {
            "pos": " ".join(f"{x:.1f},{self.height - y:.1f}" for x, y in rounded(stroke.points)),
            "color": stroke.colour,
            "penwidth": f"{stroke.pen:.1f}",
        }
        if stroke.dashed:
            attributes["style"] = "dashed"
        if stroke.label is not None:
            x, y = stroke.label_at
            attributes |= {"label": f"<{_font(stroke.label)}>", "lp": f"{x:.1f},{self.height - y:.1f}"}
        self.graph.edge(self.names.of(stroke.a), self.names.of(stroke.b), **attributes)


def _look(shape: Shape) -> dict[str, str]:
    look = shape.look
    if look is None:
        return {"shape": "plain"}
    style = ["filled", *(["rounded"] if look.radius else []), *(["dashed"] if look.dashed else [])]
    return {"style": ",".join(style), "fillcolor": look.fill, "color": look.border, "penwidth": f"{look.pen:.1f}"}


def _label(shape: Shape) -> str:
    """An HTML-like label of left-aligned lines in fixed cells, so that no font decides where a text begins."""
    if shape.align == "centre":
        return f"<{'<BR/>'.join(map(_font, shape.rows))}>"
    across, down = shape.inset
    w = f'FIXEDSIZE="TRUE" WIDTH="{shape.w - 2 * across:.0f}"'
    cells = "".join(
        f'<TR><TD ALIGN="LEFT" {w} HEIGHT="{row.height:.1f}">{_font(row)}</TD></TR>' for row in shape.rows if row.text
    )
    rest = shape.h - 2 * down - sum(row.height for row in shape.rows)
    if shape.align == "top" and rest >= 1:
        cells += f'<TR><TD {w} HEIGHT="{rest:.1f}"></TD></TR>'
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0">{cells}</TABLE>>' if cells else ""


def _font(row: Row) -> str:
    """Foreign text inside an HTML-like label: Graphviz also acts on backslashes there."""
    text = escape(row.text).replace("\\", "&#92;&#92;")
    return f'<FONT COLOR="{INKS[row.tone]}" POINT-SIZE="{row.size}">{f"<B>{text}</B>" if row.bold else text}</FONT>'


class _Names:
    """Ids as plain Graphviz names: letters, digits and underscores, still unique."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, id: str) -> str:
        if id not in self._known:
            stem = re.sub(r"[^A-Za-z0-9]+", "_", id).strip("_")[:40] or "node"
            name, number = stem, 1
            while name in self._taken:
                number += 1
                name = f"{stem}_{number}"
            self._taken.add(name)
            self._known[id] = name
        return self._known[id]
