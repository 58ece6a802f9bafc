"""Verify from end to end over fake children: hangs, crashes, Ctrl-C, missing parts, saving."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from fake_children import DONE, OPTIONS, address, children, good, look, machine, measure
from made_trials import size, trial

from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.ingest import detect
from topoadvisor.measurements.model import Measurement, Trial
from topoadvisor.snapshot import Driver, Snapshot, decode, encode, save
from topoadvisor.topology import graph
from topoadvisor.verify import run
from topoadvisor.verify.child import End, converse_with
from topoadvisor.verify.documents import Links
from topoadvisor.verify.messages import Busy, Job, Line, Look, Measured
from topoadvisor.verify.report import document, to_text
from topoadvisor.verify.run import Report, base_for, verify, with_measurements, with_trials
from topoadvisor.verify.selection import Options


def outcomes(report: Report, kinds: Sequence[str] = ("peer-copy", "peer-copy-both")) -> dict[str, str]:
    return {each.subject: each.outcome for each in report.measurements if each.kind in kinds}


def test_two_healthy_gpus() -> None:
    converse, jobs = children()
    report = measure(2, converse)
    assert [job.task for job in jobs] == ["look", "measure"]
    first = report.measurements[0]
    assert (first.kind, first.subject, first.gbps, first.data_ok) == ("peer-copy", "gpu:0>gpu:1", 395.8, True)
    assert first.spread == pytest.approx(0.004, abs=1e-4)
    assert (first.driver, first.date, first.size_bytes) == ("580.159.04", "2026-11-29T12:00:00+00:00", 512 << 20)
    assert "CuPy 14.2.0, CUDA runtime 13.2" in str(first.method)
    found = {(each.kind, each.subject): each for each in report.measurements}
    assert found["peer-copy-both", "gpu:0<>gpu:1"].gbps == 779.9
    assert found["peer-copy-both", "gpu:0<>gpu:1"].slowest_gbps == pytest.approx(390, abs=0.1)
    assert found["peer-latency", "gpu:1>gpu:0"].latency_us == 2.1
    assert found["staged-copy", "gpu:0>gpu:1"].gbps == 39.0
    assert found["host-copy", "host>gpu:1"].gbps == 55.2
    assert found["host-copy", "gpu:0>host"].size_bytes == 256 << 20
    assert [each.verdict for each in (*report.pairs, *report.hosts)] == ["pass"] * 3
    assert report.exit_code == 0


def test_quick_is_one_child_and_full_one_for_each_pair() -> None:
    converse, jobs = children()
    quick = measure(4, converse)
    assert len(jobs) == 2
    assert len({step.name for step in jobs[1].steps}) == len(jobs[1].steps) == len(quick.measurements)

    converse, jobs = children()
    full = measure(4, converse, Options(size_bytes=1 << 30, repeats=11, deadline_s=20, full=True))
    assert len(jobs) == 1 + 6 + 1 + 1
    kinds = {each.kind for each in full.measurements}
    assert kinds - {each.kind for each in quick.measurements} == {
        "peer-read",
        "peer-read-both",
        "kernel-copy",
        "kernel-copy-both",
    }
    assert sum(each.kind == "staged-copy" for each in full.measurements) == 6
    assert sum(each.kind == "staged-copy" for each in quick.measurements) == 1
    assert "kernel" in to_text(full)


def test_what_runs_at_once_is_measured_where_more_than_two_gpus_meet() -> None:
    report = measure(4)
    patterns = [(each.measured.kind, each.measured.subject) for each in report.patterns]
    assert patterns == [
        ("ring-copy", "gpu:0>gpu:1>gpu:2>gpu:3>gpu:0"),
        ("switch-copy", "gpu:0,gpu:1,gpu:2,gpu:3"),
    ]
    assert "ring GPU0 → GPU1 → GPU2 → GPU3 → GPU0" in to_text(report)
    assert measure(2).patterns == []


def test_one_gpu_is_measured_against_the_host_and_that_is_said() -> None:
    report = measure(1)
    assert {each.kind for each in report.measurements} == {"host-copy", "host-copy-both"}
    assert "There is one GPU to measure" in to_text(report)
    assert report.exit_code == 0


def hanging(*stuck: str) -> Callable[[Job, Callable[[Line], None]], End]:
    """Children that never come back from steps whose names begin so."""

    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            hear(Line(begin=step.name))
            if step.name.startswith(stuck):
                return End("timeout", "no answer for 20 s")
            hear(Line(measured=good(step)))
        return DONE

    return copy


@pytest.mark.parametrize("stuck", ["peer-copy gpu:0>gpu:1", "peer-copy gpu:1>gpu:0", "peer-copy-both gpu:0<>gpu:1"])
def test_one_step_that_hangs_costs_only_itself(stuck: str) -> None:
    report = measure(2, children(hanging(stuck))[0])
    subject = stuck.split()[1]
    assert outcomes(report) == {
        "gpu:0>gpu:1": "ok",
        "gpu:1>gpu:0": "ok",
        "gpu:0<>gpu:1": "ok",
        subject: "timeout",
    }
    assert report.exit_code == 1
    assert "never ended" in str(report.pairs[0].cause)


def test_a_pair_that_always_hangs_costs_two_deadlines_and_no_other_pair() -> None:
    converse, jobs = children(hanging("peer-copy gpu:0>gpu:1", "peer-copy gpu:1>gpu:0", "peer-copy-both gpu:0<>gpu:1"))
    report = measure(3, converse)
    assert [(pair.pair.a, pair.pair.b, pair.verdict) for pair in report.pairs] == [
        (0, 1, "fail"),
        (0, 2, "pass"),
        (1, 2, "pass"),
    ]
    assert len(jobs) == 1 + 3
    assert [each.verdict for each in report.hosts] == ["pass"] * 3


def test_a_machine_on_which_nothing_comes_back_is_given_up() -> None:
    converse, jobs = children(lambda job, hear: End("timeout", "no answer for 20 s"))
    report = measure(8, converse)
    assert len(jobs) == 1 + 4
    assert {each.outcome for each in report.measurements} == {"timeout", "skipped"}
    assert report.exit_code == 1


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
    assert set(outcomes(report).values()) == {outcome, "skipped"}
    assert report.exit_code == 1


def test_wrong_data_fails() -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            measured = good(step)
            if step.name == "peer-copy gpu:1>gpu:0":
                measured = msgspec.structs.replace(measured, outcome="wrong-data", note="100% is wrong")
            hear(Line(measured=measured))
        return DONE

    report = measure(2, children(copy)[0])
    found = {(each.kind, each.subject): each for each in report.measurements}
    assert found["peer-copy", "gpu:1>gpu:0"].data_ok is False
    assert report.exit_code == 1
    assert "wrong-data" in to_text(report)


def test_an_error_gives_the_other_steps_a_new_process() -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        step = job.steps[0]
        hear(Line(begin=step.name))
        if step.name == "peer-copy gpu:0>gpu:1":
            hear(Line(measured=Measured(name=step.name, outcome="error", note="cudaErrorIllegalAddress")))
            return End("crashed", "exit code 1")
        hear(Line(measured=good(step)))
        return DONE

    assert outcomes(measure(2, children(copy)[0])) == {
        "gpu:0>gpu:1": "error",
        "gpu:1>gpu:0": "ok",
        "gpu:0<>gpu:1": "ok",
    }


def test_nothing_measured_exits_3() -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            hear(Line(measured=Measured(name=step.name, outcome="skipped", note="GPU memory is full")))
        return DONE

    report = measure(2, children(copy)[0])
    assert report.exit_code == 3
    assert "GPU memory is full" in to_text(report)


@pytest.mark.parametrize(("left_out", "code"), [("peer-copy-both gpu:0<>gpu:1", 1), ("kernel-copy gpu:0>gpu:1", 0)])
def test_a_link_that_could_not_be_measured_is_no_success(left_out: str, code: int) -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            skipped = Measured(name=step.name, outcome="skipped", note="GPU memory is full")
            hear(Line(measured=skipped if step.name == left_out else good(step)))
        return DONE

    full = Options(size_bytes=512 << 20, repeats=5, deadline_s=20, full=True)
    assert measure(2, children(copy)[0], full).exit_code == code


def test_interrupt_keeps_what_was_measured() -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps[:7]:
            hear(Line(measured=good(step)))
        raise KeyboardInterrupt

    report = measure(4, children(copy)[0])
    assert report.exit_code == 130
    assert len(report.measurements) == 7
    assert len(report.pairs) == 1
    assert "Interrupted" in to_text(report)


def test_progress_counts_steps() -> None:
    told: list[tuple[int, int, str]] = []
    snapshot, topology = machine(2)
    converse = children()[0]
    verify(snapshot, topology, OPTIONS, converse=converse, date="2026-11-30", progress=lambda *step: told.append(step))
    assert told[1] == (0, 13, "peer-copy gpu:0>gpu:1")
    assert [done for done, _, _ in told[1:]] == list(range(13))


@pytest.mark.parametrize(
    ("n", "more", "answer", "words"),
    [
        (0, {}, None, "no NVIDIA GPU"),
        (2, {"mig": [0, 1]}, None, "MIG is on for GPU0, GPU1"),
        (2, {}, Look(missing="cupy"), "CuPy is not installed"),
        (2, {}, Look(cupy="14.2.0", missing="CUDA does not work here (no device)"), "CUDA does not work here"),
        (2, {}, look(0), "GPU0, GPU1 left out"),
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
            verify(older, topology, OPTIONS, converse=children(answer=Look(missing="cupy"))[0], date="2026-11-30")
        assert caught.value.hint == f"pip install {package}"


def test_cuda_that_does_not_answer_is_said() -> None:
    with pytest.raises(NothingDetermined, match="no answer for 20 s"):
        measure(2, lambda job, deadline_s, hear: End("timeout", "no answer for 20 s"))


def test_gpus_left_out_and_in_use_are_noted() -> None:
    busy = [
        Busy(address=address(0), processes=1, utilization=90),
        Busy(address=address(2), processes=0, utilization=0, used_bytes=60 << 30),
    ]
    report = measure(4, children(answer=look(3, busy=busy))[0], mig=[1])
    notes = " ".join(report.notes)
    assert "GPU1 left out: MIG is on." in notes
    assert "GPU3 left out: CUDA does not show it" in notes
    assert "GPU0 is in use by 1 other process (90 % busy)" in notes
    assert "GPU2 is in use by somebody else (0 % busy, 60 GiB of its memory held)" in notes
    assert [(pair.pair.a, pair.pair.b) for pair in report.pairs] == [(0, 2)]


def test_how_copies_were_made_is_told_where_it_was_not_as_planned() -> None:
    note = "the host buffers could not be placed near the GPU"

    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            hear(Line(begin=step.name))
            told = note if step.name.startswith("host-copy ") else None
            hear(Line(measured=msgspec.structs.replace(good(step), note=told)))
        return DONE

    text = to_text(measure(2, children(copy)[0]))
    assert f"the host → GPU0, GPU0 → the host, the host → GPU1, GPU1 → the host: {note}." in text


def test_text_report_has_a_row_per_pair_and_the_method() -> None:
    text = to_text(measure(2))
    row = next(line for line in text.splitlines() if line.startswith("GPU0 GPU1"))
    assert row.split() == [
        "GPU0",
        "GPU1",
        "NV18",
        "395.8",
        "395.8",
        "779.9",
        "2.1",
        "39.0",
        "?",
        "396",
        "/",
        "780",
        "pass",
    ]
    assert "GPU1  Gen5 x16    55.2      55.2  98.0  55        pass" in text
    assert "driver 580.159.04; 512 MiB and 256 MiB buffers, median of 5" in text
    assert "CuPy 14.2.0, CUDA runtime 13.2" in text


def test_spreads_are_reported_of_batches_and_of_each_class() -> None:
    assert "median of 5 that lie up to 0.4% apart" in to_text(measure(2))

    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            hear(Line(begin=step.name))
            found = good(step)
            if step.name == "peer-copy gpu:0>gpu:2":
                found = msgspec.structs.replace(found, seconds=[each * 1.02 for each in found.seconds])
            hear(Line(measured=found))
        return DONE

    text = to_text(measure(3, children(copy)[0]))
    assert "NV18: 388.0 to 395.8 GB/s over 6 directions, a spread of 2.0" in text


def test_json_report() -> None:
    told = msgspec.json.decode(msgspec.json.encode(document(measure(2))), type=Links)
    assert told.schema == "topoadvisor.verify/1"
    pair = told.pairs[0]
    assert pair.forward is not None
    assert pair.expected is not None
    assert (pair.gpus, pair.verdict, pair.forward.gbps) == ((0, 1), "pass", 395.8)
    assert pair.expected.expected_uni == 396.0


def test_a_new_trial_replaces_the_one_of_the_same_settings_over_the_same_gpus() -> None:
    old = [Trial(settings={"NCCL_ALGO": "ring"}, gpus=[0, 1, 2, 3], rounds=8)]
    some = with_trials(Snapshot(trials=old), [Trial(settings={"NCCL_ALGO": "ring"}, gpus=[0, 1], rounds=9)])
    assert [trial.rounds for trial in some.trials] == [8, 9]
    again = with_trials(some, [Trial(settings={"NCCL_ALGO": "ring"}, gpus=[0, 1], rounds=10)])
    assert [trial.rounds for trial in again.trials] == [8, 10]


def test_answers_that_cannot_be_count_as_none() -> None:
    lies = [
        lambda m: msgspec.structs.replace(m, seconds=[]),
        lambda m: msgspec.structs.replace(m, flow_seconds=[1.0] * 7),
        lambda m: msgspec.structs.replace(m, size_bytes=0),
        lambda m: msgspec.structs.replace(m, seconds=[1e-300] * 5),
        lambda m: msgspec.structs.replace(m, seconds=[1e-6, 1e-6, 1e-6, 1e-6, 1e5]),
        lambda m: msgspec.structs.replace(m, size_bytes=1 << 45),
        lambda m: msgspec.structs.replace(m, seconds=[1.0] * 5, flow_seconds=[1e-3] * len(m.flow_seconds)),
    ]
    for lie in lies:

        def copy(job: Job, hear: Callable[[Line], None], lie: Callable[[Measured], Measured] = lie) -> End:
            for step in job.steps:
                hear(Line(begin=step.name))
                hear(Line(measured=lie(good(step)) if step.name == "peer-copy-both gpu:0<>gpu:1" else good(step)))
            return DONE

        report = measure(2, children(copy)[0])
        assert outcomes(report)["gpu:0<>gpu:1"] == "crashed"
        assert report.exit_code == 1


def test_saving_keeps_what_a_later_run_does_not_replace() -> None:
    large = Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=300.0, size_bytes=1 << 30)
    small = Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=70.0, size_bytes=1 << 20)
    pair = Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=396.0, size_bytes=1 << 29)
    skipped = msgspec.structs.replace(pair, gbps=None, outcome="skipped")
    assert with_measurements(Snapshot(measurements=[large, pair]), [small, skipped]).measurements == [
        large,
        pair,
        small,
    ]
    won = Trial(settings={"NCCL_ALGO": "ring"}, gpus=[0, 1], sizes=[size(0.05)], rounds=8, keep=True)
    interrupted = Trial(settings={"NCCL_ALGO": "ring"}, gpus=[0, 1], sizes=[size(0.05, verdict="unknown")], rounds=1)
    assert with_trials(Snapshot(trials=[won]), [interrupted]).trials == [won]
    assert with_trials(Snapshot(trials=[interrupted]), [won]).trials == [won]


def test_a_snapshot_of_another_driver_is_told_about(tmp_path: Path) -> None:
    live, _ = machine()
    old = msgspec.structs.replace(live, driver=Driver(version="535.1.1"))
    path = tmp_path / "node.json"
    assert run.save(path, live) == [f"Saved into {path}."]
    save(old, path)
    assert "captured with driver 535.1.1, and this is 580.159.04" in run.save(path, live)[1]


def test_what_won_beside_failures_is_told_about(tmp_path: Path) -> None:
    live, _ = machine()
    path = tmp_path / "node.json"
    run.save(path, live, measurements=[Measurement(kind="peer-copy", subject="gpu:0>gpu:1", outcome="timeout")])
    assert run.save(path, live, trials=[trial()])[1:] == [
        "What won is not advised while measurements in it fail (peer-copy GPU0 → GPU1: timeout): repair that and "
        "verify anew."
    ]
    assert run.save(path, live, trials=[trial(keep=False)])[1:] == []


def test_what_others_saved_meanwhile_stays(tmp_path: Path) -> None:
    live, _ = machine()
    path = tmp_path / "node.json"
    one = Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=396.0)
    run.save(path, live, measurements=[one])
    run.save(path, live, trials=[Trial(settings={"NCCL_ALGO": "ring"}, gpus=[0, 1], rounds=8)])
    saved = decode(path.read_bytes())
    assert (saved.measurements, len(saved.trials)) == ([one], 1)


def test_a_newer_trial_replaces_an_older_one_at_the_same_sizes_in_whatever_order_the_gpus_are() -> None:
    settings: dict[str, str | None] = {"NCCL_ALGO": "ring"}
    old = Trial(settings=settings, gpus=[0, 1], sizes=[size(0.05)], rounds=8, keep=True)
    new = Trial(settings=settings, gpus=[1, 0], sizes=[size(-0.05)], rounds=8)
    assert with_trials(Snapshot(trials=[old]), [new]).trials == [new]
    assert not with_trials(Snapshot(trials=[old]), [new]).trials[0].won


def test_what_an_interrupted_trial_left_open_is_not_added() -> None:
    settings: dict[str, str | None] = {"NCCL_ALGO": "ring"}
    stopped = Trial(settings=settings, gpus=[0, 1], sizes=[size(0.05, 1 << 20, verdict="unknown")], rounds=1)
    done = Trial(settings=settings, gpus=[0, 1], sizes=[size(0.05)], rounds=8)
    assert with_trials(Snapshot(trials=[stopped]), [done]).trials == [done]


def test_a_trial_at_other_sizes_adds_to_the_one_before() -> None:
    wide = Trial(settings={"NCCL_ALGO": "ring"}, gpus=[0, 1], sizes=[size(0.05, 1 << 26)], rounds=8, keep=True)
    narrow = Trial(settings={"NCCL_ALGO": "ring"}, gpus=[0, 1], sizes=[size(0.0, 1 << 16)], rounds=4)
    merged = with_trials(Snapshot(trials=[wide]), [narrow]).trials
    assert [(each.size_bytes, each.verdict) for each in merged[0].sizes] == [
        (1 << 16, "no difference"),
        (1 << 26, "faster"),
    ]
    assert (merged[0].keep, merged[0].rounds) == (True, 4)
    other = msgspec.structs.replace(narrow, driver="600.1")
    assert with_trials(Snapshot(trials=[wide]), [other]).trials == [other]


def test_trials_under_other_variables_stand_beside_each_other() -> None:
    wide = Trial(
        settings={"NCCL_MIN_CTAS": "32"}, gpus=[0, 1], sizes=[size(0.05, 1 << 26)], rounds=8, keep=True, variables={}
    )
    other = msgspec.structs.replace(wide, sizes=[size(0.0, 1 << 16)], keep=False, variables={"NCCL_ALGO": "Tree"})
    assert with_trials(Snapshot(trials=[wide]), [other]).trials == [wide, other]


def test_a_place_where_nothing_can_be_written_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*, dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr(run.tempfile, "TemporaryFile", refuse)
    with pytest.raises(InputError, match="nothing can be written beside this file: Permission denied"):
        base_for(tmp_path / "node.json", machine()[0])


def test_saving_replaces_only_what_was_measured_again(tmp_path: Path) -> None:
    snapshot, _ = machine()
    old = [
        Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=1.0),
        Measurement(kind="all_gather", subject="gpu:0,gpu:1", gbps=326.0),
    ]
    path = tmp_path / "node.json"
    saved = msgspec.structs.replace(snapshot, measurements=old, origin="earlier")
    save(saved, path)
    base = base_for(path, snapshot)
    assert base == saved
    merged = with_measurements(base, measure(2).measurements)
    assert merged.origin == "earlier"
    assert [(m.kind, m.gbps) for m in merged.measurements][:4] == [
        ("all_gather", 326.0),
        ("peer-copy", 395.8),
        ("peer-copy", 395.8),
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
    unsound = tmp_path / "unsound.json"
    save(msgspec.structs.replace(snapshot, trials=[Trial(settings={"NCCL_ALGO": "ring"}, gpus=[0, 9])]), unsound)
    with pytest.raises(InputError, match="gpus holds 9"):
        base_for(unsound, snapshot)
    assert broken.read_text() == "nothing of ours"
    with pytest.raises(InputError, match="folder"):
        base_for(tmp_path / "no" / "such.json", snapshot)


def test_what_nccl_chooses_by_a_wrong_constant_is_said() -> None:
    """Half the links of two H200 are down; NCCL does not know."""
    here = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())

    def slow(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            told = good(step)
            hear(Line(measured=msgspec.structs.replace(told, seconds=[2 * each for each in told.seconds])))
        return DONE

    addresses = [gpu.address or "" for gpu in here.gpus]
    seen = Look(cupy="14.2.0", runtime="13.2", driver="13.0", addresses=addresses)
    report = verify(here, graph.build(here), OPTIONS, converse=children(slow, seen)[0], date="2026-11-30")
    told = next(note for note in report.notes if note.startswith("NCCL plans with"))
    assert "By that NCCL 2.28.9 chooses 12 rings of 30 GB/s, as `topoadvisor predict` shows." in told
