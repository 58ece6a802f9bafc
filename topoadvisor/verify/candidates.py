"""Which settings are worth proving on this machine, by rules. Each comes with the reason why it is tried. Pure.

None of them is advice: NCCL's authors keep most of these for debugging, and only a measurement speaks for one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from topoadvisor.nccl import versions
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.rules.facts import Fact, FactBase, Known, Subject
from topoadvisor.verify.prove import Arm, with_all_together

_CHANNEL_LIMITS = ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
_P2P_SWITCHES = ("NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "NCCL_P2P_DIRECT_DISABLE")


def candidates(
    facts: FactBase, gpus: Collection[int], *, version: str, channels: int | None, graph_file: str | None = None
) -> tuple[list[Arm], list[str]]:
    """Variants to try for a job over these GPU indexes, all of them together, and for each kind not tried the reason.

    Switches of P2P that pull in two directions are not tried together.

    `channels` is what NCCL took by itself, `graph_file` one whose rings beat NCCL's own in its own model.
    """
    pairs = [pair for pair in facts.subjects["pair"] if _ends(pair) <= set(gpus)]
    given = {name.removeprefix("env.") for name, fact in facts.node.items() if name.startswith("env.") and _set(fact)}
    arms: list[Arm] = []
    reasons: list[str] = []
    for each in (
        _more_channels(pairs, given, version, channels),
        _farther_p2p(pairs, given),
        _without_p2p(pairs, given),
        _graph(given, graph_file),
    ):
        for told in each:
            if isinstance(told, Arm):
                arms.append(told)
            else:
                reasons.append(told)
    if len({name for arm in arms for name in arm.settings if name in _P2P_SWITCHES}) > 1:
        return arms, reasons
    return with_all_together(arms, "what these do together"), reasons


def _more_channels(
    pairs: list[Subject], given: Collection[str], version: str, channels: int | None
) -> Iterator[Arm | str]:
    if not all((_value(pair, "pair.nvlinks") or 0) > 0 for pair in pairs):
        yield "More channels: not tried, because not every pair has NVLink, and PCIe is full with the usual few."
        return
    if taken := sorted(set(_CHANNEL_LIMITS) & set(given)):
        yield f"More channels: not tried, because {taken[0]} is set already."
        return
    if channels is None:
        yield "More channels: not tried, because NCCL's log does not say how many it takes."
        return
    # MAXCHANNELS in NCCL: 32, and 64 since 2.25.
    limit = 64 if versions.at_least(version, "2.25") else 32
    target = next((each for each in (32, 64) if channels < each <= limit), None)
    if target is None:
        yield f"More channels: not tried, because NCCL takes {channels} by itself, the most there are."
        return
    name = "NCCL_MIN_CTAS" if versions.at_least(version, "2.17") else "NCCL_MIN_NCHANNELS"
    yield Arm({name: str(target)}, f"NCCL takes {channels} channels by itself; more may fill the NVLinks better")


def _farther_p2p(pairs: list[Subject], given: Collection[str]) -> Iterator[Arm | str]:
    unused = [
        pair
        for pair in pairs
        if _value(pair, "pair.p2p.ok") is True and _value(pair, "pair.nccl.transport") in ("SHM", "NET")
    ]
    paths = [NcclPath[path] for pair in unused if (path := _value(pair, "pair.nccl_path"))]
    if not paths:
        yield "P2P farther away: not tried, because NCCL uses P2P already wherever the driver grants it."
    elif taken := sorted(set(_P2P_SWITCHES) & set(given)):
        yield f"P2P farther away: not tried, because {taken[0]} is set already."
    else:
        count = f"{len(unused)} pair{'s' * (len(unused) > 1)}"
        yield Arm({"NCCL_P2P_LEVEL": max(paths).name}, f"the driver grants P2P on {count} where NCCL does not use it")


def _without_p2p(pairs: list[Subject], given: Collection[str]) -> Iterator[Arm | str]:
    used = [
        pair for pair in pairs if _value(pair, "pair.nccl.transport") == "P2P" and _value(pair, "pair.nvlinks") == 0
    ]
    if not used:
        yield "No P2P: not tried, because no pair uses P2P over PCIe."
    elif taken := sorted(set(_P2P_SWITCHES) & set(given)):
        yield f"No P2P: not tried, because {taken[0]} is set already."
    else:
        count = f"{len(used)} pair{'s' * (len(used) > 1)}"
        yield Arm({"NCCL_P2P_DISABLE": "1"}, f"P2P over PCIe, here on {count}, can be slower than host memory")


def _graph(given: Collection[str], graph_file: str | None) -> Iterator[Arm | str]:
    if "NCCL_GRAPH_FILE" in given:
        yield "A graph file: not tried, because NCCL_GRAPH_FILE is set already."
    elif graph_file is None:
        yield "A graph file: not tried, because no rings beat NCCL's own in its own model."
    else:
        why = "these rings carry more than NCCL's own in its own model"
        yield Arm({"NCCL_GRAPH_FILE": graph_file}, why, "topoadvisor emit nccl-graph -o FILE")


def _ends(pair: Subject) -> set[int]:
    return {int(end.removeprefix("gpu:")) for end in pair.id.split("-")}


def _value(pair: Subject, name: str) -> Any:
    fact = pair.facts[name]
    return fact.value if isinstance(fact, Known) else None


def _set(fact: Fact) -> bool:
    return isinstance(fact, Known) and bool(fact.value)
