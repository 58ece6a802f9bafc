"""Files that ship with topoadvisor, and writing files so that none is ever lost half-written."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(kind: str) -> Path:
    """The folder `rules` or `fixtures`, in a checkout or in an installed wheel."""
    installed = _PACKAGE / "_data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def write_atomically(path: Path, data: str | bytes, *, just_before: Callable[[], None] = lambda: None) -> None:
    """Write `data` to `path` in one step: readers see the old file or the new one, never a part.

    `just_before` is called when all is ready; what it raises leaves the old file in place. A symbolic link is followed;
    mode and, where that is allowed, owner of a file that was there are kept. A device or a pipe is written to, never
    replaced. Raises OSError that names `path`.
    """
    encoded = data.encode() if isinstance(data, str) else data
    try:
        if path.exists() and not path.is_file():
            # Before links are followed: /dev/stdout leads to names that cannot be opened.
            path.write_bytes(encoded)
            return
        _replace(Path(os.path.realpath(path)), encoded, just_before)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _replace(path: Path, data: bytes, just_before: Callable[[], None]) -> None:
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    # A short name of its own: the file's may be as long as names can be.
    handle, name = tempfile.mkstemp(prefix=".topoadvisor.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        _keep(path, temporary)
        just_before()
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _keep(path: Path, temporary: Path) -> None:
    """Give the new file the owner and the mode of the old one."""
    try:
        old = path.stat()
    except FileNotFoundError:
        temporary.chmod(0o666 & ~_umask())
        return
    with contextlib.suppress(PermissionError):
        os.chown(temporary, old.st_uid, old.st_gid)
    temporary.chmod(stat.S_IMODE(old.st_mode))


def keep_copy(path: Path, data: bytes) -> Path:
    """Keep what `path` holds beside it, under a name that nothing has yet, and return that name.

    The name is PATH.topoadvisor.bak, or with .1, .2, … behind it, and with less of PATH when that is too long: earlier
    copies, links and pipes that stand there stay untouched. Mode and, where that is allowed, owner are those of `path`.
    Raises OSError, and leaves no part of a copy behind.
    """
    for number in itertools.count():
        copy = _beside(path, f".topoadvisor.bak{f'.{number}' if number else ''}")
        try:
            handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            _keep(path, copy)
        except BaseException:
            with contextlib.suppress(OSError):
                copy.unlink()
            raise
        return copy
    raise AssertionError


def _beside(path: Path, ending: str) -> Path:
    """`path` with `ending`, cut where a name may not be as long."""
    try:
        longest = os.pathconf(path.parent, "PC_NAME_MAX")
    except (OSError, ValueError):
        longest = 255
    name = path.name
    while len(os.fsencode(name + ending)) > longest and len(name) > 1:
        name = name[:-1]
    return path.with_name(name + ending)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def wide_encoding(sample: bytes) -> str | None:
    """The encoding of a text in UTF-16, with its mark or without, by how it begins; None for every other text."""
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if sample.count(0) * 3 > len(sample):
        low, high = sample[::2], sample[1::2]
        for encoding, zero, other in (("utf-16-le", high, low), ("utf-16-be", low, high)):
            if zero.count(0) * 10 > len(zero) * 9 and other.count(0) * 10 < len(other):
                return encoding
    return None
