"""Texts that cannot be of one machine, or not at one time, although no name, count or address says so.

`topo -mp` prints PCIe classes where `topo -m` prints NVLinks, so a table without any NVLink only speaks against one
with some where it differs otherwise, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from topoadvisor.hardware import catalogue
from topoadvisor.ingest.part import Part
from topoadvisor.snapshot import Gpu, Matrix

_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")


def contradiction(known: Sequence[Part], part: Part) -> tuple[str, str] | None:
    """What a part says that one of another file excludes, and that file; None where they can be of one time."""
    for other in known:
        if other.file != part.file:
            for check in (_drivers, _tables, _links):
                if what := check(part, other):
                    return what, other.file
    return None


def other_board(known: Sequence[Part], part: Part) -> tuple[str, str] | None:
    """A GPU that is a board without NVLink by one part and has NVLinks by another, and the file of that; or None."""
    for other in known:
        for mine, theirs, words in (
            (part, other, "here, and has NVLinks there"),
            (other, part, "there, with links here"),
        ):
            for gpu in mine.snapshot.gpus:
                model = catalogue.gpu_model(gpu.name, gpu.pci_device)
                if model is not None and model.max_nvlinks == 0 and _has_links(gpu.index, theirs):
                    return f"GPU{gpu.index} is a board without NVLink ({gpu.name or model.family}) {words}", other.file
    return None


def _has_links(index: int, part: Part) -> bool:
    if any(_is_nvlink(text) for matrix in _used(part) for text in matrix.cells.get(f"GPU{index}", {}).values()):
        return True
    gpu = next((each for each in part.snapshot.gpus if each.index == index), None)
    return gpu is not None and any(link.active for link in gpu.nvlinks or ())


def _drivers(here: Part, there: Part) -> str | None:
    mine, theirs = (part.snapshot.driver.version or "" for part in (here, there))
    if not (_VERSION.fullmatch(mine) and _VERSION.fullmatch(theirs)):
        return None
    # Some print a version in full and some its first numbers only.
    differ = any(a != b for a, b in zip(mine.split("."), theirs.split("."), strict=False))
    return f"the driver is {mine} here and {theirs} there" if differ else None


def _tables(here: Part, there: Part) -> str | None:
    """A pair with NVLink in one printed table that has none in the other."""
    for mine, theirs in product(_used(here), _used(there)):
        for linked, other in ((mine, theirs), (theirs, mine)):
            if not _prints_nvlinks(other) and not _affinities_differ(mine, theirs):
                continue
            for row, cells in linked.cells.items():
                for column, text in cells.items():
                    against = other.cells.get(row, {}).get(column)
                    if _is_nvlink(text) and against is not None and not _is_nvlink(against):
                        return f"{row}-{column} is {mine.cells[row][column]} here and {theirs.cells[row][column]} there"
    return None


def _links(here: Part, there: Part) -> str | None:
    """A GPU whose NVLinks were read and are none, and a table or another reading that shows some of it."""
    for gpu, other in product(here.snapshot.gpus, there.snapshot.gpus):
        if gpu.index != other.index:
            continue
        mine, theirs = _shown(gpu, here), _shown(other, there)
        if {mine, theirs} == {True, False}:
            words = "NVLinks here and none that is up" if mine else "no NVLink that is up here and some"
            return f"GPU{gpu.index} has {words} there"
    return None


def _shown(gpu: Gpu, part: Part) -> bool | None:
    """Whether a GPU has NVLinks that are up; None where that was not read. NCCL may have been told to see none."""
    label = f"GPU{gpu.index}"
    if any(_is_nvlink(text) for matrix in _used(part) for text in matrix.cells.get(label, {}).values()):
        return True
    if gpu.nvlinks is None or part.snapshot.origin != "live":
        return None
    states = [link.active for link in gpu.nvlinks]
    return None if None in states and True not in states else True in states


def _used(part: Part) -> list[Matrix]:
    return [matrix for matrix in part.snapshot.matrices if not matrix.other_machine]


def _is_nvlink(text: str) -> bool:
    return text.startswith("NV")


def _prints_nvlinks(matrix: Matrix) -> bool:
    return any(_is_nvlink(text) for cells in matrix.cells.values() for text in cells.values())


def _affinities_differ(one: Matrix, other: Matrix) -> bool:
    """Whether a GPU has another list of CPUs or another NUMA node in one table than in the other, N/A aside."""
    columns = ((one.cpu_affinity, other.cpu_affinity), (one.numa_affinity, other.numa_affinity))
    return any(
        text != theirs[label]
        for mine, theirs in columns
        for label, text in mine.items()
        if text not in (None, "N/A") and theirs.get(label) not in (None, "N/A")
    )
