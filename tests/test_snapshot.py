"""What no measurement can be is refused when a snapshot is read, with its place in the document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topoadvisor import snapshot as snapshots
from topoadvisor.errors import InputError

_TEXTS = ("collective", "size_bytes", "verdict")
COPY: dict[str, Any] = {"kind": "peer-copy", "subject": "gpu:0>gpu:1", "gbps": 396.0}
SIZE: dict[str, Any] = {
    "collective": "all_reduce",
    "size_bytes": 1 << 20,
    "verdict": "faster",
    "baseline_gbps": 300.0,
    "variant_gbps": 315.0,
    "difference": 0.05,
    "low": 0.04,
    "high": 0.06,
}
SLOWER: dict[str, Any] = {
    **SIZE,
    "verdict": "slower",
    "variant_gbps": 210.0,
    "difference": -0.3,
    "low": -0.4,
    "high": -0.2,
}
UNKNOWN: dict[str, Any] = {**SIZE, "verdict": "unknown"}


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
        *(("size_bytes", value) for value in (0, -1, 1 << 41)),
        ("repeats", -1),
        *(("date", value) for value in ("yesterday", "2026-02-30", "9999-12-31T23:59:59-14:00", "2126-11-30")),
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
        ({"variant_gbps": 285.0, "difference": -0.05, "low": -0.06, "high": -0.04}, "does not say so"),
        ({"verdict": "slower"}, "the verdict is slower, and the difference with its interval does not say so"),
        ({"verdict": "no difference"}, "the verdict is no difference, and the difference with its interval"),
        ({"low": -0.01}, "the verdict is faster, and the difference with its interval does not say so"),
        (
            {"variant_gbps": 301.5, "difference": 0.005, "low": 0.004},
            "the difference with its interval does not say so",
        ),
        *(({name: None}, "not all numbers that say so are there") for name in SIZE if name not in _TEXTS),
        ({"variant_gbps": 285.0}, r"the rates differ by -5.0%, and the difference is \+5.0%"),
        ({"baseline_gbps": 3.15}, "and the difference is"),
        ({"verdict": "unknown", "variant_gbps": 600.0}, "and the difference is"),
        ({"collective": "all-reduce"}, "Invalid enum value 'all-reduce'"),
        ({"difference": 0.07}, "outside of its interval"),
        ({"low": 0.06, "high": 0.04}, "outside of its interval"),
        ({"difference": 1e308, "high": None}, "<= 1000000.0"),
        ({"low": -1.5}, ">= -1.0"),
        *(({"baseline_gbps": value}, "1e-0?9") for value in (-1.0, 0.0)),
        ({"variant_gbps": 1e308}, "<= 1000000.0"),
        ({"size_bytes": 0}, ">= 1"),
        ({"size_bytes": 1 << 41}, "<= 1099511627776"),
    ],
)
def test_a_trial_that_contradicts_itself_is_refused(size: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        decoded(trial=trial(sizes=[{**SIZE, **size}]))
    assert "$.trials[0].sizes[0]" in str(error.value)


def test_a_trial_has_rounds() -> None:
    with pytest.raises(InputError, match=r"Expected `int` >= 0 - at `\$\.trials\[0\]\.rounds`"):
        decoded(trial=trial(rounds=-4))
    for rounds in (0, 3):
        with pytest.raises(InputError, match=f"a size is decided, and {rounds} rounds are too few to decide anything"):
            decoded(trial=trial(rounds=rounds))
    assert decoded(trial=trial(rounds=0, sizes=[])).trials[0].rounds == 0


@pytest.mark.parametrize(
    ("more", "won"),
    [
        ({}, True),
        ({"keep": False}, False),
        ({"failure": "it crashed"}, False),
        ({"sizes": []}, False),
        ({"sizes": [UNKNOWN]}, False),
        ({"sizes": [SIZE, {**UNKNOWN, "size_bytes": 1 << 21}]}, True),
        ({"sizes": [SIZE, {**SLOWER, "size_bytes": 1 << 21}]}, False),
        ({"sizes": [SIZE, {**SLOWER, "collective": "alltoall"}]}, False),
    ],
)
def test_what_is_kept_follows_from_what_was_measured(more: dict[str, Any], won: bool) -> None:
    assert decoded(trial=trial(**more)).trials[0].won is won


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"settings": {}}, "a trial without settings tries nothing"),
        *(({"settings": {name: "1"}}, "is no name of a variable") for name in ("", "A B", "1A", "A=B", "ALGO\n", "É")),
        *(
            (
                {"settings": {"NCCL_ALGO": value}},
                "the value of NCCL_ALGO is empty, which is not tried, or holds letters",
            )
            for value in ("", "Ring\n", "Ring\0", "\x1b[2J", "Ring\u2028")
        ),
        ({"gpus": []}, "over two GPUs or more"),
        ({"gpus": [1]}, "over two GPUs or more"),
        ({"gpus": [0, 1, 0]}, "over two GPUs or more, each of them once"),
        ({"gpus": [0, -1]}, r"Expected `int` >= 0 - at `\$\.trials\[0\]\.gpus"),
        ({"sizes": [SIZE, SIZE]}, "each collective at each size once"),
        *(({"nccl": version}, "is no version of NCCL") for version in ("", "newest", "2.28.9\n", "2.28.9 x", "2")),
        *(({"date": date}, "is no date like") for date in ("", "yesterday", "2026-11-31", "2026-11-30T25:00:00")),
        *(({"date": date}, "nothing was measured in") for date in ("1969-12-31T23:59:59+00:00", "2100-01-01")),
    ],
)
def test_a_trial_that_nobody_can_have_made_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        decoded(trial=trial(**more))
    assert "$.trials[0]" in str(error.value)


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_number_beyond_all_numbers_is_refused(number: str) -> None:
    text = json.dumps({"schema": snapshots.SCHEMA, "trials": [trial()]}).replace("315.0", number)
    with pytest.raises(InputError):
        snapshots.decode(text.encode())


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
