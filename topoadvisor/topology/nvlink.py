"""How many NVLinks join each pair of GPUs, straight or through NVSwitches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from topoadvisor.hardware.catalogue import GpuModel
from topoadvisor.snapshot import Gpu
from topoadvisor.topology.model import Disagreement

MOST_LINKS = 18
"""NVLinks of the largest board sold so far; more than that per GPU means that a switch shares them."""


@dataclass
class Wiring:
    """Active NVLinks, by node id."""

    direct: dict[tuple[str, str], int] = field(default_factory=dict)
    """GPU pair, in index order."""
    to_switch: dict[str, Counter[str]] = field(default_factory=dict)
    """GPU → NVSwitch → links."""
    to_cpu: Counter[str] = field(default_factory=Counter)
    unresolved: Counter[str] = field(default_factory=Counter)
    """GPU → links whose state or far end is not known."""
    elsewhere: Counter[str] = field(default_factory=Counter)
    """GPU → links straight to an address that no GPU here is known to have."""
    unknown: set[tuple[str, str]] = field(default_factory=set)
    """GPU pairs, in index order, about which nothing can be said."""
    read: set[str] = field(default_factory=set)
    """GPUs whose links are known."""
    hidden: set[str] = field(default_factory=set)
    """GPUs whose switches this operating system cannot see."""
    switches: dict[str, str | None] = field(default_factory=dict)
    """NVSwitch → PCI address; None for one that stands for all that are hidden or inferred."""
    disagreements: list[Disagreement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def between(self, a: str, b: str) -> int | None:
        """Links between two GPUs, given in index order; None = not determined."""
        if (a, b) in self.unknown:
            return None
        direct = self.direct.get((a, b), 0)
        through = min(self.to_switch.get(a, Counter()).total(), self.to_switch.get(b, Counter()).total())
        if direct or through:
            return direct + through
        return 0 if {a, b} <= self.read else None

    def counts(self) -> dict[str, int]:
        """The links of each GPU that has some; of those to GPUs and those to switches, which may be the same, more."""
        direct: Counter[str] = Counter()
        for pair, count in self.direct.items():
            direct.update(dict.fromkeys(pair, count))
        return dict((direct | Counter({gpu: links.total() for gpu, links in self.to_switch.items()})) + self.to_cpu)

    def through_switch(self, a: str, b: str) -> bool:
        return a in self.to_switch and b in self.to_switch and not self.direct.get((a, b))

    def switch_on_the_way(self, a: str, b: str) -> str:
        """The NVSwitch that carries most of a pair's links."""
        first, second = self.to_switch[a], self.to_switch[b]
        shared = [switch for switch in self.switches if switch in first and switch in second]
        return max(shared, key=lambda switch: min(first[switch], second[switch]), default=next(iter(first)))


def from_links(gpus: Mapping[str, Gpu], models: Mapping[str, GpuModel | None], *, origin: str) -> Wiring:
    """Count what each GPU says of its own links.

    Where the two ends of a pair count differently the smaller number is believed: a link is up only at both ends.
    """
    wiring = Wiring()
    at_address = {gpu.address: node for node, gpu in gpus.items() if gpu.address is not None}
    seen: dict[str, Counter[str]] = {node: Counter() for node in gpus}
    hidden: Counter[str] = Counter()
    untold: Counter[str] = Counter()
    switched: dict[str, Counter[str]] = {node: Counter() for node in gpus}
    for node, gpu in gpus.items():
        model = models[node]
        if gpu.nvlinks is None:
            if model is not None and model.max_nvlinks == 0:
                wiring.read.add(node)
            continue
        wiring.read.add(node)
        for link in gpu.nvlinks:
            if link.active is None:
                wiring.unresolved[node] += 1
            if not link.active:
                continue
            far = at_address.get(link.remote_address) if link.remote_address is not None else None
            if link.remote_type == "npu":
                wiring.to_cpu[node] += 1
            elif far is not None:
                seen[node][far] += 1
            elif link.remote_type == "switch" and link.remote_address is not None and not link.remote_hidden:
                switched[node][link.remote_address] += 1
            elif link.remote_hidden and link.remote_type in ("switch", None):
                hidden[node] += 1
            elif link.remote_type == "gpu" and link.remote_address is not None:
                wiring.elsewhere[node] += 1
            else:
                (untold if link.remote_address is not None else wiring.unresolved)[node] += 1
    for node, count in untold.items():
        # A board has NVSwitches or links from GPU to GPU, never both.
        direct = any(far != node for far in seen[node])
        (wiring.elsewhere if direct else wiring.unresolved)[node] += count
    order = list(gpus)
    unplaced = {node for node, gpu in gpus.items() if gpu.address is None}
    if loops := _counted(Counter({node: seen[node][node] for node in order}), order):
        wiring.notes.append(f"Not counted are NVLinks that lead back to the same GPU: {loops}.")
    for a, b in combinations(order, 2):
        open_ends = {
            node
            for node, other in ((a, b), (b, a))
            if wiring.unresolved[node] or (wiring.elsewhere[node] and other in unplaced)
        }
        _count_pair(wiring, a, b, seen[a][b], seen[b][a], origin, open_ends)
        through_switch = any(switched[node] or hidden[node] for node in (a, b))
        if len(open_ends) == 2 or (open_ends and through_switch):
            wiring.unknown.add((a, b))
            wiring.direct.pop((a, b), None)
    _add_switches(wiring, switched, hidden)
    if lost := _counted(wiring.unresolved, order):
        wiring.notes.append(f"The state or far end of some NVLinks is not known: {lost}.")
    if away := _counted(wiring.elsewhere, order):
        wiring.notes.append(f"NVLinks lead to devices that are none of the GPUs that were read: {away}.")
    infer_switch(wiring, order, models)
    return wiring


