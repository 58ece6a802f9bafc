"""`topoadvisor cost` and `topoadvisor place`."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from made_trials import AS_FOUND

from topoadvisor import snapshot as snapshots
from topoadvisor.cli import main
from topoadvisor.ingest import detect
from topoadvisor.measurements.model import Measurement


def test_a_table_of_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "all_reduce", "fixture:2xh200-kvm"]) == 0
    shown = capsys.readouterr().out
    assert "all_reduce over 2 GPUs, by NCCL 2.28.9's own estimate" in shown
    assert "  1 GiB  2.998 ms   358.2   358.2  ring, Simple  tree, Simple" in shown
    assert "20% too fast" in shown


def test_measurements_are_named_in_the_heading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
    run = Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=329.5, size_bytes=1 << 30, variables=AS_FOUND)
    snapshots.save(msgspec.structs.replace(snapshot, measurements=[run]), tmp_path / "node.json")
    assert main(["cost", "all_reduce", str(tmp_path / "node.json")]) == 0
    assert "by NCCL 2.28.9's own estimate, held to measurements\n" in capsys.readouterr().out


def test_a_group_that_was_not_measured_is_told_from_one_that_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = detect.read(["fixture:dgx-h100"], stdin=io.BytesIO())
    run = Measurement(kind="all_reduce", subject="gpu:0,gpu:1,gpu:2,gpu:3", gbps=300.0, size_bytes=64 << 20)
    snapshots.save(msgspec.structs.replace(snapshot, measurements=[run]), tmp_path / "node.json")
    assert main(["place", "--tp", "4", "--dp", "2", str(tmp_path / "node.json")]) == 0
    shown = capsys.readouterr().out
    assert "300 GB/s busbw (measured)\n" in shown
    assert "326.4 GB/s busbw (estimated)\n" in shown


def test_one_size_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["cost", "all_gather", "fixture:dgx-a100", "--bytes", "1G", "--gpus", "0,1,2,3", "--format", "json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "topoadvisor.cost/1"
    assert found["gpus"] == [0, 1, 2, 3]
    assert [row["size_bytes"] for row in found["rows"]] == [1 << 30]
    assert found["rows"][0]["ways"][0]["algorithm"] == found["rows"][0]["algorithm"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cost", "all_reduce", "fixture:dgx-a100", "--bytes", "0"], "is no size from 1 byte to 16 TiB"),
        (["cost", "all_reduce", "fixture:dgx-a100", "--bytes", "much"], "is no size from 1 byte to 16 TiB"),
        (["cost", "reduce_all", "fixture:dgx-a100"], "'reduce_all' is not one of"),
        (["cost", "all_reduce", "fixture:dgx-a100", "--gpus", "0"], "two different GPUs or more"),
        (["cost", "all_reduce", "fixture:dgx-a100", "--gpus", "0,17"], "there is no GPU 17 here"),
        (["place", "fixture:dgx-a100", "--tp", "16"], "tensor groups of 16"),
        (["place", "fixture:dgx-a100", "--tp", "0"], "is not in the range x>=1"),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_what_is_not_known_has_an_exit_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "all_reduce", "fixture:paste-8xa100"]) == 3
    assert "not known" in capsys.readouterr().err


def test_a_placement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", "fixture:dgx-h100", "--tp", "4", "--pp", "2", "--dp", "2"]) == 0
    shown = capsys.readouterr().out
    assert "16 ranks on 2 nodes, 8 GPUs of each" in shown
    assert "node 1  ranks     12–15  pipeline 1, data 1  GPU4, GPU5, GPU6, GPU7" in shown
    assert "2 × tensor on 4 GPUs: all_reduce of 64 MiB in" in shown
    assert main(["place", "fixture:dgx-h100", "--tp", "8", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "topoadvisor.place/1"
    assert main(["place", "fixture:paste-8xa100", "--tp", "4", "--dp", "2"]) == 0
    assert "not known" in capsys.readouterr().out


def test_each_time_says_what_it_stands_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = detect.read(["fixture:2xh200-kvm"], stdin=io.BytesIO())
    rates = {1 << 20: 77.76, 1 << 26: 259.6}
    runs = [
        Measurement(kind="all_reduce", subject="gpu:0,gpu:1", gbps=gbps, size_bytes=size, variables=AS_FOUND)
        for size, gbps in rates.items()
    ]
    snapshots.save(msgspec.structs.replace(snapshot, measurements=runs), tmp_path / "node.json")
    file = str(tmp_path / "node.json")
    assert main(["cost", "all_reduce", file, "--bytes", "1M", "--bytes", "16M", "--bytes", "1G"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"1 MiB +13\.48 µs +77\.76 +77\.76 .* measured\n", shown)
    assert re.search(r"16 MiB .* interpolated\n", shown)
    assert re.search(r"1 GiB .* extrapolated\n", shown)
    assert main(["place", file, "--tp", "2", "--assume", "env.NCCL_BUFFSIZE=8M"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "all_reduce of 64 MiB in 258.5 µs, 259.6 GB/s busbw (measured)" in shown
    assert "! NCCL does not run with NCCL_BUFFSIZE=8M (assumed)" in shown
