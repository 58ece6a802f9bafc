"""procfs, DMI and the few files that say what surrounds the GPUs: CPU, virtualisation, limits, services."""

from __future__ import annotations

import os
import re
from typing import Any, Final

import msgspec

from topoadvisor import cpu_lists
from topoadvisor.collect import sysfs
from topoadvisor.collect.world import Files, World
from topoadvisor.hardware import processors
from topoadvisor.numbers import spelled, whole
from topoadvisor.snapshot import Cpu, Driver, Host

_DMI_NAMES: Final = (
    "sys_vendor",
    "product_name",
    "product_version",
    "product_family",
    "board_vendor",
    "board_name",
    "bios_vendor",
    "bios_version",
    "chassis_vendor",
    "chassis_asset_tag",
)
"""Never `*_serial` nor `product_uuid`, which name one machine."""
_HYPERVISOR_DMI: Final = (
    ("qemu", "KVM"),
    ("kvm", "KVM"),
    ("amazon ec2", "KVM"),
    ("google", "KVM"),
    ("openstack", "KVM"),
    ("alibaba cloud", "KVM"),
    ("vmware", "VMware"),
    ("virtualbox", "VirtualBox"),
    ("innotek", "VirtualBox"),
    ("xen", "Xen"),
    ("microsoft corporation virtual machine", "Microsoft"),
)
_HYPERVISOR_CLOCKS: Final = (("kvm-clock", "KVM"), ("hyperv", "Microsoft"), ("xen", "Xen"))
_CGROUP_CONTAINERS: Final = (("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("lxc", "lxc"))
_SERVICES: Final = ("nvidia-fabricmanager", "nvidia-imex")
_UNIT_FOLDERS: Final = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_SYSTEMCTL_DEADLINE_S: Final = 5.0
_ROUTE_UP: Final = 0x1
_DEFAULT_ROUTE: Final = re.compile(
    r"^(\S+)\s+00000000\s+[0-9A-F]+\s+([0-9A-F]{1,8})\s+[0-9]+\s+[0-9]+\s+([0-9]{1,10})\s+00000000\b", re.MULTILINE
)
"""Interface, flags and metric of a route to 0.0.0.0/0 in /proc/net/route."""
_CPUINFO_HEAD: Final = 1 << 14
"""The first processor's entry; the whole file is slow to make on a machine with hundreds of them."""


def read_dmi(files: Files) -> dict[str, str] | None:
    """Firmware's names for the machine; None when the kernel shows none."""
    base = "/sys/class/dmi/id"
    if files.names(base) is None:
        return None
    texts = {name: files.text(f"{base}/{name}", 1024) for name in _DMI_NAMES}
    return {name: text for name, text in texts.items() if text}


def read_driver(files: Files) -> Driver:
    """Version and flavour of the loaded kernel driver."""
    text = files.text("/proc/driver/nvidia/version", 4096)
    banner = text.splitlines()[0] if text else None
    version = re.search(r"\b[0-9]{3,4}\.[0-9]+(?:\.[0-9]+)?\b", banner or "")
    flavour: Any = None
    if banner is not None:
        flavour = "open" if "Open Kernel Module" in banner else "proprietary"
    return Driver(version=version.group() if version else None, flavour=flavour, banner=banner)


def read_host(files: Files, world: World, dmi: dict[str, str] | None) -> Host:
    """Everything of `Host` but NUMA nodes and IOMMU groups."""
    limits = _read_limits(files)
    cpuinfo = _read_cpuinfo(files)
    container = _container(files, world)
    modules = files.text("/proc/modules", 1 << 20)
    status = files.text("/proc/self/status") or ""
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    nvswitch = files.exists("/dev/nvidia-nvswitchctl")
    shm_total, shm_free = _shared_memory(files, world)
    return Host(
        hostname=_hostname(files, world),
        kernel=files.text("/proc/sys/kernel/osrelease", 1024),
        distribution=_distribution(files),
        command_line=files.text("/proc/cmdline"),
        cpu=_cpu(files, world, cpuinfo),
        dmi=dmi,
        hypervisor=_hypervisor(files, cpuinfo, dmi),
        container=container,
        modules=None if modules is None else sorted(line.split()[0] for line in modules.splitlines() if line.strip()),
        memlock_bytes=limits.get("Max locked memory"),
        open_files=limits.get("Max open files"),
        stack_bytes=limits.get("Max stack size"),
        shm_total_bytes=shm_total,
        shm_free_bytes=shm_free,
        allowed_cpus=allowed.group(1) if allowed else None,
        default_interface=_default_interface(files, world),
        services=_services(files, world),
        topology_file=_topology_file(files, world),
        # A container is given chosen device nodes: one that is missing proves nothing about the machine.
        nvswitch_control=True if nvswitch else False if container == "none" and files.exists("/dev") else None,
    )


def _hostname(files: Files, world: World) -> str | None:
    # The kernel answers with the reader's own host name, which inside a container is not that of another root.
    places = ["/proc/sys/kernel/hostname", "/etc/hostname"]
    return next(
        (name for place in (places[::-1] if world.elsewhere else places) if (name := files.text(place, 256))), None
    )


def _distribution(files: Files) -> str | None:
    text = files.text("/etc/os-release") or files.text("/usr/lib/os-release") or ""
    match = re.search(r"^PRETTY_NAME=[\"']?(.*?)[\"']?$", text, re.MULTILINE)
    return match.group(1) or None if match else None


def _read_limits(files: Files) -> dict[str, int]:
    """Soft limits of this process by name; -1 = unlimited."""
    limits = {}
    for line in (files.text("/proc/self/limits") or "").splitlines():
        columns = re.split(r"\s{2,}", line.strip())
        limit = -1 if columns[1:2] == ["unlimited"] else whole(columns[1]) if len(columns) >= 3 else None
        if limit is not None:
            limits[columns[0]] = limit
    return limits


def _topology_file(files: Files, world: World) -> bool | None:
    """Whether the file that NCCL reads by default is there; None for a copied tree without the folder around it."""
    there = files.exists("/var/run/nvidia-topologyd/virtualTopology.xml")
    return None if not there and world.elsewhere and not files.exists("/var/run") else there


def _shared_memory(files: Files, world: World) -> tuple[int | None, int | None]:
    """Bytes of /dev/shm, all and free."""
    folder = files.outside("/dev/shm")
    try:
        state = os.statvfs(folder) if folder else None
        if folder and world.elsewhere and os.stat(folder).st_dev == os.stat(world.root).st_dev:  # noqa: PTH116
            # A folder in a copied tree, not the mounted memory of a machine.
            state = None
    except OSError:
        state = None
    return (None, None) if state is None else (state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize)


def _default_interface(files: Files, world: World) -> str | None:
    """Interface of the IPv4 default route with the lowest metric."""
    # /proc/net is the network namespace of the reader; process 1 of another root is in that root's.
    places = ["/proc/1/net/route", "/proc/net/route"] if world.elsewhere else ["/proc/net/route"]
    text = next((text for place in places if (text := files.text(place, 1 << 18))), "")
    routes = [
        (int(metric), interface)
        for interface, flags, metric in _DEFAULT_ROUTE.findall(text)
        if int(flags, 16) & _ROUTE_UP
    ]
    return min(routes)[1] if routes else None


def _read_cpuinfo(files: Files) -> dict[str, str] | None:
    """First value of each key in /proc/cpuinfo."""
    data = None
    if (stream := files.open("/proc/cpuinfo")) is not None:
        with stream:
            data = stream.read(_CPUINFO_HEAD)
    if not data:
        return None
    entries: dict[str, str] = {}
    for line in data.decode(errors="replace").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            entries.setdefault(key.strip(), value.strip())
    return entries


def _cpu(files: Files, world: World, cpuinfo: dict[str, str] | None) -> Cpu:
    online = sysfs.online_cpus(files)
    cpu = Cpu(
        architecture=_architecture(files, world, cpuinfo),
        sockets=_sockets(files, online or set()),
        online=cpu_lists.spell(online) if online is not None else None,
    )
    if cpuinfo is None:
        return cpu
    change = msgspec.structs.replace
    if "vendor_id" in cpuinfo:
        return change(
            cpu,
            vendor=processors.vendor(cpuinfo["vendor_id"]),
            model_name=cpuinfo.get("model name"),
            family=spelled(cpuinfo.get("cpu family")),
            model=spelled(cpuinfo.get("model")),
        )
    if "CPU implementer" in cpuinfo:
        vendor, name = processors.arm(cpuinfo["CPU implementer"], cpuinfo.get("CPU part"))
        return change(cpu, vendor=vendor, model_name=name, model=spelled(cpuinfo.get("CPU part")))
    if "POWER" in cpuinfo.get("cpu", ""):
        return change(cpu, vendor="IBM", model_name=cpuinfo["cpu"])
    return cpu


def _sockets(files: Files, online: set[int]) -> int | None:
    """CPU packages, counted by walking from one package's first CPU to the next package's."""
    left = set(online)
    packages = 0
    while left:
        folder = f"/sys/devices/system/cpu/cpu{min(left)}/topology"
        if files.number(f"{folder}/physical_package_id") == -1:
            # What the kernel takes for a package then is a core.
            return None
        members = next(
            (
                found
                for name in ("package_cpus", "core_siblings")
                if (found := sysfs.members(files, f"{folder}/{name}_list", f"{folder}/{name}"))
            ),
            set(),
        )
        if not members & left:
            return packages or None
        packages += 1
        left -= members
    return packages or None


def _architecture(files: Files, world: World, cpuinfo: dict[str, str] | None) -> str | None:
    """`x86_64`, `aarch64`, `ppc64le`; None for the files of another machine that do not tell."""
    if told := files.text("/proc/sys/kernel/arch", 64):
        return told
    if not world.elsewhere:
        return world.machine
    release = (files.text("/proc/sys/kernel/osrelease", 1024) or "").rpartition(".")[2]
    if release in ("x86_64", "aarch64", "ppc64le", "ppc64"):
        return release
    keys = cpuinfo or {}
    if "lm" in keys.get("flags", "").split():
        return "x86_64"
    return "aarch64" if "CPU implementer" in keys and keys.get("CPU architecture") == "8" else None


def _hypervisor(files: Files, cpuinfo: dict[str, str] | None, dmi: dict[str, str] | None) -> str | None:
    """What this operating system runs on; `none` only when something positively says so."""
    if "microsoft" in (files.text("/proc/version", 4096) or "").lower():
        return "Microsoft"
    kind = files.text("/sys/hypervisor/type", 64)
    if kind:
        return {"xen": "Xen"}.get(kind, kind)
    on_x86 = cpuinfo is not None and "flags" in cpuinfo
    flagged = cpuinfo is not None and "hypervisor" in cpuinfo.get("flags", "").split()
    if on_x86 and not flagged:
        # Clouds write their name into the DMI of bare-metal machines too.
        return "none"
    names = " ".join((dmi or {}).get(name, "") for name in ("sys_vendor", "product_name", "bios_vendor")).lower()
    by_name = next((hypervisor for sign, hypervisor in _HYPERVISOR_DMI if sign in names), None)
    if by_name is not None:
        return by_name
    clocks = files.text("/sys/devices/system/clocksource/clocksource0/available_clocksource", 256) or ""
    by_clock = next((hypervisor for sign, hypervisor in _HYPERVISOR_CLOCKS if sign in clocks), None)
    if by_clock is not None or flagged:
        return by_clock or "unknown"
    return "none" if cpuinfo is not None and dmi else None


def _container(files: Files, world: World) -> str | None:
    """The container around this root; None when nothing of it can be read."""
    cgroup = files.text("/proc/1/cgroup") or ""
    if not world.elsewhere and world.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    by_cgroup = next((kind for sign, kind in _CGROUP_CONTAINERS if sign in cgroup), None)
    if by_cgroup is not None:
        return by_cgroup
    for path, kind in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman"), ("/.singularity.d", "apptainer")):
        if files.exists(path):
            return kind
    named = files.text("/run/systemd/container", 64)
    if named:
        return named
    version = files.text("/proc/version", 4096)
    if "microsoft" in (version or "").lower():
        return "wsl"
    return None if version is None else "none"


def _services(files: Files, world: World) -> dict[str, str] | None:
    """State of NVIDIA's fabric services; None without evidence of systemd, as in most containers."""
    states = {}
    for service in _SERVICES:
        state = _service_state(files, world, f"{service}.service")
        if state is not None:
            states[service] = state
    return states or None


def _service_state(files: Files, world: World, unit: str) -> str | None:
    groups = [f"/sys/fs/cgroup/system.slice/{unit}", f"/sys/fs/cgroup/systemd/system.slice/{unit}"]
    if any(files.exists(group) for group in groups) or files.exists(f"/run/systemd/units/invocation:{unit}"):
        return "active"
    if not files.exists("/run/systemd/system"):
        return None
    if not any(files.exists(f"{folder}/{unit}") for folder in _UNIT_FOLDERS):
        return "not-installed"
    systemctl = None if world.elsewhere else world.which("systemctl")
    if systemctl is None:
        return "inactive"
    try:
        word = world.start([systemctl, "is-active", unit]).finish(_SYSTEMCTL_DEADLINE_S).text.strip()
    except OSError:
        return None
    return word if word in ("active", "inactive", "failed", "activating", "deactivating") else None
