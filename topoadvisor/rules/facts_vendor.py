"""Facts about what is set here, beside what the vendor of this machine publishes for NCCL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from topoadvisor.hardware import vendor_values
from topoadvisor.hardware.tables import Profile
from topoadvisor.hardware.vendor_values import Line
from topoadvisor.rules.scope import Fact, Known, Scope, Unknown, blend, follow

_OWN_BOARDS = (4, 8)
"""GPUs of an HGX board."""


class Comparison(NamedTuple):
    """A vendor's profile and its lines."""

    profile: Profile
    lines: list[Line]


def gather(node: Scope, env: Callable[[str], Fact]) -> None:
    """Record `vendor.values`, `vendor.missing` and `vendor.applied`."""
    cloud, machine = node.facts["platform.cloud"], node.facts["platform.machine"]
    unknown = next((fact for fact in (cloud, machine) if isinstance(fact, Unknown)), None)
    if unknown is not None:
        for name in ("values", "missing", "applied"):
            node.put(f"vendor.{name}", unknown)
        if all(isinstance(fact := env(f"env.{name}"), Known) and not fact.value for name in vendor_values.names()):
            node.put("vendor.applied", Known([], "derived"))
        return
    found = compared(node.facts, env)
    origin = blend([cloud, machine])
    node.put("vendor.values", Known(found.profile.name if found else "", origin))
    lines = found.lines if found else []
    not_known = [line.name for line in lines if line.state == "not known"]
    for name, states in (("missing", ("missing",)), ("applied", ("same", "differs"))):
        chosen = [line.name for line in lines if line.state in states]
        unread = Unknown(f"whether {not_known[0]} is set was not read") if not_known else None
        node.put(f"vendor.{name}", unread or Known(chosen, origin))


def compared(node: Mapping[str, Fact], env: Callable[[str], Fact]) -> Comparison | None:
    """The comparison for this machine; None where no vendor's profile is known to be of it."""
    profile = _profile(node)
    if profile is None:
        return None

    def present(name: str) -> str | None:
        fact = env(f"env.{name}")
        return str(fact.value) if isinstance(fact, Known) else None

    return Comparison(profile, vendor_values.compare(profile, present))


def _profile(node: Mapping[str, Fact]) -> Profile | None:
    def value(name: str) -> object:
        fact = node[name]
        return fact.value if isinstance(fact, Known) else None

    cloud, machine, layers = value("platform.cloud"), value("platform.machine"), value("rdma.link_layers")
    if cloud is None or machine is None:
        return None
    if cloud == "none" and "NVIDIA GB10" in (models if isinstance(models := value("gpus.models"), list) else ()):
        machine = "dgx-spark"
    elif machine == "none" and value("gpus.sxm") and value("nvlink.switch") and value("gpus.count") in _OWN_BOARDS:
        machine = "hgx"
    return vendor_values.profile_of(str(cloud), str(machine), layers if isinstance(layers, list) else ())


def of_variable(scope: Scope, name: str, overridden: bool, node: Scope) -> None:
    """Record what the vendor says of one variable."""
    cloud, machine = node.facts["platform.cloud"], node.facts["platform.machine"]
    of_any = name in vendor_values.names()
    named = follow(lambda told: name in vendor_values.names(str(told)), cloud) if of_any else Known(False, "catalogue")
    scope.put("variable.published", named)
    older = follow(lambda told: vendor_values.stale(str(told)).get(name, ""), cloud)
    of_older = name in vendor_values.stale() and not overridden
    if overridden or not (of_any or name in vendor_values.stale()):
        state, published = "", ""
    elif isinstance(older, Known) and older.value:
        state, published = "stale", str(older.value)
    elif isinstance(unknown := older if isinstance(older, Unknown) else machine, Unknown):
        scope.put("variable.vendor_state", unknown)
        scope.put("variable.vendor_value", unknown)
        scope.put("variable.vendor_stale", unknown if of_older else Known(False, "catalogue"))
        return
    else:
        found = compared(node.facts, lambda wanted: node.facts.get(wanted, Known("", "derived")))
        line = next((each for each in found.lines if each.name == name), None) if found else None
        state, published = (line.state, line.vendor) if line else ("", "")
    scope.put("variable.vendor_state", Known(state, blend([cloud])))
    scope.put("variable.vendor_value", Known(published, blend([cloud])))
    scope.put("variable.vendor_stale", Known(state == "stale", blend([cloud])))
