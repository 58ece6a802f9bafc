"""How a row of sockets is divided into columns of GPUs and NICs, before their width is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from topoadvisor.render.schematic import Part

NIC_COLUMN = 86.0
"""Widest column without a GPU."""
FRAME_PAD = 6.0
MEMBER_GAP = 10.0
"""Between two NUMA nodes of one socket."""


@dataclass
class Column:
    """NICs on top of GPUs; each is joined to the bar above by a line of its own."""

    stack: list[Part]

    @property
    def gpus(self) -> int:
        return sum(part.kind == "gpu" for part in self.stack)


@dataclass
class Block:
    """A socket, NUMA node, root complex or switch over its columns."""

    part: Part
    children: list[Block | Column]

    @property
    def framed(self) -> bool:
        return self.part.kind in ("socket", "numa")

    def columns(self) -> Iterator[Column]:
        for child in self.children:
            if isinstance(child, Column):
                yield child
            else:
                yield from child.columns()

    def levels(self, level: int = 0) -> Iterator[tuple[int, Block]]:
        """Every root complex and switch with its level, 0 = topmost."""
        if not self.framed:
            yield level, self
        for child in self.children:
            if isinstance(child, Block):
                yield from child.levels(level if self.framed else level + 1)


class Plan:
    """How one band is divided into columns, before any length is known."""

    def __init__(self, parts: Sequence[Part], stack: int, nic_rows: int, gap: float) -> None:
        """`stack` GPUs and `nic_rows` NICs in one column at most; `gap`: points between two sockets."""
        self.gap = gap
        self.blocks = [_block(part, stack, nic_rows) for part in parts]
        columns = [column for block in self.blocks for column in block.columns()]
        self.columns = sum(column.gpus > 0 for column in columns)
        """Columns whose width is free to choose."""
        self.gpu_rows = max((column.gpus for column in columns), default=0)
        self.nic_rows = max((len(column.stack) - column.gpus for column in columns if column.gpus), default=0)
        self.nic_stack = max((len(column.stack) for column in columns if not column.gpus), default=0)
        self.fixed = sum(map(_padding, self.blocks)) + gap * (len(self.blocks) - 1)
        """Points of the band's width that no GPU column fills."""
        self.fixed += NIC_COLUMN * (len(columns) - self.columns)


def _padding(block: Block) -> float:
    if not block.framed:
        return 0.0
    nested = [child for child in block.children if isinstance(child, Block)]
    members = sum(child.part.kind == "numa" for child in nested)
    return 2 * FRAME_PAD + MEMBER_GAP * max(0, members - 1) + sum(map(_padding, nested))


def _block(part: Part, stack: int, nic_rows: int) -> Block:
    children: list[Block | Column] = []
    run: list[Part] = []

    def close_run() -> None:
        children.extend(Column(run[i : i + stack]) for i in range(0, len(run), stack))
        run.clear()

    for child in part.children:
        if child.kind == "gpu":
            run.append(child)
        elif child.kind != "nic":
            close_run()
            children.append(_block(child, stack, nic_rows))
    close_run()
    _hang_nics(children, [child for child in part.children if child.kind == "nic"], nic_rows)
    if not children and part.kind not in ("socket", "numa"):
        children.append(Column([]))
    return Block(part, children)


def _hang_nics(children: list[Block | Column], nics: list[Part], rows: int) -> None:
    """Spread NICs over the GPU columns of the same parent, the rest into columns of their own at the right."""
    columns = [child for child in children if isinstance(child, Column)]
    above = nics[: rows * len(columns)]
    share = ceil(len(above) / len(columns)) if columns else 0
    for number, column in enumerate(columns):
        column.stack = above[number * share : (number + 1) * share] + column.stack
    rest = nics[len(above) :]
    children.extend(Column(rest[i : i + rows]) for i in range(0, len(rest), rows))
