"""`lspci`: the tree (`-t`, `-tv`), blocks of details (`-v`, `-vv`) and plain lists (`-nn`, `-n`).

Only functions that matter for GPU traffic are kept, and the bridges above them. A tree says for every function what is
above it. Blocks say it through the bus numbers of their bridges; a plain list says it for bus 0 alone, which is a root
bus always. Where a bridge is not in the text, what is above stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from topoadvisor import pci
from topoadvisor.hardware import catalogue
from topoadvisor.ingest.lines import Line
from topoadvisor.ingest.part import Part, decimal, number, source
from topoadvisor.snapshot import Gpu, PciDevice, Snapshot

DETAILED: Final = "lspci -vv"
"""The output whose bridges say which buses are below them."""
BLOCK_LINE: Final = re.compile(
    r"^\s*(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"(?P<class>[A-Za-z0-9][^:\[\]]{2,60}?)(?: \[(?P<code>[0-9a-f]{4})\])?: (?P<rest>\S.{0,300})"
)
TREE_LINE: Final = re.compile(r"^[\s|]*[-+\\][-+]*\[[0-9a-f]{4,8}:[0-9a-f]{2}(?:-[0-9a-f]{2})?\]-")
TREE_MORE: Final = re.compile(r"^[\s|]*[+\\]-(?:[0-9a-f]{2}\.[0-7]|\[)")
DETAIL: Final = re.compile(
    r"^\s*(?:NUMA node: |IOMMU group: |Flags: |Bus: primary=|LnkCap:|LnkSta:|ACSCtl:|Kernel driver in use: "
    r"|Capabilities: )"
)
HEXDUMP: Final = re.compile(r"^\s*[0-9a-f]{2,3}: (?:[0-9a-f]{2} ?){1,16}\s*$")

_IDS = re.compile(r"\[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]")
_PLAIN_IDS = re.compile(r"^(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\b")
_NO_NAME = re.compile(r"\bDevice (?P<device>[0-9a-f]{4})\b")
_VENDORS: Final = (
    ("NVIDIA", "0x10de"),
    ("Mellanox", "0x15b3"),
    ("Red Hat, Inc. QEMU", "0x1b36"),
    ("Red Hat, Inc. Virtio", "0x1af4"),
    ("Advanced Micro Devices", "0x1022"),
    ("Intel Corporation", "0x8086"),
    ("PLX Technology", "0x10b5"),
    ("Broadcom / LSI", "0x1000"),
    ("PMC-Sierra", "0x11f8"),
    ("Microsemi", "0x11f8"),
)
"""How the names of pci.ids begin, for lists without numbers. AMD's GPUs have another number, and do not matter here."""
_CLASSES: Final = {
    "VGA compatible controller": "0x0300",
    "3D controller": "0x0302",
    "Display controller": "0x0380",
    "Host bridge": "0x0600",
    "PCI bridge": "0x0604",
    "Bridge": "0x0680",
    "Ethernet controller": "0x0200",
    "Infiniband controller": "0x0207",
    "InfiniBand controller": "0x0207",
    "Network controller": "0x0280",
    "Non-Volatile memory controller": "0x0108",
    "Processing accelerators": "0x1200",
    "Co-processor": "0x0b40",
}
_PORTS: Final = (
    ("Root Port", "root-port"),
    ("Upstream Port", "upstream"),
    ("Downstream Port", "downstream"),
    ("Legacy Endpoint", "legacy-endpoint"),
    ("Root Complex Integrated Endpoint", "root-complex-endpoint"),
    ("Endpoint", "endpoint"),
)
_ROOT_TYPES: Final = ("root-port", "root-complex-endpoint")
_CHIP = re.compile(r"\bG?[ABFGHKMPTVD]{1,2}[0-9]{2,3}[A-Z]{0,3} \[(?P<name>[^\]]{2,60})\]")
"""`GA100 [A100 SXM4 80GB]`: the chip and, for a graphics device, the board's name."""
_NOT_A_GPU = re.compile(r"NVSwitch|Audio|USB|UCSI|Bridge|Ethernet", re.I)
_MOVES_DATA = re.compile(r"ConnectX|Mellanox|InfiniBand|Ethernet|NVMe|Non-Volatile", re.I)
_BUSES = re.compile(r"primary=[0-9a-f]{2}, secondary=(?P<first>[0-9a-f]{2}), subordinate=(?P<last>[0-9a-f]{2})")
_SPEED = re.compile(r"Speed (?P<gts>[0-9]{1,3}(?:\.[0-9]{1,2})?)GT/s")
_WIDTH = re.compile(r"Width x(?P<width>[0-9]{1,2})\b")
_FLAGS = re.compile(r"\b(NUMA node|IOMMU group) ([0-9]{1,6})\b")
_EXTENDED = re.compile(r"Capabilities: \[[1-9a-f][0-9a-f]{2} v")
_STEP = re.compile(
    r"(?P<root>\[(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2})(?:-[0-9a-f]{2})?\])"
    r"|(?P<below>\[(?P<first>[0-9a-f]{2})(?:-[0-9a-f]{2})?\])"
    r"|(?P<place>(?P<device>[0-9a-f]{2})\.(?P<function>[0-7]))|(?P<fork>\+)|(?P<line>-)"
)


