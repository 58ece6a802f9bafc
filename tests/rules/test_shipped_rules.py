"""Every shipped rule: well formed, fires where it must, and does not on a machine that differs in one thing."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from topoadvisor import files, snapshot
from topoadvisor.ingest import assume
from topoadvisor.rules import cel, engine, facts, load
from topoadvisor.rules.model import Rule
from topoadvisor.snapshot import Assumption, Gpu, NvLink, PcieLink, Setting
from topoadvisor.topology import graph

CASES: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8")
)
RULES = {rule.id: rule for rule in load.load()}


@functools.cache
def fixture(name: str) -> snapshot.Snapshot:
    path = files.shipped("fixtures") / name / "snapshot.json"
    return snapshot.decode(path.read_bytes(), file=str(path))


def outcomes(rule: Rule, case: dict[str, Any]) -> list[engine.Outcome]:
    assumptions = [Assumption(fact=fact, value=value) for fact, value in case.get("assume", {}).items()]
    machine = fixture(case["machine"])
    if "read" in case:
        read = [Setting(name=name, value=value, origin="environment") for name, value in case["read"].items()]
        machine = msgspec.structs.replace(machine, settings=[*read, *(machine.settings or [])])
    unread = dict.fromkeys(case.get("unread", ()))
    machine = msgspec.structs.replace(machine, host=msgspec.structs.replace(machine.host, **unread))
    machine = assume.apply(machine, assumptions)
    return engine.evaluate([rule], facts.gather(machine, graph.build(machine)), preview=True)


def test_an_exception_that_may_be_unread_comes_with_the_command_that_reads_it() -> None:
    told = ("job.nodes", "pair.measured.", "gpu.measured.")
    asks = {
        rule.id: [
            path for text in rule.not_when for path in cel.compile_condition(text).paths if f"has({path})" not in text
        ]
        for rule in RULES.values()
        if not rule.ask
    }
    assert not [name for name, paths in asks.items() if [path for path in paths if not path.startswith(told)]]


def test_every_rule_has_its_two_machines() -> None:
    assert sorted(CASES) == sorted(RULES)


@pytest.mark.parametrize("rule_id", sorted(CASES))
def test_it_fires_where_it_must(rule_id: str) -> None:
    case = CASES[rule_id]["fires"]
    found = outcomes(RULES[rule_id], case)
    fired = [outcome for outcome in found if outcome.verdict == "fires"]
    assert fired, [(outcome.subject, outcome.verdict, outcome.reason) for outcome in found]
    # Bridges and ports have names of their own on every machine: there "first" stands for whatever comes first.
    assert fired[0].subject == case.get("subject", fired[0].subject)
    assert case.get("first") or "subject" in case
    assert "unknown" not in fired[0].title, fired[0].title
    assert fired[0].advice, "a finding without advice"


@pytest.mark.parametrize("rule_id", sorted(CASES))
def test_it_is_silent_on_the_similar_machine(rule_id: str) -> None:
    found = outcomes(RULES[rule_id], CASES[rule_id]["silent"])
    assert {outcome.verdict for outcome in found} <= {"quiet", "not-applicable"}, [
        (outcome.subject, outcome.verdict, outcome.reason, outcome.title) for outcome in found
    ]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_texts_are_sentences(rule: Rule) -> None:
    assert rule.why.strip().endswith("."), "why must end with a full stop"
    assert rule.references, "nothing says where this comes from"
    for entry in rule.advice:
        if entry.action is not None:
            assert entry.action.rstrip().endswith("."), entry.action
    if rule.right is not None:
        assert rule.right.endswith("."), rule.right


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_no_condition_asks_the_same_twice(rule: Rule) -> None:
    """Two versions of one line side by side: of `||` the second is idle, of `&&` it undoes the first."""
    asked = [set(atom.lower().split("|")) for atom in cel.atoms(rule.when) if "job.message.matches(" in atom]
    for a, b in itertools.combinations(asked, 2):
        assert a != b
        assert len(a & b) < 3, a & b


def fired(rule_id: str, machine: snapshot.Snapshot) -> list[engine.Outcome]:
    found = engine.evaluate([RULES[rule_id]], facts.gather(machine, graph.build(machine)), preview=True)
    return [outcome for outcome in found if outcome.verdict == "fires"]


@pytest.mark.parametrize(("up", "finds"), [(18, 0), (16, 1), (0, 0)])
def test_links_of_a_gpu_alone_are_held_against_its_board(up: int, finds: int) -> None:
    """Some links down are a fault wherever they are; none up is what a guest with one GPU of several sees."""
    links = [NvLink(link=number, active=number < up) for number in range(18)]
    machine = snapshot.Snapshot(gpus=[Gpu(index=0, name="NVIDIA H100 80GB HBM3", nvlinks=links)])
    assert len(fired("NVL002", machine)) == finds


@pytest.mark.parametrize(
    ("name", "slot"), [("NVIDIA H100 80GB HBM3", False), ("NVIDIA L40S", True), ("Frobnicator 9000", True)]
)
def test_a_module_is_told_nothing_about_slots(name: str, slot: bool) -> None:
    link = PcieLink(current_width=8, max_width=16)
    (found,) = fired("PCI001", snapshot.Snapshot(gpus=[Gpu(index=0, name=name, address="0000:19:00.0", pcie=link)]))
    actions = " ".join(each.action or "" for each in found.advice)
    assert ("try another slot" in actions) is slot
    assert ("It sits in no slot" in actions) is not slot


_UNREAD = ["iommu_groups", "command_line"]
_SUSPECTS: dict[str, dict[str, Any]] = {
    "P2P033": {"machine": "4xrtxpro6000", "assume": {"job.symptom": "hang"}},
    "P2P036": {"machine": "8xl40s", "unread": _UNREAD, "assume": {"job.symptom": "hang"}},
    "P2P043": {"machine": "8x4090", "assume": {"p2p.read": "U", "p2p.write": "U", "job.symptom": "hang"}},
}


@pytest.mark.parametrize("rule_id", _SUSPECTS)
@pytest.mark.parametrize(
    ("message", "fires"),
    [
        ("", True),
        ("NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eno1", True),
        ("NET/IB : NCCL_IB_TIMEOUT set by environment to 22.", True),
        ("Watchdog caught collective operation timeout", True),
        ("NET/IB : Got completion from peer 10.0.0.2<4711> with status=12 opcode=0 len=0 vendor err 129 (Send)", False),
        ("Call to ibv_modify_qp failed with error Connection timed out", False),
        ("Got completion from peer 10.0.0.2<4711> with error 12, opcode 1, len 0", False),
    ],
)
def test_peer_to_peer_is_no_suspect_of_what_rdma_reports(rule_id: str, message: str, fires: bool) -> None:
    case = _SUSPECTS[rule_id]
    found = outcomes(RULES[rule_id], {**case, "assume": {**case["assume"], "job.message": message}})
    assert [outcome.verdict == "fires" for outcome in found] == [fires]


@pytest.mark.parametrize("rule_id", ["P2P033", "P2P036"])
@pytest.mark.parametrize(("nodes", "alone"), [(0, False), (1, False), (2, True)])
def test_a_job_on_several_machines_is_first_run_on_one(rule_id: str, nodes: int, alone: bool) -> None:
    case = _SUSPECTS[rule_id]
    (found,) = outcomes(RULES[rule_id], {**case, "assume": {**case["assume"], "job.nodes": nodes}})
    assert "first" not in found.title
    assert any("run it on this one alone first" in (each.action or "") for each in found.advice) is alone


def test_nps4_is_no_advice_where_all_staged_pairs_cross_the_sockets() -> None:
    assert not [each for each in outcomes(RULES["P2P031"], {"machine": "4xa100-pcie"}) if each.verdict == "fires"]
    (near,) = outcomes(RULES["P2P031"], {"machine": "8x4090"})
    assert near.verdict == "fires"


def test_nps4_is_no_advice_for_bridged_pairs_or_where_something_else_than_speed_was_reported() -> None:
    off = {"env.NCCL_P2P_DISABLE": "1"}
    bridged, hang = {"machine": "4xa100-pcie", "assume": off}, {"machine": "8x4090", "assume": {"job.symptom": "hang"}}
    for case in (bridged, hang):
        assert not [each for each in outcomes(RULES["P2P031"], case) if each.verdict == "fires"]
    assert [each.verdict for each in outcomes(RULES["P2P031"], {"machine": "8x4090"})] == ["fires"]


def test_one_gpu_is_no_gpus() -> None:
    machine = fixture("1xh200-kvm")
    base = facts.gather(machine, graph.build(machine))
    said = engine.render("on {gpus.count} GPUs, {gpus.count} of {gpus.count} GPUs", base, base.subjects["node"][0])
    assert said == "on 1 GPU, 1 of 1 GPUs"


def test_nps4_and_the_level_to_measure_do_not_contradict_each_other() -> None:
    """Where a wider P2P level is worth a measurement, no rule says that no variable belongs there."""
    unset = {"env.NCCL_P2P_LEVEL": "", "env.NCCL_P2P_DISABLE": ""}
    near = {"machine": "8x4090", "assume": {"gpu.name": "NVIDIA L40S", "pair.p2p.read": "OK", **unset}}
    assert [each.verdict for each in outcomes(RULES["P2P008"], near)] == ["fires"]
    (found,) = outcomes(RULES["P2P031"], near)
    assert not [each for each in found.advice if "No NCCL variable" in (each.action or "")]


@pytest.mark.parametrize(("widths", "told"), [((8, 16), 0), ((8, 8, 8, 16), 0), ((8, 16, 16), 1), ((8, 8, 16, 16), 2)])
def test_a_narrow_gpu_is_kept_out_of_groups_only_where_others_form_one(widths: tuple[int, ...], told: int) -> None:
    gpus = [
        Gpu(index=index, name="NVIDIA L40S", nvlinks=[], pcie=PcieLink(current_width=width, max_width=16))
        for index, width in enumerate(widths)
    ]
    found = fired("PCI001", snapshot.Snapshot(gpus=gpus))
    assert len(found) == widths.count(8)
    assert sum("tensor-parallel" in (each.action or "") for one in found for each in one.advice) == told
