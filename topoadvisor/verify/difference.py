"""Is a variant faster than the baseline? Rounds of both, interleaved, and an interval for the ratio. Pure.

In each round baseline and variant ran one after the other, so slow drifts of the machine cancel in their ratio. The
logarithms of the ratios are taken as normal with unknown spread, which gives Student's interval for their mean. Several
sizes and variants are looked at together, so each interval is widened (Bonferroni) until the chance that any of them
misses is below 5 %. A difference shows when its interval leaves out zero and it is at least `LEAST`.

One such look is wrong in up to one of twenty trials, and the spread between processes is not normal: small sizes have
several states. So what shows is a claim, and counts only when `confirm` finds it again, the same way, in rounds made
afterwards. Their figures are the ones to tell: those that made the claim were chosen because they were large.

Where a variant that wins elsewhere looks slower without showing it, the fresh rounds are taken there, too, and both
together decide: a loss that hides in scatter has half the room then, and a win is given up too often rather than too
seldom.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from topoadvisor.measurements.model import FEWEST_ROUNDS, LEAST, SHARP, hidden_loss

Verdict = Literal["faster", "slower", "no difference", "unknown"]

MISS: Final = 0.05
"""Chance that any interval of one trial misses its true value."""


@dataclass(frozen=True)
class Difference:
    """Variant against baseline at one size. Rates in GB/s, differences as shares: 0.05 = 5 % faster."""

    verdict: Verdict
    baseline: float | None
    """Geometric mean over the rounds: the ratio of the two is the difference."""
    variant: float | None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    """The interval of the mean."""
    rounds: int = 0
    claimed: float | None = None
    """The mean of the rounds before, where they looked faster or slower, and these were to confirm it."""

    @property
    def claim(self) -> bool:
        """It is faster or slower."""
        return self.verdict in ("faster", "slower")

    @property
    def doubtful(self) -> bool:
        """It shows no difference, looks slower, and the interval is too wide to tell."""
        return self.verdict == "no difference" and (self.mean or 0.0) <= -LEAST and self.may_lose is not None

    @property
    def may_lose(self) -> float | None:
        return hidden_loss(self.verdict, self.low)

    @property
    def sharp(self) -> bool:
        return self.low is not None and self.high is not None and self.high - self.low <= 2 * SHARP


def compare(rounds: Sequence[tuple[float, float]], *, comparisons: int = 1) -> Difference:
    """Compare (baseline, variant) of each round; `comparisons` is how many of these are looked at together."""
    usable = [(a, b) for a, b in rounds if a > 0 and b > 0]
    means = tuple(statistics.geometric_mean(column) for column in zip(*usable, strict=True)) or (None, None)
    if len(usable) < FEWEST_ROUNDS:
        return Difference("unknown", means[0], means[1], rounds=len(usable))
    logs = [math.log(b / a) for a, b in usable]
    mean = statistics.fmean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    reach = student(1 - MISS / max(comparisons, 1) / 2, len(logs) - 1) * error
    low, middle, high = (math.expm1(value) for value in (mean - reach, mean, mean + reach))
    verdict: Verdict = "no difference"
    if abs(middle) >= LEAST and (low > 0 or high < 0):
        verdict = "faster" if middle > 0 else "slower"
    return Difference(verdict, means[0], means[1], round(middle, 5), round(low, 5), round(high, 5), len(usable))


def confirm(claim: Difference, rounds: Sequence[tuple[float, float]], *, claims: int = 1) -> Difference:
    """What is left of a claim after fresh rounds; `claims` is how many are put to the test together.

    Unknown while the rounds are too few, and when they say the opposite.
    """
    again = compare(rounds, comparisons=claims)
    if again.verdict == "unknown":
        return replace(claim, verdict="unknown", claimed=claim.mean)
    opposite = again.claim and again.verdict != claim.verdict
    return replace(again, verdict="unknown" if opposite else again.verdict, claimed=claim.mean)


def student(share: float, freedom: int) -> float:
    """The quantile of Student's t distribution for a share above one half. Raises ValueError outside (0.5, 1)."""
    if not 0.5 < share < 1 or freedom < 1:
        raise ValueError((share, freedom))
    low, high = 0.0, 1.0
    while _below(high, freedom) < share:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def _below(t: float, freedom: int) -> float:
    """Student's distribution function for t ≥ 0 and whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    term = total = cosine if freedom % 2 else 1.0
    for k in range(3 if freedom % 2 else 2, freedom, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if freedom % 2 == 0:
        return 0.5 + sine * total / 2
    return 0.5 + (angle + (sine * total if freedom > 1 else 0.0)) / math.pi
