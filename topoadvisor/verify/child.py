"""Talking to child processes that may hang, crash or print nonsense, and never outlive their deadline."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from topoadvisor.verify.messages import Job, Line, plain

_KEPT_BYTES = 4096
"""Of standard error, the end."""
_LONGEST_LINE = 1 << 20
_MOST_ANSWERS = 50_000
"""Two for each step of a machine with 72 GPUs are fewer."""
_AFTER_KILL_SECONDS = 2.0
"""For all of them together."""
_AFTER_LOSS_SECONDS = 3.0
"""What the others may take to notice that one is gone, and to say why."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class End:
    """How a child ended."""

    how: Literal["finished", "timeout", "crashed"]
    detail: str
    """Exit or signal and the last line it complained with; empty when it finished."""


Converse = Callable[[Job, float, Callable[[Line], bool]], End]
"""(job, deadline in seconds, what to do with each answer) → how it ended.

The deadline starts anew with each answer that was waited for, which the last says of it; as no job has more of them
than two for each step, the whole has an end, too."""


def command() -> list[str]:
    """The child that measures. -P keeps the current directory, which may hold any `json.py`, out of its path."""
    return [sys.executable, "-P", "-m", "topoadvisor.verify.copies"]


def rank_command() -> list[str]:
    """The child that runs one rank of a collective."""
    return [sys.executable, "-P", "-m", "topoadvisor.verify.ranks"]


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Our environment, with our module path, and CUDA's devices in bus order as everywhere else here."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**own, "PYTHONPATH": path, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def converse_with(argv: Sequence[str], environ: Mapping[str, str]) -> Converse:
    """A `Converse` that starts `argv` for each job."""

    def converse(job: Job, deadline_s: float, hear: Callable[[Line], bool]) -> End:
        start = Start(argv, environ, msgspec.json.encode(job))
        return together([start], deadline_s, Line, lambda number, line: hear(line))[0]

    return converse


@dataclass(frozen=True)
class Start:
    """How to start one child, and what it reads on standard input."""

    argv: Sequence[str]
    environ: Mapping[str, str]
    job: bytes


def together(
    starts: Sequence[Start], deadline_s: float, kind: type[Answer], hear: Callable[[int, Answer], bool]
) -> list[End]:
    """Run children at once; how each ended, in the order given. `hear` gets the number of the child that answers.

    The deadline starts anew with each answer of any of them that was waited for, by what `hear` says. When one ends
    badly the others, which may wait for it, have a few seconds more. Texts in answers are fit to be printed and saved.
    """
    children: list[_Child] = []
    try:
        children += (_Child(start) for start in starts)
        _listen(children, deadline_s, msgspec.json.Decoder(kind), hear)
        return [child.end or End("crashed", "ended because another process did") for child in children]
    finally:
        # Also on Ctrl-C: each child has a session of its own, so nothing else ends it or what it started.
        try:
            _end(children)
        except KeyboardInterrupt:
            _end(children)
            raise


class _Child:
    """A process with what it said so far."""

    def __init__(self, start: Start) -> None:
        # A file, and no pipe: one that does not read its job must not hold us up.
        with tempfile.TemporaryFile() as job:
            job.write(start.job)
            job.seek(0)
            self.process = subprocess.Popen(
                start.argv,
                stdin=job,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(start.environ),
                start_new_session=True,
            )
        self.pending, self.complaint, self.nonsense = b"", b"", b""
        self.open = 2
        self.answers = 0
        self.end: End | None = None

    def lines(self, part: bytes) -> list[bytes]:
        *lines, self.pending = (self.pending + part).split(b"\n")
        if len(self.pending) > _LONGEST_LINE:
            self.pending, self.nonsense = b"", self.pending[:80]
        return lines

    def finish(self, seconds: float) -> None:
        """Both of its streams are closed."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end = End("timeout", "it closed its output and did not end")
            return
        good = code == 0 and not self.nonsense
        self.end = End("finished", "") if good else End("crashed", _in_words(code, self.complaint, self.nonsense))


def _end(children: Sequence[_Child]) -> None:
    for child in children:
        with contextlib.suppress(OSError):
            os.killpg(child.process.pid, signal.SIGKILL)
    until = time.monotonic() + _AFTER_KILL_SECONDS
    for child in children:
        # A process stuck inside the driver cannot be killed; it is left behind rather than waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(until - time.monotonic(), 0.01))
        for stream in (child.process.stdout, child.process.stderr):
            if stream:
                stream.close()


def _listen(
    children: Sequence[_Child],
    deadline_s: float,
    decoder: msgspec.json.Decoder[Answer],
    hear: Callable[[int, Answer], bool],
) -> None:
    until = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        for number, child in enumerate(children):
            for stream in (child.process.stdout, child.process.stderr):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, number)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                _out_of_time(children, deadline_s)
                return
            for key, _ in selector.select(left):
                child = children[key.data]
                part = os.read(key.fd, 1 << 16)
                if not part:
                    selector.unregister(key.fileobj)
                    child.open -= 1
                    if not child.open:
                        child.finish(max(until - time.monotonic(), 0.1))
                        if child.end and child.end.how != "finished":
                            until = min(until, time.monotonic() + _AFTER_LOSS_SECONDS)
                elif key.fileobj is child.process.stderr:
                    child.complaint = (child.complaint + part)[-_KEPT_BYTES:]
                else:
                    for text in child.lines(part):
                        try:
                            answer: Answer = plain(decoder.decode(text))
                        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                            child.nonsense = child.nonsense or text[:80]
                            continue
                        waited_for = hear(key.data, answer)
                        child.answers += 1
                        if child.answers > _MOST_ANSWERS:
                            child.end = End("crashed", f"it did not stop after {_MOST_ANSWERS} answers")
                            return
                        if waited_for and all(each.end is None or each.end.how == "finished" for each in children):
                            until = time.monotonic() + deadline_s


def _out_of_time(children: Sequence[_Child], deadline_s: float) -> None:
    if any(child.end and child.end.how != "finished" for child in children):
        return
    for child in children:
        child.end = child.end or End("timeout", f"no answer for {deadline_s:g} s")


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
        return f"{how}: {plain(said[-1])}"
    return f"{how}, after saying {nonsense.decode(errors='replace')!r}" if nonsense else how
