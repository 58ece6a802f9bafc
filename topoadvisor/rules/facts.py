"""Every fact that a rule can read, about one machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topoadvisor.measurements import counted
from topoadvisor.rules import (
    agreement,
    facts_gpus,
    facts_groups,
    facts_job,
    facts_measured,
    facts_nics,
    facts_node,
    facts_pairs,
    facts_paths,
    facts_platform,
    facts_settings,
    facts_vendor,
    facts_visible,
)
from topoadvisor.rules.assumed import Assumed
from topoadvisor.rules.scope import ASSUMED, NVML, PCI, Fact, Known, Scope, Sources, Unknown, blend
from topoadvisor.snapshot import Snapshot
from topoadvisor.vocabulary import SubjectKind

if TYPE_CHECKING:
    from topoadvisor.topology.model import Topology

__all__ = ["Fact", "FactBase", "Known", "Subject", "Unknown", "gather"]

_FLAT_GUEST_GPUS: Final = 4
"""No PCIe machine puts more GPUs than this on its root complexes without a switch, so a guest with more hides some."""


@dataclass(frozen=True)
class Subject:
    """One thing that rules are asked about, and its own facts. The node's own facts are in `FactBase.node`."""

    kind: SubjectKind
    id: str
    """`node`, `gpu:0`, `gpu:0-gpu:1`, `nic:mlx5_0`, `pci:0000:17:00.0`, `variable:NCCL_P2P_LEVEL`."""
    facts: Mapping[str, Fact]


@dataclass(frozen=True)
class FactBase:
    """The facts of one machine."""

    node: Mapping[str, Fact]
    subjects: Mapping[SubjectKind, tuple[Subject, ...]]
    """Every kind is there; GPUs and pairs in index order, the others in snapshot order."""
    unset: Fact
    """What `env.NAME` is for a name that nobody mentioned."""

    def fact(self, name: str, subject: Subject | None = None) -> Fact:
        """One fact; a fact of a subject kind is looked up in `subject`. Raises KeyError for a name that is none."""
        if subject is not None and name in subject.facts:
            return subject.facts[name]
        if name.startswith("env."):
            return self.node.get(name, self.unset)
        return self.node[name]

    def walk(self) -> Iterator[tuple[str, str, Fact]]:
        """(subject id, fact name, fact) for everything: the node first, then its subjects."""
        for name, fact in self.node.items():
            yield "node", name, fact
        for kind, subjects in self.subjects.items():
            for subject in subjects if kind != "node" else ():
                for name, fact in subject.facts.items():
                    yield subject.id, name, fact


def gather(snapshot: Snapshot, topology: Topology) -> FactBase:
    """All facts of a machine, each with its origin or the reason why it is not known.

    What the user assumed replaces what was read, and counts in everything that is derived from it. Older measurements,
    and those that cannot be, do not count.

    Raises TopoAdvisorError when an assumption names no fact, no device that is here, has a value of another type, or
    contradicts what it is made from.
    """
    snapshot = counted.alone(snapshot, topology)
    sources = Sources(snapshot)
    assumed = Assumed(snapshot.assumptions)
    node = Scope(assumed.of("node"), sources.said())
    facts_node.gather(node, snapshot, sources)
    facts_platform.gather(node, snapshot, sources)
    judged = facts_measured.judged(snapshot, topology)
    gpus = facts_gpus.gather(snapshot, topology, sources, assumed)
    for index, scope in gpus.items():
        facts_measured.of_gpu(scope, judged.hosts.get(index))
    facts_gpus.summarise(node, gpus, sources.origin(*NVML))
    unset = facts_settings.gather(node, snapshot, sources, assumed)
    facts_job.gather(node)
    pairs = facts_pairs.gather(snapshot, topology, sources, assumed, node, gpus)
    for key, scope in pairs.items():
        facts_measured.of_pair(scope, judged.runs.get(key, ()), judged.pairs.get(key))
    facts_pairs.summarise(node, pairs, gpus, snapshot, topology, sources)
    facts_visible.gather(node, gpus, pairs)
    facts_groups.gather(node, list(gpus), pairs)
    facts_measured.summarise(node, pairs, judged.patterns, snapshot.measurements)
    nics = facts_nics.gather(snapshot, topology, sources, assumed)
    facts_nics.summarise(node, nics, snapshot, sources)
    facts_paths.gather(node, gpus, pairs, snapshot, topology, sources)
    facts_platform.summarise(node, snapshot)
    facts_vendor.gather(node, lambda name: node.facts.get(name, unset))
    bridges = facts_nics.bridges(snapshot, sources, assumed)
    node.put("topology.disagreements", Known(len(topology.disagreements), "derived"))
    node.put("pcie.hidden_switches", _hidden_switches(node, snapshot, topology, sources))
    variables = facts_settings.variables(snapshot, node, assumed)
    subjects: dict[SubjectKind, tuple[Subject, ...]] = {
        "node": (Subject("node", "node", {}),),
        "gpu": tuple(Subject("gpu", f"gpu:{index}", scope.facts) for index, scope in gpus.items()),
        "pair": tuple(Subject("pair", f"gpu:{a}-gpu:{b}", scope.facts) for (a, b), scope in pairs.items()),
        "nic": tuple(Subject("nic", f"nic:{name}", scope.facts) for name, scope in nics.items()),
        "bridge": tuple(Subject("bridge", f"pci:{address}", scope.facts) for address, scope in bridges.items()),
        "variable": tuple(Subject("variable", name, scope.facts) for name, scope in variables.items()),
    }
    agreement.check([node, *gpus.values(), *pairs.values()], snapshot.assumptions)
    agreement.check_driver(node, gpus.values())
    assumed.check_subjects(subject.id for group in subjects.values() for subject in group)
    return FactBase(node.facts, subjects, unset)


def _hidden_switches(node: Scope, snapshot: Snapshot, topology: Topology, sources: Sources) -> Fact:
    """A guest whose GPUs need PCIe switches on the board and show none, in the tree or to the NICs of a matrix."""
    guest, sxm = node.facts["vm.guest"], node.facts["gpus.sxm"]
    if isinstance(guest, Unknown) or not guest.value:
        return guest
    if node.value("gpus.sxm") is False and len(snapshot.gpus) <= _FLAT_GUEST_GPUS:
        return Known(False, blend([guest, sxm]))
    if snapshot.pci is None:
        classes = {pair.pcie_class for pair in topology.pairs.values() if pair.b.startswith("nic:")}
        if node.value("gpus.sxm") is True and "PHB" in classes and classes <= {"PHB", "NODE", "SYS"}:
            return Known(True, "inferred: no NIC of the matrix is below a switch with a GPU")
        return Unknown(sources.why(*PCI))
    if isinstance(sxm, Unknown) and len(snapshot.gpus) <= _FLAT_GUEST_GPUS:
        return sxm
    devices = {device.address: device for device in snapshot.pci}
    flat = all(len(list(facts_nics.ancestors(devices, gpu.address))) <= 1 for gpu in snapshot.gpus)
    if not flat and ASSUMED in guest.origin:
        return Unknown("the PCI tree was read on another machine than the guest that was told")
    return Known(flat, blend([guest, sxm]))
