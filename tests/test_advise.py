"""Advice as a whole: what is said, what is left unsaid, and that it is the same every time."""

from __future__ import annotations

import msgspec
import pytest

from topoadvisor import advise, files, snapshot
from topoadvisor.advice import Advice
from topoadvisor.ingest import assume
from topoadvisor.snapshot import Assumption, Snapshot

FIXTURES = sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json"))
HEALTHY = ("dgx-1v", "dgx-a100", "dgx-h100", "2x3090-bridge", "gh200", "2xh200-kvm")


def load(name: str, **facts: object) -> Snapshot:
    path = files.shipped("fixtures") / name / "snapshot.json"
    assumptions = [Assumption(fact=fact.replace("__", "."), value=value) for fact, value in facts.items()]
    return assume.apply(snapshot.decode(path.read_bytes(), file=str(path)), assumptions)


@pytest.mark.parametrize("name", FIXTURES)
def test_the_same_snapshot_gives_the_same_bytes(name: str) -> None:
    first, second = (msgspec.json.encode(advise.advise(load(name))) for _ in range(2))
    assert first == second
    assert msgspec.json.decode(first, type=Advice) == advise.advise(load(name))


@pytest.mark.parametrize("name", FIXTURES)
def test_no_fixture_gets_a_set_of_class_system_or_an_unexplained_workaround(name: str) -> None:
    for setting in advise.advise(load(name)).settings:
        assert setting.reason
        if setting.action == "set":
            assert setting.setting_class == "workaround", f"{name}: {setting}"
            assert setting.remove_when


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_machines_get_no_variable_and_hear_why(name: str) -> None:
    advice = advise.advise(load(name))
    assert advice.settings == []
    assert advice.set_nothing
    assert not [finding for finding in advice.findings if finding.severity != "info"]


def test_the_seed_machine_hears_what_an_expert_would_say() -> None:
    advice = advise.advise(load("8x4090"))
    said = {finding.id: finding for finding in advice.findings}
    assert {"P2P001", "P2P024", "SYS020"} <= set(said)
    assert [(each.name, each.action) for each in advice.settings] == [
        ("NCCL_P2P_DISABLE", "unset"),
        ("NCCL_P2P_LEVEL", "unset"),
    ]
    level = next(each for each in advice.findings if "NCCL_P2P_LEVEL" in each.subject)
    assert any("PHB would have been wide enough" in action.text and "NODE" in action.text for action in level.advice)
    assert "0,1,2,3" in said["SYS020"].message
    assert "depends on P2P" in said["SYS020"].why


def test_a_leftover_switch_is_planned_away() -> None:
    advice = advise.advise(load("8xa100-p2p-disabled"))
    (setting,) = advice.settings
    assert (setting.name, setting.action, setting.where) == ("NCCL_P2P_DISABLE", "unset", "/etc/nccl.conf:3")
    assert advice.plan is not None
    assert advice.plan.total_gbps == pytest.approx(300)
    assert any("with NCCL_P2P_DISABLE as advised" in note for note in advice.plan.notes)


def test_one_sentence_about_several_devices_is_one_finding() -> None:
    advice = advise.advise(load("4xa6000-acs"))
    redirected = [finding for finding in advice.findings if finding.id == "P2P003"]
    assert len(redirected) == 1
    assert len(redirected[0].also) == 5


def test_a_value_that_is_set_already_is_right_and_not_advised_again() -> None:
    old_driver = {"driver__version": "525.60.13", "p2p__read": "OK", "p2p__write": "OK", "env__NCCL_P2P_LEVEL": ""}
    before = advise.advise(load("8x4090", **old_driver, env__NCCL_P2P_DISABLE=""))
    assert [(each.name, each.value) for each in before.settings] == [("NCCL_P2P_DISABLE", "1")]
    after = advise.advise(load("8x4090", **old_driver, env__NCCL_P2P_DISABLE="1"))
    assert after.settings == []
    assert "NCCL_P2P_DISABLE=1 is set already." in [right.text for right in after.already_right]
    assert "NCCL_P2P_DISABLE=1 in force" in (after.set_nothing or "")


def test_what_was_not_read_is_listed_with_its_reason() -> None:
    advice = advise.advise(load("paste-8xa100"))
    assert advice.unknown
    assert all(verdict.reason and verdict.missing for verdict in advice.unknown)
    assert advice.set_nothing


def test_assumed_facts_are_shown_as_assumed() -> None:
    advice = advise.advise(load("paste-8xa100", nccl__version="2.28.9", cpu__vendor="AMD"))
    assert advice.assumed == ["nccl.version = 2.28.9", "cpu.vendor = AMD"]
