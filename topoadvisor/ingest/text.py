"""A text with any of the outputs that can be read, alone or together → parts → Snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from topoadvisor.errors import InputError
from topoadvisor.ingest import (
    host_marks,
    host_text,
    hosts,
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
from topoadvisor.snapshot import Matrix, RawText, Snapshot, Source

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
    groups = hosts.groups(list(read_lines(text)))
    sections = [split.split(group.lines, file) for group in groups]
    parts, problem = of_first_host(groups, sections, file=file, end=text[-topo_matrix.MAX_END :])
    if not parts:
        raise problem
    name = topo_matrix.NAME if any(part.snapshot.matrices for part in parts) else "text"
    first = msgspec.structs.replace(parts[0].snapshot, raw=[RawText(source=name, text=text)])
    return [replace(parts[0], snapshot=first), *parts[1:]]


def read(text: str, file: str) -> Snapshot:
    """The machine that a text is about. Raises InputError as `parse` does."""
    return merge.merge(parse(text, file))


def of_first_host(
    groups: Sequence[hosts.Group], sections: Sequence[Sequence[split.Section]], *, file: str, end: str
) -> tuple[list[Part], InputError]:
    """The parts of the first host with a matrix, else of the first with any; with it what to say when there are none.

    `sections` are those of each group; `end` is how the text ends. What other hosts printed is named and not used, but
    their matrices are shown.
    """
    last = max((line.number for group in groups for line in group.lines), default=0)
    ends = [end if group.lines and group.lines[-1].number == last else "\n" for group in groups]
    readings = [topo_matrix.read(group.lines, file=file, end=end) for group, end in zip(groups, ends, strict=True)]
    found = [_parts(reading, mine, file) for reading, mine in zip(readings, sections, strict=True)]
    with_parts = [place for place, (parts, _) in enumerate(found) if parts]
    first = next((place for place in with_parts if readings[place].captures), with_parts[0] if with_parts else 0)
    others = [place for place in with_parts if place != first]
    if not others:
        parts, problem = found[first]
    else:
        own = {matrix.first_line for matrix in readings[first].matrices}
        matrices = topo_matrix.of_others(readings[place] for place in others)
        strange = [matrix for matrix in matrices if matrix.first_line not in own]
        parts, problem = _parts(readings[first], sections[first], file, strange)
        lines = ", ".join(str(_first_line(groups[place])) for place in others[:8])
        names = dict.fromkeys(part.source.name for place in others for part in found[place][0])
        parts[0] = parts[0].noted(
            reason=f"this text is of {'at least ' if len(groups) >= hosts.MOST else ''}{len(with_parts)} hosts, by the "
            f"names in prompts, above output or in front of its lines: "
            f"what that of line {_first_line(groups[first])} printed is read, and not what others did "
            f"(from line {lines}{', …' if len(others) > 8 else ''} on: {', '.join(names)})"
        )
    if groups[first].assumed and parts:
        parts[0] = parts[0].noted(
            reason="that the processes or containers whose output this is are of one host is assumed, for they print "
            "nothing twice"
        )
    return [replace(part, hosts=groups[first].hosts) for part in parts], problem


def _first_line(group: hosts.Group) -> int:
    anchors = (line.number for line in group.lines if host_marks.anchor(line.text))
    return next(anchors, group.lines[0].number)


def _parts(
    reading: topo_matrix.Reading, sections: Sequence[split.Section], file: str, of_others: Sequence[Matrix] = ()
) -> tuple[list[Part], InputError]:
    """The parts of one host, tables first; with it what to say when there are none."""
    parts = topo_matrix.parts(reading, file, of_others)
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
