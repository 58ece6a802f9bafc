"""The tuner's table of latencies and bandwidths, which rank 0 prints with `NCCL_DEBUG_SUBSYS=TUNING`."""

from __future__ import annotations

import re
from typing import Final

from topoadvisor.ingest.nccl_log_records import Thread
from topoadvisor.ingest.nccl_log_summary import Cell

_CELL: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)/\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)")
_COLLECTIVES: Final = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_MAX_CELLS: Final = 256
_MAX_COLUMNS: Final = 48


def add(thread: Thread, line: str) -> None:
    """One line of the table: a head, or a collective with a cell for each algorithm and protocol.

    Up to 2.17 all algorithms stand in one block (`Tree/ LL`), since 2.18 three in each, with two lines of heads. The
    second of them always names nine protocols, the last block has fewer algorithms.
    """
    title, *cells = line.split("|")
    title = title.strip()
    cells = [cell.strip() for cell in cells[:_MAX_COLUMNS] if cell.strip()]
    if title == "Latency/AlgBw":
        pairs = [cell.partition("/") for cell in cells]
        thread.algorithms = [pair[0].strip() for pair in pairs]
        thread.protocols = [pair[2].strip() for pair in pairs]
    elif title == "Algorithm":
        thread.algorithms = [cell for cell in cells for _ in range(3)]
    elif title == "Protocol":
        thread.protocols = cells
    elif title in _COLLECTIVES and len(thread.member.tuner) < _MAX_CELLS:
        for algorithm, protocol, cell in zip(thread.algorithms, thread.protocols, cells, strict=False):
            if match := _CELL.fullmatch(cell):
                latency, gbps = float(match[1]), float(match[2])
                thread.member.tuner.append(
                    Cell(collective=title, algorithm=algorithm, protocol=protocol, latency_us=latency, gbps=gbps)
                )
