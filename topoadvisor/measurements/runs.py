"""What a saved measurement is about, and how it ended. Pure."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from topoadvisor.measurements.model import Measurement
from topoadvisor.numbers import whole

OUTCOMES: Final = ("ok", "skipped", "error", "crashed", "timeout", "wrong-data")
"""Mildest first."""
FAILED: Final = OUTCOMES[2:]

HOST: Final = "host"
BOTH: Final = "<>"
"""Between the ends of a subject when data goes both ways at once."""
IMPOSSIBLE: Final = 1.05
"""Faster than the wires by more than this: not the link that we think it is, or not measured rightly."""

LARGE_BYTES: Final = 128 << 20
"""Published numbers are of 256 MiB and more; from half of that on, the start of a copy costs less than 1 %."""

PEER, PEER_BOTH = "peer-copy", "peer-copy-both"
"""Between two GPUs, one way and both ways at once; peer access is on where CUDA allows it."""
LATENCY: Final = "peer-latency"
STAGED, STAGED_BOTH = "staged-copy", "staged-copy-both"
"""The same pairs with peer access off."""
READ, READ_BOTH = "peer-read", "peer-read-both"
"""Copy engines of the target instead of those of the source."""
KERNEL, KERNEL_BOTH = "kernel-copy", "kernel-copy-both"
TO_HOST, HOST_BOTH = "host-copy", "host-copy-both"
"""Between a GPU and pinned host memory; the subject says which way."""
RING: Final = "ring-copy"
"""All hops of a ring at once."""
SWITCH: Final = "switch-copy"
"""All pairs of the GPUs of one switch at once."""
FIRST: Final = (PEER, PEER_BOTH, TO_HOST, HOST_BOTH)
"""What every link is measured by; the others are second opinions."""


_LIBRARY: Final = re.compile(r"NCCL ([0-9]+(?:\.[0-9]+)+)")
"""At the beginning of the method of a collective."""

_OLDEST: Final = datetime.min.replace(tzinfo=UTC)
"""Of a measurement without a date: any other is newer."""

COPIES: Final = (
    *(PEER, PEER_BOTH, LATENCY, STAGED, STAGED_BOTH, READ, READ_BOTH, KERNEL, KERNEL_BOTH),
    *(TO_HOST, HOST_BOTH, RING, SWITCH),
)


def ended(run: Measurement) -> str:
    """One of `OUTCOMES`; data that arrived changed is no success, whatever else was noted."""
    return "wrong-data" if run.data_ok is False else run.outcome


def failed(run: Measurement) -> bool:
    """It was made, and hung, died, or brought wrong bytes."""
    return ended(run) in FAILED


def worst(runs: Iterable[Measurement]) -> str | None:
    """How the worst of them ended; None without any."""
    return max(map(ended, runs), key=OUTCOMES.index, default=None)


def ends(run: Measurement) -> tuple[str, ...]:
    """Whom it ran between, in the order of its subject: `("gpu:0", "gpu:1")`, `("host", "gpu:0")`, a ring's GPUs."""
    return tuple(run.subject.replace("<>", ">").replace(",", ">").split(">"))


def in_words(subject: str) -> str:
    """A subject as people write it: `GPU0 → GPU1`, `GPU0 ↔ the host`, `GPU0, GPU1`, `GPU0–GPU2`, `GPU0 link 3`.

    Of other devices and of variables what stands behind their kind.
    """
    numbered = re.sub(r"\bgpu:([0-9]+)", r"GPU\1", re.sub(r"^(?:nic|pci|variable):", "", subject))
    numbered = numbered.replace("-GPU", "–GPU").replace("/link:", " link ").replace(",", ", ")
    return re.sub(rf"(?<![\w-]){HOST}(?![\w-])", "the host", numbered).replace(BOTH, " ↔ ").replace(">", " → ")


def pair(run: Measurement) -> tuple[int, int] | None:
    """The two GPU indexes of a copy between two GPUs, lower first; None for anything else."""
    numbers = [_index(end) for end in ends(run)]
    if ">" not in run.subject or len(numbers) != 2:
        return None
    a, b = numbers
    return None if a is None or b is None else (min(a, b), max(a, b))


def host_gpu(run: Measurement) -> int | None:
    """The index of the GPU of a copy from or to host memory; None for anything else."""
    found = [end for end in ends(run) if end != HOST]
    return _index(found[0]) if len(found) == 1 and HOST in ends(run) else None


def at_once(run: Measurement) -> bool:
    """Several copies at the same time: all hops of a ring, or all pairs of a switch."""
    return run.kind == SWITCH or (">" in run.subject and len(ends(run)) > 2)


def collective(run: Measurement) -> bool:
    """One of NCCL's own operations over several GPUs."""
    return ">" not in run.subject and run.kind != SWITCH


def over(run: Measurement, gpus: int) -> str:
    """The GPUs of a collective on a machine of so many: `over 8 GPUs`; `over GPU0 GPU1` where they are not all."""
    mine = ends(run)
    return f"over {gpus} GPUs" if len(mine) == gpus else f"over {in_words(' '.join(mine))}"


