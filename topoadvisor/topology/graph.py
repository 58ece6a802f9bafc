"""From a snapshot to the graph of the machine, whatever the snapshot was made from.

With a list of PCI functions (live, or from NCCL's dump) the tree is built from it. With link classes alone (a pasted
matrix, NVML's levels) it is inferred from them, and marked so.
"""

from __future__ import annotations

from itertools import combinations

import networkx as nx

from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import bandwidth, host, inferred, inputs, matrix, nvlink, pairs, pcie_tree, reconcile
from topoadvisor.topology.inputs import Inputs
from topoadvisor.topology.model import Topology, in_words
from topoadvisor.topology.pcie_tree import Hierarchy, Relation, add_node


def build(snapshot: Snapshot) -> Topology:
    """The topology of the machine that a snapshot describes. Pure; takes any snapshot.

    What sources say differently is kept in `disagreements`, what could not be built in `notes`.
    """
    given = inputs.read(snapshot)
    graph: nx.Graph[str] = nx.Graph()
    hierarchy = Hierarchy()
    notes = [*given.printed.notes, *given.notes]
    _add_devices(graph, hierarchy, given)
    grow = _grow_tree if given.has_tree else _infer_tree
    relations = grow(graph, hierarchy, given, notes)
    _add_c2c(graph, hierarchy, given)
    wiring, counted = _wire(given)
    notes += wiring.notes
    _add_nvlinks(graph, hierarchy, given, wiring)
    bandwidth.fill_host_edges(graph)

    disagreements = [*given.printed.disagreements, *wiring.disagreements]
    joined = pairs.derive(graph, hierarchy, given, relations, wiring, counted, disagreements)
    beyond = list(reconcile.beyond_boards(wiring.counts(), given.models, _links_from(given)))
    told = [each.value for each in snapshot.assumptions if each.fact == "numa.count"]
    disagreements += [
        *beyond,
        *reconcile.told_numa(told[-1] if told else None, given.gpus, given.printed.homes),
        *reconcile.grants(snapshot, joined),
        *reconcile.cpus(snapshot),
    ]
    hidden = False
    if given.has_tree:
        disagreements += reconcile.numa_nodes(given.gpus, hierarchy, given.printed.homes, given.tree_origin)
        if reconcile.is_guest(snapshot) and not given.dump:
            hidden = reconcile.hidden_pcie_switches(given.gpus, given.models, hierarchy)
    return Topology(
        graph=graph,
        gpus=tuple(given.gpus),
        nics=tuple(given.nics),
        pairs=joined,
        disagreements=tuple(disagreements),
        notes=tuple(dict.fromkeys(map(in_words, notes))),
        hidden_switches=len(wiring.hidden),
        attributes={"hierarchy": hierarchy, "hidden_pcie_switches": hidden, "beyond_boards": bool(beyond)},
    )


def _add_devices(graph: nx.Graph[str], hierarchy: Hierarchy, given: Inputs) -> None:
    for node, gpu in given.gpus.items():
        model = given.models[node]
        facts = {
            "index": gpu.index,
            "name": gpu.name,
            "address": gpu.address,
            "family": model.family if model is not None else None,
            "nvlinks": len(gpu.nvlinks) if gpu.nvlinks is not None else None,
            "nvlinks_active": sum(link.active is True for link in gpu.nvlinks) if gpu.nvlinks is not None else None,
        }
        add_node(graph, hierarchy, node, "gpu", f"GPU{gpu.index}", **facts)
    for node, nic in given.nics.items():
        told = {"name": nic.name, "address": nic.address, "rdma": nic.rdma, "interface": nic.interface}
        add_node(graph, hierarchy, node, "nic", nic.name, **told)


def _grow_tree(
    graph: nx.Graph[str], hierarchy: Hierarchy, given: Inputs, notes: list[str]
) -> dict[tuple[str, str], Relation]:
    """The tree from the list of PCI functions; returns how each pair is joined in it."""
    listed = given.snapshot.pci or ()
    homes, found = pcie_tree.grow(
        graph, hierarchy, listed, given.gpus, given.nics, origin=given.tree_origin, whole_switches=given.dump
    )
    notes += found
    notes += host.grow(graph, hierarchy, given.snapshot.host, homes, origin=given.tree_origin)
    if given.dump:
        notes.append("NCCL shows no root complexes: what is PHB here may be NODE. NCCL treats both alike.")
    return {pair: hierarchy.relate(*pair) for pair in given.pairs()}


