"""Whether a condition asks for the rank or for the host, and whether a value differs between ranks of one machine."""

from __future__ import annotations

import re
from typing import Final, Literal

Asked = Literal["local rank", "rank", "host"]
"""`local rank`: the place among the ranks of one machine; `rank`: any other number of a rank, pod or node."""

_LOCAL: Final = re.compile(r"(?i)(?<![a-z])local_?rank(?![a-z])|localid|local_process_index|is_local_main_process")
_RANK: Final = re.compile(
    r"(?i)(?<![a-z])((node|group|world|global)_?)?rank(?![a-z])|procid|nodeid|job_completion_index"
    r"|is_main_process|is_master"
)
_HOST: Final = re.compile(r"(?i)hostname|slurmd_nodename|\buname\b")


def asked(text: str) -> Asked | None:
    """What the text of a script asks for; None = neither."""
    if _LOCAL.search(text):
        return "local rank"
    if _RANK.search(text):
        return "rank"
    return "host" if _HOST.search(text) else None


def differs(value: str) -> Asked | None:
    """`local rank` for a value that is put together with it.

    Other ranks and hosts do not count: all ranks get the address of rank 0, and a script that starts the job asks for
    its host once.
    """
    return "local rank" if _LOCAL.search(value) else None
