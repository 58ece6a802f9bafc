"""Files and folders → texts to judge, and repaired texts → files."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from topoadvisor.errors import InputError, TopoAdvisorError
from topoadvisor.files import write_atomically
from topoadvisor.lint.kinds import Kind
from topoadvisor.lint.readers.embedded import kind_of_name, kind_of_text
from topoadvisor.lint.run import Source

_LARGEST: Final = 8 << 20
_LARGEST_IN_FOLDER: Final = 1 << 20
_MOST_FILES: Final = 50_000
_RUNS_HERE: Final = re.compile(
    r"(?:^|[;&|{(]|\b(?:then|do|else))[ \t]*(?:source|\.)[ \t]+[\"']?(?:\$(?:\{[^}\n]*\}|\([^()\n]*\)|\w+)[\"']?/)?"
    r"(?P<path>[\w.+-][\w./+-]*)",
    re.M | re.A,
)
"""`source FILE`, `. "$FOLDER/FILE"`; absolute paths are the system's."""
_PASSED_OVER: Final = frozenset(
    {"node_modules", "__pycache__", "site-packages", "dist-packages", "venv", "build", "dist"}
)
_OF_INTEREST: Final = re.compile(
    rb"(?i:nccl)_|\bN[CL]{1,5}_|TORCH_FR_|NVSHMEM_|UCX_|GLOO_|\bFI_[A-Z]|CUDA_DEVICE_|CUDA_VISIBLE|CUDA_LAUNCH|VLLM_|SGLANG_|topoadvisor:"
)
"""What a file of a folder has to hold to be looked at."""


def sources(names: Sequence[str], kind: Kind | None, stdin: BinaryIO) -> Iterator[Source]:
    """The texts of files, of standard input (`-`) and of what folders hold, in this order.

    A file that is named twice, or lies in a folder that is named as well, comes once. Of folders only files whose names
    say what they are, and that speak of a variable. Behind them the files beside scripts that these run with `source`.
    Raises InputError for what cannot be read or is no text.
    """
    seen: set[str] = set()
    scripts: list[Source] = []
    for name in names:
        if name == "-":
            yield _source("-", stdin.read(_LARGEST + 1), kind)
            continue
        path = Path(name)
        found = _of_folder(path, kind) if path.is_dir() else iter([_source(name, _read(path, name), kind)])
        for source in found:
            place = os.path.realpath(source.file)
            if place not in seen:
                seen.add(place)
                scripts.append(source)
                yield source
    for script in scripts:
        for path in _run_by(script):
            place = os.path.realpath(path)
            if place not in seen and (followed := _followed(path)) is not None:
                seen.add(place)
                scripts.append(followed)
                yield followed


def _run_by(script: Source) -> Iterator[Path]:
    """The files beside a script that it runs in its own shell; a folder that only the shell knows is taken for its."""
    if script.kind != "shell":
        return
    for match in _RUNS_HERE.finditer(script.text):
        path = Path(script.file).parent / match["path"]
        if path.is_file():
            yield path


def _followed(path: Path) -> Source | None:
    try:
        if path.stat().st_size > _LARGEST_IN_FOLDER:
            return None
        source = _source(str(path), path.read_bytes(), None, named=False)
    except (OSError, InputError):
        return None
    return replace(source, kind="env" if source.kind == "env" else "shell", followed=True)


def _read(path: Path, name: str) -> bytes:
    if path.is_fifo() and Path(os.path.realpath(path)).exists():
        # Pipes of a shell's <(…) have no name of their own; opening one that has waits for somebody to write.
        raise InputError("this is a named pipe, which is not read", file=name, hint="Hand its text over with -.")
    try:
        with path.open("rb") as stream:
            return stream.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", file=name, hint="Give files, folders, or - for a text.") from None


def _source(name: str, data: bytes, kind: Kind | None, *, named: bool = True) -> Source:
    if len(data) > _LARGEST:
        raise InputError(f"this file has more than {_LARGEST >> 20} MiB", file=name, hint="Is it a script?")
    if b"\0" in data:
        raise InputError("this is no text: it holds NUL bytes", file=name, hint="Give scripts and configurations.")
    marked = data.startswith(codecs.BOM_UTF8)
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    return Source(name, text, kind or kind_of_name(name) or kind_of_text(text), named, marked)


def _of_folder(folder: Path, kind: Kind | None) -> Iterator[Source]:
    for path in _listed(folder):
        if path.is_symlink() or not path.is_file():
            continue
        found = kind_of_name(path.name) or ("shell" if "." not in path.name and _is_script(path) else None)
        if found is None:
            continue
        try:
            if path.stat().st_size > _LARGEST_IN_FOLDER:
                continue
            data = path.read_bytes()
        except OSError:
            continue
        if b"\0" not in data and _OF_INTEREST.search(data):
            yield _source(str(path), data, kind or found, named=False)


def _listed(folder: Path) -> list[Path]:
    """The files of a folder and those in it, in order, before any is opened: too many take minutes to read.

    Raises TopoAdvisorError where they are too many, or no files at all but what the kernel shows of itself.
    """
    hint = "Give the folders with scripts and configurations."
    if _is_kernels(folder):
        raise TopoAdvisorError(f"{folder} is the kernel's own, where no scripts are", hint=hint)
    listed: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".") and each not in _PASSED_OVER and not _is_kernels(Path(place, each))
        )
        listed += (Path(place, name) for name in sorted(names))
        if len(listed) > _MOST_FILES:
            raise TopoAdvisorError(f"{folder} holds more than {_MOST_FILES} files", hint=hint)
    return listed


def _is_kernels(folder: Path) -> bool:
    """Reading some of the files there waits for what may never come, or for what another program should have got."""
    place = os.path.realpath(folder)
    return place == "/dev" or f"{place}/".startswith(("/proc/", "/sys/"))


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            first = stream.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"sh" in first


def write(source: Source, text: str) -> None:
    """Put a repaired text in the place of a file, in one step.

    Raises TopoAdvisorError when it cannot be written, or no longer holds what was judged.
    """
    path = Path(source.file)
    mark = codecs.BOM_UTF8 if source.marked else b""

    def unchanged() -> None:
        if path.read_bytes() != mark + source.text.encode("utf-8", "surrogateescape"):
            raise TopoAdvisorError(f"{path} changed meanwhile, so it is not repaired", hint="Run it again.")

    try:
        write_atomically(path, mark + text.encode("utf-8", "surrogateescape"), just_before=unchanged)
    except OSError as error:
        raise TopoAdvisorError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="--diff shows the repairs without writing them.",
        ) from None
