"""The prediction against what NCCL 2.28.9 really did on two H200s."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topoadvisor.ingest import assume, detect
from topoadvisor.nccl import graph_xml
from topoadvisor.predict.document import Prediction
from topoadvisor.predict.predict import predict

CAPTURE = Path(__file__).resolve().parents[2] / "../shared/capture_h200x2"
pytestmark = pytest.mark.skipif(not CAPTURE.exists(), reason="the capture is not here")


@pytest.fixture(scope="module")
def log() -> str:
    return (CAPTURE / "nccl_debug.rank0.log").read_text(errors="replace")


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    snapshot = detect.from_bytes((CAPTURE / "nccl_topo.xml").read_bytes(), file="nccl_topo.xml")
    known = ["nccl.version=2.28.9", "env.NCCL_NVLS_ENABLE=0", "cuda.version=13.0"]
    return predict(assume.apply(snapshot, assume.gather(known, None)))


def test_channels(prediction: Prediction, log: str) -> None:
    printed = re.findall(r"Channel \d+/(\d+) : ([\d ]+)$", log, re.MULTILINE)
    (group,) = prediction.groups
    assert {int(count) for count, _ in printed} == {group.channels} == {24}
    assert group.rings is not None
    orders = {tuple(f"GPU{number}" for number in order.split()) for _, order in printed}
    assert orders == {tuple(order) for order in group.rings.orders}


def test_rings_and_trees(prediction: Prediction, log: str) -> None:
    rings, trees = re.findall(r"Pattern \d, crossNic 0, nChannels (\d+), bw ([\d.]+)/[\d.]+, type (\w+)/", log)[:2]
    (group,) = prediction.groups
    for found, (count, speed, kind) in ((group.rings, rings), (group.trees, trees)):
        assert found is not None
        assert (found.searched, found.gbps, found.path) == (int(count), float(speed), kind)


def test_the_graph_dump(prediction: Prediction) -> None:
    ring = graph_xml.ring(graph_xml.read((CAPTURE / "nccl_graph.xml").read_text(), file="nccl_graph.xml"))
    assert ring is not None
    rings = prediction.groups[0].rings
    assert rings is not None
    assert [[f"GPU{index}" for index in channel.gpus] for channel in ring.channels] == rings.orders
    assert (ring.speed_intra, ring.type_intra) == (rings.gbps, rings.path)


def test_transports(prediction: Prediction, log: str) -> None:
    via = set(re.findall(r"Channel \d+/\d : \d\[\d\] -> \d\[\d\] via ([\w/]+)", log))
    assert {f"{pair.transport}/{pair.via}" for pair in prediction.pairs} == via


def test_features(prediction: Prediction, log: str) -> None:
    states = {feature.name: feature.state for feature in prediction.features}
    assert states["MNNVL"] in ("off", "unknown")
    assert "MNNVL 0" in log
    assert states["NVLS"] == "off"
    # In the table of the tuner a protocol that is not allowed has no bandwidth.
    allreduce = next(line for line in log.splitlines() if re.search(r"AllReduce \|", line))
    tree_ll128 = re.split(r"\|", allreduce.split("AllReduce")[1])[2].split("/")[1]
    assert (float(tree_ll128) > 0) == (states["LL128"] == "on")
