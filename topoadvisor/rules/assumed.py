"""Facts that the user supplied, spread over the subjects that they are about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from topoadvisor import pci
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.ingest import told
from topoadvisor.snapshot import Assumption
from topoadvisor.vocabulary import kind_of, suggestion


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
                raise TopoAdvisorError(
                    f"the assumed fact `{self._texts[subject]}` is about a device that is not here",
                    hint=suggestion(subject, known) or "`topoadvisor facts` lists what is here.",
                )

    def _take(self, assumption: Assumption) -> None:
        name, which = told.parts(assumption.fact)
        if which is None:
            self._general[kind_of(name)][name] = assumption.value
        else:
            subject = _subject(kind_of(name), which)
            self._texts[subject] = assumption.fact
            self._named[subject][name] = assumption.value


def _subject(kind: str, which: str) -> str:
    if kind == "pair":
        numbers = re.findall(r"[0-9]{1,9}", which)
        return "-".join(f"gpu:{number}" for number in sorted(numbers, key=int))
    if kind == "bridge":
        try:
            return f"pci:{pci.normalize(which)}"
        except ValueError:
            return f"pci:{which}"
    return f"{kind}:{which.strip().removeprefix(f'{kind}:')}"
