"""`verify --collectives` over fake ranks: wrong values, hangs, crashes, and NCCL's log against the prediction."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import nccl_logs
import pytest

from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.ingest import detect
from topoadvisor.measurements import runs
from topoadvisor.measurements.model import COLLECTIVES
from topoadvisor.snapshot import Driver, Gpu, NcclLibrary, Snapshot
from topoadvisor.verify import collectives, collectives_report, group
from topoadvisor.verify.collectives import CollectiveReport, Expected
from topoadvisor.verify.documents import Collectives

ADDRESSES = ["0000:1b:00.0", "0000:1d:00.0"]
"""As the written logs have them."""
GPUS = [Gpu(index=index, name="NVIDIA H200", address=address) for index, address in enumerate(ADDRESSES)]
SNAPSHOT = Snapshot(gpus=GPUS, driver=Driver(version="580.159.04", cuda="13.0"))

RANK = """
import json, os, sys, time
job = json.load(sys.stdin)
def say(**line):
    print(json.dumps(line), flush=True)
log = os.environ.get("NCCL_DEBUG_FILE")
if log and job["rank"] == 0:
    with open(log.replace("%p", str(os.getpid())), "w") as file:
        file.write(LOG)
say(began={"nccl": "2.28.9", "runtime": "13.2", "cupy": "14.2.0", "processors": 132})
for number, case in enumerate(job["cases"]):
    BEFORE
    seconds = case["size_bytes"] / 300e9 * (1.1 if job["rank"] else 1.0)
    say(timed={"case": number, "seconds": [seconds] * case["batches"], "wrong": WRONG})
