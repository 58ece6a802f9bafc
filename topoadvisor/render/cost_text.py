"""The screen that `topoadvisor cost` prints."""

from __future__ import annotations

from topoadvisor.estimates import Document, Graph
from topoadvisor.numbers import size_text
from topoadvisor.render.page import Page

_HEAD = ("size", "time", "algbw", "busbw", "how", "next best")
_BASIS = "time is"


def render(document: Document, *, width: int = 100, color: bool = False) -> str:
    """The whole screen as text, ending in a newline."""
    page = Page(width, color)
    direct = any(row.algorithm == "p2p" for row in document.rows)
    own = (
        "the links in NCCL's model, which has no estimate for it" if direct else f"NCCL {document.nccl}'s own estimate"
    )
    by = f"by {own}" + (", held to measurements" if document.calibrated_by else "")
    page.paragraph(f"{document.collective} over {len(document.gpus)} GPUs, {by}", rest="  ", code="1")
    page.paragraph(" · ".join(_graphs(document)), rest="  ", code="2")
    if document.warnings:
        page.blank()
    for warning in document.warnings:
        page.paragraph(warning, first="! ", rest="  ", code="33;1")
    page.blank()
    held = bool(document.calibrated_by)
    lines: list[tuple[str, ...]] = [(*_HEAD, *([_BASIS] if held else []))]
    for row in document.rows:
        other = next((way for way in row.ways[1:] if way.algorithm != row.algorithm), None)
        lines.append(
            (
                size_text(row.size_bytes),
                time_text(row.time_us),
                f"{row.algbw_gbps:.4g}",
                f"{row.busbw_gbps:.4g}",
                f"{row.algorithm}, {row.protocol}",
                f"{other.algorithm}, {other.protocol} {time_text(other.time_us)}" if other else "",
                *([row.basis] if held else []),
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for number, line in enumerate(lines):
        cells = [cell.ljust(widths[at]) if at >= 4 else cell.rjust(widths[at]) for at, cell in enumerate(line)]
        page.lines.append(page.paint("  ".join(cells).rstrip(), "2" if number == 0 else ""))
    page.blank()
    page.paragraph("GB/s is 10⁹ bytes per second; sizes and busbw are as nccl-tests counts them.", code="2")
    if held:
        page.paragraph(
            "How and next best are by NCCL's estimate; between measured sizes the time grows as that does.", code="2"
        )
    else:
        page.paragraph(
            "Not measured here: a framework adds tens of µs to launch a collective, and on two H200 NCCL's estimate "
            "was 20% too fast for megabytes and 9% for a gigabyte. Measurements in the snapshot would hold it down.",
            code="2",
        )
    for note in document.notes:
        page.paragraph(note, rest="  ", code="2")
    return "\n".join(page.lines) + "\n"


def _graphs(document: Document) -> list[str]:
    graphs = (("rings", document.rings), ("trees", document.trees), ("NVLS", document.nvls))
    return [f"{name} {_channels(graph)}" for name, graph in graphs if graph is not None]


def _channels(graph: Graph) -> str:
    return f"{graph.channels} × {graph.gbps_each:.4g} GB/s"


def time_text(time_us: float) -> str:
    """`12.3 µs`, `4.56 ms`, `1.2 s`."""
    if time_us < 1000:
        return f"{time_us:.4g} µs"
    return f"{time_us / 1000:.4g} ms" if time_us < 1e6 else f"{time_us / 1e6:.4g} s"
