"""gzip, bzip2 and xz data as streams: read piece by piece, and what came before any damage is kept."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from typing import Final, Protocol

_GZIP: Final = b"\x1f\x8b"
_BLOCK: Final = 1 << 16
_MOST_MEMORY: Final = 256 << 20
"""Bytes that unpacking xz may take; `xz -9` asks for 65 MiB, a hostile file for any number."""


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Unpacked(Stream, Protocol):
    """What compressed data hold."""

    damage: str | None
    """Why it ended early."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


_OTHERS: Final[dict[bytes, tuple[str, Callable[[], _Decompressor]]]] = {
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
    b"\xfd7zXZ\0": ("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)),
}
"""How such data begin → their name, and what unpacks one stream; several may follow each other."""


def stream(head: bytes, packed: Stream, count: Callable[[int], None]) -> Unpacked | None:
    """What is in compressed data that begin with `head`, which `packed` holds too; None when they are not compressed.

    `count` is told the size of each piece, and may raise.
    """
    if head.startswith(_GZIP):
        return _Gzip(packed, count)
    magic = next((magic for magic in _OTHERS if head.startswith(magic)), None)
    return _Other(packed, count, magic) if magic is not None else None


class _Gzip:
    def __init__(self, packed: Stream, count: Callable[[int], None]) -> None:
        self._file = gzip.GzipFile(fileobj=packed, mode="rb")  # type: ignore[call-overload]  # only read is called
        self._count = count
        self.damage: str | None = None

    def read(self, size: int, /) -> bytes:
        if self.damage is not None:
            return b""
        try:
            # read1: what came before the damage is not lost with it.
            data: bytes = self._file.read1(size)
        except EOFError:
            self.damage = "the gzip data ends too early"
        except (OSError, zlib.error):
            self.damage = "the gzip data is damaged"
        else:
            self._count(len(data))
            return data
        return b""


class _Other:
    def __init__(self, packed: Stream, count: Callable[[int], None], magic: bytes) -> None:
        self._packed, self._count, self._magic = packed, count, magic
        self._name, self._make = _OTHERS[magic]
        self._stream = self._make()
        self.damage: str | None = None

    def read(self, size: int, /) -> bytes:
        # Asked for nothing, a decompressor gives nothing and never comes to its end.
        while size != 0 and self.damage is None:
            data = b""
            if self._stream.eof:
                data = (self._stream.unused_data or self._packed.read(_BLOCK)).lstrip(b"\0")
                if not data.startswith(self._magic):
                    return b""
                self._stream = self._make()
            elif self._stream.needs_input and not (data := self._packed.read(_BLOCK)):
                self.damage = f"the {self._name} data ends too early"
                return b""
            try:
                found = self._stream.decompress(data, size)
            except (OSError, lzma.LZMAError):
                self.damage = f"the {self._name} data is damaged, or asks for more than {_MOST_MEMORY >> 20} MiB"
                return b""
            self._count(len(found))
            if found:
                return found
        return b""
