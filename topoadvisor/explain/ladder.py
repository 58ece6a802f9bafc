"""Why two GPUs are slow, refused or hang: step by step, each with its evidence and the command that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from topoadvisor.errors import NothingDetermined, TopoAdvisorError, gpus_here
from topoadvisor.rules import engine
from topoadvisor.rules.facts import FactBase, Known, Subject, Unknown, gather
from topoadvisor.rules.model import Rule
from topoadvisor.rules.scope import spell
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph

_WORD: Final = re.compile(r"(?:GPU|gpu:)?([0-9]{1,4})\s*(?:-|–|,|<>|>)\s*(?:GPU|gpu:)?([0-9]{1,4})", re.I)

_P2P_VARIABLES: Final = ("NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE")

Answer = Literal["in order", "look here", "not known", "no matter"]


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cause that may be at work."""

    name: str
    answer: Answer
    why: str
    evidence: list[str]
    command: str


class Ladder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All steps for one pair of GPUs, in the order in which to look."""

    a: str
    b: str
    link: str
    """Link class, or that it is not known."""
    steps: list[Step]
    findings: list[str]
    """`P2P003: …` for each rule that fires on this pair or on a variable that decides about P2P."""


def names_pair(word: str) -> tuple[int, int] | None:
    """The two GPUs that `GPU0-GPU1`, `gpu:0-gpu:1` or `0-1` names, lower first; None for anything else."""
    match = _WORD.fullmatch(word.strip())
    if match is None or int(match[1]) == int(match[2]):
        return None
    a, b = sorted((int(match[1]), int(match[2])))
    return a, b


def climb(pair: tuple[int, int], snapshot: Snapshot, rules: Sequence[Rule]) -> Ladder:
    """The ladder of one pair. Raises TopoAdvisorError when one of the two GPUs is not there."""
    base = gather(snapshot, graph.build(snapshot))
    name = f"gpu:{pair[0]}-gpu:{pair[1]}"
    subject = next((each for each in base.subjects["pair"] if each.id == name), None)
    if subject is None:
        there = gpus_here(gpu.index for gpu in snapshot.gpus)
        kind = TopoAdvisorError if snapshot.gpus else NothingDetermined
        raise kind(f"there is no pair GPU{pair[0]}-GPU{pair[1]} here", hint=there)
    gpus = [each for each in base.subjects["gpu"] if each.id in (f"gpu:{pair[0]}", f"gpu:{pair[1]}")]
    reader = _Reader(base, subject, gpus)
    outcomes = engine.evaluate([rule for rule in rules if rule.subject in ("pair", "variable")], base)
    about = {name, *(f"variable:{variable}" for variable in _P2P_VARIABLES)}
    fired = [each for each in outcomes if each.subject in about and each.verdict == "fires"]
    return Ladder(
        a=f"GPU{pair[0]}",
        b=f"GPU{pair[1]}",
        link=str(reader.pair("pair.link_class") or "not known"),
        steps=list(_steps(reader)),
        findings=[f"{each.rule.id}: {each.title}" for each in fired],
    )


class _Reader(NamedTuple):
    """Facts of one pair, of its two GPUs and of the machine."""

    base: FactBase
    subject: Subject
    gpus: list[Subject]

    def pair(self, name: str) -> object:
        fact = self.base.fact(name, self.subject)
        return fact.value if isinstance(fact, Known) else None

    def both(self, name: str) -> list[object]:
        facts = [self.base.fact(name, gpu) for gpu in self.gpus]
        return [fact.value if isinstance(fact, Known) else None for fact in facts]

    def told(self, answer: Answer, *names: str) -> list[str]:
        """`name = value [origin]`, or why it is not known; of the GPUs one line each.

        What is not known says nothing for a step that is in order, or does not matter, and is left out there.
        """
        decided = answer in ("in order", "no matter")
        lines = []
        for name in names:
            subjects = self.gpus if name.startswith("gpu.") else [self.subject]
            for subject in subjects:
                fact = self.base.fact(name, subject)
                label = subject.id.replace("gpu:", "GPU") + " " if name.startswith("gpu.") else ""
                if isinstance(fact, Unknown):
                    lines += [] if decided else [f"{label}{name}: not known, {fact.reason}"]
                else:
                    value = "none" if fact.value in ([], "") else spell(fact.value, name)
                    lines.append(f"{label}{name} = {value}" + ("" if fact.origin == "derived" else f" [{fact.origin}]"))
        return lines


def _steps(read: _Reader) -> Iterator[Step]:
    linked = bool(read.pair("pair.nvlinks"))
    yield _grant(read, linked=linked)
    yield _settings(read)
    if linked:
        yield _nvlink(read)
    yield _bar1(read, linked=linked)
    yield _iommu(read, linked=linked)
    yield _width(read, linked=linked)
    yield _uplink(read, linked=linked)
    yield _socket(read, linked=linked)
    yield _measured(read)


def _grant(read: _Reader, *, linked: bool) -> Step:
    ok, over, way = (read.pair(f"pair.p2p.{name}") for name in ("ok", "nvlink", "refused_way"))
    doubted = linked and over not in (None, "OK")
    only = f" {way}, in that direction only" if way else ""
    instead = "stops with an error where NVLink is refused" if linked else "stages through host memory"
    why = {
        True: "The driver grants peer access. That says that it will try, not that it works.",
        False: f"The driver refuses peer access{only}: NCCL {instead}, and no variable changes that.",
        None: f"The driver answers {over} about peer traffic over these NVLinks, and about the rest it was not asked."
        if doubted
        else "Whether the driver grants peer access is not known.",
    }[ok if isinstance(ok, bool) else None]
    answer: Answer = "in order" if ok else "look here" if ok is False or doubted else "not known"
    return Step(
        name="driver grant",
        answer=answer,
        why=why,
        evidence=read.told(
            answer,
            "pair.p2p.read",
            "pair.p2p.write",
            *(("pair.p2p.nvlink",) if doubted else ()),
            "driver.version",
            "pair.nccl.transport",
        ),
        command="nvidia-smi topo -p2p r; nvidia-smi topo -p2p w",
    )


def _settings(read: _Reader) -> Step:
    way, ok = read.pair("pair.nccl.transport"), read.pair("pair.p2p.ok")
    forced = any(read.pair(f"env.{name}") not in (None, "") for name in _P2P_VARIABLES)
    answer: Answer
    if ok is False:
        answer, why = "no matter", "NCCL's variables change nothing where the driver refuses."
    elif way is None or ok is None:
        answer, why = "not known", "Which way NCCL takes between the two is not known."
    elif way == "P2P":
        answer, why = "in order", "NCCL lets the two talk directly."
    elif forced:
        answer, why = "look here", "The driver grants the direct way, and a variable keeps NCCL from taking it."
    elif read.pair("pair.nvlinks"):
        answer, why = "look here", "NVLink joins the two, and NCCL does not use it."
    else:
        answer, why = "in order", "By its default NCCL takes no direct way as far as this."
    return Step(
        name="NCCL's own settings",
        answer=answer,
        why=why,
        evidence=read.told(
            answer, "pair.nccl.transport", "nccl.p2p_level", *(f"env.{name}" for name in _P2P_VARIABLES)
        ),
        command="env | grep NCCL_; cat /etc/nccl.conf ~/.nccl.conf",
    )


def _nvlink(read: _Reader) -> Step:
    active, wanted = read.both("gpu.nvlinks.active"), read.both("gpu.nvlinks.wanted")
    known = None not in (*active, *wanted)
    short = known and active != wanted
    answer: Answer = "look here" if short else "in order" if known else "not known"
    return Step(
        name="NVLink",
        answer=answer,
        why="A GPU has fewer active NVLinks than its model." if short else "NVLinks join the two.",
        evidence=read.told(answer, "pair.nvlinks", "gpu.nvlinks.active", "gpu.nvlinks.wanted", "gpu.nvlinks.errors"),
        command="nvidia-smi nvlink -s; nvidia-smi nvlink -e",
    )


def _bar1(read: _Reader, *, linked: bool) -> Step:
    covered, patched = read.both("gpu.bar1_covers_memory"), read.pair("driver.patched_p2p")
    answer: Answer
    why = "BAR1 is smaller than the memory: drivers that map peers through it, and RDMA of whole tensors, fail."
    if False not in covered and None in covered:
        answer, why = "not known", "The size of BAR1 was not read."
    elif False not in covered:
        answer, why = "no matter" if linked else "in order", "BAR1 maps all of the memory."
    elif linked or patched is False:
        answer = "no matter"
    elif patched is None:
        answer, why = "not known", f"{why} Whether this driver maps peers so was not read."
    else:
        answer = "look here"
    return Step(
        name="BAR1",
        answer=answer,
        why=why,
        evidence=read.told(answer, "gpu.bar1_bytes", "gpu.memory_bytes"),
        command="nvidia-smi -q -d MEMORY; cat /proc/driver/nvidia/version",
    )


def _iommu(read: _Reader, *, linked: bool) -> Step:
    translated, redirect = read.pair("iommu.translated"), read.pair("pair.path.acs_redirect")
    inside = read.pair("pair.path.crosses_host") is False
    answer: Answer
    if linked:
        answer, why = "no matter", "NVLink does not pass the IOMMU."
    elif read.pair("pair.p2p.ok") is False:
        answer, why = "no matter", "Without peer access no packet goes from GPU to GPU."
    elif redirect is True and (translated or inside):
        answer = "look here"
        why = "ACS redirects peer packets: up to the CPU and back, and into a translating IOMMU they find no mapping."
    elif translated is False and (redirect is False or not inside):
        answer, why = "in order", "The IOMMU does not translate the GPUs' addresses."
    elif redirect is False:
        answer, why = "in order", "No bridge between the two redirects."
    elif translated is True:
        answer, why = "look here", "The IOMMU translates; whether ACS redirects can only root read."
    else:
        answer, why = "not known", "The IOMMU's mode, or ACS, was not read."
    return Step(
        name="IOMMU and ACS",
        answer=answer,
        why=why,
        evidence=read.told(answer, "iommu.mode", "pair.path.acs_redirect", "pair.path.acs_bridges"),
        command="cat /sys/kernel/iommu_groups/*/type | sort | uniq -c; sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'",
    )


def _width(read: _Reader, *, linked: bool) -> Step:
    now, most = read.both("gpu.pcie.current_width"), read.both("gpu.pcie.max_width")
    narrow = any(isinstance(a, int) and isinstance(b, int) and a < b for a, b in zip(now, most, strict=True))
    known = None not in (*now, *most)
    answer: Answer = "look here" if narrow else "not known" if not known else "no matter" if linked else "in order"
    return Step(
        name="link width",
        answer=answer,
        why="A card runs on fewer lanes than it has: slot, riser, contact."
        if narrow
        else "Both run on all of their lanes. (The generation drops while a GPU idles.)"
        if known
        else "The width of a link was not read.",
        evidence=read.told(
            answer, "gpu.pcie.current_width", "gpu.pcie.max_width", "gpu.pcie.current_gen", "gpu.pcie.max_gen"
        ),
        command="nvidia-smi --query-gpu=index,pstate,pcie.link.gen.current,pcie.link.width.current --format=csv",
    )


def _no_way(linked: bool, unused: str) -> tuple[Answer, str]:
    """Why the way over PCIe is not looked at."""
    return ("no matter", unused) if linked else ("not known", "How the two are joined over PCIe was not read.")


def _uplink(read: _Reader, *, linked: bool) -> Step:
    name, ok = read.pair("pair.pcie_class"), read.pair("pair.p2p.ok")
    shared = name in ("PIX", "PXB")
    answer: Answer
    if linked or name is None:
        answer, why = _no_way(linked, "Traffic over NVLink does not use it.")
    elif shared and ok is False:
        answer, why = (
            "look here",
            "Without P2P both directions go over one uplink: GPUs of different groups may be faster.",
        )
    elif shared:
        answer, why = "in order", "Inside the switch; only what leaves it shares the uplink."
    else:
        answer, why = "in order", "The two do not hang below one switch."
    return Step(
        name="shared uplink",
        answer=answer,
        why=why,
        evidence=read.told(answer, "pair.pcie_class", "p2p.uplink_groups"),
        command="lspci -tv; nvidia-smi topo -m",
    )


def _socket(read: _Reader, *, linked: bool) -> Step:
    name = read.pair("pair.pcie_class")
    answer: Answer
    if linked or name is None:
        answer, why = _no_way(linked, "NVLink does not pass the sockets.")
    elif name == "SYS":
        answer, why = "look here", "The way leads from one socket to the other, the slowest hop that a machine has."
    elif name in ("PHB", "NODE"):
        answer, why = "in order", "Both hang on one NUMA node; the way leads through the CPU's host bridges."
    else:
        answer, why = "in order", "The way stays below a switch."
    return Step(
        name="socket hop",
        answer=answer,
        why=why,
        evidence=read.told(answer, "pair.pcie_class", "gpu.numa_node", "cpu.vendor", "nccl.p2p_level"),
        command="nvidia-smi topo -m; numactl -H",
    )


def _slow(read: _Reader) -> str | None:
    """Why a copy that arrived intact is none to be content with."""
    cause = read.pair("pair.measured.cause") if read.pair("pair.measured.verdict") in ("warn", "fail") else None
    return str(cause) if cause else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _measured(read: _Reader) -> Step:
    outcome = read.pair("pair.measured.outcome")
    outcome = None if outcome == "skipped" else outcome
    slow = _slow(read) if outcome == "ok" else None
    if read.pair("pair.measured.peer_denied"):
        staged = _number(read.pair("pair.measured.staged_gbps"))
        return Step(
            name="measured",
            answer="look here",
            why="CUDA allowed no peer access, although the driver grants it: copies went through host memory"
            + (f", at {staged:g} GB/s." if staged else "."),
            evidence=read.told("look here", "pair.measured.staged_gbps", "pair.measured.peer_denied", "pair.gbps"),
            command="topoadvisor verify",
        )
    answer: Answer = "not known" if outcome is None else "in order" if outcome == "ok" and not slow else "look here"
    return Step(
        name="measured",
        answer=answer,
        why="Nothing was measured; a copy with a deadline and checked data decides what the steps above leave open."
        if outcome is None
        else f"Copies between the two: {outcome}{f', but {slow}' if slow else ''}.",
        evidence=read.told(
            answer,
            "pair.measured.uni_gbps",
            "pair.measured.staged_gbps",
            "pair.measured.usual_gbps",
            "pair.gbps",
            *(("gpu.measured.host_gbps",) if all(read.both("gpu.measured.host_gbps")) else ()),
        )
        if outcome
        else [],
        command="topoadvisor verify",
    )
