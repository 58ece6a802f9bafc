"""The `nvidia-smi topo -m` table: what printed ones say, and a computed one where none was printed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import msgspec

from topoadvisor.numbers import whole
from topoadvisor.snapshot import Matrix, Snapshot
from topoadvisor.topology.links import LinkClass, nvlink_count
from topoadvisor.topology.model import Disagreement, Topology
from topoadvisor.topology.pcie_tree import Hierarchy

ORIGIN = "nvidia-smi topo -m"

_OLD_WORDS = {"SOC": LinkClass.SYS, "PSB": LinkClass.PIX}
"""Words of older drivers. SOC was printed for what is now NODE or SYS."""


@dataclass
class Printed:
    """What the printed tables say about devices, by node id. Pairs are keyed GPUs first, then as printed."""

    devices: list[str] = field(default_factory=list)
    nic_names: dict[str, str] = field(default_factory=dict)
    """NIC node → name."""
    nvlinks: dict[tuple[str, str], int] = field(default_factory=dict)
    """GPU pair → count; 0 where a PCIe class is printed and no table prints NVLinks."""
    pcie: dict[tuple[str, str], LinkClass] = field(default_factory=dict)
    c2c: set[tuple[str, str]] = field(default_factory=set)
    homes: dict[str, int | str] = field(default_factory=dict)
    """GPU → NUMA node, or an affinity text where no number was printed."""
    disagreements: list[Disagreement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def of(snapshot: Snapshot, topology: Topology) -> list[Matrix]:
    """The tables as printed when the snapshot holds any, else one computed from the topology.

    A computed table leaves out the cells that could not be determined.
    """
    return list(snapshot.matrices) or [_computed(snapshot, topology)]


def read(matrices: Iterable[Matrix], nic_nodes: Mapping[str, str], gpus: Collection[int] = ()) -> Printed:
    """Put printed tables of one machine together. `nic_nodes` maps names of known NICs to their node ids.

    A later table about other GPUs is another machine and is left out, with a note; so are those that are not among
    the `gpus` read, by index, unless none were.
    """
    printed = Printed()
    texts: dict[tuple[str, str], dict[str, str]] = {}
    used: list[Matrix] = []
    for matrix in matrices:
        if used and matrix.other_machine:
            continue
        if used and matrix.gpus != used[0].gpus:
            printed.notes.append(f"A second table ({len(matrix.gpus)} GPUs) is about another machine and is left out.")
            continue
        used.append(matrix)
        nodes = _nodes(matrix, nic_nodes, gpus, printed)
        for pair, seen in _cells(matrix, nodes).items():
            if len(seen) > 1:
                _disagree(printed, pair, seen)
                continue
            for text in seen:
                texts.setdefault(pair, {}).setdefault(text, f"table {len(used)}, line {matrix.first_line}")
        _read_homes(matrix, nodes, printed)
    if any(text == "SOC" for seen in texts.values() for text in seen):
        printed.notes.append("SOC, as old drivers print it, is NODE or SYS; it is read as SYS.")
    for pair, seen in texts.items():
        _read_pair(printed, pair, seen)
    printed.notes += _shares(used)
    return printed


def _shares(used: Sequence[Matrix]) -> Iterable[str]:
    """Which of several tables of one machine tells what: `topo -mp` leaves out the NVLinks that `topo -m` shows."""
    with_links = [_prints_nvlinks(matrix) for matrix in used]
    if any(with_links) and not all(with_links):
        links, pcie = (used[with_links.index(wanted)].first_line for wanted in (True, False))
        places = (f" in line {line}" if links != pcie else "" for line in (links, pcie))
        yield (
            "Two tables tell of this machine: the NVLinks are from the one{} (`topo -m`), the PCIe classes behind "
            "them from the one{} without NVLinks (`topo -mp`).".format(*places)
        )


def _prints_nvlinks(matrix: Matrix) -> bool:
    return any(nvlink_count(text) for row in matrix.cells.values() for text in row.values())


def shown(snapshot: Snapshot, topology: Topology) -> Matrix:
    """The one table that tells most, of several printed ones of one machine the first with NVLinks, with what is
    believed in place of what another source contradicts.
    """
    first, *others = of(snapshot, topology)
    tables = [first, *(matrix for matrix in others if not matrix.other_machine)]
    table = next((matrix for matrix in tables if _prints_nvlinks(matrix)), first)
    nodes = {label: f"gpu:{label.removeprefix('GPU')}" for label in table.gpus}
    nodes |= {label: f"nic:{table.nic_legend.get(label, label)}" for label in table.nics}

    def believed(row: str, column: str, text: str) -> str:
        pair = topology.find(nodes.get(row, ""), nodes.get(column, ""))
        link_class = pair.link_class if pair is not None else None
        return text if link_class in (None, _OLD_WORDS.get(text, text)) else str(link_class)

    cells = {row: {name: believed(row, name, text) for name, text in each.items()} for row, each in table.cells.items()}
    return msgspec.structs.replace(table, cells=cells)


def _nodes(matrix: Matrix, nic_nodes: Mapping[str, str], gpus: Collection[int], printed: Printed) -> dict[str, str]:
    """Row label → node id."""
    nodes: dict[str, str] = {}
    strangers = []
    for label in matrix.gpus:
        index = whole(label.removeprefix("GPU"))
        if index is None or (gpus and index not in gpus):
            strangers.append(label)
        else:
            nodes[label] = f"gpu:{index}"
    told = f"The printed matrix shows {', '.join(strangers)}, which this machine has not: left out."
    if strangers and told not in printed.notes:
        printed.notes.append(told)
    for label in matrix.nics:
        name = matrix.nic_legend.get(label, label)
        nodes[label] = nic_nodes.get(name, f"nic:{name}")
        printed.nic_names.setdefault(nodes[label], name)
    printed.devices.extend(node for node in nodes.values() if node not in printed.devices)
    return nodes


def _read_homes(matrix: Matrix, nodes: Mapping[str, str], printed: Printed) -> None:
    """NUMA nodes of GPUs, else texts where they tell GPUs apart; one text for all may be a limit set on the process."""
    for label in (each for each in matrix.gpus if each in nodes):
        text = matrix.numa_affinity.get(label) or ""
        grace = whole(matrix.gpu_numa_id.get(label)) is not None
        # Where GPU memory forms NUMA nodes, the list names the node with CPUs first and then those.
        if match := re.match(r"([0-9]{1,9})(,|$)" if grace else r"([0-9]{1,9})$", text):
            printed.homes.setdefault(nodes[label], int(match.group(1)))
    for column in (matrix.numa_affinity, matrix.cpu_affinity):
        texts = {nodes[label]: text for label, text in column.items() if label in nodes and text and text != "N/A"}
        if not printed.homes and len(set(texts.values())) > 1:
            printed.homes.update(texts)


def _cells(matrix: Matrix, nodes: Mapping[str, str]) -> dict[tuple[str, str], dict[str, str]]:
    """Device pair → the distinct texts of its two cells → the row in which each stands."""
    place = {node: (not node.startswith("gpu:"), number) for number, node in enumerate(nodes.values())}
    seen: dict[tuple[str, str], dict[str, str]] = {}
    for row, cells in matrix.cells.items():
        for column, text in cells.items():
            if row in nodes and column in nodes and nodes[row] != nodes[column]:
                a, b = sorted((nodes[row], nodes[column]), key=lambda node: place[node])
                seen.setdefault((a, b), {}).setdefault(text, f"row {row}")
    return seen


def _read_pair(printed: Printed, pair: tuple[str, str], seen: Mapping[str, str]) -> None:
    """Take in what the tables say about one pair: `topo -mp` prints PCIe classes where `topo -m` prints NVLinks."""
    counts = {nvlink_count(text) for text in seen if nvlink_count(text)}
    classes: set[LinkClass] = set()
    for text in seen:
        if text == "C2C":
            printed.c2c.add(pair)
        elif text in _OLD_WORDS:
            classes.add(_OLD_WORDS[text])
        elif text in LinkClass.__members__:
            classes.add(LinkClass(text))
        elif not nvlink_count(text):
            printed.notes.append(f"{pair[0]}–{pair[1]}: {text!r} is no link class.")
    if len(counts) > 1 or len(classes) > 1:
        _disagree(printed, pair, seen)
        return
    if classes:
        (printed.pcie[pair],) = classes
    if counts:
        (printed.nvlinks[pair],) = counts
    elif classes and pair[1].startswith("gpu:"):
        printed.nvlinks[pair] = 0


def _disagree(printed: Printed, pair: tuple[str, str], seen: Mapping[str, str]) -> None:
    """`seen`: text → where it stands."""
    printed.disagreements.append(
        Disagreement(
            subject=f"{pair[0]}-{pair[1]}",
            quantity="link class",
            values=tuple((f"{ORIGIN} ({where})", text) for text, where in seen.items()),
            believed="unknown",
            why="Neither is believed, for nothing tells which one is right.",
        )
    )


def _computed(snapshot: Snapshot, topology: Topology) -> Matrix:
    graph = topology.graph
    gpus = {node: f"GPU{graph.nodes[node]['index']}" for node in topology.gpus}
    rdma = [node for node in topology.nics if graph.nodes[node].get("rdma")]
    nics = {node: f"NIC{number}" for number, node in enumerate(rdma or topology.nics)}
    labels = gpus | nics
    hierarchy: Hierarchy = topology.attributes["hierarchy"]
    cells: dict[str, dict[str, str]] = {label: {} for label in labels.values()}
    for a, b in combinations(labels, 2):
        relation = topology.pair(a, b).link_class if a in gpus else hierarchy.relate(a, b).link_class
        if relation is not None:
            cells[labels[a]][labels[b]] = cells[labels[b]][labels[a]] = str(relation)
    listed = {f"gpu:{gpu.index}": gpu.cpu_affinity for gpu in snapshot.gpus}
    memory = {f"gpu:{gpu.index}": gpu.memory_numa_node for gpu in snapshot.gpus}
    own = {label: None if (id := memory.get(node)) is None else str(id) for node, label in gpus.items()}
    cpus: dict[str, str | None] = {}
    numa: dict[str, str | None] = {}
    for node, label in gpus.items():
        home = hierarchy.numa(node)
        facts = graph.nodes[home] if home is not None and not graph.nodes[home]["inferred"] else {}
        cpus[label] = listed.get(node) or facts.get("cpus")
        numa[label] = str(facts["id"]) if facts else None
    return Matrix(
        gpus=list(gpus.values()),
        nics=list(nics.values()),
        cells=cells,
        cpu_affinity=cpus if any(cpus.values()) else {},
        numa_affinity=numa if any(numa.values()) else {},
        gpu_numa_id=own if any(own.values()) else {},
        nic_legend={label: graph.nodes[node]["label"] for node, label in nics.items()},
    )
