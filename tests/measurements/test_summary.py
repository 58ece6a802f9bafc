"""What measurements of a snapshot turn into: lines on the screen."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from made_trials import AS_FOUND

from topoadvisor import plans
from topoadvisor.ingest import detect
from topoadvisor.measurements import summary
from topoadvisor.measurements.model import Measurement
from topoadvisor.render import scan_text
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph, matrix


def machine(**more: Any) -> Snapshot:
    snapshot = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
    return msgspec.structs.replace(snapshot, **more)


def test_where_measurements_stand_above_them_rings_are_said_to_be_on_paper() -> None:
    run = Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=395.9)
    snapshot = machine(measurements=[run])
    table = matrix.shown(snapshot, graph.build(snapshot))
    both = (machine(measurements=[]), snapshot)
    plain, told = (scan_text.render(plans.analyse(each).advice, table) for each in both)
    assert "450 GB/s together, proven" in plain
    assert "450 GB/s together on paper, proven" in told
    assert "`topoadvisor rings --model measured`" in told
    assert "on paper" not in plain


def test_lines_for_the_screen() -> None:
    runs = [
        Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=395.8, date="2026-11-30T12:00:00+00:00"),
        Measurement(kind="peer-copy", subject="gpu:1>gpu:0", gbps=396.4),
        Measurement(kind="peer-copy-both", subject="gpu:0<>gpu:1", gbps=783.0),
        Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=39.0),
        Measurement(kind="peer-latency", subject="gpu:0>gpu:1", latency_us=2.34),
        Measurement(kind="kernel-copy", subject="gpu:0>gpu:1", gbps=370.0),
        Measurement(kind="peer-read", subject="gpu:0>gpu:1", gbps=390.0),
        Measurement(kind="ring-copy", subject="gpu:0>gpu:1>gpu:2>gpu:0", gbps=900.0, slowest_gbps=300.0),
        Measurement(kind="ring-copy", subject="gpu:0>gpu:2>gpu:1>gpu:0", outcome="skipped", note="left out"),
        Measurement(kind="switch-copy", subject="gpu:0,gpu:1,gpu:2", gbps=600.0, slowest_gbps=90.0),
        Measurement(kind="host-copy", subject="host>gpu:0", gbps=55.2),
        Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=300.0, size_bytes=1 << 28, variables=AS_FOUND),
        Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=326.1, size_bytes=1 << 30, variables=AS_FOUND),
        Measurement(kind="alltoall", subject="gpu:0,gpu:1", gbps=1.5, size_bytes=64 << 10, variables=AS_FOUND),
    ]
    snapshot = machine(measurements=runs)
    assert summary.lines(snapshot, graph.build(snapshot)) == [
        "NV18 between GPUs: 395.8 to 396.4 GB/s one way, 783.0 GB/s both ways at once, 390.0 GB/s read by the target, "
        "370.0 GB/s by a kernel, 39.0 GB/s with P2P off, 2.3 µs for a small copy (2026-11-30)",
        "GPU to host memory: 55.2 GB/s one way",
        "At once all hops of the ring GPU0 → GPU1 → GPU2 → GPU0: 900.0 GB/s together, 300.0 GB/s the slowest",
        "At once all pairs of GPU0, GPU1, GPU2: 600.0 GB/s together, 90.0 GB/s the slowest",
        "all_reduce over 2 GPUs: 326.1 GB/s bus bandwidth at 1 GiB",
        "alltoall over 2 GPUs: 1.5 GB/s bus bandwidth at 64 KiB",
    ]


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (
            Measurement(kind="peer-copy", subject="gpu:0>gpu:1", outcome="timeout"),
            "NV18 between GPUs: 1 FAILED (peer-copy GPU0 → GPU1 timeout), 396.0 GB/s one way",
        ),
        (
            Measurement(kind="peer-read", subject="gpu:0>gpu:1", outcome="wrong-data", gbps=300.0),
            "NV18 between GPUs: 1 FAILED (peer-read GPU0 → GPU1 wrong-data), 396.0 GB/s one way",
        ),
        (
            Measurement(kind="host-copy-both", subject="host<>gpu:1", outcome="wrong-data", gbps=90.0),
            "GPU to host memory: 1 FAILED (host-copy-both the host ↔ GPU1 wrong-data)",
        ),
        (
            Measurement(kind="switch-copy", subject="gpu:0,gpu:1,gpu:2", outcome="crashed"),
            "At once all pairs of GPU0, GPU1, GPU2: 1 FAILED (switch-copy GPU0, GPU1, GPU2 crashed)",
        ),
        (
            Measurement(kind="all_reduce", subject="gpu:0,gpu:1", size_bytes=1 << 30, gbps=329.5, data_ok=False),
            "all_reduce over 2 GPUs: FAILED at 1 GiB (wrong-data)",
        ),
    ],
)
def test_failures_are_told_and_their_rates_are_not(run: Measurement, line: str) -> None:
    good = Measurement(kind="peer-copy", subject="gpu:1>gpu:0", gbps=396.0)
    snapshot = machine(measurements=[run, good])
    assert line in summary.lines(snapshot, graph.build(snapshot))
    assert summary.lines(machine(measurements=[]), graph.build(machine())) == []


def test_copies_without_peer_access_are_told_as_what_they_are_and_collectives_that_scatter_are_marked() -> None:
    runs = [
        Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=25.0, peer_access=False),
        Measurement(
            kind="all_reduce", subject="gpu:0,gpu:1", gbps=300.0, size_bytes=1 << 28, spread=0.4, variables=AS_FOUND
        ),
    ]
    snapshot = machine(measurements=runs)
    assert summary.lines(snapshot, graph.build(snapshot)) == [
        "NV18 between GPUs: 25.0 GB/s one way through host memory, as no peer access was allowed",
        "all_reduce over 2 GPUs: 300.0 GB/s bus bandwidth at 256 MiB, SCATTERED at 256 MiB (batches up to 40% apart: "
        "measure again)",
    ]


def test_collectives_over_some_gpus_name_them_and_small_copies_alone_have_latencies() -> None:
    snapshot = detect.read(["fixture:dgx-h100"], stdin=io.BytesIO())
    runs = [
        Measurement(kind="all_reduce", subject=subject, gbps=gbps, size_bytes=size)
        for subject, gbps, size in (
            ("gpu:0,gpu:1,gpu:2,gpu:3", 340.0, 1 << 30),
            ("gpu:4,gpu:5,gpu:6,gpu:7", 345.0, 1 << 30),
            ("gpu:3,gpu:2,gpu:1,gpu:0", 300.0, 1 << 28),
        )
    ]
    runs.append(Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=395.0, latency_us=5000.0))
    snapshot = msgspec.structs.replace(snapshot, measurements=runs)
    assert summary.lines(snapshot, graph.build(snapshot)) == [
        "NV18 between GPUs: 395.0 GB/s one way",
        "all_reduce over GPU0 GPU1 GPU2 GPU3: 340.0 GB/s bus bandwidth at 1 GiB",
        "all_reduce over GPU4 GPU5 GPU6 GPU7: 345.0 GB/s bus bandwidth at 1 GiB",
    ]
