"""Facts from measurements: with and without peer access, and a ring at once against its hops."""

from __future__ import annotations

import io

import msgspec

from topoadvisor import advise
from topoadvisor.ingest import detect
from topoadvisor.rules.facts import FactBase, Known
from topoadvisor.snapshot import Measurement


def facts(*runs: Measurement) -> FactBase:
    snapshot = detect.read(["fixture:4xrtxpro6000"], stdin=io.BytesIO())
    return advise.analyse(msgspec.structs.replace(snapshot, measurements=list(runs))).facts


def copy(subject: str, gbps: float, kind: str = "peer-copy", peer_access: bool = True) -> Measurement:
    return Measurement(kind=kind, subject=subject, gbps=gbps, peer_access=peer_access, data_ok=True)


def pair(base: FactBase, subject: str, name: str) -> object:
    fact = next(each for each in base.subjects["pair"] if each.id == subject).facts[name]
    return fact.value if isinstance(fact, Known) else None


def test_peer_access_on_and_off() -> None:
    base = facts(
        copy("gpu:0>gpu:1", 55.0),
        copy("gpu:1>gpu:0", 54.0),
        copy("gpu:0>gpu:1", 38.0, "staged-copy", peer_access=False),
    )
    assert pair(base, "gpu:0-gpu:1", "pair.measured.p2p_gbps") == 54.0
    assert pair(base, "gpu:0-gpu:1", "pair.measured.staged_gbps") == 38.0
    assert pair(base, "gpu:0-gpu:1", "pair.measured.both_ways") is True
    assert pair(base, "gpu:0-gpu:2", "pair.measured.both_ways") is False


def test_a_ring_at_once_against_its_hops() -> None:
    ring = Measurement(
        kind="ring-copy", subject="gpu:0>gpu:1>gpu:2>gpu:3>gpu:0", gbps=80.0, slowest_gbps=20.0, peer_access=True
    )
    hops = [copy(f"gpu:{a}>gpu:{b}", 50.0 + a) for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))]
    node = facts(ring, *hops).node
    assert (node["measured.ring_gbps"].value, node["measured.ring_sum_gbps"].value) == (20.0, 50.0)  # type: ignore[union-attr]
    node = facts(ring, *hops[1:]).node
    assert node["measured.ring_gbps"].value == 0.0  # type: ignore[union-attr]


def test_the_rule_about_rings_fires_on_a_measured_ring() -> None:
    ring = Measurement(
        kind="ring-copy", subject="gpu:0>gpu:1>gpu:2>gpu:3>gpu:0", gbps=80.0, slowest_gbps=20.0, peer_access=True
    )
    hops = [copy(f"gpu:{a}>gpu:{b}", 50.0) for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))]
    snapshot = detect.read(["fixture:4xrtxpro6000"], stdin=io.BytesIO())
    advice = advise.advise(msgspec.structs.replace(snapshot, measurements=[ring, *hops]))
    assert any(finding.id == "P2P029" for finding in advice.findings)
