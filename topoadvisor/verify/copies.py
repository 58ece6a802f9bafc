"""The child process that measures: `python -m topoadvisor.verify.copies`, a `messages.Job` as JSON on standard input.

It runs alone because a copy over a broken link may never return, or may take the process with it. It prints a `begin`
line before each step, so that a step that hangs can be named.

How a step is measured: both GPUs get a source and a destination buffer by cudaMalloc; peer access is switched on where
CUDA allows it; copies run by cudaMemcpyPeerAsync (copy engines, no kernel) on a stream of the source GPU. After a
warm-up each repeat fills the source with new random data, clears the destination, puts enough copies into the stream
between two events that launching them does not count, and compares every byte that arrived.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, Final, Literal, Protocol

import msgspec

from topoadvisor import pci
from topoadvisor.verify.messages import Busy, Copied, Job, Line, Look, Step, version_text

_SMALLEST: Final = 16 << 20
"""Below this the start of a copy shows in the number, and an 8-GPU machine this short of memory is in use anyway."""
_BATCH_SECONDS: Final = 0.05
"""Length of one timed batch: thousands of times the microseconds that starting it takes."""
_MOST_COPIES: Final = 256
_WARM_UP_SECONDS: Final = 0.3
"""Idle links run at their lowest PCIe generation and idle GPUs at low clocks; both rise within this."""
_WARM_UP_COPIES: Final = 3
_FREE_SHARE: Final = 0.9
_ALREADY_ENABLED: Final = 704
"""cudaErrorPeerAccessAlreadyEnabled."""
_OUT_OF_MEMORY: Final = 2
"""cudaErrorMemoryAllocation."""
_NOT_VISIBLE: Final = "CUDA does not show this GPU (CUDA_VISIBLE_DEVICES, or the container's devices)"

_KERNELS: Final = """
__device__ unsigned long long noise(unsigned long long x) {  // SplitMix64
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}
extern "C" __global__ void fill(unsigned long long* words, unsigned long long count, unsigned long long seed) {
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
         i += (unsigned long long)gridDim.x * blockDim.x)
        words[i] = noise(seed + i);
}
extern "C" __global__ void check(const unsigned long long* words, unsigned long long count, unsigned long long seed,
                                 unsigned long long* wrong) {
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
         i += (unsigned long long)gridDim.x * blockDim.x) {
        unsigned long long word = words[i];
        if (word != noise(seed + i)) {
            atomicAdd(&wrong[0], 1ULL);
            if (word == 0ULL) atomicAdd(&wrong[1], 1ULL);
            if (word == ~0ULL) atomicAdd(&wrong[2], 1ULL);
        }
    }
}
"""


class _Data(Protocol):
    """Random data into a buffer, and the comparison of what arrived: words wrong, of these all zero, all ones."""

    where: Literal["device", "host"]

    def fill(self, device: int, buffer: int, words: int, seed: int) -> None: ...

    def check(self, device: int, buffer: int, words: int, seed: int) -> tuple[int, int, int]: ...


class _OnDevice:
    """Data made and compared by two kernels, which CuPy compiles with NVRTC."""

    where: Literal["device", "host"] = "device"

    def __init__(self, cupy: Any) -> None:
        import numpy

        self._cupy, self._numpy = cupy, numpy
        self._fill = cupy.RawKernel(_KERNELS, "fill")
        self._check = cupy.RawKernel(_KERNELS, "check")
        self._fill.compile()
        self._check.compile()

    def fill(self, device: int, buffer: int, words: int, seed: int) -> None:
        u64 = self._numpy.uint64
        with self._cupy.cuda.Device(device):
            self._fill((2048,), (256,), (u64(buffer), u64(words), u64(seed)))
            self._cupy.cuda.runtime.deviceSynchronize()

    def check(self, device: int, buffer: int, words: int, seed: int) -> tuple[int, int, int]:
        u64, runtime = self._numpy.uint64, self._cupy.cuda.runtime
        counts = self._numpy.zeros(3, u64)
        with self._cupy.cuda.Device(device):
            there = self._cupy.cuda.Memory(counts.nbytes)
            runtime.memset(there.ptr, 0, counts.nbytes)
            self._check((2048,), (256,), (u64(buffer), u64(words), u64(seed), u64(there.ptr)))
            runtime.memcpy(counts.ctypes.data, there.ptr, counts.nbytes, runtime.memcpyDeviceToHost)
        return int(counts[0]), int(counts[1]), int(counts[2])


class _OnHost:
    """The same on the host, for a CuPy without NVRTC (installed by pip on a machine without the CUDA toolkit)."""

    where: Literal["device", "host"] = "host"

    def __init__(self, cupy: Any) -> None:
        import numpy

        self._cupy, self._numpy = cupy, numpy

    def _noise(self, words: int, seed: int) -> Any:
        return self._numpy.random.default_rng(seed).integers(0, 2**64, words, self._numpy.uint64)

    def fill(self, device: int, buffer: int, words: int, seed: int) -> None:
        runtime = self._cupy.cuda.runtime
        noise = self._noise(words, seed)
        with self._cupy.cuda.Device(device):
            runtime.memcpy(buffer, noise.ctypes.data, noise.nbytes, runtime.memcpyHostToDevice)
            runtime.deviceSynchronize()

    def check(self, device: int, buffer: int, words: int, seed: int) -> tuple[int, int, int]:
        runtime = self._cupy.cuda.runtime
        arrived = self._numpy.empty(words, self._numpy.uint64)
        with self._cupy.cuda.Device(device):
            runtime.memcpy(arrived.ctypes.data, buffer, arrived.nbytes, runtime.memcpyDeviceToHost)
        wrong = arrived[arrived != self._noise(words, seed)]
        return len(wrong), int((wrong == 0).sum()), int((wrong == 2**64 - 1).sum())


class _Gpu:
    """One GPU with its stream and its two buffers."""

    def __init__(self, cupy: Any, device: int, size: int) -> None:
        self.device, self.size = device, size
        with cupy.cuda.Device(device):
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.source = cupy.cuda.Memory(size)
            self.target = cupy.cuda.Memory(size)


class _Pair:
    """Two GPUs ready to copy.

    Raises LookupError for a GPU that CUDA does not show, MemoryError when GPU memory is short.
    """

    def __init__(self, cupy: Any, job: Job) -> None:
        self._cupy = cupy
        self._runtime = cupy.cuda.runtime
        self._repeats = job.repeats
        first, second = self._device(job.first), self._device(job.second)
        self._peer_access = {(first, second): self._allow(first, second), (second, first): self._allow(second, first)}
        self._data = _make_data(cupy)
        self._first, self._second = self._allocate(first, second, job.size_bytes)
        short = self._first.size < job.size_bytes // 8 * 8
        self._note = f"buffers of {self._first.size >> 20} MiB, because GPU memory is short" if short else None

    def _device(self, address: str) -> int:
        try:
            return int(self._runtime.deviceGetByPCIBusId(address))
        except self._runtime.CUDARuntimeError:
            raise LookupError(f"{address}: {_NOT_VISIBLE}") from None

    def _allow(self, device: int, peer: int) -> bool:
        if not self._runtime.deviceCanAccessPeer(device, peer):
            return False
        with self._cupy.cuda.Device(device):
            try:
                self._runtime.deviceEnablePeerAccess(peer)
            except self._runtime.CUDARuntimeError as error:
                if error.status != _ALREADY_ENABLED:
                    raise
        return True

    def _allocate(self, first: int, second: int, wanted: int) -> tuple[_Gpu, _Gpu]:
        size = wanted
        for device in (first, second):
            with self._cupy.cuda.Device(device):
                free, _ = self._runtime.memGetInfo()
            size = min(size, int(free * _FREE_SHARE) // 2)
        while (size := size // 8 * 8) >= min(wanted // 8 * 8, _SMALLEST):
            try:
                return _Gpu(self._cupy, first, size), _Gpu(self._cupy, second, size)
            except self._runtime.CUDARuntimeError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                size //= 2
        raise MemoryError(f"two buffers of {_SMALLEST >> 20} MiB do not fit into the free GPU memory")

    def measure(self, step: Step) -> Copied:
        """Warm up, then time and check every repeat. The first repeat with wrong data ends it."""
        there, back = (self._first, self._second), (self._second, self._first)
        flows = {"forward": [there], "backward": [back], "both": [there, back]}[step]
        count = min(max(math.ceil(_BATCH_SECONDS / self._warm_up(flows)), 1), _MOST_COPIES)
        words = self._first.size // 8
        gbps, wrong = [], None
        for _ in range(self._repeats):
            seeds = [secrets.randbits(63) for _ in flows]
            for (source, target), seed in zip(flows, seeds, strict=True):
                self._data.fill(source.device, source.source.ptr, words, seed)
                self._clear(target)
            seconds = self._timed(flows, count)
            gbps.append(count * len(flows) * self._first.size / seconds / 1e9)
            for (_, target), seed in zip(flows, seeds, strict=True):
                bad, zero, ones = self._data.check(target.device, target.target.ptr, words, seed)
                wrong = wrong or _wrong_in_words(bad, zero, ones, words)
            if wrong:
                break
        return Copied(
            step=step,
            outcome="wrong-data" if wrong else "ok",
            gbps=gbps,
            size_bytes=self._first.size,
            peer_access=all(self._peer_access[source.device, target.device] for source, target in flows),
            checked=self._data.where,
            note="; ".join(filter(None, (wrong, self._note))) or None,
        )

    def _clear(self, gpu: _Gpu) -> None:
        with self._cupy.cuda.Device(gpu.device):
            self._runtime.memset(gpu.target.ptr, 0, gpu.size)
            self._runtime.deviceSynchronize()

    def _warm_up(self, flows: list[tuple[_Gpu, _Gpu]]) -> float:
        """Seconds of one copy of each flow, after enough of them that links and clocks are awake."""
        spent, done, seconds = 0.0, 0, 0.0
        while done < _WARM_UP_COPIES or (spent < _WARM_UP_SECONDS and done < _MOST_COPIES):
            seconds = self._timed(flows, 1)
            spent += seconds
            done += 1
        return seconds

    def _timed(self, flows: list[tuple[_Gpu, _Gpu]], count: int) -> float:
        """Seconds from the first copy's start to the last one's end, over all flows, by events of the first flow."""
        lead = flows[0][0]
        start, end = self._event(lead), self._event(lead)
        start.record(lead.stream)
        for source, _ in flows[1:]:
            source.stream.wait_event(start)
        for _ in range(count):
            for source, target in flows:
                with self._cupy.cuda.Device(source.device):
                    self._runtime.memcpyPeerAsync(
                        target.target.ptr,
                        target.device,
                        source.source.ptr,
                        source.device,
                        source.size,
                        source.stream.ptr,
                    )
        for source, _ in flows[1:]:
            arrived = self._event(source)
            arrived.record(source.stream)
            lead.stream.wait_event(arrived)
        end.record(lead.stream)
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(start, end)) / 1e3

    def _event(self, gpu: _Gpu) -> Any:
        with self._cupy.cuda.Device(gpu.device):
            return self._cupy.cuda.Event()


def _make_data(cupy: Any) -> _Data:
    try:
        return _OnDevice(cupy)
    except Exception:
        # CuPy has several errors for an NVRTC that is missing or does not work; the copies need none of it.
        return _OnHost(cupy)


def _wrong_in_words(wrong: int, zero: int, ones: int, words: int) -> str | None:
    if not wrong:
        return None
    share = f"{wrong / words:.1%} of the data is wrong" if wrong >= words / 1000 else f"{wrong * 8} bytes may be wrong"
    if zero == wrong:
        return f"{share}: nothing was written there"
    if ones == wrong:
        return f"{share}: every bit there is 1, as when a device does not answer"
    return share


def _copy(job: Job, say: Callable[[Line], None]) -> int:
    import cupy

    pair: _Pair | None = None
    for step in job.steps:
        say(Line(begin=step))
        try:
            pair = pair or _Pair(cupy, job)
            say(Line(copied=pair.measure(step)))
        except (LookupError, MemoryError) as error:
            say(Line(copied=Copied(step=step, outcome="skipped", note=str(error))))
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
            # Most CUDA errors spoil the process for good: the remaining steps get a new one.
            say(Line(copied=Copied(step=step, outcome="error", note=str(error))))
            return 1
    return 0


def _look() -> Look:
    try:
        import cupy
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            return Look(missing="cupy")
        return Look(missing=f"CuPy is installed and cannot be loaded ({_first_line(error)})")
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
        addresses = [pci.normalize(runtime.deviceGetPCIBusId(device)) for device in range(count)]
        versions = version_text(runtime.runtimeGetVersion()), version_text(runtime.driverGetVersion())
    except runtime.CUDARuntimeError as error:
        return Look(cupy=cupy.__version__, missing=f"CUDA does not work here ({_first_line(error)})")
    return Look(
        cupy=cupy.__version__, runtime=versions[0], driver=versions[1], addresses=addresses, busy=_who_else(addresses)
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" =")]
    return lines[0] if lines else type(error).__name__


def _who_else(addresses: list[str]) -> list[Busy]:
    """GPUs with other processes or running kernels, by NVML; empty when NVML does not say."""
    busy = []
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        for address in addresses:
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(address)
            processes = [p for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
            utilization = int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            if processes or utilization:
                busy.append(Busy(address=address, processes=len(processes), utilization=utilization))
    return busy


def main(stdin: BinaryIO, answers: BinaryIO) -> int:
    """Do the job that stands on `stdin`, one JSON line per answer."""
    encoder = msgspec.json.Encoder()

    def say(line: Line) -> None:
        answers.write(encoder.encode(line) + b"\n")
        answers.flush()

    job = msgspec.json.decode(stdin.read(), type=Job)
    if job.task == "look":
        say(Line(look=_look()))
        return 0
    return _copy(job, say)


if __name__ == "__main__":
    # What libraries print to standard output must not mix with the answers.
    private = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.exit(main(sys.stdin.buffer, private))
