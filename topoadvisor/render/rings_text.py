"""The screen that `topoadvisor rings` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from topoadvisor.plan.optimal_rings import Channel, Document
from topoadvisor.plan.problem import SAME
from topoadvisor.render.page import Page

MODELS = {
    "expected": "payload bandwidths on paper",
    "measured": "measured copies where there are any, else paper",
    "nccl": "NCCL's own constants and paths",
}
_MOST_BINDING = 8
_MOST_NAMED = 16


def render(document: Document, *, asked: int | None = None, width: int = 100, color: bool = False) -> str:
    """The whole screen as text, ending in a newline; `asked` is the number of channels that was asked for."""
    page = Page(width, color)
    gpus = listed(document.gpus)
    page.paragraph(f"Best rings over {gpus}, by {MODELS[document.model]}", rest="  ", code="1")
    if document.channels:
        _rings(document, page)
        _proof(document, page)
        _channels(document, page, asked)
    if document.notes:
        page.blank()
    for note in document.notes:
        page.paragraph(note, rest="  ", code="2")
    return "\n".join(page.lines) + "\n"


def _rings(document: Document, page: Page) -> None:
    total = "" if document.total_gbps is None else f": {document.total_gbps:.4g} GB/s in all"
    count = len(document.channels)
    page.heading(f"{count} {'ring' if count == 1 else 'rings'} at once{total}")
    for channel in document.channels:
        page.paragraph(_order(channel), first=f"  {_gbps(channel.gbps)}  ", rest=" " * 14)


def _proof(document: Document, page: Page) -> None:
    if document.bound_gbps is None:
        return
    sure = "no set of rings can carry more" if document.optimal else f"no set can pass {document.bound_gbps:.4g} GB/s"
    page.heading(f"Why: {sure}")
    for each in document.binding[:_MOST_BINDING]:
        page.paragraph(f"{each.text}, price {each.price:.3g}", first="  ", rest="    ")
    if len(document.binding) > _MOST_BINDING:
        page.lines.append(f"  and {len(document.binding) - _MOST_BINDING} more (--format json)")
    page.paragraph(
        f"Every ring pays at least 1 for each GB/s at these prices, and all binding links together are worth "
        f"{document.bound_gbps:.4g}.",
        first="  ",
        rest="    ",
        code="2",
    )


def _channels(document: Document, page: Page, asked: int | None) -> None:
    equal = document.equal_speed
    if equal is None:
        return
    total = f"{len(equal.channels)} × {equal.gbps_each:.4g} = {equal.total_gbps:.4g} GB/s"
    most = "the most there can be" if asked is None else f"the most that {asked} can carry"
    proven = most if equal.optimal else "the best that was found"
    if not equal.optimal and equal.total_gbps >= (document.bound_gbps or math.inf) * (1 - SAME):
        proven = "all that the bound allows"
    page.heading(f"As channels of one speed: {total}, {proven}")
    for order, alike in groupby(_order(channel) for channel in equal.channels):
        page.paragraph(order, first=f"  {len(list(alike)):>2} ×  ", rest=" " * 8)


def listed(gpus: Sequence[int]) -> str:
    """`GPU0, GPU1, GPU4`; of many the runs, `GPU0–GPU71`."""
    if len(gpus) <= _MOST_NAMED or list(gpus) != sorted(gpus):
        return ", ".join(f"GPU{index}" for index in gpus)
    runs: list[list[int]] = []
    for index in gpus:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"GPU{run[0]}" if len(run) == 1 else f"GPU{run[0]}–GPU{run[-1]}" for run in runs)


def _order(channel: Channel) -> str:
    return " → ".join(str(index) for index in [*channel.order, channel.order[0]])


def _gbps(gbps: float | None) -> str:
    return "      ? GB/s" if gbps is None else f"{gbps:7.4g} GB/s"
