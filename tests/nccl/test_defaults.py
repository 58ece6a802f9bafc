"""NCCL's default levels by version and machine."""

from itertools import product

import pytest

from topoadvisor.nccl import defaults
from topoadvisor.nccl.levels import NcclPath

SKYLAKE = {"arch": "x86_64", "cpu_vendor": "Intel", "cpu_family": 6, "cpu_model": 0x55}
BROADWELL = {"arch": "x86_64", "cpu_vendor": "Intel", "cpu_family": 6, "cpu_model": 0x4F}
AMD = {"arch": "x86_64", "cpu_vendor": "AMD", "cpu_family": 23, "cpu_model": 49}
ZHAOXIN = {"arch": "x86_64", "cpu_vendor": "Zhaoxin"}
OTHER_X86 = {"arch": "x86_64", "cpu_vendor": "Hygon"}
ARM = {"arch": "aarch64", "cpu_vendor": "NVIDIA"}
POWER = {"arch": "ppc64le", "cpu_vendor": "IBM"}
MACHINES = [SKYLAKE, BROADWELL, AMD, ZHAOXIN, OTHER_X86, ARM, POWER]
VERSIONS = ["2.6.4", "2.7.3", "2.8.3", "2.8.4", "2.9.6", "2.12.7", "2.22.3", "2.23.4", "2.28.9", "2.30.7"]


@pytest.mark.parametrize(
    ("machine", "levels"),
    [
        (SKYLAKE, "SYS PHB PHB PHB PXB PXB PXB PXB PXB PXB"),
        (BROADWELL, "PXB PXB PXB PXB PXB PXB PXB PXB PXB PXB"),
        (AMD, "SYS SYS SYS SYS SYS SYS SYS PXB PXB PXB"),
        (ZHAOXIN, "SYS SYS SYS PXB PXB PXB PXB PXB PXB PXB"),
        (OTHER_X86, "SYS SYS SYS SYS SYS SYS SYS PXB PXB PXB"),
        (ARM, "PXB PXB PXB PXB PXB PXB PXB PXB PXB PXB"),
        (POWER, "SYS SYS SYS SYS SYS SYS SYS PXB PXB PXB"),
    ],
    ids=["skylake", "broadwell", "amd", "zhaoxin", "other-x86", "arm", "power"],
)
def test_eight_gpus(machine: dict[str, object], levels: str) -> None:
    got = [defaults.p2p_level(version, gpus=8, **machine) for version in VERSIONS]  # type: ignore[arg-type]
    assert [level and level.name for level in got] == levels.split()


def test_two_gpus_make_a_difference_on_amd_since_2_23_4() -> None:
    for machine, gpus in product(MACHINES, (1, 2, 3)):
        expected = NcclPath.SYS if machine is AMD and gpus <= 2 else NcclPath.PXB
        assert defaults.p2p_level("2.23.4", gpus=gpus, **machine) is expected  # type: ignore[arg-type]


def test_what_does_not_matter_need_not_be_known() -> None:
    unknown = {"arch": None, "cpu_vendor": None}
    assert defaults.p2p_level("2.28.9", gpus=8, **unknown) is NcclPath.PXB
    assert defaults.p2p_level("2.28.9", arch="x86_64", cpu_vendor="Intel", gpus=None) is NcclPath.PXB
    assert defaults.p2p_level("2.28.9", arch="aarch64", cpu_vendor=None, gpus=None) is NcclPath.PXB
    assert defaults.p2p_level("2.12.7", arch="x86_64", cpu_vendor="Intel", gpus=None) is NcclPath.PXB
    assert defaults.p2p_level("2.12.7", arch=None, cpu_vendor="AMD", gpus=None) is NcclPath.SYS
    assert defaults.p2p_level(None, arch="aarch64", cpu_vendor=None, gpus=8) is NcclPath.PXB
    assert defaults.p2p_level(None, gpus=8, **BROADWELL) is NcclPath.PXB  # type: ignore[arg-type]
    assert defaults.p2p_level("2.7.3", arch="x86_64", cpu_vendor="Intel", cpu_model=0x4F, gpus=8) is NcclPath.PXB
    assert defaults.p2p_level("2.7.3", arch="x86_64", cpu_vendor="Intel", cpu_family=15, gpus=8) is NcclPath.PXB


def test_what_matters_and_is_not_known_leaves_it_open() -> None:
    unknown = {"arch": None, "cpu_vendor": None}
    assert defaults.p2p_level("2.28.9", gpus=2, **unknown) is None
    assert defaults.p2p_level("2.28.9", arch="x86_64", cpu_vendor="AMD", gpus=None) is None
    assert defaults.p2p_level("2.12.7", arch="x86_64", cpu_vendor=None, gpus=8) is None
    assert defaults.p2p_level("2.7.3", arch="x86_64", cpu_vendor="Intel", gpus=8) is None
    assert defaults.p2p_level("2.7.3", arch="x86_64", cpu_vendor="Intel", cpu_model=0x6A, gpus=8) is None
    assert defaults.p2p_level(None, gpus=8, **AMD) is None  # type: ignore[arg-type]
    assert defaults.p2p_level("2.5.7", gpus=8, **AMD) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "c2c", "level"),
    [
        ("2.4.8", True, "PXB"),
        ("2.28.9", None, "PXB"),
        ("2.28.9", True, "PXB"),
        ("2.29.2", True, "P2C"),
        ("2.29.2", False, "PXB"),
        ("2.30.7", None, None),
        (None, False, "PXB"),
        (None, True, None),
        (None, None, None),
    ],
)
def test_gdr_level(version: str | None, c2c: bool | None, level: str | None) -> None:
    got = defaults.gdr_level(version, c2c=c2c)
    assert (got and got.name) == level


@pytest.mark.parametrize(
    ("name", "value", "version", "default"),
    [
        ("NCCL_IB_TIMEOUT", "20", "2.28.9", True),
        ("NCCL_IB_TIMEOUT", "0x14", "2.23.4", True),
        ("NCCL_IB_TIMEOUT", "18", "2.28.9", False),
        ("NCCL_IB_TIMEOUT", "18", "2.22.3", True),
        ("NCCL_IB_TIMEOUT", "14", "2.8.4", True),
        ("NCCL_IB_TIMEOUT", "20", None, False),
        ("NCCL_IB_RETRY_CNT", "7", None, True),
        ("NCCL_IB_RETRY_CNT", "7 times", None, True),
        ("NCCL_IB_RETRY_CNT", "", None, False),
        ("NCCL_PXN_DISABLE", "0", "2.8.4", False),
        ("NCCL_P2P_DISABLE", "0", "2.28.9", True),
        ("NCCL_P2P_DISABLE", "1", "2.28.9", False),
        ("NCCL_ALGO", "Ring", "2.28.9", False),
        ("NCCL_NOBODY_KNOWS", "1", None, False),
    ],
)
def test_constants_by_version(name: str, value: str, version: str | None, default: bool) -> None:
    assert defaults.is_default(name, value, version) is default
