"""What measured copies mean: is a link as fast as its wires, and if not, what looks like the cause. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from topoadvisor.hardware.catalogue import Band
from topoadvisor.measurements import opinions, runs
from topoadvisor.measurements.model import Measurement
from topoadvisor.topology.links import nvlink_count

Verdict = Literal["pass", "warn", "fail", "unknown"]
Found = Mapping[tuple[str, str], Measurement]
"""(kind, subject) → measurement."""

_NEAR = 0.08
"""Relative distance within which a number counts as half, or as k of n links."""
_CLASS_SHARE = 0.95
"""Machines of one kind scatter by less than 1 % within a class; below this share of the median a pair stands out."""
CLASS_LEAST = 3
"""Directions measured in a class before its median says anything."""
_DUPLEX_LEAST = 1.5
"""Both directions / one direction: 1.9 to 2 on a healthy link, 1 to 1.4 when both share one wire or host memory."""
_DUPLEX_NEAR = 0.95
"""From this share of the usual ratio on, both directions together are as fast as one direction lets them be."""
_PEER_GAIN = 1.05
"""Peer access on / off below this: the peer path is no better than the way through host memory."""
_STAGED_SHARE = 0.8
"""Copies through host memory scatter more than peer copies do: between directions, pairs of a class, and machines."""
_ONE_WIRE = 1.2
"""Both directions / one direction below this share one wire on any machine; across sockets 1.6 to 2 is usual."""
_LINK_NEAR = 0.15
"""Of one NVLink: with many links any rate lies near some number of them, and only close to one is that a hint."""
_HOST_LEAST = 0.7
"""Copies with the host reach 0.8 to 0.9 of what a PCIe link carries before headers."""
_AS_SLOW = 1.25
"""Two rates that one slow link holds down differ by less than this."""


@dataclass(frozen=True)
class PairFacts:
    """Two GPUs, by index, and what their link should reach."""

    a: int
    b: int
    link_class: str | None
    band: Band | None
    """What peer copies should reach; None = no public number."""
    staged: tuple[float, float] | None
    """What copies through host memory reach on such machines, lowest and highest GB/s; None = no public number."""
    slots: tuple[str, ...] = ()
    """PCIe links of the two that run with fewer lanes or a lower generation than the GPU has, in words."""
    down: tuple[str, ...] = ()
    """NVLinks of the two that are down, in words."""
    pcie_gbps: float | None = None
    """What the narrower of the two PCIe links carries one way, for copies through host memory; None = not known."""
    acs: bool | None = None
    """A bridge between the two redirects peer traffic to the root port; None = not read."""
    translated: bool | None = None
    """The IOMMU translates what the two send; None = not read."""
    all_up: bool = False
    """As many NVLinks as the class counts were read as up on both."""


@dataclass(frozen=True)
class Judgement:
    """One pair judged."""

    pair: PairFacts
    forward: Measurement | None
    backward: Measurement | None
    both: Measurement | None
    others: tuple[Measurement, ...]
    """Latency, peer access off, reads, kernels: what else was measured of the pair."""
    hosts: tuple[Measurement, ...]
    """Copies between either of the two and host memory."""
    verdict: Verdict
    cause: str | None
    """One sentence: what looks wrong and why; or what is worth knowing about a pass."""

    @property
    def doubt(self) -> str | None:
        """Why what was measured of it cannot be believed; None when it can be."""
        measured = (self.forward, self.backward, self.both, *self.others)
        return doubt_of_pair(self.pair, [each for each in measured if each])

    @property
    def staged(self) -> bool:
        """CUDA allowed no peer access, so that the copies went through host memory."""
        return any(m.outcome == "ok" and m.peer_access is False for m in (self.forward, self.backward, self.both) if m)

    @property
    def host_gbps(self) -> dict[int, float]:
        """Of each of the two, by index, the slower way between it and host memory, where that was measured."""
        slowest: dict[int, float] = {}
        for run in self.hosts:
            gpu = runs.host_gpu(run)
            if gpu is not None and run.outcome == "ok" and run.gbps:
                slowest[gpu] = min(run.gbps, slowest.get(gpu, run.gbps))
        return slowest

    @property
    def latency_us(self) -> float:
        """Of a small copy, the longer way; 0 = not measured."""
        return max((m.latency_us for m in self.other(runs.LATENCY) if m.latency_us), default=0.0)

    def other(self, *kinds: str) -> list[Measurement]:
        return [measurement for measurement in self.others if measurement.kind in kinds]


def subjects(a: int, b: int) -> tuple[str, str, str]:
    """Snapshot subjects of a pair: one way, back, both at once."""
    return f"gpu:{a}>gpu:{b}", f"gpu:{b}>gpu:{a}", f"gpu:{a}<>gpu:{b}"


def index(measurements: Sequence[Measurement]) -> Found:
    return {(measurement.kind, measurement.subject): measurement for measurement in measurements}


_Alike = tuple[str | None, bool, object]
"""Link class, whether CUDA allows peer access, and what such a link should reach."""

_OTHERS = (
    runs.LATENCY,
    runs.STAGED,
    runs.STAGED_BOTH,
    runs.READ,
    runs.READ_BOTH,
    runs.KERNEL,
    runs.KERNEL_BOTH,
)


_THROUGH_HOST = (runs.TO_HOST, runs.HOST_BOTH, runs.STAGED, runs.STAGED_BOTH)


def judge(pairs: Sequence[PairFacts], measurements: Sequence[Measurement]) -> list[Judgement]:
    """One judgement per pair, in the order given. Every measurement of a pair is looked at; the worst decides."""
    found = index(measurements)
    sound = [pair for pair in pairs if doubt_of_pair(pair, measurements) is None]
    medians = _medians(sound, found)
    staged = _staged_by_class(sound, found)
    judged = []
    for pair in pairs:
        there, back, both = subjects(pair.a, pair.b)
        judgement = Judgement(
            pair,
            found.get((runs.PEER, there)),
            found.get((runs.PEER, back)),
            found.get((runs.PEER_BOTH, both)),
            tuple(
                found[kind, subject] for kind in _OTHERS for subject in (there, back, both) if (kind, subject) in found
            ),
            tuple(m for m in measurements if m.kind == runs.TO_HOST and runs.host_gpu(m) in (pair.a, pair.b)),
            "unknown",
            None,
        )
        verdict, cause = _judge(judgement, medians, staged.get(_alike(pair, peer_access=False)))
        judged.append(replace(judgement, verdict=verdict, cause=cause))
    return _one_gpu_behind_all(judged)


def _staged_by_class(pairs: Sequence[PairFacts], found: Found) -> dict[_Alike, float]:
    """GB/s with peer access off of pairs that are alike: quick measures it for one pair of each class."""
    rates: dict[_Alike, float] = {}
    for pair in pairs:
        for subject in subjects(pair.a, pair.b)[:2]:
            measured = found.get((runs.STAGED, subject))
            if measured and measured.outcome == "ok" and measured.gbps:
                rates.setdefault(_alike(pair, peer_access=False), measured.gbps)
    return rates


def _one_gpu_behind_all(judged: list[Judgement]) -> list[Judgement]:
    """Where every pair of one GPU is bad and no other pair is, the GPU is named."""
    bad = [each for each in judged if each.verdict in ("warn", "fail")]
    good = [each for each in judged if each.verdict == "pass"]
    if len(bad) < CLASS_LEAST - 1 or not good or len(bad) + len(good) < len(judged):
        return judged
    common = set.intersection(*({each.pair.a, each.pair.b} for each in bad))
    sick = next((gpu for gpu in common if all(gpu not in (each.pair.a, each.pair.b) for each in good)), None)
    if sick is None:
        return judged
    told = f"; all pairs of GPU{sick} are like this and no others, so look at GPU{sick} first"
    return [replace(each, cause=f"{each.cause}{told}") if each in bad else each for each in judged]


def _alike(pair: PairFacts, *, peer_access: bool) -> _Alike:
    """What a pair is held against others by: a GPU with fewer lanes or of another generation is no worse for it."""
    expected = (pair.band and pair.band.expected_uni) if peer_access else pair.staged
    return pair.link_class, peer_access, expected


def _medians(pairs: Sequence[PairFacts], found: Found) -> dict[_Alike, float]:
    """Median GB/s one way of the pairs that are alike, where enough was measured."""
    values: dict[_Alike, list[float]] = {}
    for pair in pairs:
        for subject in subjects(pair.a, pair.b)[:2]:
            measured = found.get((runs.PEER, subject))
            if measured and measured.outcome == "ok" and measured.gbps and pair.link_class:
                alike = _alike(pair, peer_access=bool(measured.peer_access))
                values.setdefault(alike, []).append(measured.gbps)
    return {key: statistics.median(found) for key, found in values.items() if len(found) >= CLASS_LEAST}


def _judge(judgement: Judgement, medians: Mapping[_Alike, float], staged: float | None) -> tuple[Verdict, str | None]:
    pair, both = judgement.pair, judgement.both
    measured = [each for each in (judgement.forward, judgement.backward, both) if each]
    broken = broken_by([*measured, *judgement.others], pair.link_class)
    if broken:
        return "fail", broken
    one_way = [m.gbps for m in (judgement.forward, judgement.backward) if m and m.outcome == "ok" and m.gbps]
    if not one_way:
        reasons = [m.note for m in measured if m.note]
        return "unknown", f"not measured: {reasons[0]}" if reasons else "not measured"
    if doubted := judgement.doubt:
        return "unknown", doubted
    slower = min(one_way)
    duplex = both.gbps / slower if both and both.outcome == "ok" and both.gbps else None
    median = medians.get(_alike(pair, peer_access=not judgement.staged))
    if judgement.staged:
        return _judge_staged(judgement, slower, max(one_way), median)
    if any(m.peer_access is None for m in measured if m.outcome == "ok"):
        return "unknown", "whether CUDA allowed peer access was not recorded"
    verdict, cause = _judge_peer(judgement, slower, max(one_way), both.gbps if both else None, duplex, staged)
    small = too_small(measured)
    if verdict != "pass" and pair.band is not None and small:
        return "unknown", small
    if verdict in ("pass", "unknown") and median and slower < _CLASS_SHARE * median:
        return "warn", f"{1 - slower / median:.0%} below the other {pair.link_class} pairs of this machine"
    if verdict in ("pass", "unknown") and pair.slots and not nvlink_count(pair.link_class or ""):
        return "warn", f"{'; '.join(pair.slots)}: the pair is as fast as that allows"
    if verdict in ("pass", "unknown") and pair.down:
        return "warn", f"{'; '.join(pair.down)}: the pair is as fast as the others allow"
    if verdict in ("pass", "unknown"):
        seen, odd = _second_look(judgement)
        return (seen, odd) if verdict == "pass" or seen == "warn" else (verdict, cause)
    return verdict, cause


def doubt_of_pair(pair: PairFacts, measurements: Sequence[Measurement]) -> str | None:
    """Why copies of this pair cannot be believed: one is faster than the wires that it takes; None when all can be."""
    own = [m for m in measurements if m.subject in subjects(pair.a, pair.b)]
    direct = [m for m in own if not runs.through_host(m)]
    staged = [m for m in own if runs.through_host(m)]
    told = runs.doubt(direct, pair.band.theoretical_uni, pair.link_class or "?") if pair.band else None
    return told or (runs.doubt(staged, pair.pcie_gbps, "PCIe") if pair.pcie_gbps else None)


def _second_look(judgement: Judgement) -> tuple[Verdict, str | None]:
    """What is odd about a pair whose bandwidth is as it should be, or of which nobody knows what it should be."""
    measured = [each for each in (judgement.forward, judgement.backward, judgement.both) if each]
    missing = next((each for each in measured if each.outcome == "skipped"), None)
    if missing is not None:
        return "unknown", f"{runs.in_words(missing.subject)} was not measured: {missing.note}"
    told = opinions.odd([*measured, *judgement.others])
    return ("pass", None) if told is None else ("warn", told)


def broken_by(measured: Sequence[Measurement], link_class: str | None = None) -> str | None:
    """What went wrong with the first copy that did; `link_class` joins its ends, None = not known."""
    wrong = [m for m in measured if runs.ended(m) == "wrong-data"]
    if wrong:
        return f"the data that arrived is wrong ({wrong[0].note}): never trust this path, whatever its speed"
    hung = [m for m in measured if runs.ended(m) == "timeout"]
    if hung:
        told = f"the copy {runs.in_words(hung[0].subject)} never ended ({hung[0].note})"
        if hung[0].kind in _THROUGH_HOST:
            return (
                f"{told}: it takes no peer path, so look for Xid errors in the kernel log, and at the GPU's PCIe link"
            )
        if link_class is not None and nvlink_count(link_class):
            return f"{told}: look for Xid errors, NVLinks that are down, and, with NVSwitches, at the fabric manager"
        return f"{told}: ACS or the IOMMU may send peer traffic astray"
    dead = [m for m in measured if runs.ended(m) in ("crashed", "error")]
    if dead:
        return f"the copy {runs.in_words(dead[0].subject)} failed ({dead[0].note})"
    return None


def too_small(measured: Sequence[Measurement]) -> str | None:
    """Why the rates of these copies cannot be held against published ones; None when they can."""
    smallest = min((m.size_bytes for m in measured if m.size_bytes), default=runs.LARGE_BYTES)
    if smallest >= runs.LARGE_BYTES:
        return None
    return f"buffers of {smallest / (1 << 20):g} MiB are too small to hold against published numbers"


def _judge_staged(
    judgement: Judgement, slower: float, faster: float, median: float | None
) -> tuple[Verdict, str | None]:
    """Peer access is not allowed, so the copies went through host memory."""
    pair = judgement.pair
    if pair.link_class and nvlink_count(pair.link_class):
        return (
            "fail",
            "CUDA allows no peer access although NVLink joins the pair: copies are staged through host memory",
        )
    staged = "no peer access: copies are staged through host memory"
    low, high = pair.staged or (0.0, 0.0)
    behind = f"; {told}" if (told := _slow_way_to_host(judgement, slower)) else ""
    if slower < _STAGED_SHARE * low:
        return "warn", f"{staged}, slower than elsewhere ({low:g} to {high:g} GB/s){behind}"
    if slower < _STAGED_SHARE * faster:
        return "warn", f"{staged}, and one direction is slow{behind}"
    if median and slower < _STAGED_SHARE * median:
        share = 1 - slower / median
        return "warn", f"{staged}, {share:.0%} slower than the other {pair.link_class} pairs of this machine{behind}"
    if pair.slots:
        return "warn", f"{staged}; {'; '.join(pair.slots)}"
    if odd := opinions.unsteady([m for m in (judgement.forward, judgement.backward, judgement.both) if m]):
        return "warn", f"{staged}; {odd}"
    if pair.staged is None:
        return "unknown", f"{staged}, and no public number says how fast that should be"
    return "pass", f"{staged} ({low:g} to {high:g} GB/s elsewhere)"


def _slow_way_to_host(judgement: Judgement, gbps: float) -> str | None:
    """The GPU whose own PCIe link holds a copy of `gbps` down, by its copies with the host; None = none that shows."""
    slowest = judgement.host_gbps
    if not slowest or judgement.pair.pcie_gbps is None:
        return None
    gpu = min(slowest, key=lambda each: slowest[each])
    rate = slowest[gpu]
    if rate >= _HOST_LEAST * judgement.pair.pcie_gbps or max(rate, gbps) > _AS_SLOW * min(rate, gbps):
        return None
    return (
        f"copies between GPU{gpu} and the host reach only {rate:.1f} GB/s, too, so look at GPU{gpu}'s slot, and at "
        "PCIe generation and width while a copy runs"
    )


def _judge_peer(
    judgement: Judgement,
    slower: float,
    faster: float,
    both: float | None,
    duplex: float | None,
    class_staged: float | None,
) -> tuple[Verdict, str | None]:
    pair, band = judgement.pair, judgement.pair.band
    no_gain = _no_gain(judgement, slower, faster, class_staged)
    if no_gain:
        # Over NVLink a measured staged path of the same speed is the proof that NVLink is not used.
        broken = nvlink_count(pair.link_class or "") or (band and against(slower, band.expected_uni, band) == "fail")
        return "fail" if broken else "warn", no_gain
    shares_a_wire = duplex is not None and duplex < _DUPLEX_LEAST
    if band is None:
        if shares_a_wire:
            return "warn", f"both directions together are only {duplex:.1f} × one: {_shared(pair)}"
        return "unknown", f"no public number says what {pair.link_class or 'this pair'} should reach"
    verdict = against(slower, band.expected_uni, band)
    if verdict != "pass":
        return verdict, _why_slow(judgement, band, slower, faster, duplex)
    if both is not None and duplex is not None and band.expected_bi is not None:
        if duplex >= _DUPLEX_NEAR * band.expected_bi / band.expected_uni:
            return "pass", None
        verdict = against(both, band.expected_bi, band)
        if verdict != "pass":
            return verdict, f"both directions together are only {duplex:.1f} × one: {_shared(pair)}"
    if band.expected_bi is None and duplex is not None and duplex < _ONE_WIRE:
        return "warn", f"both directions together are only {duplex:.1f} × one: {_shared(pair)}"
    return "pass", None


def _no_gain(judgement: Judgement, slower: float, faster: float, class_staged: float | None) -> str | None:
    """Peer access on and off compared, where the peer path is no faster; off may be of another pair of the class."""
    own = next((m.gbps for m in judgement.other(runs.STAGED) if m.outcome == "ok" and m.gbps), None)
    staged = own or class_staged
    band = judgement.pair.band
    usual = band is not None and against(slower, band.expected_uni, band) == "pass"
    as_usual = usual and slower >= 0.9 * (staged or 0)
    in_one_direction = slower < 0.9 * faster and faster >= _PEER_GAIN * (staged or 0)
    if staged is None or slower >= _PEER_GAIN * staged or as_usual or in_one_direction:
        return None
    alike = "" if own else f" on another {judgement.pair.link_class} pair"
    told = f"with peer access {slower:.1f} GB/s, without it, through host memory, {staged:.1f}{alike}"
    links = nvlink_count(judgement.pair.link_class or "")
    if links:
        return f"{told}: the copies do not run over NVLink"
    if slow := _slow_way_to_host(judgement, slower):
        return f"{told}: {slow}"
    if slower >= 0.9 * staged and judgement.latency_us >= opinions.STAGED_LATENCY_US:
        return (
            f"{told}, and a small copy takes {judgement.latency_us:.0f} µs: it runs through host memory, though CUDA "
            "allows peer access"
        )
    if slower < 0.9 * staged:
        why = _redirected(judgement.pair)
        if usual and not judgement.pair.acs:
            why = f"{judgement.pair.link_class} pairs are no faster elsewhere, so nothing is broken"
        return f"{told}: {why}; `topoadvisor prove NCCL_P2P_DISABLE=1` tells what NCCL gains"
    return f"{told}: peer access gains nothing; {_redirected(judgement.pair)}"


def _shared(pair: PairFacts) -> str:
    if nvlink_count(pair.link_class or ""):
        return "NVLink carries both at full speed, so check its errors and replays, and what else uses the two GPUs"
    if pair.acs:
        return "ACS on the bridges between them sends both through the root port"
    if pair.acs is False:
        return "they share an uplink"
    return "they share an uplink, or ACS sends them through the root port"


def _redirected(pair: PairFacts) -> str:
    if pair.acs:
        return "ACS on the bridges between them redirects peer traffic"
    suspects = [name for name, off in (("the IOMMU", pair.translated), ("ACS", pair.acs)) if off is not False]
    if not suspects:
        return "neither the IOMMU nor ACS redirects peer traffic"
    return f"{' or '.join(suspects)} may redirect peer traffic"


def against(gbps: float, expected: float, band: Band) -> Verdict:
    """The band's limits are shares of what is expected one way; both directions are held to the same shares."""
    share = gbps / expected
    if share < band.fail_below / band.expected_uni:
        return "fail"
    return "warn" if share < band.warn_below / band.expected_uni else "pass"


