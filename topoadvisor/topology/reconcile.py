"""When sources disagree: which one counts, and what is kept of the other.

Order of trust. PCIe classes: the kernel's own list of devices (or NCCL's dump of it), then NVML, then a printed
matrix. NVLinks: the state of each link, then a printed matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from topoadvisor.hardware.catalogue import GpuModel
from topoadvisor.snapshot import Gpu, Snapshot
from topoadvisor.topology.model import Disagreement
from topoadvisor.topology.pcie_tree import Hierarchy


class Settled(NamedTuple):
    """The value that counts, and whose it is; both None when no source has one."""

    value: str | None
    origin: str | None


def settle(
    subject: str, quantity: str, values: Sequence[tuple[str, str | None]], why: str, found: list[Disagreement]
) -> Settled:
    """Take the first value that is known, in order of trust, and add to `found` when a later source differs."""
    known = tuple((source, value) for source, value in values if value is not None)
    if not known:
        return Settled(None, None)
    origin, value = known[0]
    if any(other != value for _, other in known):
        found.append(Disagreement(subject=subject, quantity=quantity, values=known, believed=value, why=why))
    return Settled(value, origin)


def is_guest(snapshot: Snapshot) -> bool:
    """The operating system runs in a virtual machine."""
    if snapshot.host.hypervisor not in (None, "none"):
        return True
    return any(gpu.virtualization in ("passthrough", "vgpu") for gpu in snapshot.gpus)


def hidden_pcie_switches(
    gpus: Mapping[str, Gpu], models: Mapping[str, GpuModel | None], hierarchy: Hierarchy
) -> Disagreement | None:
    """In a guest: GPUs on the root bus that cannot sit there, SXM boards or more than 4. None when it may be real."""
    flat = [node for node in gpus if hierarchy.kind.get(hierarchy.parent.get(node, "")) == "root"]
    sxm = any((model := models[node]) is not None and model.form == "sxm" for node in flat)
    if not flat or not (sxm or len(flat) > 4):
        return None
    return Disagreement(
        subject="node",
        quantity="PCIe switches",
        values=(("sysfs", "none"), ("catalogue", "SXM boards" if sxm else f"{len(flat)} GPUs on one root bus")),
        believed="hidden by the hypervisor",
        why="The guest shows a flat bus: PCIe classes and bridges there say nothing about the real wiring.",
    )


def numa_nodes(
    gpus: Mapping[str, Gpu], hierarchy: Hierarchy, printed: Mapping[str, int | str], tree_origin: str
) -> list[Disagreement]:
    """GPUs for which the tree, NVML and a printed matrix name different NUMA nodes."""
    found: list[Disagreement] = []
    for node, gpu in gpus.items():
        tree = hierarchy.numa(node)
        home = printed.get(node)
        values = [
            (tree_origin, tree.removeprefix("numa:") if tree is not None else None),
            ("nvml", str(gpu.numa_node) if gpu.numa_node is not None and gpu.numa_node >= 0 else None),
            ("nvidia-smi topo -m", str(home) if isinstance(home, int) else None),
        ]
        settle(node, "NUMA node", values, "The kernel's list of PCI devices is what NCCL walks.", found)
    return found
