"""NCCL's graph XML: the channels of a communicator, as NCCL_GRAPH_DUMP_FILE writes and NCCL_GRAPH_FILE reads them.

NCCL looks up each of its graphs by id and searches those that the file does not hold. It checks next to nothing of
what it loads (`ncclTopoGetGraphFromXml` in `src/graph/search.cc`): channels beyond its room are written past it, and a
ring that misses a GPU hangs. `faults` is what it should check.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from topoadvisor import xml_tree
from topoadvisor.errors import InputError
from topoadvisor.nccl import topo_xml, versions
from topoadvisor.nccl.topo_xml import Element

RING: Final = 0
RING_PATTERN: Final = 4
"""`NCCL_TOPO_PATTERN_RING`."""

PATH_NAMES: Final = ("LOC", "NVL", "NVB", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""Path types that NCCL spells in this file (`kvDictLinkType`)."""

HINT: Final = "NCCL writes such a file with NCCL_GRAPH_DUMP_FILE=graph.xml."

_MAX_ELEMENTS: Final = 20_000
_FASTEST: Final = 65_536
"""GB/s; no link of the next years has more."""


@dataclass(frozen=True)
class Channel:
    """GPUs in ring order by NVML index, and the network ports where the ring leaves and enters the node."""

    gpus: tuple[int, ...]
    nets: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """One graph; speeds are GB/s of each channel."""

    id: int
    pattern: int
    speed_intra: float
    speed_inter: float
    type_intra: str
    type_inter: str
    channels: tuple[Channel, ...]
    cross_nic: int = 0
    same_channels: int = 0
    latency_inter: float = 0.0
    declared: int | None = None
    """`nchannels` as the file says; None = as many as there are."""


def most_channels(version: str | None) -> int:
    """Channels of a ring graph for which NCCL has room, once it has doubled them (`MAXCHANNELS`)."""
    return 32 if version is None or versions.at_least(version, "2.26.2") else 16


def ring(graphs: Sequence[Graph]) -> Graph | None:
    """The ring graph of a file."""
    return next((graph for graph in graphs if graph.id == RING), None)


def faults(graph: Graph, gpus: Sequence[int], *, version: str | None = None) -> list[str]:
    """What is wrong with a ring graph of one node with these GPUs, one sentence each; NCCL itself would not say so."""
    found = list(_of_the_channels(graph, sorted(gpus)))
    count = len(graph.channels)
    most = most_channels(version)
    if not 1 <= count <= most:
        found.append(f"There are {count} channels; NCCL has room for 1 to {most}.")
    if graph.declared not in (None, count):
        found.append(f"nchannels says {graph.declared}, and there are {count}.")
    if graph.pattern != RING_PATTERN:
        found.append(f"The pattern is {graph.pattern}; that of rings is {RING_PATTERN}.")
    for name, speed in (("speedintra", graph.speed_intra), ("speedinter", graph.speed_inter)):
        if not (math.isfinite(speed) and 0 < speed <= _FASTEST):
            found.append(f"{name} is {speed:g}.")
    found += [
        f"The path type {name[:20]!r} is none that NCCL reads."
        for name in dict.fromkeys((graph.type_intra, graph.type_inter))
        if name not in PATH_NAMES
    ]
    return found


def _of_the_channels(graph: Graph, gpus: Sequence[int]) -> Iterator[str]:
    for number, channel in enumerate(graph.channels):
        if sorted(channel.gpus) != list(gpus):
            yield f"Channel {number} goes over {_listed(channel.gpus)}, not over each of {_listed(gpus)} once."
        if channel.nets:
            yield f"Channel {number} leads through the network, and the file is for one node."
    if graph.same_channels and len({channel.gpus for channel in graph.channels}) > 1:
        yield "samechannels says that all channels have one order, and they have not."


def _listed(gpus: Sequence[int]) -> str:
    return ", ".join(f"GPU{gpu}" for gpu in gpus)


def write(graph: Graph, comment: Sequence[str] = ()) -> str:
    """The file with this one graph. Raises ValueError for a comment that NCCL could not skip."""
    children = [
        Element("channel", children=[Element("gpu", {"dev": f"{gpu:#x}"}) for gpu in channel.gpus])
        for channel in graph.channels
    ]
    attributes = {
        "id": str(graph.id),
        "pattern": str(graph.pattern),
        "crossnic": str(graph.cross_nic),
        "nchannels": str(len(graph.channels)),
        "speedintra": f"{graph.speed_intra:g}",
        "speedinter": f"{graph.speed_inter:g}",
        "latencyinter": f"{graph.latency_inter:g}",
        "typeintra": graph.type_intra,
        "typeinter": graph.type_inter,
        "samechannels": str(graph.same_channels),
    }
    # "0x1" is 1 for the releases that read these numbers as hexadecimal, 2.21 and newer, and for those before.
    root = Element("graphs", {"version": "1"}, children=[Element("graph", attributes, children=children)])
    return topo_xml.write(root, comment)


def read(text: str, *, file: str) -> list[Graph]:
    """The graphs of a file, in its order.

    Raises InputError with line and column for broken XML, another root element, a missing attribute or a bad number.
    """
    root = xml_tree.parse(text, file=file, hint=HINT, max_elements=_MAX_ELEMENTS)
    if root.tag != "graphs":
        raise _wrong(file, root, f"the root element is <{root.tag[:40]}>, not <graphs>")
    if root.attributes.get("version") != "1":
        raise _wrong(file, root, "NCCL reads version 1 of this format, and the file does not say so")
    return [_graph(element, file) for element in root.each("graph")]


def _graph(element: xml_tree.Element, file: str) -> Graph:
    return Graph(
        id=_integer(element, "id", file),
        pattern=_integer(element, "pattern", file),
        speed_intra=_number(element, "speedintra", file),
        speed_inter=_number(element, "speedinter", file),
        type_intra=_attribute(element, "typeintra", file),
        type_inter=_attribute(element, "typeinter", file),
        channels=tuple(_channel(child, file) for child in element.each("channel")),
        cross_nic=_integer(element, "crossnic", file),
        same_channels=_integer(element, "samechannels", file),
        latency_inter=_number(element, "latencyinter", file) if "latencyinter" in element.attributes else 0.0,
        declared=_integer(element, "nchannels", file),
    )


def _channel(element: xml_tree.Element, file: str) -> Channel:
    return Channel(
        tuple(_device(gpu, file) for gpu in element.each("gpu")),
        tuple(_device(net, file) for net in element.each("net")),
    )


def _device(element: xml_tree.Element, file: str) -> int:
    text = _attribute(element, "dev", file)
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,9}", text):
        raise _wrong(file, element, f"dev is {text[:40]!r}, no number")
    return int(text, 0) if text.startswith("0x") else int(text)


def _integer(element: xml_tree.Element, name: str, file: str) -> int:
    text = _attribute(element, name, file)
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise _wrong(file, element, f"{name} is {text[:40]!r}, no whole number")
    return int(text)


def _number(element: xml_tree.Element, name: str, file: str) -> float:
    text = _attribute(element, name, file)
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]*)?(e[+-]?[0-9]{1,2})?", text[:60]):
        raise _wrong(file, element, f"{name} is {text[:40]!r}, no number")
    return float(text)


def _attribute(element: xml_tree.Element, name: str, file: str) -> str:
    if name not in element.attributes:
        raise _wrong(file, element, f"this <{element.tag}> has no {name}")
    return element.attributes[name]


def _wrong(file: str, element: xml_tree.Element, message: str) -> InputError:
    return InputError(message, file=file, line=element.line, column=element.column, hint=HINT)
