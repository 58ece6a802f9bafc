"""Which way the traffic between two GPUs takes: by the variables in force, and by those that are advised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from topoadvisor.advice import AdvisedSetting
from topoadvisor.measurements.runs import FAILED
from topoadvisor.nccl import defaults, model, versions
from topoadvisor.nccl.levels import NcclPath, parse_int, user_p2p_level
from topoadvisor.plan.link_model import Failure, Failures
from topoadvisor.rules.facts import Fact, FactBase, Known, Subject
from topoadvisor.topology.model import Topology
from topoadvisor.topology.reconcile import is_refusal

_MOST_NAMED: Final = 4

ROUTING = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE")
"""Variables that decide which way traffic between two GPUs takes."""


def in_force(base: FactBase) -> dict[str, str]:
    """The routing variables as they are; those that were not read count as unset."""
    return {name: _value(base, f"env.{name}") or "" for name in ROUTING}


def as_advised(base: FactBase, settings: Iterable[AdvisedSetting]) -> dict[str, str]:
    """The routing variables as they will be once the advice is followed."""
    changes = {setting.name: setting.value or "" for setting in settings if setting.name in ROUTING}
    return {**in_force(base), **changes}


def rest_on(
    base: FactBase, variables: Mapping[str, str], among: frozenset[str], *, gpus: int | None = None
) -> list[str]:
    """The sentence about the variables that the ways between these GPUs (node ids) rest on; none where none matters.

    Of `variables` those that are not as they stand were advised.
    """

    def taken(those: Mapping[str, str]) -> dict[tuple[str, str], str | None]:
        return {pair: way for pair, way in transports(base, those, gpus=gpus).items() if among.issuperset(pair)}

    present, here = in_force(base), taken(variables)
    if here != taken(present):
        changed = " and ".join(
            f"{name}={variables[name]}" if variables[name] else f"{name} unset"
            for name in ROUTING
            if variables[name] != present[name]
        )
        return [f"This is the machine with {changed}, as advised; as it stands, NCCL takes other ways."]
    if here != taken(dict.fromkeys(ROUTING, "")):
        kept = " and ".join(f"{name}={value}" for name, value in variables.items() if value)
        return [f"This is the machine with {kept}, as it stands; without, NCCL takes other ways."]
    unread = [name for name in ROUTING if not isinstance(base.fact(f"env.{name}"), Known)]
    if unread and here:
        return [f"Not read: {', '.join(unread)}; {'they are' if len(unread) > 1 else 'it is'} taken as unset."]
    return []


def transports(
    base: FactBase, variables: Mapping[str, str], *, gpus: int | None = None
) -> dict[tuple[str, str], str | None]:
    """GPU pair → the transport that NCCL would use with these variables; None where that is not known.

    How far NCCL uses P2P by itself depends on how many GPUs a job has: `gpus`, or those that are visible.
    """
    user = _user_level(base, variables)
    level = user if user is not None else default_level(base, gpus)
    least = level if level is not None else defaults.least_p2p_level(_version(base))
    chosen: dict[tuple[str, str], str | None] = {}
    for subject in base.subjects["pair"]:
        a, b = subject.id.split("-")
        name = _read(subject, "nccl_path")
        path = NcclPath[name] if name is not None else None
        within = path is not None and least is not None and path <= least
        chosen[(a, b)] = model.transport(
            path=path,
            p2p_ok=_read(subject, "p2p.ok"),
            level=least if within else level,
            shm_disabled=parse_int(variables["NCCL_SHM_DISABLE"]) == 1,
        ).kind
    return chosen


def relayed(base: FactBase) -> Iterator[tuple[str, str]]:
    """GPU pairs that NVLink joins only through a third GPU."""
    for subject in base.subjects["pair"]:
        path = subject.facts["pair.nccl_path"]
        if isinstance(path, Known) and path.value == NcclPath.NVB.name:
            a, b = subject.id.split("-")
            yield a, b


def _user_level(base: FactBase, variables: Mapping[str, str]) -> NcclPath | None:
    disable, level = variables["NCCL_P2P_DISABLE"] or None, variables["NCCL_P2P_LEVEL"] or None
    return user_p2p_level(disable, level, _value(base, "nccl.version")).level


def default_level(base: FactBase, gpus: int | None = None) -> NcclPath | None:
    """How far NCCL uses P2P by itself in a job of so many GPUs, or over those that are visible; None = not known."""
    if gpus is None:
        default = _value(base, "nccl.default_p2p_level")
        return NcclPath[default] if default else None
    return defaults.p2p_level(
        _version(base),
        arch=_value(base, "cpu.architecture"),
        cpu_vendor=_value(base, "cpu.vendor"),
        cpu_family=_value(base, "cpu.family"),
        cpu_model=_value(base, "cpu.model"),
        gpus=gpus,
    )


def _version(base: FactBase) -> str | None:
    version = _value(base, "nccl.version")
    return version if version is not None and versions.is_version(version) else None


def visible(base: FactBase, topology: Topology) -> list[int]:
    """The GPUs of a job in index order: those that CUDA_VISIBLE_DEVICES lists by index, otherwise all."""
    selected = set(_value(base, "visible.gpus") or ())
    every = [int(gpu.removeprefix("gpu:")) for gpu in topology.gpus]
    return [gpu for gpu in every if f"GPU{gpu}" in selected] or every


def no_plan(base: FactBase, variables: Mapping[str, str], gpus: Collection[int]) -> str | None:
    """Why there is nothing to plan over these GPUs, by index, as the end of a sentence; None when there is.

    `variables` are the routing variables that the plan is for.
    """
    nodes = [f"gpu:{gpu}" for gpu in gpus]
    mig = ((gpu.id, gpu.facts["gpu.mig"]) for gpu in base.subjects["gpu"] if gpu.id in nodes)
    sliced = [node for node, fact in mig if isinstance(fact, Known) and fact.value]
    if sliced:
        verb = "is" if len(sliced) == 1 else "are"
        return f"{_labels(sliced)} {verb} in MIG mode, and slices have no way to each other or to another GPU"
    if _user_level(base, variables) is NcclPath.LOC:
        return None
    among = [pair for pair in base.subjects["pair"] if set(pair.id.split("-")) <= set(nodes) and _read(pair, "nvlinks")]
    if refused := [pair.id for pair in among if _read(pair, "p2p.refused")]:
        hidden = parse_int(_value(base, "env.NCCL_IGNORE_DISABLED_P2P") or "")
        then = ", which NCCL_IGNORE_DISABLED_P2P hides" if hidden else ": NCCL stops with an error"
        return f"NVLink joins {_labels(refused)}, but the driver refuses peer access there{then}"
    if doubted := [pair.id for pair in among if is_refusal(_read(pair, "p2p.nvlink"))]:
        return f"NVLink joins {_labels(doubted)}, but the driver answers that peers do not reach each other over it"
    return None


def _read(pair: Subject, name: str) -> Any | None:
    fact = pair.facts[f"pair.{name}"]
    return fact.value if isinstance(fact, Known) else None


def _labels(nodes: Sequence[str]) -> str:
    """The first few of these GPUs."""
    more = f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
    return f"{', '.join(nodes[:_MOST_NAMED])}{more}".replace("gpu:", "GPU")


def failures(base: FactBase) -> Failures:
    """How measured copies between two GPUs failed, of the pairs where any did.

    Copies of one GPU to or from host memory that failed break its way through there to every other.
    """
    host = {subject.id: _failed(subject.facts["gpu.measured.host_outcome"]) for subject in base.subjects["gpu"]}
    found = {}
    for subject in base.subjects["pair"]:
        a, b = subject.id.split("-")
        direct = _failed(subject.facts["pair.measured.outcome"])
        staged = _failed(subject.facts["pair.measured.staged_outcome"]) or host[a] or host[b]
        if direct or staged:
            found[int(a.removeprefix("gpu:")), int(b.removeprefix("gpu:"))] = Failure(direct, staged)
    return found


def _failed(outcome: Fact) -> str | None:
    return outcome.value if isinstance(outcome, Known) and outcome.value in FAILED else None


def _value(base: FactBase, name: str) -> Any:
    fact = base.fact(name)
    return fact.value if isinstance(fact, Known) else None
