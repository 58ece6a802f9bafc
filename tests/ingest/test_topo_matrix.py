"""What the parser makes of whole texts: the corpus, odd shapes, damage, what surrounds a matrix, hostile input."""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from matrix_texts import one, parse, tabs

from topoadvisor.errors import InputError
from topoadvisor.ingest import text as texts
from topoadvisor.ingest import topo_matrix
from topoadvisor.snapshot import DamagedCell, NvLink, P2p

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus"
TEXTS = sorted([*CORPUS.glob("matrices/*.txt"), *CORPUS.glob("other/SYNTHETIC*.txt")])


def snapshot(text: str) -> Any:
    return texts.read(text, "paste.txt")


@pytest.mark.skipif(not TEXTS, reason="the corpus is not here")
@pytest.mark.parametrize("path", TEXTS, ids=[path.stem[:40] for path in TEXTS])
def test_corpus(path: Path) -> None:
    expected = json.loads(path.with_suffix(".expected.json").read_text(encoding="utf-8"))
    with path.open(encoding="utf-8", newline="") as stream:
        matrices = parse(stream.read())
    matrix = matrices[0]
    assert matrix.gpus == expected["gpus"]
    assert matrix.nics == expected["nics"]
    assert matrix.cells == expected["matrix"]
    assert matrix.cpu_affinity == expected["cpu_affinity"]
    assert matrix.numa_affinity == expected["numa_affinity"]
    assert matrix.gpu_numa_id == expected.get("gpu_numa_id", {})
    assert matrix.nic_legend == expected["nic_legend"]
    assert len(matrices) == len(expected.get("captures", [None]))


@pytest.mark.skipif(not TEXTS, reason="the corpus is not here")
def test_only_the_cut_text_of_the_corpus_is_damaged() -> None:
    damaged = {path.name[:3]: one(path.read_text(encoding="utf-8")).damaged for path in TEXTS}
    assert {name for name, cells in damaged.items() if cells} == {"039"}
    assert damaged["039"] == [DamagedCell(row="GPU7", column="NIC7", text="", line=10, text_column=73)]


def test_blank_affinities_stand_where_the_driver_puts_its_tabs() -> None:
    matrix = one(
        tabs(
            "|GPU0|GPU1|GPU2|CPU Affinity|NUMA Affinity|GPU NUMA ID",
            "GPU0| X |SYS|SYS||1||N/A",
            "GPU1|SYS| X |SYS|0|0||N/A",
            "GPU2|SYS|SYS| X ||||N/A",
        )
    )
    assert matrix.cpu_affinity == {"GPU0": None, "GPU1": "0", "GPU2": None}
    assert matrix.numa_affinity == {"GPU0": "1", "GPU1": "0", "GPU2": None}
    assert matrix.gpu_numa_id == dict.fromkeys(matrix.gpus, "N/A")


def test_blank_cells_of_a_drawn_table() -> None:
    matrix = one(
        "| | GPU0 | GPU1 | NIC0 | CPU Affinity | NUMA Affinity |\n"
        "|---|:-:|---|---|---|---|\n"
        "| **GPU0** | X | **NV12** |  | 0-31 | |\n"
        "| GPU1 | NV12 | X | SYS | | 1 |\n"
    )
    assert matrix.cells == {"GPU0": {"GPU1": "NV12"}, "GPU1": {"GPU0": "NV12", "NIC0": "SYS"}}
    assert matrix.cpu_affinity == {"GPU0": "0-31", "GPU1": None}
    assert matrix.numa_affinity == {"GPU0": None, "GPU1": "1"}


def test_a_box_of_lines() -> None:
    matrix = one(
        "┌──────┬──────┬──────┬──────────────┐\n"
        "│      │ GPU0 │ GPU1 │ CPU Affinity │\n"
        "├──────┼──────┼──────┼──────────────┤\n"
        "│ GPU0 │  X   │ PSB  │ 0-31         │\n"
        "│ GPU1 │ PSB  │  X   │              │\n"
        "└──────┴──────┴──────┴──────────────┘\n"
    )
    assert matrix.cells == {"GPU0": {"GPU1": "PSB"}, "GPU1": {"GPU0": "PSB"}}
    assert matrix.cpu_affinity == {"GPU0": "0-31", "GPU1": None}