def _counted(links: Counter[str], order: Sequence[str]) -> str:
    return ", ".join(f"{node} ({links[node]})" for node in order if links[node])


def from_cells(
    cells: Mapping[tuple[str, str], int], gpus: Sequence[str], models: Mapping[str, GpuModel | None]
) -> Wiring:
    """The wiring that printed `NV#` cells stand for; a pair that is not in `cells` is not determined."""
    wiring = Wiring(
        direct={pair: count for pair, count in cells.items() if count},
        read=set(gpus),
        unknown=set(combinations(gpus, 2)) - cells.keys(),
    )
    infer_switch(wiring, gpus, models)
    return wiring


def infer_switch(wiring: Wiring, gpus: Sequence[str], models: Mapping[str, GpuModel | None]) -> None:
    """Put one NVSwitch where boards show more links to all their peers together than they have.

    Through a switch a GPU reaches every peer over the same links, so a pair shows as many as the GPU with fewer has.
    Where some pair does not, no switch is inferred. GPUs without any link stay outside.
    """
    if wiring.to_switch:
        return
    pairs = list(combinations(gpus, 2))
    rows = {gpu: [wiring.direct.get(pair, 0) for pair in pairs if gpu in pair] for gpu in gpus}
    has = {gpu: max(row, default=0) for gpu, row in rows.items()}
    if not all(wiring.direct.get((a, b), 0) == min(has[a], has[b]) for a, b in pairs if (a, b) not in wiring.unknown):
        return
    limits = {gpu: model.max_nvlinks if model is not None else None for gpu, model in models.items()}
    linked = [gpu for gpu in gpus if has[gpu]]
    whole = len(linked) > 1 and all(has[gpu] == limits.get(gpu) and _switched(models.get(gpu)) for gpu in linked)
    if whole or any(sum(rows[gpu]) > (limits.get(gpu) or MOST_LINKS) for gpu in linked):
        wiring.direct.clear()
        wiring.switches["nvswitch:0"] = None
        wiring.to_switch.update({gpu: Counter({"nvswitch:0": has[gpu]}) for gpu in linked})
        counts = sorted({has[gpu] for gpu in gpus})
        shown = (
            f"Every GPU pair shows {counts[0]} NVLinks"
            if len(counts) == 1
            else f"GPUs show up to {counts[-1]} NVLinks to each of several peers"
        )
        wiring.notes.append(f"{shown}, which boards reach only through an NVSwitch: one is inferred.")


def hold_to_links(
    wiring: Wiring, printed: Mapping[tuple[str, str], int], gpus: Mapping[str, Gpu], *, origin: str
) -> dict[tuple[str, str], int]:
    """Of the `printed` counts those that are more than links are up at one end → what is left of each.

    Adds to the disagreements the GPUs whose pairs have only together more than links are up.
    """
    up = {
        node: sum(link.active is True for link in gpu.nvlinks)
        for node, gpu in gpus.items()
        if gpu.nvlinks is not None and all(link.active is not None for link in gpu.nvlinks)
    }
    limits = {pair: min((up[node] for node in pair if node in up), default=count) for pair, count in printed.items()}
    less = {pair: limits[pair] for pair, count in printed.items() if count > limits[pair]}
    for pair, count in less.items():
        if wiring.direct.get(pair):
            wiring.direct[pair] = count
        for node in set(pair) & wiring.to_switch.keys() & up.keys():
            held = {switch: min(links, up[node]) for switch, links in wiring.to_switch[node].items()}
            wiring.to_switch[node] = Counter(held)
    for node in [node for node in up if node not in wiring.to_switch and not any(node in pair for pair in less)]:
        total = sum(count for pair, count in printed.items() if node in pair)
        if total > up[node]:
            wiring.disagreements.append(
                Disagreement(
                    subject=node,
                    quantity="NVLinks",
                    values=((origin, f"{up[node]} are up"), ("nvidia-smi topo -m", f"{total} to all its peers")),
                    believed=str(up[node]),
                    why="The state of each link was read one by one; to which peer one is missing was not.",
                )
            )
    return less


def _switched(model: GpuModel | None) -> bool:
    return model is not None and bool(model.nvswitch)


def _count_pair(wiring: Wiring, a: str, b: str, at_a: int, at_b: int, origin: str, open_ends: set[str]) -> None:
    ends = [count for node, count in ((a, at_a), (b, at_b)) if count or node in wiring.read - open_ends]
    if not any(ends):
        return
    believed = min(ends)
    if at_a != at_b and len(ends) == 2:
        wiring.disagreements.append(
            Disagreement(
                subject=f"{a}-{b}",
                quantity="NVLinks",
                values=((f"{origin} at {a}", str(at_a)), (f"{origin} at {b}", str(at_b))),
                believed=str(believed),
                why="A link carries data only when it is up at both ends.",
            )
        )
    if believed:
        wiring.direct[a, b] = believed


def _add_switches(wiring: Wiring, switched: Mapping[str, Counter[str]], hidden: Counter[str]) -> None:
    addresses = sorted({address for counts in switched.values() for address in counts})
    names = {address: f"nvswitch:{number}" for number, address in enumerate(addresses)}
    wiring.switches.update({name: address for address, name in names.items()})
    for node, counts in switched.items():
        if counts:
            wiring.to_switch[node] = Counter({names[address]: count for address, count in counts.items()})
    if hidden:
        unseen = f"nvswitch:{len(names)}"
        wiring.switches[unseen] = None
        wiring.hidden.update(hidden)
        for node, count in hidden.items():
            wiring.to_switch.setdefault(node, Counter())[unseen] += count
