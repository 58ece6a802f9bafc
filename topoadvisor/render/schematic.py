"""Topology → what a picture of it shows: boxes inside boxes, and the wires between them.

Everything that only matters to the operating system is left out: plain root ports, the ports of one switch (they
become one box), chains of bridges with one child, bridges with nothing of interest below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

PartKind = Literal["socket", "numa", "root", "switch", "gpu", "nic", "nvswitch"]
WireKind = Literal["nvlink", "c2c", "pcie", "host", "inter-socket"]


@dataclass(frozen=True)
class Badge:
    """A finding's mark on its subject."""

    rule: str
    severity: str


@dataclass(frozen=True)
class Tag:
    """The mark of the group that a plan puts a GPU in."""

    text: str
    colour: int
    """Number of the group. Colours repeat; texts tell the groups apart."""


@dataclass(frozen=True)
class Uplink:
    """The PCIe link above a device or switch."""

    text: str = ""
    """`Gen5 x16`; empty = not known."""
    lanes: int | None = None
    degraded: bool = False
    inferred: bool = False


@dataclass(frozen=True)
class Part:
    """One box. `children` are in drawing order: by lowest GPU index, then NICs."""

    kind: PartKind
    id: str
    title: str
    detail: str = ""
    lines: tuple[str, ...] = ()
    """Further lines of a device: model, bus id."""
    uplink: Uplink = Uplink()
    inferred: bool = False
    badges: tuple[Badge, ...] = ()
    children: tuple[Part, ...] = ()
    passed: int = 0
    """PCIe switches between this and the box above that got no box, because nothing else hangs off them."""
    tag: Tag | None = None

    @property
    def heading(self) -> str:
        """Title and detail on one line."""
        separate = self.kind in ("socket", "numa", "nvswitch") and not self.detail.startswith("(")
        return f"{self.title}{' · ' if separate else ' '}{self.detail}" if self.detail else self.title

    def walk(self) -> Iterator[Part]:
        """This part and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Wire:
    """One connection that is not implied by a box hanging off another. A GPU is `a`; `b` may be the fabric or a CPU."""

    a: str
    b: str
    kind: WireKind
    label: str
    links: int | None = None
    """Bonded NVLinks or PCIe lanes; None = unknown."""
    degraded: bool = False
    inferred: bool = False
    passed: int = 0
    """PCIe switches on the way that have no box."""


@dataclass(frozen=True)
class Note:
    """One finding in words."""

    rule: str
    severity: str
    text: str


@dataclass(frozen=True)
class Key:
    """What a plan says of the GPUs with a tag; without one, of all."""

    tag: Tag | None
    text: str


@dataclass(frozen=True)
class Schematic:
    title: str
    subtitle: str
    parts: tuple[Part, ...]
    fabric: Part | None
    """All NVSwitches of the machine as one box."""
    wires: tuple[Wire, ...]
    notes: tuple[Note, ...]
    planned: str = ""
    """What the tags are about."""
    keys: tuple[Key, ...] = ()
