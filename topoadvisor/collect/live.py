"""All sources → one Snapshot, none of which can take the others with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from topoadvisor import __version__, pci
from topoadvisor.collect import host, nccl_lib, nvidia_smi, nvml, surroundings, sysfs, variables
from topoadvisor.collect.world import Files, Job, World, printable
from topoadvisor.snapshot import Driver, Gpu, Host, NcclLibrary, PciDevice, Snapshot, Source

T = TypeVar("T")

DEADLINE_S: Final = 20.0
"""How long NVML and each `nvidia-smi` command may take; they run at the same time."""
_GPU_CLASSES: Final = ("0x0300", "0x0302")
_ERRORS_KEPT: Final = 50
"""Of one file source: a sysfs that is closed to us fails the same way for every device."""


def capture(world: World, *, deadline_s: float = DEADLINE_S) -> Snapshot:
    """Read everything. Raises nothing but KeyboardInterrupt; no process of ours is left running either way."""
    desk = _Desk(world)
    jobs: dict[str, Job] = {}
    nvml_job = desk.start_nvml()
    try:
        jobs = nvidia_smi.start(world)
        pci_devices = desk.read("sysfs", sysfs.read_pci, None, absent="there is no /sys/bus/pci")
        numa = desk.read("sysfs numa", sysfs.read_numa, None, absent="the kernel shows no NUMA nodes")
        nics = desk.read("sysfs network", sysfs.read_nics, None, absent="there is no /sys/class/net")
        groups = desk.read("sysfs iommu", sysfs.read_iommu, None, absent="there is no /sys/kernel/iommu_groups")
        dmi = desk.read("dmi", host.read_dmi, None, absent="the firmware tables are not shown here (/sys/class/dmi/id)")
        machine = desk.read("procfs", lambda files: host.read_host(files, world, dmi), Host())
        machine = desk.read("surroundings", lambda files: surroundings.add_to_host(machine, files, world), machine)
        driver = desk.read(
            "procfs driver",
            lambda files: surroundings.driver_parameters(host.read_driver(files), files),
            Driver(),
            absent="there is no /proc/driver/nvidia/version: the NVIDIA kernel driver is not loaded",
        )
        libraries: list[NcclLibrary] = desk.read(
            "nccl", lambda files: nccl_lib.read(files, world), [], absent="no libnccl.so was found on this machine"
        )
        in_force = desk.read(
            "environment",
            lambda _: variables.from_environment(world),
            None,
            doubt=f"these are the variables of this process, not of one below {world.root}"
            if world.elsewhere
            else None,
        )
        in_files = desk.read("nccl.conf", lambda files: variables.from_files(files, world, libraries), None)
        answers = desk.finish_nvml(nvml_job, deadline_s)
        printed = nvidia_smi.finish(jobs, deadline_s)
    finally:
        for job in (nvml_job, *jobs.values()):
            if job is not None:
                job.stop()
    if world.elsewhere and pci_devices is not None and _are_strangers(answers.gpus, pci_devices):
        reason = f"the GPUs of this machine are not among the PCI devices below {world.root}: that is another machine"
        answers = nvml.Reading(Source(name="nvml", status="absent", reason=reason), Driver(), [], None)
        printed = nvidia_smi.Reading(
            [msgspec.structs.replace(source, status="absent", reason=reason) for source in printed.sources], [], []
        )
    told = _read_driver_gpus(Files(world.root))
    gpus = _with_nearest_node(answers.gpus, pci_devices or [])
    if answers.source.status in ("absent", "failed"):
        gpus = _gpus_without_nvml(told, pci_devices or [])
    return Snapshot(
        captured_at=world.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        tool=f"topoadvisor {__version__}",
        sources=[answers.source, *printed.sources, *desk.sources],
        gpus=_with_memory_node(gpus, told),
        p2p=answers.p2p,
        nics=nics,
        pci=pci_devices,
        host=msgspec.structs.replace(machine, dmi=dmi, numa_nodes=numa, iommu_groups=groups),
        driver=msgspec.structs.replace(
            driver,
            version=answers.driver.version or driver.version,
            cuda=answers.driver.cuda,
            confidential=answers.driver.confidential,
        ),
        nccl_libraries=libraries,
        settings=surroundings.with_existence(
            None if in_force is None and in_files is None else [*(in_force or []), *(in_files or [])],
            Files(world.root),
            world,
        ),
        matrices=printed.matrices,
        raw=printed.raw,
    )


class _Desk:
    """Asks one source after the other and writes down how each went."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sources: list[Source] = []

    def read(
        self,
        name: str,
        reader: Callable[[Files], T],
        empty: T,
        *,
        absent: str | None = None,
        doubt: str | None = None,
    ) -> T:
        """Run one reader. What is equal to `empty` counts as absent when `absent` says why that is so."""
        files = Files(self._world.root)
        started = self._world.clock()
        status: Any = "ok"
        reason = None
        try:
            value = reader(files)
        except Exception as error:
            # Isolation is the point: whatever a reader trips over, the other sources are still worth having.
            value, status, reason = empty, "failed", printable(f"reading it failed: {type(error).__name__}: {error}")
        else:
            if absent is not None and value == empty:
                status, reason = "absent", files.complaint() or absent
            elif files.errors or doubt:
                status, reason = "partial", files.complaint() or doubt
        seconds = round(self._world.clock() - started, 4)
        errors = files.errors[:_ERRORS_KEPT]
        self.sources.append(Source(name=name, status=status, reason=reason, seconds=seconds, errors=errors))
        return value

    def start_nvml(self) -> Job | None:
        try:
            return self._world.start_nvml()
        except OSError:
            return None

    def finish_nvml(self, job: Job | None, deadline_s: float) -> nvml.Reading:
        if job is None:
            return nvml.gather([], cut="the process that asks NVML could not be started")
        done = job.finish(deadline_s)
        cut = f"NVML was cut off after {deadline_s:g} s"
        if done.code is not None:
            how = f"was ended by signal {-done.code}" if done.code < 0 else f"ended early: {printable(done.complaint)}"
            cut = f"the process that asks NVML {how}"
        return nvml.gather(nvml.parse_pieces(done.out), cut=cut, seconds=done.seconds)


