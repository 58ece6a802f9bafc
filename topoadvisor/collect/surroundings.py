"""What else decides whether a path works: vendors' files, driver parameters, device nodes, plugins, kernel switches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from topoadvisor.collect import nccl_lib
from topoadvisor.collect.world import Files, World, printable
from topoadvisor.hardware import vendor_files
from topoadvisor.snapshot import Driver, Host, Setting

_PARAMETERS: Final = frozenset(
    {"EnableStreamMemOPs", "RegistryDwords", "GrdmaPciTopoCheckOverride", "CreateImexChannel0", "NvLinkDisable"}
)
_PLUGIN: Final = re.compile(r"libnccl-net(?:-\w{1,40})?\.so")
_CAPABILITY_BITS: Final = {14: "IPC_LOCK", 23: "SYS_NICE"}
"""Numbers in `linux/capability.h`."""
_FABRIC_MANAGER: Final = "nv-fabricmanager"
_DEADLINE_S: Final = 3.0


def add_to_host(machine: Host, files: Files, world: World) -> Host:
    """The host with everything of this module that belongs to it."""
    balancing = files.text("/proc/sys/kernel/numa_balancing", 16)
    return msgspec.structs.replace(
        machine,
        fabric_manager=_fabric_manager(files, world),
        governor=_optional(files, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        numa_balancing=None if balancing is None else balancing != "0",
        capabilities=_capabilities(files.text("/proc/self/status") or ""),
        uverbs=_uverbs(files, world),
        # A copied tree of another machine need not hold its device nodes and programs.
        paths=None if world.elsewhere else {path: files.exists(path) for path in vendor_files.ALL},
        network_plugins=_plugins(files, world),
    )


def driver_parameters(driver: Driver, files: Files) -> Driver:
    """The driver with the parameters that other programs ask for."""
    text = files.text("/proc/driver/nvidia/params") if driver.banner is not None else None
    if text is None:
        return driver
    lines = (line.partition(":") for line in text.splitlines())
    return msgspec.structs.replace(
        driver,
        parameters={name: printable(value.strip().strip('"')) for name, _, value in lines if name in _PARAMETERS},
    )


def with_existence(settings: Sequence[Setting] | None, files: Files, world: World) -> list[Setting] | None:
    """The settings, with whether the file is there that a setting names."""
    if settings is None or world.elsewhere:
        return None if settings is None else list(settings)
    return [
        msgspec.structs.replace(each, exists=files.exists(each.value))
        if each.name in vendor_files.NAMED_BY and each.value.startswith("/")
        else each
        for each in settings
    ]


def _optional(files: Files, path: str) -> str | None:
    return files.text(path, 64) if files.exists(path) else None


def _capabilities(status: str) -> list[str] | None:
    mask = re.search(r"^CapEff:\s*([0-9a-f]{1,16})\s*$", status, re.MULTILINE)
    if mask is None:
        return None
    return [name for bit, name in _CAPABILITY_BITS.items() if int(mask.group(1), 16) >> bit & 1]


def _uverbs(files: Files, world: World) -> int | None:
    if world.elsewhere or not files.exists("/dev"):
        return None
    names = files.names("/dev/infiniband") if files.exists("/dev/infiniband") else []
    return sum(name.startswith("uverbs") for name in names or [])


def _plugins(files: Files, world: World) -> list[str] | None:
    """Paths of network plugins, in the order in which the loader would find them."""
    found = [
        f"{folder}/{name}"
        for folder in nccl_lib.folders(files, world)
        for name in (files.names(folder) if files.exists(folder) else None) or []
        if _PLUGIN.fullmatch(name)
    ]
    return [printable(path) for path in dict.fromkeys(found)]


def _fabric_manager(files: Files, world: World) -> str | None:
    """The version that the fabric manager's program states of itself."""
    if world.elsewhere or (program := world.which(_FABRIC_MANAGER)) is None:
        return None
    try:
        text = world.start([program, "--version"]).finish(_DEADLINE_S).text
    except OSError:
        return None
    version = re.search(r"\b[0-9]{3,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?\b", text)
    return version.group() if version else None
