"""SOURCE → Snapshot: finds the bytes, recognises by their content what they are, and hands them to the right reader."""

from __future__ import annotations

import difflib
import re
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import msgspec

from topoadvisor import files, snapshot
from topoadvisor.errors import InputError
from topoadvisor.snapshot import Snapshot

MAX_BYTES: Final = 64 << 20
_FIXTURE: Final = "fixture:"
_KINDS: Final = (
    "SOURCE is a snapshot (`topoadvisor capture`), the text of `nvidia-smi topo -m`, an NCCL topology XML, "
    "a log of NCCL_DEBUG=INFO, or fixture:NAME."
)

_MAGIC: Final = (
    (b"\x1f\x8b", "gzip data", "Unpack it first: `gunzip -c FILE | topoadvisor scan -`."),
    (b"PK\x03\x04", "a zip archive", "Unpack it first."),
    (b"\xfd7zXZ", "xz data", "Unpack it first: `xz -dc FILE | topoadvisor scan -`."),
    (b"(\xb5/\xfd", "zstd data", "Unpack it first: `zstd -dc FILE | topoadvisor scan -`."),
    (b"BZh", "bzip2 data", "Unpack it first: `bunzip2 -c FILE | topoadvisor scan -`."),
    (b"\x89PNG", "a picture", "Copy the matrix as text; a screenshot cannot be read."),
    (b"\xff\xd8\xff", "a picture", "Copy the matrix as text; a screenshot cannot be read."),
    (b"%PDF", "a PDF document", "Copy the matrix out of it as text."),
    (b"\x7fELF", "a program", _KINDS),
)
_ROOTS: Final = {
    "graphs": (
        "an NCCL graph XML",
        "NCCL writes the topology with NCCL_TOPO_DUMP_FILE, the graph with another variable.",
    ),
    "topology": ("an hwloc topology", "Give the text of `nvidia-smi topo -m` from the same machine."),
    "nvidia_smi_log": ("the XML of `nvidia-smi -q -x`", "Give the text of `nvidia-smi topo -m` from the same machine."),
}
_OTHERS: Final = (
    (re.compile(r"^[ \t]*Link [0-9]{1,3}: ", re.M), "the link states of `nvidia-smi nvlink`"),
    (re.compile(r"NVIDIA-SMI [0-9]"), "the summary of `nvidia-smi`"),
    (re.compile(r"=NVSMI LOG="), "the report of `nvidia-smi -q`"),
    (re.compile(r"^[0-9a-f:]{5,12}\.[0-9] .*(?:controller|bridge)", re.M | re.I), "a list of PCI devices"),
)
_NCCL: Final = re.compile(rb"NCCL (?:INFO|WARN|TRACE) |NCCL version [0-9]+[.][0-9]")
_MATRIX: Final = re.compile(rb"GPU0[ \t]+(?:X[ \t]|GPU1[ \t]|CPU Affinity)")
_CONTROL: Final = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r\b\x1b")
_LOOK: Final = 1 << 16
"""How far into a file its kind is looked for."""


def read(source: str, *, stdin: BinaryIO) -> Snapshot:
    """Read a SOURCE: a file, `-` for standard input, or `fixture:NAME`.

    Raises InputError with one sentence and a hint when it cannot be read, or is of a kind that cannot be read.
    """
    if source.startswith(_FIXTURE):
        return _fixture(source.removeprefix(_FIXTURE))
    if source == "-":
        return _from_stream(stdin, "standard input")
    if not source.strip():
        raise InputError("SOURCE is an empty name", hint=_KINDS)
    try:
        stream = Path(source).open("rb")  # noqa: SIM115
    except (OSError, ValueError) as error:
        _refuse(source, error)
    with stream:
        return _from_stream(stream, source)


def _from_stream(stream: BinaryIO, file: str) -> Snapshot:
    try:
        data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        _refuse(file, error)
    if len(data) > MAX_BYTES and _is_log(data):
        return snapshot.check_size(_log(data, stream, file), file=file)
    return from_bytes(data, file=file)


def _refuse(source: str, error: OSError | ValueError) -> NoReturn:
    match error:
        case FileNotFoundError():
            message, hint = "there is no such file", _KINDS
            if source in _fixtures():
                hint = f"Did you mean {_FIXTURE}{source}?"
        case IsADirectoryError():
            message, hint = "this is a directory", "Give a file inside it. " + _KINDS
        case PermissionError():
            message, hint = "you may not read this file", "Ask its owner, or give it on standard input with `-`."
        case _:
            message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            hint = _KINDS
    raise InputError(message, file=source[:200] if source.isprintable() else repr(source[:200]), hint=hint) from None


def _fixtures() -> list[str]:
    return sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json"))


def _fixture(name: str) -> Snapshot:
    names = _fixtures()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        there = f"There are: {', '.join(names)}."
        raise InputError(
            f"there is no fixture {name!r}" if name else "fixture: needs a name",
            hint=f"Did you mean {' or '.join(near)}? {there}" if near else there,
        )
    path = files.shipped("fixtures") / name / "snapshot.json"
    return snapshot.decode(path.read_bytes(), file=str(path))