def _why_slow(judgement: Judgement, band: Band, slower: float, faster: float, duplex: float | None) -> str:
    pair = judgement.pair
    share = slower / band.expected_uni
    what = f"{share:.0%} of what {pair.link_class} reaches elsewhere"
    links = nvlink_count(pair.link_class or "")
    slow_start = judgement.latency_us >= opinions.STAGED_LATENCY_US
    staged_like = pair.staged is not None and slower <= 1.1 * pair.staged[1] and (duplex or 2) < _DUPLEX_LEAST
    if slower < 0.9 * faster:
        return f"{what}, in one direction only: look for errors and replays on that direction's links"
    slow_host = None if links else _slow_way_to_host(judgement, slower)
    if slow_host:
        return f"{what}: {slow_host}"
    if staged_like:
        over = "not over NVLink but " if links else ""
        and_latency = f", and a small copy takes {judgement.latency_us:.0f} µs" if slow_start else ""
        by_acs = f"; {_redirected(pair)}" if pair.acs and not links else ""
        return f"{what}: it runs {over}through host memory, though CUDA allows peer access{and_latency}{by_acs}"
    if links:
        return f"{what}: {_slow_nvlinks(pair, share, links)}"
    if pair.acs:
        return f"{what}: {_redirected(pair)}"
    if pair.slots:
        return f"{what}: {'; '.join(pair.slots)}"
    to_host = judgement.host_gbps
    if len(to_host) == 2 and min(to_host.values()) > _AS_SLOW * slower:
        between = "what else uses the link between the sockets" if pair.link_class == "SYS" else "a shared uplink"
        ruled_out = pair.translated is False and pair.acs is False
        other = "" if ruled_out else f"{_redirected(pair)}, or "
        return f"{what}, and copies with the host are faster: {other}it is {between}"
    return f"{what}: {by_lanes(share) or (_redirected(pair) if share < 0.4 else _under_load(pair))}"


def _slow_nvlinks(pair: PairFacts, share: float, links: int) -> str:
    if pair.down:
        return "; ".join(pair.down)
    working = round(share * links)
    near = 0 < working < links and abs(share * links - working) <= min(_NEAR * working, _LINK_NEAR)
    if pair.all_up:
        so_many = f", as fast as {working} would be" if near else ""
        return f"all {links} NVLinks are up{so_many}, so check their errors and replays, and what else uses the GPUs"
    return f"as fast as {working} of {links} links" if near else "check the NVLinks' state, errors and counters"


def by_lanes(share: float) -> str | None:
    for part, reason in (
        (0.5, "half the lanes (x8) or one PCIe generation less"),
        (0.25, "a quarter of the lanes (x4) or two PCIe generations less"),
        (0.125, "an eighth of the lanes (x2) or three PCIe generations less"),
    ):
        if abs(share / part - 1) <= _NEAR:
            return f"as fast as {reason}"
    return None


def _under_load(pair: PairFacts) -> str:
    between = "look at what else uses the link between the sockets, and " if pair.link_class == "SYS" else ""
    return f"{between}check PCIe generation and width while the copy runs"
