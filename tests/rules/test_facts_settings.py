from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topoadvisor.rules.facts import FactBase, Known, Subject, Unknown
from topoadvisor.snapshot import Assumption, IbPort, NcclLibrary, Nic, Setting

Machines = Callable[..., FactBase]


def variable(facts: FactBase, subject: str) -> Subject:
    return next(each for each in facts.subjects["variable"] if each.id == subject)


def value(subject: Subject, name: str) -> Any:
    fact = subject.facts[name]
    return fact.value if isinstance(fact, Known) else None


TWICE = [
    Setting(name="NCCL_ALGO", value="Ring", origin="environment"),
    Setting(name="NCCL_IB_HCA", value="mlx5_1", origin="/etc/nccl.conf", line=2),
    Setting(name="NCCL_ALGO", value="Tree", origin="/etc/nccl.conf", line=4),
]


def test_the_first_of_a_name_is_in_force_and_the_others_are_overridden(machine: Machines) -> None:
    facts = machine(settings=TWICE)
    assert facts.fact("env.NCCL_ALGO") == Known("Ring", "environment")
    assert [subject.id for subject in facts.subjects["variable"]] == [
        "variable:NCCL_ALGO",
        "variable:NCCL_IB_HCA",
        "variable:NCCL_ALGO@/etc/nccl.conf:4",
    ]
    assert [value(subject, "variable.overridden") for subject in facts.subjects["variable"]] == [False, False, True]
    assert value(variable(facts, "variable:NCCL_ALGO@/etc/nccl.conf:4"), "variable.line") == 4


def test_a_variable_that_is_not_set_is_empty_only_when_settings_were_read(machine: Machines) -> None:
    assert machine(settings=[]).fact("env.NCCL_PROTO") == Known("", "environment")
    assert isinstance(machine(settings=None).fact("env.NCCL_PROTO"), Unknown)
    assert isinstance(machine(settings=None).fact("env.ANYTHING"), Unknown)


@pytest.mark.parametrize(
    ("name", "text", "fact", "expected"),
    [
        ("NCCL_P2P_LEVEL", "SYS", "level", "SYS"),
        ("NCCL_P2P_LEVEL", "5", "level", "SYS"),
        ("NCCL_P2P_LEVEL", "NODE", "level", ""),
        ("NCCL_NET_GDR_LEVEL", "2", "level", "PXB"),
        ("NCCL_NET_MERGE_LEVEL", "PIX", "level", "PIX"),
        ("NCCL_ALGO", "Ring", "level", None),
        ("NCCL_P2P_DISABLE", "1", "integer", 1),
        ("NCCL_BUFFSIZE", "8M", "integer", 8),
        ("NCCL_IB_DISABLE", "true", "integer", 0),
        ("NCCL_IB_DISABLE", "", "integer", None),
        ("NCCL_ALGO", "1", "integer", None),
        ("NCCL_ALGO", "Ring", "known", True),
        ("NCCL_ALGOO", "Ring", "known", False),
        ("NCCL_ALGOO", "Ring", "class", ""),
        ("NCCL_ALGOO", "Ring", "removed", ""),
        ("NCCL_CREATE_THREAD_CONTEXT", "1", "removed", "2.30.7"),
        ("NCCL_IB_HCA", "mlx5_1", "selects", ["mlx5_1", "mlx5_10"]),
        ("NCCL_ALGO", "Ring", "selects", None),
    ],
)
def test_what_nccl_makes_of_a_text(machine: Machines, name: str, text: str, fact: str, expected: Any) -> None:
    port = [IbPort(port=1, state="ACTIVE")]
    nics = [Nic(name=each, rdma=True, ports=port) for each in ("mlx5_0", "mlx5_1", "mlx5_10")]
    facts = machine(settings=[Setting(name=name, value=text, origin="environment")], nics=nics)
    assert value(variable(facts, f"variable:{name}"), f"variable.{fact}") == expected


def test_an_assumed_variable_is_one_that_is_set_and_leaves_the_others_unread(machine: Machines) -> None:
    facts = machine(settings=None, assumptions=[Assumption(fact="env.NCCL_P2P_DISABLE", value=1)])
    assert facts.fact("env.NCCL_P2P_DISABLE") == Known("1", "assumed")
    assert value(variable(facts, "variable:NCCL_P2P_DISABLE"), "variable.integer") == 1
    assert isinstance(facts.fact("env.NCCL_P2P_LEVEL"), Unknown)


def test_a_version_that_is_none_leaves_the_default_open(machine: Machines) -> None:
    facts = machine(settings=[], nccl_libraries=[NcclLibrary(path="libnccl.so", version="latest")])
    assert facts.fact("nccl.default_p2p_level") == Unknown("'latest' is no version")


def test_an_assumed_variable_wins_over_one_that_is_set_and_an_empty_one_removes_it(machine: Machines) -> None:
    replaced = machine(settings=TWICE, assumptions=[Assumption(fact="env.NCCL_ALGO", value="NVLS")])
    assert [subject.id for subject in replaced.subjects["variable"]] == [
        "variable:NCCL_ALGO",
        "variable:NCCL_ALGO@environment",
        "variable:NCCL_IB_HCA",
        "variable:NCCL_ALGO@/etc/nccl.conf:4",
    ]
    assert value(variable(replaced, "variable:NCCL_ALGO"), "variable.value") == "NVLS"
    gone = machine(settings=TWICE, assumptions=[Assumption(fact="env.NCCL_ALGO", value="")])
    assert [subject.id for subject in gone.subjects["variable"]] == ["variable:NCCL_IB_HCA"]
    assert gone.fact("env.NCCL_ALGO") == Known("", "assumed")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CCL_NET_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("CCL_LOG_LEVEL", ""),
        ("RCCL_DEBUG", ""),
        ("NCCL_DISABLE_P2P", "NCCL_P2P_DISABLE"),
        ("NCCL_DISABLE_IB", "NCCL_IB_DISABLE"),
    ],
)
def test_a_slip_of_letters_or_order_is_meant_for_nccl(machine: Machines, name: str, meant: str) -> None:
    facts = machine(settings=[Setting(name=name, value="1", origin="environment")])
    assert value(variable(facts, f"variable:{name}"), "variable.nearest") == meant


@pytest.mark.parametrize(
    ("text", "release", "expected"), [("1", "2.26.2", False), ("1", "2.28.3", True), ("0", "2.28.3", False)]
)
def test_a_value_may_be_the_default_of_this_release(machine: Machines, text: str, release: str, expected: bool) -> None:
    set_here = [Setting(name="NCCL_NET_GDR_C2C", value=text, origin="environment")]
    facts = machine(settings=set_here, assumptions=[Assumption(fact="nccl.version", value=release)])
    assert value(variable(facts, "variable:NCCL_NET_GDR_C2C"), "variable.is_default") is expected
