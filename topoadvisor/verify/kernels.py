"""Random data into a buffer and the comparison of what arrived; holding streams back; copying with a kernel.

CuPy compiles the kernels with NVRTC. Without NVRTC data is made and compared on the host, and the rest is left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, Literal, Protocol

_HOLD_SECONDS: Final = 2.0
"""Issuing the copies of one batch takes milliseconds. Past this the streams go on by themselves, lest they hang."""

_SOURCE: Final = """
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
extern "C" __global__ void hold(volatile int* open, unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (!*open && now - start < nanoseconds);
}
extern "C" __global__ void copy(uint4* target, const uint4* source, unsigned long long count) {
    unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; i + 7 * threads < count; i += 8 * threads) {
        uint4 part[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) part[k] = source[i + k * threads];
#pragma unroll
        for (int k = 0; k < 8; ++k) target[i + k * threads] = part[k];
    }
    for (; i < count; i += threads) target[i] = source[i];
}
"""
_GRID: Final = (2048,)
_BLOCK: Final = (256,)
_COPY_BLOCK: Final = (512,)


class Data(Protocol):
    """Random data into a buffer of a GPU, and the comparison of what arrived: words wrong, of these zero, all ones."""

    where: Literal["device", "host"]

    def fill(self, device: int, buffer: int, words: int, seed: int) -> None: ...

    def check(self, device: int, buffer: int, words: int, seed: int) -> tuple[int, int, int]: ...


class Kernels:
    """All of it by kernels. Raises what CuPy raises when NVRTC is missing or does not work."""

    where: Literal["device", "host"] = "device"

    def __init__(self, cupy: Any) -> None:
        import numpy

        self._cupy, self._runtime, self._u64 = cupy, cupy.cuda.runtime, numpy.uint64
        self._numpy = numpy
        self._fill, self._check, self._hold, self._copy = (
            cupy.RawKernel(_SOURCE, name) for name in ("fill", "check", "hold", "copy")
        )
        self._fill.compile()
        self._open = self._runtime.hostAlloc(64, self._runtime.hostAllocPortable)
        self._latch = ctypes.c_int.from_address(self._open)

    def fill(self, device: int, buffer: int, words: int, seed: int) -> None:
        with self._cupy.cuda.Device(device):
            self._fill(_GRID, _BLOCK, (self._u64(buffer), self._u64(words), self._u64(seed)))
            self._runtime.deviceSynchronize()

    def check(self, device: int, buffer: int, words: int, seed: int) -> tuple[int, int, int]:
        counts = self._numpy.zeros(3, self._u64)
        with self._cupy.cuda.Device(device):
            there = self._cupy.cuda.Memory(counts.nbytes)
            self._runtime.memset(there.ptr, 0, counts.nbytes)
            self._check(_GRID, _BLOCK, (self._u64(buffer), self._u64(words), self._u64(seed), self._u64(there.ptr)))
            self._runtime.memcpy(counts.ctypes.data, there.ptr, counts.nbytes, self._runtime.memcpyDeviceToHost)
        return int(counts[0]), int(counts[1]), int(counts[2])

    @contextmanager
    def held(self, device: int, stream: Any) -> Iterator[list[bool]]:
        """Hold a stream back until the block is left. The list then says whether it was held all the time."""
        self._latch.value = 0
        since = monotonic()
        told: list[bool] = []
        with self._cupy.cuda.Device(device), stream:
            self._hold((1,), (1,), (self._u64(self._open), self._u64(int(_HOLD_SECONDS * 1e9))))
        try:
            yield told
        finally:
            told.append(monotonic() - since < _HOLD_SECONDS)
            self._latch.value = 1

    def copy(self, device: int, stream: Any, target: int, source: int, size: int) -> None:
        """Copy `size` bytes, a multiple of 16, by a kernel of that GPU that reads or writes its peer's memory."""
        processors = self._runtime.deviceGetAttribute(self._runtime.cudaDevAttrMultiProcessorCount, device)
        with self._cupy.cuda.Device(device), stream:
            self._copy((processors,), _COPY_BLOCK, (self._u64(target), self._u64(source), self._u64(size // 16)))


class OnHost:
    """Data made and compared on the host, for a CuPy without NVRTC."""

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


def make(cupy: Any) -> Kernels | OnHost:
    """Kernels where they can be compiled, else the host."""
    try:
        return Kernels(cupy)
    except Exception:
        # CuPy has several errors for an NVRTC that is missing or does not work; plain copies need none of it.
        return OnHost(cupy)
