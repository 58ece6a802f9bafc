"""Which measurements of two captures are compared, and what counts as a change of them."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from made_trials import AS_FOUND

from topoadvisor import files
from topoadvisor.diff import compare
from topoadvisor.measurements.model import Measurement
from topoadvisor.snapshot import Snapshot, decode

replace = msgspec.structs.replace
MACHINE: Final = decode((files.shipped("fixtures") / "2xh200-kvm" / "snapshot.json").read_bytes())


def copies(*rates: float | None, **more: Any) -> Snapshot:
    """Two H200 with copies one way, back, and from the host to each; None = it timed out."""
    subjects = ("gpu:0>gpu:1", "gpu:1>gpu:0", "host>gpu:0", "host>gpu:1")
    runs = [
        Measurement(
            kind="host-copy" if "host" in subject else "peer-copy",
            subject=subject,
            gbps=rate,
            outcome="timeout" if rate is None else "ok",
            **more,
        )
        for subject, rate in zip(subjects, rates, strict=True)
    ]
    return replace(MACHINE, measurements=runs)


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ((390.0, 391.0, 52.0, 51.0), []),
        ((198.0, 395.0, 55.0, 55.0), ["GPU0 → GPU1: peer-copy 396.0 → 198.0 GB/s"]),
        (
            (396.0, None, 55.0, 13.6),
            [
                "GPU1 → GPU0: peer-copy succeeded → failed (timeout)",
                "the host → GPU1: host-copy 55.0 → 13.6 GB/s",
            ],
        ),
    ],
)
def test_copies_that_became_slow_or_fail_are_changes(now: tuple[float | None, ...], told: list[str]) -> None:
    before = copies(396.0, 395.0, 55.0, 55.0)
    found = compare(before, copies(*now))
    assert [each.message for each in found.changes] == told
    assert all(each.kind == "measured" and each.severity != "info" for each in found.changes)
    back = compare(copies(*now), before)
    assert {each.severity for each in back.changes} <= {"info"}


def test_second_opinions_are_compared_and_what_scatters_is_not() -> None:
    def at(rate: float) -> Snapshot:
        kinds = ("peer-read", "kernel-copy", "staged-copy", "peer-latency")
        runs = [Measurement(kind=kind, subject="gpu:0>gpu:1", gbps=rate) for kind in kinds]
        return replace(MACHINE, measurements=runs)

    told = [each.message for each in compare(at(40.0), at(20.0)).changes]
    assert told == ["GPU0 → GPU1: kernel-copy 40.0 → 20.0 GB/s", "GPU0 → GPU1: peer-read 40.0 → 20.0 GB/s"]


def run(kind: str, gbps: float | None = None, **more: Any) -> Measurement:
    if kind == "all_reduce":
        return Measurement(kind=kind, subject="gpu:0,gpu:1", gbps=gbps, variables=AS_FOUND, **more)
    return Measurement(kind=kind, subject="gpu:0>gpu:1", gbps=gbps, **more)


def test_each_measurement_is_counted_and_only_what_can_be_compared() -> None:
    def of(*measured: Measurement) -> Snapshot:
        return replace(MACHINE, measurements=list(measured))

    sizes = [1 << 20, 1 << 26, 1 << 30]
    before = of(*(run("all_reduce", 70.0, size_bytes=size) for size in sizes), run("peer-copy", 396.0))
    after = of(*(run("all_reduce", 70.0 if size else 30.0, size_bytes=sizes[size]) for size in range(3)))
    found = compare(before, after)
    assert [each.message for each in found.changes] == ["GPU0, GPU1: all_reduce of 1 MiB 70.0 → 30.0 GB/s"]
    counted = next(group for group in found.groups if group.group == "measurements")
    assert (counted.compared, counted.unchanged) == (3, 2)
    small, large = (of(run("peer-copy", 200.0 * size, size_bytes=size << 20)) for size in (1, 2))
    assert not any(group.group == "measurements" for group in compare(small, large).groups)


@pytest.mark.parametrize(("now", "told"), [(3.4, []), (20.0, ["GPU0 → GPU1: peer-latency 2.3 → 20.0 µs"])])
def test_small_copies_that_take_several_times_as_long_are_a_change(now: float, told: list[str]) -> None:
    before, after = (replace(MACHINE, measurements=[run("peer-latency", latency_us=us)]) for us in (2.3, now))
    assert [each.message for each in compare(before, after).changes] == told


def test_measurements_follow_their_gpus_and_lost_peer_access_shows() -> None:
    before = copies(396.0, 395.0, 55.0, 13.6)
    swapped = copies(395.0, 396.0, 13.6, 55.0)
    first, second = before.gpus
    gpus = [replace(second, index=0, address=first.address), replace(first, index=1, address=second.address)]
    moved = compare(before, replace(swapped, gpus=gpus))
    assert not [each for each in moved.changes if each.kind == "measured"]
    staged = compare(before, copies(39.0, 39.0, 55.0, 13.6, peer_access=False))
    assert [each.after for each in staged.changes] == [39.0, 39.0]