def _are_strangers(gpus: list[Gpu], devices: list[PciDevice]) -> bool:
    """NVML shows GPUs, and none of them stands in this PCI tree."""
    listed = {device.address: device.device for device in devices}
    return bool(gpus) and not any(
        gpu.address in listed and (gpu.pci_device is None or listed[gpu.address] in (None, gpu.pci_device))
        for gpu in gpus
    )


def _with_nearest_node(gpus: list[Gpu], devices: list[PciDevice]) -> list[Gpu]:
    """NVML's GPUs, with sysfs' NUMA node where NVML names none."""
    nodes = {device.address: device.numa_node for device in devices}
    return [
        msgspec.structs.replace(gpu, numa_node=nodes.get(gpu.address or "")) if gpu.numa_node is None else gpu
        for gpu in gpus
    ]


def _gpus_without_nvml(told: Mapping[str, Mapping[str, str]], devices: list[PciDevice]) -> list[Gpu]:
    """The GPUs that the PCI tree or the kernel driver shows, numbered in bus order as NVML would number them.

    Not those given away to a guest, nor virtual functions made for one. Name and UUID are what the driver says.
    """
    listed = {device.address: device for device in devices}
    found = {
        device.address
        for device in devices
        if device.vendor == pci.NVIDIA and (device.class_code or "").startswith(_GPU_CLASSES)
    }
    elsewhere = {device.address for device in devices if device.driver == "vfio-pci" or device.sriov_of is not None}
    gpus = []
    for index, address in enumerate(sorted((found | told.keys()) - elsewhere, key=pci.sort_key)):
        words, device = told.get(address, {}), listed.get(address)
        gpus.append(
            Gpu(
                index=index,
                name=words.get("Model"),
                address=address,
                uuid=words.get("GPU UUID") if "?" not in words.get("GPU UUID", "?") else None,
                pci_device=device.device if device is not None else None,
                numa_node=device.numa_node if device is not None else None,
            )
        )
    return gpus


def _read_driver_gpus(files: Files) -> dict[str, dict[str, str]]:
    """PCI address → what the kernel driver says of a GPU in `information` and `numa_status`."""
    told = {}
    for name in files.names("/proc/driver/nvidia/gpus") or []:
        try:
            address = pci.normalize(name)
        except ValueError:
            continue
        texts = (files.text(f"/proc/driver/nvidia/gpus/{name}/{file}", 4096) for file in ("information", "numa_status"))
        told[address] = {
            key: value for text in texts for key, value in re.findall(r"^([^:\n]+):\s*(\S.*?)\s*$", text or "", re.M)
        }
    return told


def _with_memory_node(gpus: list[Gpu], told: Mapping[str, Mapping[str, str]]) -> list[Gpu]:
    """GPUs with the NUMA node of their own memory as the driver says it (POWER9, Grace), where NVML did not."""
    nodes = {address: words.get("Node", "") for address, words in told.items()}
    return [
        msgspec.structs.replace(gpu, memory_numa_node=int(node))
        if gpu.memory_numa_node is None and re.fullmatch(r"[0-9]{1,5}", node := nodes.get(gpu.address or "", ""))
        else gpu
        for gpu in gpus
    ]
