"""Where comparisons are written down: as a change, as a value that only one side holds, or as unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from topoadvisor.advice import SEVERITIES, Change, Severity
from topoadvisor.diff.document import KINDS, Group, Unread
from topoadvisor.numbers import natural
from topoadvisor.rules.scope import spell

Judge = Callable[[Any, Any], Severity]
"""Severity of a change, from the values before and after."""


def always(severity: Severity) -> Judge:
    """The same whatever the values are."""
    return lambda _before, _after: severity


def lower_is(severity: Severity, otherwise: Severity = "info") -> Judge:
    """`severity` when the value fell, else `otherwise`."""
    return lambda before, after: severity if after < before else otherwise


def leaves(good: Any, severity: Severity, otherwise: Severity = "info") -> Judge:
    """`severity` when the value was `good` and is not any more, else `otherwise`."""
    return lambda before, _after: severity if before == good else otherwise


@dataclass(frozen=True)
class Who:
    """Whom a value is about: its id, and its name in a sentence."""

    subject: str
    label: str


NODE: Final = Who("node", "Node")


@dataclass(frozen=True)
class Field:
    """One value of a struct that is compared as it stands."""

    name: str
    """Also where it stands; a dot leads into a struct."""
    noun: str
    judge: Judge
    kind: str
    write: Callable[[Any], str] = spell
    tolerance: float = 0.0
    """Relative difference of two numbers that counts as none."""

    def of(self, struct: Any) -> Any:
        """The value, None also when a struct on the way is None."""
        for part in self.name.split("."):
            struct = None if struct is None else getattr(struct, part)
        return struct


@dataclass
class Ledger:
    """All comparisons of two captures."""

    changes: list[Change] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    _compared: dict[str, set[str]] = field(default_factory=dict)
    _changed: dict[str, set[str]] = field(default_factory=dict)

    def fields(self, who: Who, fields: Iterable[Field], before: Any, after: Any) -> None:
        """Compare two structs field by field."""
        for each in fields:
            self.value(who, each, each.of(before), each.of(after))

    def value(self, who: Who, what: Field, before: Any, after: Any) -> None:
        """Compare one value. None on both sides is nothing to compare, on one side it is a value not read."""
        if before is None and after is None:
            return
        if before is None or after is None:
            self.only_one(who, what.name, what.noun, before, after, what.write)
            return
        self.count(what.kind, who.subject)
        if before == after or (what.tolerance and abs(after - before) <= what.tolerance * abs(before)):
            return
        text = f"{who.label}: {what.noun} {what.write(before)} → {what.write(after)}"
        self.change(what.kind, who.subject, what.name, before, after, what.judge(before, after), text)

    def only_one(
        self, who: Who, name: str, noun: str, before: Any, after: Any, write: Callable[[Any], str] = spell
    ) -> None:
        """Note a value that only one capture holds."""
        was = f"{write(before)} before, not read now" if after is None else f"not read before, {write(after)} now"
        text = f"{who.label}: {noun} {was}"
        self.unread.append(Unread(subject=who.subject, field=name, before=before, after=after, message=text))

    def both(self, name: str, noun: str, before: Any, after: Any) -> bool:
        """Whether both captures hold a list; one that only one of them holds is noted."""
        if (before is None) is not (after is None):
            was, is_now = (None if part is None else f"{len(part)} read" for part in (before, after))
            self.only_one(NODE, name, noun, was, is_now)
        return before is not None and after is not None

    def count(self, kind: str, subject: str) -> None:
        """Note that something about `subject` could be compared."""
        self._compared.setdefault(KINDS[kind], set()).add(subject)

    def change(
        self,
        kind: str,
        subject: str,
        name: str,
        before: Any,
        after: Any,
        severity: Severity,
        message: str,
        *,
        item: str | None = None,
    ) -> None:
        """Note a change of the machine. `item` is what is counted where a subject has several that are alike."""
        self.count(kind, item or subject)
        self._changed.setdefault(KINDS[kind], set()).add(item or subject)
        self.changes.append(
            Change(
                kind=kind,
                subject=subject,
                field=name,
                before=before,
                after=after,
                severity=severity,
                message=message,
            )
        )

    def lone(
        self, kind: str, who: Who, name: str, before: Any, after: Any, severity: Severity, message: str, *, listed: bool
    ) -> None:
        """Note a thing that only one capture has: a change where the other one would have `listed` it."""
        if listed:
            self.change(kind, who.subject, name, before, after, severity, message)
        else:
            self.only_one(who, name, "it", before, after)

    def ordered(self) -> list[Change]:
        """The changes, worst first, then by kind and subject."""
        kinds = list(KINDS)
        return sorted(
            self.changes,
            key=lambda each: (
                SEVERITIES.index(each.severity),
                kinds.index(each.kind),
                _order(each.subject),
                each.field,
            ),
        )

    def groups(self) -> list[Group]:
        """What was compared, in the order of KINDS."""
        return [
            Group(
                group=group,
                compared=len(self._compared[group]),
                unchanged=len(self._compared[group] - self._changed.get(group, set())),
            )
            for group in dict.fromkeys(KINDS.values())
            if group in self._compared
        ]


def _order(subject: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts `gpu:9` before `gpu:10` and leaves hexadecimal bus ids alone."""
    return ((1, 0, subject),) if subject.startswith("pci:") else natural(subject)
