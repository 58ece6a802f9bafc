from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from topoadvisor.cli import facts
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.snapshot import Assumption, Driver, Gpu, Snapshot, Source
from topoadvisor.vocabulary import VOCABULARY

MACHINE = Snapshot(
    sources=[Source(name="nvml", status="ok"), Source(name="procfs", status="absent", reason="there is no /proc")],
    gpus=[Gpu(index=0, name="NVIDIA H200", address="0000:01:00.0"), Gpu(index=1)],
    driver=Driver(version="580.1"),
    assumptions=[Assumption(fact="cpu.vendor", value="AMD")],
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The verb on MACHINE, whatever SOURCE says."""
    monkeypatch.setattr(facts, "load_snapshot", lambda source, assume, assume_file: MACHINE)
    app = typer.Typer()
    app.command()(facts.facts)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return invoke


def test_every_fact_has_a_value_with_an_origin_or_a_reason(run: Callable[..., Result]) -> None:
    found: list[dict[str, Any]] = json.loads(run("--format", "json").stdout)["facts"]
    assert all(set(each) in ({"fact", "subject", "value", "origin"}, {"fact", "subject", "unknown"}) for each in found)
    by_name = {(each["subject"], each["fact"]): each for each in found}
    assert by_name["gpu:0", "gpu.name"] == {
        "fact": "gpu.name",
        "subject": "gpu:0",
        "value": "NVIDIA H200",
        "origin": "nvml",
    }
    assert by_name["node", "kernel.version"]["unknown"] == "procfs: there is no /proc"
    assert by_name["node", "cpu.vendor"]["origin"] == "assumed"
    assert by_name["gpu:0-gpu:1", "pair.a"]["value"] == "GPU0"


def test_text_groups_facts_by_subject(run: Callable[..., Result]) -> None:
    lines = run("--filter", "gpu.n").stdout.splitlines()
    assert lines[0] == "gpu:0"
    assert lines[1].split() == ["gpu.name", "NVIDIA", "H200", "nvml"]
    assert "gpu:1" in lines
    assert not any("driver" in line for line in lines)


def test_a_filter_that_nothing_starts_with_is_an_error_with_a_hint(run: Callable[..., Result]) -> None:
    result = run("--filter", "drivr.version")
    assert isinstance(result.exception, TopoAdvisorError)
    assert result.exception.hint == "Did you mean `driver.version`?"
    assert "no device here" in str(run("--filter", "bridge.").exception)


def test_the_same_snapshot_gives_the_same_bytes(run: Callable[..., Result]) -> None:
    assert run("--format", "json").stdout == run("--format", "json").stdout


def test_names_are_found_by_what_they_mean_without_a_machine(run: Callable[..., Result]) -> None:
    assert run("--find", "hang").stdout.startswith("job.symptom: one of hang, slow")
    for word in ("hang", "stuck", "slow", "nan"):
        found = run("--find", word).stdout
        assert all(f"\njob.{name}: " in found for name in ("message", "nodes", "failed_after_seconds")), word
    assert "job.message" not in run("--find", "docker").stdout
    assert run("--find", "shm").stdout.startswith("shm.total_bytes: a whole number, may have a unit (b, bytes, k")
    assert run("--find", "oom").stdout.startswith("job.symptom: ")
    assert "docker, podman" in run("--find", "docker").stdout
    for words, fact in [
        ("ulimit", "limits.memlock_bytes"),
        ("infiniband", "rdma.link_layers"),
        ("plugin", "nccl.net_plugins"),
    ]:
        assert f"{fact}: " in run("--find", words).stdout
    assert "facts --list" in str(run("--find", "zzzz").exception.hint)  # type: ignore[union-attr]
    assert "NCCL_GIN_ENABLE" in str(run("--find", "gin").exception.hint)  # type: ignore[union-attr]


def test_the_list_has_every_fact(run: Callable[..., Result]) -> None:
    listed = [line.partition(":")[0] for line in run("--list").stdout.splitlines() if not line.startswith(" ")]
    assert listed == list(VOCABULARY)


def test_the_list_reads_no_machine(run: Callable[..., Result]) -> None:
    assert "read no machine" in str(run("--list", "fixture:dgx-h100").exception)


@pytest.mark.parametrize("words", ["", " "])
def test_a_search_for_nothing_is_refused_instead_of_reading_the_machine(run: Callable[..., Result], words: str) -> None:
    assert "--find got no word" in str(run("--find", words).exception)
