"""How NCCL reads numbers and levels; every expectation was compared with NCCL's own functions, compiled."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.nccl.levels import LevelReading, NcclPath, parse_int, parse_level, parse_merge_level, user_p2p_level

BIG = "9" * 5000


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", None),
        ("0", 0),
        ("8388608", 8388608),
        ("8M", 8),
        ("0x10", 16),
        ("0x", 0),
        ("010", 8),
        ("09", 0),
        ("-2", -2),
        ("+3", 3),
        (" \t7", 7),
        ("1 # on", 1),
        ("true", 0),
        ("yes", 0),
        ("- 1", 0),
        ("٣", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        (BIG, None),
        ("0x" + "f" * 5000, None),
    ],
)
def test_parse_int(text: str, number: int | None) -> None:
    assert parse_int(text) == number


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_the_readers(text: str) -> None:
    parse_int(text)
    parse_level(text)
    parse_level(text, "2.4.8")
    parse_merge_level(text)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["", "k", " ", "#"]))
def test_decimal_numbers_survive(number: int, tail: str) -> None:
    assert parse_int(f"{number}{tail}") == number


@pytest.mark.parametrize("name", ["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"])
def test_every_name_counts_exactly_as_written(name: str) -> None:
    assert parse_level(name) == LevelReading(NcclPath[name], ignored=False)
    for other in (name.lower(), f"{name} ", f" {name}", f'"{name}"', f"PATH_{name}"):
        reading = parse_level(other)
        assert (reading.level, reading.ignored) == (None, True), other
        assert reading.surprise


def test_the_right_spelling_is_named() -> None:
    assert "exactly PHB" in str(parse_level("phb").surprise)
    assert "PHB is meant" in str(parse_level("NODE").surprise)


@pytest.mark.parametrize("text", ["NET", "DIS", "PORT", "NODE", "true", "-1"])
def test_other_words_are_ignored(text: str) -> None:
    assert parse_level(text).ignored
    assert parse_level(text).surprise


def test_an_empty_level_is_the_default_without_surprise() -> None:
    assert parse_level("") == LevelReading(None, ignored=True)


@pytest.mark.parametrize(
    ("digits", "level"),
    [("0", "LOC"), ("1", "PIX"), ("2", "PXB"), ("3", "PHB"), ("4", "SYS"), ("5", "SYS")],
)
@pytest.mark.parametrize("version", [None, "2.6.4", "2.18.1", "2.30.7"])
def test_old_digits_mean_the_same_in_every_version(digits: str, level: str, version: str | None) -> None:
    assert parse_level(digits, version) == LevelReading(NcclPath[level], ignored=False)


@pytest.mark.parametrize(
    ("text", "level"), [("6", "SYS"), ("99", "SYS"), ("010", "SYS"), ("0x2", "PXB"), ("2x", "PXB"), ("1 ", "PIX")]
)
def test_digits_read_in_an_odd_way_are_pointed_out(text: str, level: str) -> None:
    reading = parse_level(text)
    assert reading.level is NcclPath[level]
    assert level in str(reading.surprise)


def test_a_number_that_overflows_means_nothing() -> None:
    reading = parse_level("4294967295")
    assert reading.ignored
    assert "overflows" in str(reading.surprise)
    assert parse_level("4294967298").level is NcclPath.PXB
    assert parse_level(BIG).ignored


@pytest.mark.parametrize(
    ("name", "before", "since"),
    [("NVB", "2.7.8", "2.8.3"), ("PXN", "2.11.4", "2.12.7"), ("C2C", "2.25.1", "2.26.2"), ("P2C", "2.26.6", "2.27.3")],
)
def test_names_are_as_old_as_they_are(name: str, before: str, since: str) -> None:
    assert parse_level(name, since).level is NcclPath[name]
    assert parse_level(name, before).ignored
    assert since in str(parse_level(name, before).surprise)


@pytest.mark.parametrize(
    ("text", "version", "level"),
    [
        ("0", "2.5.7", "LOC"),
        ("1", "2.5.7", "PIX"),
        ("3", "2.5.7", "PHB"),
        ("4", "2.4.6", "PHB"),
        ("4", "2.4.2", "SYS"),
        ("5", "2.5.7", "SYS"),
        ("7", "2.3.5", "SYS"),
        ("-5", "2.5.7", "NVL"),
        ("PHB", "2.5.7", "LOC"),
    ],
)
def test_before_2_6_4_only_numbers_counted(text: str, version: str, level: str) -> None:
    reading = parse_level(text, version)
    assert reading.level is NcclPath[level]
    assert not reading.ignored


def test_before_2_6_4_a_name_switched_p2p_off() -> None:
    assert "reads 0" in str(parse_level("SYS", "2.5.7").surprise)
    assert parse_level("-2", "2.5.7").ignored
    assert parse_level("", "2.5.7").ignored


@pytest.mark.parametrize(
    ("disable", "level", "version", "expected"),
    [
        (None, None, None, None),
        ("1", None, None, "LOC"),
        ("1", "SYS", None, "LOC"),
        ("0x1", "SYS", None, "LOC"),
        ("0", "SYS", None, "SYS"),
        ("2", "SYS", None, "SYS"),
        ("true", None, None, None),
        ("", "PHB", None, "PHB"),
        ("0", "phb", None, None),
        ("1", "5", "2.5.7", "SYS"),
        ("1", "", "2.5.7", "LOC"),
        ("1", "5", "2.6.4", "LOC"),
    ],
)
def test_p2p_disable_and_level_together(
    disable: str | None, level: str | None, version: str | None, expected: str | None
) -> None:
    reading = user_p2p_level(disable, level, version)
    assert (None if reading.level is None else reading.level.name) == expected
    assert reading.ignored is (expected is None)


@pytest.mark.parametrize(
    ("text", "level", "surprising"),
    [
        ("PORT", "NVL", False),
        ("LOC", "LOC", False),
        ("PHB", "PHB", False),
        ("PXBig", "PXB", True),
        ("NVL", "LOC", True),
        ("pix", "LOC", True),
        ("2", "LOC", True),
        ("", "LOC", True),
    ],
)
def test_merge_level(text: str, level: str, surprising: bool) -> None:
    reading = parse_merge_level(text)
    assert reading.level is NcclPath[level]
    assert not reading.ignored
    assert bool(reading.surprise) is surprising
