"""The plan in the advice for a machine: its rings, which GPUs a smaller job should take, where tensor groups go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from topoadvisor import advise, ways
from topoadvisor.advice import Pick, Placement, Plan
from topoadvisor.advise import Analysis
from topoadvisor.errors import NothingDetermined
from topoadvisor.measurements import counted, runs
from topoadvisor.plan import picks, rings
from topoadvisor.plan.problem import SAME, TIE, limit, rate
from topoadvisor.planning import Machine
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology.model import Topology

if TYPE_CHECKING:
    from topoadvisor.estimates import Estimator
    from topoadvisor.plan.subsets import Chooser

_MOST_GPUS: Final = 16
"""Above that choices of GPUs are left to `pick` and `place`."""
_TENSOR: Final = (2, 4, 8)
_MUCH: Final = 1.1
"""How much more than all GPUs together a tensor group has to carry for it to be kept inside."""


def analyse(
    snapshot: Snapshot,
    *,
    rule_directories: Sequence[Path] = (),
    preview: bool = False,
    baseline: Snapshot | None = None,
) -> Analysis:
    """As `advise.analyse`, with the plan, which may take a solver."""
    found = advise.analyse(snapshot, rule_directories=rule_directories, preview=preview, baseline=baseline)
    return replace(found, advice=msgspec.structs.replace(found.advice, plan=plan(snapshot, found)))


def plan(snapshot: Snapshot, analysis: Analysis) -> Plan | None:
    """For the machine as it should be, not as a leftover variable makes it; None where there is nothing to plan."""
    topology, base = analysis.topology, analysis.facts
    visible = ways.visible(base, topology)
    advised = ways.as_advised(base, analysis.advice.settings)
    if ways.no_plan(base, advised, visible) is not None:
        return None
    nodes = tuple(f"gpu:{gpu}" for gpu in visible)
    found = rings.plan(replace(topology, gpus=nodes), ways.transports(base, advised), ways.failures(base))
    if found is None:
        return None
    notes = list(found.notes)
    if len(visible) < len(topology.gpus):
        notes.append(
            f"These rings are over the {len(visible)} GPUs that CUDA_VISIBLE_DEVICES selects; `topoadvisor rings` "
            "takes all, or those of --gpus."
        )
    notes += ways.rest_on(base, advised, frozenset(nodes))
    copies = [run for run in counted.of(snapshot, topology).counted if runs.pair(run)]
    if found.rings and any(run.gbps and not runs.failed(run) for run in copies):
        notes.append("That is on paper: `topoadvisor rings --model measured` plans with the measured copies.")
    optimal = found.optimal
    if _widths_unread(snapshot) and found.transport != "NVLink" and found.total_gbps is not None:
        optimal = False
        notes.append("The text does not show how wide the PCIe links run: they are taken as the models' full ones.")
    if topology.attributes.get("beyond_boards") and "NVLink" in found.transport:
        optimal = False
        notes.append("These links are more than the GPUs' model has: the figures are those of no real machine.")
    # Of the whole machine: that a job has some GPUs now does not say which ones the next should take.
    choices = _Choices(snapshot, analysis, found)
    placements = list(choices.placements())
    if placements and choices.unjudged is not None:
        sizes = " or ".join(str(each.tensor) for each in placements)
        notes.append(
            f"Whether tensor parallelism of {sizes} is fast enough here is not determined: {choices.unjudged}."
        )
    return msgspec.structs.replace(found, notes=notes, optimal=optimal, picks=choices.picks(), placements=placements)


def _widths_unread(snapshot: Snapshot) -> bool:
    """A text was given that does not show for every GPU how wide its PCIe link runs."""
    wide = {device.address for device in snapshot.pci or () if device.link_width}
    wide |= {gpu.address for gpu in snapshot.gpus if gpu.pcie is not None and gpu.pcie.current_width and gpu.address}
    return snapshot.origin in ("matrix", "text") and any(gpu.address not in wide for gpu in snapshot.gpus)


class _Choices:
    """Which GPUs to take, and in which order, where that matters: said by the planners of `pick` and `place`."""

    unjudged: str | None = None
    """Why it is not known how fast NCCL is in tensor groups."""

    def __init__(self, snapshot: Snapshot, analysis: Analysis, planned: Plan) -> None:
        self._topology, self._planned = analysis.topology, planned
        self._machine = Machine(snapshot, "expected", as_advised=True, analysis=analysis)
        self._gpus = self._machine.gpus
        alike = _all_alike(self._topology) and not ways.failures(analysis.facts)
        advised = ways.as_advised(analysis.facts, analysis.advice.settings)
        few = len(self._gpus) > _MOST_GPUS or ways.no_plan(analysis.facts, advised, self._gpus) is not None
        self._none = alike or few

    def picks(self) -> list[Pick]:
        return [] if self._none else picks.picks(self._machine.usable, self._gpus, lambda: self._chooser)

    def placements(self) -> Iterator[Placement]:
        n = len(self._gpus)
        sizes = [] if self._none else [size for size in _TENSOR if size < n and n % size == 0]
        for size in sizes:
            found = self._placement(size) if self._may_matter(size) else None
            if found is not None:
                yield found
                # Larger groups over such links are a bad idea all the more.
                if found.doubt is not None:
                    return

    @cached_property
    def _together(self) -> float:
        """GB/s that no set of rings over all GPUs can pass."""
        planned = self._planned
        if not planned.rings or len(planned.rings[0].order) < len(self._gpus):
            from topoadvisor.plan.optimum import optimum

            found = optimum(self._machine.usable(self._gpus).problem())
            return found.bound if found is not None else 0.0
        seen = limit(self._machine.usable(self._gpus).problem()).gbps
        return min(seen, rings.most(planned))

    @cached_property
    def _chooser(self) -> Chooser:
        from topoadvisor.plan import nearness
        from topoadvisor.plan.subsets import Chooser

        return Chooser(self._machine.usable, nearness.of(self._topology, self._gpus), self._gpus)

    @cached_property
    def _estimator(self) -> Estimator:
        from topoadvisor.estimates import Estimator

        return Estimator(self._machine.snapshot(len(self._gpus)))

    def _may_matter(self, size: int) -> bool:
        """Whether index order may not be the best, or its groups carry more than all GPUs; seen without a solver."""
        whole = self._machine.usable(self._gpus, job=size)
        parts = [whole.among(range(at, at + size)) for at in range(0, len(self._gpus), size)]
        slowest = min(rate(part, range(size)) if part is not None else 0.0 for part in parts)
        most = min(picks.leaving(whole.problem(), size))
        return bool(whole.failed) or slowest < most * (1 - SAME) or slowest > self._together * _MUCH

    def _placement(self, size: int) -> Placement | None:
        from topoadvisor import placing

        n = len(self._gpus)
        failed = self._machine.usable(self._gpus).failed
        groups = placing.tensor_groups(self._chooser, tuple(self._gpus), failed, size)
        gbps = [placing.carried(self._chooser, group) for group in groups]
        known = [each for each in gbps if each is not None]
        in_order = min(self._chooser.value(tuple(self._gpus[at : at + size])) for at in range(0, n, size))
        inside = min(known, default=0.0) > self._together * _MUCH
        if len(known) < len(groups) or not (inside or in_order < min(known) * (1 - TIE)):
            return None
        return Placement(
            tensor=size,
            groups=groups,
            gbps=[round(each, 3) for each in known],
            in_order_gbps=round(in_order, 3),
            together_gbps=round(self._together, 3),
            doubt=self._doubt(groups),
        )

    def _doubt(self, groups: Sequence[Sequence[int]]) -> str | None:
        from topoadvisor import placing

        try:
            return placing.doubt(self._estimator, groups)
        except NothingDetermined as error:
            self.unjudged = error.message
            return None


def _all_alike(topology: Topology) -> bool:
    """Every pair of GPUs is joined in the same way, so there is nothing to choose."""
    gpus = set(topology.gpus)
    joined = {(pair.link_class, pair.gbps) for ends, pair in topology.pairs.items() if gpus.issuperset(ends)}
    return len(joined) <= 1
