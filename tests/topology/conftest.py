"""Small machines, built in code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from topoadvisor.snapshot import Cpu, Gpu, Host, Matrix, Nic, NumaNode, NvLink, PciDevice, PcieLink, Snapshot

BRIDGE = "0x060400"


@pytest.fixture
def table() -> Callable[..., Matrix]:
    """A matrix from lines of words: a heading, then a label and cells per row; `-` leaves a cell out."""

    def build(text: str, *, numa: Sequence[int] = (), legend: dict[str, str] | None = None) -> Matrix:
        heading, *rows = [line.split() for line in text.strip().splitlines()]
        cells = {
            row[0]: {column: cell for column, cell in zip(heading, row[1:], strict=False) if cell not in ("X", "-")}
            for row in rows
        }
        gpus = [label for label in heading if label.startswith("GPU")]
        return Matrix(
            gpus=gpus,
            nics=[label for label in heading if label not in gpus],
            cells=cells,
            numa_affinity={gpu: str(id) for gpu, id in zip(gpus, numa, strict=False)},
            nic_legend=legend or {},
        )

    return build


@pytest.fixture
def pasted(table: Callable[..., Matrix]) -> Callable[..., Snapshot]:
    """A snapshot of a pasted matrix; `model` names all GPUs."""

    def build(text: str, *, model: str | None = None, **columns: object) -> Snapshot:
        matrix = table(text, **columns)
        gpus = [Gpu(index=number, name=model) for number, _ in enumerate(matrix.gpus)]
        return Snapshot(origin="matrix", gpus=gpus, matrices=[matrix])

    return build


@pytest.fixture
def eight_4090s() -> str:
    """Two halves of four; in each one pair shares a switch, and the halves are two root complexes of one NUMA node."""

    def cell(a: int, b: int) -> str:
        if a == b:
            return "X"
        if {a, b} in ({0, 1}, {6, 7}):
            return "PIX"
        return "PXB" if a // 4 == b // 4 else "NODE"

    labels = [f"GPU{number}" for number in range(8)]
    rows = [" ".join([labels[a], *(cell(a, b) for b in range(8))]) for a in range(8)]
    return "\n".join([" ".join(labels), *rows])


@pytest.fixture
def links() -> Callable[..., list[NvLink]]:
    """NVLinks from (peer, count) pairs: a PCI address, `switch ADDRESS`, or `hidden`; `down` more that are inactive."""

    def build(*peers: tuple[str, int], down: int = 0) -> list[NvLink]:
        made: list[NvLink] = []
        for peer, count in peers:
            for _ in range(count):
                kind, _, address = peer.rpartition(" ")
                hidden = peer == "hidden"
                made.append(
                    NvLink(
                        link=len(made),
                        active=True,
                        remote_type="switch" if kind == "switch" or hidden else "gpu",
                        remote_address=None if hidden else address,
                        remote_hidden=hidden,
                    )
                )
        return made + [NvLink(link=len(made) + number, active=False) for number in range(down)]

    return build


@pytest.fixture
def server() -> Snapshot:
    """Two sockets. On the first a switch with GPU 0 and a NIC of two ports, and a second switch below it with GPU 1;
    GPU 2 on another port of the same root complex, GPU 3 on another root complex. GPU 4 is on the second socket."""
    pci = [
        _port("0000:00:01.0", None, "0000:00", 0),
        _port("0000:01:00.0", "0000:00:01.0", "0000:00", 0),
        _port("0000:02:00.0", "0000:01:00.0", "0000:00", 0),
        _port("0000:02:01.0", "0000:01:00.0", "0000:00", 0),
        _port("0000:02:02.0", "0000:01:00.0", "0000:00", 0),
        _end("0000:03:00.0", "0000:02:00.0", "0000:00", 0),
        _end("0000:04:00.0", "0000:02:01.0", "0000:00", 0),
        _end("0000:04:00.1", "0000:02:01.0", "0000:00", 0),
        _port("0000:05:00.0", "0000:02:02.0", "0000:00", 0),
        _port("0000:06:00.0", "0000:05:00.0", "0000:00", 0),
        _end("0000:07:00.0", "0000:06:00.0", "0000:00", 0),
        _port("0000:00:02.0", None, "0000:00", 0),
        _end("0000:08:00.0", "0000:00:02.0", "0000:00", 0),
        _port("0000:20:01.0", None, "0000:20", 0),
        _end("0000:21:00.0", "0000:20:01.0", "0000:20", 0),
        _port("0000:80:01.0", None, "0000:80", 1),
        _end("0000:81:00.0", "0000:80:01.0", "0000:80", 1),
    ]
    places = ["0000:03:00.0", "0000:07:00.0", "0000:08:00.0", "0000:21:00.0", "0000:81:00.0"]
    gpus = [
        Gpu(index=index, name="NVIDIA L40S", address=address, pcie=PcieLink(current_gen=1, max_gen=4, current_width=16))
        for index, address in enumerate(places)
    ]
    nics = [
        Nic(name="mlx5_0", rdma=True, address="0000:04:00.0"),
        Nic(name="mlx5_1", rdma=True, address="0000:04:00.1"),
        Nic(name="docker0", kind="bridge"),
    ]
    host = Host(
        cpu=Cpu(architecture="x86_64", vendor="AMD", family=25, model=17, sockets=2),
        numa_nodes=[NumaNode(id=0, cpus="0-31"), NumaNode(id=1, cpus="32-63")],
        hypervisor="none",
    )
    return Snapshot(gpus=gpus, nics=nics, pci=pci, host=host)


@pytest.fixture
def guest(links: Callable[..., list[NvLink]]) -> Snapshot:
    """Two H200 in a virtual machine: on the root bus, without bridges, their NVSwitches out of sight."""
    pci = [_end(f"0000:00:0{slot}.0", None, "0000:00", -1) for slot in (6, 7)]
    gpus = [
        Gpu(
            index=index,
            name="NVIDIA H200",
            address=device.address,
            numa_node=0,
            nvlinks=links(("hidden", 18)),
            pcie=PcieLink(current_gen=5, max_gen=5, current_width=16),
        )
        for index, device in enumerate(pci)
    ]
    host = Host(hypervisor="KVM", numa_nodes=[NumaNode(id=0, cpus="0-31")])
    return Snapshot(gpus=gpus, pci=pci, nics=[], host=host)


def _port(address: str, parent: str | None, root: str, numa: int) -> PciDevice:
    return PciDevice(
        address=address,
        parent=parent,
        root=root,
        numa_node=numa,
        class_code=BRIDGE,
        link_speed_gts=16.0,
        link_width=16,
        max_link_speed_gts=16.0,
        max_link_width=16,
    )


def _end(address: str, parent: str | None, root: str, numa: int) -> PciDevice:
    return PciDevice(
        address=address,
        parent=parent,
        root=root,
        numa_node=numa,
        link_speed_gts=2.5,
        link_width=16,
        max_link_speed_gts=16.0,
        max_link_width=16,
    )
