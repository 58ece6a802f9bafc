"""Advice: what every output renders. One document for one topology, sorted, the same bytes for the same snapshot."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

SCHEMA: Final = "topoadvisor.advice/1"

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
SettingClass = Literal["system", "tuning", "workaround", "diagnostic"]


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all advice types."""


class Evidence(Struct, frozen=True, kw_only=True):
    """One fact a finding stands on."""

    fact: str
    value: Any
    origin: str
    """The source it was read from; `inferred: …` and `assumed` say so."""


class Action(Struct, frozen=True, kw_only=True):
    """One step of advice that is not a variable, or the variable in words."""

    text: str
    command: str | None = None
    safety: Literal["safe", "manual"] = "manual"


class Finding(Struct, frozen=True, kw_only=True):
    """A rule that fired, on one subject or on several that share the same message."""

    id: str
    name: str
    severity: Severity
    subject: str
    """`node`, `gpu:0`, `gpu:0-gpu:1`, `nic:mlx5_0`, `pci:0000:17:00.0`, `variable:NCCL_P2P_LEVEL`."""
    message: str
    why: str
    evidence: list[Evidence]
    advice: list[Action]
    verify: str | None = None
    also: list[str] = []
    """Further subjects with the same finding."""
    hypothesis: bool = False
    """Whether one of the rule's exceptions holds is not known; the first action says which and how to find out."""


class AdvisedSetting(Struct, frozen=True, kw_only=True):
    """A variable to set or to unset."""

    name: str
    action: Literal["set", "unset"]
    setting_class: SettingClass = msgspec.field(name="class")
    rule: str
    reason: str
    value: str | None = None
    remove_when: str | None = None
    nccl: str | None = None
    """NCCL versions it is meant for, `>=2.21`."""
    cost: str | None = None
    works_for: list[str] = []
    """Programs that heed the variable; those besides NCCL do so where they call NCCL."""
    not_for: list[str] = []
    """Programs that do not, although one might expect it."""
    where: str | None = None
    """`environment` or `/etc/nccl.conf:3`: where another value stands that is in force; of a variable to unset all
    places, `environment and /etc/nccl.conf:3`, as what stands in the next one counts once the first is empty."""


class AlreadyRight(Struct, frozen=True, kw_only=True):
    """Something that needs no change, said out loud."""

    text: str
    rule: str | None = None


class UnknownVerdict(Struct, frozen=True, kw_only=True):
    """A rule that could not be decided, and what would decide it."""

    rule: str
    name: str
    subject: str
    missing: list[str]
    """Facts that were not read."""
    reason: str
    ask: str | None = None
    """A read-only command that would tell."""


class VendorLine(Struct, frozen=True, kw_only=True):
    """One variable of what a vendor publishes, beside what is set here."""

    name: str
    state: Literal["same", "differs", "missing", "stale", "left to the plugin", "not known"]
    """`stale`: set here, and the vendor has taken it out of its list."""
    vendor: str
    """The published value, several with `or`; in words where it depends on the machine, and for a stale variable."""
    here: str | None
    """Empty: not set; None: not known."""


class Reference(Struct, frozen=True, kw_only=True):
    """Where something was read."""

    what: str
    url: str | None
    read: str | None
    """Date, as 2026-12-01."""


class VendorValues(Struct, frozen=True, kw_only=True):
    """What the vendor of this machine publishes for NCCL, compared line by line. Not advice by itself: findings are."""

    profile: str
    what: str
    by: Literal["plugin", "file", "script", "example", "nobody"]
    """Who sets the values on the vendor's machines; `nobody`: it publishes none for this one."""
    where: str
    lines: list[VendorLine]
    sources: list[Reference]


class Hop(Struct, frozen=True, kw_only=True):
    a: str
    b: str
    link_class: str | None
    gbps: float | None
    path: list[str]


class Ring(Struct, frozen=True, kw_only=True):
    """One directed ring."""

    order: list[int]
    """GPU indexes; the last is joined to the first."""
    gbps: float | None
    """What every hop can carry at once in this ring, GB/s per direction; None when no bandwidth is known."""
    bottleneck: str
    """The link that limits it, in words."""
    hops: list[Hop]


