"""What NCCL believes of links, next to what was measured."""

from __future__ import annotations

import io

import pytest

from topoadvisor.ingest import detect
from topoadvisor.ingest.nccl_log_summary import Graph
from topoadvisor.measurements.model import Measurement
from topoadvisor.snapshot import Snapshot
from topoadvisor.verify.belief import beliefs, logged, planned, remarks


def machine(name: str) -> Snapshot:
    return detect.read([f"fixture:{name}"], stdin=io.BytesIO())


def copies(a: int, b: int, gbps: float, **more: object) -> list[Measurement]:
    return [
        Measurement(kind="peer-copy", subject=f"gpu:{source}>gpu:{target}", gbps=gbps, **more)  # type: ignore[arg-type]
        for source, target in ((a, b), (b, a))
    ]


def test_nvlink_of_two_h200_is_believed_rightly() -> None:
    found = beliefs(machine("2xh200-kvm"), copies(0, 1, 396.0))
    assert [(each.a, each.b, each.path, each.nccl_gbps) for each in found] == [(0, 1, "NVL", pytest.approx(370.8))]
    assert found[0].off == pytest.approx(0.068, abs=0.001)
    assert remarks(found) == []


def test_a_link_that_is_slower_than_believed_is_told() -> None:
    found = beliefs(machine("2xh200-kvm"), copies(0, 1, 198.0))
    ring = Graph(pattern="ring", channels=12, intra_gbps=30.0, inter_gbps=30.0, intra="NVL", inter="PIX")
    told = remarks(found, lambda: logged([ring]))[0]
    assert "NCCL plans with 370.8 GB/s (NVL) between GPU0 and GPU1; 198.0 were measured." in told
    assert "It chose 12 rings of 30 GB/s by that." in told
    assert "mend the link first" in told
    assert "It chose" not in remarks(found)[0]


def test_without_a_log_the_choice_is_the_predicted_one() -> None:
    snapshot = machine("2xh200-kvm")
    found = beliefs(snapshot, copies(0, 1, 198.0))
    told = remarks(found, lambda: planned(snapshot, [0, 1]))[0]
    assert "By that NCCL 2.28.9 chooses 12 rings of 30 GB/s, as `topoadvisor predict` shows." in told
    assert planned(Snapshot(), [0]) is None


def test_nobody_asks_for_the_choice_where_nccl_is_right() -> None:
    def asked() -> None:
        raise AssertionError

    assert remarks(beliefs(machine("2xh200-kvm"), copies(0, 1, 396.0)), asked) == []


def test_amd_sockets_are_faster_than_nccl_believes() -> None:
    snapshot = machine("4xrtxpro6000")
    pairs = [each for each in beliefs(snapshot, []) if each.across_amd]
    assert pairs, [(each.path, each.nccl_gbps) for each in beliefs(snapshot, [])]
    runs = [run for each in pairs for run in copies(each.a, each.b, 50.5)]
    told = remarks(beliefs(snapshot, runs))
    assert len(told) == 1
    assert "NCCL plans with 16 GB/s (SYS)" in told[0]
    assert "50.5 were measured" in told[0]
    assert "one constant between the NUMA nodes of all AMD CPUs" in told[0]
    assert "emit nccl-graph FILE --model measured" in told[0]


def test_where_nccls_search_finds_nothing_that_is_told() -> None:
    snapshot = machine("4xrtxpro6000")
    found = beliefs(snapshot, copies(0, 2, 50.5))
    told = remarks(found, lambda: planned(snapshot, [0, 1, 2, 3]))[0]
    assert "NCCL 2.28.9 finds no rings that it deems fast enough and takes the GPUs in their own order, as" in told
    ring = Graph(pattern="ring", channels=1, intra_gbps=0.1, inter_gbps=0.1, intra="SYS", inter="SYS")
    assert "Its search found no rings" in remarks(found, lambda: logged([ring]))[0]


def test_copies_through_host_memory_say_nothing_about_the_link() -> None:
    found = beliefs(machine("2xh200-kvm"), copies(0, 1, 39.0, peer_access=False))
    assert found[0].measured_gbps is None
    assert remarks(found) == []


def test_broken_measurements_and_machines_nccl_knows_nothing_of() -> None:
    assert beliefs(machine("2xh200-kvm"), copies(0, 1, 396.0, outcome="wrong-data"))[0].measured_gbps is None
    assert beliefs(Snapshot(), []) == []
