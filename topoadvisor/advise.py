"""Topology, facts and rules → advice: the one function that every output stands on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from topoadvisor import cpu_lists, published, ways
from topoadvisor.advice import (
    SEVERITIES,
    Action,
    Advice,
    AdvisedSetting,
    AlreadyRight,
    Finding,
    NodeSummary,
    SourceLine,
    UnknownVerdict,
)
from topoadvisor.ingest import told, told_values
from topoadvisor.measurements import counted, proven, summary
from topoadvisor.nccl import consumers, defaults, newer, versions
from topoadvisor.nccl.levels import user_p2p_level
from topoadvisor.rules import engine, facts, facts_pairs, load
from topoadvisor.rules.engine import Claim, Outcome
from topoadvisor.rules.facts import FactBase, Known
from topoadvisor.rules.facts_job import NOT_SAID
from topoadvisor.rules.scope import blend
from topoadvisor.snapshot import Assumption, Gpu, Snapshot, places
from topoadvisor.topology import graph
from topoadvisor.topology.model import Topology, together
from topoadvisor.vocabulary import kind_of
from topoadvisor.wrapping import brief

_NO_PRODUCT = {"System Product Name", "To Be Filled By O.E.M.", "Default string", "Not Specified", "Not Applicable"}
"""What board makers leave in the firmware where a product name belongs."""

_NO_SETTINGS = (
    "NCCL's variables were not read, so rules about leftovers among them saw only those that were assumed, if any. "
    "`topoadvisor capture` reads them on the machine; --assume env.NAME=VALUE supplies them here."
)

_WORDS = {"gpu": "GPU", "nic": "network port"}
"""Kinds of devices that are called something else in a sentence."""

_DEVICE_NAMES = re.compile(r"\b(GPU\d+|NIC\d+|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


@dataclass(frozen=True)
class Analysis:
    """One machine, understood."""

    topology: Topology
    facts: FactBase
    advice: Advice


def analyse(
    snapshot: Snapshot,
    *,
    rule_directories: Sequence[Path] = (),
    preview: bool = False,
    baseline: Snapshot | None = None,
) -> Analysis:
    """Build the topology, gather the facts and ask the rules; `plans.analyse` adds the plan.

    `rule_directories` hold a site's own rules, beside those that ship. `baseline` is an earlier capture: the advice
    then lists what changed since.

    Raises TopoAdvisorError for faulty rules and for assumptions that name no fact.
    """
    topology = graph.build(snapshot)
    base = facts.gather(snapshot, topology)
    outcomes = engine.evaluate(load.load(rule_directories), base, preview=preview)
    advice = _advice(snapshot, topology, base, outcomes)
    if baseline is not None:
        advice = _since(advice, baseline, snapshot, topology)
    return Analysis(topology, base, advice)


def _since(advice: Advice, baseline: Snapshot, snapshot: Snapshot, topology: Topology) -> Advice:
    """The advice with what changed since the baseline."""
    from topoadvisor.diff import compare

    found = compare(baseline, snapshot, after_topology=topology)
    unread = len(found.unread)
    notes = [
        *(
            [f"Against the baseline, {unread} values are known on one side only (`topoadvisor diff`)."]
            if unread
            else []
        ),
        *found.notes,
    ]
    return msgspec.structs.replace(
        advice, changes=found.changes, other_machine=found.other_machine, notes=[*notes, *advice.notes]
    )


def advise(snapshot: Snapshot, *, rule_directories: Sequence[Path] = (), preview: bool = False) -> Advice:
    """The advice of `analyse` alone."""
    return analyse(snapshot, rule_directories=rule_directories, preview=preview).advice


def _advice(snapshot: Snapshot, topology: Topology, base: FactBase, outcomes: list[Outcome]) -> Advice:
    conflicts = engine.conflicts(outcomes)
    disputed = {conflict.variable for conflict in conflicts}
    wanted = [claim for claim in engine.claims(outcomes) if claim.variable not in disputed]
    settings, right = _settings(wanted, snapshot, base)
    taken = {claim.variable for claim in wanted} | disputed
    won = proven.advised(
        counted.alone(snapshot, topology),
        version=_value(base, "nccl.version"),
        taken=taken,
        gpus=ways.visible(base, topology),
        by_itself=lambda name, value: _by_itself(name, value, base),
        most_gbps=lambda trial, collective: counted.most_busbw(
            topology, [f"gpu:{gpu}" for gpu in trial.gpus], collective
        ),
    )
    settings = sorted([*settings, *won.settings], key=lambda setting: setting.name)
    rights = [*right, *won.right, *_rights(outcomes)]
    return Advice(
        node=_summary(snapshot, topology, base),
        findings=_findings(outcomes, base),
        settings=settings,
        set_nothing=_set_nothing(base, settings, disputed),
        passed_over=won.passed_over,
        already_right=rights,
        vendor=published.beside(base),
        unknown=_unknown(outcomes),
        plan=None,
        sources=[SourceLine(name=each.name, status=each.status, reason=each.reason) for each in snapshot.sources],
        assumed=[_assumed(each, base) for each in snapshot.assumptions if not each.follows],
        measured=[*summary.lines(snapshot, topology), *proven.lines(snapshot)],
        notes=[
            *(f"Nothing is advised for {conflict.variable}: {conflict.message}." for conflict in conflicts),
            *map(str, together(topology.disagreements)),
            *topology.notes,
            *filter(None, [newer.said(_value(base, "nccl.version"))]),
            *([_NO_SETTINGS] if snapshot.settings is None else []),
        ],
    )


def _findings(outcomes: Iterable[Outcome], base: FactBase) -> list[Finding]:
    """Rules that fired, worst first; the same sentence about several devices is one finding.

    Of one severity those come first that explain a reported message, then those that rest on another report, and last
    those that only say how to go on. Where a fault was reported, what is only about speed or worth knowing follows all.
    """
    symptom = _value(base, "job.symptom")
    fault = symptom != "slow" if symptom else bool(_value(base, "job.message"))
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.verdict == "fires":
            # A rule says the same of two devices when its sentences differ only in the devices' names.
            port = outcome.subject.removeprefix("nic:")
            sentence = _DEVICE_NAMES.sub("*", outcome.title.replace(port, "*"))
            groups.setdefault((outcome.rule.id, sentence), []).append(outcome)
    found = [(*_place(group[0], fault), _finding(group, base)) for group in groups.values()]
    ranked = sorted(found, key=lambda each: (each[0], SEVERITIES.index(each[2].severity), each[1], each[2].id))
    return [finding for *_, finding in ranked]


def _place(outcome: Outcome, fault: bool) -> tuple[bool, int]:
    """Whether it stands behind all others, and where among those of its severity."""
    rests_on = {each.fact for each in outcome.evidence if each.origin != NOT_SAID}
    if outcome.rule.triage or outcome.rule.last_word_on:
        return False, 3
    if {"job.message", "job.symptom"} & rests_on:
        return False, 0 if "job.message" in rests_on else 1
    return fault and (outcome.rule.only_speed or outcome.rule.severity == "info"), 2


def _finding(group: list[Outcome], base: FactBase) -> Finding:
    first = group[0]
    subject = next(each for each in base.subjects[first.rule.subject] if each.id == first.subject)
    return Finding(
        id=first.rule.id,
        name=first.rule.name,
        severity="warning" if first.hypothesis and first.rule.severity == "error" else first.rule.severity,
        hypothesis=first.hypothesis,
        subject=first.subject,
        message=first.title,
        why=" ".join(engine.render(first.rule.why, base, subject).split()),
        evidence=[each for each in first.evidence if each.origin != NOT_SAID],
        advice=[
            Action(text=entry.action, command=entry.command, safety=entry.safety)
            for entry in first.advice
            if entry.action is not None
        ],
        verify=first.rule.verify,
        also=[outcome.subject for outcome in group[1:]],
    )


def _settings(
    wanted: Iterable[Claim], snapshot: Snapshot, base: FactBase
) -> tuple[list[AdvisedSetting], list[AlreadyRight]]:
    """What to set and unset, once per variable, and what is in force already."""
    advised: dict[str, AdvisedSetting] = {}
    right: list[AlreadyRight] = []
    for claim in wanted:
        entry = claim.entry
        if claim.variable in advised:
            continue
        if claim.value is not None and not consumers.reaches(claim.variable, _value(base, "job.framework") or ""):
            continue
        present = next((each for each in snapshot.settings or [] if each.name == claim.variable), None)
        if claim.value is not None and present is not None and present.value == claim.value:
            right.append(AlreadyRight(text=f"{claim.variable}={claim.value} is set already.", rule=claim.rule))
            continue
        value, reason = claim.value, entry.reason or ""
        if value is not None and _by_itself(claim.variable, value, base):
            told = f"{_nccl(base)} does as with {claim.variable}={value} by itself"
            if present is None:
                right.append(AlreadyRight(text=f"{told}.", rule=claim.rule))
                continue
            value, reason = None, f"{reason}; {told}".removeprefix("; ")
        reach = consumers.reach(claim.variable)
        advised[claim.variable] = AdvisedSetting(
            name=claim.variable,
            action="unset" if value is None else "set",
            setting_class=entry.setting_class or "system",
            rule=claim.rule,
            reason=reason,
            value=value,
            remove_when=entry.remove_when,
            nccl=entry.nccl,
            cost=entry.cost,
            works_for=entry.consumers or list(reach.works_for),
            not_for=list(reach.not_for),
            where=present.place
            if present is not None and value is not None
            else places(snapshot.settings, claim.variable),
        )
    return [advised[name] for name in sorted(advised)], right


def _by_itself(name: str, value: str, base: FactBase) -> bool:
    """Whether this NCCL does on this machine what the value asks for when the variable is not set."""
    version = _value(base, "nccl.version")
    version = version if version is not None and versions.is_version(version) else None
    if name == "NCCL_P2P_LEVEL":
        level, default = user_p2p_level(None, value, version).level, _value(base, "nccl.default_p2p_level")
        return level is not None and level.name == default
    return defaults.is_default(name, value, version)


def _nccl(base: FactBase) -> str:
    version = _value(base, "nccl.version")
    return f"NCCL {version}" if version else "NCCL"


def _rights(outcomes: Sequence[Outcome]) -> Iterator[AlreadyRight]:
    """Sentences of rules that are quiet on every subject they apply to."""
    by_rule: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_rule.setdefault(outcome.rule.id, []).append(outcome)
    for rule, group in by_rule.items():
        applicable = [outcome for outcome in group if outcome.verdict != "not-applicable"]
        if applicable and all(outcome.verdict == "quiet" for outcome in applicable) and applicable[0].right:
            yield AlreadyRight(text=applicable[0].right, rule=rule)


def _unknown(outcomes: Iterable[Outcome]) -> list[UnknownVerdict]:
    """Rules that could not be decided, once per rule and reason."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.verdict == "unknown":
            groups.setdefault((outcome.rule.id, outcome.reason), []).append(outcome)
    return [
        UnknownVerdict(
            rule=group[0].rule.id,
            name=group[0].rule.name,
            subject=group[0].subject if len(group) == 1 else f"{group[0].subject} and {len(group) - 1} more",
            missing=sorted({missing.fact for outcome in group for missing in outcome.missing}),
            reason="; ".join(dict.fromkeys(missing.reason for missing in group[0].missing)) or group[0].reason,
            ask=group[0].ask,
        )
        for group in groups.values()
    ]