def test_wrapped_rows_and_a_wrapped_header() -> None:
    matrix = one(
        "        GPU0    GPU1    NIC0\n"
        "NIC1    CPU Affinity    NUMA Affinity\n"
        "GPU0     X      NV4     SYS\n"
        "PIX     0-31    0\n"
        "GPU1    NV4      X      SYS\n"
        "PHB     0-31    0\n"
        "NIC0    SYS     SYS      X\n"
        "NODE\n"
        "NIC1    PIX     PHB     NODE\n"
        " X\n"
    )
    assert matrix.nics == ["NIC0", "NIC1"]
    assert [matrix.cells[row]["NIC1"] for row in ("GPU0", "GPU1", "NIC0")] == ["PIX", "PHB", "NODE"]
    assert matrix.numa_affinity == {"GPU0": "0", "GPU1": "0"}
    assert matrix.damaged == []


def test_rows_without_their_header_are_numbered_by_their_x() -> None:
    matrix = one(tabs("GPU2|NV4|NV2| X |NV1|0-31|0", "GPU3|NV2|NV4|NV1| X |0-31|0", "NIC0|SYS|SYS|SYS|SYS| X "))
    assert matrix.gpus == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert matrix.cells["GPU3"] == {"GPU0": "NV2", "GPU1": "NV4", "GPU2": "NV1"}
    assert matrix.cpu_affinity == {"GPU2": "0-31", "GPU3": "0-31"}


def test_a_header_that_lost_its_last_columns() -> None:
    matrix = one(
        "        GPU0    GPU1\nGPU0     X      NV1     PIX\nGPU1    NV1      X      SYS\nNIC0    PIX     SYS      X\n"
    )
    assert matrix.nics == ["NIC0"]
    assert matrix.cells["GPU1"] == {"GPU0": "NV1", "NIC0": "SYS"}


def test_elided_columns_and_rows() -> None:
    matrix = one(
        "        GPU0    GPU1    ...    GPU7    CPU Affinity\n"
        "GPU0     X      NV18    ...    NV12    0-51\n"
        "...\n"
        "GPU7    NV12    NV18    ...     X      52-103\n"
    )
    assert matrix.gpus == ["GPU0", "GPU1", "GPU7"]
    assert matrix.cells == {"GPU0": {"GPU1": "NV18", "GPU7": "NV12"}, "GPU7": {"GPU0": "NV12", "GPU1": "NV18"}}
    assert matrix.damaged == []


def test_an_elided_row_below_a_full_header() -> None:
    matrix = one("     GPU0 GPU1 GPU2 GPU3 CPU Affinity\nGPU0  X   NV1  ...  NV2  0-3\nGPU3 NV2  ...   X   4-7\n")
    assert matrix.cells == {"GPU0": {"GPU1": "NV1", "GPU3": "NV2"}, "GPU3": {"GPU0": "NV2"}}


@pytest.mark.parametrize(
    ("rows", "cells"),
    [
        (("GPU0  X   NV1  NV2", "GPU1       X   SYS", "GPU2            X"), {"GPU0": {"GPU1": "NV1", "GPU2": "NV2"}}),
        (("GPU0  X", "GPU1 NV1   X", "GPU2 NV2  SYS   X"), {"GPU2": {"GPU0": "NV2", "GPU1": "SYS"}}),
    ],
    ids=["upper", "lower"],
)
def test_a_triangle_is_not_damaged(rows: tuple[str, ...], cells: dict[str, dict[str, str]]) -> None:
    matrix = one("\n".join(["     GPU0 GPU1 GPU2", *rows]))
    assert matrix.damaged == []
    assert cells.items() <= matrix.cells.items()
    assert len(matrix.cells) == 3


def test_other_names_for_network_devices() -> None:
    names = ["hfi1_0", "bnxt_re_bond0", "rocep1s0f0", "mlx5_ib3"]
    rows = [f"{name}|SYS|" + "|".join("X" if other == name else "PIX" for other in names) for name in names]
    matrix = one(tabs("|GPU0|" + "|".join(names) + "|CPU Affinity", "GPU0| X |SYS|SYS|SYS|SYS|0-3", *rows))
    assert matrix.nics == names
    assert matrix.cells["rocep1s0f0"] == {"GPU0": "SYS", "hfi1_0": "PIX", "bnxt_re_bond0": "PIX", "mlx5_ib3": "PIX"}


