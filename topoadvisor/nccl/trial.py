"""One trial of NCCL's search: as many rings or trees as fit at one speed.

(`ncclTopoSearchRec` in `src/graph/search.cc`.)

The search walks from GPU to GPU, depth first, takes the bandwidth of each hop from the links, and starts the next
channel when one is whole. It has a budget of steps, not of time, so it ends the same way everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from topoadvisor.nccl.board import Board, Charges, Route
from topoadvisor.nccl.levels import NcclPath

PERFECT: Final = -1
"""The budget that is left when the largest number of channels was found."""

_PCI_ORDER_BUDGET: Final = 1 << 10
_PORTS_LOOKED_AT: Final = 64
_NO_LINK: Final = -1
"""The last entry of what is left, which no channel takes from."""


class Pattern(StrEnum):
    """Shapes of channels; within a host the trees are chains."""

    RING = "ring"
    BALANCED_TREE = "balanced-tree"
    """The first two GPUs share the way to the network."""
    TREE = "tree"


@dataclass(frozen=True)
class Graph:
    """Channels that were found, or what is being looked for. Speeds are MB/s for each channel."""

    pattern: Pattern
    speed: int
    """Between GPUs."""
    speed_inter: int
    """To and from the network."""
    type_intra: NcclPath
    type_inter: NcclPath
    same_channels: bool
    """Every channel follows the first."""
    cross_nic: int
    """0: a ring leaves through the port it came in by; 1: any; 2: pairs of rings swap ports."""
    least: int
    most: int
    hops: int = 0
    orders: tuple[tuple[int, ...], ...] = ()
    """GPUs of each channel by their place in NCCL's list."""
    ports: tuple[tuple[int, int], ...] = ()
    """The ports by which each channel comes in and goes out; empty on a single host."""

    @property
    def channels(self) -> int:
        return len(self.orders)


class _Forced(StrEnum):
    NOT = "not"
    PCI = "pci"
    """The GPUs in the order of NCCL's list."""
    REPLAY = "replay"
    """As the channel before."""


class _Perfect(Exception):
    """The largest number of channels was found."""


Frame = Iterator["Frame"]
"""A step of the search; it yields the steps that it leads to, one at a time, and takes back each before the next."""
_Hop = tuple[Charges, int]
"""What a hop takes, and how many links it is long."""
_Table = list[list[_Hop | None]]


