"""The managed block among foreign lines."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.emit import blocks
from topoadvisor.errors import InputError

FOREIGN = st.text(st.characters(codec="utf-8")).filter(lambda text: "topoadvisor managed block" not in text)
BLOCK = blocks.wrap(["A=1"])


def test_foreign_lines_are_what_is_left_without_the_block() -> None:
    assert blocks.foreign_part("") == ""
    assert blocks.foreign_part(f"X=1\r\n{BLOCK}Y=2") == "X=1\r\nY=2"
    assert blocks.foreign_part(f"{BLOCK}X=1\n{BLOCK}") == "X=1\n"


def test_an_editor_that_changed_the_line_ends_does_not_tear_the_block() -> None:
    assert blocks.foreign_part(f"X=1\n{BLOCK}Y=2\n".replace("\n", "\r\n")) == "X=1\r\nY=2\r\n"


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (f"X=1\n{blocks.BEGIN}\nA=1\n", 2, "never ends"),
        (f"{blocks.BEGIN}\nA=1\n{BLOCK}", 1, "never ends"),
        (f"X=1\nA=1\n{blocks.END}\n", 3, "never began"),
        (f"{BLOCK}{blocks.END}\n", 4, "never began"),
    ],
)
def test_a_marker_without_its_partner(text: str, line: int, word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        blocks.foreign_part(text, file="/etc/nccl.conf")
    assert caught.value.message.startswith(f"/etc/nccl.conf:{line}:")
    assert caught.value.hint


@settings(deadline=None)
@given(FOREIGN)
def test_lines_put_together_are_the_text(text: str) -> None:
    assert "".join(blocks.lines_of(text)) == text
    assert blocks.foreign_part(text) == text


@settings(deadline=None)
@given(st.text(st.characters()))
def test_comments_are_comments_for_every_reader(text: str) -> None:
    for line in blocks.comment(text):
        assert line.startswith("# ")
        assert "=" not in line
        assert line.isprintable()
        assert len(line) <= 120


@pytest.mark.parametrize(
    ("text", "comment"),
    [
        ("NCCL_PROTO=^LL128 is the way", "# NCCL_PROTO set to ^LL128 is the way"),
        ("NCCL_IB_HCA==mlx5_0", "# NCCL_IB_HCA set to exactly mlx5_0"),
        ("since NCCL>=2.21", "# since NCCL at least 2.21"),
        ("boot with iommu=pt", "# boot with iommu equals pt"),
        ("two\nlines", "# two lines"),
    ],
)
def test_equals_signs_become_words(text: str, comment: str) -> None:
    assert blocks.comment(text) == [comment]


def test_long_reasons_are_wrapped() -> None:
    lines = blocks.comment("word " * 60)
    assert len(lines) > 1
    assert all(line.startswith("#   ") for line in lines[1:])
