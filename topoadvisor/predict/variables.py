"""NCCL's variables as one release reads them: what is set, else what NCCL does by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from topoadvisor.nccl import levels, selection, versions
from topoadvisor.nccl.host import Choices
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.network import Switches
from topoadvisor.nccl.selection import Selection
from topoadvisor.nccl.settings import registry
from topoadvisor.snapshot import Setting

DECISIVE: Final = (
    *("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_IGNORE_DISABLED_P2P", "NCCL_SHM_DISABLE", "NCCL_NET_DISABLE_INTRA"),
    *("NCCL_NVB_DISABLE", "NCCL_CUMEM_ENABLE", "NCCL_P2P_READ_ENABLE", "NCCL_P2P_USE_CUDA_MEMCPY"),
    *("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_NET_GDR_C2C", "NCCL_PXN_DISABLE", "NCCL_PXN_C2C"),
    *("NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET", "NCCL_CROSS_NIC", "NCCL_NVLS_ENABLE", "NCCL_MNNVL_ENABLE"),
    *("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS"),
    *("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_PROTO", "NCCL_LL128_C2C", "NCCL_GRAPH_FILE", "NCCL_TOPO_FILE"),
)
"""The variables that a prediction depends on."""

_MOST_HCAS: Final = 32
_NOT_SET: Final = -2


class Variables:
    """Look-ups in the settings of a snapshot, where the first of a name wins."""

    def __init__(self, settings: Sequence[Setting], version: str) -> None:
        self._set = {each.name: each.value for each in reversed(settings)}
        self._version = version

    def text(self, name: str) -> str | None:
        """The value, None when it is not set, is empty, or is not read by this release."""
        info = registry()[name]
        return self._set.get(name) or None if info.exists_in(self._version) else None

    def number(self, name: str) -> int:
        """The value as NCCL reads it, else the default of this release; 0 where that is no number."""
        text = self.text(name)
        value = levels.parse_int(text) if text is not None else None
        if value is not None:
            return value
        info = registry()[name]
        default = info.default_in(self._version) if info.exists_in(self._version) else None
        return int(default) if default is not None and re.fullmatch(r"-?[0-9]{1,9}", default) else 0

    def switches(self) -> Switches:
        """What decides about the way to the network."""
        level = self.text("NCCL_NET_GDR_LEVEL")
        return Switches(
            gdr_level=levels.parse_level(level, self._version).level if level is not None else None,
            gdr_read=self.number("NCCL_NET_GDR_READ"),
            gdr_c2c=self.number("NCCL_NET_GDR_C2C") != 0,
            pxn=registry()["NCCL_PXN_DISABLE"].exists_in(self._version) and self.number("NCCL_PXN_DISABLE") != 1,
            pxn_c2c=self.number("NCCL_PXN_C2C") != 0,
        )

    def choices(self) -> Choices:
        """What decides about transports."""
        return Choices(
            shm=self.number("NCCL_SHM_DISABLE") != 1,
            network_inside=self.number("NCCL_NET_DISABLE_INTRA") != 1,
            switches=self.switches(),
        )

    def hca(self) -> Selection | None:
        """NCCL_IB_HCA; None when it is not set."""
        text = self.text("NCCL_IB_HCA")
        return selection.parse(text, self._version, most=_MOST_HCAS) if text is not None else None

    def no_rdma(self) -> str | None:
        """The variable that forbids RDMA, as it is set; None when none does."""
        if self.number("NCCL_IB_DISABLE"):
            return f"NCCL_IB_DISABLE={self.text('NCCL_IB_DISABLE')}"
        network = self.text("NCCL_NET")
        return f"NCCL_NET={network}" if network is not None and network.lower() == "socket" else None

    def p2p_level(self) -> NcclPath | None:
        """The P2P level that the user set; None when it is NCCL's own."""
        disable, level = (self._set.get(name) for name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"))
        return levels.user_p2p_level(disable, level, self._version).level

    def channels(self, found: int) -> tuple[int, str | None]:
        """How many channels become of those found, and which limits changed that (`ncclTopoPostset`)."""
        most = 64 if versions.at_least(self._version, "2.25.1") else 32
        count = min(found, most)
        told = []
        highest, name = self._limit(("NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS"), most)
        ctas = self.number("NCCL_MAX_CTAS")
        if 0 < ctas < highest:
            highest, name = ctas, "NCCL_MAX_CTAS"
        if max(1, highest) < count:
            told.append(f"{name} leaves {max(1, highest)} of {count}")
            count = max(1, highest)
        lowest, name = self._limit(("NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS"), 0)
        ctas = min(self.number("NCCL_MIN_CTAS"), ctas) if ctas > 0 else self.number("NCCL_MIN_CTAS")
        if ctas > lowest:
            lowest, name = ctas, "NCCL_MIN_CTAS"
        if min(lowest, most) > count:
            told.append(f"{name} repeats them up to {min(lowest, most)}")
            count = min(lowest, most)
        return count, " and ".join(told) or None

    def _limit(self, names: Iterable[str], otherwise: int) -> tuple[int, str]:
        for name in names:
            if (value := self.number(name)) != _NOT_SET:
                return value, name
        return otherwise, ""
