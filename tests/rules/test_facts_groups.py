"""Groups behind one PCIe uplink where NVLinks hide part of the PCIe classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from topoadvisor.rules.facts import FactBase, Known

Machines = Callable[..., FactBase]


@pytest.mark.parametrize(
    ("joins", "groups"),
    [
        # Two bridged pairs on two sockets: nothing is behind a switch, and the pairs themselves cannot tell.
        ({(0, 1): "NV12", (2, 3): "NV12", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS"}, None),
        # Who shares a switch with GPU2 shares it with the other one that does.
        ({(0, 1): "NV4", (0, 2): "PXB", (1, 2): "PXB"}, "GPU0 GPU1 GPU2"),
        # One of a bridged pair shares a switch with GPU2 and the other does not: the two are apart.
        ({(0, 1): "NV4", (0, 2): "PXB", (1, 2): "SYS"}, "GPU0 GPU2"),
        # Pairs across two switches, in part over NVLink: some other pair says that the switches are apart.
        (
            {(0, 1): "PIX", (2, 3): "PIX", (0, 2): "NV4", (1, 3): "NV4", (0, 3): "SYS", (1, 2): "SYS"},
            "GPU0 GPU1 | GPU2 GPU3",
        ),
        ({(0, 1): "PIX", (2, 3): "PIX", (0, 2): "NV4", (1, 3): "NV4", (0, 3): "NV4", (1, 2): "NV4"}, None),
    ],
)
def test_other_pairs_tell_what_nvlinks_hide(
    machine: Machines, joins: Mapping[tuple[int, int | str], str], groups: str | None
) -> None:
    fact = machine(1 + max(int(b) for _, b in joins), joins).fact("p2p.uplink_groups")
    assert (fact.value if isinstance(fact, Known) else None) == groups
