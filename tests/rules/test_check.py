from __future__ import annotations

from pathlib import Path

import pytest

from topoadvisor.rules import check

RULE = """\
- id: TST00{number}
  name: rule-{number}
  status: stable
  subject: pair
  when: {when}
  severity: warning
  title: Title
  why: Reason
  verify: peer-copy
  advice:
    - {advice}
"""


def report(tmp_path: Path, *texts: str) -> check.Report:
    place = tmp_path / "site"
    place.mkdir()
    (place / "site.yaml").write_text("".join(texts))
    return check.check([place])


def rule(number: int = 1, when: str = "pair.nvlinks == 0", advice: str = "{action: look}") -> str:
    return RULE.format(number=number, when=f"'{when}'", advice=advice)


def test_the_shipped_rules_have_no_fault() -> None:
    found = check.check()
    assert [fault.message for fault in found.faults] == []
    assert len(found.rules) >= 15


@pytest.mark.usefixtures("no_shipped_rules")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  verify: peer-copy\n", "", "a stable rule needs `verify`"),
        ("peer-copy", "peer-copi", "there is no measurement `peer-copi`"),
        ("peer-copy", '"ib_write_bw: no bandwidth proves it"', None),
    ],
)
def test_a_stable_rule_says_what_would_refute_it(tmp_path: Path, old: str, new: str, message: str | None) -> None:
    faults = report(tmp_path, rule().replace(old, new)).faults
    assert [message in str(fault) for fault in faults if message] == [True] * bool(message)
    assert len(faults) == bool(message)


@pytest.mark.usefixtures("no_shipped_rules")
@pytest.mark.parametrize(
    "when",
    [
        "pair.nvlinks == 0 || pair.a < 3",
        "pair.nvlinks",
        "pair.nvlinks > 0 && pair.gbps",
        "pair.a == 0",
        'pair.nvlinks != "0" || gpus.count > 1',
        "env.NCCL_P2P_DISABLE == 1",
        "vm.guest == 1",
        'pair.nvlinks in ["1", "2"]',
        "pair.nvlinks in rdma.active",
        "size(pair.nvlinks) > 1",
        "pair.a.matches(3)",
    ],
)
def test_a_comparison_that_can_never_work_is_a_fault_even_where_logic_hides_it(tmp_path: Path, when: str) -> None:
    (fault,) = report(tmp_path, rule(when=when)).faults
    assert fault.line == 5
    assert "can never be evaluated" in fault.message


@pytest.mark.usefixtures("no_shipped_rules")
@pytest.mark.parametrize(
    "when",
    [
        'pair.nvlinks == 0 && (pair.a == "GPU0" || !pair.same_numa) && pair.gbps >= 3.0 && gpus.count > 1.5',
        'rdma.active.exists(name, name == pair.a) && "x" in rdma.active && pair.link_class in ["PIX", "PXB"]',
        'size(matches_set("=" + env.NCCL_IB_HCA, rdma.names)) > 0 && version_ge(nccl.version, "2.20")',
        "int(env.NCCL_ALGO) == 1 && pair.nvlinks + 1 == gpus.count * 2 && pair.a != pair.b",
        "(pair.same_numa ? pair.nvlinks : gpus.count) > 1 && vm.guest == false",
    ],
)
def test_comparisons_that_work_are_none(tmp_path: Path, when: str) -> None:
    assert report(tmp_path, rule(when=when)).faults == ()


@pytest.mark.usefixtures("no_shipped_rules")
def test_every_fault_of_every_rule_is_reported_in_order(tmp_path: Path) -> None:
    text = rule(1, "pair.nope") + rule(2, "pair.a < 3") + rule(3) + "- id: TST004\n"
    found = report(tmp_path, text)
    assert [fault.line for fault in found.faults] == [5, 16, 34]
    assert [each.id for each in found.rules] == ["TST002", "TST003"]


