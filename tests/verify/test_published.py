"""The judge against results that others published, good and bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from topoadvisor.hardware import catalogue
from topoadvisor.snapshot import Measurement
from topoadvisor.verify.judge import PairFacts, judge

PUBLISHED = yaml.safe_load((Path(__file__).parent / "published.yaml").read_text())
RESULTS: list[dict[str, Any]] = PUBLISHED["results"]


def facts(row: dict[str, Any]) -> PairFacts:
    gen, width = row.get("gen"), row.get("width", 16)
    cpu = row.get("cpu")
    band = catalogue.peer_copy_band(
        row["link"],
        model=catalogue.gpu_model(row["gpu"]),
        pcie_gen=gen,
        pcie_width=width,
        cpu=catalogue.cpu_model(*cpu) if cpu else None,
    )
    return PairFacts(0, 1, row["link"], band, catalogue.staged_copy_range(gen, width))


def measurements(row: dict[str, Any]) -> list[Measurement]:
    peer = row.get("peer", True)
    there, back = row["uni"][0], row["uni"][-1]
    found = [
        Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=there, peer_access=peer, data_ok=True),
        Measurement(kind="peer-copy", subject="gpu:1>gpu:0", gbps=back, peer_access=peer, data_ok=True),
    ]
    if "bi" in row:
        both = Measurement(
            kind="peer-copy-both", subject="gpu:0<>gpu:1", gbps=row["bi"], peer_access=peer, data_ok=True
        )
        found.append(both)
    if "staged" in row:
        found.append(Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=row["staged"], peer_access=False))
    if "latency" in row:
        found.append(Measurement(kind="peer-latency", subject="gpu:0>gpu:1", latency_us=row["latency"]))
    return found


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: f"{row['source']}-{row['link']}-{row['uni'][0]}")
def test_a_published_result_is_judged_as_it_deserves(row: dict[str, Any]) -> None:
    assert row["source"] in PUBLISHED["sources"]
    found = judge([facts(row)], measurements(row))[0]
    assert found.verdict == row["verdict"], found.cause
    if "words" in row:
        assert row["words"] in str(found.cause)
    else:
        assert found.cause is None


def test_there_are_enough_of_both_kinds() -> None:
    verdicts = [row["verdict"] for row in RESULTS]
    assert len(RESULTS) >= 30
    assert verdicts.count("pass") >= 10
    assert verdicts.count("fail") >= 10
