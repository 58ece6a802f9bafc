"""Files that ship with topoadvisor, and writing files so that none is ever lost half-written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(kind: str) -> Path:
    """The folder `rules` or `fixtures`, in a checkout or in an installed wheel."""
    installed = _PACKAGE / "_data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write `data` to `path` in one step: readers see the old file or the new one, never a part.

    A symbolic link is followed, and the mode of a file that was there is kept. A device or a pipe is written to, never
    replaced. Raises OSError.
    """
    encoded = data.encode() if isinstance(data, str) else data
    if path.exists() and not path.is_file():
        # Before links are followed: /dev/stdout leads to names that cannot be opened.
        path.write_bytes(encoded)
        return
    path = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(encoded)
            stream.flush()
            os.fsync(stream.fileno())
        mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask()
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