@pytest.mark.usefixtures("no_shipped_rules")
def test_a_key_that_stands_twice_is_a_fault(tmp_path: Path) -> None:
    (fault,) = report(tmp_path, rule() + "  why: another\n").faults
    assert (fault.line, "`why` stands here twice" in fault.message) == (12, True)


def setter(number: int, value: str, condition: str = "gpus.count > 1", more: str = "", **keys: str) -> str:
    inside = "".join(f", {key}: '{text}'" for key, text in keys.items())
    text = rule(number, condition, f"{{set: {{NCCL_P2P_LEVEL: {value}}}, class: system{inside}}}")
    return (text if "pair." in condition else text.replace("subject: pair", "subject: node")) + more


@pytest.mark.usefixtures("no_shipped_rules")
def test_rules_that_want_different_values_of_one_variable_are_a_fault(tmp_path: Path) -> None:
    found = report(tmp_path, setter(1, "NVL"), setter(2, "PXB"))
    (fault,) = found.faults
    assert (fault.line, found.warnings) == (22, ())
    assert "TST002 sets NCCL_P2P_LEVEL=PXB and TST001 (" in fault.message
    assert "site.yaml:11) NCCL_P2P_LEVEL=NVL" in fault.message
    assert fault.hint is not None
    assert "overrides: [TST001]" in fault.hint


@pytest.mark.usefixtures("no_shipped_rules")
def test_the_same_value_twice_is_none(tmp_path: Path) -> None:
    found = report(tmp_path, setter(1, "NVL"), setter(2, "NVL"))
    assert (found.faults, found.warnings) == ((), ())


@pytest.mark.usefixtures("no_shipped_rules")
def test_an_override_settles_it(tmp_path: Path) -> None:
    found = report(tmp_path, setter(1, "NVL"), setter(2, "PXB", more="  overrides: [TST001]\n"))
    assert (found.faults, found.warnings) == ((), ())


@pytest.mark.usefixtures("no_shipped_rules")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gpus.count == 8", "gpus.count == 4 && nvlink.any"),
        ("nvlink.any && gpus.count > 1", "!(nvlink.any || vm.guest)"),
        ("nvlink.any", "!nvlink.any"),
        ("nvlink.any == true", "!(!(!nvlink.any))"),
        ("gpus.count < 4", "gpus.count >= 4"),
        ("4 > gpus.count", "(gpus.count > 3.9) && (gpus.count >= 4)"),
        ('cpu.vendor in ["AMD", "Arm"]', 'cpu.vendor == "Intel"'),
        ('cpu.vendor in ["AMD", "Arm"]', '!(cpu.vendor in ["Arm", "AMD", "IBM"])'),
        ('cpu.vendor != "AMD"', '"AMD" == cpu.vendor'),
        ('version_ge(nccl.version, "2.9")', '!version_ge(nccl.version, "2.9")'),
    ],
)
def test_conditions_that_exclude_each_other_settle_it(tmp_path: Path, one: str, other: str) -> None:
    found = report(tmp_path, setter(1, "NVL", one), setter(2, "PXB", other))
    assert (found.faults, found.warnings) == ((), ())


@pytest.mark.usefixtures("no_shipped_rules")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gpus.count >= 4", "gpus.count <= 4"),
        ("gpus.count == 8 || nvlink.any", "gpus.count == 4"),
        ("!(gpus.count == 8 && nvlink.any)", "gpus.count == 8"),
        ('cpu.vendor in ["AMD", "Arm"]', 'cpu.vendor in ["Arm", "IBM"]'),
        ("nvlink.any ? vm.guest : true", "!nvlink.any"),
        ('cpu.vendor != "AMD"', 'cpu.vendor != "Intel"'),
        ('version_ge(nccl.version, "2.9")', '!version_ge(nccl.version, "2.10")'),
        ('"GPU == 1" in rdma.names', 'cpu.vendor == "1"'),
        ("gpus.count + 1 == 8", "gpus.count == 4"),
    ],
)
def test_conditions_that_may_hold_together_do_not(tmp_path: Path, one: str, other: str) -> None:
    assert len(report(tmp_path, setter(1, "NVL", one), setter(2, "PXB", other)).faults) == 1


