"""NCCL_ALGO and NCCL_PROTO lists."""

from __future__ import annotations

import pytest

from topoadvisor.nccl import choices


@pytest.mark.parametrize(
    ("value", "forced"),
    [
        ("LL128", True),
        ("ll128,simple", True),
        ("Simple", False),
        ("LL,Simple", False),
        ("^LL128", False),
        ("^LL", True),
        ("^Simple,LL128", False),
        ("allreduce:^LL128", False),
        ("broadcast:^LL", True),
        ("Simple;allreduce:LL128", True),
        ("", False),
    ],
)
def test_ll128_is_forced_by_naming_it_and_by_not_excluding_it(value: str, forced: bool) -> None:
    assert choices.forces_ll128(value) is forced


@pytest.mark.parametrize(
    ("value", "unknown"),
    [
        ("Ring,Tree", []),
        ("ring", []),
        ("^NVLS", []),
        ("Ring, Tree", [" tree"]),
        ("Rng", ["rng"]),
        ("allreduce:tree;broadcast:ring", []),
        ("allred:tree", ["allred"]),
        ("CollNet", ["collnet"]),
        ("", []),
    ],
)
def test_words_that_end_initialization(value: str, unknown: list[str]) -> None:
    assert choices.unknown_words(value, choices.ALGORITHMS) == unknown
