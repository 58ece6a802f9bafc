from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topoadvisor.errors import InputError
from topoadvisor.rules import cel, load

GOOD = """\
# a comment
- id: TST001
  name: a-rule
  status: stable
  subject: pair
  when: pair.nvlinks == 0
  severity: warning
  title: "{pair.a} and {pair.b}"
  why: |
    Because.
  evidence: [pair.nvlinks]
  advice:
    - set: {NCCL_P2P_LEVEL: PXB}
      class: workaround
      remove_when: "it works"
    - action: do something
      command: "true"
      safety: safe
  references:
    - {url: "https://example.org/", read: 2026-11-29}
"""

pytestmark = pytest.mark.usefixtures("no_shipped_rules")


def folder(tmp_path: Path, *texts: str) -> Path:
    place = tmp_path / "site"
    place.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (place / f"{number}.yaml").write_text(text, encoding="utf-8")
    return place


def fault(tmp_path: Path, *texts: str) -> InputError:
    with pytest.raises(InputError) as error:
        load.load([folder(tmp_path, *texts)])
    return error.value


def test_a_good_file_loads(tmp_path: Path) -> None:
    (rule,) = load.load([folder(tmp_path, GOOD)])
    assert rule.id == "TST001"
    assert rule.advice[0].set == {"NCCL_P2P_LEVEL": "PXB"}
    assert rule.file.endswith("0.yaml")


def test_rules_come_by_id_whatever_the_files_are_called(tmp_path: Path) -> None:
    second = GOOD.replace("TST001", "ABC001").replace("a-rule", "b-rule")
    assert [rule.id for rule in load.load([folder(tmp_path, GOOD, second)])] == ["ABC001", "TST001"]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("severity: warning", "severty: warning", 7, ["`severty`", "Did you mean `severity`"]),
        ("severity: warning", "severity: warningg", 7, ["`warningg`", "Did you mean `warning`"]),
        ("  status: stable\n", "", 2, ["`status` is missing", "It is one of stable, preview."]),
        ("  title:", "  titel:", 8, ["`titel`", "Did you mean `title`"]),
        ("severity: warning", "severity: loud", 7, ["`loud`", "It is one of error, warning, info."]),
        ("when: pair.nvlinks == 0", "when: true", 6, ["`when` must be a text", "quotes"]),
        ("PXB}", "1}", 13, ["must be a text", "quotes"]),
        ("      class: workaround", "      klass: workaround", 14, ["`klass`", "Did you mean `class`"]),
        ("{url: ", "{uri: ", 20, ["`uri`", "Did you mean `url`"]),
        ("TST001", "T1", 2, ["`T1` is no rule id"]),
        ("name: a-rule", "name: A Rule", 3, ["no rule name"]),
        ("subject: pair", "subject: pairs", 5, ["`pairs`", "Did you mean `pair`"]),
        ("pair.nvlinks == 0", "pair.nvlinks == ", 6, ["cannot be read", "column"]),
        ("pair.nvlinks == 0", "pair.nvlink == 0", 6, ["no fact `pair.nvlink`", "Did you mean `pair.nvlinks`"]),
        ("pair.nvlinks == 0", "pair.p2p == 0", 6, ["group of facts", "pair.p2p.read"]),
        ("pair.nvlinks == 0", "gpu.index == 0", 6, ["fact of one gpu", "each pair"]),
        ("pair.nvlinks == 0", "startwith(pair.a)", 6, ["no function `startwith`", "startsWith"]),
        ("pair.nvlinks == 0", 'env.NCCL_P2P_LEVL == ""', 6, ["NCCL_P2P_LEVL", "NCCL_P2P_LEVEL"]),
        ("{pair.a} and", "{pair.c} and", 8, ["no fact `pair.c`"]),
        ("evidence: [pair.nvlinks]", "evidence: [pair.a, pair.linkclass]", 11, ["pair.link_class"]),
        ("class: workaround", "class: diagnostic", 14, ["diagnostic variable is never set"]),
        ('      remove_when: "it works"\n', "", 13, ["remove_when"]),
        ("class: workaround", "class: tuning", 13, ["needs a measurement"]),
        ("      class: workaround\n", "", 13, ["needs a `class`"]),
        ("NCCL_P2P_LEVEL: PXB", "NCCL_P2P_LEVL: PXB", 13, ["NCCL_P2P_LEVEL"]),
        ("PXB}", '"{pair.nvlnks}"}', 13, ["pair.nvlinks"]),
        ("    - action: do something\n      command", "    - command", 16, ["says nothing"]),
        ("      safety: safe", "      safety: safe\n      nccl: 2.21+", 19, ["version condition"]),
        ("read: 2026-11-29", "read: yesterday", 20, ["read"]),
        ("https://example.org/", "example.org", 20, ["no web address"]),
        ("  evidence:", "  overrides: [TST001]\n  evidence:", 11, ["cannot override itself"]),
        ("  evidence:", "  overrides: [TST002]\n  evidence:", 11, ["overrides TST002"]),
        ("  why: |", "  why: [", 9, ["YAML is broken", "just above"]),
    ],
)
def test_a_fault_names_file_line_and_what_was_meant(
    tmp_path: Path, old: str, new: str, line: int, words: list[str]
) -> None:
    assert old in GOOD
    error = fault(tmp_path, GOOD.replace(old, new, 1))
    said = f"{error.message} {error.hint}"
    assert error.file is not None
    assert error.file.endswith("0.yaml")
    if "just above" not in words:
        assert error.line == line, said
    assert error.column is not None
    for word in words:
        assert word in said


