"""Verify from end to end over fake children: hangs, crashes, Ctrl-C, missing parts, saving."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import networkx as nx
import pytest

from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.snapshot import Driver, Gpu, Measurement, PcieLink, Snapshot, encode, save
from topoadvisor.topology.model import Pair, Topology
from topoadvisor.verify.child import Converse, End, converse_with
from topoadvisor.verify.messages import Busy, Copied, Job, Line, Look, Step
from topoadvisor.verify.report import document, to_text
from topoadvisor.verify.run import Options, Report, base_for, verify, with_measurements

OPTIONS = Options(size_bytes=512 << 20, repeats=5, deadline_s=20)
DONE = End("finished", "")
SPEED: dict[Step, float] = {"forward": 395.8, "backward": 395.9, "both": 779.9}


def address(index: int) -> str:
    return f"0000:0{index + 1}:00.0"


def machine(n: int = 2, *, mig: Sequence[int] = (), link_class: str = "NV18") -> tuple[Snapshot, Topology]:
    gpus = [
        Gpu(
            index=i,
            name="NVIDIA H200",
            address=address(i),
            mig=i in mig,
            pcie=PcieLink(max_gen=5, max_width=16),
        )
        for i in range(n)
    ]
    pairs = {
        (f"gpu:{a}", f"gpu:{b}"): Pair(
            f"gpu:{a}", f"gpu:{b}", link_class, "NODE", 18, True, 450.0, (), (), "nvml", False
        )
        for a, b in itertools.combinations(range(n), 2)
    }
    topology = Topology(nx.Graph(), tuple(f"gpu:{i}" for i in range(n)), (), pairs)
    return Snapshot(gpus=gpus, driver=Driver(version="580.159.04", cuda="13.0")), topology


def look(n: int = 8, **more: object) -> Look:
    return Look(cupy="14.2.0", runtime="13.2", driver="13.0", addresses=[address(i) for i in range(n)], **more)  # type: ignore[arg-type]


def good(step: Step) -> Copied:
    gbps = [SPEED[step] - 1, SPEED[step], SPEED[step], SPEED[step], SPEED[step] + 1]
    return Copied(step=step, outcome="ok", gbps=gbps, size_bytes=512 << 20, peer_access=True, checked="device")


def children(
    copy: Callable[[Job, Callable[[Line], None]], End] | None = None, answer: Look | None = None
) -> tuple[Converse, list[Job]]:
    """Children that answer well, unless `copy` does something else."""
    jobs: list[Job] = []

    def converse(job: Job, deadline_s: float, hear: Callable[[Line], None]) -> End:
        jobs.append(job)
        if job.task == "look":
            hear(Line(look=answer or look()))
            return DONE
        if copy is not None:
            return copy(job, hear)
        for step in job.steps:
            hear(Line(begin=step))
            hear(Line(copied=good(step)))
        return DONE

    return converse, jobs


def measure(n: int = 2, converse: Converse | None = None, **more: object) -> Report:
    snapshot, topology = machine(n, **more)  # type: ignore[arg-type]
    return verify(snapshot, topology, OPTIONS, converse=converse or children()[0], date="2026-11-29T12:00:00+00:00")


def outcomes(report: Report) -> dict[str, str]:
    return {measurement.subject: measurement.outcome for measurement in report.measurements}


def test_two_healthy_gpus() -> None:
    converse, jobs = children()
    report = measure(2, converse)
    assert [job.task for job in jobs] == ["look", "copy"]
    assert (jobs[1].first, jobs[1].second, jobs[1].repeats) == ("0000:01:00.0", "0000:02:00.0", 5)
    first = report.measurements[0]
    assert (first.kind, first.subject, first.gbps, first.data_ok) == ("peer-copy", "gpu:0>gpu:1", 395.8, True)
    assert first.spread == pytest.approx(2 / 395.8, abs=1e-4)
    assert (first.driver, first.date, first.size_bytes) == ("580.159.04", "2026-11-29T12:00:00+00:00", 512 << 20)
    assert [m.kind for m in report.measurements] == ["peer-copy", "peer-copy", "peer-copy-both"]
    assert report.measurements[2].subject == "gpu:0<>gpu:1"
    assert [pair.verdict for pair in report.pairs] == ["pass"]
    assert report.exit_code == 0


def test_every_unordered_pair_is_measured_once() -> None:
    converse, jobs = children()
    report = measure(4, converse)
    assert len([job for job in jobs if job.task == "copy"]) == 6
    assert len(report.measurements) == 18


@pytest.mark.parametrize("stuck", ["forward", "backward", "both"])
def test_one_step_that_hangs_costs_only_itself(stuck: Step) -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            hear(Line(begin=step))
            if step == stuck:
                return End("timeout", "no answer for 20 s")
            hear(Line(copied=good(step)))
        return DONE

    report = measure(2, children(copy)[0])
    subject = {"forward": "gpu:0>gpu:1", "backward": "gpu:1>gpu:0", "both": "gpu:0<>gpu:1"}[stuck]
    assert outcomes(report) == {
        "gpu:0>gpu:1": "ok",
        "gpu:1>gpu:0": "ok",
        "gpu:0<>gpu:1": "ok",
        subject: "timeout",
    }
    assert report.exit_code == 1
    assert "never ended" in str(report.pairs[0].cause)


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed"),
        ("print('what?')", "crashed"),
        ("pass", "crashed"),
        ("import time; time.sleep(600)", "timeout"),
    ],
)
def test_real_children_that_never_get_going(script: str, outcome: str) -> None:
    real = converse_with([sys.executable, "-c", script], os.environ)

    def converse(job: Job, deadline_s: float, hear: Callable[[Line], None]) -> End:
        return children()[0](job, deadline_s, hear) if job.task == "look" else real(job, 1.5, hear)

    report = measure(2, converse)
    assert set(outcomes(report).values()) == {outcome}
    assert report.exit_code == 1


def test_wrong_data_fails() -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            wrong = Copied(step=step, outcome="wrong-data", gbps=[400.0], size_bytes=1 << 29, note="100% is wrong")
            hear(Line(copied=wrong if step == "backward" else good(step)))
        return DONE

    report = measure(2, children(copy)[0])
    by_subject = {m.subject: m for m in report.measurements}
    assert by_subject["gpu:1>gpu:0"].data_ok is False
    assert report.exit_code == 1
    assert "wrong-data" in to_text(report)


def test_an_error_gives_the_other_steps_a_new_process() -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        step = job.steps[0]
        hear(Line(begin=step))
        if step == "forward":
            hear(Line(copied=Copied(step=step, outcome="error", note="cudaErrorIllegalAddress")))
            return End("crashed", "exit code 1")
        hear(Line(copied=good(step)))
        return DONE

    assert outcomes(measure(2, children(copy)[0])) == {
        "gpu:0>gpu:1": "error",
        "gpu:1>gpu:0": "ok",
        "gpu:0<>gpu:1": "ok",
    }


def test_nothing_measured_exits_3() -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            hear(Line(copied=Copied(step=step, outcome="skipped", note="GPU memory is full")))
        return DONE

    report = measure(2, children(copy)[0])
    assert report.exit_code == 3
    assert "GPU memory is full" in to_text(report)


def test_interrupt_keeps_what_was_measured() -> None:
    calls = []

    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        calls.append(job)
        hear(Line(copied=good("forward")))
        if len(calls) == 3:
            raise KeyboardInterrupt
        hear(Line(copied=good("backward")))
        hear(Line(copied=good("both")))
        return DONE

    report = measure(4, children(copy)[0])
    assert report.exit_code == 130
    assert len(report.measurements) == 7
    assert len(report.pairs) == 3
    assert "Interrupted" in to_text(report)


@pytest.mark.parametrize(
    ("n", "more", "answer", "words"),
    [
        (0, {}, None, "no NVIDIA GPU"),
        (1, {}, None, "one GPU"),
        (2, {"mig": [1]}, None, "MIG is on for GPU1"),
        (2, {}, Look(missing="cupy"), "CuPy is not installed"),
        (2, {}, Look(cupy="14.2.0", missing="CUDA does not work here (no device)"), "CUDA does not work here"),
        (2, {}, look(1), "GPU1 left out"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_sentence(
    n: int, more: dict[str, object], answer: Look | None, words: str
) -> None:
    with pytest.raises(NothingDetermined) as caught:
        measure(n, children(answer=answer)[0], **more)
    assert words in caught.value.message
    assert caught.value.exit_code == 3


def test_missing_cupy_names_the_package_for_the_driver() -> None:
    snapshot, topology = machine()
    for cuda, package in (("13.0", "cupy-cuda13x"), ("12.4", "cupy-cuda12x")):
        older = msgspec.structs.replace(snapshot, driver=Driver(cuda=cuda))
        with pytest.raises(NothingDetermined) as caught:
            verify(older, topology, OPTIONS, converse=children(answer=Look(missing="cupy"))[0], date="")
        assert caught.value.hint == f"pip install {package}"


def test_cuda_that_does_not_answer_is_said() -> None:
    with pytest.raises(NothingDetermined, match="no answer for 20 s"):
        measure(2, lambda job, deadline_s, hear: End("timeout", "no answer for 20 s"))


def test_gpus_left_out_and_in_use_are_noted() -> None:
    busy = Busy(address=address(0), processes=1, utilization=90)
    report = measure(4, children(answer=look(3, busy=[busy]))[0], mig=[1])
    notes = " ".join(report.notes)
    assert "GPU1 left out: MIG is on." in notes
    assert "GPU3 left out: CUDA does not show it" in notes
    assert "GPU0 is in use by 1 other process (90 % busy)" in notes
    assert [(pair.pair.a, pair.pair.b) for pair in report.pairs] == [(0, 2)]


def test_text_report_has_a_row_per_pair_and_the_method() -> None:
    text = to_text(measure(2))
    row = next(line for line in text.splitlines() if line.startswith("GPU0 GPU1"))
    assert row.split() == ["GPU0", "GPU1", "NV18", "395.8", "395.9", "779.9", "396", "/", "780", "pass"]
    assert "driver 580.159.04; 512 MiB buffers, median of 5" in text
    assert "CuPy 14.2.0, CUDA runtime 13.2" in text


def test_json_report() -> None:
    told = msgspec.json.decode(msgspec.json.encode(document(measure(2))))
    assert told["schema"] == "topoadvisor.verify/1"
    pair = told["pairs"][0]
    assert (pair["gpus"], pair["verdict"], pair["forward"]["gbps"]) == ([0, 1], "pass", 395.8)
    assert pair["expected"]["expected_uni"] == 396.0


def test_saving_replaces_only_what_was_measured_again(tmp_path: Path) -> None:
    snapshot, _ = machine()
    old = [
        Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=1.0),
        Measurement(kind="all-reduce", subject="node", gbps=326.0),
    ]
    path = tmp_path / "node.json"
    saved = msgspec.structs.replace(snapshot, measurements=old, origin="earlier")
    save(saved, path)
    base = base_for(path, snapshot)
    assert base == saved
    merged = with_measurements(base, measure(2).measurements)
    assert merged.origin == "earlier"
    assert [(m.kind, m.gbps) for m in merged.measurements] == [
        ("all-reduce", 326.0),
        ("peer-copy", 395.8),
        ("peer-copy", 395.9),
        ("peer-copy-both", 779.9),
    ]


def test_saving_needs_a_snapshot_of_this_machine_or_a_new_name(tmp_path: Path) -> None:
    snapshot, _ = machine()
    assert base_for(tmp_path / "new.json", snapshot) == snapshot
    other = tmp_path / "other.json"
    other.write_bytes(encode(machine(3)[0]))
    with pytest.raises(InputError, match="other GPUs"):
        base_for(other, snapshot)
    broken = tmp_path / "notes.txt"
    broken.write_text("nothing of ours")
    with pytest.raises(InputError):
        base_for(broken, snapshot)
    assert broken.read_text() == "nothing of ours"
    with pytest.raises(InputError, match="folder"):
        base_for(tmp_path / "no" / "such.json", snapshot)
