"""`nvidia-smi -q`, as text and as XML (`-q -x`): what the driver says about each GPU.

The text is read by its indentation: headings end without a colon, and what stands further right belongs to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from topoadvisor import pci, xml_tree
from topoadvisor.ingest.lines import Line
from topoadvisor.ingest.part import Part, number, source
from topoadvisor.snapshot import CallError, Driver, Fabric, Gpu, PcieLink, Snapshot

TEXT, XML = "nvidia-smi -q", "nvidia-smi -q -x"
ROOT: Final = "nvidia_smi_log"
MAX_GPUS = 1024
MAX_ELEMENTS = 400_000
"""256 GPUs with all that the newest driver prints have half of it."""
_HINT = "`nvidia-smi -q -x` prints a whole one; the text may have been cut while it was copied."

BANNER = re.compile(r"^\W{0,40}={5,}\s*NVSMI LOG\s*={5,}")
GPU_LINE = re.compile(r"^\s*GPU (?P<address>[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7])\s*$", re.I)
_PAIR = re.compile(r"^(?P<indent>\s*)(?P<key>\S[^:]{0,60}?)\s*: (?P<value>.{0,200})")
_HEADING = re.compile(r"^(?P<indent>\s+)(?P<name>[A-Za-z][\w /.()-]{1,60}?)\s*$")
_HEAD_KEYS = ("Timestamp", "Driver Version", "CUDA Version", "Attached GPUs")

_FIELDS: Final[dict[str, tuple[str, str]]] = {
    "name": ("Product Name", "product_name"),
    "brand": ("Product Brand", "product_brand"),
    "mig": ("MIG Mode/Current", "mig_mode/current_mig"),
    "uuid": ("GPU UUID", "uuid"),
    "c2c": ("GPU C2C Mode", "c2c_mode"),
    "virtualization": ("GPU Virtualization Mode/Virtualization Mode", "gpu_virtualization_mode/virtualization_mode"),
    "device": ("PCI/Device Id", "pci/pci_device_id"),
    "bus": ("PCI/Bus Id", "pci/pci_bus_id"),
    "max_gen": ("PCI/GPU Link Info/PCIe Generation/Max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    "current_gen": ("PCI/GPU Link Info/PCIe Generation/Current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
    "device_max_gen": (
        "PCI/GPU Link Info/PCIe Generation/Device Max",
        "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
    ),
    "max_width": ("PCI/GPU Link Info/Link Width/Max", "pci/pci_gpu_link_info/link_widths/max_link_width"),
    "current_width": ("PCI/GPU Link Info/Link Width/Current", "pci/pci_gpu_link_info/link_widths/current_link_width"),
    "replays": ("PCI/Replays Since Reset", "pci/replay_counter"),
    "state": ("Performance State", "performance_state"),
    "memory": ("FB Memory Usage/Total", "fb_memory_usage/total"),
    "bar1": ("BAR1 Memory Usage/Total", "bar1_memory_usage/total"),
    "fabric": ("Fabric/State", "fabric/state"),
    "fabric_status": ("Fabric/Status", "fabric/status"),
    "clique": ("Fabric/CliqueId", "fabric/cliqueId"),
    "cluster": ("Fabric/ClusterUUID", "fabric/clusterUuid"),
}
"""Name here → path in the text, path in the XML."""
_TEXT_PATHS: Final = {text: name for name, (text, _) in _FIELDS.items()}
_TEXT_PATHS["PCI/Replays since reset"] = "replays"
_XML_PATHS: Final = {path: name for name, (_, path) in _FIELDS.items()}
FABRIC_STATUSES: Final = {
    "success": 0,
    "timeout": 10,
    "insufficient-resources": 23,
    "not-ready": 27,
    "invalid-state": 29,
    "unknown-error": 999,
}
"""What `nvidia-smi` prints as the status of the fabric, hyphens for blanks → NVML's return code (nvml.h)."""
_DEEPEST: Final = 4

