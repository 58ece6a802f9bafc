"""Topology → schematic: which boxes a picture shows, what they say, and which findings mark them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import networkx as nx

from topoadvisor.advice import SEVERITIES, Advice, Finding
from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.numbers import natural
from topoadvisor.render.lettering import clean
from topoadvisor.render.schematic import Badge, Note, Part, Schematic, Uplink, Wire
from topoadvisor.snapshot import Nic, PciDevice, Snapshot
from topoadvisor.topology.model import Topology

_ORIGINS = {
    "matrix": "pasted matrix",
    "text": "pasted text",
    "nccl-topology-xml": "NCCL topology dump",
    "hwloc-xml": "hwloc XML",
    "nccl-log": "log of NCCL",
}
DEEPEST = 100
_RANK = {"socket": 0, "numa": 1, "root": 2, "bridge": 3, "gpu": 4, "nic": 4}
_TRADE_MARKS = re.compile(r"\((?:R|TM|C)\)|\s+@.*|\b(?:Processor|CPU)\b", re.IGNORECASE)

_NO_PRODUCT = re.compile(r"to be filled|default string|system (?:product|manufacturer)|not specified|o\.e\.m", re.I)


def outline(snapshot: Snapshot, topology: Topology, advice: Advice | None = None) -> Schematic:
    """What a picture of the machine shows.

    Raises NothingDetermined when there is no GPU, InputError for a PCIe tree that cannot be real.
    """
    if not topology.gpus:
        raise NothingDetermined(
            "no GPU was found, so there is nothing to draw", hint="`topoadvisor scan` says which sources were asked."
        )
    findings = sorted(advice.findings, key=lambda f: (SEVERITIES.index(f.severity), f.id)) if advice else []
    marks = _marks(topology, findings)
    tree = _Tree(topology.graph, snapshot, marks)
    parts = tree.parts()
    fabric, wires = _wires(topology, marks)
    return Schematic(
        title=_title(topology),
        subtitle=_subtitle(snapshot, topology),
        parts=parts,
        fabric=fabric,
        wires=tuple(wires),
        notes=tuple(_note(finding) for finding in findings),
    )


def _marks(topology: Topology, findings: Iterable[Finding]) -> dict[str, tuple[Badge, ...]]:
    """Node → its findings, worst first. A warning that concerns each of many GPUs alike marks none of them."""
    marks: dict[str, list[Badge]] = defaultdict(list)
    for finding in findings:
        if finding.severity == "info":
            continue
        nodes = {node for subject in (finding.subject, *finding.also) for node in _ends(topology.graph, subject)}
        if finding.severity != "error" and len(topology.gpus) > 2 and nodes >= set(topology.gpus):
            nodes -= set(topology.gpus)
        for node in nodes:
            marks[node].append(Badge(finding.id, finding.severity))
    return {node: tuple(badges) for node, badges in marks.items()}


def _ends(graph: nx.Graph[str], subject: str) -> tuple[str, ...]:
    """The nodes that a finding's subject names; none for the whole node or a variable."""
    if subject in graph:
        return (subject,)
    cuts = (match.start() for match in re.finditer("-", subject))
    pairs = ((subject[:cut], subject[cut + 1 :]) for cut in cuts)
    return next((pair for pair in pairs if pair[0] in graph and pair[1] in graph), ())


def _note(finding: Finding) -> Note:
    more = f" (and {len(finding.also)} more like it)" if finding.also else ""
    return Note(finding.id, finding.severity, clean(finding.message + more))


