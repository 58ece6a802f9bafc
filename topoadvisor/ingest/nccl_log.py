"""Logs of `NCCL_DEBUG=INFO` (WARN, TRACE), of any size: one pass, bounded memory, every rank of the job in any order.

A line is `host:pid:tid [device] NCCL INFO message`, behind whatever a launcher, a container or a log collector put
before it. The loop below looks at each line with searches for fixed bytes and dictionaries; patterns run only on what
it has not seen yet. Lines that name no process are read too, but belong to nobody.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import BinaryIO, Final

from topoadvisor.errors import InputError
from topoadvisor.ingest import nccl_log_digest, nccl_log_records, nccl_log_warnings
from topoadvisor.ingest.nccl_log_lines import HANDLERS, Handler, Lines
from topoadvisor.ingest.nccl_log_records import MAX_KINDS, Records, Thread
from topoadvisor.ingest.nccl_log_summary import Summary

BLOCK: Final = 1 << 20
MAX_LINE: Final = 1 << 20
"""What is longer is no line of a log."""
_MAX_XML: Final = 4 << 20
_MAX_PREFIXES: Final = 65_536
_INFO: Final = b" NCCL INFO "
_BARE: Final = b"\n" + _INFO[1:]
"""A message from which somebody took what stood before it."""
_HINT: Final = (
    "Run the job with NCCL_DEBUG=INFO (and NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING for more) and give its output."
)

_FILES: Final = "Give the files of a log, or - for standard input."

_WHO: Final = rb"(?:^|[^A-Za-z0-9_.-])([A-Za-z0-9_][A-Za-z0-9_.-]{0,254}):([0-9]{1,10}):([0-9]{1,10}) \[([0-9]{1,5})\]"
_PREFIX: Final = re.compile(_WHO + b"$")
_WARN: Final = re.compile(_WHO)
_DIAGNOSED: Final = re.compile(
    rb"(?:([A-Za-z0-9_][A-Za-z0-9_.-]{0,254}):([0-9]{1,10}) )?NCCL DIAG \[(?!OK\])[A-Z]{2,9}\] (.+)"
)
"""A line of NCCL's own diagnostics (since 2.31.2) in which something is not right."""
_LOOKS: Final = re.compile(rb"NCCL (?:INFO|WARN|TRACE|DIAG) |NCCL version [0-9]+\.[0-9]")
_WRAPPED: Final = (
    (b"\x1b[", re.compile(rb"\x1b\[[0-9;]{0,16}[mK]")),
    (b'\\n",', re.compile(rb'\\n",[^\n]*')),
    (b" [repeated ", re.compile(rb"\s*\[repeated [0-9]{1,9}x across cluster\][^\n]*")),
)
"""What is in a block when there is something to take out of it: colours, the rest of Docker's JSON, Ray's counts."""
_SAMPLE: Final = 1 << 15
"""How much of a block is looked at for that: what wraps lines does so all along."""
_MAX_GLUED: Final = 16


def _channel(lines: Lines, thread: Thread, body: bytes, number: int) -> None:
    """Stands for `Channel` lines in the table, which the loop reads itself."""


def _collective(lines: Lines, thread: Thread, body: bytes, number: int) -> None:
    """Stands for collectives in the table, of which the loop counts the calls itself."""


_CHANNEL: Final[Handler] = _channel
_COLLECTIVE: Final[Handler] = _collective
_COLLECTIVES: Final = (b"AllR", b"AllG", b"Allt", b"Redu", b"Broa", b"Send", b"Recv", b"Gath", b"Scat")
_KINDS: Final = {**HANDLERS, b"Chan": _CHANNEL, **dict.fromkeys(_COLLECTIVES, _COLLECTIVE)}
"""The first four letters of a message → what reads it."""
_MAGIC: Final = ((b"BZh", "bzip2", "bunzip2 -c"), (b"\xfd7zXZ", "xz", "xz -dc"), (b"(\xb5/\xfd", "zstd", "zstd -dc"))


