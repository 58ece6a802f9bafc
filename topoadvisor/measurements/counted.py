"""Which measurements of a snapshot count: the newest of each, of the machine as it is, that its wires carry. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from topoadvisor.hardware import catalogue
from topoadvisor.measurements import runs, variables
from topoadvisor.measurements.model import Measurement
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology.model import Topology


@dataclass(frozen=True)
class Measured:
    """Measurements, in the order of the snapshot."""

    counted: list[Measurement]
    older: list[Measurement]
    """Something newer was measured of the same."""
    doubted: list[tuple[Measurement, str]]
    """With the reason."""
    otherwise: list[tuple[Measurement, str]]
    """Collectives that succeeded under other variables than are in force now, and how these differ."""
    failed_otherwise: list[tuple[Measurement, str]]
    """Those that failed under other variables, and have not passed since. They are among `counted`, too."""


def of(snapshot: Snapshot, topology: Topology) -> Measured:
    """The measurements of a machine."""
    told = list(zip(snapshot.measurements, _otherwise(snapshot), strict=True))
    latest, older = runs.latest([run for run, how in told if how is None], snapshot.driver.version)
    otherwise = [(run, how) for run, how in told if how is not None and not runs.failed(run)]
    hows = {id(run): how for run, how in told if how is not None}
    standing = runs.not_passed([run for run, _ in told if id(run) in hows and runs.failed(run)], latest)
    found = Measured([], older, [], otherwise, [(run, hows[id(run)]) for run in standing])
    for run in [*latest, *standing]:
        if (doubt := _doubt(run, topology)) is not None:
            found.doubted.append((run, doubt))
        else:
            found.counted.append(run)
    return found


def alone(snapshot: Snapshot, topology: Topology) -> Snapshot:
    """The snapshot with the measurements that count, and no others."""
    return msgspec.structs.replace(snapshot, measurements=of(snapshot, topology).counted)


def most_busbw(topology: Topology, gpus: Sequence[str], collective: str) -> float | None:
    """GB/s of bus bandwidth that the links of these GPUs (node ids) let a collective have; None = not known."""
    return min(_all(_sends(topology, gpu, gpus, collective) for gpu in gpus), default=None)


def _otherwise(snapshot: Snapshot) -> Iterator[str | None]:
    """For each measurement how NCCL's variables have changed since; None where they have not, or do not matter.

    Copies do not depend on them.
    """
    known: dict[Hashable, str | None] = {}
    for run in snapshot.measurements:
        if not runs.collective(run):
            yield None
            continue
        then = None if run.variables is None else frozenset(run.variables.items())
        if then not in known:
            known[then] = variables.changed(run.variables, snapshot)
        yield known[then]


def _doubt(run: Measurement, topology: Topology) -> str | None:
    """Why it cannot be: more than the links on its way carry, as far as these are known. What failed is believed."""
    ends = runs.ends(run)
    if runs.failed(run) or not all(end == runs.HOST or end in topology.gpus for end in ends):
        return None
    if runs.collective(run):
        most = most_busbw(topology, ends, run.kind)
        return runs.doubt([run], most, "what joins these GPUs") if most is not None else None
    if run.kind == runs.SWITCH:
        wires = _all(_sends(topology, gpu, ends, run.kind) for gpu in ends)
    else:
        wires = _all(_wire(topology, a, b, staged=runs.through_host(run)) for a, b in pairwise(ends))
    if not wires:
        return None
    return runs.doubt([run], sum(wires), "the link" if len(wires) == 1 else "all of these links together")


def _wire(topology: Topology, a: str, b: str, *, staged: bool) -> float | None:
    """GB/s that the own links of the two carry from one to the other; None = not known."""
    if runs.HOST not in (a, b) and not staged:
        pair = topology.find(a, b)
        if pair is None or pair.nvlinks is None:
            return None
        if pair.nvlinks:
            return pair.gbps
    return min(_all(_to_host(topology, end) for end in (a, b) if end != runs.HOST), default=None)


def _to_host(topology: Topology, gpu: str) -> float | None:
    """GB/s of all links of a GPU but those to other GPUs, headers included."""
    links = _all(
        catalogue.pcie_raw_gbps(edge["gen"], edge["width"]) if edge["kind"] == "pcie" else edge["gbps"]
        for _, other, edge in topology.graph.edges(gpu, data=True)
        if topology.graph.nodes[other]["kind"] not in ("gpu", "nvswitch")
    )
    return sum(links) if links else None


def _sends(topology: Topology, gpu: str, others: Sequence[str], collective: str) -> float | None:
    """GB/s of bus bandwidth that a GPU can have in a collective with the others, over all its ways to them."""
    found = [topology.find(gpu, other) for other in others if other != gpu]
    pairs = [pair for pair in found if pair is not None]
    if len(pairs) < len(found) or any(pair.nvlinks is None or (pair.nvlinks and pair.gbps is None) for pair in pairs):
        return None
    switched = max((pair.gbps or 0.0 for pair in pairs if pair.through_switch), default=0.0)
    direct = sum(pair.gbps or 0.0 for pair in pairs if pair.nvlinks and not pair.through_switch)
    host = 0.0 if switched else _to_host(topology, gpu)
    # NVSwitches that reduce take each byte of an all_reduce once, where nccl-tests count it nearly twice.
    times = runs.bus_factor(collective, len(others)) if collective == "all_reduce" else 1.0
    return None if host is None else times * switched + direct + host


def _all(found: Iterable[float | None]) -> list[float]:
    """The values; none where one is not known."""
    values = list(found)
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []
