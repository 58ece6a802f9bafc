from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import pytest

from topoadvisor.advise import advise, analyse
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.ingest import detect, told
from topoadvisor.ingest.assume import apply
from topoadvisor.rules.assumed import Assumed
from topoadvisor.rules.facts import FactBase, Known
from topoadvisor.snapshot import Assumption, Cpu, Gpu, Host, Nic, PciDevice
from topoadvisor.vocabulary import FORMS, VOCABULARY

Machines = Callable[..., FactBase]


def assume(**facts: Any) -> list[Assumption]:
    return [Assumption(fact=name, value=value) for name, value in facts.items()]


def test_an_assumption_wins_over_what_was_read_and_is_marked(machine: Machines) -> None:
    facts = machine(host=Host(cpu=Cpu(vendor="Intel")), assumptions=assume(**{"cpu.vendor": "AMD"}))
    assert facts.fact("cpu.vendor") == Known("AMD", "assumed")


def test_what_follows_from_an_assumption_says_so(machine: Machines) -> None:
    facts = machine(assumptions=assume(**{"nccl.version": "2.28.9", "cpu.vendor": "AMD", "cpu.architecture": "x86_64"}))
    assert facts.fact("nccl.default_p2p_level") == Known("SYS", "derived from assumed facts")


def test_one_device_or_all_of_them(machine: Machines) -> None:
    facts = machine(3, assumptions=assume(**{"gpu.name": "NVIDIA L40S", "gpu[1].name": "NVIDIA H200"}))
    names = [subject.facts["gpu.name"] for subject in facts.subjects["gpu"]]
    assert [name.value for name in names if isinstance(name, Known)] == ["NVIDIA L40S", "NVIDIA H200", "NVIDIA L40S"]
    assert facts.subjects["gpu"][1].facts["gpu.form"] == Known("sxm", "catalogue")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("p2p.read", ["CNS", "CNS", "CNS"]),
        ("pair.p2p.read", ["CNS", "CNS", "CNS"]),
        ("pair[0,2].p2p.read", [None, "CNS", None]),
        ("pair[2, 0].p2p.read", [None, "CNS", None]),
    ],
)
def test_pairs(machine: Machines, name: str, expected: list[str | None]) -> None:
    facts = machine(3, assumptions=assume(**{name: "CNS"}))
    found = [subject.facts["pair.p2p.read"] for subject in facts.subjects["pair"]]
    assert [fact.value if isinstance(fact, Known) else None for fact in found] == expected


def test_nics_and_bridges(machine: Machines) -> None:
    facts = machine(
        nics=[Nic(name="mlx5_0", rdma=True)],
        pci=[PciDevice(address="0000:1a:00.0", class_code="0x060400")],
        assumptions=assume(**{"nic[mlx5_0].state": "ACTIVE", "bridge[1A:00.0].link_width": 8}),
    )
    assert facts.fact("rdma.active") == Known(["mlx5_0"], "derived from assumed facts")
    assert facts.subjects["bridge"][0].facts["bridge.link_width"] == Known(8, "assumed")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("vm.guest", "true", True),
        ("vm.guest", False, False),
        ("numa.count", "2", 2),
        ("nccl.version", 2.28, "2.28.9"),
        ("env.NCCL_P2P_DISABLE", 1, "1"),
        ("env.NCCL_X", True, "true"),
        ("gpus.compute_capability_max", "12", 12.0),
        ("rdma.gpu_local", "mlx5_0, mlx5_1", ["mlx5_0", "mlx5_1"]),
        ("rdma.gpu_local", ["mlx5_0"], ["mlx5_0"]),
        ("limits.memlock_bytes", "-1", -1),
    ],
)
def test_values_take_the_type_of_the_fact(machine: Machines, name: str, value: Any, expected: Any) -> None:
    assert machine(assumptions=assume(**{name: value})).fact(name) == Known(expected, "assumed")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("cpu.vendorr", "AMD", ["no fact `cpu.vendorr`", "Did you mean `cpu.vendor`"]),
        ("vendor.profil", "AMD", ["no fact `vendor.profil`", "Did you mean `vendor.profile"]),
        ("gpu[0].namex", "X", ["gpu[0].namex", "gpu.name"]),
        ("gpu[7].name", "X", ["not here"]),
        ("pair[0,5].p2p.read", "OK", ["not here"]),
        ("vm.guest", "maybe", ["true or false", "vm.guest=true"]),
        ("numa.count", "two", ["a whole number"]),
        ("nccl.version", ["2"], ["is a text", "nccl.version=2.28.9"]),
        ("nccl.version", "latest", ["is a version", "nccl.version=2.28.9"]),
    ],
)
def test_a_wrong_assumption_is_one_sentence_with_a_hint(
    machine: Machines, name: str, value: Any, words: list[str]
) -> None:
    with pytest.raises(TopoAdvisorError) as error:
        machine([Gpu(index=0), Gpu(index=1)], assumptions=assume(**{name: value}))
    said = f"{error.value.message} {error.value.hint}"
    assert error.value.hint
    for word in words:
        assert word in said


