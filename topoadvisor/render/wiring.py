"""What joins GPUs and sockets across the boxes: NVLinks on tracks, the NVSwitch fabric, links between sockets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from topoadvisor.render import captions
from topoadvisor.render.bands import SOCKET_GAP, Band
from topoadvisor.render.lettering import width
from topoadvisor.render.schematic import Schematic, Wire
from topoadvisor.render.shapes import MARGIN_ROUTE, NVLINK_DROP, Box, Frame, Line, Point

TRACK = 17.0
"""From one horizontal NVLink track to the next."""
PASSAGE = 6.5
"""From a socket to the line that passes it, clear of the label between two sockets."""


def ports(schematic: Schematic) -> dict[str, int]:
    """GPU → number of NVLink lines that leave it in the drawing."""
    count: dict[str, int] = defaultdict(int)
    for wire in schematic.wires:
        if wire.kind == "nvlink":
            count[wire.a] += 1
            count[wire.b] += 1
    return count


class NvlinkArea:
    """The space below the upper band (and above the lower one) in which NVLinks run."""

    def __init__(self, schematic: Schematic, bands: Sequence[Band]) -> None:
        self.fabric = schematic.fabric
        fabric_id = self.fabric.id if self.fabric else None
        nvlinks = [wire for wire in schematic.wires if wire.kind == "nvlink"]
        self.to_fabric = [wire for wire in nvlinks if fabric_id == wire.b]
        self.direct = [wire for wire in nvlinks if fabric_id != wire.b]
        self.exits = {gpu: xs for band in bands for gpu, xs in band.exits.items()}
        self.ends = self._assign_ends()
        self.tracks = self._assign_tracks()
        count = max(self.tracks.values(), default=-1) + 1
        self.tracks_height = NVLINK_DROP / 2 + (count - 1) * TRACK + 4 if count else 0.0
        self.fabric_rows = captions.fabric(self.fabric, 400.0) if self.fabric else ()
        self.fabric_height = captions.height(self.fabric_rows) if self.fabric else 0.0
        self.height = self.tracks_height + (NVLINK_DROP + self.fabric_height if self.fabric else 0.0)
        if len(bands) > 1:
            self.height = max(self.height + NVLINK_DROP, SOCKET_GAP)

    def _centre(self, gpu: str) -> float:
        xs = self.exits[gpu]
        return sum(xs) / len(xs)

    def _assign_ends(self) -> dict[tuple[str, int], float]:
        """(GPU, number of the wire) → x where it leaves the GPU.

        Wires to the left leave at the left, short ones outermost, so that long ones pass below without crossing them.
        """
        wanted: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for number, wire in enumerate(self.direct):
            wanted[wire.a].append((self._centre(wire.b) - self._centre(wire.a), number))
            wanted[wire.b].append((self._centre(wire.a) - self._centre(wire.b), number))
        for number, wire in enumerate(self.to_fabric, start=len(self.direct)):
            wanted[wire.a].append((0.0, number))

        def left_to_right(entry: tuple[float, int]) -> tuple[int, float, int]:
            distance, number = entry
            return (-1 if distance < 0 else int(distance > 0), -distance, number)

        return {
            (gpu, number): x
            for gpu, entries in wanted.items()
            for (_, number), x in zip(sorted(entries, key=left_to_right), self.exits[gpu], strict=True)
        }

    def _span(self, number: int) -> tuple[float, float]:
        wire = self.direct[number]
        a, b = self.ends[(wire.a, number)], self.ends[(wire.b, number)]
        return min(a, b), max(a, b)

    def _assign_tracks(self) -> dict[int, int]:
        """Wire → track, short ones first, so that no two overlap on one track."""
        tracks: dict[int, int] = {}
        taken: list[list[tuple[float, float]]] = []
        for number in sorted(range(len(self.direct)), key=self._shortest_first):
            left, right = self._span(number)
            if left == right:
                continue
            free = (
                n for n, spans in enumerate(taken) if all(right + 6 < low or left - 6 > high for low, high in spans)
            )
            track = next(free, len(taken))
            if track == len(taken):
                taken.append([])
            taken[track].append((left, right))
            tracks[number] = track
        return tracks

    def _shortest_first(self, number: int) -> tuple[float, float]:
        left, right = self._span(number)
        return round((right - left) / 10), left

    def draw(self, bands: Sequence[Band], top: float) -> tuple[list[Box], list[Line]]:
        """The fabric's box, and all NVLink lines, in the space that begins at y = `top` between the placed bands."""
        self.starts = {gpu: y for band in bands for gpu, y in band.starts.items()}
        self.sides = {gpu: x for band in bands for gpu, x in band.sides.items()}
        lines = [self._direct_line(number, wire, top) for number, wire in enumerate(self.direct)]
        if self.fabric is None:
            return [], lines
        frames = [frame for band in bands for frame in band.frames]
        left, right = min(frame.x for frame in frames), max(frame.x + frame.w for frame in frames)
        y = top + self.tracks_height + NVLINK_DROP
        wide = right - left + (MARGIN_ROUTE if any(band.outer for band in bands) else 0.0)
        box = Box(self.fabric, left, y, wide, self.fabric_height, captions.fabric(self.fabric, wide))
        return [box], lines + self._fabric_lines(box, bands)

    def _lead(self, gpu: str, x: float) -> list[Point]:
        """How a line at x leaves a GPU: straight through its floor, or first sideways out of a stack."""
        y = self.starts[gpu]
        return [(self.sides[gpu], y), (x, y)] if gpu in self.sides else [(x, y)]

    def _direct_line(self, number: int, wire: Wire, top: float) -> Line:
        a, b = self.ends[(wire.a, number)], self.ends[(wire.b, number)]
        way = [*self._lead(wire.a, a), *reversed(self._lead(wire.b, b))]
        if a == b:
            reach = width(wire.label, captions.SMALL, bold=True) / 2 + 4
            return Line(wire.a, wire.b, wire, tuple(way), (a - reach, (self.starts[wire.a] + self.starts[wire.b]) / 2))
        y = top + NVLINK_DROP / 2 + self.tracks[number] * TRACK
        half = len(way) // 2
        points = (*way[:half], (a, y), (b, y), *way[half:])
        return Line(wire.a, wire.b, wire, points, (self._label_x(number), y - 7.5))

    def _fabric_lines(self, box: Box, bands: Sequence[Band]) -> list[Line]:
        """One line per GPU; those that share their last part share one label."""
        ways = {
            wire.a: self._lead(wire.a, self.ends[(wire.a, number)])
            for number, wire in enumerate(self.to_fabric, start=len(self.direct))
        }
        stacked = {ways[gpu][-1][0] for gpu in ways if gpu in self.sides}
        for band in bands:
            if band.outer:
                _around_inner_bands(band, ways)
        downwards = {gpu for band in bands if band.below for gpu in band.starts}
        shared: dict[tuple[float, bool], list[Wire]] = defaultdict(list)
        for wire in self.to_fabric:
            shared[(ways[wire.a][-1][0], wire.a in downwards)].append(wire)
        lines = []
        for (x, below), wires in shared.items():
            end = box.y if below else box.y + box.h
            text = "/".join(dict.fromkeys(wire.label for wire in wires))
            reach = width(text, captions.SMALL, bold=True) / 2 + 5
            label_at = (x - reach if x in stacked else x + reach, end + NVLINK_DROP / (-2 if below else 2))
            for number, wire in enumerate(wires):
                labelled = replace(wire, label=text if number == 0 else "")
                lines.append(Line(wire.a, wire.b, labelled, (*ways[wire.a], (x, end)), label_at))
        return lines

    def _label_x(self, number: int) -> float:
        """The middle of the widest stretch of a wire's track that no other wire's vertical part crosses."""
        left, right = self._span(number)
        crossing = {
            x
            for (_, other), x in self.ends.items()
            if left < x < right and (other >= len(self.direct) or self.tracks.get(other, -1) >= self.tracks[number])
        }
        low, high = max(pairwise(sorted({left, right} | crossing)), key=lambda gap: gap[1] - gap[0])
        return (low + high) / 2


