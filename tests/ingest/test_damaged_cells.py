"""Cells and affinities of a matrix that a paste damaged: reported, never guessed."""

from __future__ import annotations

import pytest
from matrix_texts import one, tabs

from topoadvisor.ingest import detect
from topoadvisor.snapshot import DamagedCell


@pytest.mark.parametrize(
    ("row", "cells", "damaged"),
    [
        ("GPU1|N?12| X |NV12|0-31", {"GPU2": "NV12"}, ("GPU0", "N?12", 3, 6)),
        ("GPU1|NV 12| X |NV12|0-31", {"GPU2": "NV12"}, ("GPU0", "NV 12", 3, 6)),
        ("GPU1|NV12| X |N/A|0-31", {"GPU0": "NV12"}, ("GPU2", "N/A", 3, 15)),
        ("GPU1|NV12| X", {"GPU0": "NV12"}, ("GPU2", "", 3, 13)),
        ("GPU1| X |NV12|0-31", {"GPU2": "NV12"}, ("GPU0", "", 3, 5)),
        ("GPU1|NV12| X ||0-31", {"GPU0": "NV12"}, ("GPU2", "", 3, 13)),
    ],
)
def test_a_damaged_cell_is_reported_and_not_guessed(
    row: str, cells: dict[str, str], damaged: tuple[str, str, int, int]
) -> None:
    matrix = one(
        tabs(
            "|GPU0|GPU1|GPU2|CPU Affinity",
            "GPU0| X |NV12|NV12|0-31",
            row,
            "GPU2|NV12|NV12| X |0-31",
        )
    )
    column, text, line, place = damaged
    assert matrix.cells["GPU1"] == cells
    assert matrix.damaged == [DamagedCell(row="GPU1", column=column, text=text, line=line, text_column=place)]
    assert matrix.cells["GPU2"] == {"GPU0": "NV12", "GPU1": "NV12"}


@pytest.mark.parametrize(
    ("rows", "cells", "damaged"),
    [
        (("GPU1 NV1 X SYS", "GPU3 SYS SYS PIX X"), {"GPU0": "NV1", "GPU3": "SYS"}, ("GPU2", "", 3, 11)),
        (("GPU1 NV1 X PHB", "GPU3 SYS SYS PIX X"), {"GPU0": "NV1", "GPU2": "PHB"}, ("GPU3", "", 3, 15)),
        (("GPU1 X PHB SYS", "GPU3 SYS SYS PIX X"), {"GPU2": "PHB", "GPU3": "SYS"}, ("GPU0", "", 3, 5)),
        (
            ("GPU1 NV1 N PHB SYS", "GPU3 SYS SYS PIX X"),
            {"GPU0": "NV1", "GPU2": "PHB", "GPU3": "SYS"},
            ("GPU1", "N", 3, 10),
        ),
    ],
)
def test_a_lost_cell_does_not_shift_its_neighbours(
    rows: tuple[str, str], cells: dict[str, str], damaged: tuple[str, str, int, int]
) -> None:
    """Where columns are not aligned, the rows of the other devices say which cell is which."""
    second, last = rows
    text = f"      GPU0 GPU1 GPU2 GPU3\nGPU0 X NV1 NV2 SYS\n{second}\nGPU2 NV2 PHB X PIX\n{last}\n"
    matrix = one(text)
    column, word, line, place = damaged
    assert matrix.cells["GPU1"] == cells
    assert matrix.damaged == [DamagedCell(row="GPU1", column=column, text=word, line=line, text_column=place)]


def test_where_a_lost_cell_could_be_either_none_is_preferred() -> None:
    text = "      GPU0 GPU1 GPU2 GPU3\nGPU0 X NV1 NV2 SYS\nGPU1 NV1 X PHB SYS\nGPU2 NV2 PHB X PIX\nGPU3 SYS PIX X\n"
    matrix = one(text)
    assert matrix.cells["GPU3"] == {}
    assert matrix.damaged == [DamagedCell(row="GPU3", column="GPU0", text="SYS PIX", line=5, text_column=6)]


