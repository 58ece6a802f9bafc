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
