from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topoadvisor.rules import engine
from topoadvisor.rules.facts import FactBase
from topoadvisor.rules.model import Rule
from topoadvisor.snapshot import Assumption, Cpu, Gpu, Host, Setting, Source

Rules = Callable[..., Rule]
Machines = Callable[..., FactBase]


def verdicts(rules: list[Rule], facts: FactBase, **options: Any) -> list[tuple[str, str, str]]:
    return [(each.rule.id, each.subject, each.verdict) for each in engine.evaluate(rules, facts, **options)]


def only(rule: Rule, facts: FactBase) -> engine.Outcome:
    (outcome,) = engine.evaluate([rule], facts)
    return outcome


@pytest.fixture
def amd(machine: Machines) -> FactBase:
    """A machine whose CPU vendor is known and whose NCCL and driver are not."""
    return machine(host=Host(cpu=Cpu(vendor="AMD")))


KNOWN, UNREAD = 'cpu.vendor == "AMD"', 'nccl.version == "2.28.9"'


@pytest.mark.parametrize(
    ("keys", "verdict"),
    [
        ({"when": KNOWN}, "fires"),
        ({"when": f"!({KNOWN})"}, "quiet"),
        ({"when": UNREAD}, "unknown"),
        ({"when": f"{UNREAD} || {KNOWN}"}, "fires"),
        ({"when": f"{UNREAD} && !({KNOWN})"}, "quiet"),
        ({"when": KNOWN, "not_when": ["gpus.count == 2"]}, "not-applicable"),
        ({"when": KNOWN, "not_when": ["gpus.count == 3"]}, "fires"),
        ({"when": KNOWN, "not_when": [UNREAD]}, "fires"),
        ({"when": KNOWN, "not_when": [UNREAD], "applies_when": UNREAD}, "unknown"),
        ({"when": KNOWN, "not_when": [UNREAD, "gpus.count == 2"]}, "not-applicable"),
        ({"when": UNREAD, "not_when": ["gpus.count == 2"]}, "not-applicable"),
        ({"when": f"!({KNOWN})", "not_when": [UNREAD]}, "quiet"),
        ({"when": KNOWN, "applies_when": "gpus.count == 3"}, "not-applicable"),
        ({"when": KNOWN, "applies_when": "gpus.count == 2"}, "fires"),
        ({"when": KNOWN, "applies_when": UNREAD}, "unknown"),
        ({"when": f"!({KNOWN})", "applies_when": UNREAD}, "quiet"),
    ],
)
def test_verdicts(amd: FactBase, rule: Rules, keys: dict[str, Any], verdict: str) -> None:
    assert only(rule(**keys), amd).verdict == verdict


def test_an_exception_that_was_not_read_makes_a_hypothesis_without_variables(amd: FactBase, rule: Rules) -> None:
    advice = [
        {"action": "Look at it.", "set": {"NCCL_DEBUG": "WARN"}, "class": "system"},
        {"set": {"NCCL_IB_TIMEOUT": "22"}, "class": "system"},
    ]
    told = only(rule(when=KNOWN, not_when=[UNREAD], ask="nccl --version", advice=advice), amd)
    assert told.hypothesis
    assert told.title == "Hypothesis: A title"
    assert [entry.action for entry in told.advice] == [
        f"It does not hold where {UNREAD}, and that was not read.",
        "Look at it.",
    ]
    assert told.advice[0].command == "nccl --version"
    assert engine.claims([told]) == []
    certain = only(rule(when=KNOWN, not_when=["gpus.count == 3"], advice=advice), amd)
    assert not certain.hypothesis
    assert [claim.variable for claim in engine.claims([certain])] == ["NCCL_DEBUG", "NCCL_IB_TIMEOUT"]


def test_only_the_open_part_of_an_exception_is_told(amd: FactBase, rule: Rules) -> None:
    partly = [f"gpus.count > 1 && ({UNREAD})", f"!(gpus.count == 1) && !({UNREAD})"]
    told = only(rule(when=KNOWN, not_when=partly), amd)
    assert told.advice[0].action == f"It does not hold where {UNREAD} or where !({UNREAD}), and that was not read."


