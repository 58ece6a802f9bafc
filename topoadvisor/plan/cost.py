"""How long a collective takes on one node: NCCL's own estimate by algorithm and protocol, and what was measured.

The estimate is NCCL's (`ncclTopoTuneModel` and `ncclTopoGetAlgoTime` in `src/graph/tuning.cc`, constants of 2.28.9 and
newer; those of 2.26 and 2.27 are the same but for Blackwell, and older ones were not compared): a latency, and a
bandwidth of the channels that its search finds. NCCL takes the algorithm and protocol with the least of it. It knows
nothing of the time that a framework needs to launch a collective, nor how large messages have to be before links are
filled.

Its latencies and bandwidths are those of NCCL's own code in all 373 entries of the reference runs of 2.30.7.

Against all_reduce measured on two H200 through PyTorch (NVLS off) its times are 80 % too short at 64 KiB and 64 % at
1 MiB, where the launch is nearly all there is, 20 % at 8 MiB, 22 % at 64 MiB, 17 % at 256 MiB and 9 % at 1 GiB.

Held to measurements, the time at a measured size is the measured one. Between two sizes it grows from the one to the
other as NCCL's estimate does. Beside the shortest, where the launch is all there is, it stays until the estimate, by
what the larger size took longer, has caught up. Beyond the largest it is the estimate by what that took longer; below
the smallest likewise. A small message says only how long the launch takes: none below it takes less, and of larger ones
it says no more than that. When each size of these runs is left out
in turn and estimated from the others, the error is 9 % at most, and so it is in an earlier series of six sizes from
1 KiB to 512 MiB; with P2P off, where times of small messages scatter, it is 21 % there and 5 % from 1 MiB on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv"]
COLLECTIVES: Final[tuple[Collective, ...]] = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv"),
)
Algorithm = Literal["ring", "tree", "nvls", "p2p"]
Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("LL", "LL128", "Simple")
Basis = Literal["measured", "interpolated", "extrapolated", "estimated"]
"""What a time stands on: a run at that size, runs at sizes around it, on one side of it, or NCCL's estimate alone."""

# µs by protocol: LL, LL128, Simple (`baseLatencies`, `hwLatencies`).
_BASE: Final[Mapping[str, tuple[float, float, float]]] = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
_HOP_NVLINK: Final[Mapping[str, tuple[float, float, float]]] = {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)}
_HOP_PCIE: Final[Mapping[str, tuple[float, float, float]]] = {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)}
_NVLS_US: Final = 25.0
_NVLS_EFFICIENCY: Final = {90: 0.85, 100: 0.74}

# GB/s on one node by the lowest compute capability × 10 (`llMaxBws`, `perChMax…`).
_LL_MOST: Final = {70: 39.0, 80: 87.7, 90: 141.0, 100: 282.0}
_RING_LL128_MOST: Final = {70: 20.0, 80: 20.0, 90: 36.7, 100: 40.0}
_TREE_LL128_MOST: Final = {70: 20.0, 80: 20.0, 90: 36.7, 100: 55.6}
_TREE_MOST: Final = {70: 26.5, 80: 24.0, 90: 38.7, 100: 70.0}

_TREE_CORRECTION: Final[Mapping[Protocol, tuple[float, ...]]] = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8),
        *(0.9, 0.9),
    ),
}
"""Of trees by powers of two from 64 bytes (`treeCorrectionFactor`)."""

_P2P_LL_MOST: Final = 16_384
"""Bytes up to which point-to-point traffic may take LL (`NCCL_P2P_LL_THRESHOLD`)."""


_SMALL: Final = 1 << 20
"""Bytes up to which a measured message says what the launch takes."""
_ABOVE_FLOOR: Final = 1.5
"""Times the shortest that was measured: what took no longer is mostly launch."""


@dataclass(frozen=True)
class Channels:
    """Channels of one algorithm: how many, GB/s of each, and whether they stay on NVLink."""

    count: int
    gbps: float
    nvlink: bool
    most: float = math.inf
    """GB/s that each can carry at all, for NVLS."""


