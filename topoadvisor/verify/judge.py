"""What measured peer copies mean: is a pair as fast as its wires, and if not, what looks like the cause. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from topoadvisor.hardware.catalogue import Band
from topoadvisor.snapshot import Measurement
from topoadvisor.topology.links import nvlink_count

Verdict = Literal["pass", "warn", "fail", "unknown"]

_NEAR = 0.08
"""Relative distance within which a number counts as half, or as k of n links."""
_CLASS_SHARE = 0.95
"""Machines of one kind scatter by less than 1 % within a class; below this share of the median a pair stands out."""
_CLASS_LEAST = 3
"""Directions measured in a class before its median says anything."""
_DUPLEX_LEAST = 1.5
"""Both directions / one direction: 1.9 to 2 on a healthy link, 1 to 1.4 when both share one wire or host memory."""
_LARGE_BYTES = 128 << 20
"""Published numbers are of 256 MiB and more; from half of that on, the start of a copy costs less than 1 %."""
_IMPOSSIBLE = 1.05
"""Faster than the link's rate by more than this: not the link we think it is."""


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


@dataclass(frozen=True)
class Judgement:
    """One pair judged."""

    pair: PairFacts
    forward: Measurement | None
    backward: Measurement | None
    both: Measurement | None
    verdict: Verdict
    cause: str | None
    """One sentence: what looks wrong and why; or what is worth knowing about a pass."""


def subjects(a: int, b: int) -> tuple[str, str, str]:
    """Snapshot subjects of a pair: one way, back, both at once."""
    return f"gpu:{a}>gpu:{b}", f"gpu:{b}>gpu:{a}", f"gpu:{a}<>gpu:{b}"


def judge(pairs: Sequence[PairFacts], measurements: Sequence[Measurement]) -> list[Judgement]:
    """One judgement per pair, in the order given. Every measurement of a pair is looked at; the worst decides."""
    by_subject = {measurement.subject: measurement for measurement in measurements}
    medians = _medians(pairs, by_subject)
    judged = []
    for pair in pairs:
        forward, backward, both = (by_subject.get(subject) for subject in subjects(pair.a, pair.b))
        verdict, cause = _judge(pair, forward, backward, both, medians)
        judged.append(Judgement(pair, forward, backward, both, verdict, cause))
    return judged


def _medians(pairs: Sequence[PairFacts], by_subject: Mapping[str, Measurement]) -> dict[tuple[str, bool], float]:
    """Median GB/s one way per link class and peer access, where enough was measured."""
    values: dict[tuple[str, bool], list[float]] = {}
    for pair in pairs:
        for subject in subjects(pair.a, pair.b)[:2]:
            measured = by_subject.get(subject)
            if measured and measured.outcome == "ok" and measured.gbps and pair.link_class:
                values.setdefault((pair.link_class, bool(measured.peer_access)), []).append(measured.gbps)
    return {key: statistics.median(found) for key, found in values.items() if len(found) >= _CLASS_LEAST}


def _judge(
    pair: PairFacts,
    forward: Measurement | None,
    backward: Measurement | None,
    both: Measurement | None,
    medians: Mapping[tuple[str, bool], float],
) -> tuple[Verdict, str | None]:
    measured = [measurement for measurement in (forward, backward, both) if measurement]
    broken = _broken(measured)
    if broken:
        return "fail", broken
    one_way = [m.gbps for m in (forward, backward) if m and m.outcome == "ok" and m.gbps]
    if not one_way:
        reasons = [m.note for m in measured if m.note]
        return "unknown", f"not measured: {reasons[0]}" if reasons else "not measured"
    slower = min(one_way)
    duplex = both.gbps / slower if both and both.outcome == "ok" and both.gbps else None
    peer_access = all(m.peer_access for m in measured if m.outcome == "ok")
    if not peer_access:
        return _judge_staged(pair, slower)
    verdict, cause = _judge_peer(pair, slower, max(one_way), both.gbps if both else None, duplex)
    smallest = min((m.size_bytes for m in measured if m.size_bytes), default=_LARGE_BYTES)
    if verdict != "pass" and pair.band is not None and smallest < _LARGE_BYTES:
        return "unknown", f"buffers of {smallest / (1 << 20):g} MiB are too small to hold against published numbers"
    median = medians.get((pair.link_class or "", True))
    if verdict in ("pass", "unknown") and median and slower < _CLASS_SHARE * median:
        return "warn", f"{1 - slower / median:.0%} below the other {pair.link_class} pairs of this machine"
    return verdict, cause


