"""Partial snapshots of one machine → one Snapshot.

The first value that was read counts. Where a later part says something else, both values are kept: the later source
becomes `partial`, and its errors name the two values and which one is believed. Parts of another machine are never
blended in: from another file they are refused, inside one text they are left out and the source says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from topoadvisor import pci
from topoadvisor.errors import InputError
from topoadvisor.ingest import host_marks, hosts, joining, moments
from topoadvisor.ingest.nvidia_smi_text import P2P_CAPABILITIES
from topoadvisor.ingest.part import Part, source
from topoadvisor.snapshot import LOG, CallError, Gpu, Host, IbPort, Nic, NumaNode, P2p, PciDevice, Snapshot, Struct

S = TypeVar("S", bound=Struct)

_UUID = re.compile(r"(?:GPU-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.I)
_MATRIX_PARTS = ("nvidia-smi topo", "nvidia-smi nvlink", "nvidia-smi -L")
_MOST_ERRORS = 50
"""Disagreements kept of one source: two machines that slipped through would disagree about everything."""
_FLAGS = ("rdma", "remote_hidden")
"""False where nothing was read: they are true as soon as one part says so."""
_HINT = "Give texts of one machine; scan the others by themselves, or compare two with `topoadvisor diff A B`."
_TWO_TIMES = "Give texts of one machine and one time; `topoadvisor diff A B` compares two times of one machine."
_FOLDED = ("nccl-topology-xml", LOG)
"""NCCL's lists of PCI devices, in which a switch is one bridge."""
_FIRST_WINS = ("nccl_libraries", "settings", "captured_at", "tool")
_NAMED_BY_OTHERS = "lspci"
"""Its names are those of pci.ids, never the driver's: they differ without disagreeing."""


@dataclass
class _Machine:
    """What is known so far, and who said it."""

    gpus: dict[int, Gpu] = field(default_factory=dict)
    p2p: dict[tuple[int, int], P2p] | None = None
    nics: dict[str, Nic] | None = None
    pci: dict[str, PciDevice] | None = None
    host: Host = field(default_factory=Host)
    others: Snapshot = field(default_factory=Snapshot)
    origins: dict[str, str] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    count: tuple[int, Part] | None = None
    """How many GPUs there are, and who says so."""


def merge(parts: Sequence[Part]) -> Snapshot:
    """One snapshot of all parts, in the order given; their sources name what was read.

    Raises InputError when parts of different files are about different machines, or one at different times.
    """
    machine = _Machine()
    parts = [_named(part) for part in parts]
    _refuse_two_trees(parts)
    parts = _one_tree(_without_strange_tree(parts))
    numbered = [part for part in parts if part.numbered]
    counted = joining.number([part for part in parts if not part.numbered], numbered)
    counted.sort(key=lambda part: _NAMED_BY_OTHERS in part.source.name)
    for part in [*numbered, *counted]:
        problem = _stranger(machine, part) or moments.other_board(machine.parts, part)
        if problem is None:
            if (contradiction := moments.contradiction(machine.parts, part)) is not None:
                what, file = contradiction
                raise InputError(
                    f"this is another machine than that of {file}, or the same at another time: {what}",
                    file=part.file,
                    hint=_TWO_TIMES,
                )
            _take(machine, part)
            continue
        what, file = problem
        if part.file not in {known.file for known in machine.parts}:
            raise InputError(f"this is another machine than that of {file}: {what}", file=part.file, hint=_HINT)
        machine.parts.append(part.bare(f"left out, for it is about another machine: {what}"))
    return _snapshot(machine)


def _named(part: Part) -> Part:
    """The part with a source, which a snapshot need not have."""
    if part.snapshot.sources:
        return part
    unsaid = source("snapshot", ["it names no source that its values come from"])
    return replace(part, snapshot=msgspec.structs.replace(part.snapshot, sources=[unsaid]))


def _refuse_two_trees(parts: Sequence[Part]) -> None:
    """The tree of `lspci` shows all GPUs: two files that show others there are about two machines."""
    trees = [part for part in parts if part.source.name == "lspci -tv"]
    for part in trees[1:]:
        here, there = ([gpu.address for gpu in tree.snapshot.gpus] for tree in (part, trees[0]))
        if part.file != trees[0].file and here != there:
            what = f"its tree has {_gpus(len(here))} here and {_gpus(len(there))} there, or not at the same addresses"
            raise InputError(
                f"this is another machine than that of {trees[0].file}: {what}", file=part.file, hint=_HINT
            )