def test_nvme_columns_are_a_class_of_their_own() -> None:
    together = one("      GPU0  NVMe0  CPU Affinity\nGPU0   X    PIX    0-31\nNVMe0 PIX    X\n")
    assert (together.gpus, together.nics, together.others) == (["GPU0"], [], {"NVMe0": None})
    apart = one(
        tabs("|GPU0|NIC0|CPU Affinity", "GPU0| X |NODE|0-47", "NIC0|NODE| X |", "", "NIC Legend:", "", "  NIC0: mlx5_0")
        + tabs("", "|NVMe0|NVMe1|", "GPU0|PHB|SYS|", "", "NVMe Legend:", "", "  NVMe0: nvme0n1")
    )
    assert apart.cells["GPU0"] == {"NIC0": "NODE", "NVMe0": "PHB", "NVMe1": "SYS"}
    assert apart.others == {"NVMe0": "nvme0n1", "NVMe1": None}
    assert (apart.nic_legend, apart.cpu_affinity) == ({"NIC0": "mlx5_0"}, {"GPU0": "0-47"})


@pytest.mark.parametrize(
    ("legend", "expected"),
    [
        ("NIC0: mlx5_0\nNIC1: mlx5_1", {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}),
        ("NIC0: rocep80s0 -> ens2 10.0.0.0/24 (rail 0)", {"NIC0": "rocep80s0"}),
        ("* NIC0 = mlx5_0, NIC1 = mlx5_1", {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}),
        ("NIC Legend:\n  NIC0: renamed", {"NIC0": "renamed"}),
        ("NIC0: unknown to me", {}),
        ("Then NIC0: PIX to GPU0", {}),
    ],
)
def test_legends(legend: str, expected: dict[str, str]) -> None:
    table = "      GPU0  NIC0  NIC1\nGPU0   X    PIX   SYS\n"
    assert one(f"{table}\n{legend}\n").nic_legend == expected
    assert one(f"{legend}\n\n{table}").nic_legend == expected


def test_what_stands_around_a_matrix_is_no_part_of_it() -> None:
    matrix = one(
        "GPU0 and GPU1 are NV12, GPU2 is SYS\n"
        "$ nvidia-smi topo -m\n"
        "        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
        "GPU0     X      SYS     0-31            0    <-- far from NIC0 (PIX elsewhere)\n"
        "[warning] GPU0 is slow\n"
        "\n"
        "GPU1    SYS      X      32-63           1    <-- X marks the spot\n"
        "GPU1 is a H100, SYS\n"
        "12\n"
    )
    assert matrix.cells == {"GPU0": {"GPU1": "SYS"}, "GPU1": {"GPU0": "SYS"}}
    assert (matrix.numa_affinity, matrix.damaged) == ({"GPU0": "0", "GPU1": "1"}, [])


@pytest.mark.parametrize("own", ["X", "x", "-", "self"])
def test_a_diagonal_of_other_signs(own: str) -> None:
    matrix = one(f"     GPU0 GPU1 CPU Affinity\nGPU0 {own}    NV1  0-3\nGPU1 NV1  {own}    0-3\n")
    assert matrix.cells == {"GPU0": {"GPU1": "NV1"}, "GPU1": {"GPU0": "NV1"}}


def test_a_table_that_lost_its_line_ends() -> None:
    matrix = one(
        "Here: GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity GPU0 X NV12 PIX 0-31 0 GPU1 NV12 X SYS 32-63 1 "
        "NIC0 PIX SYS X Legend: X = Self SYS = far NIC Legend: NIC0: mlx5_0"
    )
    assert matrix.cells["GPU1"] == {"GPU0": "NV12", "NIC0": "SYS"}
    assert (matrix.numa_affinity, matrix.nic_legend) == ({"GPU0": "0", "GPU1": "1"}, {"NIC0": "mlx5_0"})
    assert matrix.damaged == []


