"""What `nvidia-smi` prints, kept as text, and its matrix read by the same reader as a pasted one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from topoadvisor.collect.world import Job, World
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.snapshot import Matrix, RawText, Source

_COMMANDS: Final = (
    ("topo", "-m"),
    ("topo", "-p2p", "r"),
    ("topo", "-p2p", "w"),
    ("topo", "-p2p", "n"),
    ("topo", "-p2p", "a"),
    ("topo", "-p2p", "p"),
    ("nvlink", "-s"),
)
_MATRIX: Final = "nvidia-smi topo -m"
_LONGEST_TEXT: Final = 1 << 20
"""Bytes kept of one command; 72 GPUs print less than a tenth of it."""


@dataclass(frozen=True)
class Reading:
    sources: list[Source]
    raw: list[RawText]
    matrices: list[Matrix]


def start(world: World) -> dict[str, Job]:
    """Start every command at once: a driver that is slow to wake is then waited for once. Empty = no such program."""
    program = world.which("nvidia-smi")
    jobs: dict[str, Job] = {}
    if program is not None:
        for arguments in _COMMANDS:
            try:
                jobs[" ".join(("nvidia-smi", *arguments))] = world.start([program, *arguments])
            except OSError:
                break
    return jobs


def finish(jobs: dict[str, Job], deadline_s: float) -> Reading:
    """Wait for the commands of `start`. Each is a source of its own."""
    sources: list[Source] = []
    raw: list[RawText] = []
    matrices: list[Matrix] = []
    if not jobs:
        absent = Source(name=_MATRIX, status="absent", reason="the program nvidia-smi is not here, or cannot be run")
        return Reading([absent], raw, matrices)
    for name, job in jobs.items():
        done = job.finish(deadline_s)
        status: Any = "ok"
        reason = None
        if done.code is None:
            status, reason = "failed", f"nvidia-smi gave no answer within {deadline_s:g} s"
        elif done.code:
            status, reason = "failed", f"nvidia-smi ended with code {done.code}: {done.complaint or 'no message'}"
        else:
            text = done.out[:_LONGEST_TEXT].decode(errors="replace")
            raw.append(RawText(source=name, text=text))
            if name == _MATRIX:
                matrices, reason = _parse(text)
                status = "partial" if reason else "ok"
        sources.append(Source(name=name, status=status, reason=reason, seconds=round(done.seconds, 4)))
    return Reading(sources, raw, matrices)


def _parse(text: str) -> tuple[list[Matrix], str | None]:
    """The matrices in a text, and why there are none when it cannot be understood."""
    from topoadvisor.ingest import topo_matrix

    try:
        return topo_matrix.parse(text, file=_MATRIX), None
    except TopoAdvisorError as error:
        return [], f"the matrix could not be understood: {error.message}"
    except Exception as error:  # the text is kept, and a better reader can have it later
        return [], f"the matrix could not be understood: {type(error).__name__}: {error}"
