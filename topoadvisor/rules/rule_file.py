"""Rule files → rules. Every fault names file, line and column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import msgspec
import yaml

from topoadvisor import files
from topoadvisor.advice import SettingClass, Severity
from topoadvisor.errors import InputError
from topoadvisor.rules import wellformed
from topoadvisor.rules.model import Entry, Reference, Rule, RuleText
from topoadvisor.rules.wellformed import Place
from topoadvisor.vocabulary import KINDS, nearest, suggestion

MAX_BYTES: Final = 4 << 20
_HINT: Final = "--rules takes a folder with *.yaml files in it, or one such file."


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML whose every fault carries its line, also one in a value that is not what its tag says (`!!int x`)."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            kind = str(node.tag).rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"this value is no {kind}, which it would be in YAML; put a text in quotes", node.start_mark
            ) from None


_AT: Final = re.compile(r"(?P<what>.*?)(?: - at (?:key in )?`\$(?P<path>[^`]*)`)?", re.S)
_STEP: Final = re.compile(r"\.(\w+)|\[([0-9]+)\]")
_WORDS: Final = (*KINDS, *get_args(Severity), *get_args(SettingClass), "stable", "preview", "safe", "manual")


def sound(directories: Sequence[Path]) -> list[Rule]:
    """The rules of these directories (or single files), by id. Raises InputError for the first fault."""
    rules, faults = collect([source for directory in directories for source in rule_files(directory)])
    if faults:
        raise faults[0]
    return rules


def entries(path: Path) -> list[list[Rule]]:
    """Each rule of one shipped file. Raises InputError for the first fault."""
    found, faults = RuleFile(path, f"rules/{path.name}").read()
    if faults:
        raise faults[0]
    return [[rule] for _, rule in found]


def rule_files(directory: Path) -> list[RuleFile]:
    """The rule files of a directory by name, or the one file. Raises InputError when there is neither."""
    shipped = directory == files.shipped("rules")
    if directory.is_dir():
        paths = sorted(path for path in directory.iterdir() if path.suffix in (".yaml", ".yml") and not path.is_fifo())
        if not paths and not shipped:
            raise InputError("there is no rule file (*.yaml) in this folder", file=str(directory), hint=_HINT)
        return [RuleFile(path, f"rules/{path.name}" if shipped else str(path)) for path in paths]
    if directory.exists():
        return [RuleFile(directory, str(directory))]
    raise InputError(
        "there is no such folder of rules",
        file=str(directory),
        hint=_HINT,
    )


def collect(sources: Sequence[RuleFile]) -> tuple[list[Rule], list[InputError]]:
    """All rules without a fault, by id, and every fault."""
    faults: list[InputError] = []
    by_id: dict[str, tuple[RuleFile, int, Rule]] = {}
    by_name: dict[str, Rule] = {}
    for source in sources:
        found, wrong = source.read()
        faults += wrong
        for number, rule in found:
            if rule.id in by_id:
                first = by_id[rule.id]
                message = f"the rule id {rule.id} is used twice: it stands in {first[0].at(first[1], ('id',))} already"
                faults.append(source.fault(number, ("id",), message, "Give this rule another id."))
                continue
            if rule.name in by_name:
                message = f"the name `{rule.name}` is used twice: {by_name[rule.name].id} has it already"
                faults.append(source.fault(number, ("name",), message))
            by_id[rule.id] = source, number, rule
            by_name[rule.name] = rule
    for source, number, rule in by_id.values():
        for key, verb in (("overrides", "overrides"), ("instead_of", "speaks instead of")):
            for place, other in enumerate(getattr(rule, key)):
                if other not in by_id:
                    message = f"the rule {verb} {other}, and there is no such rule"
                    faults.append(source.fault(number, (key, place), message, suggestion(other, by_id)))
    for circle in _circles({rule.id: rule.overrides for _, _, rule in by_id.values()}):
        source, number, rule = by_id[circle[0]]
        message = f"these rules override each other in a circle, so that none counts: {' → '.join(circle)}"
        place = rule.overrides.index(circle[1])
        faults.append(source.fault(number, ("overrides", place), message, "Take one of them out of `overrides`."))
    return sorted((rule for _, _, rule in by_id.values()), key=lambda rule: rule.id), faults


def _circles(overrides: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Circles of rules that override each other, each from its first id back to it; none shares a rule with another."""
    done: set[str] = set()
    for start in sorted(overrides):
        trail: dict[str, Iterator[str]] = {} if start in done else {start: iter(overrides[start])}
        while trail:
            rule = next(reversed(trail))
            other = next(trail[rule], None)
            if other is None:
                done.add(rule)
                del trail[rule]
            elif other in trail:
                circle = list(trail)[list(trail).index(other) :]
                first = circle.index(min(circle))
                yield [*circle[first:], *circle[:first], circle[first]]
                done.update(circle)
                for each in circle:
                    del trail[each]
            elif other in overrides and other not in done:
                trail[other] = iter(overrides[other])


