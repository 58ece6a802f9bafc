"""What vendors publish, beside what is set."""

from __future__ import annotations

import re

import pytest

from topoadvisor.hardware import tables, vendor_values
from topoadvisor.hardware.vendor_values import Line
from topoadvisor.nccl import settings

CLOUDS = ("aws", "azure", "gcp", "oci", "coreweave", "none")


def _lines(cloud: str, machine: str, there: dict[str, str], layers: tuple[str, ...] = ()) -> dict[str, Line]:
    profile = vendor_values.profile_of(cloud, machine, layers)
    assert profile is not None
    return {line.name: line for line in vendor_values.compare(profile, lambda name: there.get(name, ""))}


@pytest.mark.parametrize(
    ("cloud", "machine", "name"),
    [
        ("aws", "p4de.24xlarge", "aws-p4"),
        ("aws", "p5.48xlarge", "aws-p5"),
        ("aws", "p5.4xlarge", "aws-p5-small"),
        ("aws", "p5en.48xlarge", "aws-p5en"),
        ("aws", "p6-b200.48xlarge", "aws-p5en"),
        ("aws", "p6-b300.48xlarge", "aws-p6"),
        ("aws", "p6e-gb200.36xlarge", "aws-p6"),
        ("aws", "g5.48xlarge", "aws-g5"),
        ("azure", "NDv5", "azure-ndv5"),
        ("gcp", "a3-megagpu-8g", "gcp-a3-mega"),
        ("gcp", "a3-highgpu-8g or a3-megagpu-8g", None),
        ("oci", "BM.GPU.A100-v2.8", "oci-a100"),
        ("oci", "BM.GPU4.8", "oci-gpu4"),
        ("oci", "BM.GPU.GB200.4", "oci-gb200"),
        ("oci", "BM.GPU.GB200-v3.4", "oci-gb300"),
        ("none", "dgx-h100", "dgx"),
        ("none", "dgx-spark", "dgx-spark"),
        ("none", "none", None),
    ],
)
def test_the_profile_of_a_machine(cloud: str, machine: str, name: str | None) -> None:
    profile = vendor_values.profile_of(cloud, machine, ())
    assert (profile.name if profile else None) == name


def test_each_line_has_its_state() -> None:
    lines = _lines("oci", "BM.GPU.H200.8", {"NCCL_IB_TC": "106", "NCCL_IB_SL": "0", "NCCL_NET_PLUGIN": "none"})
    assert lines["NCCL_IB_TC"] == Line("NCCL_IB_TC", "differs", "41", "106")
    assert lines["NCCL_IB_SL"].state == "same"
    assert lines["NCCL_IB_GID_INDEX"].state == "missing"
    assert lines["NCCL_NET_PLUGIN"].state == "same"


def test_the_order_of_a_list_does_not_count_but_its_prefix_does() -> None:
    ports = "mlx5_11,mlx5_10,mlx5_9,mlx5_6,mlx5_5,mlx5_4,mlx5_3,mlx5_0"
    assert _lines("oci", "BM.GPU.H200.8", {"NCCL_IB_HCA": f"={ports}"})["NCCL_IB_HCA"].state == "same"
    assert _lines("oci", "BM.GPU.H200.8", {"NCCL_IB_HCA": ports})["NCCL_IB_HCA"].state == "differs"


def test_what_a_plugin_sets_is_left_to_it() -> None:
    lines = _lines("aws", "p5.48xlarge", {"NCCL_BUFFSIZE": "4194304", "FI_EFA_FORK_SAFE": "1"})
    assert lines["NCCL_NVLS_CHUNKSIZE"].state == "left to the plugin"
    assert lines["NCCL_BUFFSIZE"].state == "differs"
    assert lines["FI_EFA_FORK_SAFE"].state == "stale"


def test_stale_lines_of_one_machine_type() -> None:
    there = {"NCCL_ALGO": "Ring,Tree"}
    assert _lines("gcp", "a3-megagpu-8g", there)["NCCL_ALGO"].state == "stale"
    assert _lines("gcp", "a3-highgpu-8g", there)["NCCL_ALGO"].state == "same"


def test_optional_values_are_never_missing() -> None:
    assert "NCCL_NVLS_ENABLE" not in _lines("gcp", "a3-megagpu-8g", {})
    assert _lines("gcp", "a3-megagpu-8g", {"NCCL_NVLS_ENABLE": "0"})["NCCL_NVLS_ENABLE"].state == "differs"


def test_what_was_not_read_is_not_missing() -> None:
    profile = vendor_values.profile_of("azure", "NDv5", ())
    assert profile is not None
    assert {line.state for line in vendor_values.compare(profile, lambda _: None)} == {"not known"}


def test_every_profile_is_well_formed() -> None:
    table = tables.profiles()
    assert len({each.name for each in table.profiles}) == len(table.profiles)
    for source in table.sources.values():
        assert source.url
        assert source.read
    for profile in table.profiles:
        assert profile.cloud in CLOUDS
        re.compile(profile.machines)
        assert all(name in table.sources for name in profile.sources)
        parts = [{*profile.values}, {*profile.local}, {*profile.optional}, {*profile.stale}]
        assert len(set().union(*parts)) == sum(map(len, parts)), profile.name
        named = [name for part in parts for name in part if name.startswith("NCCL_")]
        unknown = [name for name in named if settings.find(name) is None and settings.family(name) is None]
        # Of CoreWeave's plugin; no NCCL reads it.
        assert set(unknown) <= {"NCCL_IB_NET_LATENCY"}, profile.name
    assert all(row.source in table.sources for rows in table.stale.values() for row in rows.values())
