"""A pasted matrix and what a person tells about the fault: the cause is named as a hypothesis, and only then."""

from __future__ import annotations

import io
from typing import Any

import pytest

from topoadvisor import advise
from topoadvisor.advice import Advice
from topoadvisor.ingest import assume, detect
from topoadvisor.snapshot import Assumption

LEGEND = "\nNIC Legend:\n\n  NIC0: {a}\n  NIC1: {b}\n"
MLX = {"near": "PIX", "a": "mlx5_0", "b": "mlx5_1"}
BONDS = {"near": "PIX", "a": "mlx5_bond_0", "b": "mlx5_bond_1"}
SPARK = {"near": "PIX", "a": "rocep1s0f1", "b": "roceP2p1s0f1"}
EFA = {"near": "PIX", "a": "rdmap79s0", "b": "rdmap80s0"}
FAR = {**MLX, "near": "NODE"}
SLOW = {"job.symptom": "slow", "job.nodes": 2}
H100 = {**SLOW, "gpu.name": "NVIDIA H100 80GB HBM3"}
GRACE = {**SLOW, "gpu.name": "NVIDIA GH200 480GB", "nccl.version": "2.21.5"}
AWS = {**H100, "platform.product": "p5.48xlarge", "job.transport": "NET/Socket"}
AZURE = {**H100, "platform.cloud": "azure"}
OCI = {**SLOW, "platform.cloud": "oci", "rdma.count": 18}
DOCKER = {"container.kind": "docker", "nccl.version": "2.25.1", "cuda.version": "12.8"}
NO_RDMA = {"rdma.any": False}
ONE = {"job.nodes": 1}
"""Facts as they are told."""

CASES = [
    ("NET001", MLX, {**H100, "peermem": False}, NO_RDMA),
    ("NET001", MLX, {**H100, "peermem": False}, {"gdr.dmabuf_possible": True}),
    ("NET003", MLX, GRACE, NO_RDMA),
    ("NET003", MLX, GRACE, {"nccl.version": "2.28.3"}),
    ("NET005", MLX, {**SLOW, "NCCL_NET_GDR_LEVEL": "LOC"}, NO_RDMA),
    ("NET012", MLX, {**SLOW, "NCCL_DMABUF_ENABLE": "0", "peermem": False}, {"peermem": True}),
    ("NET013", FAR, {**H100}, {"vm.guest": True}),
    ("NET013", FAR, {**H100}, {"job.symptom": "", "job.nodes": 0}),
    ("NET014", MLX, {**H100, "NCCL_NET_GDR_LEVEL": "SYS"}, ONE),
    ("NET024", MLX, {**SLOW, "NCCL_IB_DISABLE": "1"}, NO_RDMA),
    ("NET025", MLX, {**SLOW, "NCCL_NET": "Socket"}, NO_RDMA),
    ("NET030", MLX, {**SLOW, "NCCL_PXN_DISABLE": "1"}, {"rdma.gpu_local": ["mlx5_0"]}),
    (
        "NET038",
        SPARK,
        {**SLOW, "gpu.name": "NVIDIA GB10", "NCCL_IB_HCA": "rocep1s0f1"},
        {"NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1"},
    ),
    ("NET040", BONDS, SLOW, {"job.symptom": ""}),
    ("NET043", MLX, {**H100, "iommu.mode": "DMA-FQ"}, {"iommu.mode": "identity"}),
    ("NET044", MLX, {**H100, "acs": True}, {"acs": False}),
    (
        "P2P032",
        {**MLX, "link": "PXB"},
        {"job.symptom": "hang", "p2p": "OK", "iommu.mode": "DMA"},
        {"iommu.mode": "identity"},
    ),
    ("NET060", MLX, {**SLOW, "job.transport": "NET/Socket"}, NO_RDMA),
    ("SYS003", MLX, {**SLOW, "memlock": "64 KiB"}, {"memlock": "unlimited"}),
    ("CLD002", {**EFA, "gpus": "8"}, AWS, {"job.transport": "NET/OFI"}),
    ("CLD003", {**MLX, "gpus": "8"}, AZURE, {"NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml"}),
    ("CLD009", MLX, OCI, {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}),
    ("NVL004", MLX, {**H100, "nvlink.switch": True, "fabricmanager.state": "inactive"}, {"fabric.completed": True}),
    ("NVL004", MLX, {**H100, "nvlink.switch": True, "fabricmanager.state": "inactive"}, {"gpu.name": "NVIDIA GB200"}),
    ("SYS005", {**MLX, "link": "PHB"}, {**DOCKER, "job.symptom": "crash"}, {"job.symptom": "slow"}),
    ("VM002", {**MLX, "near": "PHB"}, {**H100, "vm.guest": True}, NO_RDMA),
]


def table(gpus: int, link: str, near: str) -> str:
    """A matrix in which each of two NICs is near to the GPU of its number."""
    labels = [*(f"GPU{number}" for number in range(gpus)), "NIC0", "NIC1"]

    def cell(row: str, column: str) -> str:
        if row == column:
            return " X "
        if row[:3] == column[:3]:
            return link if row.startswith("GPU") else "NODE"
        return near if row[3:] == column[3:] else "NODE"

    rows = ["\t".join([row, *(cell(row, column) for column in labels)]) for row in labels]
    return "\n".join(["\t" + "\t".join(labels), *rows]) + "\n"


def advice(names: dict[str, str], facts: dict[str, Any]) -> Advice:
    text = table(int(names.get("gpus", 2)), names.get("link", "NV18"), names["near"]) + LEGEND.format(**names)
    machine = detect.read(["-"], stdin=io.BytesIO(text.encode()))
    return advise.advise(assume.apply(machine, [Assumption(fact=fact, value=value) for fact, value in facts.items()]))


@pytest.mark.parametrize(("rule", "names", "facts", "other"), CASES)
def test_it_is_a_hypothesis_and_silent_on_the_similar_machine(
    rule: str, names: dict[str, str], facts: dict[str, Any], other: dict[str, Any]
) -> None:
    """A matrix names devices and not their state: nothing is set or taken out by itself."""
    found = advice(names, facts)
    (finding,) = [each for each in found.findings if each.id == rule]
    assert finding.hypothesis
    assert finding.advice[0].command
    assert len(finding.advice) > 1
    assert "unknown" not in finding.message
    assert not found.settings
    assert rule not in {each.id for each in advice(names, {**facts, **other}).findings}


@pytest.mark.parametrize("names", [MLX, BONDS, FAR])
def test_a_matrix_of_which_nothing_was_told_says_nothing(names: dict[str, str]) -> None:
    assert not advice(names, {}).findings


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ({"NCCL_SOCKET_IFNAME": "^docker0", "job.nodes": 2}, "NET022"),
        ({"GLOO_SOCKET_IFNAME": "=eth0"}, "NET033"),
        ({"GLOO_SOCKET_IFNAME": "^docker"}, "NET033"),
        ({"vm.guest": True, "gpu.name": "NVIDIA H100 80GB HBM3"}, "VM001"),
    ],
)
def test_what_the_value_alone_shows_is_said_flatly(facts: dict[str, Any], rule: str) -> None:
    (finding,) = [each for each in advice({**MLX, "near": "PHB"}, facts).findings if each.id == rule]
    assert not finding.hypothesis
