"""Facts that the user supplied: names checked, values brought to the type of the fact, spread over subjects."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from topoadvisor import pci
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.nccl import versions
from topoadvisor.rules.vocabulary import FORMS, TYPE_WORDS, VOCABULARY, FactType, kind_of, spec, suggestion
from topoadvisor.snapshot import Assumption

_INDEXED = re.compile(r"(gpu|pair|nic|bridge)\[([^\]]+)\]\.(.+)")
_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_OF_EVERY = ("pair", "gpu", "nic")
"""Subject kinds whose facts may be assumed without naming the kind: `p2p.read` is `pair.p2p.read`."""


class Assumed:
    """Assumed values by subject kind and, where one subject was named, by subject id. Later ones win."""

    def __init__(self, assumptions: Iterable[Assumption]) -> None:
        self._general: dict[str, dict[str, Any]] = defaultdict(dict)
        self._named: dict[str, dict[str, Any]] = defaultdict(dict)
        self._texts: dict[str, str] = {}
        for assumption in assumptions:
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
        indexed = _INDEXED.fullmatch(assumption.fact)
        name = f"{indexed[1]}.{indexed[3]}" if indexed else assumption.fact
        if not indexed and spec(name) is None:
            name = next((f"{kind}.{name}" for kind in _OF_EVERY if f"{kind}.{name}" in VOCABULARY), name)
        found = spec(name)
        if found is None:
            raise TopoAdvisorError(
                f"there is no fact `{assumption.fact}` to assume",
                hint=suggestion(name, VOCABULARY) or "`topoadvisor facts` lists every fact.",
            )
        value = _coerce(assumption, name, found.type)
        if indexed:
            subject = _subject(indexed[1], indexed[2])
            self._texts[subject] = assumption.fact
            self._named[subject][name] = value
        else:
            self._general[kind_of(name)][name] = value


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


def _coerce(assumption: Assumption, name: str, wanted: FactType) -> Any:
    """The value as the type of the fact. Raises TopoAdvisorError when it is of another type."""
    value = assumption.value
    text = str(value).strip()
    match wanted:
        case "text" if name in _VERSIONS and not versions.is_version(text):
            raise assumption.refused("is a version", f"Write it as {name}=2.28.9.")
        case "text" if name in FORMS and not re.fullmatch(FORMS[name], text):
            raise assumption.refused(f"is one of {_words(FORMS[name])}", None)
        case "text" if isinstance(value, str | int | float):
            return text.lower() if isinstance(value, bool) else text
        case "texts":
            parts = value if isinstance(value, list) else text.split(",")
            return [part for part in (str(item).strip() for item in parts) if part]
        case "bool" if text.lower() in _TRUTH:
            return _TRUTH[text.lower()]
        case "int" if re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            return int(text)
        case "number" if re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{0,18})?", text):
            return float(text)
    raise assumption.refused(f"is {TYPE_WORDS[wanted]}", f"Write it as {name}={_EXAMPLES[wanted]}.")


def _words(form: str) -> str:
    return ", ".join(word.partition("[")[0] + "#" * ("[" in word) for word in form.split("|") if word)


_VERSIONS = ("nccl.version", "driver.version", "cuda.version")
_EXAMPLES: dict[FactType, str] = {"bool": "true", "int": "8", "number": "9.0", "text": "TEXT", "texts": "a,b"}
