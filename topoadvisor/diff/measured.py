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
_SMALL_COPIES: Final = 2.0
"""Small copies take up to half as long again in another run, and several times as long through host memory."""


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
    """What says how a link is: copies with peer access off scatter too much for that."""
    kinds = (*runs.FIRST, runs.LATENCY, runs.READ, runs.READ_BOTH, runs.KERNEL, runs.KERNEL_BOTH)
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
    item = f"{field} {old.subject}"
    if runs.failed(old) or runs.failed(new):
        ledger.count("measured", item)
        was, is_now = (f"failed ({runs.ended(run)})" if runs.failed(run) else "succeeded" for run in (old, new))
        if was != is_now:
            severity: Severity = "error" if runs.failed(new) else "info"
            text = f"{what} {was} → {is_now}"
            ledger.change("measured", old.subject, field, was, is_now, severity, text, item=item)
        return
    small = old.kind == runs.LATENCY
    before, after = (old.latency_us, new.latency_us) if small else (old.gbps, new.gbps)
    if not before or not after or not runs.as_large(old, new):
        return
    ledger.count("measured", item)
    if max(after / before, before / after) > (_SMALL_COPIES if small else 1 + _TOLERANCE):
        severity = "warning" if (after > before) == small else "info"
        text = f"{what} {before:.1f} → {after:.1f} {'µs' if small else 'GB/s'}"
        ledger.change("measured", old.subject, field, before, after, severity, text, item=item)
