"""Warnings of NCCL by kind. The texts are those of `WARN(…)` and of a few `INFO(…)` in NCCL 2.7 to 2.30."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple


class Kind(NamedTuple):
    """One kind of message."""

    name: str
    severity: Literal["error", "warning", "info"]
    advice: str
    """What to look at, one sentence."""


_NET = "Check that the network devices of the two hosts reach each other: cabling, GID index, VLAN, firewall."
_ORIGINAL = "The process at the other end died or left; its own log holds the first error."

KINDS: Final[tuple[tuple[tuple[bytes, ...], Kind], ...]] = (
    (
        (b"Mismatched NCCL version", b"NCCL version mismatch"),
        Kind("version mismatch", "error", "Run the same NCCL in every container and environment of the job."),
    ),
    (
        (b"Net plugin mismatch", b"mismatched net", b"does not match the parent"),
        Kind("plugin mismatch", "error", "Give every rank the same network plugin."),
    ),
    (
        (b"P2P is disabled between NVLINK",),
        Kind(
            "P2P broken on NVLink",
            "error",
            "`nvidia-smi topo -p2p r` and `nvidia-smi nvlink -s` show which link is down; fabric manager and IMEX "
            "must run where there are NVSwitches.",
        ),
    ),
    (
        (b"P2P is disabled between connected GPUs",),
        Kind("P2P refused by the driver", "warning", "`nvidia-smi topo -p2p r` shows what the driver refuses."),
    ),
    (
        (
            b"Duplicate GPU detected",
            b"Multiple Ranks are using the same GPU",
            b"Multiple ranks detected using the same",
        ),
        Kind("two ranks on one GPU", "error", "Give each rank its own GPU: CUDA_VISIBLE_DEVICES or the local rank."),
    ),
    (
        (b"no socket interface found", b"no interface found", b"No IP interface", b"No usable listening interface"),
        Kind(
            "no network interface", "error", "NCCL_SOCKET_IFNAME names none that is up here; `ip -br addr` lists them."
        ),
    ),
    (
        (b"Got completion from peer", b"Got completion with", b"got completion"),
        Kind("network completion error", "error", _NET),
    ),
    ((b"async fatal event", b"Got async event", b"fatal async event"), Kind("network device event", "error", _NET)),
    (
        (b"non-fatal async event", b"GID table changed"),
        Kind("network device event, not fatal", "warning", "A link or its addresses changed while the job ran."),
    ),
    (
        (b"ibv_reg_mr", b"ibv_create_cq", b"ibv_create_qp", b"Cannot allocate memory"),
        Kind("RDMA memory could not be registered", "error", "Raise the locked-memory limit: `ulimit -l unlimited`."),
    ),
    (
        (b"ibv_modify_qp", b"ibv_"),
        Kind("verbs call failed", "error", "Check NCCL_IB_GID_INDEX, NCCL_IB_HCA and the state of the ports."),
    ),
    (
        (b"Connection closed by remote peer", b"Connection reset", b"Broken pipe", b"closed by peer"),
        Kind("connection lost", "error", _ORIGINAL),
    ),
    (
        (b"Connection refused", b"timed out", b"No route to host", b"Network is unreachable", b"Call to connect"),
        Kind(
            "connection failed",
            "error",
            "The interfaces that NCCL chose cannot reach each other: NCCL_SOCKET_IFNAME must name the same network "
            "on all hosts.",
        ),
    ),
    (
        (b"shm_open", b"posix_fallocate", b"shared memory", b"/dev/shm", b"No space left on device"),
        Kind(
            "shared memory failed",
            "error",
            "Give the container more of it: `--shm-size`, or an emptyDir of medium Memory.",
        ),
    ),
    (
        (b"Multicast", b"multicast", b"NVLink SHARP"),
        Kind(
            "NVLink SHARP failed",
            "error",
            "Fabric manager and driver must fit, and no GPU may be hidden; NCCL_NVLS_ENABLE=0 goes round it.",
        ),
    ),
    (
        (b"out of memory", b"Out of memory", b"Failed to CUDA"),
        Kind("out of GPU memory", "error", "Leave NCCL some memory."),
    ),
    (
        (b"Cuda failure", b"CUDA error", b"cuda failure", b"CUDA driver", b"Cuda driver"),
        Kind(
            "CUDA failure", "error", "An earlier error of the GPU or of a kernel shows up in NCCL; look for the first."
        ),
    ),
    (
        (b"Unrecognized element token", b"Unrecognized prefix token", b"no algorithm/protocol available"),
        Kind("NCCL_ALGO or NCCL_PROTO refused", "error", "Correct the value, or unset it; NCCL trims no blanks."),
    ),
    (
        (b"Message truncated", b"mismatch in info from procs", b"has already checked in", b"Collective mismatch"),
        Kind("ranks disagree", "error", "Ranks called different collectives, sizes or communicators at one time."),
    ),
    (
        (b"Failed to open libibverbs", b"Failed to open libnvidia-ml", b"libnvidia-ml"),
        Kind("library missing", "warning", "The container lacks a library that NCCL needs for full speed."),
    ),
    (
        (b"Could not find real path", b"XML", b"topology"),
        Kind("topology could not be read", "warning", "A container or VM hides a part of /sys."),
    ),
    (
        (b"is not a valid pointer", b"argument is NULL", b"invalid"),
        Kind("wrong use of NCCL", "error", "The program calls NCCL wrongly."),
    ),
)
"""Marks in a message → its kind; the first that fits counts."""

OTHER: Final = Kind("other warning", "warning", "")
RETRIES: Final = Kind(
    "connection retried", "warning", "A peer was not there yet, or is not reachable; long waits end in a timeout."
)
DIAGNOSED: Final = Kind(
    "found by NCCL's diagnostics",
    "warning",
    "NCCL compared GPUs, driver, links and settings of its ranks: the lines say what is not alike, or not in order.",
)
BY_NAME: Final = {kind.name: kind for kind in (*(kind for _, kind in KINDS), OTHER, RETRIES, DIAGNOSED)}

_CHANGING: Final = re.compile(rb"0x[0-9a-fA-F]+|[0-9][0-9a-fA-F.:]*(?:<[0-9]+>)?")


def kind_of(message: bytes) -> Kind:
    """The kind of a message of level WARN."""
    return next((kind for marks, kind in KINDS if any(mark in message for mark in marks)), OTHER)


def shape(message: bytes) -> bytes:
    """The message with its numbers and addresses taken out, at most 200 letters: equal for two of one kind."""
    return _CHANGING.sub(b"#", message[:300])[:200]
