"""Affinity cells that read like a list of CPUs or nodes and cannot be the one that was printed.

Two cells that lost the tab between them still look like one (`36-47` and `1` as `36-471`), and so does a list that was
cut. What the driver prints for the GPUs of one machine is the same list or lists without a common CPU: what breaks that
is reported and not believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

from topoadvisor import cpu_lists
from topoadvisor.ingest.tables import Affinity

NOT_KNOWN = "N/A"
_NODE_DIGITS = 3
"""Of a NUMA node's number, at most."""

Cells = Mapping[str, Mapping[Affinity, str | None]]


def refused(cells: Cells, kinds: Sequence[Affinity]) -> set[tuple[str, Affinity]]:
    """The (row, column) of cells that cannot be; `cells` are texts as they stand there, None for an empty one."""
    bad = {
        (label, kind)
        for label, row in cells.items()
        for kind, text in row.items()
        if text is not None and text != NOT_KNOWN and not cpu_lists.is_printed(text)
    }
    lacking = {label for label, row in cells.items() if None in [row.get(kind) for kind in kinds]}
    for kind, following in pairwise(kinds):
        column = {label: text for label, text in _column(cells, kind).items() if (label, kind) not in bad}
        told = _column(cells, following).keys()
        whole = {text for label, text in column.items() if label in told}
        short = [(label, text) for label, text in column.items() if label in lacking - told]
        bad |= {(label, kind) for label, text in short if _holds_two(text, kind, whole)}
    cpus = {label: text for label, text in _column(cells, "cpu").items() if (label, "cpu") not in bad}
    near = {cpus[label] for label, text in _column(cells, "numa").items() if label in cpus and text.isdecimal()}
    return bad | {(label, "cpu") for label in _overlapping(cpus, near)}


def _column(cells: Cells, kind: Affinity) -> dict[str, str]:
    texts = ((label, row.get(kind)) for label, row in cells.items())
    return {label: text for label, text in texts if text is not None and text != NOT_KNOWN}


def _holds_two(text: str, kind: Affinity, whole: set[str]) -> bool:
    """It begins with what another row has there, or with runs of CPUs as long as others are, and a number follows."""
    heads = [text[:-count] for count in range(1, _NODE_DIGITS + 1) if text[-count:].isdecimal()]
    if any(head in whole for head in heads):
        return True
    lengths = {*_runs(text)}
    if kind != "cpu" or len(lengths) == 0:
        return False
    usual = {length for other in whole for length in _runs(other)}
    return any(
        (runs := _runs(head))
        and (({*runs} <= usual and not lengths <= usual) or len({*runs}) == 1 < min(len(runs), len(lengths)))
        for head in heads
    )


def _runs(text: str) -> list[int]:
    """How many CPUs each run of a list has: those of a socket's cores and of their second threads are as many.

    Empty where a CPU stands by itself.
    """
    runs = [[int(number) for number in run.split("-")] for run in text.split(",")] if cpu_lists.is_printed(text) else []
    return [last - first + 1 for first, last in runs] if all(len(run) == 2 for run in runs) else []


def _overlapping(texts: Mapping[str, str], near: set[str]) -> set[str]:
    """Rows with some CPUs of another row and not all of the same. To have all of the machine is possible where no NUMA
    node is told; `near` are the lists beside one.

    A list that begins as the other does is one of the two cut, or run together with something.
    """
    sets = {text: cpu_lists.parse(text) or set() for text in texts.values()}
    every = set().union(*sets.values())
    count = Counter(texts.values())
    odd: set[str] = set()
    for a, b in combinations(sets, 2):
        if not sets[a] & sets[b]:
            continue
        alike = a.startswith(b) or b.startswith(a)
        whole = [text for text in (a, b) if sets[text] == every and not alike]
        if not whole:
            odd |= {text for text, other in ((a, b), (b, a)) if count[text] == 1 or count[other] > 1}
        odd |= {text for text in whole if text in near}
    return {label for label, text in texts.items() if text in odd}
