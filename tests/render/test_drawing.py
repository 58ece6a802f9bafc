from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest

from topoadvisor.advice import Advice, Finding, NodeSummary, Severity
from topoadvisor.render import typeface
from topoadvisor.render.drawing import BROKEN, Drawing, Group, Shape, compose
from topoadvisor.render.schematic import Schematic
from topoadvisor.snapshot import Gpu, Snapshot


def shapes(drawing: Drawing) -> dict[str, Shape]:
    """Id → every shape on the page, in frames or not."""

    def inside(group: Group) -> list[Shape]:
        return [group.box, *group.shapes, *(shape for inner in group.groups for shape in inside(inner))]

    found = [*drawing.shapes, *(shape for group in drawing.groups for shape in inside(group))]
    assert len({shape.id for shape in found}) == len(found)
    return {shape.id: shape for shape in found}


def words(shape: Shape) -> str:
    return " ".join(row.text for row in shape.rows)


def legend(drawing: Drawing) -> set[str]:
    return {words(shape) for id, shape in shapes(drawing).items() if id.startswith("legend:")} - {""}


def badges(drawing: Drawing) -> dict[str, str]:
    return {id: words(shape) for id, shape in shapes(drawing).items() if id.startswith("badge:")}


def finding(subject: str, *also: str, severity: Severity = "error", ids: tuple[str, ...] = ("NVL002",)) -> Advice:
    fired = [
        Finding(
            id=id,
            name="a-rule",
            severity=severity,
            subject=subject,
            message="something is wrong",
            why="",
            evidence=[],
            advice=[],
            also=list(also),
        )
        for id in ids
    ]
    node = NodeSummary(gpus="", interconnect="", host="")
    return Advice(node=node, findings=fired, settings=[], already_right=[], unknown=[], plan=None, sources=[])


def printed_width(text: str, size: float, *, bold: bool) -> float:
    """What the library that draws makes of it, kerning included."""
    typeface.file(bold=bold)
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(fname=typeface.file(bold=bold), size=size)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def test_every_gpu_and_nic_of_every_fixture_is_one_shape(
    schematic: Callable[[str], Schematic], any_fixture: str
) -> None:
    drawn = schematic(any_fixture)
    rows = Counter(row.text for shape in shapes(compose(drawn)).values() for row in shape.rows)
    wanted = Counter(part.title for top in drawn.parts for part in top.walk() if part.kind in ("gpu", "nic"))
    assert {title: rows[title] for title in wanted} == wanted


def assert_texts_fit(drawing: Drawing) -> None:
    for shape in shapes(drawing).values():
        for row in shape.rows:
            assert printed_width(row.text, row.size, bold=row.bold) <= shape.w - 2 * shape.inset[0] + 0.01, row.text
        assert sum(row.size * 1.2 for row in shape.rows) <= shape.h, shape


def test_no_text_is_wider_or_higher_than_its_box(schematic: Callable[[str], Schematic], any_fixture: str) -> None:
    assert_texts_fit(compose(schematic(any_fixture)))


@pytest.mark.parametrize(("count", "per_socket"), [(1, 1), (2, 2), (16, 8), (72, 2), (72, 72)])
def test_machines_of_any_size_keep_their_texts_in_their_boxes(
    plain: Callable[..., Schematic], switched: Callable[..., Snapshot], count: int, per_socket: int
) -> None:
    name = "NVIDIA RTX PRO 6000 Blackwell Max-Q WWWWWWWWWWWWWWWWWWWW"
    assert_texts_fit(compose(plain(switched(count, per_socket=per_socket, name=name))))


def test_everything_is_on_the_page(schematic: Callable[[str], Schematic], any_fixture: str) -> None:
    drawing = compose(schematic(any_fixture))
    for shape in shapes(drawing).values():
        assert shape.x >= -0.01
        assert shape.y >= -0.01
        assert shape.x + shape.w <= drawing.w + 0.01, shape
        assert shape.y + shape.h <= drawing.h + 0.01, shape
    for x, y in (point for stroke in drawing.strokes for point in stroke.points):
        assert 0 <= x <= drawing.w
        assert 0 <= y <= drawing.h


def test_an_nvswitch_machine_has_one_line_for_each_gpu(schematic: Callable[[str], Schematic]) -> None:
    drawing = compose(schematic("dgx-h100"))
    nvlinks = [stroke for stroke in drawing.strokes if stroke.label and stroke.label.text == "NV18"]
    assert sorted((stroke.a, stroke.b) for stroke in nvlinks) == [(f"gpu:{i}", "nvswitch") for i in range(8)]
    assert words(shapes(drawing)["nvswitch"]).startswith("4 × NVSwitch")


def test_a_mesh_has_one_line_for_each_pair_as_wide_as_it_has_links(schematic: Callable[[str], Schematic]) -> None:
    links = [s for s in compose(schematic("dgx-1v")).strokes if s.a.startswith("gpu:") and s.b.startswith("gpu:")]
    pens = {text: {s.pen for s in links if s.label and s.label.text == text} for text in ("NV1", "NV2")}
    assert len(links) == 16
    assert max(pens["NV1"]) < min(pens["NV2"])


