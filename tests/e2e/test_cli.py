"""The program as a user runs it: exit codes, streams, pipes, and no traceback for any input."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from topoadvisor import cli, files

FIXTURES = sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json"))


def run(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "topoadvisor", *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )


def paste(name: str) -> bytes:
    document = json.loads((files.shipped("fixtures") / name / "snapshot.json").read_text(encoding="utf-8"))
    text: str = next(raw["text"] for raw in document["raw"] if raw["source"] == "nvidia-smi topo -m")
    return text.encode()


@pytest.mark.parametrize(
    "verb", [["scan"], ["matrix"], ["facts"], ["render"], ["emit", "nccl-conf"], ["emit", "shell"]]
)
@pytest.mark.parametrize("name", ["8x4090", "dgx-a100", "paste-8xa100"])
def test_every_analysing_verb_takes_a_fixture(verb: list[str], name: str) -> None:
    done = run(*verb, f"fixture:{name}")
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert b"Traceback" not in done.stderr


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n \n\t\n",
    "binary": bytes(range(256)) * 64,
    "half a snapshot": b'{"schema": "topoadvisor.snapshot/1", "gpus": [{"index": 0,',
    "wrong type": b'{"schema": "topoadvisor.snapshot/1", "gpus": [{"index": "zero"}]}',
    "other json": b'{"hello": 1}',
    "json list": b"[1, 2, 3]",
    "deep json": b"[" * 100_000,
    "half an xml": b'<system version="1"><cpu numaid="0"><pci busid="0000:01',
    "deep xml": b"<system version='1'>" + b"<pci>" * 50_000,
    "entity bomb": b'<!DOCTYPE a [<!ENTITY b "x"><!ENTITY c "&b;&b;">]><system>&c;</system>',
    "prose": b"the quick brown fox\njumps over GPU0 and the lazy dog\n",
    "two thousand columns": ("\t" + "\t".join(f"GPU{n}" for n in range(2000)) + "\nGPU0\t X \tPIX\n").encode(),
    "long line": b"GPU0 " * 400_000,
    "nul": b"\x00" * 4096,
    "utf-16 noise": "GPU0\tX\n".encode("utf-16-le"),
}


@pytest.mark.parametrize("verb", ["scan", "matrix"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_input_gets_one_sentence_and_a_hint(kind: str, verb: str, tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.write_bytes(HOSTILE[kind])
    named = run(verb, str(source))
    for done in (named, run(verb, "-", stdin=HOSTILE[kind])) if verb == "scan" else (named,):
        told = done.stderr.decode()
        assert done.returncode in (0, 1, 2), (done.returncode, told)
        assert "Traceback" not in told
        assert "internal error" not in told
        if done.returncode == 2:
            assert told.startswith("topoadvisor: ")
            assert "hint: " in told
            assert len(told.splitlines()) <= 3
    if named.returncode == 2:
        assert str(source) in named.stderr.decode()


def test_a_directory_a_missing_file_and_a_wrong_fixture_each_get_their_sentence(tmp_path: Path) -> None:
    for source, word in ((str(tmp_path), "directory"), (str(tmp_path / "no"), "no such file"), ("fixture:dgx", "dgx-")):
        done = run("scan", source)
        assert done.returncode == 2
        assert word in done.stderr.decode().lower()


def test_wrong_usage_is_exit_code_two() -> None:
    assert run("scna").returncode == 2
    assert run("scan", "--format", "yaml", "fixture:8x4090").returncode == 2
    assert run("scan", "fixture:8x4090", "--assume", "cpu.vendor").returncode == 2
    assert run("scan", "fixture:8x4090", "--assume", "cpu.vendr=AMD").returncode == 2


def test_findings_decide_the_exit_code_as_far_as_fail_on_says() -> None:
    assert run("scan", "fixture:dgx-h100-broken-link").returncode == 1
    assert run("scan", "fixture:dgx-h100-broken-link", "--fail-on", "never").returncode == 0
    assert run("scan", "fixture:2x5090-container").returncode == 0
    assert run("scan", "fixture:2x5090-container", "--fail-on", "warning").returncode == 1
    assert run("scan", "fixture:dgx-h100", "--fail-on", "warning").returncode == 0


def test_the_product_is_on_stdout_and_plain_in_a_pipe() -> None:
    done = run("scan", "fixture:8x4090")
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""
    assert b"\x1b" in run("scan", "fixture:8x4090", FORCE_COLOR="1").stdout
    assert b"\x1b" not in run("scan", "fixture:8x4090", FORCE_COLOR="1", NO_COLOR="1").stdout


def test_scan_json_is_an_advice_document() -> None:
    document = json.loads(run("scan", "fixture:8xa100-p2p-disabled", "--format", "json").stdout)
    assert document["schema"] == "topoadvisor.advice/1"
    assert {"findings", "settings", "already_right", "unknown", "plan", "sources", "node"} <= set(document)
    (finding,) = document["findings"]
    assert {"id", "name", "severity", "subject", "message", "evidence", "advice"} <= set(finding)
    (setting,) = document["settings"]
    assert setting["action"] == "unset"
    assert setting["class"] == "workaround"


@pytest.mark.parametrize("name", FIXTURES)
def test_matrix_of_a_matrix_is_the_identity(name: str) -> None:
    first = run("matrix", f"fixture:{name}").stdout
    assert run("matrix", "-", stdin=first).stdout == first


def test_a_paste_from_standard_input_is_scanned_with_assumed_facts() -> None:
    done = run("scan", "-", "--assume", "gpu.name=NVIDIA A100-SXM4-80GB", "--assume", "nccl.version=2.28.9",
               stdin=paste("dgx-a100"))  # fmt: skip
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "8 × NVIDIA A100-SXM4-80GB" in text
    assert "Assumed: gpu.name" in text
    assert "300 GB/s" in text


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m topoadvisor facts fixture:dgx-h100 | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


def test_capture_here_writes_a_snapshot_that_scan_reads(tmp_path: Path) -> None:
    target = tmp_path / "here.json"
    captured = run("capture", "--redact", "-o", str(target))
    assert captured.returncode in (0, 3), captured.stderr
    scanned = run("scan", str(target))
    assert scanned.returncode in (0, 1, 3), scanned.stderr
    assert b"Traceback" not in captured.stderr + scanned.stderr


def test_live_and_offline_analysis_agree(tmp_path: Path) -> None:
    """scan of this machine is capture followed by scan of the file."""
    target = tmp_path / "here.json"
    run("capture", "-o", str(target))
    live, offline = run("scan", "--format", "json"), run("scan", str(target), "--format", "json")
    assert live.returncode == offline.returncode
    if live.returncode in (0, 1):
        assert json.loads(live.stdout) == json.loads(offline.stdout)


def test_a_name_from_a_foreign_file_does_not_steer_the_terminal(tmp_path: Path) -> None:
    document = json.loads((files.shipped("fixtures") / "8x4090" / "snapshot.json").read_text(encoding="utf-8"))
    document["gpus"][0]["name"] = "RTX \x1b]0;owned\x07 4090 \u202e"
    source = tmp_path / "odd.json"
    source.write_text(json.dumps(document), encoding="utf-8")
    shown = run("scan", str(source)).stdout.decode()
    assert "\x07" not in shown
    assert "\x1b]" not in shown
    assert "\u202e" not in shown


def test_an_output_that_cannot_show_arrows_is_no_error() -> None:
    done = run("scan", "fixture:8x4090", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert b"P2P001" in done.stdout


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": [{"index": -1}]},
        {"gpus": [{"index": 0, "compute_capability": "abc"}, {"index": 0}]},
        {"gpus": [{"index": 2}, {"index": 1}], "settings": [
            {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1", "origin": "environment"}]},
        {"gpus": [{"index": 0}, {"index": 1}], "nccl_libraries": [{"path": "x", "version": "latest"}],
         "settings": [{"name": "NCCL_P2P_LEVEL", "value": "SYS", "origin": "environment"}]},
        {"gpus": [{"index": 0}, {"index": 1}], "host": {"cpu": {"sockets": 0}, "numa_nodes": [{"id": 0}]}},
        {"gpus": [{"index": 0}], "nics": [{"name": "²"}, {"name": "mlx5_0", "rdma": True}]},
    ],
)  # fmt: skip
def test_odd_snapshots_are_analysed_or_refused_in_one_sentence(change: dict[str, object], tmp_path: Path) -> None:
    source = tmp_path / "odd.json"
    source.write_text(json.dumps({"schema": "topoadvisor.snapshot/1", **change}), encoding="utf-8")
    done = run("scan", str(source))
    told = done.stderr.decode()
    assert done.returncode in (0, 1, 2), told
    assert "Traceback" not in told
    assert "internal error" not in told


@pytest.mark.parametrize(
    ("redirections", "code", "said"),
    [
        ("<&-", 0, ""),
        (">&-", 2, "hint: Standard output is closed"),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
        (">/dev/full", 2, "No space left"),
        ("<&- >&- 2>&-", 2, ""),
    ],
)
def test_standard_streams_may_be_closed_or_full(redirections: str, code: int, said: str) -> None:
    command = f"{sys.executable} -m topoadvisor scan fixture:8x4090 {redirections}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert done.returncode == code
    assert said in done.stderr.decode()
    assert b"internal error" not in done.stderr


def test_a_file_is_not_written_into_a_closed_standard_output(tmp_path: Path) -> None:
    target = tmp_path / "topology.svg"
    command = f"{sys.executable} -m topoadvisor render fixture:8x4090 -o {target} >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], timeout=60, check=False).returncode == 0
    assert target.read_text().rstrip().endswith("</svg>")


@pytest.mark.parametrize("arguments", [["scan", "fixture:8x4090", "--assume", "cpu.vendor=\udcff"],
                                       ["scan", "fixture:8x4090", "--rules", "\udcff"],
                                       ["scan", "\udcff"], ["rules", "explain", "\udcff"]])  # fmt: skip
def test_arguments_that_are_no_utf8_text(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert b"internal error" not in done.stderr


def test_completion_without_a_shell() -> None:
    done = run(_TOPOADVISOR_COMPLETE="complete_bash")
    assert done.returncode == 2
    assert b"internal error" not in done.stderr


def test_an_error_that_quotes_a_foreign_text_does_not_steer_the_terminal() -> None:
    done = run("rules", "explain", "\x1b]0;owned\x07\u202e" + "x" * 50_000)
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert b"\x07" not in done.stderr
    assert len(done.stderr) < 10_000


@pytest.mark.parametrize("deadline", ["nan", "inf", "0", "1e10", "soon"])
def test_a_deadline_that_is_no_time(deadline: str) -> None:
    done = run("verify", "--deadline", deadline)
    assert done.returncode == 2
    assert b"is no number of seconds" in done.stderr


def test_json_on_standard_output_keeps_every_letter(tmp_path: Path) -> None:
    document = json.loads((files.shipped("fixtures") / "8x4090" / "snapshot.json").read_text(encoding="utf-8"))
    document["gpus"][0]["name"] = name = "RTX \x1b[31m\x9b \u202e"
    source = tmp_path / "odd.json"
    source.write_text(json.dumps(document), encoding="utf-8")
    shown = run("facts", str(source), "--format", "json").stdout
    assert b"\xc2\x9b" not in shown
    assert name in shown.decode("unicode_escape")


QUERY = (
    "==============NVSMI LOG==============\n\nDriver Version : 580.65.06\nAttached GPUs : 8\n"
    + "".join(
        f"GPU 00000000:{bus}:00.0\n    Product Name : NVIDIA A100-SXM4-80GB\n    GPU UUID : GPU-0000000{bus}\n"
        for bus in ("07", "0f", "47", "4e", "87", "90", "b7", "bd")
    )
).encode()


@pytest.mark.parametrize(
    "verb", [["scan"], ["matrix"], ["facts"], ["render"], ["emit", "nccl-conf"], ["emit", "shell"]]
)
def test_every_analysing_verb_takes_several_sources(verb: list[str], tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_bytes(paste("paste-8xa100"))
    done = run(*verb, str(tmp_path / "topo.txt"), "-", stdin=QUERY)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert b"Traceback" not in done.stderr


def test_the_output_names_the_parts_and_who_said_what(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_bytes(paste("paste-8xa100"))
    (tmp_path / "q.txt.gz").write_bytes(gzip.compress(QUERY))
    done = run("scan", str(tmp_path))
    assert b"8 \xc3\x97 NVIDIA A100-SXM4-80GB" in done.stdout
    assert b"Read: nvidia-smi (-q, topo -m)" in done.stdout
    shown = run("facts", str(tmp_path), "--filter", "gpu.name").stdout.decode()
    assert "nvidia-smi -q" in shown


def test_sources_that_cannot_go_together_are_one_sentence(tmp_path: Path) -> None:
    done = run("scan", "fixture:8x4090", "fixture:dgx-a100")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"fixture:dgx-a100: this is another machine than that of fixture:8x4090" in done.stderr
    assert run("scan", "-", "-", stdin=QUERY).returncode == 2
    alone = run("scan", "-", stdin=b"Architecture:   x86_64\nSocket(s):   2\n")
    assert (alone.returncode, alone.stdout) == (3, b"")
    assert b"nvidia-smi -q" in alone.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["emit", "nccl-conf", "fixture:8x4090", "--write", ""],
        ["emit", "shell", "fixture:8x4090", "--write", ""],
        ["emit", "nccl-topo", "fixture:8x4090", "-o", ""],
        ["render", "fixture:8x4090", "-o", ""],
        ["capture", "-o", ""],
        ["capture", "--root", ""],
        ["verify", "--save", ""],
        ["rules", "check", "--rules", ""],
        ["scan", "fixture:8x4090", "--rules", ""],
        ["scan", "fixture:8x4090", "--assume-file", ""],
        ["scan", "fixture:8x4090", "--baseline", ""],
    ],
)
def test_an_empty_name_is_not_the_present_folder(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"empty name" in done.stderr
    assert b"hint: " in done.stderr


@pytest.mark.parametrize("name", ["c/", "c/.", ".", "c/..", "./"])
def test_the_name_of_a_folder_is_no_file_to_write(name: str, tmp_path: Path) -> None:
    for verb in (["emit", "nccl-conf"], ["render"]):
        done = run(*verb, "fixture:8x4090", "--write" if verb[0] == "emit" else "-o", f"{tmp_path}/{name}")
        assert done.returncode == 2
        assert b"names no file" in done.stderr
    assert list(tmp_path.iterdir()) == []


def limited(limit: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = f'ulimit {limit} && exec "$@"'
    return subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-m", "topoadvisor", *arguments], capture_output=True, check=False
    )


@pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")
@pytest.mark.parametrize("verb", [["rings"], ["render", "--format", "svg"]])
def test_too_little_memory_for_numpy_is_a_sentence(verb: list[str]) -> None:
    """Its linear algebra would end the process, with the exit code of findings."""
    done = limited("-v 150000", *verb, "fixture:dgx-1v")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"topoadvisor: there is not enough memory\nhint: ")


@pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")
def test_a_scan_with_little_memory_leaves_the_rings_out() -> None:
    done = limited("-v 150000", "scan", "fixture:dgx-1v", "--fail-on", "never")
    assert done.returncode == 0
    assert b"no rings are planned" in done.stderr
    assert b"Rings" not in done.stdout
    assert b"Settings" in done.stdout


@pytest.mark.parametrize(
    ("error", "room", "code"),
    [
        (MemoryError(), True, 2),
        (OSError(12, "Cannot allocate memory"), True, 2),
        (ImportError("x.so: failed to map segment from shared object"), True, 2),
        (SystemError("error return without exception set"), False, 2),
        (SystemError("error return without exception set"), True, 70),
        (ImportError("no module x"), True, 70),
    ],
)
def test_want_of_memory_is_no_internal_error(
    error: Exception, room: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        try:
            raise error
        except Exception as cause:
            raise RuntimeError("a library gave up") from cause

    monkeypatch.setattr(cli, "app", fails)
    monkeypatch.setattr(cli, "_register", lambda: None)
    fails.registered_commands = [1]  # type: ignore[attr-defined]
    monkeypatch.setattr(cli, "has_room", lambda size: room)
    assert cli.main([]) == code
    assert ("not enough memory" in capsys.readouterr().err) is (code == 2)


@pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")
def test_too_few_files_is_a_sentence_with_a_hint(tmp_path: Path) -> None:
    done = limited("-n 7", "render", "fixture:8x4090", "-o", f"{tmp_path}/x.svg")
    assert done.returncode == 2
    assert b"Too many open files\nhint: This process may open too few files" in done.stderr


def test_help_loads_nothing_heavy() -> None:
    program = "import sys\nfrom topoadvisor.cli import main\nmain(['--help'])\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert not {"numpy", "networkx", "matplotlib", "highspy", "cel"} & set(done.stderr.split())


@pytest.mark.parametrize(
    "error", ["KeyboardInterrupt", "MemoryError", "SystemError", "ImportError('x: failed to map segment')"]
)
def test_what_ends_the_program_while_it_loads_is_said(error: str, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(f"raise {error}\n")
    done = run("--help", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    interrupted = error == "KeyboardInterrupt"
    assert done.returncode == (130 if interrupted else 2)
    said = b"interrupted" if interrupted else b"there is not enough memory"
    assert done.stderr == b"topoadvisor: " + said + b"\n"
