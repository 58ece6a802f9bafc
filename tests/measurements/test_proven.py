"""Settings that won a trial: which are advised, and which are not, with the reason."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from made_trials import WON, size, trial

from topoadvisor import advise
from topoadvisor.emit import nccl_conf, selection, shell
from topoadvisor.ingest import detect
from topoadvisor.measurements import proven
from topoadvisor.measurements.model import Measurement, Trial
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


def test_a_loss_that_scatter_may_hide_is_advised_with_it() -> None:
    hidden = [size(-0.08, 64 << 10, reach=0.2), size(0.02, 1 << 20, reach=0.08), size(0.05, 1 << 28)]
    setting = next(each for each in advise.advise(machine(trial(sizes=hidden))).settings if each.rule == "trial")
    assert "slower at none (scatter at 2 sizes may hide a loss of up to 28 %), 8 rounds" in setting.reason


def test_what_moves_traffic_says_that_all_pairs_at_once_were_not_tried() -> None:
    settings = {"NCCL_P2P_LEVEL": "SYS"}
    said = [
        advise.advise(machine(trial(settings=settings, sizes=sizes))).settings
        for sizes in (
            WON,
            [*WON, size(0.02, collective="alltoall")],
        )
    ]
    reasons = [each.reason for found in said for each in found if each.rule == "trial"]
    assert ["alltoall not tried, which can lose by it" in reason for reason in reasons] == [True, False]


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
    assert any(words in note and "prove it again" in note for note in advice.passed_over)


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
    found = proven.advised(machine(trial(sizes=[*WON, open_end], rounds=4)), version="2.28.9", taken=(), gpus=(0, 1))
    assert found.settings[0].reason == (
        "measured on this machine: all_reduce faster at 2 sizes (+4.5 to +5.0 %), slower at none, "
        "not decided at 1 size, 4 rounds, 2026-11-30"
    )


def small_gain(**more: Any) -> Trial:
    sizes = [size(0.02)]
    return trial(settings={"NCCL_ALGO": "Ring"}, sizes=sizes, date="2026-12-01T12:00:00+00:00", **more)


def advised(*trials: Trial) -> tuple[list[str], list[str]]:
    found = proven.advised(machine(*trials), version="2.28.9", taken=(), gpus=(0, 1))
    return [each.name for each in found.settings], found.passed_over


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
    advice = advise.advise(machine(trial(variables={}), settings=present))
    assert any(
        "NCCL_MIN_CTAS=32, which won a trial here, is set already." in right.text for right in advice.already_right
    )
    without = trial(settings={"NCCL_MIN_CTAS": None}, variables={"NCCL_MIN_CTAS": "32"})
    gone = advise.advise(machine(without, settings=present))
    unset = next(each for each in gone.settings if each.name == "NCCL_MIN_CTAS")
    assert (unset.action, unset.where) == ("unset", "environment")
    twice = [*present, Setting(name="NCCL_MIN_CTAS", value="8", origin="/etc/nccl.conf", line=2)]
    gone = advise.advise(machine(without, settings=twice))
    unset = next(each for each in gone.settings if each.name == "NCCL_MIN_CTAS")
    assert unset.where == "environment and /etc/nccl.conf:2"


def test_what_is_unset_is_no_workaround_to_remove() -> None:
    """NCCL_NVLS_ENABLE stands in the environment of this machine and in its file."""
    advice = advise.advise(machine(trial(settings={"NCCL_NVLS_ENABLE": None}, variables={"NCCL_NVLS_ENABLE": "0"})))
    unset = next(each for each in advice.settings if each.rule == proven.TRIAL)
    assert (unset.setting_class, unset.remove_when) == ("workaround", None)
    assert unset.where == "environment and /etc/nccl.conf:2"


def test_a_trial_does_not_overrule_a_rule() -> None:
    found = proven.advised(machine(trial()), version="2.28.9", taken={"NCCL_MIN_CTAS"}, gpus=(0, 1))
    assert (found.settings, found.right) == ([], [])
    assert found.passed_over == ["NCCL_MIN_CTAS=32 won a trial, but rules decide about the variable."]


def on_a_part(**more: Any) -> Snapshot:
    """Two of the four GPUs were tried."""
    snapshot = detect.read(["fixture:4xa100-pcie"], stdin=io.BytesIO())
    return msgspec.structs.replace(
        snapshot, nccl_libraries=[], trials=[trial(driver=snapshot.driver.version, variables={})], **more
    )


def test_a_trial_over_a_part_of_the_gpus_is_shown_and_says_nothing_of_the_whole_machine() -> None:
    advice = advise.advise(on_a_part())
    assert not any(each.name == "NCCL_MIN_CTAS" for each in advice.settings)
    assert (
        "NCCL_MIN_CTAS=32 over GPU0, GPU1: faster at 2 sizes (+4.5 to +5.0 %) in a trial of 8 rounds (2026-11-30)"
        in advice.measured
    )
    assert "NCCL_MIN_CTAS=32 won a trial over GPU0, GPU1 alone: prove it over all GPUs." in advice.passed_over


def test_a_trial_over_the_gpus_that_are_selected_counts_for_them() -> None:
    chosen = [Setting(name="CUDA_VISIBLE_DEVICES", value="1,0", origin="environment")]
    advice = advise.advise(on_a_part(settings=chosen))
    setting = next(each for each in advice.settings if each.name == "NCCL_MIN_CTAS")
    assert setting.reason.startswith("measured on this machine over GPU0, GPU1: all_reduce faster")


def test_lines_for_the_screen() -> None:
    broke = trial(settings={"NCCL_BUFFSIZE": "8"}, failure="SIGFPE", keep=False)
    open_ends = [size(0.05, verdict="unknown")]
    stopped = trial(settings={"NCCL_ALGO": "Ring"}, sizes=open_ends, keep=False)

    assert proven.lines(machine(trial(), broke, stopped)) == [
        "NCCL_MIN_CTAS=32: faster at 2 sizes (+4.5 to +5.0 %) in a trial of 8 rounds (2026-11-30)",
        "NCCL_BUFFSIZE=8: broke in a trial (2026-11-30)",
        "NCCL_ALGO=Ring: not decided at 1 size in a trial of 8 rounds (2026-11-30)",
    ]


EVERYTHING: Any = frozenset({"tuning", "workaround"})


def written(*trials: Trial, **more: Any) -> tuple[list[str], list[str], str, str]:
    """(variables to set, trials passed over, lines of nccl.conf without signs of comments, lines for a shell)."""
    advice = advise.advise(machine(*trials, **more))
    files = (nccl_conf.render(advice, EVERYTHING, "2.28.9"), shell.render(advice, EVERYTHING, "2.28.9"))
    conf, script = (" ".join(file.replace("\n#", " ").split()) for file in files)
    return [each.name for each in advice.settings], advice.passed_over, conf, script


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("NCCL_DEBUG", "INFO", "trials set NCCL_DEBUG themselves, or stand on it"),
        ("NCCL_HOSTID", "a", "trials set NCCL_HOSTID themselves"),
        ("CUDA_VISIBLE_DEVICES", "1", "trials set CUDA_VISIBLE_DEVICES themselves"),
        ("NCCL_CHECK_POINTERS", "1", "NCCL_CHECK_POINTERS is diagnostic, and does not belong in a configuration"),
        *(
            (name, "1", f"neither NCCL nor a library that it loads is known to read {name}")
            for name in ("LD_PRELOAD", "PATH", "PYTHONPATH", "CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_NO_SUCH_THING")
        ),
        *(
            (name, "/x/y", f"{name} names a file, and what will be in it is not known")
            for name in (
                "NCCL_TOPO_FILE",
                "NCCL_GRAPH_FILE",
                "NCCL_NET_PLUGIN",
                "NCCL_IBVERBS_LIB",
                "NCCL_TUNER_CONFIG_FILE",
            )
        ),
        *(
            (name, value, f"{name} steers what goes between machines, and a trial stays within one")
            for name, value in (("NCCL_IB_HCA", "mlx5_0"), ("NCCL_SOCKET_IFNAME", "eth0"), ("NCCL_CROSS_NIC", "1"))
        ),
        ("NCCL_MIN_CTAS", "99999", "NCCL_MIN_CTAS=99999 is 64 to NCCL: NCCL has no more than 64 channels"),
        ("NCCL_BUFFSIZE", "8M", "NCCL_BUFFSIZE=8M is 8 to NCCL: what follows the digits is dropped"),
        ("NCCL_NTHREADS", "many", "NCCL_NTHREADS=many is 0 to NCCL: a text that does not begin"),
        ("NCCL_MIN_CTAS", "0", "NCCL_MIN_CTAS=0 counts as not set: NCCL ignores 0"),
        ("NCCL_ALGO", "Circle", "and initialization fails"),
        ("NCCL_PROTO", "LL128", "on some paths LL128 corrupts data"),
        ("NCCL_AGG_CHANNEL_SIZE", "4096", "NCCL 2.28.9 does not read NCCL_AGG_CHANNEL_SIZE"),
        ("FI_PROVIDER", "'efa'", "cannot be written into a file"),
    ],
)
def test_what_is_no_tuning_is_neither_advised_nor_written_whatever_it_gains(name: str, value: str, why: str) -> None:
    tried = trial(settings={"NCCL_P2P_NVL_CHUNKSIZE": "262144", name: value})
    names, passed, conf, script = written(tried)
    assert names == []
    assert passed[0].startswith(f"NCCL_P2P_NVL_CHUNKSIZE=262144 {name}={value} won a trial and is not advised: ")
    assert why in passed[0]
    for file in (conf, script):
        assert "Not written: NCCL_P2P_NVL_CHUNKSIZE set to 262144" in file
        assert f"{name}=" not in file
    assert any(f"{name}={value}: faster at 2 sizes" in line for line in proven.lines(machine(tried)))


@pytest.mark.parametrize(
    ("name", "value", "setting_class"),
    [
        ("NCCL_MIN_CTAS", "32", "tuning"),
        ("NCCL_SHM_DISABLE", "1", "workaround"),
        ("NCCL_IGNORE_CPU_AFFINITY", "1", "system"),
    ],
)
def test_the_class_is_that_of_the_register(name: str, value: str, setting_class: str) -> None:
    advice = advise.advise(machine(trial(settings={name: value}, variables={}), settings=[]))
    setting = next(each for each in advice.settings if each.name == name)
    assert setting.setting_class == setting_class
    assert (setting.remove_when is not None) == (setting_class == "workaround")


def test_what_nccl_does_by_itself_and_what_is_not_set_is_right_already() -> None:
    advice = advise.advise(
        machine(trial(settings={"NCCL_LL_BUFFSIZE": "-2", "NCCL_ALGO": None}, variables={}), settings=[])
    )
    assert advice.settings == []
    rights = [right.text for right in advice.already_right if right.rule == "trial"]
    assert rights == [
        "NCCL does as with NCCL_LL_BUFFSIZE=-2, which won a trial here, by itself.",
        "NCCL_ALGO, without which a trial won here, is not set.",
    ]


@pytest.mark.parametrize("render", [nccl_conf.render, shell.render])
def test_what_won_together_is_written_together_or_not_at_all(render: Any) -> None:
    both = {"NCCL_MIN_CTAS": "32", "NCCL_SHM_DISABLE": "1"}
    advice = advise.advise(machine(trial(settings=both)))
    for classes in (frozenset(), frozenset({"tuning"}), frozenset({"workaround"})):
        block = render(advice, classes, "2.28.9")
        assert not any(f"{name}=" in block for name in both)
    assert "Not written: NCCL_SHM_DISABLE [trial], it was tried together with NCCL_MIN_CTAS" in block
    assert all(f"{name}={value}" in render(advice, EVERYTHING, "2.28.9") for name, value in both.items())


def test_a_long_value_is_shown_cut() -> None:
    _, passed, conf, _ = written(trial(settings={"NCCL_ALGO": "R" * 3000}))
    assert passed[0].startswith(f"NCCL_ALGO={'R' * 80}… won a trial and is not advised: ")
    assert max(len(text) for text in (passed[0], conf)) < 4000


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH"])
def test_what_nccl_does_not_read_is_not_unset_either(name: str) -> None:
    assert written(trial(settings={name: None}), settings=None)[0] == []


OLDER, NEWER = "2026-10-01T12:00:00+00:00", "2026-11-30T23:30:00-02:00"
NEVER = [size(0.0)]


@pytest.mark.parametrize(
    ("more", "ended"),
    [
        ({"sizes": NEVER, "keep": False}, "made no difference"),
        ({"sizes": [size(-0.1)], "keep": False}, "was slower at 1 size (-10.0 %)"),
        ({"sizes": [], "failure": "it crashed", "keep": False}, "broke"),
        ({"sizes": [], "failure": "it crashed", "keep": False, "variables": None}, "broke"),
        ({"keep": False}, "gained less than others that were tried with it"),
    ],
)
@pytest.mark.parametrize("first", [0, 1])
def test_the_newest_trial_decides(more: dict[str, Any], ended: str, first: int) -> None:
    won, lost = trial(date=OLDER), trial(date=NEWER, gpus=[1, 0], **more)
    names, passed, conf, _ = written(*((won, lost) if first == 0 else (lost, won)))
    assert names == []
    assert passed == [f"NCCL_MIN_CTAS=32 won a trial on 2026-10-01, and in a newer one on 2026-11-30 it {ended}."]
    assert "NCCL_MIN_CTAS=" not in conf
    assert written(msgspec.structs.replace(lost, date=OLDER), trial(date=NEWER))[:2] == (["NCCL_MIN_CTAS"], [])


def test_dates_are_moments_and_of_one_moment_the_last_in_the_document_is_newest() -> None:
    """23:30 two hours west is later than one o'clock of the next day three hours east."""
    east = trial(date="2026-12-01T01:00:00+03:00")
    west = trial(date=NEWER, sizes=NEVER, keep=False)
    assert written(west, east)[0] == []
    same = trial(sizes=NEVER, keep=False)
    assert written(trial(), same)[0] == []
    assert written(same, trial())[0] == ["NCCL_MIN_CTAS"]
    assert written(trial(date=None), same)[0] == []


