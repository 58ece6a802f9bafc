"""NCCL's C interface through ctypes: the very library that a job would load, whatever CuPy was built with.

Signatures and constants: `nccl.h`, unchanged since NCCL 2.7.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

_FLOAT32: Final = 7
_SUM: Final = 0
_ID_BYTES: Final = 128


class NcclError(Exception):
    """A call that failed, with what NCCL says about it."""


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * _ID_BYTES),)


class Library:
    """libnccl. Raises NcclError when it cannot be loaded, or lacks a function."""

    def __init__(self, path: str) -> None:
        try:
            self._calls = ctypes.CDLL(path)
            self._declare()
        except (OSError, AttributeError) as error:
            raise NcclError(f"{path} cannot be loaded: {error}") from None

    def _declare(self) -> None:
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        calls = self._calls
        calls.ncclCommInitRank.argtypes = [ctypes.POINTER(pointer), number, _UniqueId, number]
        calls.ncclAllReduce.argtypes = [pointer, pointer, size, number, number, pointer, pointer]
        calls.ncclReduceScatter.argtypes = [pointer, pointer, size, number, number, pointer, pointer]
        calls.ncclAllGather.argtypes = [pointer, pointer, size, number, pointer, pointer]
        calls.ncclSend.argtypes = [pointer, size, number, number, pointer, pointer]
        calls.ncclRecv.argtypes = [pointer, size, number, number, pointer, pointer]
        calls.ncclCommDestroy.argtypes = [pointer]
        calls.ncclGetErrorString.argtypes = [number]
        calls.ncclGetErrorString.restype = ctypes.c_char_p

    def check(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises NcclError unless it answers ncclSuccess."""
        code = getattr(self._calls, name)(*arguments)
        if code:
            raise NcclError(f"{name}: {self._words(code)}")

    def _words(self, code: int) -> str:
        said = (self._calls.ncclGetErrorString(code) or b"").decode(errors="replace")
        try:
            last = self._calls.ncclGetLastError
        except AttributeError:  # before NCCL 2.13
            return said
        last.argtypes, last.restype = [ctypes.c_void_p], ctypes.c_char_p
        more = (last(None) or b"").decode(errors="replace").strip()
        return f"{said.partition(' (run with')[0]} ({more})" if more else said

    def version(self) -> str:
        number = ctypes.c_int()
        self.check("ncclGetVersion", ctypes.byref(number))
        # 2.8 and older: 2708; since 2.9: 21005.
        base = 1000 if number.value < 10_000 else 10_000
        return f"{number.value // base}.{number.value % base // 100}.{number.value % 100}"

    def unique_id(self) -> bytes:
        unique = _UniqueId()
        self.check("ncclGetUniqueId", ctypes.byref(unique))
        return bytes(unique)

    def communicator(self, ranks: int, unique_id: bytes, rank: int) -> Communicator:
        """Join; returns when all ranks have. The current CUDA device is the rank's."""
        handle = ctypes.c_void_p()
        self.check("ncclCommInitRank", ctypes.byref(handle), ranks, _UniqueId.from_buffer_copy(unique_id), rank)
        return Communicator(self, handle, ranks, rank)


class Communicator:
    """One rank's end. Counts are of 4-byte floats, buffers are GPU addresses."""

    def __init__(self, library: Library, handle: ctypes.c_void_p, ranks: int, rank: int) -> None:
        self._library, self._handle, self.ranks, self.rank = library, handle, ranks, rank

    def all_reduce(self, source: int, target: int, count: int, stream: int) -> None:
        self._library.check("ncclAllReduce", source, target, count, _FLOAT32, _SUM, self._handle, stream)

    def all_gather(self, source: int, target: int, count: int, stream: int) -> None:
        """`count` elements from each rank."""
        self._library.check("ncclAllGather", source, target, count, _FLOAT32, self._handle, stream)

    def reduce_scatter(self, source: int, target: int, count: int, stream: int) -> None:
        """`count` elements to each rank."""
        self._library.check("ncclReduceScatter", source, target, count, _FLOAT32, _SUM, self._handle, stream)

    def alltoall(self, source: int, target: int, count: int, stream: int) -> None:
        """`count` elements from each rank to each rank."""
        self._library.check("ncclGroupStart")
        for peer in range(self.ranks):
            offset = 4 * count * peer
            self._library.check("ncclSend", source + offset, count, _FLOAT32, peer, self._handle, stream)
            self._library.check("ncclRecv", target + offset, count, _FLOAT32, peer, self._handle, stream)
        self._library.check("ncclGroupEnd")

    def sendrecv(self, source: int, target: int, count: int, stream: int) -> None:
        """`count` elements to the next rank and from the one before."""
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        self._library.check("ncclGroupStart")
        self._library.check("ncclSend", source, count, _FLOAT32, after, self._handle, stream)
        self._library.check("ncclRecv", target, count, _FLOAT32, before, self._handle, stream)
        self._library.check("ncclGroupEnd")

    def destroy(self) -> None:
        self._library.check("ncclCommDestroy", self._handle)
