from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from topoadvisor import cli

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus/matrices"
TEXTS = sorted(CORPUS.glob("*.txt"))

PASTE = (
    "root@node:~# nvidia-smi topo -m\n      GPU0  GPU1  CPU Affinity\nGPU0   X    SYS   0-31\nGPU1  SYS    X    32-63\n"
)


class Run:
    """The program as a user calls it."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = cli.main(["matrix", *arguments])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(capsys, monkeypatch)


def test_a_paste_comes_out_as_the_driver_prints_it(run: Run) -> None:
    code, out, err = run("-", stdin=PASTE)
    assert (code, err) == (0, "")
    assert out.startswith("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-31\nGPU1\tSYS\t X \t32-63\n\nLegend:\n")


def test_damaged_cells_are_told_and_in_the_json(run: Run) -> None:
    code, out, err = run("-", "--format", "json", stdin=PASTE.replace("GPU1  SYS", "GPU1  5YS"))
    assert code == 0
    document = json.loads(out)
    assert document["matrix"] == {"GPU0": {"GPU1": "SYS"}, "GPU1": {}}
    assert document["damaged"] == [{"row": "GPU1", "column": "GPU0", "text": "5YS", "line": 4, "text_column": 7}]
    assert "1 damaged cell, the first in line 4, column 7, row GPU1" in err


def test_a_pair_that_is_printed_in_two_ways_is_told(run: Run) -> None:
    code, out, err = run("-", "--format", "json", stdin=PASTE.replace("GPU1  SYS", "GPU1  PHB"))
    assert (code, json.loads(out)["matrix"]) == (0, {"GPU0": {"GPU1": "SYS"}, "GPU1": {"GPU0": "PHB"}})
    assert "nvidia-smi topo -m (row GPU0) says SYS, nvidia-smi topo -m (row GPU1) says PHB. Neither is believed" in err


def test_a_table_that_other_texts_contradict_is_told_and_shown_as_printed(run: Run) -> None:
    cells = [["X" if a == b else "NV2" for a in range(4)] for b in range(4)]
    body = "\t" + "\t".join(f"GPU{gpu}" for gpu in range(4)) + "\n"
    body += "".join(f"GPU{gpu}\t" + "\t".join(row) + "\n" for gpu, row in enumerate(cells)) + "\n"
    buses = ("17", "37", "57", "77")
    for gpu, bus in enumerate(buses):
        body += f"GPU {gpu}: NVIDIA A100-SXM4-40GB (UUID: GPU-0a0b0c0d-1111-4222-8333-44445555666{gpu})\n"
        peers = [other for other in buses if other != bus]
        body += "".join(f"\t Link {n}: Remote Device 00000000:{peers[n // 4]}:00.0: Link {n}\n" for n in range(12))
    body += "==============NVSMI LOG==============\n\nAttached GPUs : 4\n"
    for gpu, bus in enumerate(buses):
        body += f"GPU 00000000:{bus}:00.0\n    Product Name : NVIDIA A100-SXM4-40GB\n"
        body += f"    GPU UUID : GPU-0a0b0c0d-1111-4222-8333-44445555666{gpu}\n"
    code, out, err = run("-", "--format", "json", stdin=body)
    assert (code, json.loads(out)["matrix"]["GPU0"]["GPU1"]) == (0, "NV2")
    (line,) = [line for line in err.splitlines() if "disagree" in line]
    assert "the NVLinks of GPU0-GPU1, GPU0-GPU2, GPU0-GPU3, GPU1-GPU2 and 2 more: " in line
    assert "nvidia-smi nvlink says 4, nvidia-smi topo -m says 2" in line


def test_json(run: Run) -> None:
    code, out, _ = run("-", "--format", "json", stdin=PASTE)
    assert code == 0
    assert json.loads(out) == {
        "gpus": ["GPU0", "GPU1"],
        "nics": [],
        "matrix": {"GPU0": {"GPU1": "SYS"}, "GPU1": {"GPU0": "SYS"}},
        "cpu_affinity": {"GPU0": "0-31", "GPU1": "32-63"},
        "numa_affinity": {},
        "gpu_numa_id": {},
        "nic_legend": {},
    }


def test_a_fixture_and_its_own_text(run: Run) -> None:
    code, text, _ = run("fixture:dgx-a100")
    assert code == 0
    assert "\nGPU7\t" in text
    assert run("-", stdin=text)[1] == text


def test_a_topology_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "topology.xml"
    gpu = '<pci busid="0000:0{0}:00.0" class="0x030200"><gpu dev="{0}" sm="89"/></pci>'
    bridge = '<pci busid="0000:10:00.0" class="0x060400">'
    path.write_text(
        f'<system version="1"><cpu numaid="0">{bridge}{gpu.format(0)}{gpu.format(1)}</pci></cpu></system>',
        encoding="utf-8",
    )
    code, out, _ = run(str(path), "--format", "json")
    assert code == 0
    assert json.loads(out)["matrix"]["GPU0"] == {"GPU1": "PIX"}


@pytest.mark.parametrize(
    ("stdin", "code", "words"),
    [
        ("", 2, "standard input: this is empty"),
        ("hello\n", 2, "standard input:1: this text has no GPU topology matrix"),
        ("\tGPU0\tGPU1\n", 2, "standard input:1: a header"),
        ('<system version="1"><cpu numaid="0"/></system>', 3, "no GPU was found"),
    ],
)
def test_what_cannot_be_read_is_a_sentence_and_a_hint_on_stderr(run: Run, stdin: str, code: int, words: str) -> None:
    found, out, err = run("-", stdin=stdin)
    assert (found, out) == (code, "")
    assert err.startswith(f"topoadvisor: {words}")
    assert "\nhint: " in err
    assert "Traceback" not in err


def test_a_wrong_assumption_is_refused(run: Run) -> None:
    code, out, err = run("-", "--assume", "vendor AMD", stdin=PASTE)
    assert (code, out) == (2, "")
    assert "'vendor AMD' is not FACT=VALUE" in err


@pytest.mark.skipif(not TEXTS, reason="the corpus is not here")
def test_the_corpus_through_a_pipe(run: Run) -> None:
    for path in TEXTS:
        expected = json.loads(path.with_suffix(".expected.json").read_text(encoding="utf-8"))
        expected.pop("notes", None)
        expected.setdefault("gpu_numa_id", {})
        _, text, _ = run(str(path))
        assert run("-", stdin=text)[1] == text, path.name
        assert json.loads(run("-", "--format", "json", stdin=text)[1]) == expected, path.name


def test_nccls_own_types_and_bandwidths(run: Run) -> None:
    code, out, err = run("fixture:dgx-1v", "--model", "nccl", "--format", "json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["matrix"]["GPU0"]["GPU5"] == "NVB"
    assert document["gbps"]["GPU0"]["GPU1"] == 20.0
    assert "GPU0" not in document["matrix"]["GPU0"]
    assert document["nccl_version"] == "2.28.9"


def test_what_nccl_would_need_and_is_not_there_is_null_with_a_reason(run: Run) -> None:
    code, out, _ = run("-", "--model", "nccl", "--format", "json", stdin=PASTE)
    document = json.loads(out)
    assert code == 0
    assert document["matrix"]["GPU0"]["GPU1"] == "SYS"
    assert document["gbps"]["GPU0"]["GPU1"] is None
    assert "was not read" in document["unknown"]["GPU0"]["GPU1"]


def test_nccls_matrix_as_text(run: Run) -> None:
    code, out, _ = run("-", "--model", "nccl", "--assume", "gpu.name=NVIDIA L40S", stdin=PASTE)
    assert code == 0
    assert out == (
        "Path types of NCCL 2.30.7, row to column\n\n"
        "      GPU0  GPU1\n"
        "GPU0     X  SYS*\n"
        "GPU1  SYS*     X\n\n"
        "GB/s per direction in NCCL's model, which is no measurement\n\n"
        "      GPU0  GPU1\n"
        "GPU0     X     ?\n"
        "GPU1     ?     X\n\n"
        "  SYS  = across the link between NUMA nodes\n"
        "  *    = inferred: how the GPUs hang on the CPUs follows from link classes\n"
        "  *    = inferred: the PCIe link is that of the board (L40S)\n"
        "  ?    = not known: the CPU was not read (--assume cpu.vendor=… supplies it)\n\n"
        "NCCL's version is not known; this is what 2.30.7 does, the newest known.\n"
    )


def test_the_gpus_of_a_job(run: Run) -> None:
    code, out, _ = run("fixture:dgx-1v", "--model", "nccl", "--gpus", "0,5", "--format", "json")
    assert code == 0
    assert json.loads(out)["matrix"] == {"GPU0": {"GPU5": "SYS"}, "GPU5": {"GPU0": "SYS"}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "0,1"], "only --model nccl asks for"),
        (["--model", "nccl", "--gpus", "0,x"], "no list of GPU indexes"),
        (["--model", "nccl", "--gpus", "0,٣"], "no list of GPU indexes"),
        (["--model", "nccl", "--gpus", "0,99"], "there is no GPU 99 here"),
    ],
)
def test_wrong_gpus_of_a_job(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run("fixture:dgx-1v", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_cut_matrix_says_so_also_for_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "cut.txt"
    source.write_text("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV1\tNV2\nGPU1\tNV1\t X \tNV")
    assert cli.main(["matrix", str(source), "--format", "json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["gpus"] == ["GPU0", "GPU1", "GPU2"]
    assert "1 damaged cell, the first in line 3, column 14, row GPU1; the rows of GPU2 are missing" in told.err


def test_what_is_not_known_is_explained(run: Run) -> None:
    code, out, err = run("-", stdin="GPU 0: Tesla V100\n\t Link 0: 25 GB/s\nGPU 1: Tesla V100\n\t Link 0: 25 GB/s\n")
    assert code == 0
    assert "GPU0\t X \t?" in out
    assert "  ?    = Not known\n" in out
    assert "far end of some NVLinks is not known: GPU0 (1), GPU1 (1)" in err
    assert "= Not known" not in run("-", stdin=PASTE)[1]
