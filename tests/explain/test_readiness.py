"""Systems that can be asked about: a machine that is ready for each, and one that is not."""

from __future__ import annotations

import io

import pytest

from topoadvisor import files
from topoadvisor.explain import glossary, lookup, readiness, text
from topoadvisor.explain.readiness import Readiness
from topoadvisor.ingest import assume, detect
from topoadvisor.rules import cel
from topoadvisor.rules.load import load
from topoadvisor.snapshot import Snapshot
from topoadvisor.vocabulary import VOCABULARY

RULES = load()

CASES = {
    "NVLink": ("dgx-h100", {}, "dgx-h100-broken-link", {}),
    "NVSwitch": ("dgx-h100", {}, "dgx-h100", {"fabricmanager.state": "inactive", "fabric.completed": "false"}),
    "P2P": ("dgx-a100", {}, "4xa6000-acs", {}),
    "transport": ("8x4090", {}, "8x4090", {"env.NCCL_SHM_DISABLE": "1"}),
    "algorithm": ("dgx-h100", {}, "dgx-h100", {"env.NCCL_ALGO": "Ring"}),
    "debugging": ("dgx-h100", {}, "dgx-h100", {"env.NCCL_DEBUG": "TRACE"}),
    "GDR": ("dgx-h100", {}, "dgx-h100", {"gdr.peermem": "false", "gdr.dmabuf_possible": "false"}),
    "InfiniBand": ("dgx-h100", {}, "dgx-h100", {"rdma.uverbs": "0"}),
    "RoCE": (
        "dgx-h100",
        {"rdma.link_layers": "Ethernet", "rdma.rocev2_indexes": "3"},
        "dgx-h100",
        {"rdma.link_layers": "Ethernet", "rdma.rocev2_indexes": "3", "nccl.version": "2.18.3"},
    ),
    "SHARP": (
        "dgx-h100",
        {"env.NCCL_COLLNET_ENABLE": "1", "nccl.net_plugins": "/opt/hpcx/lib/libnccl-net.so"},
        "dgx-h100",
        {"env.NCCL_COLLNET_ENABLE": "1"},
    ),
    "rail": ("dgx-h100", {}, "dgx-h100", {"env.NCCL_PXN_DISABLE": "1"}),
    "NVSHMEM": (
        "dgx-h100",
        {"nvshmem.used": "true", "driver.stream_mem_ops": "true", "driver.peer_mapping_override": "true"},
        "dgx-h100",
        {"nvshmem.used": "true", "driver.stream_mem_ops": "false"},
    ),
    "GIN": ("dgx-h100", {}, "dgx-h100", {"env.NCCL_CROSS_NIC": "0"}),
    "C2C": ("gh200", {}, "gh200", {"nccl.version": "2.25.1"}),
    "MNNVL": (
        "gh200",
        {"mnnvl.possible": "true", "fabric.completed": "true", "imex.state": "active", "imex.channel": "true"},
        "gh200",
        {"mnnvl.possible": "true", "fabric.completed": "true", "imex.state": "inactive", "imex.channel": "false"},
    ),
    "flight recorder": ("dgx-h100", {}, "dgx-h100", {"env.TORCH_FR_BUFFER_SIZE": "0"}),
    "parallelism": ("dgx-h100", {}, "4xa100-pcie", {}),
    "confidential computing": (
        "dgx-h100",
        {"confidential.enabled": "false"},
        "dgx-h100",
        {"confidential.enabled": "true"},
    ),
    "MIG": ("dgx-h100", {}, "dgx-h100", {"gpu.mig": "true"}),
}
"""System → a machine on which nothing speaks against it, and one on which something does; each with what is assumed."""


def _machine(name: str, facts: dict[str, str]) -> Snapshot:
    machine = detect.read([str(files.shipped("fixtures") / name / "snapshot.json")], stdin=io.BytesIO())
    return assume.apply(machine, assume.gather([f"{fact}={value}" for fact, value in facts.items()], None))


def _against(ready: Readiness) -> list[str]:
    return [*(each.what for each in ready.checks if each.answer == "look here"), *ready.findings]


def test_every_system_is_tried() -> None:
    assert set(CASES) == set(readiness.systems())


@pytest.mark.parametrize("name", CASES)
def test_ready_and_not_ready(name: str) -> None:
    good, assumed, bad, other = CASES[name]
    ready = readiness.survey([name], _machine(good, assumed), RULES)[name]
    assert not _against(ready)
    broken = readiness.survey([name], _machine(bad, other), RULES)[name]
    assert broken.here == "in order"
    assert _against(broken)


@pytest.mark.parametrize("name", readiness.systems())
def test_well_formed(name: str) -> None:
    system = readiness.systems()[name]
    assert glossary.find(name) is not None
    ids = [rule.id for rule in RULES]
    for pattern in system.rules:
        assert pattern.endswith("*") or pattern in ids
    facts = {*system.facts}
    for condition in (system.here, *(need.when for need in system.needs if need.when)):
        facts.update(path for path in cel.compile_condition(condition).paths if "." in path)
    assert not [fact for fact in facts if not fact.startswith("env.") and fact not in VOCABULARY]


def test_what_is_not_known_has_its_command() -> None:
    said = text.render(lookup.explain("gin", RULES, _machine("dgx-h100", {"env.NCCL_CROSS_NIC": "0"})))
    assert "! every port reaches every other" in said
    assert "? rdma-core 44 or newer: not known" in said
    assert "$ dpkg -s libibverbs1" in said


def test_a_system_that_is_not_here_is_not_blamed() -> None:
    ready = readiness.survey(["MNNVL"], _machine("dgx-h100", {}), RULES)["MNNVL"]
    assert ready.here == "no matter"
    assert {each.answer for each in ready.checks} == {"no matter"}


def test_all_systems_in_lines() -> None:
    lines = text.render(lookup.explain("systems", RULES, _machine("8x4090", {}))).splitlines()
    assert any(line.startswith("  ! P2P ") and "P2P001" in line for line in lines)
    assert any(line.startswith("  · MIG ") for line in lines)
    pasted = text.render(lookup.explain("systems", RULES, _machine("paste-8xa100", {})))
    assert "  ? MIG " in pasted


@pytest.mark.parametrize(("cloud", "answer"), [("aws", "look here"), ("azure", "look here"), ("none", "in order")])
def test_guests_of_clouds_that_give_them_the_switches_run_the_fabric_manager(cloud: str, answer: str) -> None:
    told = {"vm.guest": "true", "platform.cloud": cloud, "fabricmanager.state": "inactive"}
    machine = _machine("dgx-h100", told)
    checks = readiness.survey(["NVSwitch"], machine, RULES)["NVSwitch"].checks
    assert checks[0].answer == answer