_VIRTUALIZATION: Final[dict[str, Any]] = {
    "none": "none",
    "pass-through": "passthrough",
    "vgpu": "vgpu",
    "host vgpu": "host-vgpu",
    "host vsga": "host-vsga",
}
_FABRIC_STATES: Final[dict[str, Any]] = {
    "not supported": "not-supported",
    "not started": "not-started",
    "in progress": "in-progress",
    "completed": "completed",
}


def goes_on(text: str) -> bool:
    """The line can stand in the text of `nvidia-smi -q`."""
    return _PAIR.match(text) is not None or _HEADING.match(text) is not None or GPU_LINE.match(text) is not None


def part(lines: Iterable[Line], file: str) -> Part | None:
    """Read the text of one `nvidia-smi -q`; None when it says nothing about a GPU or the driver."""
    head: dict[str, str] = {}
    gpus: list[dict[str, str]] = []
    above: list[tuple[int, str]] = []
    for line in lines:
        text = line.text.expandtabs(4)
        if gpu := GPU_LINE.match(text):
            if len(gpus) >= MAX_GPUS:
                break
            gpus.append({"bus": gpu["address"]})
            above = []
        elif pair := _PAIR.match(text):
            if pair["key"] in _HEAD_KEYS:
                head.setdefault(pair["key"], pair["value"].strip())
            elif gpus:
                path = _path(above, len(pair["indent"]), pair["key"])
                if name := _TEXT_PATHS.get(path):
                    gpus[-1].setdefault(name, pair["value"].strip())
        elif heading := _HEADING.match(text):
            indent = len(heading["indent"])
            above = [entry for entry in above if entry[0] < indent][:_DEEPEST]
            above.append((indent, heading["name"]))
    return _part(TEXT, gpus, head, file)


def _path(above: Sequence[tuple[int, str]], indent: int, key: str) -> str:
    return "/".join([name for place, name in above if place < indent] + [key])


def xml_part(text: str, file: str) -> Part | None:
    """Read the XML of one `nvidia-smi -q -x`. Raises InputError with line and column when it is broken."""
    tags = frozenset(step for path in _XML_PATHS for step in path.split("/")[-1:]) | {
        "driver_version",
        "cuda_version",
        "attached_gpus",
    }
    root = xml_tree.parse(text, file=file, hint=_HINT, max_elements=MAX_ELEMENTS, doctype=ROOT, texts=tags)
    named = (("driver_version", 1), ("cuda_version", 2), ("attached_gpus", 3))
    head = {_HEAD_KEYS[place]: element.text.strip() for tag, place in named for element in root.each(tag)}
    gpus = []
    for element in root.each("gpu"):
        values = {name: found for path, name in _XML_PATHS.items() if (found := _text_at(element, path))}
        gpus.append({"bus": element.attributes.get("id", ""), **values})
    return _part(XML, gpus[:MAX_GPUS], head, file)


def xml_lines_part(lines: Iterable[Line], file: str) -> Part | None:
    """Read the XML that stands in these lines of a text. Raises InputError as `xml_part` does."""
    found = list(lines)
    first = found[0].number if found else 1
    # Empty lines in front put every error where it is in the file.
    return xml_part("\n" * (first - 1) + "\n".join(line.text for line in found), file)


def _text_at(element: xml_tree.Element, path: str) -> str | None:
    here: xml_tree.Element | None = element
    for tag in path.split("/"):
        here = next(here.each(tag), None) if here is not None else None
    return here.text.strip() if here is not None else None


