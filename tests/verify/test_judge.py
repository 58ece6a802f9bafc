"""What measured numbers are taken to mean."""

from __future__ import annotations

import dataclasses
import itertools

import msgspec
import pytest

from topoadvisor.hardware import catalogue
from topoadvisor.measurements.judge import Judgement, PairFacts, judge, subjects
from topoadvisor.measurements.judge_hosts import HostFacts, judge_hosts
from topoadvisor.measurements.judge_patterns import judge_patterns
from topoadvisor.measurements.model import Measurement

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
        (nvlink(), (395.0, 395.0, 420.0), "fail", "NVLink carries both at full speed"),
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


def test_nvlinks_that_are_down_are_told_however_well_the_others_do() -> None:
    band = catalogue.peer_copy_band("NV9", model=H200, nvlink_generation="4.0")
    pair = PairFacts(0, 1, "NV9", band, None, down=("GPU0 has 9 of its 18 NVLinks up",))
    found = one(pair, 197.0, 197.0, 388.0)
    assert (found.verdict, found.cause) == (
        "warn",
        "GPU0 has 9 of its 18 NVLinks up: the pair is as fast as the others allow",
    )


def test_a_gpu_whose_pairs_are_all_slow_is_named() -> None:
    pairs = [pcie("SYS" if a < 2 <= b else "PIX", a, b) for a, b in itertools.combinations(range(4), 2)]
    rates = {True: (12.5, 12.5, 24.0), False: (25.8, 25.8, 50.0)}
    found = judge(pairs, [m for pair in pairs for m in measured(pair, *rates[3 in (pair.a, pair.b)])])
    bad = [each for each in found if each.verdict != "pass"]
    assert [(each.pair.a, each.pair.b) for each in bad] == [(0, 3), (1, 3), (2, 3)]
    assert all(str(each.cause).endswith("so look at GPU3 first") for each in bad)


def test_peer_access_off_on_one_pair_speaks_for_its_class() -> None:
    pairs = [pcie("PXB", 0, 1), pcie("PXB", 2, 3)]
    off = Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=18.0, peer_access=False)
    found = judge(pairs, [*(m for pair in pairs for m in measured(pair, 7.0, 7.0, 13.0)), off])
    assert [each.verdict for each in found] == ["fail", "fail"]
    assert "through host memory, 18.0: the IOMMU or ACS may redirect" in str(found[0].cause)
    assert "through host memory, 18.0 on another PXB pair: the IOMMU or ACS may redirect" in str(found[1].cause)


@pytest.mark.parametrize(
    ("translated", "acs", "words"),
    [
        (None, None, "the IOMMU or ACS may redirect"),
        (False, None, "18.0: ACS may redirect"),
        (True, False, "18.0: the IOMMU may redirect"),
        (False, False, "neither the IOMMU nor ACS redirects"),
    ],
)
def test_what_was_read_to_be_off_is_not_suspected(translated: bool | None, acs: bool | None, words: str) -> None:
    pair = dataclasses.replace(pcie("PXB", 0, 1), translated=translated, acs=acs)
    off = Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=18.0, peer_access=False)
    (found,) = judge([pair], [*measured(pair, 7.0, 7.0, 13.0), off])
    assert words in str(found.cause)