@pytest.mark.parametrize(
    ("exception", "told"),
    [
        ("vm.guest", "where this is a virtual machine (vm.guest)"),
        ("vm.guest == false", "unless this is a virtual machine (vm.guest)"),
    ],
)
def test_an_exception_of_one_fact_is_told_by_its_meaning(amd: FactBase, rule: Rules, exception: str, told: str) -> None:
    assert only(rule(when=KNOWN, not_when=[exception]), amd).advice[0].action.startswith(f"It does not hold {told},")


def test_a_last_word_is_kept_where_another_finding_rests_on_the_fact(amd: FactBase, rule: Rules) -> None:
    last = rule(id="TST001", name="last", when=KNOWN, last_word_on="gpus.count", evidence=["gpus.count"])
    other = rule(id="TST002", name="other", subject="gpu", when="gpu.index == 1", evidence=["gpus.count"])
    quiet = rule(id="TST002", name="other", subject="gpu", when="gpu.index == 9", evidence=["gpus.count"])
    assert verdicts([last, other], amd)[0] == ("TST001", "node", "not-applicable")
    assert verdicts([last, quiet], amd)[0] == ("TST001", "node", "fires")


def test_a_rule_that_says_more_silences_another_about_the_same_subject(amd: FactBase, rule: Rules) -> None:
    general = rule(id="TST001", name="general", subject="gpu", when="gpu.index >= 0")
    special = rule(id="TST002", name="special", subject="gpu", when="gpu.index == 1", instead_of=["TST001"])
    assert verdicts([general, special], amd) == [
        ("TST001", "gpu:0", "fires"),
        ("TST001", "gpu:1", "not-applicable"),
        ("TST002", "gpu:0", "quiet"),
        ("TST002", "gpu:1", "fires"),
    ]


def test_an_unknown_verdict_names_the_facts_that_are_missing_and_why(machine: Machines, rule: Rules) -> None:
    refused = [Source(name="nvml", status="failed", reason="the kernel driver is not loaded")]
    facts = machine(host=Host(cpu=Cpu(vendor="AMD")), sources=refused)
    outcome = only(rule(when=f'{KNOWN} && driver.version == "1" && cuda.version == "2"', ask="nvidia-smi"), facts)
    assert [missing.fact for missing in outcome.missing] == ["driver.version", "cuda.version"]
    assert outcome.reason == "driver.version, cuda.version: NVML: the kernel driver is not loaded"
    assert outcome.ask == "nvidia-smi"


def test_one_verdict_per_subject_in_order_of_rule_and_index(machine: Machines, rule: Rules) -> None:
    facts = machine([Gpu(index=0), Gpu(index=2), Gpu(index=10)])
    rules = [
        rule(id="TST002", name="b", subject="gpu", when="gpu.index < 5"),
        rule(id="TST001", name="a", subject="pair", when='pair.a == "GPU0"'),
    ]
    assert verdicts(rules, facts) == [
        ("TST001", "gpu:0-gpu:2", "fires"),
        ("TST001", "gpu:0-gpu:10", "fires"),
        ("TST001", "gpu:2-gpu:10", "quiet"),
        ("TST002", "gpu:0", "fires"),
        ("TST002", "gpu:2", "fires"),
        ("TST002", "gpu:10", "quiet"),
    ]


def test_a_rule_says_nothing_when_there_is_nobody_to_ask_about(machine: Machines, rule: Rules) -> None:
    assert verdicts([rule(subject="nic", when="true")], machine()) == []


def test_preview_rules_run_only_when_asked(amd: FactBase, rule: Rules) -> None:
    preview = rule(status="preview", when=KNOWN)
    assert verdicts([preview], amd) == []
    assert verdicts([preview], amd, preview=True) == [("TST001", "node", "fires")]


