"""The file that a configuration goes to: reading it, showing what would change, and writing it."""

from __future__ import annotations

import difflib
import itertools
from pathlib import Path

from topoadvisor.emit.blocks import lines_of
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.files import write_atomically


def read(path: Path) -> str | None:
    """The text of a file, every byte kept (`surrogateescape`); None when there is no such file.

    Raises TopoAdvisorError for a directory and anything else that is no file, and when it cannot be read.
    """
    try:
        if not path.exists():
            return None
        if not path.is_file():
            kind = "a directory" if path.is_dir() else "not a regular file"
            raise TopoAdvisorError(f"{path} is {kind}", hint="Name a file to write, such as /etc/nccl.conf.")
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise TopoAdvisorError(f"{path} cannot be read: {error.strerror or error}") from None


def write(path: Path, text: str, *, before: str | None) -> Path | None:
    """Write the file in one step, after keeping what it held before beside it; returns where that is kept.

    Nothing is written when the text is the same. Raises TopoAdvisorError when the folder is missing or not writable.
    """
    if text == before:
        return None
    if not path.parent.is_dir():
        raise TopoAdvisorError(
            f"{path} cannot be written: the folder {path.parent} does not exist",
            hint="Create the folder first, or name another file.",
        )
    backup = _free_name(path)
    try:
        if before is not None:
            write_atomically(backup, _encoded(before))
            backup.chmod(path.stat().st_mode & 0o7777)
        write_atomically(path, _encoded(text))
    except OSError as error:
        raise TopoAdvisorError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="Run this as a user who may write there, or write to another file and copy it.",
        ) from None
    return None if before is None else backup


def _free_name(path: Path) -> Path:
    """Where to keep what the file holds: earlier backups stay."""
    first = path.with_name(f"{path.name}.topoadvisor.bak")
    numbered = (path.with_name(f"{first.name}.{number}") for number in itertools.count(1))
    return next(name for name in itertools.chain([first], numbered) if not name.exists())


def difference(before: str | None, after: str, path: Path) -> str:
    """A unified diff from the file as it is to what it would become; empty when nothing changes."""
    name = str(path)
    lines = difflib.unified_diff(lines_of(before or ""), lines_of(after), "/dev/null" if before is None else name, name)
    whole = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    # Bytes that are no text could not be printed.
    return "".join(whole).encode("utf-8", "backslashreplace").decode()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
