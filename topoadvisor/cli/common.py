"""What every analysing verb shares: the SOURCE argument and the facts that the user supplies."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from topoadvisor.cli.quantities import seconds
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.plan import Model

if TYPE_CHECKING:
    from topoadvisor.snapshot import Snapshot


_NUMPY_ROOM = 176 << 20
"""Bytes of address space that numpy and what is loaded with it take, most of it for its linear algebra."""


def has_room(size: int) -> bool:
    """Whether a process with a limit (`ulimit -v`) may still have this many bytes; true without a limit."""
    import mmap
    import resource

    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return True
    try:
        mmap.mmap(-1, size).close()
    except (OSError, MemoryError):
        return False
    return True


def room_for_numpy() -> bool:
    """Whether numpy would fit; where it does not, its linear algebra ends the process, with a code of its own."""
    return has_room(_NUMPY_ROOM)


def need_numpy() -> None:
    """Raises MemoryError when numpy would not fit."""
    if not room_for_numpy():
        raise MemoryError


def some_path(text: str) -> Path:
    """The path that an option names. Raises TopoAdvisorError for an empty text, which would be the present folder."""
    if not text:
        raise TopoAdvisorError(
            "an option that takes a file or a folder got an empty name", hint="Is a variable of the script empty?"
        )
    return Path(text)


def file_to_write(text: str) -> Path:
    """The same for a file to write. Raises TopoAdvisorError for a name that can only be one of a folder, too."""
    path = some_path(text)
    if text.rpartition("/")[2] in ("", ".", ".."):
        raise TopoAdvisorError(f"{text} is a directory, or would be one: it names no file", hint="Name a file in it.")
    return path


SourceArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE]...",
        help="A snapshot, pasted output of `nvidia-smi` (topo, nvlink, -q), lspci, ibstat or lscpu, an NCCL topology "
        "XML or log, an hwloc XML, nvidia-bug-report.log.gz (a file, a directory or tar of such files, or - for "
        "standard input), or fixture:NAME. Several are put together as one machine. Without it: this machine.",
        show_default=False,
    ),
]
AssumeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        metavar="FACT=VALUE",
        help="Supply a fact that SOURCE cannot hold, e.g. cpu.vendor=AMD; may be repeated. It wins over --assume-file.",
        show_default=False,
    ),
]
AssumeFileOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--assume-file",
        metavar="FILE",
        parser=some_path,
        help="Supply facts from a YAML mapping (- for standard input); may be repeated. "
        "`topoadvisor facts --find WORDS` says how they are called.",
        show_default=False,
    ),
]
RulesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        parser=some_path,
        help="A folder with a site's own rules; may be repeated.",
        show_default=False,
    ),
]
DeadlineOption = Annotated[
    float,
    typer.Option(
        "--deadline", parser=seconds, metavar="SECONDS", help="Longest wait for an answer; what hangs is then ended."
    ),
]
NcclOption = Annotated[
    str | None,
    typer.Option("--nccl", metavar="PATH", help="The libnccl to run; else the first one found.", show_default=False),
]
SaveOption = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="FILE",
        parser=file_to_write,
        help="Save what was measured into this snapshot of this machine; a file that is not there yet becomes one.",
        show_default=False,
    ),
]
_LONGEST = 2000
"""Letters of one sentence that are shown."""

_UNSAFE = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab, line ends and colours, and those that turn the direction of text around."""

GpusOption = Annotated[
    str | None, typer.Option("--gpus", metavar="0,1,4", help="Only these GPUs, all otherwise.", show_default=False)
]
ModelOption = Annotated[
    Model,
    typer.Option("--model", help="Bandwidths on paper, as measured by `verify --save`, or as NCCL counts them."),
]
TextOrJson = Literal["text", "json"]
FormatOption = Annotated[TextOrJson, typer.Option("--format", help="Output format.")]


def readable(text: str) -> str:
    """A sentence that quotes foreign text: on one line, of bounded length, and without what a terminal acts on.

    Such letters, and bytes that are no text, are shown as `\\x1b`, `\\xff`.
    """
    shown = "".join(letter if letter.isprintable() else _escaped(letter) for letter in text[:_LONGEST])
    return shown if len(text) <= _LONGEST else f"{shown}…"


def _escaped(letter: str) -> str:
    # Bytes of arguments, file names and files that are no UTF-8 arrive as lone surrogates (`surrogateescape`).
    return f"\\x{ord(letter) - 0xDC00:02x}" if "\udc80" <= letter <= "\udcff" else ascii(letter)[1:-1]


