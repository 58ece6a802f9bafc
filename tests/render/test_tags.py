"""Choices and placements on a picture: each GPU has the tag that the plan's own document gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.render.conftest import bundled
from tests.render.test_drawing import assert_texts_fit, shapes, words
from topoadvisor import placing, planning
from topoadvisor.placing import Sizes
from topoadvisor.render import tags, topology_text
from topoadvisor.render.drawing import Drawing, compose
from topoadvisor.render.schematic import Schematic
from topoadvisor.snapshot import Snapshot


def on_gpus(drawing: Drawing) -> dict[str, str]:
    prefix = "tag:gpu:"
    return {id.removeprefix(prefix): words(shape) for id, shape in shapes(drawing).items() if id.startswith(prefix)}


def border(drawing: Drawing, id: str) -> Any:
    look = shapes(drawing)[id].look
    assert look is not None
    return look.border


@pytest.mark.parametrize("name", ["8x4090", "dgx-1v"])
def test_a_pick_is_on_its_gpus_and_the_other_groups_on_theirs(schematic: Callable[[str], Schematic], name: str) -> None:
    found = planning.pick(bundled(name), 2)
    drawing = compose(tags.picked(schematic(name), found))
    assert_texts_fit(drawing)
    tagged = on_gpus(drawing)
    assert {int(gpu) for gpu, text in tagged.items() if text == "pick"} == set(found.best.gpus)
    for group in found.groups:
        assert len({tagged[str(gpu)] for gpu in group.gpus}) == 1
        assert len({border(drawing, f"gpu:{gpu}") for gpu in group.gpus}) == 1
    assert len(set(tagged.values())) == len(found.groups)


def test_gpus_of_no_group_have_no_tag(schematic: Callable[[str], Schematic]) -> None:
    found = planning.pick(bundled("dgx-h100"), 3)
    tagged = on_gpus(compose(tags.picked(schematic("dgx-h100"), found)))
    assert set(map(int, tagged)) == {gpu for group in found.groups for gpu in group.gpus}
    assert set(range(8)) - set(map(int, tagged)) == set(found.idle) != set()


@pytest.mark.parametrize("name", ["8x4090", "dgx-1v", "dgx-h100", "8xl40s"])
@pytest.mark.parametrize("sizes", [Sizes(2, 2, 2, 1, None), Sizes(1, 1, 8, 1, None), Sizes(4, 1, 4, 2, 2)])
def test_a_placement_has_each_rank_on_its_gpu(schematic: Callable[[str], Schematic], name: str, sizes: Sizes) -> None:
    found = placing.place(bundled(name), sizes)
    tagged = tags.placed(schematic(name), found)
    drawing = compose(tagged)
    assert_texts_fit(drawing)
    on_first = [rank for rank in found.ranks if rank.node == 0]
    assert {gpu: text.rpartition("r")[2] for gpu, text in on_gpus(drawing).items()} == {
        str(rank.gpu): str(rank.rank) for rank in on_first
    }
    groups = [group for group in found.groups if group.kind == "tensor"]
    for group in groups:
        assert len({on_gpus(drawing)[str(gpu)].split(" ")[0] for gpu in group.gpus}) == 1
    text = topology_text.render(tagged)
    for gpu, tag in on_gpus(drawing).items():
        assert f"{{{tag}}}" in text.split(f"─ GPU{gpu} ")[1].split("─ ")[0]


def test_a_placement_that_is_a_bad_idea_says_so_in_the_picture(schematic: Callable[[str], Schematic]) -> None:
    found = placing.place(bundled("8x4090"), Sizes(4, 1, 2, 1, None))
    tagged = tags.placed(schematic("8x4090"), found)
    assert any("is a bad idea" in words(shape) for shape in shapes(compose(tagged)).values())
    assert "is a bad idea" in topology_text.render(tagged)


def test_a_gpu_with_a_finding_keeps_its_border(schematic: Callable[[str], Schematic]) -> None:
    plain = schematic("dgx-h100-broken-link")
    drawing = compose(tags.placed(plain, placing.place(bundled("dgx-h100-broken-link"), Sizes(8, 1, 1, 1, None))))
    assert on_gpus(drawing)["5"] == "T0 r5"
    assert border(drawing, "gpu:5") == border(compose(plain), "gpu:5") != border(drawing, "gpu:4")
    box = shapes(drawing)["tag:gpu:5"]
    assert all(badge.x >= box.x + box.w for id, badge in shapes(drawing).items() if id.startswith("badge:gpu:5:"))


def test_more_groups_than_there_are_lines_for_are_counted(
    plain: Callable[..., Schematic], switched: Callable[..., Snapshot]
) -> None:
    machine = switched(16, per_socket=8)
    drawing = compose(tags.placed(plain(machine), placing.place(machine, Sizes(1, 1, 16, 1, None))))
    assert_texts_fit(drawing)
    assert len(on_gpus(drawing)) == 16
    assert any("and 8 more: see `topoadvisor place`" in words(shape) for shape in shapes(drawing).values())
