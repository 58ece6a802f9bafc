"""`emit nccl-graph`: only where it pays, and only what NCCL can take."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import pytest

from topoadvisor import files
from topoadvisor.cli import main
from topoadvisor.emit import nccl_graph
from topoadvisor.emit.nccl_graph import Given
from topoadvisor.errors import Declined, InputError, TopoAdvisorError
from topoadvisor.ingest import assume, detect
from topoadvisor.measurements.model import Measurement
from topoadvisor.nccl import graph_xml
from topoadvisor.nccl.graph_xml import Channel, Graph
from topoadvisor.plan import Model
from topoadvisor.snapshot import Snapshot

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real machines is not here")


MODELS: Final[tuple[Model, ...]] = ("nccl", "expected", "measured")


def machine(name: str) -> Snapshot:
    return detect.read(str(files.shipped("fixtures") / name), stdin=io.BytesIO())


def dump(*orders: tuple[int, ...], each: float = 20.0) -> Given:
    same = int(len(set(orders)) == 1)
    graph = Graph(0, 4, each, each, "NVL", "PIX", tuple(Channel(order) for order in orders), same_channels=same)
    return Given(graph_xml.write(graph), "graph.xml")


def test_a_better_set_is_written_with_its_margin_and_the_way_back() -> None:
    text, remarks = nccl_graph.render(machine("dgx-1v"), against=dump((0, 1, 2, 3, 4, 5, 6, 7)))
    (graph,) = graph_xml.read(text, file="x")
    assert graph_xml.faults(graph, range(8)) == []
    assert graph.speed_intra * len(graph.channels) == pytest.approx(120.0, rel=1e-3)
    assert graph.type_intra == "NVL"
    assert "-->" in text
    assert "of NCCL's own 1 rings, by NCCL's constants: +" in text
    assert "Way back: unset NCCL_GRAPH_FILE." in text
    assert "exactly GPU0, GPU1, GPU2, GPU3, GPU4, GPU5, GPU6, GPU7 (NVML indexes): GPU0 0000:06:00.0" in text
    assert any("fails or hangs" in remark for remark in remarks)
    assert any("Search 0 :" in remark for remark in remarks)
    assert any(f"It wants {len(graph.channels)} trees, as many as there are rings" in remark for remark in remarks)


def test_nccl_takes_what_is_written(nccl_parser: ModuleType) -> None:
    text, _ = nccl_graph.render(machine("dgx-1v"), against=dump((0, 1, 2, 3, 4, 5, 6, 7)))
    root = nccl_parser.load(text, root="graphs", most=1024)
    (graph,) = root.children
    assert graph.attributes["nchannels"] == str(len(graph.children))
    for channel in graph.children:
        assert sorted(int(gpu.attributes["dev"], 16) for gpu in channel.children) == list(range(8))


def test_rings_as_good_as_nccls_own_are_not_written() -> None:
    """The same ring twelve times fills an NVSwitch machine: no order of GPUs changes that."""
    with pytest.raises(Declined, match="no more than NCCL's own"):
        nccl_graph.render(machine("dgx-h100"), against=dump(*[tuple(range(8))] * 12, each=30.0))
    text, remarks = nccl_graph.render(machine("dgx-h100"), against=dump(*[tuple(range(8))] * 12), force=True)
    (graph,) = graph_xml.read(text, file="x")
    assert len(graph.channels) >= 12
    assert "because of --force" in remarks[0]


def measured(rate: Callable[[int, int], float], *more: Measurement) -> Snapshot:
    """Eight H100 through NVSwitches with copies between all of them."""
    copies = [
        Measurement(kind="peer-copy", subject=f"gpu:{a}>gpu:{b}", gbps=rate(a, b), peer_access=True, data_ok=True)
        for a, b in permutations(range(8), 2)
    ]
    return msgspec.structs.replace(machine("dgx-h100"), measurements=[*copies, *more])


def test_by_the_measured_model_both_sets_are_rated_by_what_was_measured() -> None:
    """By NCCL's constants all pairs of NVSwitches are alike, and its own ring goes over the slow one."""
    slow = measured(lambda a, b: 120.0 if {a, b} == {0, 1} else 395.0)
    own = dump(*[tuple(range(8))] * 12, each=30.0)
    text, _ = nccl_graph.render(slow, model="measured", against=own)
    assert "395 GB/s against 120 of NCCL's own 12 rings, by measured copies: +229.2%." in text
    (graph,) = graph_xml.read(text, file="x")
    assert all({0, 1} != set(hop) for channel in graph.channels for hop in pairwise([*channel.gpus, channel.gpus[0]]))
    with pytest.raises(
        Declined, match=r"by NCCL's constants the best rings carry 370\.8 GB/s, no more than NCCL's own"
    ):
        nccl_graph.render(slow, model="nccl", against=own)
    with pytest.raises(Declined, match="by measured copies the best rings carry 395 GB/s, no more than NCCL's own"):
        nccl_graph.render(measured(lambda a, b: 395.0), model="measured", against=own)


