"""Whether this machine can be measured: its GPUs as CUDA shows them, and who else uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topoadvisor.errors import NothingDetermined
from topoadvisor.snapshot import Gpu, Snapshot
from topoadvisor.verify.child import Converse
from topoadvisor.verify.messages import Job, Line, Look


@dataclass(frozen=True)
class Ready:
    """The GPUs to measure, in index order, each with a PCI address."""

    gpus: list[Gpu]
    look: Look
    notes: list[str]
    """GPUs left out, others at work: one sentence each."""


def ready(snapshot: Snapshot, *, converse: Converse, deadline_s: float, least: int) -> Ready:
    """Ask CUDA which GPUs of the snapshot can be used.

    Raises NothingDetermined when they are less than `least`: no GPU, one, MIG, no CuPy, no CUDA.
    """
    gpus, notes = _measurable(snapshot, least)
    look = _look(snapshot, converse, deadline_s)
    shown = [gpu for gpu in gpus if gpu.address in look.addresses]
    hidden = [gpu for gpu in gpus if gpu.address not in look.addresses]
    why = "CUDA does not show it (CUDA_VISIBLE_DEVICES, or the container's devices)"
    if len(shown) < least:
        few = "no GPU" if least == 1 else "fewer than two GPUs"
        raise NothingDetermined(f"{few} can be used: {_names(hidden)} left out, {why}")
    if hidden:
        notes.append(f"{_names(hidden)} left out: {why}.")
    return Ready(shown, look, notes + _busy_notes(shown, look))


def _measurable(snapshot: Snapshot, least: int) -> tuple[list[Gpu], list[str]]:
    if not snapshot.gpus:
        raise NothingDetermined(
            "no NVIDIA GPU was found, so there is nothing to measure",
            hint="This measures the machine it runs on; `topoadvisor scan FILE` reads a topology from elsewhere.",
        )
    if len(snapshot.gpus) < least:
        raise NothingDetermined("there is one GPU, and this takes two that talk to each other")
    mig = [gpu for gpu in snapshot.gpus if gpu.mig]
    unplaced = [gpu for gpu in snapshot.gpus if not gpu.mig and gpu.address is None]
    left = [gpu for gpu in snapshot.gpus if not gpu.mig and gpu.address is not None]
    if len(left) < least:
        if mig:
            raise NothingDetermined(f"MIG is on for {_names(mig)}, and MIG instances cannot copy to each other")
        raise NothingDetermined(
            f"the PCI address of {_names(unplaced)} was not read, so CUDA cannot be told which it is"
        )
    notes = [f"{_names(mig)} left out: MIG is on."] if mig else []
    if unplaced:
        notes.append(f"{_names(unplaced)} left out: the PCI address was not read.")
    return left, notes


def _look(snapshot: Snapshot, converse: Converse, deadline_s: float) -> Look:
    found: list[Look] = []

    def hear(line: Line) -> bool:
        if line.look is None or found:
            return False
        found.append(line.look)
        return True

    end = converse(Job(task="look"), deadline_s, hear)
    if not found:
        raise NothingDetermined(
            f"CUDA gave no answer ({end.detail or 'it said nothing'})",
            hint="Does `nvidia-smi` answer? A larger --deadline helps where GPUs are slow to start.",
        )
    if found[0].missing == "cupy":
        major = (snapshot.driver.cuda or "").partition(".")[0]
        packages = f"pip install cupy-cuda{major}x" if major else "pip install cupy-cuda13x (or cupy-cuda12x)"
        raise NothingDetermined("CuPy is not installed, and everything is measured with it", hint=packages)
    if found[0].missing:
        raise NothingDetermined(found[0].missing)
    return found[0]


def _busy_notes(gpus: Sequence[Gpu], look: Look) -> list[str]:
    labels = {gpu.address: f"GPU{gpu.index}" for gpu in gpus}
    notes = []
    for busy in look.busy:
        if busy.address in labels:
            who = f"{busy.processes} other process{'es' * (busy.processes != 1)}" if busy.processes else "somebody else"
            held = f", {busy.used_bytes / (1 << 30):.0f} GiB of its memory held" if busy.used_bytes else ""
            notes.append(
                f"{labels[busy.address]} is in use by {who} ({busy.utilization} % busy{held}): its numbers may be low."
            )
    return notes


def _names(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"GPU{gpu.index}" for gpu in gpus)