def test_every_fact_of_few_words_is_in_the_vocabulary() -> None:
    assert set(FORMS) <= set(VOCABULARY)
    assert all(VOCABULARY[name].type in ("text", "texts") for name in FORMS)


ODD_VALUES = ["x", "", -1, 1e308, 10**17, "9" * 5000, ["a"], "\u0663"]


@pytest.mark.parametrize("turn", range(len(ODD_VALUES)))
def test_any_value_of_any_fact_is_taken_or_refused_in_one_sentence(turn: int) -> None:
    """Facts that are one of a few words cannot be assumed to be another: code looks those words up.

    Every fact meets two of the values and every value a quarter of the facts of each kind: all with all takes minutes.
    """
    snapshot = detect.read("fixture:2x3090-bridge", stdin=io.BytesIO())
    for number, name in enumerate(VOCABULARY):
        if (number - turn) % 4 == 0:
            with contextlib.suppress(TopoAdvisorError):
                advise(apply(snapshot, [Assumption(fact=name, value=ODD_VALUES[turn])]))


def test_a_refused_value_is_named_with_the_line_it_stands_in() -> None:
    with pytest.raises(TopoAdvisorError, match=r"^facts.yaml:3: the assumed fact `nccl.p2p_level` is one of LOC, NVL"):
        Assumed([Assumption(fact="nccl.p2p_level", value="near", origin="facts.yaml:3")])


@pytest.mark.parametrize(
    "told",
    [
        {"nccl.version": "2.28.9"},
        {"driver.version": "550.90.07"},
        {"driver.flavour": "open"},
        {"gpu.name": "NVIDIA H100 80GB HBM3"},
        {"cpu.model_name": "AMD EPYC 7543 32-Core Processor"},
        {"platform.product": "p5.48xlarge"},
        {"platform.cloud": "azure"},
        {"container.kind": "docker"},
        {"vm.hypervisor": "kvm"},
        {"iommu.mode": "DMA"},
        {"shm.total_bytes": 2**26},
        {"p2p.read": "OK", "p2p.write": "OK"},
        {"gpu.mig": True},
        {"gpu.fabric.state": "in-progress"},
        {"gpu.nvlinks.active": 2},
        {"modules.nvidia_peermem": True},
        {"env.CUDA_VISIBLE_DEVICES": "0"},
        {"numa.count": 2},
    ],
    ids=lambda told: next(iter(told)),
)
def test_what_is_known_only_through_an_assumption_is_not_said_to_have_been_read(told: dict[str, Any]) -> None:
    pasted = b"\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
    machine = detect.read(["-"], stdin=io.BytesIO(pasted))

    def known(base: FactBase) -> dict[tuple[str, str], Known]:
        scopes = [("node", base.node), *((each.id, each.facts) for kind in base.subjects.values() for each in kind)]
        return {(id, name): fact for id, facts in scopes for name, fact in facts.items() if isinstance(fact, Known)}

    before, after = known(analyse(machine).facts), known(analyse(apply(machine, assume(**told))).facts)
    claimed = {key: fact for key, fact in after.items() if fact != before.get(key) and "topo -m" in fact.origin}
    assert after != before
    assert not claimed


NUMBERS = [name for name, fact in VOCABULARY.items() if fact.type == "number" and name not in told.MADE_FROM]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_whole_number_is_as_good_as_a_decimal_one(name: str) -> None:
    whole = told.understood([Assumption(fact=name, value=8)])[0].value
    assert (type(whole), whole) == (float, 8.0)
