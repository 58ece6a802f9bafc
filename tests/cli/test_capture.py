import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from topoadvisor import collect
from topoadvisor.cli import capture as verb
from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.snapshot import Gpu, Host, Matrix, PciDevice, Snapshot, Source, decode

MACHINE = Snapshot(
    sources=[
        Source(name="nvml", status="ok"),
        Source(name="sysfs", status="partial", reason="could not read a thing"),
    ],
    gpus=[Gpu(index=0, name="NVIDIA H200")],
    host=Host(hostname="gpu-node-17"),
)


@pytest.fixture
def run(monkeypatch):
    """Run the verb on a made machine; gives the result with its exception."""

    def go(*arguments, machine=MACHINE):
        roots = []

        def live(root):
            roots.append(root)
            return machine

        monkeypatch.setattr(collect, "capture_live", live)
        app = typer.Typer()
        app.command()(verb.capture)
        result = CliRunner().invoke(app, list(arguments))
        result.roots = roots
        return result

    return go


def test_standard_output_is_the_snapshot_and_nothing_else(run):
    for arguments in ([], ["-o", "-"]):
        result = run(*arguments)
        assert result.exit_code == 0
        assert decode(result.stdout.encode()) == MACHINE
        assert result.stderr == ""


def test_file_is_written_with_a_line_a_source_on_standard_error(run, tmp_path):
    target = tmp_path / "node.json"
    result = run("-o", str(target))
    assert decode(target.read_bytes()) == MACHINE
    assert result.stdout == ""
    assert [line.split() for line in result.stderr.splitlines()] == [
        ["nvml", "ok"],
        ["sysfs", "partial", "could", "not", "read", "a", "thing"],
    ]


def test_redact(run):
    document = json.loads(run("--redact").stdout)
    assert (document["redacted"], document["host"]["hostname"]) == (True, "host-1")


def test_root_is_handed_on_and_must_be_a_directory(run, tmp_path):
    assert run("--root", str(tmp_path)).roots == [tmp_path]
    result = run("--root", str(tmp_path / "missing"))
    assert isinstance(result.exception, InputError)
    assert result.roots == []


@pytest.mark.parametrize("place", ["", "missing/node.json"])
def test_output_that_cannot_be_written_is_told_before_anything_is_read(run, tmp_path, place):
    result = run("-o", str(tmp_path / place))
    assert isinstance(result.exception, InputError)
    assert result.exception.hint
    assert result.roots == []


def test_device_as_output_is_not_replaced(run):
    run("-o", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_machine_without_a_gpu_writes_and_ends_with_3(run, tmp_path):
    reason = "there is no NVML library"
    machine = Snapshot(sources=[Source(name="nvml", status="absent", reason=reason)])
    target = tmp_path / "node.json"
    result = run("-o", str(target), machine=machine)
    assert isinstance(result.exception, NothingDetermined)
    assert result.exception.exit_code == 3
    assert reason in result.exception.message
    assert decode(target.read_bytes()) == machine


@pytest.mark.parametrize(
    "machine",
    [
        Snapshot(pci=[PciDevice(address="0000:01:00.0", vendor="0x10de", class_code="0x030200", driver="vfio-pci")]),
        Snapshot(matrices=[Matrix(gpus=["GPU0"], nics=[], cells={})]),
    ],
)
def test_gpu_that_any_source_shows_counts(run, machine):
    assert run(machine=machine).exit_code == 0