@dataclass
class _Function:
    """One function as the text shows it."""

    address: str
    description: str
    class_code: str | None = None
    vendor: str | None = None
    device: str | None = None
    parent: str | None = None
    root: str | None = None
    buses: tuple[int, int] | None = None
    """Of a bridge: the first and the last bus below it."""
    details: dict[str, str] = field(default_factory=dict)
    port_type: str | None = None
    acs: bool | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Domain and bus."""
        domain, bus, _ = self.address.split(":")
        return domain, int(bus, 16)


def tree_part(lines: Iterable[Line], file: str) -> Part | None:
    """Read `lspci -t` or `-tv`; None when nothing that matters is named in it."""
    functions: dict[str, _Function] = {}
    columns: dict[int, tuple[str, str, str | None]] = {}
    for line in lines:
        for function in _tree_line(line.text.expandtabs(8).rstrip(), columns):
            functions.setdefault(function.address, function)
    named = any(function.description for function in functions.values())
    return _part("lspci -tv" if named else "lspci -t", functions, file)


def _tree_line(text: str, columns: dict[int, tuple[str, str, str | None]]) -> Iterator[_Function]:
    """The functions that one line of the tree introduces.

    `columns` remembers for each column of forks whose children hang there: domain and bus, root, bridge above.
    """
    place = len(text) - len(text.lstrip(" |"))
    bus: tuple[str, str, str | None] | None = None
    if text[place : place + 1] in ("+", "\\"):
        if place not in columns:
            return
        bus = columns[place]
        place += 1
    last: _Function | None = None
    while match := _STEP.match(text, place):
        if match["root"]:
            domain = f"{int(match['domain'], 16):04x}"
            bus = (f"{domain}:{match['bus']}", f"{domain}:{match['bus']}", None)
        elif match["below"] and last is not None:
            domain = last.address.partition(":")[0]
            bus = (f"{domain}:{match['first']}", last.root or "", last.address)
            last.class_code = last.class_code or "0x0604"
            yield last
            last = None
        elif match["fork"]:
            columns[place] = bus or ("", "", None)
        elif match["place"] and bus is not None and bus[0]:
            if last is not None:
                break
            address = f"{bus[0]}:{match['device']}.{match['function']}"
            last = _Function(address, "", parent=bus[2], root=bus[1] or None)
        elif not match["line"]:
            break
        place = match.end()
    if last is not None:
        last.description = text[place:].strip()
        _identify(last, last.description)
        yield last


def block_part(lines: Iterable[Line], file: str) -> Part | None:
    """Read blocks or a plain list; None when nothing that matters is named in it."""
    functions: dict[str, _Function] = {}
    current: _Function | None = None
    detailed = numbers = False
    for line in lines:
        if found := BLOCK_LINE.match(line.text):
            address = pci.normalize(found["address"])
            current = functions.setdefault(address, _Function(address, found["rest"]))
            code = found["code"] or (found["class"] if re.fullmatch(r"[0-9a-f]{4}", found["class"]) else None)
            if current.class_code is None or code:
                current.class_code = f"0x{code}" if code else _CLASSES.get(found["class"])
            _identify(current, found["rest"])
            numbers = numbers or found["code"] is not None
        elif current is not None and DETAIL.match(line.text):
            detailed = True
            _read_detail(current, line.text.strip())
    hang = _hang_up if detailed else _hang_on_bus_zero
    hang(functions)
    return _part(DETAILED if detailed else "lspci -nn" if numbers else "lspci", functions, file)


def _identify(function: _Function, text: str) -> None:
    """Vendor and device by number where the text has numbers, else what the names tell."""
    ids = _IDS.search(text) or _PLAIN_IDS.match(text)
    if ids:
        function.vendor, function.device = f"0x{ids['vendor']}", f"0x{ids['device']}"
    elif function.vendor is None:
        function.vendor = next((number for name, number in _VENDORS if text.startswith(name)), None)
        unnamed = _NO_NAME.search(text)
        function.device = f"0x{unnamed['device']}" if unnamed else None


def _read_detail(function: _Function, text: str) -> None:
    key, _, value = text.partition(":")
    if key == "Bus" and (buses := _BUSES.search(value)):
        function.buses = int(buses["first"], 16), int(buses["last"], 16)
    elif key == "Capabilities":
        if " Express" in value:
            function.port_type = next((kind for name, kind in _PORTS if name in value), None)
        if "Access Control Services" in value:
            function.details["ACS"] = ""
        elif _EXTENDED.match(text):
            function.details["extended"] = ""
    elif key == "Flags":
        # `-v` has on this line what `-vv` gives lines of their own.
        for name, told in _FLAGS.findall(value):
            function.details.setdefault(name, told)
    elif key == "ACSCtl":
        function.acs = "ReqRedir+" in value or "CmpltRedir+" in value
    else:
        function.details.setdefault(key, value.strip())


def _hang_up(functions: dict[str, _Function]) -> None:
    """Say what is above each function, by the bus numbers of the bridges."""
    above: dict[tuple[str, int], _Function] = {}
    for function in functions.values():
        if function.buses is not None and function.buses[0] > 0:
            above[function.place[0], function.buses[0]] = function
    roots = {function.place for function in functions.values() if _on_root_bus(function)}
    for function in functions.values():
        bridge = above.get(function.place)
        if bridge is not None and bridge.address != function.address:
            function.parent = bridge.address
    for function in functions.values():
        top = function
        seen = {function.address}
        while top.parent is not None and top.parent not in seen:
            seen.add(top.parent)
            top = functions[top.parent]
        if top.place in roots:
            function.root = f"{top.place[0]}:{top.place[1]:02x}"


def _on_root_bus(function: _Function) -> bool:
    """Only a root bus has the number 0, a host bridge, a root port, or an endpoint inside a root complex."""
    return (
        function.place[1] == 0 or (function.class_code or "").startswith("0x0600") or function.port_type in _ROOT_TYPES
    )


def _hang_on_bus_zero(functions: dict[str, _Function]) -> None:
    for function in functions.values():
        if function.place[1] == 0:
            function.root = f"{function.place[0]}:00"


def _part(name: str, functions: dict[str, _Function], file: str) -> Part | None:
    # A tree without names does not tell what matters: texts beside it may.
    wanted = {address for address, function in functions.items() if name == "lspci -t" or _matters(function)}
    for address in list(wanted):
        above = functions[address].parent
        while above is not None and above not in wanted:
            wanted.add(above)
            above = functions[above].parent if above in functions else None
    kept = [functions[address] for address in sorted(wanted & set(functions), key=pci.sort_key)]
    if not kept:
        return None
    virtual = pci.virtual_gpus(function.address for function in functions.values() if _is_graphics(function))
    return Part(
        Snapshot(
            sources=[source(name)],
            gpus=_gpus([function for function in kept if _is_gpu(function) and function.address not in virtual]),
            pci=[_device(function, virtual.get(function.address)) for function in kept],
        ),
        file,
        numbered=False,
    )


def _matters(function: _Function) -> bool:
    if function.class_code is not None:
        return pci.matters(function.class_code, function.vendor)
    return _is_gpu(function) or _MOVES_DATA.search(function.description) is not None


def _board(function: _Function) -> str | None:
    """The name of a graphics board as pci.ids has it."""
    name = _CHIP.search(function.description)
    return name["name"] if name and not _NOT_A_GPU.search(function.description) else None


def _is_graphics(function: _Function) -> bool:
    """A function of an NVIDIA graphics device, virtual ones included; in a tree the name has to tell."""
    if function.vendor != pci.NVIDIA:
        return False
    if function.class_code is not None:
        return function.class_code.startswith(("0x0300", "0x0302"))
    return _board(function) is not None or catalogue.gpu_model(None, function.device) is not None


def _is_gpu(function: _Function) -> bool:
    """A graphics function that this operating system drives itself."""
    given_away = function.details.get("Kernel driver in use") == "vfio-pci"
    first = function.class_code is not None or function.address.endswith(".0")
    return _is_graphics(function) and first and not given_away


def _gpus(functions: Sequence[_Function]) -> list[Gpu]:
    """In bus order, named as pci.ids names the board."""
    return [
        Gpu(
            index=index,
            name=_board(function),
            address=function.address,
            pci_device=function.device,
            numa_node=number(function.details.get("NUMA node")),
        )
        for index, function in enumerate(functions)
    ]


def _device(function: _Function, physical: str | None) -> PciDevice:
    details = function.details
    now, top = details.get("LnkSta", ""), details.get("LnkCap", "")
    acs = function.acs
    if acs is None and "extended" in details and "ACS" not in details and "LnkSta" in details:
        acs = False
    return PciDevice(
        address=function.address,
        class_code=function.class_code,
        vendor=function.vendor,
        device=function.device,
        parent=function.parent,
        root=function.root,
        driver=details.get("Kernel driver in use"),
        numa_node=number(details.get("NUMA node")),
        link_speed_gts=_speed(now),
        link_width=_width(now),
        max_link_speed_gts=_speed(top),
        max_link_width=_width(top),
        iommu_group=details.get("IOMMU group"),
        port_type=function.port_type,
        acs_redirect=acs,
        sriov_of=physical,
    )


def _speed(text: str) -> float | None:
    match = _SPEED.search(text)
    return decimal(match["gts"]) if match else None


def _width(text: str) -> int | None:
    """Lanes; 0 is what a virtual function and an empty slot show."""
    match = _WIDTH.search(text)
    return int(match["width"]) or None if match else None
