"""Files of every kind, good and bad: what lint says about each, and that it says nothing about the good ones."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
import yaml

from topoadvisor.errors import TopoAdvisorError
from topoadvisor.lint import files, fixes, run
from topoadvisor.lint.codes import CODES
from topoadvisor.lint.document import Report
from topoadvisor.rules.load import load

HERE = Path(__file__).parent
GOOD = sorted(path.name for path in (HERE / "files" / "good").iterdir())
EXPECTED = yaml.safe_load((HERE / "expected.yaml").read_text(encoding="utf-8"))
RULES = load()


def judge(folder: str, name: str, **more: object) -> Report:
    sources = list(files.sources([str(HERE / "files" / folder / name)], None, None))  # type: ignore[arg-type]
    return run.lint(sources, RULES, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("version", [None, "2.28.9", "2.30.7"])
def test_good_files_raise_no_alarm(name: str, version: str | None) -> None:
    report = judge("good", name, version=version)
    assert [(each.line, each.code, each.message) for each in report.findings] == []


def test_the_good_files_are_really_read() -> None:
    settings = {name: sum(file.settings for file in judge("good", name).files) for name in GOOD}
    assert sum(settings.values()) > 90
    assert {name for name, count in settings.items() if not count} == {"ds_config.json"} | {"accelerate.yaml"}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_bad_files_are_told_line_by_line(name: str) -> None:
    found = [
        f"{each.line}:{each.column} {each.severity} {each.code} {each.variable}".rstrip()
        for each in judge("bad", name).findings
    ]
    assert found == EXPECTED[name]


def test_every_bad_file_is_expected_to_be_bad_and_there_are_enough() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in (HERE / "files" / "bad").iterdir())
    assert len(GOOD) + len(EXPECTED) >= 30


def test_the_bad_files_show_nearly_every_code() -> None:
    shown = {line.split()[2] for lines in EXPECTED.values() for line in lines}
    assert set(CODES) - shown <= {"ENV104", "ENV105", "ENV171", "ENV172", "ENV173", "ENV174"}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_a_repair_leaves_is_repaired_for_good(name: str) -> None:
    (source,) = files.sources([str(HERE / "files" / "bad" / name)], None, None)  # type: ignore[arg-type]
    text, before = source.text, 10**6
    for _ in range(4):
        report = run.lint([run.Source(name, text, source.kind)], RULES)
        repairable = [each for each in report.findings if each.fix is not None]
        if not repairable:
            return
        assert len(repairable) <= before
        before = len(repairable)
        text, count = fixes.apply(text, report.findings)
        assert count
    raise AssertionError(f"still to be repaired: {[(each.code, each.message) for each in repairable]}")


def test_without_a_topology_what_a_machine_decides_is_unknown() -> None:
    report = judge("bad", "lost.sh")
    open_rules = {(each.variable, each.code) for each in report.unknown}
    assert {("NCCL_P2P_DISABLE", "P2P002"), ("NCCL_IB_DISABLE", "NET024")} <= open_rules
    assert all(each.reason for each in report.unknown)


def test_the_document_is_json_with_the_keys_that_programs_read() -> None:
    import msgspec

    document = json.loads(msgspec.json.encode(judge("bad", "train.sh")))
    first = document["findings"][0]
    assert document["schema"] == "topoadvisor.lint/1"
    assert {"file", "line", "column", "code", "severity", "variable", "message", "becomes", "fix"} <= set(first)
    assert first["becomes"] == "8"
    assert first["fix"]["edits"][0]["text"] == "8388608"


@pytest.mark.parametrize("name", ["/proc", "/sys", "/dev", "/proc/self/fd"])
def test_what_the_kernel_shows_of_itself_is_no_folder_of_scripts(name: str) -> None:
    with pytest.raises(TopoAdvisorError, match="is the kernel's own"):
        list(files.sources([name], None, io.BytesIO()))


def test_a_folder_of_too_many_files_is_refused_before_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_FILES", 2)
    for name in "abc":
        (tmp_path / f"{name}.sh").write_text("export NCCL_DEBUG=INFO\n", encoding="utf-8")
    with pytest.raises(TopoAdvisorError, match="holds more than 2 files"):
        next(files.sources([str(tmp_path)], None, io.BytesIO()))


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "job.sh").write_text("export NCCL_DEBUG=INFO\n", encoding="utf-8")
    assert [Path(source.file).name for source in files.sources([str(tmp_path)], None, io.BytesIO())] == ["job.sh"]


def test_files_beside_a_script_that_it_runs_are_read_and_not_repaired(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    texts = {
        "job.sh": '#!/bin/bash\n. ./one.sh\nsource "$(dirname "$0")/more/two"\n[ -f x ] && . ${HERE}/.env\n'
        ". /etc/profile\n# source three.sh\n. none.sh\nsrun ./a\n",
        "one.sh": "NCCL_BUFFSIZE=8M\n. job.sh\n",
        "more/two": "export NCCL_P2P_LEVEL=nvl\n",
        ".env": "NCCL_DEBUG=INFO\n",
        "three.sh": "export NCCL_IB_SL=17\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    sources = list(files.sources([str(tmp_path / "job.sh")], None, io.BytesIO()))
    assert [str(Path(source.file).relative_to(tmp_path)) for source in sources] == [
        "job.sh",
        "one.sh",
        "more/two",
        ".env",
    ]
    assert [source.kind for source in sources] == ["shell", "shell", "shell", "env"]
    report = run.lint(sources, RULES)
    # That one.sh exports nothing is for the script that runs it.
    assert [(Path(each.file).name, each.code, each.fix) for each in report.findings] == [
        ("one.sh", "ENV111", None),
        ("two", "ENV113", None),
    ]
    assert run.repair(sources[1], version=None, nccl_library=None) == sources[1]
