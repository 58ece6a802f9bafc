"""What NCCL's defaults come to on a machine."""

from __future__ import annotations

import pytest

from topoadvisor.nccl.defaults import Machine, default
from topoadvisor.nccl.settings import registry

HGX_H100 = Machine(
    arch="x86_64",
    cpu_vendor="Intel",
    cpu_family=6,
    cpu_model=0x8F,
    gpus=8,
    compute_capability=9.0,
    nvlink=True,
    nvswitch=True,
    c2c=False,
    cuda="12.8",
)
TWO_4090_AMD = Machine(
    arch="x86_64",
    cpu_vendor="AMD",
    cpu_family=25,
    cpu_model=1,
    gpus=2,
    compute_capability=8.9,
    nvlink=False,
    nvswitch=False,
    c2c=False,
    cuda="12.4",
)
GH200 = Machine(
    arch="aarch64", cpu_vendor="NVIDIA", gpus=1, compute_capability=9.0, nvlink=False, c2c=True, cuda="13.0"
)
V100_PAIR = Machine(arch="x86_64", cpu_vendor="Intel", gpus=2, compute_capability=7.0, nvlink=False, cuda="11.4")


@pytest.mark.parametrize(
    ("name", "version", "machine", "value", "here"),
    [
        ("NCCL_P2P_LEVEL", None, HGX_H100, "PXB; SYS on an AMD CPU with at most two GPUs", "PXB"),
        ("NCCL_P2P_LEVEL", None, TWO_4090_AMD, "PXB; SYS on an AMD CPU with at most two GPUs", "SYS"),
        (
            "NCCL_P2P_LEVEL",
            "2.8.3",
            HGX_H100,
            "SYS; PXB on ARM and on Intel up to Broadwell, PHB on other Intel",
            "PHB",
        ),
        ("NCCL_NET_GDR_LEVEL", "2.28.9", GH200, "PXB", "PXB"),
        ("NCCL_NET_GDR_LEVEL", "2.29.2", GH200, "P2C; PXB when NCCL_NET_GDR_C2C is 0", "P2C"),
        ("NCCL_NET_GDR_READ", None, HGX_H100, "-2", "on"),
        ("NCCL_NET_GDR_READ", "2.18.1", TWO_4090_AMD, "-2", "off"),
        ("NCCL_NET_GDR_READ", "2.19.1", TWO_4090_AMD, "-2", "on"),
        ("NCCL_NET_GDR_READ", None, V100_PAIR, "-2", "off"),
        ("NCCL_NET_GDR_READ", "2.12.7", GH200, "-2", "on"),
        ("NCCL_NET_GDR_READ", None, Machine(), "-2", None),
        ("NCCL_CUMEM_ENABLE", "2.18.1", HGX_H100, "0", "off"),
        ("NCCL_CUMEM_ENABLE", None, HGX_H100, "-2", "on"),
        ("NCCL_CUMEM_ENABLE", None, V100_PAIR, "-2", "off"),
        ("NCCL_CUMEM_ENABLE", None, Machine(), "-2", None),
        ("NCCL_CUMEM_HOST_ENABLE", None, TWO_4090_AMD, "-1", "off"),
        ("NCCL_CUMEM_HOST_ENABLE", None, HGX_H100, "-1", "on"),
        ("NCCL_CUMEM_HOST_ENABLE", "2.23.4", HGX_H100, "0", "off"),
        ("NCCL_NVLS_ENABLE", None, HGX_H100, "2", "on where the GPU reports multicast"),
        ("NCCL_NVLS_ENABLE", None, TWO_4090_AMD, "2", "off"),
        ("NCCL_NVLS_ENABLE", None, Machine(compute_capability=9.0), "2", None),
        ("NCCL_CGA_CLUSTER_SIZE", None, HGX_H100, "unset: the communicator's configuration decides", "4"),
        ("NCCL_CGA_CLUSTER_SIZE", None, V100_PAIR, "unset: the communicator's configuration decides", "0"),
        ("NCCL_P2P_READ_ENABLE", None, HGX_H100, "-2", "off"),
        ("NCCL_P2P_READ_ENABLE", None, Machine(compute_capability=8.0, nvlink=True), "-2", "on"),
        ("NCCL_NET_OVERHEAD", None, TWO_4090_AMD, "-2", "2000"),
        ("NCCL_CROSS_NIC", None, Machine(), "2", None),
        ("NCCL_IB_TIMEOUT", "2.7.8", Machine(), "14", None),
        ("NCCL_NVLS_ENABLE", "2.16.5", HGX_H100, None, None),
        ("NCCL_TREE_THRESHOLD", None, HGX_H100, None, None),
    ],
)
def test_defaults(name: str, version: str | None, machine: Machine, value: str | None, here: str | None) -> None:
    found = default(registry()[name], version, machine)
    assert (found.value, found.here) == (value, here)
    assert found.why


@pytest.mark.parametrize(
    ("version", "capability", "ll128"),
    [("2.26.6", 8.6, False), ("2.27.3", 8.6, True), ("2.17.1", 9.0, False), ("2.18.1", 9.0, True), (None, 6.0, False)],
)
def test_ll128_is_on_by_itself_only_where_it_was_tested(version: str | None, capability: float, ll128: bool) -> None:
    found = default(registry()["NCCL_PROTO"], version, Machine(compute_capability=capability))
    assert ("LL128" in str(found.here)) is ll128


def test_every_variable_has_an_answer_in_every_release() -> None:
    for info in registry().values():
        for version in (None, "2.7.3", "2.18.1", "2.23.4", "2.28.9", "2.32.3"):
            found = default(info, version, Machine())
            assert (found.value is not None) or not info.exists_in(version) or "not known" in found.why, info.name
