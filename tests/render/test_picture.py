from __future__ import annotations

import builtins
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from topoadvisor.errors import TopoAdvisorError
from topoadvisor.render import dot, picture
from topoadvisor.render.schematic import Schematic
from topoadvisor.snapshot import Snapshot

pytest.importorskip("pygraphviz", reason="its libraries want GLib and X11", exc_type=ImportError)
with_font = pytest.mark.skipif(not picture._has_font(), reason="no font on this machine")
REPOSITORY = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: bytes) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_every_fixture_is_a_valid_svg_with_its_devices(schematic: Callable[[str], Schematic], any_fixture: str) -> None:
    drawn = schematic(any_fixture)
    found = texts(picture.draw(dot.source(drawn), "svg"))
    for part in (part for top in drawn.parts for part in top.walk() if part.kind == "gpu"):
        assert found.count(part.title) == 1
    assert drawn.title in found


def test_svg_shows_names_addresses_links_and_findings(schematic: Callable[[str], Schematic]) -> None:
    found = texts(picture.draw(dot.source(schematic("dgx-h100-broken-link")), "svg"))
    for text in (
        "8 × NVIDIA H100 80GB HBM3",
        "0000:1b:00.0",
        "mlx5_0",
        "400G IB",
        "Gen5 x16",
        "NV18",
        "NV16",
        "NVL002",
    ):
        assert text in found
    assert found.count("NV18") == 7


def test_svg_is_about_1200_css_pixels_wide(schematic: Callable[[str], Schematic]) -> None:
    for name in ("dgx-h100", "dgx-a100", "dgx-1v", "8x4090"):
        root = ElementTree.fromstring(picture.draw(dot.source(schematic(name)), "svg"))
        assert 1100 < float(root.attrib["width"].removesuffix("pt")) * 96 / 72 < 1450


def test_the_page_holds_everything(schematic: Callable[[str], Schematic], any_fixture: str) -> None:
    root = ElementTree.fromstring(picture.draw(dot.source(schematic(any_fixture)), "svg"))
    width, height = (float(root.attrib[side].removesuffix("pt")) for side in ("width", "height"))
    shift = root.find(f"{SVG}g").attrib["transform"].split("translate(")[1].rstrip(")").split()  # type: ignore[union-attr]
    for element in root.iter(f"{SVG}text"):
        x, y = float(element.attrib["x"]) + float(shift[0]), float(element.attrib["y"]) + float(shift[1])
        assert 0 <= x <= width
        assert 0 <= y <= height


@with_font
@pytest.mark.parametrize(("picture_format", "magic"), [("png", b"\x89PNG\r\n\x1a\n"), ("pdf", b"%PDF-")])
def test_png_and_pdf(schematic: Callable[[str], Schematic], picture_format: Any, magic: bytes) -> None:
    drawn = picture.draw(dot.source(schematic("dgx-1v")), picture_format)
    assert drawn.startswith(magic)
    assert len(drawn) > 10_000
    if picture_format == "png":
        width, height = struct.unpack(">II", drawn[16:24])
        assert width > 1500
        assert 1.1 < width / height < 3


def test_hostile_names_are_shown_as_they_are(plain: Callable[..., Schematic], hostile: Snapshot) -> None:
    svg = picture.draw(dot.source(plain(hostile)), "svg")
    root = ElementTree.fromstring(svg)
    title = next(text for text in texts(svg) if text.startswith("2 × "))
    assert 'A<b>&amp;"\\N\\G line two' in title
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg",
        "g",
        "title",
        "text",
        "path",
        "polygon",
    }


@with_font
def test_nothing_is_said_on_stderr(schematic: Callable[[str], Schematic], capfd: pytest.CaptureFixture[str]) -> None:
    picture.draw(dot.source(schematic("dgx-1v")), "png")
    assert capfd.readouterr() == ("", "")


def test_without_the_libraries_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pygraphviz":
            raise ImportError("libglib-2.0.so.0: cannot open shared object file")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(TopoAdvisorError, match=r"libglib-2\.0\.so\.0") as raised:
        picture.draw("graph {}", "svg")
    assert "--format dot" in (raised.value.hint or "")


def test_without_a_font_png_is_refused_and_svg_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "_has_font", lambda: False)
    with pytest.raises(TopoAdvisorError, match="no font"):
        picture.draw("graph { layout=nop2; }", "png")
    assert picture.draw("graph { layout=nop2; }", "svg").startswith(b"<?xml")


def test_a_machine_without_fonts_is_recognised(tmp_path: Path) -> None:
    """Fontconfig reads its file once per process, so another process is told of an empty folder."""
    (tmp_path / "fonts.conf").write_text(f"<fontconfig><dir>{tmp_path}</dir></fontconfig>")
    code = "from topoadvisor.render import picture; print(picture._has_font())"
    environment = os.environ | {"FONTCONFIG_FILE": str(tmp_path / "fonts.conf")}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, cwd=REPOSITORY, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.strip()) == (0, "False"), ran.stderr


@with_font
def test_eight_gpus_are_drawn_within_two_seconds(schematic: Callable[[str], Schematic]) -> None:
    source = schematic("dgx-h100")
    start = time.process_time()
    picture.draw(dot.source(source), "png")
    assert time.process_time() - start < 2
