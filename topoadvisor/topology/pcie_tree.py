"""Who hangs below whom: device → bridges → root complex → NUMA node → socket, and what joins two devices there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import networkx as nx

from topoadvisor.snapshot import Gpu, Nic, PciDevice
from topoadvisor.topology import bandwidth
from topoadvisor.topology.links import LinkClass

Role = Literal["root-port", "upstream", "downstream", "switch"]
"""`switch` stands for upstream and downstream ports together, as NCCL's dumps and inferred switches do."""


_PORTS: dict[str, Role] = {"root-port": "root-port", "upstream": "upstream", "downstream": "downstream"}


class Relation(NamedTuple):
    """The PCIe class of two devices and the way between them; both empty when not determined."""

    link_class: LinkClass | None
    path: tuple[str, ...]


@dataclass
class Hierarchy:
    """The tree above the devices, by node id."""

    parent: dict[str, str] = field(default_factory=dict)
    kind: dict[str, str] = field(default_factory=dict)
    role: dict[str, Role] = field(default_factory=dict)
    function: dict[str, str] = field(default_factory=dict)
    """Device → PCI address."""

    def chain(self, node: str) -> tuple[str, ...]:
        """The node and everything above it, nearest first."""
        chain = [node]
        while (above := self.parent.get(chain[-1])) is not None:
            chain.append(above)
        return tuple(chain)

    def numa(self, node: str) -> str | None:
        """The NUMA node above a device."""
        return next((above for above in self.chain(node) if self.kind[above] == "numa"), None)

    def relate(self, a: str, b: str) -> Relation:
        """The PCIe class of two devices as `nvidia-smi` words it.

        PIX: one switch, or two functions of one card. PXB: several switches. PHB: one root complex. NODE: two root
        complexes of one NUMA node. SYS: two NUMA nodes.
        """
        up, down = self.chain(a), self.chain(b)
        common, path = meet(up, down)
        if common is None:
            beyond = self.kind[up[-1]] == self.kind[down[-1]] and self.kind[up[-1]] in ("numa", "socket")
            return Relation(LinkClass.SYS, path) if beyond else Relation(None, ())
        match self.kind[common]:
            case "bridge":
                switches = sum(self.role.get(node) in ("switch", "upstream") for node in path)
                return Relation(LinkClass.PIX if switches <= 1 else LinkClass.PXB, path)
            case "root":
                same = a in self.function and self.function.get(a) == self.function.get(b)
                return Relation(LinkClass.PIX if same else LinkClass.PHB, path)
            case "numa" if all(self.kind[chain[chain.index(common) - 1]] == "root" for chain in (up, down)):
                return Relation(LinkClass.NODE, path)
            case "socket":
                return Relation(LinkClass.SYS, path)
        return Relation(None, ())


