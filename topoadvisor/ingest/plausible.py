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
    for kind, following in pairwise(kinds):
        column = {label: text for label, text in _column(cells, kind).items() if (label, kind) not in bad}
        whole = {text for label, text in column.items() if cells[label].get(following) is not None}
        short = [(label, text) for label, text in column.items() if cells[label].get(following) is None]
        bad |= {(label, kind) for label, text in short if _holds_two(text, kind, whole)}
    cpus = {label: text for label, text in _column(cells, "cpu").items() if (label, "cpu") not in bad}
    return bad | {(label, "cpu") for label in _overlapping(cpus)}


def _column(cells: Cells, kind: Affinity) -> dict[str, str]:
    texts = ((label, row.get(kind)) for label, row in cells.items())
    return {label: text for label, text in texts if text is not None and text != NOT_KNOWN}


def _holds_two(text: str, kind: Affinity, whole: set[str]) -> bool:
    """It begins with what another row has there, or with CPUs in runs that are all as long, and a number follows."""
    splits = [(text[:-count], text[-count:]) for count in range(1, _NODE_DIGITS + 1) if text[-count:].isdecimal()]
    if any(head in whole for head, _ in splits):
        return True
    return kind == "cpu" and len(_runs(text)) > 1 and any(len(_runs(head)) == 1 for head, _ in splits)


def _runs(text: str) -> set[int]:
    """The lengths of two or more runs of CPUs; a socket's cores and their second threads have the same."""
    ends = [part.split("-") for part in text.split(",")]
    if len(ends) < 2 or any(len(run) != 2 for run in ends) or not cpu_lists.is_printed(text):
        return set()
    return {int(last) - int(first) for first, last in ends}


def _overlapping(texts: Mapping[str, str]) -> set[str]:
    """Rows with some CPUs of another row and not all of the same; to have all of the machine is possible.

    A list that begins as the other does is one of the two cut, or run together with something.
    """
    sets = {text: cpu_lists.parse(text) or set() for text in texts.values()}
    every = set().union(*sets.values())
    count = Counter(texts.values())
    odd: set[str] = set()
    for a, b in combinations(sets, 2):
        common = sets[a] & sets[b]
        if not common or (every in (sets[a], sets[b]) and not (a.startswith(b) or b.startswith(a))):
            continue
        odd |= {text for text, other in ((a, b), (b, a)) if count[text] == 1 or count[other] > 1}
    return {label for label, text in texts.items() if text in odd}
