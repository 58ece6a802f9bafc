"""NCCL libraries of this machine and their versions, read without loading them where that is possible."""

from __future__ import annotations

import os
import re
import struct
import sys
from pathlib import Path
from typing import BinaryIO, Final

from topoadvisor.collect.world import Files, World, printable
from topoadvisor.errors import InputError
from topoadvisor.nccl import versions
from topoadvisor.snapshot import NcclLibrary

_LIBRARY: Final = re.compile(r"libnccl\.so(?:\.[0-9]+)*")
_CACHED: Final = re.compile(rb"(/[^\0]{1,4096}/)libnccl(?:-net)?\.so[.0-9]*(?=\0)")
_FULL_VERSION: Final = re.compile(r"libnccl\.so\.([0-9]+\.[0-9]+\.[0-9]+)$")
_VERSION_TEXT: Final = re.compile(rb"NCCL version ([0-9]+\.[0-9]+\.[0-9]+)")
_PACKAGE: Final = re.compile(r"nvidia_nccl_cu[0-9]+-([0-9]+\.[0-9]+\.[0-9]+)[^-]*\.dist-info")
_SITE_PACKAGES: Final = (
    "/usr/local/lib/python3*/site-packages",
    "/usr/local/lib/python3*/dist-packages",
    "/usr/lib/python3*/dist-packages",
    "/usr/lib/python3*/site-packages",
    "/opt/conda/lib/python3*/site-packages",
    "/opt/venv/lib/python3*/site-packages",
)
_FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/nccl*/lib",
    "/opt/nccl*/lib",
    "/opt/nvidia/nccl*/lib",
    "/opt/nvidia/hpc_sdk/Linux_*/*/comm_libs/nccl/lib",
    "/opt/amazon/ofi-nccl/lib*",
    "/opt/aws-ofi-nccl/lib",
    "/opt/hpcx/nccl_rdma_sharp_plugin/lib",
    "/usr/local/gib/lib64",
)
_CACHE_LIMIT: Final = 8 << 20
_NAMES: Final = re.compile(rb"NCCL_[A-Z0-9_]{2,80}(?=\0)")
"""What stands before a name says nothing: constants without an end of their own may."""
_SEARCH_LIMIT: Final = 64 << 20
"""Bytes of a library searched for its version; .rodata, where it stands, has a few million."""
_SECTION_HEADER: Final = 64
_CALL_DEADLINE_S: Final = 10.0
_CALL: Final = """
import ctypes, sys
version = ctypes.c_int()
code = ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(version))
print(version.value if code == 0 else 0)
"""


def read(files: Files, world: World) -> list[NcclLibrary]:
    """Libraries in the order in which a program started here would meet them, each file once.

    Preloaded and explicitly named ones first, then LD_LIBRARY_PATH, Python packages, the loader's cache and the usual
    folders. Below another root the environment, which names paths of this one, is not consulted.
    """
    found: list[NcclLibrary] = []
    seen: set[str] = set()
    for path in _candidates(files, world):
        real = files.inside(path)
        if real is None or real in seen or not _LIBRARY.fullmatch(path.rpartition("/")[2]) or not files.exists(real):
            continue
        seen.add(real)
        version, read_by = _version(files, world, path, real)
        found.append(NcclLibrary(path=printable(path), version=version, read_by=read_by))
    return found


def _candidates(files: Files, world: World) -> list[str]:
    environ = {} if world.elsewhere else world.environ
    preloaded = re.split(r"[:\s]", environ.get("LD_PRELOAD", ""))
    paths = [path for path in (*preloaded, environ.get("VLLM_NCCL_SO_PATH", "")) if path.startswith("/")]
    for folder in folders(files, world):
        names = [name for name in files.names(folder) or [] if _LIBRARY.fullmatch(name)]
        # The name that programs are linked with comes first: it is what the loader opens.
        paths += [f"{folder}/{name}" for name in sorted(names, key=lambda name: (name != "libnccl.so.2", name))]
    return paths


def folders(files: Files, world: World) -> list[str]:
    """Folders in which a program started here would find NCCL and its plugins, in that order."""
    environ = {} if world.elsewhere else world.environ
    found = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")]
    sites = () if world.elsewhere else world.search_path
    prefixes = [environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name, "").startswith("/")]
    for pattern in (*sites, *(f"{prefix}/lib/python3*/site-packages" for prefix in prefixes), *_SITE_PACKAGES):
        found += files.matching(f"{pattern}/nvidia/nccl/lib")
    cache = files.data("/etc/ld.so.cache", _CACHE_LIMIT) or b""
    found += [match.decode(errors="replace").rstrip("/") for match in _CACHED.findall(cache)]
    for pattern in _FOLDERS:
        found += files.matching(pattern)
    return list(dict.fromkeys(found))


