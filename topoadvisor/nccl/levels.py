"""NCCL's path types and what its level variables accept."""

from __future__ import annotations

from enum import IntEnum


class NcclPath(IntEnum):
    """NCCL's path types, nearest first, as its debug log names them.

    The numbers are those of NCCL 2.27.5 to 2.30.7 (`src/include/graph.h`), not the digits that a user may write.
    """

    LOC = 0
    NVL = 1
    NVB = 2
    C2C = 3
    PIX = 4
    PXB = 5
    P2C = 6
    PXN = 7
    PHB = 8
    SYS = 9
    NET = 10
    DIS = 11
