"""Facts about the GPUs that CUDA_VISIBLE_DEVICES picks, and whether they are near each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations

from topoadvisor.numbers import whole
from topoadvisor.rules.scope import Fact, Known, Scope, Unknown, blend, follow
from topoadvisor.topology.links import PCIE_ORDER, nvlink_count

_VARIABLE = "env.CUDA_VISIBLE_DEVICES"
_NEAR = ("PIX", "PXB")
_ORDER = {str(name): place for place, name in enumerate(PCIE_ORDER)}

Key = tuple[int, int]


def gather(node: Scope, gpus: Mapping[int, Scope], pairs: Mapping[Key, Scope]) -> None:
    """Record the node facts `visible.*`."""
    node.put("visible.dropped", follow(lambda text: dropped(text, len(gpus)), node.facts[_VARIABLE]))
    chosen = follow(lambda text: indexes(text, len(gpus)), node.facts[_VARIABLE], reason="it holds no plain indexes")
    if isinstance(chosen, Unknown):
        # A variable that is not set, or holds UUIDs, is a known "no"; one that was not read is not.
        is_set: Fact = Known(False, "derived") if isinstance(node.facts[_VARIABLE], Known) else chosen
        node.put("visible.set", is_set)
        why = "CUDA_VISIBLE_DEVICES does not list plain indexes" if isinstance(is_set, Known) else chosen.reason
        for name in _DETAILS:
            node.put(f"visible.{name}", Unknown(why))
        return
    node.put("visible.set", Known(True, blend([chosen])))
    present = list(gpus)
    selected = [present[position] for position in chosen.value]
    node.put("visible.gpus", Known([f"GPU{index}" for index in selected], blend([chosen])))
    node.put("visible.count", Known(len(selected), blend([chosen])))
    classes = {key: scope.facts["pair.link_class"] for key, scope in pairs.items()}
    missing = next((fact for fact in classes.values() if isinstance(fact, Unknown)), None)
    if missing:
        for name in _DETAILS[2:]:
            node.put(f"visible.{name}", missing)
        return
    origin = blend([chosen, *classes.values()])
    known = {key: str(fact.value) for key, fact in classes.items() if isinstance(fact, Known)}
    groups = _groups(list(gpus), known)
    spread = [sorted(group & set(selected)) for group in groups if group & set(selected)]
    straddles = len(spread) > 1 and any(len(group) >= len(selected) for group in groups)
    node.put("visible.straddles", Known(straddles, origin))
    texts = [", ".join(f"GPU{index}" for index in group) for group in spread]
    node.put("visible.groups", Known(" | ".join(texts), origin))
    node.put("visible.worst_class", Known(_worst(selected, known), origin))


_DETAILS = ("gpus", "count", "straddles", "groups", "worst_class")


def indexes(text: str, count: int) -> list[int] | None:
    """The GPUs that a list of plain indexes selects; None for anything else. CUDA stops at the first bad one."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]+", part) for part in parts):
        return None
    chosen: list[int] = []
    for index in map(whole, parts):
        if index is None or index >= count or index in chosen:
            break
        chosen.append(index)
    return chosen or None


def dropped(text: str, count: int) -> list[str]:
    """What CUDA leaves out of a list of plain indexes: the first that no GPU has, and all after it."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]+", part) for part in parts):
        return []
    first = next((place for place, part in enumerate(parts) if (whole(part) or 0) >= count), len(parts))
    return parts[first:]


def _groups(gpus: Sequence[int], classes: Mapping[Key, str]) -> list[set[int]]:
    """GPUs that NVLink or a PCIe switch joins, directly or through others, in index order."""
    groups = [{gpu} for gpu in gpus]
    for (a, b), name in classes.items():
        if name in _NEAR or nvlink_count(name):
            first = next(group for group in groups if a in group)
            second = next(group for group in groups if b in group)
            if first is not second:
                first |= second
                groups.remove(second)
    return sorted(groups, key=min)


def _worst(gpus: Sequence[int], classes: Mapping[Key, str]) -> str:
    """The farthest link class among these GPUs; empty for fewer than two."""
    found = [classes[pair] for a, b in combinations(gpus, 2) for pair in ((a, b), (b, a)) if pair in classes]
    return max(found, key=lambda name: (_ORDER.get(name, -1), -nvlink_count(name)), default="")
