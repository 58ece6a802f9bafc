"""The documents that `verify`, `verify --collectives` and `prove` print with `--format json`.

Rates are GB/s, 10⁹ bytes per second per direction; collectives have bus bandwidth as nccl-tests define it. GPUs are
indexes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from topoadvisor.hardware.catalogue import Band
from topoadvisor.joblog.document import Finding
from topoadvisor.measurements.judge import Verdict
from topoadvisor.measurements.model import Measurement, TrialSize


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all types of these documents."""


class Believed(Struct, frozen=True, kw_only=True):
    """What NCCL's own model plans with."""

    path: str
    gbps: float


class Pair(Struct, frozen=True, kw_only=True):
    """Two GPUs."""

    gpus: tuple[int, int]
    link_class: str | None
    verdict: Verdict
    cause: str | None
    expected: Band | None
    """Of peer copies; None: no number is known for such a link, or they went through host memory."""
    expected_staged: tuple[float, float] | None
    """Lowest and highest published copy through host memory one way, GB/s, where CUDA allowed no peer access."""
    nccl: Believed | None
    forward: Measurement | None
    """From the first to the second; None = not measured."""
    backward: Measurement | None
    both: Measurement | None
    others: list[Measurement]
    """Latency, reads, kernels, P2P off."""


class Host(Struct, frozen=True, kw_only=True):
    """A GPU and host memory near it."""

    gpu: int
    link: str
    verdict: Verdict
    cause: str | None
    expected: Band | None
    to_gpu: Measurement | None
    from_gpu: Measurement | None
    both: Measurement | None


class Pattern(Struct, frozen=True, kw_only=True):
    """Several copies at once: the planned ring, or all pairs of one switch."""

    measured: Measurement
    alone_gbps: float | None
    """What its slowest copy would reach, with both ways busy, if all links were well and none but its own shared."""
    verdict: Verdict
    cause: str | None


class Links(Struct, frozen=True, kw_only=True):
    """`topoadvisor verify`."""

    schema: Literal["topoadvisor.verify/1"] = "topoadvisor.verify/1"
    date: str
    driver: str | None
    method: str
    size_bytes: int
    """Of the largest buffers."""
    repeats: int
    """Timed and checked batches of each measurement."""
    interrupted: bool
    pairs: list[Pair]
    hosts: list[Host]
    patterns: list[Pattern]
    notes: list[str]


class RingOrder(Struct, frozen=True, kw_only=True):
    """GPUs in ring order, and the channels that take it."""

    order: list[int]
    channels: int


class Connection(Struct, frozen=True, kw_only=True):
    """How NCCL connected one ordered pair of GPUs."""

    a: int
    b: int
    used: str
    """As its log spells it: `P2P/CUMEM`."""
    predicted: str | None
    """`P2P`, `SHM`, `NET`; None = not known."""


class Collectives(Struct, frozen=True, kw_only=True):
    """`topoadvisor verify --collectives`."""

    schema: Literal["topoadvisor.collectives/1"] = "topoadvisor.collectives/1"
    date: str
    gpus: list[int]
    """In rank order."""
    nccl: str | None
    nccl_library: str = msgspec.field(name="library")
    verdict: Verdict
    interrupted: bool
    failure: str | None
    """Why it broke off."""
    channels: int | None
    predicted_channels: int | None
    rings_as_predicted: bool | None
    rings: list[RingOrder]
    transports: list[Connection]
    used_bytes: int | None
    """GPU memory that NCCL took, the most of any rank."""
    results: list[Measurement]
    """One per collective and size; `gbps` is bus bandwidth."""
    findings: list[Finding]
    """What NCCL's log says is wrong."""
    notes: list[str]


class Baseline(Struct, frozen=True, kw_only=True):
    """The machine as it is."""

    channels: int | None
    transports: str | None


class Variant(Struct, frozen=True, kw_only=True):
    """Settings against the machine as it is."""

    settings: dict[str, str | None]
    """None: unset."""
    why: str | None
    """Why a rule found it worth trying."""
    sizes: list[TrialSize]
    """Empty when it broke."""
    keep: bool
    """It is what to keep, and `--save` would advise it."""
    cost: str | None
    failure: str | None
    channels: int | None
    transports: str | None
    not_mentioned: list[str]
    """Variables that NCCL's log does not mention."""


class Proved(Struct, frozen=True, kw_only=True):
    """`topoadvisor prove`."""

    schema: Literal["topoadvisor.prove/1"] = "topoadvisor.prove/1"
    date: str
    gpus: list[int]
    nccl_library: str = msgspec.field(name="library")
    nccl: str | None
    driver: str | None
    rounds: int
    """Complete ones, of baseline and variants in turn."""
    confirming_rounds: int
    """Further ones of what looked faster or slower, which decide about it; 0 when nothing did."""
    interrupted: bool
    baseline: Baseline | None
    """None: no variant was worth trying."""
    variants: list[Variant]
    keep: dict[str, str | None] | None
    """The settings worth keeping; None = set nothing."""
    notes: list[str]
