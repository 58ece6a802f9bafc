from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from topoadvisor import compiled, files
from topoadvisor.explain import glossary
from topoadvisor.nccl import settings
from topoadvisor.rules import load, rule_file
from topoadvisor.rules.model import Rule

TABLE = "# a head\na: [1, 2]\n# about b\nb:\n  c: 3\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.yaml"
    path.write_text(TABLE)
    path.with_suffix(".json").write_text(compiled.compile_table(path))
    return path


def test_the_json_stands_for_the_yaml(table: Path) -> None:
    assert compiled.load(table, dict[str, object]) == {"a": [1, 2], "b": {"c": 3}} == compiled.read(table, dict)
    assert len(table.with_suffix(".json").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("before", "after", "b"),
    [
        ("3", "4", {"c": 4}),
        ("a: [1, 2]\n", "", {"c": 3}),
        ("  c: 3\n", "  c: 3\nd: 5\n", {"c": 3}),
        ("# about b\n", "", {"c": 3}),
    ],
)
def test_an_edited_table_is_read_from_its_yaml(table: Path, before: str, after: str, b: object) -> None:
    table.write_text(TABLE.replace(before, after))
    assert compiled.load(table, dict[str, object]) is None
    assert compiled.read(table, dict[str, object])["b"] == b


@pytest.mark.parametrize("text", [None, "", "[\n", "[]", "[[1]]", '[[1,{"a":1}]]'])
def test_without_good_json_the_yaml_is_read(table: Path, text: str | None) -> None:
    if text is None:
        table.with_suffix(".json").unlink()
    else:
        table.with_suffix(".json").write_text(text)
    assert compiled.load(table, dict[str, object]) is None
    assert compiled.read(table, dict[str, object])["a"] == [1, 2]


def test_a_line_of_json_holds_an_entry_of_yaml(table: Path) -> None:
    table.write_text('{"a": 1,\n "b": 2}\n')
    with pytest.raises(ValueError, match="argument"):
        compiled.compile_table(table)


def test_an_edited_rule_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in files.shipped("rules").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shipped = load.load()
    monkeypatch.setattr("topoadvisor.files.shipped", lambda kind: tmp_path)
    assert load.load() == shipped
    load._once.cache_clear()
    text = (tmp_path / "vm.yaml").read_text()
    (tmp_path / "vm.yaml").write_text(text.replace('title: "', 'title: "Look: ', 1))
    edited = [rule for rule in load.load() if rule not in shipped]
    assert [rule.title[:6] for rule in edited] == ["Look: "]
    load._once.cache_clear()


def test_what_is_compiled_is_what_the_yaml_says() -> None:
    rules = [rule for path in files.shipped("rules").glob("*.yaml") for [rule] in rule_file.entries(path)]
    assert load.load() == sorted(rules, key=lambda rule: rule.id)
    for path in files.shipped("rules").glob("*.yaml"):
        assert compiled.load(path, list[Rule]) is not None, "run make docs"
    for path, kind in ((settings.HERE / "settings.yaml", settings.SettingInfo), (glossary.FILE, glossary.Term)):
        assert compiled.load(path, list[kind]) is not None, "run make docs"  # type: ignore[valid-type]


def test_a_scan_reads_no_yaml() -> None:
    code = "import sys; from topoadvisor import cli; cli.main(['scan', 'fixture:dgx-a100']); "
    code += "sys.exit('yaml' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
