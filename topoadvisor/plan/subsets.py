"""Which GPUs to take for a job of a given size, and how to divide all of them into groups of that size.

Sets are compared by the ring bandwidth that they have alone, then by how near they are to NICs, then by the number of
NUMA nodes, then by what they leave for the next job, then in index order. Up to 16 GPUs all sets are looked at, above
that one of each kind that symmetry leaves; what is not proven best, a note says.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from topoadvisor.errors import NothingDetermined
from topoadvisor.plan import Model, divisions, optimal_rings, symmetry
from topoadvisor.plan.divisions import MASKED, Division
from topoadvisor.plan.link_model import LinkModel
from topoadvisor.plan.nearness import Nearness
from topoadvisor.plan.optimum import Optimum, optimum
from topoadvisor.plan.problem import SAME, TIE, Problem, loads_of, rate
from topoadvisor.plan.values import Links, Rows, Set, Values

SCHEMA = "topoadvisor.pick/1"

_MOST_SETS: Final = 2_000
"""Sets of more than MASKED GPUs that are looked at for one size, after symmetry."""
_MOST_TIED: Final = 64
"""Equally good sets whose remains are compared."""
_MOST_AFTER: Final = 300
"""Sets that are looked at for what a choice of more than MASKED GPUs leaves to a job of twice the size."""


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
    """No set of this size carries more."""
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
            f"any {size} of these GPUs hold two between which copies failed: {', '.join(failed.values())}",
            hint="`topoadvisor scan` says more about them; `topoadvisor rings` plans around such pairs where it can.",
        )
    groups, groups_exact = chooser.divided(size)
    written = chooser.written(best)
    notes = list(links(best).notes) if size > 1 else []
    if size > 1 and (unknown := links(best).unknown):
        notes.append(f"The bandwidths are not known ({unknown}): the choice rests on the kinds of links alone.")
    if not exact:
        most = chooser.limit(size)
        limit = "" if most is None else f"; none can carry more than {most:.4g} GB/s"
        notes.append(f"The best that was found, not proven best: there are more sets than could be solved{limit}.")
    if not chooser.compared_all:
        notes.append("Equally good sets were not compared by what they leave for a job of twice the size.")
    if not groups_exact:
        notes.append("The groups are the best that were found, not proven best.")
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


class Chooser:
    """Looks for the best sets and divisions of some GPUs of a machine."""

    def __init__(self, links: Links, near: Nearness, free: Sequence[int]) -> None:
        self._links, self._near = links, near
        self._free = tuple(sorted(free))
        self._values: dict[int, Values] = {}
        self._blocks: dict[int, symmetry.Block] = {}
        self._bests: dict[object, tuple[float, int, int]] = {}
        self._divisions: dict[tuple[int, Set], Division] = {}
        self._optima: dict[Set, tuple[LinkModel, Optimum | None]] = {}
        self.compared_all = True
        """Equally good sets were told apart by all that they leave."""

    def of(self, gpus: Set) -> Chooser:
        """The same for some of the GPUs."""
        return self if gpus == self._free else Chooser(self._links, self._near, gpus)

    def best(self, size: int) -> tuple[Set, bool]:
        """The best set, and whether it is certain."""
        values = self._of_size(size)
        rows, complete = self._rows(size, self._free)
        top, proven = values.highest(rows)
        tied, nearer_known, all_known = self._nearest_of(values, rows, top)
        self.compared_all = self.compared_all and all_known
        kinds: dict[object, Set] = {}
        for each in sorted(tied):
            kinds.setdefault(self._shape(size, each), each)
        tied = list(kinds.values())
        if len(tied) > 1:
            self.compared_all = self.compared_all and len(tied) <= _MOST_TIED
            left = {each: self._leaves(each) for each in tied[:_MOST_TIED]}
            most = max(left.values())
            tied = [each for each in left if left[each] == most]
        return min(tied), complete and proven and nearer_known

    def limit(self, size: int) -> float | None:
        """GB/s that no set of so many can pass; None where nothing says so."""
        rows, complete = self._rows(size, self._free)
        most = self._of_size(size).limit(rows)
        return most if complete and math.isfinite(most) else None

    def divided(self, size: int) -> tuple[list[Set], bool]:
        """All GPUs in groups, in index order, and whether no division is better."""
        found = self._division(size, self._free)
        return list(found.groups), found.exact

    def value(self, gpus: Set) -> float:
        """GB/s of the rings of a set alone; 0 for one GPU or where there is no ring."""
        if not set(gpus) <= set(self._free):
            _, best = self.optimum(gpus)
            return best.gbps if best else 0.0
        values = self._of_size(len(gpus))
        (row,) = values.rows([gpus]).tolist()
        values.reaches(row, values.upper[row])
        return values.value(row)

    def optimum(self, gpus: Set) -> tuple[LinkModel, Optimum | None]:
        """The links and the best rings of a set."""
        if gpus not in self._optima:
            model = self._links(gpus) if len(gpus) > 1 else LinkModel(gpus, (), {})
            # Rings could avoid a pair whose copies failed, but those are NCCL's to choose.
            usable = len(gpus) > 1 and not model.failed
            self._optima[gpus] = model, optimum(model.problem()) if usable else None
        return self._optima[gpus]

    def _of_size(self, size: int) -> Values:
        if size not in self._values:
            self._values[size] = Values(self._links, self._free, size)
        return self._values[size]

    def _rows(self, size: int, among: Set) -> tuple[Rows, bool]:
        """Sets of some of the GPUs in the values of their size, one of each kind, and whether that is all there are."""
        values = self._of_size(size)
        if len(self._free) <= MASKED:
            rows = values.rows(itertools.combinations(self._free, size))
            others = [place for gpu, place in values.place.items() if gpu not in among]
            return rows[~values.members[:, others].any(axis=1)], True
        found = symmetry.sets(self._block(size), size, frozenset(values.place[gpu] for gpu in among))
        sets = [tuple(self._free[place] for place in each) for each in itertools.islice(found, _MOST_SETS + 1)]
        return values.rows(sets[:_MOST_SETS]), len(sets) <= _MOST_SETS

    def _block(self, size: int) -> symmetry.Block:
        if size not in self._blocks:
            self._blocks[size] = symmetry.find(self._of_size(size).problem, self._near.tags(self._free))
        return self._blocks[size]

    def _shape(self, size: int, gpus: Iterable[int]) -> object:
        place = self._of_size(size).place
        return symmetry.shape(self._block(size), frozenset(place[gpu] for gpu in gpus))

    def _nearest_of(self, values: Values, rows: Rows, gbps: float) -> tuple[list[Set], bool, bool]:
        """Of the sets that reach this the nearest.

        And whether it is known of all nearer ones that they do not, and of all as near whether they do.
        """
        by_nearness: dict[tuple[int, int], list[int]] = {}
        for row in rows[values.upper[rows] >= gbps * (1 - TIE)].tolist():
            by_nearness.setdefault(self._near.of(values.sets[row]), []).append(row)
        nearer_known = True
        for nearness in sorted(by_nearness):
            reaching = [row for row in by_nearness[nearness] if values.reaches(row, gbps)]
            all_known = all(row in reaching or values.upper[row] < gbps * (1 - TIE) for row in by_nearness[nearness])
            if reaching:
                return [values.sets[row] for row in reaching], nearer_known, all_known
            nearer_known = nearer_known and all_known
        raise AssertionError("the set that reaches it is among them")

    def _leaves(self, gpus: Set) -> tuple[object, ...]:
        """What a set leaves: the groups of its size that the others make, then the best set of twice the size."""
        size, twice = len(gpus), 2 * len(gpus)
        others = tuple(gpu for gpu in self._free if gpu not in gpus)
        score = self._division(size, others).score
        if twice > len(others):
            return (score,)
        key = self._shape(size, others)
        if key not in self._bests:
            rows, _ = self._rows(twice, others)
            if len(self._free) > MASKED and len(rows) > _MOST_AFTER:
                self.compared_all = False
                return (score,)
            values = self._of_size(twice)
            top, _ = values.highest(rows)
            tied, *_ = self._nearest_of(values, rows, top)
            nics, hosts = self._near.of(tied[0])
            self._bests[key] = top, -nics, -hosts
        return score, self._bests[key]

    def _division(self, size: int, among: Set) -> Division:
        if (size, among) not in self._divisions:
            values = self._of_size(size)
            if len(self._free) <= MASKED:
                self._rows(size, among)
                found = divisions.best(values, self._near, size, among)
            else:
                found = divisions.in_turn(values, self._near, size, among, lambda left: self._rows(size, left))
            self._divisions[size, among] = found
        return self._divisions[size, among]

    def nearest(self, size: int) -> Set:
        """The set whose GPUs are the least apart, by the words of `nvidia-smi` alone."""
        values = self._of_size(size)
        rows, _ = self._rows(size, self._free)
        return min((values.sets[row] for row in rows), key=lambda each: (self._near.compactness(each), each))

    def at_once(self, groups: Sequence[Set]) -> float | None:
        """The share of its bandwidth that each group keeps at least when the rings of all run at once."""
        used: dict[tuple[str, str, str], float] = {}
        for group in groups:
            model, best = self.optimum(group)
            if best is None or model.unknown:
                return None
            # Names tell two links apart only where the topology has no ids.
            ends = [*model.ways, *((link.a, link.b) for link in model.links[len(model.ways) :])]
            for number, load in loads_of(model.problem(), best.rings).items():
                link = model.links[number]
                place = (*ends[number], link.kind)
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
            text = f"{words}{carries}: copies failed between {', '.join(failed.values())}."
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
