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
        (["fixture:dgx-h100", "--nccl-version", "2.4.8"], 3, "2.4.8"),
        (["fixture:dgx-h100", "--env", "/no/such/file"], 2, "cannot be read"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str) -> None:
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err
