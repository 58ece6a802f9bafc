"""What collectives cost on a machine: NCCL's channels as its search finds them, put through NCCL's own estimate."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import msgspec

from topoadvisor import planning, ways
from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.ingest import assume
from topoadvisor.measurements import counted, runs
from topoadvisor.measurements.model import Measurement
from topoadvisor.nccl import reading
from topoadvisor.nccl.settings import SettingInfo, in_force, registry
from topoadvisor.numbers import size_text
from topoadvisor.plan import cost as model
from topoadvisor.plan import link_model
from topoadvisor.plan.cost import Channels, Collective, Fabric
from topoadvisor.plan.link_model import LinkModel
from topoadvisor.predict import document as predicted
from topoadvisor.predict import predict
from topoadvisor.predict.outlook import Asked, Outlook, Searches, look
from topoadvisor.predict.variables import DECISIVE
from topoadvisor.rules import facts
from topoadvisor.rules.facts import Known
from topoadvisor.snapshot import Setting, Snapshot
from topoadvisor.topology import bandwidth, graph, nccl_view

SCHEMA: Final = "topoadvisor.cost/1"

TABLE: Final = tuple(1 << power for power in (10, 13, 16, 18, 20, 22, 23, 24, 26, 28, 30, 32))
"""Sizes that are shown when none is asked for, bytes."""

_NVLS_SPEEDS: Final = ((100, (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)), (90, (60, 50, 40, 30, 24, 20, 15, 12)))
"""GB/s that NCCL's search tries for a channel (`src/graph/search.cc`), by compute capability × 10."""


_LAST_GBPS: Final = 0.005
_LAST_US: Final = 0.05
"""Half of the last digit that a measured rate or time is written with."""

_FALLS: Final = 1.5
"""Times of small messages scatter by a fifth."""

_LIMITS: Final = (
    *("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS"),
    *("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_PROTO"),
)
"""Variables that a prediction depends on, and NCCL's estimate here does not."""
_BETWEEN_HOSTS: Final = ("NCCL_IB_", "NCCL_NET_", "NCCL_SOCKET_", "NCCL_NSOCKS_")
_MOST_NAMED: Final = 6


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
    basis: model.Basis
    """What the time stands on: `measured` at this size, `interpolated` between measured sizes, `extrapolated` beyond
    them, or NCCL's estimate alone (`estimated`)."""
    algbw_gbps: float
    busbw_gbps: float
    ways: list[Way]
    """All of them, the fastest first, at the time of the row and as NCCL's estimates relate."""


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
    warnings: list[str]
    """Why it may not be like that: what failed when it was measured, and settings that NCCL fails with or misreads."""
    notes: list[str]


