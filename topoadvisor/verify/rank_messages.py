"""What a parent and its ranks say to each other: one job per rank on standard input, JSON lines back."""

from __future__ import annotations

from typing import Annotated

import msgspec

from topoadvisor.measurements.model import Collective
from topoadvisor.verify.messages import Bytes, Seconds, Struct


class Case(Struct, frozen=True, kw_only=True):
    """One collective at one size."""

    collective: Collective
    size_bytes: int
    """The larger of the two buffers of a rank, as nccl-tests count."""
    operations: int
    """In one timed batch; the same on every rank."""
    batches: int


class RankJob(Struct, frozen=True, kw_only=True):
    """What one rank is to do."""

    rank: int
    ranks: int
    address: str
    """PCI address of its GPU."""
    nccl_library: str
    """Path or name of libnccl."""
    id_file: str
    """Where rank 0 puts NCCL's unique id, for the others to read."""
    cases: list[Case]
    seed: int


class Began(Struct, frozen=True, kw_only=True):
    """The communicator is there."""

    nccl: str
    runtime: str
    cupy: str
    processors: int
    """Multiprocessors of the GPU."""


class Timed(Struct, frozen=True, kw_only=True):
    """One case's result on one rank."""

    case: int
    """Its number in the job."""
    seconds: list[Seconds]
    """Of one operation, one value per batch."""
    wrong: Annotated[int, msgspec.Meta(ge=0)] | None
    """Elements with wrong values; None = not compared."""


class Ended(Struct, frozen=True, kw_only=True):
    """All cases are done."""

    used_bytes: Bytes
    """GPU memory that NCCL took, its buffers and what CUDA loaded for it."""


class RankLine(Struct, frozen=True, kw_only=True):
    """One line that a rank prints; one member is set."""

    began: Began | None = None
    timed: Timed | None = None
    ended: Ended | None = None
    failed: str | None = None
    """Why it gives up, in one sentence."""
    unable: str | None = None
    """Why it cannot even begin, which says nothing of NCCL on this machine: no library, no memory for buffers."""