def test_words_that_were_added_behind_the_label() -> None:
    matrix = one("     GPU0 GPU1\nGPU0 (H100)  X   NV1\nGPU1 (H100) NV1   X\n")
    assert matrix.cells == {"GPU0": {"GPU1": "NV1"}, "GPU1": {"GPU0": "NV1"}}


def test_a_row_and_a_column_that_stand_there_twice_count_once_and_are_told() -> None:
    rows = ["GPU0| X |NV4|SYS|SYS|0", "GPU1|NV4| X |SYS|SYS|0", "GPU2|SYS|SYS| X | X |1"]
    found = snapshot(tabs("|GPU0|GPU1|GPU2|GPU2|NUMA Affinity", *rows))
    (matrix,) = found.matrices
    assert (matrix.gpus, matrix.damaged) == (["GPU0", "GPU1", "GPU2"], [])
    assert found.sources[0].reason == "GPU2 stands more than once in the header in line 1"
    again = snapshot(
        tabs("|GPU0|GPU1|GPU2", "GPU0| X |NV4|SYS", "GPU1|NV4| X |SYS", "GPU1|NV4| X |PHB", "GPU2|SYS|SYS| X")
    )
    (matrix,) = again.matrices
    assert (list(matrix.cells), matrix.cells["GPU1"]) == (["GPU0", "GPU1", "GPU2"], {"GPU0": "NV4"})
    assert matrix.damaged == [DamagedCell(row="GPU1", column="GPU2", text="PHB", line=4, text_column=14)]
    assert again.sources[0].reason == (
        "rows come again: GPU1 in line 4; 1 damaged cell, the first in line 4, column 14, row GPU1"
    )


def test_the_first_row_may_stand_there_twice() -> None:
    matrix = one(tabs("|GPU0|GPU1", "GPU0| X |NV4", "GPU0| X |NV4", "GPU1|NV4| X "))
    assert matrix.cells == {"GPU0": {"GPU1": "NV4"}, "GPU1": {"GPU0": "NV4"}}


def test_ranks_of_one_job_are_machines_of_their_own() -> None:
    first, second = parse(
        "0:      GPU0    mlx5_0\n0: GPU0  X      PIX\n0: mlx5_0       PIX      X\n"
        "1:      GPU0    mlx5_0\n1: GPU0  X      SYS\n1: mlx5_0       SYS      X\n"
    )
    assert [matrix.cells["GPU0"] for matrix in (first, second)] == [{"mlx5_0": "PIX"}, {"mlx5_0": "SYS"}]
    assert (first.first_line, second.first_line) == (1, 4)


TWO = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV2\t0-31\t0\t\t4\n"
    "GPU1\tNV2\t X \tN/A\t\tN/A\t\tN/A\n"
)
"""Two GPUs; the second knows no affinity."""


def test_the_snapshot_of_a_paste() -> None:
    found = snapshot(
        tabs(
            "|GPU0|GPU1|NIC0|CPU Affinity|NUMA Affinity|GPU NUMA ID",
            "GPU0| X |NV2|PIX|0-31|0||4",
            "GPU1|NV2| X |SYS|N/A||N/A||N/A",
            "",
            "NIC Legend:",
            "  NIC0: mlx5_0",
        )
    )
    assert found.origin == "matrix"
    assert [(gpu.index, gpu.cpu_affinity, gpu.numa_node, gpu.memory_numa_node) for gpu in found.gpus] == [
        (0, "0-31", 0, 4),
        (1, None, None, None),
    ]
    assert [(nic.name, nic.rdma) for nic in found.nics] == [("mlx5_0", True)]
    assert [(source.name, source.status, source.reason) for source in found.sources] == [
        ("nvidia-smi topo -m", "ok", None)
    ]
    assert found.raw[0].source == "nvidia-smi topo -m"
    assert found.p2p is None
    assert found.settings is None


def test_a_range_of_numa_nodes_is_no_node() -> None:
    assert [gpu.numa_node for gpu in snapshot(TWO.replace("\t0\t\t4", "\t0-1\t\t4")).gpus] == [None, None]


P2P = "$ nvidia-smi topo -p2p {}\n \tGPU0\tGPU1\t\n GPU0\tX\t{}\t\n GPU1\t{}\tX\t\n\nLegend:\n\n  X    = Self\n"


