"""Rules in words: one line each for a list, everything for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from topoadvisor.rules import cel
from topoadvisor.rules.model import Entry, Rule
from topoadvisor.rules.wellformed import conditions
from topoadvisor.vocabulary import spec
from topoadvisor.wrapping import wrap

_WIDTH: Final = 80
_SUBJECTS: Final = {"node": "the node", "variable": "each variable that is set", "pair": "each pair of GPUs"}


def table(rules: Sequence[Rule]) -> str:
    """One line per rule: id, severity, subject, name; preview rules say so."""
    lines = [
        f"{rule.id:<8} {rule.severity:<8} {rule.subject:<9} {rule.name}{_preview(rule)}"
        for rule in sorted(rules, key=lambda rule: rule.id)
    ]
    return "".join(f"{line}\n" for line in lines)


def explain(rule: Rule) -> str:
    """Everything about one rule, at most 80 columns wide except for commands and addresses."""
    about = _SUBJECTS.get(rule.subject, f"each {rule.subject}")
    blocks = [
        f"{rule.id} {rule.name}\n{rule.severity}, about {about}, from {rule.file}{_preview(rule)}",
        fill(rule.title),
        "\n\n".join(fill(paragraph) for paragraph in rule.why.strip().split("\n\n")),
        section("When", _when(rule)),
        section("Facts", _facts(rule)),
        section("Advice", (line for entry in rule.advice for line in _entry(entry))),
        section("Otherwise", [fill(rule.right, "  ")] if rule.right else []),
        section("If a fact is unknown", [f"  {rule.ask}"] if rule.ask else []),
        section("What would prove or refute it", [fill(line, "  ") for line in rule.proof]),
        section("Replaces the settings of", [f"  {', '.join(rule.overrides)}"] if rule.overrides else []),
        section("Speaks instead of", [f"  {', '.join(rule.instead_of)}"] if rule.instead_of else []),
        section("Silent where another finding rests on", [f"  {rule.last_word_on}"] if rule.last_word_on else []),
        section("References", (f"  {each.url} ({each.opened})" for each in rule.references)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _preview(rule: Rule) -> str:
    return "  (preview)" if rule.status == "preview" else ""


def section(title: str, lines: Iterable[str]) -> str:
    """A heading and its lines; empty when there are none."""
    body = list(lines)
    return "\n".join([title, *body]) if body else ""


def fill(text: str, indent: str = "", first: str | None = None) -> str:
    """Text in lines of at most 80 columns, the first one indented by `first`."""
    return "\n".join(wrap(" ".join(text.split()), _WIDTH, indent if first is None else first, indent))


def _when(rule: Rule) -> Iterator[str]:
    yield fill(rule.when, "  ")
    if rule.applies_when:
        yield fill(rule.applies_when, "    ", "  only if ")
    for condition in rule.not_when:
        yield fill(condition, "    ", "  not if ")


def _facts(rule: Rule) -> Iterator[str]:
    read = [path for _, source in conditions(rule) for path in cel.compile_condition(source).paths]
    for name in dict.fromkeys([*read, *rule.evidence]):
        found = spec(name)
        if found is not None:
            yield fill(f"{name}: {found.meaning}", "    ", "  ")


def _entry(entry: Entry) -> Iterator[str]:
    if entry.action:
        yield fill(f"{entry.action} ({entry.safety})", "    ", "  - ")
    if entry.command:
        yield f"    $ {entry.command}"
    for name, value in entry.set.items():
        yield f"  - set {name}={value}"
    for name in entry.unset:
        yield f"  - unset {name}"
    details = {
        "class": entry.setting_class,
        "because": entry.reason,
        "NCCL": entry.nccl,
        "works for": ", ".join(entry.consumers),
        "only when": entry.when,
        "remove when": entry.remove_when,
        "cost": entry.cost,
    }
    for word, text in details.items():
        if text:
            yield fill(f"{word}: {text}", "      ", "    ")
