"""NCCL's estimates against its own code's, its log's, and what was measured."""

from __future__ import annotations

import io
import itertools
import json
import re
from pathlib import Path

import pytest

from topoadvisor import estimates, files
from topoadvisor.errors import NothingDetermined
from topoadvisor.evidence import Measurement
from topoadvisor.ingest import detect
from topoadvisor.plan import cost
from topoadvisor.plan.cost import Calibration, Channels, Fabric
from topoadvisor.snapshot import Snapshot

SHARED = Path(__file__).parents[3] / "shared"
CAPTURE = SHARED / "capture_h200x2"
needs_capture = pytest.mark.skipif(not CAPTURE.is_dir(), reason="the capture of a real machine is not here")
needs_corpus = pytest.mark.skipif(not (SHARED / "corpus").is_dir(), reason="the corpus of real machines is not here")

PAIR = Fabric(2, 90, Channels(12, 30.0, True), Channels(12, 60.0, True), None, ll128=True, pair_gbps=370.8)


def machine(name: str) -> Snapshot:
    return detect.read(str(files.shipped("fixtures") / name), stdin=io.BytesIO())


def test_two_gpus_by_hand() -> None:
    """6.6 + 2 · 3.4 µs for the launch and two steps, and 64 MiB at 360 GB/s... but Simple starts at 8.4."""
    first = cost.estimates(PAIR, "all_reduce", 64 << 20)[0]
    assert (first.algorithm, first.protocol) == ("ring", "Simple")
    assert first.time_us == pytest.approx(8.4 + 2 * 3.4 + (64 << 20) / 360e3)
    assert cost.estimates(PAIR, "all_reduce", 8)[0].protocol == "LL"


@pytest.mark.parametrize("collective", cost.COLLECTIVES)
def test_times_grow_with_the_size_and_are_positive(collective: cost.Collective) -> None:
    fabric = Fabric(8, 80, Channels(12, 20.0, True), Channels(12, 20.0, True), None, True, True, 240.0, 240.0)
    times = [cost.estimates(fabric, collective, 1 << power)[0].time_us for power in range(3, 36)]
    assert times[0] > 0
    assert all(a <= b * 1.0001 for a, b in itertools.pairwise(times))


def test_what_nccl_does_not_use_is_not_offered() -> None:
    slow = Fabric(4, 70, Channels(1, 6.0, False), Channels(1, 6.0, False))
    found = {(each.algorithm, each.protocol) for each in cost.estimates(slow, "all_reduce", 1 << 20)}
    assert found == {("ring", "LL"), ("ring", "Simple"), ("tree", "LL"), ("tree", "Simple")}
    assert {each.algorithm for each in cost.estimates(slow, "broadcast", 1 << 20)} == {"ring"}


