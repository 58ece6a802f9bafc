"""Which GPUs to take for a job of a given size, and how to divide all of them into groups of that size.

Sets are compared by the ring bandwidth that they have alone, then by how near they are to NICs, then by the number of
NUMA nodes, then by what they leave for the next job, then in index order. Exact where all sets were looked at, which
symmetry makes possible on large machines; otherwise a note says so.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec

from topoadvisor.errors import NothingDetermined
from topoadvisor.plan import Model, optimal_rings, symmetry
from topoadvisor.plan.link_model import LinkModel
from topoadvisor.plan.nearness import Nearness
from topoadvisor.plan.optimum import Optimum, optimum
from topoadvisor.plan.problem import SAME, Problem, limit, loads_of, rate

SCHEMA = "topoadvisor.pick/1"

_MOST_SETS: Final = 2_000
"""Sets that are looked at for one size, after symmetry; 10 GPUs have 252 at most."""
_MOST_STEPS: Final = 20_000
"""Groups that are tried at most in dividing all GPUs."""
_MOST_TIED: Final = 64
"""Equally good sets whose remains are compared."""
_MOST_AFTER: Final = 300
"""Sets that are looked at for what a choice leaves to a job of twice the size; 10 GPUs have 70 at most."""


class Choice(msgspec.Struct, frozen=True):
    """A set of GPUs."""

    gpus: list[int]
    gbps: float | None
    """What all its rings carry together when the set works alone; None for one GPU and where bandwidths are unknown."""
    order: list[int]
    """The order of its best ring, that of the indexes where that is as good; also for CUDA_VISIBLE_DEVICES."""
    cuda_visible_devices: str
    """To be used with CUDA_DEVICE_ORDER=PCI_BUS_ID, as the indexes are those of `nvidia-smi`."""
    hosts: list[str]
    """NUMA nodes (else sockets or root complexes) next to these GPUs."""
    near_nics: list[str]
    """NICs below the same PCIe switches."""
    limited_by: str | None
    """The link that counts most in the bound, in words."""


class Compared(msgspec.Struct, frozen=True):
    """A set that was asked about, against the best."""

    choice: Choice
    loss_gbps: float | None
    loss_percent: float | None
    text: str


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """`topoadvisor pick --format json`."""

    schema: str = SCHEMA
    model: Model
    size: int
    gpus: list[int]
    """The free ones."""
    busy: list[int]
    best: Choice
    exact: bool
    """All sets were looked at, each by an optimum that is proven."""
    nearest: Compared | None
    """The set whose GPUs are nearest to each other, when it is slower than the best."""
    compared: Compared | None
    groups: list[Choice]
    """All free GPUs in groups of this size: the slowest as fast as can be, then the next."""
    groups_exact: bool
    at_once: float | None
    """Share of its bandwidth that each group keeps at least when all work at once; 1 = no link is short."""
    idle: list[int]
    """GPUs that no group takes."""
    notes: list[str]
    seconds: float


class Links(Protocol):
    """The link model of a job over some GPUs, of `job` GPUs when they are only candidates."""

    def __call__(self, chosen: Sequence[int], *, job: int | None = None) -> LinkModel: ...


def solve(
    links: Links,
    near: Nearness,
    free: Sequence[int],
    size: int,
    model: Model,
    *,
    busy: Sequence[int] = (),
    compare: Sequence[int] | None = None,
) -> Document:
    """The best set of `size` of the free GPUs, and their division into groups."""
    start = time.perf_counter()
    chooser = Chooser(links, near, free)
    best, exact = chooser.best(size)
    if failed := chooser.optimum(best)[0].failed:
        raise NothingDetermined(
            f"any {size} of these GPUs hold two between which copies failed: {', '.join(failed)}",
            hint="`topoadvisor scan` says more about them; `topoadvisor rings` plans around such pairs where it can.",
        )
    groups, groups_exact = chooser.divided(size)
    written = chooser.written(best)
    notes = list(links(best).notes) if size > 1 else []
    if size > 1 and (unknown := links(best).unknown):
        notes.append(f"The bandwidths are not known ({unknown}): the choice rests on the kinds of links alone.")
    if not exact:
        notes.append("Not proven best: more sets than could be looked at, or rings that are not proven best.")
    if not chooser.compared_all:
        notes.append("Equally good sets were not compared by what they leave for a job of twice the size.")
    if not groups_exact:
        notes.append("The groups are not proven best: they were formed one after another.")
    nearest = chooser.nearest(size)
    slower = chooser.value(nearest) < chooser.value(best)
    if slower and chooser.optimum(nearest)[0].staged:
        notes.insert(0, _STAGED)
    return Document(
        model=model,
        size=size,
        gpus=list(free),
        busy=sorted(busy),
        best=written,
        exact=exact,
        nearest=chooser.compared(nearest, best, "The nearest set") if slower else None,
        compared=None if compare is None else chooser.compared(tuple(sorted(compare)), best, "The set"),
        groups=[chooser.written(group) for group in groups],
        groups_exact=groups_exact,
        at_once=chooser.at_once(groups),
        idle=sorted(set(free) - {gpu for group in groups for gpu in group}),
        notes=notes,
        seconds=round(time.perf_counter() - start, 4),
    )


_STAGED: Final = (
    "Without P2P copies go up to host memory and down again, so GPUs below one switch share its uplink, and the "
    "nearest are not the fastest."
)

Set = tuple[int, ...]
"""GPU indexes in index order."""
Score = tuple[tuple[float, ...], int, int]
"""Of a division: bandwidths of its groups, slowest first; then NIC ranks and NUMA nodes, negative: more is better."""


class Chooser:
    """Looks for the best sets and divisions of some GPUs of a machine."""

    def __init__(self, links: Links, near: Nearness, free: Sequence[int]) -> None:
        self._links, self._near = links, near
        self._free = tuple(sorted(free))
        self._blocks: dict[int, symmetry.Block] = {}
        self._values: dict[object, float] = {}
        self._models: dict[Set, LinkModel] = {}
        self._limits: dict[Set, float] = {}
        self._optima: dict[Set, tuple[LinkModel, Optimum | None]] = {}
        self._bests: dict[object, tuple[float, int, int]] = {}
        self._scores: dict[object, Score] = {}
        self._steps = 0
        self.proven = True
        self.compared_all = True
        """Equally good sets were told apart by all that they leave."""

    def of(self, gpus: Set) -> Chooser:
        """The same for some of the GPUs."""
        return self if gpus == self._free else Chooser(self._links, self._near, gpus)

    def best(self, size: int) -> tuple[Set, bool]:
        """The best set, and whether it is certain."""
        sets, all_seen = self._sets(size, self._free)
        top = self._fastest(sets)
        tied = [each for each in sets if self._bounded(each, top) == top]
        nearest = min(map(self._near.of, tied))
        tied = [each for each in tied if self._near.of(each) == nearest]
        if len(tied) > 1:
            left = {each: self._leaves(each) for each in tied[:_MOST_TIED]}
            most = max(left.values())
            tied = [each for each in left if left[each] == most]
        return min(tied), all_seen and self.proven

    def value(self, gpus: Set) -> float:
        """GB/s of the rings of a set alone, to five digits; 0 for one GPU or where there is no ring."""
        key = self._shape(len(gpus), gpus)
        if key not in self._values:
            _, found = self.optimum(gpus)
            self.proven = self.proven and (found is None or found.proven)
            self._values[key] = 0.0 if found is None else float(f"{found.gbps:.5g}")
        return self._values[key]

    def optimum(self, gpus: Set) -> tuple[LinkModel, Optimum | None]:
        if gpus not in self._optima:
            model = self._model(gpus) if len(gpus) > 1 else LinkModel(gpus, (), {})
            # Rings could avoid a pair whose copies failed, but those are NCCL's to choose.
            usable = len(gpus) > 1 and not model.failed
            self._optima[gpus] = model, optimum(model.problem()) if usable else None
        return self._optima[gpus]

    def _sets(self, size: int, among: Iterable[int]) -> tuple[list[Set], bool]:
        """One set for all that are alike, and whether these are all there are."""
        place = {gpu: position for position, gpu in enumerate(self._free)}
        found = symmetry.sets(self._block(size), size, frozenset(place[gpu] for gpu in among))
        sets = [tuple(self._free[position] for position in each) for each in itertools.islice(found, _MOST_SETS + 1)]
        return sets[:_MOST_SETS], len(sets) <= _MOST_SETS

    def _block(self, size: int) -> symmetry.Block:
        if size not in self._blocks:
            tags = self._near.tags(self._free)
            one = len(self._free) == 1
            problem = Problem(1, {}, []) if one else self._links(self._free, job=size).problem()
            self._blocks[size] = symmetry.find(problem, tags)
        return self._blocks[size]

    def _shape(self, size: int, gpus: Iterable[int]) -> object:
        place = {gpu: position for position, gpu in enumerate(self._free)}
        chosen = frozenset(place[gpu] for gpu in gpus) if all(gpu in place for gpu in gpus) else None
        return (size, tuple(gpus)) if chosen is None else (size, symmetry.shape(self._block(size), chosen))

    def _fastest(self, sets: Sequence[Set]) -> float:
        """The bandwidth of the fastest of the sets; those that a quick limit rules out are not solved."""
        top = 0.0
        for most, each in sorted(((self._limit(each), each) for each in sets), key=lambda pair: -pair[0]):
            if most < top:
                break
            top = max(top, self.value(each))
        return top

    def _bounded(self, gpus: Set, top: float) -> float:
        most = self._limit(gpus)
        return most if most < top else self.value(gpus)

    def _limit(self, gpus: Set) -> float:
        """What the rings of a set cannot pass, without solving it."""
        if len(gpus) < 2:
            return 0.0
        key = self._shape(len(gpus), gpus)
        if key in self._values:
            return self._values[key]
        if gpus not in self._limits:
            self._limits[gpus] = limit(self._model(gpus).problem()).gbps * (1 + 1e-4)
        return self._limits[gpus]

    def _model(self, gpus: Set) -> LinkModel:
        if gpus not in self._models:
            self._models[gpus] = self._links(gpus)
        return self._models[gpus]

    def _leaves(self, gpus: Set) -> tuple[object, ...]:
        """What a set leaves: the groups of its size that the others make, then the best set of twice the size."""
        size, twice = len(gpus), 2 * len(gpus)
        others = tuple(gpu for gpu in self._free if gpu not in gpus)
        if twice > len(others):
            return (self._score(size, others),)
        key = self._shape(size, others)
        if key not in self._bests:
            sets, _ = self._sets(twice, others)
            if len(sets) > _MOST_AFTER:
                self.compared_all = False
                return (self._score(size, others),)
            top = self._fastest(sets)
            nics, hosts = min(self._near.of(each) for each in sets if self._bounded(each, top) == top)
            self._bests[key] = top, -nics, -hosts
        return self._score(size, others), self._bests[key]

    def divided(self, size: int) -> tuple[list[Set], bool]:
        """All GPUs in groups, in index order, and whether no division is better."""
        groups, left = [], self._free
        score = self._score(size, left)
        exact = self._steps <= _MOST_STEPS
        while len(left) >= size:
            options, _ = self._sets(size, left)
            for each in sorted(options) if exact else []:
                others = tuple(gpu for gpu in left if gpu not in each)
                if self._with(each, self._score(size, others)) == score:
                    break
            else:
                each = min(options, key=lambda each: (-self.value(each), self._near.of(each), each))
            groups.append(each)
            left = tuple(gpu for gpu in left if gpu not in each)
            score = self._score(size, left)
        return sorted(groups), exact and self.proven

    def _score(self, size: int, left: Set) -> Score:
        """The score of the best division of these GPUs. Past the limit of steps, of one that is formed in order."""
        if len(left) < size:
            return (), 0, 0
        key = self._shape(size, left)
        if key in self._scores:
            return self._scores[key]
        options, complete = self._sets(size, left)
        if not complete:
            self._steps = _MOST_STEPS + 1
        if len(left) % size == 0 and not self._block(size).alike and _single(self._block(size)):
            # Some group has the first GPU, so it may as well be the next one.
            options = [each for each in options if each[0] == left[0]]
        if self._steps > _MOST_STEPS:
            options = [min(options, key=lambda each: (-self.value(each), self._near.of(each), each))]
        self._steps += len(options)
        self._scores[key] = max(
            self._with(each, self._score(size, tuple(gpu for gpu in left if gpu not in each))) for each in options
        )
        return self._scores[key]

    def _with(self, group: Set, score: Score) -> Score:
        nics, hosts = self._near.of(group)
        return tuple(sorted((*score[0], self.value(group)))), score[1] - nics, score[2] - hosts

    def nearest(self, size: int) -> Set:
        """The set whose GPUs are the least apart, by the words of `nvidia-smi` alone."""
        return min(self._sets(size, self._free)[0], key=lambda each: (self._near.compactness(each), each))

    def at_once(self, groups: Sequence[Set]) -> float | None:
        """The share of its bandwidth that each group keeps at least when the rings of all run at once."""
        used: dict[tuple[str, str, str], float] = {}
        for group in groups:
            model, best = self.optimum(group)
            if best is None or model.unknown:
                return None
            for number, load in loads_of(model.problem(), best.rings).items():
                link = model.links[number]
                place = (link.a, link.b, link.kind)
                used[place] = used.get(place, 0.0) + load / link.gbps
        return round(min(1.0, 1 / max(used.values())), 4) if used else None

    def written(self, gpus: Set) -> Choice:
        model, best = self.optimum(gpus)
        order = [gpus[node] for node in _order(model.problem(), best)] if best else list(gpus)
        known = best is not None and model.unknown is None
        binding = optimal_rings.binding(model, best) if best is not None and known else []
        return Choice(
            gpus=list(gpus),
            gbps=round(best.gbps, 6) if best is not None and known else None,
            order=order,
            cuda_visible_devices=",".join(map(str, order)),
            hosts=sorted({self._near.hosts[gpu] for gpu in gpus} - {""}),
            near_nics=self._near.near_nics(gpus),
            limited_by=binding[0].text if binding else None,
        )

    def compared(self, gpus: Set, best: Set, name: str) -> Compared:
        """A set against the best one."""
        mine, top = self.value(gpus), self.value(best)
        choice = self.written(gpus)
        known = choice.gbps is not None and top > 0
        words = f"{name} {', '.join(map(str, gpus))}"
        missing = [gpu for gpu in gpus if gpu not in self._free]
        taken = f" GPU{missing[0]} is busy." if missing else ""
        if gpus == best:
            text = f"{words} is the best."
        elif failed := self.optimum(gpus)[0].failed:
            carries = f" carries {mine:.4g} of {top:.4g} GB/s" if known or not mine else ""
            text = f"{words}{carries}: copies failed between {', '.join(failed)}."
        elif not known or not top:
            text = f"{words}: what it loses is not known, as bandwidths are not."
        elif mine >= top:
            text = f"{words} carries as much as the best."
        else:
            why = f": {choice.limited_by}" if choice.limited_by else ""
            text = f"{words} carries {mine:.4g} of {top:.4g} GB/s, {_percent(mine, top):.0f}% less{why}."
        return Compared(
            choice=choice,
            loss_gbps=round(max(0.0, top - mine), 6) if known else None,
            loss_percent=round(_percent(mine, top), 2) if known else None,
            text=text + taken,
        )


def _order(problem: Problem, best: Optimum) -> Sequence[int]:
    """Index order where a ring in it is as fast alone as the best ring, else that ring's."""
    found, first = best.rings[0].order, range(problem.n)
    return first if rate(problem, first) >= rate(problem, found) * (1 - SAME) else found


def _percent(mine: float, top: float) -> float:
    return max(0.0, 100 * (1 - mine / top))


def _single(block: symmetry.Block) -> bool:
    return all(not each.blocks for each in block.blocks)
