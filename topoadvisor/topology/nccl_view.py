"""How NCCL sees a snapshot: its path types and bandwidths between GPUs, by its own rules and constants.

Computed for one job that takes all GPUs (or those chosen), one rank each. What NCCL asks the driver at run time and no
dump holds, whether it grants peer access, is taken from the snapshot, else from the catalogue, else for granted; the
last two mark the pairs for which it matters as inferred.

Checked against what NCCL 2.30.7's own code computes for 71 topologies, 7,882 ordered pairs: types and bandwidths are
equal when the snapshot says whether peer access is granted. From the bare files 100 pairs in five cases differ, all of
them GeForce cards below one switch, PIX or PXB here and PHB there, with equal bandwidth: the files do not say that the
driver refuses, and the catalogue does not know it of these cards, or the file does not name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from topoadvisor.errors import InputError, NothingDetermined, gpus_here
from topoadvisor.hardware import processors
from topoadvisor.ingest import assume
from topoadvisor.nccl import defaults, host, levels, newer, paths, rates, system, versions
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.paths import Given, Grant, Reach
from topoadvisor.nccl.system import Kind, Node, System
from topoadvisor.nccl.topo_xml import Element
from topoadvisor.snapshot import Gpu, Snapshot
from topoadvisor.topology import bandwidth, nccl_document
from topoadvisor.topology.model import Topology
from topoadvisor.topology.nccl_tree import Document

_DISPUTED: Final = "texts contradict each other about peer access"
GRANTED: Final = "whether the driver grants peer access is not known; it is taken for granted"
"""Said of a pair that only this lets have peer access."""
_REFUSED: Final = "stock drivers refuse peer access on this model"


@dataclass(frozen=True)
class View:
    """NCCL's view. Keyed by labels, `GPU0`; the first of a pair is the source."""

    version: str
    gpus: list[str]
    pairs: dict[tuple[str, str], Reach]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """One rank on each chosen GPU of a machine, and all that NCCL asks before it computes paths."""

    version: str
    document: Document
    numbers: dict[int, int]
    """`<gpu>` element, by identity → number of the GPU."""
    given: Given
    notes: list[str]

    def system(self) -> System:
        """NCCL's nodes and links, made anew. Raises TooLarge."""
        return system.build(self.document.root, rates.rules(self.version))

    def label(self, gpu: Node) -> str:
        """`GPU0`."""
        return f"GPU{self.numbers[id(gpu.element)]}"


def prepare(
    snapshot: Snapshot,
    chosen: Sequence[int] | None = None,
    ranks: int | None = None,
    *,
    topology: Topology | None = None,
) -> Job:
    """The job on these GPUs, by index, None = all; of so many `ranks` where these are only the ones it may take.

    `topology` is the snapshot's, where it has been built already.

    Raises NothingDetermined without a GPU or for an NCCL older than `rates.OLDEST`, InputError for a GPU not there.
    """
    release, notes = version(snapshot)
    document = nccl_document.describe(snapshot, release, topology)
    notes += document.notes
    numbers = _numbers(document.root)
    if chosen is not None:
        _choose(document.root, numbers, chosen)
    try:
        machine = system.build(document.root, rates.rules(release))
    except system.TooLarge as error:
        raise _too_large(error) from None
    gpus = machine.nodes[Kind.GPU]
    if not gpus:
        raise NothingDetermined(
            "no GPU was found, so there are no paths",
            hint="`topoadvisor scan` says what was asked and why it did not answer.",
        )
    if any(gpu.element.attributes.get("mlopart", "-1") != "-1" for gpu in gpus):
        notes.append("Some GPUs are MLOPart partitions; what NCCL makes of those is not modelled.")
    if len(machine.hosts) > 1:
        notes.append(f"The file describes {len(machine.hosts)} hosts; GPUs are numbered by rank.")
    given = _given(snapshot, machine, release, document.apart, notes, ranks)
    return Job(release, document, numbers, given, notes)


def _too_large(error: system.TooLarge) -> NothingDetermined:
    return NothingDetermined(str(error), hint="--gpus chooses the GPUs of a smaller job.")


def of(
    snapshot: Snapshot,
    chosen: Sequence[int] | None = None,
    ranks: int | None = None,
    *,
    topology: Topology | None = None,
) -> View:
    """What NCCL computes for the machine. Parameters and errors are those of `prepare`."""
    job = prepare(snapshot, chosen, ranks, topology=topology)
    machine = job.system()
    order = {gpu: job.numbers[id(gpu.element)] for gpu in machine.nodes[Kind.GPU]}
    labels = {gpu: job.label(gpu) for gpu in sorted(order, key=order.__getitem__)}
    try:
        reached = paths.between_gpus(machine, job.given)
    except system.TooLarge as error:
        raise _too_large(error) from None
    notes = list(job.notes)
    if any(map(system.is_intel, machine.nodes[Kind.CPU])) and any(
        reach.kind is NcclPath.PHB for reach in reached.values()
    ):
        notes.append(
            f"Searching rings, NCCL takes {rates.INTEL_P2P_OVERHEAD:g} times the traffic from each PCIe link on PHB "
            "paths through an Intel CPU; the bandwidths here are without it."
        )
    notes += _divided(job)
    return View(
        version=job.version,
        gpus=list(labels.values()),
        pairs={(labels[a], labels[b]): reach for (a, b), reach in reached.items()},
        notes=notes,
    )


