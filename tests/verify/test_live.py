"""On a machine with CuPy and two GPUs: faults planted into the real child are caught, without a hang."""

from __future__ import annotations

import itertools
import os
import sys

import pytest

from topoadvisor import collect
from topoadvisor.topology import graph
from topoadvisor.verify import child
from topoadvisor.verify.run import Report, verify
from topoadvisor.verify.selection import Options


def _gpus() -> int:
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:
        return 0


pytestmark = pytest.mark.skipif(_gpus() < 2, reason="needs CuPy and two GPUs")

RUN = "import runpy; runpy.run_module('topoadvisor.verify.copies', run_name='__main__')"
WRONG_BYTE = """
import cupy
runtime = cupy.cuda.runtime
real = runtime.memcpyPeerAsync
def copy(target, to, source, of, size, stream):
    real(target, to, source, of, size, stream)
    if to == 1:
        runtime.memsetAsync(target + size - 1, 0x5A, 1, stream)
runtime.memcpyPeerAsync = copy
"""
NEVER_RETURNS = """
import time, cupy
def copy(*arguments):
    time.sleep(3600)
cupy.cuda.runtime.memcpyPeerAsync = copy
"""
NO_MEMORY = """
import cupy
with cupy.cuda.Device(1):
    free, _ = cupy.cuda.runtime.memGetInfo()
    held = cupy.cuda.Memory(free - (24 << 20))
"""
NO_PEER_ACCESS = """
import cupy
cupy.cuda.runtime.deviceCanAccessPeer = lambda device, peer: 0
"""


def measure(fault: str, *, deadline_s: float = 30.0) -> Report:
    live = collect.capture_live()
    command = [sys.executable, "-P", "-c", fault + RUN]
    return verify(
        live,
        graph.build(live),
        Options(size_bytes=256 << 20, repeats=5, deadline_s=deadline_s),
        converse=child.converse_with(command, child.environment(os.environ)),
        date="2026-11-30T12:00:00+00:00",
    )


def test_without_a_fault_all_is_well() -> None:
    report = measure("")
    assert {each.outcome for each in report.measurements} == {"ok"}
    assert report.exit_code == 0


def test_a_planted_wrong_byte_fails() -> None:
    report = measure(WRONG_BYTE)
    outcomes = {(each.kind, each.subject): each.outcome for each in report.measurements}
    assert outcomes["peer-copy", "gpu:0>gpu:1"] == "wrong-data"
    assert outcomes["host-copy", "host>gpu:0"] == "ok"
    assert [pair.verdict for pair in report.pairs][:1] == ["fail"]
    assert report.exit_code == 1


def test_copies_that_never_return_end_at_the_deadline() -> None:
    report = measure(NEVER_RETURNS, deadline_s=8)
    assert "timeout" in {each.outcome for each in report.measurements}
    assert {pair.verdict for pair in report.pairs} == {"fail"}
    assert {host.verdict for host in report.hosts} <= {"pass", "warn", "unknown"}
    assert report.exit_code == 1


def test_a_gpu_without_memory_left_is_told() -> None:
    report = measure(NO_MEMORY)
    notes = " ".join(str(each.note) for each in report.measurements if each.outcome != "ok" or each.note)
    assert "memory" in notes
    assert report.pairs[0].verdict == "unknown"
    assert report.exit_code == 1


def test_a_pair_without_peer_access_over_nvlink_fails() -> None:
    report = measure(NO_PEER_ACCESS)
    classes = {pair.pair.link_class for pair in report.pairs}
    assert not any(each.peer_access for each in report.measurements if each.kind == "peer-copy")
    if all(str(each).startswith("NV") for each in classes):
        assert report.exit_code == 1
        assert all("no peer access" in str(pair.cause) for pair in report.pairs)
    for pair in itertools.islice(report.pairs, 1):
        assert pair.forward is not None
        assert pair.forward.outcome == "ok"
