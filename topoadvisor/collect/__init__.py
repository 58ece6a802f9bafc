"""Live sources → Snapshot. Every source is isolated: one that is missing or fails costs its own facts only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topoadvisor.snapshot import Snapshot


def capture_live(root: Path = Path("/")) -> Snapshot:
    """Read this machine. Changes nothing, needs no root user, and never raises because a source failed.

    With another `root` every file reader looks below it; NVML, `nvidia-smi` and the process environment stay this
    process's, and their sources say so.
    """
    # Imported here because the NVML worker process imports this package and needs none of it.
    from topoadvisor.collect.live import capture
    from topoadvisor.collect.world import World

    return capture(World.real(root))
