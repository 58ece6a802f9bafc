from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topoadvisor.rules.facts import FactBase, Known, Unknown
from topoadvisor.snapshot import Setting

Machines = Callable[..., FactBase]

NEAR = {(0, 1): "PIX", (6, 7): "PIX"}
SEED: dict[tuple[int, int], str] = {
    (a, b): NEAR.get((a, b), "PXB" if a // 4 == b // 4 else "NODE") for a in range(8) for b in range(a + 1, 8)
}


def chosen(text: str | None) -> list[Setting]:
    return [] if text is None else [Setting(name="CUDA_VISIBLE_DEVICES", value=text, origin="environment")]


def value(facts: FactBase, name: str) -> Any:
    fact = facts.fact(f"visible.{name}")
    return fact.value if isinstance(fact, Known) else None


@pytest.mark.parametrize(
    ("text", "straddles", "groups", "worst"),
    [
        ("0,1,2,4", True, "GPU0, GPU1, GPU2 | GPU4", "NODE"),
        ("4,5,3", True, "GPU3 | GPU4, GPU5", "NODE"),
        ("3,4", True, "GPU3 | GPU4", "NODE"),
        ("1,0", False, "GPU0, GPU1", "PIX"),
        ("0,1,2,3,4", False, "GPU0, GPU1, GPU2, GPU3 | GPU4", "NODE"),
        ("5", False, "GPU5", ""),
    ],
)
def test_the_chosen_set_and_its_groups(machine: Machines, text: str, straddles: bool, groups: str, worst: str) -> None:
    facts = machine(8, SEED, settings=chosen(text))
    assert value(facts, "set") is True
    assert value(facts, "straddles") is straddles
    assert value(facts, "groups") == groups
    assert value(facts, "worst_class") == worst


@pytest.mark.parametrize("text", [None, "", "GPU-00000000-0000", "0,MIG-1", "9"])
def test_anything_but_plain_indexes_is_not_judged(machine: Machines, text: str | None) -> None:
    facts = machine(8, SEED, settings=chosen(text))
    assert value(facts, "set") is False
    assert isinstance(facts.fact("visible.straddles"), Unknown)


def test_cuda_stops_at_the_first_index_that_is_not_there(machine: Machines) -> None:
    assert value(machine(8, SEED, settings=chosen("0,1,9,4")), "gpus") == ["GPU0", "GPU1"]
    assert value(machine(8, SEED, settings=chosen("0,1,9,4")), "count") == 2


def test_unread_settings_and_unread_wires_stay_unknown(machine: Machines) -> None:
    assert isinstance(machine(8, SEED, settings=None).fact("visible.set"), Unknown)
    facts = machine(8, {}, settings=chosen("0,4"))
    assert value(facts, "set") is True
    assert isinstance(facts.fact("visible.straddles"), Unknown)


def test_nvlink_joins_groups(machine: Machines) -> None:
    facts = machine(
        4,
        {**{(a, b): "SYS" for a in range(4) for b in range(a + 1, 4)}, (0, 2): "NV4", (1, 3): "NV4"},
        settings=chosen("0,1"),
    )
    assert value(facts, "straddles") is True
    assert value(facts, "groups") == "GPU0 | GPU1"
    assert value(facts, "worst_class") == "SYS"


@pytest.mark.parametrize(("text", "lost"), [("6,7,8,0", ["8", "0"]), ("0,1", []), ("GPU-1a2b", []), ("9", ["9"])])
def test_cuda_leaves_out_what_follows_a_number_that_no_gpu_has(machine: Machines, text: str, lost: list[str]) -> None:
    assert value(machine(8, SEED, settings=chosen(text)), "dropped") == lost
