"""The best rings over all GPUs of a machine as a part of its advice, with what limits each and what limits them all.

Rings stay on NVLink where that carries nearly all there is: NCCL does not mix the two either. Where the ring in index
order already meets a limit that can be seen without solving, nothing is solved, and no solver is loaded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from topoadvisor.advice import Hop, Plan, Ring
from topoadvisor.plan import link_model, problem
from topoadvisor.plan.link_model import Failures
from topoadvisor.plan.loads import NVSWITCHES, Link, Network, Route, network
from topoadvisor.plan.problem import SAME, Problem, hops_of, loads_of
from topoadvisor.topology.model import Topology, some

_NEARLY_ALL: Final = 0.9
"""Share of the total that NVLink alone has to carry for hops over PCIe to be left out."""
_WITH_PCIE: Final = "Hops over PCIe beside NVLink would make it {} GB/s (`topoadvisor rings`)."
_PCIE_MAY: Final = "Hops over PCIe beside NVLink may add to that (`topoadvisor rings`)."
"""Where only a limit is known, which rings need not reach."""

_WORDS = {
    "nvlink": "NVLink",
    "p2p": "PCIe peer-to-peer",
    "staged": "staged through host memory",
    "unread": "PCIe, where it is not known whether NCCL uses peer-to-peer",
}

_AT_A_GPU = {"c2c": "chip-to-chip link", "nvlink": "NVLinks to the CPU"}
_MOST_NAMED: Final = 4


def plan(
    topology: Topology,
    transports: Mapping[tuple[str, str], str | None],
    failures: Failures | None = None,
) -> Plan | None:
    """The best rings over all GPUs; None for fewer than two.

    `transports` says per pair of GPU node ids (either order) what NCCL would use: "P2P", "SHM", "NET", or None when
    that could not be determined; `failures` how measured copies failed: no ring uses these pairs.
    """
    if len(topology.gpus) < 2:
        return None
    return _Planner(topology, network(topology, transports), failures or {}).plan()


def most(planned: Plan) -> float:
    """GB/s that no set of rings over the GPUs of a plan can pass, hops over PCIe beside NVLink included."""
    if planned.bound_gbps is None:
        return math.inf
    return planned.bound_gbps / _NEARLY_ALL if planned.transport == _WORDS["nvlink"] else planned.bound_gbps


class _Found:
    """Rings, and the sentence that says why there are no better ones."""

    def __init__(self, rings: Sequence[problem.Ring], bound: float, why: str) -> None:
        self.rings, self.bound, self.why = rings, bound, why
        self.gbps = sum(ring.gbps for ring in rings)


class _Planner:
    def __init__(self, topology: Topology, net: Network, failures: Failures) -> None:
        self._topology = topology
        self._net = net
        all_links = link_model.expected(topology, net, [_index(gpu) for gpu in topology.gpus])
        self._model = link_model.without(all_links, failures)

    def plan(self) -> Plan:
        everything = self._model.problem()
        over_nvlink = replace(
            everything,
            loads={hop: load for hop, load in everything.loads.items() if self._net.routes[hop].transport == "nvlink"},
        )
        mixed = 0 < len(over_nvlink.loads) < len(everything.loads)
        alone = self._best(over_nvlink) if mixed else None
        # The limit spares solving the whole where NVLink alone comes near it.
        most = problem.limit(everything).gbps
        found = None if alone and alone.gbps >= _NEARLY_ALL * most else self._best(everything)
        if alone and (found is None or alone.gbps >= _NEARLY_ALL * found.gbps):
            most = found.gbps if found else most
            more = None if most <= alone.gbps * (1 + 1e-3) else _WITH_PCIE.format(f"{most:.4g}") if found else _PCIE_MAY
            return self._written(over_nvlink, alone, more)
        if found is None:
            return Plan(
                rings=[],
                total_gbps=None,
                bound_gbps=None,
                optimal=False,
                transport="none",
                notes=[self._why_none()],
            )
        return self._written(everything, found)

    def _why_none(self) -> str:
        if self._model.failed:
            return f"No ring. {link_model.left_out(list(self._model.failed.values()))}"
        return "No ring: for too many pairs of GPUs it is not known which way their traffic runs."

    def _best(self, of: Problem) -> _Found | None:
        first = tuple(range(of.n))
        reached, limit = problem.rate(of, first), problem.limit(of)
        if 0 < reached < math.inf and reached >= limit.gbps * (1 - SAME):
            return _Found([problem.Ring(first, reached)], limit.gbps, self._limit_in_words(limit))
        if reached == math.inf:
            return _Found([problem.Ring(first, reached)], math.inf, "")
        return self._solved(of, limit)

    def _solved(self, of: Problem, limit: problem.Limit) -> _Found | None:
        from topoadvisor.plan import channels
        from topoadvisor.plan.optimum import Space, optimum

        space = Space(of)
        best = optimum(of, space)
        if best is None:
            return None
        rings = channels.fewer(of, best, space)
        seen = limit.gbps <= best.bound * (1 + SAME)
        return _Found(rings, best.bound, self._limit_in_words(limit) if seen else self._prices_in_words(best.prices))

    def _written(self, of: Problem, found: _Found, more: str | None = None) -> Plan:
        notes = [link_model.left_out(list(self._model.failed.values()))] if self._model.failed else []
        used = [self._net.routes[hop] for ring in found.rings for hop in hops_of(ring.order)]
        links = {link for hop in of.loads for link in self._net.routes[hop].links}
        limited = math.isfinite(found.bound)
        numbers = limited and links.isdisjoint(self._net.guessed)
        loaded = {link for route in used for link in route.links}
        meets = numbers and found.gbps >= found.bound * (1 - SAME)
        if not numbers:
            notes.append(
                "The bandwidth of the links is unknown (GPU model or PCIe link not read): "
                "the order rests on the kinds of links alone."
            )
        else:
            over = " over NVLink" if all(route.transport == "nvlink" for route in used) else ""
            notes.append(f"No set of rings{over} can pass {found.bound:.4g} GB/s: {found.why}.")
            notes += self._unknowns_in_words(loaded)
            if not meets:
                notes.append("Not proven best: these rings do not reach that.")
            if more:
                notes.append(more)
        if any(route.transport == "staged" for route in used):
            notes.append("Staged hops also pass through host memory, whose own speed is not in this model.")
        return Plan(
            rings=[self._ring(of, found, ring, numbers) for ring in found.rings],
            total_gbps=_rounded(found.gbps) if numbers else None,
            bound_gbps=_rounded(found.bound) if numbers else None,
            optimal=meets and not loaded & self._net.unread and all(route.transport != "unread" for route in used),
            transport=_transport_in_words(used),
            notes=notes,
        )

    def _ring(self, of: Problem, found: _Found, ring: problem.Ring, numbers: bool) -> Ring:
        total = loads_of(of, found.rings)
        mine = loads_of(of, [problem.Ring(ring.order, 1.0)])
        # The fullest link; of those that are as full, the one that this ring uses most, the first in the model.
        fullest = max(mine, key=lambda link: (round(total[link] / of.capacity[link], 6), mine[link], -link))
        sharing = sum(any(link == fullest for link, _ in of.loads[hop]) for hop in hops_of(ring.order))
        return Ring(
            order=[self._model.gpus[node] for node in ring.order],
            gbps=_rounded(ring.gbps) if numbers else None,
            bottleneck=self._link_in_words(self._model.ways[fullest], sharing),
            hops=[self._hop(a, b, numbers) for a, b in hops_of(ring.order)],
        )

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
            return f"NVLink from {self._label(a)} to {self._label(b)}{shared}"
        if gpus:
            width = f"x{edge['width']} " if edge.get("width") else ""
            return f"{self._label(gpus[0])}'s {width}{_AT_A_GPU.get(str(edge.get('kind')), 'PCIe link')}{shared}"
        return f"the link from {self._label(a)} to {self._label(b)}{shared}"

    def _limit_in_words(self, limit: problem.Limit) -> str:
        if limit.node is not None and (limit.link is None or limit.uses <= 1):
            name = self._label(self._topology.gpus[limit.node])
            return (
                f"no more can go to {name} from the others"
                if limit.enters
                else (f"no more can go from {name} to the others")
            )
        assert limit.link is not None
        return f"every ring uses {self._link_in_words(self._model.ways[limit.link], 1)} {_times(limit.uses)}"

    def _prices_in_words(self, prices: Mapping[int, float]) -> str:
        """The certificate: Σ price · capacity is the bound, and every ring pays at least 1 for each GB/s."""
        paid = [link for link in prices if prices[link] * self._model.links[link].gbps > 0]
        counted = Counter(self._link_in_words(self._model.ways[link], 1) for link in sorted(paid))
        names = [name if count == 1 else f"{name}, out or in," for name, count in counted.items()]
        each = {round(prices[link], 6) for link in paid}
        if len(each) == 1 and len(names) <= _MOST_NAMED:
            return f"every ring uses {_listed(names)} {_times(1 / each.pop())}{' in all' if len(names) > 1 else ''}"
        return f"{len(paid)} links are full together (`topoadvisor rings` names them with their prices)"

    def _unknowns_in_words(self, loaded: set[Link]) -> list[str]:
        reasons = dict.fromkeys(loaded & self._net.unread, "not counted")
        reasons |= {link: f"taken as {words}" for link, words in self._net.assumed.items() if link in loaded}
        return [
            f"Bandwidth not known, {reason}: "
            + some(sorted({" – ".join(sorted(map(self._label, link))) for link in reasons if reasons[link] == reason}))
            + "."
            for reason in sorted(set(reasons.values()))
        ]


def _index(gpu: str) -> int:
    return int(gpu.rpartition(":")[2])


def _times(count: float) -> str:
    return "once" if abs(count - 1) < SAME else f"{count:.4g} times"


def _listed(names: Iterable[str]) -> str:
    *others, last = dict.fromkeys(names)
    return f"{', '.join(others)} and {last}" if others else last


def _transport_in_words(routes: Sequence[Route]) -> str:
    return " and ".join(words for transport, words in _WORDS.items() if any(r.transport == transport for r in routes))


def _rounded(gbps: float) -> float:
    return round(gbps, 3)
