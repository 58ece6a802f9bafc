"""CUDA whose GPUs' memory is host memory, as a module that can stand in for CuPy. Time passes by what is copied."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable
from typing import Any

import numpy

ADDRESSES = ["0000:06:00.0", "0000:07:00.0", "0000:08:00.0"]
Copy = Callable[[int, int, int], None]


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


def move(target: int, source: int, size: int) -> None:
    ctypes.memmove(target, source, size)


def words(pointer: int, count: int, kind: type = numpy.uint64) -> Any:
    """The memory at an address as an array."""
    size = numpy.dtype(kind).itemsize
    return numpy.frombuffer((ctypes.c_char * (int(count) * size)).from_address(int(pointer)), kind)


class FakeCuda:
    """Set its attributes to break it."""

    def __init__(self) -> None:
        self.device = 0
        self.now = 0.0
        self.free = 1 << 40
        self.peers = True
        self.most_peers = 8
        self.largest = 1 << 40
        self.enabled: set[tuple[int, int]] = set()
        self.peer_copy: Copy = move
        self.host_copy: Copy = move
        self.kernel_copy: Copy = move
        self.fails: int | None = None
        self.nvrtc = False
        self.gbps = 100.0
        self.launched: list[str] = []

    def passes(self, size: int) -> None:
        self.now += size / self.gbps / 1e6

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
                self.size = size
                cuda.free -= size

            def __del__(self) -> None:
                cuda.free += getattr(self, "size", 0)

        class Event:
            at = 0.0

            def record(self, stream: object = None) -> None:
                self.at = cuda.now

            def synchronize(self) -> None: ...

        class Stream:
            ptr = 0

            def __init__(self, non_blocking: bool = False) -> None: ...

            def wait_event(self, event: Event) -> None: ...

            def synchronize(self) -> None: ...

            def __enter__(self) -> None: ...

            def __exit__(self, *_: object) -> None: ...

        def peer(target: int, to: int, source: int, of: int, size: int, stream: int) -> None:
            if cuda.fails is not None:
                raise CUDARuntimeError(cuda.fails)
            cuda.peer_copy(target, source, size)
            cuda.passes(size)

        def host(target: int, source: int, size: int, kind: int, stream: int) -> None:
            cuda.host_copy(target, source, size)
            cuda.passes(size)

        def enable(peer: int) -> None:
            if (cuda.device, peer) in cuda.enabled:
                raise CUDARuntimeError(704)
            if sum(device == cuda.device for device, _ in cuda.enabled) >= cuda.most_peers:
                raise CUDARuntimeError(711)
            cuda.enabled.add((cuda.device, peer))

        def by_bus_id(address: str) -> int:
            if address not in ADDRESSES:
                raise CUDARuntimeError(10)
            return ADDRESSES.index(address)

        pinned: dict[int, Any] = {}

        def host_alloc(size: int, flags: int) -> int:
            if size > cuda.largest:
                raise CUDARuntimeError(2)
            buffer = ctypes.create_string_buffer(size)
            pinned[ctypes.addressof(buffer)] = buffer
            return ctypes.addressof(buffer)

        class RawKernel:
            """The kernels by name, as numpy does them."""

            def __init__(self, code: str, name: str) -> None:
                if not cuda.nvrtc:
                    raise RuntimeError("NVRTC is missing")
                assert f"__global__ void {name}(" in code
                self.name = name

            def compile(self) -> None: ...

            def __call__(self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
                cuda.launched.append(self.name)
                if self.name == "fill":
                    pointer, count, seed = arguments
                    words(pointer, count)[:] = numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(3) + seed
                elif self.name == "check":
                    pointer, count, seed, wrong = arguments
                    there = words(pointer, count)
                    expected = numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(3) + seed
                    bad = there[there != expected]
                    words(wrong, 3)[:] = [len(bad), (bad == 0).sum(), (bad == 2**64 - 1).sum()]
                elif self.name == "copy":
                    target, source, count = (int(argument) for argument in arguments)
                    cuda.kernel_copy(target, source, count * 16)
                    cuda.passes(count * 16)

        runtime = types.SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            hostAllocPortable=1,
            cudaDevAttrMultiProcessorCount=16,
            deviceGetAttribute=lambda attribute, device: 132,
            deviceGetByPCIBusId=by_bus_id,
            deviceGetPCIBusId=lambda device: ADDRESSES[device].upper(),
            getDeviceCount=lambda: 2,
            runtimeGetVersion=lambda: 13020,
            driverGetVersion=lambda: 13000,
            deviceCanAccessPeer=lambda device, peer: int(cuda.peers),
            deviceEnablePeerAccess=enable,
            deviceDisablePeerAccess=lambda peer: cuda.enabled.remove((cuda.device, peer)),
            memGetInfo=lambda: (cuda.free, cuda.free),
            memset=lambda pointer, value, size: ctypes.memset(pointer, value, size),
            deviceSynchronize=lambda: None,
            setDevice=lambda device: None,
            getDevice=lambda: 0,
            memcpy=lambda target, source, size, kind: move(target, source, size),
            memcpyAsync=host,
            memcpyPeerAsync=peer,
            hostAlloc=host_alloc,
            freeHost=lambda pointer: pinned.pop(pointer),
        )
        module: Any = types.ModuleType("cupy")
        module.__version__ = "14.2.0"
        module.RawKernel = RawKernel
        module.cuda = types.SimpleNamespace(
            runtime=runtime,
            driver=types.SimpleNamespace(CUDADriverError=OSError),
            Device=Device,
            Memory=Memory,
            Event=Event,
            Stream=Stream,
            get_elapsed_time=lambda start, end: max(end.at - start.at, 1e-6),  # a real clock never stands still
        )
        return module  # type: ignore[no-any-return]
