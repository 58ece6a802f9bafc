"""The steps by which a slow, refused or hanging pair is understood."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from topoadvisor import files, snapshot
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.explain import ladder, lookup, text
from topoadvisor.ingest import assume, detect
from topoadvisor.rules.load import load
from topoadvisor.snapshot import Assumption, P2p, Snapshot
from topoadvisor.topology.links import LinkClass

PASTE = "\tGPU0\tGPU1\nGPU0\t X \t{0}\nGPU1\t{0}\t X \n"


def machine(name: str, facts: dict[str, Any] | None = None) -> Snapshot:
    """A bundled machine, or two GPUs of a pasted matrix that are joined by a link class."""
    if name in LinkClass.__members__:
        found = detect.from_bytes(PASTE.format(name).encode(), file="paste")
    else:
        path = files.shipped("fixtures") / name / "snapshot.json"
        found = snapshot.decode(path.read_bytes(), file=str(path))
    return assume.apply(found, [Assumption(fact=fact, value=value) for fact, value in (facts or {}).items()])


def answers(name: str, facts: dict[str, Any] | None = None) -> dict[str, str]:
    return {step.name: step.answer for step in ladder.climb((0, 1), machine(name, facts), []).steps}


@pytest.mark.parametrize(
    ("word", "pair"),
    [
        ("GPU0-GPU1", (0, 1)),
        ("gpu3-gpu1", (1, 3)),
        ("0-1", (0, 1)),
        ("gpu:2-gpu:7", (2, 7)),
        ("GPU0,GPU1", (0, 1)),
        ("GPU0", None),
        ("GPU1-GPU1", None),
        ("NCCL_P2P_LEVEL", None),
        ("2026-11-30", None),
        ("99999-1", None),
    ],
)
def test_words_that_name_a_pair(word: str, pair: tuple[int, int] | None) -> None:
    assert ladder.names_pair(word) == pair


@pytest.mark.parametrize(
    ("name", "facts", "step", "answer"),
    [
        ("8x4090", {}, "driver grant", "look here"),
        ("8x4090", {}, "IOMMU and ACS", "no matter"),
        ("8x4090", {}, "shared uplink", "look here"),
        ("8xa100-p2p-disabled", {}, "NCCL's own settings", "look here"),
        ("2xh200-kvm", {"env.NCCL_P2P_LEVEL": "LOC"}, "NCCL's own settings", "look here"),
        ("dgx-h100", {}, "NCCL's own settings", "in order"),
        ("8x4090", {}, "NCCL's own settings", "no matter"),
        ("8xl40s", {}, "driver grant", "in order"),
        ("8x4090", {"driver.patched_p2p": True, "gpu.bar1_covers_memory": False}, "BAR1", "look here"),
        ("8x4090", {"driver.patched_p2p": False, "gpu.bar1_covers_memory": False}, "BAR1", "no matter"),
        ("paste-8xa100", {}, "BAR1", "not known"),
        ("paste-8xa100", {}, "link width", "not known"),
        ("paste-8xa100", {"gpu.bar1_covers_memory": False}, "BAR1", "no matter"),
        ("4xrtxpro6000", {"gpu.bar1_covers_memory": False, "driver.patched_p2p": False}, "BAR1", "no matter"),
        ("4xa6000-acs", {}, "IOMMU and ACS", "look here"),
        ("4xa6000-acs", {"iommu.translated": False, "pair.path.acs_redirect": False}, "IOMMU and ACS", "in order"),
        ("2x5090-container", {}, "link width", "look here"),
        ("dgx-h100", {}, "link width", "no matter"),
        ("dgx-h100", {}, "NVLink", "in order"),
        ("SYS", {}, "socket hop", "look here"),
        ("4xrtxpro6000", {"pair.measured.outcome": "timeout"}, "measured", "look here"),
        ("4xrtxpro6000", {"pair.measured.outcome": "skipped"}, "measured", "not known"),
        ("2xh200-kvm", {}, "measured", "in order"),
        (
            "2xh200-kvm",
            {"pair.measured.verdict": "fail", "pair.measured.cause": "half of what is usual"},
            "measured",
            "look here",
        ),
        ("NODE", {}, "IOMMU and ACS", "not known"),
    ],
)
def test_a_step_says_what_is_wrong(name: str, facts: dict[str, Any], step: str, answer: str) -> None:
    assert answers(name, facts)[step] == answer


def test_every_step_has_a_command_and_the_rules_are_named() -> None:
    found = ladder.climb((0, 1), machine("4xa6000-acs"), load())
    assert [step.name for step in found.steps][:3] == ["driver grant", "NCCL's own settings", "BAR1"]
    assert all(step.command and step.why for step in found.steps)
    assert [line.partition(":")[0] for line in found.findings] == ["P2P003"]


def test_explain_takes_a_pair_for_its_word() -> None:
    shown = text.render(lookup.explain("GPU0-GPU1", load(), machine("4xa6000-acs")))
    assert "Look at 4. IOMMU and ACS first." in shown
    assert "pair.path.acs_redirect = true [sysfs]" in shown


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(TopoAdvisorError, match="no pair GPU0-GPU9 here"):
        lookup.explain("GPU0-GPU9", load(), machine("4xa6000-acs"))


def test_rules_about_variables_of_p2p_are_listed() -> None:
    found = ladder.climb((0, 1), machine("8xa100-p2p-disabled"), load()).findings
    assert [line for line in found if line.startswith("P2P002: ")]


@pytest.mark.parametrize("name", ["paste-8xa100", "8xl40s", "2x5090-container", "dgx-1v", "PXB"])
def test_what_is_in_order_does_not_rest_on_what_is_not_known(name: str) -> None:
    steps = ladder.climb((0, 1), machine(name), []).steps
    decided = [step for step in steps if step.answer in ("in order", "no matter")]
    assert decided
    assert not [line for step in decided for line in step.evidence if "not known" in line]
    assert all(step.evidence for step in decided if step.answer == "in order")


def test_a_step_that_is_not_known_says_what_is_missing() -> None:
    steps = ladder.climb((0, 1), machine("PXB"), []).steps
    (grant,) = [step for step in steps if step.name == "driver grant"]
    assert grant.answer == "not known"
    assert "pair.p2p.read: not known, a pasted matrix does not hold it" in grant.evidence


def test_the_grant_names_the_direction_that_is_refused_and_doubts_nvlinks_the_driver_does_not_use() -> None:
    found = machine("dgx-h100")

    def grant(*p2p: P2p) -> ladder.Step:
        return ladder.climb((0, 1), msgspec.structs.replace(found, p2p=list(p2p)), []).steps[0]

    refused = grant(P2p(a=0, b=1, read="OK"), P2p(a=1, b=0, read="TNS"))
    assert refused.answer == "look here"
    assert "GPU1→GPU0, in that direction only: NCCL stops" in refused.why
    doubted = grant(P2p(a=0, b=1, nvlink="NS"), P2p(a=1, b=0, nvlink="NS"))
    assert doubted.answer == "look here"
    assert "answers NS about peer traffic over these NVLinks" in doubted.why
