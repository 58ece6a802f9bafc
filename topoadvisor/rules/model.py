"""What a rule is, exactly as it is written in YAML."""

from __future__ import annotations

import datetime
import re
from typing import Final, Literal

import msgspec

from topoadvisor.advice import SettingClass, Severity
from topoadvisor.vocabulary import SubjectKind

PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_]\w*(?:\.\w+)+)\}")
"""`{pair.a}` in a template; other braces are plain text."""


MEASUREMENTS: Final[dict[str, str]] = {
    "peer-copy": "topoadvisor verify: direct and staged copies of each pair, against its wires and against each other",
    "peer-copy-with-data-check": "topoadvisor verify: a direct copy that times out, or a byte that differs, proves it; "
    "all pairs equal and in time refute it",
    "host-copy": "topoadvisor verify: copies between the GPU and host memory, against its PCIe link",
    "ring-at-once": "topoadvisor verify: the hops of a ring one by one and all at once",
    "all-reduce": "topoadvisor prove, or all_reduce_perf -b 256M -e 8G -f 2 on this machine, as it is and after the "
    "change: the bus bandwidth at the largest size decides",
    "all-reduce-small": "all_reduce_perf -b 8 -e 64K -f 2, as it is and after the change: the time in µs decides",
    "all-to-all": "alltoall_perf -b 64M -e 1G -f 2, as it is and after the change: the bus bandwidth decides",
    "all-reduce-between-nodes": "all_reduce_perf -b 256M -e 8G -f 2 on two machines and more, as it is and after the "
    "change: bus bandwidth, and the ways that the channels take in the log, decide",
    "rdma-write-between-nodes": "ib_write_bw between the two ports, with the row and traffic class that NCCL uses: no "
    "bandwidth proves it, line rate refutes it",
    "rdma-write-from-gpu-memory": "ib_write_bw --use_cuda=N beside the same from host memory: a failure, or much "
    "less, proves it",
}
"""Measurements that many rules share, by name: the command and what of its result decides."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all rule types."""


class Reference(Struct, frozen=True, kw_only=True):
    """A public page that the rule stands on, and the day it was read; without a day it was cited and not opened."""

    url: str
    read: datetime.date | None = None

    @property
    def opened(self) -> str:
        """When it was read, in words."""
        return f"read {self.read}" if self.read else "cited, not opened"


class Entry(Struct, frozen=True, kw_only=True):
    """One piece of advice: something to do, variables to set, or variables to unset. Texts are templates."""

    action: str | None = None
    command: str | None = None
    safety: Literal["safe", "manual"] = "manual"
    """`safe` changes nothing that a reboot would not undo and disturbs no running job."""
    set: dict[str, str] = {}
    unset: list[str] = []
    setting_class: SettingClass | None = msgspec.field(name="class", default=None)
    reason: str | None = None
    """Why the variable is set; the rule's title when absent."""
    nccl: str | None = None
    """NCCL versions it is meant for: `>=2.21`, `>=2.6,<2.23`."""
    remove_when: str | None = None
    cost: str | None = None
    consumers: list[str] = []
    """For whom it works, of `nccl.consumers.NAMES`; those that read the variable when absent."""
    when: str | None = None
    """CEL: this entry applies only then."""


class RuleText(Struct, frozen=True, kw_only=True):
    """The keys of one rule in a file."""

    id: str
    name: str
    status: Literal["stable", "preview"]
    subject: SubjectKind
    when: str
    severity: Severity
    title: str
    why: str
    not_when: list[str] = []
    applies_when: str | None = None
    evidence: list[str] = []
    advice: list[Entry] = []
    right: str | None = None
    """What to say when the rule is quiet and that is worth a sentence; a template."""
    verify: str | None = None
    """What would prove or refute the finding: a name of `MEASUREMENTS`, or a command and the result that decides."""
    ask: str | None = None
    """A read-only command that decides when a fact is unknown; a template."""
    overrides: list[str] = []
    """Rules whose setting of the same variable this rule replaces."""
    instead_of: list[str] = []
    """Rules that say less about the same: where this one fires, they are silent about the same subject."""
    last_word_on: str | None = None
    """A fact: silent where any other rule fires with it in its evidence."""
    triage: bool = False
    """It says how to find a cause, and names none: told after the others of its severity."""
    only_speed: bool = False
    """It costs bandwidth and makes no job fail: told last where something failed."""
    references: list[Reference] = []


class Rule(RuleText, frozen=True, kw_only=True):
    """A rule and the file that it came from."""

    file: str

    @property
    def proof(self) -> list[str]:
        """`verify` in words, a line or none."""
        return [MEASUREMENTS.get(self.verify, self.verify)] if self.verify else []
