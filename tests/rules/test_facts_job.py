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
