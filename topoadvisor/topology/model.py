"""What a topology is: a networkx graph, and what was derived from it about each pair.

Node ids are readable: `gpu:0`, `nic:mlx5_0`, `pci:0000:17:00.0`, `switch:0` (inferred PCIe switch), `root:0000:16`,
`numa:1`, `socket:0`, `nvswitch:0`. Node attributes: `kind` (`gpu`, `nic`, `bridge`, `root`, `numa`, `socket`,
`nvswitch`), `label`, `inferred` (bool), and the device's own facts.

Edge attributes: `kind` (`nvlink`, `c2c`, `pcie`, `host` between root complex and NUMA node, `memory` between NUMA node
and socket, `inter-socket` between sockets, or between NUMA nodes whose sockets are not known), `gbps` (payload GB/s per
direction, None = unknown), `origin` (which source said so) and `inferred`. `nvlink` edges have `count`, `pcie` edges
`gen`, `width` and `internal` (inside a switch or root complex: no wire of its own), `inter-socket` edges `nccl_gbps`.
`host` and `memory` edges are given what all ports below them carry together, so they never limit on paper.
A `pcie` edge from a device straight to a NUMA node says that the way between is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import networkx as nx

_NODE_ID = re.compile(r"\b(gpu|nic|numa|nvswitch):([\w.]+)")
_WORDS = {"gpu": "GPU", "nic": "", "numa": "NUMA node ", "nvswitch": "NVSwitch "}


_NAMED: Final = 4
"""Names that a text tells before it counts the rest."""


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def in_words(text: str) -> str:
    """A sentence with its node ids as people write them: `gpu:0` is GPU0, `nic:mlx5_0` is mlx5_0."""
    return _NODE_ID.sub(lambda node: _WORDS[node[1]] + node[2], text)


@dataclass(frozen=True)
class Pair:
    """Two devices and how they are joined. GPU pairs and GPU–NIC pairs; `a` before `b` in index order, GPU first."""

    a: str
    b: str
    link_class: str | None
    """`NV12`, `C2C`, `PIX` … `SYS`; None = not determined."""
    pcie_class: str | None
    """The class without NVLink: `PIX` … `SYS`; None = not determined."""
    nvlinks: int | None
    """Active NVLinks between the two, direct or through NVSwitches; None = not determined."""
    through_switch: bool
    """The NVLinks run through NVSwitches."""
    gbps: float | None
    """Payload GB/s per direction of the best path on paper, no contention; None = unknown."""
    path: tuple[str, ...]
    """Node ids of the best path, both ends included; empty = not determined."""
    pcie_path: tuple[str, ...]
    """Node ids of the path over PCIe, both ends included; empty = not determined."""
    origin: str
    """The source that was believed about the link class."""
    inferred: bool
    pcie_origin: str = ""
    """The source that was believed about the PCIe class."""


@dataclass(frozen=True)
class Disagreement:
    """Two sources that say different things about one subject. Both are kept; `believed` says which one counts."""

    subject: str
    quantity: str
    values: tuple[tuple[str, str], ...]
    """(source, value) in order of trust."""
    believed: str
    why: str

    def __str__(self) -> str:
        sides = ", ".join(f"{source} says {value}" for source, value in self.values)
        several = self.subject.endswith(" more")
        what = f"the {self.quantity} of {self.subject}" if several else f"{self.subject} {self.quantity}"
        return in_words(f"Sources disagree on {what}: {sides}. {self.why}")


def together(disagreements: Iterable[Disagreement]) -> list[Disagreement]:
    """Subjects about which the same is said in one, in the order in which they come."""
    subjects: dict[Disagreement, list[str]] = {}
    for each in disagreements:
        subjects.setdefault(replace(each, subject=""), []).append(each.subject)
    return [replace(each, subject=some(of)) for each, of in subjects.items()]


@dataclass(frozen=True)
class Topology:
    """The graph of one machine."""

    graph: nx.Graph[str]
    gpus: tuple[str, ...]
    """GPU node ids in index order."""
    nics: tuple[str, ...]
    pairs: dict[tuple[str, str], Pair]
    """Keyed (a, b) with `a` before `b`; see `pair`."""
    disagreements: tuple[Disagreement, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be built, and why, one sentence each."""
    hidden_switches: int = 0
    """GPUs whose NVLink peers exist but are hidden from this operating system."""
    attributes: dict[str, Any] = field(default_factory=dict)
    """`hidden_pcie_switches` (bool): a guest cannot show the PCIe switches that its GPUs must hang on.
    `beyond_boards` (bool): some GPU shows more NVLinks than boards of its model have.
    `hierarchy` (`pcie_tree.Hierarchy`): the tree above the devices, for the class of any two of them."""

    def find(self, a: str, b: str) -> Pair | None:
        """The pair of two node ids in either order, None when there is none."""
        return self.pairs.get((a, b)) or self.pairs.get((b, a))

    def pair(self, a: str, b: str) -> Pair:
        """The pair of two node ids in either order. Raises KeyError."""
        return self.pairs[(a, b)] if (a, b) in self.pairs else self.pairs[(b, a)]
