"""Variables that something was measured under, against those in force now: what is counted, what is advised."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from made_trials import WON, trial

from topoadvisor import advise, estimates, planning, redact
from topoadvisor.emit import nccl_conf, selection
from topoadvisor.errors import InputError
from topoadvisor.ingest import assume, detect
from topoadvisor.measurements import counted, summary, variables
from topoadvisor.measurements.model import Measurement, Trial
from topoadvisor.snapshot import Assumption, Setting, Snapshot, decode, encode
from topoadvisor.topology import graph
from topoadvisor.verify import run as verify_run


def machine(now: Mapping[str, str] | None, **more: Any) -> Snapshot:
    """Two H200 with these variables in the environment; None: none were read."""
    snapshot = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
    found = None if now is None else [Setting(name=name, value=now[name], origin="environment") for name in now]
    return msgspec.structs.replace(snapshot, settings=found, **more)


def reduced(then: dict[str, str] | None, gbps: float | None = 270.0, **more: Any) -> Measurement:
    fields = {"kind": "all_reduce", "subject": "gpu:0,gpu:1", "size_bytes": 64 << 20, "date": "2026-11-30", **more}
    return Measurement(gbps=gbps, variables=then, **fields)


DIFFERENT = [
    ({}, {"NCCL_P2P_DISABLE": "1"}, "without NCCL_P2P_DISABLE=1 (environment), which is in force now"),
    ({"NCCL_ALGO": "Ring"}, {}, "with NCCL_ALGO=Ring, which is not in force now"),
    (
        {"NCCL_ALGO": "Ring"},
        {"NCCL_ALGO": "Tree"},
        "with NCCL_ALGO=Ring where now NCCL_ALGO=Tree (environment) is in force",
    ),
    (
        None,
        {"NCCL_P2P_DISABLE": "1"},
        "without a record of variables, and NCCL_P2P_DISABLE=1 (environment) is in force now",
    ),
    (
        {"NCCL_PROTO": "Simple"},
        {"NCCL_BUFFSIZE": "8388608"},
        "without NCCL_BUFFSIZE=8388608 (environment), which is in force now, and with NCCL_PROTO=Simple, which is not "
        "in force now",
    ),
]

ALIKE: list[tuple[dict[str, str] | None, dict[str, str] | None]] = [
    ({}, {}),
    (None, {}),
    ({"NCCL_ALGO": "Ring"}, None),
    ({"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "ring"}),
    ({"NCCL_BUFFSIZE": "8388608"}, {"NCCL_BUFFSIZE": "0x800000"}),
    ({}, {"NCCL_P2P_DISABLE": "0", "NCCL_ALGO": ""}),
    ({}, {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_0", "NCCL_SOCKET_IFNAME": "eth0", "PATH": "/bin"}),
]


@pytest.mark.parametrize(("then", "now", "how"), DIFFERENT)
def test_collectives_of_other_variables_are_told_and_not_counted(
    then: dict[str, str] | None, now: dict[str, str], how: str
) -> None:
    snapshot = machine(now, measurements=[reduced(then)])
    told = estimates.cost(snapshot, "all_reduce", [64 << 20])
    assert told.rows[0].basis == "estimated"
    assert f"Measured {how}, so that is not counted." in told.warnings
    assert summary.lines(snapshot, graph.build(snapshot)) == [
        f"Measured {how}, not counted: all_reduce GPU0, GPU1 at 64 MiB 270.0 GB/s (2026-11-30)"
    ]


@pytest.mark.parametrize(("then", "now"), ALIKE)
def test_what_does_the_same_changes_nothing(then: dict[str, str] | None, now: dict[str, str] | None) -> None:
    assert variables.changed(then, machine(now)) is None
    told = estimates.cost(machine(now, measurements=[reduced(then)]), "all_reduce", [64 << 20])
    # Where nothing was read NCCL is taken without variables.
    assert told.rows[0].basis == ("estimated" if now is None and then else "measured")


def test_copies_depend_on_no_variable_and_what_failed_counts_under_any() -> None:
    copy = Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=396.0, peer_access=True, variables={})
    hung = reduced({}, outcome="timeout")
    snapshot = machine({"NCCL_P2P_DISABLE": "1"}, measurements=[copy, hung])
    lines = summary.lines(snapshot, graph.build(snapshot))
    assert [line.partition(":")[0] for line in lines] == [
        "NV18 between GPUs",
        "all_reduce over 2 GPUs",
        "Failed without NCCL_P2P_DISABLE=1 (environment), which is in force now",
    ]
    assert "P2P042" in {finding.id for finding in advise.advise(snapshot).findings}


def test_an_experiment_that_failed_hides_nothing_and_is_told_until_it_passes() -> None:
    usual, failed = reduced({}, 300.0), reduced({"NCCL_PROTO": "LL128"}, None, outcome="wrong-data", date="2026-12-01")
    snapshot = machine({}, measurements=[usual, failed])
    found = counted.of(snapshot, graph.build(snapshot))
    assert (found.counted, found.older) == ([usual, failed], [])
    assert estimates.cost(snapshot, "all_reduce", [64 << 20]).rows[0].basis == "measured"
    lines = summary.lines(snapshot, graph.build(snapshot))
    assert lines[-1].startswith(
        "Failed with NCCL_PROTO=LL128, which is not in force now: all_reduce GPU0, GPU1 at 64 MiB"
    )
    passes = reduced({}, 301.0, date="2026-12-02")
    snapshot = machine({}, measurements=[usual, failed, passes])
    found = counted.of(snapshot, graph.build(snapshot))
    assert (found.counted, found.failed_otherwise) == ([passes], [])


def test_an_assumed_variable_was_not_in_force() -> None:
    snapshot = machine(None, measurements=[reduced({"NCCL_ALGO": "Ring"})])
    assumed = assume.apply(snapshot, [Assumption(fact="env.NCCL_PROTO", value="Simple")])
    how = "without NCCL_PROTO=Simple (assumed), which is in force now"
    assert summary.lines(assumed, graph.build(assumed))[0].startswith(f"Measured {how}, not counted: ")


def judged(now: dict[str, str] | None, *found: Trial, **more: Any) -> tuple[list[str], list[str]]:
    """(variables that a trial advises, why winners are not advised)."""
    advice = advise.advise(machine(now, trials=list(found), **more))
    return [each.name for each in advice.settings if each.rule == "trial"], advice.passed_over


@pytest.mark.parametrize(("then", "now", "how"), DIFFERENT)
def test_a_trial_under_other_variables_advises_nothing(
    then: dict[str, str] | None, now: dict[str, str], how: str
) -> None:
    assert judged(now, trial(variables=then)) == ([], [f"NCCL_MIN_CTAS=32 won a trial {how}: prove it again."])


@pytest.mark.parametrize(("then", "now"), ALIKE)
def test_a_trial_under_the_same_variables_counts(then: dict[str, str] | None, now: dict[str, str] | None) -> None:
    assert judged(now, trial(variables=then)) == (["NCCL_MIN_CTAS"], [])


def test_what_a_trial_tried_may_be_in_force_by_now() -> None:
    assert judged({"NCCL_MIN_CTAS": "32"}, trial(variables={})) == ([], [])
    assert judged({"NCCL_MIN_CTAS": "32"}, trial(variables=None)) == ([], [])
    gone = trial(settings={"NCCL_MIN_CTAS": None}, variables={"NCCL_MIN_CTAS": "4"})
    assert judged({}, gone) == ([], [])
    other = judged({"NCCL_MIN_CTAS": "4"}, trial(variables={}))
    assert other[1] == [
        "NCCL_MIN_CTAS=32 won a trial without NCCL_MIN_CTAS=4 (environment), which is in force now: prove it again."
    ]


@pytest.mark.parametrize("then", [{}, None, {"NCCL_MAX_CTAS": "8"}])
@pytest.mark.parametrize(
    ("tried", "now", "told"),
    [
        (
            {"NCCL_MIN_CTAS": "32"},
            {"NCCL_MAX_CTAS": "8"},
            "NCCL_MIN_CTAS=32 is above NCCL_MAX_CTAS=8: there is no number between; first take out NCCL_MAX_CTAS "
            "(environment).",
        ),
        (
            {"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "8"},
            {},
            "NCCL_MIN_CTAS=32 is above NCCL_MAX_CTAS=8: there is no number between.",
        ),
        (
            {"NCCL_P2P_LEVEL": "SYS"},
            {"NCCL_P2P_DISABLE": "1"},
            "NCCL_P2P_LEVEL has no effect with NCCL_P2P_DISABLE=1, which switches P2P off at every level; first take "
            "out NCCL_P2P_DISABLE (environment).",
        ),
    ],
)
def test_a_setting_that_another_holds_down_is_not_advised(
    tried: dict[str, str | None], now: dict[str, str], told: str, then: dict[str, str] | None
) -> None:
    names, passed = judged(now, trial(settings=tried, variables=then))
    assert names == []
    assert [line.partition(" won a trial and is not advised: ")[2] for line in passed] == [told]


def test_a_file_says_which_variable_of_the_environment_beats_it() -> None:
    now = {"NCCL_MIN_CTAS": "4"}
    snapshot = machine(now, trials=[trial(variables=now)])
    advice = advise.advise(snapshot)
    setting = next(each for each in advice.settings if each.name == "NCCL_MIN_CTAS")
    assert (setting.action, setting.value, setting.where) == ("set", "32", "environment")
    chosen = selection.select(advice, frozenset({"tuning"}), "2.28.9")
    assert nccl_conf.overruled(chosen, snapshot, file="/etc/nccl.conf") == [
        "environment sets NCCL_MIN_CTAS=4, which wins over /etc/nccl.conf"
    ]


BASELINE = 300.0
"""GB/s of the made trial at all its sizes, the largest 1 GiB."""


@pytest.mark.parametrize(
    ("gbps", "more", "agrees"),
    [
        (326.0, {}, True),
        (100.0, {}, False),
        (420.0, {}, False),
        (220.0, {"spread": 0.3}, True),
        (100.0, {"method": "NCCL 2.27.7, busbw"}, True),
        (100.0, {"driver": "550.54.15"}, True),
        (100.0, {"size_bytes": 1 << 26}, True),
        (100.0, {"kind": "all_gather"}, True),
        (200.0, {"size_bytes": 1 << 20}, True),
        (100.0, {"size_bytes": 1 << 20}, False),
    ],
)
def test_a_baseline_that_measurements_contradict_is_no_evidence(
    gbps: float, more: dict[str, Any], agrees: bool
) -> None:
    fields = {"size_bytes": 1 << 30, "method": "NCCL 2.28.9, busbw", "driver": "580.159.04", **more}
    names, passed = judged({}, trial(variables={}), measurements=[reduced({}, gbps, **fields)])
    assert names == (["NCCL_MIN_CTAS"] if agrees else [])
    if not agrees:
        size = "1 GiB" if fields["size_bytes"] == 1 << 30 else "1 MiB"
        assert passed == [
            "NCCL_MIN_CTAS=32 won a trial on 2026-11-30, and its rates are not those of this machine: all_reduce of "
            f"{size} reached {BASELINE} GB/s without it, and {gbps} when it was measured on 2026-11-30: prove it again."
        ]


def test_they_are_recorded_saved_and_redacted() -> None:
    now = {"NCCL_GRAPH_FILE": "/home/alice/g.xml", "NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO", "MY_TOKEN": "x"}
    snapshot = machine(now)
    then = variables.recorded(snapshot)
    assert then == {"NCCL_GRAPH_FILE": "/home/alice/g.xml", "NCCL_ALGO": "Ring"}
    assert variables.recorded(machine(None)) is None
    saved = msgspec.structs.replace(snapshot, measurements=[reduced(then)], trials=[trial(variables=then)])
    assert decode(encode(saved)) == saved
    public = redact.redact(saved)
    shown = {"NCCL_GRAPH_FILE": "/home/user-1/g.xml", "NCCL_ALGO": "Ring"}
    assert (public.measurements[0].variables, public.trials[0].variables) == (shown, shown)
    assert variables.changed(public.measurements[0].variables, public) is None
    assert redact.redact(public) == public


@pytest.mark.parametrize(
    "wrong", ['{"a b": "1"}', '{"NCCL_ALGO": ""}', '{"NCCL_ALGO": "x\\u001b"}', '{"NCCL_ALGO": 1}']
)
@pytest.mark.parametrize("where", ["measurements", "trials"])
def test_what_no_variable_can_be_is_an_error_with_its_path(where: str, wrong: str) -> None:
    made = machine({}, measurements=[reduced({"NCCL_X": "1"})], trials=[trial(variables={"NCCL_X": "1"})])
    text = msgspec.json.encode(getattr(made, where)).decode().replace('{"NCCL_X":"1"}', wrong)
    with pytest.raises(InputError, match=rf"\$\.{where}\[0\]"):
        decode(f'{{"schema":"topoadvisor.snapshot/1","{where}":{text}}}'.encode())


def test_saving_into_a_snapshot_of_another_environment_says_so(tmp_path: Any) -> None:
    file = tmp_path / "node.json"
    file.write_bytes(encode(machine({})))
    live = machine({"NCCL_ALGO": "Ring"})
    told = verify_run.save(file, live, trials=[trial(sizes=WON, variables=variables.recorded(live))])
    assert any("measured with NCCL_ALGO=Ring, which is not in force now" in line for line in told)


def test_what_was_measured_as_is_advised_counts_for_a_placement() -> None:
    snapshot = machine({"NCCL_P2P_DISABLE": "1"}, measurements=[reduced({})])
    placed = planning.Machine(snapshot, "nccl", as_advised=True).snapshot(2)
    assert variables.changed(placed.measurements[0].variables, placed) is None
    unsaid = msgspec.structs.replace(snapshot, measurements=[reduced(None)])
    assert planning.Machine(unsaid, "nccl", as_advised=True).snapshot(2).measurements == []
