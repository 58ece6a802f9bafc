"""The screen that `topoadvisor predict` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, product

from topoadvisor.predict import changes
from topoadvisor.predict.document import (
    PLACEHOLDER_GBPS,
    Channels,
    Difference,
    Failure,
    Feature,
    GpuPort,
    Group,
    Pair,
    Prediction,
    State,
)
from topoadvisor.render.page import COLORS, MARKS, Page

_MARKS: dict[State, str] = {"on": "on", "off": "off", "unknown": "?"}
_MOST_WAYS = 12
_MOST_ORDERS = 12
_MOST_NAMES = 8
_LONGEST_VALUE = 60


def render(prediction: Prediction, *, width: int = 100, color: bool = False) -> str:
    """The whole screen as text, ending in a newline."""
    page = Page(width, color)
    nccl = prediction.nccl
    ranks = f"{len(prediction.gpus)} {'rank' if len(prediction.gpus) == 1 else 'ranks'} on {spans(prediction.gpus)}"
    where = f", on each of {prediction.hosts} hosts" if prediction.hosts > 1 else ""
    page.paragraph(f"What NCCL {nccl.version} will do: {ranks}{where}", rest="  ", code="1")
    page.paragraph(f"NCCL's version: {nccl.origin}. Bandwidths are those of its own model, no measurements.", code="2")
    _failures(prediction.failures, page)
    _transports(prediction.pairs, page)
    for group in prediction.groups:
        _group(group, len(prediction.groups) > 1, page)
    _ports(prediction.ports, page)
    _features(prediction.features, page)
    _differences(prediction.differences, page)
    if prediction.unknown:
        page.heading(f"Not known ({len(prediction.unknown)})")
        for text in prediction.unknown:
            page.paragraph(text, first="  ? ", rest="    ")
    if prediction.notes:
        page.blank()
    for note in prediction.notes:
        page.paragraph(note, rest="  ", code="2")
    return "\n".join(page.lines) + "\n"


def _failures(failures: Sequence[Failure], page: Page) -> None:
    if not failures:
        return
    page.heading(f"NCCL does not run with {'this setting' if len(failures) == 1 else 'these settings'}")
    for each in failures:
        text = f"{each.name}={_shortened(each.value)} ({each.origin}): {each.why}."
        page.paragraph(text, first=f"  {page.paint(MARKS['error'], COLORS['error'])} ", rest="    ")
    page.paragraph(f"What follows is the job without {'it' if len(failures) == 1 else 'them'}.", first="  ", rest="  ")


def spans(gpus: Sequence[str]) -> str:
    """`GPU0-GPU3, GPU6`: runs of three and more are drawn together."""
    numbers = sorted(int(gpu.removeprefix("GPU")) for gpu in gpus)
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0])]
    parts = [[f"GPU{run[0]}-GPU{run[-1]}"] if len(run) > 2 else [f"GPU{number}" for number in run] for run in runs]
    return ", ".join(text for part in parts for text in part)


def _transports(pairs: Sequence[Pair], page: Page) -> None:
    if not pairs:
        return
    page.heading("Transports")
    groups: dict[tuple[str, str | None, str, tuple[str, ...]], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((changes.spelled(pair), pair.path, pair.why, tuple(pair.inferred)), []).append(pair)
    widest = max(len(spelled) for spelled, *_ in groups)
    for (spelled, path, why, inferred), alike in list(groups.items())[:_MOST_WAYS]:
        way = f"{spelled:<{widest}}  {path or '?':<4}{_bandwidths(alike):>11}  "
        page.paragraph(_pairs_in_words(alike, len(pairs)), first=f"  {way}", rest=" " * (len(way) + 2))
        page.paragraph(f"{why}.", first="      ", rest="      ", code="2")
        for reason in inferred:
            page.paragraph(f"Inferred: {reason}.", first="      ", rest="      ", code="2")
    if len(groups) > _MOST_WAYS:
        page.lines.append(f"  and {len(groups) - _MOST_WAYS} more (--format json)")
    if any(pair.transport == "P2P" for pair in pairs):
        text = "Between processes; GPUs that one process drives use direct pointers instead."
        page.paragraph(text, first="  ", rest="  ", code="2")


def _bandwidths(pairs: Sequence[Pair]) -> str:
    known = sorted({pair.gbps for pair in pairs if pair.gbps is not None})
    if len(known) == 0 or any(pair.gbps is None for pair in pairs):
        return "? GB/s"
    return f"{known[0]:.4g} GB/s" if len(known) == 1 else f"{known[0]:.4g}-{known[-1]:.4g} GB/s"


def _pairs_in_words(pairs: Sequence[Pair], all_pairs: int) -> str:
    """The pairs by what they have in common, because a list of hundreds helps nobody."""
    joined = {frozenset((pair.a, pair.b)) for pair in pairs}
    if 2 * len(joined) == all_pairs and len(joined) > 1:
        return f"all {len(joined)} pairs"
    cliques = _cliques(joined)
    count = f"{len(joined)} {'pair' if len(joined) == 1 else 'pairs'}"
    if cliques is not None and any(len(clique) > 2 for clique in cliques):
        return f"{count}: inside {'; '.join(spans(clique) for clique in cliques)}"
    sides = _sides(joined)
    if sides is not None and min(map(len, sides)) > 1:
        return f"{count}: between {spans(sides[0])} and {spans(sides[1])}"
    listed = sorted(sorted(pair, key=_number) for pair in joined)
    names = ["-".join(pair) for pair in sorted(listed, key=lambda pair: [_number(gpu) for gpu in pair])]
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{count}: {shown}, …"


def _number(gpu: str) -> int:
    return int(gpu.removeprefix("GPU"))


def _cliques(pairs: set[frozenset[str]]) -> list[list[str]] | None:
    """Groups of GPUs of which these are all inner pairs; None when they are not."""
    group: dict[str, set[str]] = {}
    for pair in pairs:
        merged = set().union(*(group.get(gpu, {gpu}) for gpu in pair))
        group.update(dict.fromkeys(merged, merged))
    found = {id(members): sorted(members, key=_number) for members in group.values()}
    if sum(len(members) * (len(members) - 1) // 2 for members in found.values()) != len(pairs):
        return None
    return sorted(found.values(), key=lambda members: _number(members[0]))


def _sides(pairs: set[frozenset[str]]) -> tuple[list[str], list[str]] | None:
    """Two sides of which these are all pairs that cross; None when they are not."""
    gpus = sorted({gpu for pair in pairs for gpu in pair}, key=_number)
    far = [gpu for gpu in gpus if frozenset((gpus[0], gpu)) in pairs]
    near = [gpu for gpu in gpus if gpu not in far]
    return (near, far) if pairs == {frozenset(pair) for pair in product(near, far)} else None


def _group(group: Group, several: bool, page: Page) -> None:
    where = f" within {spans(group.gpus)}" if several else ""
    if group.rings is None or group.trees is None:
        page.heading(f"Channels{where}: {'not known' if len(group.gpus) > 1 else 'none'}")
        page.paragraph(f"{group.why}.", first="  ", rest="  ")
        return
    page.heading(f"{group.channels} {'channel' if group.channels == 1 else 'channels'}{where}")
    fewer = (group.channels or 0) < group.rings.searched
    found = "the search finds " if fewer else ""
    page.paragraph(found + _in_words(group.rings, "ring"), first="  ", rest="    ")
    runs = list(Counter(_orders(group.rings)).items())
    for order, times in runs[:_MOST_ORDERS]:
        page.paragraph(order, first=f"  {times:>4} ×  ", rest=" " * 9)
    if len(runs) > _MOST_ORDERS:
        page.lines.append(f"        and {len(runs) - _MOST_ORDERS} more (--format json)")
    page.paragraph(found + _in_words(group.trees, "tree"), first="  ", rest="    ")
    times = (group.channels or 0) // max(group.rings.searched, 1)
    used = f"NCCL uses each {'twice' if times == 2 else f'{times} times'}" if group.why is None else group.why
    page.paragraph(f"{used}.", first="  ", rest="    ", code="2")
    for reason in group.inferred:
        page.paragraph(f"Inferred: {reason}.", first="  ", rest="    ", code="2")


def _orders(rings: Channels) -> Iterator[str]:
    """`0 → 1 → 0`, or from port to port."""
    for place, order in enumerate(rings.orders):
        gpus = [str(_number(gpu)) for gpu in order]
        if rings.ports:
            entry, leave = rings.ports[place]
            yield " → ".join([entry, *gpus, leave])
        else:
            yield " → ".join([*gpus, gpus[0]])


def _in_words(channels: Channels, what: str) -> str:
    count = channels.searched
    plural = what if count == 1 else f"{what}s"
    network = f", {channels.network_path} to the network" if channels.network_path is not None else ""
    total = f"{count} {plural} × {channels.gbps:g} GB/s = {channels.total_gbps:g} GB/s"
    if channels.gbps <= PLACEHOLDER_GBPS:
        total += " (its search finds none and notes that in its place)"
    return f"{total} over {channels.path}{network}"


def _ports(ports: Sequence[GpuPort], page: Page) -> None:
    if not ports:
        return
    page.heading("GPUDirect RDMA, in jobs of several hosts (send/receive)")
    groups: dict[tuple[State, State, str, bool], list[GpuPort]] = {}
    for port in ports:
        groups.setdefault((port.send, port.receive, port.path, port.own), []).append(port)
    for (send, receive, path, own), alike in sorted(groups.items(), key=lambda entry: not entry[0][3]):
        states = f"{_MARKS[send]}/{_MARKS[receive]}"
        shown = ", ".join(f"{each.gpu} {each.port}" for each in alike[:_MOST_NAMES])
        what = shown if len(alike) <= _MOST_NAMES else f"{len(alike)} ways: {shown}, …"
        page.paragraph(f"{'own port: ' if own else ''}{what}", first=f"  {states:<8} {path:<4}  ", rest=" " * 17)
        for why in dict.fromkeys(each.why for each in alike[:1]):
            page.paragraph(f"{why}.", first="      ", rest="      ", code="2")


def _features(features: Iterable[Feature], page: Page) -> None:
    page.heading("Features")
    for feature in features:
        page.paragraph(feature.why, first=f"  {feature.name:<6} {_MARKS[feature.state]:<4} ", rest=" " * 14)


def _differences(differences: Sequence[Difference], page: Page) -> None:
    for recommended, title in ((False, "Settings in force, against the same machine without them"), (True, "Advised")):
        chosen = [each for each in differences if each.recommended is recommended]
        if not chosen:
            continue
        page.heading(title)
        for each in chosen:
            text = f"{each.name}={_shortened(each.value)}" if each.value is not None else f"unset {each.name}"
            told = "" if each.changes else ": changes nothing that is predicted here"
            page.paragraph(f"{text} ({each.origin}){told}", first="  ", rest="    ")
            for change in each.changes:
                page.paragraph(change, first="    - ", rest="      ")


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"
