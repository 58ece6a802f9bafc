"""`nccl.conf`: what is written is what NCCL reads, and every foreign line survives."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.emit import blocks, nccl_conf
from topoadvisor.emit.selection import select
from topoadvisor.nccl import conf
from topoadvisor.snapshot import Setting, Snapshot

READERS = ["2.4.2", "2.22.3", "2.23.4", "2.26.2", "2.29.7", "2.30.3", "2.30.7", None]
ALL: Any = frozenset({"tuning", "workaround"})


def effective(text: str, version: str | None = None) -> dict[str, str]:
    return conf.effective(conf.parse(text, version))


def selection_of(make: Any, *settings: Any, include: Any = frozenset()) -> Any:
    return select(make.advice(*settings), include, None)


def test_a_block_in_full(make: Any) -> None:
    block = nccl_conf.render(
        make.advice(
            make.setting(),
            make.setting(
                "NCCL_P2P_DISABLE",
                "1",
                setting_class="workaround",
                rule="P2P003",
                reason="ACS redirects NCCL_P2P_LEVEL=SYS traffic",
                remove_when="the bridges no longer redirect",
                cost="all pairs go through host memory",
                nccl=">=2.6.4",
            ),
            make.setting("NCCL_NTHREADS", "256", setting_class="tuning", rule="SYS009"),
            make.unset("NCCL_ALGO", rule="ENV002", reason="NCCL chooses per size"),
        ),
        frozenset({"workaround"}),
    )
    assert block == (
        "# >>> topoadvisor managed block: `topoadvisor emit` rewrites these lines >>>\n"
        "# `topoadvisor rules explain ID` says more about each id in brackets.\n"
        "#\n"
        "# [NET001] the other interfaces lead nowhere\n"
        "NCCL_SOCKET_IFNAME==eth0\n"
        "#\n"
        "# [P2P003] ACS redirects NCCL_P2P_LEVEL set to SYS traffic\n"
        "# This is a workaround.\n"
        "# Remove it when the bridges no longer redirect\n"
        "# Cost: all pairs go through host memory\n"
        "# For NCCL 2.6.4 or newer.\n"
        "NCCL_P2P_DISABLE=1\n"
        "#\n"
        "# Not written: NCCL_NTHREADS [SYS009], class tuning; `--include tuning` adds it.\n"
        "#\n"
        "# [ENV002] NCCL_ALGO should not be set: NCCL chooses per size\n"
        "# <<< topoadvisor managed block <<<\n"
    )
    for version in READERS:
        assert effective(block, version) == {"NCCL_SOCKET_IFNAME": "=eth0", "NCCL_P2P_DISABLE": "1"}


def test_what_is_tuning_is_called_so_and_what_others_read_is_left_to_the_shell(make: Any) -> None:
    block = nccl_conf.render(
        make.advice(
            make.setting("NCCL_NTHREADS", "256", setting_class="tuning"),
            make.setting("CUDA_DEVICE_MAX_CONNECTIONS", "1", setting_class="tuning"),
            make.setting("NCCL_CONF_FILE", "/etc/other.conf"),
            make.setting("FI_EFA_USE_DEVICE_RDMA", "1"),
        ),
        ALL,
    )
    assert "# This is tuning.\n" in block
    assert effective(block) == {"NCCL_NTHREADS": "256", "FI_EFA_USE_DEVICE_RDMA": "1"}
    told = " ".join(block.replace("#", " ").split())
    assert "Not written: CUDA_DEVICE_MAX_CONNECTIONS [NET001], CUDA, which reads it, may do so before" in told
    assert "Not written: NCCL_CONF_FILE [NET001], it counts in the process environment only" in told


def test_nothing_to_set_says_why_and_defines_no_variable(make: Any) -> None:
    block = nccl_conf.render(make.advice(set_nothing="NCCL 2.28 allows P2P on every pair: NCCL_P2P_LEVEL=NVL is met"))
    assert "# No variable is set here. NCCL 2.28 allows P2P on every pair: NCCL_P2P_LEVEL set to NVL is met\n" in block
    for version in READERS:
        assert conf.parse(block, version) == []


def test_diagnostic_settings_are_never_written(make: Any) -> None:
    block = nccl_conf.render(make.advice(make.setting("NCCL_DEBUG", "INFO", setting_class="diagnostic")), ALL)
    assert conf.parse(block) == []
    assert "NCCL_DEBUG" in block


def test_an_empty_file_becomes_the_block(make: Any) -> None:
    block = nccl_conf.render(make.advice(make.setting()))
    assert nccl_conf.merge("", block) == block


def test_the_block_comes_first_and_wins(make: Any) -> None:
    block = nccl_conf.render(make.advice(make.setting()))
    existing = "# site\r\nNCCL_SOCKET_IFNAME=eth9\r\nNCCL_IB_TC=106"
    merged = nccl_conf.merge(existing, block)
    assert merged == block + existing
    for version in READERS:
        assert effective(merged, version)["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert nccl_conf.merge(merged, block) == merged


def test_a_new_block_replaces_the_old_one_wherever_it_stands(make: Any) -> None:
    old, new = (nccl_conf.render(make.advice(make.setting(value=value))) for value in ("=eth0", "=eth1"))
    assert nccl_conf.merge(f"A=1\n{old}B=2\n", new) == f"{new}A=1\nB=2\n"


def test_nothing_to_set_empties_the_block(make: Any) -> None:
    written = nccl_conf.merge("A=1\n", nccl_conf.render(make.advice(make.setting())))
    emptied = nccl_conf.merge(written, nccl_conf.render(make.advice(set_nothing="all is well")))
    assert effective(emptied) == {"A": "1"}
    assert emptied.endswith("A=1\n")


NAMES = st.from_regex(r"NCCL_[A-Z0-9_]{1,12}", fullmatch=True).filter(
    lambda name: (owner := conf.reader(name)) is not None and conf.in_time(owner)
)
SAFE = st.text(st.characters(codec="utf-8", exclude_characters="\"'`"), min_size=1, max_size=60).filter(
    lambda value: value.isprintable() and value == value.strip()
)
REASONS = st.text(max_size=300)
LINES = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda name, value: f"{name}={value}".encode(), NAMES, SAFE),
    st.sampled_from([b"#NCCL_DEBUG=INFO", b" NCCL_X = 1", b"export A=1", b"A=" + b"v" * 5000, b"\xef\xbb\xbfNCCL_Y=2"]),
)
ENDINGS = st.sampled_from([b"\n", b"\r\n", b"\n\n", b""])
FILES = (
    st.lists(st.tuples(LINES, ENDINGS), max_size=8)
    .map(lambda parts: b"".join(line + ending for line, ending in parts).decode("utf-8", "surrogateescape"))
    .filter(lambda text: "topoadvisor managed block" not in text)
)


@settings(deadline=None)
@given(st.dictionaries(NAMES, SAFE, max_size=5), REASONS, FILES, st.sampled_from(READERS))
def test_what_is_read_back_is_what_was_meant(
    make: Any, wanted: dict[str, str], reason: str, existing: str, version: str | None
) -> None:
    settings = [make.setting(name, value, reason=reason) for name, value in wanted.items()]
    block = nccl_conf.render(make.advice(*settings, make.unset(reason=reason), set_nothing=reason))
    assert effective(block, version) == wanted

    merged = nccl_conf.merge(existing, block)
    assert effective(merged, version) == {**effective(existing, version), **wanted}
    assert merged.removeprefix(block) == existing
    assert blocks.foreign_part(merged) == existing
    assert nccl_conf.merge(merged, block) == merged


@settings(deadline=None)
@given(FILES, st.dictionaries(NAMES, SAFE, max_size=3), st.dictionaries(NAMES, SAFE, max_size=3))
def test_a_second_block_leaves_no_trace_of_the_first(
    make: Any, existing: str, first: dict[str, str], second: dict[str, str]
) -> None:
    one, two = (
        nccl_conf.render(make.advice(*(make.setting(*item) for item in wanted.items()))) for wanted in (first, second)
    )
    assert nccl_conf.merge(nccl_conf.merge(existing, one), two) == nccl_conf.merge(existing, two)


def test_foreign_lines_of_the_same_variable_are_pointed_out(make: Any) -> None:
    selection = selection_of(make, make.setting(), make.unset())
    existing = "NCCL_SOCKET_IFNAME=eth9\nNCCL_P2P_DISABLE=1\nNCCL_IB_TC=106\n"
    before = nccl_conf.remarks(selection, existing, file="nccl.conf", nccl_version=None)
    assert [remark.split(" ")[0] for remark in before] == ["nccl.conf:1:", "nccl.conf:2:"]
    assert "does not count" in before[0]
    assert "remove NCCL_P2P_DISABLE=1 by hand: it switches NVLink off [P2P002]" in before[1]

    block = nccl_conf.render(make.advice(make.setting(), make.unset()))
    merged = nccl_conf.merge(existing, block)
    after = nccl_conf.remarks(selection, merged, file="nccl.conf", nccl_version=None)
    for remark in after:
        line = int(remark.split(":")[1])
        assert remark.split()[1].split("=")[0] in merged.split("\n")[line - 1] or "remove" in remark
    assert [remark.split(": ", 1)[1] for remark in after] == [remark.split(": ", 1)[1] for remark in before]
    assert merged.split("\n")[int(after[1].split(":")[1]) - 1] == "NCCL_P2P_DISABLE=1"


def test_own_lines_are_no_foreign_ones(make: Any) -> None:
    merged = nccl_conf.merge("", nccl_conf.render(make.advice(make.setting())))
    assert nccl_conf.remarks(selection_of(make, make.setting()), merged, file="f", nccl_version="2.18.1") == []


def test_removals_name_the_place(make: Any) -> None:
    selection = selection_of(
        make,
        make.unset(where="environment"),
        make.unset("NCCL_ALGO", where="/etc/nccl.conf:3"),
        make.unset("NCCL_PROTO"),
    )
    everywhere = nccl_conf.removals(selection, file=None)
    assert [text.split(": unset ")[0] for text in everywhere] == [
        "environment",
        "/etc/nccl.conf:3",
        "where it is set",
    ]
    elsewhere = nccl_conf.removals(selection, file="/etc/nccl.conf")
    assert [text.split(": unset ")[1].split(":")[0] for text in elsewhere] == ["NCCL_P2P_DISABLE", "NCCL_PROTO"]


def test_what_is_set_in_two_places_is_to_go_from_both(make: Any) -> None:
    selection = selection_of(make, make.unset(where="environment and /etc/nccl.conf:3"))
    places = [
        [text.split(": unset ")[0] for text in nccl_conf.removals(selection, file=file)]
        for file in (None, "/etc/nccl.conf", "/root/.nccl.conf")
    ]
    both = "environment and /etc/nccl.conf:3"
    assert places == [[both], ["environment"], [both]]


@pytest.mark.parametrize(
    ("origin", "value", "file", "wins"),
    [
        ("environment", "eth9", "/etc/nccl.conf", True),
        ("environment", "eth9", "/home/u/.nccl.conf", True),
        ("environment", "=eth0", "/etc/nccl.conf", False),
        ("/home/u/.nccl.conf", "eth9", "/etc/nccl.conf", True),
        ("/etc/nccl.conf", "eth9", "/etc/nccl.conf", False),
        ("/etc/nccl.conf", "eth9", "/home/u/.nccl.conf", False),
    ],
)
def test_stronger_places_are_named(make: Any, origin: str, value: str, file: str, wins: bool) -> None:
    snapshot = Snapshot(
        settings=[
            Setting(name="NCCL_SOCKET_IFNAME", value=value, origin=origin),
            Setting(name="NCCL_OTHER", value="1", origin="environment"),
        ]
    )
    found = nccl_conf.overruled(selection_of(make, make.setting()), snapshot, file=file)
    assert bool(found) is wins
    assert all(origin in text and "wins over" in text for text in found)


def test_own_lines_of_yesterday_do_not_count_as_settings_of_the_machine() -> None:
    own = Setting(name="A", value="1", origin="/etc/nccl.conf", line=5, managed=True)
    foreign = Setting(name="A", value="2", origin="/etc/nccl.conf", line=9)
    assert nccl_conf.without_own_lines(Snapshot(settings=[own, foreign])).settings == [foreign]
    assert nccl_conf.without_own_lines(Snapshot()).settings is None
