"""Texts about the host: `lscpu`, `numactl -H`, the kernel's command line, `uname -a`, the driver's banner, and of a
framework's report on its environment the driver and the packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from topoadvisor.hardware import processors
from topoadvisor.ingest.lines import Line
from topoadvisor.ingest.part import Part, number, ranges, source
from topoadvisor.snapshot import Cpu, Driver, Host, NcclLibrary, NumaNode, Snapshot

LSCPU_BEGIN: Final = r"(?P<label>\w{2,20}) ?[:：]\s+(?P<arch>x86_64|aarch64|ppc64le|i686|riscv64|s390x)\s*$"
LSCPU_LINE: Final = re.compile(rf"^\s*{LSCPU_BEGIN}")
LSCPU_MORE: Final = re.compile(r"^\s*(?:[A-Z\x80-\uffff][^:：]{0,60}[:：](?:\s|$)|[A-Z][^:：]{1,60}\):[0-9])")
NUMACTL_LINE: Final = re.compile(r"^\s*available: [0-9]{1,4} nodes? \(")
NUMACTL_MORE: Final = re.compile(
    r"^\s*(?:node [0-9]{1,4} (?:cpus|size|free):|node distances:|node(?:\s+[0-9]{1,4})+\s*$"
    r"|[0-9]{1,4}:(?:\s+[0-9]{1,4})+)"
)
UNAME_LINE: Final = re.compile(
    r"^\s*(?:uname: )?Linux (?P<host>[A-Za-z0-9][\w.-]{0,62}) (?P<kernel>[0-9]+\.[0-9]+\S{0,60}) #"
)
BANNER_LINE: Final = re.compile(r"^\s*NVRM version: (?P<text>NVIDIA UNIX .{5,160})")
CMDLINE_LINE: Final = re.compile(r"^\s*(?P<text>BOOT_IMAGE=\S.{0,4000})")
REPORT_LINE: Final = re.compile(
    r"^\s*(?:Nvidia driver version|CUDA Driver Version): *(?P<version>[0-9]{3,4}(?:\.[0-9]{1,4}){1,2})\s*$"
)
PACKAGE_LINE: Final = re.compile(
    r"^\s*(?:\[(?:pip3?|conda)\] *)?(?P<name>nvidia-nccl-cu[0-9]{2})(?:==| +)"
    r"(?P<version>[0-9]{1,3}(?:\.[0-9]{1,3}){2})\b"
)

_PAIR = re.compile(r"^\s*(?P<key>[^:：]{1,60}?)\s*[:：](?P<value>.*)$")
_NODE_CPUS = re.compile(r"\w{0,10} ?NUMA[^0-9]{0,12}(?P<node>[0-9]{1,4})(?: [^0-9]{0,24})?")
_IN_ENGLISH: Final = {
    **dict.fromkeys(("Anbieterkennung", "Identifiant constructeur", "厂商 ID"), "Vendor ID"),
    **dict.fromkeys(("Modellname", "Nom de modèle", "型号名称"), "Model name"),
    **dict.fromkeys(("Prozessorfamilie", "Famille de processeur", "CPU 系列"), "CPU family"),
    **dict.fromkeys(("Modell", "Modèle", "型号"), "Model"),
    **dict.fromkeys(("Sockel", "座"), "Socket(s)"),
    **dict.fromkeys(
        ("Liste der Online-CPU(s)", "Liste de processeur(s) en ligne", "在线 CPU 列表"), "On-line CPU(s) list"
    ),
}
"""Labels of `lscpu` in German, French and Chinese."""
_CPU_LIST = re.compile(r"[0-9]{1,6}(?:[-,][0-9]{1,6}){0,4096}")
_HYPERVISORS: Final = {"KVM": "KVM", "VMware": "VMware", "Microsoft": "Microsoft", "Xen": "Xen"}
_VERSION = re.compile(r"\b[0-9]{3,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?\b")
_NODE = re.compile(r"^\s*node (?P<node>[0-9]{1,4}) (?P<what>cpus|size): ?(?P<value>.*)$")
_DISTANCES = re.compile(r"^\s*(?P<node>[0-9]{1,4}):(?P<values>(?:\s+[0-9]{1,4})+)\s*$")


def lscpu_part(lines: Iterable[Line], file: str) -> Part | None:
    """Read one `lscpu`, in part where its language is not known; None where it is none."""
    told: dict[str, str] = {}
    label = ""
    for line in lines:
        if begin := LSCPU_LINE.match(line.text):
            label, told["Architecture"] = begin["label"], begin["arch"]
        elif pair := _PAIR.match(line.text):
            value = pair["value"].strip()
            told.setdefault(_by_value(value) or _IN_ENGLISH.get(pair["key"], pair["key"]), value)
    foreign = label not in ("Architecture", "Architektur", "架构")
    if foreign and not told.keys() & {*_IN_ENGLISH.values()}:
        return None
    nodes = []
    for key, value in told.items():
        if (node := _NODE_CPUS.fullmatch(key)) and (not value or _CPU_LIST.fullmatch(value)):
            nodes.append(NumaNode(id=int(node["node"]), cpus=value))
    vendor = told.get("Vendor ID")
    online = told.get("On-line CPU(s) list", "")
    cpu = Cpu(
        architecture=told.get("Architecture"),
        vendor=processors.vendor(vendor) if vendor else None,
        model_name=told.get("Model name") or None,
        family=number(told.get("CPU family")),
        model=number(told.get("Model")),
        sockets=number(told.get("Socket(s)")) or None,
        online=online if _CPU_LIST.fullmatch(online) else None,
    )
    hypervisor = told.get("Hypervisor vendor")
    if hypervisor is not None:
        hypervisor = _HYPERVISORS.get(hypervisor, hypervisor)
    elif cpu.architecture == "x86_64" and (flags := told.get("Flags", "").split()):
        # On x86 the processor itself says that it is a virtual one.
        hypervisor = "unknown" if "hypervisor" in flags else "none"
    host = Host(cpu=cpu, numa_nodes=nodes or None, hypervisor=hypervisor)
    unread = ["labels in a language that is not read; `LC_ALL=C lscpu` prints them in English"] if foreign else []
    return Part(Snapshot(sources=[source("lscpu", unread)], host=host), file)


def _by_value(value: str) -> str | None:
    """The label of a value that is the same in every language."""
    if processors.is_vendor_id(value):
        return "Vendor ID"
    if value.startswith("fpu vme "):
        return "Flags"
    return "Hypervisor vendor" if value in _HYPERVISORS else None


def numactl_part(lines: Iterable[Line], file: str) -> Part:
    """Read one `numactl -H`: CPUs, memory (MB there are MiB) and distances of the NUMA nodes."""
    nodes: dict[int, dict[str, Any]] = {}
    for line in lines:
        if told := _NODE.match(line.text):
            node = nodes.setdefault(int(told["node"]), {})
            if told["what"] == "cpus":
                numbers = [int(word) for word in told["value"].split() if re.fullmatch(r"[0-9]{1,6}", word)]
                node["cpus"] = ranges(numbers)
            elif size := re.fullmatch(r"([0-9]{1,12}) MB", told["value"].strip()):
                node["memory_bytes"] = int(size[1]) << 20
        elif (told := _DISTANCES.match(line.text)) and int(told["node"]) in nodes:
            nodes[int(told["node"])]["distances"] = [int(word) for word in told["values"].split()]
    read = [NumaNode(id=id, **node) for id, node in sorted(nodes.items())]
    return Part(Snapshot(sources=[source("numactl -H")], host=Host(numa_nodes=read or None)), file)


def uname_part(lines: Iterable[Line], file: str) -> Part:
    """Read the line of `uname -a`, as a bug report has it at its head."""
    match = next(match for line in lines if (match := UNAME_LINE.match(line.text)))
    return Part(Snapshot(sources=[source("uname -a")], host=Host(hostname=match["host"], kernel=match["kernel"])), file)


def banner_part(lines: Iterable[Line], file: str) -> Part:
    """Read the first line of `/proc/driver/nvidia/version`."""
    text = next(match["text"].strip() for line in lines if (match := BANNER_LINE.match(line.text)))
    version = _VERSION.search(text)
    driver = Driver(
        version=version.group() if version else None,
        flavour="open" if "Open Kernel Module" in text else "proprietary",
        banner=f"NVRM version: {text}",
    )
    return Part(Snapshot(sources=[source("/proc/driver/nvidia/version")], driver=driver), file)


def command_line_part(lines: Iterable[Line], file: str) -> Part:
    """Read the kernel's command line, as `/proc/cmdline` shows it."""
    text = next(match["text"].strip() for line in lines if (match := CMDLINE_LINE.match(line.text)))
    return Part(Snapshot(sources=[source("/proc/cmdline")], host=Host(command_line=text)), file)


def report_part(lines: Iterable[Line], file: str) -> Part:
    """Read the driver's version from what `python -m torch.utils.collect_env` and its kin print."""
    version = next(match["version"] for line in lines if (match := REPORT_LINE.match(line.text)))
    return Part(Snapshot(sources=[source("collect_env")], driver=Driver(version=version)), file)


def packages_part(lines: Iterable[Line], file: str) -> Part:
    """Read the NCCL that is installed as a Python package, which is the one that PyTorch's wheels load."""
    found = {match["name"]: match["version"] for line in lines if (match := PACKAGE_LINE.match(line.text))}
    libraries = [NcclLibrary(path=name, version=version, read_by="package metadata") for name, version in found.items()]
    return Part(Snapshot(sources=[source("pip list")], nccl_libraries=libraries), file)
