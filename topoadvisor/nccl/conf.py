"""`nccl.conf` as NCCL reads it: literally, by `setEnvFile` in `src/misc/param.cc`.

A line is `NAME=VALUE`, split at the first `=`; nothing is trimmed, unquoted or expanded. The first line of a name wins,
and a variable that is already in the process environment wins over every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from topoadvisor.nccl import settings, versions

LONGEST = 1023
"""Bytes of a name or a value; what is longer is cut."""

NAMED_BY = "NCCL_CONF_FILE"
"""The variable that names a file in place of the per-user one. It counts in the process environment only."""

SYSTEM_FILE = "/etc/nccl.conf"

_LOADED_LATER = frozenset({"NCCL", "libfabric", "rdma-core", "rdma-core's mlx5 driver"})
"""Libraries that NCCL, or a plugin of it, loads after it has read its file."""

_NAMED_SINCE = "2.23.4"
_HOME_VARIABLE_SINCE = "2.30.3"

MANAGED_BEGIN = "# >>> topoadvisor managed block"
MANAGED_END = "# <<< topoadvisor managed block"
"""How the first and the last line of the block begin that `topoadvisor emit` writes."""

_BUFFER = 4095
"""Bytes that one `fgets` takes at most since 2.30.3: a longer line is read as several."""

_BEGIN, _END = MANAGED_BEGIN.encode(), MANAGED_END.encode()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.A)


@dataclass(frozen=True)
class ConfLine:
    """One variable that NCCL defines from a file."""

    line: int
    """Counted from 1."""
    name: str
    value: str
    surprises: tuple[str, ...] = ()
    """What the writer of the line may not expect, one sentence each."""
    managed: bool = False
    """It stands in the block that `topoadvisor emit` writes."""
    first: int | None = None
    """The line that sets the name before, and wins; `surprises` says it too, last."""


@dataclass(frozen=True)
class _Rules:
    comments: bool
    drops_cr: bool
    splits_long_lines: bool
    overruns_names: bool


def _rules(version: str | None) -> _Rules:
    if version is None:
        return _Rules(comments=True, drops_cr=True, splits_long_lines=True, overruns_names=False)
    new_reader = versions.at_least(version, "2.30.3")
    return _Rules(
        comments=versions.at_least(version, "2.26.2"),
        drops_cr=new_reader,
        splits_long_lines=new_reader,
        overruns_names=not versions.at_least(version, "2.23.4"),
    )


def reader(name: str) -> str | None:
    """Who reads a variable, by the register; None for a name that may be anybody's."""
    info = settings.find(name)
    if info is not None:
        return info.owner
    if name.startswith("NCCL_"):
        return "NCCL"
    family = settings.family(name)
    return family.owner if family is not None else None


def in_time(owner: str) -> bool:
    """Whether who reads a variable does so after NCCL has handed on the lines of its file."""
    return owner in _LOADED_LATER or "plugin" in owner


def parse(text: str, version: str | None = None) -> list[ConfLine]:
    """Every variable that the lines of a file define, in order, those without effect included.

    `text` is UTF-8 decoded with `surrogateescape`, so that every byte survives. `version` is NCCL's; None = the newest
    known. Raises ValueError when it is no version.
    """
    rules = _rules(version)
    found: list[ConfLine] = []
    first_lines: dict[str, int] = {}
    managed = False
    for number, read, remainder in _reads(text.encode("utf-8", "surrogateescape"), rules):
        if read.startswith((_BEGIN, _END)):
            managed = read.startswith(_BEGIN)
        definition = _definition(read, rules)
        if definition is None:
            continue
        name_bytes, value_bytes, ended_in_cr = definition
        name, value = _cut(name_bytes), _cut(value_bytes)
        surprises = [*_name_surprises(name), *_value_surprises(value.removesuffix("\r") if ended_in_cr else value)]
        if remainder:
            surprises.append(f"the line is longer than {_BUFFER} bytes, and NCCL takes this rest of it for a new line")
        if b"\0" in read:
            surprises.append("the line holds a NUL byte, and NCCL reads nothing after it")
        if ended_in_cr and rules.drops_cr:
            surprises.append("the line ends in CR LF, and NCCL before 2.30.3 keeps the CR as part of the value")
        elif ended_in_cr:
            surprises.append("the line ends in CR LF, and this NCCL keeps the CR as part of the value")
        if len(name_bytes) > LONGEST:
            overrun = ", and this NCCL writes past its buffer" if rules.overruns_names else ""
            surprises.append(f"the name is cut to {LONGEST} bytes{overrun}")
        if len(value_bytes) > LONGEST:
            surprises.append(f"the value is cut to {LONGEST} bytes")
        first = first_lines.get(name)
        if first is not None:
            surprises.append(f"line {first} sets it already, and the first line wins")
        first_lines.setdefault(name, number)
        found.append(ConfLine(number, name, value, tuple(surprises), managed, first))
    return found


