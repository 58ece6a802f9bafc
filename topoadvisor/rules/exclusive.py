"""Whether two rules can be shown never to fire together. What cannot be shown counts as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from topoadvisor.nccl import versions
from topoadvisor.rules import cel
from topoadvisor.rules.model import Entry, Rule
from topoadvisor.vocabulary import kind_of, spec

_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<", "in": "not in"}


@dataclass(frozen=True)
class Demand:
    """One thing that must hold when a piece of advice is given."""

    about: str
    """A fact, or the text of a comparison that is only compared as a whole."""
    facts: tuple[str, ...]
    sign: str
    value: Any
    """A number, a text or a truth value; a tuple of them for `in` and `not in`."""

    def allows(self, value: Any) -> bool:
        """Whether the fact may have this value."""
        match self.sign:
            case "==" | "!=":
                return bool(value == self.value) is (self.sign == "==")
            case "in" | "not in":
                return (value in self.value) is (self.sign == "in")
        numbers = isinstance(value, float) and isinstance(self.value, float)
        return not numbers or {"<": value < self.value, "<=": value <= self.value, ">": value > self.value}.get(
            self.sign, value >= self.value
        )


def apart(one: Entry, mine: Sequence[Demand], other: Entry, theirs: Sequence[Demand], *, node: bool) -> bool:
    """Whether two pieces of advice with these demands are never given together: about one subject of one kind.

    `node`: on one machine, whatever subjects they are about.
    """
    if one.nccl and other.nccl and not _common_version(one.nccl, other.nccl):
        return True
    return any(
        first.about == second.about and _contradict(first, second)
        for first in mine
        for second in theirs
        if not node or all(kind_of(fact) == "node" for fact in first.facts)
    )


def demands(rule: Rule, entry: Entry) -> list[Demand]:
    """What must hold when a rule fires and gives this piece of advice, as far as plain comparisons show it."""
    return list(_demands(rule, entry))


def _demands(rule: Rule, entry: Entry) -> Iterator[Demand]:
    wanted = [source for source in (rule.when, rule.applies_when, entry.when) if source]
    for source, positive in [*((source, True) for source in wanted), *((source, False) for source in rule.not_when)]:
        for part, holds in cel.parts(source, positive):
            yield _demand(part, holds)


def _demand(part: Sequence[cel.Token], holds: bool) -> Demand:
    for at, token in enumerate(part):
        sign = token.text if token.kind in ("mark", "name") else ""
        if sign not in _OPPOSITE:
            continue
        left, right = part[:at], part[at + 1 :]
        if (fact := _fact(left)) and (value := _literal(right, members=sign == "in")) is not None:
            return _compared(fact, sign if holds else _OPPOSITE[sign], value)
        if sign != "in" and (fact := _fact(right)) and (value := _literal(left)) is not None:
            sign = _MIRRORED[sign]
            return _compared(fact, sign if holds else _OPPOSITE[sign], value)
        break
    text = " ".join(token.text for token in part)
    facts = [cel.path_at(list(part), at)[0] for at in range(len(part))]
    return Demand(_fact(part) or text, tuple(filter(None, facts)), "==", holds)


def _compared(fact: str, sign: str, value: Any) -> Demand:
    return Demand(fact, (fact,), sign, value)


def _fact(part: Sequence[cel.Token]) -> str | None:
    """The fact that this is and nothing more."""
    if not part:
        return None
    path, end = cel.path_at(list(part), 0)
    return path if path and end == len(part) and spec(path) is not None else None


def _literal(part: Sequence[cel.Token], *, members: bool = False) -> Any | None:
    """The value of a plain literal, or the values of a list of them."""
    if members:
        texts = [token.text for token in part]
        if texts[:1] != ["["] or texts[-1:] != ["]"] or any(text != "," for text in texts[2:-1:2]):
            return None
        values = tuple(_literal([token]) for token in part[1:-1:2])
        return None if None in values else values
    if len(part) != 1:
        return None
    token = part[0]
    if token.text in ("true", "false"):
        return token.text == "true"
    if token.kind == "string" and token.text[0] in "\"'" and "\\" not in token.text and token.text[:3] not in _TRIPLE:
        return token.text[1:-1]
    if token.kind == "number" and len(token.text) < 16 and token.text.replace(".", "", 1).isascii():
        try:
            return float(token.text)
        except ValueError:
            return None
    return None


_TRIPLE: Final = ('"""', "'''")


def _contradict(one: Demand, other: Demand) -> bool:
    for finite, free in ((one, other), (other, one)):
        if finite.sign in ("==", "in"):
            values = finite.value if finite.sign == "in" else (finite.value,)
            return not any(free.allows(value) for value in values)
    return _apart(one, other) or _apart(other, one)


def _apart(below: Demand, above: Demand) -> bool:
    """Whether `below` ends before `above` begins, both numbers."""
    if below.sign not in ("<", "<=") or above.sign not in (">", ">="):
        return False
    if not (isinstance(below.value, float) and isinstance(above.value, float)):
        return False
    closed = below.sign == "<=" and above.sign == ">="
    return below.value < above.value or (below.value == above.value and not closed)


def _common_version(one: str, other: str) -> bool:
    """Whether some version meets both conditions. The bounds, and what is just above one, stand for all versions."""
    bounds = [bound for _, bound in [*versions.split(one), *versions.split(other)]]
    tried = ["0", *bounds, *(f"{'.'.join(map(str, versions.parse(bound)))}.0.0.1" for bound in bounds)]
    return any(versions.satisfies(version, one) and versions.satisfies(version, other) for version in tried)