def _set_nothing(base: FactBase, settings: Sequence[AdvisedSetting], disputed: Set[str]) -> str | None:
    """The sentence that goes with "set nothing"; None when something is to be set."""
    if any(setting.action == "set" for setting in settings):
        return None
    if disputed:
        return f"The rules disagree about {', '.join(sorted(disputed))}, so neither side is advised."
    return _why_nothing(base, settings)


def _why_nothing(base: FactBase, settings: Iterable[AdvisedSetting]) -> str:
    """Why no variable needs to be set here, in words that stand on facts."""
    nccl = _nccl(base)
    if _value(base, "gpus.count") == 1:
        network = (
            ", and NCCL finds the network to other machines by itself" if (_value(base, "job.nodes") or 1) > 1 else ""
        )
        return f"One GPU has no peer to talk to on this machine{network}."
    if _value(base, "gpus.mig"):
        return "No variable gives MIG slices a way to each other."
    if _value(base, "nvlink.refused_pairs"):
        return "No variable repairs NVLink without peer access."
    if ways.failures(base) or any(_value(base, f"measured.failed_{what}") for what in ("collectives", "patterns")):
        return "Measurements on this machine failed, as the findings say: no variable repairs that."
    if _fabric_missing(base):
        return "No variable sets up the NVLink fabric; until it is complete CUDA does not start."
    variables = ways.as_advised(base, settings)
    job = {label.replace("GPU", "gpu:") for label in _value(base, "visible.gpus") or ()}
    used = {pair: way for pair, way in ways.transports(base, variables).items() if not job or job.issuperset(pair)}
    counted = Counter(used.values())
    kept = [f"{name}={value}" for name, value in variables.items() if value]
    gone = [name for name, value in ways.in_force(base).items() if value and not variables[name]]
    told = f"with {' and '.join(kept)} in force" if kept else "without being told"
    if gone:
        told = f"once {' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} unset"
    if _value(base, "nvlink.full_mesh") and _value(base, "p2p.all_ok"):
        reason = f"Every pair of GPUs has NVLink, and {nccl} uses it {told}."
    elif _value(base, "p2p.none_ok"):
        instead = _or_network(base, counted["SHM"])
        reason = f"The driver grants P2P on no pair; {nccl} asks it and goes through shared memory by itself{instead}."
    elif None not in counted and counted:
        direct = "NVLink or P2P" if _value(base, "nvlink.any") else "P2P"
        over = sum(used.get(each) == "P2P" for each in ways.relayed(base))
        through = f" ({over} through a GPU in between)" if over else ""
        parts = [
            f"{direct} on {_pairs(counted['P2P'])}{through}" if counted["P2P"] else "",
            _staged(counted["SHM"], bool(counted["P2P"])) + _or_network(base, counted["SHM"]),
        ]
        reason = f"{nccl} uses {' and '.join(filter(None, parts))} here {told}."
    else:
        return "Nothing that was read asks for a variable, but not everything was read."
    untouched = all(_value(base, f"env.{name}") == "" for name in ("NCCL_IB_HCA", "NCCL_NET", "NCCL_IB_DISABLE"))
    near = not _value(base, "pcie.hidden_switches") and _value(base, "job.nodes") != 1
    near = near and _value(base, "platform.cloud") in (None, "none")
    if untouched and near and (local := _value(base, "rdma.gpu_local")):
        reason += f" It finds {_ports_found(base, len(local))}."
    return reason


