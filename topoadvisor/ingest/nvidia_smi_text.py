"""`nvidia-smi topo -p2p X`: which pairs may read, write, … each other's memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from topoadvisor.ingest import cells, tables
from topoadvisor.ingest.lines import Line, read_lines
from topoadvisor.snapshot import DamagedCell

P2pKind = Literal["read", "write", "nvlink", "atomics", "pci"]

P2P_STATUSES = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
P2P_CAPABILITIES: tuple[P2pKind, ...] = get_args(P2pKind)
_LETTERS: dict[str, P2pKind] = {kind[0]: kind for kind in P2P_CAPABILITIES}
_COMMAND = re.compile(r"-p2p[\s=]+[\"']?(?P<letters>[rwnap]{1,5})\b", re.I)

_FILE_NAME = re.compile(r"p2p[-_. ](?P<letters>[rwnap]{1,5})(?![A-Za-z0-9])", re.I)


@dataclass(frozen=True)
class P2pTable:
    """One `topo -p2p` table: (from GPU, to GPU) → status, and which capabilities it is about when a command says so."""

    first: Line
    kinds: tuple[P2pKind, ...]
    cells: dict[tuple[int, int], str]
    count: int | None = None
    """How many GPUs there are, where the table is whole."""
    damaged: tuple[DamagedCell, ...] = ()


def is_p2p(found: cells.FittedTable) -> bool:
    """Its cells are peer-to-peer statuses rather than link classes."""
    texts = [text for row in found.rows for text in row.cells.values()]
    return bool(texts) and sum(text in P2P_STATUSES for text in texts) * 2 > len(texts)


def p2p_table(table: tables.Table, found: cells.FittedTable) -> P2pTable:
    """A table that `is_p2p` as a mapping of ordered pairs."""
    statuses = {
        (int(row.row.label[3:]), int(column[3:])): text
        for row in found.rows
        for column, text in row.cells.items()
        if row.row.label.startswith("GPU") and column.startswith("GPU") and text in P2P_STATUSES
    }
    commands = _COMMAND.findall(table.context)
    labels = [row.row.label for row in found.rows]
    whole = labels == list(found.columns) == [f"GPU{index}" for index in range(len(labels))]
    kinds = _kinds(commands[-1] if commands else "")
    damaged = tuple(cell for row in found.rows for cell in row.damaged)
    return P2pTable(table.first, kinds, statuses, len(labels) if whole and len(labels) > 1 else None, damaged)


def _kinds(letters: str) -> tuple[P2pKind, ...]:
    return tuple(_LETTERS[letter] for letter in dict.fromkeys(letters.lower()))


def kinds_by_name(file: str) -> tuple[P2pKind, ...]:
    """What the output in a file is about when the file is named after the command: `topo-p2p-r.txt`."""
    match = _FILE_NAME.search(file.rpartition("/")[2])
    return _kinds(match["letters"]) if match else ()


def parse_p2p(text: str, *, file: str = "nvidia-smi topo -p2p") -> dict[tuple[int, int], str]:
    """The first `topo -p2p` table of a text: (from GPU, to GPU) → `OK`, `CNS`, `GNS`, `TNS`, `NS`, `DR` or `U`.

    Empty when the text has none, and for a machine with one GPU.
    """
    for table in tables.find(read_lines(text), file=file):
        found = cells.fit(table)
        if is_p2p(found):
            return p2p_table(table, found).cells
    return {}
