"""When sources disagree: which one counts, and what is kept of the other.

Order of trust. PCIe classes: the kernel's own list of devices (or NCCL's dump of it), then NVML, then a printed
matrix. NVLinks: the state of each link, then a printed matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from topoadvisor import cpu_lists
from topoadvisor.hardware.catalogue import GpuModel
from topoadvisor.snapshot import Gpu, P2p, Snapshot
from topoadvisor.topology.model import Disagreement, Pair, some
from topoadvisor.topology.pcie_tree import Hierarchy

UNSURE: Final = "U"
"""What the driver answers about a pair of GPUs of which it does not know."""


class Settled(NamedTuple):
    """The value that counts, and whose it is; both None when no source has one."""

    value: str | None
    origin: str | None


def settle(
    subject: str, quantity: str, values: Sequence[tuple[str, str | None]], why: str, found: list[Disagreement]
) -> Settled:
    """Take the first value that is known, in order of trust, and add to `found` when a later source differs."""
    known = tuple((source, value) for source, value in values if value is not None)
    if not known:
        return Settled(None, None)
    origin, value = known[0]
    if any(other != value for _, other in known):
        found.append(Disagreement(subject=subject, quantity=quantity, values=known, believed=value, why=why))
    return Settled(value, origin)


def is_guest(snapshot: Snapshot) -> bool:
    """The operating system runs in a virtual machine."""
    if snapshot.host.hypervisor not in (None, "none"):
        return True
    return any(gpu.virtualization in ("passthrough", "vgpu") for gpu in snapshot.gpus)


def hidden_pcie_switches(gpus: Mapping[str, Gpu], models: Mapping[str, GpuModel | None], hierarchy: Hierarchy) -> bool:
    """In a guest: GPUs on the root bus that cannot sit there, SXM boards or more than 4."""
    flat = [node for node in gpus if hierarchy.kind.get(hierarchy.parent.get(node, "")) == "root"]
    sxm = any((model := models[node]) is not None and model.form == "sxm" for node in flat)
    return sxm or len(flat) > 4


def numa_nodes(
    gpus: Mapping[str, Gpu], hierarchy: Hierarchy, printed: Mapping[str, int | str], tree_origin: str
) -> list[Disagreement]:
    """GPUs for which the tree, NVML and a printed matrix name different NUMA nodes."""
    found: list[Disagreement] = []
    for node, gpu in gpus.items():
        tree = hierarchy.numa(node)
        home = printed.get(node)
        values = [
            (tree_origin, tree.removeprefix("numa:") if tree is not None else None),
            ("nvml", str(gpu.numa_node) if gpu.numa_node is not None and gpu.numa_node >= 0 else None),
            ("nvidia-smi topo -m", str(home) if isinstance(home, int) else None),
        ]
        settle(node, "NUMA node", values, "The kernel's list of PCI devices is what NCCL walks.", found)
    return found


def is_refusal(answer: str | None) -> bool:
    """Whether the driver refuses a pair of GPUs by this answer; one that was not read, and `U`, is none."""
    return answer not in (None, "OK", UNSURE)


def beyond_boards(
    links: Mapping[str, int], models: Mapping[str, GpuModel | None], origin: str
) -> Iterator[Disagreement]:
    """GPUs that show more NVLinks (`links`, by node id) than boards of their model bring out."""
    for node, count in links.items():
        model = models.get(node)
        if model is None or model.max_nvlinks is None or count <= model.max_nvlinks:
            continue
        yield Disagreement(
            subject=node,
            quantity="NVLinks",
            values=((origin, str(count)), (f"what is known of {model.family}", str(model.max_nvlinks or "none"))),
            believed=str(count),
            why="No such GPU has so many: the model or the links are those of another machine.",
        )


def told_numa(told: int | None, gpus: Mapping[str, Gpu], printed: Mapping[str, int | str]) -> Iterator[Disagreement]:
    """A number of NUMA nodes that was told and is smaller than that of the nodes which the GPUs are on."""
    homes = {home for home in printed.values() if isinstance(home, int)}
    homes |= {gpu.numa_node for gpu in gpus.values() if gpu.numa_node is not None and gpu.numa_node >= 0}
    if told is not None and len(homes) > told:
        listed = f"{len(homes)} ({cpu_lists.spell(homes)})"
        yield Disagreement(
            subject="the machine's",
            quantity="NUMA nodes",
            values=(("what was told", str(told)), ("the NUMA affinity of the GPUs", listed)),
            believed=str(told),
            why="Both are kept; rules about NUMA nodes go by what was told.",
        )


def grants(snapshot: Snapshot, pairs: Mapping[tuple[str, str], Pair]) -> Iterator[Disagreement]:
    """Where the driver grants peer access in one direction only, and where its answer about NVLink is another than that
    of the links. Pairs of one kind are one disagreement.
    """
    told = {(entry.a, entry.b): entry for entry in snapshot.p2p or ()}
    one_way: dict[tuple[str, str], list[str]] = {}
    unlike: dict[tuple[str, bool, str], list[str]] = {}
    for (a, b), entry in told.items():
        back = told.get((b, a))
        for capability in ("read", "write"):
            answer, other = getattr(entry, capability), getattr(back, capability, None)
            if is_refusal(answer) and other == "OK":
                one_way.setdefault((capability, answer), []).append(f"gpu:{a}→gpu:{b}")
        pair = pairs.get((f"gpu:{a}", f"gpu:{b}"))
        answer = _worse(entry, back)
        if pair is None or pair.nvlinks is None or answer in (None, UNSURE):
            continue
        if bool(pair.nvlinks) == is_refusal(answer):
            unlike.setdefault((answer, bool(pair.nvlinks), pair.origin), []).append(f"gpu:{a}-gpu:{b}")
    for (capability, answer), ways in one_way.items():
        yield Disagreement(
            subject=some(ways),
            quantity=f"P2P {capability}",
            values=(("the driver", answer), ("the driver about the other direction", "OK")),
            believed=answer,
            why="A pair is refused where one direction is.",
        )
    for (answer, linked, origin), subjects in unlike.items():
        yield Disagreement(
            subject=some(subjects),
            quantity="peer traffic over NVLink",
            values=((origin, "NVLink" if linked else "no NVLink"), ("the driver's P2P answer", answer)),
            believed="the links",
            why="The links count as they were read; that peers reach each other over them is not taken for granted."
            if linked
            else "No link counts that was not shown: `nvidia-smi topo -mp` shows none, `nvidia-smi nvlink -s` does.",
        )


def _worse(entry: P2p, back: P2p | None) -> str | None:
    answers = [each.nvlink for each in (entry, back) if each is not None and each.nvlink is not None]
    return next((answer for answer in answers if answer != "OK"), answers[0] if answers else None)


def _touched(nodes: Iterable[set[int]], near: set[int]) -> set[int]:
    """All CPUs of the nodes that have one of these."""
    return set().union(*(node for node in nodes if node & near))


def cpus(snapshot: Snapshot) -> Iterator[Disagreement]:
    """GPUs whose CPUs or NUMA node the host has not, or whose CPUs are neither in their node nor whole nodes with it.

    One for each kind. A GPU may have fewer CPUs than its node, as in a container, or those of the whole socket.
    """
    host, origins = snapshot.host, snapshot.origins
    nodes = {node.id: cpu_lists.parse(node.cpus or "") or set() for node in host.numa_nodes or ()}
    online = cpu_lists.parse((host.cpu.online if host.cpu is not None else None) or "") or set()
    every = online.union(*nodes.values())
    found: dict[tuple[str, str, str], list[int]] = {}
    for gpu in snapshot.gpus:
        near = cpu_lists.parse(gpu.cpu_affinity or "") or set()
        node = nodes.get(gpu.numa_node if gpu.numa_node is not None else -1)
        if every and near - every:
            has = f"CPUs {gpu.cpu_affinity}"
            found.setdefault((has, f"CPUs {cpu_lists.spell(every)}", "cpu_affinity"), []).append(gpu.index)
        elif near and node and not near <= node and not (node <= near and near == _touched(nodes.values(), near)):
            has, there = f"CPUs {gpu.cpu_affinity}", f"CPUs {cpu_lists.spell(node)} on NUMA node {gpu.numa_node}"
            found.setdefault((has, there, "cpu_affinity"), []).append(gpu.index)
        if any(nodes.values()) and gpu.numa_node is not None and gpu.numa_node >= 0 and node is None:
            has = f"NUMA node {gpu.numa_node}"
            found.setdefault((has, f"NUMA nodes {cpu_lists.spell(nodes)}", "numa_node"), []).append(gpu.index)
    for (has, there, key), indexes in found.items():
        listed = "host.numa_nodes" if nodes else "host.cpu.online"
        yield Disagreement(
            subject=some([f"gpu:{index}" for index in indexes]),
            quantity="place",
            values=(
                (origins.get(f"gpu:{indexes[0]}.{key}", "nvml"), has),
                (origins.get(listed, "the host's own list"), there),
            ),
            believed=has,
            why="Both are kept as they were read: texts of two machines or times, or CPUs that were taken offline.",
        )