class Estimator:
    """Costs of jobs over parts of one machine."""

    def __init__(self, snapshot: Snapshot) -> None:
        snapshot = msgspec.structs.replace(snapshot, settings=assume.settings(snapshot))
        topology = graph.build(snapshot)
        self._facts = facts.gather(snapshot, topology)
        snapshot, failing = predict.running(snapshot, self._facts)
        self._snapshot = snapshot
        self._settings = [*_failing(failing), *_misread(snapshot), *_left_out(snapshot)]
        measured = counted.of(snapshot, topology)
        self._measurements, self._doubted, self._otherwise = measured.counted, measured.doubted, measured.otherwise
        self._topology = topology
        self.machine = planning.Machine(snapshot, "nccl")
        self._searches = Searches()
        self._found: dict[tuple[int, ...], tuple[Fabric, list[str], str]] = {}

    def warnings(self, gpus: Sequence[int], collectives: Collection[Collective]) -> list[str]:
        """Why these collectives over these GPUs may fail, or take another time."""
        mine = [run for run in self._runs(gpus) if run.kind in collectives]
        ends = {f"gpu:{gpu}" for gpu in gpus}
        doubted = [why for run, why in self._doubted if run.kind in collectives and set(runs.ends(run)) == ends]
        otherwise = [how for run, how in self._otherwise if run.kind in collectives and set(runs.ends(run)) == ends]
        return [
            *self._settings,
            *(f"Measured {how}, so that is not counted." for how in dict.fromkeys(otherwise)),
            *self._failed_pairs(gpus, mine),
            *self._slow_pairs(gpus, mine),
            *self._failed(gpus, mine),
            *(f"Doubted, and not counted: {why}." for why in doubted),
            *self._made_elsewhere(mine),
            *_falling(mine),
        ]

    def _broken(self, gpus: Sequence[int]) -> list[str]:
        """`GPU0–GPU1 (timeout)`: pairs among these GPUs whose copies failed on the way that NCCL takes between them."""
        ways_taken = ways.transports(self._facts, ways.in_force(self._facts), gpus=len(gpus))
        told = []
        for (a, b), failure in ways.failures(self._facts).items():
            way = ways_taken.get((f"gpu:{a}", f"gpu:{b}"))
            direct = failure.direct if way in ("P2P", None) else None
            staged = failure.staged if way != "P2P" else None
            if {a, b} <= set(gpus) and (how := direct or staged):
                told.append(f"GPU{a}–GPU{b} ({how}{'' if direct else ' through host memory'})")
        return told

    def _failed_pairs(self, gpus: Sequence[int], mine: Sequence[Measurement]) -> Iterator[str]:
        if told := self._broken(gpus):
            unused = ", so collectives that were measured over them are not counted" if mine else ""
            yield f"Copies failed when they were measured, and NCCL may use these links: {_some(told)}{unused}."

    def _slow_pairs(self, gpus: Sequence[int], mine: Sequence[Measurement]) -> Iterator[str]:
        """Pairs of which NCCL's model knows the wires alone; a measured collective went over them as they are."""
        told = []
        for pair in self._facts.subjects["pair"]:
            a, b = (int(end.removeprefix("gpu:")) for end in pair.id.split("-"))
            verdict, rate, usual = (
                fact.value if isinstance(fact := pair.facts[f"pair.measured.{name}"], Known) else None
                for name in ("verdict", "uni_gbps", "usual_gbps")
            )
            if {a, b} <= set(gpus) and not mine and verdict == "fail" and rate and usual:
                told.append(f"GPU{a}–GPU{b} ({rate:.4g} GB/s instead of {usual:.4g})")
        if told:
            yield (
                "NCCL's model knows the wires alone, and measured copies are far slower than such links are elsewhere: "
                f"{_some(told)}."
            )

    def _made_elsewhere(self, mine: Sequence[Measurement]) -> Iterator[str]:
        """What the newest measurements were made with, where this machine has another."""
        version, driver = nccl_view.version(self._snapshot)[0], self._snapshot.driver.version
        libraries = {found for run in mine if (found := runs.nccl_version(run))} - {version}
        drivers = runs.other_drivers(mine, driver)
        if libraries:
            yield f"Measured with NCCL {', '.join(sorted(libraries))}, and this is {version}."
        if drivers:
            yield f"Measured with driver {', '.join(drivers)}, and this is {driver}."

    def _failed(self, gpus: Sequence[int], mine: Sequence[Measurement]) -> Iterator[str]:
        broken = [
            f"{run.kind}{f' of {size_text(run.size_bytes)}' if run.size_bytes else ''} ({runs.ended(run)})"
            for run in mine
            if runs.failed(run)
        ]
        if broken:
            over = ", ".join(f"GPU{gpu}" for gpu in gpus)
            yield f"Failed over {over} when it was measured, and is not counted: {_some(broken)}."

    def _runs(self, gpus: Sequence[int]) -> Iterator[Measurement]:
        subject = {f"gpu:{gpu}" for gpu in gpus}
        return (run for run in self._measurements if runs.collective(run) and set(runs.ends(run)) == subject)

    def rows(self, gpus: Sequence[int], collective: Collective, sizes: Sequence[int]) -> tuple[list[Row], list[int]]:
        """One row per size, and the sizes that were measured. Raises NothingDetermined as `fabric` does."""
        fabric, _, _ = self.fabric(gpus)
        measured = {
            run.size_bytes: time
            for run in (self._runs(gpus) if not self._broken(gpus) else ())
            if run.kind == collective and run.size_bytes and (time := _took(run, fabric.ranks)) is not None
        }
        most = counted.most_busbw(self._topology, [f"gpu:{gpu}" for gpu in gpus], collective) or math.inf
        calibration = model.calibrate(fabric, collective, measured)
        return [_row(fabric, collective, size, calibration, most) for size in sizes], sorted(measured)

    def fabric(self, gpus: Sequence[int]) -> tuple[Fabric, list[str], str]:
        """What NCCL reckons with for these GPUs, what was taken for granted, and its version.

        Raises NothingDetermined where its search cannot be repeated, or bandwidths are not known.
        """
        key = tuple(sorted(gpus))
        if key not in self._found:
            if (why := ways.no_plan(self._facts, ways.in_force(self._facts), key)) is not None:
                raise NothingDetermined(f"nothing is estimated: {why}", hint=planning.LEAVE_OUT)
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
        ring, tree = _channels(group.rings), _channels(group.trees) if group.trees else None
        if ring.gbps <= predicted.PLACEHOLDER_GBPS:
            orders = [[int(gpu.removeprefix("GPU")) for gpu in order] for order in group.rings.orders]
            ring, tree = replace(ring, gbps=link_model.together(orders, links)), None
            notes.append(
                f"NCCL's search finds no ring here and notes {predicted.PLACEHOLDER_GBPS:g} GB/s in its place: the "
                f"GPUs in their own order are taken at the {ring.gbps:.4g} GB/s that their links carry, and trees are "
                "left out."
            )
        pair, everyone = _traffic(links)
        nvls = _nvls(links, capability) if features.get("NVLS") == "on" else None
        if features.get("NVLS") == "unknown" and capability >= 90:
            notes.append("Whether NVLS works here is not known; it is left out.")
        if nvls is not None:
            notes.append("NVLS: its channels follow from the bandwidth of a GPU, as on H100; they are not searched.")
        fabric = Fabric(
            ranks=len(gpus),
            capability=capability,
            ring=ring,
            tree=tree,
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
    rows, measured = estimator.rows(chosen, collective, sizes or TABLE)
    return Document(
        collective=collective,
        nccl=version,
        gpus=chosen,
        rings=_graph(fabric.ring),
        trees=_graph(fabric.tree) if fabric.tree else None,
        nvls=_graph(fabric.nvls) if fabric.nvls else None,
        calibrated_by=measured,
        rows=rows,
        warnings=estimator.warnings(chosen, [collective]),
        notes=notes,
    )


def _row(fabric: Fabric, collective: Collective, size: int, calibration: model.Calibration, most_gbps: float) -> Row:
    """`most_gbps`: the bus bandwidth that the links let it have, which no run at another size can take it beyond."""
    ways = model.estimates(fabric, collective, size)
    time_us, basis = calibration.time_us(size, ways[0].time_us), calibration.basis(size)
    if basis in ("interpolated", "extrapolated"):
        time_us = max(time_us, size * runs.bus_factor(collective, fabric.ranks) / most_gbps / 1000)
    longer = time_us / ways[0].time_us
    algbw = size / time_us / 1000
    return Row(
        size_bytes=size,
        algorithm=ways[0].algorithm,
        protocol=ways[0].protocol,
        time_us=round(time_us, 3),
        basis=basis,
        algbw_gbps=round(algbw, 4),
        busbw_gbps=round(algbw * runs.bus_factor(collective, fabric.ranks), 4),
        ways=[Way(each.algorithm, each.protocol, round(each.time_us * longer, 3)) for each in ways],
    )


def _took(run: Measurement, ranks: int) -> float | None:
    """µs of a measured collective, by its rate or its time, whichever is written more exactly; None if it failed."""
    if runs.failed(run) or not run.size_bytes:
        return None
    rate, time = run.gbps or 0.0, run.latency_us or 0.0
    by_rate = rate > 0 and (time <= 0 or _LAST_GBPS / rate <= _LAST_US / time)
    if by_rate:
        return run.size_bytes * runs.bus_factor(run.kind, ranks) / rate / 1000
    return time or None


def _falling(mine: Sequence[Measurement]) -> Iterator[str]:
    """Where a larger message took much less time than a smaller one: one of the two was disturbed."""
    for kind in dict.fromkeys(run.kind for run in mine):
        took = [
            (run.size_bytes or 0, time)
            for run in mine
            if run.kind == kind and (time := _took(run, len(runs.ends(run)))) is not None
        ]
        for (size, time), (larger, less) in pairwise(sorted(took)):
            if time > _FALLS * less:
                yield f"{kind} of {size_text(size)} took longer than of {size_text(larger)}: measure it again."


def _failing(found: Iterable[predicted.Failure]) -> Iterator[str]:
    for each in found:
        told = f"NCCL does not run with {each.name}={each.value} ({each.origin}): {each.why}."
        yield f"{told} What follows is without it."


def _misread(snapshot: Snapshot) -> Iterator[str]:
    for setting, info, version in _read_by_nccl(snapshot):
        read = reading.read(info, setting.value, version)
        counts = setting.name in DECISIVE or info.setting_class == "tuning"
        if counts and read is not None and read.surprises:
            yield f"{setting.name}={setting.value} ({setting.place}): {'; '.join(read.surprises)}."


def _left_out(snapshot: Snapshot) -> Iterator[str]:
    """Settings that change how long collectives take, and that nothing here reckons with."""
    told = [
        f"{setting.name}={setting.value}"
        for setting, info, _ in _read_by_nccl(snapshot)
        if setting.value
        and info.setting_class == "tuning"
        and (setting.name not in DECISIVE or setting.name in _LIMITS)
        and not setting.name.startswith(_BETWEEN_HOSTS)
    ]
    if told:
        yield f"In force, and not in the estimate: {_some(told)}."


def _read_by_nccl(snapshot: Snapshot) -> Iterator[tuple[Setting, SettingInfo, str]]:
    version, _ = nccl_view.version(snapshot)
    for setting in in_force(snapshot.settings or ()):
        info = registry()[setting.name]
        if info.parser is not None and info.exists_in(version):
            yield setting, info, version


def _some(told: Sequence[str]) -> str:
    more = f" and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    return f"{', '.join(told[:_MOST_NAMED])}{more}"


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
