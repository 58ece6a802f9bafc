"""The table that `nvidia-smi` prints when it is asked for nothing: driver, CUDA, and each GPU's name and address."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from topoadvisor import pci
from topoadvisor.ingest.lines import Line
from topoadvisor.ingest.part import Part, source
from topoadvisor.snapshot import MAX_INDEX, Driver, Gpu, Snapshot

NAME: Final = "nvidia-smi"
BANNER: Final = re.compile(
    r"\s*\|\s*NVIDIA-SMI\s+[0-9][0-9.]{2,20}\s"
    r"(?:.*?\b(?:Driver|KMD) Version:\s*(?P<driver>[0-9]{2,4}(?:\.[0-9]{1,4}){1,3}))?"
    r"(?:.*?\bCUDA (?:UMD )?Version:\s*(?P<cuda>[0-9]{1,3}\.[0-9]{1,2}))?"
)
MORE: Final = re.compile(r"\s*[|+](?:[-=+|]|.*[|+]\s*$)")
_GPU = re.compile(
    r"\s*\|\s*(?P<index>[0-9]{1,4})\s+(?P<name>\S(?:.{0,60}?\S)?)\s+(?:On|Off|N/A|WDDM|TCC|MCDM)?\s*"
    r"\|\s*(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s"
)
_MEMORY = re.compile(r"\|[^|]*\|\s*[0-9]+MiB\s*/\s*(?P<total>[0-9]{1,9})MiB\s*\|")
_MIG_HEADING = re.compile(r"\bMIG M\.")
_MIG = re.compile(r"\s*\|\s+\|\s+\|\s+(?P<mig>Enabled|Disabled)\*?\s*\|")


def part(lines: Iterable[Line], file: str) -> Part | None:
    """Read one such table; None when it shows neither a driver nor a GPU. A name that it cut short is left out."""
    driver = Driver()
    gpus: dict[int, dict[str, Any]] = {}
    current: dict[str, Any] | None = None
    cut: list[int] = []
    with_mig = False
    for line in lines:
        text = line.text
        if banner := BANNER.match(text):
            driver = Driver(version=banner["driver"], cuda=banner["cuda"])
        elif (gpu := _GPU.match(text)) and (index := int(gpu["index"])) <= MAX_INDEX and index not in gpus:
            current = gpus[index] = {"address": pci.normalize(gpu["address"])}
            if gpu["name"].endswith("..."):
                cut.append(index)
            elif "ERR!" not in gpu["name"]:
                current["name"] = gpu["name"]
        elif current is not None and (memory := _MEMORY.search(text)):
            current.setdefault("memory_bytes", int(memory["total"]) << 20)
        elif current is not None and with_mig and (mig := _MIG.match(text)):
            current.setdefault("mig", mig["mig"] == "Enabled")
        elif _MIG_HEADING.search(text):
            with_mig = True
        elif "Processes:" in text:
            break
    if not gpus and driver == Driver():
        return None
    notes = [f"it cuts the names of GPU {', '.join(map(str, cut))} short"] if cut else []
    found = [Gpu(index=index, **told) for index, told in sorted(gpus.items())]
    return Part(Snapshot(sources=[source(NAME, notes)], driver=driver, gpus=found), file)
