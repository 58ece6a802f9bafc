"""Optimal rings against brute force, against an independent check of feasibility, and against NCCL's reference runs."""

from __future__ import annotations

import io
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pytest
from random_machines import machine

from topoadvisor import files, planning
from topoadvisor.ingest import assume, detect
from topoadvisor.plan import Model, pricing
from topoadvisor.plan.channels import equal_speed, fewer
from topoadvisor.plan.optimum import Space, optimum
from topoadvisor.plan.problem import Problem, limit, loads_of
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real machines is not here")


def loads(problem: Problem, rings: list[tuple[tuple[int, ...], float]]) -> dict[int, float]:
    """GB/s on each link, written without the planner."""
    total: dict[int, float] = {}
    for order, gbps in rings:
        assert sorted(order) == list(range(problem.n))
        for at, node in enumerate(order):
            for link, factor in problem.loads[node, order[(at + 1) % problem.n]]:
                total[link] = total.get(link, 0.0) + factor * gbps
    return total


def check(problem: Problem) -> tuple[float, float]:
    """Solve, and hold rings, bound, prices and equal-speed channels against the problem. Returns both totals."""
    best = optimum(problem)
    assert best is not None
    for link, gbps in loads(problem, [(ring.order, ring.gbps) for ring in best.rings]).items():
        assert gbps <= problem.capacity[link] * (1 + 1e-6)
    worth = sum(price * problem.capacity[link] for link, price in best.prices.items())
    assert worth == pytest.approx(best.bound, rel=1e-6)
    assert best.gbps <= best.bound * (1 + 1e-6)
    if problem.n <= 6:
        for order in itertools.permutations(range(1, problem.n)):
            ring = (0, *order)
            hops = [(ring[at], ring[(at + 1) % problem.n]) for at in range(problem.n)]
            if all(hop in problem.loads for hop in hops):
                paid = sum(best.prices.get(link, 0) * factor for hop in hops for link, factor in problem.loads[hop])
                assert paid >= 1 - 1e-6, f"{ring} pays less than the bound allows"
    simple = fewer(problem, best, Space(problem))
    assert len(simple) <= len(best.rings)
    assert sum(ring.gbps for ring in simple) == pytest.approx(best.gbps, rel=1e-5)
    for link, gbps in loads(problem, [(ring.order, ring.gbps) for ring in simple]).items():
        assert gbps <= problem.capacity[link] * (1 + 1e-6)
    assert limit(problem).gbps >= best.gbps * (1 - 1e-6)
    split = equal_speed(problem, best)
    assert 1 <= len(split.orders) <= 32
    for link, gbps in loads(problem, [(order, split.gbps_each) for order in split.orders]).items():
        assert gbps <= problem.capacity[link] * (1 + 1e-6)
    assert split.gbps <= best.bound * (1 + 1e-6)
    return best.gbps, split.gbps


def mesh(n: int, gbps: float) -> Problem:
    hops = list(itertools.permutations(range(n), 2))
    return Problem(n, {hop: [(at, 1.0)] for at, hop in enumerate(hops)}, [gbps] * len(hops))


def switched(links: list[float]) -> Problem:
    """Each node reaches all others over its own link, out and in."""
    n = len(links)
    return Problem(
        n, {(a, b): [(a, 1.0), (n + b, 1.0)] for a, b in itertools.permutations(range(n), 2)}, [*links, *links]
    )


@pytest.mark.parametrize("n", range(2, 11))
def test_a_full_mesh_carries_all_that_leaves_a_node(n: int) -> None:
    total, equal = check(mesh(n, 10.0))
    assert total == pytest.approx(10.0 * (n - 1))
    # The arcs of the complete digraph split into Hamiltonian cycles except for 4 and 6 nodes (Tillson, 1980): there
    # two half-speed rings take the place of one.
    assert equal == pytest.approx(total)


def uneven(seed: int, n: int) -> Problem:
    """Pairs joined by one to four NVLinks, or by nothing but the PCIe links of both."""
    pick = random.Random(seed)
    capacity = [pick.choice([14.4, 28.8]) for _ in range(2 * n)]
    loads: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for a, b in itertools.combinations(range(n), 2):
        links = pick.choice([0, 1, 1, 2, 3, 4])
        for hop in ((a, b), (b, a)):
            loads[hop] = [(len(capacity), 1.0)] if links else [(hop[0], 1.2), (n + hop[1], 1.0)]
            capacity += [25.0 * links] if links else []
    return Problem(n, loads, capacity)


