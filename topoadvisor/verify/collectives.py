"""NCCL's own collectives on the live machine: bus bandwidth by size, values checked, and what its log says it used."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from topoadvisor.errors import InputError, NothingDetermined, TopoAdvisorError
from topoadvisor.ingest.nccl_log_summary import Communicator, Summary
from topoadvisor.joblog import verdict
from topoadvisor.joblog.document import Finding
from topoadvisor.measurements import variables
from topoadvisor.measurements.judge import Verdict
from topoadvisor.measurements.model import COLLECTIVES, Measurement
from topoadvisor.snapshot import Assumption, Gpu, Snapshot
from topoadvisor.verify import child
from topoadvisor.verify.belief import beliefs, logged, remarks
from topoadvisor.verify.group import Group, Interrupted, Progress, Result, Run, begun, group_of
from topoadvisor.verify.rank_messages import Case
from topoadvisor.verify.ready import Ready, ready

DEFAULT_SIZES = (64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20, 1 << 30)


_BROKEN = 0.1
_FAR = 0.3
"""Of what NCCL's model reckons with; the model is within a factor of two of what runs reach."""
_FAR_OVER_NVLINK = 0.7
"""For rings over NVLink and large buffers, where the model is sharper: two H200 reach 91 % of it, eight A100 97 %."""
_LARGE_BYTES = 256 << 20
_IN_RINGS = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True)
class Transport:
    """How one ordered pair of GPUs was connected, and what was expected."""

    a: int
    b: int
    used: str
    """As NCCL prints it: `P2P/CUMEM`, `SHM/direct/direct`, `NET/Socket`."""
    predicted: str | None
    """`P2P`, `SHM`, `NET`; None = not known."""

    @property
    def as_predicted(self) -> bool | None:
        return None if self.predicted is None else self.used.startswith(self.predicted)


@dataclass(frozen=True)
class Expected:
    """What was predicted for the job. Empty or None = not known."""

    transports: dict[tuple[int, int], str | None] = field(default_factory=dict)
    """By pair of GPU indexes, lower first."""
    channels: int | None = None
    orders: list[list[int]] = field(default_factory=list)
    """Rings, GPU indexes in order."""
    rates: dict[str, float] = field(default_factory=dict)
    """Collective → bus bandwidth at the largest size, GB/s, as NCCL's own model reckons."""
    over_nvlink: bool = False
    """The rings take nothing but NVLink."""


@dataclass(frozen=True)
class CollectiveReport:
    """What one run of all collectives brought, and what it means."""

    gpus: list[int]
    """GPU indexes in rank order."""
    run: Run
    expected: Expected
    nccl_library: str
    channels: int | None
    rings: list[tuple[list[int], int]]
    """GPU indexes in ring order, and on how many channels; each order once."""
    transports: list[Transport]
    findings: list[Finding]
    """What the log says is wrong."""
    measurements: list[Measurement]
    notes: list[str]
    date: str

    @property
    def wrong(self) -> list[Result]:
        return [result for result in self.run.results if result.wrong]

    @property
    def verdict(self) -> Verdict:
        """Unknown: Ctrl-C came before the end, or NCCL's log could not be read."""
        if self.wrong or self.run.failure or any(finding.severity == "error" for finding in self.findings):
            return "fail"
        if any(result.busbw < _BROKEN * rate for result, rate in self.slow):
            return "fail"
        if self.run.interrupted:
            return "unknown"
        surprises = (
            any(each.as_predicted is False for each in self.transports),
            same_rings(self) is False,
            self.channels is not None and self.expected.channels not in (None, self.channels),
        )
        if any(surprises) or self.slow or any(each.severity == "warning" for each in self.findings):
            return "warn"
        return "pass" if self.channels and self.transports else "unknown"

    @property
    def slow(self) -> list[tuple[Result, float]]:
        """Collectives far below what NCCL's own model reckons with at the largest size, and that rate."""
        largest = max((result.case.size_bytes for result in self.run.results), default=0)
        return [
            (result, rate)
            for result in self.run.results
            if result.case.size_bytes == largest
            and (rate := self.expected.rates.get(result.case.collective))
            and result.busbw < self._least(result.case) * rate
        ]

    def _least(self, case: Case) -> float:
        """The share of NCCL's model below which a collective is slow."""
        sharp = self.expected.over_nvlink and case.size_bytes >= _LARGE_BYTES and case.collective in _IN_RINGS
        return _FAR_OVER_NVLINK if sharp else _FAR

    @property
    def exit_code(self) -> int:
        """0 pass or warn, 1 wrong values, a rank that failed, hung or died, an error in the log, 130 interrupted."""
        return 130 if self.run.interrupted else int(self.verdict == "fail")


