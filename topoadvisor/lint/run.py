"""Files → the report: every check over every line, comments that silence, and what stays open."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from topoadvisor.lint import fixes, ignores
from topoadvisor.lint.checks import names, places, together, values
from topoadvisor.lint.checks.machine import MachineJudge, Open
from topoadvisor.lint.codes import CODES, silences
from topoadvisor.lint.document import (
    SEVERITIES,
    Edit,
    FileRead,
    Finding,
    Fix,
    Ignored,
    NotRead,
    Report,
    Severity,
    Undecided,
)
from topoadvisor.lint.effects import OnMachine
from topoadvisor.lint.found import Found, Judge
from topoadvisor.lint.kinds import Kind
from topoadvisor.lint.model import Assignment, Contents, Repair, Unreadable, printable, shown
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import embedded
from topoadvisor.rules.model import Rule
from topoadvisor.snapshot import Snapshot

_LONGEST: Final = 600
"""Letters of a message; a value may have millions."""
_NEEDS: Final = {"NVSHMEM_IB_ENABLE_IBGDA"}
_AMD: Final = re.compile(r"^[^#\n]*\b(name:[ \t]*[\"']?(RCCL|HSA)_|(RCCL|HSA)_[A-Z0-9_]+[\"']?\]?[ \t]*[=:])", re.M)
"""Lines that set what only AMD's libraries read."""
_NCCLS_OWN: Final = frozenset({"ENV102", "ENV103", "ENV104", "ENV106", "ENV114"})
"""Checks of what differs between NCCL and AMD's RCCL, which reads the same names: which there are, and their limits."""


@dataclass(frozen=True)
class Source:
    """One file and what it is."""

    file: str
    text: str
    """UTF-8 decoded with `surrogateescape`, without a byte order mark."""
    kind: Kind
    named: bool = True
    """The user named it: that it cannot be parsed is an error, even of a template."""
    marked: bool = False
    """The file begins with a byte order mark."""
    followed: bool = False
    """Nobody named it: a script that is read runs it. It is not repaired."""


@dataclass(frozen=True)
class Library:
    """An NCCL library whose names judge."""

    path: str
    version: str | None
    names: frozenset[str]


def lint(
    sources: Sequence[Source],
    rules: Sequence[Rule],
    *,
    version: str | None = None,
    version_from: str = "--nccl-version",
    nccl_library: Library | None = None,
    snapshot: Snapshot | None = None,
    topology: str | None = None,
    effects: OnMachine | None = None,
    overridden: bool = False,
) -> Report:
    """Judge all files. `version` is NCCL's, None = that of the machine, or not known and the newest is taken.

    `effects` predicts what lines change on the machine; None = only the rules judge. `overridden`: the sources are in
    force together, the first one above the others. Raises InputError when the only file is one that the user named and
    that cannot be parsed.
    """
    machine = MachineJudge(snapshot, version, rules, effects)
    if version is None and machine.version is not None:
        version, version_from = machine.version, "the topology"
    judge = Judge(version, nccl_library.names if nccl_library is not None else None, machine.known)
    findings: list[Finding] = []
    ignored: list[Ignored] = []
    unknown: list[Undecided] = []
    files: list[FileRead] = []
    not_read: list[NotRead] = []
    earlier: dict[str, tuple[str, Assignment]] = {}
    for source in sources:
        try:
            file = _File(source, judge)
        except Unreadable as error:
            if source.named and len(sources) == 1:
                raise _unreadable(source, error) from None
            not_read.append(
                NotRead(
                    file=printable(source.file),
                    line=error.line,
                    column=error.column,
                    templates=error.templates and not source.named,
                    reason=shown(error.message),
                )
            )
            continue
        files.append(FileRead(file=printable(source.file), kind=source.kind, settings=len(file.contents.assignments)))
        found = list(file.check(machine.known))
        judged, undecided = machine.judge(file.contents, source.file) if file.contents.assignments else ([], [])
        found += judged
        if overridden:
            found += _overridden(file.contents, source.file, earlier)
        kept, silenced = file.settle(found, frozenset(rule.id for rule in rules))
        findings += kept
        ignored += silenced
        unknown += [file.undecided(each) for each in undecided]
        unknown += file.prerequisites() if not machine.known else ()
    return Report(
        nccl=version,
        nccl_from=version_from if version is not None else "not known",
        nccl_library=nccl_library.path if nccl_library is not None else None,
        topology=topology,
        files=files,
        not_read=not_read,
        findings=findings,
        ignored=ignored,
        unknown=unknown,
    )


