from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoadvisor.rules import cel


def context() -> cel.Context:
    return cel.Context({"pair": {"a": "GPU0", "nvlinks": 0}, "gpus": {"count": 8, "models": ["A100"]}})


def truth(source: str) -> bool:
    return context().test(cel.compile_condition(source))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("pair.nvlinks == 0 && gpus.count > 4", True),
        ("pair.gbps > 3.0 && pair.nvlinks == 1", False),
        ("pair.nvlinks == 1 && pair.gbps > 3.0", False),
        ("pair.gbps > 3.0 || pair.nvlinks == 0", True),
        ('gpus.models.exists(name, name == "A100")', True),
        ("gpus.count >= 8.0", True),
    ],
)
def test_a_missing_fact_counts_only_where_it_decides(source: str, expected: bool) -> None:
    assert truth(source) is expected


@pytest.mark.parametrize("source", ["pair.gbps > 3.0", "!pair.gbps", "pair.gbps > 3.0 && true"])
def test_a_missing_fact_that_decides_is_unreadable(source: str) -> None:
    with pytest.raises(cel.Unreadable):
        truth(source)


@pytest.mark.parametrize(
    "source",
    ["pair.a < 3", "gpus.count", "pair.nvlinks && true", "gpus.count / 0 == 1", "nothing()", "nowhere.at.all == 1"],
)
def test_what_is_no_condition_is_a_fault(source: str) -> None:
    with pytest.raises(cel.Fault) as fault:
        truth(source)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("source", "place"), [("gpus.count ==", "column 14"), ("true &&\n  )", "line 2, column 3"), ("", "column 1")]
)
def test_a_syntax_error_says_where(source: str, place: str) -> None:
    with pytest.raises(cel.Fault, match=place):
        cel.compile_condition(source)


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ('pair.p2p.read == "gpu.name" && iommu.translated', ("pair.p2p.read", "iommu.translated")),
        ('variable.value.startsWith("^") && size(rdma.names) > 0', ("variable.value", "rdma.names")),
        ("rdma.active.exists(name, name == nic.name)", ("rdma.active", "nic.name")),
        ('env["NCCL_ALGO"] == env.NCCL_PROTO', ("env.NCCL_ALGO", "env.NCCL_PROTO")),
        (r'r"\d.a" == "a\"b.c" || pair.a in ["x.y"] // nic.name', ("pair.a",)),
        ("true && null != false", ()),
        ("gpus.count > 1 && gpus.count < 3", ("gpus.count",)),
    ],
)
def test_paths_are_the_facts_that_an_expression_reads(source: str, paths: tuple[str, ...]) -> None:
    assert cel.compile_condition(source).paths == paths


@pytest.mark.parametrize(
    ("source", "atoms"),
    [
        ("a == 1 && (b || !c)", ["a == 1", "b", "c"]),
        ('(a == "x && y") || d in ["p", "q"]', ['a == "x && y"', 'd in ["p", "q"]']),
        ("a.exists(x, x == 1 && y)", ["a.exists(x, x == 1 && y)"]),
        ("a ? b && c : d", ["a ? b && c : d"]),
        ("(a) && (b)", ["a", "b"]),
    ],
)
def test_atoms_are_what_the_logic_joins(source: str, atoms: list[str]) -> None:
    assert cel.atoms(source) == atoms


@given(st.text(max_size=60))
def test_any_text_compiles_or_is_a_fault(source: str) -> None:
    with contextlib.suppress(cel.Fault):
        cel.atoms(cel.compile_condition(source).source)