def find_nccl(snapshot: Snapshot, chosen: str | None = None) -> str:
    """The NCCL library to load: the one asked for, else the first that a program here would meet.

    A name without a folder is for the loader to find. Raises NothingDetermined when there is none, InputError when a
    path is no file.
    """
    if chosen:
        if "/" in chosen and not Path(chosen).is_file():
            raise InputError("there is no such file", file=chosen, hint="--nccl takes the path of a libnccl.so.")
        return chosen
    if snapshot.nccl_libraries:
        return snapshot.nccl_libraries[0].path
    major = (snapshot.driver.cuda or "").partition(".")[0]
    raise NothingDetermined(
        "no NCCL library was found on this machine",
        hint=f"pip install nvidia-nccl-cu{major or '13'}, or --nccl PATH names one.",
    )


def ranks_here(
    snapshot: Snapshot,
    environ: Mapping[str, str],
    *,
    nccl: str | None,
    deadline_s: float,
    progress: Progress = lambda done, total, text: None,
) -> tuple[Ready, Group, str]:
    """The GPUs of this machine that can be used, one rank on each, and the NCCL library that they load.

    `progress` hears of each case that a run is done with. Raises NothingDetermined: fewer than two GPUs, no CuPy, no
    CUDA, no NCCL; InputError when the library asked for is no file.
    """
    own = child.environment(environ)
    here = ready(snapshot, converse=child.converse_with(child.command(), own), deadline_s=deadline_s, least=2)
    library = find_nccl(snapshot, nccl)
    addresses = [gpu.address or "" for gpu in here.gpus]
    ranks = group_of(addresses, library, own, argv=child.rank_command(), deadline_s=deadline_s, progress=progress)
    return here, ranks, library


def check(
    snapshot: Snapshot,
    gpus: Sequence[Gpu],
    group: Group,
    *,
    cases: Sequence[Case],
    library: str,
    expect: Callable[[str, int], Expected],
    measured: Sequence[Measurement] = (),
    notes: Sequence[str],
    date: str,
) -> CollectiveReport:
    """Run the cases once, with NCCL's log.

    `expect` is asked with the version of NCCL that ran and the largest size in bytes; `measured` are peer copies of the
    same machine, to hold what NCCL believes and chose against. Raises KeyboardInterrupt when Ctrl-C came before the
    first result, NothingDetermined when the ranks could not even begin.
    """
    try:
        run = begun(group(cases, {}, True))
    except Interrupted as stopped:
        run = stopped.run
        if not run.results:
            raise
        notes = [*notes, "Interrupted: what was measured until then is shown."]
    findings = verdict.judge(run.log, snapshot, "this machine").findings if run.log else []
    communicator = _largest(run.log)
    indexes = [gpu.index for gpu in gpus]
    by_address = {gpu.address: gpu.index for gpu in gpus}
    gpu_of = {
        rank.rank: by_address.get(rank.address or "", indexes[rank.rank] if rank.rank < len(indexes) else rank.rank)
        for rank in (communicator.ranks if communicator else ())
    }
    largest = max(case.size_bytes for case in cases)
    wanted = expect(run.began.nccl, largest) if run.began else Expected()
    transports = _transports(communicator, gpu_of, wanted.transports)
    unread = {"channels": communicator and communicator.channels, "rings": communicator and communicator.rings}
    missing = [name for name, found in {"transports": transports, **unread}.items() if not found]
    if run.results and missing:
        notes = [*notes, f"NCCL's log does not say all: {' and '.join(missing)} are not known."]
    made = {
        "subject": ",".join(f"gpu:{index}" for index in indexes),
        "driver": snapshot.driver.version,
        "date": date,
        "variables": variables.recorded(snapshot),
    }
    measurements = [_measurement(result, run, made) for result in run.results]
    if run.failure:
        measurements.append(_failed(run, cases, made))
    return CollectiveReport(
        gpus=indexes,
        expected=wanted,
        run=run,
        nccl_library=library,
        channels=communicator.channels if communicator else None,
        rings=_rings(communicator, gpu_of),
        transports=transports,
        findings=[finding for finding in findings if finding.id not in _NOT_OURS],
        measurements=measurements,
        notes=[*notes, *remarks(beliefs(snapshot, measured), lambda: logged(run.log.graphs) if run.log else None)],
        date=date,
    )


