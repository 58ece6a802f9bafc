"""What single settings change on one machine: predictions with and without each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Final

import msgspec

from topoadvisor.advise import analyse
from topoadvisor.errors import NothingDetermined
from topoadvisor.ingest import assume
from topoadvisor.lint.effects import FEATURES, JUDGED, PAIRS, PORTS, Effect
from topoadvisor.predict import changes
from topoadvisor.predict.outlook import Asked, Outlook, Searches, look
from topoadvisor.predict.predict import gdr, without
from topoadvisor.snapshot import Setting, Snapshot

_BEST_FIRST: Final = ("P2P", "SHM", "NET")


class Effects:
    """Answers for one machine."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = msgspec.structs.replace(snapshot, settings=assume.settings(snapshot))
        self._searches = Searches()

    @cached_property
    def _gdr(self) -> tuple[bool | None, str]:
        return gdr(analyse(self._snapshot))

    def of(self, settings: Sequence[Setting]) -> Mapping[str, Effect]:
        """Name → what is otherwise because of it, for those of the settings, which are in force together."""
        names = [each.name for each in settings if each.name in JUDGED and each.value]
        if not names:
            return {}
        there = msgspec.structs.replace(self._snapshot, settings=list(settings))
        asked = Asked(None, *self._gdr, self._searches)
        try:
            after = look(there, asked)
            return {name: self._effect(name, without(there, name), asked, after) for name in names}
        except NothingDetermined as error:
            return {name: Effect(unknown=str(error)) for name in names}

    def _effect(self, name: str, bare: Snapshot, asked: Asked, after: Outlook) -> Effect:
        """`bare` is the machine without the setting."""
        before = look(bare, asked)
        unknown = next(self._unknown(name, before), None) or next(self._unknown(name, after), None)
        worse = _worse(before, after) and not _advised(name, bare)
        return Effect(changes=tuple(changes.between(before, after)), worse=worse, unknown=unknown)

    def _unknown(self, name: str, outlook: Outlook) -> Iterator[str]:
        """Why the part of a prediction that a variable is about is not known."""
        if name in PAIRS:
            yield from (pair.why for pair in outlook.pairs if pair.transport == "unknown")
        elif name in PORTS:
            if not outlook.ports and self._snapshot.nics is None:
                yield "the network ports were not read"
            yield from (port.why for port in outlook.ports if "unknown" in (port.send, port.receive))
        else:
            wanted = FEATURES[name]
            yield from (each.why for each in outlook.features if each.name == wanted and each.state == "unknown")


def _advised(name: str, bare: Snapshot) -> bool:
    """Whether a rule says of the machine without the setting what that is about: there speed is not all that counts."""
    alike = next((group for group in (PAIRS, PORTS) if name in group), frozenset({name}))
    return any(each.name in alike for each in analyse(bare).advice.settings)


def _worse(before: Outlook, after: Outlook) -> bool:
    """Whether something is lost: a better transport, bandwidth of rings, GPUDirect RDMA, a feature."""
    return (
        any(
            {old.transport, new.transport} <= set(_BEST_FIRST)
            and _BEST_FIRST.index(new.transport) > _BEST_FIRST.index(old.transport)
            for old, new in zip(before.pairs, after.pairs, strict=True)
        )
        or _bandwidth(after) < _bandwidth(before)
        or any(
            ("on", "off") in ((old.send, new.send), (old.receive, new.receive))
            for old in before.ports
            for new in after.ports
            if (old.gpu, old.port) == (new.gpu, new.port)
        )
        or any(
            (old.state, new.state) == ("on", "off") for old, new in zip(before.features, after.features, strict=True)
        )
    )


def _bandwidth(outlook: Outlook) -> float:
    """GB/s of all rings; infinite where those of some group are not known."""
    return sum(inf if group.rings is None else group.rings.total_gbps for group in outlook.groups)
