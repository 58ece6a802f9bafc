"""What `topoadvisor explain` says, through the program."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.cli import main
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.explain import glossary, lookup, text
from topoadvisor.nccl import settings as register
from topoadvisor.rules.load import load
from topoadvisor.vocabulary import FORMS

RULES = load()


def _say(word: str) -> str:
    return text.render(lookup.explain(word, RULES, None))


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["explain", *arguments]) == 0
    return capsys.readouterr().out


def test_a_variable_with_its_state_here(capsys: pytest.CaptureFixture[str]) -> None:
    out = _run(capsys, "NCCL_P2P_LEVEL", "fixture:8x4090")
    for piece in (
        "Farthest pair of GPUs that may talk directly.",
        "set to SYS by the environment",
        "which comes to PXB here",
        "PHB (old: 3) since 2.6.4",
        "NODE is a word of nvidia-smi",
        "P2P010",
        "paths.cc#L289",
    ):
        assert piece in out


def test_a_value_and_what_becomes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "1000 is cut to 232 in 8 bits" in _run(capsys, "NCCL_IB_TIMEOUT=1000", "fixture:8x4090")
    assert "It stands for no limit" in _run(capsys, "NCCL_IB_TIMEOUT=0", "fixture:8x4090")
    out = _run(capsys, "nccl_buffsize=8M", "fixture:8x4090")
    assert "NCCL reads 8 and dies of it." in out
    assert "As if it were not set." in _say("NCCL_P2P_LEVEL=phb")


def test_an_empty_value_is_told_as_nccl_takes_it() -> None:
    assert "As if it were not set." in _say("NCCL_BUFFSIZE=")
    assert "refuses to start" in _say("NCCL_COMM_ID=")
    assert "NCCL works with: none" in _say("NCCL_DEBUG_SUBSYS=")
    assert "UCX reads it, and not NCCL" in _say("UCX_TLS=")


def test_json_carries_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(_run(capsys, "NCCL_NVLS_ENABLE=true", "fixture:dgx-h100", "--format", "json"))
    assert document["schema"] == lookup.SCHEMA
    assert document["kind"] == "variable"
    assert document["asked"]["becomes"] == "0"
    assert document["variable"]["history"] == {"2.17.1": "1", "2.18.1": "2"}
    assert document["state"]["nccl"]


@pytest.mark.parametrize("name", ["NCCL_P2P_LEVEL", "TORCH_FR_BUFFER_SIZE"])
def test_what_the_source_cannot_hold_is_not_known(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = tmp_path / "matrix.txt"
    matrix.write_text("\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n")
    out = _run(capsys, name, str(matrix))
    assert "not known whether it is set: a pasted matrix" in " ".join(out.split())
    assert "not set" not in out


def test_an_assumed_value_is_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    out = _run(capsys, "NCCL_SHM_DISABLE", "fixture:dgx-h100", "--assume", "env.NCCL_SHM_DISABLE=true")
    assert "set to true by assumption" in out
    assert "NCCL works with: 0" in out


@pytest.mark.parametrize(
    ("word", "piece"),
    [
        ("PXB", "Several PCIe switches"),
        ("pxb", "Several PCIe switches"),
        ("busbw", "2(n−1)/n"),
        ("bus bandwidth", "2(n−1)/n"),
        ("ring", "slowest link"),
        ("GPUDirect RDMA", "without the host"),
        ("NV18", "450 GB/s"),
        ("P2P003", "Advice"),
        ("p2p003", "Advice"),
        ("nccl-sends-peer-traffic-into-translating-iommu", "P2P003"),
        ("pair.p2p.read", "driver's answer"),
        ("env.NCCL_ALGO", "cost model"),
        ("NCCL_MIN_NRINGS", "use NCCL_MIN_NCHANNELS"),
        ("NCCL_TREE_THRESHOLD", "no longer read from 2.5.6 on"),
        ("NCCL_GRAPH_HELPER_DISABLE", "it has no effect"),
        ("NCCL_GIN_ENABLED", "NCCL_GIN_ENABLE"),
        ("NCCL_IB_ADDR", "NCCL_IB_ADDR_RANGE"),
        ("NCCL_SOCKET_TIMEOUT", "setting it does nothing"),
        ("NCCL_GIN_TYPE", "proxy on the CPU"),
        ("NCCL_CUMEM_ENABLE", "Values 0 or 1 -2: automatic"),
        ("NCCL_DEBUG_SUBSYS", "no ALLREDUCE"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "use TORCH_FR_BUFFER_SIZE"),
        ("NVSHMEM_IB_ENABLE_IBGDA", "PeerMappingOverride=1"),
        ("NCCL_ALGO=RING", "NCCL works with: Ring"),
        ("TORCH_NCCL_BLOCKING_WAIT", "No watchdog runs then"),
        ("NCCL_BLOCKING_WAIT", "use TORCH_NCCL_BLOCKING_WAIT"),
        ("TORCH_FR_BUFFER_SIZE", "since 2.11: 2000"),
        ("OFI_NCCL_TOPO_FILE_WRITE_ENABLE", "1.7 and newer before 1.11"),
        ("NVSHMEM_HCA_LIST", "Without NVSHMEM_ENABLE_NIC_PE_MAPPING=1"),
        ("RCCL_MSCCL_ENABLE=1", "a name of AMD's RCCL, by its beginning RCCL_; not read by NCCL"),
        ("HSA_NO_SCRATCH_RECLAIM", "For AMD GPUs only."),
        ("OMPI_MCA_btl_tcp_if_include", "steers MPI's own traffic"),
        ("NCCL_TESTS_DEVICE", "read by nccl-tests, not by NCCL"),
        ("NCCL_TESTS_DEVICES", "Names like it NCCL_TESTS_DEVICE"),
        ("NCCL_FASTRAK_DUMP_COMM_STATS", "A3 Mega"),
        ("NCCL_HOME", "Builds and scripts"),
        ("--disable-custom-all-reduce", "read none of NCCL's variables"),
    ],
)
def test_words(word: str, piece: str) -> None:
    assert piece in " ".join(_say(word).split())


def test_nccl_conf_is_recommended_only_for_what_nccl_reads() -> None:
    assert "belongs in nccl.conf" in _say("NCCL_SOCKET_IFNAME")
    for name, info in register.neighbours().items():
        assert "nccl.conf" not in _say(name).split("Rules that mention it")[0], (name, info.setting_class)


def test_a_typo_is_answered_with_the_nearest_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "OFI_NCL_PROTOCOL"]) == 2
    assert "Did you mean OFI_NCCL_PROTOCOL" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("NCCL_P2P_LEVL", ["NCCL_P2P_LEVEL"]),
        ("NCCL_NSOCS_PERTHREAD", ["NCCL_NSOCKS_PERTHREAD"]),
        ("NCCL_AVOID_RECORD_STREAMS", ["TORCH_NCCL_AVOID_RECORD_STREAMS"]),
        ("NCCL_GIN_BACKEND", []),
    ],
)
def test_a_name_of_nccls_kind_that_no_release_knows_does_nothing(word: str, meant: list[str]) -> None:
    assert "no release of NCCL reads this name" in _say(word)
    found = lookup.explain(word, RULES, None).invention
    assert found is not None
    assert found.instead == meant


def test_no_made_up_name_is_suggested() -> None:
    for word in ("GIN_ENABLED", "TORCH_NCCL_GIN_ENABLED", "CUMEM_DISABLE"):
        assert not set(lookup.nearest(word, RULES)) & set(register.inventions())


@pytest.mark.parametrize("word", ["RCCL_\x1b[31m", "HSA_" + "A" * 500, "RCCL_ X"])
def test_what_is_no_name_belongs_to_nobody(word: str) -> None:
    with pytest.raises(TopoAdvisorError):
        lookup.explain(word, RULES, None)


def test_every_name_can_be_explained() -> None:
    names = [*register.registry(), *register.neighbours(), *register.inventions(), *glossary.terms()]
    names += [f"{beginning}SOMETHING" for beginning in register.families()]
    names += [spelling for term in glossary.terms().values() for spelling in term.also]
    for name in names:
        said = _say(name)
        assert said.endswith("\n")
        assert all(len(line) <= 80 or "https://" in line or "|" in line for line in said.splitlines()), name


def test_words_of_the_glossary_lead_somewhere() -> None:
    for term in glossary.terms().values():
        assert term.what.endswith("."), term.name
        for other in term.see:
            assert glossary.find(other) or register.find(other), (term.name, other)


@pytest.mark.parametrize("word", ["PFC", "ecn", "DCQCN", *FORMS["job.symptom"].strip("|").split("|")])
def test_words_of_fabrics_and_of_reports_are_terms(word: str) -> None:
    assert lookup.explain(word, RULES, None).kind == "term"


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200))
def test_any_word_gives_an_explanation_or_one_sentence(word: str) -> None:
    with suppress(TopoAdvisorError):
        assert _say(word).endswith("\n")


def test_codes_of_log_are_explained() -> None:
    for word in ("LOG004", "log004", "gdr-off"):
        found = lookup.explain(word, RULES, None)
        assert found.kind == "term"
        assert found.term is not None
        assert found.term.name == "LOG004 gdr-off"
        assert "`topoadvisor log`" in found.term.what
