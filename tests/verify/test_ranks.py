"""Ranks over an NCCL made of threads and host memory: every collective's values are checked, and wrong ones noticed."""

from __future__ import annotations

import ctypes
import io
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy
import pytest
from fake_cuda import ADDRESSES, FakeCuda, words

from topoadvisor.measurements.model import COLLECTIVES
from topoadvisor.verify import ranks
from topoadvisor.verify.libnccl import Library, NcclError
from topoadvisor.verify.rank_messages import Case, RankJob, RankLine

Spoil = Callable[[str, int, int, int], None]
"""(collective, rank, target buffer, elements there)"""


class FakeNccl:
    """Ranks are threads; an operation ends when all have called it."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=20)
        self.sources: list[int] = [0] * ranks
        self.spoil: Spoil = lambda collective, rank, target, count: None

    def open_nccl(self, path: str) -> FakeLibrary:
        if "missing" in path:
            raise NcclError(f"{path} cannot be loaded: no such file")
        return FakeLibrary(self)


class FakeLibrary:
    def __init__(self, nccl: FakeNccl) -> None:
        self.nccl = nccl

    def version(self) -> str:
        return "2.28.9"

    def unique_id(self) -> bytes:
        return b"unique"

    def communicator(self, ranks: int, unique_id: bytes, rank: int) -> FakeCommunicator:
        assert unique_id == b"unique"
        return FakeCommunicator(self.nccl, ranks, rank)


class FakeCommunicator:
    def __init__(self, nccl: FakeNccl, ranks: int, rank: int) -> None:
        self.nccl, self.ranks, self.rank = nccl, ranks, rank

    def _run(self, name: str, source: int, target: int, parts: Callable[[list[int]], list[numpy.ndarray]]) -> None:
        self.nccl.sources[self.rank] = source
        self.nccl.barrier.wait()
        result = numpy.concatenate(parts(self.nccl.sources))
        self.nccl.barrier.wait()
        words(target, len(result), numpy.float32)[:] = result
        self.nccl.spoil(name, self.rank, target, len(result))
        self.nccl.barrier.wait()

    def _floats(self, pointer: int, count: int, offset: int = 0) -> numpy.ndarray:
        return words(pointer + 4 * offset, count, numpy.float32).copy()

    def all_reduce(self, source: int, target: int, count: int, stream: int) -> None:
        self._run("all_reduce", source, target, lambda s: [sum(self._floats(each, count) for each in s)])

    def all_gather(self, source: int, target: int, count: int, stream: int) -> None:
        self._run("all_gather", source, target, lambda s: [self._floats(each, count) for each in s])

    def reduce_scatter(self, source: int, target: int, count: int, stream: int) -> None:
        offset = self.rank * count
        self._run("reduce_scatter", source, target, lambda s: [sum(self._floats(each, count, offset) for each in s)])

    def alltoall(self, source: int, target: int, count: int, stream: int) -> None:
        self._run("alltoall", source, target, lambda s: [self._floats(each, count, self.rank * count) for each in s])

    def sendrecv(self, source: int, target: int, count: int, stream: int) -> None:
        before = (self.rank - 1) % self.ranks
        self._run("sendrecv", source, target, lambda s: [self._floats(s[before], count)])


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNccl]:
    fake = FakeNccl(3)
    monkeypatch.setitem(sys.modules, "cupy", FakeCuda().module())
    monkeypatch.setattr(ranks, "Library", fake.open_nccl)
    monkeypatch.setattr(ranks, "_WAKE_BYTES", 4096)
    monkeypatch.setattr(ranks, "_WAKE_OPERATIONS", 2)
    return fake


CASES = [Case(collective=each, size_bytes=12 << 10, operations=2, batches=3) for each in COLLECTIVES]


def run(folder: Path, library: str = "libnccl.so.2") -> list[list[RankLine]]:
    answers = [io.BytesIO() for _ in ADDRESSES]
    codes: list[int] = [99] * len(ADDRESSES)

    def rank(number: int) -> None:
        job = RankJob(
            rank=number,
            ranks=3,
            address=ADDRESSES[number],
            nccl_library=library,
            id_file=str(folder / "id"),
            cases=CASES,
            seed=42,
        )
        codes[number] = ranks.main(io.BytesIO(msgspec.json.encode(job)), answers[number])

    threads = [threading.Thread(target=rank, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 99 not in codes
    return [[msgspec.json.decode(line, type=RankLine) for line in each.getvalue().splitlines()] for each in answers]


def wrong(lines: list[RankLine]) -> dict[str, int | None]:
    return {CASES[line.timed.case].collective: line.timed.wrong for line in lines if line.timed}


def test_right_values_pass_on_every_rank(nccl: FakeNccl, tmp_path: Path) -> None:
    for lines in run(tmp_path):
        assert lines[0].began is not None
        assert (lines[0].began.nccl, lines[0].began.processors) == ("2.28.9", 132)
        assert wrong(lines) == dict.fromkeys(COLLECTIVES, 0)
        assert all(len(line.timed.seconds) == 3 for line in lines if line.timed)
        assert lines[-1].ended is not None


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_wrong_element_is_noticed(nccl: FakeNccl, tmp_path: Path, collective: str) -> None:
    def spoil(name: str, rank: int, target: int, count: int) -> None:
        if name == collective and rank == 1 and count > 1:
            words(target, count, numpy.float32)[count - 1] += 1

    nccl.spoil = spoil
    told = [wrong(lines) for lines in run(tmp_path)]
    assert told[1] == {**dict.fromkeys(COLLECTIVES, 0), collective: 1}
    assert told[0] == told[2] == dict.fromkeys(COLLECTIVES, 0)


def test_a_rank_that_gets_nothing_is_noticed(nccl: FakeNccl, tmp_path: Path) -> None:
    """What was in the buffer before is no result of ours."""

    def spoil(name: str, rank: int, target: int, count: int) -> None:
        if rank == 2 and count > 1:
            ctypes.memset(target, 0xFF, count * 4)

    nccl.spoil = spoil
    told = wrong(run(tmp_path)[2])
    assert all(count for count in told.values())


def test_a_library_that_cannot_be_loaded_is_one_sentence(nccl: FakeNccl, tmp_path: Path) -> None:
    for lines in run(tmp_path, "/missing/libnccl.so.2"):
        assert [line.unable for line in lines] == ["/missing/libnccl.so.2 cannot be loaded: no such file"]


def test_a_gpu_without_room_for_the_buffers_says_nothing_of_nccl(
    nccl: FakeNccl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cuda = FakeCuda()
    cuda.largest = 4096
    monkeypatch.setitem(sys.modules, "cupy", cuda.module())
    for lines in run(tmp_path):
        assert [(line.unable, line.failed) for line in lines] == [("cudaError 2", None)]


def test_a_real_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_text("not an ELF file")
    with pytest.raises(NcclError, match="cannot be loaded"):
        Library(str(path))
    with pytest.raises(NcclError, match="cannot be loaded"):
        Library("libc.so.6")
