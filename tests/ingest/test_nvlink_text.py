from __future__ import annotations

from pathlib import Path

import pytest

from topoadvisor.ingest import nvlink_text, text
from topoadvisor.snapshot import NvLink

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus/other"
CAPTURE = Path(__file__).resolve().parents[2] / "../shared/capture_h200x2"

A100 = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-4000-8000-000000000000)\n"
GPU0 = "GPU 0: NVIDIA Example (UUID: GPU-00000000-0000-4000-8000-000000000000)\n"
GPU1 = "GPU 1: NVIDIA Example (UUID: GPU-00000000-0000-4000-8000-000000000001)\n"


def links(block: nvlink_text.GpuBlock) -> list[NvLink] | None:
    return None if block.links is None else list(block.links.values())


def test_link_states() -> None:
    (listing,) = nvlink_text.parse(
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
        "\t Link 0: 26.562 GB/s\n   \n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA RTX A6000 (UUID: GPU-略)\n"
        "NVML: Unable to retrieve NVLink information as all links are inActive\n"
        "GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t [...]\n\t Link 17: 26.562 GB/s\n"
        "GPU 3: Tesla V100-SXM2-32GB\n"
    )
    first, second, third, fourth = listing.blocks.values()
    assert links(first) == [NvLink(link=0, active=True, raw_mbps=26562), NvLink(link=1, active=False)]
    assert (second.name, second.uuid, second.links) == ("NVIDIA RTX A6000", "GPU-略", {})
    assert third.links is None, "some links were left out"
    assert (fourth.index, fourth.name, fourth.uuid, fourth.links) == (3, "Tesla V100-SXM2-32GB", None, None)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (f"{GPU0}\t Link 0: 25 GB/s\n\t...\n{GPU1}\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n", [None, 2]),
        (f"{GPU0}\t Link 0: 25 GB/s\n\t...\n{GPU1}\t Link 0: 25 GB/s\n\t...\n", [None, None]),
        (f"{GPU0}\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n{GPU1}\t Link 0: 25 GB/s\n", [2, None]),
        (f"{GPU0}\t Link 0: 25 GB/s\n{GPU1}\t Link 0: 25 GB/s\n...\n", [1, 1]),
        (f"{A100}\t Link 0: 25 GB/s\n", [None]),  # its board has 12
        (f"{A100}\t Link 0: 25 GB/s\n{A100.replace('0', '1', 1)}\t Link 0: 25 GB/s\n", [None, None]),
        (f"{A100}\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n", [None]),  # the end may be cut
        (f"{A100}\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n{GPU1}", [2, None]),
        (f"{GPU0}\t Link 0: 25 GB/s\n{GPU1}\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n", [None, 2]),
        (f"{GPU0}\t Link 0: 25 GB/s\n{GPU1}NVML: all links are inActive\n", [1, 0]),
    ],
)
def test_links_that_are_left_out_or_cut_off_are_not_down(text: str, counts: list[int | None]) -> None:
    (listing,) = nvlink_text.parse(text)
    assert [None if block.links is None else len(block.links) for block in listing.blocks.values()] == counts


def test_gpus_left_out_do_not_make_the_links_before_them_incomplete() -> None:
    (listing,) = nvlink_text.parse(
        "GPU 0: NVIDIA Example (UUID: GPU-0)\n Link 0: 26.562 GB/s\n...\n"
        "GPU 7: NVIDIA Example (UUID: GPU-7)\n Link 0: 26.562 GB/s\n"
    )
    assert [links(block) for block in listing.blocks.values()] == [[NvLink(link=0, active=True, raw_mbps=26562)]] * 2


