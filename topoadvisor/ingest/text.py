"""A text with any of the outputs that can be read, alone or together → parts → Snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from topoadvisor.errors import InputError
from topoadvisor.ingest import (
    host_text,
    ib_text,
    lspci,
    merge,
    nvlink_text,
    smi_query,
    smi_summary,
    split,
    topo_matrix,
)
from topoadvisor.ingest.lines import Line, read_lines
from topoadvisor.ingest.part import Part
from topoadvisor.snapshot import RawText, Snapshot, Source

_READERS: Final[dict[split.Kind, Callable[[list[Line], str], Part | list[Part] | None]]] = {
    "smi-query": smi_query.part,
    "smi-xml": smi_query.xml_lines_part,
    "smi-summary": smi_summary.part,
    "nvlink": nvlink_text.parts,
    "lspci-tree": lspci.tree_part,
    "lspci": lspci.block_part,
    "ibstat": ib_text.ibstat_part,
    "ibv_devinfo": ib_text.devinfo_part,
    "lscpu": host_text.lscpu_part,
    "numactl": host_text.numactl_part,
    "uname": host_text.uname_part,
    "banner": host_text.banner_part,
    "command-line": host_text.command_line_part,
    "report": host_text.report_part,
    "packages": host_text.packages_part,
}


def parse(text: str, file: str) -> list[Part]:
    """The parts of a text, which is kept whole as raw text of the first one.

    Raises InputError, with the line where it can be named, when there is none.
    """
    lines = list(read_lines(text))
    parts, problem = from_lines(lines, split.split(lines, file), file=file, end=text[-topo_matrix.MAX_END :])
    if not parts:
        raise problem
    name = topo_matrix.NAME if any(part.snapshot.matrices for part in parts) else "text"
    first = msgspec.structs.replace(parts[0].snapshot, raw=[RawText(source=name, text=text)])
    return [replace(parts[0], snapshot=first), *parts[1:]]


def read(text: str, file: str) -> Snapshot:
    """The machine that a text is about. Raises InputError as `parse` does."""
    return merge.merge(parse(text, file))


def from_lines(
    lines: Sequence[Line], sections: Sequence[split.Section], *, file: str, end: str
) -> tuple[list[Part], InputError]:
    """The parts among lines and sections of a text, tables first; with it what to say when there are none.

    Positions of `lines` count from 0 without a gap; `end` is how the text ends.
    """
    reading = topo_matrix.read(lines, file=file, end=end)
    parts = topo_matrix.parts(reading, file)
    several = any(matrix.other_machine for matrix in reading.matrices)
    others: list[Part] = []
    problem = reading.problem
    for section in sections:
        try:  # of all readers, only that of the XML refuses anything
            found = _READERS[section.kind](section.lines, file)
        except InputError as error:
            failed = Source(name=smi_query.XML, status="failed", reason=error.message)
            found, problem = Part(Snapshot(sources=[failed]), file, damage=error), error
        others += found if isinstance(found, list) else [found] if found is not None else []
    if not parts and all(part.source.status == "failed" for part in others):
        others = []
    if several and others:
        names = ", ".join(dict.fromkeys(part.source.name for part in others))
        parts[0] = parts[0].noted(reason=f"not used, for it may be about another of these machines: {names}")
        others = []
    return [*parts, *others], problem or InputError("there is nothing here that can be read", file=file)
