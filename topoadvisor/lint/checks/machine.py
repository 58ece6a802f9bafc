"""The machine: what the rules of `topoadvisor scan` say about the lines of a file, were they in force there.

The lines become the settings of the snapshot, and the rules judge; nothing that they know is repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import msgspec

from topoadvisor.lint.checks.values import measures
from topoadvisor.lint.codes import DROPPED_RULES
from topoadvisor.lint.effects import JUDGED, OnMachine
from topoadvisor.lint.found import Found, about
from topoadvisor.lint.model import Assignment, Contents, printable
from topoadvisor.nccl import defaults, reading, settings
from topoadvisor.rules import engine, facts, machine
from topoadvisor.rules.engine import Outcome
from topoadvisor.rules.facts import FactBase, Unknown
from topoadvisor.rules.model import Rule
from topoadvisor.snapshot import Setting, Snapshot
from topoadvisor.topology import graph

_MOST_ROUNDS: Final = 8
"""Values of one variable in one file that are judged; a file with more is a sweep."""
_NEEDS_MACHINE: Final = frozenset({"ENV001", "ENV002", "ENV022", "NET033"})
"""Rules that take over from a check of ours where the machine is known."""
_READS: Final = re.compile(r"env\.([A-Z][A-Z0-9_]*)")
_COSTS: Final = "ENV174"
_NO_TOPOLOGY: Final = "no topology was given"


@dataclass(frozen=True)
class Open:
    """A rule that could not be decided for a line."""

    assignment: Assignment
    rule: str
    reason: str
    facts: tuple[str, ...]
    """Facts that nobody read."""


class MachineJudge:
    """Rules about variables, on one machine or, without a snapshot, on what needs none."""

    def __init__(
        self, snapshot: Snapshot | None, version: str | None, rules: Sequence[Rule], effects: OnMachine | None
    ) -> None:
        self.known = snapshot is not None
        self._snapshot = _with_version(snapshot or Snapshot(), version)
        self._topology = graph.build(self._snapshot)
        self._effects = effects(self._snapshot) if effects is not None and self.known else None
        stable = [rule for rule in rules if rule.status == "stable"]
        self._about_variables = [rule for rule in stable if rule.subject == "variable" and rule.id not in self._dropped]
        self._reading = [rule for rule in stable if rule.subject != "variable" and _READS.search(rule.when)]

    @property
    def _dropped(self) -> frozenset[str]:
        return DROPPED_RULES - _NEEDS_MACHINE if self.known else DROPPED_RULES

    @cached_property
    def version(self) -> str | None:
        """NCCL's version there."""
        return machine.nccl_version(self._facts([]).node)

    @cached_property
    def _fire_anyway(self) -> set[tuple[str, str]]:
        outcomes = engine.evaluate(self._reading, self._facts([]))
        return {(each.rule.id, each.subject) for each in outcomes if each.verdict == "fires"}

    def _facts(self, lines: Sequence[Setting]) -> FactBase:
        there = msgspec.structs.replace(self._snapshot, settings=list(lines))
        base = facts.gather(there, self._topology)
        if self.known:
            return base
        # Of a machine that nobody named not even the number of GPUs is known, which an empty snapshot states as 0.
        node = {
            name: fact if name == "nccl.version" or name.startswith("env.") else Unknown(_NO_TOPOLOGY)
            for name, fact in base.node.items()
        }
        return replace(base, node=node)

    def judge(self, contents: Contents, file: str) -> tuple[list[Found], list[Open]]:
        """What the rules say about the lines of one file, and what they could not decide."""
        found: list[Found] = []
        undecided: list[Open] = []
        for lines in _rounds(contents):
            base = self._facts(
                [
                    Setting(name=printable(name), value=printable(each.value or ""), origin=printable(file))
                    for name, each in lines.items()
                ]
            )
            for outcome in engine.evaluate(self._about_variables, base):
                assignment = lines.get(outcome.subject.removeprefix("variable:"))
                if assignment is None:
                    continue
                if outcome.verdict == "fires":
                    found.append(_from_rule(outcome, assignment))
                elif outcome.verdict == "unknown":
                    reason = outcome.reason if self.known else _NO_TOPOLOGY
                    missing = tuple(each.fact for each in outcome.missing)
                    undecided.append(Open(assignment, outcome.rule.id, reason, missing))
            if self.known:
                found += self._others(lines, base)
                single = _with_one_value(contents, lines)
                found += self._defaults(single, base)
                changed, unread = self._changes(lines, single, base, {each.at for each in found})
                found += changed
                undecided += unread
            else:
                undecided += [
                    Open(each, _COSTS, _NO_TOPOLOGY, ())
                    for name, each in lines.items()
                    if name in JUDGED and each.value
                ]
        return found, undecided

    def _changes(
        self, lines: dict[str, Assignment], single: Container[str], base: FactBase, told: Set[int]
    ) -> tuple[list[Found], list[Open]]:
        """What a prediction with and without a line shows, where no rule speaks of it."""
        found: list[Found] = []
        undecided: list[Open] = []
        settings_there = [Setting(name=name, value=each.value or "", origin="") for name, each in lines.items()]
        effects = self._effects.of(settings_there) if self._effects is not None else {}
        for name, effect in effects.items():
            each = lines[name]
            if each.at in told:
                continue
            if effect.worse:
                message = f"{name}={each.value} costs something here: {'; '.join(effect.changes)}"
                found.append(about(each, _COSTS, message))
            elif effect.unknown is not None:
                undecided.append(Open(each, _COSTS, effect.unknown, ()))
            elif not effect.changes and name in single:
                version = machine.nccl_version(base.node) or settings.NEWEST
                message = (
                    f"{name}={each.value} changes nothing on this machine: NCCL {version} does the same without it"
                )
                found.append(about(each, "ENV173", message))
        return found, undecided

    def _others(self, lines: dict[str, Assignment], base: FactBase) -> Iterator[Found]:
        """Rules about the machine itself that fire only because of these lines."""
        told = set()
        for outcome in engine.evaluate(self._reading, base):
            if outcome.verdict != "fires" or (outcome.rule.id, outcome.subject) in self._fire_anyway:
                continue
            name = next((name for name in _READS.findall(outcome.rule.when) if name in lines), None)
            if name is not None and (outcome.rule.id, name) not in told:
                told.add((outcome.rule.id, name))
                yield _from_rule(outcome, lines[name])

    def _defaults(self, lines: dict[str, Assignment], base: FactBase) -> Iterator[Found]:
        """Values that NCCL has by itself."""
        version = machine.nccl_version(base.node)
        if version is None:
            return
        here = machine.of(base.node)
        for name, each in lines.items():
            info = settings.registry().get(name)
            if info is None or not info.exists_in(version) or each.fallback or not each.value:
                continue
            read = reading.read(info, each.value, version)
            default = defaults.default(info, version, here)
            if read is not None and not read.surprises and read.becomes in {default.here or default.value} - {None}:
                message = f"{name}={each.value} is what NCCL {version} has by itself on this machine"
                yield about(each, "ENV172", message)


