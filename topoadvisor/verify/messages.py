"""What `verify` and its child processes say to each other: one job on standard input, one JSON line per answer."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec

HOST: Final = "host"
"""One end of a flow: pinned host memory near the GPU at the other end."""

Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e5)]
"""Of a copy or an operation."""
FASTEST: Final = 1e15
"""Bytes per second that no machine reaches: an answer beyond is none."""
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]

_LONGEST_TEXT: Final = 600
"""The name of a ring over 72 GPUs is shorter."""
_STEERING: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)", re.S)
"""What a terminal takes for colours, titles and moves."""

Outcome = Literal["ok", "wrong-data", "error", "skipped"]


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all messages."""


class Flow(Struct, frozen=True, kw_only=True):
    """Data that goes one way between two places, each a GPU's PCI address or `host`."""

    source: str
    target: str


class Step(Struct, frozen=True, kw_only=True):
    """Flows that run at the same time, and how."""

    name: str
    """Unique in its job."""
    flows: list[Flow]
    size_bytes: int
    """Of one copy."""
    repeats: int
    """Timed batches."""
    batch_s: float
    """What one batch should take, seconds."""
    most_copies: int = 256
    """In one batch."""
    engine: Literal["copy-engine", "kernel"] = "copy-engine"
    issued_by: Literal["source", "target"] = "source"
    """Whose stream the copies stand in: the source's writes to its peer, the target's reads from it."""
    peer_access: bool = True
    """Switched on where CUDA allows it; else copies between GPUs go through host memory."""


class Job(Struct, frozen=True, kw_only=True):
    """What a child is to do: look around, or measure."""

    task: Literal["look", "measure"]
    steps: list[Step] = []
    cpus: dict[str, list[int]] = {}
    """PCI address of a GPU → the CPUs near it."""


class Busy(Struct, frozen=True, kw_only=True):
    """Somebody else on a GPU."""

    address: str
    processes: int
    utilization: int
    """Percent of the last sample period with a kernel running."""
    used_bytes: Bytes = 0
    """GPU memory that others hold."""


class Look(Struct, frozen=True, kw_only=True):
    """What CUDA and CuPy say about the machine."""

    cupy: str | None = None
    runtime: str | None = None
    """CUDA runtime version, `13.0`."""
    driver: str | None = None
    """Highest CUDA version of the driver, `13.0`."""
    addresses: list[str] = []
    """PCI addresses of the GPUs that CUDA shows."""
    busy: list[Busy] = []
    missing: str | None = None
    """Why CuPy or CUDA cannot be used; `cupy` when CuPy is not installed."""


class Measured(Struct, frozen=True, kw_only=True):
    """One step's result."""

    name: str
    outcome: Outcome
    seconds: list[Seconds] = []
    """One value per batch: from the start of all flows to the end of the last, divided by the copies of one flow."""
    flow_seconds: list[Seconds] = []
    """One value per flow: the same to its own end, median over the batches."""
    size_bytes: Bytes = 0
    """Of one copy; smaller than asked for when memory is short."""
    peer_access: bool | None = None
    """None: no flow between two GPUs."""
    checked: Literal["device", "host"] | None = None
    """Where the data was compared."""
    held_back: bool = True
    """All copies of a batch stood in the streams before the first one started."""
    note: str | None = None


class Line(Struct, frozen=True, kw_only=True):
    """One line that a child prints; one member is set."""

    begin: str | None = None
    """Name of the step that starts."""
    look: Look | None = None
    measured: Measured | None = None


def plain(said: Any) -> Any:
    """A text, or an answer with all texts in it, as one line of bounded length without what a terminal acts on."""
    if isinstance(said, str):
        shown = "".join(letter if letter.isprintable() else " " for letter in _STEERING.sub("", said))
        line = " ".join(shown.split())
        return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"
    if isinstance(said, list):
        return [plain(each) for each in said]
    if isinstance(said, msgspec.Struct):
        return msgspec.structs.replace(said, **{name: plain(getattr(said, name)) for name in said.__struct_fields__})
    return said


def version_text(number: int) -> str:
    """CUDA's integer version as text: 13020 → `13.2`."""
    return f"{number // 1000}.{number % 1000 // 10}"