def _around_inner_bands(band: Band, ways: dict[str, list[Point]]) -> None:
    """Lead the lines of a band's GPUs to the gap at the right of their socket, where the inner bands let them pass."""
    floor = max(frame.y + frame.h for frame in band.frames) + 6 if band.below else band.frames[0].y - 6
    for frame in band.frames:
        gap = frame.x + frame.w + PASSAGE
        for part in frame.part.walk():
            if part.id in ways:
                x = ways[part.id][-1][0]
                ways[part.id] += [(x, floor), (gap, floor)]


def between_frames(wires: Sequence[Wire], bands: Sequence[Band]) -> list[Line]:
    """Links between sockets: straight between neighbours, around the left side between bands."""
    known = [wire for wire in wires if wire.kind == "inter-socket"]
    lines: list[Line] = []
    for band in bands:
        for left, right in pairwise(band.frames):
            if (wire := _joining(known, left, right)) and (a := _bars(left)) and (b := _bars(right)):
                lines.append(_across(wire, a[-1], b[0]))
    for number, (one, other) in enumerate(pairwise(bands)):
        upper, lower = one.frames[0], other.frames[0]
        if (wire := _joining(known, upper, lower)) and (a := _bars(upper)) and (b := _bars(lower)):
            around = _around(wire, a[0], b[0], min(upper.x, lower.x) - MARGIN_ROUTE / 2)
            # Further down the line from above would run through the label.
            lines.append(around if number == 0 else replace(around, label_at=None))
    return lines


def _joining(wires: Sequence[Wire], a: Frame, b: Frame) -> Wire | None:
    inside = [{part.id for part in frame.part.walk() if part.kind in ("socket", "numa")} for frame in (a, b)]
    return next((wire for wire in wires if all({wire.a, wire.b} & ids for ids in inside)), None)


def _bars(frame: Frame) -> list[Box]:
    """The bars of the NUMA nodes in a frame, left to right."""
    own = [box for box in frame.boxes if box.part.kind == "numa"]
    return own + [box for inner in frame.frames for box in _bars(inner)]


def _across(wire: Wire, a: Box, b: Box) -> Line:
    y = a.y + a.h / 2
    return Line(a.part.id, b.part.id, wire, ((a.x + a.w, y), (b.x, y)), ((a.x + a.w + b.x) / 2, y - 8))


def _around(wire: Wire, a: Box, b: Box, x: float) -> Line:
    ya, yb = a.y + a.h / 2, b.y + b.h / 2
    label_at = (x, ya - 9)
    return Line(a.part.id, b.part.id, wire, ((a.x, ya), (x, ya), (x, yb), (b.x, yb)), label_at)