@pytest.mark.usefixtures("no_shipped_rules")
def test_not_when_applies_when_and_the_conditions_of_the_advice_count_too(tmp_path: Path) -> None:
    plain = "gpus.count > 1"
    found = report(
        tmp_path,
        setter(1, "NVL", plain, "  not_when: [vm.guest]\n", nccl=">=2.20"),
        setter(2, "PXB", plain, "  applies_when: vm.guest\n"),
        setter(3, "PIX", f"{plain} && !vm.guest", nccl="<2.20"),
        setter(4, "SYS", plain, "  overrides: [TST002, TST003]\n", when="vm.guest"),
    )
    assert (found.faults, found.warnings) == ((), ())


@pytest.mark.usefixtures("no_shipped_rules")
@pytest.mark.parametrize(
    ("one", "other", "together"),
    [(">=2.20", "<2.20", False), (">2.20", "<=2.20", False), (">=2.20", "<=2.20", True), ("<2.9", "<2.8", True)],
)
def test_the_nccl_of_the_advice_counts(tmp_path: Path, one: str, other: str, together: bool) -> None:
    found = report(tmp_path, setter(1, "NVL", nccl=one), setter(2, "PXB", nccl=other))
    assert bool(found.faults) is together


@pytest.mark.usefixtures("no_shipped_rules")
def test_pairs_that_differ_may_still_be_on_one_machine(tmp_path: Path) -> None:
    found = report(tmp_path, setter(1, "NVL", "pair.nvlinks == 0"), setter(2, "PXB", "pair.nvlinks == 4"))
    assert found.faults == ()
    (warning,) = found.warnings
    assert "never about one pair, but perhaps on one machine" in warning


@pytest.mark.usefixtures("no_shipped_rules")
def test_rules_about_different_things_fire_on_one_machine(tmp_path: Path) -> None:
    found = report(tmp_path, setter(1, "NVL", "pair.nvlinks == 0"), setter(2, "PXB", "gpus.count == 4"))
    assert len(found.faults) == 1


@pytest.mark.usefixtures("no_shipped_rules")
def test_overrides_in_a_circle_are_a_fault(tmp_path: Path) -> None:
    more = ["  overrides: [TST002]\n", "  overrides: [TST003, TST004]\n", "  overrides: [TST001]\n"]
    texts = [setter(number + 1, "NVL", more=text) for number, text in enumerate(more)]
    found = report(tmp_path, *texts, setter(4, "NVL", more="  overrides: [TST005]\n"), setter(5, "NVL"))
    (fault,) = found.faults
    assert fault.line == 12
    assert "in a circle, so that none counts: TST001 → TST002 → TST003 → TST001" in fault.message


@pytest.mark.usefixtures("no_shipped_rules")
def test_every_circle_of_overrides_is_found(tmp_path: Path) -> None:
    wanted = {1: [2, 4], 2: [3], 3: [2], 4: [1]}
    texts = [
        setter(number, "NVL", more=f"  overrides: [{', '.join(f'TST00{other}' for other in others)}]\n")
        for number, others in wanted.items()
    ]
    messages = [fault.message.rpartition(": ")[2] for fault in report(tmp_path, *texts).faults]
    assert messages == ["TST001 → TST004 → TST001", "TST002 → TST003 → TST002"]


@pytest.mark.usefixtures("no_shipped_rules")
@pytest.mark.parametrize("value", ['"1"', "it`s", " 1", "1\\n", "1\\r", "", "eth0, eth1", "x" * 1024])
def test_a_value_that_could_not_be_written_is_a_fault(tmp_path: Path, value: str) -> None:
    quoted = '"' + value.replace('"', '\\"') + '"'
    (fault,) = report(tmp_path, rule(advice=f"{{set: {{NCCL_SOCKET_IFNAME: {quoted}}}, class: system}}")).faults
    assert fault.line == 11
    assert "NCCL_SOCKET_IFNAME cannot be set to " in fault.message
