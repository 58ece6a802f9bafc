from __future__ import annotations

from topoadvisor.render.page import Page


def test_a_long_beginning_stands_on_lines_of_its_own() -> None:
    page = Page(40, False)
    page.paragraph("16 GB/s of rings", first="  " + ", ".join(map(str, range(36))) + "   ", rest="      ")
    assert max(map(len, page.lines)) <= 40
    assert page.lines[0].startswith("  0, 1, 2")
    assert page.lines[-1] == "      16 GB/s of rings"


def test_a_short_beginning_stands_before_the_text() -> None:
    page = Page(80, False)
    page.paragraph("16 GB/s", first="  0, 1   ", rest="      ")
    assert page.lines == ["  0, 1   16 GB/s"]
