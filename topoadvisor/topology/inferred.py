"""A PCIe tree from link classes alone: what the printed words imply about switches, root complexes and NUMA nodes.

PIX joins devices below one switch, PXB switches below one root complex, PHB what hangs on one root complex, NODE root
complexes of one NUMA node, SYS different NUMA nodes. Everything built here is marked `inferred`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import networkx as nx

from topoadvisor.topology.bandwidth import PcieRate
from topoadvisor.topology.links import PCIE_ORDER, LinkClass
from topoadvisor.topology.model import in_words, some
from topoadvisor.topology.pcie_tree import Hierarchy, add_node

Pairs = Mapping[tuple[str, str], LinkClass]

_RANK = {link_class: rank for rank, link_class in enumerate(PCIE_ORDER)}


@dataclass
class Inferred:
    """What was inferred."""

    classes: dict[tuple[str, str], LinkClass] = field(default_factory=dict)
    """The classes given, and those that follow from them for other pairs."""
    homes: dict[str, int | None] = field(default_factory=dict)
    """Topmost node of each part → NUMA node; None = not known."""
    numbered: set[int] = field(default_factory=set)
    """NUMA nodes whose number nobody printed."""
    notes: list[str] = field(default_factory=list)


def grow(
    graph: nx.Graph[str],
    hierarchy: Hierarchy,
    devices: Sequence[str],
    known: Pairs,
    homes: Mapping[str, int | str],
    rates: Mapping[str, PcieRate],
) -> Inferred:
    """Build the tree above `devices` (in the graph already) from the classes of their pairs.

    Pairs are keyed in the order of `devices`. `homes` are NUMA nodes, or texts (CPU lists) that differ between them;
    `rates` those of the GPUs' own links.
    Classes that contradict each other give a note; the nearer one shapes the tree.
    """
    result = Inferred()
    if strangers := sorted({name for pair in known for name in pair if name not in devices}):
        result.notes.append(f"The matrix names devices that are not here: {', '.join(strangers)}.")
        known = {pair: link_class for pair, link_class in known.items() if set(pair) <= set(devices)}
    result.classes = _close(devices, known, homes, result.notes)
    parts = {
        level: _groups(devices, result.classes, level)
        for level in (LinkClass.PIX, LinkClass.PXB, LinkClass.PHB, LinkClass.NODE)
    }
    _note_contradictions(known, parts, result.notes)
    grower = _Grower(graph, hierarchy, rates, result, parts)
    for numa, nodes in _numa_nodes(parts[LinkClass.NODE], homes, result):
        grower.add_numa(numa, nodes)
    return result


def _close(
    devices: Sequence[str], known: Pairs, homes: Mapping[str, int | str], notes: list[str]
) -> dict[tuple[str, str], LinkClass]:
    """Add what follows for pairs that were not printed (NVLink hides the PCIe class).

    In a tree, of the three classes between three devices the two farthest are equal. So a pair that relates
    differently to a third device is as far apart as the farther of the two.
    """
    near: dict[str, dict[str, LinkClass]] = {device: {} for device in devices}
    for (a, b), link_class in known.items():
        near.setdefault(a, {})[b] = link_class
        near.setdefault(b, {})[a] = link_class
    closed = dict(known)
    contradictory: list[str] = []
    for a, b in combinations(devices, 2):
        if (a, b) in known:
            continue
        certain: set[LinkClass] = set()
        nearest: LinkClass | None = None
        for third in near[a].keys() & near[b].keys():
            first, second = near[a][third], near[b][third]
            farther = max(first, second, key=_RANK.__getitem__)
            if first != second:
                certain.add(farther)
            if nearest is None or _RANK[farther] < _RANK[nearest]:
                nearest = farther
        if a in homes and b in homes and homes[a] != homes[b]:
            certain.add(LinkClass.SYS)
        if not certain and nearest is LinkClass.PIX:
            certain.add(LinkClass.PIX)
        if not certain:
            continue
        if len(certain) == 1 and (nearest is None or _RANK[next(iter(certain))] <= _RANK[nearest]):
            (closed[a, b],) = certain
        else:
            contradictory.append(f"{a}-{b}")
    if contradictory:
        notes.append(f"What joins {some(contradictory)} over PCIe is contradictory: left unknown.")
    return closed


def _groups(devices: Sequence[str], classes: Pairs, level: LinkClass) -> list[tuple[str, ...]]:
    """Devices joined, directly or through others, by `level` or nearer; in device order."""
    group = {device: device for device in devices}

    def head(device: str) -> str:
        while group[device] != device:
            device = group[device]
        return device

    for (a, b), link_class in classes.items():
        if _RANK[link_class] <= _RANK[level]:
            first, second = sorted((head(a), head(b)), key=devices.index)
            group[second] = first
    members: dict[str, list[str]] = {}
    for device in devices:
        members.setdefault(head(device), []).append(device)
    return [tuple(group) for group in members.values()]


def _note_contradictions(known: Pairs, parts: Mapping[LinkClass, list[tuple[str, ...]]], notes: list[str]) -> None:
    of = {level: {device: group[0] for group in groups for device in group} for level, groups in parts.items()}
    wrong = []
    for (a, b), printed in known.items():
        nearest = next((level for level, group in of.items() if group[a] == group[b]), LinkClass.SYS)
        if nearest is not printed:
            wrong.append(f"{a}–{b} is {printed}, through others they are {nearest}")
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        notes.append(f"The link classes contradict each other: {'; '.join(wrong[:3])}{more}.")


def _numa_nodes(
    groups: list[tuple[str, ...]], homes: Mapping[str, int | str], result: Inferred
) -> list[tuple[int | None, list[tuple[str, ...]]]]:
    """NUMA nodes, each with the groups of devices (joined by NODE or nearer) in it; None collects what has none."""
    nodes: list[tuple[int | str | None, list[tuple[str, ...]]]] = []
    lost: list[tuple[str, ...]] = []

    def apart(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
        pairs = [(a, b) for a in one for b in other] + [(b, a) for a in one for b in other]
        return any(result.classes.get(pair) is LinkClass.SYS for pair in pairs)

    for group in groups:
        named = sorted({homes[device] for device in group if device in homes}, key=str)
        home = named[0] if named else None
        if len(named) > 1:
            members = ", ".join(group)
            result.notes.append(f"{members} are printed with several NUMA nodes but joined as one; {home} is taken.")
        same = next((parts for key, parts in nodes if home is not None and key == home), None)
        if same is not None and not any(apart(group, part) for part in same):
            same.append(group)
        elif home is not None:
            nodes.append((None if same is not None else home, [group]))
            if same is not None:
                result.notes.append(f"{', '.join(group)}: printed with NUMA node {home}, but SYS to others there.")
        elif _stands_alone(group, [other for other in groups if other != group], apart):
            nodes.append((None, [group]))
        else:
            lost.append(group)
    taken = {key for key, _ in nodes if isinstance(key, int)}
    numbered: list[tuple[int | None, list[tuple[str, ...]]]] = []
    for key, parts in nodes:
        if not isinstance(key, int):
            key = next(number for number in range(len(nodes) + len(taken)) if number not in taken)
            taken.add(key)
            result.numbered.add(key)
        numbered.append((key, parts))
    return [*numbered, *((None, [group]) for group in lost)]


def _stands_alone(
    group: tuple[str, ...],
    others: Sequence[tuple[str, ...]],
    apart: Callable[[tuple[str, ...], tuple[str, ...]], bool],
) -> bool:
    """A group is a NUMA node of its own when it holds all devices, or is SYS from all others."""
    return all(apart(group, other) for other in others) if others else len(group) > 1


@dataclass
class _Grower:
    graph: nx.Graph[str]
    hierarchy: Hierarchy
    rates: Mapping[str, PcieRate]
    result: Inferred
    parts: Mapping[LinkClass, list[tuple[str, ...]]]
    roots: int = 0
    switches: int = 0

    def add_numa(self, numa: int | None, groups: list[tuple[str, ...]]) -> None:
        """Root complexes of one NUMA node.

        A device of which only the NUMA node is known hangs on that; all others hang on a root complex, on different
        ones unless a class says that they share it.
        """
        whole = [part for group in groups for part in self._within(group, LinkClass.PHB)]
        for part in whole:
            tops = self._within(part, LinkClass.PXB)
            apart = any(self._related(part, other) for other in whole if other != part)
            if len(part) > 1 or apart:
                root = f"root:{self.roots}"
                self.roots += 1
                add_node(self.graph, self.hierarchy, root, "root", f"PCIe root of {_named(part)}", inferred=True)
                self.result.homes[root] = numa
                for top in tops:
                    self._add_top(top, root)
            else:
                self.result.homes[self._add_top(tops[0], None)] = numa

    def _add_top(self, devices: tuple[str, ...], above: str | None) -> str:
        """A device or the switches that join some. Returns the topmost node."""
        if len(devices) == 1:
            if above is not None:
                self._join(devices[0], above)
            return devices[0]
        leaves = self._within(devices, LinkClass.PIX)
        top = self._add_switch(above, devices)
        for leaf in leaves:
            below = top if len(leaves) == 1 else self._add_switch(top, leaf)
            for device in leaf:
                self._join(device, below)
        return top

    def _add_switch(self, above: str | None, devices: tuple[str, ...]) -> str:
        node = f"switch:{self.switches}"
        self.switches += 1
        card = not any(device in self.rates for device in devices)
        label = f"{'one card or switch' if card else 'PCIe switch'} of {_named(devices)}"
        add_node(self.graph, self.hierarchy, node, "bridge", label, inferred=True, role="switch", address=None)
        self.hierarchy.role[node] = "switch"
        if above is not None:
            self._join(node, above)
        return node

    def _join(self, child: str, above: str) -> None:
        rate = self.rates.get(child, PcieRate())
        self.hierarchy.parent[child] = above
        self.graph.add_edge(
            child,
            above,
            kind="pcie",
            gen=rate.gen,
            width=rate.width,
            gbps=rate.gbps,
            internal=False,
            origin="catalogue" if rate.inferred else "inferred",
            inferred=True,
        )

    def _within(self, devices: tuple[str, ...], level: LinkClass) -> list[tuple[str, ...]]:
        inside = set(devices)
        return [group for group in self.parts[level] if group[0] in inside]

    def _related(self, one: tuple[str, ...], other: tuple[str, ...]) -> bool:
        return any((a, b) in self.result.classes or (b, a) in self.result.classes for a in one for b in other)


def _named(devices: Sequence[str]) -> str:
    """What hangs below something that has no address, so that it can be told from others: its GPUs, else all."""
    first, *others = [device for device in devices if device.startswith("gpu:")] or list(devices)
    # No commas: these names stand in lists.
    more = [f"and {in_words(others[0]) if len(others) == 1 else f'{len(others)} more'}"] if others else []
    return " ".join([in_words(first), *more])
