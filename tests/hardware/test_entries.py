"""The catalogue as people see it: every value has a source, every source an address and a date or a word about it."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import get_args

import pytest

from topoadvisor.cli import main
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.hardware import catalogue, entries, tables

TABLES = [tables.gpus(), tables.links(), tables.cpus(), tables.systems()]
UNREAD = 13
"""Values all of whose sources were named without being read again for the catalogue; reading them lowers it."""
WITHOUT_ADDRESS = {
    "notes on nvidia-smi (topo -m of four A30 with bridges over two)",
    "a course on Caffe with several GPUs (topo -m of a DGX-1 with P100, where SYS is still SOC)",
    "notes of a university's computing centre (topo -m of nodes with four A100 SXM4)",
    "measured by this project on 2x H200, driver 580",
    "notes on p2pBandwidthLatencyTest (eight TITAN RTX without bridges: no peer access)",
    "notes on p2pBandwidthLatencyTest (peer copies of a DGX-2; through host memory, it and eight TITAN RTX)",
    "computed from the line coding (payload = raw × 256/280); no public measurement",
    "nvidia-smi nvlink -s as printed on V100 (25.781), A100 (25), H100 and H200 (26.562) and B200 (53.125)",
}


@pytest.mark.parametrize("entry", entries.entries(), ids=lambda entry: f"{entry.kind}-{entry.name}")
def test_every_value_has_a_source(entry: entries.Entry) -> None:
    assert entry.values
    for value in entry.values:
        assert value.value not in (None, "", [], {}), value.name
        assert value.sources, f"{entry.name}: nothing speaks for {value.name}"


def test_every_source_has_an_address_and_speaks_for_something() -> None:
    for table in TABLES:
        for key, source in table.sources.items():
            assert source.gives, key
            if source.what not in WITHOUT_ADDRESS:
                assert source.url, key
                assert source.url.startswith(("https://", "http://")), key
            if source.read is not None:
                assert datetime.date(2026, 11, 1) <= source.read <= datetime.date(2027, 12, 31), key


def test_what_stands_on_sources_not_read_again_does_not_grow() -> None:
    unread = [
        (entry.name, value.name)
        for entry in entries.entries()
        for value in entry.values
        if all(source.read is None for source in value.sources)
    ]
    total = sum(len(entry.values) for entry in entries.entries())
    assert len(unread) <= UNREAD
    assert total > 600


@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("L40S", ["P2P over PCIe with the stock driver"]),
        ("Granite Rapids", ["between two sockets, GB/s per direction", "peer copy across sockets"]),
        ("A100 PCIe", []),
        ("NVLink 4", []),
    ],
)
def test_what_nobody_published_is_named(name: str, unknown: list[str]) -> None:
    entry = entries.find(name)
    assert entry.unknown == unknown
    assert ("not known, for want of a public source" in entries.describe(entry)) is bool(unknown)


def test_names_are_unique_and_kinds_known() -> None:
    found = entries.entries()
    assert len({entry.name.lower() for entry in found}) == len(found)
    assert {entry.kind for entry in found} == set(get_args(entries.Kind))


def test_systems_hold_all_their_pairs_and_known_gpus() -> None:
    families = {family.family: family for family in tables.gpus().families}
    for system in tables.systems().systems:
        assert sum(system.pairs.values()) == system.gpus * (system.gpus - 1) // 2, system.name
        links = families[system.gpu].max_nvlinks
        assert links is not None
        if system.nvswitches:
            assert set(system.pairs) == {f"NV{links}"}


def test_a_gpu_is_found_by_what_the_driver_calls_it() -> None:
    assert entries.find("NVIDIA H100 80GB HBM3").name == "H100 SXM"
    assert entries.find("emerald rapids").name == "Emerald Rapids"
    with pytest.raises(TopoAdvisorError) as error:
        entries.find("emerald rapid")
    assert "Emerald Rapids" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("DGX H100", "hgx-h100"),
        ("dgx_a100", "dgx-a100"),
        ("GB200 NVL72", "gb200-tray"),
        ("AMD EPYC 9654 96-Core Processor", "Genoa"),
        ("AMD EPYC 7H12", "Rome"),
        ("AMD EPYC 7R13 Processor", "Milan"),
        ("Intel(R) Xeon(R) Platinum 8480+", "Sapphire Rapids"),
        ("Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", "Broadwell"),
        ("Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", "Skylake or Cascade Lake"),
        ("INTEL(R) XEON(R) PLATINUM 8570", "Emerald Rapids"),
    ],
)
def test_machines_and_cpus_are_found_by_what_they_call_themselves(name: str, found: str) -> None:
    assert entries.find(name).name == found


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("EPYC", "Did you mean Naples, Rome, Milan, Genoa or Turin? "),
        ("dgx", "dgx-1v"),
        ("DGX Z9", ""),
        ("Intel(R) Xeon(R) Platinum 8380H", ""),
        ("", ""),
        ("\x1b!!", ""),
    ],
)
def test_a_name_that_is_not_there_gets_what_comes_near(name: str, hint: str) -> None:
    with pytest.raises(TopoAdvisorError) as error:
        entries.find(name)
    assert hint in (error.value.hint or "")
    assert "`topoadvisor hardware list` names all." in (error.value.hint or "")


def test_shown_values_are_those_that_the_program_uses() -> None:
    values = {value.name: value.value for value in entries.find("NVIDIA GeForce RTX 3090").values}
    model = catalogue.gpu_model("NVIDIA GeForce RTX 3090")
    assert model is not None
    assert values["NVLinks"] == model.max_nvlinks == 4
    assert values["one NVLink, GB/s per direction"] == model.nvlink_gbps == 14.0625
    genoa = {value.name: value.value for value in entries.find("Genoa").values}
    cpu = catalogue.cpu_model("AMD", 25, 17)
    assert cpu is not None
    assert genoa["NCCL's constant for a hop between NUMA nodes, GB/s"] == cpu.nccl_gbps == 16
    assert genoa["between two sockets, GB/s per direction"] == cpu.inter_socket_gbps


def test_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "list"]) == 0
    out = capsys.readouterr().out
    assert "gpu     H200 " in out
    assert "system  dgx-a100 " in out
    assert main(["hardware", "show", "dgx-a100"]) == 0
    out = capsys.readouterr().out
    assert "GPU pairs by link class: NV12 28" in out
    assert "https://github.com/NVIDIA/nccl/issues/1505" in out
    assert main(["hardware", "show", "H200", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "topoadvisor.hardware/1"
    (entry,) = document["entries"]
    links = next(value for value in entry["values"] if value["name"] == "NVLinks")
    assert links["value"] == 18
    assert all(source["url"] and source["what"] for source in links["sources"])
    assert main(["hardware", "list", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["entries"]) == len(entries.entries())
    assert main(["hardware", "show", "no such thing"]) == 2
    assert "hint: " in capsys.readouterr().err


PRINTED = {
    "dgx-1v": 1,
    "hgx-a800": 6,
    "dgx-1p": 24,
    "hgx-a100-4": 34,
    "ac922": 11,
    "hgx-h200": 12,
    "hgx-h100": 37,
    "h200-nvl-pairs": 38,
    "gb200-tray": 42,
}
"""Machine → number of a real paste."""


@pytest.mark.parametrize(("name", "number"), PRINTED.items())
def test_expected_matrices_are_those_that_real_machines_print(name: str, number: int) -> None:
    corpus = Path(__file__).resolve().parents[2] / "../shared/corpus/matrices"
    found = list(corpus.glob(f"{number:03}_*.expected.json"))
    if not found:
        pytest.skip("the collection of real matrices is not here")
    expected = json.loads(found[0].read_text(encoding="utf-8"))
    cells = expected["matrix"]
    printed = Counter(cells[a][b].replace("SOC", "SYS") for a, b in combinations(expected["gpus"], 2))
    (system,) = (each for each in tables.systems().systems if each.name == name)
    assert dict(printed) == system.pairs