def meet(up: tuple[str, ...], down: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The lowest node that two chains share, and the way up one and down the other; over both tops if there is none."""
    common = next((node for node in up if node in down), None)
    if common is None:
        return None, (*up, *reversed(down))
    return common, (*up[: up.index(common)], common, *reversed(down[: down.index(common)]))


def add_node(graph: nx.Graph[str], hierarchy: Hierarchy, node: str, kind: str, label: str, **facts: object) -> None:
    """Add a node to both; a node that is already there stays."""
    if node not in graph:
        graph.add_node(node, kind=kind, label=label, **{"inferred": False, **facts})
        hierarchy.kind[node] = kind


def grow(
    graph: nx.Graph[str],
    hierarchy: Hierarchy,
    devices: Iterable[PciDevice],
    gpus: Mapping[str, Gpu],
    nics: Mapping[str, Nic],
    *,
    origin: str,
    whole_switches: bool,
) -> tuple[dict[str, int | None], list[str]]:
    """Build the tree above the given GPUs and NICs, which are in the graph, from a list of PCI functions.

    `origin` is where the list is from. `whole_switches`: it is NCCL's, which shows each switch as one bridge and no
    root ports or root complexes.

    Returns the NUMA node of each root complex (None = not known), and of the topmost bridge or device where the root
    complex is not known; and notes on what does not fit together.
    """
    listed = {device.address: device for device in devices}
    trunk = _Trunk(graph, hierarchy, listed, origin, whole_switches)
    placed: list[tuple[str, Gpu | Nic]] = [*gpus.items(), *nics.items()]
    for node, device in placed:
        if device.address is None:
            continue
        if device.address in listed:
            trunk.hang(node, listed[device.address], device)
        else:
            trunk.notes.append(f"{node} ({device.address}) is not in the list of PCI devices.")
    trunk.fill_internal()
    return trunk.numa_of_roots(), trunk.notes


@dataclass
class _Trunk:
    graph: nx.Graph[str]
    hierarchy: Hierarchy
    listed: Mapping[str, PciDevice]
    origin: str
    whole_switches: bool
    votes: dict[str, Counter[int]] = field(default_factory=dict)
    """Root complex, or what stands highest without one → NUMA nodes that the devices below it name."""
    notes: list[str] = field(default_factory=list)

    def hang(self, node: str, function: PciDevice, device: Gpu | Nic) -> None:
        self.hierarchy.function[node] = function.address
        above, whole = self._bridges(function)
        top = above[-1] if above else function
        root = self._root(top, device.numa_node) if whole else None
        for bridge in reversed(above):
            self._add_bridge(bridge, root)
        parent = f"pci:{above[0].address}" if above else root
        if parent is not None:
            gpu = device if isinstance(device, Gpu) else None
            self._join(node, parent, bandwidth.pcie_link(function, self._port(parent), gpu), internal=False)
        named = [function.numa_node, *(bridge.numa_node for bridge in above), device.numa_node]
        numa = next((numa for numa in named if numa is not None and numa >= 0), None)
        highest = root or (f"pci:{top.address}" if above else node)
        votes = self.votes.setdefault(highest, Counter())
        if numa is not None:
            votes[numa] += 1

    def numa_of_roots(self) -> dict[str, int | None]:
        numa: dict[str, int | None] = {}
        for root, votes in self.votes.items():
            numa[root] = min(votes, key=lambda id: (-votes[id], id)) if votes else None
            if len(votes) > 1:
                ids = ", ".join(str(id) for id in sorted(votes))
                self.notes.append(f"Devices below {root} name different NUMA nodes ({ids}); {numa[root]} is taken.")
        return numa

    def fill_internal(self) -> None:
        """A way inside a switch or root complex carries what the port it leads to carries."""
        rates = {
            node: [self.graph.edges[node, other] for other in self.graph.neighbors(node)]
            for node, kind in self.hierarchy.kind.items()
            if kind == "bridge"
        }
        for node, edges in rates.items():
            wires = [edge for edge in edges if not edge["internal"]]
            for edge in edges:
                if edge["internal"] and self.hierarchy.role[node] in ("downstream", "root-port") and wires:
                    edge.update({key: wires[0][key] for key in ("gen", "width", "gbps")})

    def _bridges(self, function: PciDevice) -> tuple[list[PciDevice], bool]:
        """The bridges above, nearest first, and whether they reach the root complex."""
        above: list[PciDevice] = []
        seen = {function.address}
        address = function.parent
        while address is not None and address not in seen:
            bridge = self.listed.get(address)
            if bridge is None:
                self.notes.append(f"Bridge {address} above {function.address} is not in the list of PCI devices.")
                return above, False
            above.append(bridge)
            seen.add(address)
            address = bridge.parent
        return above, True

    def _root(self, top: PciDevice, numa: int | None) -> str | None:
        if top.root is None and top.parent is None and self.whole_switches:
            return self._inferred_root(top.numa_node if top.numa_node is not None else numa)
        if top.root is None:
            return None
        root = f"root:{top.root}"
        add_node(self.graph, self.hierarchy, root, "root", f"PCIe root {top.root}")
        self.votes.setdefault(root, Counter())
        return root

    def _inferred_root(self, numa: int | None) -> str:
        known = numa is not None and numa >= 0
        root, label = (f"root:numa{numa}", f"PCIe root of NUMA node {numa}") if known else ("root:unknown", "PCIe root")
        add_node(self.graph, self.hierarchy, root, "root", label, inferred=True)
        self.votes.setdefault(root, Counter())
        return root

    def _add_bridge(self, bridge: PciDevice, root: str | None) -> None:
        node = f"pci:{bridge.address}"
        if node in self.graph:
            return
        above = f"pci:{bridge.parent}" if bridge.parent is not None else root
        if above is not None and above not in self.graph:
            above = None
        role = self._role(bridge, above)
        add_node(
            self.graph,
            self.hierarchy,
            node,
            "bridge",
            bridge.address,
            address=bridge.address,
            role=role,
            vendor=bridge.vendor,
            device=bridge.device,
            acs_redirect=bridge.acs_redirect,
        )
        self.hierarchy.role[node] = role
        if above is not None:
            internal = role in ("root-port", "downstream")
            rate = bandwidth.PcieRate() if internal else bandwidth.pcie_link(bridge, self._port(above), None)
            self._join(node, above, rate, internal=internal)

    def _role(self, bridge: PciDevice, above: str | None) -> Role:
        """The capability says it, where it could be read; else ports alternate below a root complex."""
        if self.whole_switches:
            return "switch"
        if (role := _PORTS.get(bridge.port_type or "")) is not None:
            return role
        if above is None or self.hierarchy.kind[above] != "bridge":
            return "root-port"
        return "downstream" if self.hierarchy.role[above] == "upstream" else "upstream"

    def _port(self, parent: str) -> PciDevice | None:
        """The port at the upper end of a link, where it is known apart from its switch."""
        if self.hierarchy.role.get(parent) not in ("root-port", "downstream"):
            return None
        return self.listed[parent.removeprefix("pci:")]

    def _join(self, child: str, parent: str, rate: bandwidth.PcieRate, *, internal: bool) -> None:
        self.hierarchy.parent[child] = parent
        self.graph.add_edge(
            child,
            parent,
            kind="pcie",
            gen=rate.gen,
            width=rate.width,
            gbps=rate.gbps,
            internal=internal,
            origin="catalogue" if rate.inferred else self.origin,
            inferred=rate.inferred or (self.whole_switches and self.hierarchy.kind[parent] == "root"),
        )