def _version(files: Files, world: World, path: str, real: str) -> tuple[str | None, str | None]:
    """The version of a library and how it was read, cheapest way first."""
    if match := _FULL_VERSION.search(real):
        return match.group(1), "file name"
    if version := _package_version(files, path):
        return version, "package metadata"
    if (stream := files.open(real)) is not None:
        with stream:
            version = version_in_file(stream)
        if version:
            return version, "strings"
    version = None if world.elsewhere else _ask_library(world, real)
    return version, "ncclGetVersion" if version else None


def _package_version(files: Files, path: str) -> str | None:
    """Version of the one Python package that this file can belong to; None when two of them claim it."""
    site, inside, _ = path.partition("/nvidia/nccl/lib/")
    if not inside:
        return None
    versions = [match.group(1) for name in files.names(site) or [] if (match := _PACKAGE.fullmatch(name))]
    return versions[0] if len(versions) == 1 else None


def version_in_file(stream: BinaryIO) -> str | None:
    """The version in NCCL's own banner text, searched in the read-only data of an ELF file; None when not found."""
    try:
        start, size = _read_only_data(stream) or (0, _SEARCH_LIMIT)
        stream.seek(start)
        left, tail = min(size, _SEARCH_LIMIT), b""
        while left > 0 and (part := stream.read(min(left, 1 << 20))):
            if match := _VERSION_TEXT.search(tail + part):
                return match.group(1).decode()
            left, tail = left - len(part), part[-64:]
    except (OSError, struct.error, ValueError):
        return None
    return None


def look_into(path: str) -> tuple[str | None, frozenset[str]]:
    """(version, names of variables) that a library's own texts hold, without loading it.

    A name of few letters may hide in the code as a number and be missing. Raises InputError for what is no library.
    """
    try:
        with open(path, "rb") as stream:  # noqa: PTH123
            version = version_in_file(stream)
            names = names_in_file(stream)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", file=path, hint="Give the path of a libnccl.so.2.") from None
    if not names:
        raise InputError("this is no NCCL library: it names no variable", file=path, hint="Give a libnccl.so.2.")
    named = _FULL_VERSION.search(os.path.realpath(path))
    return version or (named[1] if named else None), names


def names_in_file(stream: BinaryIO) -> frozenset[str]:
    """The texts of the form NCCL_NAME in the read-only data of an ELF file."""
    try:
        stream.seek(0)
        start, size = _read_only_data(stream) or (0, _SEARCH_LIMIT)
        stream.seek(start)
        data = stream.read(min(size, _SEARCH_LIMIT))
    except struct.error:
        return frozenset()
    return frozenset(match[0].decode() for match in _NAMES.finditer(data))


def installed(version: str | None) -> str | None:
    """Path of the library that a program started here would load; with a version, of the first of that version."""
    found = read(Files(Path("/")), World.real())
    return next((each.path for each in found if version is None or each.version == version), None)


def _read_only_data(stream: BinaryIO) -> tuple[int, int] | None:
    """Offset and size of `.rodata` in a little-endian ELF64 file; None when it has no such section."""
    header = stream.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        return None
    offset = struct.unpack_from("<Q", header, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", header, 0x3A)
    if size != _SECTION_HEADER or names >= count:
        return None
    stream.seek(offset)
    table = stream.read(size * count)
    sections = [struct.unpack_from("<IIQQQQ", table, place * size) for place in range(count)]
    stream.seek(sections[names][4])
    texts = stream.read(min(sections[names][5], 1 << 20))
    for name, _, _, _, start, length in sections:
        if texts[name : name + 8] == b".rodata\0":
            return start, length
    return None


def _ask_library(world: World, path: str) -> str | None:
    """Ask the library itself, in a process of its own: loading it runs its code."""
    try:
        number = int(world.start([sys.executable, "-I", "-c", _CALL, path]).finish(_CALL_DEADLINE_S).text)
    except (OSError, ValueError):
        return None
    return ".".join(map(str, versions.parse(number))) if number >= 1000 else None
