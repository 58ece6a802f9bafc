"""The measuring child over a CuPy made of host memory: the data check must notice what goes wrong."""

from __future__ import annotations

import ctypes
import io
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from fake_cuda import ADDRESSES, Copy, FakeCuda

from topoadvisor.verify import copies
from topoadvisor.verify.messages import Flow, Job, Line, Measured, Step

HERE, THERE = ADDRESSES[:2]
ONE_WAY = [Flow(source=HERE, target=THERE)]
BOTH = [*ONE_WAY, Flow(source=THERE, target=HERE)]


@pytest.fixture(params=["NVRTC", "no NVRTC"])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    fake = FakeCuda()
    fake.nvrtc = request.param == "NVRTC"
    monkeypatch.setitem(sys.modules, "cupy", fake.module())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return fake


def ask(job: Job) -> tuple[int, list[Line]]:
    answers = io.BytesIO()
    code = copies.main(io.BytesIO(msgspec.json.encode(job)), answers)
    return code, [msgspec.json.decode(line, type=Line) for line in answers.getvalue().splitlines()]


def step(flows: list[Flow] = ONE_WAY, name: str = "step", size: int = 1 << 20, **more: Any) -> Step:
    return Step(name=name, flows=flows, size_bytes=size, repeats=5, batch_s=0.001, **more)


def measure(*steps: Step) -> tuple[int, list[Measured]]:
    code, lines = ask(Job(task="measure", steps=list(steps or (step(),))))
    assert [line.begin for line in lines[::2]] == [line.measured.name for line in lines[1::2] if line.measured]
    return code, [line.measured for line in lines if line.measured]


def gbps(measured: Measured) -> float:
    return measured.size_bytes / measured.seconds[0] / 1e9


def test_one_way_and_both_ways(cuda: FakeCuda) -> None:
    code, found = measure(step(), step(BOTH, "both"))
    assert code == 0
    assert [each.outcome for each in found] == ["ok", "ok"]
    assert [len(each.seconds) for each in found] == [5, 5]
    assert gbps(found[0]) == pytest.approx(100)
    assert (found[0].size_bytes, found[0].peer_access, found[0].note) == (1 << 20, True, None)
    # The stand-in copies one after the other, so both together take twice the time of one.
    assert gbps(found[1]) == pytest.approx(50)
    assert len(found[1].flow_seconds) == 2
    assert cuda.enabled == {(0, 1), (1, 0)}


def test_streams_are_held_back_where_a_kernel_can(cuda: FakeCuda) -> None:
    _, found = measure()
    assert found[0].held_back == cuda.nvrtc
    assert ("hold" in cuda.launched) == cuda.nvrtc
    assert found[0].checked == ("device" if cuda.nvrtc else "host")


def test_a_gpu_with_too_many_peers_gives_up_those_of_steps_before(cuda: FakeCuda) -> None:
    cuda.most_peers = 1
    other = ADDRESSES[2]
    code, found = measure(step(), step([Flow(source=HERE, target=other)], "other"), step(name="again"))
    assert code == 0
    assert [(each.outcome, each.peer_access) for each in found] == [("ok", True)] * 3
    code, found = measure(step([*ONE_WAY, Flow(source=HERE, target=other)], "both"))
    assert [(each.outcome, each.note) for each in found] == [("skipped", "CUDA lets a GPU have no more peers at once")]


def nothing(target: int, source: int, size: int) -> None: ...


def ones(target: int, source: int, size: int) -> None:
    ctypes.memset(target, 0xFF, size)


def but_the_last_byte(target: int, source: int, size: int) -> None:
    ctypes.memmove(target, source, size - 1)


BROKEN: list[tuple[Copy, str]] = [
    (nothing, "100.0% of the data is wrong: nothing was written there"),
    (ones, "every bit there is 1"),
    (but_the_last_byte, "8 bytes may be wrong"),
]


@pytest.mark.parametrize(("broken", "words"), BROKEN)
def test_data_that_did_not_arrive_is_noticed(cuda: FakeCuda, broken: Copy, words: str) -> None:
    cuda.peer_copy = broken
    _, found = measure()
    assert found[0].outcome == "wrong-data"
    assert words in str(found[0].note)
    assert len(found[0].seconds) == 1


@pytest.mark.parametrize(("broken", "words"), BROKEN)
@pytest.mark.parametrize(("source", "target"), [("host", HERE), (HERE, "host")])
def test_the_way_to_the_host_is_checked_both_ways(
    cuda: FakeCuda, broken: Copy, words: str, source: str, target: str
) -> None:
    flows = [Flow(source=source, target=target)]
    _, found = measure(step(flows))
    assert (found[0].outcome, found[0].peer_access) == ("ok", None)
    assert gbps(found[0]) == pytest.approx(100)
    cuda.host_copy = broken
    _, found = measure(step(flows))
    assert found[0].outcome == "wrong-data"
    assert words in str(found[0].note)


def test_one_bad_flow_of_many_is_noticed(cuda: FakeCuda) -> None:
    """The third GPU's incoming copies break; the others are fine."""
    ring = [Flow(source=a, target=b) for a, b in zip(ADDRESSES, (*ADDRESSES[1:], ADDRESSES[0]), strict=True)]
    _, found = measure(step(ring))
    assert found[0].outcome == "ok"
    copied = []

    def third(target: int, source: int, size: int) -> None:
        copied.append(target)
        if len(copied) % 3:
            ctypes.memmove(target, source, size)

    cuda.peer_copy = third
    _, found = measure(step(ring))
    assert found[0].outcome == "wrong-data"


