"""The document that `topoadvisor log --format json` prints: the summary of the log, and the verdict."""

from __future__ import annotations

from typing import Final, Literal

from topoadvisor.ingest.nccl_log_summary import Struct, Summary

Severity = Literal["error", "warning", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")

CODES: Final = {
    "LOG001": (
        "shm-although-p2p-is-possible",
        "Pairs of GPUs of one host use shared memory. Error: the path is within NCCL's P2P level, or a variable "
        "forbids what it allows. Warning: a variable forbids it, and the path is far or not known. Info: beyond "
        "NCCL's default level, or the driver refuses P2P.",
    ),
    "LOG002": (
        "socket-although-rdma-is-up",
        "Hosts talk over NET/Socket although NCCL itself, or the topology given, lists RDMA devices that are up.",
    ),
    "LOG003": ("network-inside-a-host", "GPUs of one host talk over the network: neither P2P nor shared memory."),
    "LOG004": (
        "gdr-off",
        "RDMA without GPUDirect. Error: the device cannot do it (no nvidia-peermem, no DMA-BUF). Warning: the GPU is "
        "beyond the level, or the log does not say why.",
    ),
    "LOG005": ("ranks-differ-in-version", "Ranks run different versions of NCCL, or builds for different CUDA."),
    "LOG006": ("ranks-differ-in-network", "Ranks use different networks or network plugins."),
    "LOG007": (
        "ranks-differ-in-setting",
        "A variable that ranks must share has several values (error), or only some processes have it. What describes "
        "the machine may differ between hosts.",
    ),
    "LOG008": (
        "ring-crosses-sockets-too-often",
        "A ring crosses between NUMA nodes or sockets more often than its GPUs need. NVLink hops do not count.",
    ),
    "LOG009": (
        "bootstrap-interface",
        "NCCL bootstraps over a loop, a bridge of containers or guests, or a tunnel. Error with several hosts.",
    ),
    "LOG010": ("initialisation-not-finished", "Ranks began a communicator and did not say that it is complete."),
    "LOG011": ("warning-of-nccl", "Messages of level WARN by kind, with the first of them and what to look at."),
    "LOG012": ("buffer-size-misread", "NCCL_BUFFSIZE is so small that NCCL must have dropped a unit (8M is 8)."),
    "LOG013": ("nvls-off", "NVLink SHARP is off or not available on a machine with NVSwitches."),
}
"""Code → name of what the verdict can find, and when it does."""


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
        name=CODES[id][0],
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
