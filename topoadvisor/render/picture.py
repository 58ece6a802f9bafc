"""The drawing as SVG, PNG or PDF, by matplotlib: its wheels bring all they need, fonts included."""

from __future__ import annotations

import io
import warnings
from typing import Any, Literal

from topoadvisor.render import typeface
from topoadvisor.render.drawing import INKS, Drawing, Group, Shape, Stroke, rounded
from topoadvisor.render.shapes import Point, Row

PictureFormat = Literal["svg", "png", "pdf"]
MARGIN = 14.4
PIXELS_ACROSS, LEAST_DPI = 2000, 144
"""Of a PNG: this wide, or wider where letters would become too small."""
DASHES = (5.0, 2.5)
HALF_CAPITAL = 0.365
"""Half the height of a capital letter of DejaVu Sans at font size 1."""

# SVG keeps its text as text: small, sharp, searchable. Boxes are measured for DejaVu Sans and the named substitutes are
# no wider, so it fits wherever it is shown. PDF embeds the letters that it uses.
_SETTINGS: dict[Any, object] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "topoadvisor",
    "pdf.fonttype": 42,
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "lines.scale_dashes": False,
}
_UNDATED: dict[PictureFormat, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def draw(drawing: Drawing, picture_format: PictureFormat) -> bytes:
    """The bytes of the file. The same drawing gives the same bytes, whatever matplotlib's configuration says."""
    typeface.file(bold=False)
    import matplotlib

    target = io.BytesIO()
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_SETTINGS}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names in scripts that DejaVu lacks
        canvas = _Canvas(drawing.w + 2 * MARGIN, drawing.h + 2 * MARGIN)
        shapes = list(drawing.shapes)
        for group in drawing.groups:
            shapes += canvas.frame(group)
        for stroke in drawing.strokes:
            canvas.stroke(stroke)
        for shape in shapes:
            canvas.box(shape)
        canvas.figure.savefig(
            target,
            format=picture_format,
            dpi=max(PIXELS_ACROSS / canvas.figure.get_figwidth(), LEAST_DPI),
            metadata={"Title": drawing.title, **_UNDATED[picture_format]},
        )
    return target.getvalue()


class _Canvas:
    """A page of `w` by `h` points. What comes later covers what was there, and texts cover everything."""

    def __init__(self, w: float, h: float) -> None:
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D

        self.figure = Figure(figsize=(w / 72, h / 72))
        # The figure counts inches from its lower left.
        upright = Affine2D().translate(MARGIN, MARGIN - h).scale(1 / 72, -1 / 72)
        self.transform = upright + self.figure.dpi_scale_trans

    def frame(self, group: Group) -> list[Shape]:
        """Draw the box of a group and of all groups in it; returns the shapes that belong on top of them."""
        self.box(group.box)
        return [*group.shapes, *(shape for inner in group.groups for shape in self.frame(inner))]

    def stroke(self, stroke: Stroke) -> None:
        self._curve(rounded(stroke.points), stroke.dashed, fill=False, edgecolor=stroke.colour, linewidth=stroke.pen)
        if stroke.label is not None:
            self._text(stroke.label, stroke.label_at, "center")

    def box(self, shape: Shape) -> None:
        if (look := shape.look) is not None:
            x, y, right, bottom = shape.x, shape.y, shape.x + shape.w, shape.y + shape.h
            middle = (x + shape.w / 2, y)
            around = rounded([middle, (right, y), (right, bottom), (x, bottom), (x, y), middle], look.radius)
            self._curve(around, look.dashed, facecolor=look.fill, edgecolor=look.border, linewidth=look.pen)
        for row, at in shape.lines():
            self._text(row, at, "center" if shape.align == "centre" else "left")

    def _curve(self, points: list[Point], dashed: bool, **look: Any) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        path = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
        style = (0, DASHES) if dashed else "solid"
        self.figure.add_artist(PathPatch(path, transform=self.transform, linestyle=style, joinstyle="round", **look))

    def _text(self, row: Row, at: Point, align: str) -> None:
        """`at` is half-way up the text. No name is taken for a formula."""
        from matplotlib.font_manager import FontProperties

        weight = "bold" if row.bold else "normal"
        font = FontProperties("sans-serif", weight=weight, size=row.size, fname=typeface.file(bold=row.bold))
        text = self.figure.text(at[0], at[1] + HALF_CAPITAL * row.size, row.text, font=font, color=INKS[row.tone])
        text.set(transform=self.transform, horizontalalignment=align, parse_math=False)
