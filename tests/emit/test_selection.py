"""Which settings are written, and which values are safe."""

from typing import Any

import pytest

from topoadvisor.emit.selection import nccl_version, parse_classes, select, version_words
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.snapshot import Assumption, NcclLibrary, Snapshot

ALL = frozenset({"tuning", "workaround"})


def names(make: Any, *settings: object, include: Any = frozenset(), version: str | None = None) -> list[str]:
    return [chosen.name for chosen in select(make.advice(*settings), include, version).chosen]


def test_only_system_settings_by_default(make: Any) -> None:
    settings = [
        make.setting("NCCL_A", "1"),
        make.setting("NCCL_B", "1", setting_class="tuning"),
        make.setting("NCCL_C", "1", setting_class="workaround", remove_when="fixed"),
        make.setting("NCCL_D", "1", setting_class="diagnostic"),
        make.unset("NCCL_E"),
    ]
    assert names(make, *settings) == ["NCCL_A"]
    assert names(make, *settings, include=frozenset({"tuning"})) == ["NCCL_A", "NCCL_B"]
    assert names(make, *settings, include=ALL) == ["NCCL_A", "NCCL_B", "NCCL_C"]
    selection = select(make.advice(*settings), frozenset(), None)
    assert [(left.setting.name, left.why.split(";")[0].split(",")[0]) for left in selection.left_out] == [
        ("NCCL_B", "class tuning"),
        ("NCCL_C", "class workaround"),
        ("NCCL_D", "diagnostic"),
    ]
    assert [item.name for item in selection.unset] == ["NCCL_E"]


def test_settings_for_another_nccl_are_left_out(make: Any) -> None:
    new = make.setting(nccl=">=2.21")
    assert names(make, new, version="2.28.9") == names(make, new, version=None) == ["NCCL_SOCKET_IFNAME"]
    selection = select(make.advice(new), frozenset(), "2.18.5")
    assert selection.chosen == ()
    assert selection.left_out[0].why == "it is for NCCL 2.21 or newer, and this is 2.18.5"


def test_two_rules_may_agree_and_must_not_disagree(make: Any) -> None:
    agreeing = select(make.advice(make.setting(), make.setting(rule="VM003")), frozenset(), None)
    assert [[item.rule for item in chosen.settings] for chosen in agreeing.chosen] == [["NET001", "VM003"]]
    with pytest.raises(TopoAdvisorError, match="NET001, VM003 want different values of NCCL_SOCKET_IFNAME"):
        select(make.advice(make.setting(), make.setting(value="=eth1", rule="VM003")), frozenset(), None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("NCCL_SOCKET_IFNAME", value) for value in ("=mlx5_0,mlx5_3", "^docker0,lo", "1", "a#b", "é")),
        ("NCCL_TOPO_FILE", "/etc/x y/z.xml"),
        ("OUR_OWN", "a b"),
    ],
)
def test_values_that_can_be_written(make: Any, name: str, value: str) -> None:
    assert select(make.advice(make.setting(name, value)), frozenset(), None).chosen[0].value == value


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (None, "empty"),
        ("", "empty"),
        (" 1", "blank"),
        ("1 ", "blank"),
        ("eth0, eth1", "a blank, and NCCL skips none"),
        ("1\n", "control character"),
        ("1\nNCCL_B=2", "control character"),
        ("1\r", "control character"),
        ("1\0", "control character"),
        ("\x1b[2J", "control character"),
        ("\udcff", "control character"),
        ('"1"', "quote"),
        ("it's", "quote"),
        ("`id`", "quote"),
        ("v" * 1024, "longer than 1023 bytes"),
        ("é" * 512, "longer than 1023 bytes"),
    ],
)
def test_values_that_cannot_be_written(make: Any, value: str | None, word: str) -> None:
    with pytest.raises(TopoAdvisorError, match=word):
        select(make.advice(make.setting(value=value)), frozenset(), None)


@pytest.mark.parametrize("name", ["NCCL A", "NCCL=A", "#NCCL", "", "1A", "NCCL\n"])
def test_names_that_are_none(make: Any, name: str) -> None:
    with pytest.raises(TopoAdvisorError, match="not one of a variable"):
        select(make.advice(make.setting(name)), frozenset(), None)


def test_why_there_is_nothing_to_write(make: Any) -> None:
    assert (
        select(make.advice(set_nothing="All pairs use NVLink."), frozenset(), None).nothing == "All pairs use NVLink."
    )
    assert select(make.advice(make.setting()), frozenset(), None).nothing is None
    only_workarounds = select(make.advice(make.setting(setting_class="workaround", remove_when="x")), frozenset(), None)
    assert only_workarounds.nothing


@pytest.mark.parametrize(
    ("texts", "classes"),
    [
        ([], set()),
        (["tuning,workaround"], {"tuning", "workaround"}),
        (["tuning", " workaround "], {"tuning", "workaround"}),
        (["system,"], set()),
    ],
)
def test_classes_to_include(texts: list[str], classes: set[str]) -> None:
    assert parse_classes(texts) == classes


def test_classes_that_cannot_be_included() -> None:
    with pytest.raises(TopoAdvisorError, match="never written"):
        parse_classes(["tuning,diagnostic"])
    with pytest.raises(TopoAdvisorError, match="no class of settings called 'tuned'"):
        parse_classes(["tuned"])


def test_version_conditions_in_words() -> None:
    assert version_words(">=2.21,<2.27") == "2.21 or newer and older than 2.27"
    assert "=" not in version_words("<=2.27,!=2.26.2,==2.25,>2.1")


def test_the_nccl_version_is_the_assumed_one_or_that_of_the_first_library() -> None:
    libraries = [
        NcclLibrary(path="/a"),
        NcclLibrary(path="/b", version="2.27.3"),
        NcclLibrary(path="/c", version="2.9.6"),
    ]
    assert nccl_version(Snapshot(nccl_libraries=libraries)) == "2.27.3"
    assumed = [Assumption(fact="nccl.version", value="2.18.1"), Assumption(fact="nccl.version", value="2.30.7")]
    assert nccl_version(Snapshot(nccl_libraries=libraries, assumptions=assumed)) == "2.30.7"
    assert nccl_version(Snapshot(assumptions=[Assumption(fact="nccl.version", value="new")])) is None
    assert nccl_version(Snapshot()) is None
