"""The screen that `topoadvisor diff` prints, and the section that `scan --baseline` adds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topoadvisor.advice import Change
from topoadvisor.diff.document import KINDS, Diff, Unread
from topoadvisor.measurements.runs import in_words
from topoadvisor.render.page import COLORS, MARKS, Page

_MOST_ALIKE = 6
_MOST_UNREAD = 8


def render(diff: Diff, before: str, after: str, *, width: int = 100, color: bool = False) -> str:
    """The whole screen as text, ending in a newline. `before` and `after` say where the captures are from."""
    page = Page(width, color)
    page.paragraph(f"{before} → {after}", rest="  ", code="1")
    if diff.other_machine:
        page.paragraph(diff.other_machine, first=page.paint("! ", COLORS["warning"]), rest="  ")
    for group, changes in _grouped(diff.changes):
        page.heading(f"{group[:1].upper()}{group[1:]} ({len(changes)})")
        lines(changes, page)
    page.blank()
    if diff.same:
        page.paragraph("Nothing changed among what both captures hold.", code="1")
    page.paragraph("Unchanged: " + (", ".join(_unchanged(diff)) or "nothing that both hold"), rest="  ", code="2")
    _unread(diff.unread, page)
    for note in diff.notes:
        page.paragraph(note, rest="  ", code="2")
    return "\n".join(page.lines) + "\n"


def _grouped(changes: Iterable[Change]) -> list[tuple[str, list[Change]]]:
    """Changes by group; the group with the worst one first."""
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(KINDS[change.kind], []).append(change)
    return list(groups.items())


def lines(changes: Sequence[Change], page: Page, most: int | None = None) -> None:
    """One paragraph for each change, `most` of them; those that say the same of several subjects share one."""
    alike: dict[tuple[str, str, str, str], list[Change]] = {}
    for change in changes:
        key = (change.kind, change.field, repr(change.before), repr(change.after))
        alike.setdefault(key if change.before != change.after else (*key[:3], change.subject), []).append(change)
    kinds = list(alike.values())
    for first, *more in kinds[:most]:
        mark = page.paint(MARKS[first.severity], COLORS[first.severity])
        page.paragraph(first.message, first=f"  {mark} ", rest="    ")
        if more:
            shown = ", ".join(in_words(change.subject) for change in more[:_MOST_ALIKE])
            rest = f" and {len(more) - _MOST_ALIKE} more" if len(more) > _MOST_ALIKE else ""
            page.paragraph(f"also {shown}{rest}", first="      ", rest="      ", code="2")
    if most is not None and len(kinds) > most:
        page.lines.append(f"    and {len(kinds) - most} more (`topoadvisor diff`, or --format json)")


def _unchanged(diff: Diff) -> Iterable[str]:
    for group in diff.groups:
        if group.compared == group.unchanged:
            yield group.group if group.compared == 1 else f"{group.group} ({group.compared})"
        elif group.unchanged:
            yield f"{group.group} ({group.unchanged} of {group.compared})"


def _unread(unread: Sequence[Unread], page: Page) -> None:
    """Values that only one capture holds, by field: no change of the machine."""
    for missing, words in ((True, "Read before and not now"), (False, "Read now and not before")):
        by_field: dict[str, list[Unread]] = {}
        for each in unread:
            if (each.after is None) is missing:
                by_field.setdefault(each.field, []).append(each)
        if not by_field:
            continue
        shown = [
            f"{name} of {each[0].subject}" + (f" and {len(each) - 1} more" if len(each) > 1 else "")
            for name, each in list(by_field.items())[:_MOST_UNREAD]
        ]
        if len(by_field) > _MOST_UNREAD:
            shown.append(f"{len(by_field) - _MOST_UNREAD} more (--format json)")
        page.paragraph(f"{words}, which says nothing about the machine: {', '.join(shown)}", first="? ", rest="  ")
