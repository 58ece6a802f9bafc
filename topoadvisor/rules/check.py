"""What `rules check` asks of rule files beyond loading: types inside conditions, and rules that could collide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

from topoadvisor import files
from topoadvisor.errors import InputError
from topoadvisor.rules import cel
from topoadvisor.rules.exclusive import Demand, apart, demands
from topoadvisor.rules.model import MEASUREMENTS, Entry, Rule
from topoadvisor.rules.rule_file import RuleFile, collect, rule_files
from topoadvisor.rules.wellformed import Place, conditions
from topoadvisor.vocabulary import TYPE_WORDS, VOCABULARY, FactType, spec, suggestion

_SAMPLE: Final[dict[FactType, Any]] = {"bool": True, "int": 1, "number": 1.0, "text": "1", "texts": ["1"]}
_FAMILY: Final[dict[FactType, FactType]] = {
    "bool": "bool",
    "int": "number",
    "number": "number",
    "text": "text",
    "texts": "texts",
}


@dataclass(frozen=True)
class Report:
    """The result of a check."""

    rules: tuple[Rule, ...]
    """Those without a fault in their form."""
    faults: tuple[InputError, ...]
    warnings: tuple[str, ...]


def check(directories: Sequence[Path] = ()) -> Report:
    """Check the shipped rules together with those of more directories. Raises InputError when one is missing."""
    sources = [source for directory in (files.shipped("rules"), *directories) for source in rule_files(directory)]
    rules, faults = collect(sources)
    placed: list[tuple[RuleFile, int, Rule]] = []
    for source in sources:
        found, wrong = source.read()
        if not any(fault.line is None for fault in wrong):
            faults += source.repeated_keys()
        placed += ((source, number, rule) for number, rule in found)
    for place in placed:
        faults += _mistyped(*place)
        faults += _unproved(*place)
    collisions = list(_collisions(placed))
    faults += (collision for collision in collisions if isinstance(collision, InputError))
    unique = {str(fault): fault for fault in faults}
    ordered = sorted(unique.values(), key=lambda fault: (fault.file or "", fault.line or 0, fault.column or 0))
    return Report(tuple(rules), tuple(ordered), tuple(each for each in collisions if isinstance(each, str)))


def _unproved(source: RuleFile, number: int, rule: Rule) -> Iterator[InputError]:
    """A stable rule says what would prove or refute it."""
    if rule.status == "stable" and not rule.verify:
        yield source.fault(
            number, ("id",), "a stable rule needs `verify`: a command and the result of it that proves or refutes it"
        )
    elif rule.verify and " " not in rule.verify and rule.verify not in MEASUREMENTS:
        hint = suggestion(rule.verify, MEASUREMENTS) or f"Those known are {', '.join(MEASUREMENTS)}."
        yield source.fault(number, ("verify",), f"there is no measurement `{rule.verify}`", hint)


def _mistyped(source: RuleFile, number: int, rule: Rule) -> Iterator[InputError]:
    """Try each comparison of each condition against sample values, so that no `||` hides one that can never work."""
    texts = list(conditions(rule))
    names = {path for _, text in texts for path in cel.compile_condition(text).paths if path.startswith("env.")}
    context = cel.Context(_samples([*VOCABULARY, *names]))
    for place, text in texts:
        for atom in cel.atoms(text):
            clash = _clash(atom)
            if clash is None:
                try:
                    context.test(cel.compile_condition(atom))
                except cel.Unreadable:
                    continue
                except cel.Fault as fault:
                    clash = str(fault)
            if clash is not None:
                yield source.fault(number, place, f"`{atom}` can never be evaluated: {clash}")


def _samples(names: Sequence[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name in names:
        *groups, last = name.split(".")
        level = tree
        for group in groups:
            level = level.setdefault(group, {})
        level[last] = _SAMPLE[_type(name)]
    return tree


def _type(name: str) -> FactType:
    found = spec(name)
    assert found is not None, name
    return found.type


def _clash(atom: str) -> str | None:
    """Why an equality can never hold: CEL answers false, without an error, when the two sides differ in type."""
    stream = cel.tokens(atom)
    for at, token in enumerate(stream):
        if token.text in ("==", "!="):
            left, right = _family(stream[:at]), _family(stream[at + 1 :])
        elif token.text == "in" and token.kind == "name":
            left, right = _family(stream[:at]), _member_family(stream[at + 1 :])
        else:
            continue
        if left and right and left != right:
            return f"{TYPE_WORDS[left]} is never equal to {TYPE_WORDS[right]}"
    return None


def _family(stream: Sequence[cel.Token]) -> FactType | None:
    """The kind of a side that is one literal or one fact; None for anything else."""
    if len(stream) == 1:
        token = stream[0]
        if token.kind in ("string", "number"):
            return "text" if token.kind == "string" else "number"
        if token.text in ("true", "false"):
            return "bool"
    if not stream:
        return None
    path, end = cel.path_at(list(stream), 0)
    return _FAMILY[_type(path)] if end == len(stream) and spec(path) is not None else None


def _member_family(stream: Sequence[cel.Token]) -> FactType | None:
    """The kind of the elements of a list of literals, or of a fact that is a list."""
    texts = [token.text for token in stream]
    if texts[:1] == ["["] and texts[-1:] == ["]"]:
        kinds = {_family([token]) for token in stream[1:-1] if token.text != ","}
        return kinds.pop() if len(kinds) == 1 else None
    return "text" if _family(stream) == "texts" else None


class _Setter(NamedTuple):
    """One piece of advice that sets a variable, where it stands, and what must hold for it."""

    source: RuleFile
    number: int
    rule: Rule
    place: int
    value: str
    demands: list[Demand]

    @property
    def entry(self) -> Entry:
        return self.rule.advice[self.place]

    def keys(self, name: str) -> Place:
        return ("advice", self.place, "set", name)


def _collisions(placed: Sequence[tuple[RuleFile, int, Rule]]) -> Iterator[InputError | str]:
    """Pairs of rules that want different values of one variable while neither overrides the other.

    A fault when both can fire about one subject, a warning when only about different subjects of one machine.
    """
    setters: dict[str, list[_Setter]] = defaultdict(list)
    for source, number, rule in placed:
        for place, entry in enumerate(rule.advice):
            found = demands(rule, entry) if entry.set else []
            for name, value in entry.set.items():
                setters[name].append(_Setter(source, number, rule, place, value, found))
    for name, claims in sorted(setters.items()):
        told: set[tuple[str, str]] = set()
        for first, second in combinations(claims, 2):
            pair = (first.rule.id, second.rule.id)
            settled = pair[1] in first.rule.overrides or pair[0] in second.rule.overrides
            if first.value == second.value or pair[0] == pair[1] or settled or pair in told:
                continue
            if apart(first.entry, first.demands, second.entry, second.demands, node=True):
                continue
            told.add(pair)
            there = first.source.at(first.number, first.keys(name))
            clash = f"{pair[1]} sets {name}={second.value} and {pair[0]} ({there}) {name}={first.value}"
            kind = first.rule.subject
            if second.rule.subject == kind and apart(
                first.entry, first.demands, second.entry, second.demands, node=False
            ):
                here = second.source.at(second.number, second.keys(name))
                yield f"{here}: {clash}: never about one {kind}, but perhaps on one machine"
                continue
            yield second.source.fault(
                second.number,
                second.keys(name),
                f"{clash}, and nothing keeps them from firing together",
                f"Let one override the other (`overrides: [{pair[0]}]`), or let their conditions exclude each other.",
            )
