"""Findings of `topoadvisor lint` for other programs: GitHub's annotations, and SARIF 2.1.0."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from topoadvisor import __version__
from topoadvisor.lint.codes import CODES
from topoadvisor.lint.document import Finding, Fix, NotRead, Report
from topoadvisor.lint.model import shown
from topoadvisor.rules.model import Rule

_LEVELS: Final = {"error": "error", "warning": "warning", "info": "note"}
_ABOUT_ONE_MACHINE: Final = "The result says what to do on the machine that was judged for."
_COMMANDS: Final = {"error": "error", "warning": "warning", "info": "notice"}


_LINES: Final = re.compile(r"\bline \d+")


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
    marks = _Fingerprints()
    results = [_result(each, index, marks) for each in report.findings]
    for silenced in report.ignored:
        suppression: dict[str, str] = {"kind": "inSource"}
        if silenced.reason:
            suppression["justification"] = silenced.reason
        results.append({**_result(silenced.finding, index, marks), "suppressions": [suppression]})
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
    place: dict[str, Any] = {"artifactLocation": _location(each.file)}
    if each.line is not None:
        place["region"] = {"startLine": each.line, "startColumn": each.column or 1}
    return {
        "level": "note" if each.templates else "error",
        "message": {"text": f"not read: {each.reason}"},
        "locations": [{"physicalLocation": place}],
    }


def _rule(code: str, rule: Rule | None) -> dict[str, Any]:
    links: list[str] = []
    if code in CODES:
        entry = CODES[code]
        name, short, full, severity = entry.name, entry.what, entry.why, entry.severity
        advice = entry.do
    else:
        assert rule is not None
        # Its title is a sentence about one machine, with gaps for its facts.
        name, short, full, severity = rule.name, _sentence(rule.name), rule.why, rule.severity
        advice = _ABOUT_ONE_MACHINE
        links = [each.url for each in rule.references]
    help_text = f"{advice} More: {_explain(code)}."
    found: dict[str, Any] = {
        "id": code,
        "name": name,
        "shortDescription": {"text": short},
        "fullDescription": {"text": " ".join(full.split())},
        "help": {
            "text": "\n".join([help_text, *links]),
            "markdown": "\n".join([help_text.replace(_explain(code), f"`{_explain(code)}`"), *_list(links)]),
        },
        "defaultConfiguration": {"level": _LEVELS[severity]},
    }
    if links:
        found["helpUri"] = links[0]
    return found


def _explain(code: str) -> str:
    return f"topoadvisor explain {code}"


def _sentence(name: str) -> str:
    return f"{name[:1].upper()}{name[1:].replace('-', ' ')}"


def _list(links: list[str]) -> list[str]:
    return ["", *(f"- <{link}>" for link in links)] if links else []


class _Fingerprints:
    """Marks by which a finding is known again when lines around it have moved."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def of(self, finding: Finding) -> str:
        text = "\0".join((finding.file, finding.code, finding.variable, _LINES.sub("", finding.message)))
        self._seen[text] += 1
        return hashlib.sha256(f"{text}\0{self._seen[text]}".encode()).hexdigest()[:32]


def _result(finding: Finding, index: dict[str, int], marks: _Fingerprints) -> dict[str, Any]:
    location = _location(finding.file)
    region: dict[str, int] = {"startLine": finding.line, "startColumn": finding.column}
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": "\n".join([finding.message, *finding.advice])},
        "partialFingerprints": {"topoadvisorFinding/v1": marks.of(finding)},
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


def _location(file: str) -> dict[str, str]:
    """Where a file is: below the root of what is checked, which the reader of the log knows, or by its full path."""
    path = PurePath(file)
    text = quote(path.as_posix(), errors="surrogateescape")
    return {"uri": f"file://{text}"} if path.is_absolute() else {"uri": text, "uriBaseId": "%SRCROOT%"}
