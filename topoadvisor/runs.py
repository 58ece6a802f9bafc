"""What a saved measurement is about, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from topoadvisor.evidence import Measurement
from topoadvisor.numbers import whole

OUTCOMES: Final = ("ok", "skipped", "error", "crashed", "timeout", "wrong-data")
"""Mildest first."""
FAILED: Final = OUTCOMES[2:]

HOST: Final = "host"

PEER, PEER_BOTH = "peer-copy", "peer-copy-both"
"""Between two GPUs, one way and both ways at once; peer access is on where CUDA allows it."""
LATENCY: Final = "peer-latency"
STAGED, STAGED_BOTH = "staged-copy", "staged-copy-both"
"""The same pairs with peer access off."""
READ, READ_BOTH = "peer-read", "peer-read-both"
"""Copy engines of the target instead of those of the source."""
KERNEL, KERNEL_BOTH = "kernel-copy", "kernel-copy-both"
TO_HOST, HOST_BOTH = "host-copy", "host-copy-both"
"""Between a GPU and pinned host memory; the subject says which way."""
RING: Final = "ring-copy"
"""All hops of a ring at once."""
SWITCH: Final = "switch-copy"
"""All pairs of the GPUs of one switch at once."""
FIRST: Final = (PEER, PEER_BOTH, TO_HOST, HOST_BOTH)
"""What every link is measured by; the others are second opinions."""


COPIES: Final = (
    *(PEER, PEER_BOTH, LATENCY, STAGED, STAGED_BOTH, READ, READ_BOTH, KERNEL, KERNEL_BOTH),
    *(TO_HOST, HOST_BOTH, RING, SWITCH),
)


def ended(run: Measurement) -> str:
    """One of `OUTCOMES`; data that arrived changed is no success, whatever else was noted."""
    return "wrong-data" if run.data_ok is False else run.outcome


def failed(run: Measurement) -> bool:
    """It was made, and hung, died, or brought wrong bytes."""
    return ended(run) in FAILED


def worst(runs: Iterable[Measurement]) -> str | None:
    """How the worst of them ended; None without any."""
    return max(map(ended, runs), key=OUTCOMES.index, default=None)


def ends(run: Measurement) -> tuple[str, ...]:
    """Whom it ran between, in the order of its subject: `("gpu:0", "gpu:1")`, `("host", "gpu:0")`, a ring's GPUs."""
    return tuple(run.subject.replace("<>", ">").replace(",", ">").split(">"))


def arrow(subject: str) -> str:
    """A subject as people write it: `GPU0 → GPU1`, `GPU0 ↔ the host`, `GPU0, GPU1, GPU2`."""
    spelled = subject.replace("gpu:", "GPU").replace(HOST, "the host").replace(",", ", ")
    return spelled.replace("<>", " ↔ ").replace(">", " → ")


def pair(run: Measurement) -> tuple[int, int] | None:
    """The two GPU indexes of a copy between two GPUs, lower first; None for anything else."""
    numbers = [_index(end) for end in ends(run)]
    if ">" not in run.subject or len(numbers) != 2:
        return None
    a, b = numbers
    return None if a is None or b is None else (min(a, b), max(a, b))


def host_gpu(run: Measurement) -> int | None:
    """The index of the GPU of a copy from or to host memory; None for anything else."""
    found = [end for end in ends(run) if end != HOST]
    return _index(found[0]) if len(found) == 1 and HOST in ends(run) else None


def at_once(run: Measurement) -> bool:
    """Several copies at the same time: all hops of a ring, or all pairs of a switch."""
    return run.kind == SWITCH or (">" in run.subject and len(ends(run)) > 2)


def collective(run: Measurement) -> bool:
    """One of NCCL's own operations over several GPUs."""
    return ">" not in run.subject and run.kind != SWITCH


def through_host(run: Measurement) -> bool:
    """A copy between two GPUs that went through host memory: peer access was off, or the driver does not grant it."""
    return run.kind.startswith("staged") or run.peer_access is False


def _index(end: str) -> int | None:
    return whole(end.removeprefix("gpu:")) if end.startswith("gpu:") else None