def looks_like(start: bytes) -> bool:
    """Whether this beginning of a file holds messages of NCCL."""
    return _LOOKS.search(start) is not None


def read(sources: Iterable[tuple[str, BinaryIO]]) -> Summary:
    """Read the logs of one job: (name, stream) each, plain or gzip; streams are read to their ends, one by one.

    Raises InputError for data of another kind, or when there is no line of NCCL in any of them.
    """
    reader = Reader()
    names: list[str] = []
    for name, stream in sources:
        names.append(name)
        try:
            reader.feed(name, _blocks(name, stream))
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", file=name, hint=_FILES) from None
    records = reader.records
    if not records.nccl_lines:
        what, hint = "there is no line of NCCL in it", _HINT
        if lost := [f"{count} × {what}" for what, count in records.dropped.items() if what in nccl_log_records.UNREAD]:
            what = f"nothing of NCCL in it can be read ({', '.join(lost)})"
            hint = "Give the output as the job wrote it, with its line ends."
        raise InputError(what, file=names[0] if len(names) == 1 else None, hint=hint)
    return reader.summary(names)


def _blocks(name: str, stream: BinaryIO) -> Iterator[bytes]:
    first = stream.read(BLOCK)
    for magic, kind, command in _MAGIC:
        if first.startswith(magic):
            raise InputError(
                f"this is {kind} data", file=name, hint=f"Unpack it first: `{command} FILE | topoadvisor log -`."
            )
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("this is UTF-16 text", file=name, hint="Convert it: `iconv -f UTF-16 -t UTF-8 FILE`.")
    if not first.startswith(b"\x1f\x8b"):
        yield first
        yield from iter(lambda: stream.read(BLOCK), b"")
        return
    yield from _unpacked(first, stream)


def _unpacked(data: bytes, stream: BinaryIO) -> Iterator[bytes]:
    """The content of gzip data, of several joined files too; `_CUT` at the place where it is damaged."""
    unpacker = zlib.decompressobj(31)
    while data:
        try:
            part = unpacker.decompress(data, BLOCK)
        except zlib.error:
            yield _CUT
            return
        if part:
            yield part
        data = unpacker.unconsumed_tail
        if unpacker.eof:
            data = unpacker.unused_data.lstrip(b"\0") or stream.read(BLOCK)
            unpacker = zlib.decompressobj(31)
        elif not data:
            data = stream.read(BLOCK)
            if not data:
                yield unpacker.flush()
                yield _CUT


_CUT: Final = b"\0cut"
"""Stands for the damaged end of a gzip file."""


