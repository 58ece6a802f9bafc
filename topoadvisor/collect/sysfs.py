"""sysfs: PCI functions and the bridges above them, NUMA nodes, network and RDMA devices, IOMMU groups."""

from __future__ import annotations

import re
import struct
from typing import Final

from topoadvisor import cpu_lists, pci
from topoadvisor.collect.world import Files
from topoadvisor.numbers import natural
from topoadvisor.snapshot import IbPort, IommuGroup, Nic, NumaNode, PciDevice

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT: Final = re.compile(r"pci([0-9a-f]{4,8}:[0-9a-f]{2})")
_WIDTHS: Final = {1, 2, 4, 8, 12, 16, 32}
_PORT_TYPES: Final = {
    0: "endpoint",
    1: "legacy-endpoint",
    4: "root-port",
    5: "upstream",
    6: "downstream",
    7: "pcie-to-pci-bridge",
    8: "pci-to-pcie-bridge",
    9: "root-complex-endpoint",
    10: "root-complex-event-collector",
}
_CAPABILITY_PCIE: Final = 0x10
_EXTENDED_ACS: Final = 0x000D
_ACS_REDIRECT: Final = 0x04 | 0x08
"""P2P Request Redirect and P2P Completion Redirect of the ACS control register."""
_CONFIG_SIZE: Final = 4096

# Hardware types of <linux/if_arp.h>.
_LOOPBACK: Final = 772
_ETHERNET: Final = 1
_TUNNEL_TYPES: Final = {512, 768, 769, 776, 778, 823, 65534}
_TUNNEL_DEVTYPES: Final = {"vxlan", "geneve", "wireguard", "gre", "gretap", "bareudp", "ppp"}
_GIDS_UNUSED_IN_A_ROW: Final = 16


def read_pci(files: Files) -> list[PciDevice] | None:
    """Functions that matter for GPU traffic and every bridge above one, in bus order; None without a PCI sysfs.

    Where a function stands is read from its path: the buses that bridges name may be missing or wrong.
    """
    names = files.names("/sys/bus/pci/devices")
    if names is None:
        return None
    folders: dict[str, str] = {}
    wanted: set[str] = set()
    for name in names:
        if not _ADDRESS.fullmatch(name):
            continue
        folders[name] = folder = files.inside(f"/sys/bus/pci/devices/{name}") or f"/sys/bus/pci/devices/{name}"
        class_code = files.text(f"{folder}/class", 64) or ""
        if pci.matters(class_code, files.text(f"{folder}/vendor", 64)):
            wanted.add(name)
            parts = folder.split("/")
            for place, part in enumerate(parts):
                if _ADDRESS.fullmatch(part):
                    wanted.add(part)
                    # A bridge that is not listed still stands in the path.
                    folders.setdefault(part, "/".join(parts[: place + 1]))
    near = _Near(files)
    return [_read_function(files, address, folders[address], near) for address in sorted(wanted, key=pci.sort_key)]


def _read_function(files: Files, address: str, folder: str, near: _Near) -> PciDevice:
    place = folder.split("/")[:-1]
    roots = [match.group(1) for part in place if (match := _ROOT.fullmatch(part))]
    port_type, redirect = parse_config(files.data(f"{folder}/config", _CONFIG_SIZE) or b"")
    return PciDevice(
        address=pci.normalize(address),
        class_code=files.text(f"{folder}/class", 64) or None,
        vendor=files.text(f"{folder}/vendor", 64) or None,
        device=files.text(f"{folder}/device", 64) or None,
        subsystem_vendor=files.text(f"{folder}/subsystem_vendor", 64) or None,
        subsystem_device=files.text(f"{folder}/subsystem_device", 64) or None,
        parent=pci.normalize(place[-1]) if place and _ADDRESS.fullmatch(place[-1]) else None,
        # A VMD controller is a root complex inside a device: the innermost one is meant.
        root=roots[-1] if roots else None,
        driver=files.target_name(f"{folder}/driver"),
        numa_node=near.node(folder),
        link_speed_gts=_speed(files, f"{folder}/current_link_speed"),
        link_width=_width(files, f"{folder}/current_link_width"),
        max_link_speed_gts=_speed(files, f"{folder}/max_link_speed"),
        max_link_width=_width(files, f"{folder}/max_link_width"),
        iommu_group=files.target_name(f"{folder}/iommu_group"),
        port_type=port_type,
        acs_redirect=redirect,
        sriov_of=_normalized(files.target_name(f"{folder}/physfn")),
    )


