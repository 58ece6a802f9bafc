"""Facts of the machine around the GPUs: driver, CPU, virtualisation, IOMMU, platform, limits, kernel, NCCL library."""

from __future__ import annotations

import re
from typing import Final

from topoadvisor.hardware.clouds import cloud
from topoadvisor.nccl import versions
from topoadvisor.rules.functions import version_ge
from topoadvisor.rules.scope import (
    ASSUMED,
    DMI,
    DRIVER,
    IOMMU,
    NCCL,
    NUMA,
    NVML,
    PCI,
    PROC,
    Fact,
    Known,
    Scope,
    Sources,
    Unknown,
    any_of,
    follow,
    negate,
)
from topoadvisor.snapshot import LOG, PciDevice, Snapshot

DMABUF_KERNEL: Final = "5.12"
"""First Linux kernel whose RDMA stack takes DMA-BUF memory regions."""

_DGX: Final = re.compile(r"\bDGX[ -]?(A100|A800|H100|H200|H800|B200|B300|GB200|GB300|GH200|STATION|SPARK|1|2)\b", re.I)
_CUDA_OF_BRANCH: Final = {
    450: "11.0", 455: "11.1", 460: "11.2", 465: "11.3", 470: "11.4", 495: "11.5", 510: "11.6", 515: "11.7", 520: "11.8",
    525: "12.0", 530: "12.1", 535: "12.2", 545: "12.3", 550: "12.4", 555: "12.5", 560: "12.6", 565: "12.7", 570: "12.8",
    575: "12.9", 580: "13.0", 590: "13.1",
}  # fmt: skip
"""Branch of the driver → CUDA (CUDA Toolkit release notes, toolkit driver versions; `nvidia-smi` prints it)."""

_PASSTHROUGH_CLASSES: Final = ("0x0300", "0x0302")
_NVIDIA: Final = "0x10de"


def gather(scope: Scope, snapshot: Snapshot, sources: Sources) -> None:
    """Record every node fact that needs neither the GPUs nor the topology."""
    _driver(scope, snapshot, sources)
    _cpu(scope, snapshot, sources)
    _virtual(scope, snapshot, sources)
    _iommu(scope, snapshot, sources)
    _platform(scope, snapshot, sources)
    _limits(scope, snapshot, sources)
    _kernel(scope, snapshot, sources)
    _fabric(scope, snapshot, sources)


def is_gpu(device: PciDevice) -> bool:
    """An NVIDIA display or 3D controller, whatever driver holds it."""
    return device.vendor == _NVIDIA and (device.class_code or "").startswith(_PASSTHROUGH_CLASSES)


def _version(text: str | None, origin: str, why: str) -> Fact:
    """A version that conditions can compare; what is none must not look old to them."""
    if text is None:
        return Unknown(why)
    return Known(text, origin) if versions.is_version(text) else Unknown(f"{text!r} is no version")


def _driver(scope: Scope, snapshot: Snapshot, sources: Sources) -> None:
    driver = snapshot.driver
    asked = (*NVML, *DRIVER)
    origin, why = sources.origin(*asked), sources.why(*asked)
    version = scope.put("driver.version", _version(driver.version, origin, why))
    scope.read("driver.flavour", driver.flavour, sources.origin(*DRIVER), sources.why(*DRIVER))
    scope.put("driver.patched_p2p", _patched(driver.banner, version, sources))
    if driver.cuda is None and isinstance(version, Known) and (cuda := _cuda_of(str(version.value))):
        scope.put("cuda.version", Known(cuda, "inferred: from the branch of the driver"))
    else:
        scope.read("cuda.version", driver.cuda, sources.origin(*NVML), sources.why(*NVML))
    libraries = snapshot.nccl_libraries
    first = next((library.version for library in libraries or [] if library.version), None)
    why = sources.why(*NCCL)
    missing = why if libraries is None else "no NCCL library was found" if not libraries else "its version was not read"
    scope.put("nccl.version", _version(first, sources.origin(*NCCL), missing))
    found = [library for library in libraries or [] if library.path != ASSUMED]
    scope.read("nccl.libraries", len(found) if found or libraries == [] else None, sources.origin(*NCCL), why)


