"""What NCCL does by itself: its default levels, by version and machine, and its constants, by version."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

import yaml

from topoadvisor.nccl import versions
from topoadvisor.nccl.levels import NcclPath, parse_int

_ERAS: Final = ("2.6.4", "2.7.3", "2.8.4", "2.9.6", "2.23.4")
"""Releases that changed the default P2P level."""

_X86: Final = ("x86_64", "amd64", "i386", "i686")
_ARM: Final = ("aarch64", "arm64")
_X86_VENDORS: Final = ("AMD", "Intel", "Zhaoxin")


def p2p_level(
    version: str | None,
    *,
    arch: str | None,
    cpu_vendor: str | None,
    cpu_family: int | None = None,
    cpu_model: int | None = None,
    gpus: int | None,
) -> NcclPath | None:
    """The farthest pair of GPUs that NCCL lets talk directly when no variable says otherwise (`ncclTopoCheckP2p`).

    `gpus` counts the GPUs of one machine that take part in the job. Inputs may be None, not known: the answer is None
    only when it depends on them, or when the version is older than 2.6.4. NVLink pairs are within every level but LOC.

    Raises ValueError when `version` is no version.
    """
    if version is not None and not versions.at_least(version, "2.6.4"):
        return None
    answers = {
        _p2p_level(era, machine, vendor, broadwell, few)
        for era, (machine, vendor), broadwell, few in product(
            _eras(version), _machines(arch, cpu_vendor), _broadwell(cpu_family, cpu_model), _few(gpus)
        )
    }
    return answers.pop() if len(answers) == 1 else None


def _p2p_level(era: str, machine: str, vendor: str, broadwell: bool, few_gpus: bool) -> NcclPath:
    x86 = machine == "x86"
    if era == "2.23.4":
        return NcclPath.SYS if x86 and vendor == "AMD" and few_gpus else NcclPath.PXB
    if machine == "arm":
        return NcclPath.PXB
    if x86 and vendor == "Intel":
        if broadwell or era == "2.9.6":
            return NcclPath.PXB
        return NcclPath.SYS if era == "2.6.4" else NcclPath.PHB
    if x86 and vendor == "Zhaoxin" and era in ("2.8.4", "2.9.6"):
        return NcclPath.PXB
    return NcclPath.SYS


def _eras(version: str | None) -> tuple[str, ...]:
    if version is None:
        return _ERAS
    return ([era for era in _ERAS if versions.at_least(version, era)][-1],)


def _machines(arch: str | None, vendor: str | None) -> list[tuple[str, str]]:
    """The (machine, vendor) pairs that are possible; only x86 vendors make a difference."""
    if arch in _ARM:
        return [("arm", "")]
    if arch is not None and arch not in _X86:
        return [("other", "")]
    if vendor is not None and (arch in _X86 or vendor in _X86_VENDORS):
        return [("x86", vendor)]
    x86 = [("x86", possible) for possible in (*_X86_VENDORS, "")]
    if arch is not None:
        return x86
    return [("arm", ""), ("other", ""), *(x86 if vendor is None else [])]


def _broadwell(family: int | None, model: int | None) -> tuple[bool, ...]:
    """Whether NCCL counts an Intel CPU among Broadwell and older: it is not of family 6 with model 0x55 or above."""
    if family is not None and family != 6:
        return (True,)
    if model is not None and (model < 0x55 or family is not None):
        return (model < 0x55,)
    return (True, False)


def _few(gpus: int | None) -> tuple[bool, ...]:
    return (True, False) if gpus is None else (gpus <= 2,)


def gdr_level(version: str | None, *, c2c: bool | None) -> NcclPath | None:
    """The farthest GPU and NIC between which NCCL uses GPUDirect RDMA when no variable says otherwise.

    `c2c`: the GPUs have a chip-to-chip link to the CPU and NCCL_NET_GDR_C2C is not 0; None = not known. The answer is
    None only when it depends on what is not known. Before 2.29.2 such links were judged apart from this level.

    Raises ValueError when `version` is no version.
    """
    if c2c is False or (version is not None and not versions.at_least(version, "2.29.2")):
        return NcclPath.PXB
    return NcclPath.P2C if c2c and version is not None else None


_FILE: Final = Path(__file__).with_name("defaults.yaml")


def is_default(name: str, value: str, version: str | None) -> bool:
    """Whether NCCL does the same when the variable is not set to this value; false when that is not known.

    `version` None = not known: true only when every NCCL that reads the variable has this default. Only for variables
    whose default is a constant; levels depend on the machine. Raises ValueError when `version` is no version.
    """
    # Only 1 does anything; what NCCL keeps when nothing is set is a number of its own.
    if name == "NCCL_P2P_DISABLE":
        return parse_int(value) == 0
    known = _constants().get(name)
    if known is None:
        return False
    values = [default for since, default in known if version is None or versions.at_least(version, since)]
    if version is not None:
        values = values[-1:]
    return set(values) == {parse_int(value)}


@cache
def _constants() -> dict[str, tuple[tuple[str, int], ...]]:
    """Name → (first release, default) in order of releases."""
    rows = yaml.load(_FILE.read_bytes(), Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for name, text in rows.items():
        steps = [step.split() for step in text.split(", ")]
        found[name] = tuple((since, int(value)) for since, value in steps)
    return found
