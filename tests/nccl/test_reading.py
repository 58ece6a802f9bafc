"""What NCCL makes of a text; ALGO, PROTO and name lists were compared with NCCL's own functions, compiled."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.nccl import reading
from topoadvisor.nccl.settings import registry

VERSIONS = (None, "2.4.8", "2.7.8", "2.20.5", "2.23.4", "2.24.3", "2.28.9", "2.30.7", "2.32.3")


def _read(name: str, text: str, version: str | None = None) -> reading.Reading:
    found = reading.read(registry()[name], text, version)
    assert found is not None
    return found


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(sorted(registry())), st.text() | st.text("^=,:;| \t0123456789xABCring"), st.sampled_from(VERSIONS)
)
def test_no_text_breaks_a_parser(name: str, text: str, version: str | None) -> None:
    found = _read(name, text, version)
    assert all(found.surprises)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_bytes_of_a_file_break_no_parser(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    for name in (
        "NCCL_ALGO",
        "NCCL_IB_HCA",
        "NCCL_DEBUG_SUBSYS",
        "NCCL_CTA_POLICY",
        "NCCL_NETDEVS_POLICY",
        "NCCL_BUFFSIZE",
    ):
        _read(name, text)


@pytest.mark.parametrize("name", ["NCCL_IB_HCA", "NCCL_BUFFSIZE", "NCCL_CTA_POLICY", "NCCL_NETDEVS_POLICY"])
def test_long_digits_reach_no_limit(name: str) -> None:
    for text in ("9" * 6000, "MAX:" + "9" * 6000, "mlx5_0:" + "9" * 6000, "٣", "MAX:٣"):
        _read(name, text)


@pytest.mark.parametrize(
    ("name", "text", "becomes", "word"),
    [
        ("NCCL_IB_TIMEOUT", "1000", "8", "232"),
        ("NCCL_IB_TIMEOUT", "22", "22", None),
        ("NCCL_IB_RETRY_CNT", "13", "5", "the 3 bits"),
        ("NCCL_IB_TC", "-1", "-1", None),
        ("NCCL_IB_TC", "106", "106", None),
        ("NCCL_BUFFSIZE", "8388608", "8388608", None),
        ("NCCL_NVLS_ENABLE", "true", "0", "is 0"),
        ("NCCL_NVLS_ENABLE", "3", "1", "acts as 1"),
        ("NCCL_P2P_DISABLE", "2", "0", "only 1 acts"),
        ("NCCL_P2P_DISABLE", "-2", "-2", None),
        ("NCCL_NTHREADS", "0400", "256", "octal"),
        ("NCCL_NTHREADS", "1000", "512", "multiple of 32"),
        ("NCCL_NTHREADS", "32", "64", "multiple of 32"),
        ("NCCL_NTHREADS", "-2", "-2", None),
        ("NCCL_MIN_NRINGS", "4", "4", None),
        ("NCCL_MIN_NRINGS", "100", "64", "no more than 64"),
        ("NCCL_MIN_NCHANNELS", "0", "0", None),
        ("NCCL_MIN_NCHANNELS", "-1", "0", "no minimum"),
        ("NCCL_MAX_NRINGS", "100", "64", "no more than 64"),
        ("NCCL_MAX_NCHANNELS", "0", "1", "a single channel"),
        ("NCCL_MAX_NCHANNELS", "-2", "-2", None),
        ("NCCL_PROGRESS_COUNTER_MONITOR_POLL_MS", "10", "50", "takes 50"),
        ("NCCL_PROGRESS_COUNTER_MONITOR_STALE_MS", "1000", "1000", None),
        ("NCCL_SOCKET_NTHREADS", "16", "16", None),
        ("NCCL_SOCKET_NTHREADS", "32", "16", "no more than 16 threads"),
        ("NCCL_IB_GID_INDEX", "3 # roce v2", "3", "dropped"),
        ("NCCL_P2P_LEVEL", "5", "SYS", None),
        ("NCCL_P2P_LEVEL", "node", None, "PHB"),
        ("NCCL_NET_MERGE_LEVEL", "port", "LOC", "fuses no NICs"),
        ("NCCL_SOCKET_FAMILY", "AF_INET6", "AF_INET6", None),
        ("NCCL_SOCKET_FAMILY", "af_inet", None, "spelling"),
        ("NCCL_LAUNCH_MODE", "group", "GROUP", None),
        ("NCCL_IB_RAIL_POLICY", "CX9:FLIP", "CX9:FLIP", None),
        ("NCCL_NETDEVS_POLICY", "max:2", "MAX:2", None),
        ("NCCL_NETDEVS_POLICY", "MAX:0", "AUTO", "AUTO"),
        ("NCCL_CTA_POLICY", "zero", "ZERO", None),
        ("NCCL_CTA_POLICY", "21", "ZERO", "first digit"),
        ("NCCL_CTA_POLICY", "ZERO|EFFICIENCY", "ZERO", "exclude"),
        ("NCCL_TOPO_FILE", "~/topo.xml", "~/topo.xml", "expands"),
        ("NCCL_DEBUG", "info", "INFO", None),
        ("NCCL_DEBUG", " WARN ", "WARN", None),
        ("NCCL_DEBUG", "DEBUG", None, "nothing is logged"),
        ("NCCL_SET_THREAD_NAME", "true", "1", None),
        ("NCCL_SET_THREAD_NAME", "yes", None, "as if it were not set"),
        ("NCCL_PARAM_DUMP_ALL", "f", "0", None),
        ("NCCL_SOCKET_IFNAME", "e", None, "one character"),
        ("NCCL_SOCKET_IFNAME", "", None, None),
        ("NCCL_BUFFSIZE", "", None, None),
        ("NCCL_P2P_LEVEL", "", None, None),
        ("NCCL_ALGO", "", None, None),
        ("NCCL_DEBUG", "", None, None),
        ("NCCL_LAUNCH_MODE", "", None, None),
        ("NCCL_TUNER_PLUGIN", "", None, None),
        ("NCCL_DEBUG_SUBSYS", "", "none", "list of nothing"),
        ("NCCL_NET_MERGE_LEVEL", "", "LOC", "LOC"),
        ("NCCL_NET_PLUGIN", "", "none", "no plugin"),
        ("NCCL_HOSTID", "", "one identity", "one machine"),
        ("NCCL_TOPO_FILE", "", "no file", "not looked for"),
        ("NCCL_BUFFSIZE", "0x400000", "4194304", None),
        ("NCCL_SOCKET_IFNAME", "eth", "names that begin with eth", None),
        ("NCCL_SOCKET_IFNAME", "^docker,lo", "all but names that begin with docker, lo", None),
        ("NCCL_IB_HCA", "=mlx5_0:1", "exactly mlx5_0 port 1", None),
        ("NCCL_IB_HCA", "mlx5_1", "names that begin with mlx5_1", None),
        ("NCCL_IB_HCA", "=^mlx5_0", "exactly ^mlx5_0", "very first"),
        ("NCCL_IB_HCA", "mlx5_0,^mlx5_1", "names that begin with mlx5_0, ^mlx5_1", "letters"),
        ("NCCL_IB_HCA", "^", "all but every name", "excludes every"),
    ],
)
def test_readings_of_the_newest_release(name: str, text: str, becomes: str | None, word: str | None) -> None:
    found = _read(name, text)
    assert found.becomes == becomes
    assert (word is None) == (not found.surprises)
    assert word is None or any(word in sentence for sentence in found.surprises)


@pytest.mark.parametrize("name", ["NCCL_COMM_ID", "NCCL_NET", "NCCL_GRAPH_FILE"])
def test_some_empty_texts_end_initialization(name: str) -> None:
    assert _read(name, "").fatal


def test_an_empty_list_of_plugins_was_no_list_once() -> None:
    assert _read("NCCL_NET_PLUGIN", "", "2.26.2").becomes is None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("NCCL_IB_HCA", "mlx5_1", "mlx5_10"),
        ("NCCL_BUFFSIZE", "0x400000", "hexadecimal"),
        ("NCCL_BUFFSIZE", "+5", "plus"),
    ],
)
def test_what_is_as_usual_is_a_hint(name: str, text: str, words: str) -> None:
    found = _read(name, text)
    assert words in found.hints[0]


@pytest.mark.parametrize(
    ("name", "text", "outside"),
    [
        ("NCCL_IB_TIMEOUT", "1000", True),
        ("NCCL_NVLS_ENABLE", "3", True),
        ("NCCL_P2P_DISABLE", "2", True),
        ("NCCL_NTHREADS", "32", True),
        ("NCCL_NTHREADS", "256k", False),
        ("NCCL_NVLS_ENABLE", "true", False),
        ("NCCL_IB_TIMEOUT", "22", False),
    ],
)
def test_numbers_beyond_what_makes_sense_are_told_apart(name: str, text: str, outside: bool) -> None:
    assert _read(name, text).outside is outside


@pytest.mark.parametrize(
    ("text", "version", "becomes"),
    [("2", "2.27.7", "DEFAULT"), ("2", "2.28.3", "ZERO"), ("ZERO", "2.28.9", "DEFAULT"), ("zero", "2.29.2", "ZERO")],
)
def test_cta_policies_by_release(text: str, version: str, becomes: str) -> None:
    assert _read("NCCL_CTA_POLICY", text, version).becomes == becomes


def test_a_number_means_what_it_meant_in_that_release() -> None:
    assert _read("NCCL_IB_TC", "-1", "2.26.2").becomes == "-1"
    assert _read("NCCL_IB_TC", "-1", "2.25.1").becomes == "255"
    assert _read("NCCL_IB_GID_INDEX", "-1", "2.21.5").surprises == ()


def test_a_buffer_of_eight_bytes_kills_the_job() -> None:
    assert _read("NCCL_BUFFSIZE", "8M").fatal
    assert _read("NCCL_BUFFSIZE", "8M").becomes == "8"
    assert not _read("NCCL_BUFFSIZE", "4194304").fatal
    assert not _read("NCCL_BUFFSIZE", "-2").fatal


@pytest.mark.parametrize(
    ("text", "version", "becomes", "fatal"),
    [
        ("RING", None, "Ring", False),
        ("^NVLS,NVLSTree", None, "CollNetChain, CollNetDirect, PAT, Ring, Tree", False),
        ("Ring;allreduce:tree", None, "Ring; allreduce: Tree", False),
        ("Ring, Tree", None, None, True),
        ("Ring, Tree", "2.23.4", "Ring", False),
        ("CollNet", "2.12.7", "CollNet", False),
        ("CollNet", "2.14.3", "Ring, Tree", False),
        ("^Tree,Ring,CollNet", "2.12.7", "Ring, Tree", False),
        ("^Tree,Ring,CollNet", "2.7.8", "nothing", True),
        ("CollNet", "2.24.3", None, True),
        ("PAT", "2.22.3", "Ring, Tree", False),
        ("allreduce:tree;ring", None, None, True),
        (";ring", None, None, True),
        (":", None, None, True),
        (",,ring", None, "Ring", False),
        ("", None, None, False),
        ("", "2.23.4", "Ring, Tree", False),
        ("", "2.8.3", "Ring, Tree", False),
        ("", "2.7.8", "nothing", True),
    ],
)
def test_algorithms(text: str, version: str | None, becomes: str | None, fatal: bool) -> None:
    found = _read("NCCL_ALGO", text, version)
    assert (found.becomes, found.fatal) == (becomes, fatal)


def test_an_old_list_of_protocols_that_allows_nothing_fails() -> None:
    found = _read("NCCL_PROTO", "ucp", "2.22.3")
    assert (found.becomes, found.fatal) == ("nothing", True)
    assert any("every collective fails" in sentence for sentence in found.surprises)


@pytest.mark.parametrize("name", ["NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_RAS_ENABLE", "NCCL_SET_STACK_SIZE"])
def test_switches_that_are_compared_with_1(name: str) -> None:
    assert (_read(name, "2").becomes, _read(name, "1").becomes) == ("0", "1")
    assert _read(name, "2").surprises == ("only 1 acts, and 2 does nothing",)


def test_excluding_ll_forces_ll128() -> None:
    assert any("LL128" in sentence for sentence in _read("NCCL_PROTO", "^LL").surprises)
    assert _read("NCCL_PROTO", "^LL128").surprises == ()


@pytest.mark.parametrize(
    ("text", "version", "becomes"),
    [
        ("INIT,NET", None, "INIT,NET"),
        ("init, net", None, "INIT,NET"),
        ("init, net", "2.30.4", "INIT"),
        ("INIT,ALLREDUCE", None, None),
        ("INIT,ALLREDUCE", "2.30.4", "INIT"),
        ("ALL", None, "ALL"),
        ("^ALL", None, "none"),
        ("^INIT", "2.4.8", "none"),
        ("COLL", "2.4.8", "INIT,COLL"),
        ("COLL", "2.5.6", "COLL"),
        ("BOOTSTRAP", "2.20.5", "none"),
    ],
)
def test_subsystems_by_release(text: str, version: str | None, becomes: str | None) -> None:
    assert _read("NCCL_DEBUG_SUBSYS", text, version).becomes == becomes


def test_all_reduce_is_no_subsystem_and_the_real_one_is_named() -> None:
    assert "COLL is meant" in _read("NCCL_DEBUG_SUBSYS", "INIT,ALLREDUCE").surprises[0]


def test_attention_is_a_level_since_2_32_3() -> None:
    assert _read("NCCL_DEBUG", "ATTN", "2.32.3").becomes == "ATTN"
    assert "2.32.3" in _read("NCCL_DEBUG", "ATTN", "2.30.7").surprises[0]


@pytest.mark.parametrize(
    ("text", "version", "becomes"),
    [
        ("1.5", None, "1.5"),
        ("1.5", "2.30.7", "1"),
        (" 0x1p3", None, "8"),
        ("2s", None, None),
        ("2s", "2.30.7", "2"),
        ("2 ", None, None),
        ("0", None, None),
        ("0", "2.30.7", "0"),
        ("-1", None, None),
        ("inf", None, None),
        ("1e999", None, None),
        ("0x1p99999", None, None),
        ("1_0", None, None),
        ("٣", None, None),
        ("", None, None),
    ],
)
def test_the_factor_of_ras_has_fractions_since_2_31_2(text: str, version: str | None, becomes: str | None) -> None:
    assert _read("NCCL_RAS_TIMEOUT_FACTOR", text, version).becomes == becomes


@pytest.mark.parametrize(
    ("name", "text", "version", "becomes"),
    [
        ("NCCL_NVLS_NCHANNELS", "0", None, None),
        ("NCCL_NVLS_NCHANNELS", "0", "2.25.1", "0"),
        ("NCCL_NCHANNELS_PER_NET_PEER", "-1", None, None),
        ("NCCL_NCHANNELS_PER_NET_PEER", "-1", "2.27.7", "-1"),
        ("NCCL_P2P_MAX_PEERS", "0", None, None),
        ("NCCL_NUM_RMA_CTX", "0", None, "0"),
        ("NCCL_NUM_RMA_CTX", "0", "2.29.7", None),
        ("NCCL_NUM_RMA_CTX", "-1", None, None),
        ("NCCL_CGA_CLUSTER_SIZE", "-1", None, None),
        ("NCCL_LAUNCH_ORDER_IMPLICIT", "2", "2.30.7", "2"),
        ("NCCL_LAUNCH_ORDER_IMPLICIT", "2", "2.31.2", None),
        ("NCCL_GRAPH_MIXING_SUPPORT", "2", None, None),
        ("NCCL_GRAPH_MIXING_SUPPORT", "2", "2.28.9", "2"),
        ("NCCL_RMA_EAGER_INIT", "-2147483648", None, "-2147483648"),
        ("NCCL_COMM_SPLIT_SHARE_RESOURCES", "2", None, "0"),
    ],
)
def test_what_the_configuration_of_a_communicator_does_not_take(
    name: str, text: str, version: str | None, becomes: str | None
) -> None:
    found = _read(name, text, version)
    assert found.becomes == becomes
    assert found.surprises or becomes == text


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(ValueError, match="not a version"):
        _read("NCCL_NTHREADS", "1", "new")


@pytest.mark.parametrize("version", ["2.28.9", "2.30.3", None])
def test_a_variable_that_came_with_the_strict_kind_was_never_a_number(version: str | None) -> None:
    found = reading.read(registry()["NCCL_PARAM_DUMP_ALL"], "yes", version)
    assert found is not None
    assert found.becomes is None
    assert not any("before" in each for each in found.surprises)
