"""Which rank of a parallel job goes on which GPU: tensor groups on the fastest links, then experts, data, pipeline.

Ranks count tensor first, then data (of which expert groups are runs), then pipeline, as Megatron-LM does by default.
All nodes are taken to be like the one that is given, and each uses the same GPUs in the same order, so that peers on
other nodes are on the same rail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from topoadvisor import rails
from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.estimates import Estimator, Row
from topoadvisor.measurements import runs
from topoadvisor.plan import cost, link_model, nearness
from topoadvisor.plan.cost import Collective
from topoadvisor.plan.subsets import Chooser
from topoadvisor.plan.values import Set
from topoadvisor.planning import Machine
from topoadvisor.rails import Rails
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
    """Alone: on one node as `topoadvisor cost` says it, over several what its ports let through at least."""
    busbw_gbps: float | None
    basis: cost.Basis | None
    """What the time stands on; None over several nodes."""
    unknown: str | None
    """Why the time is not known."""
    rails: list[str]
    """Network ports that its GPUs take to leave the node, where it does."""
    sharing: int = 1
    """Groups of its kind that take one of these ports, itself included."""


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
    tensor_gbps: list[float | None]
    """By tensor group of a node: what all rings over it carry together when it works alone, GB/s on paper.

    None for one GPU, and where bandwidths are not known.
    """
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
    whole = Machine(snapshot, "expected", as_advised=True)
    present = whole.gpus
    nodes, per_node = _shape(sizes, len(present))
    advised = whole.snapshot(per_node)
    estimator = Estimator(advised)
    links, near = whole.usable, nearness.of(graph.build(advised), present)
    chosen = tuple(present) if per_node == len(present) else Chooser(links, near, present).best(per_node)[0]
    failed = links(chosen).failed if per_node > 1 else {}
    chooser = Chooser(links, near, chosen)
    tensor = tensor_groups(chooser, chosen, failed, sizes.tp, sizes.ep)
    order = [gpu for group in tensor for gpu in group]
    ranks = list(_ranks(sizes, order, per_node))
    groups = _Costs(estimator, rails.of(advised, order, nodes)).of(list(_groups(sizes, ranks)))
    slow = None
    with suppress(NothingDetermined):  # the costs of the groups say why they are not known
        slow = doubt(estimator, tensor)
    return Document(
        tp=sizes.tp,
        ep=sizes.ep,
        dp=sizes.dp,
        pp=sizes.pp,
        nodes=nodes,
        gpus_per_node=per_node,
        cuda_visible_devices=",".join(map(str, order)),
        ranks=ranks,
        tensor_gbps=[carried(chooser, group) for group in tensor],
        groups=groups,
        warnings=[
            *([f"{slow} {_instead(estimator, chooser, chosen, failed, sizes.tp)}"] if slow else []),
            *_warnings(groups),
            *_doubts(groups, estimator),
        ],
        notes=[*_notes(groups, nodes, list(failed.values())), *whole.rests_on(chosen)],
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
            f"tensor groups of {sizes.tp} do not divide the GPUs of a node ({per_node}), one would cross the network",
            hint="Choose --tp so that it divides the GPUs of a node.",
        )
    if sizes.dp % sizes.ep:
        raise InputError(
            f"--ep {sizes.ep} does not divide --dp {sizes.dp}: expert groups are parts of the data-parallel ones",
            hint="Choose --ep so that it divides --dp.",
        )
    return nodes, per_node


def tensor_groups(
    chooser: Chooser, chosen: Set, failed: Collection[tuple[int, int]], tp: int, ep: int = 1
) -> list[list[int]]:
    """The GPUs of a node by local rank: expert blocks side by side, in them tensor groups, each along its best ring."""
    block = tp * ep
    blocks = chooser.divided(block)[0] if ep > 1 and len(chosen) % block == 0 and block < len(chosen) else [chosen]
    groups: list[list[int]] = []
    for each in blocks:
        for group in chooser.of(each).divided(tp)[0]:
            ring = chooser.written(group).order
            # GPUs in one place of their groups talk to each other too, and a ring may begin anywhere.
            turns = [ring[place:] + ring[:place] for place in range(len(ring))]
            groups.append(min(turns, key=lambda turn: _apart(turn, groups, failed)))
    return groups


def carried(chooser: Chooser, group: Iterable[int]) -> float | None:
    """GB/s of all rings over a group on paper; None for one GPU, and where bandwidths are not known."""
    return chooser.written(tuple(sorted(group))).gbps


def _apart(group: Sequence[int], before: Sequence[Sequence[int]], failed: Collection[tuple[int, int]]) -> int:
    """Pairs between which copies failed, of GPUs in one place of this group and of those before it."""
    return sum((min(pair), max(pair)) in failed for other in before for pair in zip(group, other, strict=True))


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


class _Costs:
    """What groups cost on one node, and over several."""

    def __init__(self, estimator: Estimator, leave: Rails) -> None:
        self._estimator, self._leave = estimator, leave

    def of(self, groups: Sequence[tuple[str, list[Rank]]]) -> list[Group]:
        found = [self._group(kind, members) for kind, members in groups]
        users = Counter((group.kind, port) for group in found for port in group.rails)
        return [
            msgspec.structs.replace(group, sharing=max((users[group.kind, port] for port in group.rails), default=1))
            for group in found
        ]

    def _group(self, kind: str, members: Sequence[Rank]) -> Group:
        nodes = len({rank.node for rank in members})
        gpus = [rank.gpu for rank in members if rank.node == members[0].node]
        collective, size = _DOES[kind], _BYTES[kind]
        time_us, busbw, basis, unknown = None, None, None, None
        try:
            if nodes == 1:
                (row,), _ = self._estimator.rows(gpus, collective, [size])
                time_us, busbw, basis = row.time_us, row.busbw_gbps, row.basis
            else:
                gbps = self._leave.gbps(gpus)
                time_us = rails.least_us(collective, size, gbps, nodes=nodes, here=len(gpus), ranks=len(members))
                busbw = size / time_us / 1000 * runs.bus_factor(collective, len(members))
        except NothingDetermined as error:
            unknown = error.message
        return Group(
            kind=kind,
            ranks=[rank.rank for rank in members],
            gpus=gpus,
            nodes=nodes,
            collective=collective,
            size_bytes=size,
            time_us=None if time_us is None else round(time_us, 3),
            busbw_gbps=None if busbw is None else round(busbw, 4),
            basis=basis,
            unknown=unknown,
            rails=self._leave.of(gpus) if nodes > 1 else [],
        )


def doubt(estimator: Estimator, groups: Sequence[Sequence[int]]) -> str | None:
    """Why tensor parallelism over these groups is a bad idea; None where it is none.

    Raises NothingDetermined where the speed of none of them is known.
    """
    slowest = _slowest(estimator, groups)
    if slowest is None and len(groups[0]) > 1:
        estimator.fabric(groups[0])
    if slowest is None or slowest.busbw_gbps >= _TOO_SLOW_GBPS:
        return None
    return (
        f"Tensor parallelism of {len(groups[0])} over these links is a bad idea: {slowest.busbw_gbps:.3g} GB/s of bus "
        "bandwidth. An all_reduce of 64 MiB, the activations of 4096 tokens of 8192 numbers, takes "
        f"{slowest.time_us / 1000:.3g} ms, and each layer needs two forward and two backward."
    )


def _slowest(estimator: Estimator, groups: Sequence[Sequence[int]]) -> Row | None:
    """The all_reduce over the slowest of these groups; None where it is not known."""
    rows: list[Row] = []
    for group in groups:
        with suppress(NothingDetermined):
            rows += estimator.rows(group, _DOES["tensor"], [_BYTES["tensor"]])[0] if len(group) > 1 else []
    return min(rows, key=lambda row: row.busbw_gbps, default=None)


def _instead(estimator: Estimator, chooser: Chooser, chosen: Set, failed: Collection[tuple[int, int]], tp: int) -> str:
    """What to do where tensor groups are too large."""
    for size in (size for size in range(tp // 2, 1, -1) if tp % size == 0):
        groups = tensor_groups(chooser, chosen, failed, size)
        slowest = _slowest(estimator, groups)
        if slowest is not None and slowest.busbw_gbps >= _TOO_SLOW_GBPS:
            named = " | ".join(",".join(map(str, group)) for group in groups)
            return f"--tp {size} is not, with {slowest.busbw_gbps:.3g} GB/s: {named}."
    smaller = ": no smaller --tp is known to be better" if tp > 2 else ""
    return f"Prefer pipeline or data parallelism{smaller}."


def _warnings(groups: Sequence[Group]) -> Iterator[str]:
    crossing = [group for group in groups if group.kind == "expert" and group.nodes > 1]
    if crossing:
        yield f"Expert groups cross nodes: {crossing[0].nodes} nodes each, so their alltoall goes over the network."


def _doubts(groups: Sequence[Group], estimator: Estimator) -> list[str]:
    """What speaks against the costs of groups, each sentence once."""
    told = (
        line
        for group in groups
        for line in estimator.warnings(group.gpus, [group.collective] if group.nodes == 1 else [])
    )
    return list(dict.fromkeys(told))


def _notes(groups: Sequence[Group], nodes: int, failed: Sequence[str]) -> list[str]:
    notes = []
    if failed:
        notes.append(
            "Copies between these failed when they were measured, so no group holds both where that can be: "
            f"{link_model.shortened(failed)}."
        )
    if any(group.nodes > 1 and group.time_us is not None for group in groups):
        notes.append(
            "Over several nodes a time is what the network ports of a group let through at least, by their line rate "
            "and the way to them in NCCL's model; the network between the nodes is in no node's snapshot."
        )
    if nodes > 1:
        notes.append("All nodes are taken to be like this one.")
    return notes
