from __future__ import annotations

import pytest

from topoadvisor.rules.functions import matches_set, version_ge

HCAS = ["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_11", "bnxt_re0"]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("2.28.9", "2.28", True),
        ("2.9", "2.10", False),
        ("2.26", "2.26.0", True),
        ("5.15.0-91-generic", "5.12", True),
        ("550.40.07", "550.40.7", True),
        ("not a version", "2.0", False),
    ],
)
def test_versions_compare_by_number(a: str, b: str, expected: bool) -> None:
    assert version_ge(a, b) is expected


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("mlx5_1", ["mlx5_1", "mlx5_10", "mlx5_11"]),
        ("=mlx5_1", ["mlx5_1"]),
        ("=mlx5_1:1,bnxt_re0", ["mlx5_1", "bnxt_re0"]),
        ("^mlx5_1", ["mlx5_0", "bnxt_re0"]),
        ("^=mlx5_1", ["mlx5_0", "mlx5_10", "mlx5_11", "bnxt_re0"]),
        ("", HCAS),
        ("^", []),
        ("ib", []),
    ],
)
def test_a_pattern_selects_as_nccl_does(pattern: str, names: list[str]) -> None:
    assert matches_set(pattern, HCAS) == names
