"""NCCL settings in force or waiting in a file, and the neighbours that steer the same wires. First wins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from topoadvisor.collect.world import Files, World, printable
from topoadvisor.nccl import conf
from topoadvisor.nccl.settings import find
from topoadvisor.snapshot import NcclLibrary, Setting

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
_FILE_LIMIT: Final = 1 << 20


def from_environment(world: World) -> list[Setting]:
    """Settings of this process, by name."""
    return [
        Setting(name=printable(name), value=printable(value), origin="environment")
        for name, value in sorted(world.environ.items())
        if _known(name) or ((name.startswith(_PREFIXES) or name in _NAMES) and not _SECRET.search(name))
    ]


def from_files(files: Files, world: World, libraries: list[NcclLibrary]) -> list[Setting]:
    """Lines of the files that NCCL would read, in its order, as it would export them."""
    version = libraries[0].version if libraries else None
    settings: list[Setting] = []
    # Below another root the variable names a path of this one.
    environ = {name: text for name, text in world.environ.items() if not (world.elsewhere and name == conf.NAMED_BY)}
    for path in (str(Path.cwd() / path) for path in conf.paths(environ, world.home, version)):
        data = files.data(path, _FILE_LIMIT)
        if data is None:
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
