"""The screen that `topoadvisor scan` prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from topoadvisor import published
from topoadvisor.advice import Advice, AdvisedSetting, Evidence, Finding, Pick, Placement, Plan, UnknownVerdict
from topoadvisor.measurements.runs import in_words
from topoadvisor.render import changes_text
from topoadvisor.render.page import COLORS as _COLORS
from topoadvisor.render.page import MARKS as _MARKS
from topoadvisor.render.page import Page as _Page
from topoadvisor.rules.scope import spell
from topoadvisor.snapshot import Matrix
from topoadvisor.wrapping import brief

_MOST_UNKNOWN = 6
_MOST_ASKS = 5
_MOST_RINGS = 4
_MOST_CHANGES = 12
_COMMAND = re.compile(r"""(?:'[^']*'|"[^"]*"|[^;]|;(?! ))+""")


def render(advice: Advice, matrix: Matrix, *, width: int = 100, color: bool = False) -> str:
    """The whole screen as text, ending in a newline."""
    page = _Page(width, color)
    page.paragraph(advice.node.gpus, rest="  ", code="1")
    page.paragraph(advice.node.interconnect, rest="  ")
    page.paragraph(advice.node.host, rest="  ")
    for source in advice.sources:
        if source.name == "nvidia-smi topo -m" and source.status == "partial":
            mark = page.paint("!", _COLORS["warning"])
            page.paragraph(f"The text was read in part: {source.reason}", first=f"{mark} ", rest="  ")
    page.blank()
    page.lines.extend(_matrix(matrix, page))
    _findings(advice.findings, bool(advice.unknown), page)
    if advice.changes is not None:
        page.heading(
            f"Changes since the baseline ({len(advice.changes)})" if advice.changes else "No changes since the baseline"
        )
        if advice.other_machine:
            page.paragraph(advice.other_machine, first=f"  {page.paint('!', _COLORS['warning'])} ", rest="    ")
        changes_text.lines(advice.changes, page, most=_MOST_CHANGES)
    _settings(advice, page)
    if advice.already_right:
        page.heading("Already right")
        for right in advice.already_right:
            page.paragraph(right.text, first="  ✓ ", rest="    ")
    if advice.vendor is not None and (advice.vendor.by != "nobody" or advice.vendor.lines):
        page.heading("Vendor's values (`topoadvisor explain vendor`)")
        for line in published.short(advice.vendor):
            page.paragraph(line, first="  ", rest="    ")
    if advice.measured:
        page.heading("Measured")
        for line in advice.measured:
            page.paragraph(line, first="  ", rest="      ")
    if advice.plan is not None:
        _plan(advice.plan, bool(advice.measured), page)
    if advice.unknown:
        _unknown(advice.unknown, page)
    _footer(advice, page)
    return "\n".join(page.lines) + "\n"


def _matrix(matrix: Matrix, page: _Page) -> Iterator[str]:
    """The pair matrix, with NIC columns where they fit; a pointer to `matrix` where not even the GPUs fit."""
    for names in (matrix.gpus + matrix.nics, matrix.gpus):
        head = max((len(name) for name in names), default=0)
        cell = max([head, *(len(text) for row in matrix.cells.values() for text in row.values())]) + 1
        if head + cell * len(names) <= page.width:
            break
    else:
        yield f"The matrix of {len(matrix.gpus)} GPUs does not fit here: the verb `matrix` shows it"
        return
    yield page.paint((" " * head + "".join(name.rjust(cell) for name in names)).rstrip(), "2")
    for row in names:
        if row not in matrix.gpus:
            continue
        cells = ("X" if row == column else matrix.cells.get(row, {}).get(column, "?") for column in names)
        yield row.ljust(head) + "".join(text.rjust(cell) for text in cells)
    if len(names) < len(matrix.gpus) + len(matrix.nics):
        yield page.paint(f"({len(matrix.nics)} NIC columns do not fit here: the verb `matrix` shows them)", "2")


