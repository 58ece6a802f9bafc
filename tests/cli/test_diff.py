from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from topoadvisor import files, snapshot
from topoadvisor.cli import main


def saved(tmp_path: Path, name: str = "dgx-h100", **driver: str) -> str:
    found = snapshot.decode((files.shipped("fixtures") / name / "snapshot.json").read_bytes())
    changed = msgspec.structs.replace(found, driver=msgspec.structs.replace(found.driver, **driver))
    path = tmp_path / f"{name}.json"
    snapshot.save(changed, path)
    return str(path)


def test_nothing_changed_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "fixture:8x4090", "fixture:8x4090"]) == 0
    out = capsys.readouterr().out
    assert "Nothing changed" in out
    assert "Unchanged: GPUs (8), " in out


def test_changes_are_grouped_worst_first_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "fixture:dgx-h100", "fixture:dgx-h100-broken-link"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fixture:dgx-h100 → fixture:dgx-h100-broken-link"
    assert "NVLinks (2)" in lines
    assert "  ✗ GPU5 (0000:c3:00.0): NVLink 7 (to 0000:06:00.0) up → down" in lines
    assert "      also GPU5 link 12" in lines
    assert "  ✗ GPU0–GPU5: link class NV18 → NV16" in lines
    assert any(line.startswith("Unchanged: GPUs (8), NVLinks (142 of 144)") for line in lines)


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "fixture:dgx-h100", saved(tmp_path, version="999.1"), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["same"]) == ("topoadvisor.diff/1", False)
    (change,) = document["changes"]
    assert list(change) == ["kind", "subject", "field", "before", "after", "severity", "message"]
    assert (change["kind"], change["field"], change["after"]) == ("driver", "version", "999.1")
    assert main(["diff", "fixture:dgx-h100", "fixture:dgx-h100", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == []


def test_two_machines_are_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diff", "fixture:dgx-a100", "fixture:dgx-h100"])
    assert capsys.readouterr().out.splitlines()[1].startswith("! These are visibly two different machines: ")


def test_a_value_read_on_one_side_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "fixture:dgx-h100", saved(tmp_path, version=None)]) == 0  # type: ignore[arg-type]
    assert "Read before and not now, which says nothing about the machine: version of node" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json")))
def test_what_nccl_would_see_is_no_change_of_the_machine(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.startswith("paste"):
        pytest.skip("a matrix without addresses cannot be exported")
    seen = str(tmp_path / "topology.xml")
    assert main(["emit", "nccl-topo", f"fixture:{name}", "-o", seen]) == 0
    for captures in ([f"fixture:{name}", seen], [seen, f"fixture:{name}"]):
        assert main(["diff", *captures, "--format", "json"]) == 0, capsys.readouterr().out


def test_unreadable_and_twice_standard_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "fixture:dgx-h100", str(tmp_path / "none")]) == 2
    assert main(["diff", "-", "-"]) == 2
    assert main(["scan", "-", "--baseline", "-"]) == 2
    err = capsys.readouterr().err
    assert err.count("hint: ") == 3
    assert "Traceback" not in err


def test_scan_against_a_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = saved(tmp_path, version="1.1.1")
    assert main(["scan", "fixture:dgx-h100", "--baseline", baseline]) == 0
    out = capsys.readouterr().out
    assert "Changes since the baseline (1)" in out
    assert "driver 1.1.1 → " in out
    assert main(["scan", "fixture:dgx-h100", "--baseline", baseline, "--fail-on", "warning"]) == 1
    assert main(["scan", "fixture:dgx-h100", "--fail-on", "warning"]) == 0
    capsys.readouterr()
    main(["scan", "fixture:dgx-h100", "--baseline", baseline, "--format", "json"])
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["kind"], change["before"]) == ("driver", "1.1.1")
    assert main(["scan", "fixture:dgx-h100", "--baseline", "fixture:dgx-h100"]) == 0
    assert "No changes since the baseline" in capsys.readouterr().out
    assert main(["scan", "fixture:dgx-h100", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] is None


def test_errors_against_the_baseline_fail_a_scan_without_findings(capsys: pytest.CaptureFixture[str]) -> None:
    """The H100 machine has no error of its own; against the A100 machine switches are gone."""
    assert main(["scan", "fixture:dgx-h100", "--baseline", "fixture:dgx-a100"]) == 1
    assert main(["scan", "fixture:dgx-h100", "--baseline", "fixture:dgx-a100", "--fail-on", "never"]) == 0
    capsys.readouterr()


def test_a_baseline_of_another_machine_is_said_first_and_does_not_flood(capsys: pytest.CaptureFixture[str]) -> None:
    main(["scan", "fixture:dgx-h100", "--baseline", "fixture:dgx-a100"])
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Changes since the baseline ("))
    assert lines[start + 1].startswith("  ! These are visibly two different machines")
    assert any("more (`topoadvisor diff`, or --format json)" in line for line in lines[start : start + 60])


def test_a_machine_whose_gpus_are_all_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.json"
    snapshot.save(snapshot.Snapshot(sources=[snapshot.Source(name="nvml", status="ok")]), path)
    assert main(["scan", str(path), "--baseline", "fixture:dgx-h100"]) == 3
    assert "The baseline has 8" in capsys.readouterr().err
    assert main(["diff", "fixture:dgx-h100", str(path)]) == 1
    assert "GPU7 (0000:df:00.0) NVIDIA H100 80GB HBM3 is gone" in capsys.readouterr().out
