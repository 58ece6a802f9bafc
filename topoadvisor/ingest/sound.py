"""What a snapshot cannot say about any machine: two devices in one place, measurements over GPUs that are not there.

Types and ranges are checked where it is decoded; this is what only several values show together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from topoadvisor import pci, runs
from topoadvisor.errors import InputError
from topoadvisor.evidence import COLLECTIVES
from topoadvisor.snapshot import Snapshot

Place = tuple[str, Hashable]
"""JSON path and value."""


def check(snapshot: Snapshot, *, file: str) -> Snapshot:
    """The snapshot itself. Raises InputError, with the JSON path, for what no machine can be."""
    places = (*_once(snapshot), *_addresses(snapshot))
    if problem := next(filter(None, (_twice(places), _no_address(snapshot), *_measured(snapshot))), None):
        raise InputError(
            problem, file=file, hint="Was it changed by hand, or damaged? `topoadvisor capture` writes a fresh one."
        )
    return snapshot


def _once(snapshot: Snapshot) -> Iterator[Place]:
    """What may stand there once only; the last part of the path is the kind of thing that it is."""
    for place, gpu in enumerate(snapshot.gpus):
        yield f"$.gpus[{place}].index", gpu.index
        for number, link in enumerate(gpu.nvlinks or ()):
            yield f"$.gpus[{place}].nvlinks[{number}].link", (gpu.index, link.link)
    for place, pair in enumerate(snapshot.p2p or ()):
        yield f"$.p2p[{place}].b", (pair.a, pair.b)
    for place, node in enumerate(snapshot.host.numa_nodes or ()):
        yield f"$.host.numa_nodes[{place}].id", node.id


def _addresses(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    gpus = ((f"$.gpus[{place}].address", gpu.address) for place, gpu in enumerate(snapshot.gpus))
    functions = ((f"$.pci[{place}].address", device.address) for place, device in enumerate(snapshot.pci or ()))
    for path, address in (*gpus, *functions):
        if address is not None:
            yield path, address


def _twice(places: tuple[Place, ...]) -> str | None:
    seen: dict[tuple[str, Hashable], str] = {}
    for path, value in places:
        kind = path.split("[", 1)[0] + path.rpartition("]")[2]
        first = seen.setdefault((kind, value), path)
        if first != path:
            shown = value[-1] if isinstance(value, tuple) else value
            return f"{path} is {shown} like {first}: a machine has that once"
    return None


def _no_address(snapshot: Snapshot) -> str | None:
    """The first address of a PCI device that is not spelt as every snapshot spells it."""
    nics = ((f"$.nics[{place}].address", nic.address) for place, nic in enumerate(snapshot.nics or ()))
    parents = ((f"$.pci[{place}].parent", device.parent) for place, device in enumerate(snapshot.pci or ()))
    for path, address in (*_addresses(snapshot), *nics, *parents):
        if address is not None and not _is_normal(address):
            return f"{path} is {address[:40]!r}, which is no PCI address like 0000:1a:00.0"
    return None


def _measured(snapshot: Snapshot) -> Iterator[str]:
    """Measurements and trials of a kind, or over GPUs, that there is not."""
    here = {gpu.index for gpu in snapshot.gpus}
    ends_here = {runs.HOST, *(f"gpu:{index}" for index in here)}
    for place, run in enumerate(snapshot.measurements):
        if run.kind not in runs.COPIES and run.kind not in COLLECTIVES:
            yield f"$.measurements[{place}].kind is {run.kind[:40]!r}, which nothing measures"
        ends = runs.ends(run)
        once = ends[1:] if len(ends) > 2 and ends[0] == ends[-1] else ends
        if not ends_here.issuperset(ends) or len(once) < 2 or len(set(once)) < len(once):
            yield (
                f"$.measurements[{place}].subject is {run.subject[:40]!r}, and a measurement is between GPUs of this "
                "machine, or one and the host"
            )
    for place, trial in enumerate(snapshot.trials):
        if gone := [index for index in trial.gpus if index not in here]:
            yield f"$.trials[{place}].gpus holds {gone[0]}, and this machine has no such GPU"


def _is_normal(address: str) -> bool:
    try:
        return pci.normalize(address) == address
    except ValueError:
        return False
