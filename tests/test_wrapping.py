"""Long texts on a page."""

from __future__ import annotations

from topoadvisor.wrapping import wrap


def test_words_stay_whole() -> None:
    path = "/a" * 300
    assert wrap(f"It is {path}.", 40, "- ", "  ") == ["- It is", f"  {path}."]


def test_what_is_no_word_is_cut() -> None:
    (line,) = wrap("NCCL_ALGO=" + "x" * 100_000, 1000)
    assert line == "NCCL_ALGO=" + "x" * 190 + "… (100010 letters)"
    assert sum(map(len, wrap("x, " * 100_000, 80))) < 3000
