"""Told facts that contradict what they are made from, or each other, are refused with what to tell instead."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from topoadvisor import advise
from topoadvisor.errors import InputError
from topoadvisor.ingest import assume, detect
from topoadvisor.rules import facts
from topoadvisor.rules.facts import FactBase, Known
from topoadvisor.topology import graph

BARE = "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n"


def base(machine: str, *told: str) -> FactBase:
    text = machine if "\t" in machine else ""
    read = detect.read(["-" if text else f"fixture:{machine}"], stdin=io.BytesIO(text.encode()))
    supplied = assume.apply(read, assume.gather(list(told), None))
    return facts.gather(supplied, graph.build(supplied))


@pytest.mark.parametrize(
    ("machine", "told", "said", "hint"),
    [
        ("dgx-h100", ["nvlink.any=false"], "`nvlink.any` cannot be false", "nvidia-smi topo -m"),
        ("8x4090", ["nvlink.any=true"], "`nvlink.any` cannot be true", "nvidia-smi topo -m"),
        ("paste-8xa100", ["nvlink.any=false"], "by how the GPUs here are joined pair.nvlinks is 12", "topo -m"),
        ("dgx-h100", ["nvlink.full_mesh=no"], "`nvlink.full_mesh`", "topo -m"),
        ("dgx-h100", ["pair[0,1].link_class=SYS"], "`pair[0,1].link_class` cannot be SYS", "topo -m"),
        ("dgx-h100", ["pair.nvlinks=4"], "it is 18", "topo -m"),
        ("dgx-h100", ["gpus.count=0"], "by the GPUs here it is 8", "CUDA_VISIBLE_DEVICES"),
        ("dgx-h100", ["gpus=4"], "`gpus.count` cannot be 4", "CUDA_VISIBLE_DEVICES"),
        (BARE, ["gpus.count=8"], "it is 2", "CUDA_VISIBLE_DEVICES"),
        ("dgx-h100", ["gpus.same_model=false"], "it is true", "gpu[0].name"),
        ("dgx-h100", ["gpus.models=NVIDIA L4, NVIDIA A10"], "it is NVIDIA H100 80GB HBM3", "gpu[0].name"),
        ("dgx-h100", ["gpus.architecture=ada"], "it is hopper", "gpu.name"),
        ("8xl40s", ["gpus.mig=true"], "it is false", "gpu[0].mig"),
        (BARE, ["gpu.name=NVIDIA L4", "gpu[0].name=NVIDIA A10", "gpus.models=NVIDIA L4"], "it is NVIDIA A10", "gpu"),
        (BARE, ["gpus.model=NVIDIA L4", "gpu[0].name=NVIDIA A10"], "it is NVIDIA A10, NVIDIA L4", "gpu"),
        ("dgx-h100", ["p2p.all_ok=false"], "the driver's answers", "pair[0,1].p2p.read"),
        ("8x4090", ["p2p.any_refused=true", "pair.p2p.read=OK"], "`p2p.any_refused`", "pair[0,1].p2p.read"),
        ("8x4090", ["vm.guest=true", "vm.hypervisor=none"], "`vm.guest` = true and `vm.hypervisor`", "one of the two"),
        (BARE, ["container.any=false", "container.kind=docker"], "contradict each other", "one of the two"),
        (BARE, ["iommu.translated=true", "iommu.mode=off"], "contradict each other", "one of the two"),
        ("dgx-h100", ["driver=470.57.02"], "driver 470.57.02 does not run NVIDIA H100 80GB HBM3", "gpu.name"),
        (BARE, ["gpu.name=NVIDIA B200", "driver=550.54.15"], "drivers from 570 on do", "gpu.name"),
        (BARE, ["gpu.name=Tesla V100-SXM2-16GB", "driver=590.48.01"], "from 384 to 580", "driver.version"),
    ],
)
def test_a_contradiction_is_one_sentence_with_a_hint(machine: str, told: list[str], said: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        base(machine, *told)
    assert said in error.value.message
    assert hint in (error.value.hint or "")


def test_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "facts.yaml"
    path.write_text("cpu: AMD EPYC 7742\nnvlink: false\n")
    read = detect.read(["fixture:dgx-h100"], stdin=io.BytesIO())
    with pytest.raises(InputError, match=r"facts\.yaml:2: the assumed fact `nvlink.any` cannot be false"):
        advise.advise(assume.apply(read, assume.gather([], path)))


@pytest.mark.parametrize(
    ("machine", "told", "fact", "value"),
    [
        ("dgx-h100", "gpus.count=8", "gpus.count", 8),
        ("dgx-h100", "nvlink.any=true", "nvlink.any", True),
        (BARE, "gpus.models=NVIDIA L4, NVIDIA A10", "gpus.models", ["NVIDIA L4", "NVIDIA A10"]),
        (BARE, "gpus.same_model=false", "gpus.same_model", False),
        (BARE, "p2p.all_ok=false", "p2p.any_refused", True),
        (BARE, "nvlink.hidden_switch=true", "nvlink.hidden_switch", True),
        ("dgx-h100", "gpu.name=NVIDIA H200", "gpus.model", "NVIDIA H200"),
        ("8x4090", "driver=520.56.06", "driver.version", "520.56.06"),
        ("8x4090", "vm.guest=true", "vm.guest", True),
        ("8x4090", "pair.p2p.read=OK", "p2p.all_ok", True),
    ],
)
def test_what_nothing_here_contradicts_is_taken(machine: str, told: str, fact: str, value: Any) -> None:
    found = base(machine, told).fact(fact)
    assert isinstance(found, Known)
    assert found.value == value


def test_a_pair_that_is_granted_is_granted_everywhere() -> None:
    read = detect.read(["fixture:8x4090"], stdin=io.BytesIO())
    advice = advise.advise(assume.apply(read, assume.gather(["pair[1,0].p2p.read=OK"], None)))
    assert "OK on 1 of 28 pairs" in advice.node.interconnect
    titles = [finding.message for finding in advice.findings]
    assert not [title for title in titles if "on no pair" in title or "grants no PCIe P2P" in title]
