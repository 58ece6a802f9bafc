"""The best set of rings on a link model as a document: rings, certificate, and the equal-speed channels."""

from __future__ import annotations

import time
from dataclasses import replace

import msgspec

from topoadvisor.plan import Model
from topoadvisor.plan import channels as equal
from topoadvisor.plan.link_model import Link, LinkModel, finite
from topoadvisor.plan.optimum import Optimum, Space, optimum
from topoadvisor.plan.pricing import EXACT
from topoadvisor.plan.problem import SAME, Ring, loads_of

SCHEMA = "topoadvisor.rings/1"


class Channel(msgspec.Struct, frozen=True):
    """One ring."""

    order: list[int]
    """GPU indexes; the last goes on to the first."""
    gbps: float | None
    """None where bandwidths are not known: the order then rests on the kinds of links alone."""


class ModelLink(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """One direction of a link."""

    start: str
    end: str
    kind: str
    gbps: float | None
    """None = it never limits."""


class Binding(msgspec.Struct, frozen=True):
    """A link that holds the total down."""

    link: int
    """Position in `links`."""
    gbps: float
    """What the rings put on it."""
    price: float
    """GB/s of ring bandwidth that one more GB/s of this link would bring, while little else changes.

    Σ price · capacity over all binding links is the bound, and every ring pays at least 1 for each GB/s.
    """
    text: str


class EqualSpeed(msgspec.Struct, frozen=True):
    """The best set of rings of one speed, at most 32."""

    channels: list[Channel]
    gbps_each: float
    total_gbps: float
    optimal: bool
    """No rings of one speed, of as many as were asked for, carry more, and nothing was assumed that could lower it."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """`topoadvisor rings --format json`."""

    schema: str = SCHEMA
    model: Model
    gpus: list[int]
    links: list[ModelLink]
    paths: dict[str, list[tuple[int, float]]]
    """`"0>1"`, GPU indexes → [position in `links`, GB/s on it for each GB/s of the hop]."""
    channels: list[Channel]
    total_gbps: float | None
    bound_gbps: float | None
    optimal: bool
    """The total meets the bound, and nothing was assumed that could lower it."""
    binding: list[Binding]
    equal_speed: EqualSpeed | None
    """None without a ring, and where bandwidths are not known."""
    notes: list[str]
    seconds: float
    """Time of the search, which is all in this document that differs between two runs."""


def solve(model: LinkModel, name: Model, *, channels: int | None = None) -> Document:
    """The document for one model. Without a ring its lists are empty, and a note says why."""
    start = time.perf_counter()
    problem = model.problem()
    notes = list(model.notes)
    space = Space(problem)
    best = optimum(problem, space)
    split = _split(model, best, space, channels) if best and model.unknown is None else None
    if best is not None:
        best = replace(best, rings=equal.fewer(problem, best, space))
    known = best is not None and model.unknown is None
    if best is None:
        notes.insert(0, _without_ring(model))
    if best is not None and model.unknown:
        notes.append(f"The bandwidths are not known ({model.unknown}): the orders rest on the kinds of links alone.")
        notes.append("Channels of one speed are not given: how many there should be follows from the bandwidths.")
    if best is not None and not best.proven:
        notes.append(
            f"Not proven best: no set of rings can pass {best.bound:.4g} GB/s, and this one does not reach it."
        )
    return Document(
        model=name,
        gpus=list(model.gpus),
        links=[ModelLink(link.a, link.b, link.kind, finite(link.gbps)) for link in model.links],
        paths={f"{model.gpus[a]}>{model.gpus[b]}": list(load) for (a, b), load in sorted(model.loads.items())},
        channels=[_channel(model, ring, known) for ring in best.rings] if best else [],
        total_gbps=round(best.gbps, 6) if best and known else None,
        bound_gbps=round(best.bound, 6) if best and known else None,
        optimal=bool(best and best.proven and known and model.certain),
        binding=binding(model, best) if best and known else [],
        equal_speed=_equal(model, split) if split else None,
        notes=notes,
        seconds=round(time.perf_counter() - start, 4),
    )


def _without_ring(model: LinkModel) -> str:
    import networkx as nx

    hops: nx.DiGraph[int] = nx.DiGraph()
    hops.add_nodes_from(range(len(model.gpus)))
    hops.add_edges_from(model.loads)
    if model.failed:
        return "No ring: the pairs whose copies did not fail make none through all of these GPUs."
    parts = sorted(sorted(part) for part in nx.strongly_connected_components(hops))
    if len(parts) > 1:
        named = " | ".join(", ".join(f"GPU{model.gpus[node]}" for node in part) for part in parts)
        return f"No ring: no way there and back is known between {named}. See `topoadvisor matrix` for each pair."
    if len(model.loads) == len(model.gpus) * (len(model.gpus) - 1):
        return "No ring: no bandwidth is known that would limit one."
    found = "" if len(model.gpus) <= EXACT else " was found"
    return f"No ring{found}: the pairs of GPUs whose way is known do not make one through all of them."


def _split(model: LinkModel, best: Optimum, space: Space, channels: int | None) -> equal.Channels:
    """The best equal-speed channels over all hops; where they may fall short, also over NVLink alone."""
    problem = model.problem()
    found = equal.equal_speed(problem, best, channels=channels, space=space)
    over_nvlink = replace(
        problem,
        loads={
            hop: load
            for hop, load in problem.loads.items()
            if all(model.links[link].kind in ("nvlink", "measured") for link, _ in load)
        },
    )
    if found.optimal or len(over_nvlink.loads) == len(problem.loads):
        return found
    alone = optimum(over_nvlink)
    if alone is None:
        return found
    pure = equal.equal_speed(over_nvlink, alone, channels=channels)
    if pure.gbps <= found.gbps * (1 + SAME):
        return found
    return replace(pure, optimal=pure.gbps >= best.bound * (1 - SAME))


def _channel(model: LinkModel, ring: Ring, known: bool) -> Channel:
    return Channel([model.gpus[node] for node in ring.order], round(ring.gbps, 6) if known else None)


def _equal(model: LinkModel, split: equal.Channels) -> EqualSpeed:
    return EqualSpeed(
        channels=[_channel(model, Ring(order, split.gbps_each), known=True) for order in split.orders],
        gbps_each=round(split.gbps_each, 6),
        total_gbps=round(split.gbps, 6),
        optimal=split.optimal and model.certain,
    )


def binding(model: LinkModel, best: Optimum) -> list[Binding]:
    loads = loads_of(model.problem(), best.rings)
    return [
        Binding(
            link, round(loads.get(link, 0.0), 6), round(price, 6), _in_words(model.links[link], loads.get(link, 0.0))
        )
        for link, price in sorted(
            best.prices.items(), key=lambda entry: (-entry[1] * model.links[entry[0]].gbps, entry[0])
        )
        if price * model.links[link].gbps > SAME * best.bound
    ]


_KINDS: dict[str, str] = {
    "nvlink": "NVLink",
    "pcie": "the PCIe link",
    "inter-socket": "the link between sockets",
    "c2c": "the chip-to-chip link",
    "measured": "the measured copy",
}


def _in_words(link: Link, load: float) -> str:
    full = load >= link.gbps * (1 - SAME)
    state = f"is full ({link.gbps:.4g} GB/s)" if full else f"carries {load:.4g} of {link.gbps:.4g} GB/s"
    return f"{_KINDS.get(link.kind, 'the link')} from {link.a} to {link.b} {state}"
