"""The world that collectors touch, passed in: a filesystem root, processes, the environment and the clock."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol

from topoadvisor.numbers import spelled
from topoadvisor.snapshot import CallError

_FETCH_S = 0.5
_MAX_LINKS = 40
"""Symbolic links followed for one path before it counts as a loop, as in Linux."""
_NORMAL_ABSENCE = {errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP, errno.ELOOP}
"""What sysfs answers where an attribute does not apply (EINVAL: the speed of an interface that is down)."""


@dataclass(frozen=True)
class Completed:
    """How a process ended. `code` is None when it was killed at its deadline, negative when a signal ended it."""

    code: int | None
    out: bytes
    err: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace")

    @property
    def complaint(self) -> str:
        """The last line that is not empty of stderr, else the first of stdout; empty when it said nothing."""
        errors = [line.strip() for line in self.err.decode(errors="replace").splitlines() if line.strip()]
        output = [line.strip() for line in self.text.splitlines() if line.strip()]
        return (errors[-1:] or output[:1] or [""])[0]


class Job(Protocol):
    """A process that was started and whose result is wanted later."""

    def finish(self, deadline_s: float) -> Completed:
        """Wait until it ends, at most until `deadline_s` seconds after its start; then kill it."""
        ...

    def stop(self) -> None:
        """Kill it if it still runs; harmless otherwise."""
        ...


class Process:
    """A child in a session of its own, so that Ctrl-C reaches us and we end it."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self._started = time.monotonic()
        self._child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
        )

    def finish(self, deadline_s: float) -> Completed:
        # Even past the deadline: what a process that has ended said must still be fetched.
        left = max(_FETCH_S, deadline_s - (time.monotonic() - self._started))
        try:
            out, err = self._child.communicate(timeout=left)
            code: int | None = self._child.returncode
        except subprocess.TimeoutExpired as expired:
            out, err, code = expired.stdout or b"", expired.stderr or b"", None
            self.stop()
        return Completed(code=code, out=out, err=err, seconds=time.monotonic() - self._started)

    def stop(self) -> None:
        if self._child.poll() is not None:
            return
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, signal.SIGKILL)
        # A process stuck inside the driver cannot be killed; it is left behind rather than waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=0.5)


@dataclass(frozen=True)
class World:
    """Everything outside the program that a collector may touch."""

    root: Path
    environ: Mapping[str, str]
    start: Callable[[Sequence[str]], Job]
    """Start a program. Raises OSError."""
    start_nvml: Callable[[], Job]
    """Start the process that asks NVML and prints `nvml.Piece` lines. Raises OSError."""
    which: Callable[[str], str | None]
    now: Callable[[], datetime]
    clock: Callable[[], float]
    machine: str
    """The kernel's machine name, `x86_64`."""
    home: str | None
    """Home directory of this user in the password database."""
    search_path: tuple[str, ...]
    """Python's module search path."""
    elsewhere: bool
    """The root is not this process's own: its environment and password database say nothing about it."""

    @classmethod
    def real(cls, root: Path = Path("/")) -> World:
        """The world as it is."""
        environ = dict(os.environ)
        in_english = {**environ, "LC_ALL": "C"}
        path = os.pathsep.join([environ.get("PATH", os.defpath), "/usr/bin", "/usr/lib/wsl/lib"])
        # -P keeps the current directory, which may hold any `json.py`, out of the worker's path unless ours has it.
        worker_path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        return cls(
            root=root,
            environ=environ,
            start=lambda argv: Process(argv, in_english),
            start_nvml=lambda: Process(
                [sys.executable, "-P", "-m", "topoadvisor.collect.nvml"], {**environ, "PYTHONPATH": worker_path}
            ),
            which=lambda program: shutil.which(program, path=path),
            now=lambda: datetime.now(UTC),
            clock=time.monotonic,
            machine=os.uname().machine,
            home=_passwd_home(),
            search_path=tuple(entry for entry in sys.path if entry),
            elsewhere=os.path.realpath(root) != "/",
        )


