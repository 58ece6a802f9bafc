"""The pages under docs/rules/ and docs/coverage.md, from the YAML of the rules, of their test machines, of coverage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from topoadvisor.rules import cel
from topoadvisor.rules.model import Entry, Rule
from topoadvisor.rules.wellformed import conditions
from topoadvisor.vocabulary import spec

HERE: Final = Path(__file__).resolve().parent
COVERAGE: Final = HERE / "coverage.yaml"
CASES: Final = HERE.parent / "tests" / "rules" / "cases.yaml"
FAMILIES: Final = {
    "P2P": "Peer to peer inside the machine",
    "NVL": "NVLink, NVSwitch, fabrics",
    "PCI": "PCIe links and windows",
    "VM": "Virtual machines",
    "NET": "RDMA, sockets, GPUDirect RDMA",
    "SYS": "Host, container, scheduler, job",
    "ENV": "Variables in force",
    "CLD": "Cloud platforms and systems",
}
_COVERED_BY: Final = {
    "log": "[`topoadvisor log`](log.md)",
    "lint": "[`topoadvisor lint`](lint.md)",
    "verify": "`topoadvisor verify`",
    "diff": "`topoadvisor diff`",
    "rings": "`topoadvisor rings`",
    "explain": "`topoadvisor explain`",
}


def pages(rules: Sequence[Rule]) -> Iterator[tuple[str, str]]:
    """(path below docs/, content) of every page."""
    cases, problems = _yaml(CASES), dict(_yaml(COVERAGE))
    beside = problems.pop("beside")
    yield "rules/README.md", _lines(_index(rules))
    for rule in rules:
        yield f"rules/{rule.id}.md", _lines(_page(rule, cases.get(rule.id, {}), problems))
    yield "coverage.md", _lines(_coverage(problems, beside))


def _yaml(path: Path) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def _lines(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _index(rules: Sequence[Rule]) -> Iterator[str]:
    stable = sum(rule.status == "stable" for rule in rules)
    yield "# Rules"
    yield ""
    yield (
        f"{stable} stable rules and {len(rules) - stable} of status preview, which take part only when asked for. "
        "Generated from `rules/*.yaml` by `make docs`; `topoadvisor rules explain ID` prints the same. "
        "Which known problem is covered by which rule: [coverage](../coverage.md)."
    )
    for family, title in FAMILIES.items():
        yield ""
        yield f"## {family}: {title}"
        yield ""
        yield "| id | name | about | severity | status |"
        yield "|---|---|---|---|---|"
        for rule in rules:
            if rule.id.startswith(family):
                yield f"| [{rule.id}]({rule.id}.md) | {rule.name} | {rule.subject} | {rule.severity} | {rule.status} |"


def _page(rule: Rule, case: Mapping[str, Any], coverage: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {rule.id}: {rule.name}"
    yield ""
    yield f"{rule.severity} · about each {rule.subject} · {rule.status} · from `{rule.file}`"
    yield from _section("What it says", [rule.title])
    yield from _section("Why", [rule.why.strip()])
    yield from _section("When", _when(rule))
    yield from _section("Facts", _facts(rule))
    yield from _section("What to do", [line for entry in rule.advice for line in _entry(entry)])
    yield from _section("Otherwise", [rule.right] if rule.right else [])
    yield from _section("If a fact is unknown", [f"`{rule.ask}`"] if rule.ask else [])
    yield from _section("What would prove or refute it", rule.proof)
    yield from _section("Tried on", list(_machines(case)))
    known = [f"{problem}: {entry['what']}" for problem, entry in coverage.items() if rule.id in entry.get("rules", ())]
    yield from _section("Problems", [f"* {text}" for text in known])
    yield from _section(
        "Sources",
        [f"* <{each.url}> ({each.opened})" for each in rule.references],
    )


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"## {title}"
        yield ""
        yield from lines


def _when(rule: Rule) -> list[str]:
    lines = ["```", " ".join(rule.when.split())]
    if rule.applies_when:
        lines.append(f"only if  {' '.join(rule.applies_when.split())}")
    lines += [f"not if   {' '.join(condition.split())}" for condition in rule.not_when]
    return [*lines, "```"]


def _facts(rule: Rule) -> list[str]:
    read = [path for _, source in conditions(rule) for path in cel.compile_condition(source).paths]
    named = {name: spec(name) for name in [*read, *rule.evidence]}
    return [f"* `{name}`: {found.meaning}" for name, found in named.items() if found is not None]


def _entry(entry: Entry) -> Iterator[str]:
    if entry.action:
        yield f"* {entry.action}" + (f" (only when `{' '.join(entry.when.split())}`)" if entry.when else "")
    for name, value in entry.set.items():
        yield f"* set `{name}={value}`" + _details(entry)
    for name in entry.unset:
        yield f"* unset `{name}`" + _details(entry)
    if entry.command:
        yield ""
        yield f"      {entry.command}"
        yield ""


def _details(entry: Entry) -> str:
    parts = {
        "class": entry.setting_class,
        "because": entry.reason,
        "NCCL": entry.nccl,
        "only when": entry.when and f"`{' '.join(entry.when.split())}`",
        "remove when": entry.remove_when,
        "costs": entry.cost,
    }
    told = "; ".join(f"{word} {text}" for word, text in parts.items() if text)
    return f" ({told})" if told else ""


def _machines(case: Mapping[str, Any]) -> Iterator[str]:
    for key, verb in (("fires", "fires"), ("silent", "does not fire")):
        if key in case:
            yield f"* {verb}: `fixture:{case[key]['machine']}`{_assumed(case[key].get('assume', {}))}"


def _assumed(facts: Mapping[str, Any]) -> str:
    def spelled(value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(str, value))}]"
        return str(value).lower() if isinstance(value, bool) else str(value)

    return " with " + ", ".join(f"`{name}={spelled(value)}`" for name, value in facts.items()) if facts else ""


def _coverage(coverage: Mapping[str, Any], beside: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    ruled = sum(bool(entry.get("rules")) for entry in coverage.values())
    yield "# Known problems and where they are covered"
    yield ""
    yield (
        f"{len(coverage)} problems, {ruled} of them with rules of `topoadvisor scan`. "
        "Generated from `docs/coverage.yaml` by `make docs`."
    )
    yield ""
    yield "| problem | what | rules | also | not seen, and the question that is asked |"
    yield "|---|---|---|---|---|"
    for problem, entry in coverage.items():
        also = ", ".join(_COVERED_BY[each] for each in entry.get("by", ()))
        ask = entry.get("ask", "").replace("|", "\\|")
        left = "; ".join(filter(None, [entry.get("left"), f"`{ask}`" if ask else ""]))
        yield f"| {problem} | {entry['what']} | {_linked(entry)} | {also} | {left} |"
    yield ""
    yield "What is seen besides:"
    yield ""
    yield "| what | rules |"
    yield "|---|---|"
    for entry in beside:
        yield f"| {entry['what']} | {_linked(entry)} |"


def _linked(entry: Mapping[str, Any]) -> str:
    return ", ".join(f"[{rule}](rules/{rule}.md)" for rule in entry.get("rules", ()))
