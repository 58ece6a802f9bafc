"""Facts that the user supplied, spread over the subjects that they are about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from topoadvisor import pci
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.ingest import told
from topoadvisor.snapshot import Assumption
from topoadvisor.vocabulary import kind_of, nearest


class Assumed:
    """Assumed values by subject kind and, where one subject was named, by subject id. Later ones win."""

    def __init__(self, assumptions: Iterable[Assumption]) -> None:
        self._general: dict[str, dict[str, Any]] = defaultdict(dict)
        self._named: dict[str, dict[str, Any]] = defaultdict(dict)
        self._texts: dict[str, str] = {}
        for assumption in told.understood(assumptions):
            self._take(assumption)

    def of(self, kind: str, subject: str | None = None) -> Mapping[str, Any]:
        """Fact name → value for one subject: what was said about this one, over what was said about all."""
        named = self._named.get(subject) if subject else None
        general = self._general.get(kind, {})
        return {**general, **named} if named else general

    def check_subjects(self, present: Iterable[str]) -> None:
        """Raises TopoAdvisorError when a subject was named that is not there."""
        known = list(present)
        for subject in self._named:
            if subject not in known:
                meant = nearest(subject, [each for each in known if each.startswith(subject.partition(":")[0])])
                raise TopoAdvisorError(
                    f"the assumed fact `{self._texts[subject]}` is about a device that is not here",
                    hint=f"Did you mean `{_written(meant)}`?" if meant else "`topoadvisor facts` lists what is here.",
                )

    def _take(self, assumption: Assumption) -> None:
        name, which = told.parts(assumption.fact)
        if which is None:
            self._general[kind_of(name)][name] = assumption.value
        else:
            subject = _subject(kind_of(name), which)
            self._texts[subject] = assumption.fact
            self._named[subject][name] = assumption.value


def _written(subject: str) -> str:
    """A device as it stands in front of a fact: `nic[eno1]`, `bridge[0000:17:00.0]`."""
    kind, _, which = subject.partition(":")
    if "-gpu:" in which:
        return f"pair[{which.replace('-gpu:', ',')}]"
    return f"{'bridge' if kind == 'pci' else kind}[{which}]"


def _subject(kind: str, which: str) -> str:
    if kind in ("gpu", "pair"):
        numbers = [number for number in told.numbers(which) if number.isdecimal()]
        return "-".join(f"gpu:{number}" for number in sorted(numbers, key=int))
    if kind == "bridge":
        try:
            return f"pci:{pci.normalize(which)}"
        except ValueError:
            return f"pci:{which}"
    return f"{kind}:{which.strip().removeprefix(f'{kind}:')}"
