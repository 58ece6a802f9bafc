"""Running the flows of one step: buffers, streams, timing by events, and the comparison of every byte.

How a step is measured: each source gets new random data and each target is cleared; enough copies for one batch go into
one stream per flow, all held back by a waiting kernel until the last one is issued; each flow is timed by events in its
own stream, all of them together by the first flow's stream, which waits for the others. The first batches warm up links
and clocks and are not counted. Every byte that arrived is compared after each batch.
"""

from __future__ import annotations

import ctypes
import math
import os
import secrets
import statistics
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from topoadvisor.verify.kernels import Kernels, OnHost
from topoadvisor.verify.messages import HOST, Flow, Measured, Step

_SMALLEST: Final = 16 << 20
"""Below this the start of a copy shows in the number, and a machine this short of memory is in use anyway."""
_WARM_UP_SECONDS: Final = 0.3
"""Idle links run at their lowest PCIe generation and idle GPUs at low clocks; both rise within this."""
_WARM_AGAIN_SECONDS: Final = 0.01
_WARM_UP_COPIES: Final = 3
_MOST_WARM_UP_COPIES: Final = 256
_FREE_SHARE: Final = 0.9
_ALREADY_ENABLED: Final = 704
"""cudaErrorPeerAccessAlreadyEnabled."""
_TOO_MANY_PEERS: Final = 711
"""cudaErrorTooManyPeers: a GPU has few peers at once where no NVSwitch joins them, eight by CUDA's manual."""
_OUT_OF_MEMORY: Final = 2
"""cudaErrorMemoryAllocation."""
_NOT_VISIBLE: Final = "CUDA does not show this GPU (CUDA_VISIBLE_DEVICES, or the container's devices)"


class Unable(Exception):
    """A step that cannot be made here, with the reason."""


@dataclass(frozen=True)
class _Lane:
    """One flow with its buffers and its stream."""

    source: int | None
    """CUDA device; None = host."""
    target: int | None
    source_buffer: int
    target_buffer: int
    issuer: int
    stream: Any

    @property
    def device(self) -> int:
        """The GPU of a flow from or to the host."""
        return self.issuer


