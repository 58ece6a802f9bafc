"""Rules over facts: one verdict per rule and subject, with what was missing, the evidence and the advice."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from topoadvisor.advice import Evidence
from topoadvisor.nccl import versions
from topoadvisor.rules import cel
from topoadvisor.rules.facts import FactBase, Known, Subject, Unknown
from topoadvisor.rules.model import PLACEHOLDER, Entry, Rule
from topoadvisor.rules.scope import spell
from topoadvisor.vocabulary import KINDS, VOCABULARY, kind_of

Verdict = Literal["fires", "quiet", "unknown", "not-applicable"]

UNKNOWN: Final = "unknown"
_ONE_OF_MANY: Final = re.compile(r"(?<! of )\b1 (pair|GPU|port|CPU|rank|time)s\b")


@dataclass(frozen=True)
class Missing:
    """A fact that a verdict needed and nobody read."""

    fact: str
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What one rule says about one subject. Texts are rendered."""

    rule: Rule
    subject: str
    verdict: Verdict
    missing: tuple[Missing, ...] = ()
    """What an unknown verdict, or a piece of advice of a rule that fires, would have needed."""
    hypothesis: bool = False
    """It fires, but whether one of its exceptions holds is not known. No variable is advised then."""
    fault: str | None = None
    """Why the rule itself, not the machine, is to blame for an unknown verdict."""
    title: str = ""
    """Set when the rule fires or is unknown."""
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Entry, ...] = ()
    """The entries that apply, `reason` filled in."""
    right: str | None = None
    """Set when the rule is quiet and has something to say about it."""
    ask: str | None = None
    """Set when the rule is unknown: a read-only command that would decide it."""

    @property
    def reason(self) -> str:
        """Why the verdict is unknown, one line; each reason once."""
        if self.fault:
            return self.fault
        reasons: dict[str, list[str]] = defaultdict(list)
        for missing in self.missing:
            reasons[missing.reason].append(missing.fact)
        return "; ".join(f"{', '.join(facts)}: {reason}" for reason, facts in reasons.items())


def evaluate(rules: Iterable[Rule], facts: FactBase, *, preview: bool = False) -> list[Outcome]:
    """The outcome of every rule on every subject of its kind, ordered by rule id, then subject.

    Rules of status `preview` take part only with `preview`. Never raises because of a rule: one that cannot be
    evaluated is unknown, with its fault as the reason.
    """
    chosen = sorted((rule for rule in rules if preview or rule.status == "stable"), key=lambda rule: rule.id)
    judges = [_Judge(rule, facts) for rule in chosen if facts.subjects[rule.subject]]
    reads = {path for judge in judges for path in judge.paths}
    node_reads = [path for path in reads if kind_of(path) == "node"]
    context = cel.Context(_tree(node_reads, lambda name: facts.fact(name)))
    found: dict[str, list[Outcome]] = {rule.id: [] for rule in chosen}
    for kind in KINDS:
        mine = [judge for judge in judges if judge.rule.subject == kind]
        own_reads = [path for path in reads if kind_of(path) == kind != "node"]
        for subject in facts.subjects[kind] if mine else ():
            if kind != "node":
                tree = _tree(own_reads, subject.facts.__getitem__)
                context.put(kind, tree.get(kind, {}))
            for judge in mine:
                found[judge.rule.id].append(judge.judge(subject, context))
    outcomes = [outcome for rule in chosen for outcome in found[rule.id]]
    said = {(other, each.subject) for each in outcomes if each.verdict == "fires" for other in each.rule.instead_of}
    cited = {
        fact
        for each in outcomes
        if each.verdict == "fires" and not each.rule.last_word_on
        for fact in each.rule.evidence
    }
    return [
        Outcome(rule=each.rule, subject=each.subject, verdict="not-applicable")
        if (each.rule.id, each.subject) in said or each.rule.last_word_on in cited
        else each
        for each in outcomes
    ]


def _tree(names: Iterable[str], lookup: Callable[[str], Known | Unknown]) -> dict[str, Any]:
    """Known facts as nested mappings. What is above an unknown one is there, so that has() can tell."""
    tree: dict[str, Any] = {}
    for name in names:
        *groups, last = name.split(".")
        level = tree.setdefault(groups[0], {})
        for group in groups[1:]:
            level = level.setdefault(group, {})
        fact = _or_unknown(lookup, name)
        if isinstance(fact, Known):
            level[last] = fact.value
    return tree


def _or_unknown(lookup: Callable[[str], Known | Unknown], name: str) -> Known | Unknown:
    try:
        return lookup(name)
    except KeyError:
        return Unknown("there is no such fact")


