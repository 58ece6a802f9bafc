from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from topoadvisor.cli.rules import app
from topoadvisor.errors import InputError, TopoAdvisorError

GOOD = """\
- id: ZZZ001
  name: site-rule
  status: stable
  subject: node
  when: gpus.count > 1
  severity: info
  title: Many GPUs
  why: Because.
  verify: all-reduce
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(GOOD)
    return tmp_path


def test_list_shows_shipped_and_site_rules(site: Path) -> None:
    result = run("list", "--rules", str(site))
    assert result.exit_code == 0
    assert "ZZZ001   info     node      site-rule\n" in result.stdout
    assert len(result.stdout.splitlines()) > 15


def test_list_as_json_holds_the_rules_as_written(site: Path) -> None:
    rules = json.loads(run("list", "--rules", str(site), "--format", "json").stdout)["rules"]
    mine = next(rule for rule in rules if rule["id"] == "ZZZ001")
    assert mine["when"] == "gpus.count > 1"
    assert mine["file"].endswith("site.yaml")


def test_check_is_quiet_about_good_rules(site: Path) -> None:
    result = run("check", "--rules", str(site))
    assert (result.exit_code, result.stdout.endswith(" rules, no faults\n")) == (0, True)


def test_check_names_the_place_of_every_fault_and_fails(site: Path) -> None:
    (site / "site.yaml").write_text(GOOD.replace("count", "cuont") + "  titel: x\n")
    (site / "typo.yaml").write_text(GOOD.replace("ZZZ001", "ZZZ002").replace("> 1", '== "1"').replace("site-", "my-"))
    result = run("check", "--rules", str(site))
    assert result.exit_code == 1
    assert f"{site}/site.yaml:10:3: `titel` is no key of a rule" in result.stderr
    assert "hint: Did you mean `title`?" in result.stderr
    assert f"{site}/typo.yaml:5:3: " in result.stderr
    assert result.stdout == ""


def test_explain_says_everything_about_one_rule(site: Path) -> None:
    for name in ("ZZZ001", "zzz001", "site-rule"):
        result = run("explain", name, "--rules", str(site))
        assert result.exit_code == 0
        assert "ZZZ001 site-rule" in result.stdout
        assert "gpus.count: number of NVIDIA GPUs" in result.stdout


def test_an_unknown_rule_gets_the_nearest_as_a_hint(site: Path) -> None:
    result = run("explain", "ZZZ01", "--rules", str(site))
    assert isinstance(result.exception, TopoAdvisorError)
    assert result.exception.hint == "Did you mean `ZZZ001`?"


@pytest.mark.parametrize("command", [["list"], ["check"], ["explain", "ZZZ001"]])
def test_a_missing_folder_is_an_input_error(command: list[str], tmp_path: Path) -> None:
    result = run(*command, "--rules", str(tmp_path / "nowhere"))
    assert isinstance(result.exception, InputError)
    assert "nowhere" in result.exception.message


def test_foreign_text_does_not_reach_the_terminal_raw(site: Path) -> None:
    (site / "site.yaml").write_text(GOOD + '  "\\e]0;pwn\\a": 1\n')
    (site / "\x1b[31m.yaml").write_text(GOOD.replace("gpus.count", "cuont"))
    result = run("check", "--rules", str(site))
    assert result.exit_code == 1
    assert "`\\x1b]0;pwn\\x07` is no key of a rule" in result.stderr
    assert "\\x1b[31m.yaml:5:3: " in result.stderr
    assert all(letter.isprintable() or letter == "\n" for letter in result.stderr)


def test_a_bad_pattern_is_one_line(site: Path) -> None:
    (site / "site.yaml").write_text(GOOD.replace("gpus.count > 1", "'gpus.model.matches(\"(\")'"))
    result = run("check", "--rules", str(site))
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.rstrip().endswith("is no pattern: missing ): (")