def test_the_librarys_own_command_line_is_not_loaded_and_can_still_be() -> None:
    program = """
import sys
import topoadvisor.rules.cel
assert "prompt_toolkit" not in sys.modules and "cel.cli" not in sys.modules
import cel.cli
assert hasattr(cel.cli, "app") or hasattr(cel.cli, "main")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "source",
    [
        "+".join("1" * 14_000) + " == 1",
        "gpus.models" + "[0]" * 5_000 + " == 1",
        "gpus" + ".a" * 20_000,
        "!" * 1_000 + "true",
        f'gpus.model == "{"x" * 9_000}"',
        "[{0}].all(a, [{0}].all(b, a == b))".format(",".join("1" * 3_000)),
    ],
)
def test_a_condition_that_the_library_cannot_bear_is_refused_unseen(source: str) -> None:
    with pytest.raises(cel.Fault, match="too long: a condition has up to 400 words"):
        cel.compile_condition(source)


def test_a_condition_of_the_longest_kind_works() -> None:
    assert truth("!" * 398 + "true")
    assert len(cel.atoms("!" * 398 + "true")) == 1
    assert truth(" + ".join("1" * 199) + " == 199")
    with pytest.raises(cel.Fault, match="more than 2 loops"):
        cel.compile_condition("[1].all(a, [1].all(b, [1].all(c, true)))")
    assert truth('gpus.models.all(name, name.matches("^A[0-9]+$") && matches(name, "100"))')
    with pytest.raises(cel.Fault, match="is no pattern"):
        truth('gpus.models.all(name, name.matches("(a{1000}){300}"))')
    assert truth('gpus.models.all(name, matches_set(name, gpus.models) == ["A100"])')
    with pytest.raises(cel.Fault, match="`matches_set`"):
        cel.compile_condition("gpus.models.all(a, gpus.models.all(b, matches_set(a, gpus.models) == [b]))")


@pytest.mark.parametrize(
    "source",
    [
        'matches_set("", 5) == []',
        'matches_set("", [5]) == []',
        'matches_set("", 5) == [] || true',
        "matches_set() == []",
        'version_ge("1", "2", "3")',
        'version_ge("1")',
        '"1".version_ge("2", "3")',
        "version_ge(1, 2)",
        'size(matches_set(string(version_ge("1", "2")), gpus.models, [1])) == 0',
    ],
)
def test_wrong_arguments_are_a_fault_and_the_library_prints_nothing(
    source: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(cel.Fault, match=r"`(matches_set|version_ge)` takes (a text and a list of|two) texts"):
        truth(source)
    assert capfd.readouterr() == ("", "")


def test_arguments_are_counted_through_brackets_and_for_methods() -> None:
    assert not truth('version_ge(["1", "2"][0], ("9"))')
    assert truth('"2".version_ge("1") && matches_set("=A100", gpus.models + ["a,b", "c"]) == ["A100"]')


def test_an_interrupt_inside_a_function_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(a: str, b: str) -> bool:
        raise KeyboardInterrupt

    function = cel.Function(stopped, (str, str), "two texts")
    monkeypatch.setattr(cel, "FUNCTIONS", {**cel.FUNCTIONS, "version_ge": function})
    with pytest.raises(KeyboardInterrupt):
        truth('version_ge("1", "2")')


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (r'"\udfff" == "a"', "invalid string literal at column 1 of the expression"),
        ("gpus.count ? 1", "mismatched input '<EOF>' at column 15 of the expression"),
        ("1u [", "mismatched input '<EOF>' at column 5 of the expression"),
        ('"a".matches("(")', "`(` is no pattern: missing ): ("),
        ('"a".matches("a", "b")', "`matches` takes a text and a pattern"),
        ('duration("zz") == duration("1s")', "Function 'duration' error: Parsing Error"),
        ("gpus{a: 1}", "it is no CEL expression"),
    ],
)
def test_internals_of_the_library_stay_inside(source: str, said: str) -> None:
    with pytest.raises(cel.Fault) as fault:
        truth(source)
    assert str(fault.value) == said


_WORDS = ["gpus.count", "pair.a", *"()[]{}?:1`\x00", "==", "&&", '"a"', r'"\ud800"', "all"]


@given(st.lists(st.sampled_from(_WORDS), max_size=8).map(" ".join))
def test_no_error_of_the_library_shows_its_structures(source: str) -> None:
    said = ""
    try:
        truth(source)
    except cel.Unreadable:
        pass
    except cel.Fault as fault:
        said = str(fault).replace(source, "")
    assert [part for part in ("\n", "Context`", " { ") if part in said] == []


@pytest.mark.parametrize("message", ["", "a fault", "none"])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('job.message.matches("(?i)FAULT")', {"a fault"}),
        ('!job.message.matches("fault") && true', {"", "none"}),
        ('job.message.matches("^$") || job.message.matches("fault")', {"", "a fault"}),
    ],
)
def test_a_pattern_is_not_asked_of_an_empty_message_and_says_the_same(
    source: str, expected: set[str], message: str
) -> None:
    told = cel.Context({"job": {"message": message}})
    assert told.test(cel.compile_condition(source)) is (message in expected)
