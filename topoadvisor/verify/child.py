"""Talking to one child process that may hang, crash or print nonsense, and never outlives its deadline."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from topoadvisor.verify.messages import Job, Line

_KEPT_BYTES = 4096
"""Of standard error, the end."""
_LONGEST_LINE = 1 << 20
_AFTER_KILL_SECONDS = 2.0


@dataclass(frozen=True)
class End:
    """How a child ended."""

    how: Literal["finished", "timeout", "crashed"]
    detail: str
    """Exit or signal and the last line it complained with; empty when it finished."""


Converse = Callable[[Job, float, Callable[[Line], None]], End]
"""(job, deadline in seconds, what to do with each answer) → how it ended. The deadline starts anew with each answer."""


def command() -> list[str]:
    """The child that measures. -P keeps the current directory, which may hold any `json.py`, out of its path."""
    return [sys.executable, "-P", "-m", "topoadvisor.verify.copies"]


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Our environment, with our module path, and CUDA's devices in bus order as everywhere else here."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**own, "PYTHONPATH": path, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def converse_with(argv: Sequence[str], environ: Mapping[str, str]) -> Converse:
    """A `Converse` that starts `argv` for each job."""

    def converse(job: Job, deadline_s: float, hear: Callable[[Line], None]) -> End:
        return _converse(argv, environ, job, deadline_s, hear)

    return converse


def _converse(
    argv: Sequence[str], environ: Mapping[str, str], job: Job, deadline_s: float, hear: Callable[[Line], None]
) -> End:
    child = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,
    )
    try:
        return _listen(child, msgspec.json.encode(job), deadline_s, hear)
    finally:
        # Also on Ctrl-C: the child has a session of its own, so nothing else ends it or what it started.
        _kill(child)


def _listen(child: subprocess.Popen[bytes], job: bytes, deadline_s: float, hear: Callable[[Line], None]) -> End:
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(job)
        child.stdin.close()
    pending, complaint, nonsense = b"", b"", b""
    until = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stderr, selectors.EVENT_READ)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                return End("timeout", f"no answer for {deadline_s:g} s")
            for key, _ in selector.select(left):
                part = os.read(key.fd, 1 << 16)
                if not part:
                    selector.unregister(key.fileobj)
                elif key.fileobj is child.stderr:
                    complaint = (complaint + part)[-_KEPT_BYTES:]
                else:
                    *lines, pending = (pending + part).split(b"\n")
                    if len(pending) > _LONGEST_LINE:
                        pending, nonsense = b"", pending[:80]
                    for text in lines:
                        try:
                            answer = msgspec.json.decode(text, type=Line)
                        except (msgspec.DecodeError, UnicodeDecodeError):
                            nonsense = text[:80] or nonsense
                            continue
                        hear(answer)
                        until = time.monotonic() + deadline_s
    try:
        code = child.wait(max(until - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        return End("timeout", "it closed its output and did not end")
    if code == 0 and not nonsense:
        return End("finished", "")
    return End("crashed", _in_words(code, complaint, nonsense))


def _in_words(code: int, complaint: bytes, nonsense: bytes) -> str:
    if code < 0:
        try:
            how = f"ended by {signal.Signals(-code).name}"
        except ValueError:
            how = f"ended by signal {-code}"
    else:
        how = f"exit code {code}"
    said = [line.strip() for line in complaint.decode(errors="replace").splitlines() if line.strip()]
    if said:
        return f"{how}: {said[-1][:300]}"
    return f"{how}, after saying {nonsense.decode(errors='replace')!r}" if nonsense else how


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    # A process stuck inside the driver cannot be killed; it is left behind rather than waited for.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_AFTER_KILL_SECONDS)
    for stream in (child.stdout, child.stderr):
        if stream:
            stream.close()