_NOT_OURS = {"LOG009", "LOG010"}
"""Bootstrap interfaces and unfinished ranks: one host, and processes that are ended when they are done."""


def _largest(log: Summary | None) -> Communicator | None:
    return max(log.communicators, key=lambda each: each.size, default=None) if log else None


def _rings(communicator: Communicator | None, gpu_of: dict[int, int]) -> list[tuple[list[int], int]]:
    if communicator is None:
        return []
    return [([gpu_of.get(rank, rank) for rank in ring.order], len(ring.channels)) for ring in communicator.rings]


def _transports(
    communicator: Communicator | None, gpu_of: dict[int, int], predicted: dict[tuple[int, int], str | None]
) -> list[Transport]:
    if communicator is None:
        return []
    found = []
    for each in communicator.connections:
        if each.a in gpu_of and each.b in gpu_of:
            a, b = gpu_of[each.a], gpu_of[each.b]
            found.append(Transport(a, b, each.via, predicted.get((min(a, b), max(a, b)))))
    return found


def broken_case(run: Run, cases: Sequence[Case]) -> Case:
    """The first case that brought nothing; all before it were complete."""
    return cases[min(len(run.results), len(cases) - 1)]


def _failed(run: Run, cases: Sequence[Case], made: Mapping[str, Any]) -> Measurement:
    case = broken_case(run, cases)
    return Measurement(
        kind=case.collective,
        size_bytes=case.size_bytes,
        outcome="timeout" if run.hung else "crashed",
        note=run.failure,
        **made,
    )


def _measurement(result: Result, run: Run, made: Mapping[str, Any]) -> Measurement:
    seconds = sorted(result.seconds)
    middle = median(seconds)
    return Measurement(
        kind=result.case.collective,
        gbps=round(result.busbw, 2),
        latency_us=round(middle * 1e6, 1),
        spread=round((seconds[-1] - seconds[0]) / middle, 4),
        size_bytes=result.case.size_bytes,
        repeats=len(seconds),
        data_ok=None if result.wrong is None else result.wrong == 0,
        outcome="wrong-data" if result.wrong else "ok",
        note=f"{result.wrong} elements are wrong" if result.wrong else None,
        method=f"NCCL {run.began.nccl}, one process per GPU, float32, busbw" if run.began else None,
        **made,
    )


def expected(snapshot: Snapshot, gpus: Sequence[int], version: str, size_bytes: int) -> Expected:
    """What `topoadvisor predict` and `cost` say of a job over these GPU indexes; nothing where they cannot tell."""
    from topoadvisor.ingest import assume
    from topoadvisor.predict.predict import predict

    try:
        supplied = assume.apply(snapshot, [Assumption(fact="nccl.version", value=version)])
        prediction = predict(supplied, gpus)
    except TopoAdvisorError:
        return Expected()
    transports = {
        (_number(pair.a), _number(pair.b)): None if pair.transport == "unknown" else pair.transport
        for pair in prediction.pairs
    }
    group = prediction.groups[0] if len(prediction.groups) == 1 else None
    orders = group.rings.orders if group and group.rings else []
    return Expected(
        {(min(pair), max(pair)): transport for pair, transport in transports.items()},
        group.channels if group else None,
        [[_number(label) for label in order] for order in orders],
        dict(_rates(supplied, gpus, size_bytes)),
        bool(group and group.rings and group.rings.path == "NVL"),
    )


def _rates(snapshot: Snapshot, gpus: Sequence[int], size_bytes: int) -> Iterator[tuple[str, float]]:
    from topoadvisor.estimates import cost

    for collective in COLLECTIVES:
        with contextlib.suppress(TopoAdvisorError):
            yield collective, cost(snapshot, collective, [size_bytes], gpus).rows[0].busbw_gbps


def _number(label: str) -> int:
    return int(label.removeprefix("GPU"))


def same_rings(report: CollectiveReport) -> bool | None:
    """Whether NCCL runs the rings that were predicted; None when either side is not known."""
    if not report.rings or not report.expected.orders:
        return None
    return {_turned(order) for order, _ in report.rings} == {_turned(order) for order in report.expected.orders}


def _turned(order: Sequence[int]) -> tuple[int, ...]:
    """A ring has no beginning: it is spelled from its lowest GPU on."""
    start = order.index(min(order))
    return (*order[start:], *order[:start])


def ways_used(report: CollectiveReport) -> Counter[str]:
    """Transport → ordered pairs."""
    return Counter(each.used for each in report.transports)
