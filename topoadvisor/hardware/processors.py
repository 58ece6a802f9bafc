"""Who made a CPU, by what it says of itself."""

from __future__ import annotations

from typing import Final

_VENDORS: Final = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "HygonGenuine": "Hygon",
    "CentaurHauls": "Zhaoxin",
    "Shanghai": "Zhaoxin",
    "ARM": "Arm",
}
_ARM_IMPLEMENTERS: Final = {0x41: "Arm", 0x4E: "NVIDIA", 0xC0: "Ampere", 0x48: "HiSilicon", 0x46: "Fujitsu"}
_ARM_NEOVERSE: Final = {0xD0C: "Neoverse-N1", 0xD40: "Neoverse-V1", 0xD49: "Neoverse-N2", 0xD4F: "Neoverse-V2"}


def vendor(text: str) -> str:
    """`Intel` for CPUID's `GenuineIntel`; a text that is not known stays itself."""
    return _VENDORS.get(text.strip(), text.strip())


def is_vendor_id(text: str) -> bool:
    """Whether a CPU names its maker so: `GenuineIntel`."""
    return text in _VENDORS


def arm(implementer: str, part: str | None) -> tuple[str, str | None]:
    """Vendor and core name of an Arm CPU by the `0x41` and `0xd4f` of its identification register."""
    maker = _number(implementer)
    name = _ARM_NEOVERSE.get(_number(part) or 0) if maker == 0x41 else None
    return _ARM_IMPLEMENTERS.get(maker or 0, implementer), name


def _number(text: str | None) -> int | None:
    try:
        return int(text or "", 16)
    except ValueError:
        return None