def _divided(job: Job) -> Iterable[str]:
    """What the matrix of all GPUs does not show: that NCCL plans for parts of them, where a network is faster."""
    try:
        seen = host.look(job.system(), job.given, host.Choices(), job.version)
    except system.TooLarge:
        return
    if len(seen.groups) > 1 and len({gpu.key[0] for gpu in seen.gpus}) == 1:
        groups = "; ".join(", ".join(job.label(gpu) for gpu in group) for group in seen.groups)
        yield (
            f"By default NCCL divides these GPUs into {len(seen.groups)} groups, for it reckons the network between "
            f"them faster than the way inside the machine, and plans rings in each: {groups}."
        )


def version(snapshot: Snapshot) -> tuple[str, list[str]]:
    """NCCL's version, and what was taken for granted about it. Raises NothingDetermined for one that is too old."""
    found = next((each.version for each in snapshot.nccl_libraries or () if each.version), None)
    if found is None or not versions.is_version(found):
        return rates.NEWEST, [f"NCCL's version is not known; this is what {rates.NEWEST} does, the newest known."]
    if not versions.at_least(found, rates.OLDEST):
        raise NothingDetermined(
            f"NCCL {found} counts differently from {rates.OLDEST} and newer, which are known here",
            hint=f"To see what a newer one would do: --assume nccl.version={rates.NEWEST}",
        )
    too_new = newer.said(found)
    return found, [too_new] if too_new else []


def _numbers(root: Element) -> dict[int, int]:
    """The `<gpu>` elements of the job, by identity → number: NVML's, or of several hosts and shared GPUs the rank."""
    gpus = [element for element in root.walk() if element.tag == "gpu" and "rank" in element.attributes]
    numbers: dict[int, int] = {}
    for name in ("dev", "rank"):
        numbers = {id(gpu): system.integer(gpu, name) or 0 for gpu in gpus}
        if len(set(numbers.values())) == len(gpus):
            return numbers
    return {id(gpu): place for place, gpu in enumerate(gpus)}


def _choose(root: Element, numbers: dict[int, int], chosen: Sequence[int]) -> None:
    if missing := sorted(set(chosen) - set(numbers.values())):
        raise InputError(f"there is no GPU {missing[0]} here", hint=gpus_here(sorted(numbers.values())))
    for element in root.walk():
        if id(element) in numbers and numbers[id(element)] not in chosen:
            del element.attributes["rank"]


def _given(
    snapshot: Snapshot,
    machine: system.System,
    version: str,
    apart: frozenset[tuple[int, int]],
    notes: list[str],
    ranks: int | None,
) -> Given:
    settings = {setting.name: setting.value for setting in reversed(assume.settings(snapshot))}
    user = levels.user_p2p_level(settings.get("NCCL_P2P_DISABLE"), settings.get("NCCL_P2P_LEVEL"), version).level
    possible, why = ((user,), "") if user is not None else _default_levels(machine, version, ranks)
    if user is not None:
        notes.append(f"A variable that is set makes {user.name} the farthest path over which NCCL uses P2P.")
    return Given(
        levels=possible,
        why_levels=why,
        apart=lambda a, b: (system.integer(a.element, "dev"), system.integer(b.element, "dev")) in apart,
        grant=_Driver(snapshot, several_hosts=len(machine.hosts) > 1),
        nvb_disabled=bool(levels.parse_int(settings.get("NCCL_NVB_DISABLE") or "0")),
    )


def _default_levels(machine: system.System, version: str, ranks: int | None) -> tuple[tuple[NcclPath, ...], str]:
    """The default P2P level by the first CPU; every one that is possible when the CPU is not known."""
    cpu = machine.nodes[Kind.CPU][0].element
    arch, vendor = cpu.attributes.get("arch"), cpu.attributes.get("vendor")
    level = defaults.p2p_level(
        version,
        arch=arch,
        cpu_vendor=processors.vendor(vendor) if vendor is not None else None,
        cpu_family=system.integer(cpu, "familyid"),
        cpu_model=system.integer(cpu, "modelid"),
        gpus=ranks or len({gpu.parent for gpu in machine.nodes[Kind.GPU]}),
    )
    if level is not None:
        return (level,), ""
    return (NcclPath.PXB, NcclPath.SYS), "NCCL's P2P level depends on the CPU, which is not known"


class _Driver:
    """Whether peer access is granted between two GPUs, as `Given.grant` asks."""

    def __init__(self, snapshot: Snapshot, *, several_hosts: bool) -> None:
        # The snapshot holds the first host, and its numbers come again on the others.
        pairs, gpus = ((), ()) if several_hosts else (snapshot.p2p or (), snapshot.gpus)
        self._status = {(entry.a, entry.b): (entry.read, entry.write) for entry in pairs}
        self._disputed = {(entry.a, entry.b) for entry in pairs if entry.disputed.keys() & {"read", "write"}}
        self._gpus = {gpu.index: gpu for gpu in gpus}

    def __call__(self, a: Node, b: Node) -> Grant:
        one, other = (system.integer(node.element, "dev") for node in (a, b))
        if one is None or other is None:
            return Grant(True, GRANTED)
        status = self._status.get((one, other), (None, None))
        if any(each not in (None, "OK") for each in status):
            return Grant(False)
        if (one, other) in self._disputed:
            return Grant(None, _DISPUTED)
        if status[0] is not None:
            return Grant(True)
        if any(_refuses(self._gpus[index]) for index in (one, other) if index in self._gpus):
            return Grant(False, _REFUSED)
        return Grant(True, GRANTED)


def _refuses(gpu: Gpu) -> bool:
    model = bandwidth.model_of(gpu)
    return model is not None and model.p2p_over_pcie is False


def inferred(view: View) -> Iterable[str]:
    """What was taken for granted, each reason once."""
    return dict.fromkeys(why for reach in view.pairs.values() for why in reach.inferred)