class Pick(Struct, frozen=True, kw_only=True):
    """The best GPUs for a smaller job, where the first ones in index order are slower."""

    size: int
    gpus: list[int]
    gbps: float
    """What all rings over them carry together, GB/s."""
    instead_of: list[int]
    """The first ones."""
    instead_gbps: float
    """0 where copies between two of these GPUs failed."""
    groups: list[list[int]]
    """All GPUs in groups of this size, for several such jobs."""


class Placement(Struct, frozen=True, kw_only=True):
    """Where the ranks of tensor groups of one size go, as `topoadvisor place` says it, where that matters."""

    tensor: int
    """Ranks of a group."""
    groups: list[list[int]]
    """GPU indexes by rank: the first ranks are the first group, and CUDA_VISIBLE_DEVICES is all of them in a row."""
    gbps: list[float]
    """By group, what all rings over it carry together when it works alone, GB/s on paper."""
    in_order_gbps: float
    """The same of the slowest group when ranks take the GPUs in index order; 0 where copies in one of them failed."""
    together_gbps: float
    """What no set of rings over all GPUs can pass."""
    doubt: str | None
    """Why tensor parallelism of this size is a bad idea all the same."""


class Plan(Struct, frozen=True, kw_only=True):
    """Ring orderings for all GPUs of the machine."""

    rings: list[Ring]
    total_gbps: float | None
    bound_gbps: float | None
    """Upper bound that no set of rings can pass; None = not computed."""
    optimal: bool
    """The total meets the bound."""
    transport: str
    """What the hops were assumed to run over, in words: NVLink, PCIe P2P, or staged through host memory."""
    notes: list[str] = []
    picks: list[Pick] = []
    """Choices of GPUs that matter, by size; empty where the first ones are as good, or bandwidths are not known."""
    placements: list[Placement] = []
    """Tensor groups that are faster than those in index order, or than all GPUs together, by size."""


class Change(Struct, frozen=True, kw_only=True):
    """One thing about the machine that an earlier capture says otherwise."""

    kind: str
    """`gpu-gone`, `pcie`, `nvlink`, `link-class`, `setting`, …; see `diff.document.KINDS`."""
    subject: str
    """As in a finding; also `gpu:0/link:3` and `gpu:0>gpu:1`. A GPU has the number of the earlier capture."""
    field: str
    before: Any
    """None: it was not there."""
    after: Any
    """None: it is not there any more."""
    severity: Severity
    """`error`: worse, and it costs bandwidth or a device; `warning`: behaves otherwise; `info`: better or neutral."""
    message: str


class NodeSummary(Struct, frozen=True, kw_only=True):
    """The machine in three lines."""

    gpus: str
    interconnect: str
    host: str


class SourceLine(Struct, frozen=True, kw_only=True):
    name: str
    status: str
    reason: str | None = None


class Advice(Struct, frozen=True, kw_only=True):
    """Findings, settings and plan for one topology."""

    schema: Literal["topoadvisor.advice/1"] = "topoadvisor.advice/1"
    node: NodeSummary
    findings: list[Finding]
    settings: list[AdvisedSetting]
    set_nothing: str | None = None
    """Why no variable needs to be set, when none does."""
    passed_over: list[str] = []
    """Settings that won a trial and are not advised, and why, one sentence each."""
    already_right: list[AlreadyRight]
    vendor: VendorValues | None = None
    """None: no vendor's list is known for this machine."""
    unknown: list[UnknownVerdict]
    plan: Plan | None
    sources: list[SourceLine]
    assumed: list[str] = []
    measured: list[str] = []
    """What `verify` and `prove` measured on this machine, one line per kind of link, collective and trial."""
    notes: list[str] = []
    other_machine: str | None = None
    """One sentence when the baseline is visibly of another machine."""
    changes: list[Change] | None = None
    """Against the baseline, worst first; None = no baseline was given."""
