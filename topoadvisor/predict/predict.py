"""The whole prediction: the machine as it is, and what each present and each recommended setting changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import msgspec

from topoadvisor.advice import AdvisedSetting
from topoadvisor.advise import Analysis, analyse
from topoadvisor.errors import InputError
from topoadvisor.ingest import assume
from topoadvisor.nccl import rates, reading
from topoadvisor.nccl.settings import in_force, registry
from topoadvisor.predict import changes, failures
from topoadvisor.predict.document import Difference, Failure, Nccl, Prediction, Present
from topoadvisor.predict.outlook import Asked, Outlook, Searches, look
from topoadvisor.predict.variables import DECISIVE
from topoadvisor.rules.facts import FactBase, Known
from topoadvisor.snapshot import Nic, Setting, Snapshot
from topoadvisor.topology import nccl_view

_NOT_READ = (
    "NCCL's variables were not read, and those that are not assumed count as not set; --env FILE supplies all of a job."
)


def predict(
    snapshot: Snapshot,
    gpus: Sequence[int] | None = None,
    environment: Sequence[Setting] | None = None,
    notes: Sequence[str] = (),
    hosts: int = 1,
) -> Prediction:
    """For a job of one rank on each of these GPUs, by index; None = those that CUDA_VISIBLE_DEVICES lists, else all.

    `environment` are variables of the job, which win over those of the snapshot, and `notes` are about them. `hosts`
    like this one take part. Raises NothingDetermined without a GPU, for a machine that is too large or an NCCL that is
    too old; InputError for a GPU that is not there, or named twice.
    """
    twice = next((gpu for gpu in gpus or () if list(gpus or ()).count(gpu) > 1), None)
    if twice is not None:
        raise InputError(f"GPU {twice} is named twice", hint="The job has one rank on each GPU.")
    if environment is not None:
        snapshot = msgspec.structs.replace(snapshot, settings=[*environment, *(snapshot.settings or [])])
    analysis = analyse(snapshot)
    notes = [*notes, *([_NOT_READ] if snapshot.settings is None else [])]
    snapshot = msgspec.structs.replace(snapshot, settings=assume.settings(snapshot))
    chosen = gpus
    visible = analysis.facts.node.get("visible.gpus") if gpus is None else None
    if isinstance(visible, Known) and visible.value:
        chosen = [int(label.removeprefix("GPU")) for label in visible.value]
        notes.append(f"The job is on the {len(chosen)} GPUs that CUDA_VISIBLE_DEVICES lists.")
    asked = Asked(chosen, *gdr(analysis), Searches(), hosts)
    everything = snapshot
    snapshot, failing = running(snapshot, analysis.facts)
    outlook = look(snapshot, asked)
    return Prediction(
        nccl=_nccl(snapshot, outlook),
        gpus=outlook.gpus,
        hosts=hosts,
        failures=failing,
        settings=list(_read(everything, outlook.version)),
        pairs=outlook.pairs,
        groups=outlook.groups,
        ports=outlook.ports,
        features=outlook.features,
        differences=[
            *_present(snapshot, asked, outlook),
            *_advised(snapshot, asked, outlook, analysis, {each.name for each in failing}),
        ],
        unknown=list(dict.fromkeys(_unknown(outlook, snapshot.nics, hosts))),
        notes=[*notes, *outlook.notes],
    )


def running(snapshot: Snapshot, facts: FactBase) -> tuple[Snapshot, list[Failure]]:
    """The machine without the settings with which NCCL does not run, and these.

    Raises NothingDetermined for an NCCL that is too old.
    """
    version, _ = nccl_view.version(snapshot)
    failing = list(failures.find(in_force(snapshot.settings or ()), facts, version))
    for each in failing:
        snapshot = without(snapshot, each.name)
    return snapshot, failing


def gdr(analysis: Analysis) -> tuple[bool | None, str]:
    """Whether there is a way for GPUDirect RDMA at all, and how that is known."""
    efa = analysis.facts.node["rdma.efa"]
    if isinstance(efa, Known) and efa.value:
        return None, "with EFA the network plugin decides about GPUDirect RDMA"
    fact = analysis.facts.node["gdr.any_path"]
    if not isinstance(fact, Known):
        return None, f"whether there is a way for GPUDirect RDMA is not known: {fact.reason}"
    if fact.value:
        return True, "GPUDirect RDMA has a way in, nvidia_peermem or DMA-BUF"
    return False, "GPUDirect RDMA has no way in: nvidia_peermem is not loaded, and DMA-BUF is not possible"


def _nccl(snapshot: Snapshot, outlook: Outlook) -> Nccl:
    library = next((each for each in snapshot.nccl_libraries or () if each.version == outlook.version), None)
    if library is None:
        return Nccl(version=outlook.version, origin=f"not known; {rates.NEWEST} is the newest whose behaviour is known")
    return Nccl(version=outlook.version, origin=library.read_by or library.path)


def _read(snapshot: Snapshot, version: str) -> Iterator[Present]:
    for setting in in_force(snapshot.settings or ()):
        info = registry().get(setting.name)
        read = reading.read(info, setting.value, version) if info is not None and info.exists_in(version) else None
        becomes = read.becomes if read is not None else None
        yield Present(name=setting.name, value=setting.value, origin=setting.place, becomes=becomes)


def _present(snapshot: Snapshot, asked: Asked, outlook: Outlook) -> Iterator[Difference]:
    for setting in in_force(snapshot.settings or ()):
        found = []
        if setting.name in DECISIVE:
            found = changes.between(look(without(snapshot, setting.name), asked), outlook)
        yield Difference(name=setting.name, value=setting.value, origin=setting.place, recommended=False, changes=found)


def _advised(
    snapshot: Snapshot, asked: Asked, outlook: Outlook, analysis: Analysis, failing: Set[str]
) -> Iterator[Difference]:
    for setting in analysis.advice.settings:
        found = ["NCCL runs, which it does not with the value that is set"] if setting.name in failing else []
        if setting.name in DECISIVE:
            found += changes.between(outlook, look(_with(snapshot, setting), asked))
        yield Difference(name=setting.name, value=setting.value, origin=setting.rule, recommended=True, changes=found)


def without(snapshot: Snapshot, name: str) -> Snapshot:
    kept = [setting for setting in snapshot.settings or () if setting.name != name]
    return msgspec.structs.replace(snapshot, settings=kept)


def _with(snapshot: Snapshot, advised: AdvisedSetting) -> Snapshot:
    changed = without(snapshot, advised.name)
    if advised.value is None:
        return changed
    setting = Setting(name=advised.name, value=advised.value, origin=advised.rule)
    return msgspec.structs.replace(changed, settings=[setting, *(changed.settings or [])])


def _unknown(outlook: Outlook, nics: Sequence[Nic] | None, hosts: int) -> Iterator[str]:
    for pair in outlook.pairs:
        if pair.transport == "unknown":
            yield f"the transport between some GPUs: {pair.why}"
        if pair.unknown is not None:
            yield f"path or bandwidth between some GPUs: {pair.unknown}"
    for group in outlook.groups:
        if group.rings is None and (len(group.gpus) > 1 or hosts > 1):
            yield f"rings and channels: {group.why}"
    if not outlook.ports and nics is None:
        yield "GPUDirect RDMA: the network ports were not read"