def _part(name: str, gpus: Sequence[Mapping[str, str]], head: Mapping[str, str], file: str) -> Part | None:
    driver = Driver(version=_version(head.get("Driver Version")), cuda=_version(head.get("CUDA Version")))
    if not gpus and driver == Driver():
        return None
    attached = number(head.get("Attached GPUs"))
    count = attached if attached is not None and len(gpus) <= attached <= MAX_GPUS else None
    errors: list[CallError] = []
    notes: list[str] = []
    if count is not None and 0 < len(gpus) < count:
        notes.append(f"{len(gpus)} of {count} GPUs are shown, and not which numbers they have")
    read = [_gpu(values, index, errors) for index, values in enumerate(gpus)]
    return Part(
        Snapshot(sources=[source(name, notes, errors)], gpus=read, driver=driver),
        file,
        numbered=count == len(gpus),
        count=count,
    )


def _version(text: str | None) -> str | None:
    return text if text is not None and re.fullmatch(r"[0-9]{1,5}(?:\.[0-9]{1,5}){0,3}", text) else None


def _gpu(values: Mapping[str, str], index: int, errors: list[CallError]) -> Gpu:
    told = {name: text for name, text in values.items() if text not in ("", "N/A", "[N/A]")}
    device = re.fullmatch(r"(?:0x)?([0-9A-F]{4})10DE", told.get("device", ""), re.I)
    state = re.fullmatch(r"P([0-9]|1[0-5])", told.get("state", ""))
    pcie = PcieLink(
        current_gen=_positive(told.get("current_gen")),
        max_gen=_positive(told.get("max_gen")),
        device_max_gen=_positive(told.get("device_max_gen")),
        current_width=_width(told.get("current_width")),
        max_width=_width(told.get("max_width")),
    )
    return Gpu(
        index=index,
        name=told.get("name"),
        address=_address(told.get("bus")),
        uuid=told.get("uuid"),
        pci_device=f"0x{device[1].lower()}" if device else None,
        brand=told.get("brand"),
        memory_bytes=_bytes(told.get("memory")),
        bar1_bytes=_bytes(told.get("bar1")),
        pcie=None if pcie == PcieLink() else pcie,
        # What the link carries, where there is one, is not printed.
        c2c_gbps=0.0 if told.get("c2c") == "Disabled" else None,
        fabric=_fabric(told, index, errors),
        mig=_switched(values.get("mig")),
        virtualization=_VIRTUALIZATION.get(told.get("virtualization", "").lower()),
        performance_state=int(state[1]) if state else None,
        pcie_replays=number(told.get("replays")),
    )


def _address(text: str | None) -> str | None:
    try:
        return pci.normalize(text or "")
    except ValueError:
        return None


def _width(text: str | None) -> int | None:
    return _positive(text.removesuffix("x")) if text is not None else None


def _positive(text: str | None) -> int | None:
    """A generation or a width; the driver prints 0 where it does not know."""
    value = number(text)
    return value if value is not None and value > 0 else None


def _bytes(text: str | None) -> int | None:
    """`143771 MiB` → bytes; the driver prints whole MiB."""
    match = re.fullmatch(r"([0-9]{1,9}) MiB", text or "")
    return int(match[1]) << 20 if match else None


def _switched(text: str | None) -> bool | None:
    """`N/A` is what a GPU prints that has no such mode."""
    return {"Enabled": True, "Disabled": False, "N/A": False}.get(text or "")


def _fabric(told: Mapping[str, str], index: int, errors: list[CallError]) -> Fabric | None:
    state = _FABRIC_STATES.get(told.get("fabric", "").lower())
    if state is None:
        return None
    status = told.get("fabric_status")
    code = FABRIC_STATUSES.get((status or "").lower().replace(" ", "-"))
    if status is not None and code is None:
        errors.append(CallError(call="Fabric Status", error=status[:80] if status else "", subject=f"gpu:{index}"))
    cluster = told.get("cluster", "")
    return Fabric(
        state=state,
        status=code,
        cluster_uuid=cluster if re.fullmatch(r"[0-9a-f-]{36}", cluster, re.I) and cluster.strip("0-") else None,
        clique=number(told.get("clique")),
    )