def logged(text: str) -> dict[tuple[str, str, str], tuple[float, float]]:
    """(collective, algorithm, protocol) → µs, GB/s of the table that NCCL prints."""
    found = {}
    algorithms: list[str] = []
    for line in text.splitlines():
        if "Algorithm   |" in line:
            algorithms = line.split("|")[1:]
        match = re.search(r"INFO +(AllReduce|AllGather|ReduceScatter|Broadcast) \|(.*)", line)
        if match:
            cells = [tuple(map(float, cell.split("/"))) for cell in match[2].split("|") if "/" in cell]
            for at, (us, gbps) in enumerate(cells):
                name = algorithms[at // 3].strip()
                found[match[1], name, cost.PROTOCOLS[at % 3]] = (us, gbps)
    return found


@needs_capture
def test_the_table_that_nccl_printed_on_a_real_machine() -> None:
    table = logged((CAPTURE / "nccl_debug.rank0.log").read_text())
    names: dict[str, cost.Collective] = {
        "AllReduce": "all_reduce",
        "AllGather": "all_gather",
        "ReduceScatter": "reduce_scatter",
        "Broadcast": "broadcast",
    }
    fabric, _, _ = estimates.Estimator(machine("2xh200-kvm")).fabric([0, 1])
    seen = 0
    for (collective, algorithm, protocol), (us, gbps) in table.items():
        if algorithm in ("Ring", "Tree") and gbps:
            kind = "ring" if algorithm == "Ring" else "tree"
            assert cost.latency(fabric, names[collective], kind, protocol) == pytest.approx(us, abs=0.051)  # type: ignore[arg-type]
            assert cost.bandwidth(fabric, names[collective], kind, protocol) == pytest.approx(gbps, abs=0.051)  # type: ignore[arg-type]
            seen += 1
    assert seen == 15


@needs_corpus
def test_every_entry_that_nccls_own_code_computes() -> None:
    seen = 0
    for name, run in json.loads((SHARED / "corpus" / "nccl_reference.json").read_text())["topologies"].items():
        single = run["single_node"]
        table = single.get("final", {}).get("allreduce_model")
        if not table or single["ngpus"] < 2:
            continue

        def channels(graph: dict[str, float]) -> Channels:
            return Channels(
                int(graph["nchannels"]), graph["speedintra"], graph["typeintra"] == "NVL", graph["speedinter"]
            )

        graphs = single["graphs"]
        nvls = channels(graphs["nvls"]) if graphs.get("nvls", {}).get("nchannels") else None
        fabric = Fabric(
            single["ngpus"], single["cc_min"], channels(graphs["ring"]), channels(graphs["tree"]), nvls, True
        )
        for entry, wanted in table.items():
            algorithm, protocol = entry.split("/")
            kind = algorithm.lower()
            if kind == "nvls":
                long = next(e for e in cost.estimates(fabric, "all_reduce", 10**12) if e.algorithm == "nvls")
                latency = 25.0
                gbps = 1e9 / (long.time_us - latency)
            else:
                latency = cost.latency(fabric, "all_reduce", kind, protocol)  # type: ignore[arg-type]
                gbps = cost.bandwidth(fabric, "all_reduce", kind, protocol)  # type: ignore[arg-type]
            assert latency == pytest.approx(wanted["lat_us"], rel=0.01), f"{name} {entry}"
            assert gbps == pytest.approx(wanted["algbw"], rel=0.002, abs=1e-3), f"{name} {entry}"
            seen += 1
    assert seen == 373


_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def measured() -> list[tuple[int, float]]:
    """(bytes, GB/s of bus bandwidth) of NCCL as it is on two H200."""
    lines = (CAPTURE / "nccl_ab.txt").read_text().splitlines()
    head = next(line for line in lines if line.startswith("variant"))
    sizes = [int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+) ([KMG]iB)", head)]
    default = next(line for line in lines if line.startswith("default"))
    return list(zip(sizes, map(float, re.findall(r"([0-9.]+) \[", default)), strict=True))


@needs_capture
def test_the_error_that_the_documentation_states() -> None:
    fabric, _, _ = estimates.Estimator(machine("2xh200-kvm")).fabric([0, 1])
    errors, held = [], []
    for size, bus in measured():
        took = size / bus / 1000
        estimate = cost.estimates(fabric, "all_reduce", size)[0].time_us
        errors.append(round(100 * (1 - estimate / took)))
        others = cost.calibrate(fabric, "all_reduce", [run for run in measured() if run[0] != size])
        held.append(abs(others.time_us(size, estimate) / took - 1))
    assert errors == [80, 64, 20, 22, 17, 9]
    assert max(held) <= 0.095
    words = " ".join(str(cost.__doc__).split())
    assert "80 % too short at 64 KiB and 64 % at 1 MiB" in words
    assert "20 % at 8 MiB, 22 % at 64 MiB, 17 % at 256 MiB and 9 % at 1 GiB" in words


def test_calibration_is_exact_where_it_was_measured() -> None:
    runs = [(8 << 20, 150.0), (64 << 20, 250.0), (1 << 30, 320.0)]
    found = cost.calibrate(PAIR, "all_reduce", runs)
    for size, bus in runs:
        estimate = cost.estimates(PAIR, "all_reduce", size)[0].time_us
        assert found.time_us(size, estimate) == pytest.approx(size / bus / 1000)
    assert Calibration().time_us(1 << 20, 10.0) == 10.0


def test_measurements_in_the_snapshot_hold_the_estimates() -> None:
    import msgspec

    run = Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=300.0, size_bytes=1 << 30)
    other = Measurement(kind="all_gather", subject="gpu:0,gpu:1", gbps=1.0, size_bytes=1 << 30)
    snapshot = msgspec.structs.replace(machine("2xh200-kvm"), measurements=[run, other])
    found = estimates.cost(snapshot, "all_reduce", [1 << 30])
    assert found.calibrated_by == [1 << 30]
    # What measurements say of NCCL's choice is held against the other ways too, or they would look better than it.
    assert all(way.time_us >= row.time_us for row in found.rows for way in row.ways)
    assert found.rows[0].busbw_gbps == pytest.approx(300.0)
    assert estimates.cost(machine("2xh200-kvm"), "all_reduce", [1 << 30]).rows[0].busbw_gbps == pytest.approx(
        358, rel=0.01
    )


def test_machines_whose_bandwidths_are_not_known() -> None:
    with pytest.raises(NothingDetermined):
        estimates.cost(machine("paste-8xa100"), "all_reduce")
