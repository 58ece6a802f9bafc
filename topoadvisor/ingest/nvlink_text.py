"""`nvidia-smi nvlink -s`, `-R`, `-c`, `-e` and the device lines of `-L`.

All of them print a line for each GPU and, below it, lines for its links. Which option printed them is told by what the
lines of the links say, so that several outputs in one text stay apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from topoadvisor import pci
from topoadvisor.hardware import catalogue
from topoadvisor.ingest import tables
from topoadvisor.ingest.lines import Line, read_lines
from topoadvisor.ingest.part import Part, source
from topoadvisor.snapshot import Gpu, NvLink, Snapshot

MAX_LINKS = 64
"""Of one GPU, more than any has."""

GPU_LINE = re.compile(
    r"\bGPU (?P<index>[0-9]{1,4}): (?P<name>[^(\n]{1,80}?) {0,4}(?:\(UUID: {0,4}(?P<uuid>[^)\s]{1,80})\))?\s{0,40}$"
)
PRODUCT = re.compile(r"NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|[ABHLPTV][0-9]{1,3}\b")
_LINK = re.compile(r"^\W*Link (?P<link>[0-9]{1,3})(?P<mark>[:,]) *(?P<rest>\S.{0,100})", re.I)
_RATE = re.compile(r"(?P<gbps>[0-9]{1,4}(?:[.,][0-9]{1,6})?) *GB/s|<?inactive>?", re.I)
_ADDRESS = r"(?P<address>[0-9a-f]{1,8}:[0-9a-f]{1,2}:[0-9a-f]{1,2}\.[0-7])"
_REMOTE = re.compile(rf"(?:Remote Device *)?{_ADDRESS}(?:: *Link [0-9]{{1,3}})?\s{{0,40}}$", re.I)
_ERRORS = re.compile(r"(?P<kind>Replay|Recovery|CRC) Errors?: *(?P<count>[0-9]{1,15})\b", re.I)
_CAPABILITY = re.compile(r"[^:]{1,60}supported: *(?:true|false)", re.I)
_NO_LINKS = re.compile(r"all links are inactive", re.I)
_MIG = re.compile(r"^\s+MIG .{1,60}\(UUID: *MIG-")


@dataclass
class GpuBlock:
    """One GPU of a listing.

    `links` is None where no links are listed or some are left out, and empty when the driver says that all are
    inactive.
    """

    index: int
    line: int
    name: str
    uuid: str | None
    links: dict[int, NvLink] | None = None
    elided: bool = False
    followed_by_ellipsis: bool = False
    mig: bool | None = None


@dataclass
class Listing:
    """The output of one command: `-s`, `-R`, `-c` or `-e` of `nvidia-smi nvlink`, or `-L`."""

    option: str = "-L"
    blocks: dict[int, GpuBlock] = field(default_factory=dict)


def is_gpu_line(text: str) -> re.Match[str] | None:
    """The line that names a GPU, as `nvidia-smi -L` prints it."""
    found = GPU_LINE.search(text) if "GPU " in text else None
    return found if found and (found["uuid"] or PRODUCT.match(found["name"])) else None


def is_link_line(text: str) -> bool:
    """A line about one link, or about a GPU without any."""
    return _LINK.match(text) is not None or _NO_LINKS.search(text) is not None or _MIG.match(text) is not None


def parse(text: str) -> list[Listing]:
    """The listings of a text in order."""
    return listings(read_lines(text))


def listings(lines: Iterable[Line]) -> list[Listing]:
    """As `parse`. A GPU that is named again, or links of another option, begin the next listing."""
    found: list[Listing] = []
    current: GpuBlock | None = None
    for line in lines:
        if gpu := is_gpu_line(line.text):
            index = int(gpu["index"])
            if not found or index in found[-1].blocks:
                found.append(Listing())
            current = GpuBlock(index, line.number, gpu["name"].strip(), gpu["uuid"])
            found[-1].blocks[index] = current
        elif current is None:
            continue
        elif link := _LINK.match(line.text):
            if (told := _told(link)) is not None:
                current = _block_for(found, current, told[0])
                _add(current, told[1], ordered=told[0] == "-s")
        elif _NO_LINKS.search(line.text):
            current.links = {}
            if found[-1].option == "-L":
                found[-1].option = "-s"
        elif _MIG.match(line.text):
            current.mig = True
        elif line.text.strip() in tables.ELLIPSIS:
            current.followed_by_ellipsis = True
    for listing in found:
        _elide(listing, last=listing is found[-1])
    return found


def _elide(listing: Listing, *, last: bool) -> None:
    """Forget the links of GPUs of which some are left out.

    Links are left out before an ellipsis, at the end of the text, and where fewer are listed than the board has and
    none as inactive: a link that is down is listed too. With as many as other GPUs have, whole GPUs are left out.
    """
    blocks = list(listing.blocks.values())
    whole = max((len(block.links or ()) for block in blocks if not block.followed_by_ellipsis), default=0)
    cut = last and listing.option in ("-s", "-R")
    for block in blocks:
        model = catalogue.gpu_model(block.name)
        board = (model.max_nvlinks if model is not None else None) or 0
        doubtful = block.followed_by_ellipsis or (cut and block is blocks[-1])
        short = len(block.links or ()) < (max(whole, board) if len(blocks) == 1 else whole)
        if listing.option == "-s" and all(link.active for link in (block.links or {}).values()):
            doubtful, short = True, len(block.links or ()) < max(whole, board)
        if doubtful and block.links and (short or (block.followed_by_ellipsis and not whole)):
            block.elided, block.links = True, None
        elif block.followed_by_ellipsis and block.links is None:
            block.elided = True


def _told(match: re.Match[str]) -> tuple[str, NvLink] | None:
    """The option that prints such a line, and what it says; None for counters and other lines."""
    number, rest = int(match["link"]), match["rest"]
    if match["mark"] == ",":
        return ("-c", NvLink(link=number)) if _CAPABILITY.match(rest) else None
    if rate := _RATE.match(rest):
        raw = round(float(rate["gbps"].replace(",", ".")) * 1000) if rate["gbps"] else None
        return "-s", NvLink(link=number, active=raw is not None, raw_mbps=raw)
    if remote := _REMOTE.match(rest):
        hidden = pci.is_placeholder(remote["address"])
        address = None if hidden else pci.normalize(remote["address"])
        return "-R", NvLink(link=number, remote_address=address, remote_hidden=hidden)
    if errors := _ERRORS.match(rest):
        count = {f"{errors['kind'].lower()}_errors": int(errors["count"])}
        return "-e", NvLink(link=number, **count)  # type: ignore[arg-type]  # the pattern names only such fields
    return None


def _block_for(found: list[Listing], block: GpuBlock, option: str) -> GpuBlock:
    """The block that a line of this option belongs to: a new listing's when the one before is of another option."""
    listing = found[-1]
    if listing.option in ("-L", option):
        listing.option = option
        return block
    again = GpuBlock(block.index, block.line, block.name, block.uuid)
    if block.links is None:
        del listing.blocks[block.index]
    found.append(Listing(option, {again.index: again}))
    return again


