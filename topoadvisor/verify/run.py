"""Measuring the links of this machine, and a report that survives hangs, crashes and Ctrl-C."""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from topoadvisor import cpu_lists
from topoadvisor import snapshot as snapshots
from topoadvisor.errors import InputError
from topoadvisor.ingest import sound
from topoadvisor.measurements import expectation, proven, runs, variables
from topoadvisor.measurements.judge import Judgement, judge, subjects
from topoadvisor.measurements.judge_hosts import HostJudgement, judge_hosts
from topoadvisor.measurements.judge_patterns import PatternJudgement, judge_patterns
from topoadvisor.measurements.model import Measurement, Trial
from topoadvisor.snapshot import Gpu, Snapshot
from topoadvisor.topology.model import Topology
from topoadvisor.verify import selection
from topoadvisor.verify.belief import Belief, beliefs, planned, remarks
from topoadvisor.verify.child import Converse, End
from topoadvisor.verify.messages import FASTEST, Job, Line, Measured
from topoadvisor.verify.ready import ready
from topoadvisor.verify.selection import Options, Planned

Progress = Callable[[int, int, str], None]
"""(steps done, steps in all, what is measured now)."""
_MOST_LOST_ALIKE = 2
"""Steps between the same ends that hang or die; then the others between them are left out."""
_MOST_LOST_IN_A_ROW = 4
"""Children in a row that bring nothing; then the rest of the group is given up."""
_MOST_NAMED = 4
"""Copies that a note names."""


@dataclass(frozen=True)
class Report:
    """What was measured and what it means."""

    pairs: list[Judgement]
    hosts: list[HostJudgement]
    patterns: list[PatternJudgement]
    beliefs: list[Belief]
    measurements: list[Measurement]
    notes: list[str]
    options: Options
    method: str
    driver: str | None
    date: str
    interrupted: bool

    @property
    def exit_code(self) -> int:
        """0 all is well, 1 something failed or could not be measured, 3 nothing could be, 130 interrupted."""
        if self.interrupted:
            return 130
        judged: list[Judgement | HostJudgement | PatternJudgement] = [*self.pairs, *self.hosts, *self.patterns]
        if any(each.verdict == "fail" for each in judged):
            return 1
        if not any(measurement.outcome == "ok" for measurement in self.measurements):
            return 3
        # A second opinion may be missing; a link that nobody could measure is no link that works.
        return int(any(each.outcome == "skipped" and each.kind in runs.FIRST for each in self.measurements))


def verify(
    snapshot: Snapshot,
    topology: Topology,
    options: Options,
    *,
    converse: Converse,
    date: str,
    rings: Sequence[Sequence[int]] = (),
    progress: Progress = lambda done, total, text: None,
) -> Report:
    """Measure the GPUs of the live machine that `snapshot` and its `topology` describe.

    `rings` are the planned ring orders whose edges are also measured all at once. Raises NothingDetermined when nothing
    can be measured: no GPU, MIG, no CuPy, no CUDA.
    """
    progress(0, 0, "asking CUDA")
    here = ready(snapshot, converse=converse, deadline_s=options.deadline_s, least=1)
    gpus, notes = here.gpus, list(here.notes)
    if len(gpus) == 1:
        notes.append("There is one GPU to measure, so only its way to the host was.")
    groups = selection.plan(gpus, topology, options, rings)
    total = sum(map(len, groups))
    cpus = {gpu.address or "": sorted(cpu_lists.parse(gpu.cpu_affinity or "") or ()) for gpu in gpus}
    results: list[tuple[Planned, Measured | End]] = []
    interrupted = False

    try:
        for group in groups:
            _measure(group, cpus, options, converse, results, lambda name: progress(len(results), total, name))
    except KeyboardInterrupt:
        interrupted = True
        notes.append("Interrupted: what was measured until then is shown.")

    method = f"CuPy {here.look.cupy}, CUDA runtime {here.look.runtime}"
    driver = snapshot.driver.version
    measurements = [
        _measurement(planned, result, method=method, driver=driver, date=date) for planned, result in results
    ]
    notes += _notes(gpus, results)
    reached = {measurement.subject for measurement in measurements}
    facts = [
        expectation.pair_facts(snapshot, topology, a, b)
        for a, b in itertools.combinations(gpus, 2)
        if reached.intersection(subjects(a.index, b.index))
    ]
    pairs = judge(facts, measurements)
    doubted = {(each.pair.a, each.pair.b) for each in pairs if each.doubt}
    believed = beliefs(snapshot, [each for each in measurements if runs.pair(each) not in doubted])
    notes += remarks(believed, lambda: None if interrupted else planned(snapshot, [gpu.index for gpu in gpus]))
    return Report(
        pairs=pairs,
        hosts=judge_hosts([expectation.host_facts(gpu) for gpu in gpus], measurements),
        patterns=judge_patterns(measurements, pairs),
        beliefs=believed,
        measurements=measurements,
        notes=notes,
        options=options,
        method=method,
        driver=driver,
        date=date,
        interrupted=interrupted,
    )


