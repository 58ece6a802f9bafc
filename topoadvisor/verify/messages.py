"""What `verify` and its child processes say to each other: one job on standard input, one JSON line per answer."""

from __future__ import annotations

from typing import Literal

import msgspec

Step = Literal["forward", "backward", "both"]
"""One way from the first GPU to the second, one way back, and both directions at once."""
STEPS: tuple[Step, ...] = ("forward", "backward", "both")


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all messages."""


class Job(Struct, frozen=True, kw_only=True):
    """What a child is to do: look around, or copy between two GPUs."""

    task: Literal["look", "copy"]
    first: str = ""
    """PCI address of a GPU."""
    second: str = ""
    steps: list[Step] = []
    size_bytes: int = 0
    repeats: int = 0


class Busy(Struct, frozen=True, kw_only=True):
    """Somebody else on a GPU."""

    address: str
    processes: int
    utilization: int
    """Percent of the last sample period with a kernel running."""


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


class Copied(Struct, frozen=True, kw_only=True):
    """One step's result."""

    step: Step
    outcome: Literal["ok", "wrong-data", "error", "skipped"]
    gbps: list[float] = []
    """One value per repeat; for both directions the sum."""
    size_bytes: int = 0
    peer_access: bool | None = None
    checked: Literal["device", "host"] | None = None
    """Where the data was compared."""
    note: str | None = None


class Line(Struct, frozen=True, kw_only=True):
    """One line that a child prints; one member is set."""

    begin: Step | None = None
    look: Look | None = None
    copied: Copied | None = None


def version_text(number: int) -> str:
    """CUDA's integer version as text: 13020 → `13.2`."""
    return f"{number // 1000}.{number % 1000 // 10}"
