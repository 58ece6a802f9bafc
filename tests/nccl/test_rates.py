from __future__ import annotations

import pytest

from topoadvisor.hardware import catalogue, tables
from topoadvisor.nccl import rates


@pytest.mark.parametrize(
    ("version", "capability", "gbps"),
    [
        ("2.30.7", 60, 18),
        ("2.30.7", 70, 20),
        ("2.30.7", 75, 20),
        ("2.30.7", 80, 20),
        ("2.30.7", 86, 12),
        ("2.30.7", 87, 20),
        ("2.30.7", 89, 20),
        ("2.30.7", 90, 20.6),
        ("2.30.7", 100, 40.1),
        ("2.30.7", 120, 40.1),
        ("2.30.7", 52, 20),
        ("2.30.7", -1, 20),
        ("2.27.3", 100, 40),
        ("2.24.3", 100, 20.6),
        ("2.19.4", 90, 20),
        ("2.31.0", 90, 20.6),
    ],
)
def test_one_nvlink(version: str, capability: int, gbps: float) -> None:
    assert rates.nvlink_gbps(rates.rules(version), capability) == gbps


@pytest.mark.parametrize(
    ("version", "arch", "vendor", "family", "model", "gbps"),
    [
        (None, "x86_64", "GenuineIntel", 6, 0x4F, 6),
        (None, "x86_64", "GenuineIntel", 6, -1, 6),
        (None, "x86_64", "GenuineIntel", 6, 0x55, 10),
        (None, "x86_64", "GenuineIntel", 6, 0x6A, 10),
        (None, "x86_64", "GenuineIntel", 6, 0x8F, 22),
        (None, "x86_64", "GenuineIntel", 6, 0xCF, 40),
        (None, "x86_64", "GenuineIntel", 19, 1, 6),
        (None, "x86_64", "GenuineIntel", None, None, None),
        ("2.25.1", "x86_64", "GenuineIntel", 6, 0xCF, 10),
        (None, "x86_64", "AuthenticAMD", 175, 1, 16),
        ("2.18.6", "x86_64", "AuthenticAMD", 175, 1, 5000),
        (None, "x86_64", "CentaurHauls", 7, 0x5B, 9),
        (None, "x86_64", "  Shanghai  ", 7, 0x3B, 6),
        (None, "x86_64", "CentaurHauls", None, None, None),
        (None, "x86_64", "HygonGenuine", 24, 1, 5000),
        (None, "arm64", "", None, None, 6),
        (None, "ppc64", "", None, None, 32),
        (None, "riscv64", "", None, None, 5000),
    ],
)
def test_between_cpus(
    version: str | None, arch: str, vendor: str, family: int | None, model: int | None, gbps: float | None
) -> None:
    assert rates.between_cpus(rates.rules(version), arch, vendor, family, model) == gbps


@pytest.mark.parametrize(
    ("speed", "width", "gbps"),
    [
        ("2.5 GT/s PCIe", 16, 3),
        ("5.0 GT/s PCIe", 16, 6),
        ("8.0 GT/s PCIe", 16, 12),
        ("16.0 GT/s PCIe", 8, 12),
        ("16 GT/s", 16, 24),
        ("32.0 GT/s PCIe", 0, 48),
        ("64.0 GT/s PCIe", 16, 96),
        ("64.0 GT/s", 16, 12),
        ("16.0 GT/s", 16, 12),
        ("", 16, 12),
        ("Unknown", 1, 0.75),
    ],
)
def test_pcie_links_by_how_the_text_begins(speed: str, width: int, gbps: float) -> None:
    assert rates.pcie_gbps(speed, width) == gbps


def test_older_releases_are_not_known() -> None:
    with pytest.raises(ValueError, match=r"before 2\.18\.1"):
        rates.rules("2.17.1")


def test_the_hardware_tables_say_the_same() -> None:
    newest = rates.rules(None)
    for kind in tables.links().nvlink:
        for text in kind.compute_capabilities if kind.nccl_gbps is not None else ():
            assert rates.nvlink_gbps(newest, int(text.replace(".", ""))) == kind.nccl_gbps
    for vendor, name in (("Intel", "GenuineIntel"), ("AMD", "AuthenticAMD")):
        for number in (0x4F, 0x55, 0x6A, 0x8F, 0xAD, 0xCF):
            model = catalogue.cpu_model(vendor, 6, number)
            assert model is not None
            assert rates.between_cpus(newest, "x86_64", name, 6, number) == model.nccl_gbps
    intel = catalogue.cpu_model("Intel", 6, 0x8F)
    assert intel is not None
    assert intel.nccl_p2p_overhead == rates.INTEL_P2P_OVERHEAD