def test_no_graph_file_repairs_copies_that_failed() -> None:
    hung = Measurement(kind="peer-copy-both", subject="gpu:0<>gpu:1", outcome="timeout")
    for model in MODELS:
        with pytest.raises(Declined, match="copies failed when they were measured between GPU0–GPU1"):
            nccl_graph.render(measured(lambda a, b: 395.0, hung), model=model)
    text, remarks = nccl_graph.render(measured(lambda a, b: 395.0, hung), model="measured", force=True)
    assert "not compared with NCCL's own rings" in text
    assert any("Not compared with NCCL's own rings" in remark for remark in remarks)


def test_without_a_dump_nccls_own_search_is_repeated() -> None:
    with pytest.raises(Declined, match="no more than NCCL's own"):
        nccl_graph.render(machine("dgx-1v"))
    text, remarks = nccl_graph.render(machine("dgx-1v"), gpus=[0, 1, 2, 3, 4, 5])
    assert "against 40 of NCCL's own 2 rings" in text
    assert any("when it is repeated here" in remark for remark in remarks)


@pytest.mark.parametrize(("gpus", "kind", "said"), [([0, 1, 4, 6], "SYS", 1), ([0, 1, 2, 3, 4, 5], "NVB", 0)])
def test_rings_that_leave_nvlink_where_nccls_own_do_not_are_told(gpus: list[int], kind: str, said: int) -> None:
    text, remarks = nccl_graph.render(machine("dgx-1v"), gpus=gpus)
    (graph,) = graph_xml.read(text, file="x")
    assert graph.type_intra == kind
    told = [remark for remark in remarks if "LL128" in remark]
    assert len(told) == said
    assert all(f"these also go over PCIe ({kind})" in remark for remark in told)


def test_where_the_search_cannot_be_repeated_nothing_is_written() -> None:
    old = assume.apply(machine("dgx-1v"), assume.gather(["nccl.version=2.18.5"], None))
    with pytest.raises(TopoAdvisorError, match="nothing to compare") as caught:
        nccl_graph.render(old)
    assert "NCCL_GRAPH_DUMP_FILE" in str(caught.value.hint)
    text, remarks = nccl_graph.render(old, force=True)
    assert "not compared with NCCL's own rings" in text
    assert "Not compared" in remarks[0]


@pytest.mark.parametrize(
    ("against", "words"),
    [
        (dump((0, 1, 2, 3)), "Channel 0 goes over"),
        (Given("<graphs version='1'/>", "g.xml"), "holds no ring graph"),
        (Given("nonsense", "g.xml"), "the XML is broken here"),
    ],
)
def test_a_dump_of_something_else(against: Given, words: str) -> None:
    with pytest.raises(InputError, match=words):
        nccl_graph.render(machine("dgx-1v"), against=against)


