"""What is known of a job: what launchers say, what a person reports, and what a message says about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topoadvisor.rules.facts import FactBase, Known
from topoadvisor.snapshot import Assumption

Machines = Callable[..., FactBase]


@pytest.mark.parametrize(
    ("message", "symptom"),
    [
        ("", ""),
        (
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE) ran for 600013 ms",
            "hang",
        ),
        ("Some NCCL operations have failed or timed out; collective operations have timed out", "hang"),
        ("NCCL WARN Cuda failure 2 'out of memory'", "out-of-memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out-of-memory"),
        ("NET/IB : NCCL_IB_TIMEOUT set by environment to 22.", ""),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", ""),
    ],
)
def test_a_message_names_the_symptom_when_nobody_did(machine: Machines, message: str, symptom: str) -> None:
    fact = machine(assumptions=[Assumption(fact="job.message", value=message)]).fact("job.symptom")
    assert isinstance(fact, Known)
    assert fact.value == symptom


def test_a_symptom_that_was_reported_counts(machine: Machines) -> None:
    told = {"job.message": "Watchdog caught collective operation timeout", "job.symptom": "slow"}
    facts = machine(assumptions=[Assumption(fact=name, value=value) for name, value in told.items()])
    assert facts.fact("job.symptom") == Known("slow", "assumed")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("NVRM: Xid (PCI:0000:1b:00): 39, CE exception", "program"),
        ("Xid 161", "memory"),
        ("Xid 93", "note"),
        ("Xid 166", "nvlink5"),
        ("Xid 154", "recovery"),
        ("Xid 48; Xid 154, GPU recovery action changed", "memory"),
        ("Xid 12", ""),
    ],
)
def test_xids_are_of_the_kinds_of_the_catalogue(machine: Machines, message: str, kind: str) -> None:
    fact = machine(assumptions=[Assumption(fact="job.message", value=message)]).fact("job.xid_kind")
    assert isinstance(fact, Known)
    assert fact.value == kind


@pytest.mark.parametrize(
    ("message", "xids"),
    [
        ("no Xid 79 was seen", []),
        ("There are no Xids in dmesg, neither 79 nor 74", []),
        ("Xid 79 was not logged", []),
        ("Xid 79 and 74 never came", []),
        ("didn't see any Xid 79 or 74", []),
        ("ran without Xid 79", []),
        ("it is not Xid 79", []),
        ("No Xid 79 in dmesg, but Xid 74 was logged", ["74"]),
        ("no Xids except Xid 79", ["79"]),
        ("Xid 31, not Xid 79", ["31"]),
        ("without NCCL_P2P_DISABLE Xid 79 appears", ["79"]),
        ("Xid 79 GPU is not present any more", ["79"]),
        ("GPU not found, Xid 79", ["79"]),
        ("NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.", ["79"]),
    ],
)
def test_what_was_not_seen_is_no_xid(machine: Machines, message: str, xids: list[str]) -> None:
    fact = machine(assumptions=[Assumption(fact="job.message", value=message)]).fact("job.xids")
    assert isinstance(fact, Known)
    assert fact.value == xids


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("the GPU has not fallen off the bus", "the GPU has"),
        ("hang; no ECC errors, no NVLink errors", "hang"),
        ("NCCL WARN Call to connect failed: no route to host", "NCCL WARN Call to connect failed: no route to host"),
    ],
)
def test_a_denied_statement_is_not_read_as_the_statement(machine: Machines, message: str, left: str) -> None:
    fact = machine(assumptions=[Assumption(fact="job.message", value=message)]).fact("job.message")
    assert fact == Known(left, "assumed")
