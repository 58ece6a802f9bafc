import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoadvisor import cpu_lists


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", set()),
        ("0-2,8", {0, 1, 2, 8}),
        (" 5 ", {5}),
        ("3-1", None),
        ("0-", None),
        ("0x1", None),
        ("٣", None),
        ("9" * 5000, None),
        ("0-999999", None),
        (",".join(["0-100000"] * 1000), None),
    ],
)
def test_lists(text, numbers):
    assert cpu_lists.parse(text) == numbers


@pytest.mark.parametrize("text", ["0", "0-3", "0-0,8-8", "0,64", "0,3-9,11-17", "0-63,128-191"])
def test_a_list_as_it_is_printed(text):
    assert cpu_lists.is_printed(text)


@pytest.mark.parametrize(
    "text", ["", "96-", "-3", "0-15,", "0,,1", "5-3", "0-3,2", "0-3,3-5", "00-15", "N/A", "0-9999999"]
)
def test_what_is_no_list_as_it_is_printed(text):
    assert not cpu_lists.is_printed(text)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("00000000,0000010f", {0, 1, 2, 3, 8}),
        ("1,00000000", {32}),
        ("0", set()),
        ("", None),
        ("0000010g", None),
        ("f" * 200_000, None),
    ],
)
def test_masks(text, numbers):
    assert cpu_lists.parse_mask(text) == numbers


@given(st.sets(st.integers(0, 2000)))
def test_what_is_spelled_is_read_back(numbers):
    assert cpu_lists.parse(cpu_lists.spell(numbers)) == numbers
