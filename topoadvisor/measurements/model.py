"""What was measured on the machine of a snapshot: links and collectives, and settings against none (`prove`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, get_args

import msgspec

from topoadvisor.fields import Count

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]
COLLECTIVES: Final[tuple[Collective, ...]] = get_args(Collective)

Gbps = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
"""All GPUs of the largest NVLink domains together carry less than a tenth of the most; 0 = too slow to show."""
Rate = Annotated[float, msgspec.Meta(ge=1e-9, le=1e6)]
"""GB/s of a collective that ran: one byte in a second is the least."""
Micros = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""No copy takes a week; 0 = too short to show."""
Share = Annotated[float, msgspec.Meta(ge=-1, le=1e6)]
"""Of a rate that became another: nothing loses more than all of itself."""
Bound = Annotated[float, msgspec.Meta(ge=-1, le=1e300)]
"""Of an interval around a share: few rounds that scatter widely bound nothing."""
Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
"""Bytes of a buffer: no GPU has a TiB of memory."""

LEAST: Final = 0.01
"""Differences below this share change no decision."""
SHARP: Final = 0.05
"""Up to this half width an interval is called sharp; beyond it a real difference may hide in it."""
FEWEST_ROUNDS: Final = 4
"""With three rounds an interval is about four times as wide as with six."""

_SLOWEST: Final = 0.001
"""GB/s: rates of measurements are written with three decimals at most."""
_DIGIT: Final = 1e-5
"""Differences are written with five decimals."""
_YEARS: Final = range(1970, 2100)
"""A clock that nobody has set begins in 1970, and what is measured then is still measured."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.A)
_VERSION: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", re.A)


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
    size_bytes: Size | None = None
    repeats: Count | None = None
    peer_access: bool | None = None
    data_ok: bool | None = None
    outcome: Literal["ok", "wrong-data", "timeout", "crashed", "error", "skipped"] = "ok"
    note: str | None = None
    method: str | None = None
    driver: str | None = None
    date: str | None = None
    variables: dict[str, str] | None = None
    """Of a collective NCCL's variables that were set and bear on it, as they were written; None = not recorded."""

    def __post_init__(self) -> None:
        _moment(self.date)
        _one_line(self.driver, self.method)
        _can_be_set(self.variables or {})
        for rate in (self.gbps, self.slowest_gbps):
            if rate is not None and 0 < rate < _SLOWEST:
                raise ValueError(f"{rate:.3g} GB/s is less than a measurement shows")
        if self.gbps is not None and (self.slowest_gbps or 0) > self.gbps:
            raise ValueError(f"the slowest of several reached {self.slowest_gbps:g} GB/s, and all {self.gbps:g}")

    @property
    def moment(self) -> datetime | None:
        """When it was made."""
        return _moment(self.date)


class TrialSize(Struct, frozen=True, kw_only=True):
    """One collective at one size, with a setting and without. What is decided has all numbers."""

    collective: Collective
    size_bytes: Size
    verdict: Literal["faster", "slower", "no difference", "unknown"]
    baseline_gbps: Rate | None = None
    """Bus bandwidth, geometric mean over the rounds."""
    variant_gbps: Rate | None = None
    difference: Share | None = None
    """Mean over the rounds as a share of the baseline: 0.05 = 5 % faster."""
    low: Bound | None = None
    high: Bound | None = None
    """Its interval."""

    def __post_init__(self) -> None:
        known = [each for each in (self.low, self.difference, self.high) if each is not None]
        if known != sorted(known):
            raise ValueError("the difference lies outside of its interval from `low` to `high`")
        if self.baseline_gbps and self.variant_gbps and self.difference is not None:
            ratio = self.variant_gbps / self.baseline_gbps
            if abs(ratio - 1 - self.difference) > (1 + ratio) * (0.002 + 0.0005 / self.baseline_gbps):
                raise ValueError(f"the rates differ by {ratio - 1:+.1%}, and the difference is {self.difference:+.1%}")
        if self.verdict == "unknown":
            return
        if self.baseline_gbps is None or self.variant_gbps is None or None in (self.difference, self.low, self.high):
            raise ValueError(f"the verdict is {self.verdict}, and not all numbers that say so are there")
        if self.verdict not in self._possible():
            raise ValueError(f"the verdict is {self.verdict}, and the difference with its interval does not say so")

    @property
    def may_lose(self) -> float | None:
        """The loss, as a share, that may hide in the interval of what makes no difference; None = none to speak of."""
        return hidden_loss(self.verdict, self.low)

    def _possible(self) -> set[str]:
        """The verdicts that the numbers allow; two where rounding hides which."""
        mean, low, high = self.difference or 0.0, self.low or 0.0, self.high or 0.0
        sign = "faster" if mean > 0 else "slower"
        reach = min(abs(mean) - LEAST, max(low, -high))
        return ({sign} if reach > -_DIGIT else set()) | ({"no difference"} if reach < _DIGIT else set())


