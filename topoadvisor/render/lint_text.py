"""The lines that `topoadvisor lint` prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from topoadvisor.lint.document import Finding, Report
from topoadvisor.lint.model import shown
from topoadvisor.nccl import newer, versions
from topoadvisor.nccl.settings import NEWEST
from topoadvisor.render.page import COLORS, Page

_MOST_UNKNOWN = 6


def render(report: Report, *, width: int = 100, color: bool = False) -> str:
    """All findings, one after the other, then what stays open and a summary; ends in a newline."""
    page = Page(width, color)
    for finding in report.findings:
        _finding(finding, page)
    if report.findings:
        page.blank()
    for each in report.not_read:
        place = ":".join(str(part) for part in (shown(each.file), each.line, each.column) if part is not None)
        page.paragraph(f"not read: {place}: {each.reason}", rest="  ", code="2")
    for text in _open(report):
        page.paragraph(text, first="? ", rest="  ")
    page.paragraph(_summary(report), rest="  ", code="1")
    page.paragraph(_judged_for(report), rest="  ", code="2")
    if report.findings:
        page.paragraph(f"Why: topoadvisor explain {report.findings[0].code}", code="2")
    return "\n".join(page.lines) + "\n"


def _finding(finding: Finding, page: Page) -> None:
    place = f"{shown(finding.file)}:{finding.line}:{finding.column}:"
    severity = page.paint(finding.severity, COLORS[finding.severity])
    page.paragraph(f"{place} {severity} {finding.code} {finding.message}", rest="    ")
    for advice in finding.advice:
        page.paragraph(advice, first="    → ", rest="      ", code="2")
    if finding.fix is not None:
        page.paragraph(f"--fix would {finding.fix.message}", first="    → ", rest="      ", code="2")


def _open(report: Report) -> Iterator[str]:
    """What could not be judged: in one line without a topology, by reason with one."""
    # What only the job decides (its framework, its nodes) is no question to a machine.
    machine = [each for each in report.unknown if each.code and not all(map(_of_job, each.facts or [""]))]
    if report.topology is None and any(file.settings for file in report.files):
        by_variable: dict[str, set[str]] = defaultdict(set)
        for each in machine:
            by_variable[each.variable].add(each.code)
        said = [f"{name}: {', '.join(sorted(codes))}" for name, codes in sorted(by_variable.items())]
        rest = f" and {_count(len(said) - _MOST_UNKNOWN, 'more variable')}" if len(said) > _MOST_UNKNOWN else ""
        listed = f" ({'; '.join(said[:_MOST_UNKNOWN])}{rest})" if said else ""
        yield f"Not judged without --topology SOURCE: what has no effect, or does harm, on the machine{listed}."
    elif report.topology is not None:
        for each in machine[:_MOST_UNKNOWN]:
            yield f"{shown(each.file)}:{each.line}: {each.variable}: {each.code} is unknown: {each.reason}"
        if len(machine) > _MOST_UNKNOWN:
            yield f"and {len(machine) - _MOST_UNKNOWN} more that are unknown (--format json)"
    for each in report.unknown:
        if not each.code:
            yield f"{shown(each.file)}:{each.line}: {each.variable}: {each.reason}"


def _of_job(fact: str) -> bool:
    return fact.startswith("job.")


def _summary(report: Report) -> str:
    settings = sum(file.settings for file in report.files)
    read = f"{_count(settings, 'setting')} in {_count(len(report.files), 'file')}"
    if not report.findings:
        text = f"Nothing to say about {read}"
    else:
        by_severity = [
            f"{_count(number, word)}" if word != "info" else f"{number} info"
            for word in ("error", "warning", "info")
            if (number := sum(each.severity == word for each in report.findings))
        ]
        fixable = sum(each.fix is not None for each in report.findings)
        text = f"{', '.join(by_severity)} among {read}"
        if fixable:
            text += f"; {fixable} can be repaired with --fix (--diff shows how)"
    silenced = f"; {len(report.ignored)} silenced by comments" if report.ignored else ""
    return f"{text}{silenced}."


def _judged_for(report: Report) -> str:
    version = f"NCCL {report.nccl} ({report.nccl_from})"
    if report.nccl is None:
        why = "because no version was given (--nccl-version, --nccl-lib)"
        version = f"NCCL {NEWEST}, the newest whose variables are known, {why}"
    library = f"; names by {report.nccl_library}" if report.nccl_library else ""
    machine = f"; machine: {report.topology}" if report.topology else ""
    beyond = report.nccl is not None and not versions.at_least(NEWEST, report.nccl)
    too_new = f" {newer.said(report.nccl)}" if beyond else ""
    return f"Judged for {version}{library}{machine}.{too_new}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