@pytest.mark.parametrize(
    ("more", "verdict", "words"),
    [
        (Measurement(kind="peer-latency", subject="gpu:0>gpu:1", latency_us=25.0), "warn", "GPU0 → GPU1 takes 25 µs"),
        (Measurement(kind="peer-read", subject="gpu:0>gpu:1", gbps=20.0), "warn", "reads GPU0 → GPU1 reach only 20.0"),
        (Measurement(kind="kernel-copy", subject="gpu:1>gpu:0", gbps=90.0), "warn", "kernel GPU1 → GPU0 reach only 90"),
        (Measurement(kind="kernel-copy", subject="gpu:1>gpu:0", gbps=330.0), "pass", None),
        (
            Measurement(kind="peer-read-both", subject="gpu:0<>gpu:1", gbps=41.0),
            "warn",
            "reads both ways at once GPU0 ↔ GPU1 reach",
        ),
        (
            Measurement(kind="kernel-copy-both", subject="gpu:0<>gpu:1", gbps=90.0),
            "warn",
            "by kernels both ways at once",
        ),
        (Measurement(kind="kernel-copy-both", subject="gpu:0<>gpu:1", gbps=640.0), "pass", None),
    ],
)
def test_a_second_opinion_that_is_far_off_is_told(more: Measurement, verdict: str, words: str | None) -> None:
    pair = nvlink()
    found = judge([pair], [*measured(pair, 395.8, 395.9, 779.9), more])[0]
    assert found.verdict == verdict
    assert words in str(found.cause) if words else found.cause is None


def test_what_was_left_out_or_unsteady_is_no_pass() -> None:
    pair = nvlink()
    forward, backward, both = measured(pair, 395.8, 395.9, 779.9)
    skipped = msgspec.structs.replace(both, outcome="skipped", gbps=None, note="GPU memory is short")
    found = judge([pair], [forward, backward, skipped])[0]
    assert (found.verdict, found.cause) == ("unknown", "GPU0 ↔ GPU1 was not measured: GPU memory is short")
    found = judge([pair], [msgspec.structs.replace(forward, spread=0.6), backward, both])[0]
    assert (found.verdict, str(found.cause)[:24]) == ("warn", "its batches lie 60% apar")
    unrecorded = [msgspec.structs.replace(each, peer_access=None) for each in (forward, backward, both)]
    assert judge([pair], unrecorded)[0].verdict == "unknown"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("peer-copy", "look for Xid errors, NVLinks"),
        ("kernel-copy", "NVLinks"),
        ("staged-copy", "it takes no peer path"),
    ],
)
def test_a_hang_is_put_down_to_the_path_that_hung(kind: str, words: str) -> None:
    pair = nvlink()
    hung = Measurement(kind=kind, subject="gpu:0>gpu:1", outcome="timeout", note="no answer for 30 s")
    found = judge([pair], [*measured(pair, 395.8, 395.9, 779.9)[1:], hung])[0]
    assert found.verdict == "fail"
    assert words in str(found.cause)
    if kind != "staged-copy":
        assert "ACS or the IOMMU" in str(judge([pcie()], [hung])[0].cause)


def test_both_ways_to_the_host_are_judged() -> None:
    host = HostFacts(0, catalogue.host_copy_band(5, 16), "Gen5 x16")

    def with_both(gbps: float) -> str | None:
        copies = [
            Measurement(kind="host-copy", subject="host>gpu:0", gbps=55.0),
            Measurement(kind="host-copy", subject="gpu:0>host", gbps=55.0),
            Measurement(kind="host-copy-both", subject="host<>gpu:0", gbps=gbps),
        ]
        return judge_hosts([host], copies)[0].cause

    assert with_both(86.0) is None
    assert with_both(50.0) == "both ways at once are only 0.9 × one: host memory or the PCIe path is short"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((600.0, 600.0, 1200.0), "peer-copy GPU0 → GPU1 reached 600.0 GB/s, and NV18 carries 450"),
        ((395.8, 395.8, 1200.0), "peer-copy-both GPU0 ↔ GPU1 reached 1200.0 GB/s, and NV18 carries 900"),
    ],
)
def test_what_is_faster_than_the_wires_is_doubted(numbers: tuple[float, float, float], words: str) -> None:
    found = one(nvlink(), *numbers)
    assert found.verdict == "unknown"
    assert words in str(found.cause)


