"""What was measured in both captures: how fast copies and collectives are, and whether they still succeed."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Final

import msgspec

from topoadvisor.advice import Severity
from topoadvisor.diff.ledger import Ledger
from topoadvisor.diff.match import Matched
from topoadvisor.measurements import counted, runs
from topoadvisor.measurements.model import Measurement
from topoadvisor.numbers import size_text, whole
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology.model import Topology

_GPU: Final = re.compile(r"gpu:([0-9]+)")
_TOLERANCE: Final = 0.1
"""Copies scatter by a few percent between two runs, staged ones and those with the host by up to 10 %."""


def compare(before: Snapshot, after: Snapshot, old: Topology, new: Topology, matched: Matched, ledger: Ledger) -> None:
    """Compare what counts of both sides, by GPUs that are the same; what only one of them holds says nothing."""
    index = {gpu.index: other.index for gpu, other in matched.pairs}
    now = {_key(run): run for run in _first(counted.of(after, new).counted)}
    for run in _first(counted.of(before, old).counted):
        moved = _moved(run, index)
        found = now.get(_key(moved)) if moved is not None else None
        if found is not None:
            _one(run, found, ledger)


def _first(measured: Sequence[Measurement]) -> list[Measurement]:
    """What says how a link is: latencies and copies with peer access off scatter too much for that."""
    kinds = (*runs.FIRST, runs.READ, runs.READ_BOTH, runs.KERNEL, runs.KERNEL_BOTH)
    return [
        run
        for run in measured
        if run.outcome != "skipped" and (run.kind in kinds or runs.collective(run) or runs.at_once(run))
    ]


def _key(run: Measurement) -> Hashable:
    return runs.what(run), runs.size_of(run)


def _moved(run: Measurement, index: dict[int, int]) -> Measurement | None:
    """The same with the GPUs' numbers of the other capture; None where one of them is not there."""
    numbers = [whole(number) for number in _GPU.findall(run.subject)]
    if not all(number in index for number in numbers):
        return None
    subject = _GPU.sub(lambda found: f"gpu:{index[int(found[1])]}", run.subject)
    return msgspec.structs.replace(run, subject=subject)


def _one(old: Measurement, new: Measurement, ledger: Ledger) -> None:
    size = f" of {size_text(old.size_bytes)}" if runs.collective(old) and old.size_bytes else ""
    what = f"{runs.in_words(old.subject)}: {old.kind}{size}"
    field = old.kind + (f"[{old.size_bytes}]" if size else "")
    ledger.count("measured", old.subject)
    was, is_now = (f"failed ({runs.ended(run)})" if runs.failed(run) else "succeeded" for run in (old, new))
    if runs.failed(old) or runs.failed(new):
        if was != is_now:
            severity: Severity = "error" if runs.failed(new) else "info"
            ledger.change("measured", old.subject, field, was, is_now, severity, f"{what} {was} → {is_now}")
        return
    if old.gbps and new.gbps and abs(new.gbps / old.gbps - 1) > _TOLERANCE:
        severity = "warning" if new.gbps < old.gbps else "info"
        text = f"{what} {old.gbps:.1f} → {new.gbps:.1f} GB/s"
        ledger.change("measured", old.subject, field, old.gbps, new.gbps, severity, text)
