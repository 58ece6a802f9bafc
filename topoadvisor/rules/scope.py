"""Known and unknown facts, and how they are gathered for one subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from topoadvisor.numbers import size_text
from topoadvisor.snapshot import Snapshot, Source


@dataclass(frozen=True, slots=True)
class Known:
    """A value and where it is from: a source, `catalogue`, `derived`, `assumed`, or `inferred: …` with the reason."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that was not read, and why."""

    reason: str


Fact = Known | Unknown

ASSUMED: Final = "assumed"
DERIVED: Final = "derived"
FROM_ASSUMED: Final = "derived from assumed facts"
_NOT_READ: Final = (ASSUMED, DERIVED, FROM_ASSUMED, "catalogue")

NVML: Final = ("nvml",)
PCI: Final = ("sysfs", "lspci -vv", "lspci -tv", "lspci -nn", "lspci")
NUMA: Final = ("sysfs numa", "sysfs")
NETWORK: Final = ("sysfs network", "sysfs")
IOMMU: Final = ("sysfs iommu", "sysfs")
DMI: Final = ("dmi",)
PROC: Final = ("procfs",)
DRIVER: Final = ("procfs driver", "procfs")
NCCL: Final = ("nccl",)
SETTINGS: Final = ("environment", "nccl.conf")

_NAMES: Final = {
    "nvml": "NVML",
    "dmi": "DMI",
    "nccl": "search for NCCL",
    "surroundings": "search for vendors' files and device nodes",
}
_FOREIGN: Final = {
    "matrix": "a pasted matrix",
    "text": "the given text",
    "nccl-topology-xml": "an NCCL topology XML",
    "hwloc-xml": "an hwloc XML",
    "nccl-log": "a log of NCCL",
}


_LINK: Final = ("/link:0.active", ".nvlinks")
_SAID: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("gpu.index", "gpu.label", "nic.name"), ("",)),
    "gpus.count": ("gpus",),
    "gpu.pcie.idle": (".performance_state",),
    "gpu.pcie.replays": (".pcie_replays",),
    "gpu.nvlinks.total": (".nvlinks",),
    **dict.fromkeys(("gpu.nvlinks.active", "gpu.nvlinks.inactive"), _LINK),
    "gpu.nvlinks.errors": (*(f"/link:0.{kind}_errors" for kind in ("recovery", "replay", "crc")), *_LINK),
    **{f"nic.{name}": (".ports", f".{name}") for name in ("state", "link_layer")},
    "nic.rdma": (".rdma", ""),
    "nic.rate_gbit": (".ports", ".speed_mbit"),
    **dict.fromkeys(("nic.link_downed", "nic.packet_bytes"), (".ports",)),
    "driver.version": ("driver.version",),
    "driver.flavour": ("driver.flavour",),
    "driver.patched_p2p": ("driver.banner",),
    "cuda.version": ("driver.cuda",),
    **dict.fromkeys(("nccl.version", "nccl.versions", "nccl.libraries"), ("nccl_libraries",)),
    **{f"cpu.{name}": (f"host.cpu.{name}",) for name in ("vendor", "architecture", "model_name", "family", "model")},
    "cpu.sockets": ("host.cpu.sockets",),
    "numa.count": ("host.numa_nodes",),
    "vm.hypervisor": ("host.hypervisor",),
    "vm.guest": ("gpu:0.virtualization",),
    "fabric.completed": ("gpu:0.fabric.state",),
    "nvlink.any": ("gpu:0/link:0.active", "gpu:0.nvlinks"),
    "nvlink.switch": ("gpu:0/link:0.remote_type", "gpu:0/link:0.remote_address", "gpu:0.nvlinks"),
    "nvlink.hidden_switch": ("gpu:0/link:0.remote_hidden", "gpu:0.nvlinks"),
    "kernel.version": ("host.kernel",),
    "kernel.command_line": ("host.command_line",),
}
"""Fact → where `Snapshot.origins` says who said it, best first; below the subject of the fact when that is empty or
begins with a sign. Facts with the name of a field are not listed."""


def spell(value: Any, name: str = "") -> str:
    """A value as a person writes it: lists with commas, numbers to three significant digits, sizes with their unit.

    Whole numbers of a fact whose name ends in `_bytes` become binary units; negative ones mean unlimited.
    """
    if name.endswith("_bytes") and isinstance(value, int):
        return size_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if isinstance(value, list):
        return ", ".join(spell(item) for item in value)
    text = str(value)
    # A carriage return at the end of a value is what somebody looks for, and would not show.
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def blend(facts: Sequence[Fact]) -> str:
    """The origin of what follows from several facts: inferred and assumed inputs stay visible."""
    origins = [fact.origin for fact in facts if isinstance(fact, Known)]
    inferred = next((origin for origin in origins if origin.startswith("inferred")), None)
    if inferred:
        return inferred
    return FROM_ASSUMED if any(ASSUMED in origin for origin in origins) else DERIVED


def follow(function: Callable[..., Any], *inputs: Fact, reason: str = "") -> Fact:
    """What `function` makes of the values; unknown with the first reason when one is, or with `reason` for None."""
    for fact in inputs:
        if isinstance(fact, Unknown):
            return fact
    value = function(*(fact.value for fact in inputs if isinstance(fact, Known)))
    return Unknown(reason) if value is None else Known(value, blend(inputs))