def test_only_trials_that_say_anew_what_an_older_one_said_overtake_it() -> None:
    other = {"date": NEWER, "keep": False}
    unread = trial(sizes=[size(0.05, verdict="unknown")], rounds=1, **other)
    elsewhere = trial(sizes=NEVER, nccl="2.27.7", **other)
    gathered = [size(0.0, collective="all_gather")]
    fewer = trial(settings={"NCCL_MIN_CTAS": "16"}, sizes=NEVER, **other)
    for newer in (unread, elsewhere, fewer, trial(sizes=gathered, **other)):
        assert written(trial(date=OLDER), newer)[:2] == (["NCCL_MIN_CTAS"], [])


@pytest.mark.parametrize(
    ("date", "won", "lost"),
    [
        (OLDER, "2026-11-30", "2026-10-01"),
        (NEWER, "2026-11-30 12:00:00 UTC", "2026-12-01 01:30:00 UTC"),
    ],
)
def test_what_hurts_another_collective_is_not_advised(date: str, won: str, lost: str) -> None:
    hurt = trial(date=date, sizes=[size(-0.1, collective="alltoall")], keep=False)
    names, passed, _, _ = written(trial(), hurt)
    assert names == []
    assert passed == [
        f"NCCL_MIN_CTAS=32 won a trial on {won}, and in another one on {lost} it was slower at 1 size (-10.0 %)."
    ]


