"""Company: lines that contradict each other, variables that do not go together, and ranks that would differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from topoadvisor.lint.found import Found, Judge, about
from topoadvisor.lint.model import Assignment, Contents
from topoadvisor.lint.readers import launchers
from topoadvisor.nccl import choices, settings, versions
from topoadvisor.nccl.levels import parse_int

Values = Mapping[str, str]


@dataclass(frozen=True)
class _Odds:
    """Variables that do not go together; `tell` gives the sentence, or None when they do."""

    names: tuple[str, ...]
    """All must be set; the last line of them is told."""
    tell: Callable[[Values], str | None]
    since: str = "2.3.5"


def _number(values: Values, name: str) -> int | None:
    return parse_int(values[name]) if values.get(name) else None


def _on(values: Values, name: str) -> bool:
    return _number(values, name) == 1


def _crossed(low: str, high: str) -> _Odds:
    def tell(values: Values) -> str | None:
        least, most = _number(values, low), _number(values, high)
        wrong = least is not None and most is not None and 0 < most < least
        return f"{low}={least} is above {high}={most}: there is no number between" if wrong else None

    return _Odds((low, high), tell)


def _level_when_off(values: Values) -> str | None:
    off = _on(values, "NCCL_P2P_DISABLE")
    return (
        "NCCL_P2P_LEVEL has no effect with NCCL_P2P_DISABLE=1, which switches P2P off at every level" if off else None
    )


def _network_alone(values: Values) -> str | None:
    both = _on(values, "NCCL_P2P_DISABLE") and _on(values, "NCCL_SHM_DISABLE")
    if not both:
        return None
    return "without P2P and without shared memory, GPUs of one machine talk over the network"


def _sockets(values: Values) -> str | None:
    each, threads = _number(values, "NCCL_NSOCKS_PERTHREAD"), _number(values, "NCCL_SOCKET_NTHREADS")
    if each is None or threads is None or threads <= 0 or each * threads <= 64:
        return None
    return f"{each} × {threads} sockets are more than 64, and NCCL takes {64 // min(threads, 16)} for each thread"


def _subsystems(values: Values) -> str | None:
    level = values["NCCL_DEBUG"].strip().upper()
    quiet = level in ("VERSION", "WARN")
    return (
        f"NCCL_DEBUG_SUBSYS filters what INFO and TRACE print: it does nothing with NCCL_DEBUG={level}"
        if quiet
        else None
    )


def _nvls_only(values: Values) -> str | None:
    names = {name for each in choices.parse(values["NCCL_ALGO"]) if not each.inverted for name in each.names}
    off = _number(values, "NCCL_NVLS_ENABLE") == 0
    return "NCCL_ALGO allows only NVLS, and NCCL_NVLS_ENABLE=0 switches it off" if off and names == {"nvls"} else None


def _fabric(values: Values) -> str | None:
    needs = _number(values, "NCCL_CUMEM_ENABLE") == 0 and (_number(values, "NCCL_MNNVL_ENABLE") or 0) > 0
    return "multi-node NVLink needs cuMem: NCCL_MNNVL_ENABLE does nothing with NCCL_CUMEM_ENABLE=0" if needs else None


def _switched(text: str) -> str:
    """A value with the words that PyTorch takes for 1 and 0 as these (`getCvarBool` in `c10d/Utils.hpp`)."""
    word = text.strip().lower()
    return "1" if word in ("y", "yes", "t", "true") else "0" if word in ("n", "no", "f", "false") else word


def _differ(old: str, new: str) -> _Odds:
    def tell(values: Values) -> str | None:
        same = _switched(values[old]) == _switched(values[new])
        return (
            None
            if same
            else f"{old} is the older name of {new} and has another value: the newer one wins where it is known"
        )

    return _Odds((old, new), tell)


def _nothing_recorded(name: str) -> _Odds:
    def tell(values: Values) -> str | None:
        dumps = values["TORCH_NCCL_DUMP_ON_TIMEOUT"].lower() in ("1", "true", "y", "yes", "t")
        empty = _number(values, name) == 0
        return f"there is nothing to write after a timeout with {name}=0" if dumps and empty else None

    return _Odds(("TORCH_NCCL_DUMP_ON_TIMEOUT", name), tell)


_AT_ODDS: Final = (
    _Odds(("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"), _level_when_off, since="2.6.4"),
    _Odds(("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"), _network_alone),
    _crossed("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
    _crossed("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
    _crossed("NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS"),
    _crossed("NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS"),
    _Odds(("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS"), _sockets),
    _Odds(("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"), _subsystems),
    _Odds(("NCCL_ALGO", "NCCL_NVLS_ENABLE"), _nvls_only, since="2.17.1"),
    _Odds(("NCCL_CUMEM_ENABLE", "NCCL_MNNVL_ENABLE"), _fabric),
    _differ("NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS"),
    _differ("NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS"),
    _differ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
    _differ("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    _differ("NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"),
    _nothing_recorded("TORCH_FR_BUFFER_SIZE"),
    _nothing_recorded("TORCH_NCCL_TRACE_BUFFER_SIZE"),
)
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
    for odds in _AT_ODDS:
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