class Trial:
    """The search for one combination of speed, path types, and so on."""

    def __init__(self, board: Board, wanted: Graph, best: Graph, *, neighbours: bool, only_neighbours: bool) -> None:
        """`best` is what was found so far. Behind NVSwitches, the next GPU by number is tried first (`neighbours`),
        and no other (`only_neighbours`).
        """
        self.best = best
        self._board, self._wanted = board, wanted
        self._neighbours = neighbours and board.switched
        self._only_neighbours = only_neighbours
        self._count = len(board.ranks)
        self._left = [*board.capacities, 0]
        self._free = [port.gbps for port in board.ports]
        self._channel = self._hops = 0
        room = wanted.most + 1
        self._order = [0] * (self._count * room)
        self._enter, self._leave = [0] * room, [0] * room
        self._hop = _table(board.between, board.between, wanted, wanted.speed, wanted.type_intra)
        self._sorted = [sorted(self._scores(gpu, None)) for gpu in range(self._count)]
        self._scored: dict[tuple[int, int], list[_Score]] = {}
        if board.inter:
            shared = wanted.speed_inter // 2 if wanted.pattern is Pattern.BALANCED_TREE else wanted.speed_inter
            self._in = _table(board.from_port, board.to_port, wanted, wanted.speed_inter, wanted.type_inter)
            self._out = _table(board.to_port, board.from_port, wanted, shared, wanted.type_inter)
            self._selected: dict[int | None, list[int]] = {}

    def run(self, budget: int) -> int:
        """Search; returns what is left of the budget, PERFECT when the largest number of channels was found."""
        try:
            return self._walk(self._start(), budget)
        except _Perfect:
            return PERFECT

    def _walk(self, first: Frame, budget: int) -> int:
        """Returns what is left of the budget. What a walk that is cut short has taken is given back."""
        saved = list(self._left), list(self._free), self._channel, self._hops
        stack = [first]
        while stack:
            frame = next(stack[-1], None)
            if frame is None:
                stack.pop()
            elif budget > 0:
                budget -= 1
                stack.append(frame)
            else:
                self._left[:], self._free[:], self._channel, self._hops = saved
                return 0
        return budget

    def _start(self) -> Frame:
        """The first GPUs of a channel."""
        if self._board.inter:
            yield from self._start_from_ports()
            return
        last = self._count - 1 if self._wanted.pattern is Pattern.RING else -1
        if self._channel == 0:
            yield self._visit(0, 0, 1, -1, last, _Forced.PCI)
        else:
            first = self._order[(self._channel - 1) * self._count]
            yield self._visit(first, 0, 1 << first, -1, last, _Forced.REPLAY)
        if self._channel == 0 or not self._wanted.same_channels:
            for gpu in range(self._count):
                yield self._visit(gpu, 0, 1 << gpu, -1, last, _Forced.NOT)

    def _visit(self, gpu: int, step: int, used: int, to_port: int, to_first: int, forced: _Forced) -> Frame:
        """A GPU at this step; at step `to_port` the network is entered, at `to_first` the ring is closed."""
        if step == self._count:
            return self._complete()
        self._order[self._channel * self._count + step] = gpu
        if step == to_port:
            return self._depart(gpu, step, used, to_first, forced)
        if step < self._count - 1:
            return self._onwards(gpu, step, used, to_port, to_first, forced)
        if step == to_first:
            return self._close(gpu, used)
        return iter((self._visit(gpu, self._count, used, -1, -1, forced),))

    def _onwards(self, gpu: int, step: int, used: int, to_port: int, to_first: int, forced: _Forced) -> Frame:
        if forced is _Forced.PCI:
            following = [step + 1]
        elif forced is _Forced.REPLAY:
            following = [self._order[(self._channel - 1) * self._count + step + 1]]
        else:
            following = self._following(gpu, step, used, to_port)
        hops, left = self._hop[gpu], self._left
        for to in following:
            hop = hops[to]
            if hop is None:
                continue
            for link, charge in hop[0]:
                if left[link] < charge:
                    break
            else:
                self._take(hop)
                yield self._visit(to, step + 1, used | 1 << to, to_port, to_first, forced)
                self._give(hop)

    def _close(self, gpu: int, used: int) -> Frame:
        first = self._order[self._channel * self._count]
        hop = self._hop[gpu][first]
        if hop is not None and self._fits(hop):
            self._take(hop)
            yield self._visit(first, self._count, used, -1, -1, _Forced.NOT)
            self._give(hop)

    def _complete(self) -> Frame:
        self._channel += 1
        if self._is_better():
            self.best = self._found()
            if self._channel == self._wanted.most:
                raise _Perfect
        if self._channel < self._wanted.most:
            yield from self._start()
        self._channel -= 1

    def _is_better(self) -> bool:
        wanted, best = self._wanted, self.best
        if self._channel < wanted.least:
            return False
        more = self._channel * wanted.speed - best.channels * best.speed
        alike = (wanted.pattern, wanted.cross_nic) == (best.pattern, best.cross_nic)
        return more > 0 or (more == 0 and alike and self._hops < best.hops)

    def _found(self) -> Graph:
        count = self._count
        orders = tuple(tuple(self._order[c * count : (c + 1) * count]) for c in range(self._channel))
        ports = tuple(zip(self._enter, self._leave, strict=True))[: self._channel] if self._board.inter else ()
        return replace(self._wanted, hops=self._hops, orders=orders, ports=ports)

    def _fits(self, hop: _Hop) -> bool:
        return all(self._left[link] >= charge for link, charge in hop[0])

    def _take(self, hop: _Hop) -> None:
        for link, charge in hop[0]:
            self._left[link] -= charge
        self._hops += hop[1]

    def _give(self, hop: _Hop) -> None:
        for link, charge in hop[0]:
            self._left[link] += charge
        self._hops -= hop[1]

    def _following(self, gpu: int, step: int, used: int, to_port: int) -> list[int]:
        """The GPUs to try next, best first (`ncclTopoSearchNextGpuSort`)."""
        if to_port == -1:
            following = [score.gpu for score in self._sorted[gpu] if not used >> score.gpu & 1]
            return self._by_number(gpu, following) if self._neighbours else following
        port = self._enter[self._channel]
        if (gpu, port) not in self._scored:
            self._scored[gpu, port] = list(self._scores(gpu, port))
        left = self._left
        # Of each GPU's own PCIe link counts what is left, so that those not used yet come first.
        scores = sorted(
            [
                (score.inter, -(min(left[score.up], left[score.down]) // 1000), *score[1:])
                for score in self._scored[gpu, port]
                if not used >> score.gpu & 1
            ]
        )
        following = [score[_GPU] for score in scores]
        # Far from the end of the channel, all GPUs alike, those near the port are kept for last.
        if to_port != step + 1 and len({score[_INTRA] for score in scores}) == 1:
            following.reverse()
        return self._by_number(gpu, following) if self._neighbours else following

    def _by_number(self, gpu: int, following: list[int]) -> list[int]:
        before, after = (gpu - 1) % self._count, (gpu + 1) % self._count
        first = {Pattern.RING: [before, after], Pattern.BALANCED_TREE: [after, before], Pattern.TREE: [after]}
        near = [to for to in dict.fromkeys(first[self._wanted.pattern]) if to in following]
        return near if self._only_neighbours else near + [to for to in following if to not in near]

    def _scores(self, gpu: int, port: int | None) -> Iterator[_Score]:
        board = self._board
        for place in range(1, self._count):
            to = (gpu + place) % self._count
            route = board.between[gpu][to]
            if route is None:
                continue
            entry = board.from_port[port][to] if port is not None else None
            inter, hops = (-int(entry.gbps), entry.hops) if entry is not None else (0, 0)
            up, down = board.uplinks[to] or (_NO_LINK, _NO_LINK)
            yield _Score(inter, hops, (-int(route.gbps), route.hops), place, to, up, down)

    def _start_from_ports(self) -> Frame:
        """The first GPU of a channel, by way of a port."""
        wanted, board = self._wanted, self._board
        whole = wanted.speed_inter // 1000
        ports = self._ports(None)
        for place in range(len(ports)):
            port = ports[(self._channel + place) % len(ports)]
            swaps = wanted.pattern is Pattern.RING and wanted.cross_nic == 2 and self._channel & 1
            if self._free[port] < whole or (swaps and port != self._leave[self._channel - 1]):
                continue
            self._enter[self._channel] = port
            mine = (board.ports[port].asic, board.ports[port].port)
            same = [n for n, each in enumerate(board.ports) if (each.asic, each.port) == mine]
            for n in same:
                self._free[n] -= whole
            if self._channel > 0 and wanted.same_channels:
                yield from self._arrive(port, self._order[(self._channel - 1) * self._count], _Forced.REPLAY)
            else:
                if self._channel == 0 and not board.switched:
                    self._walk(self._arrive(port, 0, _Forced.PCI), _PCI_ORDER_BUDGET)
                own = board.port_gpu[port]
                for gpu in [*([own] if own is not None else []), *(g for g in board.near_gpus[port] if g != own)]:
                    yield from self._arrive(port, gpu, _Forced.NOT)
            for n in same:
                self._free[n] += whole

    def _arrive(self, port: int, gpu: int, forced: _Forced) -> Frame:
        hop = self._in[port][gpu]
        if hop is not None and self._fits(hop):
            self._take(hop)
            back = self._count - 1 if self._wanted.pattern is Pattern.RING else 0
            yield self._visit(gpu, 0, 1 << gpu, back, -1, forced)
            self._give(hop)

    def _depart(self, gpu: int, step: int, used: int, to_first: int, forced: _Forced) -> Frame:
        """Out to the network, by each port that will do."""
        for port in self._ports(gpu):
            hop = self._out[gpu][port] if self._may_leave_by(port, step) else None
            if hop is not None and self._fits(hop):
                self._take(hop)
                self._leave[self._channel] = port
                again = 1 if self._wanted.pattern is Pattern.BALANCED_TREE and step == 0 else -1
                yield self._visit(gpu, step, used, again, to_first, forced)
                self._give(hop)

    def _may_leave_by(self, port: int, step: int) -> bool:
        """`ncclTopoSearchCheckNet`."""
        wanted, start = self._wanted, self._enter[self._channel]
        one, other = self._board.ports[port], self._board.ports[start]
        if one.plane is not None and other.plane is not None and one.plane != other.plane:
            return False
        if wanted.pattern is Pattern.TREE and port != start:
            return False
        if wanted.pattern is Pattern.RING and wanted.cross_nic == 2:
            if self._channel & 1 and port != self._enter[self._channel - 1]:
                return False
        elif wanted.cross_nic == 0:
            if one.rail is not None and other.rail is not None:
                if one.rail != other.rail:
                    return False
            elif (one.asic, one.port) != (other.asic, other.port):
                return False
        return wanted.pattern is not Pattern.BALANCED_TREE or step == 0 or port == self._leave[self._channel]

    def _ports(self, gpu: int | None) -> list[int]:
        """Ports to try for a GPU, None = for any, best first (`ncclTopoSelectNets`)."""
        if gpu not in self._selected:
            board = self._board
            gpus = range(self._count) if gpu is None else [gpu]
            own = [board.gpu_ports[g] for g in gpus]
            if board.hosts > 1:
                rounds = max((len(ports) for ports in own), default=0)
                first = [ports[turn] for turn in range(rounds) for ports in own if turn < len(ports)]
            else:
                first = [port for ports in own for port in ports]
            others = [
                port
                for kind in range(self._wanted.type_inter + 1)
                for g in gpus
                for port, route in enumerate(board.to_port[g][:_PORTS_LOOKED_AT])
                if route is not None and route.kind == kind
            ]
            self._selected[gpu] = list(dict.fromkeys([*first, *others]))
        return self._selected[gpu]


class _Score(NamedTuple):
    """How well a GPU follows another, least first; bandwidths are negative and in whole GB/s."""

    inter: int
    inter_hops: int
    intra: tuple[int, int]
    """Bandwidth and hops."""
    place: int
    gpu: int
    up: int
    down: int
    """Its own PCIe link."""


_INTRA: Final = 3
_GPU: Final = 5
"""Places in a score with what is left of the PCIe link as its second entry."""


def _table(
    routes: Sequence[Sequence[Route | None]],
    back: Sequence[Sequence[Route | None]],
    wanted: Graph,
    speed: int,
    limit: NcclPath,
) -> _Table:
    """The hops that are allowed, [from][to]; trees need both directions within the limit."""

    def hop(a: int, b: int, route: Route | None) -> _Hop | None:
        if route is None or route.kind > limit:
            return None
        if wanted.pattern is not Pattern.RING and ((way := back[b][a]) is None or way.kind > limit):
            return None
        return route.charges(speed), route.hops

    return [[hop(a, b, route) for b, route in enumerate(row)] for a, row in enumerate(routes)]