def _passwd_home() -> str | None:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def printable(text: str) -> str:
    """Text with what is not UTF-8 (environment, file names) replaced, so that it can be written as JSON."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass
class Files:
    """Reads below one root. Symbolic links, absolute ones too, are resolved inside it; nothing leads out.

    A missing file is None. A file that is there and cannot be read is None too and stands in `errors`.
    """

    root: Path
    errors: list[CallError] = field(default_factory=list)
    _base: str = ""
    _folders: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._base = os.path.realpath(self.root).rstrip("/")

    def inside(self, path: str) -> str | None:
        """The path with all links resolved, as seen from the root; None for a loop of links. It need not exist."""
        head, _, tail = path.rstrip("/").rpartition("/")
        if not tail:
            return "/"
        if head not in self._folders:
            self._folders[head] = self._resolve(head)
        folder = self._folders[head]
        if folder is None or tail in (".", ".."):
            return self._resolve(path)
        candidate = f"{folder.rstrip('/')}/{tail}"
        return self._resolve(candidate) if self._link(candidate) is not None else candidate

    def _resolve(self, path: str) -> str | None:
        pending = path.split("/")[::-1]
        done: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del done[-1:]
                continue
            target = self._link("/" + "/".join([*done, part]))
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                return None
            if target.startswith("/"):
                done.clear()
            pending.extend(target.split("/")[::-1])
        return "/" + "/".join(done)

    def _link(self, inside: str) -> str | None:
        try:
            return os.readlink(self._base + inside)  # noqa: PTH115
        except OSError:
            return None

    def outside(self, path: str) -> str | None:
        """The same place as a path of this process; None for a loop of links."""
        inside = self.inside(path)
        return None if inside is None else self._base + inside or "/"

    def exists(self, path: str) -> bool:
        """Whether anything, a directory or a device too, is there."""
        outside = self.outside(path)
        return outside is not None and os.path.lexists(outside)

    def names(self, path: str) -> list[str] | None:
        """Names in a directory, sorted; None when there is no such directory."""
        outside = self.outside(path)
        if outside is None:
            return None
        try:
            return sorted(map(printable, os.listdir(outside)))  # noqa: PTH208
        except OSError as error:
            self._note("list", path, error)
            return None

    def open(self, path: str) -> BinaryIO | None:
        """A regular file for reading bytes, never blocking on a pipe or a device."""
        outside = self.outside(path)
        if outside is None:
            return None
        try:
            handle = os.open(outside, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._note("open", path, error)
            return None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            self.errors.append(CallError(call="open", subject=printable(path), error="not a regular file"))
            return None
        return os.fdopen(handle, "rb", buffering=0)

    def data(self, path: str, limit: int = 1 << 16) -> bytes | None:
        """At most `limit` bytes of a file; more is noted as an error and cut."""
        stream = self.open(path)
        if stream is None:
            return None
        content = bytearray()
        with stream:
            try:
                while len(content) <= limit and (part := stream.read(limit + 1 - len(content))):
                    content += part
            except OSError as error:
                self._note("read", path, error)
                return None
        if len(content) > limit:
            self.errors.append(CallError(call="read", subject=printable(path), error=f"longer than {limit} bytes"))
        return bytes(content[:limit])

    def text(self, path: str, limit: int = 1 << 16) -> str | None:
        """A small text file without the white space around it; copies of sysfs may end in zero bytes."""
        data = self.data(path, limit)
        return None if data is None else data.strip(b"\0 \t\n\v\f\r").decode(errors="replace")

    def number(self, path: str) -> int | None:
        """A file that holds one integer, decimal or `0x…`; None when it holds something else."""
        return spelled(self.text(path, 64))

    def target_name(self, path: str) -> str | None:
        """Last part of what a symbolic link points to; None when it is no link."""
        folder = self.inside(path.rpartition("/")[0])
        target = self._link(f"{folder}/{path.rpartition('/')[2]}") if folder is not None else None
        return printable(target.rstrip("/").rpartition("/")[2]) if target else None

    def matching(self, pattern: str) -> list[str]:
        """Existing paths that match a shell pattern, sorted; `*` does not cross a slash."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            if any(sign in part for sign in "*?["):
                found = [
                    f"{base}/{name}" for base in found for name in fnmatch.filter(self.names(base or "/") or [], part)
                ]
            else:
                found = [f"{base}/{part}" for base in found if self.exists(f"{base}/{part}")]
        return found

    def complain(self, call: str, path: str, error: str) -> None:
        """Write down that something read cannot be what it should be."""
        self.errors.append(CallError(call=call, subject=printable(path), error=error))

    def _note(self, call: str, path: str, error: OSError) -> None:
        if error.errno not in _NORMAL_ABSENCE:
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            self.errors.append(CallError(call=call, subject=printable(path), error=name, code=error.errno))

    def complaint(self) -> str | None:
        """One sentence about what could not be read, or None."""
        if not self.errors:
            return None
        first = self.errors[0]
        more = f" and {len(self.errors) - 1} more" if len(self.errors) > 1 else ""
        return f"could not read {first.subject} ({first.error}){more}"
