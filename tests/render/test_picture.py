from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from topoadvisor.render import picture, typeface
from topoadvisor.render.drawing import compose
from topoadvisor.render.schematic import Schematic
from topoadvisor.snapshot import Snapshot

REPOSITORY = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
FORMATS = ("svg", "png", "pdf")


def drawn(schematic: Schematic, picture_format: Any) -> bytes:
    return picture.draw(compose(schematic), picture_format)


def texts(svg: bytes) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_every_fixture_is_a_valid_svg_with_its_devices(schematic: Callable[[str], Schematic], any_fixture: str) -> None:
    machine = schematic(any_fixture)
    found = texts(drawn(machine, "svg"))
    for part in (part for top in machine.parts for part in top.walk() if part.kind == "gpu"):
        assert found.count(part.title) == 1
    assert machine.title in found


def test_svg_shows_names_addresses_links_and_findings(schematic: Callable[[str], Schematic]) -> None:
    found = texts(drawn(schematic("dgx-h100-broken-link"), "svg"))
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
        root = ElementTree.fromstring(drawn(schematic(name), "svg"))
        assert 1100 < float(root.attrib["width"].removesuffix("pt")) * 96 / 72 < 1450


def test_the_page_holds_every_text(schematic: Callable[[str], Schematic], any_fixture: str) -> None:
    root = ElementTree.fromstring(drawn(schematic(any_fixture), "svg"))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter(f"{SVG}text"):
        assert 0 < float(element.attrib["x"]) < width
        assert 0 < float(element.attrib["y"]) < height


@pytest.mark.parametrize(("name", "ratio"), [("dgx-1v", 1.9), ("2xh200-kvm", 1.2)])
def test_png_is_about_2000_pixels_wide_whatever_the_machine(
    schematic: Callable[[str], Schematic], name: str, ratio: float
) -> None:
    png = drawn(schematic(name), "png")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    assert 1990 < width < 2100
    assert width / height == pytest.approx(ratio, abs=0.1)


def test_pdf_is_one_page_with_the_fonts_in_it(schematic: Callable[[str], Schematic]) -> None:
    pdf = drawn(schematic("dgx-1v"), "pdf")
    assert pdf.startswith(b"%PDF-")
    assert pdf.count(b"/Type /Page ") == 1
    assert pdf.count(b"/FontFile2") == 2


@pytest.mark.parametrize("picture_format", FORMATS)
def test_the_same_machine_gives_the_same_bytes_whatever_matplotlib_is_told(
    schematic: Callable[[str], Schematic], picture_format: str
) -> None:
    first = drawn(schematic("2x3090-bridge"), picture_format)
    import matplotlib

    odd = {"savefig.bbox": "tight", "savefig.facecolor": "red", "path.sketch": (1, 100, 2), "font.size": 30}
    with matplotlib.rc_context(odd):
        assert drawn(schematic("2x3090-bridge"), picture_format) == first


@pytest.mark.parametrize("picture_format", FORMATS)
def test_hostile_names_are_drawn_without_a_word_on_stderr(
    plain: Callable[..., Schematic],
    hostile: Snapshot,
    capfd: pytest.CaptureFixture[str],
    recwarn: pytest.WarningsRecorder,
    picture_format: str,
) -> None:
    drawn(plain(hostile), picture_format)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_hostile_names_are_shown_as_they_are(plain: Callable[..., Schematic], hostile: Snapshot) -> None:
    svg = drawn(replace(plain(hostile), subtitle=r"$\frac{a}{b}$ & $"), "svg")
    title = next(text for text in texts(svg) if text.startswith("2 × "))
    assert 'A<b>&amp;"\\N\\G line two$x_1^2$' in title
    assert r"$\frac{a}{b}$ & $" in texts(svg)
    assert not {"script", "image", "a", "b"} & {e.tag.removeprefix(SVG) for e in ElementTree.fromstring(svg).iter()}


@pytest.mark.parametrize("count", [1, 16, 72])
def test_machines_of_any_size_are_drawn(
    plain: Callable[..., Schematic], switched: Callable[..., Snapshot], count: int
) -> None:
    found = texts(drawn(plain(switched(count, per_socket=8)), "svg"))
    assert {f"GPU{i}" for i in range(count)} <= set(found)


def test_nothing_is_left_behind_or_said_on_a_machine_without_fonts_and_home(tmp_path: Path) -> None:
    """The first use of matplotlib on a machine where it may write nothing but temporary files."""
    for folder in ("home", "tmp", "here"):
        (tmp_path / folder).mkdir()
    (tmp_path / "here" / "matplotlibrc").write_text("nonsense: 1\nbackend: also-nonsense\n")
    (tmp_path / "home").chmod(0o500)
    code = """if True:
        from topoadvisor.render import picture
        from topoadvisor.render.drawing import Drawing, Shape
        from topoadvisor.render.shapes import Row
        text = Shape("a", 0, 0, 90, 20, rows=(Row("text", 9),))
        for kind in ("svg", "png", "pdf"):
            assert len(picture.draw(Drawing("title", 90, 20, (), (text,), ()), kind)) > 1000
    """
    environment = {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": str(REPOSITORY),
        "MPLBACKEND": "nonsense",
        "PATH": os.devnull,
    }
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path / "here", capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert not [*(tmp_path / "home").iterdir(), *(tmp_path / "tmp").iterdir()]


def test_the_fonts_are_those_of_the_wheel() -> None:
    import matplotlib

    for bold in (False, True):
        assert typeface.file(bold=bold).is_relative_to(matplotlib.get_data_path())
        assert typeface.file(bold=bold).is_file()
