"""Plans for a snapshot: rings and choices of GPUs, for the machine as the advice leaves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topoadvisor import runs, ways
from topoadvisor.advise import analyse
from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.ingest import assume
from topoadvisor.plan import Model, link_model, nearness, optimal_rings, subsets
from topoadvisor.plan.link_model import Failures, LinkModel
from topoadvisor.plan.loads import Network, network
from topoadvisor.snapshot import Assumption, Snapshot
from topoadvisor.topology import graph, nccl_view
from topoadvisor.topology.model import Topology


class Machine:
    """The link models of one machine, for jobs over any of its GPUs.

    Raises NothingDetermined without a GPU, InputError for the measured model without measurements.
    """

    def __init__(self, snapshot: Snapshot, model: Model) -> None:
        if not snapshot.gpus:
            raise NothingDetermined(
                "no GPU was found, so there is nothing to plan for",
                hint="`topoadvisor scan` says what was asked and why it did not answer.",
            )
        if model == "measured" and not any(run.kind == runs.PEER for run in snapshot.measurements):
            raise InputError("the snapshot holds no measurements", hint="`topoadvisor verify --save FILE` adds them.")
        self._snapshot, self._model = snapshot, model
        self.gpus = [gpu.index for gpu in snapshot.gpus]
        self._by_size: dict[int, tuple[Topology, Network, Failures]] = {}

    def links(self, chosen: Sequence[int], *, job: int | None = None) -> LinkModel:
        """The links and hops of these GPUs, for a job of `job` GPUs when that is not all of them.

        NCCL's own model has all its hops, as NCCL knows nothing of measurements.
        """
        if self._model == "nccl":
            return link_model.nccl(nccl_view.of(self._snapshot, chosen, job))
        topology, net, failures = self._ways(job or len(chosen))
        links = link_model.without(link_model.expected(topology, net, chosen), failures)
        return link_model.measured(links, self._snapshot.measurements) if self._model == "measured" else links

    def usable(self, chosen: Sequence[int], *, job: int | None = None) -> LinkModel:
        """The same in every model without the pairs between which copies failed when they were measured."""
        return link_model.without(self.links(chosen, job=job), self._ways(job or len(chosen))[2])

    def _ways(self, size: int) -> tuple[Topology, Network, Failures]:
        # How far NCCL uses P2P by itself depends on how many GPUs the job has, and on nothing else about them.
        if size not in self._by_size:
            job = Assumption(fact="env.CUDA_VISIBLE_DEVICES", value=",".join(map(str, range(size))))
            analysis = analyse(assume.apply(self._snapshot, [job]), plan=False)
            advised = ways.as_advised(analysis.facts, analysis.advice.settings)
            net = network(analysis.topology, ways.transports(analysis.facts, advised))
            self._by_size[size] = analysis.topology, net, ways.failures(analysis.facts)
        return self._by_size[size]

    def present(self, wanted: Iterable[int]) -> None:
        """Raises InputError for a GPU that is not there."""
        if missing := [index for index in wanted if index not in self.gpus]:
            raise InputError(f"there is no GPU {missing[0]} here", hint=self.here)

    @property
    def here(self) -> str:
        return f"The GPUs here are {', '.join(map(str, self.gpus)) or 'none'}."


def best_rings(
    snapshot: Snapshot, *, model: Model = "expected", gpus: Sequence[int] | None = None, channels: int | None = None
) -> optimal_rings.Document:
    """The best set of rings over these GPU indexes (all when left out), with the proof.

    Raises InputError for GPUs that are not there, and for the measured model without measurements.
    """
    machine = Machine(snapshot, model)
    machine.present(gpus or ())
    chosen = machine.gpus if gpus is None else list(gpus)
    if len(set(chosen)) != len(chosen) or len(chosen) < 2:
        raise InputError("a ring takes two different GPUs or more", hint=machine.here)
    return optimal_rings.solve(machine.usable(chosen), model, channels=channels)


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
    machine = Machine(snapshot, model)
    machine.present([*busy, *(compare or ())])
    free = [index for index in machine.gpus if index not in busy]
    if size > len(free):
        taken = f" ({len(machine.gpus) - len(free)} of {len(machine.gpus)} are busy)" if busy else ""
        raise InputError(f"{size} GPUs are asked for and {len(free)} are free{taken}", hint=machine.here)
    if compare is not None and (len(set(compare)) != len(compare) or len(compare) != size):
        raise InputError(
            f"the set to compare has {len(set(compare))} different GPUs, not {size}", hint="Name as many as are picked."
        )
    near = nearness.of(graph.build(snapshot), machine.gpus)
    return subsets.solve(machine.usable, near, free, size, model, busy=busy, compare=compare)
