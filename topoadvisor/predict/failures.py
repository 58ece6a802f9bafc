"""Settings with which a job of NCCL does not run: those it refuses, dies of, or finds nothing for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from topoadvisor.nccl import reading
from topoadvisor.nccl.settings import registry
from topoadvisor.predict.document import Failure
from topoadvisor.rules.facts import FactBase, Known
from topoadvisor.snapshot import Setting

_INTERFACES: Final = "NCCL_SOCKET_IFNAME"
_GRAPH_FILE: Final = "NCCL_GRAPH_FILE"


def find(settings: Iterable[Setting], facts: FactBase, version: str) -> Iterator[Failure]:
    """`settings` are those in force, one for each name; `facts` are of the machine with them."""
    for setting in settings:
        why = _why(setting, facts, version)
        if why is not None:
            yield Failure(name=setting.name, value=setting.value, origin=setting.place, why=why)


def _why(setting: Setting, facts: FactBase, version: str) -> str | None:
    info = registry().get(setting.name)
    if info is None or not info.exists_in(version):
        return None
    read = reading.read(info, setting.value, version)
    if read is not None and read.fatal:
        told = "; ".join(read.surprises)
        return told if read.becomes is None else f"{told}, and NCCL dies of it"
    if setting.name == _INTERFACES and read is not None and read.becomes is not None:
        mine = next((each for each in facts.subjects["variable"] if each.id == f"variable:{setting.name}"), None)
        selects = mine.facts["variable.selects"] if mine is not None else None
        if isinstance(selects, Known) and not selects.value:
            return "it matches no interface that is up here, and initialization fails"
    if setting.name == _GRAPH_FILE and setting.value and setting.exists is False:
        return "there is no such file, and initialization fails"
    return None