@dataclass(frozen=True)
class Fabric:
    """What NCCL reckons with for one job on one node."""

    ranks: int
    capability: int
    """Lowest compute capability × 10."""
    ring: Channels
    tree: Channels | None = None
    nvls: Channels | None = None
    ll128: bool = False
    same_order: bool = True
    """All rings go in one order."""
    pair_gbps: float = 0.0
    """The slowest pair of GPUs alone."""
    everyone_gbps: float = 0.0
    """What each GPU can send at most when all send to all others at once."""


@dataclass(frozen=True)
class Estimate:
    """One way to do it."""

    algorithm: Algorithm
    protocol: Protocol
    time_us: float


@dataclass(frozen=True)
class Point:
    """What one size took, and what was estimated for it, µs."""

    size: int
    time_us: float
    estimate_us: float

    @property
    def factor(self) -> float:
        """How many times longer it took."""
        return self.time_us / self.estimate_us


@dataclass(frozen=True)
class Calibration:
    """Estimates of one collective held to measured runs of it."""

    points: tuple[Point, ...] = ()
    """By size, each once."""

    def basis(self, size: int) -> Basis:
        if not self.points:
            return "estimated"
        if any(point.size == size for point in self.points):
            return "measured"
        return "interpolated" if self.points[0].size < size < self.points[-1].size else "extrapolated"

    def time_us(self, size: int, estimate_us: float) -> float:
        """The estimate of the fastest way at this size, held to what was measured."""
        if not self.points:
            return estimate_us
        first, last = self.points[0], self.points[-1]
        if size <= first.size:
            alike = size == first.size or first.size <= _SMALL
            return first.time_us if alike else min(first.time_us, estimate_us * first.factor)
        if size == last.size:
            return last.time_us
        if size > last.size:
            return max(last.time_us, estimate_us * (last.factor if last.size > _SMALL else 1.0))
        below, above = next(ends for ends in pairwise(self.points) if ends[0].size <= size < ends[1].size)
        return below.time_us if size == below.size else self._between(below, above, estimate_us)

    def _between(self, below: Point, above: Point, estimate_us: float) -> float:
        shortest = min(point.time_us for point in self.points)
        if below.time_us <= _ABOVE_FLOOR * shortest and above.factor <= below.factor:
            return max(below.time_us, min(above.time_us, estimate_us * above.factor))
        growth = math.log(above.estimate_us / below.estimate_us)
        share = math.log(estimate_us / below.estimate_us) / growth if growth > 0 else 1.0
        share = min(max(share, 0.0), 1.0)
        return math.exp((1 - share) * math.log(below.time_us) + share * math.log(above.time_us))


def estimates(fabric: Fabric, collective: Collective, size: int) -> list[Estimate]:
    """Every way that NCCL has, the fastest first; `size` is the whole buffer as nccl-tests counts it, bytes."""
    if collective in ("alltoall", "sendrecv"):
        return [_point_to_point(fabric, collective, size)]
    found = [_ring(fabric, collective, protocol, size) for protocol in PROTOCOLS if protocol != "LL128" or fabric.ll128]
    if collective == "all_reduce" and fabric.tree is not None:
        found += [_tree(fabric, protocol, size) for protocol in PROTOCOLS if protocol != "LL128" or fabric.ll128]
    if fabric.nvls is not None and collective != "broadcast" and fabric.nvls.count >= 2:
        found.append(_nvls(fabric, fabric.nvls, collective, size))
    return sorted(found, key=lambda each: (each.time_us, each.algorithm, each.protocol))


