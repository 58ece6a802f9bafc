"""Facts from measurements: with and without peer access, and a ring at once against its hops."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from topoadvisor import advise, planning
from topoadvisor.explain import ladder
from topoadvisor.ingest import assume, detect
from topoadvisor.measurements import expectation
from topoadvisor.measurements.judge import judge
from topoadvisor.measurements.model import Measurement
from topoadvisor.rules import load
from topoadvisor.rules.facts import FactBase, Known, Unknown


def facts(*runs: Measurement) -> FactBase:
    snapshot = detect.read(["fixture:4xrtxpro6000"], stdin=io.BytesIO())
    return advise.analyse(msgspec.structs.replace(snapshot, measurements=list(runs))).facts


def copy(subject: str, gbps: float, kind: str = "peer-copy", peer_access: bool = True) -> Measurement:
    return Measurement(kind=kind, subject=subject, gbps=gbps, peer_access=peer_access, data_ok=True)


def findings(machine: str, *runs: Measurement) -> dict[str, list[str]]:
    """Rule id → subjects, of the rules about measurements."""
    snapshot = detect.read([f"fixture:{machine}"], stdin=io.BytesIO())
    found = advise.advise(msgspec.structs.replace(snapshot, measurements=list(runs))).findings
    return {
        each.id: [each.subject, *each.also]
        for each in found
        if each.id in ("P2P006", "P2P026", "P2P041", "P2P042", "P2P040", "PCI014", "PCI015", "P2P027")
    }


def pair(base: FactBase, subject: str, name: str) -> object:
    fact = next(each for each in base.subjects["pair"] if each.id == subject).facts[name]
    return fact.value if isinstance(fact, Known) else None


def test_peer_access_on_and_off() -> None:
    base = facts(
        copy("gpu:0>gpu:1", 55.0),
        copy("gpu:1>gpu:0", 54.0),
        copy("gpu:0>gpu:1", 38.0, "staged-copy", peer_access=False),
    )
    assert pair(base, "gpu:0-gpu:1", "pair.measured.p2p_gbps") == 54.0
    assert pair(base, "gpu:0-gpu:1", "pair.measured.staged_gbps") == 38.0
    assert pair(base, "gpu:0-gpu:1", "pair.measured.both_ways") is True
    assert pair(base, "gpu:0-gpu:2", "pair.measured.both_ways") is False


RING = Measurement(
    kind="ring-copy", subject="gpu:0>gpu:1>gpu:2>gpu:3>gpu:0", gbps=80.0, slowest_gbps=20.0, peer_access=True
)
HOPS = ((0, 1), (1, 2), (2, 3), (3, 0))


def test_copies_at_once_are_judged_as_verify_judges_them() -> None:
    hops = [copy(f"gpu:{a}>gpu:{b}", 50.0 + a) for a, b in HOPS]
    said = (
        "All hops of the ring GPU0 → GPU1 → GPU2 → GPU3 → GPU0 at once, the slowest 20.0 GB/s: the slowest flow keeps "
        "40% of what it would have without contention: flows share an uplink or a link between sockets"
    )
    for runs, expected in (([RING, *hops], said), ([RING, *hops[1:]], ""), (hops, "")):
        assert facts(*runs).node["measured.contention"].value == expected  # type: ignore[union-attr]
    well = msgspec.structs.replace(RING, gbps=196.0, slowest_gbps=49.0)
    assert facts(well, *hops).node["measured.contention"].value == ""  # type: ignore[union-attr]


def test_the_rule_about_rings_fires_on_a_measured_ring() -> None:
    snapshot = detect.read(["fixture:4xrtxpro6000"], stdin=io.BytesIO())
    runs = [RING, *(copy(f"gpu:{a}>gpu:{b}", 50.0) for a, b in HOPS)]
    (found,) = [
        each
        for each in advise.advise(msgspec.structs.replace(snapshot, measurements=runs)).findings
        if each.id == "P2P029"
    ]
    assert "keeps 40% of what it would have without contention" in found.message


def broken(kind: str, subject: str, outcome: str, **more: Any) -> Measurement:
    return Measurement(kind=kind, subject=subject, outcome=outcome, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (broken("peer-copy", "gpu:0>gpu:1", "wrong-data", gbps=396.0), {"P2P006": ["gpu:0-gpu:1"]}),
        (copy("gpu:0>gpu:1", 396.0), {}),
        (broken("peer-read", "gpu:1>gpu:0", "wrong-data"), {"P2P006": ["gpu:0-gpu:1"]}),
        (broken("kernel-copy-both", "gpu:0<>gpu:1", "timeout"), {"P2P026": ["gpu:0-gpu:1"]}),
        (broken("kernel-copy", "gpu:0>gpu:1", "skipped", note="no NVRTC"), {}),
        (broken("peer-copy", "gpu:0>gpu:1", "error"), {"P2P026": ["gpu:0-gpu:1"]}),
        (broken("staged-copy", "gpu:0>gpu:1", "wrong-data", gbps=38.0), {"P2P041": ["gpu:0-gpu:1"]}),
        (broken("peer-copy", "gpu:0>gpu:1", "wrong-data", peer_access=False), {"P2P041": ["gpu:0-gpu:1"]}),
        (broken("host-copy", "gpu:1>host", "timeout"), {"PCI014": ["gpu:1"]}),
        (broken("host-copy-both", "host<>gpu:0", "wrong-data"), {"PCI014": ["gpu:0"]}),
        (Measurement(kind="host-copy", subject="host>gpu:0", gbps=55.0, data_ok=True), {}),
        (broken("all_reduce", "gpu:0,gpu:1", "wrong-data", gbps=329.0, size_bytes=1 << 30), {"P2P042": ["node"]}),
        (Measurement(kind="sendrecv", subject="gpu:0,gpu:1", gbps=300.0, data_ok=False), {"P2P042": ["node"]}),
        (Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=329.0, data_ok=True), {}),
        (broken("ring-copy", "gpu:0>gpu:1>gpu:0", "crashed"), {"P2P040": ["node"]}),
        (broken("switch-copy", "gpu:0,gpu:1", "wrong-data"), {"P2P040": ["node"]}),
        (broken("switch-copy", "gpu:0,gpu:1", "skipped"), {}),
    ],
)
def test_every_kind_of_measurement_that_failed_is_a_finding(run: Measurement, expected: dict[str, list[str]]) -> None:
    assert findings("2xh200-kvm", run) == expected


def test_where_the_driver_refuses_peer_access_a_copy_that_hung_was_on_its_way_through_the_host() -> None:
    assert findings("8x4090", broken("peer-copy", "gpu:0>gpu:1", "timeout")) == {"P2P041": ["gpu:0-gpu:1"]}


def test_a_rate_of_a_copy_that_failed_is_none_and_the_reason_says_so() -> None:
    base = facts(broken("peer-copy", "gpu:0>gpu:1", "wrong-data", gbps=400.0, peer_access=True))
    found = next(each for each in base.subjects["pair"] if each.id == "gpu:0-gpu:1").facts
    assert found["pair.measured.p2p_gbps"] == Unknown("the copy failed (wrong-data)")
    assert found["pair.measured.failed_copies"] == Known(["peer-copy GPU0>GPU1 (wrong-data)"], "measurement")


def test_p2p_is_not_switched_off_where_copies_through_the_host_fail_too() -> None:
    snapshot = detect.read(["fixture:4xrtxpro6000"], stdin=io.BytesIO())

    def variables(*runs: Measurement) -> list[str]:
        advice = advise.advise(msgspec.structs.replace(snapshot, measurements=list(runs)))
        return [setting.name for setting in advice.settings if setting.rule in ("P2P006", "P2P026")]

    wrong = broken("peer-copy", "gpu:0>gpu:1", "wrong-data")
    assert variables(wrong) == ["NCCL_P2P_DISABLE"]
    assert variables(wrong, broken("staged-copy", "gpu:2>gpu:3", "timeout")) == []
    assert variables(broken("peer-copy", "gpu:0>gpu:1", "error")) == []


def test_slow_copies_are_found_in_what_was_saved_over_pcie_and_with_the_host_too() -> None:
    slow_pair = [copy("gpu:0>gpu:1", 3.4), copy("gpu:1>gpu:0", 3.4)]
    assert findings("4xrtxpro6000", *slow_pair) == {"P2P027": ["gpu:0-gpu:1"]}
    assert findings("4xrtxpro6000", copy("gpu:0>gpu:1", 55.0)) == {}
    assert findings("4xrtxpro6000", copy("gpu:0>gpu:1", 3.4, peer_access=False)) == {}
    hosts = [copy("host>gpu:0", 55.0, "host-copy"), copy("gpu:0>host", 27.4, "host-copy")]
    assert findings("4xrtxpro6000", *hosts) == {"PCI015": ["gpu:0"]}
    assert findings("4xrtxpro6000", hosts[0]) == {}


def test_pairs_are_held_against_those_with_as_fast_links() -> None:
    snapshot = detect.read(["fixture:4xrtxpro6000"], stdin=io.BytesIO())
    narrow = [
        msgspec.structs.replace(gpu, pcie=msgspec.structs.replace(gpu.pcie, current_width=8)) if gpu.index == 3 else gpu
        for gpu in snapshot.gpus
        if gpu.pcie
    ]
    runs = [copy(f"gpu:{a}>gpu:{b}", 27.9 if b == 3 else 55.5) for a in range(4) for b in range(a + 1, 4)]
    for gpus, fires in ((snapshot.gpus, True), (narrow, False)):
        changed = msgspec.structs.replace(snapshot, gpus=gpus, measurements=runs)
        causes = [each.message for each in advise.advise(changed).findings if each.id == "P2P027"]
        assert any("GPU3 (" in cause and "% of what " in cause for cause in causes) is fires


def full(subject: str, gbps: float | None, kind: str = "peer-copy", **more: Any) -> Measurement:
    return Measurement(kind=kind, subject=subject, gbps=gbps, peer_access=True, data_ok=True, **more)


ODD = [
    (
        full("gpu:0>gpu:1", None, "peer-latency", latency_us=20.0),
        "a small copy GPU0 → GPU1 takes 20 µs, as long as one through host memory",
    ),
    (
        full("gpu:1>gpu:0", 50.0, "peer-read"),
        "reads GPU1 → GPU0 reach only 50.0 GB/s where writes by the copy engines reach 390.0",
    ),
    (
        full("gpu:1>gpu:0", 50.0, "kernel-copy"),
        "copies by a kernel GPU1 → GPU0 reach only 50.0 GB/s where writes by the copy engines reach 390.0",
    ),
    (
        full("gpu:1>gpu:0", 391.0, spread=0.6),
        "its batches lie 60% apart: something else uses the link, or clocks change",
    ),
]


@pytest.mark.parametrize(("run", "told"), ODD)
def test_what_verify_finds_odd_is_a_finding_of_scan_in_the_same_words(run: Measurement, told: str) -> None:
    snapshot = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
    usual = [full("gpu:0>gpu:1", 390.0), full("gpu:1>gpu:0", 390.0), full("gpu:0<>gpu:1", 770.0, "peer-copy-both")]
    kept = [each for each in usual if (each.kind, each.subject) != (run.kind, run.subject)]
    for runs, expected in ((usual, ""), ([*kept, run], told)):
        found = msgspec.structs.replace(snapshot, measurements=runs)
        analysis = advise.analyse(found)
        verdict = "warn" if expected else "pass"
        assert pair(analysis.facts, "gpu:0-gpu:1", "pair.measured.verdict") == verdict
        assert pair(analysis.facts, "gpu:0-gpu:1", "pair.measured.cause") == expected
        said = [each.message.split("GB/s): ")[1] for each in analysis.advice.findings if each.id == "P2P027"]
        assert said == ([expected] if expected else [])
        a, b = found.gpus
        (judged,) = judge([expectation.pair_facts(found, analysis.topology, a, b)], runs)
        assert (judged.verdict, judged.cause) == (verdict, expected or None)


def test_the_slow_direction_is_named() -> None:
    snapshot = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
    runs = [full("gpu:0>gpu:1", 390.0), full("gpu:1>gpu:0", 190.0)]
    advice = advise.advise(msgspec.structs.replace(snapshot, measurements=runs))
    (found,) = [each for each in advice.findings if each.id == "P2P027"]
    assert found.message == (
        "GPU1 → GPU0 (NV18, 190 GB/s): 48% of what NV18 reaches elsewhere, in one direction only: look for errors and "
        "replays on that direction's links"
    )


def test_copies_that_verify_calls_bad_are_findings_whatever_is_bad_about_them() -> None:
    def told(*runs: Measurement) -> list[str]:
        snapshot = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
        found = advise.advise(msgspec.structs.replace(snapshot, measurements=list(runs)))
        return [each.message.split("GB/s): ")[1] for each in found.findings if each.id == "P2P027"]

    usual = [full("gpu:0>gpu:1", 390.0), full("gpu:1>gpu:0", 390.0)]
    (said,) = told(*usual, full("gpu:0<>gpu:1", 300.0, "peer-copy-both"))
    assert said.startswith("both directions together are only 0.8 × one")
    (said,) = told(full("gpu:0>gpu:1", 276.0), full("gpu:1>gpu:0", 276.0))
    assert said.startswith("70% of what NV18 reaches elsewhere")
    assert told(full("gpu:0>gpu:1", 150.0, size_bytes=1 << 20), full("gpu:1>gpu:0", 150.0, size_bytes=1 << 20)) == []


def test_a_slow_pair_has_one_finding_and_a_sick_gpu_is_named() -> None:
    snapshot = detect.read(["fixture:dgx-h100"], stdin=io.BytesIO())
    runs = [full(f"gpu:{a}>gpu:{b}", 200.0 if 3 in (a, b) else 395.0) for a in range(8) for b in range(8) if a != b]
    findings = advise.advise(msgspec.structs.replace(snapshot, measurements=runs)).findings
    (found,) = findings
    assert (found.id, len(found.also)) == ("P2P027", 6)
    assert found.message.endswith("all pairs of GPU3 are like this and no others, so look at GPU3 first")


def test_copies_without_peer_access_where_it_is_granted_have_one_truth() -> None:
    snapshot = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
    runs = [copy("gpu:0>gpu:1", 25.0, peer_access=False), copy("gpu:1>gpu:0", 25.0, peer_access=False)]
    found = msgspec.structs.replace(snapshot, measurements=runs)
    analysis = advise.analyse(found)
    facts_of_pair = analysis.facts.subjects["pair"][0].facts
    why = "its copies went through host memory, as CUDA allowed no peer access"
    for name in ("pair.measured.p2p_gbps", "pair.measured.outcome"):
        unknown = facts_of_pair[name]
        assert isinstance(unknown, Unknown)
        assert unknown.reason == why
    assert pair(analysis.facts, "gpu:0-gpu:1", "pair.measured.staged_gbps") == 25.0
    assert "P2P051" in {each.id for each in analysis.advice.findings}
    step = ladder.climb((0, 1), found, load.load()).steps[-1]
    assert (step.answer, step.why) == (
        "look here",
        "CUDA allowed no peer access, although the driver grants it: copies went through host memory, at 25 GB/s.",
    )
    (note,) = [each for each in planning.best_rings(found, model="measured").notes if "peer access" in each]
    assert note.endswith("they stand here as on paper: GPU0 to GPU1, GPU1 to GPU0.")


@pytest.mark.parametrize(("share", "fires"), [(1.0, False), (0.5, True)])
def test_lanes_that_are_missing_explain_what_is_slow_and_are_no_second_finding(share: float, fires: bool) -> None:
    """GPU1 runs on 8 of its 16 lanes, which PCI001 says; such a link lets 27.6 GB/s through."""
    snapshot = detect.read(["fixture:2x5090-container"], stdin=io.BytesIO())
    runs = [copy(way, 27.6 * share, "host-copy") for way in ("host>gpu:1", "gpu:1>host")]
    found = {each.id: each for each in advise.advise(msgspec.structs.replace(snapshot, measurements=runs)).findings}
    assert "PCI001" in found
    assert ("PCI015" in found) is fires
    if fires:
        assert found["PCI015"].message.endswith(
            "50% of what Gen5 x8 reaches elsewhere: GPU1 runs on 8 of its 16 PCIe lanes"
        )


@pytest.mark.parametrize(("mode", "said"), [("identity", "Neither the IOMMU nor ACS"), ("DMA-FQ", "IOMMU off")])
def test_slow_peer_copies_are_put_down_to_an_iommu_only_where_it_may_be_one(mode: str, said: str) -> None:
    snapshot = detect.read(["fixture:4xrtxpro6000"], stdin=io.BytesIO())
    runs = [copy("gpu:0>gpu:1", 9.0), copy("gpu:1>gpu:0", 9.0), copy("gpu:0>gpu:1", 38.0, "staged-copy", False)]
    measured = msgspec.structs.replace(snapshot, measurements=runs)
    told = assume.apply(measured, assume.gather([f"iommu.mode={mode}"], None))
    (found,) = [each for each in advise.advise(told).findings if each.id == "P2P007"]
    assert said in found.advice[0].text