def test_peer_to_peer_tables_of_the_same_text() -> None:
    text = TWO + P2P.format("r", "OK", "CNS") + P2P.format("w", "NS", "NS") + P2P.format("p", "OK", "OK")
    assert snapshot(text).p2p == [
        P2p(a=0, b=1, read="OK", write="NS", pci="OK"),
        P2p(a=1, b=0, read="CNS", write="NS", pci="OK"),
    ]
    assert snapshot(P2P.format("rw", "OK", "OK") + TWO).p2p[0] == P2p(a=0, b=1, read="OK", write="OK")


def test_a_peer_to_peer_table_that_does_not_say_what_it_is_about_is_left_out() -> None:
    found = snapshot(TWO + "\n" + P2P.format("r", "OK", "OK").partition("\n")[2])
    assert found.p2p is None
    source = found.source("nvidia-smi topo -p2p")
    assert "line 5" in source.reason
    assert source.status == "partial"


def test_a_peer_to_peer_table_of_one_gpu_is_no_second_matrix() -> None:
    matrix = one("\tGPU0\tCPU Affinity\nGPU0\t X \t0-3\n\n$ nvidia-smi topo -p2p r\n \tGPU0\t\n GPU0\tX\t\n")
    assert matrix.cpu_affinity == {"GPU0": "0-3"}


NAMES = (
    "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
    "\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n"
    "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"
)


def test_names_and_links_of_the_same_text() -> None:
    gpus = snapshot(NAMES + TWO).gpus
    assert [gpu.name for gpu in gpus] == ["NVIDIA A100-SXM4-80GB"] * 2
    assert gpus[0].nvlinks == [NvLink(link=0, active=True, raw_mbps=25000), NvLink(link=1, active=False)]
    assert gpus[1].nvlinks is None


def test_names_are_not_given_to_one_of_several_machines() -> None:
    found = snapshot(NAMES + TWO + "\nother node:\n" + TWO)
    assert [gpu.name for gpu in found.gpus] == [None, None]
    assert len(found.matrices) == 2
    assert "2 matrices" in found.sources[0].reason


def test_a_second_table_that_shows_a_part_of_the_first_is_of_the_same_machine() -> None:
    part = tabs("|GPU0|GPU1", "GPU0| X |NV2", "GPU1|NV2| X ")
    for text in (f"{part}\nin full:\n{TWO}", f"{TWO}\nin short:\n{part}"):
        found = snapshot(NAMES + text)
        assert [gpu.name for gpu in found.gpus] == ["NVIDIA A100-SXM4-80GB"] * 2
        assert found.source("nvidia-smi topo -m").reason is None
    other = part.replace("NV2", "SYS")
    assert "2 matrices" in snapshot(f"{TWO}\nelsewhere:\n{other}").sources[0].reason


def test_damage_makes_the_source_partial() -> None:
    source = snapshot(TWO.replace("GPU1\tNV2", "GPU1\tN?2")).sources[0]
    assert (source.status, source.reason) == ("partial", "1 damaged cell, the first in line 3, column 6, row GPU1")


@pytest.mark.parametrize("line", ["GPU1 X", "Replace GPU1 X with a new one", "GPU0: X runs here", "| GPU0 | X |"])
def test_a_sentence_with_an_x_is_no_matrix(line: str) -> None:
    with pytest.raises(InputError, match="no GPU topology matrix"):
        parse(f"It is slow.\n{line}\nThanks\n")
    assert one(f"{line}\n\n\n{TWO}").gpus == ["GPU0", "GPU1"]


def test_one_gpu_with_its_heading_or_its_cpus_is_a_matrix() -> None:
    assert one("\tGPU0\nGPU0\t X \n").gpus == ["GPU0"]
    assert one("GPU0\t X \t0-15\t0\n").cpu_affinity == {"GPU0": "0-15"}


