"""Which device of one capture is which of the other, and whether the two captures can be of one machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from topoadvisor.snapshot import Gpu, Nic, Snapshot

T = TypeVar("T")

_PLACEHOLDER: Final = re.compile(r"(?:GPU-)?00000000-0000-4000-8000-([0-9a-f]{12})")
"""What `redact` writes for a UUID."""
_COLUMN: Final = re.compile(r"NIC[0-9]+")
_NO_PRODUCT: Final = {"", "System Product Name", "To Be Filled By O.E.M.", "Default string", "Not Specified"}


@dataclass(frozen=True)
class Matched:
    """Devices of both captures: pairs that are one device, and the rest."""

    pairs: list[tuple[Gpu, Gpu]]
    gone: list[Gpu]
    new: list[Gpu]
    uuids_tell: bool
    """UUIDs are real ones, or at least not numbered anew by each redaction."""


def gpus(before: Snapshot, after: Snapshot) -> Matched:
    """The same GPU by UUID, then by bus id, then by index where neither contradicts."""
    trusted = _uuids_tell(before.gpus, after.gpus)
    by_uuid: Callable[[Gpu], Hashable] = lambda gpu: gpu.uuid  # noqa: E731
    by_address: Callable[[Gpu], Hashable] = lambda gpu: gpu.address  # noqa: E731
    pairs: list[tuple[Gpu, Gpu]] = []
    left, right = _first_of_each_index(before.gpus), _first_of_each_index(after.gpus)
    for key in (by_uuid, by_address) if trusted else (by_address, by_uuid):
        found, left, right = _join(left, right, key)
        pairs += found
    found, left, right = _join(left, right, lambda gpu: gpu.index)
    for old, new in found:
        if _contradicts(old.address, new.address) or (trusted and _contradicts(old.uuid, new.uuid)):
            left.append(old)
            right.append(new)
        else:
            pairs.append((old, new))
    by_index: Callable[[Gpu], int] = lambda gpu: gpu.index  # noqa: E731
    return Matched(
        pairs=sorted(pairs, key=lambda pair: pair[0].index),
        gone=sorted(left, key=by_index),
        new=sorted(right, key=by_index),
        uuids_tell=trusted,
    )


def nics(before: Snapshot, after: Snapshot) -> tuple[list[tuple[Nic, Nic]], list[Nic], list[Nic]]:
    """The same NIC by name, then by bus id, then by its column where one of two matrices of as many names it not; those
    that are gone; those that are new.
    """
    pairs, left, right = _join(before.nics or (), after.nics or (), lambda nic: nic.name)
    renamed, left, right = _join(left, right, lambda nic: nic.address)
    old, new = ({nic.name: nic for nic in part} for part in (left, right))
    placed = [
        (old[was], new[now])
        for was, now in zip(_columns(before), _columns(after), strict=False)
        if was in old and now in new and (is_unnamed(old[was]) or is_unnamed(new[now]))
    ]
    if len(_columns(before)) != len(_columns(after)):
        placed = []
    used = {id(nic) for pair in placed for nic in pair}
    left, right = ([nic for nic in part if id(nic) not in used] for part in (left, right))
    return [*pairs, *renamed, *placed], left, right


def is_unnamed(nic: Nic) -> bool:
    """It has the name of a column of a matrix whose legend was not read."""
    return nic.address is None and _COLUMN.fullmatch(nic.name) is not None


def _columns(snapshot: Snapshot) -> list[str]:
    """The names of the NICs in the order of the columns of the matrix."""
    return [matrix.nic_legend.get(name, name) for matrix in snapshot.matrices[:1] for name in matrix.nics]


def _first_of_each_index(gpus: Iterable[Gpu]) -> list[Gpu]:
    found: dict[int, Gpu] = {}
    for gpu in gpus:
        found.setdefault(gpu.index, gpu)
    return list(found.values())


def _join(
    left: Sequence[T], right: Sequence[T], key: Callable[[T], Hashable]
) -> tuple[list[tuple[T, T]], list[T], list[T]]:
    """Pairs with the same key, which must be unambiguous and not None, and what is left of either side."""
    mine, theirs = _unique(left, key), _unique(right, key)
    pairs = [(item, theirs[name]) for name, item in mine.items() if name in theirs]
    used = {id(item) for pair in pairs for item in pair}
    return pairs, [item for item in left if id(item) not in used], [item for item in right if id(item) not in used]


def _unique(items: Iterable[T], key: Callable[[T], Hashable]) -> dict[Hashable, T]:
    found: dict[Hashable, T] = {}
    twice = set()
    for item in items:
        name = key(item)
        if name in found:
            twice.add(name)
        found[name] = item
    return {name: item for name, item in found.items() if name is not None and name not in twice}


def _contradicts(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _uuids_tell(before: Sequence[Gpu], after: Sequence[Gpu]) -> bool:
    """Whether UUIDs say who is who.

    Redaction numbers UUIDs in the order in which it meets them, so in two captures that were redacted apart the n-th
    GPU has the n-th placeholder whoever it is. Placeholders out of order were not given in that way.
    """
    return not (_numbered(before) and _numbered(after))


def _numbered(gpus: Sequence[Gpu]) -> bool:
    matches = [_PLACEHOLDER.fullmatch(gpu.uuid) for gpu in gpus if gpu.uuid is not None]
    numbers = [match[1] for match in matches if match is not None]
    return len(numbers) == len(matches) and numbers == sorted(numbers)


def other_machine(before: Snapshot, after: Snapshot, matched: Matched) -> str | None:
    """One sentence when the captures are visibly of two machines, else None."""
    reasons = list(_differences(before, after, matched))
    return f"These are visibly two different machines: {'; '.join(reasons)}." if reasons else None


def _differences(before: Snapshot, after: Snapshot, matched: Matched) -> Iterable[str]:
    old, new = before.host, after.host
    for name, noun in (("product_name", "the product"), ("board_name", "the board")):
        was, now = (old.dmi or {}).get(name), (new.dmi or {}).get(name)
        if was not in (None, *_NO_PRODUCT) and now not in (None, *_NO_PRODUCT) and was != now:
            yield f"{noun} is {was} there and {now} here"
            break
    cpus = [(cpu.architecture, cpu.model_name) if cpu else (None, None) for cpu in (old.cpu, new.cpu)]
    for was, now in zip(*cpus, strict=True):
        if _contradicts(was, now):
            yield f"the CPU is {was} there and {now} here"
            break
    models = [{gpu.name for gpu in snapshot.gpus} for snapshot in (before, after)]
    if all(models) and not any(None in names for names in models) and not models[0] & models[1]:
        was, now = (", ".join(sorted(map(str, names))) for names in models)
        yield f"the GPUs are {was} there and {now} here"
    elif matched.uuids_tell and not models[0].isdisjoint(models[1]):
        uuids = [[gpu.uuid for gpu in snapshot.gpus] for snapshot in (before, after)]
        known = all(None not in part and len(part) > 1 for part in uuids)
        if known and set(uuids[0]).isdisjoint(uuids[1]):
            yield f"none of the {len(uuids[0])} GPUs there is among the {len(uuids[1])} here, by their UUIDs"
