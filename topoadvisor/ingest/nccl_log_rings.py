"""Rings and trees of one communicator, from what its ranks printed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final, Literal

from topoadvisor.ingest.nccl_log_records import Member
from topoadvisor.ingest.nccl_log_summary import Ring, Tree

_EDGE: Final = re.compile(rb"([0-9]{1,7})(?:\[[0-9a-f]{1,16}\])? -> ([0-9]{1,7})")
_NEIGHBOURS: Final = re.compile(rb"([0-9]{1,7}) -> ([0-9]{1,7}) -> ([0-9]{1,7})")
_TREE: Final = re.compile(rb"\[([0-9]{1,3})\] (\S{3,200})")
_MAX_TREE_RANKS: Final = 65_536

Origin = Literal["printed", "neighbours", "connections"]


@lru_cache(maxsize=4096)
def bits(mask: int) -> tuple[int, ...]:
    """The numbers of the bits that are set, ascending."""
    return tuple(number for number in range(mask.bit_length()) if mask >> number & 1)


def count(rings: Iterable[Ring]) -> int:
    """How many channels these rings have."""
    return len({channel for ring in rings for channel in ring.channels})


def printed(members: Iterable[Member], size: int) -> tuple[list[Ring], bool]:
    """Rings as rank 0 lists them, and whether a list is cut: since 2.23 it ends with `...` then."""
    masks: dict[tuple[int, ...], int] = defaultdict(int)
    cut = False
    for member in members:
        for text, mask in chain(member.rings.items(), member.others.items()):
            if b"->" in text or b" via " in text:
                continue
            words = text.split()
            order = tuple(int(word) for word in words if word.isdigit() and len(word) < 8)
            if not order:
                continue
            cut |= len(order) != size or len(order) != len(words)
            masks[order] |= mask
    return [
        Ring(order=list(order), channels=list(bits(mask)), complete=sorted(order) == list(range(size)))
        for order, mask in sorted(masks.items(), key=lambda item: bits(item[1]))
    ], cut


def from_neighbours(members: Iterable[Member], size: int) -> list[Ring]:
    """Rings from `Ring NN : previous -> own -> next`, which each rank prints with GRAPH; [] when a rank is missing."""
    edges: dict[int, dict[int, int]] = defaultdict(dict)
    for member in members:
        for text, mask in member.neighbours.items():
            if match := _NEIGHBOURS.match(text):
                for channel in bits(mask):
                    edges[channel][int(match[2])] = int(match[3])
    return _walk(edges, size, "neighbours")


def from_connections(members: Iterable[Member], size: int) -> list[Ring]:
    """Rings from the connections made before `Connected all rings`; [] when they do not give whole rings."""
    edges: dict[int, dict[int, int]] = defaultdict(dict)
    torn: set[int] = set()
    for member in members:
        for text, mask in member.rings.items():
            edge = _edge(text)
            if edge is None:
                continue
            a, b = edge
            for channel in bits(mask):
                if edges[channel].setdefault(a, b) != b:
                    torn.add(channel)
    return _walk({channel: found for channel, found in edges.items() if channel not in torn}, size, "connections")


@lru_cache(maxsize=1 << 14)
def _edge(text: bytes) -> tuple[int, int] | None:
    """Both ends of a connection. Communicators of one job repeat each other's texts."""
    match = _EDGE.match(text) if b" via " in text else None
    return (int(match[1]), int(match[2])) if match else None


def _walk(edges: Mapping[int, Mapping[int, int]], size: int, origin: Origin) -> list[Ring]:
    rings: dict[tuple[int, ...], list[int]] = {}
    for channel, following in sorted(edges.items()):
        order, at = [0], following.get(0)
        while at is not None and at != 0 and len(order) < size:
            order.append(at)
            at = following.get(at)
        if at == 0 and sorted(order) == list(range(size)):
            rings.setdefault(tuple(order), []).append(channel)
    return [Ring(order=list(order), channels=channels, origin=origin) for order, channels in rings.items()]


def trees(by_rank: Mapping[int, Member], size: int) -> list[Tree]:
    """The trees, each with the channels that run it; from the `Trees` line of every rank."""
    if size > _MAX_TREE_RANKS:
        return []
    parents: dict[int, list[int | None]] = {}
    for rank, member in by_rank.items():
        if rank >= size:
            continue
        for channel, up in _parents(member.trees):
            parents.setdefault(channel, [None] * size)[rank] = up
    grouped: dict[tuple[int | None, ...], list[int]] = {}
    for channel, vector in sorted(parents.items()):
        grouped.setdefault(tuple(vector), []).append(channel)
    return [Tree(parents=list(vector), channels=channels) for vector, channels in grouped.items()]


@lru_cache(maxsize=1 << 12)
def _parents(line: bytes) -> tuple[tuple[int, int], ...]:
    """(channel, parent) of one rank."""
    found = ((int(match[1]), _parent(match[2])) for match in _TREE.finditer(line))
    return tuple((channel, up) for channel, up in found if up is not None)


@lru_cache(maxsize=1 << 14)
def _parent(text: bytes) -> int | None:
    """Parent of the rank: `children->rank->parent`; NCCL 2.4 turns it round, 2.5 to 2.7 add a second tree after `|`."""
    parts = text.partition(b"|")[0].split(b"->")
    if len(parts) != 3 and len(parts) != 5:
        return None
    if b"/" in parts[0]:
        up = parts[2]
    elif b"/" in parts[2]:
        up = parts[0]
    else:
        return None
    return int(up) if re.fullmatch(rb"-1|[0-9]{1,7}", up) else None


def walk_pairs(order: list[int]) -> Iterator[tuple[int, int]]:
    """Each rank with the next, the last with the first."""
    return zip(order, [*order[1:], *order[:1]], strict=True)
