"""How near GPUs are to each other and to NICs: by NUMA node, socket and link class, without bandwidths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from topoadvisor.plan.loads import nearest_host
from topoadvisor.topology.links import PCIE_ORDER, nvlink_count
from topoadvisor.topology.model import Topology

UNKNOWN_RANK = len(PCIE_ORDER)
"""Of a NIC whose distance was not read, or where there is none."""

NEAR = 1
"""A NIC of this rank or a lower one is below the same PCIe switches: PIX or PXB."""


@dataclass(frozen=True)
class Nearness:
    """By GPU index."""

    hosts: dict[int, str]
    """The NUMA node of a GPU (else socket or root complex) in words; empty = not known."""
    nics: dict[int, dict[str, int]]
    """NIC → rank in PIX … SYS."""
    apart: dict[tuple[int, int], int]
    """Both orders: 0 = PIX … 4 = SYS, 5 = not known; below 0 the number of NVLinks."""

    def nic_rank(self, gpu: int) -> int:
        """How far the nearest NIC is."""
        return min(self.nics[gpu].values(), default=UNKNOWN_RANK)

    def near_nics(self, gpus: Iterable[int]) -> list[str]:
        """NICs below the same PCIe switches as one of these GPUs."""
        return sorted({nic for gpu in gpus for nic, rank in self.nics[gpu].items() if rank <= NEAR})

    def of(self, gpus: Sequence[int]) -> tuple[int, int]:
        """What a set is judged by when bandwidths are equal, less is better: NIC ranks, NUMA nodes."""
        return sum(map(self.nic_rank, gpus)), len({self.hosts[gpu] for gpu in gpus})

    def compactness(self, gpus: Sequence[int]) -> int:
        """How far the GPUs of a set are apart, summed over its pairs."""
        return sum(self.apart[a, b] for a in gpus for b in gpus if a < b)

    def tags(self, gpus: Sequence[int]) -> npt.NDArray[np.int64]:
        """(n, n): equal before and after two GPUs are exchanged only when all that is known here is."""
        n = len(gpus)
        tags = np.zeros((n, n), dtype=np.int64)
        for row, a in enumerate(gpus):
            for column, b in enumerate(gpus):
                same = self.hosts[a] == self.hosts[b]
                tags[row, column] = self.nic_rank(a) if a == b else 2 * self.apart[a, b] + same
        return tags


def of(topology: Topology, gpus: Sequence[int]) -> Nearness:
    """The nearness of all GPUs of a machine."""
    hosts = {}
    for gpu in gpus:
        way = nearest_host(topology, f"gpu:{gpu}")
        hosts[gpu] = str(topology.graph.nodes[way[-1]].get("label") or way[-1]) if way else ""
    nics: dict[int, dict[str, int]] = {gpu: {} for gpu in gpus}
    for gpu in gpus:
        for nic in topology.nics:
            pair = topology.find(f"gpu:{gpu}", nic)
            if pair is not None and pair.pcie_class in PCIE_ORDER:
                label = str(topology.graph.nodes[nic].get("label") or nic)
                nics[gpu][label] = [str(each) for each in PCIE_ORDER].index(str(pair.pcie_class))
    apart = {}
    for a in gpus:
        for b in gpus:
            if a != b:
                found = topology.find(f"gpu:{a}", f"gpu:{b}")
                apart[a, b] = _rank(found.link_class if found else None)
    return Nearness(hosts, nics, apart)


def _rank(link_class: str | None) -> int:
    if link_class is None:
        return UNKNOWN_RANK
    if links := nvlink_count(link_class):
        return -links
    names = [str(each) for each in PCIE_ORDER]
    return names.index(link_class) if link_class in names else UNKNOWN_RANK
