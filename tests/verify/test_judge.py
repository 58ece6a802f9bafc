"""What measured numbers are taken to mean."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from topoadvisor.hardware import catalogue
from topoadvisor.snapshot import Measurement
from topoadvisor.verify.judge import Judgement, PairFacts, judge, subjects
from topoadvisor.verify.judge_hosts import HostFacts, judge_hosts

H200 = catalogue.gpu_model("NVIDIA H200")


def nvlink(a: int = 0, b: int = 1) -> PairFacts:
    return PairFacts(a, b, "NV18", catalogue.peer_copy_band("NV18", model=H200), catalogue.staged_copy_range(5, 16))


def pcie(link_class: str = "PIX", a: int = 0, b: int = 1, gen: int = 4) -> PairFacts:
    band = catalogue.peer_copy_band(link_class, pcie_gen=gen, pcie_width=16)
    return PairFacts(a, b, link_class, band, catalogue.staged_copy_range(gen, 16))


def measured(pair: PairFacts, forward: float, backward: float, both: float, *, peer: bool = True) -> list[Measurement]:
    kinds = ("peer-copy", "peer-copy", "peer-copy-both")
    return [
        Measurement(kind=kind, subject=subject, gbps=gbps, peer_access=peer, data_ok=True)
        for kind, subject, gbps in zip(kinds, subjects(pair.a, pair.b), (forward, backward, both), strict=True)
    ]


def one(pair: PairFacts, *numbers: float, peer: bool = True) -> Judgement:
    return judge([pair], measured(pair, *numbers, peer=peer))[0]


def test_a_healthy_pair_passes_without_a_word() -> None:
    found = one(nvlink(), 395.8, 395.9, 779.9)
    assert (found.verdict, found.cause) == ("pass", None)
    assert found.both is not None
    assert found.both.gbps == 779.9


@pytest.mark.parametrize(
    ("pair", "numbers", "verdict", "words"),
    [
        (nvlink(), (39.0, 38.9, 40.0), "fail", "not over NVLink but through host memory"),
        (nvlink(), (198.0, 198.0, 390.0), "fail", "9 of 18 links"),
        (nvlink(), (374.0, 374.0, 737.0), "warn", "17 of 18 links"),
        (nvlink(), (395.0, 300.0, 600.0), "fail", "one direction only"),
        (nvlink(), (395.0, 395.0, 420.0), "fail", "share an uplink"),
        (nvlink(), (600.0, 600.0, 1200.0), "warn", "faster than NV18 can be"),
        (pcie(), (12.9, 12.9, 25.0), "fail", "half the lanes (x8)"),
        (pcie(), (6.5, 6.5, 12.5), "fail", "a quarter of the lanes (x4)"),
        (pcie(gen=5), (3.4, 3.4, 6.6), "fail", "the IOMMU or ACS"),
        (pcie(), (25.9, 25.9, 30.0), "fail", "both directions together are only 1.2"),
        (pcie(gen=5), (38.0, 38.0, 43.0), "fail", "through host memory"),
    ],
)
def test_the_signature_names_the_cause(
    pair: PairFacts, numbers: tuple[float, float, float], verdict: str, words: str
) -> None:
    found = one(pair, *numbers)
    assert found.verdict == verdict
    assert found.cause is not None
    assert words in found.cause


def test_small_buffers_are_not_held_against_numbers_of_large_ones() -> None:
    pair = nvlink()
    small = [msgspec.structs.replace(m, size_bytes=8 << 20) for m in measured(pair, 352.0, 351.8, 693.6)]
    found = judge([pair], small)[0]
    assert found.verdict == "unknown"
    assert "buffers of 8 MiB are too small" in str(found.cause)
    large = [msgspec.structs.replace(m, size_bytes=512 << 20) for m in small]
    assert judge([pair], large)[0].verdict == "warn"


@pytest.mark.parametrize("numbers", [(12.9, 12.9, 25.0), (19.0, 19.0, 22.0), (8.0, 8.0, 15.0)])
def test_bridges_that_are_known_to_redirect_are_named_before_what_the_number_looks_like(
    numbers: tuple[float, float, float],
) -> None:
    found = one(dataclasses.replace(pcie(), acs=True), *numbers)
    assert "ACS on the bridges between them redirects peer traffic" in str(found.cause)
    assert "lanes" not in str(found.cause)


def test_small_buffers_to_the_host_are_not_held_against_numbers_of_large_ones() -> None:
    host = HostFacts(0, catalogue.host_copy_band(5, 16), "Gen5 x16")
    copies = [
        Measurement(kind="host-copy", subject=subject, gbps=40.0, size_bytes=8 << 20)
        for subject in ("host>gpu:0", "gpu:0>host")
    ]
    found = judge_hosts([host], copies)[0]
    assert (found.verdict, found.cause) == (
        "unknown",
        "buffers of 8 MiB are too small to hold against published numbers",
    )
    large = [msgspec.structs.replace(each, size_bytes=512 << 20) for each in copies]
    assert judge_hosts([host], large)[0].verdict != "unknown"


def test_wrong_data_fails_whatever_the_speed() -> None:
    pair = nvlink()
    results = measured(pair, 395.8, 395.8, 779.0)
    results[1] = Measurement(
        kind="peer-copy",
        subject="gpu:1>gpu:0",
        gbps=396.0,
        peer_access=True,
        data_ok=False,
        outcome="wrong-data",
        note="100.0% of the data is wrong",
    )
    found = judge([pair], results)[0]
    assert found.verdict == "fail"
    assert "never trust" in str(found.cause)


@pytest.mark.parametrize("outcome", ["timeout", "crashed", "error"])
def test_a_copy_that_did_not_end_well_fails_even_when_the_others_did(outcome: str) -> None:
    pair = nvlink()
    lost = Measurement(kind="peer-copy-both", subject="gpu:0<>gpu:1", outcome=outcome, note="why")  # type: ignore[arg-type]
    found = judge([pair], [*measured(pair, 395.8, 395.8, 779.0)[:2], lost])[0]
    assert found.verdict == "fail"
    assert "GPU0 ↔ GPU1" in str(found.cause)
    assert "why" in str(found.cause)


def test_no_peer_access_is_normal_over_pcie_and_wrong_over_nvlink() -> None:
    over_pcie = one(pcie(), 20.4, 20.4, 21.1, peer=False)
    assert over_pcie.verdict == "pass"
    assert "no peer access" in str(over_pcie.cause)
    assert one(pcie(), 5.0, 5.0, 6.0, peer=False).verdict == "warn"
    over_nvlink = one(nvlink(), 39.0, 39.0, 40.0, peer=False)
    assert over_nvlink.verdict == "fail"
    assert "no peer access although NVLink" in str(over_nvlink.cause)


def test_without_a_public_number_nothing_is_claimed() -> None:
    pair = PairFacts(0, 1, "PIX", None, None)
    assert one(pair, 40.0, 40.0, 78.0).verdict == "unknown"
    assert one(pair, 40.0, 40.0, 44.0).verdict == "warn"
    assert one(pair, 40.0, 40.0, 44.0, peer=False).verdict == "unknown"


def test_a_pair_below_the_others_of_its_class_stands_out() -> None:
    pairs = [nvlink(0, 1), nvlink(0, 2), nvlink(1, 2)]
    results = [
        *measured(pairs[0], 420.0, 420.0, 800.0),
        *measured(pairs[1], 420.0, 420.0, 800.0),
        *measured(pairs[2], 390.0, 390.0, 775.0),
    ]
    assert [found.verdict for found in judge(pairs, results)] == ["pass", "pass", "warn"]
    assert "below the other NV18 pairs" in str(judge(pairs, results)[2].cause)


def test_skipped_and_missing_pairs_are_unknown_with_the_reason() -> None:
    skipped = Measurement(kind="peer-copy", subject="gpu:0>gpu:1", outcome="skipped", note="GPU memory is full")
    found = judge([nvlink()], [skipped])[0]
    assert (found.verdict, found.cause) == ("unknown", "not measured: GPU memory is full")
    assert judge([nvlink()], [])[0].verdict == "unknown"
