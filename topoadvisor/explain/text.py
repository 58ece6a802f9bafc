"""An explanation in words, at most 80 columns wide but for addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from topoadvisor import published
from topoadvisor.advice import Reference, VendorValues
from topoadvisor.explain.ladder import Ladder
from topoadvisor.explain.lookup import CheckCode, Explanation, LevelWord, State, Value
from topoadvisor.explain.readiness import Check, Readiness
from topoadvisor.nccl.settings import NEWEST, Family, SettingInfo
from topoadvisor.rules import describe
from topoadvisor.rules.describe import fill, section
from topoadvisor.wrapping import cut

_KINDS: Final = {
    "switch": "a switch",
    "integer": "a number",
    "bytes": "a number of bytes",
    "choice": "one of a few words or numbers",
    "level": "a level",
    "list": "a list",
    "path": "a path",
    "text": "a text",
}
_SCOPES: Final = {"node": "of the machine", "job": "of the whole job", "rank": "of one process"}
_CLASSES: Final = {
    "system": "belongs in nccl.conf",
    "tuning": "only with a measurement behind it",
    "workaround": "until something is repaired",
    "diagnostic": "never kept in nccl.conf",
}
_CLASSES_OF_OTHERS: Final = _CLASSES | {
    "system": "part of the set-up",
    "diagnostic": "for finding faults, not for production",
}
"""NCCL reads nccl.conf when it starts; for whoever reads these that is too late, or never."""
_MANUAL: Final = {
    "system": "In NCCL's manual under system configuration.",
    "debugging": "In NCCL's manual under debugging, not to be kept in production.",
}


_READY: Final = {"in order": "yes", "look here": "no", "not known": "not known", "no matter": "does not matter here"}
_MARKS: Final = {"in order": "✓", "look here": "!", "not known": "?", "no matter": "·"}


def render(explanation: Explanation) -> str:
    """Everything about one word."""
    match explanation:
        case Explanation(variable=SettingInfo() as info):
            return _blocks(_variable(info, explanation))
        case Explanation(kind="vendor", vendor=vendor):
            return _blocks(_vendor(vendor))
        case Explanation(kind="systems"):
            return _blocks(_systems(explanation.systems))
        case Explanation(pair=pair) if pair is not None:
            return _blocks(_ladder(pair))
        case Explanation(rule=rule) if rule is not None:
            return describe.explain(rule)
        case Explanation(invention=invention) if invention is not None:
            return _blocks(_invention(explanation))
        case Explanation(code=code) if code is not None:
            return _blocks(_code(code))
        case Explanation(term=term) if term is not None:
            return _blocks(_term(explanation))
        case Explanation(family=Family() as family):
            return _blocks(_family(family, explanation))
        case _:
            head = f"{explanation.word}\na fact that rules read"
            return _blocks([head, fill(f"{explanation.fact}."), *_mentions(explanation)])


def _blocks(blocks: Iterator[str] | list[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"


def _variable(info: SettingInfo, explanation: Explanation) -> Iterator[str]:
    yield f"{info.name}\n{fill(_headline(info))}"
    yield fill(info.what)
    if explanation.asked is not None:
        yield section(cut(f"With {info.name}={explanation.asked.text}"), _value(explanation.asked, info))
    if explanation.state is not None:
        yield section("Here", _state(info, explanation.state))
    yield section("Values", _values(info))
    yield section("Levels, nearest first", (line for level in explanation.levels for line in _level(level)))
    yield section("Default", _default(info))
    yield section("Beware", (fill(pitfall, "    ", "  - ") for pitfall in info.pitfalls))
    yield section("Other names", _others(info))
    yield from _mentions(explanation)
    manual = [fill(_MANUAL[info.documented], "  ")] if info.documented else []
    source = f"  {info.source}" if info.source.startswith("https://") else fill(info.source, "  ")
    yield section("Source", [source, *manual])


def _headline(info: SettingInfo) -> str:
    own = info.owner == "NCCL"
    classes = _CLASSES if own else _CLASSES_OF_OTHERS
    parts = [f"{info.setting_class}: {classes[info.setting_class]}"]
    parts.append(f"{_KINDS[info.kind]}, {_SCOPES[info.scope]}" if info.kind else f"a setting {_SCOPES[info.scope]}")
    return "; ".join([*parts, info.agreement, _life(info) if own else _neighbour_life(info)])


def _life(info: SettingInfo) -> str:
    if info.since is None:
        return "known from NCCL's manual only"
    older = "or earlier" if info.since == "2.3.5" else ""
    since = f"in NCCL since {info.since} {older}".rstrip()
    if info.reads == "never":
        return f"{since}, and read by nothing there: it has no effect"
    return f"{since}, no longer read from {info.removed} on" if info.removed else since


def _neighbour_life(info: SettingInfo) -> str:
    since = f" {info.since} and newer" if info.since else ""
    return f"read by {info.owner}{since}{f' before {info.removed}' if info.removed else ''}, not by NCCL"


def _value(value: Value, info: SettingInfo) -> Iterator[str]:
    if not value.read:
        yield fill(f"{info.owner} reads it, and not NCCL: what it makes of this text is not known here.", "  ")
    elif value.fatal:
        result = f"NCCL reads {value.becomes} and dies of it" if value.becomes else "NCCL refuses to start"
        yield fill(f"{result}.", "  ")
    elif value.becomes is not None and (value.becomes != value.text or value.surprises):
        yield fill(f"NCCL works with: {value.becomes}", "  ")
    elif value.becomes is None:
        yield fill("As if it were not set.", "  ")
    elif value.becomes in info.sentinels:
        yield fill(f"It stands for {info.sentinels[value.becomes]}.", "  ")
    else:
        yield fill("Taken as it stands.", "  ")
    for sentence in (*value.surprises, *value.hints):
        yield fill(f"{sentence}.", "    ", "  - ")


def _state(info: SettingInfo, state: State) -> Iterator[str]:
    own = info.owner == "NCCL"
    if own:
        library = (
            f"NCCL {state.nccl}" if state.nccl else f"NCCL's version is not known; {NEWEST}, the newest known, is taken"
        )
        yield fill(library if state.read else f"{library}, which does not read this variable", "  ")
    if state.in_force is not None:
        yield fill(f"set to {state.in_force.text or 'an empty text'} by {_place(state.in_force)}", "    ", "  ")
        if own:
            yield from _value(state.in_force, info)
    else:
        yield fill(f"not known whether it is set: {state.not_known}" if state.not_known else "not set", "  ")
    for value in state.overridden:
        yield fill(f"overridden: {value.text} by {_place(value)}", "    ", "  ")
    if own and state.read:
        yield fill(_default_here(state), "    ", "  ")


def _default_here(state: State) -> str:
    if state.default is None:
        return f"default not known: {state.default_why}"
    if state.default_here is None:
        return f"default {state.default}; {state.default_why}"
    same = state.default == state.default_here
    comes_to = "" if same else f", which comes to {state.default_here} here"
    return f"default {state.default}{comes_to}; {state.default_why}"


def _place(value: Value) -> str:
    where = {"environment": "the environment", "assumed": "assumption"}.get(value.origin, value.origin)
    return f"{where} line {value.line}" if value.line else where


def _values(info: SettingInfo) -> Iterator[str]:
    if info.values:
        yield fill(", ".join(info.values), "  ")
    if info.minimum is not None and info.maximum is not None:
        yield f"  {info.minimum} to {info.maximum}"
    elif info.minimum is not None:
        yield f"  {info.minimum} or more"
    if info.kind == "switch" and not info.sentinels.keys() & {"0", "1"}:
        yield "  0 or 1"
    for number, meaning in info.sentinels.items():
        yield fill(f"{number}: {meaning}", "    ", "  ")


def _level(level: LevelWord) -> Iterator[str]:
    digits = f" (old: {', '.join(level.digits)})" if level.digits else ""
    # The first sentence says what it is; the rest stands in the glossary.
    yield fill(f"{level.name}{digits} since {level.since}: {level.what.split('. ')[0].rstrip('.')}.", "      ", "  ")


def _default(info: SettingInfo) -> Iterator[str]:
    if info.history:
        for since, value in info.history.items():
            yield fill(f"since {since}: {value}", "    ", "  ")
    elif info.default:
        yield fill(info.default, "  ")
    if info.configured:
        yield fill(f"where the program asks for nothing: {info.configured}", "  ")


def _others(info: SettingInfo) -> Iterator[str]:
    if info.replacement:
        yield f"  use {info.replacement}"
    if info.replaces:
        yield f"  formerly {info.replaces}"


def _mentions(explanation: Explanation) -> Iterator[str]:
    yield section(
        "Rules that mention it", (f"  {rule.id:<7} {rule.severity:<8} {rule.name}" for rule in explanation.rules)
    )


def _invention(explanation: Explanation) -> Iterator[str]:
    invention = explanation.invention
    assert invention is not None
    yield f"{invention.name}\nno release of NCCL reads this name: setting it does nothing to NCCL"
    yield fill(invention.why)
    yield section("Probably meant", (f"  {name}" for name in invention.instead))
    yield from _mentions(explanation)


def _family(family: Family, explanation: Explanation) -> Iterator[str]:
    whose = f"a name of {family.owner}, by its beginning {family.name}; not read by NCCL"
    yield f"{explanation.word.partition('=')[0]}\n{fill(whose)}"
    yield fill(family.what)
    yield fill(f"Whether {family.owner} reads this one is not known here.")
    yield section("Names like it", (f"  {name}" for name in explanation.near))
    yield section("Source", [f"  {family.source}"])


def _code(code: CheckCode) -> Iterator[str]:
    yield f"{code.id} {code.name}\n{fill(f'{code.severity}, of `topoadvisor lint`: {code.what}.')}"
    yield fill(code.why)
    yield section("What to do", [fill(code.do, "  ")])
    yield section("With --fix", [fill(code.fix or "Nothing: what is meant is not certain.", "  ")])
    yield section(f"Example ({code.file})", (f"  {line}" for line in code.example.splitlines()))
    yield section("Rules that say the same of a machine", (f"  {rule}" for rule in code.covers))


def _term(explanation: Explanation) -> Iterator[str]:
    term = explanation.term
    assert term is not None
    also = fill(f"also: {', '.join(term.also)}") if term.also else ""
    yield f"{term.name}\n{also}".rstrip()
    yield fill(term.what)
    if explanation.ready is not None:
        yield from _ready(explanation.ready)
    yield section("See also", [fill(", ".join(term.see), "  ")] if term.see else [])
    yield from _mentions(explanation)


def _ready(ready: Readiness) -> Iterator[str]:
    """Whether this machine has it, what it takes, and what rules say."""
    told = {
        "in order": "This machine has it, or a job here can use it",
        "no matter": "This machine has no use for it as it was read",
        "not known": "Whether this machine has it is not known",
    }[ready.here]
    yield section("Here", [fill(f"{told}: {'; '.join(ready.why_here) or 'nothing was read'}.", "  ")])
    yield section("What it takes", (line for check in ready.checks for line in _check(check)))
    yield section("Facts", (fill(text, "    ", "  ") for text in ready.facts))
    rules = [fill(f"! {text}", "      ", "  ") for text in ready.findings]
    if ready.undecided:
        rules.append(fill(f"? not decided: {', '.join(ready.undecided)} (`topoadvisor scan` asks)", "      ", "  "))
    if ready.quiet:
        rules.append(fill(f"✓ nothing to say: {', '.join(ready.quiet)}", "      ", "  "))
    yield section("Rules of it", rules)
    yield section("Source", [f"  {ready.source}"] if ready.source else [])


def _check(check: Check) -> Iterator[str]:
    yield fill(f"{_MARKS[check.answer]} {check.what}: {_READY[check.answer]}", "    ", "  ")
    for text in check.evidence:
        yield fill(text, "      ", "    ")
    if check.answer in ("look here", "not known"):
        yield f"    $ {check.ask}"


def _systems(systems: Mapping[str, Readiness]) -> Iterator[str]:
    """One line for each system that a machine may have."""
    yield "systems\nwhat this machine is ready for; `topoadvisor explain NAME` says more of each"
    width = max(map(len, systems))
    lines = []
    for name, ready in systems.items():
        lacking = sum(check.answer == "look here" for check in ready.checks)
        unknown = sum(check.answer == "not known" for check in ready.checks)
        mark = "·" if ready.here == "no matter" else "!" if lacking or ready.findings else _MARKS[ready.here]
        found = ", ".join(dict.fromkeys(text.partition(":")[0] for text in ready.findings))
        parts = [
            "no use for it here" if ready.here == "no matter" else "",
            f"lacks {lacking} of {len(ready.checks)}" if lacking else "",
            f"{unknown} of {len(ready.checks)} not known" if unknown and ready.here != "no matter" else "",
            f"findings: {found}" if found else "",
            f"{len(ready.undecided)} rules not decided" if ready.undecided and ready.here == "in order" else "",
        ]
        told = "; ".join(filter(None, parts)) or ("nothing against it" if ready.here == "in order" else "not known")
        lines.append(fill(told, " " * (width + 6), f"  {mark} {name:<{width}}  "))
    yield "\n".join(lines)


def _vendor(vendor: VendorValues | None) -> Iterator[str]:
    yield "vendor\nwhat the vendor of this machine publishes for NCCL, beside what is set here"
    if vendor is None:
        yield fill(
            "No list is known for this machine: its cloud or its machine type was not recognised, or nobody publishes "
            "one. --assume platform.cloud=oci --assume platform.product=BM.GPU.H100.8 tells it."
        )
        return
    yield fill(published.head(vendor))
    yield section(vendor.profile, (fill(published.said(line), "    ", "  ") for line in vendor.lines))
    yield fill(
        "The vendor's own file or script of the release that runs here wins over this list. For a job on one machine "
        "the network's variables can be left out."
        if vendor.lines
        else ""
    )
    lines = [line for each in vendor.sources for line in _reference(each)]
    yield section("Sources", lines)


def _reference(source: Reference) -> Iterator[str]:
    yield fill(f"{source.what}, read {source.read or 'never'}", "    ", "  ")
    if source.url:
        yield f"    {source.url}"


def _ladder(pair: Ladder) -> Iterator[str]:
    """The steps in order, and the first at which to look."""
    yield f"{pair.a}-{pair.b}\njoined by {pair.link}; what can make it slow, refused or hang, in this order"
    for number, step in enumerate(pair.steps, start=1):
        lines = [f"{_MARKS[step.answer]} {number}. {step.name}: {step.answer}", fill(step.why, "     ")]
        lines += [fill(text, "       ", "     ") for text in step.evidence]
        yield "\n".join([*lines, f"     $ {step.command}"])
    suspects = [f"{number}. {step.name}" for number, step in enumerate(pair.steps, 1) if step.answer == "look here"]
    open_ones = [f"{number}. {step.name}" for number, step in enumerate(pair.steps, 1) if step.answer == "not known"]
    told = f"Look at {suspects[0]} first." if suspects else "No step stands out in what was read."
    yield fill(told + (f" Not known: {', '.join(open_ones)}." if open_ones else ""))
    if pair.findings:
        yield section("Rules that fire on this pair", (fill(text, "    ", "  ") for text in pair.findings))
