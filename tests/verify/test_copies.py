"""The measuring child over a CuPy made of host memory: the data check must notice what goes wrong."""

from __future__ import annotations

import ctypes
import io
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from topoadvisor.verify import copies
from topoadvisor.verify.messages import Copied, Job, Line

pytest.importorskip("numpy")

ADDRESSES = ["0000:06:00.0", "0000:07:00.0"]


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class FakeCuda:
    """CUDA with two GPUs whose memory is host memory; time passes by what is copied."""

    def __init__(self) -> None:
        self.device = 0
        self.now = 0.0
        self.free = 1 << 40
        self.peers = True
        self.largest = 1 << 40
        self.enabled: set[tuple[int, int]] = set()
        self.copy: Callable[[int, int, int], None] = lambda target, source, size: self.move(target, source, size)
        self.fails: int | None = None

    @staticmethod
    def move(target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def module(self) -> types.ModuleType:
        cuda = self

        class Device:
            def __init__(self, device: int) -> None:
                self.wanted = device

            def __enter__(self) -> None:
                self.before, cuda.device = cuda.device, self.wanted

            def __exit__(self, *_: object) -> None:
                cuda.device = self.before

        class Memory:
            def __init__(self, size: int) -> None:
                if size > cuda.largest:
                    raise CUDARuntimeError(2)
                self.buffer = ctypes.create_string_buffer(size)
                self.ptr = ctypes.addressof(self.buffer)

        class Event:
            at = 0.0

            def record(self, stream: object) -> None:
                self.at = cuda.now

            def synchronize(self) -> None: ...

        class Stream:
            ptr = 0

            def __init__(self, non_blocking: bool) -> None: ...

            def wait_event(self, event: Event) -> None: ...

        def peer(target: int, to: int, source: int, of: int, size: int, stream: int) -> None:
            assert cuda.device == of
            if cuda.fails is not None:
                raise CUDARuntimeError(cuda.fails)
            cuda.copy(target, source, size)
            cuda.now += size / 100e9 * 1e3

        def enable(peer: int) -> None:
            if (cuda.device, peer) in cuda.enabled:
                raise CUDARuntimeError(704)
            cuda.enabled.add((cuda.device, peer))

        def by_bus_id(address: str) -> int:
            if address not in ADDRESSES:
                raise CUDARuntimeError(10)
            return ADDRESSES.index(address)

        runtime = types.SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            deviceGetByPCIBusId=by_bus_id,
            deviceGetPCIBusId=lambda device: ADDRESSES[device].upper(),
            getDeviceCount=lambda: 2,
            runtimeGetVersion=lambda: 13020,
            driverGetVersion=lambda: 13000,
            deviceCanAccessPeer=lambda device, peer: int(cuda.peers),
            deviceEnablePeerAccess=enable,
            memGetInfo=lambda: (cuda.free, cuda.free),
            memset=lambda pointer, value, size: ctypes.memset(pointer, value, size),
            deviceSynchronize=lambda: None,
            memcpy=lambda target, source, size, kind: cuda.move(target, source, size),
            memcpyPeerAsync=peer,
        )
        module: Any = types.ModuleType("cupy")
        module.__version__ = "14.2.0"
        module.cuda = types.SimpleNamespace(
            runtime=runtime,
            driver=types.SimpleNamespace(CUDADriverError=OSError),
            Device=Device,
            Memory=Memory,
            Event=Event,
            Stream=Stream,
            get_elapsed_time=lambda start, end: end.at - start.at,
        )
        return module  # type: ignore[no-any-return]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    fake = FakeCuda()
    monkeypatch.setitem(sys.modules, "cupy", fake.module())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return fake


def ask(job: Job) -> tuple[int, list[Line]]:
    answers = io.BytesIO()
    code = copies.main(io.BytesIO(msgspec.json.encode(job)), answers)
    return code, [msgspec.json.decode(line, type=Line) for line in answers.getvalue().splitlines()]


