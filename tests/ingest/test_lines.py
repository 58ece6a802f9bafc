from __future__ import annotations

import pytest

from topoadvisor.ingest.lines import MAX_LINE, read_lines


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[4mGPU0\x1b[0m", "GPU0"),
        ("\x1b]0;title\x07GPU0", "GPU0"),
        ("[4mGPU0[0m", "GPU0"),
        ("^[[4mGPU0^[[0m", "GPU0"),
        ("\\x1b[4mGPU0\\u001b[0m", "GPU0"),
        ("a\\tb", "a\tb"),
        ("a\xa0b&nbsp;c\u3000d", "a b c d"),
        ("a\0b\u200bc\ufeff", "abc"),
        ("[user@host ~]$ [...]", "[user@host ~]$ [...]"),
    ],
)
def test_terminal_codes_go_and_text_stays(raw: str, text: str) -> None:
    assert [line.text for line in read_lines(raw)] == [text]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end: str) -> None:
    assert [(line.number, line.text) for line in read_lines(end.join(["a", "", "b"]))] == [(1, "a"), (2, ""), (3, "b")]


def test_a_column_is_that_of_the_file() -> None:
    raw = "\x1b[4mGPU0\x1b[0m\tX\\tY"
    (line,) = read_lines(raw)
    assert line.text == "GPU0\tX\tY"
    assert [line.column(line.text.index(letter)) for letter in "GXY"] == [raw.index(letter) + 1 for letter in "GXY"]


def test_a_screen_column_counts_tab_stops() -> None:
    (line,) = read_lines("a\tb\tc")
    assert [line.display(line.text.index(letter)) for letter in "abc"] == [0, 8, 16]


def test_the_lines_of_a_string_literal_share_their_number() -> None:
    lines = list(read_lines('text = "\\tGPU0\\nGPU0\\tX\\n"\nnext'))
    assert [(line.number, line.position) for line in lines] == [(1, 0), (1, 1), (1, 2), (2, 3)]
    assert lines[1].text == "GPU0\tX"
    assert lines[1].column(5) == 'text = "\\tGPU0\\nGPU0\\tX'.index("X") + 1


def test_a_line_too_long_for_a_row_is_empty() -> None:
    assert [line.text for line in read_lines("a" * (MAX_LINE + 1) + "\nb")] == ["", "b"]