def test_the_other_listings_say_where_links_lead_and_how_often_they_failed() -> None:
    found = nvlink_text.parse(
        GPU0
        + "\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n"
        # No heading and no command between them: the lines tell.
        + GPU0
        + "\t Link 0: Remote Device 00000000:4B:00.0: Link 3\n\t Link 1: Remote Device FFFFFFFF:FF:FF.0: Link 0\n"
        + GPU0
        + "\t Link 0, P2P is supported: true\n\t Link 1, P2P is supported: true\n"
        + GPU0
        + "\t Link 0: Replay Errors: 2\n\t Link 0: Recovery Errors: 0\n\t Link 0: CRC Errors: 7\n\n"
        + GPU0
        + GPU1
    )
    assert [listing.option for listing in found] == ["-s", "-R", "-c", "-e", "-L"]
    assert links(found[1].blocks[0]) == [
        NvLink(link=0, remote_address="0000:4b:00.0"),
        NvLink(link=1, remote_hidden=True),
    ]
    assert links(found[2].blocks[0]) == [NvLink(link=0), NvLink(link=1)]
    assert links(found[3].blocks[0]) == [NvLink(link=0, replay_errors=2, recovery_errors=0, crc_errors=7)]
    assert list(found[4].blocks) == [0, 1]


def test_links_of_another_option_below_the_same_gpu_are_another_listing() -> None:
    first, second = nvlink_text.parse(GPU0 + "Link 0: 25 GB/s\nLink 0: Replay Errors: 0\n")
    assert (links(first.blocks[0]), links(second.blocks[0])) == (
        [NvLink(link=0, active=True, raw_mbps=25000)],
        [NvLink(link=0, replay_errors=0)],
    )


def test_a_rate_with_a_decimal_comma() -> None:
    first, _ = nvlink_text.parse(f"{GPU0}\t Link 0: 26,562 GB/s\n{GPU0}")
    assert links(first.blocks[0]) == [NvLink(link=0, active=True, raw_mbps=26562)]


def test_mig_instances_say_that_the_mode_is_on() -> None:
    snapshot = text.read(GPU0 + "  MIG 1g.10gb     Device  0: (UUID: MIG-0)\n" + GPU1, "list.txt")
    assert [gpu.mig for gpu in snapshot.gpus] == [True, None]


@pytest.mark.parametrize("line", ["GPU 0: 45C, fan 30 %", "GPU 1: PIX", "GPU0: NVIDIA H100", "no GPU 0: here (UUID)"])
def test_other_lines_about_a_gpu_are_no_names(line: str) -> None:
    assert nvlink_text.parse(line + "\n") == []


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("nvlink_status_a100_8gpu_gpud.txt", [12] * 8),
        ("nvlink_status_a6000_inactive.txt", [4, 4, 0]),
        ("nvlink_status_aws_p4de_gpu0.txt", [12]),
        ("nvlink_status_azure_bad.txt", [0]),
        ("nvlink_status_azure_good.txt", [12]),
        ("nvlink_status_h100_elided.txt", [None]),
        ("nvlink_status_h800_elided.txt", [8, 8, 8]),
        ("nvlink_status_patrickstar_blank-lines.txt", [6]),
        ("nvlink_status_rtx3090_redacted-uuid.txt", [4, 4]),
        ("nvlink_status_v100_8gpu.txt", [6] * 8),
        ("nvlink_capabilities_h800.txt", [8, 8, 8]),
        ("nvlink_errors_h100_elided.txt", [None]),
    ],
)
def test_corpus(name: str, counts: list[int | None]) -> None:
    snapshot = text.read((CORPUS / name).read_text(encoding="utf-8"), name)
    assert [None if gpu.nvlinks is None else len(gpu.nvlinks) for gpu in snapshot.gpus] == counts


@pytest.mark.skipif(not CAPTURE.is_dir(), reason="the capture is not here")
@pytest.mark.parametrize(
    ("option", "last"),
    [
        ("s", NvLink(link=17, active=True, raw_mbps=26562)),
        ("R", NvLink(link=17, remote_hidden=True)),
        ("c", NvLink(link=17)),
        ("e", NvLink(link=17, replay_errors=0, recovery_errors=0, crc_errors=0)),
    ],
)
def test_a_real_machine(option: str, last: NvLink) -> None:
    (listing,) = nvlink_text.parse((CAPTURE / f"nvlink-{option}.txt").read_text(encoding="utf-8"))
    assert listing.option == f"-{option}"
    assert [(len(block.links or {}), (links(block) or [None])[-1]) for block in listing.blocks.values()] == [
        (18, last)
    ] * 2