def _add(block: GpuBlock, link: NvLink, *, ordered: bool) -> None:
    """Take in one link. `ordered`: links are listed from 0 on without a gap, so a gap says that some are left out."""
    links = block.links if block.links is not None else {}
    if block.elided or link.link >= MAX_LINKS or (ordered and link.link != len(links)):
        block.elided, block.links = True, None
        return
    known = links.get(link.link, link)
    fresh = {name: value for name, value in msgspec.structs.asdict(link).items() if value is not None}
    links[link.link] = msgspec.structs.replace(known, **fresh)
    block.links = links


def parts(lines: Iterable[Line], file: str) -> list[Part]:
    """One part for each listing."""
    return [_part(listing, file) for listing in listings(lines)]


def _part(listing: Listing, file: str) -> Part:
    gpus = [
        Gpu(
            index=block.index,
            name=block.name,
            uuid=block.uuid,
            nvlinks=list(block.links.values()) if block.links is not None else None,
            mig=block.mig,
        )
        for block in listing.blocks.values()
    ]
    cut = [f"GPU{block.index}" for block in listing.blocks.values() if block.elided and block.links is None]
    notes = [f"links of {', '.join(cut)} are left out in the text"] if cut else []
    name = "nvidia-smi -L" if listing.option == "-L" else f"nvidia-smi nvlink {listing.option}"
    return Part(Snapshot(sources=[source(name, notes)], gpus=gpus), file)
