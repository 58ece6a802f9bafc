"""The machine around the GPUs: NICs, PCI tree, NUMA, CPU, kernel, firmware, driver, services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from topoadvisor.advice import Severity
from topoadvisor.diff import match, reach
from topoadvisor.diff.ledger import NODE, Field, Ledger, Who, always, leaves, lower_is
from topoadvisor.diff.match import Matched
from topoadvisor.numbers import size_text
from topoadvisor.snapshot import IbPort, PciDevice, Snapshot

_NUMA_MEMORY_TOLERANCE: Final = 0.02
"""What the kernel keeps for itself differs from boot to boot."""
_PASSING: Final = {"veth", "loopback"}
"""Interfaces that come and go with containers."""
_MODULES: Final = ("nvidia", "nv_peer_mem", "gdrdrv", "mlx", "ib_", "rdma_", "efa", "irdma", "bnxt_re", "vfio")
"""Kernel modules that decide what GPUs and NICs can do; others are loaded and dropped as they are needed."""
_NVSWITCH_CLASS, _NVIDIA = "0x0680", "0x10de"

_NIC: Final = (
    Field("name", "name", always("warning"), "nic"),
    Field("address", "bus id", always("warning"), "nic"),
    Field("rdma", "RDMA device", leaves(True, "error"), "nic"),
    Field("interface", "interface", always("warning"), "nic"),
    Field("state", "interface state", leaves("up", "error"), "nic"),
    Field("speed_mbit", "speed in Mbit/s", lower_is("error"), "nic"),
    Field("mtu", "MTU", always("warning"), "nic"),
    Field("driver", "driver", always("warning"), "nic"),
    Field("kind", "kind", always("warning"), "nic"),
    Field("gdr", "GPUDirect RDMA", leaves(True, "error"), "nic"),
    Field("numa_node", "NUMA node", always("warning"), "numa"),
)
_PORT: Final = (
    Field("state", "state", leaves("ACTIVE", "error"), "nic"),
    Field("rate_gbit", "rate in Gbit/s", lower_is("error"), "nic"),
    Field("link_layer", "link layer", always("warning"), "nic"),
    Field("gid_types", "GID types", always("warning"), "nic"),
)
_PCI_ANYWHERE: Final = (
    Field("driver", "kernel driver", always("warning"), "pci"),
    Field("root", "root complex", always("warning"), "pci"),
    Field("acs_redirect", "ACS redirect", always("warning"), "pci"),
)
_PCI: Final = (
    *_PCI_ANYWHERE,
    Field("parent", "bridge above", always("warning"), "pci"),
    Field("max_link_width", "highest width", lower_is("warning"), "pci"),
    Field("max_link_speed_gts", "highest rate in GT/s", lower_is("warning"), "pci"),
)
_PCI_NUMA: Final = Field("numa_node", "NUMA node", always("warning"), "numa")
_WIDTH: Final = Field("link_width", "PCIe width", lower_is("error"), "pcie", lambda width: f"x{width}")
_SPEED: Final = Field("link_speed_gts", "PCIe rate in GT/s", lower_is("warning"), "pcie")
_NUMA: Final = (
    Field("cpus", "CPUs", always("warning"), "numa"),
    Field("distances", "distances", always("warning"), "numa"),
)
_MEMORY: Final = Field("memory_bytes", "memory", lower_is("warning"), "numa", size_text, _NUMA_MEMORY_TOLERANCE)
_CPU: Final = (
    Field("architecture", "architecture", always("warning"), "cpu"),
    Field("model_name", "model", always("warning"), "cpu"),
    Field("sockets", "sockets", lower_is("error"), "cpu"),
    Field("online", "CPUs online", always("warning"), "cpu"),
)
_HOST: Final = (
    Field("hostname", "host name", always("info"), "host"),
    Field("kernel", "kernel", always("info"), "host"),
    Field("distribution", "distribution", always("info"), "host"),
    Field("hypervisor", "hypervisor", always("warning"), "host"),
    Field("container", "container", always("info"), "host"),
    Field("memlock_bytes", "locked memory limit", always("warning"), "host", size_text),
    Field("open_files", "open files limit", always("info"), "host"),
    Field("stack_bytes", "stack limit", always("info"), "host", size_text),
    Field("shm_total_bytes", "/dev/shm", lower_is("warning"), "host", size_text),
    Field("allowed_cpus", "allowed CPUs", always("info"), "host"),
    Field("default_interface", "interface of the default route", always("warning"), "host"),
    Field("topology_file", "virtual topology file", always("warning"), "host"),
    Field("nvswitch_control", "NVSwitch control device", leaves(True, "warning"), "host"),
)
_DRIVER: Final = (
    Field("version", "driver", always("warning"), "driver"),
    Field("flavour", "driver flavour", always("warning"), "driver"),
    Field("cuda", "highest CUDA version", always("info"), "driver"),
)
_IOMMU: Final = Field("iommu", "IOMMU group types", always("warning"), "iommu")
_FIRMWARE: Final = {"bios_version": "info", "bios_date": "info"}


def compare(before: Snapshot, after: Snapshot, matched: Matched, ledger: Ledger) -> dict[str, str]:
    """Compare everything but the GPUs; returns the node id before → after of each NIC that is in both."""
    same_nics = _nics(before, after, ledger)
    _pci(before, after, matched, ledger)
    ledger.fields(NODE, _DRIVER, before.driver, after.driver)
    _host(before, after, ledger)
    return same_nics


def _nics(before: Snapshot, after: Snapshot, ledger: Ledger) -> dict[str, str]:
    """Compare NICs. Unless both captures are live, a plain interface that one of them lacks is no news."""
    if not ledger.both("nics", "NICs", before.nics, after.nics):
        return {}
    everything = before.origin == after.origin == "live"
    pairs, gone, fresh = match.nics(before, after)
    unnamed = bool(gone and fresh) and any(map(match.is_unnamed, (*gone, *fresh)))
    for nic, other in pairs:
        known = other.name if match.is_unnamed(nic) else nic.name
        name = Who(f"nic:{nic.name}", known)
        called = _NIC[1:] if match.is_unnamed(nic) or match.is_unnamed(other) else _NIC
        ledger.fields(name, called, nic, other)
        _ports(name, nic.ports, other.ports, ledger, listed=not reach.is_job(after))
    for nics, kind, other_side in ((gone, "nic-gone", after), (fresh, "nic-new", before)):
        for nic in nics:
            if nic.kind in _PASSING or not (nic.rdma or everything):
                continue
            hardware = nic.rdma or nic.address is not None
            severity: Severity = "error" if hardware and nics is gone else "info"
            what = " ".join(filter(None, (nic.name, f"({nic.address})" if nic.address else "")))
            was, is_now = (what, None) if nics is gone else (None, what)
            text = f"{what} is {'gone' if nics is gone else 'new'}"
            name = Who(f"nic:{nic.name}", nic.name)
            listed = not (unnamed or reach.is_job(other_side))
            ledger.lone(kind, name, "nic", was, is_now, severity, text, listed=listed)
    return {f"nic:{nic.name}": f"nic:{other.name}" for nic, other in pairs}


def _ports(name: Who, old: list[IbPort] | None, new: list[IbPort] | None, ledger: Ledger, *, listed: bool) -> None:
    if old is None or new is None:
        if old or new:
            was, is_now = (None if each is None else len(each) for each in (old, new))
            ledger.only_one(name, "ports", "ports", was, is_now)
        return
    now = {port.port: port for port in new}
    for port in old:
        where = Who(f"{name.subject}/port:{port.port}", f"{name.label} port {port.port}")
        if port.port in now:
            ledger.fields(where, _PORT, port, now[port.port])
        else:
            text = f"{where.label} is gone"
            ledger.lone("nic", where, "port", port.state or "there", None, "error", text, listed=listed)


def _pci(before: Snapshot, after: Snapshot, matched: Matched, ledger: Ledger) -> None:
    if not ledger.both("pci", "PCI devices", before.pci, after.pci):
        return
    names = _owners(before, matched)
    told = {gpu.address for snapshot in (before, after) for gpu in snapshot.gpus}
    told |= {nic.address for snapshot in (before, after) for nic in snapshot.nics or ()}
    now = {device.address: device for device in after.pci or ()}
    pairs = {device.address: (device, now.pop(device.address, None)) for device in before.pci or ()}
    gpus = {gpu.address: gpu for gpu in before.gpus if gpu.address}
    for address, (old, new) in pairs.items():
        name = names.get(address, Who(f"pci:{address}", _called(old)))
        if new is not None:
            _function(name, old, new, _same_tree(before, after), ledger, owned=address in told)
        elif address not in told:
            listed = reach.lists_functions(after)
            text = f"{name.label} is gone"
            ledger.lone("pci-gone", name, "pci", address, None, _missed(old), text, listed=listed)
    for address, device in now.items():
        if address not in told:
            name = Who(f"pci:{address}", _called(device))
            listed = reach.lists_functions(before)
            ledger.lone("pci-new", name, "pci", None, address, "info", f"{name.label} is new", listed=listed)
    _wires(pairs, gpus, names, ledger)


def _owners(before: Snapshot, matched: Matched) -> dict[str, Who]:
    from topoadvisor.diff.devices import who

    owners = {nic.address: Who(f"nic:{nic.name}", f"{nic.name} ({nic.address})") for nic in before.nics or ()}
    owners |= {gpu.address: who(gpu) for gpu, _ in matched.pairs}
    return {address: name for address, name in owners.items() if address is not None}


def _called(device: PciDevice) -> str:
    code = device.class_code or ""
    if code.startswith("0x0604"):
        return f"bridge {device.address}"
    return f"{'NVSwitch' if _is_nvswitch(device) else 'PCI function'} {device.address}"


def _is_nvswitch(device: PciDevice) -> bool:
    return device.vendor == _NVIDIA and (device.class_code or "").startswith(_NVSWITCH_CLASS)


def _missed(device: PciDevice) -> Severity:
    if _is_nvswitch(device):
        return "error"
    return "info" if device.sriov_of else "warning"


def _function(
    name: Who, old: PciDevice, new: PciDevice, fields: Sequence[Field], ledger: Ledger, *, owned: bool
) -> None:
    """Compare `fields` of one PCI function; what its GPU or NIC says itself is not said twice."""
    if _is_another(old, new):
        if not owned:
            before, after = _identity(old), _identity(new)
            text = f"{name.label} is another device: {before} → {after}"
            ledger.change("pci", name.subject, "device", before, after, "warning", text)
        return
    ledger.fields(name, [each for each in fields if not (owned and each.name.startswith("max_"))], old, new)
    if not owned:
        ledger.value(name, _PCI_NUMA, old.numa_node, new.numa_node)


def _same_tree(before: Snapshot, after: Snapshot) -> Sequence[Field]:
    """What can be compared: NCCL hangs devices below whole switches, and states the slower end of each link."""
    return _PCI if reach.is_job(before) is reach.is_job(after) else _PCI_ANYWHERE


def _identity(device: PciDevice) -> str:
    return " ".join(part for part in (device.vendor, device.device, device.class_code) if part)


def _is_another(old: PciDevice, new: PciDevice) -> bool:
    ids = ((device.vendor, device.device, device.class_code) for device in (old, new))
    return any(was is not None and now is not None and was != now for was, now in zip(*ids, strict=True))


def _wires(
    pairs: Mapping[str, tuple[PciDevice, PciDevice | None]],
    gpus: Mapping[str, Any],
    names: Mapping[str, Who],
    ledger: Ledger,
) -> None:
    """Compare the PCIe links. Both ends of one are listed: what the lower end says is not said again by the upper.

    The rate of a link to a GPU follows how busy it is and is left to what NVML says, and so is the width where NVML
    was read.
    """
    below: dict[str, set[tuple[Any, Any]]] = {}
    above_gpu = {old.parent for old, _ in pairs.values() if old.address in gpus}
    for old, new in pairs.values():
        if old.parent and new is not None:
            below.setdefault(old.parent, set()).add((old.link_width, new.link_width))
            below[old.parent].add((old.link_speed_gts, new.link_speed_gts))
    for address, (old, new) in pairs.items():
        if new is None or _is_another(old, new):
            continue
        name = names.get(address, Who(f"pci:{address}", _called(old)))
        said = below.get(address, set())
        gpu = gpus.get(address)
        if (old.link_width, new.link_width) not in said and not (gpu and gpu.pcie and gpu.pcie.current_width):
            ledger.value(name, _WIDTH, old.link_width, new.link_width)
        if (old.link_speed_gts, new.link_speed_gts) not in said and gpu is None and address not in above_gpu:
            ledger.value(name, _SPEED, old.link_speed_gts, new.link_speed_gts)


def _host(before: Snapshot, after: Snapshot, ledger: Ledger) -> None:
    old, new = before.host, after.host
    ledger.fields(NODE, _HOST, old, new)
    if old.cpu or new.cpu:
        ledger.fields(Who("cpu", "CPU"), _CPU, old.cpu, new.cpu)
    types = [
        None
        if host.iommu_groups is None
        else ", ".join(sorted({group.type or "unknown" for group in host.iommu_groups})) or "none"
        for host in (old, new)
    ]
    ledger.value(NODE, _IOMMU, *types)
    _numa(before, after, ledger)
    _words(old.command_line, new.command_line, ledger)
    _modules(old.modules, new.modules, ledger)
    for name in sorted({*(old.services or {}), *(new.services or {})}):
        what = Field("state", "state", leaves("active", "error"), "service")
        service = Who(f"service:{name}", name)
        ledger.value(service, what, *((host.services or {}).get(name) for host in (old, new)))
    for name in sorted({*(old.dmi or {}), *(new.dmi or {})}):
        severity: Any = _FIRMWARE.get(name, "warning")
        what = Field(f"dmi.{name}", name.replace("_", " "), always(severity), "firmware")
        ledger.value(NODE, what, *((host.dmi or {}).get(name) for host in (old, new)))


def _numa(before: Snapshot, after: Snapshot, ledger: Ledger) -> None:
    old, new = before.host.numa_nodes, after.host.numa_nodes
    if not ledger.both("numa_nodes", "NUMA nodes", old, new):
        return
    now = {node.id: node for node in new or ()}
    # Hypervisors give guests memory, and take it back, while they run.
    guest = {before.host.hypervisor, after.host.hypervisor} - {None, "none"}
    fields = _NUMA if guest else (*_NUMA, _MEMORY)
    for node in old or ():
        name = Who(f"numa:{node.id}", f"NUMA node {node.id}")
        if other := now.pop(node.id, None):
            ledger.fields(name, fields, node, other)
        else:
            listed = not reach.is_job(after)
            ledger.lone("numa", name, "numa", node.id, None, "warning", f"{name.label} is gone", listed=listed)
    for node in now.values():
        name = Who(f"numa:{node.id}", f"NUMA node {node.id}")
        listed = not reach.is_job(before)
        ledger.lone("numa", name, "numa", None, node.id, "warning", f"{name.label} is new", listed=listed)


def _words(old: str | None, new: str | None, ledger: Ledger) -> None:
    """Compare kernel command lines word by word; the image's name repeats the kernel's version and is left out."""
    lines = [
        None if line is None else [word for word in line.split() if not word.startswith(("BOOT_IMAGE=", "initrd="))]
        for line in (old, new)
    ]
    before, after = lines
    if before is None or after is None:
        if before is not after:
            was, is_now = (None if line is None else " ".join(line) for line in lines)
            ledger.only_one(NODE, "command_line", "kernel command line", was, is_now)
        return
    ledger.count("command-line", "node")
    if sorted(before) == sorted(after):
        return
    had, has = set(before), set(after)
    parts = [f"without {word}" for word in before if word not in has] + [
        f"now with {word}" for word in after if word not in had
    ]
    text = f"Kernel command line: {', '.join(dict.fromkeys(parts)) or 'words repeated otherwise'}"
    ledger.change("command-line", "node", "command_line", " ".join(before), " ".join(after), "warning", text)


def _modules(old: list[str] | None, new: list[str] | None, ledger: Ledger) -> None:
    if not ledger.both("modules", "kernel modules", old, new):
        return
    had, has = ({name for name in names or () if name.startswith(_MODULES)} for names in (old, new))
    ledger.count("host", "modules")
    for name in sorted(had ^ has):
        gone = name in had
        severity: Severity = "warning" if gone else "info"
        text = f"Kernel module {name} is {'no longer' if gone else 'now'} loaded"
        ledger.change("host", f"module:{name}", "module", gone or None, None if gone else True, severity, text)
