from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from topoadvisor.errors import NothingDetermined
from topoadvisor.ingest import topo_matrix
from topoadvisor.render import matrix as render
from topoadvisor.snapshot import Matrix

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus"
TEXTS = sorted([*CORPUS.glob("matrices/*.txt"), *CORPUS.glob("other/topo_m_nvme*.txt")])

TWO = Matrix(
    gpus=["GPU0", "GPU1"],
    nics=["NIC0"],
    cells={
        "GPU0": {"GPU1": "NV12", "NIC0": "PIX"},
        "GPU1": {"GPU0": "NV12", "NIC0": "SYS"},
        "NIC0": {"GPU0": "PIX", "GPU1": "SYS"},
    },
    cpu_affinity={"GPU0": "0-31", "GPU1": None},
    numa_affinity={"GPU0": "N/A", "GPU1": "1"},
    gpu_numa_id={"GPU0": "N/A", "GPU1": "N/A"},
    nic_legend={"NIC0": "mlx5_0"},
)


def test_the_layout_of_nvidia_smi() -> None:
    table, _, legends = render.text([TWO]).partition("\n\n")
    assert table.split("\n") == [
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
        "GPU0\t X \tNV12\tPIX\t0-31\t\tN/A\t\tN/A",
        "GPU1\tNV12\t X \tSYS\t\t1\t\tN/A",
        "NIC0\tPIX\tSYS\t X \t\t\t\t",
    ]
    assert [line.split(" = ")[0].strip() for line in legends.split("\n") if " = " in line] == [
        "X",
        "SYS",
        "NODE",
        "PHB",
        "PXB",
        "PIX",
        "NV#",
    ]
    assert legends.endswith("\n\nNIC Legend:\n\n  NIC0: mlx5_0\n")


def test_columns_that_were_not_there_are_not_printed() -> None:
    bare = Matrix(gpus=["GPU0"], nics=[], cells={"GPU0": {}})
    assert render.text([bare]).startswith("\tGPU0\nGPU0\t X \n\nLegend:\n")
    assert "NIC Legend" not in render.text([bare])


@pytest.mark.parametrize("word", ["SOC", "PSB", "C2C"])
def test_rare_words_are_explained_when_they_are_there(word: str) -> None:
    pair = Matrix(gpus=["GPU0", "GPU1"], nics=[], cells={"GPU0": {"GPU1": word}, "GPU1": {"GPU0": word}})
    assert f"  {word:<4} = " in render.text([pair])
    assert f"  {word:<4} = " not in render.text([TWO])


def test_a_cell_that_is_not_known_stays_so() -> None:
    text = render.text([Matrix(gpus=["GPU0", "GPU1"], nics=[], cells={"GPU0": {"GPU1": "SYS"}, "GPU1": {}})])
    assert "GPU1\t?\t X " in text
    (found,) = topo_matrix.parse(text, file="paste")
    assert (found.cells, found.damaged) == ({"GPU0": {"GPU1": "SYS"}, "GPU1": {}}, [])


def test_a_matrix_of_nothing_known_is_still_one() -> None:
    unknown = Matrix(gpus=["GPU0", "GPU1"], nics=[], cells={"GPU0": {}, "GPU1": {}})
    (found,) = topo_matrix.parse(render.text([unknown]), file="paste")
    assert found.cells == unknown.cells


def test_the_document() -> None:
    assert render.document([TWO]) == {
        "gpus": ["GPU0", "GPU1"],
        "nics": ["NIC0"],
        "matrix": TWO.cells,
        "cpu_affinity": {"GPU0": "0-31", "GPU1": None},
        "numa_affinity": {"GPU0": "N/A", "GPU1": "1"},
        "gpu_numa_id": {"GPU0": "N/A", "GPU1": "N/A"},
        "nic_legend": {"NIC0": "mlx5_0"},
    }


def test_several_machines() -> None:
    other = Matrix(gpus=["GPU0"], nics=[], cells={"GPU0": {}})
    document = render.document([TWO, other])
    assert document["captures"] == [render.document([TWO]), render.document([other])]
    assert {key: document[key] for key in document if key != "captures"} == render.document([TWO])
    assert len(topo_matrix.parse(render.text([TWO, other]), file="paste")) == 2


@pytest.mark.parametrize("matrices", [[], [Matrix(gpus=[], nics=["NIC0"], cells={})]])
def test_without_a_gpu_there_is_nothing_to_print(matrices: list[Matrix]) -> None:
    for printed in (render.text, render.document):
        with pytest.raises(NothingDetermined) as error:
            printed(matrices)
        assert error.value.hint


def undamaged(matrix: Matrix) -> Matrix:
    """Damaged cells come back as unknown."""
    return msgspec.structs.replace(matrix, damaged=[])


@pytest.mark.skipif(not TEXTS, reason="the corpus is not here")
@pytest.mark.parametrize("path", TEXTS, ids=[path.stem[:40] for path in TEXTS])
def test_reading_back_changes_nothing(path: Path) -> None:
    pasted = topo_matrix.parse(path.read_text(encoding="utf-8"), file=path.name)
    printed = render.text(pasted)
    read = topo_matrix.parse(printed, file="printed")
    assert json.dumps(render.document(read)) == json.dumps(render.document(list(map(undamaged, pasted))))
    assert render.text(read) == printed
