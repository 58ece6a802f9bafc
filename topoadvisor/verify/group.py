"""Running collectives once: fresh processes, one per GPU, under a deadline, and what they measured."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.ingest import nccl_log
from topoadvisor.ingest.nccl_log_summary import Summary
from topoadvisor.measurements import runs
from topoadvisor.measurements.model import Collective
from topoadvisor.verify import child
from topoadvisor.verify.child import End, Start
from topoadvisor.verify.messages import FASTEST
from topoadvisor.verify.rank_messages import Began, Case, RankJob, RankLine, Timed

Progress = Callable[[int, int, str], None]
"""(cases done, cases in all, what was run)."""

Settings = Mapping[str, str | None]
"""Variables of the environment to set; None = to unset."""

_TARGET_BYTES: Final = 1 << 30
"""What one batch moves, roughly: a few milliseconds over NVLink, a tenth of a second through host memory."""
_WIDEST: Final = 1e6
"""Times of one operation that lie farther apart are none."""
_LOG_SUBSYSTEMS: Final = "INIT,ENV,GRAPH"


@dataclass(frozen=True)
class Result:
    """One case over all ranks."""

    case: Case
    seconds: list[float]
    """Of one operation on the slowest rank, one value per batch."""
    wrong: int | None
    """Elements with wrong values on all ranks; None = not compared."""

    bus_bytes: float
    """What counts as moved over the bus in one operation."""

    @property
    def busbw(self) -> float:
        """GB/s of the median batch."""
        return self.bus_bytes / median(self.seconds) / 1e9


@dataclass(frozen=True)
class Run:
    """What one start of all ranks brought."""

    results: list[Result]
    began: Began | None
    used_bytes: int | None
    """GPU memory that NCCL took, the most of any rank."""
    failure: str | None
    """Why it broke off; None when all ended well."""
    unable: bool = False
    """It could not even begin, for want of a library or of memory, which says nothing of NCCL on this machine."""
    hung: bool = False
    log: Summary | None = None
    interrupted: bool = False


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while the ranks ran."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        """What they had measured until then."""


Group = Callable[[Sequence[Case], Settings, bool], Run]
"""(cases, settings, whether to read NCCL's log) → what came out, of fresh processes each time.

Ctrl-C raises Interrupted."""


def begun(run: Run) -> Run:
    """The run itself. Raises NothingDetermined when it could not even begin."""
    if run.unable:
        raise NothingDetermined(
            f"the collectives could not begin: {run.failure}",
            hint="--nccl PATH names another library; `nvidia-smi` shows who holds the memory of the GPUs.",
        )
    return run


def cases(collectives: Sequence[Collective], sizes: Sequence[int], ranks: int, *, batches: int = 5) -> list[Case]:
    """Every collective at every size; sizes are rounded down to whole elements for each rank."""
    whole = dict.fromkeys(max(size // (4 * ranks), 1) * 4 * ranks for size in sizes)
    return [
        Case(
            collective=collective,
            size_bytes=size,
            operations=min(max(_TARGET_BYTES // size, 4), 50),
            batches=batches,
        )
        for collective in collectives
        for size in whole
    ]


def group_of(
    addresses: Sequence[str],
    library: str,
    environ: Mapping[str, str],
    *,
    argv: Sequence[str],
    deadline_s: float,
    progress: Progress = lambda done, total, text: None,
) -> Group:
    """A `Group` over these GPUs, by PCI address in rank order. `progress` hears of each case that is done."""

    def run(cases: Sequence[Case], settings: Settings, log: bool) -> Run:
        # A rank that cannot be killed may still write there.
        with tempfile.TemporaryDirectory(prefix="topoadvisor-", ignore_cleanup_errors=True) as folder:
            own = _environment(environ, settings, Path(folder) if log else None)
            seed = secrets.randbits(48)
            jobs = [
                RankJob(
                    rank=rank,
                    ranks=len(addresses),
                    address=address,
                    nccl_library=library,
                    id_file=f"{folder}/id",
                    cases=list(cases),
                    seed=seed,
                )
                for rank, address in enumerate(addresses)
            ]
            heard: list[list[RankLine]] = [[] for _ in jobs]

            def hear(rank: int, line: RankLine) -> bool:
                if line.timed and not _can_be(line.timed, cases):
                    line = RankLine(failed=f"rank {rank} answered what was not asked")
                if _about(line) in map(_about, heard[rank]):
                    return False
                heard[rank].append(line)
                if rank == 0 and line.timed:
                    progress(line.timed.case + 1, len(cases), cases[line.timed.case].collective)
                return True

            try:
                ends = child.together(
                    [Start(argv, own, msgspec.json.encode(job)) for job in jobs],
                    deadline_s,
                    RankLine,
                    hear,
                )
            except KeyboardInterrupt:
                partial = _gathered(cases, heard, [], _read_log(Path(folder)) if log else None)
                raise Interrupted(replace(partial, failure=None, interrupted=True)) from None
            return _gathered(cases, heard, ends, _read_log(Path(folder)) if log else None)

    return run


def _about(line: RankLine) -> tuple[object, ...]:
    """What a rank says once."""
    number = line.timed and line.timed.case
    return number, *(value is not None for value in (line.began, line.ended, line.failed, line.unable))


def _can_be(timed: Timed, cases: Sequence[Case]) -> bool:
    if not 0 <= timed.case < len(cases):
        return False
    case = cases[timed.case]
    if len(timed.seconds) != case.batches or max(timed.seconds) > _WIDEST * min(timed.seconds):
        return False
    return case.size_bytes < FASTEST * min(timed.seconds)


def _environment(environ: Mapping[str, str], settings: Settings, logs: Path | None) -> dict[str, str]:
    own = {name: value for name, value in environ.items() if name not in settings}
    own |= {name: value for name, value in settings.items() if value is not None}
    if logs is None:
        # Warnings reach our standard error, where the last one explains a failure.
        own.pop("NCCL_DEBUG_FILE", None)
        return {**own, "NCCL_DEBUG": "WARN"}
    return {
        **own,
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": _LOG_SUBSYSTEMS,
        "NCCL_DEBUG_FILE": str(logs / "rank.%p.log"),
    }


def _read_log(folder: Path) -> Summary | None:
    """None when NCCL wrote nothing that can be read: a rank may have died before."""
    files = sorted(folder.glob("rank.*.log"))
    with contextlib.ExitStack() as opened, contextlib.suppress(InputError):
        return nccl_log.read([(file.name, opened.enter_context(file.open("rb"))) for file in files])
    return None


def _gathered(
    cases: Sequence[Case], heard: Sequence[Sequence[RankLine]], ends: Sequence[End], log: Summary | None
) -> Run:
    timed = [{line.timed.case: line.timed for line in lines if line.timed} for lines in heard]
    results = []
    for number, case in enumerate(cases):
        parts = [each[number] for each in timed if number in each]
        if len(parts) < len(heard):
            break
        wrong = [part.wrong for part in parts]
        results.append(
            Result(
                case,
                [max(batch) for batch in zip(*(part.seconds for part in parts), strict=True)],
                None if None in wrong else sum(count or 0 for count in wrong),
                runs.bus_factor(case.collective, len(heard)) * case.size_bytes,
            )
        )
    lines = [line for each in heard for line in each]
    used = [line.ended.used_bytes for line in lines if line.ended]
    unable = next((line.unable for line in lines if line.unable), None)
    said = unable or next((line.failed for line in lines if line.failed), None)
    bad = [(rank, end) for rank, end in enumerate(ends) if end.how != "finished"]
    failure = said or (f"rank {bad[0][0]}: {bad[0][1].detail}" if bad else None)
    if failure is None and len(results) < len(cases):
        failure = "the ranks ended without measuring everything"
    return Run(
        results=results,
        began=next((line.began for line in lines if line.began), None),
        used_bytes=max(used, default=None),
        failure=failure,
        unable=unable is not None,
        hung=any(end.how == "timeout" for _, end in bad),
        log=log,
    )
