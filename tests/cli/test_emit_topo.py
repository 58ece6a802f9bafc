from __future__ import annotations

from pathlib import Path

import pytest

from topoadvisor import cli


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["emit", "nccl-topo", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_file_on_stdout_and_the_remarks_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "fixture:2xh200-kvm")
    assert code == 0
    assert out.startswith("<!-- Topology of one machine")
    assert out.endswith("</system>\n")
    assert err.splitlines() == [
        "Left to NCCL, because it was not read: GPUDirect RDMA support of 2 devices.",
        "Left to NCCL: which ports of which NICs it uses.",
    ]


def test_the_file_in_a_file_can_be_read_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "topology.xml"
    code, out, _ = run(capsys, "fixture:8x4090", "-o", str(path))
    assert (code, out) == (0, "")
    again = tmp_path / "again.xml"
    assert run(capsys, str(path), "-o", str(again))[0] == 0
    assert again.read_bytes() == path.read_bytes()


def test_without_addresses_it_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "fixture:paste-8xa100")
    assert (code, out) == (2, "")
    assert err.startswith("topoadvisor: a topology file says at which PCI addresses and below which bridges")
    assert "`topoadvisor capture -o node.json` on the machine reads it" in err
