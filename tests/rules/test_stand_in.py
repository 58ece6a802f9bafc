"""A bundled machine stands for the nearest one: what was told of that one is not held against the bundled one."""

from __future__ import annotations

import io
from typing import Any

import pytest

from topoadvisor import advise
from topoadvisor.ingest import assume, detect
from topoadvisor.snapshot import Assumption

OTHERS = [
    ("dgx-h100", {"NCCL_SOCKET_IFNAME": "eth0", "job.nodes": 2}, "NET020"),
    ("dgx-a100", {"GLOO_SOCKET_IFNAME": "bond0"}, "NET033"),
    ("dgx-h100", {"NCCL_IB_HCA": "mlx5_bond_0", "job.nodes": 2}, "NET011"),
    ("4xa100-pcie", {"NCCL_IB_HCA": "ibp0,ibp1", "job.nodes": 2}, "NET072"),
    ("8x4090", {"NCCL_IB_HCA": "mlx5_0", "job.nodes": 2}, "NET050"),
    ("8x4090", {"job.transport": "NET/IB", "NCCL_IB_TC": "106", "job.nodes": 2}, "NET050"),
    ("dgx-h100", {"NCCL_IB_GID_INDEX": "3", "job.nodes": 2}, "NET057"),
    ("dgx-h100", {"NCCL_NET": "AWS Libfabric", "job.nodes": 2}, "NET035"),
    ("dgx-h100", {"NVSHMEM_IB_ENABLE_IBGDA": "1", "job.nodes": 2}, "NET046"),
    ("dgx-h100", {"NCCL_IB_HCA": "mlx4_0", "job.transport": "NET/Socket", "symptom": "slow", "job.nodes": 2}, "NET087"),
    ("8x4090", {"NCCL_P2P_LEVEL": "NVL"}, "ENV009"),
    ("dgx-a100", {"driver.version": "535.161.08"}, "NVL019"),
    ("dgx-a100", {"gpu.name": "NVIDIA H100 80GB HBM3"}, "NVL002"),
    ("8xl40s", {"gpu.name": "NVIDIA B200"}, "NVL002"),
    ("8x4090", {"pcie.gen": 3}, "PCI002"),
]
"""What is not concluded."""

THEIR_OWN = [
    ("dgx-h100", {"NCCL_SOCKET_IFNAME": "^docker0", "job.nodes": 2}, "NET022"),
    ("dgx-h100", {"NCCL_IB_HCA": "mlx5_0", "job.nodes": 2}, "NET009"),
    ("dgx-h100", {"NCCL_IB_HCA": "mlx4_0", "transport": "NET/Socket", "symptom": "slow", "nodes": 2}, "NET060"),
    ("dgx-h100", {"NCCL_IB_GID_INDEX": "3", "rdma.link_layer": "InfiniBand"}, "NET057"),
    ("dgx-a100", {"driver.version": "535.161.08", "fabricmanager.version": "535.129.03"}, "NVL019"),
    ("dgx-h100", {"driver.version": "535.129.03", "fabricmanager.version": "535.104.05"}, "NVL019"),
    ("dgx-h100", {"message": "7[7] -> 8[0] [receive] via NET/Socket/0", "nodes": 2}, "NET060"),
    ("gh200", {"gpu.name": "NVIDIA GB200", "NCCL_MNNVL_ENABLE": "0", "nodes": 4}, "NVL014"),
    ("dgx-h100", {"rdma.link_layer": "Ethernet", "nic.mtu": 1500, "nodes": 2}, "NET041"),
    ("dgx-h100", {"NCCL_IB_HCA": "mlx5_bond_0", "symptom": "slow", "nodes": 2}, "NET040"),
    ("dgx-h100", {"NVSHMEM_IB_ENABLE_IBGDA": "1", "message": "ibgda_nic_mem_gpu_map failed", "nodes": 2}, "NET046"),
    ("dgx-a100", {"gpu.nvlinks.active": 11}, "NVL002"),
    ("8x4090", {"pcie.gen": 3, "symptom": "slow"}, "PCI002"),
    ("dgx-h100", {"fabricmanager": "inactive"}, "NVL004"),
    ("dgx-h100", {"platform.product": "p5.48xlarge", "transport": "NET/Socket", "nodes": 2}, "CLD002"),
    ("dgx-h100", {"platform.cloud": "azure", "nodes": 2}, "CLD003"),
    ("dgx-h100", {"platform.product": "BM.GPU.H100.8", "nodes": 2}, "CLD009"),
    ("dgx-h100", {"vm.guest": True, "nodes": 2, "symptom": "slow"}, "VM002"),
]
"""What is."""


def said(machine: str, facts: dict[str, Any]) -> tuple[set[str], dict[str, str | None]]:
    read = detect.read([f"fixture:{machine}"], stdin=io.BytesIO())
    told = [Assumption(fact=fact, value=value) for fact, value in facts.items()]
    advice = advise.advise(assume.apply(read, told))
    return {each.id for each in advice.findings}, {each.name: each.value for each in advice.settings}


@pytest.mark.parametrize(("machine", "facts", "rule"), OTHERS)
def test_what_the_bundled_machine_has_refutes_nothing(machine: str, facts: dict[str, Any], rule: str) -> None:
    findings, settings = said(machine, facts)
    assert rule not in findings
    assert not any(settings.get(name) for name in facts)


@pytest.mark.parametrize(("machine", "facts", "rule"), THEIR_OWN)
def test_what_was_told_is_judged(machine: str, facts: dict[str, Any], rule: str) -> None:
    assert rule in said(machine, facts)[0]


def test_no_interface_of_the_bundled_machine_is_advised_for_another() -> None:
    message = "NCCL WARN Bootstrap : no socket interface found"
    findings, settings = said("dgx-h100", {"NCCL_SOCKET_IFNAME": "eth0", "message": message, "nodes": 2})
    assert "NET066" in findings
    assert settings == {"NCCL_SOCKET_IFNAME": None}


def test_one_rule_speaks_of_a_fault_of_gloo() -> None:
    message = "RuntimeError: Unable to find address for: =eth0"
    findings, _ = said("dgx-h100", {"GLOO_SOCKET_IFNAME": "=eth0", "message": message, "nodes": 2})
    assert "NET061" in findings
    assert "NET033" not in findings
