"""What a vendor publishes for NCCL on its machine (`profiles.yaml`), compared line by line with what is set."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache
from typing import Literal, NamedTuple

from topoadvisor.hardware import tables
from topoadvisor.hardware.tables import Profile, SourceRow

State = Literal["same", "differs", "missing", "stale", "left to the plugin", "not known"]


class Line(NamedTuple):
    """One variable of a vendor's list, or one that the vendor has taken out of it."""

    name: str
    state: State
    vendor: str
    """The published value, several with `or`; in words where it depends on the machine, and for a stale variable."""
    here: str | None
    """The value that is set; empty when it is not set, None when that is not known."""


def profile_of(cloud: str, machine: str, link_layers: Collection[str]) -> Profile | None:
    """The profile of a machine, by the words of the facts `platform.cloud` and `platform.machine`; None: none fits."""
    return next(
        (
            each
            for each in tables.profiles().profiles
            if each.cloud == cloud and re.fullmatch(each.machines, machine) and each.link_layer in (None, *link_layers)
        ),
        None,
    )


def sources(profile: Profile) -> list[SourceRow]:
    """Where the values of a profile were read, and when; then where what is stale was read."""
    table = tables.profiles()
    older = (row.source for row in table.stale.get(profile.cloud, {}).values())
    return [table.sources[name] for name in dict.fromkeys([*profile.sources, *older])]


def compare(profile: Profile, present: Callable[[str], str | None]) -> list[Line]:
    """The lines of a profile in its order, then what is stale and set.

    `present` gives the value in force by name: empty when it is not set, None when that is not known.
    """
    lines = []
    for name, values in {**profile.values, **profile.optional}.items():
        here = present(name)
        if here == "" and name in profile.optional:
            continue
        lines.append(Line(name, _state(profile, values, here), " or ".join(values), here))
    for name, depends in profile.local.items():
        here = present(name)
        state: State = "not known" if here is None else "same" if here else "missing"
        lines.append(Line(name, state, f"depends on {depends}", here))
    listed = {line.name for line in lines}
    found = ((name, why, present(name)) for name, why in stale(profile.cloud, profile).items() if name not in listed)
    return [*lines, *(Line(name, "stale", why, here) for name, why, here in found if here)]


def stale(cloud: str | None = None, profile: Profile | None = None) -> dict[str, str]:
    """What older recipes of this cloud, or of any, set → what the vendor says of it now."""
    table = tables.profiles()
    every = {
        name: row.what for each, rows in table.stale.items() if cloud in (None, each) for name, row in rows.items()
    }
    mine = [profile] if profile else table.profiles if cloud is None else []
    return every | {name: why for each in mine for name, why in each.stale.items()}


def _state(profile: Profile, values: tuple[str, ...], here: str | None) -> State:
    if here is None:
        return "not known"
    if not here:
        return "left to the plugin" if profile.by == "plugin" else "missing"
    return "same" if _spread(here) in map(_spread, values) else "differs"


def _spread(value: str) -> tuple[str, frozenset[str]]:
    """A value without what does not count: the order of a list, and the case of its letters."""
    mark = re.match(r"[\^=]*", value)
    prefix = mark.group() if mark else ""
    return prefix, frozenset(value.removeprefix(prefix).casefold().split(","))


@cache
def names(cloud: str | None = None) -> frozenset[str]:
    """Every variable that a file, a script or an example of this cloud sets; of any cloud without one."""
    return frozenset(
        name
        for each in tables.profiles().profiles
        if cloud in (None, each.cloud) and each.by != "plugin"
        for part in (each.values, each.local, each.optional)
        for name in part
    )
