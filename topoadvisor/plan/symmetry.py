"""Which GPUs of a machine can be exchanged without changing anything, so that one set stands for all that are like it.

Two blocks of GPUs are alike when exchanging them, each GPU of one with the GPU at its place in the other, leaves all
loads, capacities and distances as they are. Single GPUs make blocks, blocks that are alike make larger ones, and so on:
GPUs of one switch, switches of one socket, sockets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from topoadvisor.plan.optimum import Space
from topoadvisor.plan.problem import Problem


@dataclass(frozen=True)
class Block:
    """A GPU, or blocks; those of `alike` can be exchanged for each other."""

    members: tuple[int, ...]
    """Positions of GPUs; that of the block itself when it is one GPU."""
    alike: bool = True
    blocks: tuple[Block, ...] = ()


def find(problem: Problem, tags: npt.NDArray[np.int64]) -> Block:
    """The blocks of a machine. `tags` (n, n) has to stay the same too, the diagonal being what a GPU has of its own."""
    same = _Invariance(problem, tags)
    blocks = [Block((gpu,)) for gpu in range(problem.n)]
    while len(blocks) > 1:
        groups: list[list[Block]] = []
        for block in blocks:
            home = next((group for group in groups if same.exchanged(group[0].members, block.members)), None)
            if home is None:
                groups.append([block])
            else:
                home.append(block)
        if len(groups) == len(blocks):
            break
        blocks = [
            group[0]
            if len(group) == 1
            else Block(tuple(gpu for block in group for gpu in block.members), True, tuple(group))
            for group in groups
        ]
    return blocks[0] if len(blocks) == 1 else Block(tuple(range(problem.n)), False, tuple(blocks))


class _Invariance:
    """Compares a machine with itself after an exchange, by random sums over the hops of each link."""

    def __init__(self, problem: Problem, tags: npt.NDArray[np.int64]) -> None:
        n = problem.n
        space = Space(problem)
        self._share = space.share
        self._tags = 2 * tags + space.exists.reshape(n, n)
        self._weights = np.random.default_rng(1).random((2, n * n))
        self._sums = self._weights @ self._share
        self._sorted = _sorted(self._sums)

    def exchanged(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Whether exchanging these GPUs, place by place, changes nothing."""
        if len(one) != len(other):
            return False
        n = len(self._tags)
        order = np.arange(n)
        order[list(one)], order[list(other)] = other, one
        if not np.array_equal(self._tags, self._tags[np.ix_(order, order)]):
            return False
        hops = (order[:, None] * n + order[None, :]).ravel()
        moved = np.nonzero(hops != np.arange(n * n))[0]
        change = (self._weights[:, hops[moved]] - self._weights[:, moved]) @ self._share[moved]
        return np.allclose(self._sorted, _sorted(self._sums + change), rtol=1e-9, atol=0)


def _sorted(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return sums[:, np.lexsort(np.round(sums, 9)[::-1])]


def sets(block: Block, size: int, among: frozenset[int]) -> Iterator[tuple[int, ...]]:
    """Sets of `size` GPUs of `among`, in index order each: of those that are alike one, low indexes first."""
    left = _left(block, among)
    if left is None or size > len(left.members):
        return iter(())
    return (tuple(sorted(chosen)) for chosen in _choices(left, size))


@lru_cache(maxsize=100_000)
def _left(block: Block, among: frozenset[int]) -> Block | None:
    """What is left of a block when other GPUs are taken away."""
    if among.issuperset(block.members):
        return block
    if not block.blocks:
        return None
    kept = [left for each in block.blocks if (left := _left(each, among & frozenset(each.members))) is not None]
    if not kept:
        return None
    return Block(tuple(gpu for each in kept for gpu in each.members), block.alike, tuple(kept))


def shape(block: Block, among: frozenset[int]) -> object:
    """Equal for two sets of GPUs that are alike."""
    left = _left(block, among)
    return None if left is None else _shape(left, block)


@lru_cache(maxsize=100_000)
def _shape(left: Block, whole: Block) -> object:
    """The form of what is left of a whole block; the place of a block counts only where it cannot be exchanged."""
    if not whole.blocks:
        return ()
    kept = {each.members: each for each in left.blocks}
    parts = []
    for place, each in enumerate(whole.blocks):
        inside = frozenset(each.members)
        own = next((part for members, part in kept.items() if inside.issuperset(members)), None)
        if own is not None:
            parts.append((-len(own.members), 0 if whole.alike else place, _shape(own, each)))
    return tuple(sorted(parts, key=repr))


def _choices(left: Block, size: int) -> Iterator[tuple[int, ...]]:
    if not left.blocks:
        yield left.members if size else ()
        return
    groups: list[list[Block]] = []
    for block in left.blocks:
        home = None
        if left.alike:
            home = next((group for group in groups if _pattern(group[0]) == _pattern(block)), None)
        if home is None:
            groups.append([block])
        else:
            home.append(block)
    room = [sum(len(block.members) for block in group) for group in groups]
    for sizes in _splits(size, room):
        for parts in itertools.product(
            *(list(_of_alike(group, each)) for group, each in zip(groups, sizes, strict=True))
        ):
            yield tuple(itertools.chain.from_iterable(parts))


def _pattern(block: Block) -> object:
    """Equal for blocks that are built alike, when their parents can be exchanged."""
    return tuple(_pattern(each) for each in block.blocks)


def _splits(size: int, room: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """How `size` can be shared out, most to the first."""
    if not room:
        if size == 0:
            yield ()
        return
    for first in range(min(size, room[0]), -1, -1):
        if size - first <= sum(room[1:]):
            for rest in _splits(size - first, room[1:]):
                yield (first, *rest)


def _of_alike(blocks: Sequence[Block], size: int) -> Iterator[tuple[int, ...]]:
    """Sets over blocks that can be exchanged: the first takes most, and of as many the first way to choose them."""
    ways = [list(_choices_of_size(blocks[0], each)) for each in range(min(size, len(blocks[0].members)) + 1)]

    def go(place: int, left: int, most: tuple[int, int]) -> Iterator[tuple[int, ...]]:
        if place == len(blocks):
            if left == 0:
                yield ()
            return
        for count in range(min(left, most[0], len(ways) - 1), -1, -1):
            if count * (len(blocks) - place) < left:
                break
            first = most[1] if count == most[0] else 0
            for number in range(first, len(ways[count])):
                own = list(_choices_of_size(blocks[place], count))[number]
                for rest in go(place + 1, left - count, (count, number)):
                    yield (*own, *rest)

    return go(0, size, (size, 0))


@lru_cache(maxsize=100_000)
def _choices_of_size(block: Block, size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(_choices(block, size))
