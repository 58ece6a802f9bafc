from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from topoadvisor.cli import render
from topoadvisor.errors import InputError, NothingDetermined, TopoAdvisorError
from topoadvisor.files import shipped
from topoadvisor.snapshot import Snapshot, decode

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """The verb on the bundled machine that SOURCE names, on an empty one for `empty`."""

    def load(sources: list[str] | None, *_: object) -> Snapshot:
        (source,) = sources or [""]
        if source == "empty":
            return Snapshot()
        return decode((shipped("fixtures") / source / "snapshot.json").read_bytes())

    monkeypatch.setattr(render, "load_snapshot", load)
    app = typer.Typer()
    app.command()(render.render)

    def invoke(*arguments: str | Path) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return invoke


def refused(result: Result) -> TopoAdvisorError:
    assert isinstance(result.exception, TopoAdvisorError), result
    return result.exception


def test_text_is_the_default(run: Run) -> None:
    result = run("dgx-h100")
    assert result.exit_code == 0
    assert result.stdout.startswith("8 × NVIDIA H100 80GB HBM3\n")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.svg", b"<?xml"),
        ("a.SVG", b"<?xml"),
        ("a.png", b"\x89PNG"),
        ("a.pdf", b"%PDF-"),
        ("a.dot", b"graph topology {"),
        ("a.gv", b"graph topology {"),
        ("a.txt", "2 × NVIDIA".encode()),
        ("a", "2 × NVIDIA".encode()),
    ],
)
def test_the_suffix_says_the_format(run: Run, tmp_path: Path, name: str, start: bytes) -> None:
    assert run("2x3090-bridge", "-o", tmp_path / name).exit_code == 0
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_format_wins_over_the_suffix(run: Run, tmp_path: Path) -> None:
    assert run("2x3090-bridge", "--format", "svg", "-o", tmp_path / "a.txt").exit_code == 0
    assert (tmp_path / "a.txt").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("arguments", [("--format", "png"), ("--format", "png", "-o", "-")])
def test_a_picture_goes_into_a_pipe(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("2x3090-bridge", *arguments).stdout_bytes.startswith(b"\x89PNG")


def test_a_picture_is_no_text_for_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    class System:
        stdout: Any = Terminal()

    monkeypatch.setattr(render, "sys", System)
    error = refused(run("2x3090-bridge", "--format", "pdf"))
    assert "terminal" in error.message
    assert "-o topology.pdf" in (error.hint or "")


def test_formats_that_nobody_draws_are_refused(run: Run, tmp_path: Path) -> None:
    assert "jpg" in refused(run("2x3090-bridge", "-o", tmp_path / "a.jpg")).message
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_written_is_a_sentence(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "a.svg", tmp_path):
        error = refused(run("2x3090-bridge", "--format", "svg", "-o", path))
        assert isinstance(error, InputError)
        assert error.message.startswith(f"{path}: cannot write here")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_a_sentence(run: Run, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot write here" in refused(run("2x3090-bridge", "-o", tmp_path / "a.svg")).message


def test_a_failure_leaves_the_old_file_alone(run: Run, tmp_path: Path) -> None:
    old = tmp_path / "a.svg"
    old.write_text("old")
    assert isinstance(refused(run("empty", "-o", old)), NothingDetermined)
    assert old.read_text() == "old"


def test_no_gpu_is_a_sentence_and_exit_code_3(run: Run) -> None:
    error = refused(run("empty"))
    assert "no GPU was found" in error.message
    assert error.exit_code == 3


@pytest.mark.parametrize("format", ["text", "dot", "svg"])
def test_the_same_source_gives_the_same_bytes(run: Run, format: str) -> None:
    assert run("dgx-1v", "--format", format).stdout == run("dgx-1v", "--format", format).stdout


def test_a_pick_and_a_placement_are_drawn(run: Run) -> None:
    assert "{pick}" in run("dgx-1v", "--pick", "2").stdout
    shown = run("dgx-1v", "--place", "tp=2, pp=4").stdout
    assert "{T3 r7}" in shown
    assert "tensor 2, data 1, pipeline 4: 8 ranks on 1 node" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--place", "tp=4,tp=2"], "cannot be read at 'tp=2'"),
        (["--place", "tp=0"], "cannot be read at 'tp=0'"),
        (["--place", "4"], "cannot be read at '4'"),
        (["--place", ""], "cannot be read at ''"),
        (["--place", "tp=16"], "tensor groups of 16"),
        (["--place", "tp=2", "--pick", "2"], "both mark GPUs"),
        (["--pick", "9"], "9 GPUs are asked for"),
    ],
)
def test_plans_that_cannot_be_drawn(run: Run, arguments: list[str], words: str) -> None:
    assert words in refused(run("dgx-1v", *arguments)).message