def _broken(measured: Sequence[Measurement]) -> str | None:
    wrong = [m for m in measured if m.outcome == "wrong-data"]
    if wrong:
        return f"the data that arrived is wrong ({wrong[0].note}): never trust this path, whatever its speed"
    hung = [m for m in measured if m.outcome == "timeout"]
    if hung:
        return (
            f"the copy {_arrow(hung[0])} never ended ({hung[0].note}): ACS or the IOMMU may send peer traffic astray, "
            "or the fabric manager is not ready"
        )
    dead = [m for m in measured if m.outcome in ("crashed", "error")]
    if dead:
        return f"the copy {_arrow(dead[0])} failed ({dead[0].note})"
    return None


def _arrow(measurement: Measurement) -> str:
    return measurement.subject.replace("gpu:", "GPU").replace("<>", " ↔ ").replace(">", " → ")


def _judge_staged(pair: PairFacts, gbps: float) -> tuple[Verdict, str]:
    """Peer access is not allowed, so the copies went through host memory."""
    if pair.link_class and nvlink_count(pair.link_class):
        return (
            "fail",
            "CUDA allows no peer access although NVLink joins the pair: copies are staged through host memory",
        )
    staged = "no peer access: copies are staged through host memory"
    if pair.staged is None:
        return "unknown", f"{staged}, and no public number says how fast that should be"
    low, high = pair.staged
    if gbps < 0.8 * low:
        return "warn", f"{staged}, slower than elsewhere ({low:g} to {high:g} GB/s)"
    return "pass", f"{staged} ({low:g} to {high:g} GB/s elsewhere)"


def _judge_peer(
    pair: PairFacts, slower: float, faster: float, both: float | None, duplex: float | None
) -> tuple[Verdict, str | None]:
    band = pair.band
    shares_a_wire = duplex is not None and duplex < _DUPLEX_LEAST
    if band is None:
        if shares_a_wire:
            return "warn", f"both directions together are only {duplex:.1f} × one: {_SHARED}"
        return "unknown", f"no public number says what {pair.link_class or 'this pair'} should reach"
    if faster > _IMPOSSIBLE * band.theoretical_uni:
        return "warn", f"faster than {pair.link_class} can be: the link is not what the topology says"

    verdict = _against(slower, band.expected_uni, band)
    if verdict != "pass":
        return verdict, _why_slow(pair, band, slower, faster, duplex)
    if both is not None and band.expected_bi is not None:
        verdict = _against(both, band.expected_bi, band)
        if verdict != "pass":
            return verdict, f"both directions together are only {duplex or 0:.1f} × one: {_SHARED}"
    return "pass", None


_SHARED = "they share an uplink, or ACS sends them through the root port"


def _against(gbps: float, expected: float, band: Band) -> Verdict:
    """The band's limits are shares of what is expected one way; both directions are held to the same shares."""
    share = gbps / expected
    if share < band.fail_below / band.expected_uni:
        return "fail"
    return "warn" if share < band.warn_below / band.expected_uni else "pass"


def _why_slow(pair: PairFacts, band: Band, slower: float, faster: float, duplex: float | None) -> str:
    share = slower / band.expected_uni
    what = f"{share:.0%} of what {pair.link_class} reaches elsewhere"
    links = nvlink_count(pair.link_class or "")
    staged_like = pair.staged is not None and slower <= 1.1 * pair.staged[1] and (duplex or 2) < _DUPLEX_LEAST
    if slower < 0.9 * faster:
        return f"{what}, in one direction only: look for errors and replays on that direction's links"
    if staged_like:
        over = "not over NVLink but " if links else ""
        return f"{what}: it runs {over}through host memory, though CUDA allows peer access"
    if links:
        working = round(share * links)
        if 0 < working < links and abs(share * links - working) <= _NEAR * working:
            return f"{what}: as fast as {working} of {links} links"
        return f"{what}: check the NVLinks' state, errors and counters"
    for part, reason in (
        (0.5, "half the lanes (x8) or one PCIe generation less"),
        (0.25, "a quarter of the lanes (x4)"),
    ):
        if abs(share / part - 1) <= _NEAR:
            return f"{what}: as fast as {reason}"
    if share < 0.4:
        return f"{what}: the IOMMU or ACS may redirect peer traffic"
    return f"{what}: check PCIe generation and width while the copy runs"