class RuleFile:
    """One YAML file of rules. Line numbers are worked out only when something has to be said about it."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self.name = name

    @cached_property
    def _text(self) -> str:
        try:
            with self._path.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise InputError(
                    f"this is more than {MAX_BYTES >> 20} MiB, too much for rules", file=self.name, hint=_TAKES
                )
            return data.decode()
        except UnicodeDecodeError:
            raise InputError("this is no text, so it holds no rules", file=self.name, hint=_TAKES) from None
        except OSError as error:
            raise InputError(f"the rules cannot be read: {error.strerror}", file=self.name, hint=_TAKES) from None

    def read(self) -> tuple[list[tuple[int, Rule]], list[InputError]]:
        """The rules without a fault, each with its position in the file, and the faults."""
        try:
            documents = self._parse()
        except InputError as fault:
            return [], [fault]
        found: list[tuple[int, Rule]] = []
        faults: list[InputError] = []
        for number, document in enumerate(documents):
            wrong = list(self._wrong(number, document))
            faults += wrong
            if not wrong:
                found.append((number, msgspec.convert({**document, "file": self.name}, Rule)))
        return found, faults

    def _parse(self) -> list[Any]:
        try:
            documents = yaml.load(self._text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise InputError(
                f"the YAML is broken here: {error.problem or error.context}",
                file=self.name,
                line=mark.line + 1 if mark else None,
                column=mark.column + 1 if mark else None,
                hint="What is wrong often stands just above: a quote or bracket left open, or another indentation.",
            ) from None
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else "it is nested too deeply"
            raise InputError(f"the YAML cannot be read: {reason}", file=self.name, hint=_TAKES) from None
        if documents is None:
            return []
        if not isinstance(documents, list):
            raise InputError(
                "a rule file is a list of rules: every rule begins with `- id:`", file=self.name, line=1, hint=_EXAMPLE
            )
        return documents

    def _wrong(self, number: int, document: Any) -> Iterator[InputError]:
        if not isinstance(document, dict):
            yield self.fault(number, (), "this is no rule: a rule is a mapping that begins with `id:`", _EXAMPLE)
            return
        try:
            rule = msgspec.convert(document, RuleText)
        except msgspec.ValidationError as error:
            yield self._mistyped(number, document, str(error))
            return
        for problem in wellformed.problems(rule):
            yield self.fault(number, problem.place, problem.message, problem.hint)

    def _mistyped(self, number: int, document: Any, text: str) -> InputError:
        """A key that is unknown, missing or of another type, in words of the rule file."""
        found = _AT.fullmatch(text)
        what, path = (found["what"], found["path"] or "") if found else (text, "")
        place: Place = tuple(key or int(index) for key, index in _STEP.findall(path))
        if unknown := re.search(r"unknown field `([^`]*)`", what):
            key = unknown[1]
            allowed = [field.encode_name for field in msgspec.structs.fields(_level(place))]
            hint = suggestion(key, allowed) or f"The keys are {', '.join(allowed)}."
            return self.fault(number, (*place, key), f"`{key}` is no key of {_whose(place)}", hint)
        if lacking := re.search(r"missing required field `([^`]*)`", what):
            hint = _choice(place, lacking[1]) or _EXAMPLE
            return self.fault(number, place, f"`{lacking[1]}` is missing: {_whose(place)} needs it", hint)
        name = ".".join(str(step) for step in place)
        if choice := re.search(r"Invalid enum value '([^']*)'", what):
            close = nearest(choice[1], _WORDS)
            guess = f"Did you mean `{close}`?" if close else _choice(place[:-1], str(place[-1]))
            return self.fault(number, place, f"`{choice[1]}` is no value of `{name}`", guess)
        kinds = re.search(r"Expected `([^`]*)`, got `([^`]*)`", what)
        if kinds and kinds[1].startswith("str"):
            message = f"`{name}` must be a text, not {_KINDS.get(kinds[2], kinds[2])}"
            return self.fault(number, place, message, "Put it in quotes." if kinds[2] in _QUOTABLE else None)
        return self.fault(number, place, f"`{name}`: {what[:1].lower()}{what[1:]}")

    @cached_property
    def _tree(self) -> yaml.Node | None:
        try:
            return yaml.compose(self._text, Loader=_Loader)
        except (yaml.YAMLError, RecursionError):
            return None  # reading the rules says what is wrong

    def where(self, number: int, place: Place) -> tuple[int, int]:
        """Line and column of a spot in the rule at this position, both counted from 1."""
        node: Any = self._tree.value[number] if self._tree is not None else None
        mark = node.start_mark
        for step in place:
            if isinstance(node, yaml.MappingNode):
                key, node = next(((key, value) for key, value in node.value if key.value == step), (None, None))
                mark = key.start_mark if key is not None else mark
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                mark = node.start_mark
            else:
                break
        return mark.line + 1, mark.column + 1

    def at(self, number: int, place: Place) -> str:
        """`file:line` of a spot."""
        return f"{self.name}:{self.where(number, place)[0]}"

    def fault(self, number: int, place: Place, message: str, hint: str | None = None) -> InputError:
        """An error that points to a spot in the rule at this position."""
        line, column = self.where(number, place)
        return InputError(message, file=self.name, line=line, column=column, hint=hint)

    def repeated_keys(self) -> Iterator[InputError]:
        """Keys that stand twice in one mapping, where YAML silently takes the last."""
        pending: list[Any] = [self._tree] if self._tree is not None else []
        looked_at: set[int] = set()
        while pending:
            node = pending.pop()
            if id(node) in looked_at:  # an alias, perhaps of a node that holds it
                continue
            looked_at.add(id(node))
            if isinstance(node, yaml.MappingNode):
                seen: set[str] = set()
                for key, value in node.value:
                    if not isinstance(key, yaml.ScalarNode):
                        continue
                    if key.value in seen:
                        mark = key.start_mark
                        yield InputError(
                            f"the key `{key.value}` stands here twice",
                            file=self.name,
                            line=mark.line + 1,
                            column=mark.column + 1,
                        )
                    seen.add(str(key.value))
                    pending.append(value)
            elif isinstance(node, yaml.SequenceNode):
                pending.extend(node.value)


_TAKES: Final = "A file of rules is YAML: a list in which every rule begins with `- id:`."
_EXAMPLE: Final = "A rule has at least id, name, status, subject, when, severity, title and why."
_KINDS: Final = {
    "int": "a number",
    "float": "a number",
    "bool": "a truth value",
    "null": "empty",
    "array": "a list",
    "object": "a mapping",
}
_QUOTABLE: Final = ("int", "float", "bool", "date", "datetime")


def _level(place: Place) -> type[msgspec.Struct]:
    """The struct whose keys stand at this place."""
    match place[:1]:
        case ("advice",):
            return Entry
        case ("references",):
            return Reference
        case _:
            return RuleText


def _choice(place: Place, key: str) -> str | None:
    """The values that a key of this level may have, where they are few."""
    field = next((field for field in msgspec.structs.fields(_level(place)) if field.encode_name == key), None)
    kinds = [] if field is None else [field.type, *get_args(field.type)]
    words = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
    return f"It is one of {', '.join(map(str, words))}." if words else None


def _whose(place: Place) -> str:
    return {"advice": "a piece of advice", "references": "a reference"}.get(str(place[0]), "") if place else "a rule"