@pytest.mark.parametrize(
    ("kind", "gbps"),
    [
        ("peer-read", 600.0),
        ("peer-read-both", 1200.0),
        ("kernel-copy", 600.0),
        ("kernel-copy-both", 1200.0),
        ("staged-copy", 90.0),
        ("staged-copy-both", 180.0),
    ],
)
def test_every_kind_is_held_against_the_wires_that_it_takes(kind: str, gbps: float) -> None:
    pair = dataclasses.replace(nvlink(), pcie_gbps=63.0)
    healthy = measured(pair, 395.8, 395.9, 779.9)
    subject = "gpu:0<>gpu:1" if kind.endswith("both") else "gpu:0>gpu:1"
    for rate, doubted in ((gbps, True), (gbps / 2, False)):
        found = judge([pair], [*healthy, Measurement(kind=kind, subject=subject, gbps=rate)])[0]
        assert (found.verdict == "unknown") is doubted
        assert (f"{kind} GPU0" in str(found.cause)) is doubted


def test_what_is_doubted_is_no_yardstick_for_others() -> None:
    pairs = [nvlink(0, 1), nvlink(0, 2), nvlink(1, 2)]
    rates = [(395.0, 395.0, 779.0), (700.0, 700.0, 1400.0), (700.0, 700.0, 1400.0)]
    found = judge(pairs, [m for pair, rate in zip(pairs, rates, strict=True) for m in measured(pair, *rate)])
    assert [each.verdict for each in found] == ["pass", "unknown", "unknown"]


def test_the_way_to_the_host_is_held_against_its_wires() -> None:
    host = HostFacts(0, catalogue.host_copy_band(5, 16), "Gen5 x16")
    for up, both, words in ((70.0, 98.0, "host-copy the host → GPU0"), (55.0, 140.0, "host-copy-both the host ↔ GPU0")):
        copies = [
            Measurement(kind="host-copy", subject="host>gpu:0", gbps=up),
            Measurement(kind="host-copy", subject="gpu:0>host", gbps=55.0),
            Measurement(kind="host-copy-both", subject="host<>gpu:0", gbps=both),
        ]
        found = judge_hosts([host], copies)[0]
        assert found.verdict == "unknown"
        assert words in str(found.cause)


RING = ">".join(f"gpu:{gpu}" for gpu in (*range(8), 0))
EVERYONE = ",".join(f"gpu:{gpu}" for gpu in range(8))


def pattern(
    kind: str,
    subject: str,
    slowest: float,
    link: PairFacts,
    alone: float,
    sick: dict[tuple[int, int], float] | None = None,
) -> tuple[str, str]:
    """Verdict and cause over eight GPUs whose pairs reach `alone`, but for the sick ones."""
    facts = [dataclasses.replace(link, a=a, b=b) for a, b in itertools.combinations(range(8), 2)]
    rates = {(each.a, each.b): (sick or {}).get((each.a, each.b), alone) for each in facts}
    copies = [m for each in facts for m in measured(each, *[rates[each.a, each.b]] * 2, 1.97 * rates[each.a, each.b])]
    at_once = Measurement(kind=kind, subject=subject, gbps=8 * slowest, slowest_gbps=slowest)
    found = judge_patterns([at_once], judge(facts, copies))[0]
    return found.verdict, str(found.cause)


@pytest.mark.parametrize(
    ("kind", "subject", "slowest", "link", "alone", "verdict", "words"),
    [
        ("ring-copy", RING, 3.6, pcie("NODE"), 20.0, "warn", "flows share an uplink"),
        ("ring-copy", RING, 1.5, pcie("NODE"), 20.0, "fail", "worse than if all of them shared one uplink"),
        ("ring-copy", RING, 300.0, nvlink(), 396.0, "warn", "nothing is shared over NVLink"),
        ("ring-copy", RING, 390.0, nvlink(), 396.0, "pass", "None"),
        ("ring-copy", RING, 500.0, nvlink(), 396.0, "unknown", "reached 500.0 GB/s, and a link carries 450 for each"),
        ("switch-copy", EVERYONE, 28.8 / 56, pcie("PIX"), 20.0, "warn", "flows share an uplink"),
        ("switch-copy", EVERYONE, 54.0, nvlink(), 396.0, "pass", "None"),
        ("switch-copy", EVERYONE, 80.0, nvlink(), 396.0, "unknown", "a link carries 64 for each"),
    ],
)
def test_contention_is_put_down_to_what_can_be_shared(
    kind: str, subject: str, slowest: float, link: PairFacts, alone: float, verdict: str, words: str
) -> None:
    found, cause = pattern(kind, subject, slowest, link, alone)
    assert found == verdict
    assert words in cause


