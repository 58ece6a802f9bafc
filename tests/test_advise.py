"""Advice as a whole: what is said, what is left unsaid, and that it is the same every time."""

from __future__ import annotations

import io
import time
from pathlib import Path

import msgspec
import pytest

from topoadvisor import advise, files, plans, snapshot
from topoadvisor.advice import Advice
from topoadvisor.ingest import assume, detect, text
from topoadvisor.measurements.model import Measurement
from topoadvisor.snapshot import Assumption, Gpu, Nic, Setting, Snapshot

FIXTURES = sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json"))
HEALTHY = ("dgx-1v", "dgx-a100", "dgx-h100", "2x3090-bridge", "gh200", "1xh200-kvm", "2xh200-kvm")


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
    told = " ".join(f"{action.text} {action.command}" for action in said["SYS020"].advice)
    assert "topoadvisor pick 4 --compare 0,1,2,4" in told
    # 0,1,2,3 shares one uplink: by the plan of this very machine it is the worst set of four.
    assert "0,1,2,3" not in f"{said['SYS020'].message} {told}"
    assert "depends on P2P" in said["SYS020"].why


def test_a_leftover_switch_is_planned_away() -> None:
    advice = plans.analyse(load("8xa100-p2p-disabled")).advice
    (setting,) = advice.settings
    assert (setting.name, setting.action, setting.where) == ("NCCL_P2P_DISABLE", "unset", "/etc/nccl.conf:3")
    assert advice.plan is not None
    assert advice.plan.total_gbps == pytest.approx(300)
    assert any("with NCCL_P2P_DISABLE unset, as advised" in note for note in advice.plan.notes)


def test_one_sentence_about_several_devices_is_one_finding() -> None:
    advice = advise.advise(load("4xa6000-acs"))
    redirected = [finding for finding in advice.findings if finding.id == "P2P003"]
    assert len(redirected) == 1
    assert len(redirected[0].also) == 5
    roce = assume.apply(
        load("dgx-h100"),
        [Assumption(fact="rdma.link_layers", value=["Ethernet"]), Assumption(fact="nic.mtu", value=1500)],
    )
    small = [finding for finding in advise.advise(roce).findings if finding.id == "NET041"]
    assert len(small) == 1
    assert len(small[0].also) == 7


def test_what_explains_the_message_comes_before_its_equals() -> None:
    told = [
        Assumption(fact="job.nodes", value=2),
        Assumption(fact="job.message", value="NCCL INFO NET/IB : No device found."),
    ]
    infos = [
        each.id for each in advise.advise(assume.apply(load("dgx-a100"), told)).findings if each.severity == "info"
    ]
    assert infos.index("NET053") < infos.index("NET008")


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


def test_an_assumed_fact_of_a_device_that_was_not_read_says_that_it_holds_for_nothing() -> None:
    matrix = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
    machine = detect.read(["-"], stdin=io.BytesIO(matrix.encode()))
    told = assume.gather(["nic.rate_gbit=100", "gpu.name=NVIDIA L40S"], None)
    assumed = advise.advise(assume.apply(machine, told)).assumed
    assert assumed == ["nic.rate_gbit = 100 (of no network port: none was read)", "gpu.name = NVIDIA L40S"]


SITE = """\
- id: SITE001
  name: site-value
  status: stable
  subject: node
  when: gpus.count > 1
  severity: info
  title: The site wants it
  why: Because.
  advice:
    - set: {{{name}: "{value}"}}
      class: system
"""


@pytest.mark.parametrize(
    ("name", "value", "version", "by_itself"),
    [
        ("NCCL_IB_TIMEOUT", "20", "2.28.9", True),
        ("NCCL_IB_TIMEOUT", "22", "2.28.9", False),
        ("NCCL_IB_TIMEOUT", "20", "2.22.3", False),
        ("NCCL_P2P_LEVEL", "PXB", "2.28.9", True),
        ("NCCL_P2P_LEVEL", "2", "2.28.9", True),
        ("NCCL_P2P_LEVEL", "SYS", "2.28.9", False),
    ],
)
def test_what_nccl_does_by_itself_is_right_and_not_set(
    name: str, value: str, version: str, by_itself: bool, tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(SITE.format(name=name, value=value))
    machine = load("dgx-a100", nccl__version=version)
    advice = advise.advise(machine, rule_directories=[tmp_path])
    told = f"NCCL {version} does as with {name}={value} by itself."
    assert (told in [right.text for right in advice.already_right]) is by_itself
    assert [(each.name, each.value) for each in advice.settings if each.rule == "SITE001"] == (
        [] if by_itself else [(name, value)]
    )
    assert bool(advice.set_nothing) is by_itself


def test_a_default_that_something_else_replaces_is_had_by_unsetting_that(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE.format(name="NCCL_IB_TIMEOUT", value="20"))
    machine = load("dgx-a100", nccl__version="2.28.9", env__NCCL_IB_TIMEOUT="22")
    (setting,) = advise.advise(machine, rule_directories=[tmp_path]).settings
    assert (setting.name, setting.action, setting.value, setting.where) == ("NCCL_IB_TIMEOUT", "unset", None, "assumed")
    assert setting.reason == "The site wants it; NCCL 2.28.9 does as with NCCL_IB_TIMEOUT=20 by itself"


def test_a_very_large_machine_is_no_work_for_minutes() -> None:
    machine = Snapshot(
        gpus=[Gpu(index=index, address=f"0000:{index:02x}:00.0") for index in range(64)],
        nics=[Nic(name=f"mlx5_{index}", address=f"0001:{index // 8:02x}:00.{index % 8}") for index in range(256)],
        settings=[Setting(name=f"NCCL_X{index}", value="1", origin="environment") for index in range(2048)],
    )
    start = time.process_time()
    advise.advise(machine)
    assert time.process_time() - start < 15  # minutes, when every pair was looked at for every device


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        ([], "It finds the 2 RDMA ports next to the GPUs by distance and speed."),
        (["mlx5_0"], "It finds the RDMA port next to 4 of 8 GPUs by distance and speed; the others have no such port"),
        (["mlx5_0", "mlx5_1"], "It finds the 2 RDMA ports next to the GPUs by distance and speed."),
    ],
)
def test_ports_are_next_to_the_gpus_only_where_they_are(slow: list[str], said: str) -> None:
    told = [Assumption(fact=f"nic[{name}].rate_gbit", value=100.0) for name in slow]
    assert said in (advise.advise(assume.apply(load("8xl40s"), told)).set_nothing or "")


