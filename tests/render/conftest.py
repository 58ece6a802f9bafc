"""Machines to draw: the bundled ones, and some that no bundled machine is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topoadvisor import advise
from topoadvisor.advice import Advice
from topoadvisor.files import shipped
from topoadvisor.render.outline import outline
from topoadvisor.render.schematic import Schematic
from topoadvisor.snapshot import Cpu, Gpu, Host, Nic, NumaNode, NvLink, PciDevice, Snapshot, decode
from topoadvisor.topology import graph

FIXTURES = sorted(path.parent.name for path in shipped("fixtures").glob("*/snapshot.json"))


@pytest.fixture(params=FIXTURES)
def any_fixture(request: pytest.FixtureRequest) -> str:
    """The name of each bundled machine in turn."""
    name: str = request.param
    return name


def bundled(name: str) -> Snapshot:
    return decode((shipped("fixtures") / name / "snapshot.json").read_bytes())


@pytest.fixture
def schematic() -> Callable[[str], Schematic]:
    """The schematic of a bundled machine with its findings."""

    def of(name: str) -> Schematic:
        snapshot = bundled(name)
        analysis = advise.analyse(snapshot)
        return outline(snapshot, analysis.topology, analysis.advice)

    return of


@pytest.fixture
def switched() -> Callable[..., Snapshot]:
    """A machine of `count` GPUs on one NVSwitch, `per_socket` of them below each socket, by name."""

    def of(count: int, *, per_socket: int, name: str = "NVIDIA GB200", links: int = 18) -> Snapshot:
        sockets = range((count + per_socket - 1) // per_socket)
        addresses = [f"{i // per_socket:04x}:{i % per_socket + 1:02x}:00.0" for i in range(count)]
        pci = [
            PciDevice(address=addresses[i], class_code="0x030200", root=f"{i // per_socket:04x}:00", max_link_width=16)
            for i in range(count)
        ]
        link = NvLink(link=0, active=True, remote_type="switch", remote_address="0000:ff:01.0")
        gpus = [
            Gpu(index=i, name=name, address=addresses[i], numa_node=i // per_socket, nvlinks=[link] * links)
            for i in range(count)
        ]
        numa = [NumaNode(id=i, cpus=f"{8 * i}-{8 * i + 7}") for i in sockets]
        host = Host(cpu=Cpu(architecture="aarch64", sockets=len(sockets)), numa_nodes=numa)
        return Snapshot(gpus=gpus, pci=pci, nics=[], host=host)

    return of


HOSTILE = 'A<b>&amp;"\\N\\G\nline\x00two$x_1^2$\x1b[31m ]]> -- {x|y}\ud800 Ω 名前 ' + "very " * 60 + "long"
"""What no name should be, and what a pasted or forged source may hold."""


@pytest.fixture
def hostile() -> Snapshot:
    """Two GPUs and a NIC with names that try to break out of DOT and SVG, or to be a formula."""
    gpus = [Gpu(index=i, name=HOSTILE, address=f"0000:0{i}:00.0", numa_node=0) for i in range(2)]
    nics = [Nic(name=HOSTILE, rdma=True, address="0000:03:00.0", numa_node=0)]
    host = Host(
        cpu=Cpu(model_name=HOSTILE, sockets=1), numa_nodes=[NumaNode(id=0, cpus=HOSTILE)], dmi={"product_name": HOSTILE}
    )
    return Snapshot(gpus=gpus, nics=nics, host=host)


@pytest.fixture
def plain() -> Callable[..., Schematic]:
    """The schematic of any snapshot, with or without findings."""

    def of(snapshot: Snapshot, advice: Advice | None = None) -> Schematic:
        return outline(snapshot, graph.build(snapshot), advice)

    return of


@pytest.fixture
def bundled_machine() -> Snapshot:
    """A healthy machine of eight GPUs."""
    return bundled("dgx-h100")