def _ports_found(base: FactBase, count: int) -> str:
    """How NCCL comes to its ports, and for how many GPUs they are the nearest."""
    ports = "the RDMA port" if count == 1 else f"the {count} RDMA ports"
    total, far = _value(base, "gpus.count"), len(_value(base, "gdr.far_gpus") or ())
    if far in (0, total):
        return f"{ports} next to the GPUs by distance and speed"
    other = "the other has" if far == 1 else "the others have"
    return f"{ports} next to {total - far} of {total} GPUs by distance and speed; {other} no such port next to them"


def _fabric_missing(base: FactBase) -> bool:
    """Whether the NVLink fabric is said not to be set up, or to have been with an error."""
    gpus = [gpu.facts for gpu in base.subjects["gpu"]]
    waiting = any(
        (isinstance(state := gpu["gpu.fabric.state"], Known) and state.value in ("not-started", "in-progress"))
        or (isinstance(status := gpu["gpu.fabric.status"], Known) and status.value != 0)
        for gpu in gpus
    )
    told = "system not yet initialized" in str(_value(base, "job.message")).lower()
    unmanaged = _value(base, "fabricmanager.state") in ("inactive", "failed", "not-installed")
    missing = told or (unmanaged and _value(base, "nvswitch.visible"))
    return waiting or bool(missing and _value(base, "nvlink.switch") and not _value(base, "fabric.completed"))