@pytest.mark.parametrize(
    ("row", "cpu", "numa", "damaged"),
    [
        ("GPU0| X |NV4|O-15|0", None, "0", ("CPU Affinity", "O-15", 2, 14)),
        ("GPU0| X |NV4|0-15|N/", "0-15", None, ("NUMA Affinity", "N/", 2, 19)),
        ("GPU0| X |NV4|0-15|0  <- the left one, 3 fans", "0-15", "0", None),
        ("GPU0| X |NV4|0\u201315|0", "0-15", "0", None),
    ],
)
def test_a_damaged_affinity_is_reported_and_a_remark_is_none(
    row: str, cpu: str | None, numa: str | None, damaged: tuple[str, str, int, int] | None
) -> None:
    matrix = one(tabs("|GPU0|GPU1|CPU Affinity|NUMA Affinity", row, "GPU1|NV4| X |16-31|1"))
    assert matrix.cpu_affinity == {"GPU0": cpu, "GPU1": "16-31"}
    assert matrix.numa_affinity == {"GPU0": numa, "GPU1": "1"}
    found = [(cell.column, cell.text, cell.line, cell.text_column) for cell in matrix.damaged]
    assert found == ([damaged] if damaged else [])


@pytest.mark.parametrize("column", ["GP1", "PU1", "GPO1", "GPU01"])
@pytest.mark.parametrize("row", ["GPU1", "U1", "GP1"])
def test_a_device_whose_name_is_damaged_in_one_place_stays_one_device(column: str, row: str) -> None:
    header, third = ("GPU1", row) if row != "GPU1" else (column, "GPU1")
    text = tabs(
        f"|GPU0|{header}|GPU2|CPU Affinity",
        "GPU0| X |NV4|SYS|0-15",
        f"{third}|NV4| X |SYS|0-15",
        "GPU2|SYS|SYS| X |16-31",
    )
    matrix = one(text)
    assert (matrix.gpus, matrix.nics) == (["GPU0", "GPU1", "GPU2"], [])
    assert matrix.cells["GPU1"] == {"GPU0": "NV4", "GPU2": "SYS"}
    assert matrix.cpu_affinity["GPU1"] == "0-15"
    told = detect.from_bytes(text.encode(), file="x").sources[0].reason or ""
    assert "is read as GPU1" in told or header == third == "GPU1"


def test_a_stray_number_behind_the_cells_of_one_row_does_not_move_those_of_others() -> None:
    matrix = one(
        "        GPU0    GPU1    GPU2    CPU Affinity    NUMA Affinity\n"
        "GPU0     X      SYS     SYS     0-15            0\n"
        "GPU1    SYS      X      SYS   8 16-31           1\n"
        "GPU2    SYS     SYS      X      0-15            0\n"
    )
    assert matrix.cpu_affinity == {"GPU0": "0-15", "GPU1": None, "GPU2": "0-15"}
    assert matrix.numa_affinity == {"GPU0": "0", "GPU1": None, "GPU2": "0"}
    assert matrix.gpu_numa_id == {}
    assert {cell.row for cell in matrix.damaged} == {"GPU1"}


