"""Plans for a snapshot: rings and choices of GPUs, for the machine as the advice leaves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from topoadvisor import ways
from topoadvisor.advise import Analysis, analyse
from topoadvisor.errors import InputError, NothingDetermined, gpus_here
from topoadvisor.ingest import assume
from topoadvisor.measurements import counted, runs
from topoadvisor.measurements.model import Measurement
from topoadvisor.plan import Model, link_model
from topoadvisor.plan.link_model import Failures, LinkModel
from topoadvisor.plan.loads import Network, network
from topoadvisor.rules import facts
from topoadvisor.rules.facts import FactBase
from topoadvisor.snapshot import Assumption, Snapshot
from topoadvisor.topology import graph, nccl_view
from topoadvisor.topology.model import Topology

if TYPE_CHECKING:
    from topoadvisor.plan import optimal_rings, subsets

LEAVE_OUT: Final = "`topoadvisor scan` says what to do; --gpus or --busy leave GPUs out."


@dataclass(frozen=True)
class _Found:
    """What a machine is for a job of so many GPUs."""

    job: int
    topology: Topology
    base: FactBase
    variables: dict[str, str]
    """Those that decide about ways."""


def _advised(job: int, analysis: Analysis) -> _Found:
    variables = ways.as_advised(analysis.facts, analysis.advice.settings)
    return _Found(job, analysis.topology, analysis.facts, variables)


class Machine:
    """The link models of one machine, for jobs over any of its GPUs.

    With the variables that decide about ways as they stand, or `as_advised`: as they are once the advice is followed.
    `analysis` spares one of the snapshot.

    Raises NothingDetermined without a GPU, InputError for the measured model without measurements.
    """

    def __init__(
        self, snapshot: Snapshot, model: Model, *, as_advised: bool = False, analysis: Analysis | None = None
    ) -> None:
        if not snapshot.gpus:
            raise NothingDetermined(
                "no GPU was found, so there is nothing to plan for",
                hint="`topoadvisor scan` says what was asked and why it did not answer.",
            )
        if model == "measured" and not any(run.kind == runs.PEER for run in snapshot.measurements):
            raise InputError("the snapshot holds no measurements", hint="`topoadvisor verify --save FILE` adds them.")
        self._given, self._model, self._as_advised = snapshot, model, as_advised
        self.gpus = [gpu.index for gpu in snapshot.gpus]
        self._analysis = analysis
        self._found: list[_Found] = []
        if as_advised and analysis is not None:
            self._found.append(_advised(len(ways.visible(analysis.facts, analysis.topology)), analysis))
        self._networks: dict[int, Network] = {}

    def links(self, chosen: Sequence[int], *, job: int | None = None) -> LinkModel:
        """The links and hops of these GPUs, for a job of `job` GPUs when that is not all of them.

        NCCL's own model has all its hops, as NCCL knows nothing of measurements. As advised it raises NothingDetermined
        where MIG or a refused NVLink leaves nothing to plan.
        """
        job = job or len(chosen)
        if self._as_advised:
            found = self._of(job)
            if (why := ways.no_plan(found.base, found.variables, chosen)) is not None:
                raise NothingDetermined(f"nothing is planned: {why}", hint=LEAVE_OUT)
        if self._model == "nccl":
            topology = self._of(job).topology
            return link_model.nccl(nccl_view.of(self.snapshot(job), chosen, job, topology=topology))
        links = link_model.expected(self._of(job).topology, self._network(job), chosen)
        links = link_model.without(links, self.failures)
        return self._measured(links) if self._model == "measured" else links

    def _measured(self, links: LinkModel) -> LinkModel:
        """The links as they were measured, and with which other driver."""
        driver, gpus = self._given.driver.version, {f"gpu:{gpu}" for gpu in links.gpus}
        mine = [run for run in self._counted if not runs.collective(run) and gpus.intersection(runs.ends(run))]
        others = runs.other_drivers(mine, driver)
        count = sum(run.driver in others for run in mine)
        told = [f"{count} of {len(mine)} copies were measured with driver {', '.join(others)}, and this is {driver}."]
        links = link_model.measured(links, mine)
        return replace(links, notes=(*links.notes, *(told if others else ())))

    def usable(self, chosen: Sequence[int], *, job: int | None = None) -> LinkModel:
        """The same in every model without the pairs between which copies failed when they were measured."""
        return link_model.without(self.links(chosen, job=job), self.failures)

    def rests_on(self, chosen: Sequence[int], *, job: int | None = None) -> list[str]:
        """What is to be said about the variables that decide which way the traffic between these GPUs takes."""
        job = job or len(chosen)
        found = self._of(job)
        return ways.rest_on(found.base, found.variables, frozenset(f"gpu:{gpu}" for gpu in chosen), gpus=job)

    def snapshot(self, job: int) -> Snapshot:
        """What was read, with the variables that decide about ways as this machine has them for a job of so many."""
        if not self._as_advised:
            return self._given
        found = self._of(job)
        changed = dict(found.variables.items() - ways.in_force(found.base).items())
        if not changed:
            return self._given
        # Collectives that do not say under which variables were measured with these as they stand.
        kept = [run for run in self._given.measurements if not runs.collective(run) or run.variables is not None]
        return assume.apply(
            msgspec.structs.replace(self._given, measurements=kept),
            [Assumption(fact=f"env.{name}", value=changed[name]) for name in changed],
        )

    @cached_property
    def _counted(self) -> list[Measurement]:
        return counted.of(self._given, self._of(len(self.gpus)).topology).counted

    @cached_property
    def failures(self) -> Failures:
        """How measured copies failed, of the pairs where any did."""
        return ways.failures(self._analysis.facts if self._analysis else self._of(len(self.gpus)).base)

    def _of(self, job: int) -> _Found:
        # How far NCCL uses P2P by itself depends on how many GPUs the job has, and on nothing else about them.
        for known in self._found:
            if not self._as_advised or ways.default_level(known.base, known.job) == ways.default_level(known.base, job):
                return known
        snapshot = self._given
        if self._as_advised:
            visible = ",".join(map(str, range(job)))
            analysis = analyse(assume.apply(snapshot, [Assumption(fact="env.CUDA_VISIBLE_DEVICES", value=visible)]))
            found = _advised(job, analysis)
        else:
            topology = graph.build(snapshot)
            base = facts.gather(snapshot, topology)
            found = _Found(job, topology, base, ways.in_force(base))
        self._found.append(found)
        return found

    def _network(self, job: int) -> Network:
        if job not in self._networks:
            found = self._of(job)
            self._networks[job] = network(found.topology, ways.transports(found.base, found.variables, gpus=job))
        return self._networks[job]

    def present(self, wanted: Iterable[int]) -> None:
        """Raises InputError for a GPU that is not there."""
        if missing := [index for index in wanted if index not in self.gpus]:
            raise InputError(f"there is no GPU {missing[0]} here", hint=self.here)

    @property
    def here(self) -> str:
        return gpus_here(self.gpus)


def best_rings(
    snapshot: Snapshot, *, model: Model = "expected", gpus: Sequence[int] | None = None, channels: int | None = None
) -> optimal_rings.Document:
    """The best set of rings over these GPU indexes (all when left out), with the proof.

    Raises InputError for GPUs that are not there, and for the measured model without measurements.
    """
    from topoadvisor.plan import optimal_rings

    machine = Machine(snapshot, model, as_advised=True)
    machine.present(gpus or ())
    chosen = machine.gpus if gpus is None else list(gpus)
    if len(set(chosen)) != len(chosen) or len(chosen) < 2:
        raise InputError("a ring takes two different GPUs or more", hint=machine.here)
    found = optimal_rings.solve(machine.usable(chosen), model, channels=channels)
    return msgspec.structs.replace(found, notes=[*found.notes, *machine.rests_on(chosen)])


def pick(
    snapshot: Snapshot,
    size: int,
    *,
    model: Model = "expected",
    busy: Sequence[int] = (),
    compare: Sequence[int] | None = None,
) -> subsets.Document:
    """The best `size` GPUs of those that are not busy, and all of them in groups of that size.

    Raises InputError for GPUs that are not there, too few free ones, and a set to compare of another size.
    """
    from topoadvisor.plan import nearness, subsets

    machine = Machine(snapshot, model, as_advised=True)
    machine.present([*busy, *(compare or ())])
    free = [index for index in machine.gpus if index not in busy]
    if size > len(free):
        taken = f" ({len(machine.gpus) - len(free)} of {len(machine.gpus)} are busy)" if busy else ""
        are = "is" if len(free) == 1 else "are"
        raise InputError(f"{size} GPUs are asked for, and there {are} {len(free)} free{taken}", hint=machine.here)
    if compare is not None and (len(set(compare)) != len(compare) or len(compare) != size):
        raise InputError(
            f"the set to compare has {len(set(compare))} different GPUs, not {size}", hint="Name as many as are picked."
        )
    near = nearness.of(graph.build(snapshot), machine.gpus)
    found = subsets.solve(machine.usable, near, free, size, model, busy=busy, compare=compare)
    return msgspec.structs.replace(found, notes=[*found.notes, *machine.rests_on(free, job=size)])
