"""Whether NCCL uses the protocol LL128 by itself (`ncclTopoTuneModel` in `src/graph/tuning.cc`).

LL128 relies on 128 bytes arriving whole. Where that was not tested NCCL leaves it out, because data would be corrupted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from topoadvisor.nccl import versions
from topoadvisor.nccl.levels import NcclPath

_TESTED: Final = ((70, "2.5.6"), (80, "2.7.3"), (90, "2.18.1"), (100, "2.25.1"), (120, "2.25.1"))
"""(compute capability × 10, first release that allows it); since 2.27.3 all from 7.0."""


@dataclass(frozen=True)
class Allowed:
    """Whether LL128 is allowed, and why."""

    yes: bool
    why: str


def tested(version: str, capability: int) -> bool:
    """Whether a release uses LL128 on this compute capability × 10."""
    if versions.at_least(version, "2.27.3"):
        return capability >= 70
    return any(capability == each and versions.at_least(version, since) for each, since in _TESTED)


def ll128(
    version: str, lowest: int, highest: int, inside: NcclPath, outside: NcclPath | None = None, *, c2c: bool = True
) -> Allowed:
    """`lowest` and `highest` are the compute capabilities × 10 of the job's GPUs, `inside` is the farthest path type of
    its channels between GPUs, `outside` that to the network, None = the job is on one host. `c2c` is NCCL_LL128_C2C.
    """
    farthest = NcclPath.NVB if versions.at_least(version, "2.18.6") else NcclPath.NVL
    wide = lowest >= 90 and versions.at_least(version, "2.18.1")
    if versions.at_least(version, "2.27.5") and not c2c:
        wide = False
    border = NcclPath.PXN if wide else NcclPath.PXB
    if not tested(version, lowest):
        return Allowed(False, f"compute capability {lowest / 10} is not among those where NCCL {version} uses it")
    if lowest != highest and not (versions.at_least(version, "2.30.3") and lowest >= 90):
        return Allowed(False, f"the GPUs differ in compute capability ({lowest / 10} to {highest / 10})")
    if inside > farthest:
        return Allowed(
            False, f"the channels take paths of type {inside.name}, and LL128 needs {farthest.name} or nearer"
        )
    if outside is not None and outside > border:
        return Allowed(False, f"the way to the network is {outside.name}, and LL128 needs {border.name} or nearer")
    return Allowed(True, f"compute capability {lowest / 10}, and the channels take paths of type {inside.name}")
