"""Places: lines of nccl.conf that are not what they look like, exports that reach nobody, settings that stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from topoadvisor.lint.checks.values import for_a_cloud
from topoadvisor.lint.found import Found, Judge, about
from topoadvisor.lint.model import LASTING, Assignment, Contents, Repair
from topoadvisor.nccl import conf, reading, settings
from topoadvisor.nccl.settings import SettingInfo

_SLOWS: Final = frozenset({"CUDA_LAUNCH_BLOCKING", "TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"})
"""Switches for debugging of others that slow every job; flight recorders and their like may stay."""
_QUIET: Final = frozenset({"", "0", "false", "off", "no", "warn", "version", "none"})
_HARMLESS: Final = ("NCCL_DEBUG_", "NCCL_RAS_", "NCCL_SET_THREAD_NAME", "NCCL_COMM_ID")
"""Diagnostic names that print nothing by themselves, or of which another check speaks."""
_IDENTITY: Final = "NCCL_HOSTID"
_NOT_FOR_MANY: Final = frozenset({"NCCL_IB_GID_INDEX"})


def check(assignment: Assignment, contents: Contents, judge: Judge, line: str, commented: bool) -> Iterator[Found]:
    """What is wrong with where a variable is set. `line` is what is written there."""
    if assignment.way == "conf":
        yield from _literal(assignment, line)
        yield from _not_for_conf(assignment)
    yield from _unseen(assignment, contents)
    if assignment.way in LASTING:
        yield from _stays(assignment, judge, commented or for_a_cloud(contents))
    yield from _elsewhere(assignment)
    yield from _late(assignment, contents)


def _late(assignment: Assignment, contents: Contents) -> Iterator[Found]:
    name = assignment.name
    start = next(
        (
            call
            for at, branch, call in contents.starts
            if at < assignment.at and branch == assignment.branch[: len(branch)] and assignment.way == "python"
        ),
        None,
    )
    if start is None or assignment.group:
        return
    if name.startswith("TORCH_"):
        message = f"{name} is set after {start}(), which has read it already"
        yield about(assignment, "ENV133", message)
    elif name.startswith("NCCL_"):
        message = f"{name} is set after {start}(): NCCL reads it once, with its first communicator, which may be there"
        yield about(assignment, "ENV133", message, severity="info")


def _literal(assignment: Assignment, line: str) -> Iterator[Found]:
    if not assignment.surprises:
        return
    repair = None
    value = assignment.value
    if assignment.whole is not None and value is not None and conf.unwritable(assignment.name, value) is None:
        comment = line.partition("#")[2].strip() if "#" in line.partition("=")[2] else ""
        text = (f"# {comment}\n" if comment else "") + f"{assignment.name}={value}"
        repair = Repair(f"write {assignment.name}={value}", ((assignment.whole, text),)) if "$" not in value else None
    message = "; ".join(assignment.surprises)
    yield about(assignment, "ENV121", message, repair=repair)


def _not_for_conf(assignment: Assignment) -> Iterator[Found]:
    name = assignment.name
    owner = conf.reader(name)
    if name == conf.NAMED_BY:
        yield about(
            assignment, "ENV134", f"{conf.NAMED_BY} counts in the process environment only, not in the file it names"
        )
    elif owner is not None and not conf.in_time(owner):
        message = f"{owner} reads {name}, and may have done so before NCCL hands on the lines of its file"
        yield about(assignment, "ENV134", message)


def _unseen(assignment: Assignment, contents: Contents) -> Iterator[Found]:
    name = assignment.name
    if assignment.way == "layer":
        if settings.find(name) is None:
            return  # A name that no program is known to read when it runs may well be the build's.
        message = f"{name} is gone when this RUN ends: the container will not have it"
        yield about(assignment, "ENV132", message, advice=(f"ENV {name}={assignment.value or '…'}",))
    elif (
        assignment.way == "plain"
        and not assignment.fallback
        and contents.programs
        and not contents.exports_all
        and name not in contents.exported
        and name not in contents.uses
        and settings.find(name) is not None
        and not name.startswith("MASTER_")
        and not any(each.name == name and each.way != "plain" for each in contents.assignments)
    ):
        message = f"{name} is not exported: unless it was before, no program of this script sees it"
        yield about(assignment, "ENV131", message, advice=(f"export {name}={assignment.value or '…'}",))
    elif (
        assignment.way == "export"
        and contents.runs_jobs
        and assignment.at > contents.last_command
        and not assignment.branch
        and not assignment.group
        and name not in contents.uses
    ):
        message = f"{name} is set after the last program of this script was started: none sees it"
        yield about(assignment, "ENV133", message)


def _stays(assignment: Assignment, judge: Judge, commented: bool) -> Iterator[Found]:
    info = settings.find(assignment.name)
    if info is None or assignment.value is None or assignment.fallback:
        return
    if info.owner == "NCCL" and not info.exists_in(judge.version):
        return
    text = assignment.value.strip()
    where = {"conf": "in a file for every job", "image": "in an image", "service": "in a service that stays"}
    if _debugs(info, text, judge.version):
        severity = "warning" if assignment.way == "conf" else "info"
        message = f"{info.name}={text} is for debugging, and stands {where[assignment.way]}"
        yield about(assignment, "ENV141", message, severity=severity)  # type: ignore[arg-type]
    elif (
        info.owner == "NCCL"
        and info.setting_class in ("workaround", "tuning")
        and text
        and not commented
        and info.name != _IDENTITY
    ):
        found = reading.read(info, text)
        if info.default is not None and found is not None and found.becomes == info.default:
            return
        message = f"{info.name}={text} is a {info.setting_class} setting that stays, and nothing says why"
        yield about(assignment, "ENV142", message)


def _debugs(info: SettingInfo, text: str, version: str | None) -> bool:
    if info.owner != "NCCL":
        loud = info.name == "TORCH_DISTRIBUTED_DEBUG" and text.upper() in ("INFO", "DETAIL")
        return loud or (info.name in _SLOWS and text.lower() not in _QUIET)
    found = reading.read(info, text, version)
    on = text.lower() not in _QUIET and text != info.default and (found is None or found.becomes is not None)
    return info.setting_class == "diagnostic" and on and not info.name.startswith(_HARMLESS)


def _elsewhere(assignment: Assignment) -> Iterator[Found]:
    name, info, text = assignment.name, settings.find(assignment.name), assignment.value
    if assignment.way in LASTING and name == "NCCL_COMM_ID":
        message = "NCCL_COMM_ID is the address of one job: where it stays, it joins jobs that do not belong together"
        yield about(assignment, "ENV135", message, severity="warning")
    elif assignment.way in LASTING and name == _IDENTITY and text is not None:
        message = "NCCL_HOSTID must differ on every machine: where it stays, NCCL takes several for one"
        yield about(assignment, "ENV135", message, severity="warning")
    elif assignment.way == "image" and info is not None and text and not assignment.fallback:
        names_devices = info.parser in ("ifname", "hca") and not text.startswith("^")
        if names_devices or name in _NOT_FOR_MANY:
            message = f"{name}={text} fits one machine, and an image runs on many: set it on the machine or in the job"
            yield about(assignment, "ENV135", message)
