"""The register of NCCL's variables."""

import csv
import re
from pathlib import Path

import pytest

from topoadvisor.nccl import versions
from topoadvisor.nccl.settings import registry

TABLE = Path(__file__).resolve().parents[2] / "../shared/knowledge/nccl_env.tsv"


def test_every_entry_is_whole() -> None:
    for name, info in registry().items():
        assert name == info.name
        assert re.fullmatch(r"NCCL_[A-Z0-9_]+", name), name
        assert info.what.endswith("."), name
        assert len(info.what) < 100, name
        for version in (info.since, info.removed):
            assert version is None or versions.is_version(version), name
        if info.since and info.removed:
            assert versions.parse(info.since) < versions.parse(info.removed), name


def test_versions_stay_texts() -> None:
    assert registry()["NCCL_NET"].since == "2.10.3"
    assert registry()["NCCL_RINGS"].removed == "2.5.6"
    assert registry()["NCCL_SINGLE_RING_THRESHOLD"].since is None


@pytest.mark.parametrize(
    ("name", "parser", "setting_class"),
    [
        ("NCCL_P2P_LEVEL", "level", "workaround"),
        ("NCCL_NET_GDR_LEVEL", "level", "workaround"),
        ("NCCL_NET_MERGE_LEVEL", "merge-level", "tuning"),
        ("NCCL_P2P_DISABLE", "bool-int", "workaround"),
        ("NCCL_SHM_DISABLE", "bool-int", "workaround"),
        ("NCCL_IB_DISABLE", "bool-int", "workaround"),
        ("NCCL_ALGO", "algo", "tuning"),
        ("NCCL_PROTO", "proto", "tuning"),
        ("NCCL_BUFFSIZE", "int", "tuning"),
        ("NCCL_NTHREADS", "int", "tuning"),
        ("NCCL_MIN_NCHANNELS", "int", "tuning"),
        ("NCCL_SOCKET_IFNAME", "ifname", "system"),
        ("NCCL_IB_HCA", "hca", "system"),
        ("NCCL_TOPO_FILE", "path", "system"),
        ("NCCL_DEBUG", "debug", "diagnostic"),
        ("NCCL_DEBUG_SUBSYS", "list", "diagnostic"),
    ],
)
def test_classes_and_readings(name: str, parser: str, setting_class: str) -> None:
    info = registry()[name]
    assert (info.parser, info.setting_class) == (parser, setting_class)


@pytest.mark.parametrize(
    "name", ["NCCL_ASYNC_ERROR_HANDLING", "NCCL_TIMEOUT", "NCCL_MAX_P2P_PEERS", "NCCL_GIN_ENABLED"]
)
def test_names_that_nccl_never_read_are_not_known(name: str) -> None:
    assert name not in registry()


@pytest.mark.skipif(not TABLE.is_file(), reason="the table of variables is not here")
def test_the_register_holds_exactly_what_core_nccl_reads() -> None:
    with TABLE.open() as stream:
        rows = {row["name"]: row for row in csv.DictReader(stream, delimiter="\t") if row["scope"] == "core"}
    assert set(registry()) == set(rows)
    for name, info in registry().items():
        row = rows[name]
        assert (info.since or "never", info.removed or "") == (row["since"], row["removed"]), name
        if info.setting_class == "system":
            assert not row["documented_category"].startswith("debugging"), name