@dataclass
class _Tree:
    """Walks from sockets down to devices and leaves out what only the operating system needs."""

    graph: nx.Graph[str]
    snapshot: Snapshot
    marks: Mapping[str, tuple[Badge, ...]]

    def __post_init__(self) -> None:
        self.nics: dict[str, Nic] = {nic.name: nic for nic in self.snapshot.nics or ()}
        self.functions: dict[str, PciDevice] = {device.address: device for device in self.snapshot.pci or ()}
        self.above: dict[str, str] = {}
        self.below: dict[str, list[str]] = defaultdict(list)
        self._grow()

    def _grow(self) -> None:
        """Direct the tree downwards: whatever no socket, NUMA node or root complex reaches starts a tree of its own."""
        kinds = nx.get_node_attributes(self.graph, "kind")
        members = [node for node in self.graph if kinds[node] in _RANK]
        roles = {"root-port": 0, "switch": 1, "upstream": 1}
        seen: set[str] = set()
        starts = sorted(
            members,
            key=lambda node: (_RANK[kinds[node]], roles.get(self.graph.nodes[node].get("role", ""), 2), node),
        )
        self.tops: list[str] = []
        depth: dict[str, int] = {}
        for start in starts:
            if start in seen:
                continue
            self.tops.append(start)
            seen.add(start)
            depth[start] = 0
            waiting = [start]
            while waiting:
                node = waiting.pop()
                for child, edge in self.graph.adj[node].items():
                    downwards = _RANK.get(kinds[child], -1) >= _RANK[kinds[node]]
                    if child not in seen and downwards and edge["kind"] in ("pcie", "host", "memory"):
                        seen.add(child)
                        self.above[child] = node
                        self.below[node].append(child)
                        depth[child] = depth[node] + 1
                        waiting.append(child)
        if max(depth.values(), default=0) > DEEPEST:
            raise InputError(
                f"the PCIe tree is {max(depth.values())} levels deep, which no machine is",
                hint="Look for a faulty `parent` in the list of PCI devices.",
            )

    def parts(self) -> tuple[Part, ...]:
        kinds = nx.get_node_attributes(self.graph, "kind")
        framed = [part for top in self.tops if kinds[top] in ("socket", "numa") for part in self._parts(top)]
        loose = [part for top in self.tops if kinds[top] not in ("socket", "numa") for part in self._parts(top)]
        if loose:
            children = tuple(sorted(loose, key=_order))
            framed.append(Part("numa", "numa:?", "NUMA node not known", inferred=True, children=children))
        return tuple(sorted(framed, key=_order))

    def _parts(self, node: str) -> list[Part]:
        """What stands for a node in the picture: itself, or, where it is left out, what is below it."""
        facts = self.graph.nodes[node]
        match facts["kind"]:
            case "gpu" | "nic":
                return [self._device(node, facts)]
            case "bridge":
                return self._bridge(node, facts)
            case "root":
                children = self._children(node)
                name = "" if facts["inferred"] else node.removeprefix("root:")
                return [self._container("root", node, "PCIe root", name, children)]
            case "numa":
                cpus = f"CPUs {facts['cpus']}" if facts.get("cpus") else ""
                return [self._container("numa", node, f"NUMA node {facts['id']}", cpus, self._children(node))]
            case _:
                return [self._socket(node)]

    def _children(self, node: str) -> tuple[Part, ...]:
        return tuple(sorted((part for child in self.below[node] for part in self._parts(child)), key=_order))

    def _container(self, kind: Any, node: str, title: str, detail: str, children: tuple[Part, ...]) -> Part:
        inferred = bool(self.graph.nodes[node]["inferred"])
        if inferred:
            detail = f"{detail} (inferred)".strip()
        uplink = self._uplink(node)
        return Part(kind, node, title, clean(detail), (), uplink, inferred, self.marks.get(node, ()), children)

    def _socket(self, node: str) -> Part:
        numa = self._children(node)
        used = tuple(part for part in numa if part.children) or numa
        cpu = self.snapshot.host.cpu
        detail = _cpu_name(cpu.model_name) if cpu is not None and cpu.model_name else ""
        idle = [part.title.removeprefix("NUMA node ") for part in numa if part not in used]
        if idle:
            plural = "s" if len(idle) > 1 else ""
            detail = " · ".join(filter(None, [detail, f"nothing on NUMA node{plural} {', '.join(idle)}"]))
        inferred = bool(self.graph.nodes[node]["inferred"])
        title = self.graph.nodes[node]["label"] + (" (inferred)" if inferred else "")
        return Part("socket", node, title, detail, inferred=inferred, badges=self.marks.get(node, ()), children=used)

    def _bridge(self, node: str, facts: Mapping[str, Any]) -> list[Part]:
        """A switch, or what hangs on a port: ports, and switches with one thing below in a chain, are left out."""
        children = self._children(node)
        if not children:
            return []
        is_switch = facts.get("role") in ("switch", "upstream")
        above = self.graph.nodes[self._port_above(node)]["kind"] if node in self.above else None
        in_chain = len(children) == 1 and (children[0].kind != "gpu" or above == "bridge")
        if is_switch and not in_chain:
            address = facts.get("address") or ""
            return [self._container("switch", node, "PCIe switch", address, children)]
        first = children[0]
        badges = self.marks.get(node, ()) + first.badges
        return [replace(first, badges=badges, passed=first.passed + is_switch), *children[1:]]

    def _port_above(self, node: str) -> str:
        """The nearest node above that is not a root port."""
        above = self.above[node]
        while self.graph.nodes[above].get("role") == "root-port" and above in self.above:
            above = self.above[above]
        return above

    def _device(self, node: str, facts: Mapping[str, Any]) -> Part:
        address = facts.get("address") or ""
        if facts["kind"] == "gpu":
            lines = (clean(facts.get("name") or "").removeprefix("NVIDIA "), address)
        else:
            nic = self.nics.get(facts.get("name") or "")
            lines = (address, _nic_state(nic) if nic is not None else "")
        title = clean(facts["label"]) or node
        shown = tuple(line for line in lines if line)
        return Part(facts["kind"], node, title, "", shown, self._uplink(node), False, self.marks.get(node, ()))

    def _uplink(self, node: str) -> Uplink:
        """The link above a node: generation and width, and whether it is narrower than both its ends could be."""
        above = self.above.get(node)
        if above is None:
            return Uplink()
        edge = self.graph.edges[node, above]
        gen, lanes, inferred = edge.get("gen"), edge.get("width"), bool(edge["inferred"])
        if edge.get("internal") or not (gen or lanes):
            return Uplink(inferred=inferred)
        text = " ".join(filter(None, [f"Gen{gen}" if gen else "PCIe", f"x{lanes}" if lanes else ""]))
        most = self._most_lanes(node, above)
        degraded = lanes is not None and most is not None and lanes < most
        return Uplink(f"{text} of x{most}" if degraded else text, lanes, degraded, inferred)

    def _most_lanes(self, node: str, above: str) -> int | None:
        ends = (self.functions.get(self.graph.nodes[end].get("address") or "") for end in (node, above))
        lanes = [end.max_link_width for end in ends if end is not None and end.max_link_width]
        return min(lanes, default=None)