def test_a_trial_made_with_something_else_is_silent_where_one_was_made_with_this() -> None:
    assert written(trial(nccl="2.27.7"), trial(sizes=NEVER, keep=False, date=OLDER))[:2] == ([], [])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"nccl": None}, "won a trial that does not say with which NCCL: prove it again."),
        ({"driver": None}, "won a trial that does not say with which driver: prove it again."),
    ],
)
def test_a_trial_that_does_not_say_what_it_was_made_with_does_not_count(more: dict[str, Any], words: str) -> None:
    names, passed, conf, _ = written(trial(**more))
    assert (names, passed) == ([], [f"NCCL_MIN_CTAS=32 {words}"])
    assert words.removeprefix("won ") in conf


@pytest.mark.parametrize(
    "run",
    [
        Measurement(kind="all_reduce", subject="gpu:0,gpu:1", size_bytes=1 << 30, gbps=329.5, data_ok=False),
        Measurement(kind="all_gather", subject="gpu:0,gpu:1", size_bytes=1 << 30, outcome="timeout"),
        Measurement(kind="peer-copy", subject="gpu:0>gpu:1", outcome="wrong-data", gbps=300.0),
        Measurement(kind="host-copy", subject="host>gpu:1", outcome="crashed"),
    ],
)
def test_no_trial_says_anything_while_measurements_of_its_gpus_fail(run: Measurement) -> None:
    names, passed, conf, script = written(trial(), measurements=[run])
    assert "NCCL_MIN_CTAS" not in names
    assert len(passed) == 1
    assert passed[0].startswith(
        f"NCCL_MIN_CTAS=32 won a trial, which is evidence of nothing while measurements of its GPUs fail ({run.kind} "
    )
    for file in (conf, script):
        assert "NCCL_MIN_CTAS=" not in file
        assert "evidence of nothing while measurements of its GPUs fail" in file


