"""NCCL's own collectives on the live machine: bus bandwidth by size, values checked, and what its log says it used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from topoadvisor.errors import NothingDetermined
from topoadvisor.ingest.nccl_log_summary import Communicator, Summary
from topoadvisor.joblog import verdict
from topoadvisor.joblog.document import Finding
from topoadvisor.snapshot import Gpu, Measurement, Snapshot
from topoadvisor.verify.belief import beliefs, remarks
from topoadvisor.verify.group import Group, Result, Run
from topoadvisor.verify.rank_messages import Case

DEFAULT_SIZES = (64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20, 1 << 30)


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
class CollectiveReport:
    """What one run of all collectives brought, and what it means."""

    gpus: list[int]
    """GPU indexes in rank order."""
    run: Run
    library: str
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
    def verdict(self) -> Literal["pass", "warn", "fail"]:
        if self.wrong or self.run.failure or any(finding.severity == "error" for finding in self.findings):
            return "fail"
        surprised = any(each.as_predicted is False for each in self.transports)
        return "warn" if surprised or any(each.severity == "warning" for each in self.findings) else "pass"

    @property
    def exit_code(self) -> int:
        """0 pass or warn, 1 wrong values, a failure, or an error in the log; 3 nothing was measured."""
        if not self.run.results and not self.run.hung:
            return 3
        return int(self.verdict == "fail")


def library_of(snapshot: Snapshot, chosen: str | None = None) -> str:
    """The NCCL library to load: the one asked for, else the first that a program here would meet.

    Raises NothingDetermined when there is none.
    """
    if chosen:
        return chosen
    if snapshot.nccl_libraries:
        return snapshot.nccl_libraries[0].path
    major = (snapshot.driver.cuda or "").partition(".")[0]
    raise NothingDetermined(
        "no NCCL library was found on this machine",
        hint=f"pip install nvidia-nccl-cu{major or '13'}, or --nccl PATH names one.",
    )


def check(
    snapshot: Snapshot,
    gpus: Sequence[Gpu],
    group: Group,
    *,
    cases: Sequence[Case],
    library: str,
    predicted: dict[tuple[int, int], str | None],
    measured: Sequence[Measurement] = (),
    notes: Sequence[str],
    date: str,
) -> CollectiveReport:
    """Run the cases once, with NCCL's log.

    `predicted` has the transport by pair of GPU indexes, lower first; `measured` are peer copies of the same machine,
    to hold what NCCL believes and chose against.
    """
    run = group(cases, {}, True)
    findings = verdict.judge(run.log, snapshot, "this machine").findings if run.log else []
    communicator = _largest(run.log)
    indexes = [gpu.index for gpu in gpus]
    by_address = {gpu.address: gpu.index for gpu in gpus}
    gpu_of = {
        rank.rank: by_address.get(rank.address or "", indexes[rank.rank] if rank.rank < len(indexes) else rank.rank)
        for rank in (communicator.ranks if communicator else ())
    }
    return CollectiveReport(
        gpus=indexes,
        run=run,
        library=library,
        channels=communicator.channels if communicator else None,
        rings=_rings(communicator, gpu_of),
        transports=_transports(communicator, gpu_of, predicted),
        findings=[finding for finding in findings if finding.id not in _NOT_OURS],
        measurements=[_measurement(result, run, indexes, snapshot.driver.version, date) for result in run.results],
        notes=[*notes, *remarks(beliefs(snapshot, measured), run.log.graphs if run.log else ())],
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


def _measurement(result: Result, run: Run, gpus: Sequence[int], driver: str | None, date: str) -> Measurement:
    seconds = sorted(result.seconds)
    middle = seconds[len(seconds) // 2]
    return Measurement(
        kind=result.case.collective,
        subject=",".join(f"gpu:{index}" for index in gpus),
        gbps=round(result.busbw, 2),
        latency_us=round(middle * 1e6, 1),
        spread=round((seconds[-1] - seconds[0]) / middle, 4),
        size_bytes=result.case.size_bytes,
        repeats=len(seconds),
        data_ok=None if result.wrong is None else result.wrong == 0,
        outcome="wrong-data" if result.wrong else "ok",
        note=f"{result.wrong} elements are wrong" if result.wrong else None,
        method=f"NCCL {run.began.nccl}, one process per GPU, float32, busbw" if run.began else None,
        driver=driver,
        date=date,
    )


def predicted_transports(snapshot: Snapshot) -> dict[tuple[int, int], str | None]:
    """Pair of GPU indexes, lower first → the transport that NCCL should take with the variables in force."""
    from topoadvisor import advise, ways

    facts = advise.analyse(snapshot).facts
    found = ways.transports(facts, ways.in_force(facts))
    numbered = {
        (int(a.removeprefix("gpu:")), int(b.removeprefix("gpu:"))): transport for (a, b), transport in found.items()
    }
    return {(min(pair), max(pair)): transport for pair, transport in numbered.items()}


def ways_used(report: CollectiveReport) -> Counter[str]:
    """Transport → ordered pairs."""
    return Counter(each.used for each in report.transports)
