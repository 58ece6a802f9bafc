"""Which GPU is which: the numbers of GPUs that a text lists without them, and what the parts say only together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from topoadvisor import pci
from topoadvisor.hardware import catalogue
from topoadvisor.ingest import lspci
from topoadvisor.ingest.part import Part
from topoadvisor.snapshot import Gpu, NvLink, PciDevice, Snapshot

_NAMED = 6
"""Buses that a text names before it counts the rest."""
IN_BUS_ORDER = (
    "which GPU is which is inferred: there are as many as elsewhere, and the driver numbers them in bus order"
)


@dataclass
class _Body:
    """One GPU that lists without numbers show, once or several times."""

    address: str | None = None
    uuid: str | None = None
    seen: list[tuple[int, int]] = field(default_factory=list)
    """(part, index in it)."""
    index: int | None = None

    @property
    def order(self) -> tuple[int, int, int, int]:
        return pci.sort_key(self.address) if self.address is not None else (1 << 32, 0, 0, 0)


def number(parts: Sequence[Part], numbered: Sequence[Part]) -> list[Part]:
    """`parts` with the indexes that the GPUs have in the `numbered` ones; bus order where those show no GPU.

    GPUs are joined by PCI address or UUID. A GPU that cannot be joined is left out, and its source says so.
    """
    bodies = _bodies(parts)
    known: dict[str, int] = {}
    indexes: set[int] = set()
    for part in numbered:
        for gpu in part.snapshot.gpus:
            indexes.add(gpu.index)
            known.update({key: gpu.index for key in (gpu.address, gpu.uuid) if key is not None})
    for body in bodies:
        body.index = next((known[key] for key in (body.address, body.uuid) if key in known), None)
    if not indexes:
        for index, body in enumerate(bodies):
            body.index = index
        return [replace(part, snapshot=_renumbered(part, _mapping(bodies, place))) for place, part in enumerate(parts)]
    inferred = _in_bus_order(bodies, sorted(indexes))
    result = []
    for place, part in enumerate(parts):
        mapping = _mapping(bodies, place)
        part = replace(part, snapshot=_renumbered(part, mapping))
        if lost := [body for body in bodies if body.index is None and any(at == place for at, _ in body.seen)]:
            part = part.noted(reason=_lost(lost, len(indexes)))
        elif inferred and part.snapshot.gpus:
            part = part.noted(reason=IN_BUS_ORDER)
        result.append(part)
    return result


def _bodies(parts: Sequence[Part]) -> list[_Body]:
    """The GPUs of all these parts, each once, in bus order."""
    bodies: list[_Body] = []
    by_key: dict[str, _Body] = {}
    for place, part in enumerate(parts):
        for gpu in part.snapshot.gpus:
            keys = [key for key in (gpu.address, gpu.uuid) if key is not None]
            body = next((by_key[key] for key in keys if key in by_key), None)
            if body is None:
                body = _Body()
                bodies.append(body)
            body.address, body.uuid = body.address or gpu.address, body.uuid or gpu.uuid
            body.seen.append((place, gpu.index))
            by_key.update(dict.fromkeys(keys, body))
    return sorted(bodies, key=lambda body: body.order)


def _in_bus_order(bodies: Sequence[_Body], indexes: Sequence[int]) -> bool:
    """Number by bus order what is left, where there are as many GPUs and nothing known speaks against it."""
    if len(bodies) != len(indexes) or any(body.address is None for body in bodies):
        return False
    if all(body.index is not None for body in bodies):
        return False
    if any(body.index not in (None, index) for body, index in zip(bodies, indexes, strict=True)):
        return False
    for body, index in zip(bodies, indexes, strict=True):
        body.index = index
    return True


def _mapping(bodies: Sequence[_Body], place: int) -> dict[int, int]:
    return {
        index: body.index for body in bodies for part, index in body.seen if part == place and body.index is not None
    }


def _renumbered(part: Part, mapping: Mapping[int, int]) -> Snapshot:
    gpus = [
        msgspec.structs.replace(gpu, index=mapping[gpu.index]) for gpu in part.snapshot.gpus if gpu.index in mapping
    ]
    return msgspec.structs.replace(part.snapshot, gpus=sorted(gpus, key=lambda gpu: gpu.index))


def _lost(lost: Sequence[_Body], count: int) -> str:
    names = [body.address or body.uuid or "without an address" for body in lost]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"which of the {count} GPUs these are is not known: {', '.join(names[:4])}{more}"


def complete(
    gpus: Mapping[int, Gpu], devices: Mapping[str, PciDevice], parts: list[Part], origins: dict[str, str]
) -> dict[int, Gpu]:
    """What follows only from all parts together: what NVLinks lead to, and the NUMA nodes of the PCI functions.

    Adds to `parts` and `origins` what was inferred, and from where.
    """
    homes = {gpu.address: index for index, gpu in gpus.items() if gpu.address is not None}
    direct = _joined_directly(gpus, homes)
    done: dict[int, Gpu] = {}
    up = False
    inferred: set[str | None] = set()
    for index, gpu in gpus.items():
        device = devices.get(gpu.address or "")
        if gpu.numa_node is None and device is not None and device.numa_node is not None:
            gpu = msgspec.structs.replace(gpu, numa_node=device.numa_node)
            origins[f"gpu:{index}.numa_node"] = origins.get(f"pci:{device.address}.numa_node", "lspci")
        if gpu.nvlinks:
            model = catalogue.gpu_model(gpu.name, gpu.pci_device)
            behind_switch = model is not None and model.nvswitch is True and len(homes) == len(gpus) and not direct
            cut = model is not None and len(gpu.nvlinks) < (model.max_nvlinks or 0)
            cut = cut and all(link.active is not False for link in gpu.nvlinks)
            # Of boards that POWER machines have too, the other links may lead to the CPU.
            peers = direct and model is not None and model.nvlink_generation not in (None, "1.0", "2.0")
            elsewhere: Literal["gpu", "switch"] | None = "switch" if behind_switch else "gpu" if peers else None
            links = [_with_far_end(link, homes, devices, elsewhere, cut=cut) for link in gpu.nvlinks]
            up = up or any(new.active and old.active is None for old, new in zip(gpu.nvlinks, links, strict=True))
            known = devices.keys() | homes.keys()
            inferred |= {
                new.remote_type
                for old, new in zip(gpu.nvlinks, links, strict=True)
                if old.remote_type is None and new.remote_address not in known
            }
            gpu = msgspec.structs.replace(gpu, nvlinks=links)
        done[index] = gpu
    reasons = []
    if up:
        reasons.append("that its links are up is inferred: only a link that is up shows its far end")
    if "gpu" in inferred:
        reasons.append("that its other links lead to GPUs too is inferred: some lead from GPU to GPU")
    if "switch" in inferred:
        reasons.append("that its links lead to NVSwitches is inferred: their far ends are none of the GPUs")
    for place, part in enumerate(parts):
        if part.source.name == "nvidia-smi nvlink -R" and reasons:
            parts[place] = part.noted(reason="; ".join(reasons))
        elif part.source.name == lspci.DETAILED and (lost := _without_bridges(part, devices)) is not None:
            parts[place] = part.noted(reason=lost)
    return done


def _joined_directly(gpus: Mapping[int, Gpu], homes: Mapping[str, int]) -> bool:
    """Whether some NVLink leads from GPU to GPU: no link of such a board leads to an NVSwitch."""
    links = ((index, link.remote_address) for index, gpu in gpus.items() for link in gpu.nvlinks or ())
    return any(address is not None and homes.get(address, index) != index for index, address in links)


def _without_bridges(part: Part, devices: Mapping[str, PciDevice]) -> str | None:
    """The buses of this part whose bridges no part shows; None when there are none."""
    shown = (devices.get(function.address, function) for function in part.snapshot.pci or ())
    lost = [function.address for function in shown if function.parent is None and function.root is None]
    buses = list(dict.fromkeys(address.rpartition(":")[0] for address in lost))
    more = f" and {len(buses) - _NAMED} more" if len(buses) > _NAMED else ""
    return f"the bridges above bus {', '.join(buses[:_NAMED])}{more} are not in the text" if buses else None


def _with_far_end(
    link: NvLink,
    homes: Mapping[str, int],
    devices: Mapping[str, PciDevice],
    elsewhere: Literal["gpu", "switch"] | None,
    *,
    cut: bool,
) -> NvLink:
    """The link with the kind of its far end, where the address tells, and up when it shows one at all.

    `elsewhere`: what an end that is none of the GPUs is taken for. `cut`: the GPU has more links than are listed, so
    that those that are up are not counted by them.
    """
    if link.remote_address is None and not link.remote_hidden:
        return link
    active = True if link.active is None and not cut else link.active
    kind = link.remote_type
    if kind is None and link.remote_address is not None:
        device = devices.get(link.remote_address)
        if link.remote_address in homes:
            kind = "gpu"
        elif device is None:
            kind = elsewhere
        elif (device.class_code or "").startswith("0x0680"):
            kind = "switch"
    return msgspec.structs.replace(link, active=active, remote_type=kind)