class _Judge:
    """One rule, compiled."""

    def __init__(self, rule: Rule, facts: FactBase) -> None:
        self.rule = rule
        self._facts = facts
        self._fault: str | None = None
        self._when = self._compile(rule.when)
        self._not_when = [self._compile(condition) for condition in rule.not_when]
        self._applies = self._compile(rule.applies_when) if rule.applies_when else None
        self._entries = [(entry, self._compile(entry.when) if entry.when else None) for entry in rule.advice]
        conditions = [self._when, *self._not_when, self._applies, *(condition for _, condition in self._entries)]
        self.paths = {
            path for condition in conditions if condition is not None for path in condition.paths if "." in path
        }

    def _compile(self, source: str) -> cel.Expression | None:
        try:
            return cel.compile_condition(source)
        except cel.Fault as fault:
            self._blame(fault)
            return None

    def _blame(self, fault: cel.Fault) -> None:
        self._fault = self._fault or f"rule {self.rule.id} in {self.rule.file} cannot be evaluated: {fault}"

    def judge(self, subject: Subject, context: cel.Context) -> Outcome:
        """The verdict on one subject. `context` holds the subject's facts."""
        compiled_fault = self._fault
        try:
            return self._judge(subject, context)
        finally:
            # A fault on this subject says nothing about the next one.
            self._fault = compiled_fault

    def _judge(self, subject: Subject, context: cel.Context) -> Outcome:
        missing: dict[str, str] = {}

        def test(condition: cel.Expression | None) -> bool | None:
            return self._test(condition, subject, context, missing)

        when = test(self._when)
        if when is False:
            right = self.rule.right if self.rule.right and self._exempt(test) is False else None
            return self._outcome(subject, "quiet", right=right and self._text(right, subject))
        exempt_or_not = self._exempt(test)
        if exempt_or_not:
            return self._outcome(subject, "not-applicable")
        if when is None or not self._applicable(test):
            return self._outcome(
                subject,
                "unknown",
                missing=_listed(missing),
                fault=None if missing else self._fault,
                title=self._text(self.rule.title, subject),
                ask=self.rule.ask and self._text(self.rule.ask, subject),
            )
        title = self._text(self.rule.title, subject)
        open_questions = self._open(test) if exempt_or_not is None else []
        advice = tuple(self._advise(subject, title, test, missing))
        if open_questions:
            title = f"Hypothesis: {title}"
            told = map(_in_words, advice)
            advice = (self._question(open_questions, subject), *(each for each in told if each.action))
        return self._outcome(
            subject,
            "fires",
            missing=_listed(missing),
            hypothesis=bool(open_questions),
            title=title,
            evidence=tuple(self._evidence(name, subject) for name in self.rule.evidence),
            advice=advice,
        )

    def _exempt(self, test: Callable[[cel.Expression | None], bool | None]) -> bool | None:
        """Whether the rule does not apply here; None when that is unknown."""
        answers = [test(condition) for condition in self._not_when]
        if self.rule.applies_when:
            applies = test(self._applies)
            answers.append(None if applies is None else not applies)
        if any(answers):
            return True
        return None if None in answers else False

    def _applicable(self, test: Callable[[cel.Expression | None], bool | None]) -> bool:
        """Whether `applies_when` is known to hold; a rule without one always applies. Faulty exceptions count as no."""
        if None in self._not_when:
            return False
        return self.rule.applies_when is None or test(self._applies) is True

    def _open(self, test: Callable[[cel.Expression | None], bool | None]) -> list[str]:
        """What is not known of the exceptions: the parts of each that would have to be true besides those that are."""
        exceptions = zip(self.rule.not_when, self._not_when, strict=True)
        undecided = [source for source, condition in exceptions if test(condition) is None]
        open_parts = [
            " && ".join(part for part in cel.demanded(source) if not test(cel.compile_condition(part)))
            for source in undecided
        ]
        return list(dict.fromkeys(open_parts))

    def _question(self, open_questions: Sequence[str], subject: Subject) -> Entry:
        told = " or ".join(map(_exception, open_questions))
        ask = self.rule.ask and self._text(self.rule.ask, subject)
        return Entry(action=f"It does not hold {told}, and that was not read.", command=ask, safety="safe")

    def _outcome(self, subject: Subject, verdict: Verdict, **more: Any) -> Outcome:
        return Outcome(rule=self.rule, subject=subject.id, verdict=verdict, **more)

    def _test(
        self, condition: cel.Expression | None, subject: Subject, context: cel.Context, missing: dict[str, str]
    ) -> bool | None:
        """The truth of a condition; None when it is unknown, and then `missing` or the fault says why."""
        if condition is None:
            return None
        try:
            return context.test(condition)
        except cel.Unreadable as error:
            unknown = dict(self._unknown(condition.paths, subject))
            if not unknown:
                self._blame(cel.Fault(f"it reads {error}, which is no fact"))
            missing.update(unknown)
        except cel.Fault as fault:
            self._blame(fault)
        return None

    def _unknown(self, names: Iterable[str], subject: Subject) -> Iterator[tuple[str, str]]:
        for name in names:
            fact = _or_unknown(lambda each: self._facts.fact(each, subject), name)
            if isinstance(fact, Unknown):
                yield name, fact.reason

    def _text(self, template: str, subject: Subject) -> str:
        return render(template, self._facts, subject)

    def _evidence(self, name: str, subject: Subject) -> Evidence:
        fact = self._facts.fact(name, subject)
        if isinstance(fact, Unknown):
            return Evidence(fact=name, value=UNKNOWN, origin=f"not read: {fact.reason}")
        return Evidence(fact=name, value=fact.value, origin=fact.origin)

    def _advise(
        self,
        subject: Subject,
        title: str,
        test: Callable[[cel.Expression | None], bool | None],
        missing: dict[str, str],
    ) -> Iterator[Entry]:
        version = self._facts.fact("nccl.version")
        for entry, condition in self._entries:
            if entry.nccl and isinstance(version, Known) and not _within(version.value, entry.nccl):
                continue
            if entry.when and not test(condition):
                continue
            # A variable must never be set to a text that contains a guess.
            names = [name for value in entry.set.values() for name in PLACEHOLDER.findall(value)]
            unknown = dict(self._unknown(names, subject))
            if unknown:
                missing.update(unknown)
                continue
            yield self._rendered(entry, subject, title)

    def _rendered(self, entry: Entry, subject: Subject, title: str) -> Entry:
        def text(template: str | None) -> str | None:
            return template and self._text(template, subject)

        return msgspec.structs.replace(
            entry,
            action=text(entry.action),
            # A command about a device whose name was not read cannot be typed.
            command=None
            if dict(self._unknown(PLACEHOLDER.findall(entry.command or ""), subject))
            else text(entry.command),
            set={name: self._text(value, subject) for name, value in entry.set.items()},
            reason=text(entry.reason) or title,
            remove_when=text(entry.remove_when),
            cost=text(entry.cost),
        )


