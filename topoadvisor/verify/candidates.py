"""Which settings are worth proving on this machine, by rules. Each comes with the reason why it is tried. Pure.

None of them is advice: NCCL's authors keep most of these for debugging, and only a measurement speaks for one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from topoadvisor.nccl import versions
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.rules.facts import Fact, FactBase, Known, Subject, Unknown
from topoadvisor.verify.prove import Arm, with_all_together

_CHANNEL_LIMITS = ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
_P2P_SWITCHES = ("NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "NCCL_P2P_DIRECT_DISABLE")


@dataclass(frozen=True)
class GraphFile:
    """What came of writing rings that beat NCCL's own in its own model; neither = there are none."""

    path: str | None = None
    unknown: str | None = None
    """Why it cannot be told whether there are any."""


@dataclass(frozen=True)
class NotTried:
    """A kind of setting that is not tried."""

    kind: str
    why: str
    unknown: bool = False
    """Whether it is worth trying cannot be told."""

    def __str__(self) -> str:
        return f"{self.kind}: not tried, because {self.why}."


def candidates(
    facts: FactBase, gpus: Collection[int], *, version: str, channels: int | None, graph: GraphFile
) -> tuple[list[Arm], list[NotTried]]:
    """Variants to try for a job over these GPU indexes, all of them together, and what is not tried.

    Switches of P2P that pull in two directions are not tried together. `channels` is what NCCL took by itself, None =
    its log does not say.
    """
    pairs = [pair for pair in facts.subjects["pair"] if _ends(pair) <= set(gpus)]
    given = {name.removeprefix("env.") for name, fact in facts.node.items() if name.startswith("env.") and _set(fact)}
    found = [
        *_more_channels(pairs, given, version, channels),
        *_farther_p2p(pairs, given),
        *_without_p2p(pairs, given),
        *_graph(given, graph),
    ]
    arms = [each for each in found if isinstance(each, Arm)]
    rest = [each for each in found if isinstance(each, NotTried)]
    if len({name for arm in arms for name in arm.settings if name in _P2P_SWITCHES}) > 1:
        return arms, rest
    return with_all_together(arms, "what these do together"), rest


def _more_channels(
    pairs: list[Subject], given: Collection[str], version: str, channels: int | None
) -> Iterator[Arm | NotTried]:
    kind = "More channels"
    if any(_value(pair, "pair.nvlinks") == 0 for pair in pairs):
        yield NotTried(kind, "not every pair has NVLink, and PCIe is full with the usual few")
        return
    if taken := sorted(set(_CHANNEL_LIMITS) & set(given)):
        yield NotTried(kind, f"{taken[0]} is set already")
        return
    if unread := _unread(pairs, "pair.nvlinks"):
        yield NotTried(kind, unread, unknown=True)
        return
    if channels is None:
        yield NotTried(kind, "NCCL's log does not say how many it takes by itself", unknown=True)
        return
    # MAXCHANNELS in NCCL: 32, and 64 since 2.25.
    limit = 64 if versions.at_least(version, "2.25") else 32
    target = next((each for each in (32, 64) if channels < each <= limit), None)
    if target is None:
        yield NotTried(kind, f"NCCL takes {channels} by itself, the most there are")
        return
    name = "NCCL_MIN_CTAS" if versions.at_least(version, "2.17") else "NCCL_MIN_NCHANNELS"
    yield Arm({name: str(target)}, f"NCCL takes {channels} channels by itself; more may fill the NVLinks better")


def _farther_p2p(pairs: list[Subject], given: Collection[str]) -> Iterator[Arm | NotTried]:
    kind = "P2P farther away"
    maybe = [
        pair
        for pair in pairs
        if _value(pair, "pair.p2p.ok") is not False and _value(pair, "pair.nccl.transport") in ("SHM", "NET", None)
    ]
    needed = ("pair.p2p.ok", "pair.nccl.transport", "pair.nccl_path")
    unused = [pair for pair in maybe if _unread([pair], *needed) is None]
    if taken := sorted(set(_P2P_SWITCHES) & set(given)) if maybe else ():
        yield NotTried(kind, f"{taken[0]} is set already")
    elif unused:
        level = max(NcclPath[_value(pair, "pair.nccl_path")] for pair in unused)
        count = f"{len(unused)} pair{'s' * (len(unused) > 1)}"
        yield Arm({"NCCL_P2P_LEVEL": level.name}, f"the driver grants P2P on {count} where NCCL does not use it")
    elif unread := _unread(maybe, *needed):
        yield NotTried(kind, unread, unknown=True)
    else:
        yield NotTried(kind, "NCCL uses P2P already wherever the driver grants it")


def _without_p2p(pairs: list[Subject], given: Collection[str]) -> Iterator[Arm | NotTried]:
    kind = "No P2P"
    maybe = [
        pair
        for pair in pairs
        if _value(pair, "pair.nccl.transport") in ("P2P", None) and not _value(pair, "pair.nvlinks")
    ]
    needed = ("pair.nccl.transport", "pair.nvlinks")
    used = [pair for pair in maybe if _unread([pair], *needed) is None]
    if taken := sorted(set(_P2P_SWITCHES) & set(given)) if maybe else ():
        yield NotTried(kind, f"{taken[0]} is set already")
    elif used:
        count = f"{len(used)} pair{'s' * (len(used) > 1)}"
        yield Arm({"NCCL_P2P_DISABLE": "1"}, f"P2P over PCIe, here on {count}, can be slower than host memory")
    elif unread := _unread(maybe, *needed):
        yield NotTried(kind, unread, unknown=True)
    else:
        yield NotTried(kind, "no pair uses P2P over PCIe")


def _graph(given: Collection[str], graph: GraphFile) -> Iterator[Arm | NotTried]:
    kind = "A graph file"
    if "NCCL_GRAPH_FILE" in given:
        yield NotTried(kind, "NCCL_GRAPH_FILE is set already")
    elif graph.unknown is not None:
        yield NotTried(kind, graph.unknown, unknown=True)
    elif graph.path is None:
        yield NotTried(kind, "no rings beat NCCL's own in its own model")
    else:
        why = "these rings carry more than NCCL's own in its own model"
        yield Arm({"NCCL_GRAPH_FILE": graph.path}, why, "topoadvisor emit nccl-graph -o FILE")


def _ends(pair: Subject) -> set[int]:
    return {int(end.removeprefix("gpu:")) for end in pair.id.split("-")}


def _value(pair: Subject, name: str) -> Any:
    fact = pair.facts[name]
    return fact.value if isinstance(fact, Known) else None


def _unread(pairs: list[Subject], *names: str) -> str | None:
    """The first of these facts that is not known of one of the pairs, and why; None when all are."""
    for pair in pairs:
        for name in names:
            fact = pair.facts[name]
            if isinstance(fact, Unknown):
                return f"{name} of {pair.id.replace('gpu:', 'GPU')} is not known ({fact.reason})"
    return None


def _set(fact: Fact) -> bool:
    return isinstance(fact, Known) and bool(fact.value)
