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
    assert [fault.line for fault in found.faults] == [5, 15, 31]
    assert [each.id for each in found.rules] == ["TST002", "TST003"]


@pytest.mark.usefixtures("no_shipped_rules")
def test_a_key_that_stands_twice_is_a_fault(tmp_path: Path) -> None:
    (fault,) = report(tmp_path, rule() + "  why: another\n").faults
    assert (fault.line, "`why` stands here twice" in fault.message) == (11, True)


@pytest.mark.usefixtures("no_shipped_rules")
@pytest.mark.parametrize(("second", "collide"), [("PXB", True), ("NVL", False)])
def test_rules_that_could_set_one_variable_differently_are_warned_about(
    tmp_path: Path, second: str, collide: bool
) -> None:
    texts = [
        rule(number, advice=f"{{set: {{NCCL_P2P_LEVEL: {value}}}, class: system}}")
        for number, value in ((1, "NVL"), (2, second))
    ]
    found = report(tmp_path, *texts)
    assert found.faults == ()
    assert bool(found.warnings) is collide
    if collide:
        assert "TST001" in found.warnings[0]
        assert "TST002" in found.warnings[0]


@pytest.mark.usefixtures("no_shipped_rules")
def test_an_override_settles_it(tmp_path: Path) -> None:
    first = rule(1, advice="{set: {NCCL_P2P_LEVEL: NVL}, class: system}")
    second = rule(2, advice="{set: {NCCL_P2P_LEVEL: PXB}, class: system}") + "  overrides: [TST001]\n"
    assert report(tmp_path, first, second).warnings == ()