def _cuda_of(driver: str) -> str | None:
    """Highest CUDA version of a driver's branch; None for a branch that came with no new one."""
    return _CUDA_OF_BRANCH.get(versions.parse(driver)[0])


def _patched(banner: str | None, version: Fact, sources: Sources) -> Fact:
    if banner:
        return Known("p2p" in banner.lower(), sources.origin(*DRIVER))
    return follow(lambda text: "p2p" in text.lower(), version)


def _cpu(scope: Scope, snapshot: Snapshot, sources: Sources) -> None:
    host = snapshot.host
    asked = PROC
    origin, why = sources.origin(*asked), sources.why(*asked)
    cpu = host.cpu
    scope.read("cpu.vendor", cpu and cpu.vendor, origin, why)
    scope.read("cpu.architecture", cpu and cpu.architecture, origin, why)
    scope.read("cpu.model_name", cpu and cpu.model_name, origin, why)
    scope.read("cpu.family", cpu and cpu.family, origin, why)
    scope.read("cpu.model", cpu and cpu.model, origin, why)
    scope.read("cpu.sockets", cpu and cpu.sockets, origin, why)
    nodes = host.numa_nodes
    scope.read("numa.count", None if nodes is None else len(nodes), sources.origin(*NUMA), sources.why(*NUMA))


def _virtual(scope: Scope, snapshot: Snapshot, sources: Sources) -> None:
    host = snapshot.host
    asked = (*PROC, *DMI)
    origin, why = sources.origin(*asked), sources.why(*asked)
    hypervisor = scope.read("vm.hypervisor", host.hypervisor, origin, why)
    inside = any(gpu.virtualization in ("passthrough", "vgpu") for gpu in snapshot.gpus)
    if inside and isinstance(hypervisor, Unknown):
        scope.put("vm.guest", Known(True, sources.origin(*NVML)))
    else:
        scope.put("vm.guest", follow(lambda text: text != "none", hypervisor))
    given_away = None
    if snapshot.pci is not None and snapshot.origin != LOG:
        given_away = any(device.driver == "vfio-pci" and is_gpu(device) for device in snapshot.pci)
    scope.read("vm.host_with_passthrough", given_away, sources.origin(*PCI), sources.why(*PCI))
    kind = scope.read("container.kind", host.container, sources.origin(*PROC), sources.why(*PROC))
    scope.put("container.any", follow(lambda text: text != "none", kind))


def _iommu(scope: Scope, snapshot: Snapshot, sources: Sources) -> None:
    groups = snapshot.host.iommu_groups
    origin, why = sources.origin(*IOMMU), sources.why(*IOMMU)
    addresses = {gpu.address for gpu in snapshot.gpus if gpu.address}
    mine = [group for group in groups or [] if addresses.intersection(group.devices)]
    types = [group.type for group in mine]
    if groups is not None and not mine and (not groups or addresses):
        mode = "off"
    elif not mine or None in types:
        mode = None
        why = why if groups is None else f"{origin} does not say which type the GPUs' IOMMU groups have"
    else:
        mode = ", ".join(sorted({kind for kind in types if kind}))
    if mode is None and (told := _told_to_kernel(snapshot.host.command_line)):
        mode, origin = told
    scope.read("iommu.mode", mode, origin, why)
    found = scope.facts["iommu.mode"]
    supposed = isinstance(found, Known) and found.origin == ASSUMED
    read = None if groups is None or supposed else Known(bool(groups), origin)
    scope.put("iommu.enabled", read or follow(lambda text: text != "off", found))
    if scope.value("iommu.enabled") is False and not supposed:
        # Who assumes that there is no IOMMU has said that nothing is translated.
        found = follow(lambda _: "off", scope.facts["iommu.enabled"])
        scope.put("iommu.mode", found)
    scope.put("iommu.translated", follow(lambda text: bool({"DMA", "DMA-FQ"} & set(text.split(", "))), found))


