"""What must be true of one rule beyond the types of its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from topoadvisor.nccl import conf, consumers, settings, versions
from topoadvisor.rules import cel
from topoadvisor.rules.model import PLACEHOLDER, Entry, RuleText
from topoadvisor.vocabulary import KINDS, ROOTS, VOCABULARY, SubjectKind, kind_of, nearest, spec, suggestion

_ID: Final = re.compile(r"(P2P|NVL|PCI|VM|NET|SYS|ENV|CLD|PLN|[A-Z]{2,8})[0-9]{3}")
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN: Final = 60
"""Letters of a value that are shown."""

_MEASURED: Final = ".measured."

Place = tuple[str | int, ...]
"""Keys and list positions that lead from a rule to the spot: `("advice", 0, "set")`."""


class Problem(NamedTuple):
    """One thing that is wrong with a rule."""

    place: Place
    message: str
    hint: str | None = None


def problems(rule: RuleText) -> Iterator[Problem]:
    """Everything that is wrong with a rule by itself."""
    if not _ID.fullmatch(rule.id):
        yield Problem(
            ("id",), f"`{rule.id}` is no rule id", "Write two to eight capital letters and three digits: NET007."
        )
    if not _NAME.fullmatch(rule.name):
        yield Problem(("name",), f"`{rule.name}` is no rule name", "Write lower-case words joined by hyphens.")
    for place, source in conditions(rule):
        yield from _condition(place, source, rule.subject)
    for number, name in enumerate(rule.evidence):
        yield from _fact(("evidence", number), name, rule.subject)
    for place, template in _templates(rule):
        for name in PLACEHOLDER.findall(template):
            yield from _fact(place, name, rule.subject)
    for number, entry in enumerate(rule.advice):
        yield from _entry(("advice", number), entry, measured=any(_MEASURED in name for name in rule.evidence))
    if rule.last_word_on:
        yield from _fact(("last_word_on",), rule.last_word_on, rule.subject)
    if rule.id in rule.overrides:
        yield Problem(("overrides",), "a rule cannot override itself")
    if rule.id in rule.instead_of:
        yield Problem(("instead_of",), "a rule cannot speak instead of itself")
    for number, reference in enumerate(rule.references):
        if not reference.url.startswith(("https://", "http://")):
            yield Problem(("references", number, "url"), f"`{reference.url}` is no web address")


def conditions(rule: RuleText) -> Iterator[tuple[Place, str]]:
    """Every condition of a rule and where it stands."""
    yield ("when",), rule.when
    for number, source in enumerate(rule.not_when):
        yield ("not_when", number), source
    if rule.applies_when is not None:
        yield ("applies_when",), rule.applies_when
    for number, entry in enumerate(rule.advice):
        if entry.when is not None:
            yield ("advice", number, "when"), entry.when


def _templates(rule: RuleText) -> Iterator[tuple[Place, str]]:
    yield ("title",), rule.title
    yield ("why",), rule.why
    for key in ("right", "ask"):
        if (text := getattr(rule, key)) is not None:
            yield (key,), text
    for number, entry in enumerate(rule.advice):
        for key in ("action", "command", "reason", "remove_when", "cost"):
            if (text := getattr(entry, key)) is not None:
                yield ("advice", number, key), text
        for name, value in entry.set.items():
            yield ("advice", number, "set", name), value


def _condition(place: Place, source: str, subject: SubjectKind) -> Iterator[Problem]:
    try:
        expression = cel.compile_condition(source)
    except cel.Fault as fault:
        yield Problem(place, f"the condition cannot be read: {fault}")
        return
    for name in expression.functions:
        if name not in cel.BUILT_IN:
            yield Problem(place, f"there is no function `{name}`", suggestion(name, cel.BUILT_IN))
    for path in expression.paths:
        yield from _fact(place, path, subject)


def _fact(place: Place, name: str, subject: SubjectKind) -> Iterator[Problem]:
    """A name must be a fact of the node or of the rule's own subject."""
    if spec(name) is None:
        members = sorted(known for known in VOCABULARY if known.startswith(f"{name}."))
        if members:
            yield Problem(place, f"`{name}` is a group of facts, not a fact", f"It holds {', '.join(members)}.")
            return
        readable = [known for known in VOCABULARY if kind_of(known) in ("node", subject)]
        hint = suggestion(name, readable)
        if hint is None and name.split(".", 1)[0] not in ROOTS:
            hint = "`topoadvisor facts` lists every fact."
        yield Problem(place, f"there is no fact `{name}`", hint)
        return
    owner = kind_of(name)
    if owner not in ("node", subject):
        yield Problem(
            place,
            f"`{name}` is a fact of one {owner}, and this rule is about {_each(subject)}",
            f"Write a rule with `subject: {owner}`, or read a fact of the node.",
        )
    variable = name.removeprefix("env.")
    if variable != name:
        yield from _variable(place, variable)


def _each(subject: SubjectKind) -> str:
    return "the node" if subject == KINDS[0] else f"each {subject}"


def _variable(place: Place, name: str) -> Iterator[Problem]:
    """A name close to one that NCCL reads is a slip; others may belong to plugins and frameworks."""
    registry = settings.registry()
    if name in registry or not name.startswith("NCCL_"):
        return
    close = nearest(name, registry)
    if close is not None and _slips(name, close):
        yield Problem(place, f"NCCL reads no variable `{name}`", f"Did you mean `{close}`?")


def _slips(name: str, close: str) -> bool:
    from difflib import SequenceMatcher

    return SequenceMatcher(None, name, close).ratio() > 0.9


def _entry(place: Place, entry: Entry, *, measured: bool) -> Iterator[Problem]:
    if not (entry.action or entry.set or entry.unset):
        yield Problem(place, "this piece of advice says nothing", "Give it an `action`, a `set` or an `unset`.")
    if entry.command and not entry.action:
        yield Problem((*place, "command"), "a command needs an `action` that says what it does")
    for name in [*entry.set, *entry.unset]:
        where = (*place, "set", name) if name in entry.set else (*place, "unset")
        if not _VARIABLE.fullmatch(name):
            yield Problem(where, f"`{name}` is no variable name")
        else:
            yield from _variable(where, name)
    for number, consumer in enumerate(entry.consumers):
        if consumer not in consumers.NAMES:
            hint = suggestion(consumer, consumers.NAMES) or f"Those known are {', '.join(consumers.NAMES)}."
            yield Problem((*place, "consumers", number), f"nobody here is called `{consumer}`", hint)
    if entry.nccl is not None:
        try:
            versions.split(entry.nccl)
        except ValueError as error:
            yield Problem((*place, "nccl"), str(error))
    if entry.set:
        yield from _setting(place, entry, measured=measured)


def _setting(place: Place, entry: Entry, *, measured: bool) -> Iterator[Problem]:
    match entry.setting_class:
        case None:
            yield Problem(place, "a setting needs a `class`", "One of system, tuning, workaround.")
        case "diagnostic":
            yield Problem((*place, "class"), "a diagnostic variable is never set by a rule", "Make it an `action`.")
        case "workaround" if not entry.remove_when:
            yield Problem(place, "a workaround needs `remove_when`: what must be repaired before it can go")
        case "tuning" if not (measured or entry.cost):
            yield Problem(place, "tuning needs a measurement: a measured fact in `evidence`, or the `cost` it saves")
    for name, value in entry.set.items():
        fault = conf.unwritable(name, value)
        if fault is not None:
            hint = "Use `unset`." if not value else "NCCL reads its files literally: give the bare value."
            shown = repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")
            yield Problem((*place, "set", name), f"{name} cannot be set to {shown}: {fault}", hint)