def most_of_one_speed(problem: Problem) -> float:
    """The best total of 1 to 32 equal rings: an integer program for each number, over all rings."""
    rings = [(0, *rest) for rest in itertools.permutations(range(1, problem.n))]
    most = 0.0
    for count in range(1, 33):
        solver = highspy.Highs()
        solver.silent()
        times = [solver.addIntegral(0, count) for _ in rings]
        fullest = solver.addVariable(0)
        solver.addConstr(sum(times) == count)
        terms: dict[int, list[object]] = {}
        for ring, variable in zip(rings, times, strict=True):
            for link, load in loads(problem, [(ring, 1.0)]).items():
                terms.setdefault(link, []).append(variable * (load / problem.capacity[link]))
        for each in terms.values():
            solver.addConstr(sum(each) <= fullest)
        solver.minimize(fullest)
        most = max(most, count / solver.getInfo().objective_function_value)
    return most


@pytest.mark.parametrize(("seed", "n"), [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4), (5, 4), (2, 5), (4, 5)])
def test_rings_of_one_speed_are_those_of_an_integer_program(seed: int, n: int) -> None:
    problem = uneven(seed, n)
    best = optimum(problem)
    assert best is not None
    split = equal_speed(problem, best)
    assert split.optimal
    assert split.gbps == pytest.approx(most_of_one_speed(problem), rel=1e-5)


@pytest.mark.parametrize(("seed", "n"), [(0, 8), (1, 9), (2, 10), (3, 12)])
def test_rings_of_one_speed_are_proven_in_meshes_of_uneven_bridges(seed: int, n: int) -> None:
    problem = uneven(seed, n)
    check(problem)
    best = optimum(problem)
    assert best is not None
    assert equal_speed(problem, best).optimal


@pytest.mark.parametrize("channels", [1, 2, 3, 7])
def test_of_a_number_of_channels_is_said_what_is_proven_of_that_number(channels: int) -> None:
    problem = uneven(4, 5)
    best = optimum(problem)
    assert best is not None
    split = equal_speed(problem, best, channels=channels)
    assert (len(split.orders), split.optimal) == (channels, True)


@pytest.mark.parametrize(("n", "links"), [(8, [18.0] * 8), (16, [6.0] * 16), (72, [18.0] * 72), (9, [5.0] * 8 + [3.0])])
def test_behind_a_switch_the_slowest_link_counts_and_index_order_wins(n: int, links: list[float]) -> None:
    best = optimum(switched(links))
    assert best is not None
    assert best.proven
    assert [ring.order for ring in best.rings] == [tuple(range(n))]
    assert best.gbps == pytest.approx(min(links))


