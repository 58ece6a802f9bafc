"""What the vendor of this machine publishes for NCCL, beside what is set here: compared, and in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from topoadvisor.advice import Reference, VendorLine, VendorValues
from topoadvisor.hardware import vendor_values
from topoadvisor.rules import facts_vendor
from topoadvisor.rules.facts import FactBase

_MARKS: Final = {"same": "✓", "differs": "!", "missing": "!", "stale": "!", "left to the plugin": "·", "not known": "?"}


def beside(base: FactBase) -> VendorValues | None:
    """What the vendor of this machine publishes for NCCL, beside what is set; None where nothing is known of it."""
    found = facts_vendor.compared(base.node, base.fact)
    if found is None:
        return None
    profile = found.profile
    return VendorValues(
        profile=profile.name,
        what=profile.what,
        by=profile.by,
        where=profile.where,
        lines=[VendorLine(**line._asdict()) for line in found.lines],
        sources=[
            Reference(what=each.what, url=each.url, read=str(each.read) if each.read else None)
            for each in vendor_values.sources(profile)
        ],
    )


def short(vendor: VendorValues) -> Iterator[str]:
    """Paragraphs: who publishes what, then the lines by their state; nothing of single lines that are as published."""
    yield head(vendor)
    by_state: dict[str, list[VendorLine]] = {}
    for line in vendor.lines:
        by_state.setdefault(line.state, []).append(line)
    if same := by_state.pop("same", []):
        yield f"✓ as published: {len(same)} of {len(vendor.lines)}"
    for line in [*by_state.pop("differs", []), *by_state.pop("stale", [])]:
        yield said(line)
    for state, lines in by_state.items():
        yield f"{_MARKS[state]} {state}: {', '.join(line.name for line in lines)}"


def head(vendor: VendorValues) -> str:
    """Who publishes what, and how its values come to be set."""
    if vendor.by == "nobody":
        return f"{vendor.what}: no value is published for it ({_read(vendor)}); nothing to compare."
    way = {
        "plugin": f"the plugin {vendor.where} sets them where they are unset",
        "file": f"the vendor's image brings them as {vendor.where}",
        "script": f"{vendor.where} sets them; the one that is installed wins over this list",
        "example": f"published in {vendor.where}",
    }[vendor.by]
    return f"{vendor.what}: {way} ({_read(vendor)})."


def said(line: VendorLine) -> str:
    """One line in words."""
    mark = _MARKS[line.state]
    match line.state:
        case "differs":
            return f"{mark} differs: {line.name}={line.here}, published {line.vendor}"
        case "stale":
            return f"{mark} stale: {line.name}={line.here}, {line.vendor}"
        case "same":
            return f"{mark} {line.name}={line.here}"
        case _:
            return f"{mark} {line.state}: {line.name} ({line.vendor})"


def _read(vendor: VendorValues) -> str:
    """When the pages were read; their addresses stand in the JSON and in `explain vendor`."""
    dates = sorted({each.read for each in vendor.sources if each.read})
    return f"read {dates[-1]}" if dates else "not read"
