"""NCCL libraries and settings: place by place, or as far as a job shows them: what it loaded and what was in force."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from topoadvisor.advice import Severity
from topoadvisor.diff.ledger import NODE, Field, Ledger, Who, always
from topoadvisor.snapshot import LOG, NcclLibrary, Setting, Snapshot, only_logged

_LIBRARY: Final = Field("version", "version", always("warning"), "nccl")


def compare(before: Snapshot, after: Snapshot, ledger: Ledger) -> None:
    """Compare the NCCL libraries and the settings of two captures."""
    if ledger.both("nccl_libraries", "NCCL libraries", before.nccl_libraries, after.nccl_libraries):
        libraries = before.nccl_libraries or [], after.nccl_libraries or []
        loaded = [any(library.path == LOG for library in side) for side in libraries]
        if loaded[0] is loaded[1]:
            _libraries(*libraries, ledger)
        else:
            _loaded(*libraries, ledger, job_is_new=loaded[1])
    if ledger.both("settings", "NCCL settings", before.settings, after.settings):
        settings = before.settings or [], after.settings or []
        logged = [only_logged(side) for side in settings]
        if logged[0] is logged[1]:
            _by_place(*settings, ledger)
        else:
            _as_in_force(*settings, ledger, job_is_new=logged[1])


def _libraries(old: Iterable[NcclLibrary], new: Iterable[NcclLibrary], ledger: Ledger) -> None:
    now = {library.path: library for library in new}
    for library in old:
        name = Who(f"nccl:{library.path}", f"NCCL {library.path}")
        if other := now.pop(library.path, None):
            ledger.value(name, _LIBRARY, library.version, other.version)
        else:
            text = f"{name.label} ({library.version or 'version not read'}) is gone"
            ledger.change("nccl", name.subject, "library", library.version or "there", None, "warning", text)
    for library in now.values():
        text = f"NCCL {library.path} ({library.version or 'version not read'}) is new"
        ledger.change("nccl", f"nccl:{library.path}", "library", None, library.version or "there", "warning", text)


def _loaded(old: Sequence[NcclLibrary], new: Sequence[NcclLibrary], ledger: Ledger, *, job_is_new: bool) -> None:
    """A job says the version that it loaded, not which file that was: one of those installed, or not compared."""
    installed, loaded = (old, new) if job_is_new else (new, old)
    versions = {library.version for library in loaded}
    for library in installed:
        name = Who(f"nccl:{library.path}", f"NCCL {library.path}")
        if library.version in versions:
            ledger.count("nccl", name.subject)
        else:
            told = library.version or "there"
            ledger.only_one(name, "library", "version", *((told, None) if job_is_new else (None, told)))
    for version in sorted(version for version in versions if version is not None):
        if version not in {library.version for library in installed}:
            values = (None, version) if job_is_new else (version, None)
            ledger.only_one(NODE, "nccl.loaded", "NCCL library of the job", *values)


def _by_place(old: Sequence[Setting], new: Sequence[Setting], ledger: Ledger) -> None:
    """Compare settings place by place: one in a file may be overruled by the environment and counts less."""
    was, now = _places(old), _places(new)
    force_was, force_now = _in_force(old), _in_force(new)
    for place in dict.fromkeys([*was, *now]):
        name, origin = place
        subject = f"variable:{name}"
        ledger.count("setting", subject)
        before, after = was.get(place), now.get(place)
        if before == after:
            continue
        effective = force_was.get(name) != force_now.get(name)
        text = f"{name} in {origin}: {_shown(before)} → {_shown(after)}"
        if not effective:
            text += f"; in force as before: {_shown(force_now.get(name))}"
        severity: Severity = "warning" if effective and "NCCL" in name else "info"
        ledger.change("setting", subject, origin, before, after, severity, text)


def _as_in_force(old: Sequence[Setting], new: Sequence[Setting], ledger: Ledger, *, job_is_new: bool) -> None:
    """Compare what was in force. A job tells the variables that NCCL came across; of all others it says nothing."""
    was, now = _in_force(old), _in_force(new)
    told = now if job_is_new else was
    for name in dict.fromkeys([*was, *now]):
        who = Who(f"variable:{name}", name)
        before, after = was.get(name), now.get(name)
        if name not in told:
            ledger.only_one(who, "in_force", "value", before, after, _shown)
            continue
        ledger.count("setting", who.subject)
        if before != after:
            text = f"{name} in force: {_shown(before)} → {_shown(after)}"
            ledger.change("setting", who.subject, "in_force", before, after, "warning", text)


def _places(settings: Iterable[Setting]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for setting in settings:
        found.setdefault((setting.name, setting.origin), setting.value)
    return found


def _in_force(settings: Iterable[Setting]) -> dict[str, str]:
    found: dict[str, str] = {}
    for setting in settings:
        found.setdefault(setting.name, setting.value)
    return found


def _shown(value: str | None) -> str:
    return "not set" if value is None else value or '""'
