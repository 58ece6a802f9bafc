"""NCCL's variables that something was measured under, and how those in force now differ from them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Final

from topoadvisor.ingest import assume
from topoadvisor.nccl import defaults, reading, versions
from topoadvisor.nccl.odds import AT_ODDS
from topoadvisor.nccl.settings import in_force, registry
from topoadvisor.snapshot import Setting, Snapshot, only_logged

Variables = Mapping[str, str]
Tried = Mapping[str, str | None]
"""Name → value; None: it is unset."""

_BEYOND: Final = (
    *("NCCL_IB_", "NCCL_SOCKET_", "NCCL_NSOCKS_", "NCCL_OOB_", "NCCL_UID_", "NCCL_GIN_", "NCCL_RAS_"),
    *("NCCL_CROSS_NIC", "NCCL_NETDEVS_POLICY", "NCCL_NET_GDR_", "NCCL_PXN_", "NCCL_COLLNET_"),
)
_LONGEST: Final = 80
"""Letters of a value that a line shows."""


def words(settings: Tried) -> str:
    """`NCCL_MIN_CTAS=32`, `NCCL_ALGO unset`; several with spaces between, long values cut."""
    cut = {
        name: value if value is None or len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
        for name, value in settings.items()
    }
    return " ".join(f"{name} unset" if value is None else f"{name}={value}" for name, value in cut.items())


def leaves_the_machine(name: str) -> bool:
    """It steers what goes between machines, and all measurements are made within one."""
    return name.startswith(_BEYOND)


def recorded(snapshot: Snapshot) -> dict[str, str] | None:
    """What is kept with a measurement that is made now, as written; None where the variables were not read."""
    if snapshot.settings is None or only_logged(snapshot.settings):
        return None
    return {name: setting.value for name, setting in _now(snapshot).items()}


def changed(then: Variables | None, snapshot: Snapshot, tried: Tried | None = None) -> str | None:
    """How those of then differ from those in force, such as `without NCCL_ALGO=Ring (environment), which is in force
    now`; None where they do not, as far as that is known.

    What a trial tried may be in force by now. What asks for what NCCL does by itself counts as not set.
    """
    now, tried, version = _now(snapshot), tried or {}, _version(snapshot)
    if then is None:
        unsaid = [
            _present(now[name])
            for name in now
            if _acts(name, now[name].value, version) is not None and not _followed(name, now, tried, version)
        ]
        if not unsaid:
            return None
        return f"without a record of variables, and {' and '.join(unsaid)} {_are(unsaid)} in force now"
    # Of what was not read nothing can have changed.
    names = now.keys() | then.keys() if recorded(snapshot) is not None else now.keys()
    gone, new, other = [], [], []
    for name in sorted(names):
        before, after = (
            _acts(name, then.get(name), version),
            _acts(name, now[name].value if name in now else None, version),
        )
        if before == after or _followed(name, now, tried, version):
            continue
        if after is None:
            gone.append(words({name: then[name]}))
        elif before is None:
            new.append(_present(now[name]))
        else:
            other.append(f"with {words({name: then[name]})} where now {_present(now[name])} is in force")
    told = [
        *([f"without {' and '.join(new)}, which {_are(new)} in force now"] if new else []),
        *([f"with {' and '.join(gone)}, which {_are(gone)} not in force now"] if gone else []),
        *other,
    ]
    return ", and ".join(told) or None


def _are(found: Sized) -> str:
    return "is" if len(found) == 1 else "are"


def _followed(name: str, now: Mapping[str, Setting], tried: Tried, version: str | None) -> bool:
    """It is as a trial tried it."""
    value = now[name].value if name in now else None
    return name in tried and _acts(name, value, version) == _acts(name, tried[name], version)


def at_odds(tried: Tried, snapshot: Snapshot) -> str | None:
    """Why a setting would not do what it was tried for, together with the others or with one that is in force."""
    version = _version(snapshot)
    now = {name: setting for name, setting in _now(snapshot).items() if name not in tried}
    values = {
        **{name: setting.value for name, setting in now.items()},
        **{name: value for name, value in tried.items() if value is not None},
    }
    for odds in AT_ODDS:
        if odds.works or not values.keys() >= set(odds.names) or now.keys() >= set(odds.names):
            continue
        if version is not None and not versions.at_least(version, odds.since):
            continue
        if (told := odds.tell(values)) is not None:
            first = [f"{name} ({now[name].place})" for name in odds.names if name in now]
            return f"{told}; first take out {' and '.join(first)}" if first else told
    return None


def _version(snapshot: Snapshot) -> str | None:
    """NCCL's; None = not known."""
    found = next((each.version for each in snapshot.nccl_libraries or () if each.version), None)
    return found if found is not None and versions.is_version(found) else None


def _now(snapshot: Snapshot) -> dict[str, Setting]:
    """Those in force that bear on measurements, by name."""
    return {
        setting.name: setting
        for setting in in_force(assume.settings(snapshot))
        if setting.value
        and registry()[setting.name].setting_class != "diagnostic"
        and not leaves_the_machine(setting.name)
    }


def _present(setting: Setting) -> str:
    return f"{words({setting.name: setting.value})} ({setting.place})"


def _acts(name: str, value: str | None, version: str | None) -> str | None:
    """What a value does in one spelling; None where NCCL does the same without it."""
    info = registry().get(name)
    if not value or info is None or info.reads == "never" or defaults.is_default(name, value, version):
        return None
    if info.since is not None and not info.exists_in(version):
        return None
    found = reading.read(info, value, version)
    return value if found is None else found.becomes
