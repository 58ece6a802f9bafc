"""What NCCL does by itself: its defaults, by version and machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from topoadvisor.nccl import protocols, versions
from topoadvisor.nccl.levels import NcclPath, parse_int
from topoadvisor.nccl.settings import CONFIGURED, NEWEST, SettingInfo, registry

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
    answers = _p2p_levels(
        version, _machines(arch, cpu_vendor), broadwell=_broadwell(cpu_family, cpu_model), few_gpus=_few(gpus)
    )
    return answers.pop() if len(answers) == 1 else None


def least_p2p_level(version: str | None) -> NcclPath | None:
    """How far P2P reaches by default whatever the CPU and the number of GPUs; None for a version older than 2.6.4."""
    every = _p2p_levels(version, _machines(None, None), broadwell=(True, False), few_gpus=(True, False))
    return min(every, default=None)


def _p2p_levels(
    version: str | None,
    machines: Iterable[tuple[str, str]],
    *,
    broadwell: Iterable[bool],
    few_gpus: Iterable[bool],
) -> set[NcclPath]:
    if version is not None and not versions.at_least(version, "2.6.4"):
        return set()
    return {
        _p2p_level(era, machine, vendor, old, few)
        for era, (machine, vendor), old, few in product(_eras(version), machines, broadwell, few_gpus)
    }


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


def is_default(name: str, value: str, version: str | None) -> bool:
    """Whether NCCL does the same when the variable is not set to this value; false when that is not known.

    `version` None = not known: true only when every NCCL that reads the variable has this default. Only for numbers
    whose default is the same on every machine. Raises ValueError when `version` is no version.
    """
    # Only 1 does anything; what NCCL keeps when nothing is set is a number of its own.
    if name == "NCCL_P2P_DISABLE":
        return parse_int(value) == 0
    info = registry().get(name)
    if info is None or info.parser not in ("int", "bool-int") or name in _ON_MACHINE:
        return False
    known = [info.default_in(version)] if version is not None else [*info.history.values(), info.default]
    numbers = {_number(default) for default in known}
    return None not in numbers and numbers == {parse_int(value)}


def _number(default: str | None) -> int | None:
    """A default that is a plain number; None for one in words, or unknown."""
    if default is None or not re.fullmatch(r"-?[0-9]{1,18}|0x[0-9a-fA-F]{1,15}", default):
        return None
    return parse_int(default)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What defaults depend on; None = not known."""

    arch: str | None = None
    cpu_vendor: str | None = None
    cpu_family: int | None = None
    cpu_model: int | None = None
    gpus: int | None = None
    """GPUs of the job on this machine."""
    compute_capability: float | None = None
    """Of the oldest GPU: 8.0, 9.0."""
    nvlink: bool | None = None
    """Some GPU has an NVLink to another."""
    nvswitch: bool | None = None
    c2c: bool | None = None
    cuda: str | None = None
    """Highest CUDA version of the driver."""


@dataclass(frozen=True)
class Default:
    """What NCCL does when a variable is not set."""

    value: str | None
    """As the source spells it, sentinels included; None = not known, or not read in this release."""
    here: str | None
    """What that comes to on this machine; None = there is no telling, or nothing to add."""
    why: str


def default(info: SettingInfo, version: str | None, machine: Machine) -> Default:
    """The default of any variable of NCCL in one release, and what it comes to on one machine.

    Raises ValueError when `version` is no version.
    """
    if not info.exists_in(version):
        return Default(None, None, f"NCCL {version or NEWEST} does not read it")
    value = info.default_in(version)
    if value is None:
        return Default(None, None, "the default in this release is not known")
    judge = _ON_MACHINE.get(info.name)
    if judge is not None:
        here, why = judge(version, machine)
        return Default(value, here, why)
    meaning = info.sentinels.get(value)
    if value == CONFIGURED and info.configured is not None:
        meaning = f"{info.configured} where the program asks for nothing"
    return Default(value, None, meaning or "it is the same on every machine")


Judged = tuple[str | None, str]


def _p2p_here(version: str | None, machine: Machine) -> Judged:
    level = p2p_level(
        version or NEWEST,
        arch=machine.arch,
        cpu_vendor=machine.cpu_vendor,
        cpu_family=machine.cpu_family,
        cpu_model=machine.cpu_model,
        gpus=machine.gpus,
    )
    return (level.name if level else None), "it depends on the CPU, and since 2.23.4 on the number of GPUs"


