"""`topoadvisor verify` from its options to its exit code, with a fake child in place of CUDA."""

from __future__ import annotations

import io
import itertools
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

from topoadvisor import cli, collect
from topoadvisor.cli.prove import prove
from topoadvisor.cli.verify import verify
from topoadvisor.emit import nccl_graph
from topoadvisor.errors import InputError, NothingDetermined, TopoAdvisorError
from topoadvisor.ingest import detect
from topoadvisor.snapshot import Driver, Gpu, P2p, PcieLink, Snapshot, decode
from topoadvisor.verify import child

CHILD = """
import json, sys
job = json.load(sys.stdin)
if job["task"] == "look":
    print(json.dumps({"look": {"cupy": "14.2.0", "runtime": "13.2", "addresses": ["0000:01:00.0", "0000:02:00.0"]}}))
for step in job.get("steps", ()):
    print(json.dumps({"begin": step["name"]}), flush=True)
    peer = step["name"].startswith("peer-copy")
    each = len(step["flows"])
    seconds = step["size_bytes"] / (GBPS if peer else 20.0 if step["name"].startswith("staged") else 26.2) / 1e9
    print(json.dumps({"measured": {"name": step["name"], "outcome": "OUTCOME" if peer else "ok",
                                   "seconds": [seconds] * step["repeats"], "flow_seconds": [seconds] * each,
                                   "size_bytes": step["size_bytes"], "peer_access": True, "checked": "device"}}),
          flush=True)
"""


