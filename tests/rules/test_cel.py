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