def by_model(name: Fact, count: Fact, each: float | None) -> Fact:
    """`count` of what the catalogue says a model has `each` of; from an assumption where the name is one."""
    if each is None:
        return name if isinstance(name, Unknown) else Unknown("the catalogue does not say it of this model")
    found = follow(lambda number, _: number * each, count, name)
    told = isinstance(found, Known) and isinstance(name, Known) and name.origin == ASSUMED
    return Known(found.value, FROM_ASSUMED) if told and isinstance(found, Known) else found


def any_of(facts: Sequence[Fact]) -> Fact:
    """True when one is true, else unknown when one is unknown, else false."""
    for fact in facts:
        if isinstance(fact, Known) and fact.value:
            return Known(True, blend([fact]))
    missing = next((fact for fact in facts if isinstance(fact, Unknown)), None)
    return missing or Known(False, blend(facts))


def none_of(facts: Sequence[Fact]) -> Fact:
    """The opposite of `any_of`."""
    return follow(lambda found: not found, any_of(facts))


def negate(fact: Fact) -> Fact:
    """The opposite of a true-or-false fact."""
    return Known(not fact.value, fact.origin) if isinstance(fact, Known) else fact


class Sources:
    """Who said what in one snapshot: origins of what was read, reasons for what was not."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._sources = {source.name: source for source in snapshot.sources}
        self._origins = snapshot.origins
        self._foreign = _FOREIGN.get(snapshot.origin)
        self._fallback = next((source.name for source in snapshot.sources if _answered(source)), snapshot.origin)

    def origin(self, *names: str) -> str:
        """The first of these sources that answered; the one that the snapshot is made of when none did.

        Of several texts it is the first that lists PCI functions or NICs, where these sources would have done so.
        """
        for listed, by in (("pci", PCI), ("nics", NETWORK)):
            if listed in self._origins and names[: len(by)] == by:
                return self._origins[listed]
        return next(
            (name for name in names if name in self._sources and _answered(self._sources[name])), self._fallback
        )

    def place(self, subject: str, key: str, *names: str) -> str:
        """Who said one value of a subject, where several texts were put together; else as `origin`."""
        return self._origins.get(f"{subject}.{key}") or self.origin(*names)

    def said(self, subject: str = "") -> dict[str, str]:
        """Fact → the source that said it, for one subject of a snapshot that was put together from several texts."""
        kind = "pair.p2p." if ">" in subject else f"{subject.partition(':')[0]}."
        start = f"{subject}."
        found = {
            kind + key.removeprefix(start): origin
            for key, origin in self._origins.items()
            if subject and key.startswith(start)
        }
        for fact, keys in _SAID.items():
            places = (f"{subject}{key}" if key[:1] in ("", ".", "/") else key for key in keys)
            origin = next((self._origins[place] for place in places if place in self._origins), None)
            if origin is not None:
                found[fact] = origin
        return found

    def why(self, *names: str, call: str = "", subject: str | None = None) -> str:
        """Why something that these sources could have said is not known, in the source's own words.

        `call` is a part of the name of the question, `subject` whom it was asked about.
        """
        asked = [self._sources[name] for name in names if name in self._sources]
        for source in asked:
            for error in source.errors if call else ():
                if call in error.call and _about(error.subject, subject):
                    return f"{_label(source.name)}: {error.call}: {error.error}"
        for source in asked:
            if source.status in ("absent", "failed"):
                return f"{_label(source.name)}: {source.reason or source.status}"
        if self._foreign:
            return f"{self._foreign} does not hold it"
        if asked:
            return f"{_label(asked[0].name)} does not say"
        return f"{_label(names[0])} was not asked"


def _answered(source: Source) -> bool:
    return source.status in ("ok", "partial")


def _about(subject: str | None, wanted: str | None) -> bool:
    """Whether an error is about this subject or a part of it (`gpu:0/link:3`)."""
    return wanted is None or subject == wanted or (subject or "").startswith(f"{wanted}/")


def _label(name: str) -> str:
    return _NAMES.get(name, name)


class Scope:
    """The facts of one subject while they are gathered. What the user assumed wins over what was read."""

    def __init__(self, assumed: Mapping[str, Any], said: Mapping[str, str] | None = None) -> None:
        self.facts: dict[str, Fact] = {}
        self.contradicted: list[tuple[str, Any, Known]] = []
        """Facts that were assumed with another value than follows from the machine: name, that value, the other."""
        self._assumed = assumed
        self._said = said or {}

    def put(self, name: str, fact: Fact) -> Fact:
        """Record a fact unless the user assumed it; returns the fact that counts."""
        if name in self._assumed:
            self.deny(name, fact)
            fact = Known(self._assumed[name], ASSUMED)
        elif name in self._said and isinstance(fact, Known) and fact.origin not in _NOT_READ:
            fact = fact if fact.origin.startswith("inferred") else Known(fact.value, self._said[name])
        self.facts[name] = fact
        return fact

    def deny(self, name: str, fact: Fact) -> None:
        """Note a value that the fact has without what the user assumed of it, where that is another one."""
        if isinstance(fact, Known) and name in self._assumed and fact.value != self._assumed[name]:
            self.contradicted.append((name, self._assumed[name], fact))

    def read(self, name: str, value: Any | None, origin: str, reason: str) -> Fact:
        """Record a value that was read, or why it was not (`value` None)."""
        return self.put(name, Unknown(reason) if value is None else Known(value, origin))

    def value(self, name: str) -> Any | None:
        """The value of a fact recorded before; None when unknown."""
        fact = self.facts[name]
        return fact.value if isinstance(fact, Known) else None
