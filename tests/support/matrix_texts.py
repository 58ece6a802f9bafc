"""Texts of `nvidia-smi topo -m` for tests, and what the parser makes of them."""

from __future__ import annotations

from topoadvisor.ingest import topo_matrix
from topoadvisor.snapshot import Matrix


def parse(text: str) -> list[Matrix]:
    return topo_matrix.parse(text, file="paste.txt")


def one(text: str) -> Matrix:
    (matrix,) = parse(text)
    return matrix


def tabs(*rows: str) -> str:
    """Rows with `|` where a tab belongs."""
    return "\n".join(row.replace("|", "\t") for row in rows) + "\n"
