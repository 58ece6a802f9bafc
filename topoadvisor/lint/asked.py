"""Whether a condition or a value asks for the rank or for the host."""

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
