from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from topoadvisor.advice import Advice, Finding, NodeSummary, Severity
from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.render import dot
from topoadvisor.render.placement import place
from topoadvisor.render.schematic import Part, Schematic
from topoadvisor.render.shapes import Box, Frame, Placement
from topoadvisor.snapshot import Gpu, Nic, PciDevice, Snapshot

pygraphviz = pytest.importorskip("pygraphviz", reason="its libraries want GLib and X11", exc_type=ImportError)
RED = "#d32f2f"


def read(schematic: Schematic) -> Any:
    return pygraphviz.AGraph(string=dot.source(schematic))


def label(graph: Any, node: str) -> str:
    return str(graph.get_node(node).attr["label"])


def boxes(placement: Placement) -> list[Box]:
    def inside(frame: Frame) -> list[Box]:
        return [*frame.boxes, *(box for inner in frame.frames for box in inside(inner))]

    return [*placement.boxes, *(box for frame in placement.frames for box in inside(frame))]


def finding(subject: str, *also: str, severity: Severity = "error", id: str = "NVL002") -> Advice:
    fired = Finding(
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
    node = NodeSummary(gpus="", interconnect="", host="")
    return Advice(node=node, findings=[fired], settings=[], already_right=[], unknown=[], plan=None, sources=[])


def badges(graph: Any) -> dict[str, str]:
    return {str(node): str(node.attr["label"]) for node in graph.nodes() if str(node).startswith("badge_")}


def test_every_gpu_and_nic_of_every_fixture_is_one_node(
    schematic: Callable[[str], Schematic], any_fixture: str
) -> None:
    drawn = schematic(any_fixture)
    graph = read(drawn)
    wanted = [part for top in drawn.parts for part in top.walk() if part.kind in ("gpu", "nic")]
    titles = Counter(part.title for part in wanted)
    for title, count in titles.items():
        assert sum(f">{title}<" in str(node.attr["label"]) for node in graph.nodes()) == count
    assert len([node for node in graph.nodes() if str(node).startswith("gpu_")]) == sum(p.kind == "gpu" for p in wanted)


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
    schematic = plain(switched(count, per_socket=per_socket))
    placement = place(schematic)
    assert_apart(placement)
    assert placement.w < 1500
    assert 0.8 < placement.w / placement.h < 5
    graph = read(schematic)
    assert len([edge for edge in graph.edges() if "nvswitch" in edge]) == count


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


def test_gpus_stand_in_index_order(schematic: Callable[[str], Schematic]) -> None:
    for name in ("dgx-h100", "dgx-a100", "dgx-1v", "8x4090"):
        gpus = [box for box in boxes(place(schematic(name))) if box.part.kind == "gpu"]
        assert [box.part.title for box in sorted(gpus, key=lambda box: box.x)] == [f"GPU{i}" for i in range(8)]
        assert len({box.y for box in gpus}) == 1


def test_an_nvswitch_machine_has_one_edge_for_each_gpu(schematic: Callable[[str], Schematic]) -> None:
    graph = read(schematic("dgx-h100"))
    nvlinks = [edge for edge in graph.edges() if "NV18" in str(edge.attr["label"])]
    assert len(nvlinks) == 8
    assert all("nvswitch" in edge for edge in nvlinks)
    assert "4 × NVSwitch" in label(graph, "nvswitch")


def test_a_mesh_has_one_edge_for_each_pair_as_wide_as_it_has_links(schematic: Callable[[str], Schematic]) -> None:
    graph = read(schematic("dgx-1v"))
    links = [edge for edge in graph.edges() if all(str(end).startswith("gpu_") for end in edge)]
    single = {float(edge.attr["penwidth"]) for edge in links if ">NV1<" in str(edge.attr["label"])}
    double = {float(edge.attr["penwidth"]) for edge in links if ">NV2<" in str(edge.attr["label"])}
    assert len(links) == 16
    assert max(single) < min(double)


def test_tracks_of_a_mesh_do_not_run_over_each_other(schematic: Callable[[str], Schematic]) -> None:
    lines = [line for line in place(schematic("dgx-1v")).lines if line.wire.kind == "nvlink"]
    spans = [(line.points[1][1], *sorted(point[0] for point in line.points[1:3])) for line in lines]
    for (y, left, right), (other_y, other_left, other_right) in combinations(spans, 2):
        assert y != other_y or right < other_left or other_right < left


def test_a_degraded_link_is_red(schematic: Callable[[str], Schematic]) -> None:
    graph = read(schematic("dgx-h100-broken-link"))
    red = [edge for edge in graph.edges() if edge.attr["color"] == RED]
    assert [sorted(edge) for edge in red] == [["gpu_5", "nvswitch"]]
    assert ">NV16<" in str(red[0].attr["label"])
    assert "broken or degraded" in label(graph, "legend")
    assert "broken or degraded" not in label(read(schematic("dgx-h100")), "legend")


def test_a_narrow_pcie_link_is_red_and_says_what_it_could_be(schematic: Callable[[str], Schematic]) -> None:
    graph = read(schematic("2x5090-container"))
    assert "Gen5 x8 of x16" in label(graph, "gpu_1")
    assert [edge[1] for edge in graph.edges() if edge.attr["color"] == RED] == ["gpu_1"]


def test_what_was_inferred_is_dashed_and_says_so(schematic: Callable[[str], Schematic]) -> None:
    graph = read(schematic("paste-8xa100"))
    for node in graph.nodes():
        inferred = "(inferred)" in str(node.attr["label"]) and not str(node).startswith("socket")
        assert ("dashed" in str(node.attr["style"])) == inferred, node
    assert "inferred, not read" in label(graph, "legend")
    read_from_machine = read(schematic("8xl40s"))
    assert "dashed" not in {part for node in read_from_machine.nodes() for part in str(node.attr["style"]).split(",")}


def test_a_finding_marks_its_subject_with_its_rule(plain: Callable[..., Schematic], bundled_machine: Snapshot) -> None:
    graph = read(plain(bundled_machine, finding("gpu:3")))
    assert list(badges(graph)) == ["badge_gpu_3_0"]
    assert "NVL002" in badges(graph)["badge_gpu_3_0"]
    assert graph.get_node("gpu_3").attr["color"] == RED
    assert "something is wrong" in label(graph, "note_text_0")


def test_a_finding_on_a_pair_marks_both(plain: Callable[..., Schematic], bundled_machine: Snapshot) -> None:
    graph = read(plain(bundled_machine, finding("gpu:1-gpu:2", "nic:mlx5_0", severity="warning")))
    assert sorted(badges(graph)) == ["badge_gpu_1_0", "badge_gpu_2_0", "badge_nic_mlx5_0_0"]


def test_a_finding_on_all_gpus_or_on_the_node_marks_none(
    plain: Callable[..., Schematic], bundled_machine: Snapshot
) -> None:
    pairs = [f"gpu:{a}-gpu:{b}" for a, b in combinations(range(8), 2)]
    for advice in (finding(*pairs), finding("node"), finding("variable:NCCL_ALGO"), finding("gpu:1", severity="info")):
        graph = read(plain(bundled_machine, advice))
        assert not badges(graph)
        assert "NVL002" in label(graph, "note_0")


def test_more_findings_than_there_is_room_for_are_counted(
    plain: Callable[..., Schematic], bundled_machine: Snapshot
) -> None:
    one = finding("gpu:0").findings[0]
    many = [type(one)(**{**{f: getattr(one, f) for f in one.__struct_fields__}, "id": f"NVL{i:03}"}) for i in range(9)]
    advice = finding("gpu:0")
    advice = Advice(**{**{f: getattr(advice, f) for f in advice.__struct_fields__}, "findings": many})
    graph = read(plain(bundled_machine, advice))
    assert "+" in "".join(badges(graph).values())
    assert any("3 more" in str(node.attr["label"]) for node in graph.nodes() if str(node).startswith("note_text"))


def test_a_switch_with_one_thing_below_is_only_a_mark(schematic: Callable[[str], Schematic]) -> None:
    """GPU2 of the seed machine stands behind a switch of its own below the switch of GPU0 to GPU3."""
    graph = read(schematic("8x4090"))
    marks = {str(node) for node in graph.nodes() if str(node).startswith("passed_")}
    assert marks == {"passed_gpu_2", "passed_gpu_3", "passed_gpu_4", "passed_gpu_5"}
    assert len([node for node in graph.nodes() if ">PCIe switch" in str(node.attr["label"])]) == 4


def test_ports_of_one_switch_are_one_box_and_root_ports_none(plain: Callable[..., Schematic]) -> None:
    def bridge(address: str, parent: str | None, port_type: str | None) -> PciDevice:
        return PciDevice(
            address=address, class_code="0x060400", parent=parent, root="0000:00", numa_node=0, port_type=port_type
        )

    pci = [
        bridge("0000:00:01.0", None, "root-port"),
        bridge("0000:01:00.0", "0000:00:01.0", "upstream"),
        *(bridge(f"0000:02:0{i}.0", "0000:01:00.0", "downstream") for i in range(3)),
        *(PciDevice(address=f"0000:0{i + 3}:00.0", parent=f"0000:02:0{i}.0", root="0000:00") for i in range(3)),
    ]
    gpus = [Gpu(index=i, address=f"0000:0{i + 3}:00.0", numa_node=0) for i in range(2)]
    nics = [Nic(name="mlx5_0", rdma=True, address="0000:05:00.0", numa_node=0)]
    top = plain(Snapshot(gpus=gpus, pci=pci, nics=nics)).parts
    bars = [part for each in top for part in each.walk() if part.kind in ("root", "switch")]
    assert [(part.kind, part.detail) for part in bars] == [("root", "0000:00"), ("switch", "0000:01:00.0")]
    assert [child.title for child in bars[1].children] == ["GPU0", "GPU1", "mlx5_0"]


def test_gpus_of_which_nothing_is_known_are_drawn(plain: Callable[..., Schematic]) -> None:
    graph = read(plain(Snapshot(gpus=[Gpu(index=0), Gpu(index=1)])))
    assert {"gpu_0", "gpu_1"} <= {str(node) for node in graph.nodes()}


def test_a_tree_deeper_than_any_machine_is_a_sentence(plain: Callable[..., Schematic]) -> None:
    addresses = [f"{i:04x}:00:00.0" for i in range(400)]
    parents = [None, *addresses]
    pci = [
        PciDevice(address=address, class_code="0x060400", parent=parent, root="0000:00", numa_node=0)
        for address, parent in zip(addresses, parents, strict=False)
    ]
    with pytest.raises(InputError, match="levels deep"):
        plain(Snapshot(gpus=[Gpu(index=0, address=addresses[-1], numa_node=0)], pci=pci))


def test_no_gpu_is_a_sentence(plain: Callable[..., Schematic]) -> None:
    with pytest.raises(NothingDetermined, match="no GPU was found"):
        plain(Snapshot())


def test_the_same_machine_gives_the_same_bytes(schematic: Callable[[str], Schematic], any_fixture: str) -> None:
    assert dot.source(schematic(any_fixture)) == dot.source(schematic(any_fixture))


def test_positions_are_in_the_file_for_plain_dot(schematic: Callable[[str], Schematic]) -> None:
    graph = read(schematic("gh200"))
    assert graph.graph_attr["layout"] == "nop2"
    assert all(node.attr["pos"] for node in graph.nodes())
    assert all(edge.attr["pos"] for edge in graph.edges())


def test_chip_to_chip_links_go_to_the_numa_node(schematic: Callable[[str], Schematic]) -> None:
    graph = read(schematic("gh200"))
    chips = {tuple(sorted(edge)) for edge in graph.edges() if ">C2C<" in str(edge.attr["label"])}
    assert chips == {(f"gpu_{i}", f"numa_{i}") for i in range(4)}


def test_two_nodes_whose_names_look_alike_stay_two(plain: Callable[..., Schematic]) -> None:
    nics = [Nic(name=name, rdma=True, address=f"0000:0{i}:00.0") for i, name in enumerate(("a-b", "a_b", "a b"))]
    graph = read(plain(Snapshot(gpus=[Gpu(index=0)], nics=nics)))
    assert len([node for node in graph.nodes() if str(node).startswith("nic_a_b")]) == 3


def test_names_cannot_add_nodes_edges_or_attributes(plain: Callable[..., Schematic], hostile: Snapshot) -> None:
    tame = Snapshot(
        gpus=[Gpu(index=gpu.index, name="A", address=gpu.address, numa_node=0) for gpu in hostile.gpus],
        nics=[Nic(name="n", rdma=True, address="0000:03:00.0", numa_node=0)],
        host=hostile.host,
    )
    attack = replace(plain(hostile), title='">]; evil [label=<x>]; }')
    drawn, wanted = read(attack), read(plain(tame))
    assert len(drawn.nodes()) == len(wanted.nodes())
    assert len(drawn.edges()) == len(wanted.edges())
    assert not any(str(node) == "evil" for node in drawn.nodes())


def test_an_unknown_part_of_the_tree_is_said(plain: Callable[..., Schematic]) -> None:
    parts: tuple[Part, ...] = plain(Snapshot(gpus=[Gpu(index=0)])).parts
    assert [part.title for part in parts] == ["NUMA node not known"]
    assert parts[0].inferred
