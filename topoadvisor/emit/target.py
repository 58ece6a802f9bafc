"""The file that a configuration goes to: reading it, showing what would change, and writing it."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from pathlib import Path
from typing import Final

from topoadvisor.emit.blocks import lines_of
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.files import keep_copy, wide_encoding, write_atomically

MAX_BYTES: Final = 256 << 10
_HINT: Final = "Name a file to write, such as /etc/nccl.conf."


def read(path: Path) -> str | None:
    """The text of a file, every byte kept (`surrogateescape`); None when there is no such file.

    Raises TopoAdvisorError for a directory and anything else that is no file, for UTF-16, and when it cannot be read.
    """
    try:
        if not path.exists():
            if path.is_symlink():
                path.stat()
            return None
        if not path.is_file():
            kind = "a directory" if path.is_dir() else "not a regular file"
            raise TopoAdvisorError(f"{path} is {kind}", hint=_HINT)
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise TopoAdvisorError(
                f"{path} has more than {MAX_BYTES >> 10} KiB, too much for a configuration", hint="Is it another file?"
            )
        if wide_encoding(data) is not None:
            raise TopoAdvisorError(
                f"{path} is UTF-16 text, which NCCL and a shell cannot read, so nothing is added to it",
                hint="Convert it first: `iconv -f UTF-16 -t UTF-8 FILE`.",
            )
        return data.decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        raise TopoAdvisorError(
            f"{path} cannot be read: it is a link to {os.path.realpath(path)}, which is not there",
            hint="Write to that file by its own name to create it, or remove the link.",
        ) from None
    except OSError as error:
        raise TopoAdvisorError(f"{path} cannot be read: {error.strerror or error}", hint=_HINT) from None


def check(path: Path) -> None:
    """Raises TopoAdvisorError when the folder is missing."""
    if not path.parent.is_dir():
        raise TopoAdvisorError(
            f"{path} cannot be written: the folder {path.parent} does not exist",
            hint="Create the folder first, or name another file.",
        )


def check_size(path: Path, text: str) -> None:
    """Raises TopoAdvisorError for a text that `read` would refuse the next time."""
    if len(_encoded(text)) > MAX_BYTES:
        raise TopoAdvisorError(
            f"{path} would have more than {MAX_BYTES >> 10} KiB, too much for a configuration, so it is not written",
            hint="Is it another file?",
        )


def write(path: Path, text: str, *, before: str | None) -> Path | None:
    """Write the file in one step, after keeping what it held before beside it; returns where that is kept.

    Nothing is written when the text is the same. Raises TopoAdvisorError when it cannot be written, and when the file
    does not hold `before` any more: somebody else's change must not be lost.
    """
    if text == before:
        return None
    check(path)
    check_size(path, text)

    def unchanged() -> None:
        if read(path) != before:
            raise TopoAdvisorError(
                f"{path} changed meanwhile, so it is not written", hint="Run it again, so that the change is kept."
            )

    backup = None
    try:
        unchanged()
        if before is not None:
            backup = _copy(path, before)
        write_atomically(path, _encoded(text), just_before=unchanged)
    except BaseException as error:
        if backup is not None:
            with contextlib.suppress(OSError):
                backup.unlink()
        if not isinstance(error, OSError):
            raise
        raise TopoAdvisorError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="Run this as a user who may write there, or write to another file and copy it.",
        ) from None
    return backup


def _copy(path: Path, before: str) -> Path:
    try:
        return keep_copy(path, _encoded(before))
    except OSError as error:
        raise TopoAdvisorError(
            f"{path} is not written, because what it holds cannot be kept beside it: {error.strerror or error}",
            hint="A copy is made in the same folder. Make that possible, or write to another file and copy it.",
        ) from None


_HUNK: Final = re.compile(r"@@ -([0-9]+)(,[0-9]+)? \+([0-9]+)(,[0-9]+)? @@")
_CONTEXT: Final = 3


def difference(before: str | None, after: str, path: Path) -> str:
    """A unified diff from the file as it is to what it would become; empty when nothing changes.

    Bytes that are no text are shown as `\\xff`.
    """
    name = str(path)
    old, new = lines_of(before or ""), lines_of(after)
    # What is the same at both ends is left out: `difflib` takes its time over many equal lines.
    head = _same(old, new)
    tail = _same(old[head:][::-1], new[head:][::-1])
    start, end = max(head - _CONTEXT, 0), max(tail - _CONTEXT, 0)
    lines = difflib.unified_diff(
        old[start : len(old) - end],
        new[start : len(new) - end],
        "/dev/null" if before is None else name,
        name,
        n=_CONTEXT,
    )
    whole = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    shown = "".join(_moved(line, start) if line.startswith("@@ ") else line for line in whole)
    return shown.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _same(one: list[str], other: list[str]) -> int:
    """How many lines at the beginning are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _moved(header: str, by: int) -> str:
    """The header of a hunk whose lines stand `by` lines further down."""
    return _HUNK.sub(lambda at: f"@@ -{int(at[1]) + by}{at[2] or ''} +{int(at[3]) + by}{at[4] or ''} @@", header)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