class Reader:
    """Reads blocks of bytes into records."""

    def __init__(self) -> None:
        self.records = Records()
        self._lines = Lines(self.records)
        self._prefixes: dict[bytes, Thread] = {}
        self._tails: dict[bytes, Thread] = {}
        self._xml: list[bytes] | None = None
        self._xml_end, self._xml_size = b"", 0
        self._notes: list[str] = []
        self._rest, self._number = b"", 1
        self._line_count = 0
        self._size = 0

    def feed(self, name: str, blocks: Iterable[bytes]) -> None:
        """Read one file."""
        self.begin(name)
        for block in blocks:
            if block is _CUT:
                self._notes.append(f"{name}: the gzip data is damaged or ends too early; what came before it was read")
                break
            self.take(block)
        self.finish()

    def begin(self, name: str) -> None:
        """The blocks that follow are those of one file."""
        self._lines.file = name
        self._xml = None
        self._rest, self._number = b"", 1

    def take(self, block: bytes) -> None:
        """Read the next bytes of the file."""
        self._size += len(block)
        end = block.rfind(b"\n")
        if end < 0:
            self._rest += block
            if len(self._rest) > MAX_LINE:
                self._rest = b""
                self.records.dropped[nccl_log_records.OVERLONG] += 1
            return
        self._block(self._rest + block[: end + 1], self._number)
        self._number += block.count(b"\n")
        self._rest = block[end + 1 :]

    def finish(self) -> None:
        """The file ends here."""
        if self._rest:
            self._block(self._rest + b"\n", self._number)
            self._number += 1
        self._line_count += self._number - 1

    def _block(self, block: bytes, number: int) -> None:
        """Whole lines, the last with its end; `number` is that of the first."""
        sample = block[:_SAMPLE]
        for mark, pattern in _WRAPPED:
            if mark in sample:
                block = pattern.sub(b"", block)
        if _BARE in b"\n" + sample:
            block = (b"\n" + block).replace(_BARE, b"\n" + _INFO)[1:]
        pieces = block.split(_INFO)
        numbers: Sequence[int] = range(number, number + len(pieces))
        if len(pieces) - 1 != block.count(b"\n"):
            counts = [piece.count(b"\n") for piece in pieces]
            if 0 in counts[1:]:
                self._one_by_one(block, number)
                return
            places = list(accumulate(counts, initial=number))
            for place, count, piece in zip(places, counts, pieces, strict=False):
                own = piece is not pieces[0]
                if count > own:
                    self._between(piece.split(b"\n")[own:-1], place + own)
            numbers = places[1:]
        self._regular(pieces, numbers)

    def _regular(self, pieces: list[bytes], numbers: Sequence[int]) -> None:
        """Messages of level INFO; `pieces` stand between two `NCCL INFO`, `numbers` are the lines of the messages.

        A piece is a message, the end of its line, lines of others, and what stands before the next message. This is the
        loop that decides how fast a log is read.
        """
        prefixes, lines, operations = self._prefixes, self._lines, self.records.operations
        kinds, bits = _KINDS, lines.bits
        first = before = pieces[0]
        for number, piece in zip(numbers, islice(pieces, 1, None), strict=False):
            kind = kinds.get(piece[:4])
            if kind is None:
                before = piece
                continue
            if kind is _COLLECTIVE:
                colon = piece.find(b":")
                if piece[colon : colon + 9] == b": opCount":
                    name = piece[:colon]
                    if name in operations:
                        operations[name] += 1
                    elif len(operations) < MAX_KINDS:
                        operations[name[:40]] = 1
                    before = piece
                    continue
                kind = Lines.collective
            start = before.rfind(b"\n") + 1
            end = piece.find(b"\n")
            if end < 0 or not (start or before is first):
                # Two messages on one line, and another line without any.
                self.records.dropped[nccl_log_records.GLUED] += 1
                before = piece
                continue
            prefix = before[start:]
            before = piece
            thread = prefixes.get(prefix) or self._thread(prefix)
            if kind is not _CHANNEL:
                kind(lines, thread, piece[:end], number)
                continue
            colon = piece.find(b" : ")
            rest = piece[colon + 3 : end]
            pairs = thread.pairs
            if rest in pairs:
                pairs[rest] |= bits[piece[8:colon]]
            else:
                lines.connection(thread, rest, bits[piece[8:colon]])
        self.records.nccl_lines += len(pieces) - 1
        self.records.info |= len(pieces) > 1

    def _between(self, rows: Sequence[bytes], number: int) -> None:
        """Lines without a message of level INFO."""
        for at, line in enumerate(rows, number):
            if self._xml is not None or b"NCCL" in line or b"<system" in line or b"<graphs" in line:
                self._other(line, at)

    def _one_by_one(self, block: bytes, number: int) -> None:
        """Lines of which some hold several messages."""
        for at, line in enumerate(block.removesuffix(b"\n").split(b"\n"), number):
            if line.count(_INFO) > 1:
                self._glued(line, at)
            elif _INFO in line:
                self._regular((line + b"\n").split(_INFO), [at])
            else:
                self._between([line], at)

    def _glued(self, line: bytes, number: int) -> None:
        """Several messages on one line, as processes that share a pipe write them.

        Where one ends and the host name of the next begins can be told only for hosts that are known already.
        """
        if b"\r" in line:  # the bar of a program that shows its progress, or a file that knows no other line end
            for part in line.split(b"\r"):
                self._one_by_one(part, number)
            return
        before, *messages = line.split(_INFO)
        if len(messages) > _MAX_GLUED:
            self.records.dropped[nccl_log_records.WITHOUT_ENDS] += len(messages)
            return
        for place, message in enumerate(messages):
            following = b""
            if place < len(messages) - 1:
                match = _PREFIX.search(message[-400:])
                glued = match[1].decode() if match else ""
                host = next((glued[at:] for at in range(len(glued)) if glued[at:] in self.records.hosts), None)
                if match and host is not None:
                    following = host.encode() + match[0][match.end(1) - match.start() :]
                    message = message[: len(message) - len(following)]
            if before and _INFO not in message:
                self._regular([before, message + b"\n"], [number])
            else:
                self.records.dropped[nccl_log_records.GLUED] += 1
            before = following

    def _thread(self, prefix: bytes) -> Thread:
        """Whose line this is. Prefixes repeat, unless they hold the time; their ends repeat in any case."""
        tail = prefix[prefix.rfind(b" ", 0, max(prefix.rfind(b" "), 0)) + 1 :]
        thread = self._tails.get(tail)
        if thread is None:
            match = _PREFIX.search(prefix[-400:])
            if match is None:
                thread = self.records.thread(None, None, None, 0)
            else:
                host, pid, tid, device = match.groups()
                thread = self.records.thread(host.decode(), int(pid), int(tid), int(device))
            if len(self._tails) >= _MAX_PREFIXES:
                self._tails.clear()
            self._tails[tail] = thread
        if len(self._prefixes) < _MAX_PREFIXES:
            self._prefixes[prefix] = thread
        return thread

    def _other(self, line: bytes, number: int) -> None:
        """A line without `NCCL INFO`: warnings, the version, a document that was printed."""
        records = self.records
        if b" NCCL WARN " in line or line.startswith(b"NCCL WARN "):
            records.nccl_lines += 1
            start, _, message = line.partition(b"NCCL WARN ")
            match = _WARN.search(start[-600:])
            process = records.process(match[1].decode(), int(match[2])) if match else records.process(None, None)
            self._lines.warn(process, message, nccl_log_warnings.kind_of(message), number)
        elif b"NCCL version " in line and b"NCCL INFO" not in line:
            records.nccl_lines += 1
            self._lines.version(records.thread(None, None, None, 0), line[line.find(b"NCCL version ") :], number)
        elif b"NCCL DIAG " in line:
            records.nccl_lines += 1
            if (found := _DIAGNOSED.search(line)) is not None:
                process = records.process(found[1].decode(), int(found[2])) if found[1] else records.process(None, None)
                self._lines.warn(process, found[3], nccl_log_warnings.DIAGNOSED, number)
        elif b" NCCL TRACE " in line:
            records.nccl_lines += 1
        elif self._xml is not None:
            self._collect(line)
        elif b"<system" in line or b"<graphs" in line:
            name = b"system" if b"<system" in line else b"graphs"
            if name.decode() not in records.xml:
                self._xml, self._xml_end, self._xml_size = [], b"</" + name + b">", 0
                self._collect(line[line.find(b"<" + name) :])

    def _collect(self, line: bytes) -> None:
        """One more line of a document; launchers may have put something before it."""
        assert self._xml is not None
        start = line.find(b"<")
        if start < 0:
            return
        self._xml.append(line[start:])
        self._xml_size += len(line)
        if self._xml_end in line:
            last = self._xml[-1]
            self._xml[-1] = last[: last.find(self._xml_end) + len(self._xml_end)]
            self.records.xml[self._xml_end[2:-1].decode()] = b"\n".join(self._xml).decode("utf-8", "replace")
            self._xml = None
        elif self._xml_size > _MAX_XML:
            self.records.dropped["documents"] += 1
            self._xml = None

    def summary(self, names: list[str]) -> Summary:
        """Everything read so far, sorted out."""
        return nccl_log_digest.digest(
            self.records, files=names, size_bytes=self._size, lines=self._line_count, notes=self._notes
        )
