"""The document that `topoadvisor predict --format json` prints."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SCHEMA: Final = "topoadvisor.predict/1"

State = Literal["on", "off", "unknown"]


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all types of the prediction."""


class Nccl(Struct, frozen=True, kw_only=True):
    """The NCCL that is predicted."""

    version: str
    origin: str
    """Where the version comes from; what was taken for granted when it is not known."""


class Present(Struct, frozen=True, kw_only=True):
    """A variable that is set."""

    name: str
    value: str
    origin: str
    becomes: str | None
    """What NCCL makes of the text, where the variable is one of NCCL's; None = it counts as not set."""


class Failure(Struct, frozen=True, kw_only=True):
    """A setting with which NCCL does not run."""

    name: str
    value: str
    origin: str
    why: str


class Pair(Struct, frozen=True, kw_only=True):
    """One ordered pair of GPUs: how `a` sends to `b`."""

    a: str
    b: str
    transport: Literal["P2P", "SHM", "NET", "unknown"]
    via: str | None
    """As NCCL's log spells it behind the transport: `CUMEM`, `IPC`, `indirect`; with `/read` where the receiver reads.
    Two GPUs of one process use direct pointers instead."""
    path: str | None
    """NCCL's path type of the way that the traffic takes; None = not known."""
    gbps: float | None
    """In NCCL's model, per direction."""
    why: str
    unknown: str | None
    """Why path or bandwidth is not known."""
    inferred: list[str]


class GpuPort(Struct, frozen=True, kw_only=True):
    """One GPU and one network port."""

    gpu: str
    port: str
    path: str
    """From the GPU to the port."""
    gbps: float | None
    """Of that way in NCCL's model, the line rate of the port included; None = not known."""
    unknown: str | None
    """Why not."""
    own: bool
    """One of the ports that the GPU's channels take."""
    relay: str | None
    """The GPU that PXN sends through."""
    send: State
    """GPUDirect RDMA when sending, which reads the GPU's memory."""
    receive: State
    why: str


class Feature(Struct, frozen=True, kw_only=True):
    """Something that is on or off for the whole job."""

    name: str
    state: State
    why: str


PLACEHOLDER_GBPS: Final = 0.1
"""What NCCL notes for its channels when its search found none and takes the GPUs in their own order
(`ncclTopoCompute` in `src/graph/search.cc`)."""


class Channels(Struct, frozen=True, kw_only=True):
    """What NCCL's search finds for rings, or for trees, which are chains inside a host."""

    searched: int
    """Channels of the search, after it has split fast ones."""
    gbps: float
    """Of each, in NCCL's model, per direction."""
    total_gbps: float
    path: str
    """The farthest path type within."""
    network_path: str | None
    """The farthest to the network, when the job has several hosts or NCCL divides this one; otherwise None."""
    orders: list[list[str]]
    """GPUs of each channel."""
    ports: list[list[str]]
    """Where each channel comes in and goes out; empty on one host that is not divided."""
    same_order: bool


class Group(Struct, frozen=True, kw_only=True):
    """GPUs within which NCCL plans rings: usually all of the job."""

    gpus: list[str]
    rings: Channels | None
    trees: Channels | None
    channels: int | None
    """In the end, as NCCL's log counts them: each ring serves twice, then the limits of the user."""
    why: str | None
    """Why the search could not be repeated, or what the limits did."""
    inferred: list[str]


class Difference(Struct, frozen=True, kw_only=True):
    """What one setting does: the machine with it against the machine without it."""

    name: str
    value: str | None
    """None: it is to be unset."""
    origin: str
    """Where it is set, or the rule that recommends it."""
    recommended: bool
    changes: list[str]
    """One sentence each; empty = nothing of what is predicted here."""


class Prediction(Struct, frozen=True, kw_only=True):
    """What NCCL will do for one job, one rank for each GPU, on one host or on several that are alike."""

    schema: Literal["topoadvisor.predict/1"] = SCHEMA
    nccl: Nccl
    gpus: list[str]
    """Of each host."""
    hosts: int
    failures: list[Failure]
    """Settings with which NCCL does not run; the rest is about the job without them."""
    settings: list[Present]
    pairs: list[Pair]
    groups: list[Group]
    ports: list[GpuPort]
    features: list[Feature]
    differences: list[Difference]
    unknown: list[str]
    notes: list[str]
