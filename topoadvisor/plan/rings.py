"""In which order the GPUs should form rings, how fast those are on paper, and what limits them.

The model: every link carries its payload bandwidth in each direction, hops that use one link in one direction share it
evenly, nothing else costs. It holds for one node and for all of its GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from topoadvisor.advice import Hop, Plan, Ring
from topoadvisor.plan.loads import NVSWITCHES, Link, Network, Route, network
from topoadvisor.plan.search import (
    EXACT_LIMIT,
    Bound,
    Found,
    Problem,
    best_ring,
    hops_of,
    rate,
    remaining,
    ring_set,
    upper_bound,
)
from topoadvisor.topology.model import Topology

LEAST_SHARE = 0.1
"""A further ring is listed while it carries at least this share of the first."""

_SAME = 1e-6
"""Relative difference below which a total meets its bound."""

_WORDS = {
    "nvlink": "NVLink",
    "p2p": "PCIe peer-to-peer",
    "staged": "staged through host memory",
    "unread": "PCIe, where it was not read whether peer-to-peer works",
}

_AT_A_GPU = {"c2c": "chip-to-chip link", "nvlink": "NVLinks to the CPU"}


def plan(topology: Topology, transports: Mapping[tuple[str, str], str | None]) -> Plan | None:
    """The best rings over all GPUs; None for fewer than two.

    `transports` says per pair of GPU node ids (either order) what NCCL would use: "P2P", "SHM", "NET", or None when
    that could not be determined.

    The first ring is the fastest single ring; then fewest crossings between sockets, largest sum of hop bandwidth,
    lowest indexes. The next ones are the best on what is left. Rings stay on NVLink when that costs the first ring
    nothing. Exact up to 8 GPUs; above that only where the bound proves it, otherwise a note says so.
    """
    if len(topology.gpus) < 2:
        return None
    return _Planner(topology, network(topology, transports)).plan()


class _Planner:
    def __init__(self, topology: Topology, net: Network) -> None:
        self._topology = topology
        self._net = net
        self._links: list[Link] = sorted(net.capacity)
        self._capacity = [net.capacity[link] for link in self._links]

    def plan(self) -> Plan:
        problem = self._problem({"nvlink", "p2p", "staged", "unread"})
        over_nvlink = self._problem({"nvlink"})
        if 0 < len(over_nvlink.links) < len(problem.links):
            alone, mixed = best_ring(over_nvlink, self._capacity), best_ring(problem, self._capacity)
            if alone and mixed and alone.gbps >= mixed.gbps * (1 - _SAME):
                problem = over_nvlink
        rings, bound = self._rings(problem)
        if not rings:
            return Plan(
                rings=[],
                total_gbps=None,
                bound_gbps=None,
                optimal=False,
                transport="none",
                notes=["No ring: for too many pairs of GPUs it is not known which way their traffic runs."],
            )
        return self._written(problem, rings, bound)

    def _problem(self, allowed: set[str]) -> Problem:
        number = {link: position for position, link in enumerate(self._links)}
        hops = {hop: route for hop, route in self._net.routes.items() if route.transport in allowed}
        return Problem(
            n=len(self._topology.gpus),
            links={hop: tuple(number[link] for link in route.links) for hop, route in hops.items()},
            crossings={hop: route.crossings for hop, route in hops.items()},
        )

    def _rings(self, problem: Problem) -> tuple[list[Found], Bound | None]:
        """The ring set; on a large machine index order alone where it meets the bound, as with NVSwitches."""
        if problem.n > EXACT_LIMIT:
            order = tuple(range(problem.n))
            reached, _ = rate(problem, self._capacity, order)
            if reached > 0:
                bound = upper_bound(problem, self._capacity, reached=reached)
                if reached >= bound.gbps * (1 - _SAME):
                    return [Found(order, reached)], bound
        return ring_set(problem, self._capacity, least=LEAST_SHARE)

    def _written(self, problem: Problem, rings: Sequence[Found], bound: Bound | None) -> Plan:
        notes: list[str] = []
        used = [self._net.routes[hop] for ring in rings for hop in hops_of(ring.order)]
        links = {self._links[link] for links in problem.links.values() for link in links}
        numbers = bound is not None and links.isdisjoint(self._net.guessed)
        total = sum(ring.gbps for ring in rings) if numbers else None
        loaded = {link for route in used for link in route.links}
        unread = loaded & self._net.unread
        meets = bound is not None and total is not None and total >= bound.gbps * (1 - _SAME)
        if not numbers:
            notes.append(
                "The bandwidth of the links is unknown (GPU model or PCIe link not read): "
                "the order rests on the kinds of links alone."
            )
        elif bound:
            notes.append(self._bound_in_words(bound, used))
        if numbers:
            notes += self._unknowns_in_words(loaded)
        if len(self._topology.gpus) > EXACT_LIMIT and not meets:
            notes.append(f"Not proven best: above {EXACT_LIMIT} GPUs the order is searched, not enumerated.")
        if any(route.transport == "staged" for route in used):
            notes.append("Staged hops also pass through host memory, whose own speed is not in this model.")
        return Plan(
            rings=self._rings_in_words(problem, rings, numbers),
            total_gbps=_rounded(total),
            bound_gbps=_rounded(bound.gbps) if bound and numbers else None,
            optimal=meets and not unread and all(route.transport != "unread" for route in used),
            transport=_transport_in_words(used),
            notes=notes,
        )

    def _rings_in_words(self, problem: Problem, rings: Sequence[Found], numbers: bool) -> list[Ring]:
        written = []
        for position, ring in enumerate(rings):
            _, limiting = rate(problem, remaining(problem, self._capacity, rings[:position]), ring.order)
            hops = hops_of(ring.order)
            sharing = sum(limiting in problem.links[hop] for hop in hops)
            written.append(
                Ring(
                    order=[self._index(node) for node in ring.order],
                    gbps=_rounded(ring.gbps) if numbers else None,
                    bottleneck=self._link_in_words(self._links[limiting], sharing),
                    hops=[self._hop(a, b, numbers) for a, b in hops],
                )
            )
        return written

    def _hop(self, a: int, b: int, numbers: bool) -> Hop:
        route = self._net.routes[a, b]
        first, second = self._topology.gpus[a], self._topology.gpus[b]
        alone = min(self._net.capacity[link] for link in route.links)
        return Hop(
            a=first,
            b=second,
            link_class=self._topology.pair(first, second).link_class,
            gbps=_rounded(alone) if numbers and not math.isinf(alone) else None,
            path=list(route.path),
        )

    def _index(self, node: int) -> int:
        gpu = self._topology.gpus[node]
        return int(gpu.rpartition(":")[2])

    def _label(self, node: str) -> str:
        return str(self._topology.graph.nodes[node].get("label") or node)

    def _link_in_words(self, link: Link, sharing: int) -> str:
        a, b = link
        shared = f", which {sharing} hops share" if sharing > 1 else ""
        if NVSWITCHES in link:
            return f"{self._label(b if a == NVSWITCHES else a)}'s NVLinks{shared}"
        edge = self._topology.graph.get_edge_data(a, b) or {}
        gpus = [node for node in link if node in self._topology.gpus]
        if len(gpus) == 2:
            return f"NVLink {self._label(a)} → {self._label(b)}{shared}"
        if gpus:
            width = f"x{edge['width']} " if edge.get("width") else ""
            return f"{self._label(gpus[0])}'s {width}{_AT_A_GPU.get(str(edge.get('kind')), 'PCIe link')}{shared}"
        return f"the link {self._label(a)} → {self._label(b)}{shared}"

    def _bound_in_words(self, bound: Bound, used: Sequence[Route]) -> str:
        over = " over NVLink" if all(route.transport == "nvlink" for route in used) else ""
        value = f"{bound.gbps:.4g} GB/s"
        if bound.link is not None:
            link = self._link_in_words(self._links[bound.link], 1)
            return f"No set of rings{over} can pass {value}: every ring uses {link} {bound.uses} times."
        names = ", ".join(self._label(self._topology.gpus[node]) for node in bound.group)
        return f"No set of rings{over} can pass {value}: no more can go from {names} to the others."

    def _unknowns_in_words(self, loaded: set[Link]) -> list[str]:
        reasons = dict.fromkeys(loaded & self._net.unread, "not counted")
        reasons |= {link: f"taken as {words}" for link, words in self._net.assumed.items() if link in loaded}
        return [
            f"Bandwidth not known, {reason}: "
            + ", ".join(
                sorted({" – ".join(sorted(map(self._label, link))) for link in reasons if reasons[link] == reason})
            )
            + "."
            for reason in sorted(set(reasons.values()))
        ]


def _transport_in_words(routes: Sequence[Route]) -> str:
    return " and ".join(words for transport, words in _WORDS.items() if any(r.transport == transport for r in routes))


def _rounded(gbps: float | None) -> float | None:
    return None if gbps is None else round(gbps, 3)
