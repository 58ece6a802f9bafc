"""What other programs read: GitHub's annotations and SARIF."""

from __future__ import annotations

import json

from topoadvisor.lint import run
from topoadvisor.render import lint_formats, lint_text
from topoadvisor.rules.load import load

RULES = load()
TEXT = (
    "# topoadvisor: ignore[ENV116] measured\nexport NCCL_ALGO=Ring\n"
    "export NCCL_BUFFSIZE=8M\nexport NCCL_IB_TIMEOUT=1000\nexport NCCL_P2P_LEVEL=5\n"
)


def report(file: str = "a b/run,1.sh") -> run.Report:
    return run.lint([run.Source(file, TEXT, "shell")], RULES)


def test_annotations_escape_what_they_must() -> None:
    lines = lint_formats.github(report()).splitlines()
    assert lines[0].startswith(
        "::error file=a b/run%2C1.sh,line=3,col=8,title=ENV111 value-ends-the-job::NCCL_BUFFSIZE=8M "
    )
    assert lines[1].startswith("::warning ")
    assert lines[2].startswith("::notice ")


def test_sarif_names_rules_places_repairs_and_what_is_silenced() -> None:
    document = lint_formats.sarif(report(), RULES)
    assert document["version"] == "2.1.0"
    (sarif_run,) = document["runs"]
    rules = [rule["id"] for rule in sarif_run["tool"]["driver"]["rules"]]
    assert rules == ["ENV111", "ENV114", "ENV116", "P2P011"]
    results = sarif_run["results"]
    assert [rules[result["ruleIndex"]] for result in results] == [result["ruleId"] for result in results]
    assert [result["level"] for result in results] == ["error", "warning", "note", "warning"]
    assert results[-1]["suppressions"] == [{"kind": "inSource", "justification": "measured"}]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b/run%2C1.sh"
    (replacement,) = results[0]["fixes"][0]["artifactChanges"][0]["replacements"]
    assert replacement["insertedContent"]["text"] == "8388608"
    region = replacement["deletedRegion"]
    line = TEXT.splitlines()[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == "8M"


def test_sarif_describes_its_rules_for_people() -> None:
    (sarif_run,) = lint_formats.sarif(report(), RULES)["runs"]
    for rule in sarif_run["tool"]["driver"]["rules"]:
        text = json.dumps(rule)
        assert "{variable" not in text
        assert rule["shortDescription"]["text"][0].isupper()
        assert f"topoadvisor explain {rule['id']}" in rule["help"]["text"]
    (of_rule,) = [rule for rule in sarif_run["tool"]["driver"]["rules"] if rule["id"] == "P2P011"]
    assert of_rule["helpUri"].startswith("https://")
    assert f"- <{of_rule['helpUri']}>" in of_rule["help"]["markdown"]


def test_sarif_knows_a_finding_again_when_lines_have_moved() -> None:
    def marks(text: str) -> list[str]:
        found = run.lint([run.Source("run.sh", text, "shell")], RULES)
        results = lint_formats.sarif(found, RULES)["runs"][0]["results"]
        return [each["partialFingerprints"]["topoadvisorFinding/v1"] for each in results]

    once = marks(TEXT)
    assert len(set(once)) == len(once)
    assert marks(f"#!/bin/bash\n\n{TEXT}") == once
    twice = marks("NCCL_IB_TC=1 ./a\n" * 2 + "export NCCL_IB_TIMEOUT=1000\n./a\nexport NCCL_IB_TIMEOUT=1000\n")
    assert len(set(twice)) == len(twice) == 2


def test_a_file_below_the_root_is_named_from_there() -> None:
    result = lint_formats.sarif(report("./a:b/c.sh"), RULES)["runs"][0]["results"][0]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": "a%3Ab/c.sh", "uriBaseId": "%SRCROOT%"}


def test_a_file_by_its_full_path_is_a_uri() -> None:
    document = lint_formats.sarif(report("/x/é.sh"), RULES)
    result = document["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///x/%C3%A9.sh"


def test_the_screen_fits_its_width_and_says_what_is_open() -> None:
    for width in (80, 200):
        text = lint_text.render(report(), width=width)
        assert all(len(line) <= width for line in text.splitlines())
        assert "Not judged without --topology SOURCE" in text
        joined = " ".join(text.split())
        assert "1 can be repaired with --fix" in joined
        assert "1 silenced by comments" in joined
