"""One rank of a group that runs collectives: `python -m topoadvisor.verify.ranks`, a `RankJob` on standard input.

A case is timed as nccl-tests do: after a barrier a fixed number of operations goes into the stream between two events.
Values are compared after the last batch of each case.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from topoadvisor.verify import values
from topoadvisor.verify.libnccl import Communicator, Library, NcclError
from topoadvisor.verify.messages import version_text
from topoadvisor.verify.rank_messages import Began, Case, Ended, RankJob, RankLine, Timed

_WARM_UP: Final = 3
"""Operations; the first of each kind connects."""
_WAKE_BYTES: Final = 16 << 20
_WAKE_OPERATIONS: Final = 64
"""All-reduces before the first case, so that clocks are up."""
_POLL_SECONDS: Final = 0.005


class _Rank:
    """A rank with its two buffers and its communicator."""

    _communicator: Communicator

    def __init__(self, cupy: Any, job: RankJob) -> None:
        runtime = cupy.cuda.runtime
        runtime.setDevice(int(runtime.deviceGetByPCIBusId(job.address)))
        self._cupy, self._runtime, self._job = cupy, runtime, job
        self.stream = cupy.cuda.Stream(non_blocking=True)
        largest = max(max(case.size_bytes for case in job.cases), _WAKE_BYTES)
        self.source, self.target = cupy.cuda.Memory(largest), cupy.cuda.Memory(largest)
        self._small = cupy.cuda.Memory(256)
        runtime.memset(self.source.ptr, 0, largest)
        self._values = values.make(cupy)
        runtime.deviceSynchronize()
        self._free = int(runtime.memGetInfo()[0])

    def join(self, library: Library) -> None:
        """Returns when all ranks have."""
        job = self._job
        self._communicator = library.communicator(job.ranks, _unique_id(job, library), job.rank)

    def wake(self) -> None:
        for _ in range(_WAKE_OPERATIONS):
            self._run(Case(collective="all_reduce", size_bytes=_WAKE_BYTES, operations=1, batches=1))
        self.stream.synchronize()

    def used_bytes(self) -> int:
        return max(self._free - int(self._runtime.memGetInfo()[0]), 0)

    def _count(self, case: Case) -> int:
        """Elements that the call takes: of each rank's part, or of the whole."""
        parts = 1 if case.collective in ("all_reduce", "sendrecv") else self._job.ranks
        return max(case.size_bytes // 4 // parts, 1)

    def _run(self, case: Case) -> None:
        call = getattr(self._communicator, case.collective)
        call(self.source.ptr, self.target.ptr, self._count(case), self.stream.ptr)

    def time(self, number: int, case: Case) -> Timed:
        ranks = self._job.ranks
        count = self._count(case)
        whole = count * (1 if case.collective in ("all_reduce", "sendrecv") else ranks)
        self._values.fill(self.source.ptr, whole, self._job.seed + number, self._job.rank)
        self._runtime.memset(self.target.ptr, 0xFF, whole * 4)
        self._runtime.deviceSynchronize()
        for _ in range(_WARM_UP):
            self._run(case)
        seconds = []
        for _ in range(case.batches):
            self._communicator.all_reduce(self._small.ptr, self._small.ptr, 1, self.stream.ptr)
            start, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
            start.record(self.stream)
            for _ in range(case.operations):
                self._run(case)
            end.record(self.stream)
            end.synchronize()
            seconds.append(float(self._cupy.cuda.get_elapsed_time(start, end)) / 1e3 / case.operations)
        return Timed(case=number, seconds=seconds, wrong=self._wrong(case, count, self._job.seed + number))

    def _wrong(self, case: Case, count: int, seed: int) -> int | None:
        rank, ranks, target = self._job.rank, self._job.ranks, self.target.ptr
        wrong = self._values.wrong
        if case.collective == "all_reduce":
            return wrong(target, count, seed, 0, ranks, 0)
        if case.collective == "reduce_scatter":
            return wrong(target, count, seed, 0, ranks, rank * count)
        if case.collective == "sendrecv":
            return wrong(target, count, seed, (rank - 1) % ranks, 1, 0)
        offset = rank * count if case.collective == "alltoall" else 0
        parts = [wrong(target + 4 * count * peer, count, seed, peer, 1, offset) for peer in range(ranks)]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


def _unique_id(job: RankJob, library: Library) -> bytes:
    """Rank 0 makes it; the others wait for its file. Who waits in vain is ended by the parent's deadline."""
    path = Path(job.id_file)
    if job.rank == 0:
        unique = library.unique_id()
        part = path.with_suffix(".part")
        part.write_bytes(unique)
        part.rename(path)
        return unique
    while not path.exists():
        time.sleep(_POLL_SECONDS)
    return path.read_bytes()


def _work(cupy: Any, rank: _Rank, job: RankJob, library: Library, say: Callable[[RankLine], None]) -> None:
    rank.join(library)
    runtime = cupy.cuda.runtime
    processors = runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, runtime.getDevice())
    began = Began(
        nccl=library.version(),
        runtime=version_text(runtime.runtimeGetVersion()),
        cupy=cupy.__version__,
        processors=processors,
    )
    say(RankLine(began=began))
    rank.wake()
    for number, case in enumerate(job.cases):
        say(RankLine(timed=rank.time(number, case)))
    say(RankLine(ended=Ended(used_bytes=rank.used_bytes())))


def main(stdin: BinaryIO, answers: BinaryIO) -> int:
    """Do the job that stands on `stdin`, one JSON line per answer."""
    import cupy

    def say(line: RankLine) -> None:
        answers.write(msgspec.json.encode(line) + b"\n")
        answers.flush()

    job = msgspec.json.decode(stdin.read(), type=RankJob)
    errors = (NcclError, cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)
    try:
        library, rank = Library(job.nccl_library), _Rank(cupy, job)
    except errors as error:
        say(RankLine(unable=str(error)))
        return 1
    try:
        _work(cupy, rank, job, library, say)
    except errors as error:
        say(RankLine(failed=str(error)))
        return 1
    return 0


if __name__ == "__main__":
    # What libraries print to standard output must not mix with the answers.
    private = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    code = main(sys.stdin.buffer, private)
    private.flush()
    # Ending without NCCL's and CUDA's farewell: a rank whose peers are gone would wait for them.
    os._exit(code)
