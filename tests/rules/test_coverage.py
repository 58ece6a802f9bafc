"""Every known problem is covered by a rule, by something else, or has a reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from topoadvisor.rules.load import load

REPOSITORY = Path(__file__).resolve().parents[2]
COVERAGE: dict[str, dict[str, Any]] = yaml.safe_load((REPOSITORY / "docs/coverage.yaml").read_text(encoding="utf-8"))
PROBLEMS = REPOSITORY / "../shared/knowledge/problems.md"
BESIDE: list[dict[str, Any]] = COVERAGE.pop("beside")  # type: ignore[assignment]
RULES = {rule.id: rule for rule in load()}
FAMILIES = {"P2P": 23, "NVL": 16, "PCI": 10, "VM": 5, "NET": 31, "SYS": 13, "ENV": 13, "SEL": 7, "CLD": 6, "NVS": 3}
"""Family → problems that are known."""


def test_every_problem_has_an_entry() -> None:
    expected = [f"{family}-{number:02}" for family, count in FAMILIES.items() for number in range(1, count + 1)]
    assert list(COVERAGE) == expected


@pytest.mark.skipif(not PROBLEMS.is_file(), reason="the catalogue of problems is not here")
def test_the_catalogue_names_no_other() -> None:
    heads = [line.split()[1] for line in PROBLEMS.read_text(encoding="utf-8").splitlines() if line.startswith("### ")]
    assert set(heads) == set(COVERAGE)


@pytest.mark.parametrize("problem", COVERAGE)
def test_an_entry_names_what_exists(problem: str) -> None:
    entry = COVERAGE[problem]
    assert set(entry) <= {"what", "rules", "by", "left", "ask"}
    assert entry["what"]
    assert entry.get("rules") or entry.get("by") or entry.get("left"), "nobody covers it, and there is no reason"
    assert entry.get("rules") or entry.get("left"), "no rule, and no reason why not"
    assert not [rule for rule in entry.get("rules", ()) if rule not in RULES]
    assert set(entry.get("by", ())) <= {"log", "lint", "verify", "diff", "rings", "explain"}
    assert [rule for rule in entry.get("rules", ()) if RULES[rule].status == "stable"] or entry.get("left")


def test_every_rule_is_in_the_table() -> None:
    named = [rule for entry in [*COVERAGE.values(), *BESIDE] for rule in entry.get("rules", ())]
    assert set(RULES) - set(named) == set()
    assert set(named) - set(RULES) == set()
    whats = [entry["what"] for entry in BESIDE]
    assert all(whats)
    assert sorted(whats) == sorted(set(whats))


def test_there_are_at_least_110_stable_rules() -> None:
    assert sum(rule.status == "stable" for rule in RULES.values()) >= 110
