"""Facts written out: a table to read, a document to process."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from topoadvisor.errors import TopoAdvisorError
from topoadvisor.ingest import told, told_values
from topoadvisor.rules.facts import Fact, FactBase, Known
from topoadvisor.rules.scope import spell
from topoadvisor.vocabulary import FORMS, TYPE_WORDS, VOCABULARY, search, suggestion

_PER_LINE: Final = 100
_WIDEST: Final = 44
"""Columns that a cell may push the next one to the right."""

Row = tuple[str, str, Fact]
"""Subject id, fact name, fact."""


def select(facts: FactBase, prefix: str) -> list[Row]:
    """The facts whose name starts with `prefix`. Raises TopoAdvisorError when there is none."""
    rows = [row for row in facts.walk() if row[1].startswith(prefix)]
    if rows:
        return rows
    if any(name.startswith(prefix) for name in VOCABULARY):
        raise TopoAdvisorError(f"no device here has a fact that starts with `{prefix}`")
    raise TopoAdvisorError(f"no fact starts with `{prefix}`", hint=suggestion(prefix, VOCABULARY))


def names(words: str) -> list[str]:
    """The facts that can be assumed and have one of these words in a name, meaning or value; every one without words.

    A word for what was reported finds everything else that can be told about the job, too. Raises TopoAdvisorError
    when there is none.
    """
    if not words.strip():
        return list(VOCABULARY)
    alike = {told.canonical(word) for word in words.split()}
    wanted = set(words.lower().split())
    values = [name for name, known in told_values.SPELLINGS.items() if not known.keys().isdisjoint(wanted)]
    values += [name for name, form in FORMS.items() if not wanted.isdisjoint(form.lower().split("|"))]
    called = [name for other, name in told.ALSO_CALLED.items() if not wanted.isdisjoint(re.split(r"[._]", other))]
    sought = [name for name in [*called, *search(words)] if name not in told.MADE_FROM]
    found = dict.fromkeys([*(name for name in alike if name in VOCABULARY), *values, *sought])
    if not found:
        raise TopoAdvisorError(
            f"no fact has `{words}` in its name or meaning",
            hint=told.near(words) or "`topoadvisor facts --list` lists all; a variable is told by its own name.",
        )
    if "job.symptom" in found:
        # The symptom alone decides little; what was printed, on how many machines and when does.
        found |= dict.fromkeys(name for name in VOCABULARY if name.startswith("job."))
    return list(found)


def meanings(found: Iterable[str]) -> str:
    """Name, what may be written, and meaning of facts, one block a fact."""
    lines = []
    for name in found:
        lines.append(f"{name}: {takes(name)}")
        lines += textwrap.wrap(VOCABULARY[name].meaning, _PER_LINE, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def takes(name: str) -> str:
    """What may be written as the value of a fact, and in which units."""
    if name in told.MADE_FROM:
        return f"made from others; assume {told.MADE_FROM[name]} instead"
    if name in FORMS:
        return f"one of {told_values.shown(FORMS[name])}"
    units = next((units for end, units in told_values.UNITS.items() if name.endswith(end)), None)
    with_units = f", may have a unit ({', '.join(units)})" if units and VOCABULARY[name].type != "text" else ""
    return f"{TYPE_WORDS[VOCABULARY[name].type]}{with_units}"


def document(rows: Iterable[Row]) -> dict[str, Any]:
    """`{"facts": [{"fact", "subject", "value", "origin"}]}`, with `unknown` instead of the last two where it is."""
    return {"facts": [_entry(*row) for row in rows]}


def _entry(subject: str, name: str, fact: Fact) -> dict[str, Any]:
    about = {"fact": name, "subject": subject}
    if isinstance(fact, Known):
        return {**about, "value": fact.value, "origin": fact.origin}
    return {**about, "unknown": fact.reason}


def table(rows: Sequence[Row]) -> str:
    """One block per subject; columns are aligned over all of them."""
    cells = [(subject, name, *_cells(name, fact)) for subject, name, fact in rows]
    widths = [min(_WIDEST, max(len(cell[column]) for cell in cells)) for column in (1, 2)]
    lines: list[str] = []
    last = None
    for subject, name, value, origin in cells:
        if subject != last:
            lines += [subject] if last is None else ["", subject]
            last = subject
        lines.append(f"  {name:<{widths[0]}}  {value:<{widths[1]}}  {origin}")
    return "\n".join(lines) + "\n"


def _cells(name: str, fact: Fact) -> tuple[str, str]:
    if isinstance(fact, Known):
        return ("none" if fact.value == [] else spell(fact.value, name) or '""'), fact.origin
    return "unknown", fact.reason
