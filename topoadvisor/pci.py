"""PCI addresses, normalised in one place."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ADDRESS = re.compile(
    r"^(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?$", re.I
)

_CLASSES = ("0x02", "0x03", "0x12", "0x0108", "0x0801", "0x0b40", "0x0c06")
"""Network, display, accelerator, NVMe, DMA engine, co-processor, older InfiniBand adapter."""
_NVIDIA_BRIDGE = "0x0680"
"""NVSwitch and NVLink bridge functions."""
NVIDIA = "0x10de"


def matters(class_code: str, vendor: str | None) -> bool:
    """Whether a function moves data beside GPUs, or is one: `class_code` as `0x0302` or `0x030200`."""
    return class_code.startswith(_CLASSES) or (class_code.startswith(_NVIDIA_BRIDGE) and vendor == NVIDIA)


def virtual_gpus(addresses: Iterable[str]) -> dict[str, str]:
    """SR-IOV functions among those of NVIDIA's graphics classes → their physical function, where only addresses tell.

    A GPU itself is function 0 of the only device on its bus. Its virtual functions begin with later functions of that
    device and may go on in further ones.
    """
    places: dict[str, list[str]] = {}
    for address in addresses:
        bus, _, place = address.rpartition(":")
        places.setdefault(bus, []).append(place)
    return {
        f"{bus}:{place}": f"{bus}:00.0"
        for bus, found in places.items()
        if "00.0" in found and any(place.startswith("00.") and place != "00.0" for place in found)
        for place in found
        if place != "00.0"
    }


def normalize(address: str) -> str:
    """Return a PCI address as sysfs spells it: `0000:1a:00.0`, five or more domain digits only when needed.

    Accepts NVML's eight-digit upper-case domain, no domain, and a missing function.

    Raises ValueError when `address` is not a PCI address.
    """
    match = _ADDRESS.match(address.strip())
    if match is None:
        raise ValueError(f"not a PCI address: {address!r}")
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{int(match['bus'], 16):02x}:{int(match['device'], 16):02x}.{match['function'] or '0'}"


def is_placeholder(address: str) -> bool:
    """True for the all-ones address that a hypervisor or a fabric outside the operating system shows as a peer."""
    return set(address.lower()) <= set("f:.0") and "ff:ff" in address.lower()


def sort_key(address: str) -> tuple[int, int, int, int]:
    """Sort key of a normalised address, in bus order."""
    domain, bus, rest = address.split(":")
    device, function = rest.split(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function)