@pytest.mark.parametrize("subject", ["host>gpu:0", "gpu:1>host"])
def test_nothing_is_said_to_work_while_copies_with_the_host_fail(subject: str) -> None:
    failed = Measurement(kind="host-copy", subject=subject, outcome="wrong-data")
    found = advise.advise(msgspec.structs.replace(load("2xh200-kvm"), measurements=[failed]))
    assert found.set_nothing == "Measurements on this machine failed, as the findings say: no variable repairs that."


@pytest.mark.parametrize(
    ("name", "facts", "text", "said"),
    [
        ("8xl40s", {}, "Every RDMA port next to a GPU is active.", True),
        ("8xl40s", {"nic.state": "DOWN"}, "Every RDMA port next to a GPU is active.", False),
        ("dgx-h100", {"limits.memlock_bytes": 8 << 30}, "Enough memory may be locked for RDMA buffers.", True),
        ("dgx-h100", {"gpu.fabric.state": "completed"}, "Every GPU is registered with its NVLink fabric.", True),
        ("dgx-h100", {"gpu.fabric.status": 5}, "Every GPU is registered with its NVLink fabric.", False),
    ],
)
def test_what_is_right_was_seen(name: str, facts: dict[str, object], text: str, said: bool) -> None:
    """That a rule is quiet is not enough where nothing was there to speak of."""
    given = assume.apply(load(name), [Assumption(fact=fact, value=value) for fact, value in facts.items()])
    assert (text in [right.text for right in advise.advise(given).already_right]) is said


def test_what_rests_on_the_report_comes_first_and_how_to_go_on_last() -> None:
    """All three are of one severity, and their families are not in this order."""
    facts = {"vm.hypervisor": "KVM", "pair.p2p.read": "CNS", "pair.p2p.write": "CNS", "job.symptom": "slow"}
    given = assume.apply(load("8xl40s"), [Assumption(fact=fact, value=value) for fact, value in facts.items()])
    said = [finding.id for finding in advise.advise(given).findings]
    assert said.index("VM012") < said.index("P2P013") < said.index("SYS095")


def test_notes_about_the_machine_follow_the_way_on_from_a_fault() -> None:
    given = assume.apply(load("8x4090"), [Assumption(fact="job.symptom", value="hang")])
    said = [finding.id for finding in advise.advise(given).findings]
    assert said.index("SYS030") < said.index("SYS020")


def test_what_costs_only_speed_does_not_stand_before_what_failed() -> None:
    told = {"job.symptom": "refused", "job.message": "Proxy Call to rank 1 failed (Connect)", "job.nodes": 2}
    given = assume.apply(load("8xl40s"), [Assumption(fact=fact, value=value) for fact, value in told.items()])
    said = [finding.id for finding in advise.advise(given).findings]
    assert said.index("SYS038") < said.index("NET001")


def test_of_a_single_port_whose_state_was_not_read_nothing_is_right() -> None:
    matrix = "\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tNV2\tPIX\nGPU1\tNV2\t X \tPIX\nmlx5_0\tPIX\tPIX\t X \n"
    assert "RDMA port" not in str(advise.advise(text.read(matrix, "a")).already_right)


def test_of_one_gpu_in_a_job_on_several_machines_the_network_is_told() -> None:
    assert advise.advise(load("1xh200-kvm")).set_nothing == "One GPU has no peer to talk to on this machine."
    several = advise.advise(load("1xh200-kvm", job__nodes=2)).set_nothing
    assert several is not None
    assert several.endswith("on this machine, and NCCL finds the network to other machines by itself.")


def test_nvlink_through_a_third_gpu_is_told() -> None:
    assert "on 28 pairs (12 through a GPU in between) here" in str(advise.advise(load("dgx-1v")).set_nothing)


def test_pairs_that_nccl_may_lead_over_the_network_are_not_said_to_be_staged() -> None:
    """`predict` finds the network between the two halves of this machine: 22 GB/s through the sockets, 24 to a NIC."""
    said = advise.advise(load("8xl40s")).set_nothing or ""
    assert "shared memory on the other 16 pairs (or the network, where it reckons with more there" in said
