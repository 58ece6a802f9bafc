"""Which transport NCCL picks between two GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topoadvisor.nccl.levels import NcclPath

Transport = Literal["P2P", "SHM", "NET"]


@dataclass(frozen=True)
class TransportChoice:
    """The transport of one pair; `kind` is None when there is no telling, and `why` says what is missing."""

    kind: Transport | None
    why: str


def transport(
    *,
    path: NcclPath | None,
    p2p_ok: bool | None,
    level: NcclPath | None,
    shm_disabled: bool | None,
    same_host: bool = True,
) -> TransportChoice:
    """The transport between two GPUs: NCCL tries P2P, then shared memory, then the network (`src/transport.cc`).

    `path` is NCCL's path type between them, `p2p_ok` whether the driver grants reading and writing both ways,
    `level` the P2P level in force, `shm_disabled` whether NCCL_SHM_DISABLE is 1. None = not known: the choice is None
    only when it depends on that. Not modelled: a network that beats the path, containers with different /dev/shm, and
    NVLink between machines.
    """
    if not same_host:
        return TransportChoice("NET", "the GPUs are in different machines")
    if level is NcclPath.LOC:
        refused = "P2P is switched off"
    elif path is not None and level is not None and path > level:
        refused = f"the path {path.name} is beyond the level {level.name}"
    elif path is NcclPath.NVB:
        if level is None:
            return TransportChoice(None, "the P2P level is not known")
        # NCCL asks the driver hop by hop here (`ncclTopoCheckP2p`); what it says of the pair itself does not count.
        return TransportChoice("P2P", "NVLink reaches the other GPU through a third one")
    elif p2p_ok is False and path is None and (level is None or level >= NcclPath.NVB):
        return TransportChoice(None, "the driver refuses peer access, and the path is not known")
    elif p2p_ok is False and path is not None and path <= NcclPath.NVL:
        return TransportChoice(
            None,
            "the driver refuses peer access across NVLink, and NCCL stops with an error there "
            "unless NCCL_IGNORE_DISABLED_P2P is 1",
        )
    elif p2p_ok is False:
        refused = "the driver refuses peer access"
    else:
        return _granted(path, p2p_ok, level)
    if shm_disabled is None:
        return TransportChoice(None, f"{refused}, and whether NCCL_SHM_DISABLE is set is not known")
    if shm_disabled:
        return TransportChoice("NET", f"{refused}, and NCCL_SHM_DISABLE forbids shared memory")
    return TransportChoice("SHM", refused)


def _granted(path: NcclPath | None, p2p_ok: bool | None, level: NcclPath | None) -> TransportChoice:
    """P2P, unless something is not known that could still forbid it."""
    # No path inside a machine is farther than SYS.
    reach = NcclPath.SYS if path is None else path
    missing = []
    if p2p_ok is None:
        missing.append("whether the driver grants peer access")
    if level is None:
        missing.append("the P2P level")
    elif reach > level:
        missing.append("the path")
    if missing:
        return TransportChoice(None, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not known")
    assert level is not None
    return TransportChoice("P2P", f"the driver grants peer access, and {reach.name} is within the level {level.name}")
