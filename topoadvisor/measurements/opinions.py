"""Second opinions about a link: latency, reads, copies by kernels, and scatter, beside writes by copy engines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from topoadvisor.measurements import runs
from topoadvisor.measurements.model import Measurement

STAGED_LATENCY_US: Final = 8.0
"""Small copies take 1 to 4 µs from peer to peer and 10 to 28 µs through host memory."""

_SHARE: Final = 0.5
"""Reads and copies by kernels differ from writes by copy engines by a third at most where nothing is wrong."""
_UNSTEADY: Final = 0.25
"""Batches of one measurement lie within a few percent of each other on a quiet machine."""
_OTHERS: Final = (
    (runs.READ, runs.PEER, "reads"),
    (runs.KERNEL, runs.PEER, "copies by a kernel"),
    (runs.READ_BOTH, runs.PEER_BOTH, "reads both ways at once"),
    (runs.KERNEL_BOTH, runs.PEER_BOTH, "copies by kernels both ways at once"),
)


def odd(measured: Sequence[Measurement]) -> str | None:
    """What is odd about direct copies of one pair, whatever their rate; None = nothing, or nothing was measured."""
    good = [run for run in measured if not runs.failed(run)]
    small = max((run for run in good if run.latency_us), key=lambda run: run.latency_us or 0.0, default=None)
    if small is not None and (small.latency_us or 0.0) >= STAGED_LATENCY_US and small.kind == runs.LATENCY:
        return (
            f"a small copy {runs.in_words(small.subject)} takes {small.latency_us:.0f} µs, as long as one through host "
            "memory"
        )
    for kind, writes, what in _OTHERS:
        rates = [(run.gbps, run.subject) for run in good if run.kind == kind and run.gbps]
        usual = min((run.gbps for run in good if run.kind == writes and run.gbps), default=None)
        if rates and usual and min(rates)[0] < _SHARE * usual:
            gbps, subject = min(rates)
            return (
                f"{what} {runs.in_words(subject)} reach only {gbps:.1f} GB/s where writes by the copy engines reach "
                f"{usual:.1f}"
            )
    return unsteady([run for run in good if run.kind in (runs.PEER, runs.PEER_BOTH)])


def unsteady(measured: Sequence[Measurement]) -> str | None:
    """What to say where the batches of a measurement lie far apart; None where they do not."""
    widest = max((run.spread for run in measured if run.outcome == "ok" and run.spread), default=0.0)
    if widest < _UNSTEADY:
        return None
    return f"its batches lie {widest:.0%} apart: something else uses the link, or clocks change"
