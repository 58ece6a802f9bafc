"""The lines of a text by the host that they are from, so that texts of several hosts are never blended.

The names only serve to tell hosts apart; they are written nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from topoadvisor.ingest import host_marks, lines, split
from topoadvisor.ingest.host_marks import Mark
from topoadvisor.ingest.lines import Line

_NEAR: Final = 4
"""Lines with text below a heading among which the output that it names begins."""
MOST: Final = 64
"""Groups that are read; of more hosts only the first are."""


@dataclass(frozen=True)
class Group:
    """The lines of one host, or of hosts that printed the same, without what a launcher put in front of them.

    Positions count from 0 without a gap.
    """

    hosts: frozenset[str]
    """Names to compare with those of other texts; empty where the text names none."""
    lines: Sequence[Line]
    assumed: bool = False
    """That several processes or containers are of one host nothing says; they print nothing twice."""


def groups(text: Sequence[Line]) -> list[Group]:
    """The hosts of a text in the order in which they come, at most `MOST`; one group where it tells of one.

    Lines of which is not said whose they are go with those of the only host, and by themselves where there are several.
    """
    if not text:
        return [Group(frozenset(), text)]
    stripped, marks = _prefixed(text)
    if stripped is not text:
        stripped, inner = _prefixed(stripped)
        marks = [mark if mark and (mark.sure or not other) else other for mark, other in zip(marks, inner, strict=True)]
    by_prefix = any(marks)
    below = _below(stripped, marks)
    marks = [mark or other for mark, other in zip(marks, below, strict=True)]
    told = [host_marks.hosts(mark.name) if mark is not None and mark.sure else frozenset() for mark in marks]
    known = frozenset[str]().union(
        *(names for line, names in zip(stripped, told, strict=True) if names and host_marks.anchor(line.text))
    )
    sure = [names & known for names in told]
    if len(known) > 1:
        return _by_host(stripped, sure)
    labels = [mark.name if mark is not None and not mark.sure else None for mark in marks]
    writers = [label or ("" if names else None) for label, names in zip(labels, sure, strict=True)]
    if _repeats(stripped, writers):
        return _by_host(stripped, [frozenset({label}) if label else frozenset() for label in labels], sure=False)
    if by_prefix and known and _repeats(stripped, ["host" if names else "nobody" for names in sure]):
        return _by_host(stripped, sure)
    told_by = {
        writer
        for line, writer in zip(stripped, writers, strict=True)
        if writer and host_marks.is_process(writer) and host_marks.anchor(line.text)
    }
    return [Group(known, stripped, assumed=len(told_by) > 1)]


def above(text: Sequence[str]) -> frozenset[str]:
    """What the host is called of which the last of these lines is, by a name in front of it or above it."""
    prefix = host_marks.prefix(text[-1])
    mark = host_marks.named(prefix[0]) if prefix is not None else None
    for before, line, after in zip(["", *text], text, [*text[1:], ""], strict=False):
        prompt = host_marks.prompt(line)
        mark = host_marks.sure_heading(before, line, after) or (prompt.mark if prompt is not None else mark)
    return host_marks.hosts(mark.name) if mark is not None and mark.sure else frozenset()


def differ(one: Iterable[str], other: Iterable[str]) -> bool:
    """Whether two texts name different hosts. An address and a name may be those of one."""
    for address in (True, False):
        mine, theirs = ({name for name in names if host_marks.is_address(name) == address} for names in (one, other))
        if mine and theirs:
            return not mine & theirs
    return False


def _by_host(text: Sequence[Line], names: Sequence[frozenset[str]], *, sure: bool = True) -> list[Group]:
    """One group for each host, and one for the lines of nobody; hosts that printed all together are one."""
    whose: dict[frozenset[str], list[int]] = {}
    nobody: list[int] = []
    for place, hosts in enumerate(names):
        (whose.setdefault(hosts, []) if hosts else nobody).append(place)
    blocks: dict[str, list[frozenset[str]]] = {}
    for hosts in whose:
        for host in sorted(hosts):
            blocks.setdefault(host, []).append(hosts)
    alike: dict[tuple[frozenset[str], ...], set[str]] = {}
    for host, of in blocks.items():
        alike.setdefault(tuple(of), set()).add(host)
    found = [
        (sorted(place for hosts in of for place in whose[hosts]), frozenset(hosts if sure else ()))
        for of, hosts in islice(alike.items(), MOST)
    ]
    if any(text[place].text.strip() for place in nobody):
        found.append((nobody, frozenset()))
    found.sort(key=lambda group: group[0][0])
    return [
        Group(hosts, [text[place]._replace(position=new) for new, place in enumerate(places)])
        for places, hosts in found
    ]


def _prefixed(text: Sequence[Line]) -> tuple[Sequence[Line], list[Mark | None]]:
    """The lines without the names in front of them, and those names.

    A name counts that stands in front of several lines, one of which output about a machine has.
    """
    found = [host_marks.prefix(line.text) for line in text]
    counts = Counter(each[0] for each in found if each is not None)
    names = {
        each[0]
        for line, each in zip(text, found, strict=True)
        if each is not None
        and counts[each[0]] > 1
        and _anchor_behind(line.text[each[1] :])
        and not split.anchored(line.text)
    }
    if not names:
        return text, [None] * len(text)
    marks = {name: host_marks.named(name) for name in names}
    stripped: list[Line] = []
    whose: list[Mark | None] = []
    for line, each in zip(text, found, strict=True):
        ours = each is not None and each[0] in names
        stripped.append(lines.without(line, each[1]) if each is not None and ours else line)
        whose.append(marks[each[0]] if each is not None and ours else None)
    return stripped, whose


def _anchor_behind(text: str) -> bool:
    """An anchor, by itself or behind one more name, such as that of a rank."""
    inner = host_marks.prefix(text)
    return host_marks.anchor(text) or (inner is not None and host_marks.anchor(text[inner[1] :]))


def _below(text: Sequence[Line], taken: Sequence[Mark | None]) -> list[Mark | None]:
    """Whose output the lines are that stand below a heading or a prompt."""
    weak = _headings(text, taken)
    current: Mark | None = None
    by_prompt = False
    whose: list[Mark | None] = []
    for place, line in enumerate(text):
        if taken[place] is not None or not line.text or line.text.isspace():
            whose.append(current)
            continue
        before = text[place - 1].text if place else ""
        after = text[place + 1].text if place + 1 < len(text) else ""
        mark = host_marks.sure_heading(before, line.text, after) or weak.get(place)
        if mark is not None and (mark.sure or current is None or not current.sure):
            current, by_prompt = mark, False
        elif (prompt := host_marks.prompt(line.text)) is not None and (
            by_prompt or current is None or (prompt.mark is not None and prompt.mark.sure)
        ):
            current, by_prompt = prompt.mark, True
        whose.append(current)
    return whose


def _headings(text: Sequence[Line], taken: Sequence[Mark | None]) -> dict[int, Mark]:
    """Headings with output below: hosts where several have all but a number or letter in common, else labels."""
    found: dict[int, tuple[str, str]] = {}
    for place, line in enumerate(text):
        name = host_marks.heading(line.text) if taken[place] is None and line.text else None
        if name is not None and not _is_output(line.text) and _leads(text, place):
            found[place] = name
    alike = Counter(stem for _, stem in set(found.values()))
    return {
        place: Mark(name, sure=bool(stem))
        for place, (name, stem) in found.items()
        if (alike[stem] > 1 if stem else host_marks.named(name))
    }


def _leads(text: Sequence[Line], place: int) -> bool:
    """Whether output about a machine begins right below."""
    following = (line.text for line in text[place + 1 : place + 4 * _NEAR] if line.text and not line.text.isspace())
    return any(_is_output(each) for each in islice(following, _NEAR))


def _is_output(text: str) -> bool:
    """Output about a machine, or a command."""
    return host_marks.anchor(text) or host_marks.prompt(text) is not None


def _repeats(text: Sequence[Line], writers: Sequence[str | None]) -> bool:
    """Whether two of the writers began the same output."""
    began: dict[str, str] = {}
    for line, writer in zip(text, writers, strict=True):
        what = host_marks.start(line.text) if writer is not None else None
        if what is not None and writer is not None and began.setdefault(what, writer) != writer:
            return True
    return False