def test_measurements_of_other_gpus_and_those_left_out_say_nothing_of_a_trial() -> None:
    skipped = Measurement(kind="peer-copy", subject="gpu:0>gpu:1", outcome="skipped")
    assert written(trial(), measurements=[skipped])[0] == ["NCCL_MIN_CTAS"]
    chosen = [Setting(name="CUDA_VISIBLE_DEVICES", value="0,1", origin="environment")]
    far = Measurement(kind="peer-copy", subject="gpu:2>gpu:3", outcome="timeout")
    advice = advise.advise(on_a_part(settings=chosen, measurements=[far]))
    assert "NCCL_MIN_CTAS" in [each.name for each in advice.settings]


def test_why_a_winner_is_not_advised_stands_below_the_settings() -> None:
    snapshot = machine(trial(settings={"LD_PRELOAD": "x.so"}))
    text = scan_text.render(advise.advise(snapshot), matrix.shown(snapshot, graph.build(snapshot)))
    settings = text[text.index("\nSettings") :]
    assert "Set nothing." in settings
    assert "LD_PRELOAD=x.so won a trial and is not advised" in " ".join(settings.partition("\n\n")[0].split())


@pytest.mark.parametrize(("baseline", "names"), [(440.0, ["NCCL_MIN_CTAS"]), (460.0, [])])
def test_rates_that_the_links_cannot_carry_are_of_another_machine(baseline: float, names: list[str]) -> None:
    won = size(0.05)
    rates = {"baseline_gbps": baseline, "variant_gbps": baseline * 1.05}
    told = advise.advise(machine(trial(sizes=[msgspec.structs.replace(won, **rates)])))
    assert [each.name for each in told.settings] == names
    if not names:
        assert "cannot be of this machine as it is: all_reduce reached 483.0 GB/s" in told.passed_over[0]


def test_a_file_names_no_command_that_it_cannot_hold() -> None:
    text = nccl_conf.render(advise.advise(machine(trial(), small_gain())), frozenset({"tuning"}), "2.28.9")
    assert "`topoadvisor scan` names the trial that tells" in " ".join(text.replace("#", " ").split())
    assert "topoadvisor prove" not in text


def test_two_trials_of_one_day_are_told_apart_by_their_time() -> None:
    later = trial(date="2026-11-30T12:05:00+00:00", sizes=NEVER, keep=False)
    _, passed, _, _ = written(trial(), later)
    assert passed == [
        "NCCL_MIN_CTAS=32 won a trial on 2026-11-30 12:00:00 UTC, and in a newer one on 2026-11-30 12:05:00 UTC it "
        "made no difference."
    ]
    assert [line.rpartition("(")[2] for line in proven.lines(machine(trial(), later))] == [
        "2026-11-30 12:00:00 UTC)",
        "2026-11-30 12:05:00 UTC)",
    ]
