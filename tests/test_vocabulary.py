from __future__ import annotations

from topoadvisor.rules import cel
from topoadvisor.vocabulary import KINDS, TYPE_WORDS, VOCABULARY, kind_of, nearest, spec


def test_no_fact_is_also_a_group_of_facts() -> None:
    groups = {".".join(name.split(".")[:length]) for name in VOCABULARY for length in range(1, name.count(".") + 1)}
    assert groups.isdisjoint(VOCABULARY)


def test_every_fact_has_a_known_type_and_a_meaning() -> None:
    for name, fact in VOCABULARY.items():
        assert fact.type in TYPE_WORDS, name
        assert fact.meaning, name


def test_every_fact_can_be_read_in_a_condition() -> None:
    for name in VOCABULARY:
        assert cel.compile_condition(f"{name} == {name}").paths == (name,)


def test_kinds() -> None:
    assert [kind_of(name) for name in ("gpus.count", "gpu.name", "pair.p2p.ok", "env.NCCL_ALGO", "p2p.all_ok")] == [
        "node",
        "gpu",
        "pair",
        "node",
        "node",
    ]
    assert {kind_of(name) for name in VOCABULARY} == set(KINDS)


def test_any_variable_is_a_text() -> None:
    found = spec("env.NCCL_ALGO")
    assert found is not None
    assert found.type == "text"
    assert spec("env.1") is None
    assert spec("cpu.vendor.x") is None


def test_the_nearest_name_is_close_or_ends_alike() -> None:
    assert nearest("cpu.vendorr", VOCABULARY) == "cpu.vendor"
    assert nearest("crosses_host", VOCABULARY) == "pair.path.crosses_host"
    assert nearest("zzzzqqqq", VOCABULARY) is None
