"""Facts that the user supplies: reading them, and writing into the snapshot those that the topology is built from.

Every assumption is also kept in `Snapshot.assumptions`; the facts layer lets it win over what was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import msgspec

from topoadvisor.errors import InputError, gpus_here
from topoadvisor.hardware import catalogue
from topoadvisor.ingest import stand_in, told, told_values
from topoadvisor.nccl import versions
from topoadvisor.snapshot import (
    ON_COMMAND_LINE,
    Assumption,
    Cpu,
    NcclLibrary,
    P2p,
    PcieLink,
    Setting,
    Snapshot,
)
from topoadvisor.vocabulary import kind_of

ORIGIN: Final = "assumed"
_HINT = "Write it as FACT=VALUE, for example cpu.vendor=AMD; `topoadvisor facts` lists every fact."

_ONE: Final = "Keep one of the two."
_P2P: Final = ("read", "write", "nvlink")


def gather(texts: list[str], files: Path | Sequence[Path] | None) -> list[Assumption]:
    """The facts of YAML mappings and of `fact=value` texts; a text wins over the files.

    Nested mappings are joined by dots. Names and values may be spelt as `told` takes them.

    Raises InputError for a text that is not `fact=value`, for names and values that are not taken, for a fact that
    comes twice with different values or twice in one file, and with line and column for a file that is no such mapping.
    """
    paths = [] if files is None else [files] if isinstance(files, Path) else files
    found = [
        Assumption(fact=name, value=value, origin=f"{path}:{line}")
        for path in paths
        for name, value, line in _in_file(path)
    ]
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not told.NAME.fullmatch(name):
            raise InputError(f"--assume {text[:80]!r} is not FACT=VALUE", hint=_HINT)
        if not value and not told.may_be_empty(name):
            raise InputError(f"--assume {text[:80]!r} gives no value", hint=_HINT)
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InputError(f"--assume {text[:80]!r} holds bytes that are no UTF-8 text", hint=_HINT)
        found.append(Assumption(fact=name, value=value))
    facts: dict[str, Assumption] = {}
    for each in told.understood(found):
        if each.fact in facts:
            _said_twice(facts[each.fact], each)
        facts[each.fact] = each
    return list(facts.values())


def _said_twice(first: Assumption, second: Assumption) -> None:
    """Raises InputError where one of the two is not meant: only --assume may contradict a file."""
    here = second.origin == ON_COMMAND_LINE
    (before, _, line), place = first.origin.rpartition(":"), second.origin.rpartition(":")[0]
    if first.origin == second.origin == ON_COMMAND_LINE and first.value != second.value:
        values = f"{told_values.typed(first.value)} and {told_values.typed(second.value)}"
        raise InputError(f"--assume says `{first.fact}` twice, as {values}", hint=_ONE)
    if not here and (before == place or first.value != second.value):
        where = f"line {line}" if before == place else first.origin
        raise InputError(f"`{second.fact}` is said twice, also in {where}", file=second.origin, hint=_ONE)


def _in_file(file: Path) -> Iterable[tuple[str, Any, int]]:
    from topoadvisor.ingest import assume_file

    return assume_file.read(file)


def apply(snapshot: Snapshot, assumptions: Sequence[Assumption]) -> Snapshot:
    """The snapshot with the assumed facts in it where it has a place for them, and all of them in `assumptions`.

    Raises InputError for a value of another type, or a GPU that is not there.
    """
    assumptions = told.understood(assumptions)
    for each in assumptions:
        name, which = told.parts(each.fact)
        if which is not None and name.startswith(("gpu.", "pair.")):
            _indices(snapshot, each, which, 1 if name.startswith("gpu.") else 2)
    said = {each.fact for each in assumptions}
    implied = [each for each in _implied(assumptions, len(snapshot.gpus)) if each.fact not in said]
    assumptions = [_beside(each, snapshot) for each in assumptions]
    told_facts = {each.fact: each.value for each in [*implied, *assumptions]}
    snapshot = stand_in.kept(snapshot, told_facts)
    # What was said comes last and so wins, and among what follows from it what is about one device.
    for assumption in [*sorted(implied, key=lambda each: told.parts(each.fact)[1] is not None), *assumptions]:
        snapshot = _applied(snapshot, assumption)
    assumptions = [*assumptions, *implied]
    return msgspec.structs.replace(snapshot, assumptions=[*snapshot.assumptions, *assumptions])


_MEANS: Final[dict[str, Callable[[Any, int], Mapping[str, Any]]]] = {
    "platform.product": lambda product, _: _known({"vm.guest": _virtual(product)}),
    "cpu.model_name": lambda model, _: _known({"cpu.vendor": catalogue.cpu_maker(model)}),
    "gpus.model": lambda model, _: {"gpu.name": model},
    "gpus.models": lambda models, _: {"gpu.name": models[0]} if len(models) == 1 else {},
    "gpus.geforce": lambda every, _: {"gpu.geforce": True} if every else {},
    "gpus.mig": lambda some, gpus: {"gpu.mig": some} if gpus == 1 or not some else {},
    "gpus.bar1_covers_memory": lambda every, gpus: {"gpu.bar1_covers_memory": every} if every or gpus == 1 else {},
    "fabric.completed": lambda every, _: {"gpu.fabric.state": "completed"} if every else {},
    "nvlink.any": lambda some, _: {} if some else {"pair.nvlinks": 0},
    "p2p.all_ok": lambda every, gpus: {"pair.p2p.ok": every} if every or gpus == _TWO else {},
    "p2p.none_ok": lambda none, gpus: {"pair.p2p.ok": not none} if none or gpus == _TWO else {},
    "p2p.any_refused": lambda some, gpus: {"pair.p2p.ok": not some} if not some or gpus == _TWO else {},
    "pair.p2p.refused": lambda refused, _: {"pair.p2p.ok": not refused},
    "pair.p2p.read": lambda read, _: {"pair.p2p.write": "OK"} if read == "OK" else {},
    "pair.p2p.ok": lambda ok, _: dict.fromkeys(("pair.p2p.read", "pair.p2p.write"), "OK" if ok else "NS"),
    "iommu.translated": lambda yes, _: {"iommu.mode": "DMA"} if yes else {},
    "vm.guest": lambda guest, _: {} if guest else {"vm.hypervisor": "none"},
    "container.any": lambda some, _: {} if some else {"container.kind": "none"},
    "nic.state": lambda state, _: {"rdma.any": True} if state == "ACTIVE" else {},
    "nic.link_layer": lambda layer, _: {"rdma.link_layers": [layer]},
    "rdma.link_layers": lambda layers, _: (
        {
            "rdma.any": bool(layers),
            **({"rdma.local_link_layers": layers} if len(layers) == 1 else {}),
            **({"rdma.efa": False} if layers == ["InfiniBand"] else {}),
        }
    ),
    "job.message": lambda message, _: _known({"nccl.version": versions.in_message(message)}),
    "gdr.peermem": lambda loaded, _: {"modules.nvidia_peermem": loaded},
}
"""Fact → its value and the number of GPUs → what that says of the facts which it is made from, as far as it does."""
_TWO: Final = 2
"""GPUs of which there is one pair: what is said of some pair is said of it."""


_MACHINES: Final = re.compile(
    r"(?P<bare>[a-z]+[0-9]\w*(?:-\w+)?\.metal\S*|BM\.GPU\S*|a[2-4]x?-\S+-metal)"
    r"|(?:[a-z]+[0-9]\w*(?:-\w+)?\.[0-9]*x?large|VM\.GPU\S*|(?:a[2-4]x?|g[24])-\S+|Standard_N[A-Z]\S+)"
)
"""Machine types of Amazon, Oracle, Google and Azure that have GPUs, the bare ones apart from the virtual ones."""


def _virtual(product: str) -> bool | None:
    """Whether a machine type of a cloud is a virtual machine; None for what is none of them."""
    found = _MACHINES.fullmatch(product)
    return None if found is None else found["bare"] is None


def _known(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}


def _implied(assumptions: Sequence[Assumption], gpus: int) -> Iterator[Assumption]:
    """What a fact made from others says of those: they would contradict it otherwise."""
    for each in assumptions:
        name, which = told.parts(each.fact)
        said = _MEANS[name](each.value, gpus) if name in _MEANS else {}
        more = [
            msgspec.structs.replace(each, fact=told.about(fact, which), value=value, follows=True)
            for fact, value in said.items()
            if which is None or kind_of(fact) == kind_of(name)
        ]
        yield from _implied(more, gpus)
        yield from more


def implied_by(assumption: Assumption) -> set[str]:
    """The facts of which an assumed one says something, on a machine with one, two or more GPUs."""
    several = range(1, _TWO + 2)
    return {told.parts(each.fact)[0] for gpus in several for each in _implied([assumption], gpus)}


def _applied(snapshot: Snapshot, assumption: Assumption) -> Snapshot:
    name, which = told.parts(assumption.fact)
    value = assumption.value
    if name.startswith("gpu."):
        return _apply_to_gpus(snapshot, assumption, name, which)
    if name.removeprefix("pair.p2p.") in _P2P:
        return _apply_to_pairs(snapshot, assumption, name.removeprefix("pair.p2p."), which)
    if name.startswith("env."):
        return _apply_to_settings(snapshot, name.removeprefix("env."), value)
    if name == "nccl.version":
        library = NcclLibrary(path=ORIGIN, version=value, read_by=ORIGIN)
        found = [each for each in snapshot.nccl_libraries or [] if each.path != ORIGIN]
        return msgspec.structs.replace(snapshot, nccl_libraries=[library, *found])
    if name not in _PLACES:
        return snapshot
    changed: Snapshot = _with(snapshot, _PLACES[name], value)
    return changed


def _beside(assumption: Assumption, snapshot: Snapshot) -> Assumption:
    """The assumption with what was read in its place, where that is something else."""
    name, which = told.parts(assumption.fact)
    values: list[Any] = []
    if name in _PLACES:
        values = [_at(snapshot, _PLACES[name])]
    elif name == "nccl.version":
        values = [library.version for library in (snapshot.nccl_libraries or ())[:1]]
    elif name == "vm.guest" and snapshot.host.hypervisor is not None:
        values = [snapshot.host.hypervisor != "none"]
    elif name == "numa.count" and snapshot.host.numa_nodes is not None:
        values = [len(snapshot.host.numa_nodes)]
    elif name == "gpu.name":
        values = [gpu.name for gpu in snapshot.gpus if which is None or str(gpu.index) in told.numbers(which)]
    others = list(dict.fromkeys(value for value in values if value not in (None, assumption.value)))
    return msgspec.structs.replace(assumption, read=others[0]) if len(others) == 1 else assumption


def _at(struct: Any, path: Sequence[str]) -> Any:
    """The value at the end of a path; None where it or something on the way is not known."""
    for name in path:
        struct = struct.get(name) if isinstance(struct, dict) else getattr(struct, name, None)
    return struct


def _apply_to_gpus(snapshot: Snapshot, assumption: Assumption, name: str, which: str | None) -> Snapshot:
    chosen = {gpu.index for gpu in snapshot.gpus} if which is None else set(_indices(snapshot, assumption, which, 1))
    place = name.removeprefix("gpu.").split(".")
    if name not in _GPU_PLACES:
        return snapshot
    value = f"{assumption.value:.1f}" if name == "gpu.compute_capability" else assumption.value
    gpus = [_with(gpu, place, value) if gpu.index in chosen else gpu for gpu in snapshot.gpus]
    return msgspec.structs.replace(snapshot, gpus=gpus)


def _apply_to_pairs(snapshot: Snapshot, assumption: Assumption, kind: str, which: str | None) -> Snapshot:
    """Both directions of one pair, or every ordered pair."""
    every = [gpu.index for gpu in snapshot.gpus]
    chosen = set(permutations(every if which is None else _indices(snapshot, assumption, which, 2), 2))
    known = {(pair.a, pair.b): pair for pair in snapshot.p2p or []}
    for a, b in sorted(chosen):
        known[a, b] = msgspec.structs.replace(known.get((a, b), P2p(a=a, b=b)), **{kind: assumption.value})
    return msgspec.structs.replace(snapshot, p2p=list(known.values()))


def _indices(snapshot: Snapshot, assumption: Assumption, which: str, count: int) -> list[int]:
    numbers = told.numbers(which)
    present = {str(gpu.index): gpu.index for gpu in snapshot.gpus}
    where = None if assumption.origin == ON_COMMAND_LINE else assumption.origin
    if len(set(numbers)) != count or not all(number.isdecimal() for number in numbers):
        wanted, example = ("one GPU", "gpu[0]") if count == 1 else ("two GPUs", "pair[0,1]")
        raise InputError(
            f"the assumed fact `{assumption.fact}` is about {wanted}, and names something else",
            file=where,
            hint=f"Write it as {example}.{told.parts(assumption.fact)[0].partition('.')[2]}.",
        )
    if not set(numbers) <= set(present):
        raise InputError(
            f"the assumed fact `{assumption.fact}` names a GPU that is not here",
            file=where,
            hint=gpus_here(present.values()),
        )
    return [present[number] for number in numbers]


def _apply_to_settings(snapshot: Snapshot, name: str, value: str) -> Snapshot:
    """Put the variable in place of what was read of it, or with an empty value remove it.

    Settings that were not read stay so: one assumed variable says nothing about the others.
    """
    if snapshot.settings is None:
        return snapshot
    others = [setting for setting in snapshot.settings if setting.name != name]
    if not value:
        return msgspec.structs.replace(snapshot, settings=others)
    return msgspec.structs.replace(snapshot, settings=[Setting(name=name, value=value, origin=ORIGIN), *others])


def settings(snapshot: Snapshot) -> list[Setting]:
    """The variables that are set as far as that is known: those that were read, else the last word of assumptions."""
    if snapshot.settings is not None:
        return snapshot.settings
    assumed = {each.fact: each.value for each in told.understood(snapshot.assumptions) if each.fact.startswith("env.")}
    return [
        Setting(name=fact.removeprefix("env."), value=value, origin=ORIGIN) for fact, value in assumed.items() if value
    ]


_GPU_PLACES: Final = frozenset(
    {f"gpu.{name}" for name in ("name", "memory_bytes", "bar1_bytes", "compute_capability", "numa_node", "c2c_gbps")}
    | {f"gpu.{name}" for name in ("mig", "virtualization")}
    | {f"gpu.pcie.{name}" for name in ("current_gen", "max_gen", "device_max_gen", "current_width", "max_width")}
)
"""Facts of a GPU that have a field of the same name in the snapshot."""
_PLACES: Final[dict[str, tuple[str, ...]]] = {
    **{f"cpu.{name}": ("host", "cpu", name) for name in ("vendor", "architecture", "model_name", "family", "model")},
    "cpu.sockets": ("host", "cpu", "sockets"),
    "driver.version": ("driver", "version"),
    "driver.flavour": ("driver", "flavour"),
    "cuda.version": ("driver", "cuda"),
    "vm.hypervisor": ("host", "hypervisor"),
    "container.kind": ("host", "container"),
    "shm.total_bytes": ("host", "shm_total_bytes"),
    "shm.free_bytes": ("host", "shm_free_bytes"),
    "limits.memlock_bytes": ("host", "memlock_bytes"),
    "limits.open_files": ("host", "open_files"),
    "kernel.version": ("host", "kernel"),
    "kernel.command_line": ("host", "command_line"),
    "platform.vendor": ("host", "dmi", "sys_vendor"),
    "platform.product": ("host", "dmi", "product_name"),
    "net.default_interface": ("host", "default_interface"),
}
_EMPTY: Final[dict[str, Any]] = {"cpu": Cpu(), "pcie": PcieLink(), "dmi": {}}


def _with(struct: Any, path: Sequence[str], value: Any) -> Any:
    """A copy of a struct (or mapping) in which one nested value is another."""
    name, *rest = path
    inside = struct.get(name) if isinstance(struct, dict) else getattr(struct, name)
    if rest:
        value = _with(_EMPTY[name] if inside is None else inside, rest, value)
    return {**struct, name: value} if isinstance(struct, dict) else msgspec.structs.replace(struct, **{name: value})