def _pairs(count: int) -> str:
    return f"{count} pair{'s' if count > 1 else ''}"


def _staged(count: int, others: bool) -> str:
    return f"shared memory on {'the other ' if others else ''}{_pairs(count)}" if count else ""


def _or_network(base: FactBase, staged: int) -> str:
    """NCCL takes the network between two GPUs of one host where it counts on more there (`ncclTopoCheckNet`)."""
    if not staged or not _value(base, "rdma.gpu_local") or _value(base, "env.NCCL_NET_DISABLE_INTRA") == "1":
        return ""
    return " (or the network, where it reckons with more there: `topoadvisor predict`)"


def _assumed(assumption: Assumption, base: FactBase) -> str:
    """`fact = value`, with the other value that was read if one was.

    Of a kind of device that was not read it says so, for then it holds for nothing.
    """
    kind = kind_of(told.parts(assumption.fact)[0])
    nothing = "" if base.subjects[kind] else f" (of no {_WORDS.get(kind, kind)}: none was read)"
    read = f" (read: {told_values.typed(assumption.read)})" if assumption.read is not None else ""
    return f"{assumption.fact} = {_shown(assumption)}{read}{nothing}"


def _shown(assumption: Assumption) -> str:
    text = told_values.typed(assumption.value)
    return brief(text) if assumption.fact == "job.message" else text


