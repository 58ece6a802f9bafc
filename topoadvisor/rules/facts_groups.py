"""Which GPUs belong together: groups that NVLink joins, groups behind one PCIe uplink, closed NVLink rings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from topoadvisor.rules.scope import Fact, Known, Scope, Unknown, blend, follow, negate, none_of

_NEAR: Final = ("PIX", "PXB")
_MOST_SEARCHED: Final = 16
"""GPUs up to which a closed ring is looked for; the search may visit every order of them."""

Key = tuple[int, int]


def gather(node: Scope, gpus: Sequence[int], pairs: Mapping[Key, Scope]) -> None:
    """Record the node facts `nvlink.groups`, `nvlink.ring`, `p2p.uplink_groups` and what is counted from them."""
    linked = _edges(pairs, "pair.nvlinks", lambda count: count > 0)
    near = _near(gpus, pairs)
    _put_groups(node, "nvlink.groups", "nvlink.largest_group", gpus, linked)
    _put_groups(node, "p2p.uplink_groups", "p2p.largest_uplink_group", gpus, near)
    node.put("nvlink.ring", _ring(node, gpus, linked))
    ways = [scope.facts["pair.nccl.transport"] for scope in pairs.values()]
    node.put("p2p.staged_pairs", _count(ways, lambda way: bool(way == "SHM")))
    within = [_staged_within_a_node(scope) for scope in pairs.values()]
    node.put("p2p.staged_pairs_within_numa", _count(within, bool))
    node.put("p2p.network_pairs", _count(ways, lambda way: bool(way == "NET")))
    node.put(
        "p2p.pcie_pairs", _count([_without_link(scope, "pair.nccl.transport") for scope in pairs.values()], _direct)
    )
    node.put(
        "p2p.host_pairs", _count([_without_link(scope, "pair.path.crosses_host") for scope in pairs.values()], bool)
    )
    node.put("p2p.direct_host_pairs", _count([_direct_over_host(scope) for scope in pairs.values()], bool))
    node.put("p2p.refused_among_equals", _refused_among_equals(pairs))


def _refused_among_equals(pairs: Mapping[Key, Scope]) -> Fact:
    """Pairs of equal GPUs behind one switch that are refused, though a pair with one of the two is granted there."""
    answers: dict[Key, Fact] = {}
    for key, scope in pairs.items():
        alike = _equals_behind_a_switch(scope)
        if isinstance(alike, Unknown):
            answers[key] = alike
        elif alike.value:
            answers[key] = scope.facts["pair.p2p.ok"]
    said = {key: bool(ok.value) for key, ok in answers.items() if isinstance(ok, Known)}
    granted = [key for key, ok in said.items() if ok]
    odd = [key for key, ok in said.items() if not ok and any(set(key) & set(other) for other in granted)]
    unread = next((ok for ok in answers.values() if isinstance(ok, Unknown)), None)
    if unread and not odd:
        return unread
    return Known([f"GPU{a}-GPU{b}" for a, b in odd], blend(list(answers.values())))


def _equals_behind_a_switch(scope: Scope) -> Fact:
    linked = follow(lambda count: count > 0, scope.facts["pair.nvlinks"])
    far = follow(lambda name: name not in _NEAR, scope.facts["pair.pcie_class"])
    return none_of([linked, far, negate(scope.facts["pair.same_model"])])


def _staged_within_a_node(scope: Scope) -> Fact:
    """Whether a pair below one NUMA node without NVLink is staged; unknown only when all answers matter."""
    direct = follow(lambda way: way != "SHM", scope.facts["pair.nccl.transport"])
    linked = follow(lambda count: count > 0, scope.facts["pair.nvlinks"])
    return none_of([direct, linked, follow(lambda name: name == "SYS", scope.facts["pair.pcie_class"])])


def _direct_over_host(scope: Scope) -> Fact:
    """Whether a pair without NVLink talks directly through a host bridge; unknown only when both answers matter."""
    facts = [_without_link(scope, name) for name in ("pair.nccl.transport", "pair.path.crosses_host")]
    answers = [follow(_direct, facts[0]), follow(bool, facts[1])]
    return none_of([negate(answer) for answer in answers])


def _without_link(scope: Scope, name: str) -> Fact:
    """A fact of a pair that no NVLink joins, itself or over a third GPU (NVB); empty, whatever it is, for others."""
    links = scope.facts["pair.nvlinks"]
    if isinstance(links, Unknown):
        return links
    return Known("", links.origin) if links.value or scope.value("pair.nccl_path") == "NVB" else scope.facts[name]


def _direct(way: Any) -> bool:
    return bool(way == "P2P")


def _edges(pairs: Mapping[Key, Scope], fact: str, test: Callable[[Any], bool]) -> dict[Key, bool] | Unknown:
    found: dict[Key, bool] = {}
    for key, scope in pairs.items():
        value = scope.facts[fact]
        if isinstance(value, Unknown):
            return value
        found[key] = bool(test(value.value))
    return found


def _near(gpus: Sequence[int], pairs: Mapping[Key, Scope]) -> dict[Key, bool] | Unknown:
    """Which pairs share a PCIe switch or tree of switches.

    A matrix hides that where NVLinks join a pair. Who shares a switch with the same GPU shares it with each other, so
    other pairs may tell; unknown when they do not.
    """
    classes = {key: scope.facts["pair.pcie_class"] for key, scope in pairs.items()}
    found = {key: fact.value in _NEAR for key, fact in classes.items() if isinstance(fact, Known)}
    groups_of = {
        gpu: tuple(group) for group in groups(gpus, [key for key, near in found.items() if near]) for gpu in group
    }
    apart = {frozenset((groups_of[a], groups_of[b])) for (a, b), near in found.items() if not near}
    for (a, b), fact in classes.items():
        if isinstance(fact, Unknown) and groups_of[a] != groups_of[b]:
            if frozenset((groups_of[a], groups_of[b])) not in apart:
                return fact
            found[a, b] = False
        elif isinstance(fact, Unknown):
            found[a, b] = True
    return found


def _count(facts: Iterable[Fact], test: Callable[[Any], bool]) -> Fact:
    total, seen = 0, []
    for fact in facts:
        if isinstance(fact, Unknown):
            return fact
        seen.append(fact)
        total += bool(test(fact.value))
    return Known(total, blend(seen))


def _put_groups(node: Scope, text: str, size: str, gpus: Sequence[int], edges: dict[Key, bool] | Unknown) -> None:
    """Groups of two GPUs and more; `GPU0 GPU1 | GPU2 GPU3`."""
    if isinstance(edges, Unknown):
        node.put(text, edges)
        node.put(size, edges)
        return
    joined = [group for group in groups(gpus, [key for key, there in edges.items() if there]) if len(group) > 1]
    words = (" ".join(f"GPU{index}" for index in group) for group in joined)
    node.put(text, Known(" | ".join(words), "derived"))
    node.put(size, Known(max(map(len, joined), default=0), "derived"))


def groups(gpus: Sequence[int], edges: Iterable[Key]) -> list[list[int]]:
    """What the edges join, directly or through others; each group ascending, in the order of its first GPU."""
    where = {gpu: {gpu} for gpu in gpus}
    for a, b in edges:
        merged = where[a] | where[b]
        for gpu in merged:
            where[gpu] = merged
    return sorted({min(group): sorted(group) for group in where.values()}.values())


def _ring(node: Scope, gpus: Sequence[int], edges: dict[Key, bool] | Unknown) -> Fact:
    """Whether NVLinks close a ring over the GPUs of a job: those that CUDA_VISIBLE_DEVICES selects, else all."""
    if isinstance(edges, Unknown):
        return edges
    named = {f"GPU{gpu}": gpu for gpu in gpus}
    chosen = [named[label] for label in node.value("visible.gpus") or () if label in named] or list(gpus)
    if len(chosen) < 2:
        return Unknown("there are no two GPUs")
    if len(chosen) > _MOST_SEARCHED:
        return Unknown(f"a ring over more than {_MOST_SEARCHED} GPUs is not looked for")
    near = {
        gpu: {b for a, b in edges if a == gpu and edges[a, b]} | {a for a, b in edges if b == gpu and edges[a, b]}
        for gpu in chosen
    }
    return Known(closes(chosen, near), "derived")


def closes(gpus: Sequence[int], near: Mapping[int, set[int]]) -> bool:
    """Whether a closed ring visits every GPU once over these neighbours; two GPUs need one link."""
    if len(gpus) == 2:
        return gpus[1] in near[gpus[0]]
    places = {gpu: place for place, gpu in enumerate(gpus)}
    masks = [sum(1 << places[other] for other in near[gpu] if other in places) for gpu in gpus]
    # Sets of GPUs → where a path over them from the first GPU can end (Held and Karp).
    ends = {1: 1}
    for _ in range(len(gpus) - 1):
        longer: dict[int, int] = {}
        for visited, last in ends.items():
            for place, mask in enumerate(masks):
                if not visited >> place & 1 and mask & last:
                    longer[visited | 1 << place] = longer.get(visited | 1 << place, 0) | 1 << place
        ends = longer
    return any(last & masks[0] for last in ends.values())
