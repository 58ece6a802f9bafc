"""The register of variables."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from topoadvisor.nccl import defaults, reading, settings, versions
from topoadvisor.nccl.settings import SettingInfo, inventions, neighbours, registry
from topoadvisor.rules.load import load
from topoadvisor.rules.model import Rule
from topoadvisor.rules.wellformed import conditions

TABLE = Path(__file__).resolve().parents[2] / "../shared/knowledge/nccl_env.tsv"
EVERY = {**registry(), **neighbours()}


def test_every_entry_is_whole() -> None:
    for name, info in EVERY.items():
        assert name == info.name
        assert re.fullmatch(r"[A-Z][A-Z0-9_]+", name), name
        assert info.what.endswith("."), name
        assert len(info.what) < 140, name
        beyond = re.search(r"\b(such(?! as)|these|that (library|queue|order|start-up|thread))\b", info.what)
        assert not beyond, f"{name}: explain shows one row alone, and {beyond} speaks of another"
        assert re.match(r"https://|wheel nvidia-nccl-cu13 [0-9.]+: ", info.source), name
        for version in (info.since, info.removed):
            assert version is None or versions.is_version(version), name
        if info.since and info.removed:
            assert versions.parse(info.since) < versions.parse(info.removed), name
        for pitfall in info.pitfalls:
            assert pitfall.endswith("."), name
        for other in (info.replacement, info.replaces):
            assert other is None or other in EVERY, name
        if info.history:
            ages = [versions.parse(since) for since in info.history]
            assert ages == sorted(ages), name
            assert list(info.history.values())[-1] == info.default, name
            assert len(set(info.history.values())) > 1, name


def test_every_variable_of_nccl_has_a_parser_a_kind_and_a_default() -> None:
    for name, info in registry().items():
        assert info.parser in get_args(settings.Parser), name
        assert info.kind is not None, name
        assert info.default, name
        assert info.owner == "NCCL", name
        assert reading.read(info, "1") is not None, name
        if info.bits:
            assert (info.minimum, info.maximum) == (0, 2 ** info.bits[-1] - 1), name


def test_whether_ranks_must_agree_is_known_for_all_that_have_a_public_source() -> None:
    unknown = {name for name, info in registry().items() if info.equal is None}
    assert unknown == {"NCCL_IB_SORT_MERGE_NICS", "NCCL_RMA_IB_WR_BATCHSIZE"}, "settle variables by NCCL's source"
    assert all("no source of it is public" in registry()[name].source for name in unknown)
    assert registry()["NCCL_BUFFSIZE"].agreement == "must be the same on every rank"
    assert registry()["NCCL_IB_HCA"].agreement == "must be the same on every rank of a machine"
    assert registry()["NCCL_DEBUG"].agreement == "may differ between ranks"
    assert registry()["NCCL_RMA_IB_WR_BATCHSIZE"].agreement == "not known whether ranks may differ"


def test_what_the_configuration_decides_has_a_value_where_a_program_asks_for_nothing() -> None:
    for name, info in registry().items():
        assert (info.default == settings.CONFIGURED) == (info.configured is not None), name
    found = defaults.default(registry()["NCCL_GRAPH_MIXING_SUPPORT"], "2.30.7", defaults.Machine())
    assert found.why == "1 where the program asks for nothing"
    assert "program" not in defaults.default(registry()["NCCL_GRAPH_MIXING_SUPPORT"], "2.28.9", defaults.Machine()).why


def test_what_never_is_read_may_differ() -> None:
    assert {info.equal for info in registry().values() if info.reads == "never"} == {"no"}


def test_neighbours_name_their_owner_and_are_not_read_by_nccl() -> None:
    for name, info in neighbours().items():
        assert info.owner != "NCCL", name
        assert info.parser is None, name
        assert info.source.count("/") > 4, f"{name}: the source is a file or a page, not a whole repository"
    assert not set(registry()) & set(neighbours())


def test_versions_stay_texts() -> None:
    assert registry()["NCCL_NET"].since == "2.10.3"
    assert registry()["NCCL_RINGS"].removed == "2.5.6"
    assert registry()["NCCL_SINGLE_RING_THRESHOLD"].removed == "2.3.5"
    assert registry()["NCCL_CHECKS_DISABLE"].since is None


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
        ("NCCL_DEBUG_SUBSYS", "debug-subsys", "diagnostic"),
        ("NCCL_SET_THREAD_NAME", "strict-bool", "diagnostic"),
    ],
)
def test_classes_and_readings(name: str, parser: str, setting_class: str) -> None:
    info = registry()[name]
    assert (info.parser, info.setting_class) == (parser, setting_class)


@pytest.mark.parametrize(
    ("name", "version", "default"),
    [
        ("NCCL_IB_TIMEOUT", "2.10.3", "14"),
        ("NCCL_IB_TIMEOUT", "2.14.3", "18"),
        ("NCCL_IB_TIMEOUT", None, "20"),
        ("NCCL_NVLS_ENABLE", "2.17.1", "1"),
        ("NCCL_NVLS_ENABLE", "2.16.5", None),
        ("NCCL_PXN_C2C", "2.27.7", "0"),
        ("NCCL_PXN_C2C", "2.28.3", "1"),
        ("NCCL_IB_SPLIT_DATA_ON_QPS", "2.19.4", "1"),
        ("NCCL_IB_SPLIT_DATA_ON_QPS", "2.20.3", "0"),
        ("NCCL_SYM_TMA_ENABLE", "2.30.7", "0"),
        ("NCCL_SYM_TMA_ENABLE", "2.31.2", "1"),
        ("NCCL_RINGS", None, None),
        ("NCCL_GRAPH_HELPER_DISABLE", None, None),
    ],
)
def test_defaults_by_version(name: str, version: str | None, default: str | None) -> None:
    assert registry()[name].default_in(version) == default


def test_names_that_nobody_reads() -> None:
    for name, invention in inventions().items():
        assert settings.find(name) is None, name
        assert all(other in EVERY for other in invention.instead), name
        assert invention.why.endswith("."), name
    assert inventions()["NCCL_GIN_ENABLED"].instead == ["NCCL_GIN_ENABLE"]
    assert inventions()["NCCL_IB_ADDR"].instead == ["NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE"]
    assert "NCCL_SOCKET_TIMEOUT" in inventions()


def test_families_of_names_leave_nccls_own_alone() -> None:
    for beginning, family in settings.families().items():
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*_", beginning)
        assert family.what.endswith("."), beginning
        assert family.source.startswith("https://"), beginning
        assert not [name for name in [*registry(), *inventions()] if name.startswith(beginning)], beginning
    assert settings.family("NCCL_SHM_DISABLED") is None
    found = settings.family("NCCL_TESTS_X")
    assert found is not None
    assert found.owner == "nccl-tests"


def test_old_names_that_are_still_read() -> None:
    assert registry()["NCCL_MIN_NRINGS"].exists_in(None)
    assert registry()["NCCL_MIN_NRINGS"].replacement == "NCCL_MIN_NCHANNELS"
    assert not registry()["NCCL_TREE_THRESHOLD"].exists_in("2.5.6")
    assert neighbours()["TORCH_NCCL_TRACE_BUFFER_SIZE"].replacement == "TORCH_FR_BUFFER_SIZE"


def _names(rule: Rule) -> Iterator[str]:
    texts = [source for _, source in conditions(rule)] + [name for entry in rule.advice for name in entry.unset]
    for text in texts:
        yield from re.findall(r"\b(?:NCCL|TORCH_NCCL|NVSHMEM|UCX)_[A-Z0-9_]+\b", text)


def test_rules_name_variables_that_exist() -> None:
    for rule in load():
        for name in _names(rule):
            begins = name.endswith("_") and any(known.startswith(name) for known in EVERY)
            assert name in EVERY or begins, (rule.id, name)


def test_rules_set_variables_only_for_versions_that_read_them() -> None:
    tried = 0
    for rule in load():
        for entry in rule.advice:
            for name in entry.set:
                info = settings.find(name)
                assert info is not None, (rule.id, name)
                if info.owner != "NCCL":
                    continue
                tried += 1
                signs = dict(versions.split(entry.nccl)) if entry.nccl else {}
                for bound in [signs[sign] for sign in (">=", "==", "<=") if sign in signs] or [None]:
                    assert info.exists_in(bound), (rule.id, name, bound)
    assert tried > 5


def test_rules_ask_about_versions_in_which_the_variable_is_read_or_is_no_longer() -> None:
    for rule in load():
        asked = re.findall(r'version_ge\(nccl\.version, "([0-9.]+)"\)', rule.when)
        for name in re.findall(r'variable\.name == "(NCCL_[A-Z0-9_]+)"', rule.when):
            for version in asked:
                info = registry()[name]
                assert info.exists_in(version) or version == info.removed, (rule.id, name, version)


@pytest.mark.skipif(not TABLE.is_file(), reason="the table of variables is not here")
def test_the_register_holds_exactly_what_core_nccl_reads() -> None:
    with TABLE.open() as stream:
        rows = {row["name"]: row for row in csv.DictReader(stream, delimiter="\t") if row["scope"] == "core"}
    assert {name for name, info in registry().items() if not _newer(info)} == set(rows)
    for name, row in rows.items():
        info = registry()[name]
        if info.removed == settings.OLDEST:  # the table begins there
            continue
        removed = "" if info.removed and versions.at_least(info.removed, "2.31") else info.removed or ""
        assert (info.since or "never", removed) == (row["since"], row["removed"]), name
        if info.setting_class == "system":
            assert not row["documented_category"].startswith("debugging"), name


def _newer(info: SettingInfo) -> bool:
    """Whether the variable came after the table's last release."""
    return info.since is not None and versions.at_least(info.since, "2.31")