def other_drivers(measured: Iterable[Measurement], driver: str | None) -> list[str]:
    """Drivers that something was measured with, and that are not this one; None = not known, and none is another."""
    return sorted({run.driver for run in measured if run.driver and driver} - {driver or ""})


def nccl_version(run: Measurement) -> str | None:
    """The NCCL that a collective ran with; None = not said."""
    found = _LIBRARY.match(run.method or "")
    return found[1] if found else None


def bus_factor(kind: str, ranks: int) -> float:
    """Bus bandwidth of a collective over size / time, as nccl-tests define it (`doc/PERFORMANCE.md`)."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if kind in ("all_gather", "reduce_scatter", "alltoall") else 1.0


def through_host(run: Measurement) -> bool:
    """A copy between two GPUs that went through host memory: peer access was off, or the driver does not grant it."""
    return run.kind.startswith("staged") or run.peer_access is False


def doubt(measured: Iterable[Measurement], wire_gbps: float, link: str) -> str | None:
    """Which of these copies is faster than a link that carries `wire_gbps` one way, and as much back; None = none."""
    for each in measured:
        carried = wire_gbps * (2 if BOTH in each.subject else 1)
        if each.outcome == "ok" and each.gbps and each.gbps > IMPOSSIBLE * carried:
            return (
                f"{each.kind} {in_words(each.subject)} reached {each.gbps:.1f} GB/s, and {link} carries "
                f"{carried:.0f}: it is not the link that the topology shows, or was not measured rightly"
            )
    return None


def latest(runs: Sequence[Measurement], driver: str | None) -> tuple[list[Measurement], list[Measurement]]:
    """Those that count, and older ones of the same, both in the order given.

    Of what was measured several times the newest decides, with this driver if any was; of equal dates the last.
    """
    order = sorted(
        range(len(runs)),
        key=lambda at: (
            runs[at].outcome != "skipped",
            _same(runs[at].driver, driver),
            runs[at].moment or _OLDEST,
            at,
        ),
        reverse=True,
    )
    leaders: dict[Hashable, Measurement] = {}
    seen: set[Hashable] = set()
    older: set[int] = set()
    for at in order:
        run, thing = runs[at], what(runs[at])
        leader, size = leaders.setdefault(thing, run), (thing, size_of(run))
        if size in seen or _replaces(leader, run):
            older.add(at)
        else:
            seen.add(size)
    return [run for at, run in enumerate(runs) if at not in older], [runs[at] for at in sorted(older)]


def not_passed(broken: Iterable[Measurement], later: Iterable[Measurement]) -> list[Measurement]:
    """Those that failed and of which no later one of the same succeeded."""
    passed: dict[Hashable, datetime] = {}
    for run in later:
        if not failed(run) and run.outcome != "skipped":
            thing = what(run), size_of(run)
            passed[thing] = max(run.moment or _OLDEST, passed.get(thing, _OLDEST))
    return [run for run in broken if passed.get((what(run), size_of(run)), _OLDEST) <= (run.moment or _OLDEST)]


def not_replaced(older: Iterable[Measurement], newer: Iterable[Measurement]) -> list[Measurement]:
    """Those of the older ones that no newer one replaces: of the same, or with another driver or method of more of it.

    What was left out says nothing.
    """
    by_thing: dict[Hashable, list[Measurement]] = {}
    for run in newer:
        by_thing.setdefault(what(run), []).append(run)
    return [
        run
        for run in older
        if not any(_replaces(other, run) or _again(other, run) for other in by_thing.get(what(run), ()))
    ]


def _again(newer: Measurement, older: Measurement) -> bool:
    """Both are of one thing: whether the newer one says anew what the older one says."""
    return size_of(newer) == size_of(older) and _same(newer.variables, older.variables)


def _replaces(newer: Measurement, older: Measurement) -> bool:
    """Both are of one thing: whether the newer one was made otherwise, so that the older one stands for nothing."""
    if newer.outcome == "skipped":
        return False
    return not (_same(newer.driver, older.driver) and _same(newer.method, older.method))


def as_large(one: Measurement, other: Measurement) -> bool:
    """Their rates can be held against each other: the same size, or both so large that it does not matter."""
    sizes = one.size_bytes, other.size_bytes
    return None in sizes or sizes[0] == sizes[1] or all(size is None or size >= LARGE_BYTES for size in sizes)


def size_of(run: Measurement) -> int | None:
    """Bytes that tell it from others of the same: collectives are measured at several sizes, copies at the largest."""
    return run.size_bytes if collective(run) else None


def what(run: Measurement) -> tuple[str, Hashable]:
    """Kind, and between whom, whatever order that is written in where it says nothing."""
    ordered = ">" in run.subject and BOTH not in run.subject
    return run.kind, ends(run) if ordered else frozenset(ends(run))


def _same(one: object, other: object) -> bool:
    """Not known to differ."""
    return one is None or other is None or one == other


def _index(end: str) -> int | None:
    return whole(end.removeprefix("gpu:")) if end.startswith("gpu:") else None