def paths(environ: Mapping[str, str], home: str | None, version: str | None = None) -> list[str]:
    """The files that NCCL reads, in its order: what an earlier one defines, a later one does not change.

    The process environment wins over all of them. Since 2.23.4 NCCL_CONF_FILE replaces the per-user file; since 2.30.3
    `~` is $HOME, before it was `home`, the home directory of the password database (`src/misc/param.cc`).
    `version` is NCCL's; None = the newest known. Raises ValueError when it is no version.
    """
    named = environ.get(NAMED_BY) if _since(version, _NAMED_SINCE) else None
    if named:
        return [named, SYSTEM_FILE]
    by_variable = environ.get("HOME") if _since(version, _HOME_VARIABLE_SINCE) else None
    directory = by_variable or home
    user = [f"{directory.rstrip('/')}/.nccl.conf"] if directory and directory.startswith("/") else []
    return [*user, SYSTEM_FILE]


def _since(version: str | None, first: str) -> bool:
    return version is None or versions.at_least(version, first)


def definitions(text: str, version: str | None = None) -> list[tuple[str, str]]:
    """(name, value) of every line that `parse` finds, and nothing else: for files of many lines."""
    rules = _rules(version)
    found = (_definition(read, rules) for _, read, _ in _reads(text.encode("utf-8", "surrogateescape"), rules))
    return [(_cut(each[0]), _cut(each[1])) for each in found if each is not None]


def _definition(read: bytes, rules: _Rules) -> tuple[bytes, bytes, bool] | None:
    """Name, value and whether the line ended in CR, of one read; None when it defines nothing."""
    if rules.comments and read.startswith(b"#"):
        return None
    # The buffer is a C string: it ends at the first NUL.
    line = read.removesuffix(b"\n").split(b"\0", 1)[0]
    ended_in_cr = line.endswith(b"\r")
    if ended_in_cr and rules.drops_cr:
        line = line[:-1]
    name, equals, value = line.partition(b"=")
    # setenv refuses an empty name.
    return (name, value, ended_in_cr) if equals and name else None


def _cut(text: bytes) -> str:
    return text[:LONGEST].decode("utf-8", "surrogateescape")


def unwritable(name: str, value: str) -> str | None:
    """Why NCCL would not read this value back from a file, or not as it is meant; None when it would."""
    if not _NAME.fullmatch(name):
        return "the name is not one of a variable"
    if not value:
        return "the value is empty"
    if not value.isprintable():
        return "the value holds a line break or another control character"
    if value != value.strip():
        return "the value begins or ends with a blank"
    if set(value) & set("\"'`"):
        return "the value holds a quote"
    if max(len(name.encode()), len(value.encode("utf-8", "surrogatepass"))) > LONGEST:
        return f"it is longer than {LONGEST} bytes"
    info = settings.registry().get(name)
    if " " in value and info is not None and info.parser not in ("path", "text"):
        return "the value holds a blank, and NCCL skips none"
    return None


def effective(lines: list[ConfLine]) -> dict[str, str]:
    """Name → value after all lines: the first one of a name counts."""
    values: dict[str, str] = {}
    for line in lines:
        values.setdefault(line.name, line.value)
    return values


def _reads(data: bytes, rules: _Rules) -> Iterator[tuple[int, bytes, bool]]:
    """What one call of the reading function returns: (line number, bytes, whether it is the rest of a long line)."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        whole = line + b"\n"
        if not rules.splits_long_lines:
            yield number, whole, False
            continue
        for start in range(0, len(whole), _BUFFER):
            yield number, whole[start : start + _BUFFER], start > 0


def _name_surprises(name: str) -> Iterator[str]:
    if name.startswith("#"):
        yield "NCCL before 2.26.2 takes a comment with = for a variable, which does no harm"
    elif re.match(r"export\s", name):
        yield "NCCL reads no shell: `export` becomes part of the name, and the variable is never found"
    elif name != name.strip():
        yield "NCCL trims nothing: the blank becomes part of the name, and the variable is never found"
    elif not _NAME.fullmatch(name):
        yield "this is no name of a variable, so it is never found"


def _value_surprises(value: str) -> Iterator[str]:
    if value != value.strip():
        yield "NCCL trims nothing: blanks around the value are part of it"
    bare = value.strip()
    if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "\"'":
        yield "NCCL removes no quotes: they are part of the value"
    if re.search(r"\s#", value):
        yield "NCCL knows no comment behind a value: it is part of the value"
    if "$" in value or value.startswith("~"):
        yield "NCCL expands nothing: $ and ~ stay as they are"
