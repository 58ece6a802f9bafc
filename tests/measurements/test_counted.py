"""Which measurements count: the newest of each, and none that the wires cannot carry."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from topoadvisor import snapshot as snapshots
from topoadvisor.cli import main
from topoadvisor.ingest import detect
from topoadvisor.measurements import counted, runs, summary
from topoadvisor.measurements.model import Measurement
from topoadvisor.rules import facts
from topoadvisor.rules.facts import Known
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph
from topoadvisor.verify import run as verify_run

DRIVER = "580.159.04"
"""That of the machine."""


TREE = {"NCCL_ALGO": "Tree"}
"""Not in force on it."""


def copy(gbps: float | None = 390.0, day: int = 1, **more: Any) -> Measurement:
    fields = {"kind": "peer-copy", "subject": "gpu:0>gpu:1", "driver": DRIVER, "method": "copy engines", **more}
    return Measurement(gbps=gbps, date=f"2026-10-{day:02}", **fields)


def reduced(size: int, gbps: float, day: int = 1, **more: Any) -> Measurement:
    return copy(gbps, day, **{"kind": "all_reduce", "subject": "gpu:0,gpu:1", "size_bytes": size, **more})


def machine(*found: Measurement, fixture: str = "2xh200-kvm") -> Snapshot:
    snapshot = detect.read([f"fixture:{fixture}"], stdin=io.BytesIO())
    return msgspec.structs.replace(snapshot, measurements=list(found), settings=[])


def rates(found: list[Measurement]) -> list[float | None]:
    return [run.gbps for run in found]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ([copy(300.0, 2), copy(390.0, 1)], [300.0]),
        ([copy(300.0), copy(390.0)], [390.0]),
        ([copy(300.0, 1), copy(390.0, 2, driver="550.54.15")], [300.0]),
        ([copy(300.0, 1, driver="550.54.15"), copy(390.0, 2, driver="570.86.10")], [390.0]),
        ([copy(300.0, 2), copy(390.0, 1, subject="gpu:1>gpu:0")], [300.0, 390.0]),
        (
            [
                copy(1.0, 1, kind="peer-copy-both", subject="gpu:0<>gpu:1"),
                copy(2.0, 2, kind="peer-copy-both", subject="gpu:1<>gpu:0"),
            ],
            [2.0],
        ),
        ([copy(300.0, 1), copy(None, 2, outcome="skipped")], [300.0]),
        ([reduced(1, 1.0), reduced(2, 2.0, 2), reduced(1, 3.0, 3)], [2.0, 3.0]),
        ([reduced(1, 1.0, method="NCCL 2.27.3"), reduced(2, 2.0, 2, method="NCCL 2.28.9")], [2.0]),
        ([reduced(1, 1.0), reduced(2, 2.0, 2, subject="gpu:1,gpu:0", method=None)], [1.0, 2.0]),
    ],
)
def test_the_newest_with_this_driver_and_one_method_counts(found: list[Measurement], wanted: list[float]) -> None:
    latest, older = runs.latest(found, DRIVER)
    assert rates(latest) == wanted
    assert len(latest) + len(older) == len(found)


def test_many_of_one_thing_take_no_long_time() -> None:
    found = [reduced(1 + at % 1000, float(at)) for at in range(100_000)]
    assert len(runs.latest(found, DRIVER)[0]) == 1000


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ([copy(300.0, 1)], [copy(390.0, 2)], [390.0]),
        ([copy(300.0, 9)], [copy(390.0, 2)], [390.0]),
        ([copy(300.0, 1), copy(301.0, 2)], [], [300.0, 301.0]),
        ([copy(300.0, 1), copy(301.0, 2)], [copy(390.0, 3)], [390.0]),
        ([reduced(1, 1.0, variables={})], [reduced(1, 2.0, 2, variables=TREE)], [1.0, 2.0]),
        ([reduced(1, 1.0, variables=TREE)], [reduced(1, 2.0, 2, variables=TREE)], [2.0]),
        ([reduced(1, 1.0)], [reduced(1, 2.0, 2, variables={})], [2.0]),
        ([copy(300.0, 1)], [copy(None, 2, outcome="skipped")], [300.0]),
        ([], [copy(None, 2, outcome="skipped")], [None]),
        ([reduced(1, 1.0), reduced(2, 2.0)], [reduced(2, 4.0, 2)], [1.0, 4.0]),
        ([reduced(1, 1.0, driver="550.54.15")], [reduced(2, 4.0, 2)], [4.0]),
        ([reduced(1, 1.0, 9, method="NCCL 2.27.3")], [reduced(2, 4.0, 2, method="NCCL 2.28.9")], [4.0]),
        ([copy(300.0, 1, subject="gpu:1>gpu:0")], [copy(390.0, 2)], [300.0, 390.0]),
    ],
)
def test_what_is_saved_takes_the_place_of_what_is_older(
    old: list[Measurement], new: list[Measurement], wanted: list[float | None]
) -> None:
    assert rates(verify_run.with_measurements(machine(*old), new).measurements) == wanted


@pytest.mark.parametrize(
    ("fixture", "run", "most"),
    [
        ("2xh200-kvm", {"kind": "peer-copy", "subject": "gpu:0>gpu:1"}, 450.0),
        ("2xh200-kvm", {"kind": "peer-copy-both", "subject": "gpu:0<>gpu:1"}, 900.0),
        ("2xh200-kvm", {"kind": "host-copy", "subject": "host>gpu:1"}, 63.0),
        ("2xh200-kvm", {"kind": "staged-copy", "subject": "gpu:0>gpu:1"}, 63.0),
        ("2xh200-kvm", {"kind": "all_reduce", "subject": "gpu:0,gpu:1"}, 450.0),
        ("2xh200-kvm", {"kind": "sendrecv", "subject": "gpu:0,gpu:1"}, 450.0),
        ("dgx-h100", {"kind": "all_reduce", "subject": ",".join(f"gpu:{gpu}" for gpu in range(8))}, 787.5),
        ("dgx-h100", {"kind": "alltoall", "subject": ",".join(f"gpu:{gpu}" for gpu in range(8))}, 450.0),
        ("8x4090", {"kind": "peer-copy", "subject": "gpu:0>gpu:5"}, 31.5),
        ("8x4090", {"kind": "all_reduce", "subject": ",".join(f"gpu:{gpu}" for gpu in range(8))}, 31.5),
        ("8x4090", {"kind": "ring-copy", "subject": "gpu:0>gpu:1>gpu:2>gpu:0"}, 94.5),
        ("dgx-1v", {"kind": "peer-copy", "subject": "gpu:0>gpu:3"}, 50.0),
    ],
)
def test_what_is_faster_than_the_wires_is_doubted_and_does_not_count(
    fixture: str, run: dict[str, str], most: float
) -> None:
    for share, doubted in ((1.02, False), (1.08, True)):
        snapshot = machine(copy(most * share, **run), fixture=fixture)
        found = counted.of(snapshot, graph.build(snapshot))
        assert (len(found.doubted), len(found.counted)) == ((1, 0) if doubted else (0, 1))


def test_what_failed_is_believed_at_any_rate() -> None:
    snapshot = machine(copy(5000.0, data_ok=False))
    assert len(counted.of(snapshot, graph.build(snapshot)).counted) == 1


def test_what_no_wire_is_known_of_is_not_doubted() -> None:
    snapshot = machine(copy(5000.0), fixture="paste-8xa100")
    assert len(counted.of(snapshot, graph.build(snapshot)).counted) == 1


def test_what_does_not_count_is_told_and_nothing_else_reads_it() -> None:
    found = [
        copy(396.0, 3),
        copy(301.0, 1, driver="550.54.15"),
        copy(5000.0, 3, subject="gpu:1>gpu:0"),
        copy(None, 1, kind="peer-read", outcome="timeout", driver="550.54.15"),
        copy(390.0, 3, kind="peer-read"),
    ]
    snapshot = machine(*found)
    topology = graph.build(snapshot)
    assert summary.lines(snapshot, topology) == [
        "NV18 between GPUs: 396.0 GB/s one way, 390.0 GB/s read by the target (2026-10-03)",
        "DOUBTED, not counted: peer-copy GPU1 → GPU0 reached 5000.0 GB/s, and the link carries 450: it is not the link "
        "that the topology shows, or was not measured rightly",
        "Older, not counted: peer-copy GPU0 → GPU1 301.0 GB/s (2026-10-01, driver 550.54.15); peer-read GPU0 → GPU1 "
        "timeout (2026-10-01, driver 550.54.15)",
    ]
    pair = facts.gather(snapshot, topology).subjects["pair"][0].facts
    assert pair["pair.measured.uni_gbps"] == Known(396.0, "measurement")
    assert pair["pair.measured.failed"] == Known(False, "derived")


def test_measurements_of_another_driver_alone_count_and_are_said_to_be_that() -> None:
    snapshot = machine(copy(390.0, driver="550.54.15"), copy(391.0, subject="gpu:1>gpu:0"))
    told = summary.lines(snapshot, graph.build(snapshot))
    assert told[0] == "NV18 between GPUs: 390.0 to 391.0 GB/s one way (2026-10-01)"
    assert told[1].startswith(f"Measured with driver 550.54.15: 1 of these measurements; this is {DRIVER}")


def test_rings_by_measured_copies_take_those_that_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [copy(200.0, 2), copy(390.0, 1), copy(5000.0, 2, subject="gpu:1>gpu:0")]
    snapshots.save(machine(*found), tmp_path / "node.json")
    assert main(["rings", str(tmp_path / "node.json"), "--model", "measured"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "200 GB/s in all" in shown
    assert "Not measured, so as on paper: GPU1 to GPU0" in shown


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("gpu:0>gpu:12", "GPU0 → GPU12"),
        ("gpu:0<>gpu:1", "GPU0 ↔ GPU1"),
        ("host>gpu:0", "the host → GPU0"),
        ("gpu:0,gpu:1", "GPU0, GPU1"),
        ("gpu:0-gpu:2", "GPU0–GPU2"),
        ("gpu:0/link:3", "GPU0 link 3"),
        ("nic:my-host-eth0", "my-host-eth0"),
        ("variable:NCCL_NET", "NCCL_NET"),
    ],
)
def test_subjects_in_words(subject: str, words: str) -> None:
    assert runs.in_words(subject) == words


def test_a_newer_run_under_other_variables_takes_nothing_away() -> None:
    """An experiment hides neither what was measured of the machine as it is, nor what failed on it."""
    usual, tried = reduced(1 << 30, 300.0, 1, variables={}), reduced(1 << 30, 200.0, 2, variables=TREE)
    snapshot = machine(usual, tried)
    found = counted.of(snapshot, graph.build(snapshot))
    assert (found.counted, found.older) == ([usual], [])
    assert [run for run, _ in found.otherwise] == [tried]
    hung = msgspec.structs.replace(usual, gbps=None, outcome="timeout")
    snapshot = machine(hung, tried)
    assert counted.of(snapshot, graph.build(snapshot)).counted == [hung]
    passes = reduced(1 << 30, 300.0, 3, variables={})
    snapshot = machine(hung, tried, passes)
    assert counted.of(snapshot, graph.build(snapshot)).counted == [passes]


@pytest.mark.parametrize(("gbps", "believed"), [(3040.0, True), (5000.0, False)])
def test_all_pairs_at_once_carry_no_more_than_all_gpus_send(gbps: float, believed: bool) -> None:
    """Eight GPUs with 450 GB/s each, not 56 ways of 450."""
    subject = ",".join(f"gpu:{gpu}" for gpu in range(8))
    snapshot = machine(copy(gbps, kind="switch-copy", subject=subject, driver=None), fixture="dgx-h100")
    found = counted.of(snapshot, graph.build(snapshot))
    assert (len(found.counted), len(found.doubted)) == ((1, 0) if believed else (0, 1))