def _value(base: FactBase, name: str) -> Any:
    fact = base.fact(name)
    return fact.value if isinstance(fact, Known) else None


def _summary(snapshot: Snapshot, topology: Topology, base: FactBase) -> NodeSummary:
    return NodeSummary(
        gpus=" · ".join(_gpu_line(snapshot, base)),
        interconnect=" · ".join([*_interconnect_line(snapshot, topology, base), *_to_the_cpu(topology)]),
        host=" · ".join(_host_line(snapshot, base)),
    )


def _gpu_line(snapshot: Snapshot, base: FactBase) -> Iterator[str]:
    if not snapshot.gpus:
        yield "no NVIDIA GPU"
    for name, count in Counter(map(_model, snapshot.gpus)).items():
        yield f"{count} × {name}"
    driver, flavour = _value(base, "driver.version"), _value(base, "driver.flavour")
    yield f"driver {driver}" + (f" ({flavour} kernel module)" if flavour else "") if driver else "driver not read"
    version = _value(base, "nccl.version")
    yield f"NCCL {version}" if version else "NCCL not found" if snapshot.nccl_libraries == [] else "NCCL not read"


def _model(gpu: Gpu) -> str:
    return gpu.name or "GPU (model not read)"


def _interconnect_line(snapshot: Snapshot, topology: Topology, base: FactBase) -> Iterator[str]:
    if len(topology.gpus) < 2:
        yield "no second GPU to be joined to"
        return
    if _value(base, "nvlink.any"):
        through = _through(topology, base) if _value(base, "nvlink.switch") else ""
        yield f"NVLink: {_of_pairs(base, 'pair.link_class', 'up', facts_pairs.nvlink_or_none)}{through}"
    classes = Counter(
        pair.pcie_class for (_, b), pair in topology.pairs.items() if b.startswith("gpu:") and pair.pcie_class
    )
    if classes:
        order = ("PIX", "PXB", "PHB", "NODE", "SYS")
        shown = sorted(classes, key=lambda name: order.index(name) if name in order else len(order))
        counted = (f"{classes[name]} pair{'s' if classes[name] > 1 else ''} {name}" for name in shown)
        reasoned = any(
            pair.inferred or pair.pcie_origin == "inferred"
            for (_, b), pair in topology.pairs.items()
            if b.startswith("gpu:")
        )
        yield "PCIe: " + ", ".join(counted) + (" (inferred)" if reasoned else "")
    contradicted = any(entry.disputed for entry in snapshot.p2p or ())
    yield f"P2P: {_of_pairs(base, 'pair.p2p.read', 'texts contradict each other' if contradicted else 'not read')}"


