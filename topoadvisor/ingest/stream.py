"""Long texts, compressed ones, archives and directories: read block by block, keeping only what can belong to a part.

Memory stays bounded whatever the size. Nothing is ever unpacked to disk, and no link, device or name inside an archive
is followed: a name there only serves to say where something was found.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from topoadvisor.errors import InputError, Unrecognised
from topoadvisor.ingest import host_marks, hosts, split, text, unpack
from topoadvisor.ingest import lines as line_reader
from topoadvisor.ingest.lines import Line
from topoadvisor.ingest.part import Part
from topoadvisor.ingest.unpack import Stream
from topoadvisor.snapshot import RawText, Snapshot, Source

if TYPE_CHECKING:
    from topoadvisor.ingest import nccl_log

WHOLE: Final = 2 << 20
"""Bytes up to which a text is read as a whole, with every way to find a damaged table."""
MAX_DOCUMENT: Final = 64 << 20
"""Bytes of a document that has to be read as a whole whatever its length, such as a snapshot."""
MAX_UNPACKED: Final = 1 << 30
"""Bytes read of one SOURCE, after decompression."""
MAX_FILES: Final = 10_000
_MAX_DEPTH: Final = 8
_PLAIN, _MEMBER = 0, 2
"""How deep a document lies: a file, and a file in a tar; each may be compressed, which is one deeper."""
_BLOCK: Final = 1 << 16
_WHOLE_ONLY: Final = (b"\xff\xfe", b"\xfe\xff")
"""UTF-16, whose lines are not found by their bytes."""
_TAR: Final = slice(257, 262)
_TAR_BLOCK: Final = 512
_TAR_OTHERS: Final = (b"1", b"2", b"3", b"4", b"6")
"""Hard and symbolic links, devices, pipes; a directory holds nothing, and other kinds only describe what follows."""
_NO_FILE: Final = "a link, which is not followed, or no plain file"
_MOST_PASSED: Final = 8
"""Names of files that were passed over which are told."""
_HINT: Final = "Give the parts that matter: `nvidia-smi topo -m`, `nvidia-smi -q`, `lspci -tv`."

_CELL = r"(?:X|NV[0-9]{1,3}|C2C|PIX|PXB|PSB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|U)"
_DEVICE = r"(?:GPU|NIC|NVMe)[0-9]{1,4}"
_TABLE_LINE = re.compile(
    rf"\b{_DEVICE}[ \t]{{1,12}}{_DEVICE}\b"
    rf"|\b(?:{_DEVICE}|mlx[0-9]{{1,2}}_\w{{1,16}})[ \t]{{1,12}}{_CELL}\b"
    rf"|\bGPU0[ \t]{{1,40}}CPU Affinity|\bNIC[0-9]{{1,4}}[ \t]{{0,8}}[:=]"
)
_DEVICES = re.compile(r"(?:GPU|NIC|NVMe)[0-9]|mlx[0-9]{1,2}_")
_IN_TABLES: Final = dict.fromkeys(
    ("GPU", "NIC", "NVMe", "mlx"),
    rf"[0-9]\w{{0,20}}[ \t]{{0,40}}(?:\x1b|CPU Affinity|(?<=[ \t])(?:{_DEVICE}|{_CELL}\b))",
)
_SIGNS: Final = [
    (sign.encode(), re.compile(rf"{re.escape(sign)}{more}[^\n]*".encode()))
    for sign, more in [*split.SIGNS.items(), *_IN_TABLES.items(), ("NIC", r"[0-9]{1,4}[ \t]{0,8}[:=]")]
]
"""Text, quick to look for in whole blocks, and its line from there on if a part or a table can begin with that."""
_BEFORE, _AFTER = 3, 12
"""Lines kept around those of a table: the command above, elided rows, the legend below."""
_CONTEXT: Final = 2000
"""Bytes in which the lines before are looked for."""
_WOVEN: Final = 2000
"""Lines for which other writers may come between two lines of a part."""
_GAP: Final = 24
"""Empty lines that stand for what was left out, so that two tables stay two."""


Whole = Callable[[bytes, str], list[Part]]
"""Reads a short document of any kind."""
Check = Callable[[bytes, str], None]
"""Refuses what is no text by its first bytes."""


class _TooMuch(InputError):
    """A limit of the whole SOURCE, never of one file in it."""


@dataclass
class _Source:
    """Counts what is read of one SOURCE, and refuses to go on beyond the limit."""

    file: str
    whole: Whole
    check: Check
    read: int = 0
    files: int = 0
    damage: str | None = None
    """Why it could not be read to its end."""
    passed: list[tuple[str, str]] = field(default_factory=list)
    """Files that were passed over, and why."""

    def count(self, size: int) -> None:
        self.read += size
        if self.read > MAX_UNPACKED:
            raise _TooMuch(
                f"this holds more than {MAX_UNPACKED >> 20} MiB once it is unpacked", file=self.file, hint=_HINT
            )

    def count_file(self) -> None:
        self.files += 1
        if self.files > MAX_FILES:
            raise _TooMuch(f"there are more than {MAX_FILES} files here", file=self.file, hint=_HINT)

    def pass_over(self, name: str, why: str) -> None:
        self.passed.append((name.removeprefix(self.file).lstrip("/:"), why))

    def left_out(self) -> list[Part]:
        """One part without anything in it that says what was not read; none when all was."""
        reasons = [self.damage] if self.damage is not None else []
        if self.passed:
            more = len(self.passed) - _MOST_PASSED
            names = [f"{name} ({why})" for name, why in self.passed[:_MOST_PASSED]]
            reasons.append(f"passed over: {', '.join([*names, *([f'and {more} more'] if more > 0 else [])])}")
        told = Source(name=Path(self.file).name, status="partial", reason="; ".join(reasons))
        return [Part(Snapshot(sources=[told]), self.file, damage=self.broken())] if reasons else []

    def broken(self) -> InputError | None:
        return _broken(self.damage, self.file) if self.damage is not None else None


class Joined:
    """A stream with the bytes in front that were read of it already."""

    def __init__(self, head: bytes, rest: Stream, limit: int | None = None) -> None:
        # A view, so that many small reads do not each copy what is left.
        self._head, self._rest, self.left = memoryview(head), rest, limit

    def read(self, size: int, /) -> bytes:
        if self.left is not None:
            size = min(size, self.left)
        if self._head:
            data, self._head = bytes(self._head[:size]), self._head[size:]
        else:
            data = self._rest.read(size)
        if self.left is not None:
            self.left -= len(data)
        return data


class _Counted:
    """A file whose bytes count towards the limit."""

    def __init__(self, stream: Stream, source: _Source) -> None:
        self._stream, self._source = stream, source

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        self._source.count(len(data))
        return data


def _broken(damage: str, file: str) -> InputError:
    return InputError(damage, file=file, hint="Copy the file again.")


def is_tar(start: bytes) -> bool:
    """Whether a tar begins like this."""
    return start[_TAR] == b"ustar"


def parts(stream: Stream, file: str, whole: Whole, check: Check) -> list[Part]:
    """The parts of a document: a text of any length, compressed (gzip, bzip2, xz) or not, or a tar of such texts.

    Raises InputError with one sentence when there is nothing to read, or more than `MAX_UNPACKED`.
    """
    source = _Source(file, whole, check)
    return _document(_Counted(stream, source), file, source, depth=_PLAIN)


def _read_full(stream: Stream, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (data := stream.read(size)):
        pieces.append(data)
        size -= len(data)
    return b"".join(pieces)


def _document(stream: Stream, file: str, source: _Source, *, depth: int) -> list[Part]:
    head = _read_full(stream, WHOLE + 1)
    unpacked = unpack.stream(head, Joined(head, stream), source.count)
    if unpacked is not None:
        if depth not in (_PLAIN, _MEMBER):
            raise Unrecognised("this is compressed data inside compressed data", file=file, hint=_HINT)
        try:
            found = _document(unpacked, file, source, depth=depth + 1)
        except InputError as error:
            if unpacked.damage is None:
                raise
            raise _broken(unpacked.damage, file) from error
        if (damage := unpacked.damage) is None:
            return found
        return [replace(part.noted(reason=damage), damage=_broken(damage, file)) for part in found]
    if is_tar(head) and depth < _MEMBER:
        return _gather(_tar_members(Joined(head, stream), file, source), source)
    if len(head) <= WHOLE:
        return source.whole(head, file)
    source.check(head, file)
    if head.startswith(_WHOLE_ONLY) or head.lstrip()[:1] in (b"{", b"<"):
        return source.whole(head + _read_full(stream, MAX_DOCUMENT), file)
    return _long_text(Joined(head, stream), file)


def _gather(documents: Iterator[tuple[str, Stream, int]], source: _Source) -> list[Part]:
    """The parts of several files; those of no kind that can be read are passed over and named."""
    found: list[Part] = []
    failed: list[Part] = []
    problem: InputError | None = None
    for name, stream, depth in documents:
        source.count_file()
        try:
            found += _document(stream, name, source, depth=depth)
        except _TooMuch:
            raise
        except Unrecognised as error:
            source.pass_over(name, error.what)
        except InputError as error:
            problem = problem or error
            status = Source(name=Path(name).name, status="failed", reason=error.message)
            failed.append(Part(Snapshot(sources=[status]), name, damage=error))
    if found:
        return [*found, *failed, *source.left_out()]
    if problem is not None:
        raise problem
    if (broken := source.broken()) is not None:
        raise broken
    raise InputError(
        f"none of the {source.files} files in it can be read" if source.files else "there is no file in it",
        file=source.file,
        hint=_HINT,
    )


def directory(path: Path, whole: Whole, check: Check) -> list[Part]:
    """The parts of all files below a directory, in the order of their names. Links are not followed."""
    source = _Source(str(path), whole, check)
    return _gather(_files(path, source, 0), source)


def _files(folder: Path, source: _Source, depth: int) -> Iterator[tuple[str, Stream, int]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        if depth == 0:
            raise
        source.pass_over(str(folder), error.strerror or str(error))
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if depth < _MAX_DEPTH:
                yield from _files(path, source, depth + 1)
            else:
                source.pass_over(str(path), f"more than {_MAX_DEPTH} directories deep")
            continue
        try:
            if not entry.is_file(follow_symlinks=False):
                raise OSError(errno.EINVAL, _NO_FILE)
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            source.pass_over(str(path), error.strerror or str(error))
            continue
        with os.fdopen(handle, "rb") as stream:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                yield str(path), _Counted(stream, source), _PLAIN


def _tar_members(stream: Stream, file: str, source: _Source) -> Iterator[tuple[str, Stream, int]]:
    """The regular files of a tar, one after the other; links, devices and the like in it are passed over."""
    while True:
        header = _read_full(stream, _TAR_BLOCK)
        if len(header) < _TAR_BLOCK:
            source.damage = "the tar ends too early"
            return
        if not header.strip(b"\0"):
            return
        size = _tar_number(header[124:136])
        if size is None or _tar_number(header[148:156]) != sum(header[:148]) + 8 * 32 + sum(header[156:]):
            source.damage = "the tar is damaged"
            return
        parts = (header[345:500], header[:100])
        name = b"/".join(part.split(b"\0")[0] for part in parts if part.strip(b"\0")).decode("utf-8", "replace")
        member = Joined(b"", stream, limit=size)
        if (kind := header[156:157]) in (b"0", b"\0"):
            yield f"{file}:{name}", member, _MEMBER
        elif kind in _TAR_OTHERS:
            source.pass_over(name, _NO_FILE)
        while member.read(_BLOCK):
            pass
        if member.left:
            source.damage = f"the tar ends too early, inside {name}"
            return
        _read_full(stream, -size % _TAR_BLOCK)


def _tar_number(field: bytes) -> int | None:
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b"\0 ")
    return int(digits, 8) if re.fullmatch(rb"[0-7]{1,12}", digits) else None


def _long_text(stream: Stream, file: str) -> list[Part]:
    sieve = _Sieve(file)
    log: nccl_log.Reader | None = None
    rest, overlong = b"", False
    while data := stream.read(_BLOCK):
        if log is None and b"NCCL " in data:
            log = _log_reader(data, file)
        if log is not None:
            log.take(data)
        cut = data.rfind(b"\n") + 1
        if cut == 0:
            # A line longer than any that matters: only its end is kept, so that it still counts as one line.
            overlong = overlong or len(rest) + len(data) > _BLOCK
            rest = b"" if overlong else rest + data
            continue
        sieve.block((b"" if overlong else rest) + data[:cut])
        rest, overlong = data[cut:], False
    sieve.block(rest)
    if log is None:
        return sieve.parts(rest)
    from topoadvisor.ingest import nccl_log_snapshot

    return nccl_log_snapshot.beside(lambda: sieve.parts(rest), log, file)


def _log_reader(data: bytes, file: str) -> nccl_log.Reader | None:
    from topoadvisor.ingest import nccl_log

    if not nccl_log.looks_like(data):
        return None
    reader = nccl_log.Reader()
    reader.begin(file)
    return reader


def _candidates(data: bytes) -> list[int]:
    """Where the lines begin that are worth a closer look, in order."""
    hits = (hit for sign, more in _SIGNS if sign in data for hit in more.finditer(data))
    return sorted({data.rfind(b"\n", 0, hit.start()) + 1 for hit in hits})


class _Sieve:
    """Takes blocks of whole lines and keeps those that can belong to a table or another part."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._splitters = {"": split.Splitter(file)}
        """By the name in front of the lines."""
        self._sections: list[tuple[split.Section, frozenset[str]]] = []
        """With what the host is called, where a name in front or the lines above say so."""
        self._labels: set[str] = set()
        """Names in front that may be those of several processes of one host."""
        self._until = 0
        """The line up to which a part behind names may go on."""
        self._number = 0
        self._lines: list[Line] = []
        self._last = 0
        self._after = 0
        self._tail = b""

    def block(self, data: bytes) -> None:
        """Take in the next lines; only the last one of all may lack its end."""
        candidates = _candidates(data)
        following = 0
        place = 0
        while place < len(data):
            if not (self._after or self._splitters[""].inside or self._number < self._until):
                while following < len(candidates) and candidates[following] < place:
                    following += 1
                if following == len(candidates):
                    self._number += data.count(b"\n", place)
                    break
                self._number += data.count(b"\n", place, candidates[following])
                place = candidates[following]
            end = data.find(b"\n", place)
            end = len(data) if end < 0 else end
            self._number += 1
            if end - place <= line_reader.MAX_LINE:
                self._line(data[place:end].decode("utf-8", "replace").rstrip("\r"), data, place)
            place = end + 1
        self._tail = data[-_CONTEXT:]

    def _line(self, raw: str, data: bytes, place: int) -> None:
        text = line_reader.cleaned(0, 0, raw).text if "\x1b" in raw else raw
        name, printed = self._writer(text)
        splitter = self._splitters[name]
        known = len(splitter.sections)
        if splitter.feed(Line(0, self._number, printed)) and name:
            self._until = self._number + _WOVEN
        if len(splitter.sections) > known:
            whose = hosts.above([*self._before(data, place), text])
            if name and not whose:
                self._labels.add(name)
                whose = frozenset({name})
            self._sections.append((splitter.sections[-1], whose))
        if _DEVICES.search(text) and _TABLE_LINE.search(text):
            context = self._before(data, place)
            for back, line in zip(range(len(context), 0, -1), context, strict=True):
                self._keep(self._number - back, line)
            self._after = _AFTER
            self._keep(self._number, raw)
        elif self._after:
            self._after -= 1
            self._keep(self._number, raw)

    def _writer(self, text: str) -> tuple[str, str]:
        """The name in front of a line that belongs to a part, and what was printed behind it."""
        found = host_marks.prefix(text)
        if found is None or not found[0] or split.anchored(text):
            return "", text
        name, printed = found[0], text[found[1] :]
        if name not in self._splitters and len(self._splitters) <= hosts.MOST and split.begun(printed):
            self._splitters[name] = split.Splitter(self._file)
        goes_on = name in self._splitters and (self._splitters[name].inside or split.begun(printed))
        return (name, printed) if goes_on else ("", text)

    def _before(self, data: bytes, place: int) -> list[str]:
        """The lines above that of a place."""
        before = (self._tail if place < _CONTEXT else b"") + data[max(0, place - _CONTEXT) : place]
        return [line.decode("utf-8", "replace") for line in before.split(b"\n")[:-1][-_BEFORE:]]

    def _keep(self, number: int, raw: str) -> None:
        if number <= self._last:
            return
        if len(self._lines) > split.MAX_LINES:
            raise InputError(
                f"more than {split.MAX_LINES} lines up to here look like parts of tables",
                file=self._file,
                line=number,
                hint=_HINT,
            )
        if number > self._last + 1 and self._lines:
            self._lines += [Line(len(self._lines) + place, number, "") for place in range(_GAP)]
        self._lines.append(line_reader.cleaned(len(self._lines), number, raw))
        self._last = number

    def parts(self, end: bytes) -> list[Part]:
        tail = end[-200:].decode("utf-8", "replace")
        groups = hosts.groups(self._lines)
        told = [groups[0].hosts, *(names for _, names in self._sections)]
        first = next((names for names in told if names - self._labels), frozenset[str]())
        strange = len(self._labels) > 1 or any(hosts.differ(first, names) for names in told)
        # Of lines that were passed over nobody knows whose they are, so of several hosts only what is named is used.
        used = [len(groups) == 1 and (not strange or bool(names & first)) for _, names in self._sections]
        sections = [section for section, _ in self._sections]
        ours = [section for section, ok in zip(sections, used, strict=True) if ok]
        found, problem = text.of_first_host(groups, [ours, *([] for _ in groups[1:])], file=self._file, end=tail)
        if not found:
            raise problem
        if others := [section.kind for section, ok in zip(sections, used, strict=True) if not ok]:
            kinds = ", ".join(dict.fromkeys(others))
            found[0] = found[0].noted(reason=f"not used, for it may be about another of the hosts here: {kinds}")
        kept = [line.text for line in self._lines]
        kept += [line.text for section in sections for line in section.lines]
        raw = RawText(source="text", text="\n".join(kept))
        return [replace(found[0], snapshot=msgspec.structs.replace(found[0].snapshot, raw=[raw])), *found[1:]]
