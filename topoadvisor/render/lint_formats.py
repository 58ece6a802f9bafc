"""Findings of `topoadvisor lint` for other programs: GitHub's annotations, and SARIF 2.1.0."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from topoadvisor import __version__
from topoadvisor.lint.codes import CODES
from topoadvisor.lint.document import Finding, Fix, NotRead, Report
from topoadvisor.lint.model import shown
from topoadvisor.rules.model import Rule

_LEVELS: Final = {"error": "error", "warning": "warning", "info": "note"}
_COMMANDS: Final = {"error": "error", "warning": "warning", "info": "notice"}


def github(report: Report) -> str:
    """One workflow command to a finding, and one to a file that was not read."""
    return "".join(
        f"::{'notice' if each.templates else 'error'} file={_property(each.file)}"
        + (f",line={each.line}" if each.line else "")
        + (f",col={each.column}" if each.column else "")
        + f",title=not read::{_data(each.reason)}\n"
        for each in report.not_read
    ) + "".join(
        f"::{_COMMANDS[each.severity]} file={_property(each.file)},line={each.line},col={each.column},"
        f"title={_property(f'{each.code} {each.name}')}::{_data(each.message)}\n"
        for each in report.findings
    )


def _data(text: str) -> str:
    return shown(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(report: Report, rules: list[Rule]) -> dict[str, Any]:
    """The report as one run; what comments silence is there as suppressed."""
    used = sorted({each.code for each in report.findings} | {each.finding.code for each in report.ignored})
    by_id = {rule.id: rule for rule in rules}
    index = {code: place for place, code in enumerate(used)}
    results = [_result(each, index) for each in report.findings]
    for silenced in report.ignored:
        suppression: dict[str, str] = {"kind": "inSource"}
        if silenced.reason:
            suppression["justification"] = silenced.reason
        results.append({**_result(silenced.finding, index), "suppressions": [suppression]})
    driver = {
        "name": "topoadvisor",
        "version": __version__,
        "rules": [_rule(code, by_id.get(code)) for code in used],
    }
    run: dict[str, Any] = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    if report.not_read:
        told = [_not_read(each) for each in report.not_read]
        run["invocations"] = [{"executionSuccessful": True, "toolExecutionNotifications": told}]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }


def _not_read(each: NotRead) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(each.file)}}
    if each.line is not None:
        place["region"] = {"startLine": each.line, "startColumn": each.column or 1}
    return {
        "level": "note" if each.templates else "error",
        "message": {"text": f"not read: {each.reason}"},
        "locations": [{"physicalLocation": place}],
    }


def _rule(code: str, rule: Rule | None) -> dict[str, Any]:
    if code in CODES:
        entry = CODES[code]
        name, short, full = entry.name, entry.what, f"{entry.why} {entry.do}"
        severity = entry.severity
    else:
        assert rule is not None
        name, short, full, severity = rule.name, rule.title, rule.why.strip(), rule.severity
    return {
        "id": code,
        "name": name,
        "shortDescription": {"text": short},
        "fullDescription": {"text": full},
        "defaultConfiguration": {"level": _LEVELS[severity]},
    }


def _result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    location = {"uri": _uri(finding.file)}
    region: dict[str, int] = {"startLine": finding.line, "startColumn": finding.column}
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": {"artifactLocation": location, "region": region}}],
    }
    if finding.fix is not None:
        result["fixes"] = [_fix(finding.fix, location)]
    return result


def _fix(fix: Fix, location: dict[str, str]) -> dict[str, Any]:
    replacements = [
        {
            "deletedRegion": {
                "startLine": edit.line,
                "startColumn": edit.column,
                "endLine": edit.end_line,
                "endColumn": edit.end_column,
            },
            "insertedContent": {"text": edit.text},
        }
        for edit in fix.edits
    ]
    return {
        "description": {"text": fix.message},
        "artifactChanges": [{"artifactLocation": location, "replacements": replacements}],
    }


def _uri(file: str) -> str:
    path = PurePath(file)
    text = quote(path.as_posix(), errors="surrogateescape")
    return f"file://{text}" if path.is_absolute() else text
