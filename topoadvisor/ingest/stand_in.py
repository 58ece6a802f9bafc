"""A machine that stands for another one: what it no longer says once facts of that other were told.

What was read is dropped where what was told contradicts it or is about another thing of the same kind. It is then not
known rather than wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from msgspec.structs import replace

from topoadvisor.hardware import catalogue, clouds
from topoadvisor.nccl import selection
from topoadvisor.snapshot import Gpu, Matrix, Nic, Snapshot

_ITS_OWN: Final = ("aws", "azure", "gcp", "oci")
"""Clouds that a machine shows in its firmware; others have to be told of the very machine that was read."""
_NETWORK_BY_NAME: Final = ("env.NCCL_NET", "env.NCCL_NET_PLUGIN")


def kept(snapshot: Snapshot, said: Mapping[str, Any]) -> Snapshot:
    """The snapshot without what the facts that were told, by name, leave open."""
    for drop in (_driver, _gpus, _cpu, _guest, _cloud, _ports, _interfaces, _software):
        snapshot = drop(snapshot, said)
    return snapshot


def _driver(snapshot: Snapshot, said: Mapping[str, Any]) -> Snapshot:
    """Of another driver: what comes with it."""
    read = snapshot.driver.version
    if read is None or said.get("driver.version", read) == read:
        return snapshot
    return replace(
        snapshot,
        driver=replace(snapshot.driver, cuda=None, banner=None),
        host=replace(snapshot.host, fabric_manager=None),
    )


def _gpus(snapshot: Snapshot, said: Mapping[str, Any]) -> Snapshot:
    """Of another model: what the driver said of the one that is there, and what serves the fabric of such GPUs."""
    gpus = [_gpu(gpu, said) for gpu in snapshot.gpus]
    host = snapshot.host
    if any(gpu.fabric and not other.fabric for gpu, other in zip(snapshot.gpus, gpus, strict=True)):
        services = {name: state for name, state in (host.services or {}).items() if state == "active"}
        host = replace(host, services=services, paths=None)
    return replace(snapshot, gpus=gpus, host=host)


def _gpu(gpu: Gpu, said: Mapping[str, Any]) -> Gpu:
    def told(name: str) -> Any:
        return said.get(f"gpu[{gpu.index}].{name}", said.get(f"gpu.{name}"))

    name = told("name")
    if gpu.name is not None and name is not None and catalogue.gpu_model(name) != catalogue.gpu_model(gpu.name):
        fabric = gpu.fabric if gpu.fabric and gpu.fabric.state == "completed" else None
        gpu = replace(gpu, memory_bytes=None, bar1_bytes=None, compute_capability=None, c2c_gbps=None, fabric=fabric)
    return replace(gpu, performance_state=None) if told("pcie.current_gen") is not None else gpu


def _cpu(snapshot: Snapshot, said: Mapping[str, Any]) -> Snapshot:
    cpu = snapshot.host.cpu
    if cpu is None:
        return snapshot
    model, vendor = said.get("cpu.model_name", cpu.model_name), said.get("cpu.vendor", cpu.vendor)
    if (model, vendor) == (cpu.model_name, cpu.vendor):
        return snapshot
    x86 = {vendor, cpu.vendor} <= {"AMD", "Intel"}
    other = replace(
        cpu,
        model_name=cpu.model_name if vendor == cpu.vendor else None,
        architecture=cpu.architecture if x86 or vendor == cpu.vendor else None,
        family=None,
        model=None,
    )
    return replace(snapshot, host=replace(snapshot.host, cpu=other))


def _guest(snapshot: Snapshot, said: Mapping[str, Any]) -> Snapshot:
    """In a virtual machine where none was read: not known which hypervisor."""
    if not said.get("vm.guest") or snapshot.host.hypervisor != "none":
        return snapshot
    return replace(snapshot, host=replace(snapshot.host, hypervisor=None))


def _without_nics(snapshot: Snapshot) -> Snapshot:
    """Without the network devices, which are those of another machine, in the printed matrix too."""
    names = {nic.name for nic in snapshot.nics or ()} if snapshot.origin == "live" else set()
    return replace(snapshot, nics=None, matrices=[_without(matrix, names) for matrix in snapshot.matrices])


def _without(matrix: Matrix, names: Set[str]) -> Matrix:
    gone = {label for label in matrix.nics if matrix.nic_legend.get(label, label) in names}
    return replace(
        matrix,
        nics=[label for label in matrix.nics if label not in gone],
        nic_legend={label: name for label, name in matrix.nic_legend.items() if label not in gone},
        cells={
            row: {column: text for column, text in cells.items() if column not in gone}
            for row, cells in matrix.cells.items()
            if row not in gone
        },
    )


def _cloud(snapshot: Snapshot, said: Mapping[str, Any]) -> Snapshot:
    """In a cloud: network devices and the vendor's files are those of its instance type."""
    dmi = snapshot.host.dmi
    cloud = said.get("platform.cloud", clouds.cloud({"product_name": said.get("platform.product", "")}))
    if dmi is None or cloud not in _ITS_OWN or clouds.cloud(dmi) == cloud:
        return snapshot
    host = replace(
        snapshot.host, paths=None, network_plugins=None, topology_file=None, uverbs=None, default_interface=None
    )
    return replace(_without_nics(snapshot), host=host)


