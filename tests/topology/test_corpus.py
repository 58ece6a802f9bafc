"""Machines collected outside the repository: what they print, and what NCCL makes of them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from topoadvisor.snapshot import Gpu, Matrix, Snapshot
from topoadvisor.topology.graph import build
from topoadvisor.topology.links import to_nccl
from topoadvisor.topology.model import Topology

MATRICES = Path(__file__).resolve().parents[2] / "../shared/corpus/matrices"
DUMPS = Path(__file__).resolve().parents[2] / "../shared/corpus/nccl_topo"


def expected_matrices() -> list[Any]:
    paths = sorted(MATRICES.glob("*.expected.json")) if MATRICES.is_dir() else []
    absent = pytest.param(None, marks=pytest.mark.skip(reason="the corpus is not here"))
    return [pytest.param(path, id=path.name.split(".")[0]) for path in paths] or [absent]


def from_expected(path: Path) -> Snapshot:
    told = json.loads(path.read_text())
    matrix = Matrix(
        gpus=told["gpus"],
        nics=told["nics"],
        cells=told["matrix"],
        cpu_affinity=told["cpu_affinity"],
        numa_affinity=told["numa_affinity"],
        gpu_numa_id=told.get("gpu_numa_id", {}),
        nic_legend=told["nic_legend"],
    )
    gpus = [Gpu(index=int(label.removeprefix("GPU"))) for label in told["gpus"]]
    return Snapshot(origin="matrix", gpus=gpus, matrices=[matrix])


def drawn_class(topology: Topology, a: str, b: str) -> str | None:
    """What the edges of the graph say of two GPUs, whatever the pair says."""
    graph = topology.graph
    straight = graph.get_edge_data(a, b)
    if straight is not None:
        return f"NV{straight['count']}"
    for switch in (node for node, facts in graph.nodes(data=True) if facts["kind"] == "nvswitch"):
        return f"NV{min(graph.edges[gpu, switch]['count'] for gpu in (a, b))}"
    link_class = topology.attributes["hierarchy"].relate(a, b).link_class
    return str(link_class) if link_class is not None else None


@pytest.mark.parametrize("path", expected_matrices())
def test_the_graph_of_a_matrix_reproduces_it(path: Path) -> None:
    snapshot = from_expected(path)
    topology = build(snapshot)
    (matrix,) = snapshot.matrices
    node = {label: f"gpu:{label.removeprefix('GPU')}" for label in matrix.gpus}
    node |= {label: f"nic:{matrix.nic_legend.get(label, label)}" for label in matrix.nics}
    for row, cells in matrix.cells.items():
        for column, text in cells.items():
            printed = "SYS" if text == "SOC" else text
            if row in matrix.gpus and column in matrix.gpus:
                assert drawn_class(topology, node[row], node[column]) == printed, (row, column)
            if row in matrix.gpus or column in matrix.gpus:
                assert topology.pair(node[row], node[column]).link_class == printed, (row, column)


def references() -> list[Any]:
    path = DUMPS.parent / "nccl_reference.json"
    topologies = json.loads(path.read_text())["topologies"] if path.is_file() else {}
    absent = pytest.param("", {}, marks=pytest.mark.skip(reason="the corpus is not here"))
    whole = {name: told for name, told in topologies.items() if "@" not in name}
    return [pytest.param(told["xml"], told, id=name) for name, told in whole.items()] or [absent]


@pytest.mark.parametrize(("xml", "told"), references())
def test_nccl_sees_the_same_paths(xml: str, told: dict[str, Any]) -> None:
    parser = pytest.importorskip("topoadvisor.ingest.nccl_topo_xml")
    if not (DUMPS / xml).is_file():
        pytest.skip(f"{xml} is not here")
    text = (DUMPS / xml).read_text()
    if len(set(re.findall(r'host_hash="(\w+)"', text))) > 1:
        pytest.skip("several machines in one file")
    topology = build(parser.parse(text, file=xml))
    single = told.get("single_node_net_disable_intra") or told["single_node"]
    types = single["path_gpu_gpu"]["type"]
    at = {re.sub("[:.]", "", topology.graph.nodes[node]["address"]): node for node in topology.gpus}
    gpus = [at[f"{int(gpu['id'], 16):09x}"] for gpu in single["gpus"]]
    assert len(topology.gpus) == len(gpus)
    for a, b in combinations(range(len(gpus)), 2):
        pair = topology.pair(gpus[a], gpus[b])
        if pair.link_class is None:
            # The file names the GPU itself as the far end of its links: NCCL then sees none.
            assert any("far end" in note for note in topology.notes)
        seen = to_nccl(pair.link_class or pair.pcie_class or "").name
        wanted = types[a][b]
        if wanted == "NVB":
            # Two NVLinks over a GPU between: the pair itself has none.
            assert pair.nvlinks == 0
        elif told["p2p_assumption"] != "all" and seen in ("PIX", "PXB"):
            # Without peer-to-peer NCCL goes through the CPU.
            assert wanted == "PHB"
        else:
            assert seen == wanted, (a, b)