class Trial(Struct, frozen=True, kw_only=True):
    """Variables that were tried against the machine as it is (`topoadvisor prove`)."""

    settings: dict[str, str | None]
    """None: it was unset."""
    gpus: list[Annotated[int, msgspec.Meta(ge=0)]]
    sizes: list[TrialSize] = []
    rounds: Count = 0
    keep: bool = False
    """It was the best of what was tried with it; whether that is worth keeping, `won` says."""
    cost: str | None = None
    failure: str | None = None
    nccl: str | None = None
    driver: str | None = None
    date: str | None = None
    variables: dict[str, str] | None = None
    """NCCL's variables that were set on both sides and bear on it, as they were written; None = not recorded."""

    def __post_init__(self) -> None:
        if not self.settings:
            raise ValueError("a trial without settings tries nothing")
        _can_be_set(self.settings)
        _can_be_set(self.variables or {})
        if len(self.gpus) < 2 or len(set(self.gpus)) < len(self.gpus):
            raise ValueError("a trial is over two GPUs or more, each of them once")
        if len({(size.collective, size.size_bytes) for size in self.sizes}) < len(self.sizes):
            raise ValueError("a trial has each collective at each size once")
        if self.rounds < FEWEST_ROUNDS and any(size.verdict != "unknown" for size in self.sizes):
            raise ValueError(f"a size is decided, and {self.rounds} rounds are too few to decide anything")
        if self.nccl is not None and not _VERSION.fullmatch(self.nccl):
            raise ValueError(f"{self.nccl[:40]!r} is no version of NCCL")
        _moment(self.date)
        _one_line(self.driver)

    @property
    def moment(self) -> datetime | None:
        """When it was made."""
        return _moment(self.date)

    @property
    def wins(self) -> bool:
        """It is faster somewhere, and hurts nowhere."""
        return worth_keeping(self.failure, [size.verdict for size in self.sizes])

    @property
    def won(self) -> bool:
        """It is the one to keep, and what was measured agrees."""
        return self.keep and self.wins


def hidden_loss(verdict: str, low: float | None) -> float | None:
    """What is lost at the lower end of an interval that shows no difference, when that is more than `SHARP`."""
    return -low if verdict == "no difference" and low is not None and low < -SHARP else None


def worth_keeping(failure: str | None, verdicts: Sequence[str]) -> bool:
    """Whether a variant that was tried wins somewhere and hurts nowhere, by its verdicts at all sizes."""
    return failure is None and "faster" in verdicts and "slower" not in verdicts


def setting_fault(name: str, value: str | None) -> str | None:
    """Why no variable can have been tried with this name and value; None when it can."""
    if not _NAME.fullmatch(name):
        return f"{name[:60]!r} is no name of a variable"
    if value is not None and not (value and value.isprintable()):
        return f"the value of {name} is empty, which is not tried, or holds letters that no variable can have"
    return None


def _can_be_set(settings: Mapping[str, str | None]) -> None:
    """Raises ValueError for what no variable can be."""
    if fault := next(filter(None, (setting_fault(*each) for each in settings.items())), None):
        raise ValueError(fault)


def _one_line(*texts: str | None) -> None:
    """Raises ValueError for line breaks, and for letters that terminals act upon."""
    if odd := next((text for text in texts if text is not None and not text.isprintable()), None):
        raise ValueError(f"{odd[:40]!r} holds letters that nothing is named with")


def _moment(date: str | None) -> datetime | None:
    """The moment that a date in ISO 8601 names, in UTC where it names no zone. Raises ValueError for anything else."""
    if date is None:
        return None
    try:
        moment = datetime.fromisoformat(date)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{date[:40]!r} is no date like 2026-11-30T12:00:00+00:00") from None
    if moment.year not in _YEARS:
        raise ValueError(f"nothing was measured in {moment.year}")
    return moment
