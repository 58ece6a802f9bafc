"""A choice of GPUs or a placement of ranks as tags on the GPUs of a picture, with what each tag means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from topoadvisor.placing import Document as Placement
from topoadvisor.placing import Rank
from topoadvisor.plan.subsets import Document as Pick
from topoadvisor.render import pick_text, place_text
from topoadvisor.render.schematic import Key, Part, Schematic, Tag

KEYS_SHOWN = 8
"""Of the tags those that are explained below a picture."""


def picked(schematic: Schematic, pick: Pick) -> Schematic:
    """`pick` on the best set; on the other groups of that size, where the set is one of them, `2`, `3`, …"""
    chosen = [pick.best]
    if any(group.gpus == pick.best.gpus for group in pick.groups):
        chosen += [group for group in pick.groups if group.gpus != pick.best.gpus]
    tags: dict[int, Tag] = {}
    keys: list[Key] = []
    for number, choice in enumerate(chosen):
        tag = Tag("pick" if number == 0 else f"group {number + 1}", number)
        tags |= dict.fromkeys(choice.gpus, tag)
        names = ", ".join(f"GPU{gpu}" for gpu in choice.gpus)
        keys.append(Key(tag, " · ".join(filter(None, [names, pick_text.facts(choice)]))))
    keys = [*_shown(keys, f"topoadvisor pick {pick.size}"), _order(pick.best.cuda_visible_devices)]
    keys += [Key(None, other.text) for other in [pick.nearest] if other is not None]
    keys += [Key(None, note) for note in pick.notes]
    return _tagged(schematic, tags, pick_text.title(pick), keys)


def placed(schematic: Schematic, placement: Placement) -> Schematic:
    """On each GPU that is used its rank, and before it the tensor group where there are any; of the first node."""
    tags: dict[int, Tag] = {}
    keys: list[Key] = []
    costs = {tuple(group.ranks): group for group in placement.groups if group.kind == "tensor"}
    first = (rank for rank in placement.ranks if rank.node == 0)
    for number, (_, run) in enumerate(groupby(first, key=lambda rank: rank.rank // placement.tp)):
        ranks = list(run)
        group = f"T{number} " if placement.tp > 1 else ""
        tags |= {rank.gpu: Tag(f"{group}r{rank.rank}", number) for rank in ranks}
        cost = costs.get(tuple(rank.rank for rank in ranks))
        speed = f" · {cost.busbw_gbps:.4g} GB/s busbw" if cost is not None and cost.busbw_gbps is not None else ""
        name = f"T{number}" if placement.tp > 1 else f"r{ranks[0].rank}"
        keys.append(Key(Tag(name, number), _of_ranks(ranks, placement) + speed))
    keys = [*_shown(keys, "topoadvisor place"), _order(placement.cuda_visible_devices)]
    keys += [Key(None, text) for text in (*placement.warnings, *placement.notes)]
    title = f"{place_text.title(placement)}{'; this is the first' if placement.nodes > 1 else ''}"
    return _tagged(schematic, tags, title, keys)


def _of_ranks(ranks: Sequence[Rank], placement: Placement) -> str:
    numbers = f"rank {ranks[0].rank}" if len(ranks) == 1 else f"ranks {ranks[0].rank}–{ranks[-1].rank}"
    expert = f", expert {ranks[0].expert}" if placement.ep > 1 else ""
    gpus = ", ".join(f"GPU{rank.gpu}" for rank in ranks)
    return f"{numbers} on {gpus} · pipeline {ranks[0].pipeline}, data {ranks[0].data}{expert}"


def _shown(keys: list[Key], verb: str) -> list[Key]:
    more = len(keys) - KEYS_SHOWN
    return [*keys[:KEYS_SHOWN], *([Key(None, f"and {more} more: see `{verb}`")] if more > 0 else [])]


def _order(devices: str) -> Key:
    return Key(None, f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={devices}")


def _tagged(schematic: Schematic, tags: Mapping[int, Tag], planned: str, keys: Sequence[Key]) -> Schematic:
    by_id = {f"gpu:{gpu}": tag for gpu, tag in tags.items()}
    return replace(schematic, parts=tuple(_parts(schematic.parts, by_id)), planned=planned, keys=tuple(keys))


def _parts(parts: Sequence[Part], tags: Mapping[str, Tag]) -> Iterator[Part]:
    for part in parts:
        yield replace(part, tag=tags.get(part.id), children=tuple(_parts(part.children, tags)))
