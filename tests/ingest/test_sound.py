"""Measurements and trials over GPUs, or of kinds, that there are not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from topoadvisor.errors import InputError
from topoadvisor.ingest import detect
from topoadvisor.snapshot import SCHEMA, Snapshot


def read(**more: Any) -> Snapshot:
    document = {"schema": SCHEMA, "gpus": [{"index": index} for index in range(3)], **more}
    return detect.from_bytes(json.dumps(document).encode(), file="node.json")


@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        ("peer-copy", "gpu:0>gpu:2"),
        ("host-copy-both", "host<>gpu:1"),
        ("ring-copy", "gpu:0>gpu:1>gpu:2>gpu:0"),
        ("switch-copy", "gpu:0,gpu:1,gpu:2"),
        ("all_reduce", "gpu:2,gpu:0"),
    ],
)
def test_what_verify_saves_is_read(kind: str, subject: str) -> None:
    assert len(read(measurements=[{"kind": kind, "subject": subject, "gbps": 10.0}]).measurements) == 1


@pytest.mark.parametrize("kind", ["", "all-reduce", "peer-copy ", "broadcast"])
def test_a_kind_that_nothing_measures_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"$.measurements[0].kind is {kind!r}, which nothing measures")):
        read(measurements=[{"kind": kind, "subject": "gpu:0>gpu:1"}])


@pytest.mark.parametrize(
    "subject",
    ["", "node", "gpu:0", "gpu:0>gpu:0", "gpu:0>gpu:3", "gpu:0,gpu:1,gpu:01", "gpu:0>gpu:1>gpu:1>gpu:0", "host>host"],
)
def test_a_measurement_between_others_than_gpus_of_the_machine_is_refused(subject: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"$.measurements[0].subject is {subject!r}, and")):
        read(measurements=[{"kind": "peer-copy", "subject": subject}])


def test_a_trial_over_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"\$\.trials\[1\]\.gpus holds 3, and this machine has no such GPU"):
        read(trials=[{"settings": {"NCCL_ALGO": "Ring"}, "gpus": [last, 0]} for last in (2, 3)])


COPY = {"kind": "peer-copy", "subject": "gpu:0>gpu:1", "gbps": 300.0, "date": "2026-11-30T10:00:00+00:00"}


@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        ("peer-copy", "gpu:0<>gpu:1"),
        ("peer-copy", "host>gpu:1"),
        ("peer-copy-both", "gpu:0>gpu:1"),
        ("host-copy", "gpu:0>gpu:1"),
        ("host-copy-both", "gpu:1<>host"),
        ("ring-copy", "gpu:0>gpu:1"),
        ("switch-copy", "gpu:0>gpu:1"),
        ("all_reduce", "gpu:0>gpu:1"),
        ("all_reduce", "gpu:0,host"),
    ],
)
def test_a_kind_that_is_not_measured_between_these_is_refused(kind: str, subject: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"$.measurements[0].subject is {subject!r}, and {kind} is not")):
        read(measurements=[{"kind": kind, "subject": subject}])


@pytest.mark.parametrize("other", [{"gbps": 200.0}, {"outcome": "timeout"}, {"data_ok": False}, {"latency_us": 3.0}])
def test_two_measurements_of_one_moment_that_do_not_agree_are_refused(other: dict[str, Any]) -> None:
    words = "$.measurements[1] is peer-copy GPU0 → GPU1 like $.measurements[0], of the same date"
    for both in ([COPY, {**COPY, **other}], [{**COPY, "date": None}, {**COPY, "date": None, **other}]):
        with pytest.raises(InputError, match=re.escape(words)):
            read(measurements=both)


def test_two_measurements_of_two_moments_or_sizes_are_read() -> None:
    later = {**COPY, "gbps": 200.0, "date": "2026-11-30T11:00:00+00:00"}
    run = {"kind": "all_reduce", "subject": "gpu:0,gpu:1", "gbps": 1.6, "size_bytes": 65536}
    assert len(read(measurements=[COPY, COPY, later, run, {**run, "gbps": 24.7, "size_bytes": 1 << 20}]).trials) == 0


@pytest.mark.parametrize(
    ("gbps", "time", "fine"),
    [
        (300.0, 3579.1, True),
        (300.0, 41.0, False),
        (0.02, 43.0, False),
        (300.0, 3700.0, False),
    ],
)
def test_rate_and_time_of_a_collective_are_of_one_run(gbps: float, time: float, fine: bool) -> None:
    run = {"kind": "all_reduce", "subject": "gpu:0,gpu:1", "gbps": gbps, "latency_us": time, "size_bytes": 1 << 30}
    if fine:
        assert read(measurements=[run]).measurements[0].latency_us == time
        assert read(measurements=[{**run, "gbps": 0.02, "latency_us": 42.9, "size_bytes": 1024}]).measurements
        assert read(measurements=[{**run, "latency_us": 3700.0, "spread": 0.1}]).measurements
        return
    with pytest.raises(InputError, match=r"\$\.measurements\[0\]\.latency_us is [0-9.]+, and by its rate and size it"):
        read(measurements=[run])


def test_dates_to_come_are_refused() -> None:
    with pytest.raises(InputError, match=re.escape("$.measurements[1].date is 2098-01-01, which is yet to come")):
        read(measurements=[COPY, {**COPY, "date": "2098-01-01"}])
    with pytest.raises(InputError, match=re.escape("$.trials[0].date is 2098-01-01, which is yet to come")):
        read(trials=[{"settings": {"NCCL_ALGO": "Ring"}, "gpus": [0, 1], "date": "2098-01-01"}])


def test_a_trial_whose_rate_no_run_can_have_is_refused() -> None:
    size = {"collective": "all_reduce", "size_bytes": 65536, "verdict": "unknown", "variant_gbps": 255.0}
    words = "$.trials[0].sizes[0].variant_gbps is 255, by which 64 KiB took 0.26 µs, less than a start"
    with pytest.raises(InputError, match=re.escape(words)):
        read(trials=[{"settings": {"NCCL_ALGO": "Ring"}, "gpus": [0, 1], "sizes": [size]}])


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({**COPY, "gbps": 0.0}, "gbps is 0, and nothing of this size ends at that"),
        ({**COPY, "gbps": 0.0, "size_bytes": 1 << 29}, "gbps is 0, and nothing of this size ends at that"),
        (
            {"kind": "all_reduce", "subject": "gpu:0,gpu:1", "gbps": 300.0, "size_bytes": 1024},
            "gbps is 300, by which 1 KiB took 0.0034 µs, less than a start",
        ),
    ],
)
def test_a_rate_that_nothing_has_is_refused(run: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"$.measurements[0].{words}")):
        read(measurements=[run])


def test_a_rate_that_is_too_small_to_be_written_is_read() -> None:
    run = {"kind": "all_reduce", "subject": "gpu:0,gpu:1", "gbps": 0.0, "size_bytes": 16, "latency_us": 42.0}
    assert read(measurements=[run, {**COPY, "gbps": 0.0, "outcome": "timeout"}]).measurements


@pytest.mark.parametrize("field", ["driver", "method"])
@pytest.mark.parametrize("text", ["580\n! all is well", "\x1b[31m580"])
def test_a_text_that_terminals_act_upon_is_refused(field: str, text: str) -> None:
    with pytest.raises(InputError, match=r"holds letters that nothing is named with - at `\$\.measurements\[0\]`"):
        read(measurements=[{**COPY, field: text}])