def _notes(gpus: Sequence[Gpu], results: Sequence[tuple[Planned, Measured | End]]) -> list[str]:
    notes = []
    measured = [result for _, result in results if isinstance(result, Measured)]
    if any(result.checked == "host" for result in measured):
        notes.append(
            "CuPy finds no NVRTC here: data was compared on the host, and the start of each copy counts in its time."
        )
    remarks: dict[str, list[str]] = {}
    for step, result in results:
        if isinstance(result, Measured) and result.outcome == "ok" and result.note:
            remarks.setdefault(result.note, []).append(runs.in_words(step.subject))
    for note, copies in remarks.items():
        named = ", ".join(dict.fromkeys(copies[:_MOST_NAMED])) + ", …" * (len(copies) > _MOST_NAMED)
        notes.append(f"{named}: {note}.")
    unplaced = [gpu for gpu in gpus if not cpu_lists.parse(gpu.cpu_affinity or "") or (gpu.numa_node or 0) < 0]
    if unplaced and any(planned.kind == runs.TO_HOST for planned, _ in results):
        named = ", ".join(f"GPU{gpu.index}" for gpu in unplaced)
        notes.append(f"No NUMA node is known for {named}: host buffers lie where the system put them.")
    return notes


def _measure(
    group: Sequence[Planned],
    cpus: dict[str, list[int]],
    options: Options,
    converse: Converse,
    results: list[tuple[Planned, Measured | End]],
    tell: Callable[[str], None],
) -> None:
    """Append one result per step. A step that hangs or dies ends its child, and is left out of the next one."""
    remaining = {planned.step.name: planned for planned in group}
    lost: Counter[frozenset[str]] = Counter()
    lost_in_a_row = 0
    while remaining:
        begun: list[str] = []
        done: list[str] = []

        def hear(line: Line, begun: list[str] = begun, done: list[str] = done) -> bool:
            if line.begin in remaining and line.begin not in begun:
                begun.append(line.begin)
                tell(line.begin)
                return True
            if line.measured and line.measured.name in remaining and _can_be(line.measured, remaining):
                done.append(line.measured.name)
                results.append((remaining.pop(line.measured.name), line.measured))
                return True
            return False

        steps = [planned.step for planned in remaining.values()]
        end = converse(Job(task="measure", steps=steps, cpus=cpus), options.deadline_s, hear)
        unfinished = [name for name in begun if name in remaining]
        if not remaining or (done and not unfinished):
            continue
        planned = remaining.pop((unfinished or list(remaining))[0])
        results.append((planned, end))
        lost[_ends(planned)] += 1
        lost_in_a_row = 0 if done else lost_in_a_row + 1
        for other in list(remaining.values()):
            # A path that does not come back would cost the deadline once more for every step that is left.
            if lost[_ends(other)] >= _MOST_LOST_ALIKE or lost_in_a_row >= _MOST_LOST_IN_A_ROW:
                note = "left out, because copies before it hung or died"
                skipped = Measured(name=other.step.name, outcome="skipped", note=note)
                results.append((remaining.pop(other.step.name), skipped))


def _can_be(measured: Measured, steps: Mapping[str, Planned]) -> bool:
    """Whether an answer has what its outcome and its step call for; one that has not counts as none."""
    planned = steps[measured.name]
    step = planned.step
    if measured.flow_seconds and len(measured.flow_seconds) != len(step.flows):
        return False
    if measured.outcome == "ok" and not (measured.seconds and 0 < measured.size_bytes <= step.size_bytes):
        return False
    if any(measured.size_bytes >= FASTEST * seconds for seconds in measured.seconds):
        return False
    try:
        # What could not be read back out of a snapshot must not get into one.
        kept = _measurement(planned, measured, method="", driver=None, date=None)
        msgspec.convert(msgspec.to_builtins(kept), Measurement)
    except (ValueError, msgspec.ValidationError):
        return False
    return True


def _ends(planned: Planned) -> frozenset[str]:
    return frozenset(end for flow in planned.step.flows for end in (flow.source, flow.target))


def _measurement(
    planned: Planned, result: Measured | End, *, method: str, driver: str | None, date: str | None
) -> Measurement:
    base = Measurement(
        kind=planned.kind, subject=planned.subject, method=f"{_how(planned)}, {method}", driver=driver, date=date
    )
    if isinstance(result, End):
        return msgspec.structs.replace(
            base,
            outcome="timeout" if result.how == "timeout" else "crashed",
            note=result.detail or "it ended without an answer",
        )
    measured = msgspec.structs.replace(
        base,
        size_bytes=result.size_bytes or None,
        repeats=len(result.seconds) or None,
        peer_access=result.peer_access,
        data_ok={"ok": True, "wrong-data": False}.get(result.outcome),
        outcome=result.outcome,
        note=result.note,
    )
    if not result.seconds:
        return measured
    seconds = statistics.median(result.seconds)
    measured = msgspec.structs.replace(measured, spread=round((max(result.seconds) - min(result.seconds)) / seconds, 4))
    if planned.kind == runs.LATENCY:
        return msgspec.structs.replace(measured, latency_us=round(seconds * 1e6, 2))
    flows = len(planned.step.flows)
    slowest = max(result.flow_seconds, default=seconds)
    return msgspec.structs.replace(
        measured,
        gbps=round(flows * result.size_bytes / seconds / 1e9, 2),
        slowest_gbps=round(result.size_bytes / slowest / 1e9, 2) if flows > 1 else None,
    )


