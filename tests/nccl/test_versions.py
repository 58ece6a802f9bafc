"""Dotted versions."""

import pytest

from topoadvisor.nccl import versions


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.28.9", (2, 28, 9)),
        ("2.28.9+cuda13.0", (2, 28, 9)),
        ("2.28.9-1", (2, 28, 9)),
        ("v2.30.7-1", (2, 30, 7)),
        (" 2.28", (2, 28)),
        ("590.48.01", (590, 48, 1)),
        ("535", (535,)),
        ("6.8.0-49-generic", (6, 8, 0)),
        (22809, (2, 28, 9)),
        ("22809", (2, 28, 9)),
        (2809, (2, 8, 9)),
        (20906, (2, 9, 6)),
    ],
)
def test_parse(text: str | int, numbers: tuple[int, ...]) -> None:
    assert versions.parse(text) == numbers


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("unhandled cuda error, NCCL version 2.18.5", "2.18.5"),
        ("[0] NCCL INFO NCCL version 2.22.3+cuda12.6", "2.22.3"),
        ("ProcessGroupNCCL.cpp:47, unhandled cuda error, NCCL version 21.0.3", "2.10.3"),
        ("internal error, NCCL version 20.9.9", "2.9.9"),
        ("NCCL version 2.18.5 … NCCL version 2.18.5", "2.18.5"),
        ("NCCL version 2.18.5 … NCCL version 2.19.3", None),
        ("NCCL WARN Mismatched NCCL version detected", None),
    ],
)
def test_a_message_names_its_release(text: str, version: str | None) -> None:
    assert versions.in_message(text) == version


@pytest.mark.parametrize("text", ["", "unknown", ".5", "+cuda13", "٣.٤"])
def test_what_is_no_version(text: str) -> None:
    assert not versions.is_version(text)
    with pytest.raises(ValueError, match="not a version"):
        versions.parse(text)


@pytest.mark.parametrize(
    ("version", "conditions", "expected"),
    [
        ("2.28.9", ">=2.21", True),
        ("2.21", ">=2.21.0", True),
        ("2.20.5", ">=2.21", False),
        ("2.9.9", ">=2.21", False),
        ("2.23.4", ">=2.21,<2.27", True),
        ("2.27.3", ">=2.21, <2.27", False),
        ("2.27.3", "<=2.27", False),
        ("2.27.3", "!=2.27.3", False),
        ("2.27.3-1", "==2.27.3", True),
        ("2.27.3", ">2.27", True),
    ],
)
def test_satisfies(version: str, conditions: str, expected: bool) -> None:
    assert versions.satisfies(version, conditions) is expected


@pytest.mark.parametrize("conditions", ["", "2.21", ">=", ">=2.21,", "~=2.21", ">=2.x"])
def test_what_is_no_condition(conditions: str) -> None:
    with pytest.raises(ValueError, match="not a version condition"):
        versions.satisfies("2.28.9", conditions)
