from __future__ import annotations

import msgspec
import pytest

from topoadvisor.ingest import detect
from topoadvisor.snapshot import Cpu, Gpu, Host, NumaNode, PciDevice, Snapshot
from topoadvisor.topology import reconcile
from topoadvisor.topology.graph import build
from topoadvisor.topology.model import Disagreement, in_words


def test_the_first_known_value_counts() -> None:
    found: list[Disagreement] = []
    settled = reconcile.settle("gpu:0", "thing", [("first", None), ("second", "1"), ("third", "1")], "why", found)
    assert settled == ("1", "second")
    assert found == []
    settled = reconcile.settle("gpu:0", "thing", [("first", "2"), ("second", "1")], "because", found)
    assert settled == ("2", "first")
    assert found == [Disagreement("gpu:0", "thing", (("first", "2"), ("second", "1")), "2", "because")]
    assert reconcile.settle("gpu:0", "thing", [("first", None)], "why", found) == (None, None)


def flat(count: int, name: str, hypervisor: str | None) -> Snapshot:
    pci = [PciDevice(address=f"0000:00:{slot:02x}.0", root="0000:00", numa_node=-1) for slot in range(count)]
    gpus = [Gpu(index=index, name=name, address=device.address, nvlinks=[]) for index, device in enumerate(pci)]
    return Snapshot(gpus=gpus, pci=pci, host=Host(hypervisor=hypervisor))


def test_switches_are_hidden_where_the_guest_is_flat_and_the_boards_cannot_be() -> None:
    hides = {
        (2, "NVIDIA H200", "KVM"): True,
        (2, "NVIDIA H200", "none"): False,
        (2, "NVIDIA H200", None): False,
        (4, "NVIDIA L40S", "KVM"): False,
        (8, "NVIDIA L40S", "KVM"): True,
        (1, "Some GPU", "KVM"): False,
    }
    for (count, name, hypervisor), expected in hides.items():
        assert build(flat(count, name, hypervisor)).attributes["hidden_pcie_switches"] is expected, (count, name)


def test_passthrough_is_a_guest_too() -> None:
    snapshot = flat(2, "NVIDIA H200", None)
    gpus = [msgspec.structs.replace(gpu, virtualization="passthrough") for gpu in snapshot.gpus]
    assert reconcile.is_guest(msgspec.structs.replace(snapshot, gpus=gpus))


def test_numa_nodes_that_differ(server: Snapshot) -> None:
    gpus = [msgspec.structs.replace(gpu, numa_node=1 if gpu.index in (0, 4) else 0) for gpu in server.gpus]
    topology = build(msgspec.structs.replace(server, gpus=gpus))
    (found,) = topology.disagreements
    assert (found.subject, found.quantity, found.believed) == ("gpu:0", "NUMA node", "0")
    assert found.values == (("sysfs", "0"), ("nvml", "1"))


def test_sentences_name_devices_as_people_write_them() -> None:
    disagreement = Disagreement(
        "gpu:0-nic:mlx5_bond.0", "PCIe class", (("sysfs", "PIX"), ("nvml", "SYS")), "PIX", "Why."
    )
    assert str(disagreement) == "Sources disagree on GPU0-mlx5_bond.0 PCIe class: sysfs says PIX, nvml says SYS. Why."
    assert in_words("gpu:3: printed with NUMA node 0, but numa:1") == "GPU3: printed with NUMA node 0, but NUMA node 1"


P2P = """
$ nvidia-smi topo -m
\tGPU0\tGPU1\tGPU2
GPU0\t X \t{0}\tPHB
GPU1\t{0}\t X \tPHB
GPU2\tPHB\tPHB\t X
$ nvidia-smi topo -p2p {1}
\tGPU0\tGPU1\tGPU2
GPU0\tX\t{2}\tOK
GPU1\t{3}\tX\tOK
GPU2\tOK\tOK\tX
"""


def said(*cells: str) -> list[str]:
    snapshot = detect.from_bytes(P2P.format(*cells).encode(), file="paste")
    found = [each for each in build(snapshot).disagreements if "PHB" not in str(each)]
    return [str(each).partition(". ")[0] for each in found]


def test_p2p_tables_that_contradict_the_links_or_themselves_are_told() -> None:
    assert said("PHB", "r", "OK", "OK") == said("PHB", "w", "NS", "NS") == []
    assert said("NV4", "r", "OK", "TNS") == [
        "Sources disagree on GPU1→GPU0 P2P read: the driver says TNS, the driver about the other direction says OK"
    ]
    over = "peer traffic over NVLink"
    no_link = f"Sources disagree on GPU0-GPU2, GPU1-GPU2 {over}: nvidia-smi topo -m says no NVLink"
    assert said("NV4", "n", "OK", "NS") == [
        f"Sources disagree on GPU0-GPU1 {over}: nvidia-smi topo -m says NVLink, the driver's P2P answer says NS",
        f"{no_link}, the driver's P2P answer says OK",
    ]


def near(cpus: str | None, node: int | None, *nodes: str, online: str | None = None) -> list[Disagreement]:
    """What is told of two GPUs with these CPUs on this node, where the NUMA nodes of the host have `nodes`."""
    listed = [NumaNode(id=id, cpus=text) for id, text in enumerate(nodes)]
    gpus = [Gpu(index=index, cpu_affinity=cpus, numa_node=node) for index in (0, 1)]
    origins = {"gpu:0.cpu_affinity": "nvidia-smi topo -m", "gpu:0.numa_node": "nvidia-smi topo -m"}
    host = Host(numa_nodes=listed or None, cpu=Cpu(online=online) if online else None)
    told = origins | {"host.numa_nodes": "lscpu", "host.cpu.online": "lscpu"}
    return list(reconcile.cpus(Snapshot(gpus=gpus, host=host, origins=told)))


@pytest.mark.parametrize(
    ("found", "values"),
    [
        (near("0-31", 0, "0-15"), ("CPUs 0-31", "CPUs 0-15")),
        (near("0-31", None, online="0-15"), ("CPUs 0-31", "CPUs 0-15")),
        (near("0-15", 1, "0-15", "16-31"), ("CPUs 0-15", "CPUs 16-31 on NUMA node 1")),
        (near("0-31", 0, "0-15", "16-63"), ("CPUs 0-31", "CPUs 0-15 on NUMA node 0")),
        (near("0-15", 5, "0-15", "16-31"), ("NUMA node 5", "NUMA nodes 0-1")),
        (near(None, 2, "0-15", "16-31"), ("NUMA node 2", "NUMA nodes 0-1")),
    ],
)
def test_gpus_near_cpus_that_the_host_has_not(found: list[Disagreement], values: tuple[str, str]) -> None:
    (told,) = found
    assert told.values == (("nvidia-smi topo -m", values[0]), ("lscpu", values[1]))
    assert told.subject == "gpu:0, gpu:1"


@pytest.mark.parametrize(
    "found",
    [
        near("0-15", 0, "0-15", "16-31"),
        near("0-3", 0, "0-15", "16-31"),
        near("0-31", 0, "0-15", "16-31", "32-47"),
        near("16-31", 1, "0-15", "16-31", ""),
        near("0-15", -1, "0-15"),
        near("0-15", 0),
        near(None, None, "0-15"),
        near("N/A", 0, "0-15"),
    ],
)
def test_cpus_that_can_be_near_a_gpu(found: list[Disagreement]) -> None:
    assert found == []
