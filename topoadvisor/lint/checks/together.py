"""Company: lines that contradict each other, variables that do not go together, and ranks that would differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from topoadvisor.lint.found import Found, Judge, about
from topoadvisor.lint.model import Assignment, Contents
from topoadvisor.lint.readers import launchers
from topoadvisor.nccl import settings, versions
from topoadvisor.nccl.levels import parse_int
from topoadvisor.nccl.odds import AT_ODDS

_DEAD_WITHOUT_RDMA: Final = "NCCL_IB_"
_NO_RANKS: Final = frozenset({"Launcher"})
"""Pods of a job that start the ranks and are none."""


def check(contents: Contents, judge: Judge, line_of: Callable[[int], int]) -> Iterator[Found]:
    """Contradictions within one file, in the order of its lines."""
    in_force: dict[int, dict[str, Assignment]] = {}
    events: list[tuple[int, Assignment | str]] = [(each.at, each) for each in contents.assignments]
    events += [(at, name) for at, name in contents.removed]
    told: set[tuple[int, str]] = set()
    for _, event in sorted(events, key=lambda each: each[0]):
        if isinstance(event, str):
            for state in in_force.values():
                state.pop(event, None)
            continue
        state = in_force.setdefault(event.group, {})
        earlier = state.get(event.name)
        if earlier is not None and _contradicts(earlier, event):
            line = line_of(earlier.at)
            which = "the first line wins" if event.way == "conf" else "the last one wins"
            message = f"{event.name}={event.value} here and {earlier.value} in line {line}: {which}"
            yield about(event, "ENV151", message)
        if event.way != "conf" or earlier is None:
            state[event.name] = event
        visible = {**(in_force.get(0, {}) if event.group else {}), **state}
        around = {name: each for name, each in visible.items() if _meets(each, event)}
        for found in [*_at_odds(event, around, judge), *_dead(event, around)]:
            if (found.at, found.message) not in told:
                told.add((found.at, found.message))
                yield found


def _contradicts(earlier: Assignment, later: Assignment) -> bool:
    if earlier.fallback or later.fallback or None in (earlier.value, later.value):
        return False
    if settings.find(later.name) is None:
        return False  # A name of the script's own, which it may use in between.
    return earlier.value != later.value and earlier.branch == later.branch and earlier.step == later.step


def _meets(earlier: Assignment, later: Assignment) -> bool:
    """Whether the earlier line is in force where the later one stands."""
    return earlier.value is not None and earlier.branch == later.branch[: len(earlier.branch)]


def _at_odds(event: Assignment, around: Mapping[str, Assignment], judge: Judge) -> Iterator[Found]:
    for odds in AT_ODDS:
        if event.name in odds.names and all(name in around for name in odds.names):
            if judge.version is not None and not versions.at_least(judge.version, odds.since):
                continue
            values = {name: around[name].value or "" for name in odds.names}
            if (message := odds.tell(values)) is not None:
                yield about(event, "ENV152", message)


def _dead(event: Assignment, around: Mapping[str, Assignment]) -> Iterator[Found]:
    """RDMA settings next to the switch that turns RDMA off."""
    off = around.get("NCCL_IB_DISABLE")
    network = around.get("NCCL_NET")
    if off is not None and parse_int(off.value or "") == 1:
        why = "NCCL_IB_DISABLE=1: NCCL's own InfiniBand and RoCE transport is off"
    elif network is not None and (network.value or "").lower() == "socket":
        why = f"NCCL_NET={network.value}: NCCL uses sockets only"
    else:
        return
    if event.name.startswith(_DEAD_WITHOUT_RDMA) and event.name != "NCCL_IB_DISABLE":
        if settings.find(event.name) is not None:
            yield about(event, "ENV152", f"{event.name} has no effect with {why}")
    elif event.name in ("NCCL_IB_DISABLE", "NCCL_NET"):
        names = [
            name
            for name in around
            if name.startswith(_DEAD_WITHOUT_RDMA) and name != "NCCL_IB_DISABLE" and settings.find(name)
        ]
        if names:
            verb = "have" if len(names) > 1 else "has"
            yield about(event, "ENV152", f"{', '.join(names)} {verb} no effect with {why}")


def ranks(contents: Contents) -> Iterator[Found]:
    """Variables that all ranks must share, and that only some get."""
    for each in contents.assignments:
        info = settings.find(each.name)
        if info is None or info.equal != "yes" or each.only is None or _for_all(each, contents):
            continue
        others = [other for other in contents.assignments if other.name == each.name and other.branch != each.branch]
        if each.value is not None and any(other.value == each.value for other in others):
            continue
        if each.only == "local rank" or (each.only == "rank" and info.scope != "node"):
            yield about(each, "ENV161", f"{each.name} {info.agreement}, and what this line sets depends on the rank")
        elif each.only == "host" and info.scope != "node":
            message = f"{each.name} {info.agreement}, and what this line sets depends on the host"
            yield about(each, "ENV161", message, severity="info")
    yield from _roles(contents)


def _for_all(each: Assignment, contents: Contents) -> bool:
    """Whether a launcher gets it, which starts all ranks from one place."""
    if each.way == "launcher" or any(program in launchers.STARTS_RANKS for program in each.programs):
        return True
    return any(at > each.at and each.branch == branch[: len(each.branch)] for at, branch in contents.launches)


def _roles(contents: Contents) -> Iterator[Found]:
    ranks = sorted(contents.roles - _NO_RANKS)
    if len(ranks) < 2:
        return
    names = {each.name for each in contents.assignments if each.role is not None}
    for name in sorted(names):
        info = settings.find(name)
        if info is None or info.equal != "yes" or info.scope == "node":
            continue
        given = [each for each in contents.assignments if each.name == name and each.role in ranks]
        by_role = {role: {each.value for each in given if each.role == role} for role in ranks}
        if len({frozenset(values) for values in by_role.values()}) > 1 and all(
            each.value is not None for each in given
        ):
            said = ", ".join(f"{role}: {' '.join(map(str, values)) or 'not set'}" for role, values in by_role.items())
            yield about(given[0], "ENV161", f"{name} {info.agreement}, and differs between pods ({said})")
