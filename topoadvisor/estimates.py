"""What collectives cost on a machine: NCCL's channels as its search finds them, put through NCCL's own estimate."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from topoadvisor import planning
from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.plan import cost as model
from topoadvisor.plan.cost import Channels, Collective, Fabric
from topoadvisor.plan.link_model import LinkModel
from topoadvisor.predict import document as predicted
from topoadvisor.predict.outlook import Asked, Outlook, Searches, look
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import bandwidth

SCHEMA: Final = "topoadvisor.cost/1"

TABLE: Final = tuple(1 << power for power in (10, 13, 16, 18, 20, 22, 23, 24, 26, 28, 30, 32))
"""Sizes that are shown when none is asked for, bytes."""

_NVLS_SPEEDS: Final = ((100, (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)), (90, (60, 50, 40, 30, 24, 20, 15, 12)))
"""GB/s that NCCL's search tries for a channel (`src/graph/search.cc`), by compute capability × 10."""


class Way(msgspec.Struct, frozen=True):
    """One algorithm with one protocol."""

    algorithm: str
    protocol: str
    time_us: float


class Row(msgspec.Struct, frozen=True):
    """One size."""

    size_bytes: int
    """Of the whole buffer, as nccl-tests counts it: of all_gather what is received, of reduce_scatter what is sent."""
    algorithm: str
    """What NCCL takes, being the fastest in its own estimate: `ring`, `tree`, `nvls`; `p2p` for point to point."""
    protocol: str
    time_us: float
    """Calibrated where measurements are there, else NCCL's estimate."""
    algbw_gbps: float
    busbw_gbps: float
    ways: list[Way]
    """All of them by NCCL's estimate, the fastest first."""


class Graph(msgspec.Struct, frozen=True):
    """The channels of one algorithm."""

    channels: int
    gbps_each: float


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """`topoadvisor cost --format json`."""

    schema: str = SCHEMA
    collective: Collective
    nccl: str
    gpus: list[int]
    rings: Graph
    trees: Graph | None
    nvls: Graph | None
    calibrated_by: list[int]
    """Sizes of measured runs of this collective over these GPUs, bytes; empty = NCCL's estimate alone."""
    rows: list[Row]
    notes: list[str]


