"""The screen that `topoadvisor pick` prints."""

from __future__ import annotations

from topoadvisor.plan.subsets import Choice, Document
from topoadvisor.render.page import Page
from topoadvisor.render.rings_text import MODELS

_WHY_ORDER = (
    "CUDA numbers GPUs fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID; these numbers are nvidia-smi's, in the order "
    "of PCI addresses."
)


def render(document: Document, *, width: int = 100, color: bool = False) -> str:
    """The whole screen as text, ending in a newline."""
    page = Page(width, color)
    page.paragraph(title(document), rest="  ", code="1")
    best = document.best
    page.paragraph(facts(best), first=f"  {_names(best)}   ", rest="      ")
    page.lines.append(f"  export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={best.cuda_visible_devices}")
    page.paragraph(_WHY_ORDER, first="  ", rest="  ", code="2")
    if best.order != best.gpus:
        page.paragraph("The order is that of the best ring.", first="  ", rest="  ", code="2")
    for other in (document.compared, document.nearest):
        if other is not None:
            page.blank()
            page.paragraph(other.text, rest="  ")
    if len(document.groups) > 1:
        _groups(document, page)
    if document.notes:
        page.blank()
    for note in document.notes:
        page.paragraph(note, rest="  ", code="2")
    return "\n".join(page.lines) + "\n"


def title(document: Document) -> str:
    """What was chosen from, and by what."""
    busy = f", {', '.join(f'GPU{index}' for index in document.busy)} busy" if document.busy else ""
    return f"Best {document.size} of {len(document.gpus)} GPUs, by {MODELS[document.model]}{busy}"


def _groups(document: Document, page: Page) -> None:
    page.heading(f"All in groups of {document.size}")
    for group in document.groups:
        page.paragraph(facts(group), first=f"  {_names(group)}   ", rest="      ")
    if document.idle:
        page.lines.append(f"  left over: {', '.join(map(str, document.idle))}")
    if document.at_once is not None:
        if document.at_once >= 1:
            text = "All at once each keeps its whole bandwidth: no link is short."
        else:
            text = f"All at once each keeps {100 * document.at_once:.0f}% of that at least: they share links."
        page.paragraph(text, first="  ", rest="  ")


def _names(choice: Choice) -> str:
    return ", ".join(map(str, choice.gpus))


def facts(choice: Choice) -> str:
    """Bandwidth, NUMA nodes and NICs of a set; empty where none is known."""
    parts = [f"{choice.gbps:.4g} GB/s of rings"] if choice.gbps is not None else []
    if choice.hosts:
        parts.append(" and ".join(choice.hosts))
    if choice.near_nics:
        parts.append(f"near {', '.join(choice.near_nics)}")
    return " · ".join(parts)
