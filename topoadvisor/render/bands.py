"""One row of sockets: columns of GPUs and NICs below bars that are as wide as what hangs off them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from topoadvisor.render import captions
from topoadvisor.render.columns import FRAME_PAD, MEMBER_GAP, NIC_COLUMN, Block, Column, Plan
from topoadvisor.render.lettering import width
from topoadvisor.render.schematic import Part, Wire
from topoadvisor.render.shapes import GAP, Box, Frame, Line, Point, Row

LANE = 8.0
"""Between two lines that run down beside a box."""
GUTTER = 11.0
"""Left and right of stacked GPUs, for the line that they share."""
STEP, WIDE_STEP = 14.0, 22.0
"""From one level of bars to the next; the second for a picture that would be a strip."""
SOCKET_HEAD = 20.0
SOCKET_GAP, PLAIN_GAP = 40.0, 20.0
"""Between sockets with and without a link drawn between them."""


@dataclass
class Band:
    """One laid-out row of sockets."""

    w: float
    h: float
    frames: list[Frame]
    lines: list[Line]
    exits: dict[str, list[float]]
    """GPU → x of each of its NVLink lines where it leaves the band, left to right."""
    starts: dict[str, float]
    """GPU → y at which its NVLink lines leave it."""
    sides: dict[str, float]
    """GPU in a stack → x of its right edge, where its NVLink lines leave it sideways."""
    below: bool = True
    """The NVLink fabric is below the band, not above it."""
    outer: bool = False
    """Another band stands between this one and the fabric."""

    def moved(self, dx: float, dy: float) -> Band:
        return self._mapped(lambda x, y: (x + dx, y + dy), flip=False)

    def mirrored(self) -> Band:
        """The same band with its floor up: the texts stay upright."""
        return self._mapped(lambda x, y: (x, self.h - y), flip=True)

    def _mapped(self, point: Callable[[float, float], Point], *, flip: bool) -> Band:
        def corner(old: Box | Frame) -> Point:
            return point(old.x, old.y + old.h if flip else old.y)

        def box(old: Box) -> Box:
            x, y = corner(old)
            return replace(old, x=x, y=y)

        def frame(old: Frame) -> Frame:
            x, y = corner(old)
            frames, boxes = tuple(map(frame, old.frames)), tuple(map(box, old.boxes))
            return replace(old, x=x, y=y, title_below=old.title_below != flip, frames=frames, boxes=boxes)

        return Band(
            self.w,
            self.h,
            list(map(frame, self.frames)),
            [
                replace(
                    line,
                    points=tuple(point(*p) for p in line.points),
                    label_at=None if line.label_at is None else point(*line.label_at),
                )
                for line in self.lines
            ],
            {gpu: [point(x, 0.0)[0] for x in xs] for gpu, xs in self.exits.items()},
            {gpu: point(0.0, y)[1] for gpu, y in self.starts.items()},
            {gpu: point(x, 0.0)[0] for gpu, x in self.sides.items()},
            self.below != flip,
            self.outer,
        )


@dataclass
class Layout:
    """Turns a plan into boxes and lines. Heights are the same in the whole band, so that rows line up."""

    plan: Plan
    column_width: float
    ports: dict[str, int]
    """GPU → number of NVLink lines that leave it."""
    chips: dict[str, Wire]
    """GPU → its chip-to-chip link to a NUMA node."""
    step: float = STEP
    lines: list[Line] = field(default_factory=list)
    exits: dict[str, list[float]] = field(default_factory=dict)
    starts: dict[str, float] = field(default_factory=dict)
    sides: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = self.plan
        columns = [column for block in plan.blocks for column in block.columns()]
        self.stacked = plan.gpu_rows > 1
        """GPUs above GPUs: the links of a column then share one line at its left and one at its right."""
        self.lanes = _lanes(plan.gpu_rows + plan.nic_rows)
        self.rows = {part.id: rows for column in columns for part, rows in self._captions(column)}
        tall = {"gpu": 0.0, "nic": 0.0}
        for column in columns:
            for part in column.stack:
                tall[part.kind] = max(tall[part.kind], captions.height(self.rows[part.id]))
        self.tall = tall
        self.socket_head = SOCKET_HEAD if any(block.part.kind == "socket" for block in plan.blocks) else 0.0
        self.numa_bar = self._numa_bar()
        top = self.socket_head + FRAME_PAD + (self.numa_bar + self.step if self.numa_bar else 0.0)
        self.bar_tops, self.bar_heights = self._bar_levels(top)
        devices_top = self.bar_tops[-1]
        with_gpus = plan.nic_rows * (tall["nic"] + GAP) + plan.gpu_rows * (tall["gpu"] + self.step) - self.step
        without = plan.nic_stack * (tall["nic"] + GAP) - GAP
        self.devices_top = devices_top
        self.devices_bottom = devices_top + max(with_gpus, without, 0.0)
        self.numa_bottom = self.devices_bottom + FRAME_PAD
        self.bottom = self.numa_bottom + (FRAME_PAD if self.socket_head else 0.0)

    def _captions(self, column: Column) -> Iterator[tuple[Part, tuple[Row, ...]]]:
        for number, part in enumerate(column.stack):
            yield part, captions.device(part, self._span(column, number)[1])

    def _span(self, column: Column, number: int) -> tuple[float, float]:
        """(left edge from the column's left edge, width) of one device of a column: lanes run beside the upper ones."""
        last = number == len(column.stack) - 1
        if self.stacked and column.gpus:
            return GAP / 2 + GUTTER, self._width(column) - GAP - 2 * GUTTER
        left = 0.0 if last else self.lanes if column.gpus else _lanes(len(column.stack))
        right = 0.0 if last else self._chip_lane(column)
        return GAP / 2 + left, self._width(column) - GAP - left - right

    def _chip_lane(self, column: Column) -> float:
        """Width kept free at the right of a column for the chip-to-chip link that comes down to its GPU."""
        return LANE + 3 if any(part.id in self.chips for part in column.stack) else 0.0

    def _bar_width(self, block: Block) -> float:
        columns = list(block.columns())
        return sum(map(self._width, columns)) - GAP - self._chip_lane(columns[-1])

    def _width(self, column: Column) -> float:
        return self.column_width if column.gpus else min(self.column_width, NIC_COLUMN)

    def _numa_bar(self) -> float:
        """Height of the NUMA nodes' bars; 0 when there are none."""
        height = 0.0
        for block in self.plan.blocks:
            for numa in (block, *block.children):
                if isinstance(numa, Block) and numa.part.kind == "numa":
                    columns = list(numa.columns())
                    wide = sum(map(self._width, columns)) if columns else self.column_width
                    self.rows[numa.part.id] = captions.bar(numa.part, wide)
                    height = max(height, captions.height(self.rows[numa.part.id]))
        return height

    def _bar_levels(self, top: float) -> tuple[list[float], list[float]]:
        """y of every level of bars and, last, of the devices; and the height of every level."""
        heights: list[float] = []
        for block in self.plan.blocks:
            for level, inner in block.levels():
                self.rows[inner.part.id] = captions.bar(inner.part, self._bar_width(inner))
                heights += [0.0] * (level + 1 - len(heights))
                heights[level] = max(heights[level], captions.height(self.rows[inner.part.id]))
        tops = [top]
        for height in heights:
            tops.append(tops[-1] + height + self.step)
        return tops, heights

    def band(self) -> Band:
        x = 0.0
        frames: list[Frame] = []
        for block in self.plan.blocks:
            frames.append(self._frame(block, x))
            x += frames[-1].w + self.plan.gap
        return Band(x - self.plan.gap, self.bottom, frames, self.lines, self.exits, self.starts, self.sides)

    def _frame(self, block: Block, x: float) -> Frame:
        """A socket or NUMA node whose left border is at x."""
        is_socket = block.part.kind == "socket"
        top = 0.0 if is_socket else self.socket_head
        at = x + FRAME_PAD
        frames: list[Frame] = []
        boxes: list[Box] = []
        for child in block.children:
            if isinstance(child, Block) and child.framed:
                at += MEMBER_GAP if frames else 0.0
                frames.append(self._frame(child, at))
                at += frames[-1].w
            else:
                at = self._hang(child, at, 0, boxes)
        wide = max(at + FRAME_PAD - x, 2 * FRAME_PAD + self.column_width)
        title = captions.header(block.part, wide - 2 * FRAME_PAD) if is_socket else None
        if not is_socket:
            rows = self.rows[block.part.id]
            bar = Box(block.part, x + FRAME_PAD, top + FRAME_PAD, wide - 2 * FRAME_PAD, self.numa_bar, rows)
            boxes.insert(0, bar)
            self._join_down(block, bar, boxes)
            self._join_chips(bar, boxes)
        bottom = self.bottom if is_socket else self.numa_bottom
        return Frame(block.part, x, top, wide, bottom - top, title, False, tuple(frames), tuple(boxes))

    def _hang(self, child: Block | Column, x: float, level: int, boxes: list[Box]) -> float:
        """Place a bar with all below it, or a column, from x on; returns where the next one may start."""
        if isinstance(child, Column):
            boxes.extend(self._column(child, x))
            return x + self._width(child)
        end = x
        below: list[Box] = []
        for grandchild in child.children:
            end = self._hang(grandchild, end, level + 1, below)
        y, h = self.bar_tops[level], self.bar_heights[level]
        bar = Box(child.part, x + GAP / 2, y, self._bar_width(child), h, self.rows[child.part.id])
        self._join_down(child, bar, below)
        boxes += [bar, *below]
        return end

    def _column(self, column: Column, x: float) -> list[Box]:
        """The NICs and GPUs of one column: GPUs stand on the common floor, NICs above them."""
        heights = [self.tall[part.kind] for part in column.stack]
        steps = [self.step if part.kind == "gpu" else GAP for part in column.stack]
        y = self.devices_top
        if column.gpus:
            y = self.devices_bottom - sum(heights) - sum(steps[:-1])
        boxes = []
        for number, part in enumerate(column.stack):
            left, w = self._span(column, number)
            boxes.append(Box(part, x + left, y, w, heights[number], self.rows[part.id]))
            if part.kind == "gpu":
                self._leave(boxes[-1])
            y += heights[number] + steps[number]
        return boxes

    def _leave(self, box: Box) -> None:
        """Where the NVLink lines of a GPU leave the band: through its floor, or beside the GPUs below it."""
        gpu, count = box.part.id, self.ports.get(box.part.id, 0)
        if self.stacked:
            self.sides[gpu] = box.x + box.w
            self.starts[gpu] = box.y + box.h / 2
            self.exits[gpu] = [box.x + box.w + GUTTER / 2] * count
        else:
            self.starts[gpu] = box.y + box.h
            spread = min(24.0, box.w / (count + 1))
            middle = box.x + box.w / 2
            self.exits[gpu] = [middle + (i - (count - 1) / 2) * spread for i in range(count)]

    def _join_down(self, block: Block, bar: Box, below: list[Box]) -> None:
        """Lines from a bar to what hangs directly off it."""
        boxes = {box.part.id: box for box in below}
        start = bar.y + bar.h
        for child in block.children:
            if isinstance(child, Block):
                target = boxes[child.part.id]
                # A third, where chip-to-chip links come down beside: they may meet the middle.
                middle = target.x + target.w / (3 if self.chips else 2)
                self._line(bar, target, [(middle, start), (middle, target.y)])
                continue
            for number, part in enumerate(child.stack):
                target = boxes[part.id]
                if self.stacked and child.gpus:
                    x, y = target.x - GUTTER / 2, target.y + target.h / 2
                    self._line(bar, target, [(x, start), (x, y), (target.x, y)])
                else:
                    self._line(bar, target, _to_device(child, number, boxes, start))

    def _join_chips(self, bar: Box, below: list[Box]) -> None:
        """Chip-to-chip links from a NUMA node's bar down to its GPUs, at their right."""
        for box in below:
            wire = self.chips.get(box.part.id)
            if wire is not None:
                x = box.x + box.w - LANE / 2
                start = bar.y + bar.h
                label_at = (x - 5 - width(wire.label, captions.SMALL, bold=True) / 2, start + self.step / 2)
                self.lines.append(Line(wire.a, wire.b, wire, ((x, box.y), (x, start)), label_at))

    def _line(self, bar: Box, target: Box, points: list[Point]) -> None:
        uplink = target.part.uplink
        wire = Wire(
            bar.part.id,
            target.part.id,
            kind="host" if target.part.kind == "root" else "pcie",
            label="",
            links=uplink.lanes,
            degraded=uplink.degraded,
            inferred=uplink.inferred or target.part.inferred or bar.part.inferred,
            passed=target.part.passed,
        )
        self.lines.append(Line(wire.a, wire.b, wire, tuple(points)))


def narrowest(plan: Plan) -> float:
    """The width below which a bus id does not fit into the narrowest box of a column."""
    text = captions.NARROWEST + 2 * captions.PADDING + GAP
    return text + (2 * GUTTER if plan.gpu_rows > 1 else _lanes(plan.gpu_rows + plan.nic_rows))


def _lanes(stack: int) -> float:
    """Width beside the upper boxes of a stack for the lines to the lower ones."""
    return LANE * (stack - 1) + 3 if stack > 1 else 0.0


def _to_device(column: Column, number: int, boxes: dict[str, Box], start: float) -> list[Point]:
    """The first device is met from above; the others by lanes at its left, the last one again from above."""
    box = boxes[column.stack[number].id]
    if number == 0:
        middle = box.x + box.w / 2
        return [(middle, start), (middle, box.y)]
    lane = boxes[column.stack[0].id].x - LANE * number + 2
    if number == len(column.stack) - 1:
        return [(lane, start), (lane, box.y)]
    middle_y = box.y + box.h / 2
    return [(lane, start), (lane, middle_y), (box.x, middle_y)]
