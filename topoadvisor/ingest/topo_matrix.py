"""Pasted `nvidia-smi topo -m` → Matrix → Part, and the peer-to-peer tables of `topo -p2p` beside it.

The tables are found by structure (`tables`), their cells fitted to columns (`cells`), and the columns behind the
devices read by `affinity`. This module says which tables are link matrices, and what belongs to which machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from topoadvisor.errors import InputError, Unrecognised
from topoadvisor.ingest import affinity, cells, hosts, nvidia_smi_text, tables
from topoadvisor.ingest.lines import Line, read_lines
from topoadvisor.ingest.part import Part, source
from topoadvisor.numbers import whole
from topoadvisor.snapshot import DamagedCell, Gpu, Matrix, Nic, P2p, Snapshot

NAME = "nvidia-smi topo -m"
MAX_TEXT = 8 << 20
MAX_END = 100
"""Characters at the end of a text that may be one cell."""
HINT = "Paste the output of `nvidia-smi topo -m`, with its header line."

_LINK = re.compile(r"NV[0-9]{1,4}|C2C|PIX|PXB|PSB|PHB|NODE|SYS|SOC")
_OPTION = re.compile(r"topo (-mp?)\b")
_LEGEND = re.compile(r"(?<!\w)((?:NIC|NVMe)[0-9]{1,4})\s{0,8}(?::|=|->|→)\s{0,8}([A-Za-z][\w.\-]*)")
_LEGEND_LINE = re.compile(rf"^[^A-Za-z]{{0,12}}{_LEGEND.pattern}|{_LEGEND.pattern}[\s\"',;|]*$")


@dataclass(frozen=True)
class _Capture:
    matrix: Matrix
    first: Line
    last: Line
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """The tables of a text: link matrices, peer-to-peer tables, and why there is no matrix when there is none."""

    captures: list[_Capture]
    p2p: list[nvidia_smi_text.P2pTable]
    problem: InputError | None

    @property
    def matrices(self) -> list[Matrix]:
        return [capture.matrix for capture in self.captures]


def parse(text: str, *, file: str) -> list[Matrix]:
    """Every link matrix of a text, in order; damaged cells are listed in `Matrix.damaged` and absent from `cells`.

    Raises InputError, with the line where it can be named, when there is none.
    """
    if len(text) > MAX_TEXT:
        raise InputError(
            f"this text is {len(text) >> 20} MiB long, too long for a pasted matrix",
            file=file,
            hint="Cut the part with `nvidia-smi topo -m` out of it.",
        )
    readings = [read(group.lines, file=file, end=text[-MAX_END:]) for group in hosts.groups(list(read_lines(text)))]
    first = next((reading for reading in readings if reading.captures), readings[0])
    if first.problem is not None:
        raise first.problem
    return [*first.matrices, *of_others(reading for reading in readings if reading is not first)]


def read(lines: Sequence[Line], *, file: str, end: str) -> Reading:
    """The tables among the lines of a text, whose positions count from 0 without a gap.

    `end` is how the text ends, to tell a table that was cut there. Raises InputError for a table wider than any
    machine's, and for a text that is full of parts of tables.
    """
    captures: list[_Capture] = []
    p2p: list[nvidia_smi_text.P2pTable] = []
    foreign: tables.Table | None = None
    first: frozenset[str] = frozenset()
    for table in tables.find(lines, file=file):
        found = cells.fit(table)
        alone = len(found.columns) == 1 and "-p2p" in table.context.rpartition("\n")[2]
        if alone or nvidia_smi_text.is_p2p(found):
            p2p.append(nvidia_smi_text.p2p_table(table, found))
        elif not any(row.row.label.startswith("GPU") for row in found.rows) or _is_prose(table, found):
            continue
        elif not _is_link_matrix(found):
            foreign = foreign or table
        elif captures and _is_more_columns(found, captures[-1].matrix):
            captures[-1] = _with_columns(captures[-1], found)
        else:
            matrix = _without_cut_cell(_matrix(table, found, end), found.rows[-1], end)
            options = frozenset(_OPTION.findall(table.context)[-1:])
            if captures and not (options.isdisjoint(first) and _same_machine(captures[0].matrix, matrix)):
                matrix = msgspec.structs.replace(matrix, other_machine=True)
            first = first or options
            captures.append(_Capture(matrix, table.first, table.last, (*found.notes, *_beside(table))))
    problem = None if captures else _nothing(lines, foreign, p2p, file)
    return Reading(_with_legends(captures, lines), p2p, problem)


def _beside(table: tables.Table) -> Iterable[str]:
    """That a second table stands in the same lines, as `paste` puts them: it is not read."""
    line = table.first
    for again in list(re.finditer(r"(?<!\w)GPU0(?!\w)", line.text))[1:] if table.header is not None else ():
        yield f"another table stands beside it and is not read: line {line.number}, column {line.column(again.start())}"


def of_others(readings: Iterable[Reading]) -> list[Matrix]:
    """The matrices of other hosts of the same text."""
    return [msgspec.structs.replace(matrix, other_machine=True) for reading in readings for matrix in reading.matrices]


def _is_link_matrix(found: cells.FittedTable) -> bool:
    """Its cells are link classes of `nvidia-smi`, and no other word comes again and again among them.

    Other vendors' tools print the same layout with their own words; damage does not repeat itself.
    """
    links = sum(bool(_LINK.fullmatch(text)) for row in found.rows for text in row.cells.values())
    strange = Counter(cell.text for row in found.rows for cell in row.damaged if cell.text.isalpha())
    often = max(strange.values(), default=0)
    if links == 0:
        unknown = any(token.text == tables.UNKNOWN for row in found.rows for token in row.row.tokens)
        damaged = any(cell.text for row in found.rows for cell in row.damaged)
        return not damaged and (unknown or len(found.columns) == 1)
    return often <= max(2, links // 4)


def _is_prose(table: tables.Table, found: cells.FittedTable) -> bool:
    """A part of a sentence: words go on behind each row, and stand in the heading if there is one; or a GPU's name with
    an X behind it, no heading above it and no list of CPUs behind it.
    """
    heading = table.header
    in_words = heading is None or (not heading.affinities and _words(heading.text.split()))
    if in_words and all(_words(token.text for token in row.row.tokens[len(found.columns) :]) for row in found.rows):
        return True
    headings = heading.columns if heading is not None else ()
    if len(found.columns) > 1 or headings == found.columns:
        return False
    words = [token.text for row in found.rows for token in row.row.tokens]
    return not any(tables.is_affinity(word) and not word.isdecimal() for word in words)


def _words(texts: Iterable[str]) -> bool:
    """There are at least two words that stand in no table."""
    return sum(text.strip(".,:;").isalpha() and not tables.is_relation(text) for text in texts) > 1


def _is_more_columns(found: cells.FittedTable, matrix: Matrix) -> bool:
    """A table of other devices (NVMe) for the same rows, as newer drivers print behind the matrix."""
    known = {*matrix.gpus, *matrix.nics}
    return not known & set(found.columns) and all(row.row.label in known for row in found.rows)


def _with_columns(capture: _Capture, found: cells.FittedTable) -> _Capture:
    matrix = capture.matrix
    more = {row.row.label: row.cells for row in found.rows}
    return _Capture(
        msgspec.structs.replace(
            matrix,
            cells={label: {**row, **more.get(label, {})} for label, row in matrix.cells.items()},
            others={**matrix.others, **{name: None for name in found.columns if name}},
            damaged=[*matrix.damaged, *(cell for row in found.rows for cell in row.damaged)],
        ),
        capture.first,
        capture.last,
        (*capture.notes, *found.notes),
    )


def _matrix(table: tables.Table, found: cells.FittedTable, end: str) -> Matrix:
    names = list(dict.fromkeys([*(name for name in found.columns if name), *(row.row.label for row in found.rows)]))
    gpus = [name for name in names if name.startswith("GPU")]
    others = [name for name in names if name.startswith("NVMe")]
    gpu_rows = [row for row in found.rows if row.row.label in gpus]
    kinds = affinity.kinds(table.header, gpu_rows)
    last = bool(gpu_rows) and gpu_rows[-1] is found.rows[-1]
    complete = {*gpus} <= {row.row.label for row in gpu_rows}
    read, damaged = affinity.read(gpu_rows, kinds, table.header, end=end if last else "\n", complete=complete)

    def column(kind: tables.Affinity) -> dict[str, str | None]:
        return {label: values[kind] for label, values in read.items()} if kind in kinds else {}

    return Matrix(
        gpus=gpus,
        nics=[name for name in names if name not in gpus and name not in others],
        others=dict.fromkeys(others),
        cells={row.row.label: row.cells for row in found.rows},
        cpu_affinity=column("cpu"),
        numa_affinity=column("numa"),
        gpu_numa_id=column("gpu-numa"),
        damaged=[*(cell for row in found.rows for cell in row.damaged), *damaged],
        first_line=table.first.number,
    )


def _without_cut_cell(matrix: Matrix, row: cells.FittedRow, end: str) -> Matrix:
    """Where the text ends with an NVLink count (`NV1` of `NV18`?), it counts only if the other direction agrees."""
    token, label = row.last, row.row.label
    if token is None or not token.text.startswith("NV") or not end.endswith(token.text):
        return matrix
    column = next(reversed(row.cells), None)
    mirrored = matrix.cells.get(column or "", {}).get(label)
    if column is None or row.cells[column] != token.text or mirrored == token.text:
        return matrix
    line = token.line
    cut = DamagedCell(row=label, column=column, text=token.text, line=line.number, text_column=line.column(token.start))
    kept = {name: text for name, text in row.cells.items() if name != column}
    damaged = [*(cell for cell in matrix.damaged if cell not in row.damaged or cell.text), cut]
    return msgspec.structs.replace(matrix, cells={**matrix.cells, label: kept}, damaged=damaged)


def _with_legends(captures: list[_Capture], lines: Sequence[Line]) -> list[_Capture]:
    """A legend stands behind its matrix; for the first one it may also stand in front."""
    complete = []
    for index, capture in enumerate(captures):
        end = captures[index + 1].first.position if index + 1 < len(captures) else len(lines)
        names = _legend(lines[capture.last.position + 1 : end])
        if not names and index == 0:
            names = _legend(lines[: capture.first.position])
        matrix = capture.matrix
        matrix = msgspec.structs.replace(
            matrix,
            nic_legend={name: device for name, device in names.items() if name.startswith("NIC")},
            others={name: names.get(name) for name in matrix.others},
        )
        complete.append(replace(capture, matrix=matrix))
    return complete


def _legend(lines: Iterable[Line]) -> dict[str, str]:
    """`NIC0: mlx5_0` lines: the name leads the line, or the device ends it (behind what a log puts in front)."""
    names: dict[str, str] = {}
    titled = False
    for line in lines:
        titled = titled or "Legend" in line.text
        if _LEGEND_LINE.search(line.text):
            for name, device in _LEGEND.findall(line.text):
                if not _LINK.fullmatch(device) and (titled or any(letter.isdigit() for letter in device)):
                    names.setdefault(name, device.rstrip(".-"))
    return names


def _nothing(
    lines: Sequence[Line], foreign: tables.Table | None, p2p: Sequence[nvidia_smi_text.P2pTable], file: str
) -> InputError:
    if foreign is not None:
        row = foreign.rows[0]
        words = dict.fromkeys(token.text[:20] for token in row.tokens[:8] if not tables.is_relation(token.text))
        return InputError(
            f"this table is not one of nvidia-smi: its cells ({' '.join(words)}) are no link classes"
            if words
            else "rows stand here without a header that names their columns",
            file=file,
            line=row.line.number,
            hint=f"Link classes are NV#, PIX, PXB, PHB, NODE and SYS. {HINT}",
        )
    if p2p:
        return InputError(
            "this text has a peer-to-peer table but no link matrix", file=file, line=p2p[0].first.number, hint=HINT
        )
    for line in lines:
        if tables.is_header(line):
            return InputError(
                "a header of devices stands here, but no row with its own X follows",
                file=file,
                line=line.number,
                hint=f"The text may have been cut. {HINT}",
            )
    return Unrecognised(
        "this text has no GPU topology matrix",
        file=file,
        line=1,
        hint=f"{HINT} `nvidia-smi -q`, `lspci -tv`, NCCL's and hwloc's XML, snapshots and others are read, too.",
    )


def parts(reading: Reading, file: str, others: Sequence[Matrix] = ()) -> list[Part]:
    """The first machine's matrices, and one part for each peer-to-peer table of that machine.

    `others` are the matrices of other hosts of the text.
    """
    found = [_matrix_part(reading, file, others)] if reading.captures else []
    end = next((capture.first.position for capture in reading.captures if capture.matrix.other_machine), None)
    indices = {int(label[3:]) for label in reading.captures[0].matrix.gpus} if reading.captures else None
    for table in reading.p2p:
        part = _p2p_part(table, file)
        strange = sorted({gpu.index for gpu in part.snapshot.gpus} - indices) if indices is not None else []
        if end is not None and table.first.position > end:
            part = part.bare("left out, for it stands behind the matrix of another machine")
        elif strange:
            names = ", ".join(f"GPU{index}" for index in strange[:8])
            part = part.bare(f"left out, for it is about another machine: it has {names}, which the matrix has not")
        found.append(part)
    return found


def _same_machine(first: Matrix, other: Matrix) -> bool:
    """One table shows a part of the other, or they differ as `topo -m` and `topo -mp` do: where one prints NVLinks the
    other prints PCIe classes.

    The same matrix again may be that of another node of the same make.
    """
    affinities = [
        (getattr(first, name), getattr(other, name)) for name in ("cpu_affinity", "numa_affinity", "gpu_numa_id")
    ]
    if first.gpus != other.gpus or any(mine and theirs and mine != theirs for mine, theirs in affinities):
        return False
    changes = {
        (before.startswith("NV"), after.startswith("NV"))
        for row, cells in other.cells.items()
        for column, after in cells.items()
        if (before := first.cells.get(row, {}).get(column, after)) != after
    }
    whole = first.nics == other.nics and all(bool(mine) == bool(theirs) for mine, theirs in affinities)
    if whole:
        return changes in ({(True, False)}, {(False, True)})
    return not changes and (first.nics == other.nics or not first.nics or not other.nics)


def _matrix_part(reading: Reading, file: str, of_hosts: Sequence[Matrix]) -> Part:
    first = reading.captures[0].matrix
    notes = list(reading.captures[0].notes)
    notes += _damage(first.damaged)
    missing = [name for name in first.gpus if name not in first.cells and len(first.gpus) > 1]
    if missing:
        notes.append(f"the rows of {', '.join(missing)} are missing: the text was cut")
    if others := [matrix for matrix in reading.matrices if matrix.other_machine]:
        lines = ", ".join(str(matrix.first_line) for matrix in others[:8])
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        notes.append(
            f"the text holds {len(reading.captures)} matrices; that in line {first.first_line} is analysed, "
            f"and {'those' if len(others) > 1 else 'that'} in line {lines}{more} may be of another machine"
        )
    snapshot = Snapshot(
        sources=[source(NAME, notes)],
        gpus=_gpus(first),
        nics=[Nic(name=first.nic_legend.get(name, name), rdma=True) for name in first.nics] or None,
        matrices=[*reading.matrices, *of_hosts],
    )
    indices = [int(label[3:]) for label in first.gpus]
    whole = not missing and indices == list(range(len(indices)))
    return Part(snapshot, file, count=len(indices) if whole else None)


def _damage(cells: Sequence[DamagedCell]) -> list[str]:
    if not cells:
        return []
    where = f"line {cells[0].line}, column {cells[0].text_column}, row {cells[0].row}"
    return [f"{len(cells)} damaged cell{'s' if len(cells) > 1 else ''}, the first in {where}"]


def _gpus(matrix: Matrix) -> list[Gpu]:
    gpus = []
    for label in matrix.gpus:
        affinity_text = matrix.cpu_affinity.get(label)
        gpus.append(
            Gpu(
                index=int(label[3:]),
                cpu_affinity=affinity_text if affinity_text != "N/A" else None,
                numa_node=whole(matrix.numa_affinity.get(label)),
                memory_numa_node=whole(matrix.gpu_numa_id.get(label)),
            )
        )
    return gpus


def _p2p_part(table: nvidia_smi_text.P2pTable, file: str) -> Part:
    notes = _damage(table.damaged)
    kinds = table.kinds
    if not kinds and (kinds := nvidia_smi_text.kinds_by_name(file)):
        notes.append("that it is about this capability only the name of its file says")
    letters = "".join(kind[0] for kind in kinds)
    if not kinds:
        notes.append(f"the peer-to-peer table in line {table.first.number} does not say which capability it shows")
    facts = [
        msgspec.structs.replace(P2p(a=a, b=b), **dict.fromkeys(kinds, status))
        for (a, b), status in sorted(table.cells.items())
    ]
    name = f"nvidia-smi topo -p2p {letters}".rstrip()
    gpus = [Gpu(index=index) for index in sorted({index for pair in table.cells for index in pair})]
    snapshot = Snapshot(sources=[source(name, notes)], gpus=gpus, p2p=facts if kinds else None)
    return Part(snapshot, file, count=table.count)
