"""`topoadvisor lint` through the program."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from topoadvisor.cli import main
from topoadvisor.collect import nccl_lib


@pytest.fixture(autouse=True)
def _no_library_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_lib, "installed", lambda version: None)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text("export NCCL_BUFFSIZE=8M\nexport NCCL_IB_TIMEOUT=1000\n", encoding="utf-8")
    return path


def test_exit_codes(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(script)]) == 1
    assert f"{script}:1:8: error ENV111" in capsys.readouterr().out
    assert main(["lint", str(script), "--fail-on", "never"]) == 0
    script.write_text("export NCCL_IB_TIMEOUT=1000\n", encoding="utf-8")
    assert main(["lint", str(script)]) == 0
    assert main(["lint", str(script), "--fail-on", "warning"]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there is nothing to check"),
        (["x", "--env"], "lint takes files, or --env"),
        (["no-such-file"], "no-such-file: cannot be read"),
        (["-", "-"], "standard input can be given only once"),
        (["-", "--fix"], "--fix writes files only"),
        (["x", "--nccl-version", "new"], "'new' is no version of NCCL"),
        (["x", "--nccl-lib", "/no/libnccl.so"], "/no/libnccl.so: cannot be read"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: [\n", encoding="utf-8")
    assert main(["lint", str(path)]) == 2
    captured = capsys.readouterr().err
    assert f"{path}:2:1: this is no YAML" in captured
    assert "--as shell" in captured
    # In a folder the rest is read, and the end is the same: nobody is to take it for checked.
    path.write_text("NCCL_NET: [\n", encoding="utf-8")
    (tmp_path / "ok.sh").write_text("export NCCL_NET=IB\n", encoding="utf-8")
    assert main(["lint", str(tmp_path), "--format", "github"]) == 2
    assert "::error file=" in (told := capsys.readouterr().out)
    assert "x.yaml,line=2,col=1,title=not read::this is no YAML" in told
    # So it is with files that a hook names one by one, templates too.
    path.write_text("a: ${{ NCCL_NET }}\nb: [\n", encoding="utf-8")
    (tmp_path / "bad.sh").write_text("export NCCL_BUFFSIZE=8M\n", encoding="utf-8")
    assert main(["lint", str(path), str(tmp_path / "bad.sh")]) == 2
    told = " ".join(capsys.readouterr().out.split())
    assert "not read:" in told
    assert "ENV111 NCCL_BUFFSIZE=8M" in " ".join(told.split())
    (tmp_path / "bad.sh").unlink()
    path.write_text("NCCL_NET: [\n", encoding="utf-8")
    assert main(["lint", str(tmp_path), "--format", "sarif"]) == 2
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert run["invocations"][0]["toolExecutionNotifications"][0]["level"] == "error"
    assert main(["lint", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert "not read: " in out
    assert "1 setting in 1 file" in out


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for data, kind, code in (
        (b"export NCCL_DEBUG=LOUD\n", [], "ENV113"),
        (b"NCCL_IB_TC = 3\n", ["--as", "nccl.conf"], "ENV121"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        main(["lint", "-", "--format", "json", *kind])
        assert [each["code"] for each in json.loads(capsys.readouterr().out)["findings"]] == [code]


def test_repairs_are_shown_and_written(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = script.read_text(encoding="utf-8")
    assert main(["lint", str(script), "--diff"]) == 1
    assert "+export NCCL_BUFFSIZE=8388608" in capsys.readouterr().out
    assert main(["lint", str(script), "--fix", "--diff"]) == 1
    assert script.read_text(encoding="utf-8") == before
    capsys.readouterr()
    script.chmod(0o750)
    assert main(["lint", str(script), "--fix"]) == 0
    out = capsys.readouterr().out
    assert "-export NCCL_BUFFSIZE=8M" in out
    assert "ENV111" not in out
    assert script.read_text(encoding="utf-8") == "export NCCL_BUFFSIZE=8388608\nexport NCCL_IB_TIMEOUT=1000\n"
    assert script.stat().st_mode & 0o777 == 0o750
    assert main(["lint", str(script), "--fix"]) == 0
    assert "---" not in capsys.readouterr().out


def test_a_folder_is_searched_without_what_is_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("a/job.sbatch", "a/.git/x.sh", "node_modules/x.sh", "b/Dockerfile", "b/other.sh", "b/notes.txt"):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("FROM x\nENV NCCL_NET=IB\n" if "Docker" in place else "export NCCL_NET=IB\n", encoding="utf-8")
    (tmp_path / "b/other.sh").write_text("echo nothing here\n", encoding="utf-8")
    (tmp_path / "a/run").write_text("#!/bin/sh\nexport NCCL_NET=IB\n", encoding="utf-8")
    main(["lint", str(tmp_path), "--format", "json"])
    read = [Path(each["file"]).name for each in json.loads(capsys.readouterr().out)["files"]]
    assert read == ["job.sbatch", "run", "Dockerfile"]


def test_the_environment_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "my.conf"
    conf.write_text("NCCL_IB_TC=1\nNCCL_DEBUG=WARN\n", encoding="utf-8")
    monkeypatch.setenv("NCCL_CONF_FILE", str(conf))
    monkeypatch.setenv("NCCL_IB_TC", "2")
    monkeypatch.setenv("NCCL_BUFFSIZE", "8M")
    main(["lint", "--env", "--format", "json"])
    found = [(each["file"], each["code"], each["variable"]) for each in json.loads(capsys.readouterr().out)["findings"]]
    assert ("environment", "ENV111", "NCCL_BUFFSIZE") in found
    assert (str(conf), "ENV171", "NCCL_IB_TC") in found
    assert not [each for each in found if each[2] == "NCCL_DEBUG"]


def test_the_names_in_a_library_judge(tmp_path: Path, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(b"\0NCCL version 2.31.2\0NCCL_BUFFSIZE\0NCCL_IB_TIMEOUT\0NCCL_SECRET_SWITCH\0")
    script.write_text("export NCCL_SECRET_SWITCH=1\nexport NCCL_SECRET_SWITCHES=1\n", encoding="utf-8")
    main(["lint", str(script), "--nccl-lib", str(library), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert (document["nccl"], document["library"]) == ("2.31.2", str(library))
    assert [(each["line"], each["code"]) for each in document["findings"]] == [(2, "ENV102")]
    library.write_bytes(b"\x7fELF nothing")
    assert main(["lint", str(script), "--nccl-lib", str(library)]) == 2
    assert "this is no NCCL library" in capsys.readouterr().err


def test_the_machine(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("export NCCL_P2P_DISABLE=1\n", encoding="utf-8")
    assert main(["lint", str(script), "--topology", "fixture:dgx-h100"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "error P2P002 NCCL_P2P_DISABLE=1 turns NVLink off too" in out
    assert "machine: fixture:dgx-h100" in out


@pytest.mark.parametrize("output_format", ["github", "sarif"])
def test_other_formats_go_to_standard_output_alone(
    script: Path, output_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["lint", str(script), "--diff", "--format", output_format])
    captured = capsys.readouterr()
    assert "+export NCCL_BUFFSIZE=8388608" in captured.err
    if output_format == "sarif":
        assert json.loads(captured.out)["runs"][0]["results"][0]["ruleId"] == "ENV111"
    else:
        assert captured.out.startswith("::error file=")


def test_what_a_template_makes_unreadable_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text("a: {{ .Values.a }}\nNCCL_NET: [\n", encoding="utf-8")
    assert main(["lint", str(tmp_path), "--format", "github"]) == 0
    assert "::notice file=" in capsys.readouterr().out


def test_a_file_that_is_named_twice_is_repaired_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sh"
    path.write_text("export NCCL_P2P_DISABLE=true\n", encoding="utf-8")
    assert main(["lint", "--fix", str(path), f"{tmp_path}/./a.sh", str(tmp_path)]) == 0
    assert path.read_text(encoding="utf-8") == "export NCCL_P2P_DISABLE=1\n"
    assert capsys.readouterr().out.count("+export") == 1


def test_a_named_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "f")
    assert main(["lint", str(tmp_path / "f")]) == 2
    assert "named pipe" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "github"])
def test_nothing_in_a_file_steers_the_terminal(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sh"
    path.write_text('export NCCL_ALGO="\x1b[31mRing\x07" NCCL_P2P_DISABLE=true\n', encoding="utf-8")
    assert main(["lint", "--diff", str(path), "--format", form]) == 1
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "\\x1b[31mRing\\x07" in captured.out


@pytest.mark.parametrize(("version", "told"), [("2.27", 0), ("2.26", 1), ("2.32", 0)])
def test_two_numbers_are_the_series(
    version: str, told: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.sh"
    path.write_text("export NCCL_CTA_POLICY=DEFAULT\n", encoding="utf-8")
    main(["lint", str(path), "--nccl-version", version])
    captured = " ".join(capsys.readouterr().out.split())  # a long path breaks lines elsewhere
    assert captured.count("warning ENV104") == told
    assert "the last release of this series" in captured
    assert main(["lint", str(path), "--nccl-version", "2"]) == 2
