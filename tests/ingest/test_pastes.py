"""Pastes of unusual shape: each is read right by its structure."""

from __future__ import annotations

import pytest

from topoadvisor.ingest import topo_matrix
from topoadvisor.snapshot import Matrix


def read(text: str) -> list[Matrix]:
    return topo_matrix.parse(text, file="paste")


def rows(matrix: Matrix) -> list[str]:
    """The matrix as one line per row: label, cells (. for one not read), CPU and NUMA affinity."""
    columns = [*matrix.gpus, *matrix.nics]
    lines = []
    for label, cells in matrix.cells.items():
        texts = ["X" if name == label else cells.get(name, ".") for name in columns]
        affinities = [column[label] or "-" for column in (matrix.cpu_affinity, matrix.numa_affinity) if label in column]
        lines.append(" ".join([label, *texts, *affinities]))
    return lines


PASTES = {
    "GPUs numbered from 4": (
        "\tGPU4\tGPU5\tCPU Affinity\tNUMA Affinity\nGPU4\t X \tNV12\t24-47\t1\nGPU5\tNV12\t X \t24-47\t1\n",
        ["GPU4 X NV12 24-47 1", "GPU5 NV12 X 24-47 1"],
    ),
    "MIG lines between rows": (
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-15\n  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n"
        "GPU1\tNV12\t X \t16-31\n",
        ["GPU0 X NV12 0-15", "GPU1 NV12 X 16-31"],
    ),
    "NICs in another order": (
        "        GPU0    mlx5_0  mlx5_2  mlx5_1  CPU Affinity\nGPU0     X      PIX     SYS     PHB     0-19,40-59\n"
        "mlx5_0  PIX      X      SYS     PHB\nmlx5_2  SYS     SYS      X      SYS\n"
        "mlx5_1  PHB     PHB     SYS      X\n",
        ["GPU0 X PIX SYS PHB 0-19,40-59", "mlx5_0 PIX X SYS PHB", "mlx5_2 SYS SYS X SYS", "mlx5_1 PHB PHB SYS X"],
    ),
    "columns and rows left out": (
        "        GPU0  GPU1  ...  GPU7  CPU Affinity\nGPU0     X    NV18  ...  NV18  0-55,112-167\n"
        "GPU1    NV18   X    ...  NV18  0-55,112-167\n...\nGPU7    NV18  NV18  ...   X    56-111,168-223\n",
        ["GPU0 X NV18 NV18 0-55,112-167", "GPU1 NV18 X NV18 0-55,112-167", "GPU7 NV18 NV18 X 56-111,168-223"],
    ),
    "NICs by the names of RoCE devices": (
        "\tGPU0\trocep23s0f0\troceP2p1s0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tPIX\tSYS\t0-31\t0\t\tN/A\n"
        "rocep23s0f0\tPIX\t X \tSYS\t\t\t\t\nroceP2p1s0\tSYS\tSYS\t X \t\t\t\t\n",
        ["GPU0 X PIX SYS 0-31 0", "rocep23s0f0 PIX X SYS", "roceP2p1s0 SYS SYS X"],
    ),
    "NVSwitch columns": (
        "\tGPU0\tGPU1\tNVSwitch0\tCPU Affinity\nGPU0\t X \tNV12\tNV6\t0-63\nGPU1\tNV12\t X \tNV6\t0-63\n",
        ["GPU0 X NV12 NV6 0-63", "GPU1 NV12 X NV6 0-63"],
    ),
    "SOC and mlx4": (
        "\tGPU0\tGPU1\tmlx4_0\tCPU Affinity\nGPU0\t X \tSOC\tPHB\t0-7,16-23\nGPU1\tSOC\t X \tSOC\t8-15,24-31\n"
        "mlx4_0\tPHB\tSOC\t X \t\n\nLegend:\n\n  X   = Self\n"
        "  SOC  = Path over PCIe and the link between sockets\n",
        ["GPU0 X SOC PHB 0-7,16-23", "GPU1 SOC X SOC 8-15,24-31", "mlx4_0 PHB SOC X"],
    ),
    "markdown with emphasis": (
        "|          | **GPU0** | **GPU1** | **CPU Affinity** |\n| :------: | :------: | :------: | :--------------: |\n"
        "| **GPU0** |   **X**  |   `NV4`  |   0-15           |\n"
        "| **GPU1** |   `NV4`  |   **X**  |   N/A            |\n",
        ["GPU0 X NV4 0-15", "GPU1 NV4 X N/A"],
    ),
    "a header that was cut": (
        "     GPU0 GPU1 G\nGPU0  X   NV4  SYS\nGPU1 NV4   X   PHB\nGPU2 SYS  PHB   X\n",
        ["GPU0 X NV4 SYS", "GPU1 NV4 X PHB", "GPU2 SYS PHB X"],
    ),
    "a header in two lines": (
        "        GPU0    GPU1    CPU Affinity    NUMA\n                                        Affinity\n"
        "GPU0     X      PHB     0-15            N/A\nGPU1    PHB      X      0-15            N/A\n",
        ["GPU0 X PHB 0-15 N/A", "GPU1 PHB X 0-15 N/A"],
    ),
    "the header behind the prompt": (
        "root@n:~# nvidia-smi topo -m        GPU0    GPU1    CPU Affinity\n"
        "GPU0     X      NV2     0-9\nGPU1    NV2      X      0-9\n",
        ["GPU0 X NV2 0-9", "GPU1 NV2 X 0-9"],
    ),
    "spaces in lists of CPUs": (
        "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      SYS     0-11, 24-35     0\n"
        "GPU1    SYS      X      12-23, 36-47    1\n",
        ["GPU0 X SYS 0-11,24-35 0", "GPU1 SYS X 12-23,36-47 1"],
    ),
    "numbers around it": (
        "GPU0 bus 1b:00.0 NUMA 0\n\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-15\nGPU1\tPIX\t X \t0-15\n"
        "GPU0 -> GPU1: 22.5 GB/s\n   D\\D     0      1\n     0 760.12  22.50\n     1  22.48 761.00\n",
        ["GPU0 X PIX 0-15", "GPU1 PIX X 0-15"],
    ),
    "affinities in front of the labels": (
        "| CPU Affinity | NUMA Affinity |        | GPU0 | GPU1 | mlx5_0 |\n"
        "|--------------|---------------|--------|------|------|--------|\n"
        "| 8-15,24-31   | 1             | GPU0   | X    | NV4  | SYS    |\n"
        "| 0-7,16-23    | 0             | GPU1   | NV4  | X    | PHB    |\n"
        "|              |               | mlx5_0 | SYS  | PHB  | X      |\n",
        ["GPU0 X NV4 SYS 8-15,24-31 1", "GPU1 NV4 X PHB 0-7,16-23 0", "mlx5_0 SYS PHB X"],
    ),
    "one literal for each line": (
        'text = (\n    "\\tGPU0\\tGPU1\\tNIC0\\tCPU Affinity\\tNUMA Affinity\\tGPU NUMA ID\\n"\n'
        '    "GPU0\\t X \\tNV18\\tPIX\\t0-59\\t0\\t\\tN/A\\n"\n    "GPU1\\tNV18\\t X \\tSYS\\t0-59\\t0\\t\\tN/A\\n"\n'
        '    "NIC0\\tPIX\\tSYS\\t X \\t\\t\\t\\t\\n"\n)\n',
        ["GPU0 X NV18 PIX 0-59 0", "GPU1 NV18 X SYS 0-59 0", "NIC0 PIX SYS X"],
    ),
    "a raw string that ends in the last row": (
        "topo: `\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-95\tN/A\nGPU1\tNV18\t X \t0-95\tN/A`,\n",
        ["GPU0 X NV18 0-95 N/A", "GPU1 NV18 X 0-95 N/A"],
    ),
    "a terminal that swallowed the spaces of one of its columns": (
        "        GPU0    GPU1    NIC0NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV18    PIXSYS      0-55,112-167  0N/A\n"
        "GPU1    NV18     X      NODESYS     0-55,112-167  0N/A\n"
        "NIC0    PIX     NODE     X NODE\nNIC1    SYS     SYS     NODE X\n",
        [
            "GPU0 X NV18 PIX SYS 0-55,112-167 0",
            "GPU1 NV18 X NODE SYS 0-55,112-167 0",
            "NIC0 PIX NODE X NODE",
            "NIC1 SYS SYS NODE X",
        ],
    ),
    "cells and affinities without a space": (
        "        GPU0    GPU1    NIC0CPU Affinity    NUMA Affinity\n"
        "GPU0     X      PXB     SYS0-35,72-107      0\nGPU1    PXB      X      NODE0-35,72-107     0\n"
        "NIC0    SYS     NODE     X\n",
        ["GPU0 X PXB SYS 0-35,72-107 0", "GPU1 PXB X NODE 0-35,72-107 0", "NIC0 SYS NODE X"],
    ),
    "another session in the middle of it": (
        "\tGPU0\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tSYS\tPHB\t0-47\nNIC0\tSYS\t X \tNODE\n"
        + "Processing requests: 100%\n" * 30
        + "NIC1\tPHB\tNODE\t X\n\nLegend:\n",
        ["GPU0 X SYS PHB 0-47", "NIC0 SYS X NODE", "NIC1 PHB NODE X"],
    ),
    "columns whose names were lost": (
        "        GPU0    GPU1\nGPU0     X      NV4     PIX   SYS   0-15\nGPU1    NV4      X      SYS   PIX   0-15\n",
        ["GPU0 X NV4 0-15", "GPU1 NV4 X 0-15"],
    ),
    "another language around it": (
        "我们机器的拓扑：\n    GPU0 GPU1 mlx5_0 CPU Affinity\nGPU0 X NODE PIX 0-9\nGPU1 NODE X NODE 0-9\n"
        "mlx5_0 PIX NODE X\n说明：GPU0 和 mlx5_0 在同一个 PIX\n",
        ["GPU0 X NODE PIX 0-9", "GPU1 NODE X NODE 0-9", "mlx5_0 PIX NODE X"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), PASTES.values(), ids=PASTES)
def test_a_paste(text: str, expected: list[str]) -> None:
    (matrix,) = read(text)
    assert rows(matrix) == expected
    assert matrix.damaged == []


def test_what_two_nodes_wrote_into_each_other_is_sorted_by_who_wrote_it() -> None:
    text = (
        "node1: \tGPU0\tGPU1\tCPU Affinity\nnode2: \tGPU0\tGPU1\tCPU Affinity\nnode1: GPU0\t X \tNV4\t0-15\n"
        "node2: GPU0\t X \tSYS\t0-15\nnode1: GPU1\tNV4\t X \t0-15\nnode2: GPU1\tSYS\t X \t0-15\n"
    )
    first, second = read(text)
    assert rows(first) == ["GPU0 X NV4 0-15", "GPU1 NV4 X 0-15"]
    assert rows(second) == ["GPU0 X SYS 0-15", "GPU1 SYS X 0-15"]
    assert (first.first_line, second.first_line) == (1, 2)


def test_nodes_under_headings_of_their_own() -> None:
    table = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-15\nGPU1\tNV4\t X \t0-15\n"
    line = "---------------\n"
    text = f"{line}node[01-02] (2)\n{line}{table}{line}node03\n{line}{table.replace('NV4', 'SYS')}"
    assert [rows(matrix)[0] for matrix in read(text)] == ["GPU0 X NV4 0-15", "GPU0 X SYS 0-15"]


def test_three_cells_without_a_space_are_not_taken_apart() -> None:
    """Of `168-2231N/A` the end is clear; whether the node is 1 or 31 is not."""
    (matrix,) = read(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV18\t0-55,112-167  0N/A\nGPU1\tNV18\t X \t56-111,168-2231N/A\n"
    )
    assert matrix.cpu_affinity == {"GPU0": "0-55,112-167", "GPU1": None}
    assert matrix.numa_affinity == {"GPU0": "0", "GPU1": None}
    assert matrix.gpu_numa_id == {"GPU0": "N/A", "GPU1": "N/A"}
    (cell,) = matrix.damaged
    assert (cell.row, cell.column, cell.text, cell.line) == ("GPU1", "CPU Affinity", "56-111,168-2231", 3)