def copy(*steps: str, size: int = 1 << 20, first: str = ADDRESSES[0]) -> tuple[int, list[Copied]]:
    job = Job(
        task="copy",
        first=first,
        second=ADDRESSES[1],
        steps=list(steps or ("forward", "backward", "both")),  # type: ignore[arg-type]
        size_bytes=size,
        repeats=5,
    )
    code, lines = ask(job)
    assert [line.begin for line in lines[::2]] == [line.copied.step for line in lines[1::2] if line.copied]
    return code, [line.copied for line in lines if line.copied]


def test_the_three_steps_of_a_pair(cuda: FakeCuda) -> None:
    code, found = copy()
    assert code == 0
    assert [step.outcome for step in found] == ["ok", "ok", "ok"]
    for step in found:
        assert len(step.gbps) == 5
        assert step.gbps[0] == pytest.approx(100)
        assert (step.size_bytes, step.peer_access, step.note) == (1 << 20, True, None)
    assert cuda.enabled == {(0, 1), (1, 0)}


def nothing(target: int, source: int, size: int) -> None: ...


def ones(target: int, source: int, size: int) -> None:
    ctypes.memset(target, 0xFF, size)


def but_the_last_byte(target: int, source: int, size: int) -> None:
    ctypes.memmove(target, source, size - 1)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (nothing, "100.0% of the data is wrong: nothing was written there"),
        (ones, "every bit there is 1"),
        (but_the_last_byte, "8 bytes may be wrong"),
    ],
)
def test_data_that_did_not_arrive_is_noticed(
    cuda: FakeCuda, broken: Callable[[int, int, int], None], words: str
) -> None:
    cuda.copy = broken
    _, found = copy("forward")
    assert found[0].outcome == "wrong-data"
    assert words in str(found[0].note)
    assert len(found[0].gbps) == 1


def test_stale_data_of_an_earlier_repeat_is_noticed(cuda: FakeCuda) -> None:
    """The target is cleared and the random data is new each time, so a copy that stops happening shows."""
    done = []

    def stops(target: int, source: int, size: int) -> None:
        done.append(target)
        if len(done) < 500:
            ctypes.memmove(target, source, size)

    cuda.copy = stops
    _, found = copy("forward")
    assert found[0].outcome == "wrong-data"
    assert 1 < len(found[0].gbps) < 5


def test_without_peer_access_copies_are_made_and_said(cuda: FakeCuda) -> None:
    cuda.peers = False
    _, found = copy("forward")
    assert (found[0].outcome, found[0].peer_access) == ("ok", False)
    assert not cuda.enabled


def test_short_memory_makes_the_buffers_smaller_and_then_skips(cuda: FakeCuda) -> None:
    cuda.free = 100 << 20
    _, found = copy("forward", size=512 << 20)
    assert found[0].size_bytes == int((100 << 20) * 0.9) // 2 // 8 * 8
    assert "memory is short" in str(found[0].note)

    cuda.free, cuda.largest = 1 << 40, 40 << 20
    _, found = copy("forward", size=64 << 20)
    assert (found[0].outcome, found[0].size_bytes) == ("ok", 32 << 20)

    cuda.largest = 1 << 20
    _, found = copy(size=64 << 20)
    assert [step.outcome for step in found] == ["skipped"] * 3
    assert "free GPU memory" in str(found[0].note)


def test_a_hidden_gpu_is_skipped_with_the_reason(cuda: FakeCuda) -> None:
    _, found = copy("forward", first="0000:99:00.0")
    assert found[0].outcome == "skipped"
    assert "0000:99:00.0: CUDA does not show this GPU" in str(found[0].note)


def test_a_cuda_error_ends_the_process_and_is_named(cuda: FakeCuda) -> None:
    cuda.fails = 700
    code, found = copy()
    assert code == 1
    assert [(step.step, step.outcome) for step in found] == [("forward", "error")]
    assert "700" in str(found[0].note)


def test_looking_around(cuda: FakeCuda) -> None:
    _, lines = ask(Job(task="look"))
    assert lines[0].look is not None
    assert lines[0].look.addresses == ADDRESSES
    assert (lines[0].look.cupy, lines[0].look.runtime, lines[0].look.driver) == ("14.2.0", "13.2", "13.0")


def test_looking_around_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    _, lines = ask(Job(task="look"))
    assert lines[0].look is not None
    assert lines[0].look.missing == "cupy"
