"""Rings under a drawing of the machine: for each a row of its GPUs, hops to the right below it and to the left above.

GPUs stand under their boxes where these stand beside each other, otherwise spread over the page in index order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from topoadvisor.advice import Ring
from topoadvisor.render.lettering import fit
from topoadvisor.render.shapes import Point, Row

SHOWN: Final = 4
_TITLE_SIZE: Final = 9
_LABEL: Final = 8
_DOT: Final = (16.0, 12.0)
_LANE: Final = 5.0
_APART: Final = 2.5
"""Half the distance between two lines that meet at a GPU."""
COLOURS: Final = ("#0b7285", "#c2255c", "#e67700", "#5f3dc4")

Hop = tuple[int, int]


class Strip:
    """What is drawn for one ring. `y` grows downwards."""

    def __init__(self, number: int, ring: Ring, places: Mapping[int, float], y: float, page: float) -> None:
        self.number, self.ring = number, ring
        speed = f" · {ring.gbps:.4g} GB/s" if ring.gbps else ""
        order = " → ".join(str(gpu) for gpu in [*ring.order, ring.order[0]])
        self.title = Row(fit(f"Ring {number + 1}{speed} · {order}", page, _TITLE_SIZE, bold=True), _TITLE_SIZE, True)
        self.title_y = y
        self.colour = COLOURS[number % len(COLOURS)]
        drawn = _room(places)
        hops = list(pairwise([*ring.order, ring.order[0]])) if drawn else []
        self._right = _lanes([hop for hop in hops if places[hop[0]] < places[hop[1]]], places)
        self._left = _lanes([hop for hop in hops if places[hop[0]] > places[hop[1]]], places)
        above = max(self._left.values(), default=-1) + 1
        below = max(self._right.values(), default=-1) + 1
        self._places = places
        self._top = y + _TITLE_SIZE * 1.5 + (above + 1) * _LANE
        self.dots = [(gpu, places[gpu] - _DOT[0] / 2, self._top) for gpu in sorted(ring.order)] if drawn else []
        self.bottom = (self._top + _DOT[1] + (below + 1) * _LANE + 4) if drawn else y + _TITLE_SIZE * 1.6

    def lines(self) -> Iterator[tuple[Hop, tuple[Point, ...]]]:
        """Each hop with its corners."""
        for lanes, edge, away in ((self._right, self._top + _DOT[1], _LANE), (self._left, self._top, -_LANE)):
            for (a, b), lane in lanes.items():
                lean = _APART if self._places[a] < self._places[b] else -_APART
                x, end = self._places[a] + lean, self._places[b] - lean
                level = edge + away * (lane + 1)
                yield (a, b), ((x, edge), (x, level), (end, level), (end, edge))


def dot_size() -> tuple[float, float]:
    """Width and height of a GPU in a strip."""
    return _DOT


def label(gpu: int) -> Row:
    """The name of a GPU in a strip."""
    return Row(str(gpu), _LABEL, bold=True)


def places(boxes: Mapping[int, tuple[float, float]], page: float) -> dict[int, float]:
    """Where each GPU stands. `boxes` has the middle and the upper edge of each GPU's box."""
    beside = {y for _, y in boxes.values()}
    middles = sorted(x for x, _ in boxes.values())
    if len(beside) == 1 and all(b - a >= _DOT[0] + 2 for a, b in pairwise(middles)):
        return {gpu: x for gpu, (x, _) in boxes.items()}
    step = page / max(len(boxes), 1)
    return {gpu: step * (place + 0.5) for place, gpu in enumerate(sorted(boxes))}


def _room(places: Mapping[int, float]) -> bool:
    middles = sorted(places.values())
    return all(b - a >= _DOT[0] + 2 for a, b in pairwise(middles))


def _lanes(hops: Sequence[Hop], places: Mapping[int, float]) -> dict[Hop, int]:
    """Hop → lane, so that lines of one lane do not run over each other; short hops nearest to the GPUs."""
    lanes: list[list[tuple[float, float]]] = []
    found: dict[Hop, int] = {}
    for hop in sorted(hops, key=lambda hop: (abs(places[hop[0]] - places[hop[1]]), hop)):
        left, right = sorted((places[hop[0]], places[hop[1]]))
        lane = next((n for n, taken in enumerate(lanes) if all(right <= a or left >= b for a, b in taken)), len(lanes))
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append((left, right))
        found[hop] = lane
    return found