def test_stale_data_of_an_earlier_batch_is_noticed(cuda: FakeCuda) -> None:
    """The target is cleared and the random data is new each time, so a copy that stops happening shows."""
    done = []

    def stops(target: int, source: int, size: int) -> None:
        done.append(target)
        if len(done) < 500:
            ctypes.memmove(target, source, size)

    cuda.peer_copy = stops
    _, found = measure()
    assert found[0].outcome == "wrong-data"
    assert 1 < len(found[0].seconds) < 5


def test_copies_by_a_kernel(cuda: FakeCuda) -> None:
    _, found = measure(step(engine="kernel"))
    if not cuda.nvrtc:
        assert found[0].outcome == "skipped"
        assert "NVRTC" in str(found[0].note)
        return
    assert found[0].outcome == "ok"
    assert cuda.launched.count("copy") > 5
    cuda.kernel_copy = but_the_last_byte
    assert measure(step(engine="kernel"))[1][0].outcome == "wrong-data"
    cuda.peers = False
    _, found = measure(step(engine="kernel"))
    assert (found[0].outcome, "peer access" in str(found[0].note)) == ("skipped", True)


def test_peer_access_is_switched_off_and_on_again(cuda: FakeCuda) -> None:
    seen = []
    cuda.peer_copy = lambda target, source, size: (
        seen.append(set(cuda.enabled)),
        ctypes.memmove(target, source, size),
    )[0]
    _, found = measure(step(), step(name="off", peer_access=False), step(name="on again"))
    assert [each.peer_access for each in found] == [True, False, True]
    assert seen[0] == seen[-1] == {(0, 1), (1, 0)}
    assert set() in seen
    assert not found[1].held_back


def test_reads_are_issued_by_the_target(cuda: FakeCuda) -> None:
    issuers = set()
    cuda.peer_copy = lambda target, source, size: (issuers.add(cuda.device), ctypes.memmove(target, source, size))[0]
    measure(step())
    assert issuers == {0}
    issuers.clear()
    measure(step(issued_by="target"))
    assert issuers == {1}


def test_without_peer_access_copies_are_made_and_said(cuda: FakeCuda) -> None:
    cuda.peers = False
    _, found = measure()
    assert (found[0].outcome, found[0].peer_access) == ("ok", False)
    assert not cuda.enabled


def test_short_memory_makes_the_buffers_smaller_and_then_skips(cuda: FakeCuda) -> None:
    cuda.largest = 40 << 20
    _, found = measure(step(size=64 << 20))
    assert (found[0].outcome, found[0].size_bytes) == ("ok", 32 << 20)
    assert "32 MiB, because GPU memory is short" in str(found[0].note)

    cuda.largest, cuda.free = 1 << 40, 40 << 20
    assert measure(step(size=64 << 20))[1][0].size_bytes == 16 << 20

    cuda.free = 8 << 20
    _, found = measure(step(size=64 << 20), step(BOTH, "both", size=64 << 20))
    assert [each.outcome for each in found] == ["skipped", "skipped"]
    assert "free memory" in str(found[0].note)


@pytest.mark.parametrize(("source", "target"), [("host", HERE), (HERE, "host")])
def test_short_memory_on_the_way_to_the_host(cuda: FakeCuda, source: str, target: str) -> None:
    """The data is made and compared on the GPU, which takes a second buffer there."""
    cuda.free = 100 << 20
    _, found = measure(step([Flow(source=source, target=target)], size=64 << 20))
    assert (found[0].outcome, found[0].size_bytes) == ("ok", 32 << 20)
    cuda.free = 30 << 20
    _, found = measure(step([Flow(source=source, target=target)], size=64 << 20))
    assert found[0].outcome == "skipped"
    assert "free memory" in str(found[0].note)


def test_a_hidden_gpu_is_skipped_with_the_reason(cuda: FakeCuda) -> None:
    _, found = measure(step([Flow(source="0000:99:00.0", target=THERE)]))
    assert found[0].outcome == "skipped"
    assert "0000:99:00.0: CUDA does not show this GPU" in str(found[0].note)


def test_a_cuda_error_ends_the_process_and_is_named(cuda: FakeCuda) -> None:
    cuda.fails = 700
    code, found = measure(step(), step(name="second"))
    assert code == 1
    assert [(each.name, each.outcome) for each in found] == [("step", "error")]
    assert "700" in str(found[0].note)


def test_host_buffers_are_placed_by_the_cpus_near_the_gpu(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned_to: list[set[int]] = []
    monkeypatch.setattr(copies.flows.os, "sched_getaffinity", lambda pid: {0, 1, 2})
    monkeypatch.setattr(copies.flows.os, "sched_setaffinity", lambda pid, cpus: pinned_to.append(set(cpus)))
    up = step([Flow(source="host", target=HERE)])
    ask(Job(task="measure", steps=[up], cpus={HERE: [2], THERE: []}))
    assert pinned_to == [{2}, {0, 1, 2}]

    def refuse(pid: int, cpus: set[int]) -> None:
        if cpus == {2}:
            raise OSError

    monkeypatch.setattr(copies.flows.os, "sched_setaffinity", refuse)
    _, lines = ask(Job(task="measure", steps=[up], cpus={HERE: [2]}))
    assert lines[1].measured is not None
    assert "could not be placed near the GPU" in str(lines[1].measured.note)


def test_looking_around(cuda: FakeCuda) -> None:
    _, lines = ask(Job(task="look"))
    assert lines[0].look is not None
    assert lines[0].look.addresses == ADDRESSES[:2]
    assert (lines[0].look.cupy, lines[0].look.runtime, lines[0].look.driver) == ("14.2.0", "13.2", "13.0")


def test_looking_around_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    _, lines = ask(Job(task="look"))
    assert lines[0].look is not None
    assert lines[0].look.missing == "cupy"
