"""The parts of a text: runs of lines that belong to one output of one program.

A part is recognised by the structure of its lines, never by the command that somebody typed above it. Tables (of
`topo -m` and `topo -p2p`) are not found here but by `tables`, which copes with far more damage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from topoadvisor.errors import InputError
from topoadvisor.ingest import host_text, ib_text, lspci, nvlink_text, smi_query, smi_summary, tables
from topoadvisor.ingest.lines import Line

Kind = Literal[
    "smi-query",
    "smi-xml",
    "smi-summary",
    "nvlink",
    "lspci-tree",
    "lspci",
    "ibstat",
    "ibv_devinfo",
    "lscpu",
    "numactl",
    "uname",
    "banner",
    "command-line",
    "report",
    "packages",
]

MAX_LENGTH: Final = 4096
"""Of a line that can belong to a part; the flags of a processor are the longest."""
MAX_LINES: Final = 400_000
"""Lines kept of one text: `lspci -vv`, `-q` and all else of the largest machine have a tenth of it."""
_PATIENCE: Final = 3
"""Strange lines in a row after which a part has ended: one may be damaged, or said by another program."""

_Match = Callable[[str], object]


@dataclass(frozen=True)
class _Form:
    """How the lines of one kind of part look."""

    begins: _Match
    """A line that only such a part has."""
    goes_on: _Match
    anew: _Match | None = None
    """A line with which every further output of the program begins."""
    keep: _Match | None = None
    """The lines that its reader looks at; None = all."""


def _is_ellipsis(text: str) -> bool:
    return text.strip() in tables.ELLIPSIS


_XML_BEGIN = re.compile(rf"^\s*<{smi_query.ROOT}[\s>]")
_XML_END = re.compile(rf"^\s*</{smi_query.ROOT}>")
_INDENTED = re.compile(r"^\s+\S")

_FORMS: Final[dict[Kind, _Form]] = {
    "smi-query": _Form(
        lambda text: smi_query.BANNER.match(text) or smi_query.GPU_LINE.match(text),
        smi_query.goes_on,
        anew=smi_query.BANNER.match,
    ),
    "smi-xml": _Form(_XML_BEGIN.match, bool, anew=_XML_BEGIN.match),
    "smi-summary": _Form(smi_summary.BANNER.match, smi_summary.MORE.match, anew=smi_summary.BANNER.match),
    "nvlink": _Form(
        nvlink_text.is_gpu_line,
        lambda text: nvlink_text.is_gpu_line(text) or nvlink_text.is_link_line(text) or _is_ellipsis(text),
    ),
    "lspci-tree": _Form(lspci.TREE_LINE.match, lambda text: lspci.TREE_LINE.match(text) or lspci.TREE_MORE.match(text)),
    "lspci": _Form(
        lspci.BLOCK_LINE.match,
        lambda text: lspci.BLOCK_LINE.match(text) or lspci.HEXDUMP.match(text) or _INDENTED.match(text),
        keep=lambda text: lspci.BLOCK_LINE.match(text) or lspci.DETAIL.match(text),
    ),
    "ibstat": _Form(
        ib_text.IBSTAT_LINE.match,
        lambda text: ib_text.IBSTAT_LINE.match(text) or ib_text.IBSTAT_MORE.match(text),
    ),
    "ibv_devinfo": _Form(
        ib_text.DEVINFO_LINE.match,
        lambda text: ib_text.DEVINFO_LINE.match(text) or ib_text.DEVINFO_MORE.match(text),
    ),
    "lscpu": _Form(host_text.LSCPU_LINE.match, host_text.LSCPU_MORE.match, anew=host_text.LSCPU_LINE.match),
    "numactl": _Form(host_text.NUMACTL_LINE.match, host_text.NUMACTL_MORE.match, anew=host_text.NUMACTL_LINE.match),
    "uname": _Form(host_text.UNAME_LINE.match, lambda _: False),
    "banner": _Form(host_text.BANNER_LINE.match, lambda _: False),
    "command-line": _Form(host_text.CMDLINE_LINE.match, lambda _: False),
    "report": _Form(host_text.REPORT_LINE.match, lambda _: False),
    "packages": _Form(host_text.PACKAGE_LINE.match, lambda _: False),
}

_ANCHORED = re.compile(
    r"[ \t]*(?:GPU [0-9A-Fa-f]{4}|<nvidia_smi_log|[-|+\\][-|+\\ \t]*\[[0-9a-f]{4}"
    r"|(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] "
    rf"|CA '|hca_id:|{host_text.LSCPU_BEGIN}|available: |(?:uname: )?Linux |NVRM version:|BOOT_IMAGE=|\|\s*NVIDIA-SMI "
    r"|Nvidia driver version:|CUDA Driver Version:|(?:\[(?:pip3?|conda)\] *)?nvidia-nccl-cu)"
)
"""How every line begins that begins a part, but for the two that may have something in front; the forms decide."""
SIGNS: Final = {
    "GPU ": r"(?:[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:|[0-9]{1,4}: "
    rf"(?:[^(\n]{{1,90}}\(UUID: |{nvlink_text.PRODUCT.pattern}))",
    "NVSMI LOG": "",
    "NVIDIA-SMI ": "",
    f"<{smi_query.ROOT}": "",
    "CA '": "",
    "hca_id:": "",
    "x86_64": r"[ \t\r]*(?![^\n])",
    "aarch64": r"[ \t\r]*(?![^\n])",
    "ppc64le": r"[ \t\r]*(?![^\n])",
    "available: ": "[0-9]",
    "Linux ": r"\S+ [0-9]",
    "NVRM version:": "",
    "BOOT_IMAGE=": "",
    "Nvidia driver version:": "",
    "CUDA Driver Version:": "",
    "nvidia-nccl-cu": "",
    "-[": "[0-9a-f]{4}",
    "controller": r"(?: \[[0-9a-f]{4}\])?: ",
    "ridge": r"(?: \[[0-9a-f]{4}\])?: ",
}
"""Text → pattern of what follows it. One of these stands in every line that begins a part (of `lspci`: in one of its
first lines)."""
_GPU_NUMBER = re.compile(r"GPU [0-9]")


@dataclass
class Section:
    kind: Kind
    lines: list[Line] = field(default_factory=list)


class Splitter:
    """Feeds on lines and keeps those that belong to a part."""

    def __init__(self, file: str) -> None:
        self.sections: list[Section] = []
        self._file = file
        self._open: Section | None = None
        self._strangers = 0
        self._kept = 0

    @property
    def inside(self) -> bool:
        """A part may go on with the next line."""
        return self._open is not None

    def feed(self, line: Line) -> bool:
        """Take in one line; True when it belongs to a part."""
        text = line.text
        if not text or len(text) > MAX_LENGTH or text.isspace():
            return False
        current = self._open
        if current is not None and current.kind == "smi-xml":
            self._keep(line, current)
            if _XML_END.match(text):
                self._open = None
            return True
        if (kind := begun(text)) is not None:
            form = _FORMS[kind]
            if current is None or current.kind != kind or (form.anew is not None and form.anew(text)):
                current = self._begin(kind)
            self._keep(line, current)
            self._strangers = 0
            return True
        if current is None:
            return False
        form = _FORMS[current.kind]
        if form.goes_on(text):
            self._strangers = 0
            if form.keep is None or form.keep(text):
                self._keep(line, current)
            return True
        self._strangers += 1
        if self._strangers > _PATIENCE:
            self._open = None
        return False

    def _begin(self, kind: Kind) -> Section:
        self._open = Section(kind)
        self.sections.append(self._open)
        return self._open

    def _keep(self, line: Line, section: Section) -> None:
        self._kept += 1
        if self._kept > MAX_LINES:
            raise InputError(
                f"more than {MAX_LINES} lines up to here look like output about one machine",
                file=self._file,
                line=line.number,
                hint="Cut the parts that matter out of the file: `nvidia-smi topo -m`, `nvidia-smi -q`, `lspci -tv`.",
            )
        section.lines.append(line)


def anchored(text: str) -> bool:
    """A line that begins like one that begins a part, with nothing in front of it."""
    return _ANCHORED.match(text) is not None


def begun(text: str) -> Kind | None:
    """The kind of part that only a line like this begins."""
    if not (anchored(text) or _GPU_NUMBER.search(text) or "NVSMI LOG" in text):
        return None
    return next((kind for kind, form in _FORMS.items() if form.begins(text)), None)


def split(lines: Iterable[Line], file: str) -> list[Section]:
    """The parts of a text in order.

    Raises InputError when more lines belong to parts than any machine's have.
    """
    splitter = Splitter(file)
    for line in lines:
        splitter.feed(line)
    return splitter.sections