def test_a_degraded_link_is_red(schematic: Callable[[str], Schematic]) -> None:
    drawing = compose(schematic("dgx-h100-broken-link"))
    red = [stroke for stroke in drawing.strokes if stroke.colour == BROKEN]
    assert [(s.a, s.b, s.label.text if s.label else "") for s in red] == [("gpu:5", "nvswitch", "NV16")]
    assert "broken or degraded" in legend(drawing)
    assert "broken or degraded" not in legend(compose(schematic("dgx-h100")))


def test_a_narrow_pcie_link_is_red_and_says_what_it_could_be(schematic: Callable[[str], Schematic]) -> None:
    drawing = compose(schematic("2x5090-container"))
    assert "Gen5 x8 of x16" in words(shapes(drawing)["gpu:1"])
    assert [stroke.b for stroke in drawing.strokes if stroke.colour == BROKEN] == ["gpu:1"]


def test_what_was_inferred_is_dashed_and_says_so(schematic: Callable[[str], Schematic]) -> None:
    drawing = compose(schematic("paste-8xa100"))
    for id, shape in shapes(drawing).items():
        if id.startswith(("root:", "switch:", "pci:", "gpu:", "nic:", "numa:", "nvswitch")):
            assert shape.look is not None
            assert shape.look.dashed == ("(inferred)" in words(shape)), id
    assert "inferred, not read" in legend(drawing)
    read = compose(schematic("8xl40s"))
    assert not any(shape.look and shape.look.dashed for shape in shapes(read).values())


def test_a_finding_marks_its_subject_with_its_rule(plain: Callable[..., Schematic], bundled_machine: Snapshot) -> None:
    drawing = compose(plain(bundled_machine, finding("gpu:3")))
    assert badges(drawing) == {"badge:gpu:3:0": "NVL002"}
    look = shapes(drawing)["gpu:3"].look
    assert look is not None
    assert look.border == BROKEN
    assert words(shapes(drawing)["note-text:0"]) == "something is wrong"


def test_a_finding_on_a_pair_marks_both(plain: Callable[..., Schematic], bundled_machine: Snapshot) -> None:
    drawing = compose(plain(bundled_machine, finding("gpu:1-gpu:2", "nic:mlx5_0", severity="warning")))
    assert sorted(badges(drawing)) == ["badge:gpu:1:0", "badge:gpu:2:0", "badge:nic:mlx5_0:0"]


def test_a_warning_on_all_gpus_or_on_the_node_marks_none_and_an_error_all(
    plain: Callable[..., Schematic], bundled_machine: Snapshot
) -> None:
    pairs = [f"gpu:{a}-gpu:{b}" for a, b in combinations(range(8), 2)]
    assert len(badges(compose(plain(bundled_machine, finding(*pairs))))) == 8
    for advice in (
        finding(*pairs, severity="warning"),
        finding("node"),
        finding("variable:NCCL_ALGO"),
        finding("gpu:1", severity="info"),
    ):
        drawing = compose(plain(bundled_machine, advice))
        assert not badges(drawing)
        assert words(shapes(drawing)["note:0"]) == "NVL002"


def test_more_findings_than_there_is_room_for_are_counted(
    plain: Callable[..., Schematic], bundled_machine: Snapshot
) -> None:
    advice = finding("gpu:0", ids=tuple(f"NVL{i:03}" for i in range(9)))
    drawing = compose(plain(bundled_machine, advice))
    assert any(text.startswith("+") for text in badges(drawing).values())
    assert any("3 more" in words(shape) for id, shape in shapes(drawing).items() if id.startswith("note-text:"))


def test_a_switch_with_one_thing_below_is_only_a_mark(schematic: Callable[[str], Schematic]) -> None:
    """GPU2 of the seed machine stands behind a switch of its own below the switch of GPU0 to GPU3."""
    drawn = shapes(compose(schematic("8x4090")))
    assert {id for id in drawn if id.startswith("passed:")} == {f"passed:gpu:{i}" for i in (2, 3, 4, 5)}
    assert len([shape for shape in drawn.values() if words(shape).startswith("PCIe switch")]) == 4


def test_chip_to_chip_links_go_to_the_numa_node(schematic: Callable[[str], Schematic]) -> None:
    chips = {(s.a, s.b) for s in compose(schematic("gh200")).strokes if s.label and s.label.text == "C2C"}
    assert chips == {(f"gpu:{i}", f"numa:{i}") for i in range(4)}


def test_gpus_of_which_nothing_is_known_are_drawn(plain: Callable[..., Schematic]) -> None:
    assert {"gpu:0", "gpu:1"} <= set(shapes(compose(plain(Snapshot(gpus=[Gpu(index=0), Gpu(index=1)])))))


def test_long_names_end_in_an_ellipsis_within_the_page(plain: Callable[..., Schematic], hostile: Snapshot) -> None:
    drawing = compose(plain(hostile))
    title = shapes(drawing)["title"]
    assert words(title).endswith("…")
    assert title.x + title.w <= drawing.w
    assert drawing.w < 600
