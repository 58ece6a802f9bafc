"""What is asked of a prediction about single settings; who answers is handed in, because it stands on all of this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from topoadvisor.snapshot import Setting, Snapshot

PAIRS: Final = frozenset(
    {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NVB_DISABLE", "NCCL_NET_DISABLE_INTRA"}
)
PORTS: Final = frozenset(
    {"NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_PXN_DISABLE", "NCCL_IB_DISABLE", "NCCL_IB_HCA"}
)
FEATURES: Final = {"NCCL_NVLS_ENABLE": "NVLS", "NCCL_MNNVL_ENABLE": "MNNVL"}
JUDGED: Final = PAIRS | PORTS | frozenset(FEATURES)
"""Variables all of whose effect shows in a prediction: in the pairs of GPUs, the network ports, or a feature."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What is otherwise on a machine because of one setting."""

    changes: tuple[str, ...] = ()
    """One sentence each."""
    worse: bool = False
    """Something of speed is lost."""
    unknown: str | None = None
    """Why what it is about is not known; None = it is."""


class Effects(Protocol):
    """Answers for one machine."""

    def of(self, settings: Sequence[Setting]) -> Mapping[str, Effect]:
        """Name → effect of each of the settings that is judged; they are in force together."""


OnMachine = Callable[[Snapshot], Effects]