def _order(part: Part) -> tuple[float, tuple[tuple[int, int, str], ...]]:
    """Lowest GPU index first, then what has no GPU, by address or name with numbers as numbers."""
    indexes = [int(below.id.removeprefix("gpu:")) for below in part.walk() if below.kind == "gpu"]
    return min(indexes, default=inf), natural(part.id)


def _nic_state(nic: Nic) -> str:
    """Rate, technology and, unless it is up, state: `400G IB`, `25G Ethernet down`."""
    port = max(nic.ports or (), key=lambda port: (port.state == "ACTIVE", port.rate_gbit or 0), default=None)
    if port is not None:
        rate = port.rate_gbit
        technology = {"InfiniBand": "IB", "Ethernet": "RoCE"}.get(port.link_layer or "", "RDMA")
        state = port.state.lower() if port.state not in (None, "ACTIVE") else ""
    else:
        rate = nic.speed_mbit / 1000 if nic.speed_mbit and nic.speed_mbit > 0 else None
        technology = "RDMA" if nic.rdma else "Ethernet"
        state = nic.state.lower() if nic.state not in (None, "up", "unknown") else ""
    return clean(" ".join(filter(None, [f"{rate:g}G" if rate else "", technology, state]))) if rate or state else ""


def _wires(topology: Topology, marks: Mapping[str, tuple[Badge, ...]]) -> tuple[Part | None, list[Wire]]:
    """The NVLink fabric as one box, and every wire that is no branch of the tree."""
    graph = topology.graph
    kinds = nx.get_node_attributes(graph, "kind")
    doubted = {d.subject for d in topology.disagreements if d.quantity == "NVLinks"}
    to_fabric: Counter[str] = Counter()
    wires: list[Wire] = []
    for a, b, edge in sorted(graph.edges(data=True), key=lambda e: sorted(e[:2], key=lambda n: natural(n))):
        first, second = sorted((a, b), key=lambda node: (kinds[node] != "gpu", natural(node)))
        inferred = bool(edge["inferred"])
        match edge["kind"]:
            case "nvlink" if kinds[second] == "nvswitch":
                to_fabric[first] += edge["count"]
            case "nvlink" if kinds[second] == "gpu":
                count = edge["count"]
                bad = f"{first}-{second}" in doubted
                wires.append(Wire(first, second, "nvlink", f"NV{count}", count, bad, inferred))
            case "nvlink":
                wires.append(Wire(first, second, "c2c", f"NV{edge['count']}", edge["count"], inferred=inferred))
            case "c2c":
                wires.append(Wire(first, second, "c2c", "C2C", inferred=inferred))
            case "inter-socket":
                wires.append(Wire(first, second, "inter-socket", "SYS", inferred=inferred))
    fabric = _fabric(topology, to_fabric, marks)
    if fabric is not None:
        most = {graph.nodes[gpu].get("name"): 0 for gpu in to_fabric}
        for gpu, count in to_fabric.items():
            most[graph.nodes[gpu].get("name")] = max(most[graph.nodes[gpu].get("name")], count)
        for gpu in topology.gpus:
            if (count := to_fabric[gpu]) > 0:
                bad = count < most[graph.nodes[gpu].get("name")]
                wires.append(Wire(gpu, fabric.id, "nvlink", f"NV{count}", count, bad, fabric.inferred))
    return fabric, wires


