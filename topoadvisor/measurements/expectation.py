"""What the links of a machine should reach, by its topology and the catalogue. Pure."""

from __future__ import annotations

from topoadvisor.hardware import catalogue
from topoadvisor.measurements.judge import PairFacts
from topoadvisor.measurements.judge_hosts import HostFacts
from topoadvisor.snapshot import Gpu, Snapshot
from topoadvisor.topology.links import nvlink_count
from topoadvisor.topology.model import Topology


def pair_facts(snapshot: Snapshot, topology: Topology, a: Gpu, b: Gpu) -> PairFacts:
    """What a pair's link should reach, by its class and the slower of the two GPUs' PCIe links."""
    pair = topology.pair(f"gpu:{a.index}", f"gpu:{b.index}")
    link_class = pair.link_class
    gen = _lower(a.pcie.max_gen if a.pcie else None, b.pcie.max_gen if b.pcie else None)
    width = _lower(_width(a), _width(b))
    cpu = snapshot.host.cpu
    band = None
    if link_class is not None:
        band = catalogue.peer_copy_band(
            link_class,
            model=catalogue.gpu_model(a.name, a.pci_device),
            nvlink_generation=_nvlink_generation(a) if nvlink_count(link_class) else None,
            pcie_gen=gen,
            pcie_width=width,
            cpu=catalogue.cpu_model(cpu.vendor, cpu.family, cpu.model, cpu.architecture) if cpu else None,
        )
    return PairFacts(
        a.index,
        b.index,
        link_class,
        band,
        catalogue.staged_copy_range(gen, width),
        (*_slot(a), *_slot(b)),
        (*_down(a), *_down(b)) if nvlink_count(link_class or "") else (),
        None if a.c2c_gbps or b.c2c_gbps else catalogue.pcie_raw_gbps(gen, width),
        _acs(snapshot, pair.pcie_path),
        _translated(snapshot, a, b),
        all(_up(gpu) >= (nvlink_count(link_class or "") or 0) > 0 for gpu in (a, b)),
    )


def host_facts(gpu: Gpu) -> HostFacts:
    """What copies between a GPU and the host should reach over its PCIe link."""
    if gpu.c2c_gbps:
        return HostFacts(gpu.index, None, "C2C")
    gen, width = gpu.pcie.max_gen if gpu.pcie else None, _width(gpu)
    link = f"Gen{gen} x{width}" if gen and width else "?"
    return HostFacts(gpu.index, catalogue.host_copy_band(gen, width), link, _slot(gpu))


def _width(gpu: Gpu) -> int | None:
    """Lanes in use: width, unlike generation, does not drop while the GPU idles."""
    if gpu.pcie is None:
        return None
    return _lower(gpu.pcie.max_width or None, gpu.pcie.current_width or None) or gpu.pcie.max_width or None


def _slot(gpu: Gpu) -> tuple[str, ...]:
    """In words when the GPU's link has fewer lanes or a lower generation than the GPU alone."""
    if gpu.pcie is None:
        return ()
    model = catalogue.gpu_model(gpu.name, gpu.pci_device)
    lanes = (model.pcie_width if model else None) or gpu.pcie.max_width
    width, said = _width(gpu), []
    if width and lanes and width < lanes:
        said.append(f"GPU{gpu.index} runs on {width} of its {lanes} PCIe lanes")
    if gpu.pcie.max_gen and gpu.pcie.device_max_gen and gpu.pcie.max_gen < gpu.pcie.device_max_gen:
        said.append(
            f"GPU{gpu.index} sits in a slot of generation {gpu.pcie.max_gen}, and could do Gen{gpu.pcie.device_max_gen}"
        )
    return tuple(said)


def _down(gpu: Gpu) -> tuple[str, ...]:
    """In words when NVLinks of an SXM board are down; a card has as many up as bridges are plugged."""
    model = catalogue.gpu_model(gpu.name, gpu.pci_device)
    if model is None or model.form != "sxm" or not model.max_nvlinks or gpu.nvlinks is None:
        return ()
    up = _up(gpu)
    unread = any(link.active is None for link in gpu.nvlinks)
    return (
        () if unread or up >= model.max_nvlinks else (f"GPU{gpu.index} has {up} of its {model.max_nvlinks} NVLinks up",)
    )


def _up(gpu: Gpu) -> int:
    return sum(bool(link.active) for link in gpu.nvlinks or ())


def _acs(snapshot: Snapshot, path: tuple[str, ...]) -> bool | None:
    """Upstream ports only pass traffic on, and a guest does not see the bridges of its host."""
    if snapshot.host.hypervisor not in (None, "none"):
        return None
    bridges = {f"pci:{device.address}": device for device in snapshot.pci or () if device.port_type != "upstream"}
    seen = [bridges[node].acs_redirect for node in path if node in bridges]
    if any(seen):
        return True
    return False if seen and all(each is False for each in seen) else None


def _translated(snapshot: Snapshot, a: Gpu, b: Gpu) -> bool | None:
    """Whether the IOMMU translates what either GPU sends; a guest does not see that of its host."""
    groups = snapshot.host.iommu_groups
    if groups is None or snapshot.host.hypervisor not in (None, "none"):
        return None
    types = [group.type for group in groups if {a.address, b.address} & set(group.devices)]
    if None in types or (groups and not types):
        return None
    return any(str(kind).startswith("DMA") for kind in types)


def _lower(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


def _nvlink_generation(gpu: Gpu) -> str | None:
    return next((link.generation for link in gpu.nvlinks or [] if link.active and link.generation), None)
