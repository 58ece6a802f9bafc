"""Values for collectives with results that are known exactly: whole numbers of 16 bits as floats of 24.

Sums over up to 256 ranks are exact, and no machine has as many GPUs.
"""

from __future__ import annotations

from typing import Any, Final

_SOURCE: Final = """
__device__ float value(unsigned long long seed, unsigned long long rank, unsigned long long i) {
    unsigned long long x = seed + rank * 0x632be59bd9b4e019ULL + i;  // SplitMix64, the lowest 16 bits
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return (float)((x ^ (x >> 31)) & 0xffffULL);
}
extern "C" __global__ void fill_values(float* out, unsigned long long count, unsigned long long seed,
                                       unsigned long long rank) {
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
         i += (unsigned long long)gridDim.x * blockDim.x)
        out[i] = value(seed, rank, i);
}
extern "C" __global__ void check_values(const float* in, unsigned long long count, unsigned long long seed,
                                        unsigned long long first, unsigned long long ranks, unsigned long long offset,
                                        unsigned long long* wrong) {
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < count;
         i += (unsigned long long)gridDim.x * blockDim.x) {
        float sum = 0;
        for (unsigned long long rank = first; rank < first + ranks; ++rank) sum += value(seed, rank, offset + i);
        if (in[i] != sum) atomicAdd(wrong, 1ULL);
    }
}
"""
_GRID: Final = (1024,)
_BLOCK: Final = (256,)
_HOST_COUNT: Final = 16 << 20
"""Elements that are compared on the host where no kernel can."""


class Kernels:
    """Made and compared by kernels. Raises what CuPy raises when NVRTC is missing or does not work."""

    def __init__(self, cupy: Any) -> None:
        import numpy

        self._cupy, self._u64 = cupy, numpy.uint64
        self._fill, self._check = (cupy.RawKernel(_SOURCE, name) for name in ("fill_values", "check_values"))
        self._fill.compile()

    def fill(self, buffer: int, count: int, seed: int, rank: int) -> None:
        """Rank's own values 0 … count."""
        self._fill(_GRID, _BLOCK, (self._u64(buffer), self._u64(count), self._u64(seed), self._u64(rank)))
        self._cupy.cuda.runtime.deviceSynchronize()

    def wrong(self, buffer: int, count: int, seed: int, first: int, ranks: int, offset: int) -> int | None:
        """Elements that are not the sum over `ranks` ranks from `first` on of their values from `offset` on."""
        import numpy

        runtime = self._cupy.cuda.runtime
        told = numpy.zeros(1, self._u64)
        there = self._cupy.cuda.Memory(told.nbytes)
        runtime.memset(there.ptr, 0, told.nbytes)
        numbers = (buffer, count, seed, first, ranks, offset, there.ptr)
        self._check(_GRID, _BLOCK, tuple(self._u64(number) for number in numbers))
        runtime.memcpy(told.ctypes.data, there.ptr, told.nbytes, runtime.memcpyDeviceToHost)
        return int(told[0])


class OnHost:
    """The same on the host, for buffers that are not too large for it."""

    def __init__(self, cupy: Any) -> None:
        import numpy

        self._cupy, self._numpy = cupy, numpy

    def _values(self, count: int, seed: int, rank: int, offset: int) -> Any:
        u64 = self._numpy.uint64
        mask = (1 << 64) - 1
        x = self._numpy.arange(count, dtype=u64)
        x += u64((seed + rank * 0x632BE59BD9B4E019 + offset + 0x9E3779B97F4A7C15) & mask)
        x = (x ^ (x >> u64(30))) * u64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> u64(27))) * u64(0x94D049BB133111EB)
        return ((x ^ (x >> u64(31))) & u64(0xFFFF)).astype(self._numpy.float32)

    def fill(self, buffer: int, count: int, seed: int, rank: int) -> None:
        runtime = self._cupy.cuda.runtime
        values = self._values(min(count, _HOST_COUNT), seed, rank, 0)
        runtime.memcpy(buffer, values.ctypes.data, values.nbytes, runtime.memcpyHostToDevice)
        runtime.deviceSynchronize()

    def wrong(self, buffer: int, count: int, seed: int, first: int, ranks: int, offset: int) -> int | None:
        """As above; None when the buffer is larger than was filled."""
        if offset + count > _HOST_COUNT:
            return None
        runtime = self._cupy.cuda.runtime
        arrived = self._numpy.empty(count, self._numpy.float32)
        runtime.memcpy(arrived.ctypes.data, buffer, arrived.nbytes, runtime.memcpyDeviceToHost)
        expected = sum(self._values(count, seed, rank, offset) for rank in range(first, first + ranks))
        return int((arrived != expected).sum())


def make(cupy: Any) -> Kernels | OnHost:
    """Kernels where they can be compiled, else the host."""
    try:
        return Kernels(cupy)
    except Exception:
        # CuPy has several errors for an NVRTC that is missing or does not work.
        return OnHost(cupy)
