from __future__ import annotations

import json
from pathlib import Path

import pytest

from topoadvisor.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["predict", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_text_fits_a_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("dgx-h100", "dgx-1v", "8xl40s", "4xa100-pcie", "gh200", "paste-8xa100"):
        code, out, _ = run(capsys, f"fixture:{name}")
        assert code == 0
        assert max(len(line) for line in out.splitlines()) <= 80
    assert "own port" in run(capsys, "fixture:dgx-h100")[1]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "fixture:dgx-h100", "--gpus", "0,1", "--nccl-version", "2.29.7", "--format", "json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert (document["schema"], document["nccl"]["version"]) == ("topoadvisor.predict/1", "2.29.7")
    assert [(pair["a"], pair["b"]) for pair in document["pairs"]] == [("GPU0", "GPU1"), ("GPU1", "GPU0")]


def test_an_environment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "job.env"
    file.write_text("NCCL_P2P_DISABLE=1\n")
    code, out, _ = run(capsys, "fixture:dgx-h100", "--env", str(file), "--format", "json")
    assert code == 0
    assert {pair["transport"] for pair in json.loads(out)["pairs"]} == {"SHM", "NET"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fixture:dgx-h100", "--gpus", "x"], 2, "no list of GPU indexes"),
        (["fixture:dgx-h100", "--gpus", "0,99"], 2, "there is no GPU 99"),
        (["fixture:dgx-h100", "--nccl-version", "banana"], 2, "banana"),
        (["fixture:dgx-h100", "--nccl-version", "2.4.8"], 2, "--nccl-version 2.30.7"),
        (["fixture:dgx-h100", "--env", "/no/such/file"], 2, "cannot be read"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str) -> None:
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_what_does_not_run_comes_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "job.env"
    file.write_text("NCCL_ALGO=Ring, Tree\n")
    _, out, _ = run(capsys, "fixture:dgx-h100", "--env", str(file))
    assert "NCCL does not run with this setting" in out.split("\nTransports\n")[0]


def test_few_channels_in_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "job.env"
    file.write_text("NCCL_MAX_CTAS=1\n")
    _, out, _ = run(capsys, "fixture:dgx-h100", "--env", str(file))
    assert "\n1 channel\n  the search finds 12 rings" in out
    assert "(1 channel) instead of" in out


def test_equal_orders_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "fixture:gh200")
    lines = [line.split("×", 1)[1].strip() for line in out.splitlines() if " ×  " in line and "→" in line]
    assert lines
    assert len(set(lines)) == len(lines)


def test_granted_or_taken_to(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    _, out, _ = run(capsys, "fixture:paste-8xa100")
    assert "the driver is taken to grant peer access" in out
    assert "the driver grants peer access, " not in out


@pytest.mark.parametrize("text", ["0-3", "GPU0,GPU1,GPU2,GPU3", " 0, 1 ,2,3", "gpu0-GPU3", "0–2,3"])
def test_lists_of_gpus(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "fixture:dgx-h100", "--gpus", text, "--format", "json")
    assert (code, json.loads(out)["gpus"]) == (0, ["GPU0", "GPU1", "GPU2", "GPU3"])
