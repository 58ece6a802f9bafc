"""What was measured on the machine of a snapshot: links and collectives, and settings against none (`prove`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from topoadvisor.fields import Count, Int, Positive

Gbps = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
"""All GPUs of the largest NVLink domains together carry less than a tenth of the most; 0 = too slow to show."""
Micros = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""No copy takes a week; 0 = too short to show."""
Share = Annotated[float, msgspec.Meta(gt=-1, le=1e6)]
"""Of a rate that became another: nothing loses more than all of itself."""

_SLOWEST: Final = 0.001
"""GB/s: rates are written with three decimals at most."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of these types, as strict as the snapshot that holds them."""


class Measurement(Struct, frozen=True, kw_only=True):
    """One number measured on the live machine."""

    kind: str
    """`peer-copy`, `peer-copy-both`, `host-copy`, …; `verify/selection.py` names those of copies."""
    subject: str
    """`gpu:0>gpu:1`; for both directions at once `gpu:0<>gpu:1`; `host>gpu:0`; a ring `gpu:0>gpu:1>gpu:2>gpu:0`;
    all pairs of a switch `gpu:0,gpu:1,gpu:2`."""
    gbps: Gbps | None = None
    """Median GB/s; for several flows at once the sum."""
    slowest_gbps: Gbps | None = None
    """Of several flows at once the slowest one's own rate."""
    latency_us: Micros | None = None
    """Median time of one small copy."""
    spread: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    """(max − min) / median over the repeats."""
    size_bytes: Positive | None = None
    repeats: Count | None = None
    peer_access: bool | None = None
    data_ok: bool | None = None
    outcome: Literal["ok", "wrong-data", "timeout", "crashed", "error", "skipped"] = "ok"
    note: str | None = None
    method: str | None = None
    driver: str | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        _check_rates(self.gbps, self.slowest_gbps)


class TrialSize(Struct, frozen=True, kw_only=True):
    """One collective at one size, with a setting and without."""

    collective: str
    size_bytes: Positive
    verdict: Literal["faster", "slower", "no difference", "unknown"]
    baseline_gbps: Gbps | None = None
    """Bus bandwidth, geometric mean over the rounds."""
    variant_gbps: Gbps | None = None
    difference: Share | None = None
    """Mean over the rounds as a share of the baseline: 0.05 = 5 % faster."""
    low: Share | None = None
    high: Share | None = None
    """Its interval."""

    def __post_init__(self) -> None:
        _check_rates(self.baseline_gbps, self.variant_gbps)
        known = [each for each in (self.low, self.difference, self.high) if each is not None]
        if known != sorted(known):
            raise ValueError("the difference lies outside of its interval from `low` to `high`")
        sign = {"faster": 1, "slower": -1}.get(self.verdict, 0)
        if sign and (self.difference is None or self.difference * sign <= 0):
            raise ValueError(f"the verdict is {self.verdict}, and the difference does not say so")


class Trial(Struct, frozen=True, kw_only=True):
    """Variables that were tried against the machine as it is (`topoadvisor prove`)."""

    settings: dict[str, str | None]
    """None: it was unset."""
    gpus: list[Int]
    sizes: list[TrialSize] = []
    rounds: Count = 0
    keep: bool = False
    """It was the best of what was tried with it; whether that is worth keeping, `won` says."""
    cost: str | None = None
    failure: str | None = None
    nccl: str | None = None
    driver: str | None = None
    date: str | None = None

    def __post_init__(self) -> None:
        if self.rounds == 0 and any(size.verdict != "unknown" for size in self.sizes):
            raise ValueError("a size is decided, and no round is complete")

    @property
    def won(self) -> bool:
        """It is the one to keep, and what was measured agrees."""
        return self.keep and worth_keeping(self.failure, [size.verdict for size in self.sizes])


def worth_keeping(failure: str | None, verdicts: Sequence[str]) -> bool:
    """Whether a variant that was tried wins somewhere and hurts nowhere, by its verdicts at all sizes."""
    return failure is None and "faster" in verdicts and "slower" not in verdicts


def _check_rates(*rates: float | None) -> None:
    """Raises ValueError for GB/s that nothing measures: above zero, and too little to be written down."""
    for rate in rates:
        if rate is not None and 0 < rate < _SLOWEST:
            raise ValueError(f"{rate:.3g} GB/s is less than a measurement shows")
