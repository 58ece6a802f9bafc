"""The pair matrix: text in the layout of `nvidia-smi topo -m`, and the JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from topoadvisor.errors import NothingDetermined
from topoadvisor.ingest.affinity import HEADINGS
from topoadvisor.ingest.tables import UNKNOWN
from topoadvisor.snapshot import Matrix

_LEGEND = {
    "X": "Self",
    "SYS": "Path over PCIe and the link between NUMA nodes (QPI, UPI, xGMI)",
    "NODE": "Path over PCIe and between PCIe host bridges of one NUMA node",
    "PHB": "Path over PCIe and one PCIe host bridge (usually the CPU)",
    "PXB": "Path over several PCIe bridges, but no PCIe host bridge",
    "PIX": "Path over at most one PCIe bridge",
    "NV#": "Path over # bonded NVLinks",
}
_LEGEND_WHEN_USED = {
    "PSB": "Path over a switch on the board of two GPUs, as drivers before 2018 print it",
    "SOC": "Path over PCIe and the link between CPU sockets, as drivers before 2017 print it",
    "C2C": "Path over the chip-to-chip link",
    UNKNOWN: "Not known",
}


def text(matrices: Sequence[Matrix]) -> str:
    """The matrices as `nvidia-smi` lays them out: tabs, ` X ` on the diagonal, affinities, legends.

    Reading it back gives the same matrices, except that damaged cells come back as unknown.
    Raises NothingDetermined when there is no GPU.
    """
    _require_gpu(matrices)
    return "\n".join(_one(matrix) for matrix in matrices)


def document(matrices: Sequence[Matrix]) -> dict[str, Any]:
    """`{gpus, nics, matrix, cpu_affinity, numa_affinity, gpu_numa_id, nic_legend}` of the first matrix.

    With several matrices `captures` holds all of them. `others` is there only when devices of other classes are, and
    `damaged` (`{row, column, text, line, text_column}` each) only when cells are; those are not in `matrix`.
    Raises NothingDetermined when there is no GPU.
    """
    _require_gpu(matrices)
    first = _object(matrices[0])
    return {**first, "captures": [_object(matrix) for matrix in matrices]} if len(matrices) > 1 else first


def _require_gpu(matrices: Sequence[Matrix]) -> None:
    if not matrices or not matrices[0].gpus:
        raise NothingDetermined(
            "no GPU was found, so there is no matrix",
            hint="`topoadvisor scan` says what was asked and why it did not answer.",
        )


def _object(matrix: Matrix) -> dict[str, Any]:
    others = {"others": matrix.others} if matrix.others else {}
    damaged = {"damaged": msgspec.to_builtins(matrix.damaged)} if matrix.damaged else {}
    return {
        "gpus": matrix.gpus,
        "nics": matrix.nics,
        **others,
        "matrix": matrix.cells,
        "cpu_affinity": matrix.cpu_affinity,
        "numa_affinity": matrix.numa_affinity,
        "gpu_numa_id": matrix.gpu_numa_id,
        "nic_legend": matrix.nic_legend,
        **damaged,
    }


def _one(matrix: Matrix) -> str:
    columns = [*matrix.gpus, *matrix.nics, *matrix.others]
    affinities = [
        (heading, values)
        for heading, values in (
            (HEADINGS["cpu"], matrix.cpu_affinity),
            (HEADINGS["numa"], matrix.numa_affinity),
            (HEADINGS["gpu-numa"], matrix.gpu_numa_id),
        )
        if values
    ]
    lines = ["\t" + "\t".join([*columns, *(heading for heading, _ in affinities)])]
    for label, row in matrix.cells.items():
        cells = [" X " if name == label else row.get(name, UNKNOWN) for name in columns]
        lines.append("\t".join([label, *cells, *_affinity_fields(label, matrix, affinities)]))
    used = {row.get(name, UNKNOWN) for label, row in matrix.cells.items() for name in columns if name != label}
    legend = {**_LEGEND, **{name: what for name, what in _LEGEND_WHEN_USED.items() if name in used}}
    lines += ["", "Legend:", "", *(f"  {name:<4} = {what}" for name, what in legend.items())]
    if matrix.nic_legend:
        lines += ["", "NIC Legend:", "", *(f"  {name}: {device}" for name, device in matrix.nic_legend.items())]
    named = {name: device for name, device in matrix.others.items() if device}
    if named:
        lines += ["", "NVMe Legend:", "", *(f"  {name}: {device}" for name, device in named.items())]
    return "\n".join(lines) + "\n"


def _affinity_fields(label: str, matrix: Matrix, affinities: Sequence[tuple[str, dict[str, str | None]]]) -> list[str]:
    """`nvidia-smi` puts one tab more in front of an `N/A` node and of the GPU's own NUMA node."""
    fields: list[str] = []
    for heading, values in affinities:
        value = values.get(label) or ""
        if heading == HEADINGS["gpu-numa"] or (heading == HEADINGS["numa"] and value == "N/A"):
            fields.append("")
        fields.append(value)
    return fields
