"""NCCL topology XML (`NCCL_TOPO_DUMP_FILE`, or a cloud's `NCCL_TOPO_FILE`) → Snapshot.

What NCCL writes and reads there: `src/graph/xml.cc` and `src/graph/topo.cc` of NCCL 2.30.7. A file that a cloud ships
may leave out what NCCL finds by itself at run time: then it stays not read here.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from topoadvisor import cpu_lists, pci
from topoadvisor.hardware import processors
from topoadvisor.ingest import part
from topoadvisor.nccl import topo_xml
from topoadvisor.nccl.topo_xml import Element, wrong
from topoadvisor.snapshot import (
    CallError,
    Cpu,
    Gpu,
    Host,
    IbPort,
    Nic,
    NumaNode,
    NvLink,
    PciDevice,
    PcieLink,
    RawText,
    Snapshot,
)

SOURCE = topo_xml.SOURCE
MAX_NVLINKS = 1024
"""Of one GPU; a count beyond this is no count."""

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_ARCHITECTURES = {"x86_64": "x86_64", "arm64": "aarch64", "ppc64": "ppc64le"}
_INTEGER = re.compile(r"-?[0-9]{1,18}|0[xX][0-9a-fA-F]{1,16}")
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*GT/s")


def parse(text: str, *, file: str) -> Snapshot:
    """Read one machine from an NCCL topology XML; of a fused multi-node dump, the first host.

    GPUs are numbered as `dev` says, which is NVML's order; a file without `<gpu>` elements numbers its NVIDIA display
    devices in bus order. `link_speed` and `link_width` are what device and slot can reach together, not the link now.

    Raises InputError with line and column for broken XML, a document type, or a value that cannot be.
    """
    root = topo_xml.parse(text, file=file)
    reader = _Reader(file)
    hosts = list(dict.fromkeys(cpu.attributes.get("host_hash") for cpu in root.each("cpu")))
    if len(hosts) > 1:
        reader.notes.append(f"the file describes {len(hosts)} hosts; the first one is read")
    for cpu in root.each("cpu"):
        if cpu.attributes.get("host_hash") == hosts[0]:
            reader.read_cpu(cpu)
    return reader.snapshot(text)


class _Reader:
    """Collects what the elements of one host say."""

    def __init__(self, file: str) -> None:
        self.notes: list[str] = []
        self._file = file
        self._errors: list[CallError] = []
        self._cpu: Cpu | None = None
        self._numa: dict[int, NumaNode] = {}
        self._pci: dict[str, PciDevice] = {}
        self._gpus: list[tuple[int, Gpu]] = []
        self._nics: dict[str, Nic] = {}
        self._order: dict[str, int] = {}

    def read_cpu(self, element: Element) -> None:
        numa = self._integer(element, "numaid")
        attributes = element.attributes
        if numa is not None and numa >= 0:
            self._numa.setdefault(numa, NumaNode(id=numa, cpus=_cpu_list(attributes.get("affinity"))))
        if self._cpu is None and attributes.get("arch"):
            self._cpu = self._read_cpu_model(element)
        self._read_children(element, None, numa)

    def _read_cpu_model(self, element: Element) -> Cpu:
        architecture = element.attributes["arch"]
        vendor = element.attributes.get("vendor", "").strip()
        family = self._integer(element, "familyid")
        if family is not None and vendor == "AuthenticAMD" and family > 0x1F and family & 0xF == 0xF:
            # NCCL adds the extended family shifted by four; everybody else adds it as it is.
            family = 0xF + (family >> 4)
        return Cpu(
            architecture=_ARCHITECTURES.get(architecture, architecture),
            vendor="IBM" if architecture == "ppc64" else processors.vendor(vendor) or None,
            family=family,
            model=self._integer(element, "modelid"),
        )

    def _read_children(self, element: Element, parent: str | None, numa: int | None) -> None:
        for child in element.children:
            match child.tag:
                case "pci":
                    self._read_pci(child, parent, numa)
                case "nic":
                    for net in child.each("net"):
                        self._read_net(net, parent, numa)
                case "gpu" if parent is not None:
                    self._read_gpu(child, parent)
                case "pcilink":
                    self.notes.append(f"<pcilink> in line {child.line} is not used")

    def _read_pci(self, element: Element, parent: str | None, numa: int | None) -> None:
        text = element.attributes.get("busid", "")
        try:
            address = pci.normalize(text)
        except ValueError:
            raise wrong(self._file, element, f"the busid {text!r} is no PCI address") from None
        attributes = element.attributes
        width = self._integer(element, "link_width")
        device = PciDevice(
            address=address,
            class_code=attributes.get("class"),
            vendor=attributes.get("vendor"),
            device=attributes.get("device"),
            subsystem_vendor=attributes.get("subsystem_vendor"),
            subsystem_device=attributes.get("subsystem_device"),
            parent=parent,
            numa_node=numa,
            max_link_speed_gts=_speed(attributes.get("link_speed")),
            # 0 is what a guest's virtual slot says; NCCL then assumes 16 lanes.
            max_link_width=width or None,
        )
        if address in self._pci:
            raise wrong(self._file, element, f"the PCI device {address} stands here a second time")
        self._pci[address] = device
        self._read_children(element, address, numa)

    def _read_gpu(self, element: Element, address: str) -> None:
        index = self._integer(element, "dev")
        if index is None or index < 0:
            raise wrong(self._file, element, "this <gpu> has no device number (dev)")
        same = next((gpu for known, gpu in self._gpus if known == index), None)
        if same is not None and same.address == address:
            self.notes.append(f"several ranks or partitions of one job share GPU {index}")
            return
        if same is not None:
            raise wrong(self._file, element, f"the GPU with dev={index} stands here a second time")
        capability = self._integer(element, "sm")
        c2c = list(element.each("c2c"))
        gpu = _gpu(
            index,
            self._pci[address],
            compute_capability=f"{capability // 10}.{capability % 10}" if capability is not None else None,
            # NCCL writes `sm` with every GPU that it has seen; without it, no NVLink only means that none was written.
            nvlinks=self._nvlinks(element, address, index) or ([] if capability is not None else None),
            c2c_gbps=sum(self._c2c(link) for link in c2c) if c2c else None,
        )
        self._gpus.append((index, gpu))

    def _c2c(self, element: Element) -> float:
        """Payload GB/s: NCCL multiplies MB/s of one link by the links (`topo.cc`)."""
        return (self._integer(element, "bw") or 0) * (self._integer(element, "count") or 0) / 1000

    def _nvlinks(self, element: Element, own: str, index: int) -> list[NvLink]:
        links: list[NvLink] = []
        for entry in element.each("nvlink"):
            count = self._integer(entry, "count")
            if count is None or not 0 <= count <= MAX_NVLINKS - len(links):
                raise wrong(self._file, entry, "this <nvlink> has no plausible count")
            target = entry.attributes.get("target", "")
            hidden = pci.is_placeholder(target)
            try:
                address = None if hidden else pci.normalize(target)
            except ValueError:
                raise wrong(self._file, entry, f"the target {target!r} is no PCI address") from None
            if address == own:
                self._errors.append(CallError(call="nvlink target", error="itself", subject=f"gpu:{index}"))
                self.notes.append("NVLinks have their own GPU as target, so where they lead is not known")
                address = None
            for _ in range(count):
                links.append(
                    NvLink(
                        link=len(links),
                        active=True,
                        remote_type=_peer(entry.attributes.get("tclass", "")),
                        remote_address=address,
                        remote_hidden=hidden,
                    )
                )
        return links

    def _read_net(self, element: Element, address: str | None, numa: int | None) -> None:
        name = element.attributes.get("name")
        if not name:
            raise wrong(self._file, element, "this <net> has no name")
        speed, port = self._integer(element, "speed"), self._integer(element, "port")
        if speed is not None and speed <= 0:
            speed = None  # some NICs state -1
        gdr = self._integer(element, "gdr")
        # Port 0 is NCCL's socket transport; verbs and libfabric count ports from 1 and list only active ones.
        rdma = bool(port)
        ports = [IbPort(port=port, state="ACTIVE", rate_gbit=speed / 1000 if speed else None)] if port else None
        known = self._nics.get(name)
        if known is not None:
            if ports and known.ports and ports[0].port not in {entry.port for entry in known.ports}:
                self._nics[name] = msgspec.structs.replace(known, ports=[*known.ports, *ports])
            return
        self._order[name] = self._integer(element, "dev") or 0
        self._nics[name] = Nic(
            name=name,
            interface=None if rdma else name,
            rdma=rdma,
            address=address,
            speed_mbit=speed,
            ports=ports,
            numa_node=numa if address else None,
            gdr=None if gdr is None else bool(gdr),
        )

    def snapshot(self, text: str) -> Snapshot:
        gpus = [gpu for _, gpu in sorted(self._gpus, key=lambda entry: entry[0])] or self._bare_gpus()
        if not gpus:
            self.notes.append("the file names no GPU; NCCL would find them at run time")
        return Snapshot(
            origin=SOURCE,
            sources=[part.source(SOURCE, self.notes, self._errors)],
            gpus=gpus,
            nics=sorted(self._nics.values(), key=lambda nic: self._order[nic.name]) or None,
            pci=list(self._pci.values()) or None,
            host=Host(
                cpu=self._cpu,
                numa_nodes=[self._numa[node] for node in sorted(self._numa)] or None,
            ),
            raw=[RawText(source=SOURCE, text=text)],
        )

    def _bare_gpus(self) -> list[Gpu]:
        devices = [
            device
            for device in self._pci.values()
            if (device.class_code or "").startswith("0x03") and device.vendor in (None, "0x10de")
        ]
        if devices:
            self.notes.append("the GPUs are bare PCI devices; NCCL adds the rest at run time")
        devices.sort(key=lambda device: pci.sort_key(device.address))
        return [_gpu(index, device) for index, device in enumerate(devices)]

    def _integer(self, element: Element, name: str) -> int | None:
        text = element.attributes.get(name)
        if text is None or not text.strip():
            return None
        if not _INTEGER.fullmatch(text):
            raise wrong(self._file, element, f"{name}={text[:40]!r} is no whole number")
        return int(text, 0) if text.lower().startswith("0x") else int(text)


def _gpu(
    index: int,
    device: PciDevice,
    *,
    compute_capability: str | None = None,
    nvlinks: list[NvLink] | None = None,
    c2c_gbps: float | None = None,
) -> Gpu:
    generation = _GENERATIONS.get(device.max_link_speed_gts or 0.0)
    return Gpu(
        index=index,
        address=device.address,
        pci_device=device.device,
        compute_capability=compute_capability,
        pcie=PcieLink(max_gen=generation, max_width=device.max_link_width),
        numa_node=device.numa_node,
        nvlinks=nvlinks,
        c2c_gbps=c2c_gbps,
    )


def _peer(device_class: str) -> Literal["gpu", "switch", "npu"] | None:
    """What stands at the other end of an NVLink, by its PCI class as NCCL reads it."""
    match device_class.lower():
        case text if text.startswith("0x03"):
            return "gpu"
        case text if text.startswith("0x068000"):
            return "switch"
        case text if text.startswith("0x068001"):
            return "npu"
    return None


def _speed(text: str | None) -> float | None:
    match = _SPEED.match(text or "")
    return float(match[1]) if match else None


def _cpu_list(mask: str | None) -> str | None:
    """`00000000,0000ffff` (32-bit words, highest first) → `0-15`; None when there is no mask, or an empty one."""
    return cpu_lists.spell(cpu_lists.parse_mask(mask or "") or ()) or None
