"""Word → what it is: a variable with its state on one machine, a rule, a term, a fact, or a name of somebody else's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from topoadvisor import published
from topoadvisor.advice import VendorValues
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.explain import glossary, ladder, readiness
from topoadvisor.explain.glossary import Term
from topoadvisor.explain.ladder import Ladder
from topoadvisor.explain.readiness import Readiness
from topoadvisor.nccl import defaults, levels, reading, settings
from topoadvisor.nccl.settings import Family, Invention, SettingInfo
from topoadvisor.rules.facts import gather
from topoadvisor.rules.model import Rule
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph
from topoadvisor.vocabulary import VOCABULARY

SCHEMA: Final = "topoadvisor.explain/1"
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.S)
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{1,79}")
_NCCLS: Final = re.compile(r"NCCL_[A-Z0-9_]{1,75}")
_NEAREST: Final = 3
_VENDOR: Final = ("vendor", "vendors", "vendor values", "vendor-values", "vendor profile", "cloud profile")
"""Words that ask for the vendor's values."""
_SYSTEMS: Final = "systems"
"""The word that asks for all systems."""

Kind = Literal["variable", "invention", "rule", "code", "term", "fact", "family", "pair", "vendor", "systems"]


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what an explanation is made of."""


class Value(Struct, frozen=True, kw_only=True):
    """One text that the variable has, and what NCCL makes of it."""

    text: str
    origin: str
    """`environment`, a file, `assumed`, or `asked` for a value given with the word."""
    line: int | None = None
    becomes: str | None = None
    """In NCCL's words; None = it counts as not set, or NCCL does not read it."""
    fatal: bool = False
    surprises: list[str] = []
    hints: list[str] = []
    """What is as usual and still worth knowing."""
    read: bool = True
    """Whether NCCL's parsers read it; otherwise its owner does, in a way of its own."""


class State(Struct, frozen=True, kw_only=True):
    """A variable on one machine."""

    nccl: str | None
    """Version of the NCCL library; None = not known, and the newest is taken."""
    read: bool | None
    """Whether that NCCL reads it; None for variables of others."""
    in_force: Value | None
    """None = it is not set."""
    overridden: list[Value] = []
    not_known: str | None = None
    """Why it is not known whether it is set; None = it is known."""
    default: str | None = None
    default_here: str | None = None
    """What the default comes to on this machine."""
    default_why: str | None = None


class Mention(Struct, frozen=True, kw_only=True):
    """A rule that speaks of the word."""

    id: str
    name: str
    severity: str


class LevelWord(Struct, frozen=True, kw_only=True):
    """One level that a variable takes."""

    name: str
    digits: list[str]
    """Old spellings."""
    since: str
    what: str


class CheckCode(Struct, frozen=True, kw_only=True):
    """One check of `topoadvisor lint`."""

    id: str
    name: str
    severity: str
    what: str
    why: str
    do: str
    example: str
    file: str
    """What the example is a part of."""
    fix: str | None = None
    """What `--fix` does; None = nothing."""
    covers: list[str] = []
    """Rules that say the same of a machine."""