def live(n: int = 2) -> Snapshot:
    gpus = [
        Gpu(
            index=i,
            name="NVIDIA RTX 6000 Ada Generation",
            address=f"0000:0{i + 1}:00.0",
            pcie=PcieLink(max_gen=4, max_width=16),
            nvlinks=[],
        )
        for i in range(n)
    ]
    p2p = [P2p(a=a, b=b, common_ancestor="PHB") for a, b in itertools.permutations(range(n), 2)]
    return Snapshot(gpus=gpus, p2p=p2p, driver=Driver(version="580.159.04", cuda="13.0"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A healthy machine; call it to change what its children answer."""

    def child_with(gbps: float = 25.8, outcome: str = "ok", n: int = 2) -> None:
        script = CHILD.replace("GBPS", str(gbps)).replace("OUTCOME", outcome)
        monkeypatch.setattr(child, "command", lambda: [sys.executable, "-c", script])
        monkeypatch.setattr(collect, "capture_live", lambda: live(n))

    child_with()
    return child_with


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(verify)
    return CliRunner().invoke(app, arguments)


def test_a_healthy_machine_exits_0(machine: Callable[..., None]) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert "PHB" in result.stdout
    assert "pass" in result.stdout
    assert "median of 5" in result.stdout


def test_json_is_the_only_thing_on_stdout(machine: Callable[..., None]) -> None:
    document = json.loads(run("--format", "json", "--size", "1G", "--repeats", "9").stdout)
    assert (document["size_bytes"], document["repeats"]) == (1 << 30, 9)
    assert document["pairs"][0]["verdict"] == "pass"


@pytest.mark.parametrize(("gbps", "outcome"), [(12.9, "ok"), (25.8, "wrong-data"), (25.8, "error")])
def test_a_bad_pair_exits_1(machine: Callable[..., None], gbps: float, outcome: str) -> None:
    machine(gbps, outcome)
    result = run()
    assert result.exit_code == 1
    assert "fail" in result.stdout


def test_saved_numbers_can_be_read_back_and_replaced(machine: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    assert run("--save", str(path)).exit_code == 0
    first = decode(path.read_bytes())
    assert [m.subject for m in first.measurements[:3]] == ["gpu:0>gpu:1", "gpu:1>gpu:0", "gpu:0<>gpu:1"]
    assert first.measurements[0].gbps == 25.8
    machine(26.0)
    assert run("--save", str(path)).exit_code == 0
    second = decode(path.read_bytes())
    assert [m.gbps for m in second.measurements[:3]] == [26.0, 26.0, 52.0]
    assert len(second.measurements) == len(first.measurements)


@pytest.mark.parametrize("words", [["verify"], ["prove", "NCCL_ALGO=ring", "--size", "1M", "--rounds", "4"]])
def test_what_was_measured_is_saved_though_nobody_reads_the_report(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    def leave(text: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(child, "rank_command", lambda: [sys.executable, "-c", RANK])
    monkeypatch.setattr(f"topoadvisor.cli.{words[0]}.emit_text", leave)
    path = tmp_path / "node.json"
    more = ["--save", str(path), *(["--nccl", "x"] if words[0] == "prove" else [])]
    assert isinstance((run if words[0] == "verify" else prove_app)(*words[1:], *more).exception, BrokenPipeError)
    saved = decode(path.read_bytes())
    assert saved.measurements or saved.trials


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_told_to_end_is_like_ctrl_c(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    before = signal.getsignal(number)

    def end() -> Snapshot:
        signal.raise_signal(number)
        raise AssertionError

    monkeypatch.setattr(collect, "capture_live", end)
    try:
        assert cli.main(["verify"]) == 130
    finally:
        signal.signal(number, before)


def test_a_file_that_is_no_snapshot_of_this_machine_is_left_alone(machine: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("precious")
    assert isinstance(run("--save", str(path)).exception, InputError)
    assert path.read_text() == "precious"


def test_standard_output_is_no_place_to_save_into(machine: Callable[..., None]) -> None:
    error = run("--save", "-").exception
    assert isinstance(error, InputError)
    assert error.message == "--save takes a file: standard output has the report"


def test_without_a_gpu_nothing_can_be_measured(machine: Callable[..., None]) -> None:
    machine(n=0)
    error = run().exception
    assert isinstance(error, NothingDetermined)
    assert error.exit_code == 3


@pytest.mark.parametrize(
    "arguments", [("--size", "huge"), ("--size", "12"), ("--size", "-1"), ("--repeats", "1"), ("--deadline", "0")]
)
def test_wrong_options_exit_2(machine: Callable[..., None], arguments: tuple[str, str]) -> None:
    assert run(*arguments).exit_code == 2


RANK = """
import json, sys
job = json.load(sys.stdin)
print(json.dumps({"began": {"nccl": "2.28.9", "runtime": "13.2", "cupy": "14.2.0", "processors": 132}}))
for number, case in enumerate(job["cases"]):
    seconds = [case["size_bytes"] / 20e9] * case["batches"]
    print(json.dumps({"timed": {"case": number, "seconds": seconds, "wrong": 0}}), flush=True)
print(json.dumps({"ended": {"used_bytes": 1}}))
"""


def test_collectives_ask_nccl_and_are_saved(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child, "rank_command", lambda: [sys.executable, "-c", RANK])
    path = tmp_path / "node.json"
    result = run("--collectives", "--size", "8M", "--nccl", "libnccl.so.2", "--save", str(path))
    assert result.exit_code == 0, result.output
    head = next(line for line in result.stdout.splitlines() if "KiB" in line)
    assert head.split() == ["64", "KiB", "1", "MiB", "8", "MiB"]
    assert "NCCL 2.28.9 (libnccl.so.2)" in result.stdout
    saved = decode(path.read_bytes()).measurements
    assert len(saved) == 15
    assert (saved[0].kind, saved[0].subject, saved[0].gbps) == ("all_reduce", "gpu:0,gpu:1", 20.0)


@pytest.mark.parametrize("words", [["--collectives", "--full"], ["--nccl", "libnccl.so.2"]])
def test_options_that_do_not_go_together_are_refused(machine: Callable[..., None], words: list[str]) -> None:
    assert isinstance(run(*words).exception, TopoAdvisorError)


def test_repeats_hold_for_collectives_too(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "rank_command", lambda: [sys.executable, "-c", RANK])
    words = ["--collectives", "--size", "1M", "--nccl", "libnccl.so.2", "--repeats", "9", "--format", "json"]
    assert {each["repeats"] for each in json.loads(run(*words).stdout)["results"]} == {9}


def test_collectives_without_nccl_or_a_second_gpu_say_so(machine: Callable[..., None]) -> None:
    error = run("--collectives").exception
    assert isinstance(error, NothingDetermined)
    assert "no NCCL library" in error.message
    machine(n=1)
    error = run("--collectives").exception
    assert isinstance(error, NothingDetermined)
    assert "there is one GPU" in error.message


@pytest.mark.parametrize("words", [["verify"], ["verify", "--collectives"], ["prove", "NCCL_ALGO=ring"]])
@pytest.mark.parametrize(
    ("mig", "look", "told"),
    [
        ([True, True], "{}", "MIG is on for GPU0, GPU1, and MIG instances cannot copy to each other"),
        ([None, None], '{"look": {"missing": "cupy"}}', "CuPy is not installed, and everything is measured with it"),
        ([None, None], '{"look": {"missing": "CUDA does not work here"}}', "CUDA does not work here"),
    ],
)
def test_one_sentence_says_why_nothing_can_be_measured(
    monkeypatch: pytest.MonkeyPatch, words: list[str], mig: list[bool | None], look: str, told: str
) -> None:
    here = live(2)
    gpus = [msgspec.structs.replace(gpu, mig=on) for gpu, on in zip(here.gpus, mig, strict=True)]
    monkeypatch.setattr(collect, "capture_live", lambda: msgspec.structs.replace(here, gpus=gpus))
    monkeypatch.setattr(child, "command", lambda: [sys.executable, "-c", f"print({look!r})"])
    error = (run if words[0] == "verify" else prove_app)(*words[1:]).exception
    assert isinstance(error, NothingDetermined)
    assert (error.message, error.exit_code) == (told, 3)


def test_one_gpu_is_measured_to_the_host_and_cannot_be_proved(machine: Callable[..., None]) -> None:
    machine(n=1)
    result = run()
    assert "There is one GPU to measure, so only its way to the host was." in result.stdout
    error = prove_app("NCCL_ALGO=ring").exception
    assert isinstance(error, NothingDetermined)
    assert error.message == "there is one GPU, and this takes two that talk to each other"


def test_without_peer_access_the_pair_says_so(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    refused = CHILD.replace('"peer_access": True', '"peer_access": False')
    script = refused.replace("GBPS", "20.0").replace("OUTCOME", "ok")
    monkeypatch.setattr(child, "command", lambda: [sys.executable, "-c", script])
    result = run()
    assert result.stdout.count("no peer access: copies are staged through host memory") == 1


def prove_app(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(prove)
    return CliRunner().invoke(app, arguments)


PROVE_RANK = RANK.replace("20e9", "(22e9 if os.environ.get('NCCL_MIN_CTAS') == '32' else 20e9)").replace(
    "import json, sys", "import json, os, sys"
)


def test_prove_from_its_words_to_a_saved_trial(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child, "rank_command", lambda: [sys.executable, "-c", PROVE_RANK])
    path = tmp_path / "node.json"
    result = prove_app(
        "NCCL_MIN_CTAS=32", "--size", "64M", "--rounds", "4", "--nccl", "libnccl.so.2", "--save", str(path)
    )
    assert result.exit_code == 0, result.output
    assert "Keep NCCL_MIN_CTAS=32: faster at 64 MiB all_reduce (+10.0 %)" in result.stdout
    trial = decode(path.read_bytes()).trials[0]
    assert (trial.settings, trial.keep, trial.gpus) == ({"NCCL_MIN_CTAS": "32"}, True, [0, 1])
    assert (
        prove_app("NCCL_ALGO=ring", "--size", "64M", "--rounds", "4", "--nccl", "x", "--save", str(path)).exit_code == 0
    )
    assert len(decode(path.read_bytes()).trials) == 2


def test_prove_says_before_it_measures_what_nccl_makes_of_a_value(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*anything: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("topoadvisor.verify.prove.prove", measured)
    result = prove_app("NCCL_MIN_CTAS=99999", "--nccl", "libnccl.so.2")
    assert "NCCL_MIN_CTAS=99999 is 64 to NCCL: NCCL has no more than 64 channels." in result.stderr


def test_prove_candidates_says_why_nothing_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = detect.read(["fixture:2x5090-container"], stdin=io.BytesIO())
    (tmp_path / "own.xml").write_text(nccl_graph.render(here, force=True)[0])
    dump = f"if path: open(path, 'w').write(open({str(tmp_path / 'own.xml')!r}).read())"
    rank = f"{RANK}import os\npath = os.environ.get('NCCL_GRAPH_DUMP_FILE')\n{dump}"
    look = json.dumps({"look": {"cupy": "14.2.0", "addresses": [gpu.address for gpu in here.gpus]}})
    monkeypatch.setattr(collect, "capture_live", lambda: here)
    monkeypatch.setattr(child, "command", lambda: [sys.executable, "-c", f"print({look!r})"])
    monkeypatch.setattr(child, "rank_command", lambda: [sys.executable, "-c", rank])
    result = prove_app("--candidates", "--nccl", "libnccl.so.2")
    assert result.exit_code == 0, result.output
    assert "Nothing is worth trying on this machine." in result.stdout
    assert "More channels: not tried, because not every pair has NVLink" in result.stdout
    assert "A graph file: not tried, because no rings beat NCCL's own in its own model." in result.stdout


@pytest.mark.parametrize("form", ["text", "json"])
def test_prove_candidates_says_what_is_not_known(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(child, "rank_command", lambda: [sys.executable, "-c", RANK])
    result = prove_app("--candidates", "--nccl", "libnccl.so.2", "--format", form)
    assert result.exit_code == 3, result.output
    assert "Whether anything is worth trying on this machine is not known." in result.stdout
    assert "pair.p2p.ok of GPU0-GPU1 is not known" in result.stdout
    assert "NCCL wrote no dump of its own rings" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("NCCL_ALGO=ring", "--candidates"),
        ("NCCL_ALGO",),
        ("--candidates", "--like", "ddp", "--size", "1M"),
        ("--candidates", "--collective", "broadcast"),
        ("--candidates", "--size", "1"),
        ("--candidates", "--rounds", "2"),
    ],
)
def test_prove_with_options_that_contradict(machine: Callable[..., None], arguments: tuple[str, ...]) -> None:
    result = prove_app(*arguments)
    assert result.exit_code == 2 or getattr(result.exception, "exit_code", 0) == 2