def _without_strange_tree(parts: Sequence[Part]) -> list[Part]:
    """The parts without a tree of `lspci` whose GPUs are all elsewhere than where another part has the GPUs."""
    result = []
    for part in parts:
        mine = {gpu.address for gpu in part.snapshot.gpus if gpu.address is not None}
        for other in parts if mine and part.source.name == "lspci -tv" else ():
            theirs = {gpu.address for gpu in other.snapshot.gpus if gpu.address is not None}
            if theirs and not mine & theirs:
                what = f"its tree has a GPU at {min(mine)} and none of those there, such as {min(theirs)}"
                if other.file != part.file:
                    raise InputError(
                        f"this is another machine than that of {other.file}: {what}", file=part.file, hint=_HINT
                    )
                part = part.bare(f"left out, for it is about another machine than {other.source.name}: {what}")
                break
        result.append(part)
    return result


def _one_tree(parts: Sequence[Part]) -> list[Part]:
    """The parts without NCCL's list of PCI devices where a better one is there: NCCL folds a switch into one bridge."""
    better = any(
        part.snapshot.origin not in _FOLDED and any(device.root or device.parent for device in part.snapshot.pci or ())
        for part in parts
    )
    return [
        replace(part, snapshot=msgspec.structs.replace(part.snapshot, pci=None)).noted(
            reason="its PCI devices are not used, for NCCL folds switches into one bridge and the whole list is here"
        )
        if better and part.snapshot.origin in _FOLDED and part.snapshot.pci
        else part
        for part in parts
    ]


def _stranger(machine: _Machine, part: Part) -> tuple[str, str] | None:
    """Why a part cannot be about this machine, and the file that says otherwise; None when it can be."""
    known, said = machine.host.hostname, part.snapshot.host.hostname
    if known and said and known.partition(".")[0].lower() != said.partition(".")[0].lower():
        file = next(other.file for other in machine.parts if other.snapshot.host.hostname)
        return f"the host is {said} here and {known} there", file
    names = _names(part)
    for before in machine.parts:
        if before.file != part.file and hosts.differ(names, _names(before)):
            return f"the host is {min(names)} here and {min(_names(before))} there", before.file
    if machine.count is not None:
        count, teller = machine.count
        if part.count is not None and part.count != count:
            return f"it has {_gpus(part.count)} here and {_gpus(count)} there", teller.file
        highest = max((gpu.index for gpu in part.snapshot.gpus), default=-1)
        if highest >= count:
            return f"it has a GPU{highest} here and {_gpus(count)} there", teller.file
    highest = max(machine.gpus, default=-1)
    if part.count is not None and highest >= part.count:
        return f"it has {_gpus(part.count)} here and a GPU{highest} there", _teller(machine, highest)
    for gpu in part.snapshot.gpus:
        other = machine.gpus.get(gpu.index)
        if other is None:
            continue
        for what, mine, theirs in (("UUID", gpu.uuid, other.uuid), ("PCI address", gpu.address, other.address)):
            comparable = what != "UUID" or (_is_whole(mine) and _is_whole(theirs))
            if mine and theirs and comparable and mine.lower() != theirs.lower():
                differ = f"GPU{gpu.index} has the {what} {mine[:60]} here and {theirs[:60]} there"
                return differ, _teller(machine, gpu.index)
    return None


def _names(part: Part) -> frozenset[str]:
    """What the host of a part is called; nothing where the names were replaced."""
    said = part.snapshot.host.hostname
    return part.hosts | ({host_marks.short(said)} if said and not part.snapshot.redacted else frozenset())


def _teller(machine: _Machine, index: int) -> str:
    """The first file that shows this GPU."""
    return next(part.file for part in machine.parts if any(gpu.index == index for gpu in part.snapshot.gpus))


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _is_whole(uuid: str | None) -> bool:
    """A UUID that nobody has shortened or painted over."""
    return uuid is not None and _UUID.fullmatch(uuid) is not None


def _take(machine: _Machine, part: Part) -> None:
    """Fill up what is known from one part, and note in it where it says something else."""
    said = part.snapshot
    filler = _Filler(machine.origins, part)
    for gpu in said.gpus:
        known = machine.gpus.get(gpu.index, Gpu(index=gpu.index))
        filler.say(f"gpu:{gpu.index}")
        machine.gpus[gpu.index] = filler.gpu(known, gpu)
    if said.p2p is not None:
        machine.p2p = machine.p2p or {}
        for pair in said.p2p:
            key = pair.a, pair.b
            machine.p2p[key] = filler.p2p(machine.p2p.get(key, P2p(a=pair.a, b=pair.b)), pair)
    if said.nics is not None:
        machine.nics = machine.nics or {}
        filler.say("nics")
        for nic in said.nics:
            filler.say(f"nic:{nic.name}")
            machine.nics[nic.name] = filler.nic(machine.nics.get(nic.name), nic)
    if said.pci is not None:
        machine.pci = machine.pci or {}
        filler.say("pci")
        for device in said.pci:
            known_device = machine.pci.get(device.address, PciDevice(address=device.address))
            machine.pci[device.address] = filler.fill(known_device, device, f"pci:{device.address}")
    if said.nccl_libraries:
        filler.say("nccl_libraries")
    machine.host = filler.host(machine.host, said.host)
    machine.others = msgspec.structs.replace(
        machine.others,
        driver=filler.fill(machine.others.driver, said.driver, "driver"),
        matrices=[*machine.others.matrices, *said.matrices],
        measurements=[*machine.others.measurements, *said.measurements],
        trials=[*machine.others.trials, *said.trials],
        assumptions=[*machine.others.assumptions, *said.assumptions],
        redacted=machine.others.redacted or said.redacted,
        **{name: getattr(machine.others, name) or getattr(said, name) for name in _FIRST_WINS},
    )
    if part.count is not None:
        machine.count = machine.count or (part.count, part)
    machine.parts.append(filler.part())