def repair(source: Source, *, version: str | None, nccl_library: Library | None) -> Source:
    """The source with everything repaired that is certain. What cannot be parsed, or was followed, stays as it is."""
    if source.followed:
        return source
    judge = Judge(version, nccl_library.names if nccl_library is not None else None)

    def findings(text: str) -> list[Finding]:
        try:
            file = _File(replace(source, text=text), judge)
        except Unreadable:
            return []
        # Rules about the machine repair nothing.
        return file.settle(list(file.check(machine_known=True)), frozenset())[0]

    return replace(source, text=fixes.repaired(source.text, findings))


def _unreadable(source: Source, error: Unreadable) -> Exception:
    from topoadvisor.errors import InputError

    return InputError(
        error.message,
        file=source.file,
        line=error.line,
        column=error.column,
        hint="If its name misleads, say what it is: --as shell, --as nccl.conf, …",
    )


def _overridden(contents: Contents, file: str, earlier: dict[str, tuple[str, Assignment]]) -> Iterator[Found]:
    for each in contents.assignments:
        first = earlier.get(each.name)
        if first is not None and first[0] != file:
            same = " to the same value" if first[1].value == each.value else ""
            message = f"{each.name} is set by {first[0]} already{same}, and that wins"
            yield Found("ENV171", each.at, each.name, message)
        earlier.setdefault(each.name, (file, each))


