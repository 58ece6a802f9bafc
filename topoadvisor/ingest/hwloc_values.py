"""The values inside an hwloc XML: sets of numbers, distance matrices, PCI link bandwidths.

Formats as hwloc writes them: `hwloc/topology-xml.c`, `hwloc/bitmap.c` and `include/private/misc.h` of hwloc 3.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from topoadvisor.hardware import catalogue
from topoadvisor.hardware.catalogue import GpuModel
from topoadvisor.xml_tree import Element

Wrong = Callable[[Element, str], NoReturn]
"""Raises InputError about an element."""

MAX_SET_WORDS = 2048
"""32-bit words of one set: 65,536 CPUs."""
MAX_OBJECTS = 1024
"""Of one matrix; the kernel is built for at most that many NUMA nodes."""

_LONGEST = 32
"""Characters of one value or index, with room to spare."""
_SET = re.compile(r"(?:0xf\.\.\.f,?)?((?:(?:0x)?[0-9a-fA-F]{0,8})(?:,(?:0x)?[0-9a-fA-F]{0,8})*)")
_NUMBER = re.compile(r"[0-9]{1,18}")
_REAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,9})?")
_BANDWIDTH = 8
"""Bit of a matrix's `kind` (`hwloc/distances.h`)."""
_LATENCY = 4
_LOCAL = 10
"""What firmware calls the distance of a NUMA node to itself (ACPI specification, SLIT)."""
_DOUBLED = "2.9.0"
"""This version of hwloc counts NVLinks of generations 2.2 and 3.0 twice (`hwloc/topology-nvml.c` there)."""
_WIDTHS = (1, 2, 4, 8, 16)
_GENERATIONS = (1, 2, 3, 4, 5)
_TOLERANCE = 1e-3
"""Relative; the catalogue's rates have three decimals, hwloc's are of single precision."""


@dataclass(frozen=True)
class Matrix:
    """A square of numbers about objects; `values[i * len(objects) + j]` is from object i to object j."""

    element: Element
    name: str
    objects: list[tuple[str, int]]
    """(type, index); the index is the operating system's for NUMA nodes and PUs, else the file's own."""
    values: list[int]
    bandwidth: bool
    latency: bool

    def row(self, place: int) -> list[int]:
        size = len(self.objects)
        return self.values[place * size : (place + 1) * size]


def number(element: Element, name: str, wrong: Wrong) -> int | None:
    """An attribute that is a whole number; None when it is absent or empty."""
    text = element.attributes.get(name, "").strip()
    if text and not _NUMBER.fullmatch(text):
        wrong(element, f"{name}={text[:40]!r} is no whole number")
    return int(text) if text else None


def members(element: Element, name: str, wrong: Wrong) -> int | None:
    """A CPU or node set as a bit mask; None when it is absent or has no end."""
    text = element.attributes.get(name)
    if text is None:
        return None
    match = _SET.fullmatch(text.strip()) if len(text) <= 11 * MAX_SET_WORDS else None
    if match is None:
        wrong(element, f"{name}={text[:40]!r} is no set of numbers")
    if text.startswith("0xf...f"):
        return None
    # Words of 32 bits, highest first; one that is left out is zero.
    return int("".join(word.removeprefix("0x").zfill(8) for word in match[1].split(",")), 16)


def matrix(element: Element, wrong: Wrong) -> Matrix:
    """A `<distances2>` or `<distances2hetero>`. Raises through `wrong` when its numbers do not fill a square."""
    own_type = element.attributes.get("type")
    size = number(element, "nbobjs", wrong)
    length = sum(len(piece) for child in element.children for piece in child.pieces)
    if size is None:
        wrong(element, "this matrix does not say how many objects it is about (nbobjs)")
    if size > MAX_OBJECTS or length > _LONGEST * (size + size * size):
        wrong(element, f"this matrix is too large for {size} objects, or for the {MAX_OBJECTS} that are read")
    objects: list[tuple[str, int]] = []
    for child in element.each("indexes"):
        for word in child.text.split():
            kind, colon, index = word.rpartition(":")
            if not _NUMBER.fullmatch(index) or bool(colon) == (own_type is not None):
                wrong(child, f"{word[:40]!r} is no index of an object")
            objects.append((own_type if own_type is not None else kind, int(index)))
    values: list[int] = []
    for child in element.each("u64values"):
        for word in child.text.split():
            if not _NUMBER.fullmatch(word):
                wrong(child, f"{word[:40]!r} is no whole number")
            values.append(int(word))
    if len(objects) != size or len(values) != size * size:
        wrong(element, f"this matrix of {size} objects has {len(objects)} indexes and {len(values)} values")
    kind_bits = number(element, "kind", wrong) or 0
    return Matrix(
        element=element,
        name=element.attributes.get("name", ""),
        objects=objects,
        values=values,
        bandwidth=bool(kind_bits & _BANDWIDTH),
        latency=bool(kind_bits & _LATENCY),
    )