@dataclass
class _Filler:
    """Fills structures up from one part, and collects where the part disagrees."""

    origins: dict[str, str]
    source: Part
    errors: list[CallError] = field(default_factory=list)

    def part(self) -> Part:
        """The part, partial when it disagreed."""
        if not self.errors:
            return self.source
        first = self.errors[0]
        more = f", and {len(self.errors) - 1} more" if len(self.errors) > 1 else ""
        reason = f"{first.subject} {first.call} {first.error}{more}"
        return self.source.noted(*self.errors[:_MOST_ERRORS], reason=reason)

    def fill(self, known: S, said: S, subject: str, *, path: str = "") -> S:
        """`known` with the fields that it lacks from `said`."""
        fresh: dict[str, Any] = {}
        for name, value in msgspec.structs.asdict(said).items():
            mine = getattr(known, name)
            key = f"{path}{name}"
            if value is None or value == mine or (isinstance(value, list) and mine is not None):
                continue
            if (name in _FLAGS and value is False) or (name == "numa_node" and value == -1 and mine is not None):
                continue
            if isinstance(value, Struct):
                fresh[name] = self.fill(mine if mine is not None else type(value)(), value, subject, path=f"{key}.")
            elif mine is None or name in _FLAGS or (name == "numa_node" and mine == -1):
                fresh[name] = value
                self.say(subject, key)
            elif name == "class_code" and str(value).startswith(str(mine)):
                # `lspci` prints no programming interface, the last two digits.
                fresh[name] = value
            elif name == "class_code" and str(mine).startswith(str(value)):
                continue
            elif not (name == "name" and _NAMED_BY_OTHERS in self.source.source.name):
                self.disagree(subject, key, value, mine)
        return msgspec.structs.replace(known, **fresh) if fresh else known

    def say(self, subject: str, key: str = "") -> None:
        """Remember who said a value, or named the subject first. A snapshot of many sources knows better itself."""
        said = self.source.snapshot
        place = f"{subject}.{key}" if key else subject
        name = said.origins.get(place) or (said.sources[0].name if len(said.sources) == 1 else None)
        if name is not None:
            self.origins.setdefault(place, name)

    def disagree(self, subject: str, key: str, value: object, mine: object) -> None:
        before = self.origins.get(f"{subject}.{key}", "what was read before")
        here, there = _short(value), _short(mine)
        error = f"is {here} here and {there} in {before}, which is believed because it was read first"
        self.errors.append(CallError(call=key, error=error, subject=subject))

    def gpu(self, known: Gpu, said: Gpu) -> Gpu:
        subject = f"gpu:{known.index}"
        filled = self.fill(known, msgspec.structs.replace(said, index=known.index, nvlinks=None), subject)
        if said.nvlinks is None:
            return filled
        if not filled.nvlinks:
            if filled.nvlinks is not None and any(link.active is not False for link in said.nvlinks):
                self.disagree(subject, "nvlinks", f"{len(said.nvlinks)} links", "none active")
            elif filled.nvlinks is None:
                self.say(subject, "nvlinks")
                filled = msgspec.structs.replace(filled, nvlinks=said.nvlinks)
            return filled
        if not said.nvlinks:
            self.disagree(subject, "nvlinks", "none active", f"{len(filled.nvlinks)} links")
            return filled
        links = {link.link: link for link in filled.nvlinks}
        for link in said.nvlinks:
            links[link.link] = self.fill(links.get(link.link, link), link, f"{subject}/link:{link.link}")
        return msgspec.structs.replace(filled, nvlinks=[links[number] for number in sorted(links)])

    def p2p(self, known: P2p, said: P2p) -> P2p:
        """Of two answers none is nearer to the truth, and much rests on them: none counts where they differ."""
        subject = f"gpu:{known.a}>gpu:{known.b}"
        disputed: dict[str, list[str]] = {}
        for name in P2P_CAPABILITIES:
            before, here = (pair.disputed.get(name) or [getattr(pair, name)] for pair in (known, said))
            answers = list(dict.fromkeys(answer for answer in (*before, *here) if answer is not None))
            if len(answers) < 2:
                continue
            disputed[name] = answers
            if len(answers) > len(before):
                there = self.origins.get(f"{subject}.{name}", "what was read before")
                error = f"is {' and '.join(here)} here and {' and '.join(before)} in {there}, so that none is believed"
                self.errors.append(CallError(call=name, error=error, subject=subject))
        unknown: dict[str, Any] = dict.fromkeys(disputed)
        filled = self.fill(known, msgspec.structs.replace(said, disputed={}, **unknown), subject)
        return msgspec.structs.replace(filled, disputed=disputed, **unknown)

    def nic(self, known: Nic | None, said: Nic) -> Nic:
        subject = f"nic:{said.name}"
        filled = self.fill(known or Nic(name=said.name), msgspec.structs.replace(said, ports=None), subject)
        if said.ports is None:
            return filled
        if filled.ports is None:
            self.say(subject, "ports")
        ports = {port.port: port for port in filled.ports or ()}
        for port in said.ports:
            ports[port.port] = self.fill(
                ports.get(port.port, IbPort(port=port.port)), port, f"{subject}/port:{port.port}"
            )
        return msgspec.structs.replace(filled, ports=[ports[number] for number in sorted(ports)])

    def host(self, known: Host, said: Host) -> Host:
        filled = self.fill(known, msgspec.structs.replace(said, numa_nodes=None), "host")
        if said.numa_nodes is None:
            return filled
        if filled.numa_nodes is None:
            self.say("host", "numa_nodes")
        nodes = {node.id: node for node in filled.numa_nodes or ()}
        for node in said.numa_nodes:
            nodes[node.id] = self.fill(nodes.get(node.id, NumaNode(id=node.id)), node, f"numa:{node.id}")
        return msgspec.structs.replace(filled, numa_nodes=[nodes[id] for id in sorted(nodes)])


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _snapshot(machine: _Machine) -> Snapshot:
    for index in range(machine.count[0] if machine.count is not None else 0):
        # A GPU that was counted and never described exists all the same.
        machine.gpus.setdefault(index, Gpu(index=index))
    found = machine.pci or {}
    gpus = joining.complete(machine.gpus, found, machine.parts, machine.origins)
    sources = [source for part in machine.parts for source in part.snapshot.sources]
    devices = sorted(found.values(), key=lambda device: pci.sort_key(device.address))
    return msgspec.structs.replace(
        machine.others,
        origin=_origin(machine.parts),
        sources=sources,
        gpus=[gpus[index] for index in sorted(gpus)],
        p2p=None if machine.p2p is None else [machine.p2p[key] for key in sorted(machine.p2p)],
        nics=None if machine.nics is None else list(machine.nics.values()),
        pci=None if machine.pci is None else devices,
        host=machine.host,
        raw=[raw for part in machine.parts for raw in part.snapshot.raw],
        origins=_origins(machine) if len(machine.parts) > 1 else {},
    )


