"""Measuring every pair of GPUs of this machine, and a report that survives hangs, crashes and Ctrl-C."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from topoadvisor import snapshot as snapshots
from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.hardware import catalogue
from topoadvisor.snapshot import Gpu, Measurement, Snapshot
from topoadvisor.topology.links import nvlink_count
from topoadvisor.topology.model import Topology
from topoadvisor.verify.child import Converse, End
from topoadvisor.verify.judge import Judgement, PairFacts, judge, subjects
from topoadvisor.verify.messages import STEPS, Copied, Job, Line, Look, Step

UNI, BOTH = "peer-copy", "peer-copy-both"
"""Kinds of the measurements made here."""

_KIND: dict[Step, str] = {"forward": UNI, "backward": UNI, "both": BOTH}


@dataclass(frozen=True)
class Options:
    size_bytes: int
    repeats: int
    deadline_s: float
    """For one step: one direction of one pair, or both at once; the first of a pair includes starting CUDA."""


@dataclass(frozen=True)
class Report:
    """What was measured and what it means."""

    pairs: list[Judgement]
    measurements: list[Measurement]
    notes: list[str]
    options: Options
    method: str
    driver: str | None
    date: str
    interrupted: bool

    @property
    def exit_code(self) -> int:
        """0 nothing failed, 1 a pair failed, 3 no pair could be measured, 130 interrupted."""
        if self.interrupted:
            return 130
        if any(pair.verdict == "fail" for pair in self.pairs):
            return 1
        return 0 if any(measurement.outcome == "ok" for measurement in self.measurements) else 3


def verify(
    snapshot: Snapshot,
    topology: Topology,
    options: Options,
    *,
    converse: Converse,
    date: str,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Copy between all pairs of GPUs of the live machine that `snapshot` and its `topology` describe.

    Raises NothingDetermined when no pair can be measured: no GPU or one, MIG, no CuPy, no CUDA.
    """
    gpus, notes = _measurable(snapshot)
    progress("asking CUDA")
    look = _look(snapshot, converse, options.deadline_s)
    gpus, hidden = _visible(gpus, look)
    notes += hidden + _busy_notes(gpus, look)

    method = f"cudaMemcpyPeerAsync (copy engines), CuPy {look.cupy}, CUDA runtime {look.runtime}"
    pairs = list(itertools.combinations(gpus, 2))
    steps: list[tuple[Gpu, Gpu, Copied | _Lost]] = []
    interrupted = False
    try:
        for number, (a, b) in enumerate(pairs, 1):
            progress(f"pair {number} of {len(pairs)}: GPU{a.index} and GPU{b.index}")
            _measure_pair(a, b, options, converse, steps)
    except KeyboardInterrupt:
        interrupted = True
        notes.append("Interrupted: what was measured until then is shown.")

    measurements = [
        _measurement(a, b, step, method=method, driver=snapshot.driver.version, date=date) for a, b, step in steps
    ]
    if any(isinstance(step, Copied) and step.checked == "host" for _, _, step in steps):
        notes.append("The data was compared on the host, because CuPy finds no NVRTC here.")
    reached = {measurement.subject for measurement in measurements}
    facts = [pair_facts(snapshot, topology, a, b) for a, b in pairs if reached.intersection(subjects(a.index, b.index))]
    return Report(
        pairs=judge(facts, measurements),
        measurements=measurements,
        notes=notes,
        options=options,
        method=method,
        driver=snapshot.driver.version,
        date=date,
        interrupted=interrupted,
    )


def _measurable(snapshot: Snapshot) -> tuple[list[Gpu], list[str]]:
    if not snapshot.gpus:
        raise NothingDetermined(
            "no NVIDIA GPU was found, so there is nothing to measure",
            hint="verify measures the machine it runs on; `topoadvisor scan FILE` reads a topology from elsewhere.",
        )
    if len(snapshot.gpus) == 1:
        raise NothingDetermined("there is one GPU, and peer copies need two")
    mig = [gpu for gpu in snapshot.gpus if gpu.mig]
    unplaced = [gpu for gpu in snapshot.gpus if not gpu.mig and gpu.address is None]
    left = [gpu for gpu in snapshot.gpus if not gpu.mig and gpu.address is not None]
    if len(left) < 2:
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

    def hear(line: Line) -> None:
        if line.look:
            found.append(line.look)

    end = converse(Job(task="look"), deadline_s, hear)
    if not found:
        raise NothingDetermined(
            f"CUDA gave no answer ({end.detail or 'it said nothing'})",
            hint="Does `nvidia-smi` answer? A larger --deadline helps where GPUs are slow to start.",
        )
    if found[0].missing == "cupy":
        major = (snapshot.driver.cuda or "").partition(".")[0]
        packages = f"pip install cupy-cuda{major}x" if major else "pip install cupy-cuda13x (or cupy-cuda12x)"
        raise NothingDetermined("CuPy is not installed, and the copies are made with it", hint=packages)
    if found[0].missing:
        raise NothingDetermined(found[0].missing)
    return found[0]


def _visible(gpus: list[Gpu], look: Look) -> tuple[list[Gpu], list[str]]:
    hidden = [gpu for gpu in gpus if gpu.address not in look.addresses]
    shown = [gpu for gpu in gpus if gpu.address in look.addresses]
    why = "CUDA does not show it (CUDA_VISIBLE_DEVICES, or the container's devices)"
    if len(shown) < 2:
        raise NothingDetermined(f"fewer than two GPUs can be used: {_names(hidden)} left out, {why}")
    return shown, [f"{_names(hidden)} left out: {why}."] if hidden else []


