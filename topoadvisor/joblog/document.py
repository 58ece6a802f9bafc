"""The document that `topoadvisor log --format json` prints: the summary of the log, and the verdict."""

from __future__ import annotations

from typing import Final, Literal

from topoadvisor.ingest.nccl_log_summary import Struct, Summary

Severity = Literal["error", "warning", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")

CODES: Final = {
    "LOG001": "shm-although-p2p-is-possible",
    "LOG002": "socket-although-rdma-is-up",
    "LOG003": "network-inside-a-host",
    "LOG004": "gdr-off",
    "LOG005": "ranks-differ-in-version",
    "LOG006": "ranks-differ-in-network",
    "LOG007": "ranks-differ-in-setting",
    "LOG008": "ring-crosses-sockets-too-often",
    "LOG009": "bootstrap-interface",
    "LOG010": "initialisation-not-finished",
    "LOG011": "warning-of-nccl",
    "LOG012": "buffer-size-misread",
    "LOG013": "nvls-off",
}
"""Code → name of what the verdict can find."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or worth knowing."""

    id: str
    name: str
    severity: Severity
    message: str
    subjects: list[str]
    """Pairs of ranks (`0>1`), hosts, variables."""
    evidence: list[str]
    advice: list[str]


class Undecided(Struct, frozen=True, kw_only=True):
    """A question that the log leaves open."""

    id: str
    question: str
    reason: str
    ask: str | None
    """How to find out."""


class Log(Summary, frozen=True, kw_only=True):
    """The summary with its verdict."""

    topology_source: str | None
    """What `--topology` named."""
    findings: list[Finding]
    """Worst first."""
    unknown: list[Undecided]


def finding(
    id: str,
    severity: Severity,
    message: str,
    *,
    subjects: list[str] | None = None,
    evidence: list[str] | None = None,
    advice: list[str] | None = None,
) -> Finding:
    """A finding with the name that its code has."""
    return Finding(
        id=id,
        name=CODES[id],
        severity=severity,
        message=message,
        subjects=subjects or [],
        evidence=evidence or [],
        advice=advice or [],
    )


def judged(summary: Summary, findings: list[Finding], unknown: list[Undecided], source: str | None) -> Log:
    """The document: findings worst first, then by code."""
    fields = {name: getattr(summary, name) for name in Summary.__struct_fields__}
    ordered = sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), each.id, each.message))
    return Log(**fields, topology_source=source, findings=ordered, unknown=unknown)