_SWITCH: Final = re.compile(r"(?P<fact>[\w.]+)(?P<off> == false)?")


def _exception(source: str) -> str:
    """`where this is a virtual machine (vm.guest)`: an exception in words, if it is one fact that is true or false."""
    source = " ".join(source.split())
    switch = _SWITCH.fullmatch(source)
    fact = VOCABULARY.get(switch["fact"]) if switch else None
    if switch is None or fact is None or fact.type != "bool":
        return f"where {source}"
    return f"{'unless' if switch['off'] else 'where'} {fact.meaning} ({switch['fact']})"


def _in_words(entry: Entry) -> Entry:
    """Advice of a hypothesis: it sets and unsets nothing, and what it would take out is told in words."""
    action = entry.action
    if action is None and entry.unset:
        action = f"Otherwise take {', '.join(entry.unset)} out: {entry.reason}."
    return msgspec.structs.replace(entry, action=action, set={}, unset=[])


def _listed(missing: Mapping[str, str]) -> tuple[Missing, ...]:
    return tuple(Missing(fact, reason) for fact, reason in missing.items())


def _within(version: str, conditions: str) -> bool:
    try:
        return versions.satisfies(version, conditions)
    except ValueError:
        return True


def render(template: str, facts: FactBase, subject: Subject) -> str:
    """A template with its placeholders replaced by facts; `unknown` stands for what was not read."""

    def replace(match: re.Match[str]) -> str:
        fact = _or_unknown(lambda name: facts.fact(name, subject), match[1])
        return spell(fact.value, match[1]) if isinstance(fact, Known) else UNKNOWN

    return _ONE_OF_MANY.sub(r"1 \1", PLACEHOLDER.sub(replace, template))


@dataclass(frozen=True)
class Claim:
    """One rule that fired and wants one variable set (`value`) or unset (`value` None)."""

    variable: str
    value: str | None
    rule: str
    subject: str
    entry: Entry


@dataclass(frozen=True)
class Conflict:
    """Rules that fired and want different things of one variable, none of them overriding the others."""

    variable: str
    claims: tuple[Claim, ...]

    @property
    def message(self) -> str:
        """The conflict in one sentence."""
        wanted = dict.fromkeys(
            f"{claim.rule} wants it {'unset' if claim.value is None else f'= {claim.value}'}" for claim in self.claims
        )
        return f"the rules disagree about {self.variable}: {', '.join(wanted)}"


def claims(outcomes: Sequence[Outcome]) -> list[Claim]:
    """What the rules that fired want of variables, in the order of outcomes, without what another rule overrides."""
    wanted = [
        Claim(variable, value, outcome.rule.id, outcome.subject, entry)
        for outcome in outcomes
        if outcome.verdict == "fires"
        for entry in outcome.advice
        for variable, value in [*entry.set.items(), *((name, None) for name in entry.unset)]
    ]
    overrides = {outcome.rule.id: set(outcome.rule.overrides) for outcome in outcomes}
    replaced = {(claim.variable, loser) for claim in wanted for loser in overrides[claim.rule]}
    return [claim for claim in wanted if (claim.variable, claim.rule) not in replaced]


def conflicts(outcomes: Sequence[Outcome]) -> list[Conflict]:
    """Variables that fired rules want different things of, by name."""
    by_variable: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims(outcomes):
        by_variable[claim.variable].append(claim)
    return [
        Conflict(variable, tuple(group))
        for variable, group in sorted(by_variable.items())
        if len({claim.value for claim in group}) > 1
    ]