class Explanation(Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """Everything about one word. Exactly one of the ten is there, the one that `kind` names."""

    word: str
    kind: Kind
    variable: SettingInfo | None = None
    invention: Invention | None = None
    rule: Rule | None = None
    term: Term | None = None
    code: CheckCode | None = None
    pair: Ladder | None = None
    """Why two GPUs are slow, refused or hang."""
    fact: str | None = None
    """Meaning of a fact."""
    family: Family | None = None
    """Whose name it is by how it begins; whether they read it is not known."""
    vendor: VendorValues | None = None
    """What the vendor of the machine publishes for NCCL, beside what is set; None also where nothing is known of it."""
    ready: Readiness | None = None
    """For a term that is a system: whether the machine is ready for it."""
    systems: dict[str, Readiness] = {}
    """All systems, by their terms."""
    near: list[str] = []
    """Names of that family that the word resembles, best first."""
    asked: Value | None = None
    """The value given with the word, as in `NCCL_P2P_LEVEL=phb`."""
    state: State | None = None
    levels: list[LevelWord] = []
    rules: list[Mention] = []


def needs_machine(word: str) -> bool:
    """Whether the machine matters for this word: a variable, a pair of GPUs, a system, or the vendor's values."""
    name, _ = _split(word)
    if settings.find(name) is not None or ladder.names_pair(word) is not None or word.lower() in (_SYSTEMS, *_VENDOR):
        return True
    term = glossary.find(word)
    return term is not None and term.name in readiness.systems()


def explain(word: str, rules: Sequence[Rule], snapshot: Snapshot | None) -> Explanation:
    """What a word means; `NAME=VALUE` also says what NCCL makes of the value.

    Raises TopoAdvisorError with the nearest names when there is nothing of this name.
    """
    name, text = _split(word)
    if (pair := ladder.names_pair(word)) is not None and snapshot is not None:
        return Explanation(word=word, kind="pair", pair=ladder.climb(pair, snapshot, rules))
    if word.lower() == _SYSTEMS and snapshot is not None:
        return Explanation(word=word, kind="systems", systems=readiness.survey(readiness.systems(), snapshot, rules))
    if word.lower() in _VENDOR and snapshot is not None:
        return Explanation(word=word, kind="vendor", vendor=published.beside(gather(snapshot, graph.build(snapshot))))
    if (info := settings.find(name)) is not None:
        return _variable(word, info, text, rules, snapshot)
    if (invention := settings.inventions().get(name)) is not None:
        return Explanation(word=word, kind="invention", invention=invention, rules=mentions(name, rules))
    rule = next((rule for rule in rules if word in (rule.id, rule.name) or word.upper() == rule.id), None)
    if rule is not None:
        return Explanation(word=word, kind="rule", rule=rule)
    if (code := _check_code(word)) is not None:
        return Explanation(word=word, kind="code", code=code)
    if (term := glossary.find(word) or _log_code(word)) is not None:
        system = readiness.systems().get(term.name)
        ready = readiness.survey([term.name], snapshot, rules)[term.name] if system and snapshot is not None else None
        spoken = [_mention(rule) for rule in readiness.of_system(system, rules)] if system and ready is None else []
        return Explanation(
            word=word,
            kind="term",
            term=term,
            ready=ready,
            rules=spoken or ([] if ready else mentions(term.name, rules)),
        )
    if (fact := VOCABULARY.get(word)) is not None:
        return Explanation(word=word, kind="fact", fact=fact.meaning, rules=mentions(word, rules))
    close = nearest(word, rules)
    if _NAME.fullmatch(name) and (family := settings.family(name)) is not None:
        near = [other for other in close if other.startswith(family.name)]
        return Explanation(word=word, kind="family", family=family, near=near)
    if _NCCLS.fullmatch(name):
        return Explanation(word=word, kind="invention", invention=_unknown(name), rules=mentions(name, rules))
    hint = f"Did you mean {' or '.join(close)}?" if close else "It explains variables, rules, terms and facts."
    raise TopoAdvisorError(f"there is nothing to explain for {word[:80]}", hint=hint)


def _unknown(name: str) -> Invention:
    from topoadvisor.lint.checks.names import BUILDS
    from topoadvisor.lint.spelling import nearest

    if BUILDS.fullmatch(name):
        why = "Builds and scripts call places, versions and lists of options so, and may well read it."
        return Invention(name=name, instead=[], why=why)
    why = f"It is none of the names up to NCCL {settings.NEWEST}; only a plugin could read it."
    return Invention(name=name, instead=nearest(name), why=why)


def _check_code(word: str) -> CheckCode | None:
    from topoadvisor.lint.codes import CODES

    found = next((id for id, each in CODES.items() if word in (each.name, id) or word.upper() == id), None)
    if found is None:
        return None
    each = CODES[found]
    return CheckCode(
        id=found,
        name=each.name,
        severity=each.severity,
        what=each.what,
        why=each.why,
        do=each.do,
        example=each.example,
        file=each.file,
        fix=each.fix or None,
        covers=list(each.covers),
    )


def _log_code(word: str) -> glossary.Term | None:
    from topoadvisor.joblog.document import CODES

    found = next((id for id, (name, _) in CODES.items() if word.upper() == id or word == name), None)
    if found is None:
        return None
    name, what = CODES[found]
    return glossary.Term(name=f"{found} {name}", what=f"Of `topoadvisor log`: {what}")


def nearest(word: str, rules: Iterable[Rule]) -> list[str]:
    """The names that a word was probably meant to be, best first, at most three."""
    from difflib import get_close_matches

    names = [*settings.registry(), *settings.neighbours(), *VOCABULARY]
    names += [spelling for term in glossary.terms().values() for spelling in (term.name, *term.also)]
    names += [name for rule in rules for name in (rule.id, rule.name)]
    by_case = {name.lower(): name for name in names}
    # Names are no longer than this, and the comparison takes the product of the lengths.
    found = get_close_matches(word[:100].lower(), by_case, n=_NEAREST, cutoff=0.6)
    return [by_case[name] for name in found]


def _split(word: str) -> tuple[str, str | None]:
    match = _ASSIGNMENT.fullmatch(word)
    name, text = (match[1], match[2]) if match else (word.removeprefix("env."), None)
    return (name if settings.find(name) else name.upper()), text


def _variable(
    word: str, info: SettingInfo, text: str | None, rules: Sequence[Rule], snapshot: Snapshot | None
) -> Explanation:
    state = None if snapshot is None else _state(info, snapshot)
    version = state.nccl if state else None
    return Explanation(
        word=word,
        kind="variable",
        variable=info,
        asked=None if text is None else _value(info, text, "asked", None, version),
        state=state,
        levels=level_words() if info.parser == "level" else [],
        rules=mentions(info.name, rules),
    )


def level_words() -> list[LevelWord]:
    """The levels of NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL, nearest first."""
    return [
        LevelWord(name=path.name, digits=digits, since=since, what=glossary.terms()[path.name].what)
        for path, since, digits in levels.names()
    ]


def _state(info: SettingInfo, snapshot: Snapshot) -> State:
    from topoadvisor.rules import machine
    from topoadvisor.rules.scope import Unknown

    facts = gather(snapshot, graph.build(snapshot))
    node = facts.node

    version = machine.nccl_version(node)
    values = [
        _value(info, setting.value, setting.origin, setting.line, version)
        for setting in snapshot.settings or []
        if setting.name == info.name
    ]
    fact = node.get(f"env.{info.name}", facts.unset)
    own = info.owner == "NCCL"
    default = defaults.default(info, version, machine.of(node)) if own else defaults.Default(info.default, None, "")
    return State(
        nccl=version,
        read=info.exists_in(version) if own else None,
        in_force=values[0] if values else None,
        overridden=values[1:],
        not_known=fact.reason if isinstance(fact, Unknown) and not values else None,
        default=default.value,
        default_here=default.here,
        default_why=default.why or None,
    )


def _value(info: SettingInfo, text: str, origin: str, line: int | None, version: str | None) -> Value:
    found = reading.read(info, text, version)
    if found is None:
        return Value(text=text, origin=origin, line=line, read=False)
    return Value(
        text=text,
        origin=origin,
        line=line,
        becomes=found.becomes,
        fatal=found.fatal,
        surprises=list(found.surprises),
        hints=list(found.hints),
    )


def _mention(rule: Rule) -> Mention:
    return Mention(id=rule.id, name=rule.name, severity=rule.severity)


def mentions(name: str, rules: Sequence[Rule]) -> list[Mention]:
    """Rules that name a word anywhere: conditions, advice, texts."""
    pattern = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])")
    return [_mention(rule) for rule in rules if pattern.search(msgspec.json.encode(rule).decode())]
