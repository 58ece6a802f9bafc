"""`nccl.conf` as NCCL reads it; compared with `setEnvFile` of six releases, compiled, on random files."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.nccl import conf

OLD, COMMENTS, NEWEST = "2.4.2", "2.26.2", "2.30.7"


def read(text: str, version: str | None = None) -> list[tuple[int, str, str]]:
    return [(line.line, line.name, line.value) for line in conf.parse(text, version)]


def surprises(text: str, version: str | None = None) -> str:
    return " | ".join(surprise for line in conf.parse(text, version) for surprise in line.surprises)


def test_plain_lines_hold_no_surprise() -> None:
    text = "NCCL_DEBUG=WARN\n\nNCCL_SOCKET_IFNAME==ens1f0\nno assignment\nNCCL_IB_HCA=^mlx5_2:1\n"
    for version in (None, OLD, COMMENTS, NEWEST):
        assert read(text, version) == [
            (1, "NCCL_DEBUG", "WARN"),
            (3, "NCCL_SOCKET_IFNAME", "=ens1f0"),
            (5, "NCCL_IB_HCA", "^mlx5_2:1"),
        ]
        assert surprises(text, version) == ""


@pytest.mark.parametrize("text", ["", "\n\n", "=value\n", "NAME\n", "\r\n"])
def test_lines_that_define_nothing(text: str) -> None:
    assert read(text) == read(text, OLD) == []


def test_an_empty_value_is_a_value() -> None:
    assert read("NCCL_DEBUG=") == [(1, "NCCL_DEBUG", "")]


def test_comments_count_since_2_26_2_and_only_at_the_start() -> None:
    text = "#NCCL_DEBUG=INFO\n #NCCL_ALGO=Ring\n"
    assert read(text, "2.25.1") == [(1, "#NCCL_DEBUG", "INFO"), (2, " #NCCL_ALGO", "Ring")]
    assert "no harm" in surprises("#NCCL_DEBUG=INFO", "2.25.1")
    assert read(text, COMMENTS) == [(2, " #NCCL_ALGO", "Ring")]


@pytest.mark.parametrize(
    ("line", "name", "value", "word"),
    [
        (" NCCL_X=1", " NCCL_X", "1", "never found"),
        ("NCCL_X =1", "NCCL_X ", "1", "never found"),
        ("export NCCL_X=1", "export NCCL_X", "1", "no shell"),
        ("NCCL-X=1", "NCCL-X", "1", "no name"),
        ("NCCL_X= 1", "NCCL_X", " 1", "trims nothing"),
        ("NCCL_X=1 ", "NCCL_X", "1 ", "trims nothing"),
        ('NCCL_X="1"', "NCCL_X", '"1"', "quotes"),
        ("NCCL_X='a b'", "NCCL_X", "'a b'", "quotes"),
        ("NCCL_X=1 # on", "NCCL_X", "1 # on", "no comment behind"),
        ("NCCL_X=$HOME/x", "NCCL_X", "$HOME/x", "expands nothing"),
        ("NCCL_X=~/x", "NCCL_X", "~/x", "expands nothing"),
    ],
)
def test_what_people_write_and_nccl_takes_literally(line: str, name: str, value: str, word: str) -> None:
    for version in (None, OLD, NEWEST):
        assert read(line, version) == [(1, name, value)]
        assert word in surprises(line, version)


def test_carriage_returns_stay_before_2_30_3() -> None:
    assert read("NCCL_X=1\r\n", "2.29.7") == [(1, "NCCL_X", "1\r")]
    assert "keeps the CR" in surprises("NCCL_X=1\r\n", "2.29.7")
    assert read("NCCL_X=1\r\n", "2.30.3") == read("NCCL_X=1\r\n") == [(1, "NCCL_X", "1")]
    assert "before 2.30.3" in surprises("NCCL_X=1\r\n")
    assert read("NCCL_X=1\r\r\n") == [(1, "NCCL_X", "1\r")]


def test_the_first_line_of_a_name_wins() -> None:
    lines = conf.parse("NCCL_X=1\nNCCL_Y=2\nNCCL_X=3\n")
    assert conf.effective(lines) == {"NCCL_X": "1", "NCCL_Y": "2"}
    assert lines[2].surprises == ("line 1 sets it already, and the first line wins",)


def test_long_names_and_values_are_cut() -> None:
    assert read("A=" + "v" * 1023) == [(1, "A", "v" * 1023)]
    assert read("A=" + "v" * 1024) == [(1, "A", "v" * 1023)]
    assert "value is cut" in surprises("A=" + "v" * 1024)
    assert read("n" * 1030 + "=1", "2.23.4") == [(1, "n" * 1023, "1")]
    assert "writes past" in surprises("n" * 1030 + "=1", "2.22.3")
    assert "writes past" not in surprises("n" * 1030 + "=1", "2.23.4")


def test_bytes_are_counted_not_characters() -> None:
    (line,) = conf.parse("A=" + "é" * 600)
    assert line.value.encode("utf-8", "surrogateescape") == ("é" * 600).encode()[:1023]


def test_lines_beyond_the_buffer_go_on_as_new_lines_since_2_30_3() -> None:
    text = "A=" + "v" * 4093 + "NCCL_B=2\n"
    assert read(text, "2.29.7") == [(1, "A", "v" * 1023)]
    assert read(text, "2.30.3") == [(1, "A", "v" * 1023), (1, "NCCL_B", "2")]
    assert "rest of it" in surprises(text)
    whole = "A=" + "v" * 4093 + "\nNCCL_B=2\n"
    assert read(whole)[1] == (2, "NCCL_B", "2")
    assert "rest of it" not in surprises(whole)


def test_a_nul_byte_ends_the_line() -> None:
    assert read("A=1\0B=2\nC\0=3\nD=4") == [(1, "A", "1"), (3, "D", "4")]
    assert "NUL" in surprises("A=1\0B=2")


def test_lines_of_the_managed_block_are_marked() -> None:
    text = f"A=1\n{conf.MANAGED_BEGIN}: note\nB=2\n{conf.MANAGED_END} <<<\nC=3\n"
    for version in (OLD, NEWEST):
        assert [(line.name, line.managed) for line in conf.parse(text, version)] == [
            ("A", False),
            ("B", True),
            ("C", False),
        ]


def test_only_line_feeds_end_lines() -> None:
    assert read("A=1\x0bB\x0c\x85\u2028=2") == [(1, "A", "1\x0bB\x0c\x85\u2028=2")]


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a version"):
        conf.parse("A=1", "new")


@settings(deadline=None)
@given(st.binary())
def test_any_file_can_be_read(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for version in (None, OLD, "2.22.3", COMMENTS, NEWEST):
        for line in conf.parse(text, version):
            assert line.name
            assert "=" not in line.name
            assert "\n" not in line.value
            assert len(line.value.encode("utf-8", "surrogateescape")) <= conf.LONGEST


NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), max_size=40)


@settings(deadline=None)
@given(st.dictionaries(NAMES, VALUES), st.sampled_from([None, OLD, COMMENTS, "2.29.7", NEWEST]))
def test_what_is_written_plainly_is_read_back(wanted: dict[str, str], version: str | None) -> None:
    text = "".join(f"{name}={value}\n" for name, value in wanted.items())
    assert conf.effective(conf.parse(text, version)) == wanted


@pytest.mark.parametrize(
    ("environ", "version", "paths"),
    [
        ({"HOME": "/home/a"}, None, ["/home/a/.nccl.conf", "/etc/nccl.conf"]),
        ({"HOME": "/home/a"}, "2.29.7", ["/root/.nccl.conf", "/etc/nccl.conf"]),
        ({"HOME": ""}, None, ["/root/.nccl.conf", "/etc/nccl.conf"]),
        ({"HOME": "here"}, None, ["/etc/nccl.conf"]),
        ({"NCCL_CONF_FILE": "/job/x"}, None, ["/job/x", "/etc/nccl.conf"]),
        ({"NCCL_CONF_FILE": "/job/x"}, "2.22.3", ["/root/.nccl.conf", "/etc/nccl.conf"]),
        ({"NCCL_CONF_FILE": ""}, "2.23.4", ["/root/.nccl.conf", "/etc/nccl.conf"]),
    ],
)
def test_files_in_the_order_nccl_reads_them(environ: dict[str, str], version: str | None, paths: list[str]) -> None:
    assert conf.paths(environ, "/root", version) == paths