def _findings(findings: Sequence[Finding], undecided: bool, page: _Page) -> None:
    none = "Findings: none among the rules that could be decided" if undecided else "Findings: none"
    page.heading(f"Findings ({len(findings)})" if findings else none)
    for finding in findings:
        mark = page.paint(_MARKS[finding.severity], _COLORS[finding.severity])
        page.paragraph(finding.message, first=f"  {mark} {finding.id} ", rest="           ")
        if finding.also:
            also = [in_words(subject) for subject in finding.also]
            page.paragraph("also " + _shortened(also, 6), first="      ", rest="      ", code="2")
        if finding.evidence:
            shown = "; ".join(map(_evidence, finding.evidence))
            page.paragraph(shown, first="      ", rest="      ", code="2")
        for action in finding.advice:
            page.paragraph(action.text, first="      → ", rest="        ")
            if action.command:
                page.lines.append("        " + page.paint("$ " + action.command, "2"))


def _settings(advice: Advice, page: _Page) -> None:
    page.heading("Settings")
    if advice.set_nothing:
        gone = "Set nothing; take out what is listed here. " if advice.settings else "Set nothing. "
        page.paragraph(gone + advice.set_nothing, first="  ", rest="  ")
    for setting in advice.settings:
        page.paragraph(_setting_line(setting), first="  ", rest="      ")
        details = [
            f"remove when {setting.remove_when}" if setting.remove_when else "",
            f"costs: {setting.cost}" if setting.cost else "",
            f"NCCL {setting.nccl}" if setting.nccl else "",
            f"does not reach {_listed(setting.not_for)}" if setting.action == "set" and setting.not_for else "",
        ]
        if any(details):
            page.paragraph("; ".join(filter(None, details)), first="      ", rest="      ", code="2")
    for sentence in advice.passed_over:
        page.paragraph(sentence, first="  ", rest="      ", code="2")


def _setting_line(setting: AdvisedSetting) -> str:
    what = (
        f"set {setting.name}={setting.value}" + _where(setting.where, "in place of the one ")
        if setting.action == "set"
        else f"unset {setting.name}" + _where(setting.where)
    )
    return f"{what}: {setting.reason} [{setting.rule}, {setting.setting_class}]"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _where(where: str | None, what: str = "") -> str:
    return "" if where is None else f" ({what}{where})" if where == "assumed" else f" ({what}in {where})"


def _plan(plan: Plan, measured: bool, page: _Page) -> None:
    """`measured`: numbers that were measured stand above, so that these need a word."""
    # What a copy through host memory really reaches depends on more than the links.
    staged = "host memory" in plan.transport
    most = "at most " if staged or "not read" in plan.transport else ""
    total = "" if plan.total_gbps is None else f", {most}{plan.total_gbps:.4g} GB/s together{' on paper' * measured}"
    proof = ", proven optimal" if plan.optimal and not staged else ""
    page.heading(f"Rings ({plan.transport}){total}{proof}")
    for ring in plan.rings[:_MOST_RINGS]:
        order = "→".join(str(index) for index in [*ring.order, ring.order[0]])
        speed = f"{ring.gbps:.4g} GB/s, " if ring.gbps else ""
        page.paragraph(f"{order}   {speed}limited by {ring.bottleneck}", first="  ", rest="      ")
    if len(plan.rings) > _MOST_RINGS:
        page.lines.append(f"  and {len(plan.rings) - _MOST_RINGS} more (--format json)")
    for note in plan.notes:
        page.paragraph(note, first="  ", rest="  ", code="2")
    for pick in plan.picks:
        page.paragraph(_pick(pick, plan.placements), first="  ", rest="      ")
    for placement in plan.placements:
        page.paragraph(_placement(placement), first="  ", rest="      ")


def _pick(pick: Pick, placements: Sequence[Placement]) -> str:
    groups = " | ".join(",".join(map(str, group)) for group in pick.groups)
    told = any(placement.tensor == pick.size and placement.doubt is None for placement in placements)
    every = f"; in groups {groups}" if len(pick.groups) > 1 and not told else ""
    instead = f"({pick.instead_gbps:.4g})" if pick.instead_gbps else "(copies failed there)"
    return (
        f"A job of {pick.size} takes {','.join(map(str, pick.gpus))} ({pick.gbps:.4g} GB/s), not "
        f"{','.join(map(str, pick.instead_of))} {instead}{every} (`topoadvisor pick {pick.size}`)"
    )


