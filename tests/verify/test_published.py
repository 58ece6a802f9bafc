"""The judge against results that others published, good and bad."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from topoadvisor.errors import InputError
from topoadvisor.hardware import catalogue, results, tables
from topoadvisor.hardware.tables import Result
from topoadvisor.measurements.judge import PairFacts, judge
from topoadvisor.measurements.model import Measurement

EXPECTED: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "published.yaml").read_text())
RESULTS = tables.results().results


def facts(row: Result) -> PairFacts:
    band = catalogue.peer_copy_band(
        row.link,
        model=catalogue.gpu_model(row.gpu),
        pcie_gen=row.gen,
        pcie_width=row.width,
        cpu=catalogue.cpu_model(*row.cpu) if row.cpu else None,
    )
    return PairFacts(0, 1, row.link, band, catalogue.staged_copy_range(row.gen, row.width))


def measurements(row: Result) -> list[Measurement]:
    peer = row.peer_access
    found = [
        Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=row.uni[0], peer_access=peer, data_ok=True),
        Measurement(kind="peer-copy", subject="gpu:1>gpu:0", gbps=row.uni[-1], peer_access=peer, data_ok=True),
    ]
    if row.bi:
        found.append(Measurement(kind="peer-copy-both", subject="gpu:0<>gpu:1", gbps=row.bi, peer_access=peer))
    if row.staged:
        found.append(Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=row.staged, peer_access=False))
    if row.latency_us:
        found.append(Measurement(kind="peer-latency", subject="gpu:0>gpu:1", latency_us=row.latency_us))
    return found


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: row.id)
def test_a_published_result_is_judged_as_it_deserves(row: Result) -> None:
    expected = EXPECTED[row.id]
    found = judge([facts(row)], measurements(row))[0]
    assert found.verdict == expected["verdict"], found.cause
    if "words" in expected:
        assert expected["words"] in str(found.cause)
    else:
        assert found.cause is None


def test_the_table_is_well_formed_and_has_enough_of_both_kinds() -> None:
    verdicts = [each["verdict"] for each in EXPECTED.values()]
    assert EXPECTED.keys() == {row.id for row in RESULTS}
    assert len(RESULTS) == len(EXPECTED) >= 30
    assert {row.source for row in RESULTS} == set(tables.results().sources)
    assert all(catalogue.gpu_model(row.gpu) for row in RESULTS)
    assert verdicts.count("pass") >= 10
    assert verdicts.count("fail") + verdicts.count("warn") >= 12


def test_results_of_one_gpu_come_with_origin_and_date() -> None:
    text = results.table(results.of("NVIDIA H200"))
    assert "783.7" in text
    assert "H100" not in text
    assert "measured by this project" in text
    assert "taken 2026-11-29" in text
    told = msgspec.json.encode(results.document(results.of("rtx 4090")))
    assert msgspec.json.decode(told, type=results.Results).sources["nccl-814"].url
    with pytest.raises(InputError, match="no result of a GPU named 'Voodoo'"):
        results.of("Voodoo")
