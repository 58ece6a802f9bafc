"""The file that a configuration goes to: reading it, showing what would change, and writing it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

from topoadvisor.emit.blocks import lines_of
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.files import keep_copy, write_atomically

MAX_BYTES: Final = 4 << 20


def read(path: Path) -> str | None:
    """The text of a file, every byte kept (`surrogateescape`); None when there is no such file.

    Raises TopoAdvisorError for a directory and anything else that is no file, and when it cannot be read.
    """
    try:
        if not path.exists():
            if path.is_symlink():
                path.stat()
            return None
        if not path.is_file():
            kind = "a directory" if path.is_dir() else "not a regular file"
            raise TopoAdvisorError(f"{path} is {kind}", hint="Name a file to write, such as /etc/nccl.conf.")
        if path.stat().st_size > MAX_BYTES:
            raise TopoAdvisorError(
                f"{path} has more than {MAX_BYTES >> 20} MiB, too much for a configuration", hint="Is it another file?"
            )
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise TopoAdvisorError(f"{path} cannot be read: {error.strerror or error}") from None


def check(path: Path) -> None:
    """Raises TopoAdvisorError when the folder is missing."""
    if not path.parent.is_dir():
        raise TopoAdvisorError(
            f"{path} cannot be written: the folder {path.parent} does not exist",
            hint="Create the folder first, or name another file.",
        )


def write(path: Path, text: str, *, before: str | None) -> Path | None:
    """Write the file in one step, after keeping what it held before beside it; returns where that is kept.

    Nothing is written when the text is the same. Raises TopoAdvisorError when it cannot be written.
    """
    if text == before:
        return None
    check(path)
    try:
        backup = None if before is None else keep_copy(path, _encoded(before))
        write_atomically(path, _encoded(text))
    except OSError as error:
        raise TopoAdvisorError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="Run this as a user who may write there, or write to another file and copy it.",
        ) from None
    return backup


def difference(before: str | None, after: str, path: Path) -> str:
    """A unified diff from the file as it is to what it would become; empty when nothing changes."""
    name = str(path)
    lines = difflib.unified_diff(lines_of(before or ""), lines_of(after), "/dev/null" if before is None else name, name)
    whole = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    # Bytes that are no text could not be printed.
    return "".join(whole).encode("utf-8", "backslashreplace").decode()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
