"""`topoadvisor pick`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest

from topoadvisor import snapshot as snapshots
from topoadvisor.cli import main
from topoadvisor.ingest import detect
from topoadvisor.measurements.model import Measurement


def test_the_screen_says_what_to_export_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pick", "4", "fixture:8x4090", "--compare", "0,1,2,4"]) == 0
    shown = capsys.readouterr().out
    assert "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1,4,5" in shown
    assert "CUDA numbers GPUs fastest first unless" in shown
    assert "The set 0, 1, 2, 4 carries 9.602 of 14.4 GB/s, 33% less" in shown
    assert "keeps 50% of that at least" in shown


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pick", "2", "fixture:dgx-1v", "--busy", "3,5", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "topoadvisor.pick/1"
    assert found["gpus"] == [0, 1, 2, 4, 6, 7]
    assert found["busy"] == [3, 5]
    assert found["best"]["gbps"] == 50.0


def test_bandwidths_that_nobody_knows_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pick", "4", "fixture:paste-8xa100", "--compare", "0,1,2,4"]) == 0
    shown = capsys.readouterr().out
    assert "GB/s" not in shown
    assert "The bandwidths are not known" in shown


def test_switches_of_one_name_are_not_taken_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"GPU{gpu}" for gpu in range(8)]
    rows = [["X" if a == b else "PXB" if a // 4 == b // 4 else "SYS" for b in range(8)] for a in range(8)]
    lines = ["\t".join(["", *names]), *("\t".join([name, *row]) for name, row in zip(names, rows, strict=True))]
    path = tmp_path / "two-switches.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert main(["pick", "4", str(path), "--assume", "gpu.name=NVIDIA A100 80GB PCIe"]) == 0
    assert "All at once each keeps its whole bandwidth" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["9"], "9 GPUs are asked for, and there are 8 free"),
        (["7", "--busy", "0,1"], "7 GPUs are asked for, and there are 6 free (2 of 8 are busy)"),
        (["4", "--compare", "0,1"], "has 2 different GPUs, not 4"),
        (["2", "--compare", "0,0"], "names GPU 0 twice"),
        (["2", "--busy", "12"], "there is no GPU 12 here"),
        (["2", "--busy", "x"], "--busy 'x' is no list of GPU indexes"),
        (["2", "--model", "measured"], "holds no measurements"),
        (["0"], "is not in the range x>=1"),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pick", arguments[0], "fixture:8x4090", *arguments[1:]]) == 2
    assert words in capsys.readouterr().err


def test_two_gpus_between_which_copies_failed_are_not_taken_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = detect.read(["fixture:dgx-h100"], stdin=io.BytesIO())
    # A ring in index order over the first four does not use this pair, and NCCL may.
    failed = Measurement(kind="peer-copy", subject="gpu:2>gpu:0", outcome="wrong-data", data_ok=False)
    source = tmp_path / "failed.json"
    snapshots.save(msgspec.structs.replace(snapshot, measurements=[failed]), source)
    assert main(["pick", "4", str(source), "--compare", "0,1,2,3", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    chosen = [found["best"], *found["groups"]]
    assert not any({0, 2} <= set(each["gpus"]) for each in chosen)
    assert found["compared"]["choice"]["gbps"] is None
    assert "carries 0 of 450 GB/s: copies failed between GPU0–GPU2 (wrong-data)" in found["compared"]["text"]
    main(["scan", str(source)])
    assert "not 0,1,2,3 (copies failed there)" in capsys.readouterr().out
    assert main(["pick", "8", str(source)]) == 3
    assert "any 8 of these GPUs hold two between which copies failed" in capsys.readouterr().err