def from_bytes(data: bytes, *, file: str) -> Snapshot:
    """Recognise what `data` is by its content and read it. Raises InputError as `read` does."""
    return snapshot.check_size(_recognised(data, file), file=file)


def _recognised(data: bytes, file: str) -> Snapshot:
    if len(data) > MAX_BYTES:
        raise InputError(f"this is more than {MAX_BYTES >> 20} MiB", file=file, hint=_KINDS)
    if not data.strip():
        raise InputError("this is empty", file=file, hint=_KINDS)
    for magic, what, hint in _MAGIC:
        if data.startswith(magic):
            raise InputError(f"this is {what}, not text", file=file, hint=hint)
    if _is_log(data):
        return _log(data, None, file)
    text = _decoded(data, file)
    start = text[:_LOOK].lstrip()
    if start.startswith(("{", "[")):
        found = _json(text, start, file)
        if found is not None:
            return found
    if start.startswith("<"):
        root = _root(start)
        if root == "system":
            from topoadvisor.ingest import nccl_topo_xml

            return nccl_topo_xml.parse(text, file=file)
        if root in _ROOTS:
            what, hint = _ROOTS[root]
            raise InputError(f"this is {what}, which cannot be read yet", file=file, hint=hint)
    return _matrix(text, start, file)


def _is_log(data: bytes) -> bool:
    """Whether messages of NCCL begin here, and not a document that quotes some, nor a log with a matrix in it."""
    start = data[:_LOOK].lstrip()
    if start.startswith((b"{", b"<")) and not start.startswith(b'{"log":'):
        return False
    return _NCCL.search(start) is not None and _MATRIX.search(data) is None


def _log(start: bytes, rest: BinaryIO | None, file: str) -> Snapshot:
    """A log of NCCL; `rest` is the stream behind `start` of one that is too large to hold."""
    from topoadvisor.ingest import nccl_log, nccl_log_snapshot

    reader = nccl_log.Reader()
    reader.feed(file, chain([start], iter(lambda: rest.read(nccl_log.BLOCK), b"") if rest is not None else ()))
    found = nccl_log_snapshot.convert(reader.summary([file]), file=file)
    if not found.gpus:
        raise InputError(
            "this is a log of NCCL, but it does not show which GPUs the job has",
            file=file,
            hint="NCCL_DEBUG=INFO prints them when a communicator is made; `topoadvisor log` reads what is there.",
        )
    return found


def _decoded(data: bytes, file: str) -> str:
    """The text of UTF-8, UTF-16 with or without its mark, or, when it is neither, Latin-1."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    sample = data[:_LOOK]
    zeros = sample.count(0)
    if zeros * 3 > len(sample):
        low, high = sample[::2], sample[1::2]
        for encoding, zero, other in (("utf-16-le", high, low), ("utf-16-be", low, high)):
            if zero.count(0) * 10 > len(zero) * 9 and other.count(0) * 10 < len(other):
                return data.decode(encoding, "replace")
    strange = sum(sample.count(byte) for byte in _CONTROL)
    if strange * 20 > len(sample):
        raise InputError("this is binary data, not text", file=file, hint=_KINDS)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _json(text: str, start: str, file: str) -> Snapshot | None:
    """The snapshot of a JSON text; None when the text only begins like JSON (`[user@host ~]$`)."""
    schema = re.search(r'"schema"\s*:\s*"([^"]{0,80})"', start)
    if schema and schema[1].startswith("topoadvisor.snapshot/") and start.startswith("{"):
        return snapshot.decode(text.encode(), file=file)
    try:
        document = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        if re.match(r'\{\s*"[^"\n]{1,80}"\s*:', start):
            raise InputError(
                "this begins like JSON, but it is broken or ends too early", file=file, line=1, hint=_KINDS
            ) from None
        return None
    name = document.get("schema") if isinstance(document, dict) else None
    if isinstance(name, str) and name.startswith("topoadvisor.snapshot/"):
        return snapshot.decode(text.encode(), file=file)
    what = f"a {name[:60]} document" if isinstance(name, str) else "JSON"
    raise InputError(f"this is {what}, but not a snapshot of topoadvisor", file=file, hint=_KINDS)


def _root(start: str) -> str | None:
    """The first element that one of the known XML formats begins with, past comments and a document type."""
    match = re.search(rf"<(system|{'|'.join(_ROOTS)})[\s>/]", start)
    return match[1] if match else None


def _matrix(text: str, start: str, file: str) -> Snapshot:
    from topoadvisor.ingest import topo_matrix

    try:
        matrices = topo_matrix.parse(text, file=file)
    except InputError as error:
        what = next((what for pattern, what in _OTHERS if pattern.search(start)), None)
        if error.line == 1 and what:
            raise InputError(
                f"this is {what}, which does not hold the topology", file=file, line=1, hint=topo_matrix.HINT
            ) from None
        if start.startswith("<?xml"):
            raise InputError("this XML is none that can be read", file=file, line=1, hint=_KINDS) from None
        raise
    return topo_matrix.to_snapshot(matrices, text, file)
