"""What each edge of the graph carries: payload GB/s per direction, None where nothing tells."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import networkx as nx

from topoadvisor.hardware import catalogue
from topoadvisor.hardware.catalogue import CpuModel, GpuModel
from topoadvisor.snapshot import Cpu, Gpu, PciDevice

_EMULATED = frozenset({("0x1b36", None), ("0x104c", "0x8232"), ("0x104c", "0x8233")})
"""Bridges that a hypervisor invents (QEMU's own, and the Texas Instruments switch that it imitates): no wire behind."""


class PcieRate(NamedTuple):
    gen: int | None = None
    width: int | None = None
    gbps: float | None = None
    inferred: bool = False
    """Generation or width is the board's own, because the link's was not read."""


def model_of(gpu: Gpu) -> GpuModel | None:
    """The catalogue's entry for a GPU."""
    return catalogue.gpu_model(gpu.name, gpu.pci_device)


def cpu_of(cpu: Cpu | None) -> CpuModel | None:
    """The catalogue's entry for the host's CPU."""
    return catalogue.cpu_model(cpu.vendor, cpu.family, cpu.model, cpu.architecture) if cpu is not None else None


def nvlink_gbps(gpu: Gpu) -> float | None:
    """Payload of one NVLink of this GPU, by model, else compute capability, else what the driver says of the link."""
    model = model_of(gpu)
    if model is not None:
        return model.nvlink_gbps
    link = next((link for link in gpu.nvlinks or () if link.active), None)
    kind = catalogue.nvlink_kind(
        compute_capability=gpu.compute_capability,
        raw_mbps=link.raw_mbps if link else None,
        generation=link.generation if link else None,
    )
    return kind.gbps if kind else None


def nvlinks_gbps(count: int, *gpus: Gpu) -> float | None:
    """What `count` NVLinks between these GPUs, or of one GPU, carry: the slower kind decides."""
    each = [nvlink_gbps(gpu) for gpu in gpus]
    known = [gbps for gbps in each if gbps is not None]
    return min(known) * count if known and len(known) == len(each) else None


def pcie_link(device: PciDevice | None, port: PciDevice | None, gpu: Gpu | None) -> PcieRate:
    """The link between a device (or the upper end of a switch) and the port above it.

    The generation is the highest that both ends reach, since links idle at the first; the width is the one in use.
    """
    if device is not None and _emulated(device):
        return PcieRate()
    if port is not None and _emulated(port):
        port = None
    read = gpu.pcie if gpu is not None else None
    gen = read.max_gen if read is not None else None
    if gen is None:
        ends = [catalogue.pcie_gen(end.max_link_speed_gts) for end in (device, port) if end is not None]
        known = [end for end in ends if end is not None]
        gen = min(known) if known else catalogue.pcie_gen(device.link_speed_gts) if device is not None else None
    width = (read.current_width if read is not None else None) or (device.link_width if device is not None else None)
    if not width:
        widths = [end.max_link_width for end in (device, port) if end is not None and end.max_link_width]
        width = min(widths) if widths else (read.max_width if read is not None else None) or None
    model = model_of(gpu) if gpu is not None else None
    inferred = model is not None and (gen is None or width is None)
    if model is not None and inferred:
        gen, width = gen or model.pcie_gen, width or model.pcie_width
    gbps = catalogue.pcie_gbps(gen, width)
    if gbps is None and gpu is None and device is not None:
        # A GPU's link idles at the first generation, a switch's and a NIC's do not.
        gbps = catalogue.pcie_payload_gbps(device.link_gbps)
    return PcieRate(gen, width, gbps, inferred)


def fill_host_edges(graph: nx.Graph[str]) -> None:
    """Root complexes and NUMA nodes are taken to carry what all ports below them carry: they never limit on paper.

    A NIC whose link is unknown is left out of the sum; anything else unknown makes it unknown.
    """
    for kind, end, below in (("host", "root", "pcie"), ("memory", "numa", "host")):
        for a, b, edge in graph.edges(data=True):
            if edge["kind"] == kind:
                lower = a if graph.nodes[a]["kind"] == end else b
                ports = [
                    port["gbps"]
                    for _, child, port in graph.edges(lower, data=True)
                    if port["kind"] == below and (port["gbps"] is not None or graph.nodes[child]["kind"] != "nic")
                ]
                edge["gbps"] = round(sum(ports), 3) if ports and None not in ports else None


def bottleneck(graph: nx.Graph[str], path: Iterable[str]) -> float | None:
    """What the narrowest edge of a path carries; None when an edge that may limit is unknown."""
    limits = limits_of(graph, pairwise(path))
    known = [gbps for gbps in limits if gbps is not None]
    return min(known) if known and len(known) == len(limits) else None


def limits_of(graph: nx.Graph[str], edges: Iterable[tuple[str, str]]) -> list[float | None]:
    """What each edge carries that may limit a path, None where that is unknown."""
    found = (graph.edges[a, b] for a, b in edges)
    return [edge["gbps"] for edge in found if edge["kind"] not in ("host", "memory") and not edge.get("internal")]


def _emulated(device: PciDevice) -> bool:
    return (device.vendor, None) in _EMULATED or (device.vendor, device.device) in _EMULATED