def printable(text: str) -> str:
    """A text of several lines without what would steer the reader's terminal, such as a device name of a file could."""
    return _UNSAFE.sub("?", text)


_GPU_RUN = re.compile(r"\s*(?:GPU)?([0-9]{1,4})\s*(?:[-–]\s*(?:GPU)?([0-9]{1,4})\s*)?", re.I)


def gpu_indexes(text: str | None, option: str = "--gpus") -> list[int] | None:
    """The GPUs that an option lists, in its order: `0,1`, `0-3`, `GPU0, GPU4-GPU6`.

    Raises InputError for anything else, and for a GPU that comes twice.
    """
    if text is None:
        return None
    from topoadvisor.errors import InputError

    found: list[int] = []
    for part in text.split(","):
        run = _GPU_RUN.fullmatch(part)
        first, last = (int(run[1]), int(run[2] or run[1])) if run else (1, 0)
        if last < first:
            raise InputError(f"{option} {text[:40]!r} is no list of GPU indexes", hint="Write it as 0,1,4 or 0-3.")
        found += range(first, last + 1)
    if (twice := next((gpu for gpu, times in Counter(found).items() if times > 1), None)) is not None:
        raise InputError(f"{option} names GPU {twice} twice", hint="Name each GPU once.")
    return found


def load_snapshot(
    sources: str | list[str] | None, assume: list[str] | None = None, assume_file: list[Path] | None = None
) -> Snapshot:
    """Read the SOURCES as one machine, or capture this one when there is none, and add the assumed facts.

    Raises TopoAdvisorError when it cannot be read.
    """
    inputs = [*([sources] if isinstance(sources, str) else sources or []), *map(str, assume_file or [])]
    if inputs.count("-") > 1:
        raise TopoAdvisorError(
            "SOURCE and --assume-file cannot both be standard input", hint="Give one of them as a file."
        )
    if sources is None or sources == []:
        from topoadvisor import collect

        snapshot = collect.capture_live()
    else:
        from topoadvisor.ingest import detect

        snapshot = detect.read(sources, stdin=sys.stdin.buffer)
    if assume or assume_file:
        from topoadvisor.ingest import assume as assuming

        snapshot = assuming.apply(snapshot, assuming.gather(assume or [], assume_file or []))
    return snapshot


_WIDEST = 120


def read_text(path: Path, *, most: int = 4 << 20) -> str:
    """The text of a small file. Raises InputError when it cannot be read, or has more than `most` bytes."""
    from topoadvisor.errors import InputError

    try:
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except OSError as error:
        raise InputError(f"this file cannot be read: {error.strerror or error}", file=str(path)) from None
    if len(data) > most:
        raise InputError(f"this file has more than {most >> 20} MiB", file=str(path), hint="Is it another file?")
    return data.decode("utf-8", "replace")


def page_width() -> int:
    """Columns of a screen of sentences: those of the terminal, but no more than can be read."""
    return min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)


def wrapped(text: str, width: int) -> str:
    """The text with lines beyond the width broken between words; what follows is indented a little more."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        fits = len(line) <= width
        lines += (
            [line]
            if fits
            else textwrap.wrap(
                line, width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
            )
        )
    return "\n".join(lines) + "\n"


def use_color() -> bool:
    """Whether stdout takes colour: NO_COLOR and FORCE_COLOR win over being a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def emit_text(text: str, output: Path | None = None) -> None:
    """Write a product to stdout, or to a file in one step."""
    if output is None or str(output) == "-":
        sys.stdout.write(printable(text))
        sys.stdout.flush()
        return
    from topoadvisor.errors import InputError
    from topoadvisor.files import write_atomically

    try:
        write_atomically(output, text)
    except OSError as error:
        raise InputError(
            f"this file cannot be written: {error.strerror or error}",
            file=str(output),
            hint="Name a file in a folder that exists and that you may write to.",
        ) from None


def say(sentences: Iterable[str]) -> None:
    """What goes beside a product: one line each on stderr."""
    for sentence in sentences:
        print(readable(sentence), file=sys.stderr)


def emit_json(document: Any, output: Path | None = None) -> None:
    """Write a document as indented JSON to stdout, or to a file in one step."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(document), indent=1).decode()
    emit_text(_UNSAFE.sub(lambda letter: f"\\u{ord(letter[0]):04x}", text) + "\n", output)
