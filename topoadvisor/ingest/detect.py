"""SOURCES → Snapshot: finds the bytes, recognises by their content what they are, hands them to the right reader."""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NoReturn

import msgspec

from topoadvisor import files, snapshot
from topoadvisor.errors import InputError, Unrecognised
from topoadvisor.ingest import size
from topoadvisor.snapshot import Snapshot

if TYPE_CHECKING:
    from topoadvisor.ingest.part import Part

MAX_BYTES: Final = 64 << 20
_FIXTURE: Final = "fixture:"
_KINDS: Final = (
    "SOURCE is a snapshot (`topoadvisor capture`), the text of `nvidia-smi topo -m`, `nvidia-smi -q`, `lspci -tv` and "
    "the like, a bug report, a directory or tar of such files, an NCCL topology XML, "
    "an hwloc XML (`lstopo --of xml`), a log of NCCL_DEBUG=INFO, or fixture:NAME."
)

_MAGIC: Final = (
    (b"PK\x03\x04", "a zip archive", "Unpack it first."),
    (b"(\xb5/\xfd", "zstd data", "Unpack it first: `zstd -dc FILE | topoadvisor scan -`."),
    (b"\x89PNG", "a picture", "Copy the matrix as text; a screenshot cannot be read."),
    (b"\xff\xd8\xff", "a picture", "Copy the matrix as text; a screenshot cannot be read."),
    (b"%PDF", "a PDF document", "Copy the matrix out of it as text."),
    (b"\x7fELF", "a program", _KINDS),
)
_ROOTS: Final = {
    "graphs": (
        "an NCCL graph XML: the rings and trees that NCCL chose (NCCL_GRAPH_DUMP_FILE), not the machine they run on",
        "Give the topology, which NCCL writes with NCCL_TOPO_DUMP_FILE, or a log: `topoadvisor log` shows rings.",
    ),
}
_NCCL: Final = re.compile(rb"NCCL (?:INFO|WARN|TRACE) |NCCL version [0-9]+[.][0-9]")
_MATRIX: Final = re.compile(rb"GPU0[ \t]+(?:X[ \t]|GPU1[ \t]|CPU Affinity)")
_CONTROL: Final = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r\b\x1b")
_LOOK: Final = 1 << 16
"""How far into a file its kind is looked for."""


def read(sources: str | Sequence[str], *, stdin: BinaryIO) -> Snapshot:
    """Read one SOURCE, or several about one machine: files, directories, `-` for standard input, or `fixture:NAME`.

    Raises InputError with one sentence and a hint when one cannot be read, is of a kind that cannot be read, or is
    about another machine than those before it.
    """
    names = [sources] if isinstance(sources, str) else list(sources)
    if names.count("-") > 1:
        raise InputError("standard input (-) is given twice", hint="It can be read once: name it once.")
    return _together([_read(name, stdin) for name in names])


def _together(found: Sequence[list[Part]]) -> Snapshot:
    from topoadvisor.ingest import merge

    if len(found) == 1 and len(found[0]) == 1 and found[0][0].whole:
        return found[0][0].snapshot
    together = [part for parts in found for part in parts]
    merged = size.check(merge.merge(together), file=together[0].file)
    damage = next((part.damage for part in together if part.damage is not None), None)
    if not merged.gpus and damage is not None:
        raise damage
    return merged


def _read(source: str, stdin: BinaryIO) -> list[Part]:
    if source.startswith(_FIXTURE):
        return [_whole(_fixture(source.removeprefix(_FIXTURE)), source)]
    from topoadvisor.ingest import stream

    if not source.strip():
        raise InputError("SOURCE is an empty name", hint=_KINDS)
    path = Path(source)
    try:
        if source == "-":
            return _streamed(stdin, "standard input")
        if path.is_dir():
            return stream.directory(path, parts, check)
        with path.open("rb") as file:
            return _streamed(file, source)
    except (OSError, ValueError) as error:
        _refuse(source, error)