class Estimator:
    """Fabrics of jobs over parts of one machine."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.machine = planning.Machine(snapshot, "nccl")
        self._searches = Searches()
        self._found: dict[tuple[int, ...], tuple[Fabric, list[str], str]] = {}

    def fabric(self, gpus: Sequence[int]) -> tuple[Fabric, list[str], str]:
        """What NCCL reckons with for these GPUs, what was taken for granted, and its version.

        Raises NothingDetermined where its search cannot be repeated, or bandwidths are not known.
        """
        key = tuple(sorted(gpus))
        if key not in self._found:
            asked = Asked(key, None, "not asked", self._searches)
            self._found[key] = self._look(key, look(self._snapshot, asked))
        return self._found[key]

    def _look(self, gpus: tuple[int, ...], seen: Outlook) -> tuple[Fabric, list[str], str]:
        if len(seen.groups) > 1:
            raise NothingDetermined(
                "NCCL divides these GPUs into groups that the network joins, for which there is no estimate here",
                hint="`topoadvisor predict` shows the groups; --gpus chooses those of one.",
            )
        group = seen.groups[0]
        if group.rings is None:
            raise NothingDetermined(f"NCCL's channels are not known here: {group.why}")
        links = self.machine.links(gpus)
        if links.unknown:
            raise NothingDetermined(f"NCCL's bandwidths are not known here: {links.unknown}")
        capability = min(_capability(self._snapshot, gpu) for gpu in gpus)
        features = {feature.name: feature.state for feature in seen.features}
        notes = list(seen.notes)
        pair, everyone = _traffic(links)
        nvls = _nvls(links, capability) if features.get("NVLS") == "on" else None
        if features.get("NVLS") == "unknown" and capability >= 90:
            notes.append("Whether NVLS works here is not known; it is left out.")
        if nvls is not None:
            notes.append("NVLS: its channels follow from the bandwidth of a GPU, as on H100; they are not searched.")
        fabric = Fabric(
            ranks=len(gpus),
            capability=capability,
            ring=_channels(group.rings),
            tree=_channels(group.trees) if group.trees else None,
            nvls=nvls,
            ll128=features.get("LL128") == "on",
            same_order=group.rings.same_order,
            pair_gbps=pair,
            everyone_gbps=everyone,
        )
        return fabric, notes, seen.version


def cost(
    snapshot: Snapshot, collective: Collective, sizes: Sequence[int] = (), gpus: Sequence[int] | None = None
) -> Document:
    """The times of one collective over these GPUs (all when left out), by size.

    Raises InputError for GPUs that are not there, NothingDetermined where NCCL's channels are not known.
    """
    estimator = Estimator(snapshot)
    estimator.machine.present(gpus or ())
    chosen = sorted(estimator.machine.gpus if gpus is None else gpus)
    if len(set(chosen)) != len(chosen) or len(chosen) < 2:
        raise InputError("a collective takes two different GPUs or more", hint=estimator.machine.here)
    fabric, notes, version = estimator.fabric(chosen)
    measured = dict(_measured(snapshot, collective, chosen))
    calibration = model.calibrate(fabric, collective, sorted(measured.items()))
    return Document(
        collective=collective,
        nccl=version,
        gpus=chosen,
        rings=_graph(fabric.ring),
        trees=_graph(fabric.tree) if fabric.tree else None,
        nvls=_graph(fabric.nvls) if fabric.nvls else None,
        calibrated_by=sorted(measured),
        rows=[_row(fabric, collective, size, calibration) for size in sizes or TABLE],
        notes=notes,
    )


def _row(fabric: Fabric, collective: Collective, size: int, calibration: model.Calibration) -> Row:
    ways = model.estimates(fabric, collective, size)
    times = [calibration.time_us(size, each.time_us) for each in ways]
    time_us = times[0]
    algbw = size / time_us / 1000
    return Row(
        size_bytes=size,
        algorithm=ways[0].algorithm,
        protocol=ways[0].protocol,
        time_us=round(time_us, 3),
        algbw_gbps=round(algbw, 4),
        busbw_gbps=round(algbw * model.bus_factor(collective, fabric.ranks), 4),
        ways=[Way(each.algorithm, each.protocol, round(time, 3)) for each, time in zip(ways, times, strict=True)],
    )


def _measured(snapshot: Snapshot, collective: Collective, gpus: Sequence[int]) -> Iterator[tuple[int, float]]:
    subject = {f"gpu:{gpu}" for gpu in gpus}
    for run in snapshot.measurements:
        mine = run.kind == collective and run.outcome == "ok" and set(run.subject.split(",")) == subject
        if mine and run.gbps and run.size_bytes:
            yield run.size_bytes, run.gbps


def _channels(found: predicted.Channels) -> Channels:
    return Channels(found.searched, found.gbps, found.path == "NVL")


def _graph(channels: Channels) -> Graph:
    return Graph(channels.count, round(channels.gbps, 4))


def _capability(snapshot: Snapshot, index: int) -> int:
    gpu = next(gpu for gpu in snapshot.gpus if gpu.index == index)
    of_model = bandwidth.model_of(gpu)
    found = gpu.compute_capability or (of_model.compute_capability if of_model else None)
    if not found or not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", found):
        raise NothingDetermined(
            f"the compute capability of GPU{index} is not known, and NCCL's constants depend on it",
            hint="--assume gpu.name=… supplies that of the model.",
        )
    major, _, minor = found.partition(".")
    return int(major) * 10 + int(minor or 0)


def _traffic(links: LinkModel) -> tuple[float, float]:
    """GB/s of the slowest pair alone, and what each GPU can send when all send to all others."""
    used: dict[int, float] = {}
    slowest = math.inf
    for loads in links.loads.values():
        for link, factor in loads:
            used[link] = used.get(link, 0.0) + factor
        slowest = min(
            [
                slowest,
                *(links.links[link].gbps / factor for link, factor in loads if math.isfinite(links.links[link].gbps)),
            ]
        )
    each = min(links.links[link].gbps / load for link, load in used.items())
    return slowest, each * (len(links.gpus) - 1)


def _nvls(links: LinkModel, capability: int) -> Channels | None:
    """One channel for each GPU, each pulling from all of them and from itself."""
    n = len(links.gpus)
    own = min((link.gbps for link in links.links if link.kind == "nvlink"), default=0.0)
    speeds: tuple[int, ...] = next((speeds for lowest, speeds in _NVLS_SPEEDS if capability >= lowest), ())
    each = next((speed for speed in speeds if speed * (n + 1) <= own), None)
    return Channels(n, each, True, speeds[0]) if each else None