def _how(planned: Planned) -> str:
    if planned.step.engine == "kernel":
        return "kernel of the source GPU"
    call = "cudaMemcpyAsync" if planned.kind in (runs.TO_HOST, runs.HOST_BOTH) else "cudaMemcpyPeerAsync"
    return f"{call} (copy engines{' of the target' if planned.step.issued_by == 'target' else ''})"


def base_for(path: Path, live: Snapshot) -> Snapshot:
    """The snapshot that measurements are to be saved into: the one in the file when it is of this machine.

    Without a file: the live one. Raises InputError when the file is no snapshot, or one of another machine, or
    cannot be written there.
    """
    if str(path) == "-":
        raise InputError("--save takes a file: standard output has the report", hint="For example --save node.json.")
    if not path.parent.is_dir():
        raise InputError("the folder for this file does not exist", file=str(path))
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(
            f"nothing can be written beside this file: {error.strerror or error}", file=str(path)
        ) from None
    if not path.exists():
        return live
    if not path.is_file():
        raise InputError("this is no file", file=str(path), hint="--save takes the name of a snapshot, or a new name.")
    saved = sound.check(snapshots.decode(path.read_bytes(), file=str(path)), file=str(path))
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


def save(
    path: Path,
    live: Snapshot,
    *,
    measurements: Sequence[Measurement] = (),
    trials: Sequence[Trial] = (),
) -> list[str]:
    """Add what was measured to the file as it is now: others may have saved into it meanwhile.

    Gives what is worth saying about it, in sentences. Raises InputError as `base_for` does.
    """
    base = base_for(path, live)
    snapshots.save(with_trials(with_measurements(base, measurements), trials), path)
    before, now = base.driver.version, live.driver.version
    told = [f"Saved into {path}."]
    if before and now and before != now:
        told.append(
            f"It was captured with driver {before}, and this is {now}: capture it anew and measure into that, or scan "
            "takes what was measured now for another driver's, and advises no trial."
        )
    then = variables.recorded(live)
    if then is not None and (how := variables.changed(then, base)) is not None and (measurements or trials):
        told.append(
            f"By the variables that it holds NCCL was measured {how}: capture it anew and measure into that, or scan "
            "counts no collective and no trial of now."
        )
    if failed := next(filter(None, (proven.failures(trial, base) for trial in trials if trial.won)), None):
        told.append(f"What won is not advised while measurements in it fail ({failed}): repair that and verify anew.")
    return told


def with_measurements(snapshot: Snapshot, measurements: Sequence[Measurement]) -> Snapshot:
    """The snapshot with these measurements in place of earlier ones of the same, and of other drivers and methods.

    What was left out this time takes nothing away.
    """
    kept = runs.not_replaced(snapshot.measurements, [each for each in measurements if each.outcome != "skipped"])
    added = runs.not_replaced(measurements, kept)
    return msgspec.structs.replace(snapshot, measurements=[*kept, *added])


def with_trials(snapshot: Snapshot, trials: Sequence[Trial]) -> Snapshot:
    """The snapshot with these trials in place of earlier ones of the same settings, GPUs and other variables.

    A trial that decided nothing, because it was interrupted, takes nothing away.
    """
    known = [_tried(trial) for trial in snapshot.trials]
    new = [trial for trial in trials if _decided(trial) or _tried(trial) not in known]
    replaced = [_tried(trial) for trial in new]
    kept = [trial for trial in snapshot.trials if _tried(trial) not in replaced]
    return msgspec.structs.replace(snapshot, trials=[*kept, *(_with_sizes(each, snapshot.trials) for each in new)])


def _tried(trial: Trial) -> tuple[object, ...]:
    """What it says something about: settings and GPUs, under these variables."""
    return trial.settings, sorted(trial.gpus), trial.variables


def _with_sizes(trial: Trial, before: Sequence[Trial]) -> Trial:
    """The trial with what earlier ones of the same, with this NCCL and driver, decided at sizes that it has not."""
    same = (*_tried(trial), trial.nccl, trial.driver, trial.failure)
    old = next((each for each in before if (*_tried(each), each.nccl, each.driver, each.failure) == same), None)
    if old is None or trial.failure:
        return trial
    mine = {(size.collective, size.size_bytes) for size in trial.sizes}
    more = [size for size in old.sizes if size.verdict != "unknown" and (size.collective, size.size_bytes) not in mine]
    if not more:
        return trial
    sizes = sorted([*trial.sizes, *more], key=lambda size: (size.collective, size.size_bytes))
    rounds = min(trial.rounds, old.rounds)
    return msgspec.structs.replace(trial, sizes=sizes, rounds=rounds, keep=trial.keep or old.keep)


def _decided(trial: Trial) -> bool:
    return not trial.sizes or any(size.verdict != "unknown" for size in trial.sizes)