def random_problem(seed: int, n: int) -> Problem:
    """Two levels of shared uplinks and a link between two halves, of odd widths, some hops missing."""
    pick = random.Random(seed)
    capacity: list[float] = []

    def link(gbps: float) -> int:
        capacity.append(gbps)
        return len(capacity) - 1

    out, into = ([link(pick.choice([8.0, 12.0, 16.0, 25.0])) for _ in range(n)] for _ in range(2))
    up, down = ([link(pick.choice([12.0, 24.0])) for _ in range((n + 1) // 2)] for _ in range(2))
    across, back = link(pick.choice([10.0, 20.0])), link(pick.choice([10.0, 20.0]))
    paths = {}
    for a, b in itertools.permutations(range(n), 2):
        if pick.random() < 0.1:
            continue
        path = [(out[a], 1.0), (into[b], 1.0)]
        if a // 2 != b // 2:
            path += [(up[a // 2], 1.2), (down[b // 2], 1.2)]
        if (a < n // 2) != (b < n // 2):
            path.append((across if a < b else back, 1.0))
        paths[a, b] = path
    return Problem(n, paths, capacity)


@pytest.mark.parametrize("seed", range(24))
def test_odd_machines_hold_their_own_proof(seed: int) -> None:
    problem = random_problem(seed, 4 + seed % 5)
    if optimum(problem) is not None:
        check(problem)


def test_enumeration_and_pricing_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        problem = random_problem(seed, 7)
        listed = optimum(problem)
        with monkeypatch.context() as patch:
            patch.setattr(pricing, "ENUMERATED", 2)
            priced = optimum(problem)
        assert (listed is None) == (priced is None)
        assert listed is None or listed.gbps == pytest.approx(priced.gbps if priced else 0, rel=1e-5)


def test_held_karp_finds_the_cheapest_ring() -> None:
    generator = np.random.default_rng(7)
    for n in (3, 5, 7):
        costs = generator.random((n, n))
        orders, least = pricing.cheapest(costs)
        every = pricing.every_ring(n)
        brute = costs.ravel()[pricing.hops(every, n)].sum(axis=1).min()
        assert least == pytest.approx(brute)
        assert costs.ravel()[pricing.hops(orders[:1], n)].sum() == pytest.approx(brute)


def test_above_the_exact_size_the_bound_holds() -> None:
    generator = np.random.default_rng(11)
    costs = generator.random((18, 18))
    orders, least = pricing.cheapest(costs)
    assert least <= costs.ravel()[pricing.hops(orders[:1], 18)].sum() + 1e-9
    assert least > 0


def test_no_ring_and_nothing_that_limits() -> None:
    assert optimum(Problem(3, {(0, 1): [(0, 1.0)], (1, 0): [(0, 1.0)]}, [1.0])) is None
    assert optimum(Problem(2, {(0, 1): [(0, 1.0)], (1, 0): [(0, 1.0)]}, [float("inf")])) is None


def models() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    if not CORPUS.is_dir():
        return
    found = json.loads((CORPUS / "nccl_link_models.json").read_text())["models"]
    reference = json.loads((CORPUS / "nccl_reference.json").read_text())["topologies"]
    for name, model in found.items():
        if len(model["ranks"]) > 1:
            yield name, model, reference.get(name, {})


@needs_corpus
@pytest.mark.parametrize(("name", "model", "reference"), list(models()), ids=[name for name, _, _ in models()])
def test_nccls_own_link_models(name: str, model: dict[str, Any], reference: dict[str, Any]) -> None:
    n = len(model["ranks"])
    paths = {
        (a, b): [(int(link), float(factor)) for link, factor in model["paths"][a][b]]
        for a, b in itertools.permutations(range(n), 2)
        if model["paths"][a][b]
    }
    total, equal = check(Problem(n, paths, [float(link[3]) for link in model["links"]]))
    single = reference.get("single_node", {})
    exact = single.get("bound", {}).get("exact") or {}
    if "fractional_opt" in exact:
        assert total == pytest.approx(exact["fractional_opt"], rel=1e-3)
    assert equal >= exact.get("best_equal_speed_total", 0) - 1e-6
    assert equal >= single.get("graphs", {}).get("ring", {}).get("objective_intra_bw", 0) - 1e-6


SPLIT = {"synth_8xl40s_2sw", "pub_16xl20"}
"""NCCL breaks these into parts that the network joins, and its link model is that of one part."""


@needs_corpus
def test_rings_of_a_dump_are_those_of_nccls_link_model() -> None:
    different = []
    for name, model, reference in models():
        path = CORPUS / "nccl_topo" / Path(reference["xml"]).name
        snapshot = detect.read(str(path), stdin=io.BytesIO())
        elsewhere = "OK" if "all" in str(reference["p2p_assumption"]) else "NS"
        facts = [
            f"pair[{a.removeprefix('gpu:')}-{b.removeprefix('gpu:')}].p2p.read={'OK' if pair.nvlinks else elsewhere}"
            for (a, b), pair in graph.build(snapshot).pairs.items()
            if b.startswith("gpu:")
        ]
        snapshot = assume.apply(snapshot, assume.gather(["nccl.version=2.30.7", *facts], None))
        _, _, subset = name.partition("@")
        document = planning.best_rings(snapshot, model="nccl", gpus=[int(index) for index in subset] or None)
        n = len(model["ranks"])
        pairs = itertools.permutations(range(n), 2)
        loads = {(a, b): [tuple(load) for load in model["paths"][a][b]] for a, b in pairs if model["paths"][a][b]}
        best = optimum(Problem(n, loads, [link[3] for link in model["links"]]))
        assert best is not None
        if document.total_gbps != pytest.approx(best.gbps, rel=1e-3):
            different.append(name)
    assert set(different) == SPLIT


def graph_of(n: int, nvlinks: dict[str, int]) -> Snapshot:
    """V100-like GPUs on one Intel CPU, as the study of random NVLink graphs has them."""
    address = [f"0000:{16 + 16 * gpu:02x}:00.0" for gpu in range(n)]
    devices = []
    for gpu in range(n):
        ends = [(*map(int, pair.split("-")), count) for pair, count in nvlinks.items()]
        links = "".join(
            f'<nvlink target="{address[b if a == gpu else a]}" count="{count}" tclass="0x030200"/>'
            for a, b, count in ends
            if gpu in (a, b)
        )
        devices.append(
            f'<pci busid="{address[gpu]}" class="0x030200" link_speed="8 GT/s" link_width="16">'
            f'<gpu dev="{gpu}" sm="70" rank="{gpu}" gdr="1">{links}</gpu></pci>'
        )
    text = (
        '<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85" '
        f'affinity="ffff">{"".join(devices)}</cpu></system>'
    )
    return assume.apply(
        detect.from_bytes(text.encode(), file="graph.xml"),
        assume.gather(["nccl.version=2.30.7", "pair.p2p.read=OK"], None),
    )


@needs_corpus
def test_random_nvlink_graphs() -> None:
    runs = json.loads((CORPUS / "nccl_reference.json").read_text())["random_nvlink_study"]["runs"]
    for run in runs:
        document = planning.best_rings(graph_of(run["n"], run["links"]), model="nccl")
        assert document.total_gbps == pytest.approx(run["frac"], rel=1e-3)
        assert document.equal_speed is not None
        assert (document.equal_speed.total_gbps or 0) >= max(run["best_equal"], run["total"]) - 1e-6


@pytest.mark.parametrize("model", ["expected", "nccl"])
@pytest.mark.parametrize("seed", range(20))
def test_rings_of_machines_that_nobody_built_hold_their_own_proof(seed: int, model: Model) -> None:
    document = planning.best_rings(machine(seed), model=model)
    if document.total_gbps is None:
        return
    assert document.bound_gbps is not None
    assert document.bound_gbps >= document.total_gbps * (1 - 1e-6)
    assert document.optimal or not planning.Machine(machine(seed), model).links(document.gpus).certain
    room = [link.gbps for link in document.links]
    equal = document.equal_speed
    assert equal is not None
    for rings in (document.channels, equal.channels):
        load = [0.0] * len(room)
        for ring in rings:
            assert sorted(ring.order) == sorted(document.gpus)
            for a, b in zip(ring.order, [*ring.order[1:], ring.order[0]], strict=True):
                for link, factor in document.paths[f"{a}>{b}"]:
                    load[link] += factor * (ring.gbps or 0)
        assert all(most is None or used <= most * (1 + 1e-5) for used, most in zip(load, room, strict=True))
    prices = {each.link: each.price for each in document.binding}
    assert sum(prices[link] * (room[link] or 0) for link in prices) == pytest.approx(document.bound_gbps, rel=1e-4)
    costs = np.full((len(document.gpus), len(document.gpus)), np.inf)
    for hop, loads_of_hop in document.paths.items():
        a, b = (document.gpus.index(int(end)) for end in hop.split(">"))
        costs[a, b] = sum(prices.get(link, 0.0) * factor for link, factor in loads_of_hop)
    assert pricing.cheapest(costs)[1] >= 1 - 1e-4, "a ring pays less than the bound allows"


@pytest.mark.parametrize(
    ("visible", "gpus", "staged"),
    [("", None, True), ("0,3", None, True), ("", [0, 3], False), ("0,1,2", [0, 3], False)],
)
def test_how_far_p2p_reaches_depends_on_the_gpus_of_the_rings(
    visible: str, gpus: list[int] | None, staged: bool
) -> None:
    """On AMD, NCCL uses P2P over any path between two GPUs, and only below a host bridge between more."""
    read = detect.read(str(files.shipped("fixtures") / "4xa100-pcie"), stdin=io.BytesIO())
    facts = ["pair.p2p.read=OK", "pair.p2p.write=OK", "cpu.vendor=AMD", f"env.CUDA_VISIBLE_DEVICES={visible}"]
    document = planning.best_rings(assume.apply(read, assume.gather(facts, None)), gpus=gpus)
    assert any("host memory" in note for note in document.notes) == staged


@pytest.mark.parametrize(
    ("count", "each"),
    [(1, 50.0), (5, 25.0), (6, 25.0), (7, 50 / 3), (8, 50 / 3), (9, 12.5), (16, 25 / 3), (32, 50 / 11)],
)
def test_a_number_of_channels_gets_the_speed_that_the_links_divide_into(count: int, each: float) -> None:
    """Each GPU of a DGX-1V has two links of 50 and two of 25 GB/s: 2⌊50/v⌋ + 2⌊25/v⌋ rings of v GB/s can leave it."""
    read = detect.read(str(files.shipped("fixtures") / "dgx-1v"), stdin=io.BytesIO())
    equal = planning.best_rings(read, channels=count).equal_speed
    assert equal is not None
    assert len(equal.channels) == count
    assert equal.gbps_each == pytest.approx(each, rel=1e-5)


def halves(n: int, across: float) -> Problem:
    """Pairs of GPUs joined by a fast link; all else goes over a link of each GPU, and between halves over one."""
    capacity = [20.0] * (2 * n) + [across, across]
    loads: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for a, b in itertools.permutations(range(n), 2):
        if a // 2 == b // 2:
            loads[(a, b)] = [(len(capacity), 1.0)]
            capacity.append(300.0)
        else:
            first, second = 2 * a // n, 2 * b // n
            loads[(a, b)] = [(a, 1.0), (n + b, 1.0), *([(2 * n + first, 1.0)] if first != second else [])]
    return Problem(n, loads, capacity)


@pytest.mark.parametrize("n", [20, 32, 64])
def test_above_the_exact_size_pairs_in_two_halves_are_solved(n: int) -> None:
    best = optimum(halves(n, 30.0))
    assert best is not None
    assert (best.gbps, best.bound) == (pytest.approx(30.0, rel=1e-4), pytest.approx(30.0, rel=1e-4))


@pytest.mark.parametrize("seed", range(6))
def test_above_the_exact_size_no_graph_is_a_fault_and_every_bound_holds(seed: int) -> None:
    pick = random.Random(seed)
    n = pick.randint(17, 40)
    loads: dict[tuple[int, int], list[tuple[int, float]]] = {}
    capacity: list[float] = []
    for hop in itertools.permutations(range(n), 2):
        if pick.random() < 0.4:
            loads[hop] = [(len(capacity), 1.0)]
            capacity.append(pick.choice([12.0, 25.0, 50.0]))
    best = optimum(Problem(n, loads, capacity))
    assert best is not None
    assert best.gbps <= best.bound * (1 + 1e-6)
    for ring in best.rings:
        assert sorted(ring.order) == list(range(n))
    carried = loads_of(Problem(n, loads, capacity), best.rings)
    assert all(gbps <= capacity[link] * (1 + 1e-6) for link, gbps in carried.items())


def test_parts_without_a_way_between_them_are_named() -> None:
    text = (
        "\tGPU0\tGPU1\tGPU2\tGPU3\n"
        "GPU0\t X \tNV4\tERR!\tERR!\n"
        "GPU1\tNV4\t X \tERR!\tERR!\n"
        "GPU2\tERR!\tERR!\t X \tNV4\n"
        "GPU3\tERR!\tERR!\tNV4\t X \n"
    )
    document = planning.best_rings(detect.read("-", stdin=io.BytesIO(text.encode())))
    assert document.channels == []
    assert "between GPU0, GPU1 | GPU2, GPU3." in document.notes[0]


def test_the_limit_of_a_ring_forbids_rings_of_a_part() -> None:
    """Two groups with free hops inside: a ring crosses twice, which an assignment does not."""
    costs = np.where(np.arange(20)[:, None] // 10 == np.arange(20)[None, :] // 10, 0.0, 1.0)
    orders, least = pricing.cheapest(costs)
    assert least == pytest.approx(2.0)
    assert costs.ravel()[pricing.hops(orders[:1], 20)].sum() == pytest.approx(2.0)
