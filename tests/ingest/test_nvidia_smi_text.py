from __future__ import annotations

from pathlib import Path

import pytest

from topoadvisor.ingest import detect, nvidia_smi_text

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus/other"
CAPTURE = Path(__file__).resolve().parents[2] / "../shared/capture_h200x2"

TABS = (
    " \t\x1b[4mGPU0\tGPU1\t\x1b[0m\n GPU0\tX\tOK\t\n GPU1\tCNS\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
)


@pytest.mark.parametrize("text", [TABS, TABS.expandtabs(8), TABS.replace("\n", "\r\n")])
def test_a_peer_to_peer_table_is_a_mapping_of_ordered_pairs(text: str) -> None:
    assert nvidia_smi_text.parse_p2p(text) == {(0, 1): "OK", (1, 0): "CNS"}


@pytest.mark.parametrize(
    "text", ["", "No devices were found\n", " \tGPU0\t\n GPU0\tX\t\n", "\tGPU0\tGPU1\nGPU0\tX\tSYS\n"]
)
def test_nothing_peer_to_peer(text: str) -> None:
    assert nvidia_smi_text.parse_p2p(text) == {}


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize(
    ("name", "pairs", "statuses"),
    [
        ("p2p_4gpu_ns_fixture.txt", 12, {"NS"}),
        ("p2p_p_8gpu_nccl-docs.txt", 56, {"OK"}),
        ("p2p_r_2gpu_l4_cns.txt", 2, {"CNS"}),
        ("p2p_r_8gpu_cloud-hypervisor_tabs.txt", 56, {"OK"}),
        ("p2p_r_8gpu_h100_ok.txt", 56, {"OK"}),
        ("p2p_rw_4gpu_5060ti_tabs_empty-legend.txt", 12, {"OK"}),
    ],
)
def test_corpus_of_peer_to_peer_tables(name: str, pairs: int, statuses: set[str]) -> None:
    found = nvidia_smi_text.parse_p2p((CORPUS / name).read_text(encoding="utf-8"))
    assert (len(found), set(found.values())) == (pairs, statuses)


@pytest.mark.skipif(not CAPTURE.is_dir(), reason="the capture is not here")
def test_a_real_machine() -> None:
    def read(name: str) -> str:
        return (CAPTURE / name).read_text(encoding="utf-8")

    assert nvidia_smi_text.parse_p2p(read("topo-p2p-r.txt")) == {(0, 1): "OK", (1, 0): "OK"}
    assert nvidia_smi_text.parse_p2p(read("topo-p2p-p.txt")) == {(0, 1): "NS", (1, 0): "NS"}


def test_a_damaged_cell_of_a_p2p_table_is_told() -> None:
    table = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tOK\t0K\nGPU1\tOK\tX\tOK\nGPU2\tOK\tN/A\tX\n"
    snapshot = detect.from_bytes(f"$ nvidia-smi topo -p2p r\n{table}".encode(), file="paste")
    source = snapshot.sources[0]
    assert (source.status, source.reason) == ("partial", "2 damaged cells, the first in line 3, column 11, row GPU0")
    assert len(snapshot.p2p or []) == 4