say(ended={"used_bytes": 500000000 + job["rank"]})
"""


def check(
    *,
    before: str = "pass",
    wrong: str = "0",
    via: str = "P2P/CUMEM",
    predicted: str | None = "P2P",
    channels: int | None = 24,
    deadline: float = 10,
    rates: dict[str, float] | None = None,
    log: str | None = None,
    over_nvlink: bool = False,
) -> CollectiveReport:
    script = (
        RANK.replace("LOG", repr(log or "\n".join(nccl_logs.modern(2, channels=24, inside=via)) + "\n"))
        .replace("BEFORE", before)
        .replace("WRONG", wrong)
    )
    run = group.group_of(
        ADDRESSES, "libnccl.so.2", os.environ, argv=[sys.executable, "-c", script], deadline_s=deadline
    )
    return collectives.check(
        SNAPSHOT,
        GPUS,
        run,
        cases=group.cases(COLLECTIVES, [1 << 20, 1 << 30], 2),
        library="libnccl.so.2",
        expect=lambda version, largest: Expected({(0, 1): predicted}, channels, [[1, 0]], rates or {}, over_nvlink),
        notes=[],
        date="2026-11-30T12:00:00+00:00",
    )


def test_speed_is_that_of_the_slowest_rank_and_the_transport_is_as_predicted() -> None:
    report = check()
    assert report.verdict == "pass"
    assert report.exit_code == 0
    by_case = {(each.kind, each.size_bytes): each for each in report.measurements}
    assert by_case["all_reduce", 1 << 30].gbps == pytest.approx(300 / 1.1, abs=0.01)
    assert by_case["all_gather", 1 << 30].gbps == pytest.approx(150 / 1.1, abs=0.01)
    assert by_case["sendrecv", 1 << 20].gbps == pytest.approx(300 / 1.1, abs=0.01)
    assert by_case["all_reduce", 1 << 30].subject == "gpu:0,gpu:1"
    assert by_case["all_reduce", 1 << 30].data_ok is True
    text = collectives_report.to_text(report)
    assert "All values are right." in text
    assert "P2P/CUMEM on 2 of 2 connections, as predicted" in text
    assert "Channels: 24, as predicted." in text
    assert "Rings: 0 → 1 → 0 on 24, as predicted." in text
    assert "Channels: 24; predicted were 32." in collectives_report.to_text(check(channels=32))
    assert "Channels: 24." in collectives_report.to_text(check(channels=None))
    assert report.run.used_bytes == 500000001


def test_another_transport_than_predicted_is_told() -> None:
    report = check(via="SHM/direct/direct")
    assert report.verdict in ("warn", "fail")
    assert "predicted was P2P from GPU0 to GPU1 and 1 more" in collectives_report.to_text(report)
    unknown = collectives_report.to_text(check(predicted=None))
    assert "connections, as predicted" not in unknown


def test_wrong_values_fail() -> None:
    report = check(wrong="7 if number == 3 and job['rank'] else 0")
    assert report.exit_code == 1
    text = collectives_report.to_text(report)
    assert "Wrong values: all_gather at 1 GiB" in text
    assert "WRONG" in text
    assert collectives_report.document(report).verdict == "fail"


def test_values_that_were_not_compared_are_not_called_right() -> None:
    text = collectives_report.to_text(check(wrong="None if case['size_bytes'] > 1000000000 else 0"))
    assert "from 1024 MiB up none were" in text or "from 1 GiB up none were" in text
    assert "All values are right" not in text


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("if number == 2 and job['rank']: time.sleep(60)", "no answer for 2 s"),
        ("if number == 2 and job['rank']: os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("if number == 2: say(failed='ncclAllGather: unhandled cuda error'); sys.exit(1)", "ncclAllGather: unhandled"),
    ],
)
def test_a_hang_or_a_crash_keeps_what_was_measured(before: str, words: str) -> None:
    report = check(before=before, deadline=2)
    assert report.exit_code == 1
    assert len(report.run.results) == 2
    failed = report.measurements[-1]
    assert (failed.kind, failed.size_bytes, failed.gbps) == ("all_gather", 1 << 20, None)
    assert failed.outcome == ("timeout" if "no answer" in words else "crashed")
    text = collectives_report.to_text(report)
    assert "Broken off in all_gather of 1 MiB: " in text
    assert words in text


def test_what_nccl_reckons_with_and_far_below_it_is_told() -> None:
    report = check(rates={"all_reduce": 2000.0, "alltoall": 100.0})
    assert report.verdict == "warn"
    assert check(rates={"all_reduce": 3000.0}).verdict == "fail"
    text = collectives_report.to_text(report)
    assert "all_reduce reaches 272.7 GB/s at 1 GiB, where NCCL's own model reckons with 2000" in text
    assert "alltoall reaches" not in text


def test_rings_over_nvlink_that_reach_half_of_the_model_are_told() -> None:
    rates = {"all_reduce": 500.0, "alltoall": 300.0}
    assert check(rates=rates).verdict == "pass"
    report = check(rates=rates, over_nvlink=True)
    assert report.verdict == "warn"
    assert [result.case.collective for result, _ in report.slow] == ["all_reduce"]
    assert check(rates={"all_reduce": 300.0}, over_nvlink=True).verdict == "pass"


def test_another_number_of_channels_than_predicted_is_told() -> None:
    report = check(channels=12)
    assert report.verdict == "warn"
    assert "Channels: 24; predicted were 12." in collectives_report.to_text(report)


def test_without_a_log_nothing_is_called_as_predicted() -> None:
    report = check(log="nothing of NCCL\n")
    assert (report.verdict, report.exit_code) == ("unknown", 0)
    assert "NCCL's log does not say all: transports and channels and rings are not known." in report.notes


@pytest.mark.parametrize(
    "instead",
    [
        "say(timed={'case': 99, 'seconds': [1.0] * 5, 'wrong': 0}); continue",
        "say(timed={'case': number, 'seconds': [0.0] * 5, 'wrong': 0}); continue",
        "say(timed={'case': number, 'seconds': [1.0], 'wrong': 0}); continue",
        "say(timed={'case': number, 'seconds': [1e300] * 5, 'wrong': 0}); continue",
        "say(timed={'case': number, 'seconds': [1e-300] * 5, 'wrong': 0}); continue",
        "say(timed={'case': number, 'seconds': [1.0] * 5, 'wrong': 1 - 2 * job['rank']}); continue",
    ],
)
def test_answers_that_cannot_be_are_a_failure(instead: str) -> None:
    report = check(before=instead)
    assert (report.run.results, report.exit_code) == ([], 1)
    assert report.run.failure


def test_ctrl_c_leaves_what_was_measured() -> None:
    stop = "number == 3 and job['rank'] == 0 and (time.sleep(1), os.kill(os.getppid(), 2), time.sleep(30))"
    report = check(before=stop)
    assert report.exit_code == 130
    assert [(each.kind, each.size_bytes) for each in report.measurements] == [
        ("all_reduce", 1 << 20),
        ("all_reduce", 1 << 30),
        ("all_gather", 1 << 20),
    ]
    text = collectives_report.to_text(report)
    assert "Interrupted: what was measured until then is shown." in text
    assert "Broken off" not in text
    assert "Verdict: unknown" in text
    assert "P2P/CUMEM on 2 of 2 connections, as predicted" in text
    told = msgspec.json.encode(collectives_report.document(report))
    assert msgspec.json.decode(told, type=Collectives).interrupted


def test_ctrl_c_before_the_first_result_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        check(before="job['rank'] == 0 and (os.kill(os.getppid(), 2), time.sleep(30))")


@pytest.mark.parametrize(
    "before", ["say(failed='ncclCommInitRank: invalid usage'); sys.exit(1)", "os.kill(os.getpid(), 11)"]
)
def test_ranks_that_die_before_the_first_result_are_a_failure(before: str) -> None:
    report = check(before=before)
    assert (report.run.results, report.exit_code) == ([], 1)
    assert "Broken off in all_reduce of 1 MiB: " in collectives_report.to_text(report)


def test_ranks_that_cannot_even_begin_are_no_measurement() -> None:
    before = "say(unable='libnccl.so.2 cannot be loaded: no such file'); sys.exit(1)"
    with pytest.raises(NothingDetermined, match="the collectives could not begin: libnccl"):
        check(before=before)


def test_the_bar_counts_cases() -> None:
    told: list[tuple[int, int, str]] = []
    script = RANK.replace("BEFORE", "pass").replace("WRONG", "0").replace("LOG", "''")
    run = group.group_of(
        ADDRESSES,
        "x",
        os.environ,
        argv=[sys.executable, "-c", script],
        deadline_s=20,
        progress=lambda *each: told.append(each),
    )
    run(group.cases(["all_reduce", "sendrecv"], [1024], 2), {}, False)
    assert told == [(1, 2, "all_reduce"), (2, 2, "sendrecv")]


def test_settings_reach_the_ranks_and_those_of_the_caller_hold(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = (
        "import json, os, sys; job = json.load(sys.stdin);"
        f"open({str(out)!r} + str(job['rank']), 'w').write(json.dumps(dict(os.environ)))"
    )
    own_log = {"NCCL_DEBUG_FILE": str(tmp_path / "own.log")}
    environ = {**os.environ, "NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "Ring", **own_log}
    run = group.group_of(ADDRESSES, "x", environ, argv=[sys.executable, "-c", script], deadline_s=20)
    run(group.cases(["all_reduce"], [1024], 2), {"NCCL_MIN_CTAS": "32", "NCCL_ALGO": None}, False)
    for rank in "01":
        seen: dict[str, Any] = json.loads((tmp_path / f"out{rank}").read_text())
        assert seen["NCCL_NVLS_ENABLE"] == "0"
        assert seen["NCCL_MIN_CTAS"] == "32"
        assert "NCCL_ALGO" not in seen
        assert seen["NCCL_DEBUG"] == "WARN"
        assert "NCCL_DEBUG_FILE" not in seen


@pytest.mark.parametrize(
    ("collective", "factor"), [("all_reduce", 1.75), ("all_gather", 0.875), ("sendrecv", 1.0), ("broadcast", 1.0)]
)
def test_bus_bandwidth_counts_as_nccl_tests_do(collective: Any, factor: float) -> None:
    assert runs.bus_factor(collective, 8) == factor


def test_the_library_is_the_one_asked_for_else_the_first_found() -> None:
    assert collectives.find_nccl(SNAPSHOT, "libnccl.so.2") == "libnccl.so.2"
    assert collectives.find_nccl(SNAPSHOT, __file__) == __file__
    with pytest.raises(InputError, match="there is no such file"):
        collectives.find_nccl(SNAPSHOT, "/opt/there/is/none/libnccl.so.2")
    found = msgspec.structs.replace(SNAPSHOT, nccl_libraries=[NcclLibrary(path="/usr/lib/libnccl.so.2")])
    assert collectives.find_nccl(found) == "/usr/lib/libnccl.so.2"
    with pytest.raises(NothingDetermined) as caught:
        collectives.find_nccl(SNAPSHOT)
    assert "nvidia-nccl-cu13" in str(caught.value.hint)


def test_what_predict_says_is_what_is_expected() -> None:
    machine = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
    found = collectives.expected(machine, [0, 1], "2.28.9", 1 << 30)
    assert found.transports == {(0, 1): "P2P"}
    assert (found.channels, found.orders) == (24, [[0, 1]] * 12)
    assert found.rates.keys() == set(COLLECTIVES)
    assert 200 < found.rates["all_reduce"] < 400
    assert collectives.expected(machine, [0, 7], "2.28.9", 1 << 30) == Expected()
    assert collectives.expected(Snapshot(), [0, 1], "2.28.9", 1 << 30) == Expected()