class _File:
    def __init__(self, source: Source, judge: Judge) -> None:
        self.source = source
        self._judge = judge
        self._lines = source.text.split("\n")
        self._for_amd = not judge.machine and _AMD.search(source.text) is not None
        self._starts = [0, *(match.end() for match in re.finditer("\n", source.text))]
        self.contents = embedded.read(Piece(source.text), source.kind, version=judge.version)
        # The script that runs it may export what it only sets.
        self.contents.exports_all |= source.followed
        self.contents.assignments.sort(key=lambda each: each.at)
        # A comment that silences a finding is no reason for the line: it would take away what it silences.
        self._reasons = ignores.without(self._lines)
        self._under_comment = list(_under_comment(self._lines, self._reasons))

    def _place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def _line(self, at: int) -> int:
        return self._place(at)[0]

    def check(self, machine_known: bool) -> Iterator[Found]:
        """Everything that can be said without a machine."""
        first = next(iter(self.contents.assignments), None)
        if self.source.marked and first is not None and first.way == "conf" and self._line(first.at) == 1:
            message = "the file begins with a byte order mark, which becomes part of the first name: it is never found"
            yield Found("ENV121", first.at, first.name, message)
        for remark in self.contents.remarks:
            yield Found(remark.code, remark.at, remark.variable, remark.message, remark.severity, repair=remark.repair)
        for each in self.contents.assignments:
            line = self._line(each.at)
            for found in (*names.check(each, self.contents, self._judge), *values.check(each, self._judge)):
                if not (self._for_amd and found.code in _NCCLS_OWN and found.variable.startswith("NCCL_")):
                    yield found
            if not machine_known:
                yield from values.without_machine(each, self.contents, self._judge)
            statement = each.at if each.statement is None else each.statement
            commented = "#" in self._reasons[line - 1] or self._under_comment[self._line(statement) - 1]
            yield from places.check(each, self.contents, self._judge, self._lines[line - 1].rstrip("\r"), commented)
        yield from together.check(self.contents, self._judge, self._line)
        yield from together.ranks(self.contents)

    def settle(self, found: Sequence[Found], rules: frozenset[str]) -> tuple[list[Finding], list[Ignored]]:
        """Findings that stay, by place, and those that a comment silences."""
        comments = ignores.find(self._lines)
        used: set[tuple[int, str]] = set()
        kept: list[Finding] = []
        silenced: list[Ignored] = []
        for each in found:
            finding = self._finding(each)
            statement = self._line(each.statement) if each.statement is not None else finding.line
            ignore = next((one for one in comments if one.matches(finding.line, statement, each.code)), None)
            if ignore is None:
                kept.append(finding)
                continue
            silenced.append(Ignored(finding=finding, reason=shown(ignore.reason)))
            used |= {(ignore.line, code) for code in ignore.codes if silences(code, each.code)}
        for ignore in comments:
            kept += [self._finding(each) for each in self._about(ignore, used, rules)]
        kept = _once(kept)
        return sorted(kept, key=lambda each: (each.line, each.column, each.code, each.message)), silenced

    def _about(self, ignore: ignores.Ignore, used: set[tuple[int, str]], rules: frozenset[str]) -> Iterator[Found]:
        at = self._starts[ignore.line - 1] + ignore.column - 1
        if not ignore.codes:
            yield Found("ENV192", at, "", "it names no code: write ignore[CODE] and the reason")
            return
        if not ignore.reason:
            yield Found("ENV191", at, "", f"ignore[{', '.join(ignore.codes)}] gives no reason")
        for code in ignore.codes:
            if not ignores.known(code, rules):
                yield Found("ENV192", at, "", f"there is no code {code[:40]}")
            elif (ignore.line, code) not in used:
                yield Found("ENV192", at, "", f"there is no finding of {code} here to silence")

    def _finding(self, found: Found) -> Finding:
        line, column = self._place(found.at)
        code = CODES.get(found.code)
        fix = None
        writable = self.source.kind != "environment" and not self.source.followed
        if writable and found.repair is not None and self._changes(found.repair):
            edits = [self._edit(*edit) for edit in found.repair.edits]
            fix = Fix(message=shown(found.repair.message), edits=edits)
        return Finding(
            file=printable(self.source.file),
            line=line,
            column=column,
            code=found.code,
            name=found.name or (code.name if code else ""),
            severity=found.severity or (code.severity if code else "warning"),
            variable=shown(found.variable),
            message=_shortened(shown(found.message)),
            becomes=None if found.becomes is None else _shortened(printable(found.becomes)),
            advice=[_shortened(shown(each)) for each in found.advice],
            fix=fix,
        )

    def _changes(self, repair: Repair) -> bool:
        """Whether it can be written, and is not what stands there already."""
        same = all(self.source.text[slice(*span)] == text for span, text in repair.edits)
        return not same and all(text == printable(text) for _, text in repair.edits)

    def _edit(self, span: tuple[int, int], text: str) -> Edit:
        line, column = self._place(span[0])
        end_line, end_column = self._place(span[1])
        return Edit(line=line, column=column, end_line=end_line, end_column=end_column, text=text)

    def undecided(self, each: Open) -> Undecided:
        line, column = self._place(each.assignment.at)
        return Undecided(
            file=printable(self.source.file),
            line=line,
            column=column,
            code=each.rule,
            variable=printable(each.assignment.name),
            reason=shown(each.reason),
            facts=list(each.facts),
        )

    def prerequisites(self) -> Iterator[Undecided]:
        """Variables that need what no source of a snapshot tells."""
        first = next((each for each in self.contents.assignments if each.name.startswith("NCCL_")), None)
        if self._for_amd and first is not None:
            line, column = self._place(first.at)
            reason = "the file is for AMD GPUs: which names and limits their RCCL has is not known here"
            yield Undecided(
                file=printable(self.source.file), line=line, column=column, code="", variable=first.name, reason=reason
            )
        for each in self.contents.assignments:
            if each.name in _NEEDS and (each.value or "").lower() in ("1", "true", "yes", "on"):
                line, column = self._place(each.at)
                reason = (
                    "the machine may lack what it takes: it needs GPUDirect RDMA (nvidia-peermem or DMA-BUF), a "
                    "ConnectX NIC, and the driver options NVreg_EnableStreamMemOPs=1 and PeerMappingOverride=1 or "
                    "NVSHMEM_IBGDA_NIC_HANDLER=cpu"
                )
                yield Undecided(
                    file=printable(self.source.file),
                    line=line,
                    column=column,
                    code="",
                    variable=each.name,
                    reason=reason,
                )


def _under_comment(lines: Sequence[str], reasons: Sequence[str]) -> Iterator[bool]:
    """For each line whether words stand above it: in a comment right there, or above the lines right there."""
    under = False
    for line, reason in zip(lines, reasons, strict=True):
        yield under
        under = bool(line.strip()) and (under or reason.lstrip().startswith("#"))


def _shortened(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"


def _once(findings: list[Finding]) -> list[Finding]:
    """Each finding once; what is said of one place by a check and by a rule with the same code is one."""
    seen: dict[tuple[int, int, str, str], Finding] = {}
    for each in findings:
        seen.setdefault((each.line, each.column, each.code, each.message), each)
    return list(seen.values())


def worst(report: Report) -> Severity | None:
    """The gravest severity in a report."""
    return next((each for each in SEVERITIES if any(found.severity == each for found in report.findings)), None)
