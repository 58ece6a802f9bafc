"""Which rank of a parallel job goes on which GPU: tensor groups on the fastest links, then experts, data, pipeline.

Ranks count tensor first, then data (of which expert groups are runs), then pipeline, as Megatron-LM does by default.
All nodes are taken to be like the one that is given, and each uses the same GPUs in the same order, so that peers on
other nodes are on the same rail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.estimates import Estimator
from topoadvisor.plan import cost, nearness
from topoadvisor.plan.cost import Collective
from topoadvisor.plan.subsets import Chooser
from topoadvisor.plan.values import Set
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph

SCHEMA: Final = "topoadvisor.place/1"

_BYTES: Final[dict[str, int]] = {"tensor": 64 << 20, "expert": 64 << 20, "data": 256 << 20, "pipeline": 64 << 20}
"""What a group's cost is told for: 64 MiB are the activations of 4096 tokens of 8192 numbers of 16 bits."""
_DOES: Final[dict[str, Collective]] = {
    "tensor": "all_reduce",
    "expert": "alltoall",
    "data": "all_reduce",
    "pipeline": "sendrecv",
}
_TOO_SLOW_GBPS: Final = 30.0
"""Bus bandwidth below which tensor parallelism is advised against: what PCIe Gen4 or worse carries."""
_MOST_RANKS: Final = 100_000


class Rank(msgspec.Struct, frozen=True):
    """One process."""

    rank: int
    node: int
    local_rank: int
    gpu: int
    tensor: int
    expert: int
    data: int
    pipeline: int


