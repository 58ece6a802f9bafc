"""Names: made up, unknown, removed, too new, older spellings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from topoadvisor.lint.found import Found, Judge, about, renamed
from topoadvisor.lint.model import Assignment, Contents
from topoadvisor.lint.spelling import nearest, one_letter_apart, wrong_beginning
from topoadvisor.nccl import settings
from topoadvisor.nccl.settings import SettingInfo

BUILDS: Final = re.compile(
    r"NCCL_TEST_.*|NCCL_(.*_)?(HOME|ROOT|DIR|PATH|LIB|LIBS|LIBRARY|LIBRARIES|INCLUDE|VERSION|VER|TAG|BRANCH|COMMIT|URL|REPO|PACKAGE|"
    r"PKG|SRC|SOURCE|PREFIX|INSTALL|BUILD|TARBALL|DEB|ARGS?|OPTS?|OPTIONS|FLAGS|PARAMS|ENVS?|VARS|CMD|EXE|BIN|TESTS?|"
    r"BENCH|BENCHMARK|SO|CONFIG|PROFILE|SCRIPT|LAUNCHER|IMAGE|NAME|BACKEND|MAJOR|MINOR|PATCH|STATIC)"
)
"""Names by which scripts and builds call places, versions and lists of options."""
_AMD: Final = "RCCL_"
_SURE_IN_TABLE: Final = 16
"""Letters from which on a name cannot hide in the code of a library as a number."""


def check(assignment: Assignment, contents: Contents, judge: Judge) -> Iterator[Found]:
    """What is wrong with the name."""
    name = assignment.name
    in_library = judge.nccl_library is not None and name in judge.nccl_library
    info = settings.find(name)
    if info is not None and info.owner == "NCCL":
        yield from _known(assignment, info, judge, in_library)
    elif info is not None:
        if info.replacement is not None:
            yield about(assignment, "ENV106", _older_neighbour(info), advice=tuple(info.pitfalls))
    elif in_library or name in contents.uses:
        return
    elif name.startswith(_AMD) and judge.machine:
        message = f"AMD's RCCL reads {name}; NCCL, which this machine needs, does not"
        yield about(assignment, "ENV105", message, severity="info")
    elif (invention := settings.inventions().get(name)) is not None:
        meant = f" {_listed(invention.instead)} may be meant." if invention.instead else ""
        yield about(assignment, "ENV101", f"nobody reads {name}. {invention.why}{meant}")
    else:
        yield from _unknown(assignment, judge)


def _known(assignment: Assignment, info: SettingInfo, judge: Judge, in_library: bool) -> Iterator[Found]:
    name, version = info.name, judge.version
    if info.reads == "never":
        yield about(assignment, "ENV105", f"NCCL declares {name} and never reads it")
        return
    if in_library:
        pass
    elif info.since is None:
        yield about(assignment, "ENV105", f"{name} is known from NCCL's manual only; no public release reads it")
        return
    elif version is not None and not info.began_by(version):
        yield about(assignment, "ENV104", f"NCCL {version} does not read {name} yet: it came with {info.since}")
        return
    elif not info.exists_in(version):
        instead = f"; {info.replacement} took its place" if info.replacement else ""
        repair = renamed(assignment, info.replacement) if info.replacement and _same(info, judge) else None
        which = f"NCCL {version}" if version else "NCCL"
        message = f"{which} does not read {name} any more: it was removed in {info.removed}{instead}"
        yield about(assignment, "ENV103", message, repair=repair)
        return
    elif judge.nccl_library is not None and len(name) >= _SURE_IN_TABLE:
        message = f"this NCCL library does not hold the name {name}, although NCCL {version or settings.NEWEST} should"
        yield about(assignment, "ENV102", message)
        return
    replacement = settings.find(info.replacement or "")
    if replacement is not None and replacement.exists_in(version):
        repair = renamed(assignment, replacement.name) if _same(info, judge) else None
        message = f"{name} is an older name, still read; {replacement.name} is the present one"
        if repair is None:
            message = (
                f"{name} is an older variable, still read; {replacement.name} is the present one and differs in part"
            )
        yield about(assignment, "ENV106", message, repair=repair)


_SAME_MEANING: Final = frozenset(
    {"NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS", "NCCL_MNNVL", "NCCL_IB_GDR_LEVEL", "NCCL_NCCL_ALLOC_P2P_NET_LL_BUFFERS"}
)
"""Old names whose values mean the same under the new one."""


def _same(info: SettingInfo, judge: Judge) -> bool:
    replacement = settings.find(info.replacement or "")
    return info.name in _SAME_MEANING and replacement is not None and replacement.exists_in(judge.version)


def _older_neighbour(info: SettingInfo) -> str:
    return f"{info.name} is an older name of {info.replacement}, which {info.owner} reads; NCCL reads neither"


def _unknown(assignment: Assignment, judge: Judge) -> Iterator[Found]:
    name = assignment.name
    known = settings.find(name.upper())
    if known is not None and name != name.upper():
        message = f"capitals count: {name} is not {name.upper()}, and nobody reads it"
        yield about(assignment, "ENV102", message, repair=renamed(assignment, name.upper()))
        return
    if (meant := wrong_beginning(name)) is not None:
        yield about(assignment, "ENV102", f"nobody reads {name}; {meant} is meant")
        return
    if not name.startswith("NCCL_"):
        close = next((each for each in settings.neighbours() if len(each) >= 10 and one_letter_apart(name, each)), None)
        if close is not None:
            yield about(assignment, "ENV102", f"nobody is known to read {name}; {close} is one letter away")
        return
    near = nearest(name)
    if not near or not one_letter_apart(name, near[0]):
        if settings.family(name) is not None or BUILDS.fullmatch(name):
            return
        if assignment.way == "plain":
            # A variable of the script itself, which it may well call so.
            return
    which = "the NCCL library judged for" if judge.nccl_library is not None else "no release of NCCL"
    holds = "holds no such name" if judge.nccl_library is not None else "reads it"
    hint = f"; the nearest real name is {_listed(near)}" if near else ""
    yield about(assignment, "ENV102", f"{name} is unknown: {which} {holds}{hint}")


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
