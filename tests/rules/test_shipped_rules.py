"""Every shipped rule: well formed, fires where it must, and does not on a machine that differs in one thing."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml

from topoadvisor import files, snapshot
from topoadvisor.ingest import assume
from topoadvisor.rules import engine, facts, load
from topoadvisor.rules.model import Rule
from topoadvisor.snapshot import Assumption
from topoadvisor.topology import graph

CASES: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8")
)
RULES = {rule.id: rule for rule in load.load()}


@functools.cache
def fixture(name: str) -> snapshot.Snapshot:
    path = files.shipped("fixtures") / name / "snapshot.json"
    return snapshot.decode(path.read_bytes(), file=str(path))


def outcomes(rule: Rule, case: dict[str, Any]) -> list[engine.Outcome]:
    assumptions = [Assumption(fact=fact, value=value) for fact, value in case.get("assume", {}).items()]
    machine = assume.apply(fixture(case["machine"]), assumptions)
    return engine.evaluate([rule], facts.gather(machine, graph.build(machine)), preview=True)


def test_every_rule_has_its_two_machines() -> None:
    assert sorted(CASES) == sorted(RULES)


@pytest.mark.parametrize("rule_id", sorted(CASES))
def test_it_fires_where_it_must(rule_id: str) -> None:
    case = CASES[rule_id]["fires"]
    found = outcomes(RULES[rule_id], case)
    fired = [outcome for outcome in found if outcome.verdict == "fires"]
    assert fired, [(outcome.subject, outcome.verdict, outcome.reason) for outcome in found]
    # Bridges and ports have names of their own on every machine: there "first" stands for whatever comes first.
    assert fired[0].subject == case.get("subject", fired[0].subject)
    assert case.get("first") or "subject" in case
    assert "unknown" not in fired[0].title, fired[0].title
    assert fired[0].advice, "a finding without advice"


@pytest.mark.parametrize("rule_id", sorted(CASES))
def test_it_is_silent_on_the_similar_machine(rule_id: str) -> None:
    found = outcomes(RULES[rule_id], CASES[rule_id]["silent"])
    assert {outcome.verdict for outcome in found} <= {"quiet", "not-applicable"}, [
        (outcome.subject, outcome.verdict, outcome.reason, outcome.title) for outcome in found
    ]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_texts_are_sentences(rule: Rule) -> None:
    assert rule.why.strip().endswith("."), "why must end with a full stop"
    for entry in rule.advice:
        if entry.action is not None:
            assert entry.action.rstrip().endswith("."), entry.action
    if rule.right is not None:
        assert rule.right.endswith("."), rule.right
