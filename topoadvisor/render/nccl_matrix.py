"""NCCL's own matrix: path types and the bandwidths of its model, as text and as a JSON object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topoadvisor.nccl.paths import Reach
from topoadvisor.topology import nccl_view
from topoadvisor.topology.nccl_view import View

_SELF, _UNKNOWN = "X", "?"
_LEGEND = {
    "NVL": "NVLink, straight or through NVSwitches",
    "NVB": "NVLink through one other GPU",
    "C2C": "chip-to-chip links to one CPU",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "P2C": "PCIe on one side of a CPU, chip-to-chip link on the other",
    "PHB": "through a CPU, without peer access",
    "SYS": "across the link between NUMA nodes",
    "DIS": "no way at all",
}


def document(view: View) -> dict[str, Any]:
    """`{model, nccl_version, gpus, matrix, gbps, inferred, unknown, notes}`; row = source, self cells left out.

    Cells that are not known are null, and `unknown` has the reason; `inferred` lists what a cell takes for granted.
    """
    return {
        "model": "nccl",
        "nccl_version": view.version,
        "gpus": view.gpus,
        "matrix": _table(view, lambda reach: reach.kind.name if reach.kind is not None else None),
        "gbps": _table(view, lambda reach: _rounded(reach.gbps)),
        "inferred": _reasons(view, lambda reach: list(reach.inferred)),
        "unknown": _reasons(view, lambda reach: reach.unknown),
        "notes": view.notes,
    }


def _rounded(gbps: float | None) -> float | None:
    return None if gbps is None else round(gbps, 4)


def _table(view: View, value: Callable[[Reach], Any]) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {gpu: {} for gpu in view.gpus}
    for source in view.gpus:
        for to in view.gpus:
            if source != to:
                table[source][to] = value(view.pairs[source, to])
    return table


def _reasons(view: View, value: Callable[[Reach], Any]) -> dict[str, dict[str, Any]]:
    rows = {source: {to: reason for to, reason in row.items() if reason} for source, row in _table(view, value).items()}
    return {source: row for source, row in rows.items() if row}


def text(view: View) -> str:
    """Two tables, types and GB/s per direction, then what the cells mean and what they rest on."""
    kinds = _table(view, lambda reach: _cell(reach, reach.kind.name if reach.kind is not None else None))
    rates = _table(view, lambda reach: _cell(reach, None if reach.gbps is None else f"{reach.gbps:.4g}"))
    used = {reach.kind.name for reach in view.pairs.values() if reach.kind is not None}
    lines = [f"Path types of NCCL {view.version}, row to column", "", *_aligned(view.gpus, kinds), ""]
    lines += ["GB/s per direction in NCCL's model, which is no measurement", "", *_aligned(view.gpus, rates), ""]
    lines += [f"  {name:<4} = {what}" for name, what in _LEGEND.items() if name in used]
    reasons = [f"  *    = inferred: {why}" for why in nccl_view.inferred(view)]
    reasons += [f"  {_UNKNOWN}    = not known: {why}" for why in _unknown(view)]
    return "\n".join([*lines, *reasons, *(["", *view.notes] if view.notes else [])]) + "\n"


def _cell(reach: Reach, value: str | None) -> str:
    return _UNKNOWN if value is None else f"{value}*" if reach.inferred else value


def _unknown(view: View) -> list[str]:
    return list(dict.fromkeys(reach.unknown for reach in view.pairs.values() if reach.unknown))


def _aligned(gpus: list[str], table: dict[str, dict[str, str]]) -> list[str]:
    head = max((len(gpu) for gpu in gpus), default=0)
    widths = {to: max(len(to), *(len(table[source].get(to, _SELF)) for source in gpus)) for to in gpus}
    lines = [" " * head + "".join(f"  {to:>{widths[to]}}" for to in gpus)]
    for source in gpus:
        cells = "".join(f"  {table[source].get(to, _SELF):>{widths[to]}}" for to in gpus)
        lines.append(f"{source:<{head}}{cells}")
    return lines
