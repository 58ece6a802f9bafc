"""What one text, or one part of a text, says about a machine: the unit that `merge` puts together."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import msgspec

from topoadvisor.errors import InputError
from topoadvisor.snapshot import CallError, Snapshot, Source

_NUMBER = re.compile(r"[+-]?[0-9]{1,15}")
_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True)
class Part:
    """A partial snapshot, with what has to be known to join it to others."""

    snapshot: Snapshot
    """Its first source is this part's name."""
    file: str
    numbered: bool = True
    """The GPUs' indexes are the driver's. False: they only count the GPUs of this text, in its order."""
    whole: bool = False
    """It is a machine by itself: a snapshot, or a dump of all that a program saw."""
    count: int | None = None
    """How many GPUs the machine has, where the text says it."""
    damage: InputError | None = None
    """Why there may be more in the file than could be read."""
    hosts: frozenset[str] = frozenset()
    """What a prompt or a launcher calls the host, only to compare with other files; never kept in the snapshot."""

    @property
    def source(self) -> Source:
        return self.snapshot.sources[0]

    def noted(self, *errors: CallError, reason: str | None = None) -> Part:
        """The same part, whose source is partial for one more reason."""
        first, *others = self.snapshot.sources
        reasons = [text for text in (first.reason, reason) if text]
        first = msgspec.structs.replace(
            first,
            status="partial" if first.status == "ok" else first.status,
            reason="; ".join(dict.fromkeys(reasons)) or None,
            errors=[*first.errors, *errors],
        )
        return replace(self, snapshot=msgspec.structs.replace(self.snapshot, sources=[first, *others]))

    def bare(self, reason: str) -> Part:
        """The source alone, partial for this reason: what it says is left out."""
        snapshot = Snapshot(sources=self.snapshot.sources, raw=self.snapshot.raw)
        return replace(self, snapshot=snapshot, count=None).noted(reason=reason)


def source(name: str, notes: list[str] | None = None, errors: list[CallError] | None = None) -> Source:
    """A source that was read, in part when there are notes."""
    reason = "; ".join(dict.fromkeys(notes or [])) or None
    return Source(name=name, status="partial" if reason else "ok", reason=reason, errors=errors or [])


def number(text: str | None) -> int | None:
    """The whole number that a text is; None for every other text, `N/A` among them."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def decimal(text: str | None) -> float | None:
    """The number that a text begins with; None when it begins otherwise."""
    match = _DECIMAL.match(text or "")
    return float(match[0]) if match else None


def ranges(numbers: list[int]) -> str:
    """`0-31,64` for ascending numbers."""
    runs: list[list[int]] = []
    for each in numbers:
        if runs and runs[-1][1] == each - 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