def test_the_same_id_in_two_files_names_both(tmp_path: Path) -> None:
    error = fault(tmp_path, GOOD, GOOD.replace("a-rule", "b-rule"))
    assert error.file is not None
    assert error.file.endswith("1.yaml")
    assert "0.yaml:2" in error.message


def test_a_site_rule_cannot_take_the_id_of_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "shipped" / "p2p.yaml").write_text(GOOD, encoding="utf-8")
    error = fault(tmp_path, GOOD.replace("a-rule", "site-rule"))
    assert "rules/p2p.yaml:2" in error.message


def test_the_same_name_twice_is_a_fault(tmp_path: Path) -> None:
    assert "`a-rule` is used twice" in fault(tmp_path, GOOD, GOOD.replace("TST001", "TST002")).message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xfe\x00binary\x00", "no text"),
        (b"a: mapping", "list of rules"),
        (b"- just a text", "mapping that begins with `id:`"),
        (b"- id: [", "YAML is broken"),
        (b"- id: \x07", "cannot be read"),
        (b"[" * 3000, "YAML"),
        (b"- !!python/object:os.system {}", "YAML is broken"),
    ],
)
def test_what_is_no_rule_file_gets_one_sentence(tmp_path: Path, data: bytes, words: str) -> None:
    place = folder(tmp_path)
    (place / "0.yaml").write_bytes(data)
    with pytest.raises(InputError, match=words) as error:
        load.load([place])
    assert "\n" not in error.value.message
    assert error.value.hint


def test_empty_files_and_other_files_hold_no_rules(tmp_path: Path) -> None:
    place = folder(tmp_path, "", "# nothing yet\n")
    (place / "notes.txt").write_text("- id: nonsense")
    assert load.load([place]) == []


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder") as error:
        load.load([tmp_path / "nowhere"])
    assert "--rules takes a folder" in (error.value.hint or "")


def test_a_single_file_may_be_given(tmp_path: Path) -> None:
    assert [rule.id for rule in load.load([folder(tmp_path, GOOD) / "0.yaml"])] == ["TST001"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "when", "advice", "x"]), inner)
        ),
        max_leaves=8,
    )
)
def test_no_document_makes_anything_but_rules_or_input_errors(tmp_path: Path, document: object) -> None:
    place = folder(tmp_path, json.dumps(document))
    with contextlib.suppress(InputError):
        load.load([place])


@pytest.mark.parametrize("text", ["- &a [*a]\n", "- id: X001\n  ? [a]\n  : b\n---\n- b\n", "a: &a [x]\nb: [*a, *a]\n"])
def test_odd_yaml_is_a_fault_of_the_file_and_never_of_the_program(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(InputError):
        load.load([tmp_path])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ('!!int ""', "int"),
        ("!!bool foo", "bool"),
        ("!!timestamp foo", "timestamp"),
        ('!!float ""', "float"),
        ("2020-99-99", "timestamp"),
        ("9" * 5000, "int"),
    ],
)
def test_a_value_that_is_not_what_its_tag_says_is_named_with_its_line(tmp_path: Path, value: str, kind: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"- name: x\n  id: {value}\n")
    with pytest.raises(InputError, match=rf"site.yaml:2:7: .*this value is no {kind}"):
        load.load([path])


def test_devices_and_pipes_are_not_read_for_ever(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(InputError, match="no rule file"):
        load.load([tmp_path])
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="more than 4 MiB"):
        load.load([tmp_path])


def test_a_rule_cannot_loop_for_ever(tmp_path: Path) -> None:
    depth = 8
    loops = "".join(f"[1,2,3].all(x{n}, " for n in range(depth)) + "true" + ")" * depth
    path = tmp_path / "site.yaml"
    path.write_text(f"- id: SITE001\n  name: x\n  subject: node\n  when: {loops}\n")
    with pytest.raises(InputError):
        load.load([path])
    with pytest.raises(cel.Fault, match="more than 2 loops"):
        cel.compile_condition(loops)