GPU3 = {(a, b): 198.0 for a, b in itertools.combinations(range(8), 2) if 3 in (a, b)}


@pytest.mark.parametrize(
    ("kind", "subject", "slowest", "sick", "words"),
    [
        ("ring-copy", RING, 196.0, {(2, 3): 198.0}, "50% of what healthy links carry: GPU2 ↔ GPU3 is as slow alone"),
        ("ring-copy", RING, 196.0, GPU3, "GPU3 is as slow alone"),
        ("ring-copy", RING, 60.0, {(2, 3): 198.0}, "nothing is shared over NVLink"),
        ("ring-copy", RING, 60.0, {(2, 3): 198.0}, "GPU2 ↔ GPU3 is slow alone, too"),
        ("switch-copy", EVERYONE, 28.0, {(2, 3): 198.0}, "GPU2 ↔ GPU3 is as slow alone"),
        ("switch-copy", EVERYONE, 28.0, GPU3, "GPU3 is as slow alone"),
    ],
)
def test_a_pattern_is_held_against_healthy_links_and_names_the_sick_one(
    kind: str, subject: str, slowest: float, sick: dict[tuple[int, int], float], words: str
) -> None:
    verdict, cause = pattern(kind, subject, slowest, nvlink(), 396.0, sick)
    assert verdict == "warn"
    assert words in cause


def test_a_sick_pair_that_a_pattern_does_not_use_changes_nothing() -> None:
    assert pattern("ring-copy", RING, 390.0, nvlink(), 396.0, {(0, 4): 50.0}) == ("pass", "None")


def test_a_pattern_with_a_pair_that_cannot_be_believed_is_unknown() -> None:
    found = pattern("ring-copy", RING, 390.0, nvlink(), 396.0, {(2, 3): 700.0})
    assert found == ("unknown", "no rate that can be believed is known of GPU2 ↔ GPU3 alone")


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


def test_a_healthy_pair_on_an_intel_host_is_held_to_what_its_root_ports_let_through() -> None:
    xeon = catalogue.cpu_model("GenuineIntel", 6, 143)
    band = catalogue.peer_copy_band("NODE", pcie_gen=4, pcie_width=16, cpu=xeon)
    assert one(PairFacts(0, 1, "NODE", band, None), 20.0, 20.0, 36.0).verdict == "pass"
    assert one(PairFacts(0, 1, "NODE", band, None), 20.0, 20.0, 21.0).verdict == "warn"
    assert one(PairFacts(0, 1, "NODE", band, None), 10.3, 10.3, 20.0).verdict == "fail"
    below_a_switch = catalogue.peer_copy_band("PIX", pcie_gen=4, pcie_width=16, cpu=xeon)
    assert one(PairFacts(0, 1, "PIX", below_a_switch, None), 20.0, 20.0, 36.0).verdict == "fail"


def with_host(pair: PairFacts, runs: list[Measurement], *rates: float) -> Judgement:
    """The pair judged beside copies of its two GPUs with the host."""
    facts = dataclasses.replace(pair, pcie_gbps=catalogue.pcie_raw_gbps(4, 16))
    hosts = [
        Measurement(kind="host-copy", subject=f"host>gpu:{gpu}", gbps=rate, data_ok=True)
        for gpu, rate in zip((pair.a, pair.b), rates, strict=True)
    ]
    return judge([facts], [*runs, *hosts])[0]


