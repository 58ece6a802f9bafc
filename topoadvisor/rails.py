"""The network ports by which GPUs leave their node, and how long a collective over several nodes takes at least.

Ports are those that NCCL takes for each GPU. What they carry is the least of their line rate and of the way to them
in NCCL's model, so a time is a lower bound: the network between the nodes is in no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topoadvisor.errors import NothingDetermined
from topoadvisor.plan.cost import Collective
from topoadvisor.predict import outlook
from topoadvisor.predict.outlook import Asked, Searches
from topoadvisor.snapshot import Snapshot

_NO_PORT = "no RDMA port that NCCL would take was found, and what sockets carry is not known"


@dataclass(frozen=True)
class Rails:
    """By GPU index."""

    ports: dict[int, dict[str, float | None]]
    """Port → GB/s per direction between it and the GPU, None = not known."""
    missing: dict[str, str]
    """Port → why that is not known."""
    none: str
    """Why a GPU has no port."""

    def of(self, gpus: Iterable[int]) -> list[str]:
        """The ports that these GPUs take, each once."""
        return list(dict.fromkeys(port for gpu in gpus for port in self.ports.get(gpu, ())))

    def gbps(self, gpus: Sequence[int]) -> float:
        """GB/s per direction of all ports of these GPUs. Raises NothingDetermined where that is not known."""
        why = [self.none for gpu in gpus if not self.ports.get(gpu)]
        why += [self.missing[port] for port in self.of(gpus) if port in self.missing]
        if why:
            raise NothingDetermined(why[0])
        return sum(max(self.ports[gpu].get(port) or 0.0 for gpu in gpus) for port in self.of(gpus))


def of(snapshot: Snapshot, gpus: Sequence[int], nodes: int) -> Rails:
    """The ports of the GPUs of one node, for a job over so many."""
    if snapshot.nics is None:
        return Rails({}, {}, "the NICs were not read")
    try:
        found = outlook.ports(snapshot, Asked(gpus, None, "not asked", Searches(), hosts=nodes))
    except NothingDetermined as error:
        return Rails({}, {}, error.message)
    own = [each for each in found if each.own]
    ports: dict[int, dict[str, float | None]] = {gpu: {} for gpu in gpus}
    for each in own:
        ports[int(each.gpu.removeprefix("GPU"))][each.port] = each.gbps
    return Rails(ports, {each.port: each.unknown for each in own if each.unknown is not None}, _NO_PORT)


def least_us(collective: Collective, size: int, gbps: float, *, nodes: int, here: int, ranks: int) -> float:
    """µs that a collective of `size` bytes takes at least, with so much between each node and the network.

    `here` of its `ranks` are on each of the nodes.
    """
    if collective == "all_reduce":
        # What has to leave a node, and come in, however it is done: its part of the sum, and the sum of the others.
        leaves = 2 * size * (nodes - 1) / nodes
    elif collective == "alltoall":
        leaves = here * size * (ranks - here) / ranks
    else:
        leaves = float(size)
    return leaves / gbps / 1000