class _Near:
    """NUMA nodes of PCI functions."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._cpus: dict[int, set[int]] | None = None

    def node(self, folder: str) -> int | None:
        """`numa_node`; without that file, as in a copied tree, the node that holds all its local CPUs."""
        if (node := self._files.number(f"{folder}/numa_node")) is not None:
            return node
        local = members(self._files, f"{folder}/local_cpulist", f"{folder}/local_cpus")
        if not local:
            return None
        if self._cpus is None:
            self._cpus = node_cpus(self._files)
        holders = [node for node, cpus in self._cpus.items() if local <= cpus]
        return holders[0] if len(holders) == 1 else None


def members(files: Files, list_path: str, mask_path: str) -> set[int] | None:
    """A set of CPUs from its list, else from its mask, which older kernels and copied trees have alone."""
    text = files.text(list_path)
    if text is not None and (found := cpu_lists.parse(text)) is not None:
        return found
    mask = files.text(mask_path)
    return cpu_lists.parse_mask(mask) if mask is not None else None


def online_cpus(files: Files) -> set[int] | None:
    """CPUs that run; None when the kernel shows no CPUs."""
    base = "/sys/devices/system/cpu"
    text = files.text(f"{base}/online")
    if text is not None and (found := cpu_lists.parse(text)) is not None:
        return found
    names = [name for name in files.names(base) or [] if re.fullmatch(r"cpu[0-9]{1,6}", name)]
    return {int(name[3:]) for name in names if files.number(f"{base}/{name}/online") != 0} or None


def node_cpus(files: Files) -> dict[int, set[int]]:
    """Online CPUs of each NUMA node that says which it has."""
    base = "/sys/devices/system/node"
    online = online_cpus(files)
    found = {}
    for node in _node_ids(files):
        cpus = members(files, f"{base}/node{node}/cpulist", f"{base}/node{node}/cpumap")
        if cpus is not None:
            found[node] = cpus if online is None else cpus & online
    return found


def _node_ids(files: Files) -> list[int]:
    names = files.names("/sys/devices/system/node") or []
    return sorted(int(name[4:]) for name in names if re.fullmatch(r"node[0-9]{1,6}", name))


def _normalized(address: str | None) -> str | None:
    return pci.normalize(address) if address and _ADDRESS.fullmatch(address) else None


def _speed(files: Files, path: str) -> float | None:
    """GT/s from `16.0 GT/s PCIe`; None for `Unknown`."""
    match = re.match(r"([0-9]{1,4}(?:\.[0-9]{1,4})?) GT/s", files.text(path, 64) or "")
    return float(match.group(1)) if match else None


def _width(files: Files, path: str) -> int | None:
    """Lanes; None for 0 (a virtual function), 63 and 255 (a device that does not answer)."""
    width = files.number(path)
    return width if width in _WIDTHS else None


def parse_config(config: bytes) -> tuple[str | None, bool | None]:
    """PCIe port type and whether ACS redirects peer traffic, from configuration space.

    The kernel shows 64 bytes of it to a user who is not root, which hold neither: then (None, None).
    """
    if len(config) < 256 or config[:4] == b"\xff\xff\xff\xff":
        return None, None
    port_type = None
    has_list = struct.unpack_from("<H", config, 0x06)[0] & 0x10
    pointer = config[0x34] & 0xFC if has_list else 0
    for _ in range(48):
        if pointer < 0x40:
            break
        if config[pointer] == _CAPABILITY_PCIE and pointer + 3 < 256:
            port_type = _PORT_TYPES.get(struct.unpack_from("<H", config, pointer + 2)[0] >> 4 & 0xF)
            break
        pointer = config[pointer + 1] & 0xFC
    return port_type, _acs_redirect(config) if port_type is not None else None


def _acs_redirect(config: bytes) -> bool | None:
    if len(config) < _CONFIG_SIZE:
        return None
    pointer = 0x100
    for _ in range(96):
        header = struct.unpack_from("<I", config, pointer)[0]
        if header in (0, 0xFFFFFFFF):
            break
        if header & 0xFFFF == _EXTENDED_ACS and pointer + 8 <= len(config):
            return bool(struct.unpack_from("<H", config, pointer + 6)[0] & _ACS_REDIRECT)
        pointer = header >> 20 & 0xFFC
        if pointer < 0x100:
            break
    return False


def read_numa(files: Files) -> list[NumaNode] | None:
    """Online NUMA nodes by id, with their online CPUs; None when the kernel shows none."""
    base = "/sys/devices/system/node"
    ids = _node_ids(files)
    known = node_cpus(files)
    taken: dict[int, int] = {}
    nodes = []
    for node in ids:
        cpus = known.get(node)
        if (other := next((taken[cpu] for cpu in cpus or () if cpu in taken), None)) is not None:
            files.complain("read", f"{base}/node{node}", f"its CPUs are those of node {other} too")
        taken |= {cpu: node for cpu in cpus or () if cpu not in taken}
        memory = re.search(r"MemTotal:\s*([0-9]{1,15}) kB", files.text(f"{base}/node{node}/meminfo") or "")
        row = (files.text(f"{base}/node{node}/distance") or "").split()
        distances = [int(part) for part in row if re.fullmatch(r"[0-9]{1,6}", part)]
        if row and len(distances) != len(ids):
            files.complain("read", f"{base}/node{node}/distance", f"not one number for each of {len(ids)} nodes")
        nodes.append(
            NumaNode(
                id=node,
                cpus=None if cpus is None else cpu_lists.spell(cpus),
                memory_bytes=int(memory.group(1)) * 1024 if memory else None,
                distances=distances if len(distances) == len(ids) else None,
            )
        )
    return nodes or None


def read_iommu(files: Files) -> list[IommuGroup] | None:
    """IOMMU groups by number; empty = the kernel uses no IOMMU, None = it does not say."""
    base = "/sys/kernel/iommu_groups"
    names = files.names(base)
    if names is None:
        return None
    return [
        IommuGroup(
            id=name,
            type=files.text(f"{base}/{name}/type", 64) or None,
            devices=[
                pci.normalize(device) if _ADDRESS.fullmatch(device) else device
                for device in files.names(f"{base}/{name}/devices") or []
            ],
        )
        for name in sorted(names, key=natural)
    ]


def read_nics(files: Files) -> list[Nic] | None:
    """RDMA devices, each with its interface, then the other interfaces; None when neither class exists."""
    interfaces = files.names("/sys/class/net")
    devices = files.names("/sys/class/infiniband")
    if interfaces is None and devices is None:
        return None
    # `bonding_masters` and the like are control files, not interfaces.
    waiting = [name for name in interfaces or [] if files.exists(f"/sys/class/net/{name}/ifindex")]
    near = _Near(files)
    nics = []
    for device in sorted(devices or [], key=natural):
        interface = _interface_of(files, device, waiting)
        if interface is not None:
            waiting.remove(interface)
        nics.append(_read_nic(files, device, interface, near))
    return nics + [_read_nic(files, None, interface, near) for interface in sorted(waiting, key=natural)]


def _interface_of(files: Files, device: str, candidates: list[str]) -> str | None:
    """The interface of an RDMA device: the one behind its first GID, else the one on the same PCI function."""
    base = f"/sys/class/infiniband/{device}"
    behind_gid = files.text(f"{base}/ports/1/gid_attrs/ndevs/0", 64)
    if behind_gid in candidates:
        return behind_gid
    beside = [name for name in files.names(f"{base}/device/net") or [] if name in candidates]
    # A switch's representors of virtual functions (`pf0vf3`) share the PCI function with the uplink.
    uplinks = [name for name in beside if "vf" not in (files.text(f"/sys/class/net/{name}/phys_port_name", 64) or "")]
    return min(uplinks or beside, key=natural, default=None)


def _read_nic(files: Files, device: str | None, interface: str | None, near: _Near) -> Nic:
    base = f"/sys/class/infiniband/{device}" if device else f"/sys/class/net/{interface}"
    net = f"/sys/class/net/{interface}"
    # A virtio or Hyper-V interface hangs below its PCI function: the nearest one above is meant.
    place = (files.inside(f"{base}/device") or "").split("/") if files.exists(f"{base}/device") else []
    address = next((part for part in reversed(place) if _ADDRESS.fullmatch(part)), None)
    speed = files.number(f"{net}/speed") if interface else None
    return Nic(
        name=device or interface or "",
        interface=interface,
        rdma=device is not None,
        address=_normalized(address),
        driver=files.target_name(f"{base}/device/driver"),
        state=files.text(f"{net}/operstate", 64) if interface else None,
        speed_mbit=speed if speed and speed > 0 else None,
        mtu=files.number(f"{net}/mtu") if interface else None,
        interface_index=files.number(f"{net}/ifindex") if interface else None,
        kind=interface_kind(files, interface) if interface else None,
        ports=_read_ports(files, base) if device else None,
        numa_node=near.node(f"/sys/bus/pci/devices/{address}") if address else None,
    )


def interface_kind(files: Files, name: str) -> str:
    """`physical`, `bridge`, `veth`, `bond`, `loopback`, `vlan`, `tunnel` or `virtual`."""
    base = f"/sys/class/net/{name}"
    hardware = files.number(f"{base}/type")
    match = re.search(r"^DEVTYPE=(\w+)", files.text(f"{base}/uevent") or "", re.MULTILINE)
    devtype = match.group(1) if match else None
    if name == "lo" or hardware == _LOOPBACK:
        return "loopback"
    if devtype in ("bridge", "bond", "vlan"):
        return devtype or ""
    for folder, kind in (("bridge", "bridge"), ("bonding", "bond")):
        if files.exists(f"{base}/{folder}"):
            return kind
    if devtype in _TUNNEL_DEVTYPES or hardware in _TUNNEL_TYPES or files.exists(f"{base}/tun_flags"):
        return "tunnel"
    if files.exists(f"{base}/device"):
        return "physical"
    # The peer of a veth pair is another interface index; macvlan and ipvlan have one too but name their type.
    linked = files.number(f"{base}/iflink") not in (None, 0, files.number(f"{base}/ifindex"))
    if name.startswith("veth") or (linked and devtype is None and hardware == _ETHERNET):
        return "veth"
    return "virtual"


def _read_ports(files: Files, base: str) -> list[IbPort] | None:
    names = files.names(f"{base}/ports")
    if names is None:
        return None
    ports = []
    for name in sorted((name for name in names if re.fullmatch(r"[0-9]{1,3}", name)), key=int):
        folder = f"{base}/ports/{name}"
        rate = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) Gb/sec", files.text(f"{folder}/rate", 64) or "")
        ports.append(
            IbPort(
                port=int(name),
                state=_after_colon(files.text(f"{folder}/state", 64)),
                physical_state=_after_colon(files.text(f"{folder}/phys_state", 64)),
                rate_gbit=float(rate.group(1)) if rate else None,
                link_layer=files.text(f"{folder}/link_layer", 64) or None,
                link_downed=_count(files, f"{folder}/counters/link_downed"),
                gid_types=_gid_types(files, folder),
            )
        )
    return ports


def _count(files: Files, path: str) -> int | None:
    """A counter; None where there is none, which is nothing to report: VFs and emulated devices have no counters."""
    return files.number(path) if files.exists(path) else None


def _after_colon(text: str | None) -> str | None:
    """`ACTIVE` from `4: ACTIVE`."""
    return text.rpartition(":")[2].strip() or None if text else None


def _gid_types(files: Files, folder: str) -> dict[str, str] | None:
    """Types of the GIDs in use; the kernel answers EINVAL for an index that is not."""
    names = files.names(f"{folder}/gid_attrs/types")
    if names is None:
        return None
    types: dict[str, str] = {}
    unused = 0
    for name in sorted(names, key=natural):
        text = files.text(f"{folder}/gid_attrs/types/{name}", 64)
        if text:
            types[name], unused = text, 0
        else:
            unused += 1
            if unused == _GIDS_UNUSED_IN_A_ROW:
                break
    return types