def _fabric(topology: Topology, counts: Mapping[str, int], marks: Mapping[str, tuple[Badge, ...]]) -> Part | None:
    kinds = nx.get_node_attributes(topology.graph, "kind")
    switches = [node for node in topology.graph if kinds[node] == "nvswitch"]
    if not switches:
        return None
    seen = [node for node in switches if not topology.graph.nodes[node]["inferred"]]
    hidden = any(topology.graph.nodes[node].get("hidden") for node in switches)
    title = f"{len(seen)} × NVSwitch" if len(seen) > 1 else "NVSwitch"
    if hidden:
        title += ", hidden from this system"
    if not seen:
        title += " (inferred)"
    fewest, most = min(counts.values(), default=0), max(counts.values(), default=0)
    links = f"NV{most}" if fewest == most else f"NV{fewest} to NV{most}, as many as both ends have"
    detail = f"every GPU reaches every other over {links}" if 1 < len(counts) == len(topology.gpus) else ""
    badges = tuple(badge for node in switches for badge in marks.get(node, ()))
    return Part("nvswitch", "nvswitch", title, detail, inferred=not seen, badges=badges)


def _title(topology: Topology) -> str:
    names = Counter(clean(topology.graph.nodes[gpu].get("name") or "GPU of unknown model") for gpu in topology.gpus)
    return " + ".join(f"{count} × {name}" for name, count in names.items())


def _subtitle(snapshot: Snapshot, topology: Topology) -> str:
    host = snapshot.host
    dmi = host.dmi or {}
    named = (dmi.get(key, "") for key in ("sys_vendor", "product_name"))
    product = " ".join(text for text in named if text and not _NO_PRODUCT.search(text))
    cpu = host.cpu
    sockets = f"{cpu.sockets} × " if cpu is not None and cpu.sockets else ""
    facts = [
        product,
        sockets + _cpu_name(cpu.model_name) if cpu is not None and cpu.model_name else "",
        f"{len(topology.nics)} NIC{'s' if len(topology.nics) > 1 else ''}" if topology.nics else "",
        f"{host.hypervisor} guest" if host.hypervisor not in (None, "none") else "",
        f"driver {snapshot.driver.version}" if snapshot.driver.version else "",
        f"source: {_source(snapshot)}",
    ]
    return clean(" · ".join(filter(None, facts)))


def _source(snapshot: Snapshot) -> str:
    if snapshot.origin == "live":
        return f"captured {snapshot.captured_at[:10]}" if snapshot.captured_at else "a snapshot without a date"
    return _ORIGINS.get(snapshot.origin, snapshot.origin)


def _cpu_name(name: str) -> str:
    return clean(_TRADE_MARKS.sub(" ", name))