def _infer_tree(
    graph: nx.Graph[str], hierarchy: Hierarchy, given: Inputs, notes: list[str]
) -> dict[tuple[str, str], Relation]:
    """The tree from link classes; returns the class of each pair that was given or follows."""
    known = {**given.printed.pcie, **given.ancestors}
    numa = {node: gpu.numa_node for node, gpu in given.gpus.items()}
    numa |= {node: nic.numa_node for node, nic in given.nics.items()}
    homes: dict[str, int | str] = {node: id for node, id in numa.items() if id is not None and id >= 0}
    # Texts tell GPUs apart only among themselves.
    homes = {node: home for node, home in given.printed.homes.items() if isinstance(home, int) or not homes} | homes
    listed = {device.address: device for device in given.snapshot.pci or ()}
    rates = {node: bandwidth.pcie_link(listed.get(gpu.address or ""), None, gpu) for node, gpu in given.gpus.items()}
    result = inferred.grow(graph, hierarchy, [*given.gpus, *given.nics], known, homes, rates)
    notes += result.notes
    numbered = frozenset(result.numbered)
    notes += host.grow(graph, hierarchy, given.snapshot.host, result.homes, numbered, origin="inferred")
    relations: dict[tuple[str, str], Relation] = {}
    for pair in given.pairs():
        link_class = result.classes.get(pair)
        drawn = hierarchy.relate(*pair)
        path = drawn.path if link_class is not None and drawn.link_class is link_class else ()
        relations[pair] = Relation(link_class, path)
    return relations


def _add_c2c(graph: nx.Graph[str], hierarchy: Hierarchy, given: Inputs) -> None:
    for node, gpu in given.gpus.items():
        numa = hierarchy.numa(node)
        if gpu.c2c_gbps and numa is not None:
            graph.add_edge(node, numa, kind="c2c", gbps=gpu.c2c_gbps, origin=given.link_origin, inferred=False)


def _wire(given: Inputs) -> tuple[nvlink.Wiring, dict[tuple[str, str], int | None]]:
    """The NVLinks, and the count per pair that the links themselves give; pairs not read take what is printed."""
    printed = given.printed.nvlinks
    if printed and all(gpu.nvlinks is None for gpu in given.gpus.values()):
        return nvlink.from_cells(printed, list(given.gpus), given.models), {}
    wiring = nvlink.from_links(given.gpus, given.models, origin=given.link_origin)
    counted = {pair: wiring.between(*pair) for pair in combinations(given.gpus, 2)}
    if unread := {pair: count for pair, count in printed.items() if counted.get(pair) is None}:
        wiring.direct.update(unread)
        nvlink.infer_switch(wiring, list(given.gpus), given.models)
        counted |= nvlink.hold_to_links(wiring, unread, given.gpus, origin=given.link_origin)
    return wiring, counted


def _links_from(given: Inputs) -> str:
    read = any(gpu.nvlinks is not None for gpu in given.gpus.values())
    return given.link_origin if read else matrix.ORIGIN


def _add_nvlinks(graph: nx.Graph[str], hierarchy: Hierarchy, given: Inputs, wiring: nvlink.Wiring) -> None:
    for node, address in wiring.switches.items():
        hidden = any(node in wiring.to_switch[gpu] for gpu in wiring.hidden)
        label = "NVSwitch (hidden)" if hidden else f"NVSwitch {node.removeprefix('nvswitch:')}"
        facts = {"address": address, "hidden": hidden, "inferred": address is None}
        add_node(graph, hierarchy, node, "nvswitch", label, **facts)
    joins = [(a, b, count) for (a, b), count in wiring.direct.items() if count]
    joins += [(gpu, switch, count) for gpu, counts in wiring.to_switch.items() for switch, count in counts.items()]
    for gpu, count in wiring.to_cpu.items():
        numa = hierarchy.numa(gpu)
        if numa is not None:
            joins.append((gpu, numa, count))
    for a, b, count in joins:
        graph.add_edge(
            a,
            b,
            kind="nvlink",
            count=count,
            gbps=bandwidth.nvlinks_gbps(count, *(given.gpus[node] for node in (a, b) if node in given.gpus)),
            origin=_links_from(given),
            inferred=graph.nodes[b]["inferred"],
        )