def test_a_finding_is_rendered_with_its_evidence(machine: Machines, rule: Rules) -> None:
    facts = machine([Gpu(index=0, name="A", compute_capability="8.6"), Gpu(index=1, name="B")])
    outcome = engine.evaluate(
        [
            rule(
                subject="gpu",
                when="gpu.index == 0",
                title="{gpu.label} of {gpus.models}: {gpu.compute_capability}, {gpu.mig}, {not a fact}",
                evidence=["gpu.name", "gpu.mig"],
            )
        ],
        facts,
    )[0]
    assert outcome.title == "GPU0 of A, B: 8.6, unknown, {not a fact}"
    name, mig = outcome.evidence
    assert (name.fact, name.value, name.origin) == ("gpu.name", "A", "nvml")
    assert mig.value == "unknown"
    assert mig.origin.startswith("not read: NVML")


def test_an_entry_of_advice_applies_by_its_own_condition_and_version(machine: Machines, rule: Rules) -> None:
    advice = [
        {"action": "always"},
        {"action": "never", "when": "gpus.count > 2"},
        {"action": "old", "nccl": "<2.20"},
        {"action": "new", "nccl": ">=2.20,<3", "command": "run {gpus.count}"},
    ]
    facts = machine(assumptions=[Assumption(fact="nccl.version", value="2.28.9")])
    outcome = only(rule(advice=advice), facts)
    assert [entry.action for entry in outcome.advice] == ["always", "new"]
    assert outcome.advice[1].command == "run 2"


def test_an_entry_that_cannot_be_decided_is_left_out_and_says_what_it_needs(amd: FactBase, rule: Rules) -> None:
    outcome = only(rule(advice=[{"action": "maybe", "when": UNREAD}, {"action": "sure"}]), amd)
    assert [entry.action for entry in outcome.advice] == ["sure"]
    assert [missing.fact for missing in outcome.missing] == ["nccl.version"]


def test_no_variable_is_ever_set_to_a_guess(amd: FactBase, rule: Rules) -> None:
    advice = [{"set": {"NCCL_SOCKET_IFNAME": "={net.default_interface}"}, "class": "system"}]
    outcome = only(rule(advice=advice), amd)
    assert outcome.verdict == "fires"
    assert outcome.advice == ()
    assert [missing.fact for missing in outcome.missing] == ["net.default_interface"]


def test_the_reason_of_a_setting_is_the_title_unless_given(amd: FactBase, rule: Rules) -> None:
    advice = [
        {"set": {"NCCL_CROSS_NIC": "0"}, "class": "system"},
        {"unset": ["NCCL_ALGO"], "reason": "{gpus.count} GPUs"},
    ]
    outcome = only(rule(title="On {cpu.vendor}", advice=advice), amd)
    assert [entry.reason for entry in outcome.advice] == ["On AMD", "2 GPUs"]


def test_right_is_said_only_where_the_rule_applies(amd: FactBase, rule: Rules) -> None:
    sentence = "{gpus.count} GPUs are fine."
    assert only(rule(when="false", right=sentence), amd).right == "2 GPUs are fine."
    assert only(rule(when="false", right=sentence, applies_when="gpus.count > 2"), amd).right is None
    assert only(rule(when="false", right=sentence, not_when=[UNREAD]), amd).right is None
    assert only(rule(when="true", right=sentence), amd).right is None


@pytest.mark.parametrize("condition", ["gpus.count", "cpu.vendor < 3", "gpus.count ==", "frobnicate(gpus.count)"])
def test_a_faulty_rule_is_unknown_with_the_blame_on_the_rule(amd: FactBase, rule: Rules, condition: str) -> None:
    outcome = only(rule(when=condition), amd)
    assert outcome.verdict == "unknown"
    assert outcome.missing == ()
    assert "TST001 in test.yaml cannot be evaluated" in outcome.reason


