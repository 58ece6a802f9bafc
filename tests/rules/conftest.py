"""Small machines and rules, made of nothing but what a test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import pytest

from topoadvisor.rules.facts import FactBase, gather
from topoadvisor.rules.model import Rule
from topoadvisor.snapshot import Gpu, Snapshot, Source
from topoadvisor.topology.links import nvlink_count
from topoadvisor.topology.model import Pair, Topology

LIVE = [Source(name=name, status="ok") for name in ("nvml", "sysfs", "procfs", "dmi", "nccl", "environment")]


def joined(a: str, b: str, link_class: str | None, **more: Any) -> Pair:
    """A pair joined by `link_class`, everything else as plain as that allows."""
    count = nvlink_count(link_class) if link_class else None
    facts: dict[str, Any] = {
        "pcie_class": link_class if not count else None,
        "nvlinks": count,
        "through_switch": False,
        "gbps": None,
        "path": (),
        "pcie_path": (),
        "origin": "nvml",
        "inferred": False,
    }
    return Pair(a=a, b=b, link_class=link_class, **{**facts, **more})


@pytest.fixture
def machine() -> Callable[..., FactBase]:
    """Facts of a machine: `gpus` as a number or a list, `joins` as {(0, 1): "PHB" or a Pair, (0, "mlx5_0"): "PIX"}."""

    def build(
        gpus: int | list[Gpu] = 2,
        joins: Mapping[tuple[int, int | str], str | Pair | None] | None = None,
        topology: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> FactBase:
        cards = [Gpu(index=index) for index in range(gpus)] if isinstance(gpus, int) else gpus
        pairs = {}
        for (a, other), value in (joins or {}).items():
            b = f"gpu:{other}" if isinstance(other, int) else f"nic:{other}"
            pairs[f"gpu:{a}", b] = value if isinstance(value, Pair) else joined(f"gpu:{a}", b, value)
        snapshot = Snapshot(**{"sources": LIVE, "gpus": cards, **fields})
        shape = Topology(
            graph=nx.Graph(),
            gpus=tuple(f"gpu:{card.index}" for card in cards),
            nics=tuple(f"nic:{nic.name}" for nic in snapshot.nics or []),
            pairs=pairs,
            **(topology or {}),
        )
        return gather(snapshot, shape)

    return build


@pytest.fixture
def pair() -> Callable[..., Pair]:
    """How two devices are joined."""
    return joined


@pytest.fixture
def rule() -> Callable[..., Rule]:
    """A rule with the given keys over harmless ones."""

    def build(**keys: Any) -> Rule:
        plain = {
            "id": "TST001",
            "name": "test-rule",
            "status": "stable",
            "subject": "node",
            "when": "true",
            "severity": "info",
            "title": "A title",
            "why": "A reason.",
            "file": "test.yaml",
        }
        return msgspec.convert({**plain, **keys}, Rule)

    return build


@pytest.fixture
def no_shipped_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that ships no rules."""
    empty = tmp_path / "shipped"
    empty.mkdir()
    monkeypatch.setattr("topoadvisor.files.shipped", lambda kind: empty)