def bandwidth(fabric: Fabric, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> float:
    """GB/s of algorithm bandwidth that NCCL reckons with, as its log prints it."""
    place = _generation(fabric.capability)
    if algorithm == "ring":
        ring = fabric.ring
        bus = ring.count * ring.gbps
        if protocol == "LL":
            bus = min(_LL_MOST[place], bus * 0.5)
        elif protocol == "LL128":
            bus = min(bus * 0.92, ring.count * _RING_LL128_MOST[place])
        return bus * fabric.ranks / _steps(collective, fabric.ranks)
    tree = fabric.tree
    assert algorithm == "tree"
    assert tree is not None
    bus = min(tree.count * tree.gbps * 0.92, tree.count * _TREE_MOST[place])
    if protocol == "LL":
        bus = min(bus / 3.8, _LL_MOST[place])
    elif protocol == "LL128":
        bus = min(bus * 7 / 9, tree.count * _TREE_LL128_MOST[place])
    return bus * 0.5


def latency(fabric: Fabric, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> float:
    """µs of latency that NCCL reckons with, as its log prints it."""
    place = PROTOCOLS.index(protocol)
    channels = fabric.ring if algorithm == "ring" else fabric.tree
    assert channels is not None
    hops = _HOP_NVLINK if channels.nvlink else _HOP_PCIE
    hop = hops[algorithm][place]
    if algorithm == "tree":
        return _BASE["tree"][place] + 2 * (fabric.ranks - 1) * hop
    if collective == "broadcast":
        if fabric.same_order:
            return _BASE["ring"][place] + hop
        return _BASE["ring"][place] + fabric.ranks * (hops["tree"][place] if protocol == "Simple" else hop)
    return _BASE["ring"][place] + _steps(collective, fabric.ranks) * hop


def calibrate(fabric: Fabric, collective: Collective, took: Mapping[int, float]) -> Calibration:
    """From bytes → µs of measured runs."""
    return Calibration(
        tuple(Point(size, took[size], estimates(fabric, collective, size)[0].time_us) for size in sorted(took))
    )


def _generation(capability: int) -> int:
    return max((each for each in _LL_MOST if each <= capability), default=70)


def _steps(collective: Collective, ranks: int) -> int:
    if collective == "all_reduce":
        return 2 * (ranks - 1)
    return ranks if collective == "broadcast" else ranks - 1


def _ring(fabric: Fabric, collective: Collective, protocol: Protocol, size: int) -> Estimate:
    rate = bandwidth(fabric, collective, "ring", protocol)
    return Estimate("ring", protocol, latency(fabric, collective, "ring", protocol) + size / (1000 * rate))


def _tree(fabric: Fabric, protocol: Protocol, size: int) -> Estimate:
    rate = bandwidth(fabric, "all_reduce", "tree", protocol)
    power = max(size >> 6, 1).bit_length() - 1
    if power < len(_TREE_CORRECTION[protocol]):
        rate *= _TREE_CORRECTION[protocol][power]
    return Estimate("tree", protocol, latency(fabric, "all_reduce", "tree", protocol) + size / (1000 * rate))


def _nvls(fabric: Fabric, nvls: Channels, collective: Collective, size: int) -> Estimate:
    efficiency = _NVLS_EFFICIENCY[100 if fabric.capability >= 100 else 90]
    each = nvls.gbps * efficiency * (nvls.count - 1) / nvls.count
    if collective == "all_reduce":
        rate = min(2 * each, nvls.most) * nvls.count * fabric.ranks / _steps(collective, fabric.ranks)
    else:
        rate = min(each * (fabric.ranks - 1) / fabric.ranks, nvls.most) * nvls.count
    return Estimate("nvls", "Simple", _NVLS_US + size / (1000 * rate))


def _point_to_point(fabric: Fabric, collective: Collective, size: int) -> Estimate:
    """NCCL has no model for these: one hop's latency, and what the links carry; no larger message takes less time."""
    hops = _HOP_NVLINK if fabric.ring.nvlink else _HOP_PCIE
    parts = fabric.ranks if collective == "alltoall" else 1
    rate = fabric.everyone_gbps if collective == "alltoall" else fabric.pair_gbps

    def time_us(protocol: Protocol, size: int) -> float:
        place = PROTOCOLS.index(protocol)
        sent = size * (parts - 1) / parts if parts > 1 else size
        slower = 2 if protocol == "LL" else 1
        return _BASE["ring"][place] + hops["ring"][place] + slower * sent / (1000 * rate)

    if size // parts <= _P2P_LL_MOST:
        return Estimate("p2p", "LL", time_us("LL", size))
    return Estimate("p2p", "Simple", max(time_us("Simple", size), time_us("LL", _P2P_LL_MOST * parts)))
