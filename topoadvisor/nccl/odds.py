"""Variables that do not go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from topoadvisor.nccl import choices
from topoadvisor.nccl.levels import parse_int

Values = Mapping[str, str]


@dataclass(frozen=True)
class Odds:
    """Variables that do not go together; `tell` gives the sentence, or None when they do."""

    names: tuple[str, ...]
    """All must be set; the last line of them is told."""
    tell: Callable[[Values], str | None]
    since: str = "2.3.5"
    works: bool = False
    """It is unusual, and does what it says; of all others one of the variables does not do what it is set for."""


def _number(values: Values, name: str) -> int | None:
    return parse_int(values[name]) if values.get(name) else None


def _on(values: Values, name: str) -> bool:
    return _number(values, name) == 1


def _crossed(low: str, high: str) -> Odds:
    def tell(values: Values) -> str | None:
        least, most = _number(values, low), _number(values, high)
        wrong = least is not None and most is not None and 0 < most < least
        return f"{low}={least} is above {high}={most}: there is no number between" if wrong else None

    return Odds((low, high), tell)


def _level_when_off(values: Values) -> str | None:
    off = _on(values, "NCCL_P2P_DISABLE")
    return (
        "NCCL_P2P_LEVEL has no effect with NCCL_P2P_DISABLE=1, which switches P2P off at every level" if off else None
    )


def _network_alone(values: Values) -> str | None:
    both = _on(values, "NCCL_P2P_DISABLE") and _on(values, "NCCL_SHM_DISABLE")
    if not both:
        return None
    return "without P2P and without shared memory, GPUs of one machine talk over the network"


def _sockets(values: Values) -> str | None:
    each, threads = _number(values, "NCCL_NSOCKS_PERTHREAD"), _number(values, "NCCL_SOCKET_NTHREADS")
    if each is None or threads is None or threads <= 0 or each * threads <= 64:
        return None
    return f"{each} × {threads} sockets are more than 64, and NCCL takes {64 // min(threads, 16)} for each thread"


def _subsystems(values: Values) -> str | None:
    level = values["NCCL_DEBUG"].strip().upper()
    quiet = level in ("VERSION", "WARN")
    return (
        f"NCCL_DEBUG_SUBSYS filters what INFO and TRACE print: it does nothing with NCCL_DEBUG={level}"
        if quiet
        else None
    )


def _nvls_only(values: Values) -> str | None:
    names = {name for each in choices.parse(values["NCCL_ALGO"]) if not each.inverted for name in each.names}
    off = _number(values, "NCCL_NVLS_ENABLE") == 0
    return "NCCL_ALGO allows only NVLS, and NCCL_NVLS_ENABLE=0 switches it off" if off and names == {"nvls"} else None


def _fabric(values: Values) -> str | None:
    needs = _number(values, "NCCL_CUMEM_ENABLE") == 0 and (_number(values, "NCCL_MNNVL_ENABLE") or 0) > 0
    return "multi-node NVLink needs cuMem: NCCL_MNNVL_ENABLE does nothing with NCCL_CUMEM_ENABLE=0" if needs else None


def _switched(text: str) -> str:
    """A value with the words that PyTorch takes for 1 and 0 as these (`getCvarBool` in `c10d/Utils.hpp`)."""
    word = text.strip().lower()
    return "1" if word in ("y", "yes", "t", "true") else "0" if word in ("n", "no", "f", "false") else word


def _differ(old: str, new: str) -> Odds:
    def tell(values: Values) -> str | None:
        same = _switched(values[old]) == _switched(values[new])
        return (
            None
            if same
            else f"{old} is the older name of {new} and has another value: the newer one wins where it is known"
        )

    return Odds((old, new), tell)


def _nothing_recorded(name: str) -> Odds:
    def tell(values: Values) -> str | None:
        dumps = values["TORCH_NCCL_DUMP_ON_TIMEOUT"].lower() in ("1", "true", "y", "yes", "t")
        empty = _number(values, name) == 0
        return f"there is nothing to write after a timeout with {name}=0" if dumps and empty else None

    return Odds(("TORCH_NCCL_DUMP_ON_TIMEOUT", name), tell)


AT_ODDS: Final = (
    Odds(("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"), _level_when_off, since="2.6.4"),
    Odds(("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"), _network_alone, works=True),
    _crossed("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
    _crossed("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
    _crossed("NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS"),
    _crossed("NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS"),
    Odds(("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS"), _sockets),
    Odds(("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"), _subsystems),
    Odds(("NCCL_ALGO", "NCCL_NVLS_ENABLE"), _nvls_only, since="2.17.1"),
    Odds(("NCCL_CUMEM_ENABLE", "NCCL_MNNVL_ENABLE"), _fabric),
    _differ("NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS"),
    _differ("NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS"),
    _differ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
    _differ("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    _differ("NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"),
    _nothing_recorded("TORCH_FR_BUFFER_SIZE"),
    _nothing_recorded("TORCH_NCCL_TRACE_BUFFER_SIZE"),
)
