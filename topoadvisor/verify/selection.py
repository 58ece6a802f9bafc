"""What is measured on a machine, quickly or fully: pairs, the way to the host, and what runs at once. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import networkx as nx

from topoadvisor.measurements import runs
from topoadvisor.snapshot import Gpu
from topoadvisor.topology.model import Topology
from topoadvisor.verify.messages import HOST, Flow, Step

SMALL_BYTES: Final = 16
"""Of the copy whose latency is measured."""
_SMALL_COPIES: Final = 200
_QUICK_HOST_BYTES: Final = 256 << 20
"""Pinning memory takes time."""
_PATTERN_BYTES: Final = 256 << 20
"""Where a GPU receives from several at once, it needs as many buffers."""


@dataclass(frozen=True)
class Options:
    size_bytes: int
    repeats: int
    deadline_s: float
    """For one step; the first of a child includes starting CUDA."""
    full: bool = False

    @property
    def batch_s(self) -> float:
        return 0.05 if self.full else 0.02


@dataclass(frozen=True)
class Planned:
    """One measurement to be."""

    kind: str
    subject: str
    step: Step


def plan(
    gpus: Sequence[Gpu], topology: Topology, options: Options, rings: Sequence[Sequence[int]] = ()
) -> list[list[Planned]]:
    """Groups of measurements; each group runs in a child of its own.

    Quick: one child for all, and a few steps only for the first pair of each link class. Full: a child for each pair.
    `rings` are orders of GPU indexes; those of less than three GPUs say no more than the pair itself.
    """
    pairs = list(itertools.combinations(gpus, 2))
    firsts = _first_of_each_class(pairs, topology)
    groups = []
    for a, b in pairs:
        group = list(_pair(a, b, options))
        if options.full or (a, b) in firsts:
            group += _staged(a, b, options)
        if options.full:
            group += _second_opinion(a, b, options)
        groups.append(group)
    groups.append([planned for gpu in gpus for planned in _host(gpu, options)])
    groups.append([*_rings(gpus, rings, options), *_switches(gpus, topology, options)])
    if not options.full:
        groups = [list(itertools.chain(*groups))]
    return [group for group in groups if group]


def _first_of_each_class(pairs: Sequence[tuple[Gpu, Gpu]], topology: Topology) -> list[tuple[Gpu, Gpu]]:
    firsts: dict[str | None, tuple[Gpu, Gpu]] = {}
    for a, b in pairs:
        firsts.setdefault(topology.pair(f"gpu:{a.index}", f"gpu:{b.index}").link_class, (a, b))
    return list(firsts.values())


def way(a: Gpu | None, b: Gpu | None) -> str:
    """The subject of a flow: `gpu:0>gpu:1`, `host>gpu:0`."""
    return f"{_name(a)}>{_name(b)}"


def _name(gpu: Gpu | None) -> str:
    return HOST if gpu is None else f"gpu:{gpu.index}"


def _flow(a: Gpu | None, b: Gpu | None) -> Flow:
    return Flow(source=(a.address or "") if a else HOST, target=(b.address or "") if b else HOST)


def _pair(a: Gpu, b: Gpu, options: Options) -> Iterator[Planned]:
    yield _planned(runs.PEER, way(a, b), [_flow(a, b)], options)
    yield _planned(runs.PEER, way(b, a), [_flow(b, a)], options)
    yield _planned(runs.PEER_BOTH, f"gpu:{a.index}<>gpu:{b.index}", [_flow(a, b), _flow(b, a)], options)
    for source, target in ((a, b), (b, a)):
        yield Planned(
            runs.LATENCY,
            way(source, target),
            Step(
                name=f"{runs.LATENCY} {way(source, target)}",
                flows=[_flow(source, target)],
                size_bytes=SMALL_BYTES,
                repeats=options.repeats,
                batch_s=1.0,
                most_copies=_SMALL_COPIES,
            ),
        )


def _staged(a: Gpu, b: Gpu, options: Options) -> Iterator[Planned]:
    yield _planned(runs.STAGED, way(a, b), [_flow(a, b)], options, peer_access=False)
    both = f"gpu:{a.index}<>gpu:{b.index}"
    yield _planned(runs.STAGED_BOTH, both, [_flow(a, b), _flow(b, a)], options, peer_access=False)


def _second_opinion(a: Gpu, b: Gpu, options: Options) -> Iterator[Planned]:
    both = f"gpu:{a.index}<>gpu:{b.index}"
    flows = [_flow(a, b), _flow(b, a)]
    yield _planned(runs.READ, way(a, b), flows[:1], options, by_target=True)
    yield _planned(runs.READ, way(b, a), flows[1:], options, by_target=True)
    yield _planned(runs.READ_BOTH, both, flows, options, by_target=True)
    yield _planned(runs.KERNEL, way(a, b), flows[:1], options, kernel=True)
    yield _planned(runs.KERNEL, way(b, a), flows[1:], options, kernel=True)
    yield _planned(runs.KERNEL_BOTH, both, flows, options, kernel=True)


def _host(gpu: Gpu, options: Options) -> Iterator[Planned]:
    size = options.size_bytes if options.full else min(options.size_bytes, _QUICK_HOST_BYTES)
    up, down = _flow(None, gpu), _flow(gpu, None)
    yield _planned(runs.TO_HOST, way(None, gpu), [up], options, size=size)
    yield _planned(runs.TO_HOST, way(gpu, None), [down], options, size=size)
    yield _planned(runs.HOST_BOTH, f"host<>gpu:{gpu.index}", [up, down], options, size=size)


def _rings(gpus: Sequence[Gpu], rings: Sequence[Sequence[int]], options: Options) -> Iterator[Planned]:
    by_index = {gpu.index: gpu for gpu in gpus}
    size = min(options.size_bytes, _PATTERN_BYTES)
    for order in rings:
        if len(order) > 2 and all(index in by_index for index in order):
            ends = [by_index[index] for index in (*order, order[0])]
            flows = [_flow(a, b) for a, b in itertools.pairwise(ends)]
            yield _planned(runs.RING, ">".join(map(_name, ends)), flows, options, size=size)


def _switches(gpus: Sequence[Gpu], topology: Topology, options: Options) -> Iterator[Planned]:
    size = min(options.size_bytes, _PATTERN_BYTES)
    for group in switch_groups(gpus, topology):
        flows = [_flow(a, b) for a, b in itertools.permutations(group, 2)]
        yield _planned(runs.SWITCH, ",".join(map(_name, group)), flows, options, size=size)


def switch_groups(gpus: Sequence[Gpu], topology: Topology) -> list[list[Gpu]]:
    """GPUs that share a switch, three or more: one group per PCIe switch or cascade, one per set of NVSwitches."""
    groups: list[list[Gpu]] = []
    for alike in (_below_one_pcie_switch, _behind_nvswitches):
        joined: nx.Graph[int] = nx.Graph()
        for a, b in itertools.combinations(gpus, 2):
            if alike(topology, f"gpu:{a.index}", f"gpu:{b.index}"):
                joined.add_edge(a.index, b.index)
        components = sorted(map(sorted, nx.connected_components(joined)))
        groups += [[gpu for gpu in gpus if gpu.index in part] for part in components if len(part) > 2]
    return groups


def _below_one_pcie_switch(topology: Topology, a: str, b: str) -> bool:
    pair = topology.pair(a, b)
    return pair.link_class in ("PIX", "PXB")


def _behind_nvswitches(topology: Topology, a: str, b: str) -> bool:
    return topology.pair(a, b).through_switch


def _planned(
    kind: str,
    subject: str,
    flows: list[Flow],
    options: Options,
    *,
    size: int | None = None,
    peer_access: bool = True,
    by_target: bool = False,
    kernel: bool = False,
) -> Planned:
    step = Step(
        name=f"{kind} {subject}",
        flows=flows,
        size_bytes=size or options.size_bytes,
        repeats=options.repeats,
        batch_s=options.batch_s,
        engine="kernel" if kernel else "copy-engine",
        issued_by="target" if by_target else "source",
        peer_access=peer_access,
    )
    return Planned(kind, subject, step)