def _to_the_cpu(topology: Topology) -> Iterator[str]:
    """Links of the GPUs' own to their CPU: chip-to-chip on Grace, NVLinks on POWER."""
    found = Counter(
        ("C2C" if edge["kind"] == "c2c" else f"NV{edge['count']}", edge["gbps"])
        for gpu in topology.gpus
        for _, end, edge in topology.graph.edges(gpu, data=True)
        if edge["kind"] in ("c2c", "nvlink") and end.startswith("numa:")
    )
    for (name, gbps), count in found.items():
        rate = f" ({gbps:.4g} GB/s)" if gbps is not None else ""
        yield f"to the CPU: {name}{rate} on {count} of {len(topology.gpus)} GPUs"


def _through(topology: Topology, base: FactBase) -> str:
    if _value(base, "nvlink.hidden_switch"):
        return " through NVSwitches outside this machine's view"
    switches = [data for _, data in topology.graph.nodes(data=True) if data["kind"] == "nvswitch"]
    return " through NVSwitches" + (" (inferred)" if all(data["inferred"] for data in switches) else "")


def _of_pairs(base: FactBase, name: str, otherwise: str, word: Callable[[str], str] = str) -> str:
    """How many pairs have each word for their value of this fact; `otherwise` where none is known."""
    facts = [pair.facts[name] for pair in base.subjects["pair"]]
    known = [fact for fact in facts if isinstance(fact, Known)]
    if not known:
        return otherwise
    words = [word(fact.value) if isinstance(fact, Known) else "not known" for fact in facts]
    return facts_pairs.tally(words) + (" (inferred)" if blend(known).startswith("inferred") else "")


def _host_line(snapshot: Snapshot, base: FactBase) -> Iterator[str]:
    host = snapshot.host
    names = dict.fromkeys(filter(None, (_value(base, "platform.vendor"), _value(base, "platform.product"))))
    if known := [name for name in names if name not in _NO_PRODUCT]:
        yield " ".join(known)
    cpu = _value(base, "cpu.model_name") or _value(base, "cpu.vendor")
    sockets = _value(base, "cpu.sockets")
    yield (f"{sockets} × {cpu}" if sockets else str(cpu)) if cpu else "CPU not read"
    if with_cpus := [node for node in host.numa_nodes or [] if node.cpus]:
        yield f"{len(with_cpus)} NUMA node{'s' if len(with_cpus) > 1 else ''}"
    if own := {gpu.memory_numa_node for gpu in snapshot.gpus if gpu.memory_numa_node is not None}:
        yield f"GPU memory in NUMA node{'s' if len(own) > 1 else ''} {cpu_lists.spell(own)}"
    guest = _value(base, "vm.guest")
    if guest:
        yield f"guest of {_value(base, 'vm.hypervisor') or 'a hypervisor'}"
    elif guest is False:
        yield "bare metal"
    if _value(base, "container.any"):
        yield f"in a {_value(base, 'container.kind')} container"
    if active := _value(base, "rdma.active"):
        yield f"{len(active)} active RDMA port{'s' if len(active) > 1 else ''}"