class Bench:
    """The machine with what was set up so far: buffers, streams, peer access."""

    def __init__(self, cupy: Any, kernels: Kernels | OnHost, cpus: dict[str, list[int]]) -> None:
        self._cupy, self._runtime, self._kernels = cupy, cupy.cuda.runtime, kernels
        self._near = {self.device(address): set(near) for address, near in cpus.items() if near}
        self._buffers: dict[tuple[str, int, str, int], tuple[int, int, Any]] = {}
        self._streams: dict[tuple[int, int], Any] = {}
        self._enabled: set[tuple[int, int]] = set()
        self._warm: set[int] = set()
        self._fits: int | None = None
        self._misplaced: set[int] = set()

    def device(self, address: str) -> int:
        """CUDA's number of a GPU. Raises Unable when CUDA does not show it."""
        try:
            return int(self._runtime.deviceGetByPCIBusId(address))
        except self._runtime.CUDARuntimeError:
            raise Unable(f"{address}: {_NOT_VISIBLE}") from None

    def measure(self, step: Step) -> Measured:
        """Warm up, then time and check every batch. The first batch with wrong data ends it. Raises Unable."""
        kernel = step.engine == "kernel"
        if kernel and not isinstance(self._kernels, Kernels):
            raise Unable("a copy by a kernel needs NVRTC, and CuPy finds none here")
        peers = [self._ends(flow) for flow in step.flows if HOST not in (flow.source, flow.target)]
        allowed = [self._peer_access(a, b, step.peer_access, peers) for a, b in peers]
        peer_access = all(allowed) if peers else None
        if kernel and peer_access is False:
            raise Unable("a copy by a kernel needs peer access, and CUDA does not allow it here")
        lanes, size = self._lanes(step)
        # Copies that the driver stages through host memory may wait for their stream to be free while they are issued.
        hold = isinstance(self._kernels, Kernels) and peer_access is not False
        count = min(max(math.ceil(step.batch_s / self._warm_up(lanes, size, kernel)), 1), step.most_copies)
        seconds, each, held, wrong = [], [], True, None
        for _ in range(step.repeats):
            seeds = self._prepare(lanes, size)
            spent, ends, was_held = self._timed(lanes, size, count, kernel, hold=hold)
            seconds.append(spent / count)
            each.append([end / count for end in ends])
            held = held and was_held
            for lane, seed in zip(lanes, seeds, strict=True):
                wrong = wrong or _wrong_in_words(*self._compare(lane, size, seed), size // 8)
            if wrong:
                break
        notes = [wrong]
        if size < step.size_bytes // 16 * 16:
            notes.append(f"buffers of {size >> 20} MiB, because GPU memory is short")
        if any(lane.issuer in self._misplaced for lane in lanes if None in (lane.source, lane.target)):
            notes.append("the host buffers could not be placed near the GPU")
        return Measured(
            name=step.name,
            outcome="wrong-data" if wrong else "ok",
            seconds=seconds,
            flow_seconds=[statistics.median(column) for column in zip(*each, strict=True)],
            size_bytes=size,
            peer_access=peer_access,
            checked=self._kernels.where,
            held_back=held,
            note="; ".join(filter(None, notes)) or None,
        )

    def _ends(self, flow: Flow) -> tuple[int, int]:
        return self.device(flow.source), self.device(flow.target)

    def _peer_access(self, a: int, b: int, wanted: bool, needed: list[tuple[int, int]]) -> bool:
        """Switch peer access on or off, both ways; whether it is on now. Of other pairs those `needed` keep theirs."""
        ways = ((a, b), (b, a))
        if not wanted:
            self._forbid(ways)
            return False
        there, back = (self._allow(device, peer, needed) for device, peer in ways)
        return there and back

    def _forbid(self, ways: Iterable[tuple[int, int]]) -> None:
        for device, peer in ways:
            if (device, peer) in self._enabled:
                with self._cupy.cuda.Device(device):
                    self._runtime.deviceDisablePeerAccess(peer)
                self._enabled.discard((device, peer))

    def _allow(self, device: int, peer: int, needed: list[tuple[int, int]]) -> bool:
        if (device, peer) in self._enabled:
            return True
        if not self._runtime.deviceCanAccessPeer(device, peer):
            return False
        if not self._enable(device, peer):
            kept = {way for a, b in needed for way in ((a, b), (b, a))}
            self._forbid([way for way in self._enabled if way[0] == device and way not in kept])
            if not self._enable(device, peer):
                raise Unable("CUDA lets a GPU have no more peers at once")
        self._enabled.add((device, peer))
        return True

    def _enable(self, device: int, peer: int) -> bool:
        """Let a device access its peer; False when it has too many of them."""
        with self._cupy.cuda.Device(device):
            try:
                self._runtime.deviceEnablePeerAccess(peer)
            except self._runtime.CUDARuntimeError as error:
                if error.status == _TOO_MANY_PEERS:
                    return False
                if error.status != _ALREADY_ENABLED:
                    raise
        return True

    def _lanes(self, step: Step) -> tuple[list[_Lane], int]:
        """The flows with buffers, and the size that fits. Raises Unable when not even small ones do."""
        wanted = size = step.size_bytes // 16 * 16
        self._unpin(step)
        if self._fits is not None:
            size = min(size, self._fits)
        while size >= min(wanted, _SMALLEST):
            try:
                return [self._lane(flow, number, step, size) for number, flow in enumerate(step.flows)], size
            except MemoryError:
                self._buffers.clear()
                self._fits = size = size // 2 // 16 * 16
        raise Unable(f"buffers of {_SMALLEST >> 20} MiB do not fit into the free memory")

    def _unpin(self, step: Step) -> None:
        """Give back host memory near other GPUs: eight GPUs would pin gigabytes."""
        if any(HOST in (flow.source, flow.target) for flow in step.flows):
            ends = {end for flow in step.flows for end in (flow.source, flow.target) if end != HOST}
            near = {self.device(end) for end in ends}
            self._buffers = {key: held for key, held in self._buffers.items() if key[0] == "device" or key[1] in near}

    def _lane(self, flow: Flow, number: int, step: Step, size: int) -> _Lane:
        source = None if flow.source == HOST else self.device(flow.source)
        target = None if flow.target == HOST else self.device(flow.target)
        near = source if source is not None else target
        assert near is not None
        if None in (source, target):
            # Random data is made, and what arrived is compared, on the GPU.
            self._buffer(near, near, "scratch", 0, size)
        issuer = near if None in (source, target) or step.issued_by == "source" else target
        assert issuer is not None
        return _Lane(
            source=source,
            target=target,
            source_buffer=self._buffer(source, near, "source", 0, size),
            target_buffer=self._buffer(target, near, "target", number, size),
            issuer=issuer,
            stream=self._stream(issuer, number),
        )

    def _stream(self, device: int, number: int) -> Any:
        if (device, number) not in self._streams:
            with self._cupy.cuda.Device(device):
                self._streams[device, number] = self._cupy.cuda.Stream(non_blocking=True)
        return self._streams[device, number]

    def _buffer(self, device: int | None, near: int, role: str, number: int, size: int) -> int:
        """A buffer of at least `size` bytes on a GPU, or pinned on the host near one. Raises MemoryError."""
        key = ("host" if device is None else "device", near if device is None else device, role, number)
        pointer, length, _ = self._buffers.get(key, (0, 0, None))
        if length >= size:
            return pointer
        self._buffers.pop(key, None)
        owner = self._pinned(near, size) if device is None else self._on_device(device, size)
        self._buffers[key] = (owner.ptr, size, owner)
        return int(owner.ptr)

    def _on_device(self, device: int, size: int) -> Any:
        with self._cupy.cuda.Device(device):
            free, _ = self._runtime.memGetInfo()
            if size > free * _FREE_SHARE:
                raise MemoryError
            try:
                return self._cupy.cuda.Memory(size)
            except self._runtime.CUDARuntimeError as error:
                if error.status == _OUT_OF_MEMORY:
                    raise MemoryError from None
                raise

    def _pinned(self, near: int, size: int) -> Any:
        """Pages land on the NUMA node of the CPU that allocates them."""
        before = os.sched_getaffinity(0)
        if near in self._near:
            try:
                os.sched_setaffinity(0, self._near[near])
            except OSError:
                self._misplaced.add(near)
        try:
            with self._cupy.cuda.Device(near):
                return _Pinned(self._runtime, size)
        except self._runtime.CUDARuntimeError as error:
            if error.status == _OUT_OF_MEMORY:
                raise MemoryError from None
            raise
        finally:
            os.sched_setaffinity(0, before)

    def _prepare(self, lanes: list[_Lane], size: int) -> list[int]:
        """New random data in every source, nothing in every target; the seed of each flow."""
        seeds: dict[int, int] = {}
        for lane in lanes:
            if lane.source_buffer not in seeds:
                seeds[lane.source_buffer] = seed = secrets.randbits(63)
                if lane.source is not None:
                    self._kernels.fill(lane.source, lane.source_buffer, size // 8, seed)
                else:
                    scratch = self._buffer(lane.device, lane.device, "scratch", 0, size)
                    self._kernels.fill(lane.device, scratch, size // 8, seed)
                    self._move(lane.device, lane.source_buffer, scratch, size, self._runtime.memcpyDeviceToHost)
            if lane.target is None:
                ctypes.memset(lane.target_buffer, 0, size)
            else:
                self._clear(lane.target, lane.target_buffer, size)
        return [seeds[lane.source_buffer] for lane in lanes]

    def _compare(self, lane: _Lane, size: int, seed: int) -> tuple[int, int, int]:
        if lane.target is not None:
            return self._kernels.check(lane.target, lane.target_buffer, size // 8, seed)
        scratch = self._buffer(lane.device, lane.device, "scratch", 0, size)
        self._clear(lane.device, scratch, size)
        self._move(lane.device, scratch, lane.target_buffer, size, self._runtime.memcpyHostToDevice)
        return self._kernels.check(lane.device, scratch, size // 8, seed)

    def _move(self, device: int, target: int, source: int, size: int, kind: int) -> None:
        with self._cupy.cuda.Device(device):
            self._runtime.memcpy(target, source, size, kind)

    def _clear(self, device: int, buffer: int, size: int) -> None:
        with self._cupy.cuda.Device(device):
            self._runtime.memset(buffer, 0, size)
            self._runtime.deviceSynchronize()

    def _warm_up(self, lanes: list[_Lane], size: int, kernel: bool) -> float:
        """Seconds of one copy of each flow, after enough of them that links and clocks are awake."""
        devices = {lane.issuer for lane in lanes}
        wanted = _WARM_AGAIN_SECONDS if devices <= self._warm else _WARM_UP_SECONDS
        spent, done, seconds = 0.0, 0, 0.0
        while done < _WARM_UP_COPIES or (spent < wanted and done < _MOST_WARM_UP_COPIES):
            seconds, _, _ = self._timed(lanes, size, 1, kernel, hold=False)
            spent += seconds
            done += 1
        self._warm |= devices
        return max(seconds, 1e-7)

    def _timed(
        self, lanes: list[_Lane], size: int, count: int, kernel: bool, *, hold: bool
    ) -> tuple[float, list[float], bool]:
        """Seconds from the start to the last end, and to the end of each flow; whether all waited for the last copy."""
        if hold and isinstance(self._kernels, Kernels):
            with self._kernels.held(lanes[0].issuer, lanes[0].stream) as told:
                starts, ends, last = self._issue(lanes, size, count, kernel)
            held = told[0]
        else:
            starts, ends, last = self._issue(lanes, size, count, kernel)
            held = False
        last.synchronize()
        elapsed = self._cupy.cuda.get_elapsed_time
        each = [float(elapsed(start, end)) / 1e3 for start, end in zip(starts, ends, strict=True)]
        return float(elapsed(starts[0], last)) / 1e3, each, held

    def _issue(self, lanes: list[_Lane], size: int, count: int, kernel: bool) -> tuple[list[Any], list[Any], Any]:
        starts = [self._event(lane) for lane in lanes]
        starts[0].record(lanes[0].stream)
        for lane, start in zip(lanes[1:], starts[1:], strict=True):
            lane.stream.wait_event(starts[0])
            start.record(lane.stream)
        for _ in range(count):
            for lane in lanes:
                self._copy(lane, size, kernel)
        ends = [self._event(lane) for lane in lanes]
        for lane, end in zip(lanes, ends, strict=True):
            end.record(lane.stream)
        for end in ends[1:]:
            lanes[0].stream.wait_event(end)
        last = self._event(lanes[0])
        last.record(lanes[0].stream)
        return starts, ends, last

    def _copy(self, lane: _Lane, size: int, kernel: bool) -> None:
        if kernel and isinstance(self._kernels, Kernels):
            self._kernels.copy(lane.issuer, lane.stream, lane.target_buffer, lane.source_buffer, size)
            return
        with self._cupy.cuda.Device(lane.issuer):
            if lane.source is not None and lane.target is not None:
                self._runtime.memcpyPeerAsync(
                    lane.target_buffer, lane.target, lane.source_buffer, lane.source, size, lane.stream.ptr
                )
            else:
                to_device = lane.source is None
                kind = self._runtime.memcpyHostToDevice if to_device else self._runtime.memcpyDeviceToHost
                self._runtime.memcpyAsync(lane.target_buffer, lane.source_buffer, size, kind, lane.stream.ptr)

    def _event(self, lane: _Lane) -> Any:
        with self._cupy.cuda.Device(lane.issuer):
            return self._cupy.cuda.Event()


class _Pinned:
    """Pinned host memory that every GPU may use."""

    def __init__(self, runtime: Any, size: int) -> None:
        self._free = runtime.freeHost
        self.ptr = int(runtime.hostAlloc(size, runtime.hostAllocPortable))

    def __del__(self) -> None:
        # At the end of the process CUDA may be gone already, and the memory with it.
        with suppress(Exception):
            self._free(self.ptr)


def _wrong_in_words(wrong: int, zero: int, ones: int, words: int) -> str | None:
    if not wrong:
        return None
    share = f"{wrong / words:.1%} of the data is wrong" if wrong >= words / 1000 else f"{wrong * 8} bytes may be wrong"
    if zero == wrong:
        return f"{share}: nothing was written there"
    if ones == wrong:
        return f"{share}: every bit there is 1, as when a device does not answer"
    return share