@pytest.mark.parametrize("staged", [None, 3.0])
def test_a_gpu_whose_own_link_is_slow_is_told_from_redirected_peer_traffic(staged: float | None) -> None:
    runs = measured(pcie("NODE"), 3.2, 3.2, 6.3)
    if staged:
        runs.append(Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=staged, peer_access=False))
    slow_slot = with_host(pcie("NODE"), runs, 26.0, 3.3)
    assert slow_slot.verdict == "fail"
    assert "GPU1 and the host reach only 3.3 GB/s, too, so look at GPU1's slot" in str(slow_slot.cause)
    assert "IOMMU" not in str(slow_slot.cause)
    redirected = with_host(pcie("NODE"), runs, 26.0, 26.0)
    assert "IOMMU" in str(redirected.cause)
    assert "lanes" not in str(redirected.cause)


def test_copies_that_take_as_long_to_start_as_staged_ones_are_staged() -> None:
    runs = measured(pcie("NODE"), 20.0, 20.0, 25.0)
    runs.append(Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=20.0, peer_access=False))
    runs.append(Measurement(kind="peer-latency", subject="gpu:0>gpu:1", latency_us=14.0))
    cause = str(judge([pcie("NODE")], runs)[0].cause)
    assert "runs through host memory, though CUDA allows peer access" in cause
    assert "IOMMU" not in cause


def test_one_slow_direction_is_no_sign_of_a_peer_path_that_gains_nothing() -> None:
    runs = measured(pcie("NODE"), 26.0, 19.0, 40.0)
    runs.append(Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=19.0, peer_access=False))
    assert "in one direction only" in str(judge([pcie("NODE")], runs)[0].cause)


def test_staged_pairs_are_held_against_each_other_too() -> None:
    pairs = [pcie("NODE", a, b) for a, b in itertools.combinations(range(4), 2)]
    runs = [
        run
        for pair in pairs
        for run in measured(pair, *((11.2, 11.2, 14.0) if pair.b == 3 else (22.0, 22.0, 29.0)), peer=False)
    ]
    found = judge(pairs, runs)
    assert [each.verdict for each in found] == ["warn" if each.pair.b == 3 else "pass" for each in found]
    assert "slower than the other NODE pairs of this machine" in str(found[2].cause)
    assert "look at GPU3 first" in str(found[2].cause)


@pytest.mark.parametrize(
    ("pair", "numbers", "words"),
    [
        (pcie("PHB"), (22.0, 11.5, 20.0), "one direction is slow"),
        (dataclasses.replace(pcie("PHB"), slots=("GPU1 runs on 8 of its 16 PCIe lanes",)), (12.0, 12.0, 15.0), "8 of"),
    ],
)
def test_what_is_odd_about_a_staged_pair_is_said(pair: PairFacts, numbers: tuple[float, ...], words: str) -> None:
    found = one(pair, *numbers, peer=False)
    assert found.verdict == "warn"
    assert words in str(found.cause)


def test_links_that_are_up_are_not_said_to_be_missing() -> None:
    numbers = (374.0, 374.0, 737.0)
    assert "17 of 18 links" in str(one(nvlink(), *numbers).cause)
    up = str(one(dataclasses.replace(nvlink(), all_up=True), *numbers).cause)
    assert "all 18 NVLinks are up, as fast as 17 would be" in up
    between = str(one(nvlink(), 363.0, 363.0, 720.0).cause)
    assert "of 18 links" not in between
    known = dataclasses.replace(nvlink(), down=("GPU1 has 9 of its 18 NVLinks up",))
    assert "GPU1 has 9 of its 18 NVLinks up" in str(one(known, 198.0, 198.0, 390.0).cause)


