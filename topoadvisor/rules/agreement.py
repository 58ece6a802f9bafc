"""Told facts that contradict what they are made from: refused, since header, rings and findings would disagree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from topoadvisor.errors import InputError
from topoadvisor.ingest import assume, told, told_values
from topoadvisor.nccl import versions
from topoadvisor.rules.scope import ASSUMED, Scope, Unknown
from topoadvisor.snapshot import ON_COMMAND_LINE, Assumption

_NAMES: Final = ("the names of the GPUs", "Tell gpu.name, or gpu[0].name of one of them.")
_LINKS: Final = (
    "how the GPUs here are joined",
    "Give the `nvidia-smi topo -m` of the machine that is meant as SOURCE.",
)
_ANSWERS: Final = (
    "the driver's answers about the pairs",
    "Tell pair.p2p.read and pair.p2p.write, or pair[0,1].p2p.read of one pair.",
)
_PARTS: Final[dict[str, tuple[str, str]]] = {
    "gpus.count": (
        "the GPUs here",
        "Give a machine with as many as SOURCE; CUDA_VISIBLE_DEVICES says which of them a job has.",
    ),
    **dict.fromkeys(
        (f"gpus.{name}" for name in ("models", "model", "same_model", "architecture", "same_architecture", "geforce")),
        _NAMES,
    ),
    **dict.fromkeys(("gpus.sxm", "gpus.compute_capability_min", "gpus.compute_capability_max"), _NAMES),
    "gpus.mig": ("the GPUs", "Tell gpu.mig, or gpu[0].mig of one of them."),
    "gpus.full_width": ("the PCIe links of the GPUs", "Tell gpu.pcie.current_width, or gpu[0].pcie.current_width."),
    "gpus.bar1_covers_memory": ("the GPUs", "Tell gpu.bar1_bytes, or gpu[0].bar1_bytes of one of them."),
    "fabric.completed": ("the states of the GPUs", "Tell gpu.fabric.state, or gpu[0].fabric.state of one of them."),
    "c2c.any": ("the GPUs", "Tell gpu.c2c_gbps, or gpu[0].c2c_gbps of one of them."),
    **dict.fromkeys((f"nvlink.{name}" for name in ("any", "full_mesh", "switch", "largest_group", "ring")), _LINKS),
    **dict.fromkeys(
        (
            f"p2p.{name}"
            for name in ("pairs_without_nvlink", "switch_pairs", "worst_nccl_path", "worst_nvlinkless_path")
        ),
        _LINKS,
    ),
    "p2p.largest_uplink_group": _LINKS,
    **dict.fromkeys((f"pair.{name}" for name in ("link_class", "pcie_class", "nvlinks", "through_switch")), _LINKS),
    **dict.fromkeys(("p2p.all_ok", "p2p.any_refused", "p2p.none_ok", "nvlink.refused_pairs"), _ANSWERS),
    **dict.fromkeys(("pair.p2p.ok", "pair.p2p.refused", "pair.p2p.refused_way"), _ANSWERS),
    **dict.fromkeys(("p2p.pcie_pairs", "p2p.direct_host_pairs", "p2p.staged_pairs", "gpus.beyond_level"), _ANSWERS),
}
"""Facts that are made from others and shape header, matrix or rings → what they are made from, and what to do."""
_TOLD_TWICE: Final = {
    "vm.guest": "vm.hypervisor",
    "container.any": "container.kind",
    "iommu.enabled": "iommu.mode",
    "iommu.translated": "iommu.mode",
    "rdma.any": "rdma.active",
}
"""Facts that follow from another one: both can be told, and then have to agree."""


@dataclass(frozen=True)
class Denied:
    """A told value, and the one that follows from what is here."""

    name: str
    told: Any
    here: Any


def denied(scopes: Iterable[Scope]) -> list[Denied]:
    """The told facts that what they are made from contradicts, each once."""
    found: dict[str, Denied] = {}
    for scope in scopes:
        for name, value, here in scope.contradicted:
            guessed = here.origin == "catalogue" or here.origin.startswith("inferred")
            if (name in _PARTS and not guessed) or (name in _TOLD_TWICE and ASSUMED in here.origin):
                found.setdefault(name, Denied(name, value, here.value))
    return list(found.values())


_NO_LAST: Final = 9999
_DRIVERS: Final[dict[str, tuple[int, int]]] = {
    "pascal": (367, 580),
    "volta": (384, 580),
    "turing": (410, _NO_LAST),
    "ampere": (450, _NO_LAST),
    "ada": (520, _NO_LAST),
    "hopper": (520, _NO_LAST),
    "blackwell": (570, _NO_LAST),
}
"""Architecture → first and last branch of the driver that knows it.

The first is that of the first CUDA release for it, the last what NVIDIA names (read 2026-12-01):
https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html, and for the branch of
a CUDA release https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html.
"""


def check_driver(node: Scope, gpus: Iterable[Scope]) -> None:
    """Raises InputError for a driver that does not know one of the GPUs, where one of the two was told."""
    version = node.facts["driver.version"]
    for gpu in gpus:
        name, architecture = gpu.facts["gpu.name"], gpu.value("gpu.architecture")
        if isinstance(version, Unknown) or isinstance(name, Unknown) or architecture not in _DRIVERS:
            continue
        first, last = _DRIVERS[architecture]
        if ASSUMED not in (version.origin, name.origin) or first <= versions.parse(version.value)[0] <= last:
            continue
        since = f"from {first} on" if last == _NO_LAST else f"from {first} to {last}"
        raise InputError(
            f"driver {version.value} does not run {name.value}: drivers {since} do",
            hint="Tell gpu.name or driver.version of the machine that is meant.",
        )


def check(scopes: Iterable[Scope], assumptions: Iterable[Assumption]) -> None:
    """Raises InputError for told facts that what they are made from contradicts."""
    said = list(assumptions)
    for each in denied(scopes):
        cause = _cause(each, said)
        where = None if cause is None or cause.origin == ON_COMMAND_LINE else cause.origin
        fact = each.name if cause is None else cause.fact
        value = told_values.typed(each.told if cause is None else cause.value)
        here = told_values.typed(each.here) or "nothing"
        if each.name in _TOLD_TWICE:
            other = _TOLD_TWICE[each.name]
            raise InputError(
                f"the assumed facts `{fact}` = {value} and `{other}` contradict each other",
                file=where,
                hint="Keep one of the two.",
            )
        parts, hint = _PARTS[each.name]
        what = "it" if told.parts(fact)[0] == each.name else each.name
        raise InputError(
            f"the assumed fact `{fact}` cannot be {value}: by {parts} {what} is {here}",
            file=where,
            hint=hint,
        )


def _cause(each: Denied, said: list[Assumption]) -> Assumption | None:
    """What the person said: the fact itself, unless it only follows from another one that was said."""
    makers = [one for one in said if told.parts(one.fact)[0] != each.name and each.name in assume.implied_by(one)]
    itself = [one for one in said if told.parts(one.fact)[0] == each.name and one.value == each.told]
    return next(iter([*makers, *itself]), None)
