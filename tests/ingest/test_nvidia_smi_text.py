from __future__ import annotations

from pathlib import Path

import pytest

from topoadvisor.ingest import nvidia_smi_text
from topoadvisor.snapshot import NvLink

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


def test_link_states() -> None:
    first, second, third, fourth = nvidia_smi_text.parse_nvlink_status(
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
        "\t Link 0: 26.562 GB/s\n   \n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA RTX A6000 (UUID: GPU-略)\n"
        "NVML: Unable to retrieve NVLink information as all links are inActive\n"
        "GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t [...]\n\t Link 17: 26.562 GB/s\n"
        "GPU 3: Tesla V100-SXM2-32GB\n"
    )
    assert first.links == (NvLink(link=0, active=True, raw_mbps=26562), NvLink(link=1, active=False))
    assert (second.name, second.uuid, second.links) == ("NVIDIA RTX A6000", "GPU-略", ())
    assert third.links is None, "some links were left out"
    assert (fourth.index, fourth.name, fourth.uuid, fourth.links) == (3, "Tesla V100-SXM2-32GB", None, None)


def test_gpus_left_out_do_not_make_the_links_before_them_incomplete() -> None:
    first, last = nvidia_smi_text.parse_nvlink_status(
        "GPU 0: NVIDIA H800 (UUID: GPU-0)\n Link 0: 26.562 GB/s\n...\n"
        "GPU 7: NVIDIA H800 (UUID: GPU-7)\n Link 0: 26.562 GB/s\n"
    )
    assert first.links == last.links == (NvLink(link=0, active=True, raw_mbps=26562),)


@pytest.mark.parametrize("line", ["GPU 0: 45C, fan 30 %", "GPU 1: PIX", "GPU0: NVIDIA H100", "no GPU 0: here (UUID)"])
def test_other_lines_about_a_gpu_are_no_names(line: str) -> None:
    assert nvidia_smi_text.parse_nvlink_status(line + "\n") == []


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("nvlink_status_a100_8gpu_gpud.txt", [12] * 8),
        ("nvlink_status_a10_gpud.txt", []),
        ("nvlink_status_a6000_inactive.txt", [4, 4, 0]),
        ("nvlink_status_aws_p4de_gpu0.txt", [12]),
        ("nvlink_status_azure_bad.txt", [0]),
        ("nvlink_status_azure_good.txt", [12]),
        ("nvlink_status_h100_elided.txt", [None]),
        ("nvlink_status_h800_elided.txt", [8, 8, 8]),
        ("nvlink_status_patrickstar_blank-lines.txt", [6]),
        ("nvlink_status_rtx3090_redacted-uuid.txt", [4, 4]),
        ("nvlink_status_v100_8gpu.txt", [6] * 8),
    ],
)
def test_corpus_of_link_states(name: str, links: list[int | None]) -> None:
    blocks = nvidia_smi_text.parse_nvlink_status((CORPUS / name).read_text(encoding="utf-8"))
    assert [None if block.links is None else len(block.links) for block in blocks] == links


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
    assert [len(block.links or ()) for block in nvidia_smi_text.parse_nvlink_status(read("nvlink-s.txt"))] == [18, 18]