def _ports(snapshot: Snapshot, said: Mapping[str, Any]) -> Snapshot:
    """With RDMA devices that are not here, or RDMA where none was read: those of the machine that has them."""
    here = [nic.name for nic in snapshot.nics or [] if nic.rdma]
    hca = said.get("env.NCCL_IB_HCA", "")
    strange = hca and not any(map(selection.parse(hca).picks, here))
    there = said.get("rdma.any") or str(said.get("job.transport")).startswith("NET/IB")
    if snapshot.origin != "live" or snapshot.nics is None:
        return snapshot
    if strange or (there and not here):
        return replace(_without_nics(snapshot), host=replace(snapshot.host, default_interface=None))
    return replace(snapshot, nics=[_nic(nic, said) for nic in snapshot.nics])


def _nic(nic: Nic, said: Mapping[str, Any]) -> Nic:
    """Of another link layer or MTU: what its ports say of them."""
    layers = said.get("rdma.link_layers", [])
    ports = nic.ports or []
    if len(layers) == 1 and any(port.link_layer not in (None, *layers) for port in ports):
        ports = [replace(port, link_layer=layers[0], gid_types=None, active_mtu=None) for port in ports]
        nic = replace(nic, mtu=None)
    elif said.get("env.NCCL_IB_GID_INDEX") and not layers:
        # Who names a row of the GID table has RoCE as a rule, whatever the ports are that were read.
        ports = [replace(port, link_layer=None, gid_types=None) for port in ports]
    if said.get(f"nic[{nic.name}].mtu", said.get("nic.mtu")) is not None:
        ports = [replace(port, active_mtu=None) for port in ports]
    return replace(nic, ports=nic.ports and ports)


def _interfaces(snapshot: Snapshot, said: Mapping[str, Any]) -> Snapshot:
    """With an interface that is not here: those of the machine that has it."""
    here = [nic.interface for nic in snapshot.nics or [] if nic.interface]
    nccl, gloo = said.get("env.NCCL_SOCKET_IFNAME", ""), said.get("env.GLOO_SOCKET_IFNAME", "")
    picks = selection.parse(nccl).picks
    strange = (nccl and not any(map(picks, here))) or (gloo and not set(gloo.split(",")) & set(here))
    if not here or not strange or snapshot.origin != "live":
        return snapshot
    nics = [replace(nic, interface=None) for nic in snapshot.nics or []]
    return replace(snapshot, nics=nics, host=replace(snapshot.host, default_interface=None))


def _software(snapshot: Snapshot, said: Mapping[str, Any]) -> Snapshot:
    """What goes with a network plugin or options of the driver in use, or with a fabric manager that does not serve."""
    if not snapshot.host.network_plugins and any(said.get(name) for name in _NETWORK_BY_NAME):
        snapshot = replace(snapshot, host=replace(snapshot.host, network_plugins=None))
    if said.get("env.NVSHMEM_IB_ENABLE_IBGDA"):
        snapshot = replace(snapshot, driver=replace(snapshot.driver, parameters=None))
    driver, manager = said.get("driver.version", snapshot.driver.version), said.get("fabricmanager.version")
    refused = None not in (driver, manager) and driver != manager
    if refused or said.get("fabricmanager.state", "active") != "active":
        snapshot = replace(snapshot, gpus=[replace(gpu, fabric=None) for gpu in snapshot.gpus])
    return snapshot