def _busy_notes(gpus: Sequence[Gpu], look: Look) -> list[str]:
    labels = {gpu.address: f"GPU{gpu.index}" for gpu in gpus}
    notes = []
    for busy in look.busy:
        if busy.address in labels:
            who = f"{busy.processes} other process{'es' * (busy.processes != 1)}" if busy.processes else "somebody else"
            notes.append(
                f"{labels[busy.address]} is in use by {who} ({busy.utilization} % busy): its numbers may be low."
            )
    return notes


def _names(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"GPU{gpu.index}" for gpu in gpus)


@dataclass(frozen=True)
class _Lost:
    """A step that gave no result."""

    step: Step
    end: End


def _measure_pair(
    a: Gpu, b: Gpu, options: Options, converse: Converse, steps: list[tuple[Gpu, Gpu, Copied | _Lost]]
) -> None:
    """Append one result per step; a step that hangs or dies is left out of the next child."""
    remaining = list(STEPS)
    while remaining:
        begun: list[Step] = []
        done: list[Step] = []

        def hear(line: Line, begun: list[Step] = begun, done: list[Step] = done) -> None:
            if line.begin:
                begun.append(line.begin)
            if line.copied and line.copied.step in remaining:
                remaining.remove(line.copied.step)
                done.append(line.copied.step)
                steps.append((a, b, line.copied))

        job = Job(
            task="copy",
            first=a.address or "",
            second=b.address or "",
            steps=list(remaining),
            size_bytes=options.size_bytes,
            repeats=options.repeats,
        )
        end = converse(job, options.deadline_s, hear)
        unfinished = [step for step in begun if step in remaining]
        if remaining and (unfinished or not done):
            lost = (unfinished or remaining)[0]
            remaining.remove(lost)
            steps.append((a, b, _Lost(lost, end)))


def _measurement(a: Gpu, b: Gpu, step: Copied | _Lost, *, method: str, driver: str | None, date: str) -> Measurement:
    subject = dict(zip(STEPS, subjects(a.index, b.index), strict=True))[step.step]
    if isinstance(step, _Lost):
        return Measurement(
            kind=_KIND[step.step],
            subject=subject,
            outcome="timeout" if step.end.how == "timeout" else "crashed",
            note=step.end.detail or "it ended without an answer",
            method=method,
            driver=driver,
            date=date,
        )
    median = statistics.median(step.gbps) if step.gbps else None
    return Measurement(
        kind=_KIND[step.step],
        subject=subject,
        gbps=round(median, 2) if median is not None else None,
        spread=round((max(step.gbps) - min(step.gbps)) / median, 4) if median else None,
        size_bytes=step.size_bytes or None,
        repeats=len(step.gbps) or None,
        peer_access=step.peer_access,
        data_ok={"ok": True, "wrong-data": False}.get(step.outcome),
        outcome=step.outcome,
        note=step.note,
        method=method,
        driver=driver,
        date=date,
    )


def pair_facts(snapshot: Snapshot, topology: Topology, a: Gpu, b: Gpu) -> PairFacts:
    """What a pair's link should reach, by its class and the slower of the two GPUs' PCIe links."""
    link_class = topology.pair(f"gpu:{a.index}", f"gpu:{b.index}").link_class
    gen = _lower(a.pcie.max_gen if a.pcie else None, b.pcie.max_gen if b.pcie else None)
    width = _lower(a.pcie.max_width if a.pcie else None, b.pcie.max_width if b.pcie else None)
    cpu = snapshot.host.cpu
    band = None
    if link_class is not None:
        band = catalogue.peer_copy_band(
            link_class,
            model=catalogue.gpu_model(a.name, a.pci_device),
            nvlink_generation=_nvlink_generation(a) if nvlink_count(link_class) else None,
            pcie_gen=gen,
            pcie_width=width,
            cpu=catalogue.cpu_model(cpu.vendor, cpu.family, cpu.model, cpu.architecture) if cpu else None,
        )
    return PairFacts(a.index, b.index, link_class, band, catalogue.staged_copy_range(gen, width))


def _lower(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


def _nvlink_generation(gpu: Gpu) -> str | None:
    return next((link.generation for link in gpu.nvlinks or [] if link.active and link.generation), None)


def base_for(path: Path, live: Snapshot) -> Snapshot:
    """The snapshot that measurements are to be saved into: the one in the file when it is of this machine.

    Without a file: the live one. Raises InputError when the file is no snapshot, or one of another machine, or
    cannot be written there.
    """
    if not path.parent.is_dir():
        raise InputError("the folder for this file does not exist", file=str(path))
    if not path.exists():
        return live
    if not path.is_file():
        raise InputError("this is no file", file=str(path), hint="--save takes the name of a snapshot, or a new name.")
    saved = snapshots.decode(path.read_bytes(), file=str(path))
    same_places = [gpu.address for gpu in saved.gpus] == [gpu.address for gpu in live.gpus]
    # Identical nodes have identical addresses; placeholders in a redacted snapshot cannot tell them apart.
    same_boards = saved.redacted or [gpu.uuid for gpu in saved.gpus] == [gpu.uuid for gpu in live.gpus]
    if not (same_places and same_boards):
        raise InputError(
            "this snapshot shows other GPUs than this machine has",
            file=str(path),
            hint="Give --save a new file name, and the snapshot of this machine is written there.",
        )
    return saved


def with_measurements(snapshot: Snapshot, measurements: Sequence[Measurement]) -> Snapshot:
    """The snapshot with these measurements in place of earlier ones of the same kind and subject."""
    new = {(measurement.kind, measurement.subject) for measurement in measurements}
    kept = [measurement for measurement in snapshot.measurements if (measurement.kind, measurement.subject) not in new]
    return msgspec.structs.replace(snapshot, measurements=[*kept, *measurements])
