from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import nccl_logs as logs
import pytest

from topoadvisor.cli import main


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.log"
    path.write_bytes(logs.data(logs.modern(16, channels=4, settings=["NCCL_IB_HCA set to mlx5"])))
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad.log.gz"
    lines = logs.modern(4, 4, inside="SHM/direct/direct", extra=logs.graph(0, nvlink=240.0))
    path.write_bytes(gzip.compress(logs.data(lines)))
    return str(path)


def test_the_screen(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", good]) == 0
    out = capsys.readouterr().out
    assert out.startswith("NCCL 2.28.9 (CUDA 13.0), 16 processes, 2 hosts, 1 communicator\n")
    assert "Verdict: nothing wrong that the log shows" in out
    assert "NCCL_IB_HCA=mlx5   (environment or a conf file: the log does not tell them apart)" in out
    assert "Communicator d8289d3e6e217d26: 16 ranks, 2 nodes, 4 channels" in out
    assert "P2P/CUMEM: 14 pairs (0>1, 1>2, " in out
    assert "NET/IB with GPUDirect RDMA: 2 pairs (7>8, 15>0)" in out
    assert "ring 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15   channels 0-3" in out


def test_the_topology_is_shown_gpu_by_gpu(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["log", bad])
    out = capsys.readouterr().out
    assert "node1: 2 NUMA nodes, 2 PCI switches, 4 GPUs, 2 network devices, 1 NVSwitch; GPU pairs: NVL 6" in out
    assert "GPU/0-1b000 (0000:1b:00.0, rank 0): PCI/0-10000 → CPU/0-0; NVL 240 GB/s to NVS/0-0" in out


def test_json(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", good, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert next(iter(document)) == "schema"
    assert document["schema"] == "topoadvisor.log/1"
    assert (document["findings"], document["communicators"][0]["channels"]) == ([], 4)


def test_exit_codes(bad: str, good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", bad]) == 1
    assert main(["log", bad, "--fail-on", "never"]) == 0
    assert "✗ LOG001 4 pairs of ranks" in capsys.readouterr().out
    assert main(["log", good, "--fail-on", "warning"]) == 0


def test_standard_input_and_several_files(
    good: str, bad: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(bad).read_bytes())))
    assert main(["log", "-"]) == 1
    assert main(["log", good, good]) == 0
    assert "2 files" in capsys.readouterr().out


def test_a_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "shm.log"
    path.write_bytes(logs.data(logs.modern(8, 8, inside="SHM/direct/direct")))
    assert main(["log", str(path)]) == 0
    assert "? whether P2P was possible" in capsys.readouterr().out
    assert main(["log", str(path), "--topology", "fixture:paste-8xa100"]) == 1
    assert "topology from fixture:paste-8xa100" in capsys.readouterr().out
    assert main(["log", str(path), "--topology", "fixture:dgx-a100"]) == 0
    assert "is it another machine?" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["none.log"], ["."], ["-", "-"], ["-", "--topology", "-"], ["a\0b"], ["--topology", "none", "x"]]
)
def test_what_cannot_be_read(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["log", *arguments]) == 2
    err = capsys.readouterr().err
    assert "hint: " in err
    assert "Traceback" not in err


def test_warnings_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "warn.log"
    path.write_text("\nnode1:1:1 [0] x.cc:5 NCCL WARN Cuda failure 'invalid argument'\n")
    assert main(["log", str(path)]) == 1
    out = capsys.readouterr().out
    assert "There is nothing of level INFO in it" in out
    assert "Settings in force: not in the log" in out


def test_no_log_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text("step 1\n")
    assert main(["log", str(path)]) == 2
    assert "there is no line of NCCL in it" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there is no file here that opens and cannot be read")
def test_a_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("log", "scan"):
        assert main([verb, "/proc/self/mem"]) == 2
        assert capsys.readouterr().err.startswith("topoadvisor: /proc/self/mem: cannot be read: ")


def test_scan_takes_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(logs.data(logs.modern(4, 4, extra=logs.graph(0, nvlink=240.0))))
    assert main(["scan", str(path)]) == 0
    assert "NV12 on 6 of 6 pairs (inferred)" in capsys.readouterr().out