def test_bandwidths_that_are_not_known_cannot_be_written() -> None:
    with pytest.raises(TopoAdvisorError, match="bandwidths are not known"):
        nccl_graph.render(machine("paste-8xa100"), force=True)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "graph.xml"
    given.write_text(dump(tuple(range(8))).text)
    out = tmp_path / "rings.xml"
    assert main(["emit", "nccl-graph", "fixture:dgx-1v", "--against", str(given), "-o", str(out)]) == 0
    assert graph_xml.read(out.read_text(), file="x")[0].channels
    given.write_text(dump(*[tuple(range(8))] * 12).text)
    out.unlink()
    capsys.readouterr()
    assert main(["emit", "nccl-graph", "fixture:dgx-h100", "--against", str(given), "-o", str(out)]) == 1
    assert "set no graph file" in capsys.readouterr().err
    assert not out.exists()
    assert main(["emit", "nccl-graph", "fixture:dgx-1v", "--against", str(tmp_path / "none.xml")]) == 2
    assert "cannot be read" in capsys.readouterr().err


REALLY_BETTER = {"pub_azure_ncv4_2023", "pub_4x4090_rome", "synth_dgx1v@012345", "synth_k6_mesh2", "synth_k8_mesh1"}
"""Other rings than NCCL's; in the other cases its rings would carry as much at a speed that is not on its grid."""


def wasteful() -> list[str]:
    """The cases of the reference in which NCCL's search misses the best equal-speed set of its own model."""
    if not CORPUS.is_dir():
        return []
    reference = json.loads((CORPUS / "nccl_reference.json").read_text())["topologies"]
    return [name for name, run in reference.items() if missed(run) and len(run["single_node"]["gpus"]) > 1]


def missed(run: dict[str, Any]) -> bool:
    single = run["single_node"]
    exact = single.get("bound", {}).get("exact") or {}
    ring = single.get("graphs", {}).get("ring", {})
    return bool(exact) and exact["best_equal_speed_total"] > 1.05 * ring["objective_intra_bw"]


@needs_corpus
@pytest.mark.parametrize("name", wasteful())
def test_where_nccl_misses_its_own_optimum(name: str) -> None:
    """What is written fits NCCL's link model, and carries what the reference says can be carried."""
    run = json.loads((CORPUS / "nccl_reference.json").read_text())["topologies"][name]
    model = json.loads((CORPUS / "nccl_link_models.json").read_text())["models"][name]
    granted = "OK" if "all" in str(run["p2p_assumption"]) else "NS"
    facts = assume.gather(["nccl.version=2.30.7", f"pair.p2p.read={granted}"], None)
    snapshot = assume.apply(detect.read(str(CORPUS / "nccl_topo" / Path(run["xml"]).name), stdin=io.BytesIO()), facts)
    own = run["single_node"]["graphs"]["ring"]
    devices = [gpu["dev"] for gpu in run["single_node"]["gpus"]]
    orders = [tuple(devices[rank] for rank in channel) for channel in own["channels"]]
    against = dump(*orders, each=own["speedintra"])
    text, _ = nccl_graph.render(snapshot, gpus=devices, against=against, force=name not in REALLY_BETTER)
    (graph,) = graph_xml.read(text, file="x")
    loads: dict[int, float] = {}
    for channel in graph.channels:
        ranks = [devices.index(gpu) for gpu in channel.gpus]
        for a, b in zip(ranks, [*ranks[1:], ranks[0]], strict=True):
            for link, factor in model["paths"][a][b]:
                loads[link] = loads.get(link, 0.0) + factor * graph.speed_intra
    assert all(load <= model["links"][link][3] * (1 + 1e-4) for link, load in loads.items())
    total = graph.speed_intra * len(graph.channels)
    assert total >= run["single_node"]["bound"]["exact"]["best_equal_speed_total"] * (1 - 1e-3)
