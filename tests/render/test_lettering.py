from __future__ import annotations

import pytest

from topoadvisor.render.lettering import clean, fit, width, wrap


@pytest.mark.parametrize(
    ("text", "bold", "thousandths"),
    [("0", False, 636), ("0", True, 696), ("i", False, 278), ("W", True, 1103), ("…", False, 1000), ("", False, 0)],
)
def test_widths_are_those_of_dejavu_sans(text: str, bold: bool, thousandths: int) -> None:
    assert width(text, 1000, bold=bold) == pytest.approx(thousandths, abs=1)


def test_a_text_is_as_wide_as_its_letters_and_grows_with_the_font() -> None:
    assert width("0000:1b:00.0", 8) == pytest.approx(sum(width(letter, 8) for letter in "0000:1b:00.0"))
    assert width("GPU0", 22) == pytest.approx(2 * width("GPU0", 11))


def test_letters_that_the_font_lacks_have_a_width_and_accents_none() -> None:
    assert width("名", 10) >= 10
    assert width("e\u0301", 10) == width("e", 10)


def test_what_does_not_fit_ends_in_an_ellipsis() -> None:
    assert fit("GPU0", 100, 9) == "GPU0"
    short = fit("a very long name of a device", 60, 9)
    assert short.endswith("…")
    assert width(short, 9) <= 60
    assert fit("interface-of-a-very-long-name0123", 60, 9, end=4).endswith("…0123")


def test_text_is_broken_at_spaces_and_hyphens() -> None:
    assert wrap("Tesla V100-SXM2-16GB", 60, 8, lines=2) == ["Tesla V100-", "SXM2-16GB"]
    assert wrap("one two", 500, 8, lines=2) == ["one two"]
    assert wrap("one two three four five six", 50, 8, lines=2)[1].endswith("…")


def test_names_become_one_visible_line() -> None:
    assert clean("a\nb\x00c\x1b[31m\ud800 \u200bd") == "a b c [31m d"
