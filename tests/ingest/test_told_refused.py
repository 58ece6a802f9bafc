"""Facts that are told in a form that they cannot have, twice, or in a file that is none: one sentence and a hint."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from topoadvisor import advise
from topoadvisor.errors import InputError, TopoAdvisorError
from topoadvisor.ingest import assume, detect
from topoadvisor.rules import facts
from topoadvisor.snapshot import Gpu, Snapshot
from topoadvisor.topology import graph

TWO = Snapshot(gpus=[Gpu(index=0), Gpu(index=1)])


def fixture(name: str) -> Snapshot:
    return detect.read([f"fixture:{name}"], stdin=io.BytesIO())


def known(texts: list[str], of: Snapshot) -> facts.FactBase:
    machine = assume.apply(of, assume.gather(texts, None))
    return facts.gather(machine, graph.build(machine))


def refused(*texts: str, of: Snapshot = TWO) -> TopoAdvisorError:
    with pytest.raises(TopoAdvisorError) as error:
        known(list(texts), of)
    assert error.value.hint
    return error.value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("driver=0.0", "300 to 999"),
        ("nccl=0", "release"),
        ("nccl=2", "release"),
        ("nccl=1.3.4", "NCCL 2"),
        ("nccl.version=2020-01-01", "version"),
        ("driver=2025-01-01", "version"),
        ("cuda=2020.1", "7 to 99"),
        ("nccl.versions=2.18.3, x", "version"),
        ("xid=abc", "1 to 999"),
        ("xid=-1", "1 to 999"),
        ("xid=79.5", "1 to 999"),
        ("xid=0x4f", "1 to 999"),
        ("xid=0", "1 to 999"),
        ("gpu.name=\x1b[31mL4", "control"),
        ("platform.cloud=a\x07", "control"),
        ("rdma.names=mlx5_0\x1b", "control"),
    ],
)
def test_a_value_that_cannot_be(text: str, words: str) -> None:
    assert words in refused(text).message


def test_the_example_of_a_version_is_one_of_that_software() -> None:
    assert refused("driver=abc").hint == "Write it as driver.version=580.95.05."


def test_spellings_of_an_xid_and_a_blank_that_is_none() -> None:
    assert [each.value for each in assume.gather(["xid=Xid 79, 074"], None)] == [["79", "74"]]
    assert [each.value for each in assume.gather(["gpu.name=NVIDIA\xa0L4"], None)] == ["NVIDIA L4"]


def test_a_message_loses_the_colours_of_its_log() -> None:
    (found,) = assume.gather(["job.message=\x1b[31mNCCL WARN\x1b[0m\nNet\x07"], None)
    assert found.value == "NCCL WARN\nNet"


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("pair[0,0].p2p.read=OK", "about two GPUs", "pair[0,1].p2p.read"),
        ("pair[0].p2p.read=OK", "about two GPUs", "pair[0,1].p2p.read"),
        ("pair[x,y].nvlinks=1", "about two GPUs", "pair[0,1].nvlinks"),
        ("gpu[0,1].name=L4", "about one GPU", "gpu[0].name"),
        ("gpu[3].name=L4", "not here", "0, 1"),
        ("gpu[3].architecture=ada", "not here", "0, 1"),
    ],
)
def test_brackets_that_name_no_gpu(text: str, words: str, hint: str) -> None:
    error = refused(text)
    assert words in error.message
    assert hint in (error.hint or "")


def test_a_device_that_was_meant_is_named_as_it_is_typed() -> None:
    assert refused("nic[en01].state=UP", of=fixture("8x4090")).hint == "Did you mean `nic[eno1]`?"


def test_spellings_of_gpus() -> None:
    base = known(["gpu[GPU1].name=NVIDIA L4", "pair[gpu:1-gpu:0].p2p.read=OK"], TWO)
    assert base.fact("gpu.name", base.subjects["gpu"][1]) == facts.Known("NVIDIA L4", "assumed")
    assert base.fact("pair.p2p.read", base.subjects["pair"][0]) == facts.Known("OK", "assumed")


def test_two_values_on_the_command_line_are_one_too_many() -> None:
    assert refused("job.nodes=2", "num_nodes=3").message == "--assume says `job.nodes` twice, as 2 and 3"
    assert [each.value for each in assume.gather(["job.nodes=2", "num_nodes=2"], None)] == [2]


def test_several_files_are_put_together(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("cpu.vendor: AMD\nnccl: 2.20.5\n")
    second.write_text("driver: 580.95.05\nnccl: 2.20.5\n")
    found = {each.fact: each.value for each in assume.gather([], [first, second])}
    assert found == {"cpu.vendor": "AMD", "nccl.version": "2.20.5", "driver.version": "580.95.05"}
    second.write_text("driver: 580.95.05\nnccl: 2.21.5\n")
    with pytest.raises(InputError, match=r"b\.yaml:2: `nccl.version` is said twice, also in .*a\.yaml:2"):
        assume.gather([], [first, second])


def test_a_pipe_with_a_name_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="named pipe"):
        assume.gather([], pipe)


def test_facts_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"cpu: {vendor: amd}\n")))
    (found,) = assume.gather([], Path("-"))
    assert (found.fact, found.value, found.origin) == ("cpu.vendor", "AMD", "-:1")


def test_what_was_assumed_is_shown_as_it_is_typed() -> None:
    told = assume.apply(fixture("8x4090"), assume.gather(["xid=79, 74", "vm.guest=false"], None))
    assert {"job.xids = 79, 74", "vm.guest = false"} <= set(advise.advise(told).assumed)
