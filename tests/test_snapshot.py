"""What no measurement can be is refused when a snapshot is read, with its place in the document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topoadvisor import snapshot as snapshots
from topoadvisor.errors import InputError

COPY: dict[str, Any] = {"kind": "peer-copy", "subject": "gpu:0>gpu:1", "gbps": 396.0}
SIZE: dict[str, Any] = {
    "collective": "all_reduce",
    "size_bytes": 1 << 20,
    "verdict": "faster",
    "difference": 0.05,
    "low": 0.04,
    "high": 0.06,
}


def decoded(measurement: dict[str, Any] = COPY, trial: dict[str, Any] | None = None) -> snapshots.Snapshot:
    document = {"schema": snapshots.SCHEMA, "measurements": [measurement], "trials": [trial] if trial else []}
    return snapshots.decode(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("gbps", value) for value in (-396.0, 1e308, 1e-320)),
        ("slowest_gbps", -1.0),
        *(("latency_us", value) for value in (-2.0, 1e300)),
        ("spread", -0.1),
        *(("size_bytes", value) for value in (0, -1, 1 << 64)),
        ("repeats", -1),
    ],
)
def test_a_measurement_that_cannot_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=r"at `\$\.measurements\[0\]"):
        decoded({**COPY, field: value})


def test_what_rounds_to_nothing_is_taken() -> None:
    """A collective over 64 bytes has less than 0.005 GB/s, and two decimals are written."""
    assert decoded({**COPY, "gbps": 0.0, "latency_us": 0.0, "repeats": 0}).measurements[0].gbps == 0.0


def trial(**more: Any) -> dict[str, Any]:
    return {"settings": {"NCCL_MIN_CTAS": "32"}, "gpus": [0, 1], "rounds": 4, "keep": True, "sizes": [SIZE], **more}


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ({"difference": -0.05, "low": -0.06, "high": -0.04}, "the verdict is faster, and the difference does not say"),
        ({"verdict": "slower"}, "the verdict is slower, and the difference does not say so"),
        ({"difference": None}, "the verdict is faster, and the difference does not say so"),
        ({"difference": 0.07}, "outside of its interval"),
        ({"low": 0.06, "high": 0.04}, "outside of its interval"),
        ({"difference": 1e308, "high": None}, "<= 1000000.0"),
        ({"low": -1.5}, "> -1.0"),
        ({"baseline_gbps": -1.0}, ">= 0.0"),
        ({"size_bytes": 0}, ">= 1"),
    ],
)
def test_a_trial_that_contradicts_itself_is_refused(size: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        decoded(trial=trial(sizes=[{**SIZE, **size}]))
    assert "$.trials[0].sizes[0]" in str(error.value)


def test_a_trial_has_rounds() -> None:
    with pytest.raises(InputError, match=r"Expected `int` >= 0 - at `\$\.trials\[0\]\.rounds`"):
        decoded(trial=trial(rounds=-4))
    with pytest.raises(InputError, match="a size is decided, and no round is complete"):
        decoded(trial=trial(rounds=0))
    assert decoded(trial=trial(rounds=0, sizes=[])).trials[0].rounds == 0


@pytest.mark.parametrize(
    ("more", "won"),
    [
        ({}, True),
        ({"keep": False}, False),
        ({"failure": "it crashed"}, False),
        ({"sizes": []}, False),
        ({"sizes": [{**SIZE, "verdict": "unknown"}]}, False),
        ({"sizes": [SIZE, {**SIZE, "verdict": "no difference"}, {**SIZE, "verdict": "unknown"}]}, True),
        ({"sizes": [SIZE, {**SIZE, "verdict": "slower", "difference": -0.3, "low": -0.4, "high": -0.2}]}, False),
    ],
)
def test_what_is_kept_follows_from_what_was_measured(more: dict[str, Any], won: bool) -> None:
    assert decoded(trial=trial(**more)).trials[0].won is won


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_word_in_place_of_a_number_is_named(word: str) -> None:
    text = f'{{"schema": "{snapshots.SCHEMA}",\n "measurements": [{{"kind": "x", "subject": "y", "gbps": {word}}}]}}'
    with pytest.raises(InputError, match="is no number in JSON") as error:
        snapshots.decode(text.encode())
    assert error.value.line == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": [{"index": 0, "pcie": {"current_width": 0}}]}, r"at `\$\.gpus\[0\]\.pcie\.current_width`"),
        ({"gpus": [{"index": 0, "memory_bytes": -1}]}, r"at `\$\.gpus\[0\]\.memory_bytes`"),
    ],
)
def test_a_value_that_no_device_has_is_refused_with_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        snapshots.decode(json.dumps({"schema": snapshots.SCHEMA, **change}).encode())