@pytest.mark.parametrize(
    ("rates", "words", "never"),
    [
        ((55.0, 28.0), "in one direction only", "lanes"),
        ((6.9, 6.9), "an eighth of the lanes (x2) or three PCIe generations less", "NUMA"),
    ],
)
def test_a_slow_way_to_the_host_is_explained_by_what_both_directions_show(
    rates: tuple[float, float], words: str, never: str
) -> None:
    runs = [
        Measurement(kind="host-copy", subject=subject, gbps=rate, data_ok=True)
        for subject, rate in zip(("host>gpu:0", "gpu:0>host"), rates, strict=True)
    ]
    found = judge_hosts([HostFacts(0, catalogue.host_copy_band(5, 16), "Gen5 x16")], runs)[0]
    assert found.verdict == "fail"
    assert words in str(found.cause)
    assert never not in str(found.cause)


def test_a_ring_of_copies_through_host_memory_is_held_to_what_a_pair_reaches_both_ways() -> None:
    pairs = [pcie("PHB", a, b) for a, b in itertools.combinations(range(4), 2)]
    judged = judge(pairs, [run for pair in pairs for run in measured(pair, 21.0, 21.0, 29.0, peer=False)])
    ring = Measurement(kind="ring-copy", subject="gpu:0>gpu:1>gpu:2>gpu:3>gpu:0", gbps=56.0, slowest_gbps=14.0)
    assert judge_patterns([ring], judged)[0].verdict == "pass"
    shared = msgspec.structs.replace(ring, gbps=24.0, slowest_gbps=6.0)
    assert "share an uplink" in str(judge_patterns([shared], judged)[0].cause)


@pytest.mark.parametrize("peer", [True, False])
def test_a_gpu_of_another_generation_or_width_is_not_held_against_the_faster_ones(peer: bool) -> None:
    rates = ((26.0, 26.0, 50.0), (12.9, 12.9, 25.0)) if peer else ((20.0, 20.0, 28.0), (9.6, 9.6, 11.0))
    pairs = [pcie("NODE", a, b, gen=3 if b == 3 else 4) for a, b in itertools.combinations(range(4), 2)]
    copies = [m for pair in pairs for m in measured(pair, *rates[pair.b == 3], peer=peer)]
    assert {each.verdict for each in judge(pairs, copies)} == {"pass"}
    narrow = dataclasses.replace(pairs[2], slots=("GPU3 runs on 8 of its 16 PCIe lanes",))
    told = judge([*pairs[:2], narrow, *pairs[3:]], copies)[2]
    assert (told.verdict, "8 of its 16 PCIe lanes" in str(told.cause)) == ("warn", True)


def test_copies_through_host_memory_of_faster_gpus_say_nothing_about_slower_ones() -> None:
    fast, slow = pcie("NODE", 0, 1, gen=5), pcie("NODE", 0, 2, gen=4)
    staged = Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=38.0, peer_access=False)
    copies = [*measured(fast, 55.0, 55.0, 107.0), staged, *measured(slow, 25.8, 25.8, 50.0)]
    assert [each.verdict for each in judge([fast, slow], copies)] == ["pass", "pass"]


def test_a_peer_path_that_is_as_slow_as_elsewhere_and_loses_to_host_memory_is_no_fault_of_the_iommu() -> None:
    xeon = catalogue.cpu_model("GenuineIntel", 6, 106)
    pair = PairFacts(0, 1, "SYS", catalogue.peer_copy_band("SYS", pcie_gen=4, pcie_width=16, cpu=xeon), None)
    staged = Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=21.0, peer_access=False)
    found = judge([pair], [*measured(pair, 17.6, 17.6, 30.0), staged])[0]
    assert found.verdict == "warn"
    assert "SYS pairs are no faster elsewhere, so nothing is broken" in str(found.cause)
    assert "prove NCCL_P2P_DISABLE=1" in str(found.cause)
    assert "IOMMU" not in str(found.cause)
