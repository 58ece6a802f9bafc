"""NCCL's own search, repeated here, against what the code of NCCL 2.30.7 computes for the topologies of the corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from topoadvisor.ingest import assume, detect
from topoadvisor.nccl import graphs, host
from topoadvisor.nccl.board import Board
from topoadvisor.nccl.host import Choices, Host
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.paths import Grant
from topoadvisor.nccl.trial import Graph
from topoadvisor.predict import outlook
from topoadvisor.topology import nccl_view
from topoadvisor.topology.nccl_view import Job

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus"
REFERENCE = CORPUS / "nccl_reference.json"
VERSION = "2.30.7"

pytestmark = pytest.mark.skipif(not REFERENCE.exists(), reason="the corpus is not here")

KNOWN = {
    ("pub_4xa6000_skl", "multi_node", "tree"): "as many trees at the same speed, found in another order: ten virtual "
    "ports of 10 Gbit/s, of which NCCL's search reaches eight by another way",
    ("pub_4x4090_rome", "multi_node", "ring"): "the file repeats 15 network devices under the same number on each NUMA "
    "node, and NCCL writes the paths to all of them into the first; the rings are the same, the path type is PHB here",
}
"""Everything that differs, and why."""

QUICK = (
    *("synth_dgx1p", "synth_dgx1v@0123", "synth_dgx1v@0145", "synth_dgx_h100@01", "synth_hgx_a100_4@012"),
    *(
        "synth_4x3090_2bridge",
        "synth_8x4090_amd",
        "pub_2xa100_simai",
        "pub_azure_ncv4",
        "pub_aws_g5",
        "pub_4xa6000_skl",
    ),
    *("pub_4x4090_rome", "pub_azure_ndv5", "pub_8xh800", "synth_8xl40s_2sw", "synth_dgxstation_v100"),
)
"""Of the rings over the network, those that take less than a second here."""


def reference() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(REFERENCE.read_text())["topologies"] if REFERENCE.exists() else {}
    return document


def prepare(name: str, entry: dict[str, Any], version: str) -> Job:
    snapshot = detect.from_bytes((CORPUS / "nccl_topo" / entry["xml"]).read_bytes(), file=name)
    refused = ["pair.p2p.read=NS"] if entry["p2p_assumption"] == "none" else []
    snapshot = assume.apply(snapshot, assume.gather([f"nccl.version={version}", *refused], None))
    chosen = [int(number) for number in entry["gpu_devs"].split(",")] if "gpu_devs" in entry else None
    job = nccl_view.prepare(snapshot, chosen)
    assert job.version == version
    if entry["p2p_assumption"] == "nvl":
        job = replace(job, given=replace(job.given, grant=lambda a, b: Grant(False, "only over NVLink")))
    ranked = [each for each in job.document.root.walk() if each.tag == "gpu" and "rank" in each.attributes]
    for rank, gpu in enumerate(sorted(ranked, key=lambda each: int(each.attributes["rank"]))):
        gpu.attributes["rank"] = str(rank)
    return job


@cache
def computed(name: str, inter: bool, version: str = VERSION) -> tuple[Host, Board, Graph, Graph]:
    """The host, and the search of the group that rank 0 is in."""
    entry = reference()[name]
    job = prepare(name, entry, version)
    seen = host.look(job.system(), job.given, Choices(), version)
    assert host.why_no_search(seen) is None
    board = host.boards(job.system, job.given, Choices(), seen, inter=inter)[0]
    release = graphs.rules(version)
    rings = graphs.rings(board, release)
    return seen, board, rings, graphs.trees(board, release, rings)


def told(board: Board, graph: Graph) -> tuple[object, ...]:
    orders = [[board.ranks[place] for place in order] for order in graph.orders]
    kinds = (graph.type_intra.name, graph.type_inter.name)
    return len(orders), graph.speed / 1000, graph.speed_inter / 1000, *kinds, graph.cross_nic, orders


def expected(run: dict[str, Any], which: str) -> tuple[object, ...]:
    graph = run["graphs"][which]
    kinds = (graph["typeintra"], graph["typeinter"])
    speeds = (graph["speedintra"], graph["speedinter"])
    return graph["nchannels"], *speeds, *kinds, graph["crossnic"], graph["channels"]


@pytest.mark.parametrize("name", sorted(reference()))
def test_rings_and_trees_of_one_host(name: str) -> None:
    """Number, speed, path types and order of all channels."""
    _, board, rings, trees = computed(name, False)
    run = reference()[name]["single_node"]
    assert told(board, rings) == expected(run, "ring")
    assert told(board, trees) == expected(run, "tree")
    if "final" in run:  # not where NCCL divides the host
        assert outlook.final_channels(board, rings, trees) == run["final"]["nchannels"]


@pytest.mark.parametrize("name", sorted(name for name, entry in reference().items() if "v2_28_9" in entry))
def test_rings_and_trees_of_an_older_release(name: str) -> None:
    """Number, speed and path types as the code of 2.28.9 computes them."""
    _, board, *both = computed(name, False, "2.28.9")
    run = reference()[name]["v2_28_9"]["single_node"]
    for which, graph in zip(("ring", "tree"), both, strict=True):
        assert (
            told(board, graph)[:6] == expected({"graphs": {which: {**run["graphs"][which], "channels": []}}}, which)[:6]
        )


@pytest.mark.parametrize("name", sorted(reference()))
def test_transports(name: str) -> None:
    """P2P where the reference leaves the path as it is, shared memory where it leads it through the CPU."""
    entry = reference()[name]
    seen, *_ = computed(name, False)
    run = entry["single_node"]
    ranks = {gpu.element.attributes["rank"]: gpu for gpu in seen.gpus}
    inside = [ranks[str(gpu["rank"])] for gpu in run["gpus"]]
    assert (len(seen.groups) > 1) == run["trimmed"]
    # NCCL allows P2P everywhere when there are only two GPUs and the CPU is of AMD.
    amd = 'vendor="AuthenticAMD"' in (CORPUS / "nccl_topo" / entry["xml"]).read_text()
    level = NcclPath.SYS if amd and len(seen.gpus) <= 2 and entry["p2p_assumption"] == "all" else NcclPath.PXB
    for row, source in enumerate(inside):
        for column, to in enumerate(inside):
            if source is not to:
                kind = NcclPath[run["path_gpu_gpu"]["type"][row][column]]
                choice = seen.connections[source, to].choice
                assert choice.kind == ("P2P" if kind <= level else "SHM"), (row, column, kind, choice.why)


def test_the_network_side() -> None:
    """Path types between GPUs and ports, PXN and GPUDirect RDMA included, and the GPU of each port."""
    checked = 0
    for name, entry in reference().items():
        run = entry["single_node"]
        seen, *_ = computed(name, False)
        if run["trimmed"] or "path_gpu_net" not in run or len(seen.network.ports) != run["nnets"]:
            continue
        if name == "pub_4x4090_rome":
            continue
        network = seen.network
        assert [[path.kind.name for path in row] for row in network.send] == run["path_gpu_net"]["type"], name
        assert [[path.kind.name for path in row] for row in network.receive] == run["path_net_gpu"]["type"], name
        owners = [-1 if (owner := network.local_gpu(n)) is None else owner for n in range(len(network.ports))]
        assert owners == [net["local_gpu"] for net in run["nets"]], name
        checked += 1
    assert checked > 50


def differences(names: Iterator[str]) -> set[tuple[str, str, str]]:
    found = set()
    for name in names:
        run = reference()[name].get("multi_node")
        if run is None:
            continue
        _, board, *both = computed(name, True)
        for which, graph in zip(("ring", "tree"), both, strict=True):
            if told(board, graph) != expected(run, which):
                found.add((name, "multi_node", which))
    return found


def test_rings_and_trees_over_the_network() -> None:
    """Of two hosts like each, and nothing differs but what is listed."""
    found = differences(iter(QUICK))
    assert found == set(KNOWN)
    for name in QUICK:
        _, board, rings, trees = computed(name, True)
        if (final := reference()[name]["multi_node"].get("final")) is not None:
            assert outlook.final_channels(board, rings, trees) == final["nchannels"]
    for name, _, which in found:
        _, board, *both = computed(name, True)
        graph = both[which == "tree"]
        assert told(board, graph)[:3] == expected(reference()[name]["multi_node"], which)[:3]