def _gdr_here(version: str | None, machine: Machine) -> Judged:
    level = gdr_level(version or NEWEST, c2c=machine.c2c)
    return (level.name if level else None), "since 2.29.2 a chip-to-chip link widens it to P2C"


def _gdr_read_here(version: str | None, machine: Machine) -> Judged:
    why = f"since {_GDR_READ_AMPERE} on from compute capability 8.0; otherwise only with NVLink or a single GPU"
    newer = _since(version, _GDR_READ_AMPERE)
    if newer and machine.compute_capability is not None and machine.compute_capability >= 8:
        return "on", why
    if machine.gpus == 1 or machine.nvlink:
        return "on", why
    if machine.gpus is None or machine.nvlink is None or (newer and machine.compute_capability is None):
        return None, why
    return "off", why


def _cumem_here(version: str | None, machine: Machine) -> Judged:
    why = "since 2.19.1 on when the driver has CUDA 12.0 and the GPUs can map memory, which all since Volta do on Linux"
    if not _since(version, "2.19.1"):
        return "off", why
    return _on_when(machine.cuda, "12.0"), why


def _cumem_host_here(version: str | None, machine: Machine) -> Judged:
    why = "since 2.24.3 on from CUDA 12.6; since 2.26.3 only when an allocation works, which containers may prevent"
    if not _since(version, "2.24.3"):
        return "off", why
    return _on_when(machine.cuda, "12.6"), why


def _nvls_here(version: str | None, machine: Machine) -> Judged:
    least = 2 if _since(version, "2.28.7") else 3
    why = f"it needs Hopper or newer, an NVSwitch, CUDA 12.1 and at least {least} GPUs of the job on the machine"
    cuda = None if machine.cuda is None else versions.at_least(machine.cuda, "12.1")
    hopper = None if machine.compute_capability is None else machine.compute_capability >= 9
    enough = None if machine.gpus is None else machine.gpus >= least
    needs = (cuda, hopper, enough, machine.nvswitch)
    if False in needs:
        return "off", why
    return None if None in needs else "on where the GPU reports multicast", why


def _ll128_here(version: str | None, machine: Machine) -> Judged:
    why = "LL128 by itself only inside NVLink (up to NVB), and on compute capabilities where it was tested"
    if machine.compute_capability is None:
        return None, why
    tested = protocols.tested(version or NEWEST, round(machine.compute_capability * 10))
    return ("LL, Simple, and LL128 where every pair has NVLink" if tested else "LL and Simple"), why


def _cga_here(version: str | None, machine: Machine) -> Judged:
    why = "4 on Hopper and newer, unless the communicator's configuration says otherwise"
    if machine.compute_capability is None:
        return None, why
    return ("4" if machine.compute_capability >= 9 else "0"), why


def _p2p_read_here(version: str | None, machine: Machine) -> Judged:
    why = "on between two GPUs of compute capability 8.0 that NVLink joins"
    if machine.compute_capability is None or (machine.compute_capability == 8.0 and machine.nvlink is None):
        return None, why
    return ("on" if machine.compute_capability == 8.0 and machine.nvlink else "off"), why


def _overhead_here(version: str | None, machine: Machine) -> Judged:
    why = "2000 ns with x86 CPUs of AMD, 1000 ns with others"
    return (None if machine.cpu_vendor is None else "2000" if machine.cpu_vendor == "AMD" else "1000"), why


def _on_when(cuda: str | None, least: str) -> str | None:
    return None if cuda is None else "on" if versions.at_least(cuda, least) else "off"


def _since(version: str | None, first: str) -> bool:
    return version is None or versions.at_least(version, first)


_GDR_READ_AMPERE: Final = "2.19.1"
_ON_MACHINE: Final[Mapping[str, Callable[[str | None, Machine], Judged]]] = {
    "NCCL_P2P_LEVEL": _p2p_here,
    "NCCL_NET_GDR_LEVEL": _gdr_here,
    "NCCL_NET_GDR_READ": _gdr_read_here,
    "NCCL_CUMEM_ENABLE": _cumem_here,
    "NCCL_CUMEM_HOST_ENABLE": _cumem_host_here,
    "NCCL_NVLS_ENABLE": _nvls_here,
    "NCCL_PROTO": _ll128_here,
    "NCCL_CGA_CLUSTER_SIZE": _cga_here,
    "NCCL_P2P_READ_ENABLE": _p2p_read_here,
    "NCCL_NET_OVERHEAD": _overhead_here,
}
"""Variables whose default comes to something else on different machines."""