def _streamed(file: BinaryIO, name: str) -> list[Part]:
    """The parts of a file of any length; a log of NCCL is told by how it begins."""
    from topoadvisor.ingest import stream

    start = file.read(_LOOK)
    if _is_log(start):
        start += file.read(max(0, MAX_BYTES - len(start)))
        if _is_log(start):
            return [_log(start, file, name)]
    return stream.parts(stream.Joined(start, file), name, parts, check)


def _refuse(source: str, error: OSError | ValueError) -> NoReturn:
    match error:
        case FileNotFoundError():
            message, hint = "there is no such file", _KINDS
            if source in _fixtures():
                hint = f"Did you mean {_FIXTURE}{source}?"
        case PermissionError():
            message, hint = "you may not read this file", "Ask its owner, or give it on standard input with `-`."
        case _:
            message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            hint = _KINDS
    name = "standard input" if source == "-" else source[:200] if source.isprintable() else repr(source[:200])
    raise InputError(message, file=name, hint=hint) from None


def _fixtures() -> list[str]:
    return sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json"))


def _fixture(name: str) -> Snapshot:
    names = _fixtures()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        there = f"There are: {', '.join(names)}."
        raise InputError(
            f"there is no fixture {name!r}"
            if name
            else "`fixture:` stands before the name of a bundled machine, and none follows",
            hint=f"Did you mean {' or '.join(near)}? {there}" if near else there,
        )
    path = files.shipped("fixtures") / name / "snapshot.json"
    return _snapshot(path.read_bytes(), str(path))


def from_bytes(data: bytes, *, file: str) -> Snapshot:
    """Recognise what `data` is by its content and read it. Raises InputError as `read` does."""
    from topoadvisor.ingest import stream

    return _together([stream.parts(io.BytesIO(data), file, parts, check)])


def parts(data: bytes, file: str) -> list[Part]:
    """What a document that is no archive says: the parts of a text, or one part for a whole machine."""
    if len(data) > MAX_BYTES:
        raise InputError(f"this is more than {MAX_BYTES >> 20} MiB", file=file, hint=_KINDS)
    if not data.strip():
        raise Unrecognised("this is empty", file=file, hint=_KINDS)
    check(data, file)
    if _is_log(data):
        return [_log(data, None, file)]
    text = _decoded(data)
    start = text[:_LOOK].lstrip()
    if start.startswith(("{", "[")):
        found = _json(text, start, file)
        if found is not None:
            return found
    if start.startswith("<"):
        root = _root(start)
        if root == "system":
            from topoadvisor.ingest import nccl_topo_xml

            return [_whole(nccl_topo_xml.parse(text, file=file), file)]
        if root == "topology":
            from topoadvisor.ingest import hwloc_xml

            return [_whole(hwloc_xml.parse(text, file=file), file)]
        if root == "nvidia_smi_log" and (found_part := _smi_xml(text, file)) is not None:
            return [found_part]
        if root in _ROOTS:
            what, hint = _ROOTS[root]
            raise Unrecognised(f"this is {what}", file=file, hint=hint)
    if _NCCL.search(data) is None:
        return _text(text, start, file)
    from topoadvisor.ingest import nccl_log, nccl_log_snapshot

    reader = nccl_log.Reader()
    reader.begin(file)
    reader.take(data)
    return nccl_log_snapshot.beside(lambda: _text(text, start, file), reader, file)


def _whole(found: Snapshot, file: str) -> Part:
    """A part that is a machine by itself. Only what was read on the machine shows all of its GPUs."""
    from topoadvisor.ingest.part import Part

    size.check(found, file=file)
    complete = found.origin == "live" and bool(found.gpus)
    return Part(found, file, whole=True, count=len(found.gpus) if complete else None)


def _smi_xml(text: str, file: str) -> Part | None:
    from topoadvisor.ingest import smi_query

    # Text is decoded already, and what stands in front of a declaration would make it an error.
    declaration = re.match(r"\s*<\?xml[^>]*\?>", text)
    lines = declaration[0].count("\n") if declaration else 0
    return smi_query.xml_part("\n" * lines + text[declaration.end() if declaration else 0 :], file)