def _with_version(snapshot: Snapshot, version: str | None) -> Snapshot:
    if version is None:
        return snapshot
    from topoadvisor.ingest import assume

    return assume.apply(snapshot, assume.gather([f"nccl.version={version}"], None))


def _rounds(contents: Contents) -> Iterator[dict[str, Assignment]]:
    """The lines of a file, as often as it needs to meet every value of every variable once."""
    by_name: dict[str, list[Assignment]] = {}
    for each in contents.assignments:
        values = by_name.setdefault(each.name, [])
        judged = each.value is not None and not _tried(each) and each.way != "layer"
        if judged and all(each.value != other.value for other in values) and len(values) < _MOST_ROUNDS:
            values.append(each)
    for number in range(max(map(len, by_name.values()), default=0)):
        yield {name: values[min(number, len(values) - 1)] for name, values in by_name.items() if values}


def _tried(each: Assignment) -> bool:
    """Whether a command that measures tries it; names of devices and files have to be right there, too."""
    info = settings.find(each.name)
    return measures(each) and (info is None or info.setting_class != "system")


def _with_one_value(contents: Contents, lines: dict[str, Assignment]) -> dict[str, Assignment]:
    """Without variables that a file sets to several values: there the default is one choice among others."""
    values: dict[str, set[str | None]] = {}
    for each in contents.assignments:
        values.setdefault(each.name, set()).add(each.value)
    return {name: each for name, each in lines.items() if len(values[name]) == 1}


def _from_rule(outcome: Outcome, assignment: Assignment) -> Found:
    rule = outcome.rule
    advice = [entry.action or entry.command or "" for entry in outcome.advice]
    advice += [
        f"unset {name}: {entry.reason}"
        for entry in outcome.advice
        for name in entry.unset
        if entry.reason != outcome.title
    ]
    return Found(
        rule.id,
        assignment.at,
        assignment.name,
        outcome.title,
        rule.severity,
        None,
        tuple(each for each in advice if each),
        name=rule.name,
        statement=assignment.statement,
    )