def _told_to_kernel(command_line: str | None) -> tuple[str, str] | None:
    """The IOMMU mode that the kernel was told on its command line, and where that is from; None without one."""
    words = (command_line or "").split()
    off = {"amd_iommu=off", "intel_iommu=off", "iommu=off"} & set(words)
    through = {"iommu=pt", "iommu.passthrough=1"} & set(words)
    if not off and not through:
        return None
    word = sorted(off or through)[0]
    return ("off" if off else "identity"), f"inferred: {word} on the kernel's command line"


def _platform(scope: Scope, snapshot: Snapshot, sources: Sources) -> None:
    dmi = snapshot.host.dmi
    origin, why = sources.origin(*DMI), sources.why(*DMI)
    fields = dmi or {}
    scope.read("platform.vendor", fields.get("sys_vendor"), origin, why)
    product = scope.read("platform.product", fields.get("product_name"), origin, why)
    if isinstance(product, Known) and product.origin == ASSUMED:
        scope.put("platform.cloud", follow(lambda name: cloud({**fields, "product_name": str(name)}), product))
    else:
        scope.read("platform.cloud", None if dmi is None else cloud(fields), origin, why)
    scope.put("platform.system", follow(_system, product))


def _system(product: str) -> str:
    found = _DGX.search(product)
    return f"dgx-{found[1].lower()}" if found else "none"


def _limits(scope: Scope, snapshot: Snapshot, sources: Sources) -> None:
    host = snapshot.host
    origin, why = sources.origin(*PROC), sources.why(*PROC)
    scope.read("shm.total_bytes", host.shm_total_bytes, origin, why)
    scope.read("shm.free_bytes", host.shm_free_bytes, origin, why)
    scope.read("limits.memlock_bytes", host.memlock_bytes, origin, why)
    scope.read("limits.open_files", host.open_files, origin, why)


def _kernel(scope: Scope, snapshot: Snapshot, sources: Sources) -> None:
    host = snapshot.host
    origin, why = sources.origin(*PROC), sources.why(*PROC)
    kernel = scope.read("kernel.version", host.kernel, origin, why)
    scope.read("kernel.command_line", host.command_line, origin, why)
    loaded = None if host.modules is None else set(host.modules)
    peermem = None if loaded is None else bool(loaded & {"nvidia_peermem", "nv_peer_mem"})
    scope.read("modules.nvidia_peermem", peermem, origin, why)
    for name in ("mlx5_ib", "ib_umad"):
        scope.read(f"modules.{name}", None if loaded is None else name in loaded, origin, why)
    scope.read("modules.gdrdrv", None if loaded is None else "gdrdrv" in loaded, origin, why)
    scope.put("gdr.peermem", scope.facts["modules.nvidia_peermem"])
    open_modules = follow(lambda flavour: flavour == "open", scope.facts["driver.flavour"])
    recent = follow(lambda version: version_ge(version, DMABUF_KERNEL), kernel)
    scope.put("gdr.dmabuf_possible", negate(any_of([negate(open_modules), negate(recent)])))
    scope.put("gdr.any_path", any_of([scope.facts["gdr.peermem"], scope.facts["gdr.dmabuf_possible"]]))


def _fabric(scope: Scope, snapshot: Snapshot, sources: Sources) -> None:
    host = snapshot.host
    state = (host.services or {}).get("nvidia-fabricmanager")
    scope.read("fabricmanager.state", state, sources.origin(*PROC), sources.why(*PROC))
    scope.read("nvswitch.visible", host.nvswitch_control, sources.origin(*PROC), sources.why(*PROC))
    scope.read("topology_file.default", host.topology_file, sources.origin(*PROC), sources.why(*PROC))
