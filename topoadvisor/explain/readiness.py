"""Whether a machine is ready for one system (GPUDirect RDMA, GIN, MNNVL): what it takes, and what rules say of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from topoadvisor import compiled
from topoadvisor.explain import glossary
from topoadvisor.explain.ladder import Answer
from topoadvisor.rules import cel, engine
from topoadvisor.rules.engine import Outcome
from topoadvisor.rules.facts import FactBase, Unknown, gather
from topoadvisor.rules.model import Rule
from topoadvisor.rules.scope import spell
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph

_FILE: Final = Path(__file__).with_name("systems.yaml")
_HERE: Final = "here"
_ANSWERS: Final[dict[str, Answer]] = {"fires": "in order", "quiet": "look here"}


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of the types here."""


class Need(Struct, frozen=True, kw_only=True):
    """One thing that a system takes."""

    what: str
    ask: str
    """A read-only command that decides it."""
    when: str | None = None
    """CEL over facts of the node; with neither this nor `rule` nothing that is read decides it."""
    rule: str | None = None
    """Or: this rule fires nowhere."""


class System(Struct, frozen=True, kw_only=True):
    """What is asked about one system; see `systems.yaml`."""

    name: str
    here: str
    needs: list[Need] = []
    facts: list[str] = []
    rules: list[str]
    source: str | None = None


class Check(Struct, frozen=True, kw_only=True):
    """One need on one machine."""

    what: str
    answer: Answer
    evidence: list[str]
    """`fact = value [origin]`, or why it is not known."""
    ask: str


class Readiness(Struct, frozen=True, kw_only=True):
    """One system on one machine."""

    here: Answer
    """`in order`: the machine has it or a job uses it; `no matter`: it has not; `not known`."""
    why_here: list[str]
    """The facts that decide that."""
    checks: list[Check]
    facts: list[str]
    findings: list[str]
    """`NET045: …` for each rule of the system that fires."""
    undecided: list[str]
    """Ids of its rules that could not be decided."""
    quiet: list[str]
    """Ids of its rules that are quiet everywhere, or do not apply."""
    source: str | None = None
    """Where the needs are from."""


@cache
def systems() -> dict[str, System]:
    """Term of the glossary → what is asked about it."""
    return {system.name: system for system in compiled.read(_FILE, list[System], glossary.entries)}


def of_system(system: System, rules: Sequence[Rule]) -> list[Rule]:
    """The rules that speak of a system, in the order of its list."""
    return [rule for pattern in system.rules for rule in rules if fnmatchcase(rule.id, pattern)]


def survey(names: Iterable[str], snapshot: Snapshot, rules: Sequence[Rule]) -> dict[str, Readiness]:
    """The state of systems on a machine, by name. Raises KeyError for a name that is none of `systems`."""
    base = gather(snapshot, graph.build(snapshot))
    # All rules take part, because one may speak in place of another.
    outcomes = engine.evaluate(rules, base)
    return {name: _check(systems()[name], base, outcomes, rules) for name in names}


def _check(system: System, base: FactBase, outcomes: Sequence[Outcome], rules: Sequence[Rule]) -> Readiness:
    questions = [_question(_HERE, system.here)]
    questions += [_question(need.what, need.when) for need in system.needs if need.when]
    answers = {outcome.rule.name: outcome for outcome in engine.evaluate(questions, base)}
    by_rule: dict[str, list[Outcome]] = {rule.id: [] for rule in of_system(system, rules)}
    by_rule |= {need.rule: [] for need in system.needs if need.rule}
    for outcome in outcomes:
        if outcome.rule.id in by_rule:
            by_rule[outcome.rule.id].append(outcome)
    here = answers[_HERE]
    fired = [each for id in dict.fromkeys(by_rule) for each in by_rule[id] if each.verdict == "fires"]
    loud = {each.rule.id for each in fired}
    undecided = [
        id for id, group in by_rule.items() if id not in loud and any(each.verdict == "unknown" for each in group)
    ]
    absent = here.verdict == "quiet"
    checks = [_checked(need, base, answers, by_rule) for need in system.needs]
    return Readiness(
        here="in order" if here.verdict == "fires" else "no matter" if absent else "not known",
        why_here=_told(base, here),
        checks=[msgspec.structs.replace(each, answer="no matter") if absent else each for each in checks],
        facts=[_fact(base, each) for each in system.facts],
        findings=list(dict.fromkeys(f"{each.rule.id}: {each.title}" for each in fired)),
        undecided=undecided,
        quiet=[id for id in by_rule if id not in loud and id not in undecided],
        source=system.source,
    )


def _question(name: str, condition: str) -> Rule:
    return Rule(
        id=name,
        name=name,
        status="stable",
        subject="node",
        when=condition,
        severity="info",
        title=name,
        why=name,
        file=_FILE.name,
    )


def _checked(need: Need, base: FactBase, answers: dict[str, Outcome], by_rule: dict[str, list[Outcome]]) -> Check:
    answer: Answer = "not known"
    evidence: list[str] = []
    if need.rule:
        verdicts = {each.verdict for each in by_rule[need.rule]}
        answer = "look here" if "fires" in verdicts else "not known" if "unknown" in verdicts else "in order"
        missing = {miss.reason for each in by_rule[need.rule] for miss in each.missing}
        evidence = [f"{need.rule}: {'; '.join(sorted(missing))}"] if answer == "not known" else []
    elif need.when:
        outcome = answers[need.what]
        answer = _ANSWERS.get(outcome.verdict, "not known")
        evidence = _told(base, outcome)
    return Check(what=need.what, answer=answer, evidence=evidence, ask=need.ask)


def _told(base: FactBase, outcome: Outcome) -> list[str]:
    """The facts of a question; where it is not decided only those that are missing."""
    if outcome.verdict == "unknown":
        return [f"{each.fact}: not known, {each.reason}" for each in outcome.missing] or [outcome.reason]
    names = [path for path in cel.compile_condition(outcome.rule.when).paths if "." in path]
    return [_fact(base, name) for name in names if not isinstance(base.fact(name), Unknown)]


def _fact(base: FactBase, name: str) -> str:
    fact = base.fact(name)
    if isinstance(fact, Unknown):
        return f"{name}: not known, {fact.reason}"
    nothing = "not set" if name.startswith("env.") else "none"
    value = nothing if fact.value in ([], "") else spell(fact.value, name)
    return f"{name} = {value}" + ("" if fact.origin == "derived" else f" [{fact.origin}]")
