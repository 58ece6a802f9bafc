"""How much of everything one machine can have."""

from __future__ import annotations

from typing import Final

from topoadvisor.errors import InputError
from topoadvisor.snapshot import Snapshot

_MOST: Final = {
    "gpus": ("GPUs", 128),
    "nics": ("network devices", 512),
    "pci": ("PCI functions", 65_536),
    "settings": ("settings", 4_096),
    "matrices": ("matrices", 1_024),
    "p2p": ("pairs of GPUs", 65_536),
    "measurements": ("measurements", 262_144),
    "trials": ("trials", 4_096),
    "nccl_libraries": ("NCCL libraries", 1_024),
}
"""What no operating system has more of, several times over: the analysis of a pair of GPUs costs time."""

_MOST_NUMA_NODES: Final = 1_024
_LONGEST_NAME: Final = 1_000


def check(snapshot: Snapshot, *, file: str) -> Snapshot:
    """The snapshot itself. Raises InputError when it has more of something than any machine."""
    counts = [(what, most, len(getattr(snapshot, field) or ())) for field, (what, most) in _MOST.items()]
    counts.append(("NUMA nodes", _MOST_NUMA_NODES, len(snapshot.host.numa_nodes or ())))
    for what, most, count in counts:
        if count > most:
            raise InputError(
                f"this has {count} {what}; topoadvisor takes up to {most}",
                file=file,
                hint="Is it one machine? Give each machine of a cluster by itself.",
            )
    names = [device.name for devices in (snapshot.gpus, snapshot.nics or ()) for device in devices]
    if (longest := max((len(name) for name in names if name), default=0)) > _LONGEST_NAME:
        raise InputError(f"this names a device in {longest} letters", file=file, hint="Is the file damaged?")
    return snapshot