def test_a_fault_on_one_subject_leaves_the_next_alone(machine: Machines, rule: Rules) -> None:
    facts = machine(settings=[Setting(name="A", value="x", origin="o"), Setting(name="B", value="7", origin="o")])
    found = engine.evaluate([rule(subject="variable", when="int(variable.value) == 7")], facts)
    assert [(each.verdict, bool(each.fault)) for each in found] == [("unknown", True), ("fires", False)]


def test_an_unset_variable_is_empty_when_settings_were_read_and_unknown_otherwise(
    machine: Machines, rule: Rules
) -> None:
    condition = rule(when='env.NCCL_ALGO == "" && env.SITE_PLUGIN == ""')
    assert only(condition, machine(settings=[])).verdict == "fires"
    unread = only(condition, machine(settings=None))
    assert unread.verdict == "unknown"
    assert [missing.fact for missing in unread.missing] == ["env.NCCL_ALGO", "env.SITE_PLUGIN"]


def setter(rule: Rules, number: int, value: str, **keys: Any) -> Rule:
    advice = [{"set": {"NCCL_P2P_LEVEL": value}, "class": "system"}]
    return rule(id=f"TST{number:03}", name=f"rule-{number}", advice=advice, **keys)


def test_rules_that_want_different_values_conflict(amd: FactBase, rule: Rules) -> None:
    unsetter = rule(id="TST003", name="rule-3", advice=[{"unset": ["NCCL_P2P_LEVEL"]}])
    rules = [setter(rule, 1, "NVL"), setter(rule, 2, "PXB"), unsetter]
    (conflict,) = engine.conflicts(engine.evaluate(rules, amd))
    assert conflict.variable == "NCCL_P2P_LEVEL"
    assert conflict.message == (
        "the rules disagree about NCCL_P2P_LEVEL: TST001 wants it = NVL, TST002 wants it = PXB, TST003 wants it unset"
    )


@pytest.mark.parametrize(
    ("second", "keys"),
    [("NVL", {}), ("PXB", {"overrides": ["TST001"]}), ("PXB", {"when": "false"})],
    ids=["same value", "overrides", "quiet"],
)
def test_rules_that_agree_override_or_are_quiet_do_not(
    amd: FactBase, rule: Rules, second: str, keys: dict[str, Any]
) -> None:
    outcomes = engine.evaluate([setter(rule, 1, "NVL"), setter(rule, 2, second, **keys)], amd)
    assert engine.conflicts(outcomes) == []


def test_an_overridden_claim_is_dropped(amd: FactBase, rule: Rules) -> None:
    rules = [setter(rule, 1, "NVL"), setter(rule, 2, "PXB", overrides=["TST001"])]
    assert [(claim.rule, claim.value) for claim in engine.claims(engine.evaluate(rules, amd))] == [("TST002", "PXB")]


def test_the_same_snapshot_gives_the_same_outcomes(machine: Machines, rule: Rules) -> None:
    rules = [rule(subject="pair", when="pair.p2p.ok && gpus.count > 1", evidence=["pair.p2p.ok", "nccl.version"])]
    fields = {"gpus": 4, "joins": {(0, 1): "NV4", (2, 3): "NV4"}}
    assert engine.evaluate(rules, machine(**fields)) == engine.evaluate(rules, machine(**fields))


@pytest.mark.parametrize(
    ("when", "verdict"),
    [
        ('job.message.matches("refused")', "quiet"),
        ('job.message.matches("refused") && cpu.sockets > 1', "quiet"),
        ('job.message.matches("refused") || cpu.vendor == "AMD"', "fires"),
        ('job.message.matches("refused") || has(cpu.vendor)', "fires"),
        ('!job.message.matches("refused")', "fires"),
        ('job.message == ""', "fires"),
        ('job.message.matches("refused") || cpu.sockets > 1', "unknown"),
    ],
)
def test_a_condition_on_a_message_that_nobody_gave(amd: FactBase, rule: Rules, when: str, verdict: str) -> None:
    (outcome,) = engine.evaluate([rule(id="TST001", name="message", when=when)], amd)
    assert outcome.verdict == verdict
