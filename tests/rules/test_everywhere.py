"""All rules over all machines that are here: nothing misleads, and no variable is set that NCCL handles by itself."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from topoadvisor import advise, files, snapshot
from topoadvisor.advice import Advice
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.ingest import assume, detect
from topoadvisor.nccl import defaults
from topoadvisor.snapshot import Assumption, Snapshot

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus"
PASTED = sorted([*CORPUS.glob("matrices/*.txt"), *CORPUS.glob("other/*.txt"), *CORPUS.glob("nccl_topo/*.xml")])
UNREADABLE = {"lookalike_marslink_8gpu_ht.txt", "nvlink_status_a10_gpud.txt", "slurmd_G_a6000_8gpu_links.txt"}
FIXTURES = sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json"))
BARE_METAL = {"vm.hypervisor": "none", "container.kind": "none", "platform.cloud": "none", "nccl.version": "2.28.9"}
CLOUDS = {
    "p5.48xlarge": {"platform.product": "p5.48xlarge", "vm.hypervisor": "KVM", "vendor.efa_plugin": True},
    "a3-ultragpu": {"platform.cloud": "gcp", "vm.hypervisor": "KVM"},
}


def fixture(name: str, facts: dict[str, object] | None = None) -> Snapshot:
    path = files.shipped("fixtures") / name / "snapshot.json"
    found = snapshot.decode(path.read_bytes(), file=str(path))
    return assume.apply(found, [Assumption(fact=fact, value=value) for fact, value in (facts or {}).items()])


def sets(advice: Advice) -> list[tuple[str, str | None]]:
    return [(each.name, each.value) for each in advice.settings if each.action == "set"]


@pytest.mark.skipif(not PASTED, reason="the corpus is not here")
@pytest.mark.parametrize("path", PASTED, ids=lambda path: path.name)
@pytest.mark.parametrize("facts", [{}, BARE_METAL], ids=["as-pasted", "bare-metal"])
def test_a_pasted_text_gets_no_variable_and_no_alarm(path: Path, facts: dict[str, str]) -> None:
    """These machines are healthy as far as the texts show, and people pasted them without any variable."""
    try:
        machine = detect.read([str(path)], stdin=io.BytesIO())
    except TopoAdvisorError:
        assert path.name in UNREADABLE
        return
    advice = advise.advise(assume.apply(machine, [Assumption(fact=fact, value=value) for fact, value in facts.items()]))
    assert sets(advice) == []
    certain = {finding.id for finding in advice.findings if finding.severity != "info" and not finding.hypothesis}
    assert certain <= ALARMS.get(path.name, set())


ALARMS: dict[str, set[str]] = {}
"""Text → findings above `info` that a careful reader would agree with."""


@pytest.mark.parametrize("name", FIXTURES)
def test_nothing_is_set_that_nccl_does_by_itself(name: str) -> None:
    machine = fixture(name)
    version = next((each.version for each in machine.nccl_libraries or [] if each.version), None)
    for variable, value in sets(advise.advise(machine)):
        assert value is not None
        assert not defaults.is_default(variable, value, version)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_healthy_cloud_machines_get_no_variable(cloud: str) -> None:
    advice = advise.advise(fixture("dgx-h100", CLOUDS[cloud]))
    assert sets(advice) == []
    assert not [finding for finding in advice.findings if finding.severity == "error"]


@pytest.mark.parametrize("model", ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 3090"])
def test_stock_geforce_machines_get_no_variable(model: str) -> None:
    facts = {"gpu.name": model, "env.NCCL_P2P_LEVEL": "", "env.NCCL_P2P_DISABLE": "", "env.CUDA_VISIBLE_DEVICES": ""}
    advice = advise.advise(fixture("8x4090", facts))
    assert advice.settings == []
    assert advice.set_nothing
