"""Small `nvidia-smi` outputs: `topo -p2p X`, `nvlink -s` and the device lines of `-L`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from topoadvisor.ingest import cells, tables
from topoadvisor.ingest.lines import Line, read_lines
from topoadvisor.snapshot import NvLink

P2pKind = Literal["read", "write", "nvlink", "atomics", "pci"]

P2P_STATUSES = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
_LETTERS: dict[str, P2pKind] = {"r": "read", "w": "write", "n": "nvlink", "a": "atomics", "p": "pci"}
_COMMAND = re.compile(r"-p2p[\s=]+[\"']?(?P<letters>[rwnap]{1,5})\b", re.I)

_GPU = re.compile(r"\bGPU (?P<index>[0-9]{1,4}): (?P<name>[^(\n]{1,80}?) *(?:\(UUID: *(?P<uuid>[^)\s]{1,80})\))?\s*$")
_PRODUCT = re.compile(r"NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|[ABHLPTV][0-9]{1,3}\b")
_LINK = re.compile(
    r"^\W*Link (?P<link>[0-9]{1,3}): *(?:(?P<gbps>[0-9]{1,4}(?:\.[0-9]{1,6})?) *GB/s|(?P<off><?inactive>?))", re.I
)
_NO_LINKS = re.compile(r"all links are inactive", re.I)


@dataclass(frozen=True)
class P2pTable:
    """One `topo -p2p` table: (from GPU, to GPU) → status, and which capabilities it is about when a command says so."""

    first: Line
    kinds: tuple[P2pKind, ...]
    cells: dict[tuple[int, int], str]


@dataclass(frozen=True)
class GpuBlock:
    """One GPU as `nvidia-smi -L` or `nvlink -s` names it.

    `links` is None where no links are listed or some are left out, and empty when the driver says that all are
    inactive.
    """

    index: int
    line: int
    name: str
    uuid: str | None
    links: tuple[NvLink, ...] | None


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
    letters = commands[-1].lower() if commands else ""
    return P2pTable(table.first, tuple(_LETTERS[letter] for letter in dict.fromkeys(letters)), statuses)


def parse_p2p(text: str, *, file: str = "nvidia-smi topo -p2p") -> dict[tuple[int, int], str]:
    """The first `topo -p2p` table of a text: (from GPU, to GPU) → `OK`, `CNS`, `GNS`, `TNS`, `NS`, `DR` or `U`.

    Empty when the text has none, and for a machine with one GPU.
    """
    for table in tables.find(read_lines(text), file=file):
        found = cells.fit(table)
        if is_p2p(found):
            return p2p_table(table, found).cells
    return {}


def parse_nvlink_status(text: str) -> list[GpuBlock]:
    """The GPUs of `nvidia-smi nvlink -s` (or `-L`) in the order of the text; rates are line rates per direction."""
    return gpu_blocks(read_lines(text))


def gpu_blocks(lines: Iterable[Line]) -> list[GpuBlock]:
    """As `parse_nvlink_status`, for lines of a text that may hold other things; a GPU named twice is one block."""
    blocks: dict[int, GpuBlock] = {}
    current: GpuBlock | None = None
    elided = False
    for line in lines:
        gpu = _GPU.search(line.text) if "GPU " in line.text else None
        if gpu and (gpu["uuid"] or _PRODUCT.match(gpu["name"])):
            index = int(gpu["index"])
            known = blocks.get(index)
            current = known or GpuBlock(index, line.number, gpu["name"].strip(), gpu["uuid"], None)
            blocks[index] = current
            elided = False
        elif current is not None and (link := _LINK.match(line.text)):
            links = current.links or ()
            complete = not elided and int(link["link"]) == len(links)
            current = replace(current, links=(*links, _nvlink(link)) if complete else None)
            blocks[current.index] = current
            elided = not complete
        elif current is not None and _NO_LINKS.search(line.text):
            current = replace(current, links=())
            blocks[current.index] = current
        elif line.text.strip() in tables.ELLIPSIS:
            elided = True
    return list(blocks.values())


def _nvlink(match: re.Match[str]) -> NvLink:
    active = match["gbps"] is not None
    return NvLink(
        link=int(match["link"]), active=active, raw_mbps=round(float(match["gbps"]) * 1000) if active else None
    )