class Group(msgspec.Struct, frozen=True):
    """Ranks that talk to each other, of one kind."""

    kind: str
    """`tensor`, `expert`, `data`, `pipeline`; of the last, two neighbouring stages."""
    ranks: list[int]
    gpus: list[int]
    """On its node; those of the first node where it crosses nodes."""
    nodes: int
    collective: cost.Collective
    size_bytes: int
    time_us: float | None
    """As `topoadvisor cost` says it; None where it crosses nodes, or is not known."""
    busbw_gbps: float | None
    basis: cost.Basis | None
    """What the time stands on."""
    rails: list[str]
    """NICs next to its GPUs, by which it leaves the node, where it does."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """`topoadvisor place --format json`."""

    schema: str = SCHEMA
    tp: int
    ep: int
    dp: int
    pp: int
    nodes: int
    gpus_per_node: int
    cuda_visible_devices: str
    """The same on each node, with CUDA_DEVICE_ORDER=PCI_BUS_ID: local rank i takes the i-th."""
    ranks: list[Rank]
    groups: list[Group]
    """Of the first node and those that begin there."""
    warnings: list[str]
    notes: list[str]


@dataclass(frozen=True)
class Sizes:
    """What was asked for."""

    tp: int
    pp: int
    dp: int
    ep: int
    nodes: int | None

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.dp


def place(snapshot: Snapshot, sizes: Sizes) -> Document:
    """The ranks of a job on nodes like this one. Raises InputError for sizes that do not fit."""
    estimator = Estimator(snapshot)
    present = estimator.machine.gpus
    nodes, per_node = _shape(sizes, len(present))
    near = nearness.of(graph.build(snapshot), present)
    chooser = Chooser(estimator.machine.links, near, present)
    chosen = tuple(present) if per_node == len(present) else chooser.best(per_node)[0]
    order = _order(Chooser(estimator.machine.links, near, chosen), chosen, sizes)
    ranks = list(_ranks(sizes, order, per_node))
    groups = [_group(kind, members, estimator, near) for kind, members in _groups(sizes, ranks)]
    return Document(
        tp=sizes.tp,
        ep=sizes.ep,
        dp=sizes.dp,
        pp=sizes.pp,
        nodes=nodes,
        gpus_per_node=per_node,
        cuda_visible_devices=",".join(map(str, order)),
        ranks=ranks,
        groups=groups,
        warnings=[*_warnings(sizes, groups), *_doubts(groups, estimator)],
        notes=_notes(groups, nodes),
    )


def _shape(sizes: Sizes, present: int) -> tuple[int, int]:
    """Nodes, and GPUs used of each."""
    told = f"tp {sizes.tp} × pp {sizes.pp} × dp {sizes.dp} = {sizes.world} GPUs"
    here = f"A node has {present}."
    if sizes.world > _MOST_RANKS:
        raise InputError(f"{told} are more than {_MOST_RANKS}, the most that are placed here", hint=here)
    if present < 1:
        raise InputError("there is no GPU here to place a rank on", hint="Give a node's snapshot as SOURCE.")
    nodes = sizes.nodes or max(1, -(-sizes.world // present))
    if sizes.world % nodes:
        raise InputError(f"{told} do not divide into {nodes} nodes of equally many", hint=here)
    per_node = sizes.world // nodes
    if per_node > present:
        raise InputError(f"{told} on {nodes} {'node' if nodes == 1 else 'nodes'} are {per_node} each", hint=here)
    if per_node % sizes.tp:
        raise InputError(
            f"tensor groups of {sizes.tp} do not divide the {per_node} GPUs of a node, so one would cross the network",
            hint="Choose --tp so that it divides the GPUs of a node.",
        )
    if sizes.dp % sizes.ep:
        raise InputError(
            f"--ep {sizes.ep} does not divide --dp {sizes.dp}: expert groups are parts of the data-parallel ones",
            hint="Choose --ep so that it divides --dp.",
        )
    return nodes, per_node


def _order(chooser: Chooser, chosen: Set, sizes: Sizes) -> list[int]:
    """The GPUs of a node by local rank: expert blocks side by side, in them tensor groups, in them the best ring."""
    block = sizes.tp * sizes.ep
    blocks = (
        chooser.divided(block)[0] if sizes.ep > 1 and len(chosen) % block == 0 and block < len(chosen) else [chosen]
    )
    order: list[int] = []
    for each in blocks:
        for group in chooser.of(each).divided(sizes.tp)[0]:
            order += chooser.written(group).order
    return order


def _ranks(sizes: Sizes, order: Sequence[int], per_node: int) -> Iterator[Rank]:
    for rank in range(sizes.world):
        node, local = divmod(rank, per_node)
        data = rank // sizes.tp % sizes.dp
        yield Rank(
            rank=rank,
            node=node,
            local_rank=local,
            gpu=order[local],
            tensor=rank % sizes.tp,
            expert=data % sizes.ep,
            data=data,
            pipeline=rank // (sizes.tp * sizes.dp),
        )


def _groups(sizes: Sizes, ranks: Sequence[Rank]) -> Iterator[tuple[str, list[Rank]]]:
    """Groups with a rank on the first node, by kind."""
    kinds: dict[str, Callable[[Rank], tuple[int, ...]]] = {
        "tensor": lambda rank: (rank.data, rank.pipeline),
        "expert": lambda rank: (rank.tensor, rank.data // sizes.ep, rank.pipeline),
        "data": lambda rank: (rank.tensor, rank.pipeline),
    }
    for kind, key in kinds.items():
        found: dict[tuple[int, ...], list[Rank]] = {}
        for rank in ranks:
            found.setdefault(key(rank), []).append(rank)
        for members in found.values():
            if len(members) > 1 and members[0].node == 0:
                yield kind, members
    stage = sizes.tp * sizes.dp
    for rank in ranks:
        if rank.node == 0 and rank.rank + stage < sizes.world:
            yield "pipeline", [rank, ranks[rank.rank + stage]]


def _group(kind: str, members: Sequence[Rank], estimator: Estimator, near: nearness.Nearness) -> Group:
    nodes = len({rank.node for rank in members})
    gpus = [rank.gpu for rank in members if rank.node == members[0].node]
    collective, size = _DOES[kind], _BYTES[kind]
    time_us = busbw = basis = None
    if nodes == 1:
        try:
            (row,), _ = estimator.rows(gpus, collective, [size])
            time_us, busbw, basis = row.time_us, row.busbw_gbps, row.basis
        except NothingDetermined:
            pass
    return Group(
        kind=kind,
        ranks=[rank.rank for rank in members],
        gpus=gpus,
        nodes=nodes,
        collective=collective,
        size_bytes=size,
        time_us=time_us,
        busbw_gbps=busbw,
        basis=basis,
        rails=near.near_nics(gpus) if nodes > 1 else [],
    )


def _warnings(sizes: Sizes, groups: Sequence[Group]) -> Iterator[str]:
    tensor = [group for group in groups if group.kind == "tensor" and group.busbw_gbps is not None]
    slowest = min(tensor, key=lambda group: group.busbw_gbps or 0.0, default=None)
    if slowest is not None and (slowest.busbw_gbps or 0.0) < _TOO_SLOW_GBPS:
        took = (slowest.time_us or 0.0) / 1000
        yield (
            f"Tensor parallelism of {sizes.tp} over these links is a bad idea: {slowest.busbw_gbps:.3g} GB/s of bus "
            f"bandwidth. An all_reduce of 64 MiB, the activations of 4096 tokens of 8192 numbers, takes {took:.3g} ms, "
            "and each layer needs two forward and two backward. Prefer pipeline or data parallelism, or a smaller --tp."
        )
    crossing = [group for group in groups if group.kind == "expert" and group.nodes > 1]
    if crossing:
        yield f"Expert groups cross nodes: {crossing[0].nodes} nodes each, so their alltoall goes over the network."


def _doubts(groups: Sequence[Group], estimator: Estimator) -> list[str]:
    """What speaks against the costs of groups, each sentence once."""
    inside = [group for group in groups if group.nodes == 1]
    told = (line for group in inside for line in estimator.warnings(group.gpus, [group.collective]))
    return list(dict.fromkeys(told))


def _notes(groups: Sequence[Group], nodes: int) -> list[str]:
    notes = []
    if any(group.time_us is None and group.nodes == 1 for group in groups):
        notes.append(
            "For some groups there is no estimate: `topoadvisor cost all_reduce --gpus …` says what is missing."
        )
    if nodes > 1:
        notes.append("Nothing is estimated across nodes: the network between them is not in a node's snapshot.")
        notes.append("All nodes are taken to be like this one.")
    return notes
