"""What a snapshot cannot say about any machine: two devices in one place, measurements over GPUs that are not there.

Types and ranges are checked where it is decoded; this is what only several values show together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from topoadvisor import pci
from topoadvisor.errors import InputError
from topoadvisor.measurements import runs
from topoadvisor.measurements.model import COLLECTIVES, Measurement, Trial
from topoadvisor.numbers import size_text
from topoadvisor.snapshot import Snapshot

Place = tuple[str, Hashable]
"""JSON path and value."""


_GPU: Final = "gpu:[0-9]+"
_ALL: Final = f"{_GPU}(,{_GPU})+"
_ONE_WAY, _BOTH_WAYS = f"{_GPU}>{_GPU}", f"{_GPU}<>{_GPU}"
_BETWEEN: Final = {
    **dict.fromkeys((runs.PEER, runs.LATENCY, runs.STAGED, runs.READ, runs.KERNEL), _ONE_WAY),
    **dict.fromkeys((runs.PEER_BOTH, runs.STAGED_BOTH, runs.READ_BOTH, runs.KERNEL_BOTH), _BOTH_WAYS),
    runs.TO_HOST: f"{runs.HOST}>{_GPU}|{_GPU}>{runs.HOST}",
    runs.HOST_BOTH: f"{runs.HOST}<>{_GPU}",
    runs.RING: f"{_GPU}(>{_GPU}){{3,}}",
}
"""Kind of copy → how its subject is written; the others have `_ALL`."""

_ZERO_UP_TO: Final = 1 << 20
"""Bytes from which on a rate that is written as 0 is that of no run: it took seconds for a few of them."""
_SHORTEST_US: Final = 1.0
"""Starting one kernel takes longer."""
_LEAST_OFF: Final = 0.02
"""Relative difference of a rate and a time that rounding does not explain."""
_DAYS: Final = 366
"""How far the clock of a machine may be ahead."""


def check(snapshot: Snapshot, *, file: str) -> Snapshot:
    """The snapshot itself. Raises InputError, with the JSON path, for what no machine can be."""
    places = (*_once(snapshot), *_addresses(snapshot))
    if problem := next(filter(None, (_twice(places), _no_address(snapshot), *_evidence(snapshot))), None):
        raise InputError(
            problem, file=file, hint="Was it changed by hand, or damaged? `topoadvisor capture` writes a fresh one."
        )
    return snapshot


def _once(snapshot: Snapshot) -> Iterator[Place]:
    """What may stand there once only; the last part of the path is the kind of thing that it is."""
    for place, gpu in enumerate(snapshot.gpus):
        yield f"$.gpus[{place}].index", gpu.index
        for number, link in enumerate(gpu.nvlinks or ()):
            yield f"$.gpus[{place}].nvlinks[{number}].link", (gpu.index, link.link)
    for place, pair in enumerate(snapshot.p2p or ()):
        yield f"$.p2p[{place}].b", (pair.a, pair.b)
    for place, node in enumerate(snapshot.host.numa_nodes or ()):
        yield f"$.host.numa_nodes[{place}].id", node.id


def _addresses(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    gpus = ((f"$.gpus[{place}].address", gpu.address) for place, gpu in enumerate(snapshot.gpus))
    functions = ((f"$.pci[{place}].address", device.address) for place, device in enumerate(snapshot.pci or ()))
    for path, address in (*gpus, *functions):
        if address is not None:
            yield path, address


def _twice(places: tuple[Place, ...]) -> str | None:
    seen: dict[tuple[str, Hashable], str] = {}
    for path, value in places:
        kind = path.split("[", 1)[0] + path.rpartition("]")[2]
        first = seen.setdefault((kind, value), path)
        if first != path:
            shown = value[-1] if isinstance(value, tuple) else value
            return f"{path} is {shown} like {first}: a machine has that once"
    return None


def _no_address(snapshot: Snapshot) -> str | None:
    """The first address of a PCI device that is not spelt as every snapshot spells it."""
    nics = ((f"$.nics[{place}].address", nic.address) for place, nic in enumerate(snapshot.nics or ()))
    parents = ((f"$.pci[{place}].parent", device.parent) for place, device in enumerate(snapshot.pci or ()))
    for path, address in (*_addresses(snapshot), *nics, *parents):
        if address is not None and not _is_normal(address):
            return f"{path} is {address[:40]!r}, which is no PCI address like 0000:1a:00.0"
    return None


def _evidence(snapshot: Snapshot) -> Iterator[str]:
    yield from _measured(snapshot)
    yield from _contradicted(snapshot)
    yield from _to_come(snapshot)


def _measured(snapshot: Snapshot) -> Iterator[str]:
    """Measurements and trials of a kind, or over GPUs, that there is not."""
    here = {gpu.index for gpu in snapshot.gpus}
    ends_here = {runs.HOST, *(f"gpu:{index}" for index in here)}
    for place, run in enumerate(snapshot.measurements):
        where = f"$.measurements[{place}]"
        if run.kind not in runs.COPIES and run.kind not in COLLECTIVES:
            yield f"{where}.kind is {run.kind[:40]!r}, which nothing measures"
        ends = runs.ends(run)
        once = ends[1:] if len(ends) > 2 and ends[0] == ends[-1] else ends
        if not ends_here.issuperset(ends) or len(once) < 2 or len(set(once)) < len(once):
            yield (
                f"{where}.subject is {run.subject[:40]!r}, and a measurement is between GPUs of this "
                "machine, or one and the host"
            )
        elif not re.fullmatch(_BETWEEN.get(run.kind, _ALL), run.subject):
            yield f"{where}.subject is {run.subject[:40]!r}, and {run.kind} is not measured between these"
        elif (told := _no_time(run)) is not None:
            yield f"{where}.{told}"
    for place, trial in enumerate(snapshot.trials):
        if gone := [index for index in trial.gpus if index not in here]:
            yield f"$.trials[{place}].gpus holds {gone[0]}, and this machine has no such GPU"
        for number, size in enumerate(trial.sizes):
            for name, rate in (("baseline_gbps", size.baseline_gbps), ("variant_gbps", size.variant_gbps)):
                if told := _too_short(name, size.collective, len(trial.gpus), size.size_bytes, rate):
                    yield f"$.trials[{place}].sizes[{number}].{told}"


def _no_time(run: Measurement) -> str | None:
    """Where its numbers are not of one run, from the name of the field on; None where they can be."""
    if run.gbps == 0 and not runs.failed(run) and (run.size_bytes or _ZERO_UP_TO) >= _ZERO_UP_TO:
        return "gbps is 0, and nothing of this size ends at that"
    if not (runs.collective(run) and run.gbps and run.size_bytes):
        return None
    ranks = len(runs.ends(run))
    if (short := _too_short("gbps", run.kind, ranks, run.size_bytes, run.gbps)) or not run.latency_us:
        return short
    by_rate = _took(run.kind, ranks, run.size_bytes, run.gbps)
    rounded = 0.005 / run.gbps + 0.05 / run.latency_us
    if abs(math.log(by_rate / run.latency_us)) <= max(_LEAST_OFF, run.spread or 0) + 2 * rounded:
        return None
    return f"latency_us is {run.latency_us}, and by its rate and size it took {by_rate:.4g} µs"


def _took(collective: str, ranks: int, size: int, gbps: float) -> float:
    """µs of a collective, by its bus bandwidth."""
    return size * runs.bus_factor(collective, ranks) / gbps / 1000


def _too_short(field: str, collective: str, ranks: int, size: int, gbps: float | None) -> str | None:
    by_rate = _took(collective, ranks, size, gbps) if gbps else _SHORTEST_US
    if by_rate >= _SHORTEST_US:
        return None
    return f"{field} is {gbps:g}, by which {size_text(size)} took {by_rate:.2g} µs, less than a start"


def _contradicted(snapshot: Snapshot) -> Iterator[str]:
    """The same measured twice at one time, with two outcomes: nothing says which one holds."""
    seen: dict[Hashable, tuple[int, Measurement]] = {}
    for place, run in enumerate(snapshot.measurements):
        then = None if run.variables is None else frozenset(run.variables.items())
        key = (*runs.what(run), runs.size_of(run), run.moment, run.driver, run.method, then)
        first, other = seen.setdefault(key, (place, run))
        if _said(other) != _said(run):
            yield (
                f"$.measurements[{place}] is {run.kind} {runs.in_words(run.subject)} like $.measurements[{first}], "
                "of the same date, and they do not agree"
            )


def _said(run: Measurement) -> tuple[object, ...]:
    return runs.ended(run), run.gbps, run.slowest_gbps, run.latency_us


def _to_come(snapshot: Snapshot) -> Iterator[str]:
    """Dates after this one, and more than clocks of machines are wrong."""
    latest = datetime.now(UTC) + timedelta(days=_DAYS)
    found: list[tuple[str, Measurement | Trial]] = []
    found += [(f"$.measurements[{place}]", run) for place, run in enumerate(snapshot.measurements)]
    found += [(f"$.trials[{place}]", trial) for place, trial in enumerate(snapshot.trials)]
    for where, each in found:
        if each.moment is not None and each.moment > latest:
            yield f"{where}.date is {each.moment.date()}, which is yet to come"


def _is_normal(address: str) -> bool:
    try:
        return pci.normalize(address) == address
    except ValueError:
        return False
