from __future__ import annotations

from collections.abc import Callable

import pytest

from topoadvisor.render import topology_text
from topoadvisor.render.schematic import Schematic
from topoadvisor.snapshot import Snapshot


def test_every_fixture_fits_into_80_columns_and_names_each_gpu(
    schematic: Callable[[str], Schematic], any_fixture: str
) -> None:
    drawn = schematic(any_fixture)
    text = topology_text.render(drawn)
    assert all(len(line) <= 80 for line in text.splitlines())
    for part in (part for top in drawn.parts for part in top.walk() if part.kind == "gpu"):
        assert sum(f"─ {part.title}" in line for line in text.splitlines()) == 1


def test_the_tree_goes_from_socket_to_device(schematic: Callable[[str], Schematic]) -> None:
    lines = topology_text.render(schematic("dgx-a100")).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Socket 0"))
    assert lines[start + 1 : start + 6] == [
        "├─ NUMA node 3 · CPUs 48-63,176-191",
        "│  └─ PCIe root 0000:00",
        "│     └─ PCIe switch 0000:01:00.0 · Gen4 x16",
        "│        ├─ GPU0 · A100-SXM4-80GB · 0000:07:00.0 · Gen4 x16 · 1 more switch",
        "│        │     above",
    ]


def test_gpus_on_switches_are_grouped_by_links_and_the_poor_one_is_marked(
    schematic: Callable[[str], Schematic],
) -> None:
    text = topology_text.render(schematic("dgx-h100-broken-link"))
    assert "NVLink through 4 × NVSwitch\n  NV18   GPU0 GPU1 GPU2 GPU3 GPU4 GPU6 GPU7\n" in text
    assert "  NV16   GPU5 (degraded)\n" in text
    assert "  NVL002  error " in text
    assert "[NVL002]" in next(line for line in text.splitlines() if "─ GPU5" in line)


def test_a_mesh_lists_the_peers_of_each_gpu(schematic: Callable[[str], Schematic]) -> None:
    text = topology_text.render(schematic("dgx-1v"))
    assert "  GPU0   GPU1 NV1 · GPU2 NV1 · GPU3 NV2 · GPU4 NV2\n" in text
    assert "  GPU7   GPU3 NV1 · GPU4 NV2 · GPU5 NV1 · GPU6 NV2\n" in text


def test_what_was_inferred_says_so(schematic: Callable[[str], Schematic]) -> None:
    text = topology_text.render(schematic("paste-8xa100"))
    assert "Socket 0 (inferred)" in text
    assert "PCIe switch (inferred)" in text
    assert "NVLink through NVSwitch (inferred)" in text


def test_narrow_links_and_chip_to_chip_links_are_said(schematic: Callable[[str], Schematic]) -> None:
    assert "Gen5 x8 of x16 (degraded)" in topology_text.render(schematic("2x5090-container"))
    assert "  C2C  GPU2 to NUMA node 2\n" in topology_text.render(schematic("gh200"))


@pytest.mark.parametrize("width", [1, 40, 80, 200])
def test_hostile_names_stay_on_their_lines(plain: Callable[..., Schematic], hostile: Snapshot, width: int) -> None:
    text = topology_text.render(plain(hostile), width=width)
    assert not any(character in text for character in "\x00\x1b\ud800")
    if width >= 40:
        assert max(map(len, text.splitlines())) <= width
    assert text.count("GPU0") == 1
