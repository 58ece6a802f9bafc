"""DOT → SVG, PNG or PDF with the Graphviz libraries inside the pygraphviz wheel: no program is started."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Literal

from topoadvisor.errors import TopoAdvisorError

PictureFormat = Literal["svg", "png", "pdf"]
_DPI = {"png": "144"}


def draw(dot: str, picture_format: PictureFormat) -> bytes:
    """Draw DOT source whose positions are given.

    Raises TopoAdvisorError when the Graphviz libraries cannot be loaded, or when PNG or PDF is asked for on a machine
    without any font (SVG carries its text as text and needs none).
    """
    if picture_format != "svg" and not _has_font():
        raise TopoAdvisorError(
            f"this machine has no font, so the {picture_format.upper()} would show boxes in place of letters",
            hint="Write SVG instead (-o picture.svg), or install a font, e.g. the package fonts-dejavu-core.",
        )
    return _run(dot, picture_format)


def _run(dot: str, picture_format: str) -> bytes:
    try:
        import pygraphviz
    except ImportError as error:
        raise TopoAdvisorError(
            f"the Graphviz libraries in the pygraphviz wheel cannot be loaded: {error}",
            hint="They need the system libraries GLib, X11 and Xrender (Debian: libglib2.0-0 libxrender1 libxext6). "
            "`--format dot` and `--format text` work without them.",
        ) from None
    with _quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = pygraphviz.AGraph(string=dot)
        if picture_format in _DPI:
            graph.graph_attr["dpi"] = _DPI[picture_format]
        try:
            drawn = graph.draw(format=picture_format, prog="nop2")
        except (ValueError, OSError) as error:
            raise TopoAdvisorError(f"Graphviz could not draw the picture: {error}") from None
    assert isinstance(drawn, bytes)
    return drawn


_PROBE = (
    'graph { node [fixedsize=true width=2 label=<x>]; a [pos="0,0" label=<iiii>]; b [pos="0,99" label=<WWWW>]; '
    'c [pos="0,198" label=<&#57344;&#57344;&#57344;&#57344;>]; }'
)


def _has_font() -> bool:
    """Without a font every character, even one that no font has, becomes a box of the same width."""
    starts = re.findall(r'<text[^>]* x="([-\d.]+)"', _run(_PROBE, "svg").decode())
    return len(set(starts)) > 1


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what C libraries say on stderr away from the user: remarks on foreign font configuration, tight labels."""
    try:
        kept = os.dup(2)
    except OSError:
        yield  # stderr is closed: nobody hears it anyway
        return
    sys.stderr.flush()
    try:
        with tempfile.TemporaryFile() as sink:
            os.dup2(sink.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
