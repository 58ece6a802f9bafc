"""Sizes and trials as `prove` saves them: verdict, rates, difference and interval agree."""

from __future__ import annotations

from typing import Any, Literal

from topoadvisor.measurements.model import Collective, Trial, TrialSize

AS_FOUND = {"NCCL_NVLS_ENABLE": "0"}
"""What is set on the machine of `fixture:2xh200-kvm`."""

Verdict = Literal["faster", "slower", "no difference", "unknown"]


def size(
    difference: float,
    size_bytes: int = 1 << 30,
    *,
    collective: Collective = "all_reduce",
    reach: float = 0.005,
    verdict: Verdict | None = None,
) -> TrialSize:
    """Against a baseline of 300 GB/s, with an interval of `reach` on both sides."""
    sure = abs(difference) >= 0.01 and reach < abs(difference)
    return TrialSize(
        collective=collective,
        size_bytes=size_bytes,
        verdict=verdict or ("no difference" if not sure else "faster" if difference > 0 else "slower"),
        baseline_gbps=300.0,
        variant_gbps=300.0 * (1 + difference),
        difference=difference,
        low=difference - reach,
        high=difference + reach,
    )


WON = [size(0.02, 1 << 20, reach=0.03), size(0.05, 1 << 28), size(0.045)]
"""Faster at two of three sizes."""


def trial(**more: Any) -> Trial:
    """One of two H200 that won."""
    fields: dict[str, Any] = {
        "settings": {"NCCL_MIN_CTAS": "32"},
        "gpus": [0, 1],
        "sizes": WON,
        "rounds": 8,
        "keep": True,
        "cost": "32 channels instead of 24",
        "nccl": "2.28.9",
        "driver": "580.159.04",
        "date": "2026-11-30T12:00:00+00:00",
        "variables": AS_FOUND,
    }
    return Trial(**{**fields, **more})