AFFINITIES = {
    "cut behind a dash": (("0-11,24-35|0", "0-|0", "12-23,36-47|1"), {"GPU1": "0-"}),
    "cut behind a comma": (("0-11,24-35|0", "0-11,|0", "12-23,36-47|1"), {"GPU1": "0-11,"}),
    "backwards": (("0-11,24-35|0", "0-11,35-24|0", "12-23,36-47|1"), {"GPU1": "0-11,35-24"}),
    "list and node in one": (("0-11,24-35|0", "12-23,36-471", "12-23,36-47|1"), {"GPU1": "12-23,36-471"}),
    "list and node in one, nobody else's": (("0-11,24-35|0", "12-23,36-471", "0-11,24-35|0"), {"GPU1": "12-23,36-471"}),
    "list and N/A in one": (("0-31N/A", "0-31N/A", "0-31N/A"), {}),
    "the end of a list lost": (("0-11|0", "0-1|0", "12-23|1"), {"GPU0": "0-11", "GPU1": "0-1"}),
    "the end of a list lost, others tell": (("0-11|0", "0-1|0", "0-11|0"), {"GPU1": "0-1"}),
    "some CPUs of another node": (("0-11|0", "8-19|1", "8-19|1"), {"GPU0": "0-11"}),
    "a short list and node in one": (("0-11|0", "12-231", "0-11|0"), {"GPU1": "12-231"}),
    "all CPUs beside a node": (("0-11|0", "0-23|1", "12-23|1"), {"GPU1": "0-23"}),
    "all CPUs, where no node is known": (("0-11|0", "0-23|", "12-23|1"), {}),
    "all CPUs, where no node is told": (("0-11|0", "0-23|N/A", "12-23|1"), {}),
    "single CPUs of every second core": (("0,2,4,6|0", "0,2,4,6|0", "1,3,5,7|1"), {}),
    "commas behind all rows": (("0-11|0,", "0-11|0,", "12-23|1,"), {}),
    "commas between all cells": (("0-11, 24-35, |0,", "12-23, 36-47, |1,", "0-11, 24-35, |0,"), {}),
    "spaces in a list and none in another": (("0-11, 24-35|0", "0-11,24-35|0", "12-23, 36-47|1"), {}),
}


@pytest.mark.parametrize(("rows", "damaged"), AFFINITIES.values(), ids=AFFINITIES)
def test_an_affinity_that_cannot_be_is_reported(rows: tuple[str, str, str], damaged: dict[str, str]) -> None:
    lines = [f"GPU{row}|{'|'.join('X' if row == other else 'SYS' for other in range(3))}|" for row in range(3)]
    table = tabs("|GPU0|GPU1|GPU2|CPU Affinity|NUMA Affinity", *(a + b for a, b in zip(lines, rows, strict=True)))
    matrix = one(table)
    found = {cell.row: (cell.column, cell.text, cell.line) for cell in matrix.damaged}
    assert found == {label: ("CPU Affinity", text, int(label[3:]) + 2) for label, text in damaged.items()}
    for cell in matrix.damaged:
        assert table.split("\n")[cell.line - 1][cell.text_column - 1 :].startswith(cell.text)
    for label, text in matrix.cpu_affinity.items():
        assert (text is None) == (label in damaged)


def test_an_affinity_in_which_the_text_ends_is_not_believed() -> None:
    head = tabs("|GPU0|GPU1|CPU Affinity|NUMA Affinity", "GPU0| X |SYS|0-15|0")
    assert one(head + "GPU1\tSYS\t X \t16-31").damaged == [
        DamagedCell(row="GPU1", column="CPU Affinity", text="16-31", line=3, text_column=14)
    ]
    assert one(head + "GPU1\tSYS\t X \t0-15").cpu_affinity["GPU1"] == "0-15"
    assert one(head + "GPU1\tSYS\t X \t16-31\t1").cpu_affinity["GPU1"] == "16-31"


def test_a_list_in_which_a_cut_table_ends_is_not_believed() -> None:
    rows = tabs("|GPU0|GPU1|CPU Affinity", "GPU0| X |SYS|0-15,32-47") + "GPU1\tSYS\t X \t"
    assert one(rows + "16-31").cpu_affinity == {"GPU0": "0-15,32-47", "GPU1": None}
    assert one(rows + "16-31,48-63").cpu_affinity == {"GPU0": "0-15,32-47", "GPU1": "16-31,48-63"}
    assert one(rows.partition("\nGPU1")[0]).cpu_affinity == {"GPU0": None}