def check(data: bytes, file: str) -> None:
    """Refuse what cannot be text, by its first bytes. Raises Unrecognised."""
    for magic, what, hint in _MAGIC:
        if data.startswith(magic):
            raise Unrecognised(f"this is {what}, not text", file=file, hint=hint)
    sample = data[:_LOOK]
    strange = sum(sample.count(byte) for byte in _CONTROL)
    if strange * 20 > len(sample) and files.wide_encoding(sample) is None:
        raise Unrecognised("this is binary data, not text", file=file, hint=_KINDS)


def _is_log(data: bytes) -> bool:
    """Whether messages of NCCL begin here, and not a document that quotes some, nor a log with a matrix in it."""
    from topoadvisor.ingest import stream

    start = data[:_LOOK].lstrip()
    if stream.is_tar(data):
        return False
    if start.startswith((b"{", b"<")) and not start.startswith(b'{"log":'):
        return False
    return _NCCL.search(start) is not None and _MATRIX.search(data) is None


def _log(start: bytes, rest: BinaryIO | None, file: str) -> Part:
    """A log of NCCL; `rest` is the stream behind `start` of one that is too large to hold."""
    from topoadvisor.ingest import nccl_log, nccl_log_snapshot

    reader = nccl_log.Reader()
    reader.feed(file, chain([start], iter(lambda: rest.read(nccl_log.BLOCK), b"") if rest is not None else ()))
    found = nccl_log_snapshot.convert(reader.summary([file]), file=file)
    size.check(found.snapshot, file=file)
    if not found.snapshot.gpus:
        raise InputError(
            "this is a log of NCCL, but it does not show which GPUs the job has",
            file=file,
            hint="NCCL_DEBUG=INFO prints them when a communicator is made; `topoadvisor log` reads what is there.",
        )
    return found


def _decoded(data: bytes) -> str:
    """The text of UTF-8, UTF-16 with or without its mark, or, when it is neither, Latin-1."""
    if (encoding := files.wide_encoding(data[:_LOOK])) is not None:
        return data.decode(encoding, "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _json(text: str, start: str, file: str) -> list[Part] | None:
    """The snapshot of a JSON text, or what the strings of another document say, such as the output of a notebook's
    cell; None when the text only begins like JSON (`[user@host ~]$`).
    """
    schema = re.search(r'"schema"\s*:\s*"([^"]{0,80})"', start)
    if schema and schema[1].startswith("topoadvisor.snapshot/") and start.startswith("{"):
        return [_whole(_snapshot(text.encode(), file), file)]
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
        return [_whole(_snapshot(text.encode(), file), file)]
    quoted = "\n".join(part.removesuffix("\n") for part in _strings(document))
    if name is None and "GPU" in quoted:
        try:
            return _text(quoted, quoted[:_LOOK], f"{file} (its strings)")
        except Unrecognised:
            pass
    what = f"a {name[:60]} document" if isinstance(name, str) else "JSON"
    raise Unrecognised(f"this is {what}, but not a snapshot of topoadvisor", file=file, hint=_KINDS)


def _strings(document: object) -> Iterator[str]:
    """The strings among the values of a JSON document, in order; above texts and groups of them their names."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, dict):
            for name, inner in reversed(value.items()):
                waiting.append(inner)
                if isinstance(inner, (list, dict)) or (isinstance(inner, str) and "\n" in inner):
                    waiting.append(f"{name}:")


def _snapshot(data: bytes, file: str) -> Snapshot:
    from topoadvisor.ingest import sound

    return sound.check(snapshot.decode(data, file=file), file=file)


def _root(start: str) -> str | None:
    """The first element that one of the known XML formats begins with, past comments and a document type."""
    match = re.search(rf"<(system|topology|nvidia_smi_log|{'|'.join(_ROOTS)})[\s>/]", start)
    return match[1] if match else None


def _text(text: str, start: str, file: str) -> list[Part]:
    from topoadvisor.ingest import text as texts

    try:
        return texts.parse(text, file)
    except InputError as error:
        if start.startswith("<?xml") and isinstance(error, Unrecognised):
            raise Unrecognised("this XML is none that can be read", file=file, line=1, hint=_KINDS) from None
        raise
