from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest

from topoadvisor.render.placement import place
from topoadvisor.render.schematic import Schematic
from topoadvisor.render.shapes import Box, Frame, Placement
from topoadvisor.snapshot import Snapshot


def boxes(placement: Placement) -> list[Box]:
    def inside(frame: Frame) -> list[Box]:
        return [*frame.boxes, *(box for inner in frame.frames for box in inside(inner))]

    return [*placement.boxes, *(box for frame in placement.frames for box in inside(frame))]


def assert_apart(placement: Placement) -> None:
    drawn = boxes(placement)
    for box in drawn:
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.w <= placement.w + 0.01
        assert box.y + box.h <= placement.h + 0.01
        assert box.w > 40
    for a, b in combinations(drawn, 2):
        apart = a.x + a.w <= b.x or b.x + b.w <= a.x or a.y + a.h <= b.y or b.y + b.h <= a.y
        assert apart, (a.part.title, b.part.title)


def test_no_box_overlaps_another_and_all_are_on_the_page(
    schematic: Callable[[str], Schematic], any_fixture: str
) -> None:
    placement = place(schematic(any_fixture))
    assert_apart(placement)
    assert 1.1 < placement.w / placement.h < 5


@pytest.mark.parametrize(("count", "per_socket"), [(1, 1), (2, 2), (16, 8), (16, 16), (72, 2), (72, 36), (72, 72)])
def test_machines_of_any_size_fit_on_a_page(
    plain: Callable[..., Schematic], switched: Callable[..., Snapshot], count: int, per_socket: int
) -> None:
    placement = place(plain(switched(count, per_socket=per_socket)))
    assert_apart(placement)
    assert placement.w < 1500
    assert 0.8 < placement.w / placement.h < 5
    assert len([line for line in placement.lines if line.b == "nvswitch"]) == count


def test_gpus_stand_in_index_order(schematic: Callable[[str], Schematic]) -> None:
    for name in ("dgx-h100", "dgx-a100", "dgx-1v", "8x4090"):
        gpus = [box for box in boxes(place(schematic(name))) if box.part.kind == "gpu"]
        assert [box.part.title for box in sorted(gpus, key=lambda box: box.x)] == [f"GPU{i}" for i in range(8)]
        assert len({box.y for box in gpus}) == 1


def test_tracks_of_a_mesh_do_not_run_over_each_other(schematic: Callable[[str], Schematic]) -> None:
    lines = [line for line in place(schematic("dgx-1v")).lines if line.wire.kind == "nvlink"]
    spans = [(line.points[1][1], *sorted(point[0] for point in line.points[1:3])) for line in lines]
    for (y, left, right), (other_y, other_left, other_right) in combinations(spans, 2):
        assert y != other_y or right < other_left or other_right < left
