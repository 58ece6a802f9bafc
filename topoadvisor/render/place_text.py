"""The screen that `topoadvisor place` prints."""

from __future__ import annotations

from collections.abc import Sequence

from topoadvisor.numbers import size_text
from topoadvisor.placing import Document, Group, Rank
from topoadvisor.render.cost_text import time_text
from topoadvisor.render.page import Page

_SHOWN_NODES = 2
_KINDS = ("tensor", "expert", "data", "pipeline")


def render(document: Document, *, width: int = 100, color: bool = False) -> str:
    """The whole screen as text, ending in a newline."""
    page = Page(width, color)
    processes = _count(document.gpus_per_node, "process", "processes")
    page.paragraph(title(document), rest="  ", code="1")
    page.lines.append(f"  export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={document.cuda_visible_devices}")
    page.paragraph(
        f"On each node, with {processes}: local rank i takes the i-th of these. torchrun "
        f"--nproc-per-node {document.gpus_per_node}; with MPI set it the same way and count ranks node by node.",
        first="  ",
        rest="  ",
        code="2",
    )
    for warning in document.warnings:
        page.blank()
        page.paragraph(warning, first="! ", rest="  ", code="33;1")
    known = any(each is not None for each in document.tensor_gbps)
    page.heading("Ranks, and what the rings of a tensor group carry alone, on paper" if known else "Ranks")
    for node in range(min(document.nodes, _SHOWN_NODES)):
        _node(node, [rank for rank in document.ranks if rank.node == node], document, page)
    if document.nodes > _SHOWN_NODES:
        page.lines.append(f"  and {document.nodes - _SHOWN_NODES} more nodes in the same way (--format json)")
    if document.groups:
        _groups(document.groups, page)
    if document.notes:
        page.blank()
    for note in document.notes:
        page.paragraph(note, rest="  ", code="2")
    return "\n".join(page.lines) + "\n"


def title(document: Document) -> str:
    """The sizes, and on how much they are placed."""
    experts = f", expert {document.ep}" if document.ep > 1 else ""
    ranks, nodes = _count(len(document.ranks), "rank"), _count(document.nodes, "node")
    return (
        f"tensor {document.tp}{experts}, data {document.dp}, pipeline {document.pp}: {ranks} on {nodes}, "
        f"{_count(document.gpus_per_node, 'GPU')} of each"
    )


def _count(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or f'{one}s'}"


def _node(node: int, ranks: Sequence[Rank], document: Document, page: Page) -> None:
    for number, carried in enumerate(document.tensor_gbps):
        group = ranks[number * document.tp : (number + 1) * document.tp]
        gpus = ", ".join(f"GPU{rank.gpu}" for rank in group) + (f"  {carried:.4g} GB/s" if carried is not None else "")
        numbers = f"{group[0].rank}" if len(group) == 1 else f"{group[0].rank}–{group[-1].rank}"
        expert = f", expert {group[0].expert}" if document.ep > 1 else ""
        page.paragraph(
            f"{gpus}",
            first=f"  node {node}  ranks {numbers:>9}  pipeline {group[0].pipeline}, data {group[0].data}{expert}  ",
            rest=" " * 12,
        )


def _groups(groups: Sequence[Group], page: Page) -> None:
    held = any(group.basis not in (None, "estimated") for group in groups)
    page.heading("What each group costs alone, by NCCL's estimate" + (" held to measurements" if held else ""))
    for kind in _KINDS:
        mine = [group for group in groups if group.kind == kind]
        told: dict[str, list[Group]] = {}
        for group in mine:
            told.setdefault(_cost(group, held), []).append(group)
        for text, alike in told.items():
            count = f"{len(alike)} × " if len(alike) > 1 else ""
            page.paragraph(text, first=f"  {count}{kind} ", rest="      ")
            if rails := list(dict.fromkeys(nic for group in alike for nic in group.rails)):
                page.paragraph(f"by {', '.join(rails)}", first=" " * 6, rest=" " * 6, code="2")


def _cost(group: Group, held: bool) -> str:
    what = f"{group.collective} of {size_text(group.size_bytes)}"
    where = f"over {group.nodes} nodes" if group.nodes > 1 else f"on {len(group.gpus)} GPUs"
    if group.time_us is None:
        return f"{where}: {what}, not known: {group.unknown}"
    least, most = ("at least ", "at most ") if group.nodes > 1 else ("", "")
    basis = f" ({group.basis})" if held and group.basis is not None else ""
    shared = f"; {group.sharing} share a port, so {group.sharing} times that at once" if group.sharing > 1 else ""
    speed = f"{most}{group.busbw_gbps:.4g} GB/s busbw"
    return f"{where}: {what} in {least}{time_text(group.time_us)}, {speed}{basis}{shared}"