FOREIGN = "       GPU0  GPU1  GPU2  GPU3  Node Affinity\n" + "".join(
    f"GPU{row}   " + "  ".join("X " if row == column else "HT" for column in range(4)) + "  2\n" for row in range(4)
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "no GPU topology matrix"),
        ("hello\nGPU0 is fine\n", 1, "no GPU topology matrix"),
        ("some text\n\n\tGPU0\tGPU1\tCPU Affinity\n", 3, "no row"),
        (FOREIGN, 2, "HT"),
        (P2P.format("r", "OK", "OK"), 2, "peer-to-peer"),
        ("GPU0\tX\tSYS\n" * 100_000, 1, "without a header"),
        ("\t" + "\t".join(f"GPU{index}" for index in range(2000)) + "\nGPU0\tX\n", 1, "2000 columns is wider"),
        ("GPU0\t" + "\t".join(["X", *["SYS"] * 1999]) + "\n", 1, "2000 columns is wider"),
        ("\tGPU0\tGPU1\n" * 100_000, 50_001, "50000 lines"),
        ("\0" * 100_000, 1, "no GPU topology matrix"),
        ("a" * 7_000_000, 1, "no GPU topology matrix"),
        ("x" * 9_000_000, None, "8 MiB long"),
    ],
    ids=["empty", "prose", "header", "vendor", "p2p", "rows", "wide", "wide row", "headers", "nul", "one line", "long"],
)
def test_a_text_without_a_matrix_is_one_sentence_with_its_line_and_a_hint(
    text: str, line: int | None, words: str
) -> None:
    started = time.perf_counter()
    with pytest.raises(InputError) as error:
        parse(text)
    assert words in error.value.message
    assert error.value.file == "paste.txt"
    assert error.value.line == line
    assert error.value.hint
    assert time.perf_counter() - started < 10, "something is not linear"


@pytest.mark.parametrize(
    "line",
    [
        "hello GPU0 " * 2500,
        "GPU0 " + "NUMA " * 6000,
        "GPU0 " + "NV1" * 10_000 + "z",
        "GPU0" + " " * 30_000 + "CPU",
        "NIC0" + " " * 30_000 + ":",
        "GPU0 " + "1," * 15_000,
        "GPU0 \\n" * 1900,
        "\x1b[" * 15_000,
        "[" * 30_000,
    ],
)
def test_lines_that_would_be_slow_are_not(line: str) -> None:
    started = time.perf_counter()
    matrix = parse(TWO + f"{line}\n" * 20)[0]
    assert matrix.gpus == ["GPU0", "GPU1"]
    assert time.perf_counter() - started < 10, "something is not linear"


def test_a_matrix_after_many_lines_is_found_with_its_line() -> None:
    assert one("nothing of interest here\n" * 100_000 + TWO).first_line == 100_001


def test_cutting_a_text_anywhere_gives_a_matrix_or_a_sentence() -> None:
    whole = one(TWO)
    for end in range(len(TWO)):
        try:
            cut = one(TWO[:end])
        except InputError:
            continue
        assert all(cells.items() <= whole.cells[row].items() for row, cells in cut.cells.items())


DRAWN = """\
+------+------+------+-----------+----------+
|      | GPU0 | GPU1 | CPU       | NUMA     |
|      |      |      | Affinity  | Affinity |
+======+======+======+===========+==========+
| GPU0 | X    | NV4  | 0-31,     | 0        |
|      |      |      | 64-95     |          |
+------+------+------+-----------+----------+
| GPU1 | NV4  | X    | 32-63,96- | 1        |
|      |      |      | 127       |          |
+------+------+------+-----------+----------+
"""


def test_cells_that_a_formatter_broke_inside_their_column() -> None:
    for text in (DRAWN, "\n".join(line for line in DRAWN.split("\n") if line[:1] == "|")):
        matrix = one(text)
        assert matrix.cpu_affinity == {"GPU0": "0-31,64-95", "GPU1": "32-63,96-127"}
        assert matrix.numa_affinity == {"GPU0": "0", "GPU1": "1"}
        assert matrix.damaged == []
    halves = one(DRAWN.replace("0-31, ", "0-31  "))
    assert halves.cpu_affinity["GPU0"] is None
    assert [(cell.row, cell.text) for cell in halves.damaged] == [("GPU0", "0-31 64-95")]


