"""The paths between GPUs and network ports as NCCL uses them: GPUDirect RDMA, and PXN through another GPU.

`ncclTopoComputePaths`, `ncclTopoCheckGdr` and `ncclTopoCheckNet` in `src/graph/paths.cc`, `ncclTopoGetLocal*` in
`src/graph/topo.cc`. A path that GPUDirect RDMA may not take is led through the CPU next to the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from topoadvisor.nccl import paths
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.paths import Path, Reach, Ways
from topoadvisor.nccl.system import Kind, Node, System, TooLarge, integer

_MOST_CHANNELS: Final = 64
_MOST_STEPS: Final = 1_000_000
"""GPUs × GPUs × ports; 72 GPUs with a port each take 373,248."""
_NOWHERE: Final = Path(NcclPath.DIS, 0.0, ())
_READS_SINCE_AMPERE: Final = 80


@dataclass(frozen=True)
class Switches:
    """The variables that decide about the way to the network."""

    gdr_level: NcclPath | None = None
    """NCCL_NET_GDR_LEVEL; None = not set."""
    gdr_read: int = -2
    """NCCL_NET_GDR_READ; below 0 NCCL decides."""
    gdr_c2c: bool = True
    pxn: bool = True
    pxn_c2c: bool = True


@dataclass(frozen=True)
class Gdr:
    """Whether GPUDirect RDMA carries one direction, and what decides it."""

    on: bool
    why: str
    unread: str | None = None
    """Why it is not known whether GPU, NIC and driver can do it at all: `on` is the answer if they can."""


@dataclass(frozen=True)
class Port:
    """One network port."""

    node: Node = field(compare=False)
    gbps: float
    asic: object
    port: int
    rail: int | None
    plane: int | None

    @property
    def name(self) -> str:
        return self.node.label


class Network:
    """The ways between GPUs and ports, both by their place in NCCL's lists."""

    def __init__(
        self,
        system: System,
        known: Mapping[Node, Ways],
        reached: Mapping[tuple[Node, Node], Reach],
        switches: Switches,
    ) -> None:
        """`known` are the paths to CPUs, GPUs and ports (`paths.all_ways`), `reached` those between GPUs."""
        self.gpus = system.nodes[Kind.GPU]
        if len(self.gpus) ** 2 * len(system.nodes[Kind.NET]) > _MOST_STEPS:
            count = len(system.nodes[Kind.NET])
            raise TooLarge(f"{len(self.gpus)} GPUs and {count} network ports take too long to reckon with")
        self.ports = [_port(node) for node in system.nodes[Kind.NET]]
        self._system, self._known, self._reached, self._switches = system, known, reached, switches
        to_cpu = {cpu: known[cpu] for cpu in system.nodes[Kind.CPU]}
        self._cpu_of = [paths.nearest_cpu(gpu, to_cpu) for gpu in self.gpus]
        self.send = [[known[port.node].get(gpu, _NOWHERE) for port in self.ports] for gpu in self.gpus]
        """[GPU][port]: from the GPU to the port."""
        self.receive = [[known[gpu].get(port.node, _NOWHERE) for gpu in self.gpus] for port in self.ports]
        """[port][GPU]: from the port to the GPU."""
        self.relays: dict[tuple[int, int], int] = {}
        """(GPU, port) → the GPU that PXN sends through."""
        self._use_c2c()
        self.plain = [list(row) for row in self.send]
        """`send` before PXN and GPUDirect RDMA were looked at."""
        # Port by port and GPU by GPU: what is found for one counts for the next.
        for n in range(len(self.ports)):
            for g in range(len(self.gpus)):
                if switches.pxn:
                    self._relay(g, n)
                near = self.send[g][n].kind < NcclPath.PHB or system.rules.diverts_far
                if near and not self.gdr(g, n, read=False).on:
                    self._divert(g, n)

    def _use_c2c(self) -> None:
        """A port and a GPU that hang on one CPU, the GPU by a chip-to-chip link, are P2C apart."""
        if not self._system.rules.merges_c2c:
            return
        for g, cpu in enumerate(self._cpu_of):
            if cpu is None:
                continue
            for n in _nearest(self.send[g]):
                one, other = (self._known[cpu].get(node, _NOWHERE) for node in (self.gpus[g], self.ports[n].node))
                if paths.merged(self._system, one.kind, other.kind) is NcclPath.P2C:
                    for row, place in ((self.send[g], n), (self.receive[n], g)):
                        row[place] = replace(row[place], kind=min(NcclPath.P2C, row[place].kind))

    def _relay(self, g: int, n: int) -> None:
        peer = self.local_gpu(n)
        if peer is None or peer == g or self.gpus[peer].key[0] != self.gpus[g].key[0]:
            return
        rules = self._system.rules
        near = NcclPath.P2C if rules.merges_c2c and self._switches.pxn_c2c else NcclPath.PXB
        own, theirs = self.send[g][n], self.send[peer][n]
        to_peer = self._reached[self.gpus[g], self.gpus[peer]].path
        back = self._reached[self.gpus[peer], self.gpus[g]].kind
        if (
            to_peer is not None
            and back is not None
            and back <= NcclPath.NVL
            and theirs.kind <= near
            and (theirs.gbps > own.gbps or own.kind > (NcclPath.PXN if rules.pxn_keeps_near else NcclPath.PXB))
            and (not rules.pxn_needs_gdr or self.gdr(peer, n, read=True).on)
        ):
            self.relays[g, n] = peer
            self.send[g][n] = replace(paths.joined(self._system, to_peer, theirs), kind=NcclPath.PXN)

    def _divert(self, g: int, n: int) -> None:
        cpu, gpu, port = self._cpu_of[g], self.gpus[g], self.ports[n].node
        if cpu is None or not {gpu, port} <= self._known[cpu].keys():
            return
        to_cpu = self._known[cpu]
        self.receive[n][g] = paths.joined(self._system, to_cpu[port], self._known[gpu][cpu])
        self.send[g][n] = paths.joined(self._system, to_cpu[gpu], self._known[port][cpu])

    def gdr(self, g: int, n: int, *, read: bool) -> Gdr:
        """Whether this GPU and port use GPUDirect RDMA; `read` = to send, which reads the GPU's memory."""
        elements = (self.ports[n].node.element, self.gpus[g].element)
        unread = next((why for element in elements if (why := element.missing.get("gdr"))), None)
        for element, what in zip(elements, ("the NIC", "the GPU"), strict=True):
            if not integer(element, "gdr") and "gdr" not in element.missing:
                return Gdr(False, element.inferred.get("gdr", f"{what} does not offer it"))
        if read and (refused := self._refuses_reads(g)) is not None:
            return Gdr(False, refused, unread)
        if read and self._may_be_old(g):
            unread = unread or self.gpus[g].element.missing.get("sm", "the compute capability is not in the file")
        over = self.relays.get((g, n), g) if self.send[g][n].kind is NcclPath.PXN else g
        kind = self.send[over][n].kind
        path = f"the path {kind.name}"
        if over != g:
            path = f"the path {kind.name} of {self.gpus[over].label}, which PXN sends through,"
        level = self._switches.gdr_level
        c2c, own_level = self._switches.gdr_c2c, self._system.rules.c2c_level
        if level is None:
            level = NcclPath.P2C if c2c and own_level else NcclPath.PXB
        if kind is NcclPath.P2C and c2c and not own_level:
            kind = NcclPath.C2C
            path = f"{path} counts as C2C, which"
        if kind <= level:
            return Gdr(True, f"{path} is within {level.name}", unread)
        return Gdr(False, f"{path} is beyond {level.name}", unread)

    def _refuses_reads(self, g: int) -> str | None:
        """Why sending does not read the GPU's memory; None when it may."""
        wanted = self._switches.gdr_read
        if wanted == 0:
            return "NCCL_NET_GDR_READ=0 keeps sending from it"
        if wanted > 0 or self._has_nvlink(g):
            return None
        if not self._system.rules.ampere_reads:
            return "without NVLink, this NCCL keeps sending from it"
        capability = integer(self.gpus[g].element, "sm")
        if capability is None or capability >= _READS_SINCE_AMPERE:
            return None
        return "without NVLink, and before Ampere, NCCL keeps sending from it"

    def _has_nvlink(self, g: int) -> bool:
        """Or is alone, which NCCL counts as much."""
        others = (self._reached[self.gpus[g], other].kind for other in self.gpus if other is not self.gpus[g])
        return len(self.gpus) == 1 or NcclPath.NVL in others

    def _may_be_old(self, g: int) -> bool:
        """The compute capability would decide about reading, and is not known."""
        unread = integer(self.gpus[g].element, "sm") is None
        return unread and self._switches.gdr_read < 0 and not self._has_nvlink(g)

    def local_gpu(self, n: int) -> int | None:
        """The GPU that a port belongs to: the first near one whose channels take it."""
        near = self.near_gpus(n)
        taken = {g: self.local_ports(g) for g in near}
        for place in range(_MOST_CHANNELS):
            for g in near:
                if taken[g] and taken[g][place % len(taken[g])] == n:
                    return g
        return None

    def near_gpus(self, n: int) -> list[int]:
        """The GPUs with the fastest way from a port, and of these the nearest."""
        return _nearest(self.receive[n])

    def local_ports(self, g: int) -> list[int]:
        """The ports of a GPU in the order in which its channels take them, each once; further channels start anew."""
        ports = _nearest(self.send[g])
        if not ports:
            return []
        sharing = max(1, len(_nearest(self.receive[ports[0]])))
        first = integer(self.gpus[g].element, "dev") or 0
        if self._system.rules.spreads_ports:
            first %= sharing
        if len(ports) & (len(ports) - 1) == 0:
            first = _mirrored(first, len(ports))
        return [ports[(first + channel) % len(ports)] for channel in range(-(-len(ports) // sharing))]

    def faster_than(self, a: int, b: int, gbps: float | None) -> bool | None:
        """Whether NCCL thinks the network faster than this between two GPUs of one host (`ncclTopoCheckNet`).

        `gbps` None = not known; the answer is None when it depends on what is not known.
        """
        ways = [[way for way in self.plain[g] if way.kind <= NcclPath.PXB] for g in (a, b)]
        if not all(ways):
            return False
        if gbps is None:
            return None
        if any(all(way.gbps <= gbps for way in near) for near in ways):
            return False
        certain = [[way for way in near if not way.unknown and way.gbps > gbps] for near in ways]
        return True if all(certain) else None


def _port(node: Node) -> Port:
    nic = next(link for link in node.links if link.to.kind is Kind.NIC)
    guid = node.element.attributes.get("guid")
    rail, plane = (integer(node.element, name) for name in ("rail", "plane"))
    return Port(node, nic.gbps, guid or node.key, integer(node.element, "port") or 0, rail, plane)


def _nearest(row: Sequence[Path]) -> list[int]:
    """The places of the fastest paths, and of these the nearest (`ncclTopoGetLocal`)."""
    best = min(((-path.gbps, path.kind) for path in row if path.gbps > 0), default=None)
    return [place for place, path in enumerate(row) if (-path.gbps, path.kind) == best]


def _mirrored(number: int, count: int) -> int:
    """The lowest bits of a number in reverse; `count` is a power of two."""
    bits = count.bit_length() - 1
    return sum(1 << (bits - 1 - bit) for bit in range(bits) if number >> bit & 1)
