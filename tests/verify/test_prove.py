"""`prove` over a made-up machine: what it finds, what it recommends, and what it does when runs break."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import nccl_logs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoadvisor.errors import Broken, InputError, NothingDetermined, TopoAdvisorError
from topoadvisor.ingest import nccl_log
from topoadvisor.snapshot import NcclLibrary, Setting, Snapshot, decode, encode
from topoadvisor.verify import asked, documents, group, prove_report
from topoadvisor.verify.difference import compare, confirm
from topoadvisor.verify.group import Result, Run, Settings
from topoadvisor.verify.prove import Arm, Outcome, Proof, arms_of, prove, usual_collectives
from topoadvisor.verify.rank_messages import Began, Case

SIZES = (64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20, 1 << 30)
RATES = (1.6, 24.7, 173.3, 259.6, 293.8, 326.1)
NOISE = (0.15, 0.2, 0.05, 0.008, 0.005, 0.003)
"""Bus bandwidth and scatter of all_reduce on two H200."""
CASES = group.cases(["all_reduce"], SIZES, 2)
WHERE = prove_report.Setting([0, 1], "libnccl.so.2", "580.159.04", "2026-11-30T12:00:00+00:00")

Effect = Callable[[Settings, int], float]
"""(settings, number of the size) → factor on the rate."""


def more_channels(settings: Settings, size: int) -> float:
    return (1, 1, 1, 1.06, 1.05, 1.045)[size] if settings.get("NCCL_MIN_CTAS") == "32" else 1.0


def no_p2p(settings: Settings, size: int) -> float:
    return (1, 0.6, 0.2, 0.1, 0.09, 0.08)[size] if settings.get("NCCL_P2P_DISABLE") == "1" else 1.0


def tree(settings: Settings, size: int) -> float:
    return (1, 1, 0.73, 1.02, 1.03, 1.045)[size] if settings.get("NCCL_ALGO") == "tree" else 1.0


class Machine:
    """A `Group` with scatter, and a record of what it was asked."""

    def __init__(self, *effects: Effect, seed: int = 1) -> None:
        self.effects, self.rng = effects, random.Random(seed)
        self.asked: list[Settings] = []
        self.cases: list[list[Case]] = []
        self.breaks: Callable[[Settings, int], str | None] = lambda settings, run: None
        self.unable: Callable[[Settings, int], bool] = lambda settings, run: False

    def __call__(self, cases: Sequence[Case], settings: Settings, log: bool) -> Run:
        self.asked.append(settings)
        self.cases.append(list(cases))
        failure = self.breaks(settings, len(self.asked))
        unable = self.unable(settings, len(self.asked))
        if unable:
            failure = "out of memory"
        results = []
        for case in cases:
            number = SIZES.index(case.size_bytes)
            rate = RATES[number] * max(1 + self.rng.gauss(0, NOISE[number]), 0.05)
            for effect in self.effects:
                rate *= effect(settings, number)
            results.append(Result(case, [case.size_bytes / rate / 1e9] * 5, 0, case.size_bytes))
        channels = 32 if "NCCL_MIN_CTAS" in settings else 24
        inside = "SHM/direct/direct" if settings.get("NCCL_P2P_DISABLE") else "P2P/CUMEM"
        said = [f"{name} set by environment to {value}." for name, value in settings.items() if name != "NCCL_NONSENSE"]
        lines = nccl_logs.modern(2, channels=channels, inside=inside, settings=said)
        return Run(
            results=[] if failure else results,
            began=Began(nccl="2.28.9", runtime="13.2", cupy="14.2.0", processors=132),
            used_bytes=(400 + 12 * channels) << 20,
            failure=failure,
            unable=unable,
            log=nccl_log.read([("log", io.BytesIO(nccl_logs.data(lines)))]) if log else None,
        )


def run(machine: Machine, *words: str, rounds: int = 8) -> Proof:
    return prove(machine, arms_of(asked.from_words(words)), CASES, rounds)


def verdicts(outcome: Outcome) -> list[str]:
    return [difference.verdict for _, difference in outcome.differences]


def test_more_channels_are_kept_and_their_price_is_named() -> None:
    proof = run(Machine(more_channels), "NCCL_MIN_CTAS=32")
    outcome = proof.outcomes[0]
    assert verdicts(outcome) == ["no difference"] * 3 + ["faster"] * 3
    assert proof.best is outcome
    assert proof.exit_code == 0
    text = prove_report.to_text(proof, WHERE)
    assert "Keep NCCL_MIN_CTAS=32: faster at 64 MiB all_reduce (+" in text
    assert "slower nowhere" in text
    assert "32 channels instead of 24: each takes one of the GPU's 132 multiprocessors" in text
    assert "96 MiB more GPU memory" in text
    assert "a real difference may hide in it" in text


def test_a_setting_that_hurts_says_by_how_much() -> None:
    proof = run(Machine(no_p2p), "NCCL_P2P_DISABLE=1")
    assert verdicts(proof.outcomes[0])[2:] == ["slower"] * 4
    assert proof.exit_code == 1
    text = prove_report.to_text(proof, WHERE)
    assert "Do not set NCCL_P2P_DISABLE=1: slower at" in text
    assert "-92" in text
    assert "NCCL then uses SHM/direct/direct, and P2P/CUMEM as it is." in text


def test_rounds_that_could_not_begin_blame_no_setting() -> None:
    machine = Machine(more_channels)
    machine.unable = lambda settings, run: run in (4, 7)
    proof = run(machine, "NCCL_MIN_CTAS=32")
    assert proof.outcomes[0].failure is None
    assert verdicts(proof.outcomes[0]) == ["no difference"] * 3 + ["faster"] * 3
    assert "Not all rounds could begin: out of memory." in proof.notes
    machine = Machine(more_channels)
    machine.unable = lambda settings, run: run > 16
    proof = run(machine, "NCCL_MIN_CTAS=32")
    assert verdicts(proof.outcomes[0]) == ["no difference"] * 3 + ["unknown"] * 3
    machine = Machine(more_channels)
    machine.unable = lambda settings, run: True
    with pytest.raises(NothingDetermined, match="the collectives could not begin: out of memory"):
        run(machine, "NCCL_MIN_CTAS=32")
    assert len(machine.asked) == 1


def test_a_setting_without_effect_is_left_alone_in_19_of_20_trials() -> None:
    calm = 0
    for seed in range(100):
        proof = run(Machine(seed=seed), "NCCL_IB_HCA=mlx5_0")
        calm += set(verdicts(proof.outcomes[0])) == {"no difference"}
    assert calm >= 95
    assert "Set nothing: no difference" in prove_report.to_text(run(Machine(), "NCCL_IB_HCA=mlx5_0"), WHERE)


def test_a_setting_that_wins_here_and_loses_there_is_not_kept() -> None:
    proof = run(Machine(tree), "NCCL_ALGO=tree")
    assert "faster" in verdicts(proof.outcomes[0])
    assert "slower" in verdicts(proof.outcomes[0])
    assert proof.best is None


def hurts_small_ones(settings: Settings, size: int) -> float:
    return (0.75, 1, 1, 1.06, 1.05, 1.045)[size] if settings.get("NCCL_MIN_CTAS") == "32" else 1.0


def test_what_moves_traffic_is_tried_with_all_pairs_at_once_too() -> None:
    assert usual_collectives(arms_of({"NCCL_MIN_CTAS": "32"})) == ("all_reduce",)
    assert usual_collectives(arms_of({"NCCL_MIN_CTAS": "32", "NCCL_P2P_LEVEL": "SYS"})) == ("all_reduce", "alltoall")
    gains = Machine(lambda settings, size: 1.3 if "NCCL_P2P_DISABLE" in settings else 1.0)
    proof = run(gains, "NCCL_P2P_DISABLE=1")
    assert proof.best is not None
    text = prove_report.to_text(proof, WHERE)
    assert "`topoadvisor prove NCCL_P2P_DISABLE=1 --collective alltoall`" in text
    cases = group.cases(["alltoall"], SIZES, 2)
    both = prove(gains, arms_of({"NCCL_P2P_DISABLE": "1"}), cases, 8)
    assert "all pairs at once" not in prove_report.to_text(both, WHERE)


def test_a_loss_that_hides_in_scatter_is_looked_for_twice_and_stops_a_winner() -> None:
    proofs = [run(Machine(hurts_small_ones, seed=seed), "NCCL_MIN_CTAS=32") for seed in range(20)]
    assert all("faster" in verdicts(proof.outcomes[0]) for proof in proofs)
    assert sum(proof.best is None for proof in proofs) >= 18
    winners = [run(Machine(more_channels, seed=seed), "NCCL_MIN_CTAS=32") for seed in range(20)]
    assert sum(proof.best is not None for proof in winners) >= 19


def test_what_scatter_may_hide_is_told_with_the_recommendation() -> None:
    proof = run(Machine(more_channels), "NCCL_MIN_CTAS=32")
    low = dict(proof.outcomes[0].differences)[CASES[0]].low
    assert low is not None
    told = f"slower nowhere that shows; scatter may hide a loss at 64 KiB all_reduce ({100 * low:+.1f} %)"
    assert told in prove_report.to_text(proof, WHERE)
    quiet = prove(Machine(more_channels), arms_of({"NCCL_MIN_CTAS": "32"}), CASES[3:], 8)
    assert "slower nowhere.\n" in prove_report.to_text(quiet, WHERE)


def algo_and_channels(settings: Settings, size: int) -> float:
    """Each helps at other sizes."""
    return (1, 1, 1.3, 1, 1, 1)[size] if settings.get("NCCL_ALGO") == "nvls" else 1.0


def test_both_settings_are_kept_when_they_win_together() -> None:
    proof = run(Machine(more_channels, algo_and_channels), "NCCL_MIN_CTAS=32", "NCCL_ALGO=nvls")
    assert proof.best is proof.outcomes[2]
    text = prove_report.to_text(proof, WHERE)
    assert "Keep NCCL_MIN_CTAS=32 NCCL_ALGO=nvls: faster at 8 MiB" in text
    assert "Together they gain more than NCCL_MIN_CTAS=32 or NCCL_ALGO=nvls alone." in text
    assert [trial.keep for trial in prove_report.trials(proof, WHERE)] == [False, False, True]


def test_the_better_one_is_kept_when_they_do_not_win_together() -> None:
    def spoils(settings: Settings, size: int) -> float:
        return 0.8 if len(settings) == 2 and size > 3 else 1.0

    proof = run(Machine(more_channels, algo_and_channels, spoils), "NCCL_MIN_CTAS=32", "NCCL_ALGO=nvls")
    assert proof.best is proof.outcomes[1]
    text = prove_report.to_text(proof, WHERE)
    assert "Keep NCCL_ALGO=nvls: faster at 8 MiB" in text
    assert "Also faster, by less: NCCL_MIN_CTAS=32." in text
    assert "Not all together: they are slower at 2 of 6 sizes" in text


def test_what_does_nothing_is_not_kept_along_with_what_helps() -> None:
    for seed in range(20):
        proof = run(Machine(more_channels, seed=seed), "NCCL_MIN_CTAS=32", "NCCL_LAUNCH_MODE=PARALLEL")
        assert proof.best is None or dict(proof.best.arm.settings) == {"NCCL_MIN_CTAS": "32"}


def test_what_looked_faster_is_run_again_where_it_did_and_only_then_believed() -> None:
    """The first rounds were lucky at 1 MiB; the fresh ones are not."""
    machine = Machine()
    machine.effects = (lambda settings, size: 1.9 if settings and size == 1 and len(machine.asked) <= 16 else 1.0,)
    proof = run(machine, "NCCL_ALGO=ring")
    assert verdicts(proof.outcomes[0]) == ["no difference"] * 6
    assert (proof.rounds, proof.confirming, len(machine.asked)) == (8, 8, 32)
    assert machine.cases[-1] == [CASES[1]]
    text = prove_report.to_text(proof, WHERE)
    assert "1 MiB all_reduce looked faster (+" in text
    assert "in the first 8 rounds; 8 fresh ones did not confirm it." in text
    assert "Set nothing: no difference" in text
    assert "8 rounds of fresh processes, baseline and variants in turn, and 8 more for what looked" in text


def test_a_claim_whose_confirmation_is_interrupted_is_not_believed() -> None:
    def breaks(settings: Settings, run: int) -> str | None:
        if run == 20:
            raise KeyboardInterrupt
        return None

    machine = Machine(more_channels)
    machine.breaks = breaks
    proof = run(machine, "NCCL_MIN_CTAS=32")
    assert (proof.exit_code, proof.confirming, proof.best) == (130, 1, None)
    assert verdicts(proof.outcomes[0])[3:] == ["unknown"] * 3
    text = prove_report.to_text(proof, WHERE)
    assert text.count("not confirmed") == 3
    assert "there were too few fresh ones to confirm it" in text


def test_a_variant_that_breaks_while_it_is_confirmed_is_told() -> None:
    machine = Machine(more_channels)
    machine.breaks = lambda settings, run: "no answer for 60 s" if settings and run > 20 else None
    proof = run(machine, "NCCL_MIN_CTAS=32")
    assert (proof.outcomes[0].failure, proof.best, proof.exit_code) == ("no answer for 60 s (round 3 of 8)", None, 1)
    machine = Machine(more_channels)
    machine.breaks = lambda settings, run: "lost" if run > 19 and not settings else None
    proof = run(machine, "NCCL_MIN_CTAS=32")
    assert "Broken off in round 10, because NCCL failed as it is: lost" in prove_report.to_text(proof, WHERE)
    assert verdicts(proof.outcomes[0])[3:] == ["unknown"] * 3


def test_several_settings_are_tried_alone_and_together() -> None:
    machine = Machine(more_channels, no_p2p)
    proof = run(machine, "NCCL_MIN_CTAS=32", "NCCL_P2P_DISABLE=1")
    assert [outcome.arm.name for outcome in proof.outcomes] == [
        "NCCL_MIN_CTAS=32",
        "NCCL_P2P_DISABLE=1",
        "NCCL_MIN_CTAS=32 NCCL_P2P_DISABLE=1",
    ]
    assert proof.best is proof.outcomes[0]
    assert len(machine.asked) == 8 * 4 + 8 * 4


def test_every_arm_takes_every_turn() -> None:
    machine = Machine()
    run(machine, "NCCL_ALGO=ring")
    firsts = [bool(machine.asked[2 * number]) for number in range(8)]
    assert firsts.count(True) == firsts.count(False) == 4
    assert sum(bool(settings) for settings in machine.asked) == 8


def test_a_variant_that_breaks_is_dropped_and_told() -> None:
    machine = Machine(more_channels)
    machine.breaks = lambda settings, run: "rank 0: ended by SIGFPE" if "NCCL_BUFFSIZE" in settings else None
    proof = prove(machine, [Arm({"NCCL_BUFFSIZE": "8"}), Arm({"NCCL_MIN_CTAS": "32"})], CASES, 8)
    assert proof.outcomes[0].failure == "rank 0: ended by SIGFPE (round 1 of 8)"
    assert proof.best is proof.outcomes[1]
    assert sum("NCCL_BUFFSIZE" in settings for settings in machine.asked) == 1
    assert "It breaks: rank 0: ended by SIGFPE" in prove_report.to_text(proof, WHERE)
    assert proof.exit_code == 1


def test_the_only_variant_that_breaks_is_not_to_be_set() -> None:
    machine = Machine()
    machine.breaks = lambda settings, run: "rank 0: ended by SIGFPE" if settings else None
    text = prove_report.to_text(run(machine, "NCCL_BUFFSIZE=8"), WHERE)
    assert "Do not set NCCL_BUFFSIZE=8: it breaks, rank 0: ended by SIGFPE (round 1 of 8)." in text
    assert "too few rounds" not in text


def test_unsetting_is_told_as_that() -> None:
    text = prove_report.to_text(run(Machine(lambda settings, size: 1.2 if settings else 1.0), "NCCL_ALGO="), WHERE)
    assert "\nNCCL_ALGO unset\n" in text
    assert "Keep NCCL_ALGO unset: faster at" in text
    text = prove_report.to_text(run(Machine(lambda settings, size: 0.8 if settings else 1.0), "NCCL_ALGO="), WHERE)
    assert "Leave it as it is. With NCCL_ALGO unset: slower at" in text


def test_a_machine_where_nccl_does_not_run_says_why() -> None:
    machine = Machine()
    machine.breaks = lambda settings, run: "ncclCommInitRank: unhandled cuda error"
    with pytest.raises(Broken, match="as it is: ncclCommInitRank"):
        run(machine, "NCCL_ALGO=ring")


def test_a_baseline_that_breaks_later_keeps_what_was_measured() -> None:
    machine = Machine()
    machine.breaks = lambda settings, run: "no answer for 60 s" if run > 10 and not settings else None
    proof = run(machine, "NCCL_ALGO=ring")
    assert proof.rounds == 5
    assert "Broken off in round 6" in prove_report.to_text(proof, WHERE)
    assert proof.exit_code == 1


def test_interrupted_rounds_are_kept_when_complete() -> None:
    machine = Machine(more_channels)

    def breaks(settings: Settings, run: int) -> str | None:
        if run == 12:
            raise KeyboardInterrupt
        return None

    machine.breaks = breaks
    proof = run(machine, "NCCL_MIN_CTAS=32")
    assert (proof.interrupted, proof.exit_code) == (True, 130)
    assert proof.outcomes[0].differences[0][1].rounds == 5
    machine.breaks = lambda settings, run: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[return-value]
    with pytest.raises(KeyboardInterrupt):
        run(machine, "NCCL_MIN_CTAS=32")


def test_too_few_complete_rounds_recommend_nothing() -> None:
    machine = Machine(more_channels)
    machine.breaks = lambda settings, run: "gone" if run > 4 and not settings else None
    text = prove_report.to_text(run(machine, "NCCL_MIN_CTAS=32"), WHERE)
    assert "too few rounds" in text
    assert "Keep" not in text


def test_a_variable_that_nccl_does_not_read_is_told() -> None:
    proof = run(Machine(), "NCCL_NONSENSE=1")
    assert proof.outcomes[0].unread == ["NCCL_NONSENSE"]
    assert "log does not mention NCCL_NONSENSE" in prove_report.to_text(proof, WHERE)
    assert asked.remarks({"NCCL_NONSENSE": "1"}, Snapshot()) == [
        "Whatever it gains, NCCL_NONSENSE=1 will not be advised: neither NCCL nor a library that it loads is known to "
        "read NCCL_NONSENSE, and a trial measures NCCL alone."
    ]


def test_what_nccl_takes_otherwise_than_it_is_written_is_said_before_for_the_library_that_is_tried() -> None:
    libraries = [
        NcclLibrary(path="/a/libnccl.so.2", version="2.28.9"),
        NcclLibrary(path="/b/libnccl.so.2", version="2.20.5"),
    ]
    here = Snapshot(nccl_libraries=libraries)
    for path, most in (("/a/libnccl.so.2", 64), ("/b/libnccl.so.2", 32), ("/c/libnccl.so.2", 64)):
        assert asked.remarks({"NCCL_MIN_CTAS": "99999"}, here, library=path) == [
            "Whatever it gains, NCCL_MIN_CTAS=99999 will not be advised: "
            f"NCCL_MIN_CTAS=99999 is {most} to NCCL: NCCL has no more than {most} channels."
        ]
    assert asked.remarks({"NCCL_MIN_CTAS": "32"}, here, library="/b/libnccl.so.2") == []


def gains(name: str, factor: float) -> Effect:
    return lambda settings, size: factor if name in settings else 1.0


def test_what_is_not_advised_is_not_the_one_to_keep_however_much_it_gains() -> None:
    machine = Machine(more_channels, gains("NCCL_CHECK_POINTERS", 1.5))
    proof = run(machine, "NCCL_MIN_CTAS=32", "NCCL_CHECK_POINTERS=1")
    assert proof.best is not None
    assert proof.best.arm.settings == {"NCCL_MIN_CTAS": "32"}
    text = prove_report.to_text(proof, WHERE)
    assert "NCCL_CHECK_POINTERS=1 is faster at " in text
    assert "slower nowhere, and is not advised: NCCL_CHECK_POINTERS is diagnostic" in text
    assert "Keep NCCL_MIN_CTAS=32: faster" in text
    assert "Also faster" not in text
    assert "Not all together" not in text
    assert [each.keep for each in prove_report.trials(proof, WHERE)] == [True, False, False]


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("LD_PRELOAD=x.so", "neither NCCL nor a library that it loads is known to read LD_PRELOAD"),
        ("NCCL_BUFFSIZE=8M", "NCCL_BUFFSIZE=8M is 8 to NCCL"),
        ("NCCL_TOPO_FILE=t.xml", "NCCL_TOPO_FILE names a file"),
    ],
)
def test_a_winner_alone_that_is_not_advised_is_told_with_its_gain_and_the_reason(word: str, why: str) -> None:
    proof = run(Machine(gains(word.partition("=")[0], 1.5)), word)
    text = prove_report.to_text(proof, WHERE)
    assert proof.best is None
    assert f"{word} is faster at " in text
    assert f"slower nowhere, and is not advised: {why}" in text
    assert "Keep" not in text
    assert "Set nothing" not in text
    assert "emit" not in text
    before = [f"Whatever it gains, {word} will not be advised: {proof.why_unfit(proof.outcomes[0])}."]
    assert prove_report.to_text(proof, WHERE, before).count(why) == 1


@pytest.mark.parametrize(
    ("word", "include"),
    [
        ("NCCL_MIN_CTAS=32", " --include tuning"),
        ("NCCL_SHM_DISABLE=1", " --include workaround"),
        ("NCCL_IGNORE_CPU_AFFINITY=1", ""),
    ],
)
def test_the_command_that_writes_a_winner_names_its_class(word: str, include: str) -> None:
    text = prove_report.to_text(run(Machine(gains(word.partition("=")[0], 1.5)), word), WHERE, saved="node.json")
    assert f"`topoadvisor emit nccl-conf node.json{include}` writes it" in text


QUIET = run(Machine(), "NCCL_ALGO=ring", rounds=4)
rates = st.floats(1e-3, 1e3)
many_rounds = st.lists(st.tuples(rates, rates), max_size=9)


@given(many_rounds, many_rounds, st.integers(1, 60))
def test_whatever_the_rounds_bring_is_saved_as_it_can_be_read_again(
    first: list[tuple[float, float]], again: list[tuple[float, float]], comparisons: int
) -> None:
    found = compare(first, comparisons=comparisons)
    found = confirm(found, again) if found.claim else found
    outcome = replace(QUIET.outcomes[0], differences=[(CASES[0], found)])
    document = Snapshot(trials=prove_report.trials(replace(QUIET, outcomes=[outcome]), WHERE))
    assert decode(encode(document)) == document


def test_json_and_trials_hold_the_evidence() -> None:
    proof = run(Machine(more_channels), "NCCL_MIN_CTAS=32")
    told = msgspec.json.decode(msgspec.json.encode(prove_report.document(proof, WHERE)), type=documents.Proved)
    assert told.schema == "topoadvisor.prove/1"
    assert told.keep == {"NCCL_MIN_CTAS": "32"}
    assert (told.rounds, told.confirming_rounds) == (8, 8)
    assert told.variants[0].channels == 32
    assert told.variants[0].sizes[5].verdict == "faster"
    assert prove_report.nothing(WHERE, ["why"]).baseline is None
    trial = prove_report.trials(proof, WHERE)[0]
    assert (trial.keep, trial.nccl, trial.driver, trial.rounds) == (True, "2.28.9", "580.159.04", 8)
    assert trial.sizes[5].verdict == "faster"
    assert trial.sizes[5].low is not None
    assert trial.sizes[5].low < 0.045 < (trial.sizes[5].high or 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nccl_algo=ring"], "is no setting"),
        (["NCCL_ALGO"], "is no setting"),
        (["NCCL_ALGO=ring", "NCCL_ALGO=tree"], "given twice"),
        (["NCCL_DEBUG=INFO"], "cannot be proved"),
        (["NCCL_ALGO=a\0b"], "no variable can have"),
        (["=1"], "is no setting"),
    ],
)
def test_words_that_are_no_settings(words: list[str], message: str) -> None:
    with pytest.raises(TopoAdvisorError, match=message):
        asked.from_words(words)


def test_an_empty_value_unsets() -> None:
    assert asked.from_words(["NCCL_ALGO="]) == {"NCCL_ALGO": None}
    here = Snapshot(settings=[Setting(name="NCCL_ALGO", value="ring", origin="environment")])
    assert asked.remarks({"NCCL_ALGO": None}, here) == []
    assert "not set here" in asked.remarks({"NCCL_ALGO": None}, Snapshot())[0]
    in_file = Snapshot(settings=[Setting(name="NCCL_ALGO", value="ring", origin="/etc/nccl.conf", line=3)])
    with pytest.raises(TopoAdvisorError, match=r"/etc/nccl\.conf:3"):
        asked.remarks({"NCCL_ALGO": None}, in_file)


def test_unsetting_what_a_file_would_bring_back_is_refused() -> None:
    """Out of the environment it comes back from the file, so both sides would be alike."""
    here = [
        Setting(name="NCCL_ALGO", value="tree", origin="environment"),
        Setting(name="NCCL_ALGO", value="ring", origin="/root/.nccl.conf", line=2),
        Setting(name="NCCL_ALGO", value="ring", origin="/etc/nccl.conf", line=3),
    ]
    with pytest.raises(TopoAdvisorError, match=r"stands in /root/\.nccl\.conf:2 and /etc/nccl\.conf:3") as caught:
        asked.remarks({"NCCL_ALGO": None}, Snapshot(settings=here))
    assert caught.value.hint


def test_a_value_that_is_in_force_already_is_told() -> None:
    here = [
        Setting(name="NCCL_ALGO", value="tree", origin="environment"),
        Setting(name="NCCL_ALGO", value="ring", origin="/etc/nccl.conf", line=3),
    ]
    told = asked.remarks({"NCCL_ALGO": "tree"}, Snapshot(settings=here))
    assert told == ["NCCL_ALGO=tree is in force already (environment), so setting it changes nothing."]
    assert asked.remarks({"NCCL_ALGO": "ring"}, Snapshot(settings=here)) == []
    told = asked.remarks({"NCCL_ALGO": "ring"}, Snapshot(settings=here[1:]))
    assert told == ["NCCL_ALGO=ring is in force already (/etc/nccl.conf:3), so setting it changes nothing."]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"schema":"topoadvisor.advice/1"}'])
def test_a_file_that_is_no_advice(data: bytes) -> None:
    with pytest.raises(InputError, match="no advice document"):
        asked.from_advice(data, file="advice.json")