def _origins(machine: _Machine) -> dict[str, str]:
    """Who said what about GPUs, NICs, host and driver; of the NVLinks, which all come from one listing, the first; of
    the PCI functions the link rates at the GPUs.

    Who shows the last of the GPUs shows how many there are.
    """
    if last := machine.origins.get(f"gpu:{max(machine.gpus, default=-1)}"):
        machine.origins["gpus"] = last
    addresses = [gpu.address for gpu in machine.gpus.values() if gpu.address is not None]
    ports = [device.parent for address in addresses if (device := (machine.pci or {}).get(address)) is not None]
    at_gpus = {f"pci:{address}" for address in (*addresses, *ports)}
    told = {
        key: name
        for key, name in machine.origins.items()
        if not key.startswith(("pci:", "numa:"))
        or ("link_" in key and key.rpartition(".")[0] in at_gpus and name != machine.origins.get("pci"))
    }
    return {key: name for key, name in told.items() if "/link:" not in key or "/link:0." in key}


def _origin(parts: Sequence[Part]) -> str:
    """Whose list of PCI devices it is decides; `matrix` is what `nvidia-smi topo` and `nvlink` print together."""
    whole = [part.snapshot for part in parts if part.whole]
    named = [snapshot.origin for snapshot in whole if snapshot.pci or snapshot.origin == "live" or len(parts) == 1]
    if named:
        return "live" if "live" in named else named[0]
    with_matrix = any(part.snapshot.matrices for part in parts)
    names = [part.source.name for part in parts if part.snapshot != Snapshot(sources=part.snapshot.sources)]
    return "matrix" if with_matrix and all(name.startswith(_MATRIX_PARTS) for name in names) else "text"
