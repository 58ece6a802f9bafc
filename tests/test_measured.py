"""What measurements and trials of a snapshot turn into: lines on the screen, and tuning that won."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from made_trials import WON, size, trial

from topoadvisor import advise, measured
from topoadvisor.emit import nccl_conf, selection, shell
from topoadvisor.evidence import Measurement, Trial
from topoadvisor.ingest import detect
from topoadvisor.render import scan_text
from topoadvisor.snapshot import Setting, Snapshot
from topoadvisor.topology import graph, matrix


def machine(*trials: Trial, **more: Any) -> Snapshot:
    snapshot = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
    return msgspec.structs.replace(snapshot, trials=list(trials), **more)


def test_a_setting_that_won_is_advised_as_tuning_with_its_evidence() -> None:
    advice = advise.advise(machine(trial()))
    setting = next(each for each in advice.settings if each.name == "NCCL_MIN_CTAS")
    assert (setting.action, setting.value, setting.setting_class, setting.rule) == ("set", "32", "tuning", "trial")
    assert setting.reason == (
        "measured on this machine: all_reduce faster at 2 sizes (+4.5 to +5.0 %), slower at none, 8 rounds, 2026-11-30"
    )
    assert setting.nccl == "==2.28.9"
    assert setting.cost == "32 channels instead of 24"
    assert advice.set_nothing is None


def test_it_is_written_only_when_tuning_is_asked_for() -> None:
    advice = advise.advise(machine(trial()))
    assert selection.select(advice, frozenset(), "2.28.9").chosen == ()
    chosen = selection.select(advice, frozenset({"tuning"}), "2.28.9").chosen
    assert [(each.name, each.value) for each in chosen] == [("NCCL_MIN_CTAS", "32")]
    assert selection.select(advice, frozenset({"tuning"}), "2.30.7").chosen == ()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"nccl": "2.20.5"}, "won a trial with NCCL 2.20.5"),
        ({"driver": "550.54.15"}, "won a trial with driver 550.54.15"),
    ],
)
def test_a_trial_of_another_nccl_or_driver_does_not_count(other: dict[str, str], words: str) -> None:
    advice = advise.advise(machine(trial(**other)))
    assert not any(each.name == "NCCL_MIN_CTAS" for each in advice.settings)
    assert any(words in note and "prove it again" in note for note in advice.notes)


def test_what_did_not_win_is_not_advised() -> None:
    lost = trial(keep=False)
    assert not any(each.name == "NCCL_MIN_CTAS" for each in advise.advise(machine(lost)).settings)


@pytest.mark.parametrize(
    "more",
    [
        {"failure": "it crashed"},
        {"sizes": []},
        {"sizes": WON[:1]},
        {"sizes": [*WON, size(-0.3, 8)]},
    ],
)
def test_a_mark_to_keep_it_is_not_enough(more: dict[str, Any]) -> None:
    advice = advise.advise(machine(trial(**more)))
    assert not any(each.name == "NCCL_MIN_CTAS" for each in advice.settings)
    assert any(line.startswith("NCCL_MIN_CTAS=32: ") for line in advice.measured)


def test_what_was_not_decided_is_said_with_the_advice() -> None:
    open_end = size(0.05, collective="all_gather", verdict="unknown")
    settings, _, _ = measured.proven(
        machine(trial(sizes=[*WON, open_end], rounds=4)), version="2.28.9", taken=(), gpus=(0, 1)
    )
    assert settings[0].reason == (
        "measured on this machine: all_reduce faster at 2 sizes (+4.5 to +5.0 %), slower at none, "
        "not decided at 1 size, 4 rounds, 2026-11-30"
    )


@pytest.mark.parametrize("name", ["CUDA_DEVICE_MAX_CONNECTIONS", "LD_PRELOAD"])
def test_a_variable_that_others_read_goes_to_the_shell(name: str) -> None:
    advice = advise.advise(machine(trial(settings={name: "1"})))
    assert name in [each.name for each in advice.settings]
    tuning: Any = frozenset({"tuning"})
    block = nccl_conf.render(advice, tuning, "2.28.9")
    assert f"{name}=" not in block
    assert f"Not written: {name} [trial]" in block
    assert "`topoadvisor emit shell` writes it" in " ".join(block.replace("#", " ").split())
    assert f"export {name}=1" in shell.render(advice, tuning, "2.28.9")


def test_where_measurements_stand_above_them_rings_are_said_to_be_on_paper() -> None:
    run = Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=395.9)
    snapshot = machine(measurements=[run])
    table = matrix.shown(snapshot, graph.build(snapshot))
    plain, told = (scan_text.render(advise.advise(each), table) for each in (machine(measurements=[]), snapshot))
    assert "450 GB/s together, proven" in plain
    assert "450 GB/s together on paper, proven" in told
    assert "`topoadvisor rings --model measured`" in told
    assert "on paper" not in plain


def small_gain(**more: Any) -> Trial:
    sizes = [size(0.02)]
    return trial(settings={"NCCL_ALGO": "Ring"}, sizes=sizes, date="2026-12-01T12:00:00+00:00", **more)


def advised(*trials: Trial) -> tuple[list[str], list[str]]:
    settings, _, notes = measured.proven(machine(*trials), version="2.28.9", taken=(), gpus=(0, 1))
    return [each.name for each in settings], notes


def test_of_winners_that_were_not_tried_together_the_better_one_is_advised() -> None:
    names, notes = advised(trial(), small_gain())
    assert names == ["NCCL_MIN_CTAS"]
    assert notes == [
        "NCCL_ALGO=Ring won a trial too, and gained no more than NCCL_MIN_CTAS=32; together they were not tried: "
        "`topoadvisor prove NCCL_MIN_CTAS=32 NCCL_ALGO=Ring`."
    ]


def test_winners_that_were_tried_together_are_advised_together_only_when_that_won() -> None:
    both = {"NCCL_MIN_CTAS": "32", "NCCL_ALGO": "Ring"}
    names, notes = advised(trial(), small_gain(), trial(settings=both, sizes=WON[1:]))
    assert (names, notes) == (["NCCL_MIN_CTAS", "NCCL_ALGO"], [])
    names, notes = advised(trial(), small_gain(), trial(settings=both, keep=False))
    assert names == ["NCCL_MIN_CTAS"]
    assert "together they were tried and not worth keeping" in notes[0]


def test_two_values_of_one_variable_are_not_to_be_tried_together() -> None:
    names, notes = advised(trial(), small_gain(), trial(settings={"NCCL_ALGO": "Tree"}, sizes=WON[:2]))
    assert names == ["NCCL_MIN_CTAS"]
    assert len(notes) == 2
    two = trial(settings={"NCCL_MIN_CTAS": "64"}, sizes=WON[:2])
    assert advised(trial(), two)[1] == ["NCCL_MIN_CTAS=64 won a trial too, and gained no more than NCCL_MIN_CTAS=32."]


def test_a_winner_that_is_set_already_is_right_and_what_it_unset_is_unset() -> None:
    present = [Setting(name="NCCL_MIN_CTAS", value="32", origin="environment")]
    advice = advise.advise(machine(trial(), settings=present))
    assert any(
        "NCCL_MIN_CTAS=32, which won a trial here, is set already." in right.text for right in advice.already_right
    )
    gone = advise.advise(machine(trial(settings={"NCCL_MIN_CTAS": None}), settings=present))
    unset = next(each for each in gone.settings if each.name == "NCCL_MIN_CTAS")
    assert (unset.action, unset.where) == ("unset", "environment")


def test_a_trial_does_not_overrule_a_rule() -> None:
    settings, right, notes = measured.proven(machine(trial()), version="2.28.9", taken={"NCCL_MIN_CTAS"}, gpus=(0, 1))
    assert (settings, right) == ([], [])
    assert notes == ["NCCL_MIN_CTAS=32 won a trial, but rules decide about the variable."]


def on_a_part(**more: Any) -> Snapshot:
    """Two of the four GPUs were tried."""
    snapshot = detect.read(["fixture:4xa100-pcie"], stdin=io.BytesIO())
    return msgspec.structs.replace(snapshot, nccl_libraries=[], trials=[trial(driver=snapshot.driver.version)], **more)


def test_a_trial_over_a_part_of_the_gpus_is_shown_and_says_nothing_of_the_whole_machine() -> None:
    advice = advise.advise(on_a_part())
    assert not any(each.name == "NCCL_MIN_CTAS" for each in advice.settings)
    assert (
        "NCCL_MIN_CTAS=32 over GPU0, GPU1: faster at 2 sizes (+4.5 to +5.0 %) in a trial of 8 rounds (2026-11-30)"
        in advice.measured
    )
    assert "NCCL_MIN_CTAS=32 won a trial over GPU0, GPU1 alone: prove it over all GPUs." in advice.notes


def test_a_trial_over_the_gpus_that_are_selected_counts_for_them() -> None:
    chosen = [Setting(name="CUDA_VISIBLE_DEVICES", value="1,0", origin="environment")]
    advice = advise.advise(on_a_part(settings=chosen))
    setting = next(each for each in advice.settings if each.name == "NCCL_MIN_CTAS")
    assert setting.reason.startswith("measured on this machine over GPU0, GPU1: all_reduce faster")


def test_lines_for_the_screen() -> None:
    runs = [
        Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=395.8, date="2026-11-30T12:00:00+00:00"),
        Measurement(kind="peer-copy", subject="gpu:1>gpu:0", gbps=396.4),
        Measurement(kind="peer-copy-both", subject="gpu:0<>gpu:1", gbps=783.0),
        Measurement(kind="staged-copy", subject="gpu:0>gpu:1", gbps=39.0),
        Measurement(kind="peer-latency", subject="gpu:0>gpu:1", latency_us=2.34),
        Measurement(kind="kernel-copy", subject="gpu:0>gpu:1", gbps=370.0),
        Measurement(kind="peer-read", subject="gpu:0>gpu:1", gbps=390.0),
        Measurement(kind="ring-copy", subject="gpu:0>gpu:1>gpu:2>gpu:0", gbps=900.0, slowest_gbps=300.0),
        Measurement(kind="ring-copy", subject="gpu:0>gpu:2>gpu:1>gpu:0", outcome="skipped", note="left out"),
        Measurement(kind="switch-copy", subject="gpu:0,gpu:1,gpu:2", gbps=600.0, slowest_gbps=90.0),
        Measurement(kind="host-copy", subject="host>gpu:0", gbps=55.2),
        Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=300.0, size_bytes=1 << 28),
        Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=326.1, size_bytes=1 << 30),
        Measurement(kind="alltoall", subject="gpu:0,gpu:1", gbps=1.5, size_bytes=64 << 10),
    ]
    broke = trial(settings={"NCCL_BUFFSIZE": "8"}, failure="SIGFPE", keep=False)
    open_ends = [size(0.05, verdict="unknown")]
    stopped = trial(settings={"NCCL_ALGO": "Ring"}, sizes=open_ends, keep=False)
    snapshot = machine(trial(), broke, stopped, measurements=runs)
    assert measured.lines(snapshot, graph.build(snapshot)) == [
        "NV18 between GPUs: 395.8 to 396.4 GB/s one way, 783.0 GB/s both ways at once, 390.0 GB/s read by the target, "
        "370.0 GB/s by a kernel, 39.0 GB/s with P2P off, 2.3 µs for a small copy (2026-11-30)",
        "GPU to host memory: 55.2 GB/s one way",
        "At once all hops of the ring GPU0 → GPU1 → GPU2 → GPU0: 900.0 GB/s together, 300.0 GB/s the slowest",
        "At once all pairs of GPU0, GPU1, GPU2: 600.0 GB/s together, 90.0 GB/s the slowest",
        "all_reduce over 2 GPUs: 326.1 GB/s bus bandwidth at 1 GiB",
        "alltoall over 2 GPUs: 1.5 GB/s bus bandwidth at 64 KiB",
        "NCCL_MIN_CTAS=32: faster at 2 sizes (+4.5 to +5.0 %) in a trial of 8 rounds (2026-11-30)",
        "NCCL_BUFFSIZE=8: broke in a trial (2026-11-30)",
        "NCCL_ALGO=Ring: not decided at 1 size in a trial of 8 rounds (2026-11-30)",
    ]


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (
            Measurement(kind="peer-copy", subject="gpu:0>gpu:1", outcome="timeout"),
            "NV18 between GPUs: 1 FAILED (peer-copy GPU0 → GPU1 timeout), 396.0 GB/s one way",
        ),
        (
            Measurement(kind="peer-read", subject="gpu:0>gpu:1", outcome="wrong-data", gbps=300.0),
            "NV18 between GPUs: 1 FAILED (peer-read GPU0 → GPU1 wrong-data), 396.0 GB/s one way",
        ),
        (
            Measurement(kind="host-copy-both", subject="host<>gpu:1", outcome="wrong-data", gbps=90.0),
            "GPU to host memory: 1 FAILED (host-copy-both the host ↔ GPU1 wrong-data)",
        ),
        (
            Measurement(kind="switch-copy", subject="gpu:0,gpu:1,gpu:2", outcome="crashed"),
            "At once all pairs of GPU0, GPU1, GPU2: 1 FAILED (switch-copy GPU0, GPU1, GPU2 crashed)",
        ),
        (
            Measurement(kind="all_reduce", subject="gpu:0,gpu:1", size_bytes=1 << 30, gbps=329.5, data_ok=False),
            "all_reduce over 2 GPUs: FAILED at 1 GiB (wrong-data)",
        ),
    ],
)
def test_failures_are_told_and_their_rates_are_not(run: Measurement, line: str) -> None:
    good = Measurement(kind="peer-copy", subject="gpu:1>gpu:0", gbps=396.0)
    snapshot = machine(measurements=[run, good])
    assert line in measured.lines(snapshot, graph.build(snapshot))
    assert measured.lines(machine(measurements=[]), graph.build(machine())) == []
