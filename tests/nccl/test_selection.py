"""Names, prefixes and exclusions, compared with NCCL's own `parseStringList` and `matchIfList`, compiled."""

from __future__ import annotations

import pytest

from topoadvisor.nccl import selection

NAMES = ("mlx5_0", "mlx5_1", "mlx5_10", "eth0")


@pytest.mark.parametrize(
    ("text", "version", "picked"),
    [
        ("mlx5", None, "mlx5_0 mlx5_1 mlx5_10"),
        ("mlx5_1", None, "mlx5_1 mlx5_10"),
        ("=mlx5_1", None, "mlx5_1"),
        ("^=mlx5_1", None, "mlx5_0 mlx5_10 eth0"),
        ("^mlx5_1", None, "mlx5_0 eth0"),
        ("=^mlx5_1", None, ""),
        ("", None, "mlx5_0 mlx5_1 mlx5_10 eth0"),
        ("^", None, ""),
        (",,eth,", None, "eth0"),
        (" eth", None, ""),
        ("=mlx5_1", "2.4.8", ""),
    ],
)
def test_names(text: str, version: str | None, picked: str) -> None:
    found = selection.parse(text, version)
    assert [name for name in NAMES if found.picks(name)] == picked.split()


@pytest.mark.parametrize(
    ("text", "version", "ports"),
    [
        ("mlx5_0", None, [1, 2]),
        ("mlx5_0:1", None, [1]),
        ("mlx5_0:", None, [1, 2]),
        ("mlx5_0:", "2.28.9", []),
        ("mlx5_0:1:2:3", None, [1]),
        ("mlx5_0:x", None, []),
    ],
)
def test_ports(text: str, version: str | None, ports: list[int]) -> None:
    found = selection.parse(text, version)
    assert [port for port in (1, 2) if found.picks("mlx5_0", port)] == ports


def test_only_so_many_names_are_kept() -> None:
    text = ",".join(f"eth{number}" for number in range(20))
    assert len(selection.parse(text, most=16).entries) == 16