def _placement(placement: Placement) -> str:
    n, slowest, most = sum(map(len, placement.groups)), min(placement.gbps), max(placement.gbps)
    command = f"(`topoadvisor place --tp {placement.tensor} --dp {n // placement.tensor}`)"
    if placement.doubt is not None:
        return f"{placement.doubt} {command}"
    groups = " | ".join(",".join(map(str, group)) for group in placement.groups)
    each = f"{slowest:.4g}" if slowest == most else f"{slowest:.4g} to {most:.4g}"
    told = f"Tensor parallelism of {placement.tensor} on {groups}: rings of {each} GB/s in each"
    if placement.in_order_gbps < slowest:
        told += f", not {placement.in_order_gbps:.4g} as in index order"
    if placement.together_gbps < slowest:
        told += f"; all {n} together carry {placement.together_gbps:.4g} at most, so keep it inside"
    return f"{told} {command}"


def _unknown(unknown: Sequence[UnknownVerdict], page: _Page) -> None:
    rules = f"{len(unknown)} rule{'s' if len(unknown) > 1 else ''}"
    page.heading(f"Not known: {rules} could not be decided")
    by_reason: dict[str, list[UnknownVerdict]] = {}
    for verdict in unknown:
        by_reason.setdefault(verdict.reason, []).append(verdict)
    # What only a capture of the machine would answer is one line, also where a smaller reason is added to it.
    folded = {reason for reason, verdicts in by_reason.items() if len(_commands(verdicts)) > _MOST_ASKS}
    for reason in sorted(folded):
        added = [other for other in by_reason if other.startswith(f"{reason}; ")]
        verdicts = [verdict for each in (reason, *added) for verdict in by_reason.pop(each, [])]
        if not verdicts:
            continue
        facts = {fact for verdict in verdicts for fact in verdict.missing}
        count = len({verdict.rule for verdict in verdicts})
        many = f"{len(facts)} facts for {count} rules ({reason}): `topoadvisor capture` on the machine reads them"
        page.paragraph(f"{many}; --format json lists them, with commands", first="  ? ", rest="    ")
    asked: set[str] = set()
    for reason, verdicts in list(by_reason.items())[:_MOST_UNKNOWN]:
        facts_named = sorted({fact for verdict in verdicts for fact in verdict.missing})
        ids = _shortened(list(dict.fromkeys(verdict.rule for verdict in verdicts)), 12)
        page.paragraph(f"{_shortened(facts_named, 8)}: {reason} (for {ids})", first="  ? ", rest="    ")
        new = [command for command in _commands(verdicts) if command not in asked]
        page.lines.extend("    " + page.paint("$ " + command, "2") for command in new)
        asked.update(new)
    if len(by_reason) > _MOST_UNKNOWN:
        page.lines.append(f"    and {len(by_reason) - _MOST_UNKNOWN} more reasons (--format json)")


def _commands(verdicts: Iterable[UnknownVerdict]) -> list[str]:
    """The commands that would decide these, each part once."""
    parts = (part.strip() for verdict in verdicts for part in _COMMAND.findall(verdict.ask or ""))
    return [part for part in dict.fromkeys(parts) if part]


def _footer(advice: Advice, page: _Page) -> None:
    for note in advice.notes:
        page.blank()
        page.paragraph(note, code="2")
    if advice.assumed:
        page.blank()
        page.paragraph("Assumed: " + ", ".join(advice.assumed), rest="  ", code="33")
    troubled = [source for source in advice.sources if source.status != "ok"]
    page.blank()
    page.paragraph("Read: " + (", ".join(_read(advice)) or "nothing in full"), rest="  ", code="2")
    for source in troubled:
        page.paragraph(f"{source.name}: {source.status}, {source.reason or 'no reason given'}", rest="  ", code="2")
    if advice.findings:
        page.paragraph(f"Why: topoadvisor rules explain {advice.findings[0].id}", rest="  ", code="2")


def _read(advice: Advice) -> Iterator[str]:
    """Sources that answered, those of one program together: `nvidia-smi (topo -m, nvlink -s)`."""
    families: dict[str, list[str]] = {}
    for source in advice.sources:
        if source.status == "ok":
            family, _, part = source.name.partition(" ")
            families.setdefault(family, []).append(part)
    for family, parts in families.items():
        named = [part for part in parts if part]
        yield f"{family} ({', '.join(named)})" if named else family


def _evidence(item: Evidence) -> str:
    origin = "" if item.origin == "derived" else f" [{item.origin}]"
    spelt = brief(item.value) if item.fact == "job.message" else spell(item.value, item.fact)
    value = "none" if item.value == [] else spelt or '""'
    return f"{item.fact} = {value}{origin}"


def _shortened(items: Sequence[str], most: int) -> str:
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
