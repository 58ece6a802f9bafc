"""The channels that NCCL chooses: which trials it makes, in which order, and when it is content
(`ncclTopoCompute` in `src/graph/search.cc`).

Written after reading the releases 2.19.1 to 2.30.7, and compared with what the code of 2.30.7 computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from topoadvisor.nccl import versions
from topoadvisor.nccl.board import Board, Route
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.trial import PERFECT, Graph, Pattern, Trial

OLDEST: Final = "2.19.1"
"""First release whose search is known here."""
OLDEST_INTER: Final = "2.27.5"
"""The same for rings that lead through the network."""

_ALL_TRIALS: Final = 1 << 19
_ONE_TRIAL: Final = 1 << 14
_SAME_CHANNELS: Final = 1 << 8
"""Budgets in steps (`NCCL_SEARCH_GLOBAL_TIMEOUT`, `NCCL_SEARCH_TIMEOUT`, `NCCL_SEARCH_TIMEOUT_SAMECHANNELS`)."""
_NEXT_SPEED: Final = (49, 100)
"""A lower speed is tried while it is more than this part of the best so far."""
_DOUBLED_FROM: Final = 25_000
_KEPT_BELOW: Final = 50_000
"""Channels of this speed and more are split in two; on Hopper and newer only from the second, or when they are few."""
_SIMPLE_ORDER: Final = 100


@dataclass(frozen=True)
class SearchRules:
    """What differs between releases. Speeds are MB/s, fastest first."""

    intra: tuple[tuple[int, tuple[int, ...]], ...]
    """(lowest compute capability × 10, speeds within a host), newest first."""
    inter: tuple[tuple[int, tuple[int, ...]], ...]
    most: int
    """Ring channels at most."""
    bounded_types: bool
    """Path types are tried from the nearest to the farthest that is there; before, from NVL to SYS."""
    splits_nvlink: bool
    """Two groups of GPUs joined by NVLink inside need two channels at least."""
    raises_rings: bool
    """Rings are tried at higher speeds in the end; channels are split before that, not after."""
    neighbours: bool
    only_neighbours: bool
    repeats: bool
    """On a single host with several ports the trials are made for both values of NCCL_CROSS_NIC."""
    far_ports: bool
    """Before Hopper any path to a port will do."""


def _speeds(*gbps: float) -> tuple[int, ...]:
    return tuple(round(each * 1000) for each in gbps)


_INTRA: Final = _speeds(40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)
_INTER: Final = _speeds(48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
_INTRA_90: Final = _speeds(60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)
_INTER_90: Final = _speeds(48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
_INTRA_100: Final = _speeds(90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)
_INTER_100: Final = _speeds(96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
_LATER: Final = {
    id(_INTRA_90): {11_000: "2.21.5"},
    id(_INTRA_100): {45_000: "2.29.2", 18_000: "2.27.3"},
    id(_INTER_100): {96_000: "2.27.6", 80_000: "2.29.7", 86_000: "2.30.3"},
}
"""Speeds that came after the others of their list."""


def rules(version: str) -> SearchRules:
    """The rules of a release. Raises ValueError for one older than `OLDEST`."""

    def since(first: str) -> bool:
        return versions.at_least(version, first)

    def known(speeds: tuple[int, ...]) -> tuple[int, ...]:
        later = _LATER.get(id(speeds), {})
        return tuple(speed for speed in speeds if since(later.get(speed, OLDEST)))

    if not since(OLDEST):
        raise ValueError(f"NCCL before {OLDEST} searches differently")
    blackwell = since("2.25.1")
    return SearchRules(
        intra=(*([(100, known(_INTRA_100))] if blackwell else []), (90, known(_INTRA_90)), (0, _INTRA)),
        inter=(*([(100, known(_INTER_100))] if blackwell else []), (90, _INTER_90), (0, _INTER)),
        most=32 if blackwell else 16,
        bounded_types=blackwell,
        splits_nvlink=since("2.26.2"),
        raises_rings=since("2.20.3"),
        neighbours=since("2.20.3"),
        only_neighbours=since("2.21.5"),
        repeats=since("2.28.7"),
        far_ports=since("2.29.2"),
    )


def rings(board: Board, release: SearchRules, cross_nic: int = 2) -> Graph:
    """The ring channels of a host. `cross_nic` is NCCL_CROSS_NIC."""
    return _Search(board, release, Pattern.RING, 1, release.most, cross_nic).run()


def trees(board: Board, release: SearchRules, ring: Graph, cross_nic: int = 2) -> Graph:
    """The tree channels, as many as there are rings."""
    return _Search(board, release, Pattern.BALANCED_TREE, ring.channels, ring.channels, cross_nic).run()


class _Search:
    def __init__(
        self, board: Board, release: SearchRules, pattern: Pattern, least: int, most: int, cross_nic: int
    ) -> None:
        self._board, self._release = board, release
        crosses = len(board.ports) > 1 and (board.inter or release.repeats)
        self._cross_nic = cross_nic if crosses else 0
        self._near, self._far = self._types(board.between, NcclPath.NVL)
        self._near_port = NcclPath.PIX
        self._far_port = NcclPath.SYS
        if board.inter:
            self._near_port, self._far_port = self._types(board.to_port, NcclPath.PIX)
            if release.bounded_types:
                self._far = self._far_port
            if release.far_ports and board.capability < 90:
                self._far_port = NcclPath.SYS
        if len(board.ranks) == 1:
            self._near = NcclPath.LOC
            pattern = pattern if pattern is Pattern.RING else Pattern.TREE
        if pattern is Pattern.RING and release.splits_nvlink and _two_groups(board) and most >= 2 and least == 1:
            least = 2
        lists = release.inter if board.inter else release.intra
        self._speeds = next(speeds for lowest, speeds in lists if board.capability >= lowest)
        self._best = Graph(
            pattern=pattern,
            speed=0,
            speed_inter=0,
            type_intra=self._near,
            type_inter=self._near_port,
            same_channels=True,
            cross_nic=int(self._cross_nic == 1),
            least=least,
            most=most,
        )
        self._budget = _ALL_TRIALS
        self._left = 0
        self._kinds = {route.kind for row in board.between for route in row if route is not None}
        ways = (*board.to_port, *board.from_port)
        self._port_kinds = {route.kind for row in ways for route in row if route is not None}
        self._made: dict[tuple[object, ...], int] = {}
        """Trial, as far as it decides → what was left of its budget."""

    def _types(self, routes: tuple[tuple[Route | None, ...], ...], nearest: NcclPath) -> tuple[NcclPath, NcclPath]:
        """The nearest and the farthest path type to look at."""
        if not self._release.bounded_types or (len(self._board.ranks) == 1 and nearest is NcclPath.NVL):
            return nearest, NcclPath.SYS
        kinds = [
            route.kind if route is not None else NcclPath.DIS
            for a, row in enumerate(routes)
            for b, route in enumerate(row)
            if routes is not self._board.between or a != b
        ]
        return min([NcclPath.SYS, *kinds]), max([NcclPath.LOC, *kinds])

    def run(self) -> Graph:
        """All trials, then those at higher speeds."""
        for wanted in self._trials():
            if self._try(wanted):
                break
        if self._release.raises_rings:
            self._best = self._doubled(self._best)
        for wanted in self._higher():
            self._try(wanted)
        if not self._release.raises_rings:
            self._best = self._doubled(self._best)
        if self._best.channels:
            return self._best
        return replace(
            self._best,
            speed=_SIMPLE_ORDER,
            speed_inter=_SIMPLE_ORDER if self._board.inter else 0,
            type_intra=NcclPath.SYS,
            type_inter=NcclPath.SYS,
            orders=(tuple(range(len(self._board.ranks))),),
        )

    def _try(self, wanted: Graph) -> bool:
        """Whether NCCL is content after this trial."""
        budget = _SAME_CHANNELS if wanted.same_channels else _ONE_TRIAL
        self._budget -= budget
        # A type that no path has allows the same hops as the type before, and so the same trial is made again: it uses
        # as much of its budget, and finds nothing that is better than what is known.
        hops = (self._kinds_within(wanted.type_intra), self._ports_within(wanted.type_inter))
        key = (wanted.pattern, wanted.speed, wanted.speed_inter, wanted.same_channels, wanted.cross_nic, wanted.least)
        known = self._made.get((*key, *hops))
        if known is None:
            trial = Trial(
                self._board,
                wanted,
                self._best,
                neighbours=self._release.neighbours,
                only_neighbours=self._release.only_neighbours,
            )
            known = self._made[*key, *hops] = trial.run(budget)
            self._best = trial.best
        self._left = known
        return self._left == PERFECT or self._best.channels * self._best.speed_inter >= self._board.widest * 1000

    def _kinds_within(self, limit: NcclPath) -> int:
        return sum(kind <= limit for kind in self._kinds)

    def _ports_within(self, limit: NcclPath) -> int:
        return sum(kind <= limit for kind in self._port_kinds) if self._board.inter else 0

    def _trials(self) -> Iterator[Graph]:
        """From strict to lax: other orders, simpler trees, farther paths, swapped ports, lower speeds."""
        for speed in self._descending():
            for cross_nic in self._crossings():
                for type_inter in self._widening(self._near_port, self._far_port, inter=True):
                    farthest = type_inter if self._board.inter else self._far
                    for type_intra in self._widening(self._near, farthest, inter=False):
                        for pattern in self._patterns():
                            for same in (True, False):
                                if same or not (self._board.amd and type_intra is NcclPath.SYS):
                                    yield replace(
                                        self._best,
                                        pattern=pattern,
                                        speed=speed,
                                        speed_inter=speed,
                                        type_intra=type_intra,
                                        type_inter=type_inter,
                                        same_channels=same,
                                        cross_nic=cross_nic,
                                        hops=0,
                                        orders=(),
                                        ports=(),
                                    )
                            self._budget += self._left
                            if self._budget < 0 and self._best.channels:
                                return

    def _descending(self) -> Iterator[int]:
        last = len(self._speeds) - 1
        widest = self._board.widest
        devices = self._board.devices
        if devices > 1 and self._best.pattern is not Pattern.RING:
            widest *= devices / (devices - 1)
        place = 0
        while place < last and (
            self._speeds[place] > self._board.fastest * 1000 or self._speeds[place] * self._best.least > widest * 1000
        ):
            place += 1
        yield self._speeds[place]
        while place < last and (
            not self._best.channels
            or self._speeds[place + 1] * _NEXT_SPEED[1] > self._best.speed_inter * _NEXT_SPEED[0]
        ):
            place += 1
            yield self._speeds[place]

    def _crossings(self) -> Iterator[int]:
        yield int(self._cross_nic == 1)
        if self._cross_nic == 2 and self._best.pattern is not Pattern.TREE:
            yield 2

    def _widening(self, nearest: NcclPath, farthest: NcclPath, *, inter: bool) -> Iterator[NcclPath]:
        kind = nearest
        yield kind
        if inter and not self._board.inter:
            return
        while kind < farthest:
            reached = self._best.type_inter if inter else self._best.type_intra
            if self._best.channels and kind >= reached and not (inter and kind < NcclPath.PXN):
                return
            kind = NcclPath(kind + 1)
            if kind < NcclPath.DIS:
                yield kind

    def _patterns(self) -> Iterator[Pattern]:
        first = self._best.pattern
        yield first
        if first is Pattern.BALANCED_TREE and self._board.capability >= 90:
            yield Pattern.TREE

    def _higher(self) -> Iterator[Graph]:
        """Trials that raise the speed of the channels found; of trees only that inside the host."""
        base = self._best
        last = len(self._speeds) - 1
        place = next((n for n, speed in enumerate(self._speeds) if speed <= base.speed_inter), last)
        inter = speed = self._speeds[place]
        self._left = PERFECT
        while self._left != 0 and place > 0:
            place -= 1
            if self._best.pattern is Pattern.RING:
                if not self._release.raises_rings:
                    return
                inter = speed = self._speeds[place]
            elif speed == self._best.speed and speed < 2 * inter:
                speed = self._speeds[place]
            else:
                return
            yield replace(base, speed=speed, speed_inter=inter, least=base.channels, hops=0, orders=(), ports=())

    def _doubled(self, graph: Graph) -> Graph:
        """Fast channels split in two (`ncclTopoDupChannels`)."""
        few = graph.channels <= 4
        if graph.speed < _DOUBLED_FROM or (self._board.capability > 80 and graph.speed < _KEPT_BELOW and not few):
            return graph
        channels = min(2 * graph.channels, graph.most)
        parts = -(-channels // graph.channels)
        return replace(
            graph,
            speed=graph.speed // parts,
            speed_inter=graph.speed_inter // parts,
            orders=(graph.orders * 2)[:channels],
            ports=(graph.ports * 2)[:channels],
        )


def _two_groups(board: Board) -> bool:
    """Whether exactly two groups of GPUs are joined by NVLink inside (`ncclTopoSplitNvLink`)."""
    count = len(board.ranks)
    group = list(range(count))
    for a in range(count):
        for b in range(a + 1, count):
            route = board.between[a][b]
            if route is not None and route.kind is NcclPath.NVL:
                group[b] = group[a]
    return sum(group.count(each) > 1 for each in set(group)) == 2