def test_what_stands_behind_a_list_that_holds_two_cells_is_of_the_last_column() -> None:
    head = tabs("|GPU0|GPU1|CPU Affinity|NUMA Affinity|GPU NUMA ID", "GPU0| X |NV4|0-15,32-47|0||N/A")
    matrix = one(head + "GPU1\tNV4\t X \t16-31,48-631\t\tN/A\n")
    assert (matrix.cpu_affinity["GPU1"], matrix.numa_affinity["GPU1"], matrix.gpu_numa_id["GPU1"]) == (
        None,
        None,
        "N/A",
    )
    swapped = one(tabs("|GPU1|GPU0|CPU Affinity|NUMA Affinity", "GPU0|NV4| X |0-15|0") + "GPU1\t X \tNV416-31\t1\n")
    assert (swapped.cpu_affinity["GPU1"], swapped.numa_affinity["GPU1"]) == (None, "1")


@pytest.mark.parametrize("label", ["GU1", "GPPU1", "PU1", "GPU", "GPU11"])
def test_a_label_with_a_letter_wrong_is_that_of_the_column_with_its_x(label: str) -> None:
    matrix = one(tabs("|GPU0|GPU1|NIC0", "GPU0| X |NV4|SYS", f"{label}|NV4| X |PIX", "NIC0|SYS|PIX| X"))
    assert (matrix.gpus, matrix.nics) == (["GPU0", "GPU1"], ["NIC0"])
    assert matrix.cells["GPU1"] == {"GPU0": "NV4", "NIC0": "PIX"}


def test_a_table_that_lost_all_its_tabs() -> None:
    """Device cells are read; of what follows nobody can say where one cell ends."""
    matrix = one("GPU0GPU1CPU AffinityNUMA Affinity\nGPU0XPHB0-310\nGPU1PHBX0-310\n")
    assert matrix.cells == {"GPU0": {"GPU1": "PHB"}, "GPU1": {"GPU0": "PHB"}}
    assert [(cell.column, cell.text, cell.text_column) for cell in matrix.damaged] == [("CPU Affinity", "0-310", 9)] * 2
    (cell, _) = one("GPU0GPU1CPU AffinityNUMA Affinity\nGPU0XNV40-310\nGPU1NV4X0-310\n").damaged
    assert (cell.row, cell.column, cell.text) == ("GPU0", "GPU1", "NV40-310")


@pytest.mark.parametrize("count", ["NV0", "NV00", "NV04", "NV37", "NV999"])
def test_a_count_of_nvlinks_that_cannot_be_is_damage(count: str) -> None:
    matrix = one(tabs("|GPU0|GPU1", f"GPU0| X |{count}", "GPU1|NV4| X "))
    assert matrix.cells == {"GPU0": {}, "GPU1": {"GPU0": "NV4"}}
    assert matrix.damaged == [DamagedCell(row="GPU0", column="GPU1", text=count, line=2, text_column=10)]


def test_a_column_counts_the_terminal_codes_of_the_file() -> None:
    matrix = one("\t\x1b[4mGPU0\tGPU1\x1b[0m\nGPU0\t\x1b[1m X \x1b[0m\tN?\nGPU1\tNV1\t X \n")
    (cell,) = matrix.damaged
    assert (cell.line, cell.text_column) == (2, len("GPU0\t\x1b[1m X \x1b[0m\t") + 1)


def test_where_the_text_ends_in_a_count_the_other_direction_decides() -> None:
    head = "     GPU0 GPU1 GPU2\nGPU0  X   NV12 NV18\nGPU1 NV12  X   "
    assert one(head + "NV1").cells["GPU1"] == {"GPU0": "NV12"}
    assert one(head + "NV18\nGPU2 NV18 NV18").cells["GPU2"] == {"GPU0": "NV18", "GPU1": "NV18"}
    assert one(head + "NV18\nGPU2 NV18 NV1").cells["GPU2"] == {"GPU0": "NV18"}
