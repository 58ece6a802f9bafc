"""What one setting changes: two outlooks compared, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from topoadvisor.predict.document import Channels, Pair
from topoadvisor.predict.outlook import Outlook


def between(before: Outlook, after: Outlook) -> list[str]:
    """What is otherwise in `after`, one sentence each."""
    return [
        *_transports(before, after),
        *_channels(before, after),
        *_ports(before, after),
        *_features(before, after),
    ]


def spelled(pair: Pair) -> str:
    """`P2P/CUMEM`."""
    return f"{pair.transport}/{pair.via}" if pair.via else pair.transport


def named(pairs: Sequence[tuple[str, str]], all_pairs: int) -> str:
    """Pairs of GPUs in words; ordered pairs count as one when both directions are there."""
    unordered = list(dict.fromkeys(tuple(sorted(pair, key=_number)) for pair in pairs))
    if 2 * len(unordered) >= all_pairs and len(unordered) > 1:
        return f"all {len(unordered)} pairs"
    listed = ", ".join("-".join(pair) for pair in unordered[:4])
    if len(unordered) <= 4:
        return listed
    return f"{len(unordered)} pairs ({listed}, …)"


def _number(label: str) -> int:
    return int(label.removeprefix("GPU"))


def _transports(before: Outlook, after: Outlook) -> Iterator[str]:
    changed: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for old, new in zip(before.pairs, after.pairs, strict=True):
        if spelled(old) != spelled(new):
            changed.setdefault((spelled(old), spelled(new)), []).append((new.a, new.b))
        elif old.path != new.path:
            changed.setdefault((f"{spelled(old)} over {old.path}", f"{new.path}"), []).append((new.a, new.b))
    for (old_way, new_way), pairs in changed.items():
        yield f"{named(pairs, len(after.pairs))}: {new_way} instead of {old_way}"


def _channels(before: Outlook, after: Outlook) -> Iterator[str]:
    old, new = _summary(before), _summary(after)
    if old != new:
        yield f"rings: {new} instead of {old}"
    elif [group.rings and group.rings.orders for group in before.groups] != [
        group.rings and group.rings.orders for group in after.groups
    ]:
        yield "the rings run in another order"


def _summary(outlook: Outlook) -> str:
    each = [
        f"{rings_in_words(group.rings)} ({group.channels} {'channel' if group.channels == 1 else 'channels'})"
        if group.rings is not None
        else "not known"
        for group in outlook.groups
    ]
    if len(each) > 1 and set(each) == {"not known"}:
        return f"not known in {len(each)} groups of GPUs"
    if len(each) > 1 and len(set(each)) == 1:
        return f"{len(each)} groups of GPUs with {each[0]} each"
    return "; ".join(each)


def rings_in_words(rings: Channels) -> str:
    """`12 x 30 GB/s over NVL`."""
    return f"{rings.searched} x {rings.gbps:g} GB/s over {rings.path}"


def _ports(before: Outlook, after: Outlook) -> Iterator[str]:
    old = {(each.gpu, each.port): each for each in before.ports}
    new = {(each.gpu, each.port): each for each in after.ports}
    gone = list(dict.fromkeys(port for _, port in old if port not in {port for _, port in new}))
    come = list(dict.fromkeys(port for _, port in new if port not in {port for _, port in old}))
    if gone:
        yield f"not used: {', '.join(gone)}"
    if come:
        yield f"used too: {', '.join(come)}"
    both = [(old[key], new[key]) for key in new if key in old]
    states = {
        "sending": [(a.send, b.send) for a, b in both],
        "receiving": [(a.receive, b.receive) for a, b in both],
    }
    for direction, seen in states.items():
        for (was, now), count in sorted(Counter(seen).items()):
            if was != now:
                yield f"GPUDirect RDMA {now} instead of {was} when {direction}, {count} of {len(both)} ways"
    relayed = Counter((a.relay is not None, b.relay is not None) for a, b in both)
    for (was_relayed, is_relayed), count in sorted(relayed.items()):
        if was_relayed != is_relayed:
            how = "lead" if is_relayed else "no longer lead"
            yield f"{count} of {len(both)} ways to a port {how} through another GPU (PXN)"


def _features(before: Outlook, after: Outlook) -> Iterator[str]:
    for old, new in zip(before.features, after.features, strict=True):
        if old.state != new.state:
            yield f"{old.name} {new.state} instead of {old.state}: {new.why}"