@pytest.mark.parametrize(
    "text",
    [
        "We saw GPU0 X SYS in the matrix, which is strange.\n",
        "GPU1 SYS X is the second row of my matrix\n",
        "In our box we have GPU0 GPU1.\nThen GPU0 X SYS appears, and GPU1 SYS X as well.\n",
    ],
)
def test_rows_in_a_sentence_are_no_machine(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


def test_a_remark_behind_a_row_of_a_table_is_no_sentence() -> None:
    (matrix,) = parse("\tGPU0\tGPU1\nGPU0\t X \tSYS  <- this one is odd\nGPU1\tSYS\t X   and this one too\n")
    assert matrix.cells["GPU0"] == {"GPU1": "SYS"}


def test_a_line_of_more_bars_than_any_drawn_table_has_is_no_row() -> None:
    drawn = "| | GPU0 | GPU1 |\n| GPU0 | X | SYS |\n| GPU1 | SYS | X |{bars}\n"
    assert parse(drawn.format(bars=""))[0].cells["GPU1"] == {"GPU0": "SYS"}
    assert "GPU1" not in parse(drawn.format(bars="|" * 2000))[0].cells


@pytest.mark.parametrize(("nics", "strange"), [(0, False), (1, True), (2, True), (3, True)])
def test_machines_of_one_make_are_told_apart_by_their_nics(nics: int, strange: bool) -> None:
    """Two NICs as well: the same table again may be that of another node. A driver may show none of them."""

    def table(count: int) -> str:
        names = [f"NIC{number}" for number in range(count)]
        rows = [["GPU0", " X ", "NV18", *["PIX"] * count], ["GPU1", "NV18", " X ", *["PIX"] * count]]
        return "".join("\t".join(row) + "\n" for row in [["", "GPU0", "GPU1", *names], *rows])

    found = topo_matrix.parse(f"one\n{table(2)}\nand another\n\n{table(nics)}", file="a")
    assert [matrix.other_machine for matrix in found] == [False, strange]


WIDE = (
    "        GPU0    GPU1    GPU2    GPU3    mlx5_0  mlx5_1  CPU Affinity    NUMA Affinity",
    "GPU0     X      NV12    SYS     SYS     NODE    SYS     0-31,64-95      0",
    "GPU1    NV12     X      SYS     SYS     NODE    SYS     0-31,64-95      0",
    "GPU2    SYS     SYS      X      NV12    SYS     NODE    32-63,96-127    1",
    "GPU3    SYS     SYS     NV12     X      SYS     NODE    32-63,96-127    1",
    "mlx5_0  NODE    NODE    SYS     SYS      X      SYS",
    "mlx5_1  SYS     SYS     NODE    NODE    SYS      X",
)


@pytest.mark.parametrize("mark", ["> ", ">> ", "> > ", ">", "&gt; "])
@pytest.mark.parametrize("width", [30, 48, 60, 72, 200])
def test_mail_that_was_broken_and_quoted_is_as_the_table(mark: str, width: int) -> None:
    broken = [part for line in WIDE for part in textwrap.wrap(line, width, drop_whitespace=True)]
    quoted = one("".join(f"{mark}{line}\n" for line in broken))
    assert (quoted.cells, quoted.damaged) == (one("\n".join(WIDE)).cells, [])
    assert quoted.cpu_affinity == dict(zip(quoted.gpus, ["0-31,64-95"] * 2 + ["32-63,96-127"] * 2, strict=True))
    assert quoted.numa_affinity == dict(zip(quoted.gpus, "0011", strict=True))


def test_a_wiki_has_two_bars_between_cells() -> None:
    rows = [line.replace("CPU Affinity", "CPU_Affinity").replace("NUMA Affinity", "NUMA_Affinity") for line in WIDE]
    cells = [[cell.replace("_A", " A") for cell in row.split()] for row in rows]
    body = "{|\n|-\n!  !! " + " !! ".join(cells[0]) + "\n"
    body += "".join("|-\n| " + " || ".join(row) + "\n" for row in cells[1:]) + "|}\n"
    matrix = one(body)
    assert matrix.cells == one("\n".join(WIDE)).cells
    assert matrix.cpu_affinity["GPU2"] == "32-63,96-127"
    assert matrix.numa_affinity == dict(zip(matrix.gpus, "0011", strict=True))
    doubled = one("||  ||GPU0||GPU1||\n|GPU0|X|SYS|\n|GPU1|SYS|X|\n")
    assert doubled.cells == {"GPU0": {"GPU1": "SYS"}, "GPU1": {"GPU0": "SYS"}}