def node_distances(matrices: Iterable[Matrix], ids: list[int]) -> dict[int, list[int]] | None:
    """NUMA node → firmware distances in the order of `ids`, from version 2 and 3 files."""
    for found in matrices:
        known = [index for kind, index in found.objects if kind == "NUMANode"]
        if found.latency and found.name in ("", "NUMALatency") and sorted(known) == ids and _is_local(found):
            place = {id: position for position, id in enumerate(known)}
            return {id: [found.row(place[id])[place[other]] for other in ids] for id in ids}
    return None


def _is_local(found: Matrix) -> bool:
    return all(found.row(place)[place] == _LOCAL for place in range(len(found.objects)))


def old_node_distances(element: Element, ids: list[int], wrong: Wrong) -> dict[int, list[int]] | None:
    """The same from a version 1 `<distances>` below the machine, whose objects are those of one depth in file order.

    `ids` in file order. None for a matrix of other objects, or with values that are no firmware distances.
    """
    base = _real(element, "latency_base", wrong)
    values = [round(_real(child, "value", wrong) * base) for child in element.each("latency")]
    size = number(element, "nbobjs", wrong)
    if (
        size != len(ids)
        or len(values) != size * size
        or any(values[place * (size + 1)] != _LOCAL for place in range(size))
    ):
        return None
    order = sorted(range(size), key=ids.__getitem__)
    return {ids[place]: [values[place * size + other] for other in order] for place in order}


def _real(element: Element, name: str, wrong: Wrong) -> float:
    text = element.attributes.get(name, "")
    if not _REAL.fullmatch(text):
        wrong(element, f"{name}={text[:40]!r} is no number")
    return float(text)


def link_gbps(element: Element, wrong: Wrong) -> float | None:
    """`pci_link_speed`: GB/s per direction after line coding, as the link was then; None for 0, which is not read."""
    text = element.attributes.get("pci_link_speed", "")
    if not text:
        return None
    return _real(element, "pci_link_speed", wrong) or None


def lanes(gbps: float, model: GpuModel | None) -> tuple[float, int] | None:
    """Rate of a lane in GT/s and number of lanes where the product tells them apart; a GPU's limits narrow it down."""
    most_gen = model.pcie_gen if model is not None and model.pcie_gen is not None else _GENERATIONS[-1]
    most_width = model.pcie_width if model is not None and model.pcie_width is not None else _WIDTHS[-1]
    found = [
        (gen, width)
        for gen in _GENERATIONS
        for width in _WIDTHS
        if gen <= most_gen
        and width <= most_width
        and abs((catalogue.pcie_raw_gbps(gen, width) or 0.0) - gbps) <= _TOLERANCE * gbps
    ]
    if len(found) != 1:
        return None
    gts = catalogue.pcie_gts(found[0][0])
    return (gts, found[0][1]) if gts is not None else None


def nvlink_mbps(model: GpuModel | None, version: str) -> int | None:
    """What hwloc counts for one NVLink, in MB/s (`hwloc/topology-nvml.c`); None when the GPU's generation is not known.

    `version` is that of the hwloc that wrote the file.
    """
    generation = model.nvlink_generation if model is not None else None
    match generation:
        case "1.0":
            return 20_000
        case "2.2" | "3.0" if version == _DOUBLED:
            return 50_000
        case "2.0" | "2.2" | "3.0" | "3.1" | "4.0":
            return 25_000
        case "5.0":
            return 50_000
    return None
