"""Rings under the picture of a machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from topoadvisor.advice import Ring
from topoadvisor.cli import main
from topoadvisor.render import ring_strip
from topoadvisor.render.drawing import compose
from topoadvisor.render.schematic import Schematic


def ring(*order: int, gbps: float | None = 50.0) -> Ring:
    return Ring(order=list(order), gbps=gbps, bottleneck="", hops=[])


def test_each_hop_is_one_line_from_its_gpu_to_the_next(schematic: Callable[[str], Schematic]) -> None:
    order = (0, 3, 2, 1, 5, 6, 7, 4)
    drawing = compose(schematic("dgx-1v"), [ring(*order)])
    hops = {(stroke.a, stroke.b) for stroke in drawing.strokes if stroke.a.startswith("ring:")}
    assert hops == {(f"ring:0:{a}", f"ring:0:{b}") for a, b in itertools.pairwise([*order, order[0]])}
    assert drawing.h > compose(schematic("dgx-1v")).h
    title = next(shape for shape in drawing.shapes if shape.id == "ring:0")
    assert title.rows[0].text == "Ring 1 · 50 GB/s · 0 → 3 → 2 → 1 → 5 → 6 → 7 → 4 → 0"


def test_gpus_stand_under_their_boxes(schematic: Callable[[str], Schematic]) -> None:
    drawing = compose(schematic("dgx-h100"), [ring(*range(8))])

    def middles(prefix: str, groups: object = None) -> dict[int, float]:
        found = {}
        stack = list(drawing.groups)
        shapes = list(drawing.shapes)
        while stack:
            group = stack.pop()
            shapes += group.shapes
            stack += group.groups
        for shape in shapes:
            if shape.id.startswith(prefix) and shape.id.removeprefix(prefix).isdigit():
                found[int(shape.id.removeprefix(prefix))] = shape.x + shape.w / 2
        return found

    dots, boxes = middles("ring:0:"), middles("gpu:")
    assert dots == pytest.approx(boxes)


@pytest.mark.parametrize("order", list(itertools.permutations(range(5)))[::17])
def test_lines_of_one_level_do_not_run_over_each_other(order: tuple[int, ...]) -> None:
    strip = ring_strip.Strip(0, ring(*order), {gpu: 40.0 * gpu for gpu in range(5)}, 0.0, 300.0)
    levels: dict[float, list[tuple[float, float]]] = {}
    for _, points in strip.lines():
        level = points[1][1]
        left, right = sorted((points[1][0], points[2][0]))
        assert all(right <= a or left >= b for a, b in levels.setdefault(level, []))
        levels[level].append((left, right))
    assert len(list(strip.lines())) == 5


def test_what_has_no_room_is_told_in_words_alone(
    plain: Callable[..., Schematic], switched: Callable[..., object]
) -> None:
    drawing = compose(plain(switched(72, per_socket=36)), [ring(*range(72)), *[ring(1, 0)] * 5])
    assert not any(stroke.a.startswith("ring:0:") for stroke in drawing.strokes)
    assert any(shape.id == "ring:more" for shape in drawing.shapes)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--rings", "fixture:dgx-1v"]) == 0
    assert "50 GB/s  0 → 3 → 2 → 1 → 5 → 6 → 7 → 4 → 0" in capsys.readouterr().out
    assert main(["render", "fixture:dgx-1v", "--format", "text"]) == 0
    assert "Rings" not in capsys.readouterr().out
    for name in ("r.svg", "r.dot", "r.png"):
        assert main(["render", "--rings", "fixture:8x4090", "-o", str(tmp_path / name)]) == 0
    assert "Ring 1 · 9.602 GB/s" in (tmp_path / "r.svg").read_text()
