"""The scan screen: complete, inside its width, coloured only when asked."""

from __future__ import annotations

import re

import pytest

from topoadvisor import files, plans
from topoadvisor import snapshot as snapshots
from topoadvisor.advice import UnknownVerdict
from topoadvisor.render import scan_text
from topoadvisor.topology import matrix

FIXTURES = sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json"))


def screen(name: str, *, width: int, color: bool = False) -> str:
    path = files.shipped("fixtures") / name / "snapshot.json"
    machine = snapshots.decode(path.read_bytes(), file=str(path))
    analysis = plans.analyse(machine)
    return scan_text.render(analysis.advice, matrix.of(machine, analysis.topology)[0], width=width, color=color)


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", FIXTURES)
def test_no_line_of_prose_is_wider_than_the_screen(name: str, width: int) -> None:
    for line in screen(name, width=width).splitlines():
        if line.lstrip().startswith("$"):  # Commands stay on one line so that they can be copied.
            continue
        assert len(line) <= width, line


@pytest.mark.parametrize("name", FIXTURES)
def test_colour_adds_nothing_but_escape_codes(name: str) -> None:
    plain, painted = screen(name, width=100), screen(name, width=100, color=True)
    assert "\x1b" not in plain
    assert painted != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


def test_the_screen_has_every_part() -> None:
    text = screen("8x4090", width=100)
    for part in (
        "8 × NVIDIA GeForce RTX 4090",
        "GPU7 NODE",
        "Findings (6)",
        "Set nothing; take out what is listed here.",
        "Already right",
        "Rings (",
    ):
        assert part in text


def test_a_matrix_that_does_not_fit_is_pointed_to() -> None:
    assert "the verb `matrix`" in screen("dgx-h100", width=80)
    assert "NIC0" in screen("dgx-h100", width=200)


def test_a_quoted_command_is_shown_whole() -> None:
    verdict = UnknownVerdict(
        rule="X", name="x", subject="node", missing=[], reason="", ask="""python3 -c 'import torch; print(1)'; lscpu"""
    )
    assert scan_text._commands([verdict, verdict]) == ["python3 -c 'import torch; print(1)'", "lscpu"]


@pytest.mark.parametrize("name", FIXTURES)
def test_golden_screen(name: str, snapshot: object) -> None:
    """The whole screen of each machine; read every change by eye. Update with `pytest --snapshot-update`."""
    assert screen(name, width=100) == snapshot
