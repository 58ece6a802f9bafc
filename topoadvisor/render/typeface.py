"""DejaVu Sans as it comes with matplotlib: pictures are measured and drawn with it, whatever fonts a machine has."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
import unicodedata
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

_UNITS = 100
"""Font size at which the font is asked for widths."""


@cache
def file(*, bold: bool) -> Path:
    """The font's file; the first call imports matplotlib.

    matplotlib would keep a list of all fonts of the machine in the user's home, and complain where it cannot: it gets a
    folder that lives as long as this process, and looks at no fonts but its own.
    """
    if "matplotlib" not in sys.modules:
        folder = tempfile.mkdtemp(prefix="topoadvisor-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ.update(MPLCONFIGDIR=folder, MPL_IGNORE_SYSTEM_FONTS="1", MPLBACKEND="agg")
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib

    return Path(matplotlib.get_data_path(), "fonts", "ttf", f"DejaVuSans{'-Bold' if bold else ''}.ttf")


@cache
def advance(character: str, *, bold: bool) -> float:
    """Width of one character at font size 1. One that DejaVu lacks is as wide as other fonts have it."""
    if unicodedata.combining(character):
        return 0.0
    face = _face(bold)
    if face.get_char_index(ord(character)) == 0:
        return 1.05 if unicodedata.east_asian_width(character) in "WF" else 0.7
    return face.load_char(ord(character)).linearHoriAdvance / 65536 / _UNITS


@cache
def _face(bold: bool) -> FT2Font:
    path = file(bold=bold)
    from matplotlib.ft2font import FT2Font

    face = FT2Font(str(path))
    face.set_size(_UNITS, 72)
    return face
