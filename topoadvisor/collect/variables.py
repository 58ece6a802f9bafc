"""NCCL settings in force or waiting in a file, and the neighbours that steer the same wires. First wins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from topoadvisor.collect.world import Files, World, printable
from topoadvisor.nccl import conf, versions
from topoadvisor.nccl.settings import find
from topoadvisor.snapshot import NcclLibrary, Setting

SYSTEM_FILE: Final = "/etc/nccl.conf"
_PREFIXES: Final = ("NCCL_", "TORCH_NCCL_", "NVSHMEM_", "FI_", "UCX_", "OFI_NCCL_", "VLLM_")
_NAMES: Final = {
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "NVIDIA_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NTASKS",
}
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASS(WORD|WD)|CREDENTIAL", re.I)
"""Names never read, whatever their prefix, unless they are known: a snapshot is made to be handed on."""
_CONF_FILE_SINCE: Final = "2.23.4"
_HOME_VARIABLE_SINCE: Final = "2.30.3"
_FILE_LIMIT: Final = 1 << 20


def from_environment(world: World) -> list[Setting]:
    """Settings of this process, by name."""
    return [
        Setting(name=printable(name), value=printable(value), origin="environment")
        for name, value in sorted(world.environ.items())
        if _known(name) or ((name.startswith(_PREFIXES) or name in _NAMES) and not _SECRET.search(name))
    ]


def from_files(files: Files, world: World, libraries: list[NcclLibrary]) -> list[Setting]:
    """Lines of the per-user file, then of /etc/nccl.conf, as NCCL would export them.

    Since NCCL 2.23.4 NCCL_CONF_FILE replaces the per-user file; since 2.30.3 `~` is $HOME, before it was the home
    directory of the password database (`src/misc/param.cc`).
    """
    version = libraries[0].version if libraries else None
    settings: list[Setting] = []
    for path in (_user_file(world, version), SYSTEM_FILE):
        data = files.data(path, _FILE_LIMIT) if path else None
        if path is None or data is None:
            continue
        settings += [
            Setting(
                name=printable(line.name),
                value=printable(line.value),
                origin=printable(path),
                line=line.line,
                managed=line.managed,
            )
            for line in conf.parse(data.decode(errors="surrogateescape"), version=version)
            if _known(line.name) or not _SECRET.search(line.name)
        ]
    return settings


def _known(name: str) -> bool:
    """Whether the register has it: NCCL_IB_PKEY is the row of a table, and no key."""
    return find(name) is not None


def _user_file(world: World, version: str | None) -> str | None:
    named = world.environ.get("NCCL_CONF_FILE")
    # Below another root the variable names a path of this one.
    if named and not world.elsewhere and _since(version, _CONF_FILE_SINCE):
        return str(Path.cwd() / named)
    by_variable = world.environ.get("HOME") if _since(version, _HOME_VARIABLE_SINCE) else None
    home = by_variable or world.home
    return f"{home.rstrip('/')}/.nccl.conf" if home and home.startswith("/") else None


def _since(version: str | None, first: str) -> bool:
    """Whether a version is `first` or newer; an unknown one is taken for the newest."""
    return version is None or versions.at_least(version, first)
