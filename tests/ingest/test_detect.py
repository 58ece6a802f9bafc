from __future__ import annotations

import gzip
import io
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from topoadvisor import files
from topoadvisor.errors import InputError
from topoadvisor.ingest import detect
from topoadvisor.measurements.model import Trial
from topoadvisor.snapshot import Gpu, Host, Nic, NumaNode, Setting, Snapshot, encode

MATRIX = "\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV1\t X \n"
XML = (
    '<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200">'
    '<gpu dev="0" sm="90"/></pci></cpu></system>'
)
SNAPSHOT = Snapshot(gpus=[Gpu(index=0, name="é")])


def of(data: bytes) -> Snapshot:
    return detect.from_bytes(data, file="input")


@pytest.mark.parametrize(
    "data",
    [
        MATRIX.encode(),
        b"\xef\xbb\xbf" + MATRIX.encode(),
        MATRIX.encode("utf-16"),
        MATRIX.encode("utf-16-le"),
        MATRIX.encode("utf-16-be"),
        ("é\n" + MATRIX).encode("latin-1"),
        MATRIX.encode().replace(b"\n", b"\r\n"),
        b"[user@host ~]$ nvidia-smi topo -m\n" + MATRIX.encode(),
        b"{node-1}\n" + MATRIX.encode(),
        b"<details>\n\n" + MATRIX.encode() + b"</details>\n",
        MATRIX.encode().replace(b"GPU1\tNV1", b"GPU1\0\tNV1"),
    ],
)
def test_a_matrix(data: bytes) -> None:
    found = of(data)
    assert found.origin == "matrix"
    assert found.matrices[0].cells == {"GPU0": {"GPU1": "NV1"}, "GPU1": {"GPU0": "NV1"}}


@pytest.mark.parametrize(
    "document",
    [
        {"cells": [{"outputs": [{"text": MATRIX.splitlines(keepends=True)}], "source": ["!nvidia-smi topo -m"]}]},
        [{"host": "node", "stdout_lines": MATRIX.split("\n")}],
        {"node": {"stdout": MATRIX}},
    ],
)
def test_what_another_program_keeps_in_json(document: object) -> None:
    """A notebook, what a task printed."""
    for indent in (None, 1):
        found = of(json.dumps(document, indent=indent).encode())
        assert found.matrices[0].cells == {"GPU0": {"GPU1": "NV1"}, "GPU1": {"GPU0": "NV1"}}
    with pytest.raises(InputError, match="this is JSON, but not a snapshot"):
        of(json.dumps({"GPU": "none here"}).encode())


@pytest.mark.parametrize("text", [XML, f"<?xml version='1.0'?>\n<!-- a system -->\n{XML}", "\ufeff" + XML])
def test_an_nccl_topology(text: str) -> None:
    assert of(text.encode()).origin == "nccl-topology-xml"


def test_a_snapshot() -> None:
    assert of(encode(SNAPSHOT)) == SNAPSHOT
    last = b'{"gpus":[{"index":0}],"raw":[{"source":"x","text":"' + b"x" * 100_000
    last += b'"}],"schema":"topoadvisor.snapshot/1"}'
    assert of(last).gpus[0].index == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "this is empty"),
        (b" \r\n\t\n", "this is empty"),
        (bytes(range(256)) * 40, "binary data"),
        (b"\0" * 10_000, "binary data"),
        (gzip.compress(b"hello", mtime=0), "no GPU topology matrix"),
        (
            gzip.compress(gzip.compress(gzip.compress(b"", mtime=0), mtime=0), mtime=0),
            "compressed data inside compressed data",
        ),
        (b"PK\x03\x04rest", "zip archive"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
        (encode(SNAPSHOT)[:60], "broken here, or ends too early"),
        (b'{"schema": "topoadvisor.snapshot/1", "gpus": [{"index": "x"}]}', "$.gpus[0].index"),
        (b'{"schema": "topoadvisor.snapshot/1", "gpu": []}', "unknown field `gpu`"),
        (b'{"schema": "topoadvisor.snapshot/9"}', "topoadvisor.snapshot/1"),
        (b'{"schema": "topoadvisor.advice/1"}', "topoadvisor.advice/1"),
        (b'{"a": 1}', "not a snapshot"),
        (b"[1, 2]", "not a snapshot"),
        (b'{"a": [1, 2', "begins like JSON"),
        (b'{"a":' * 200_000, "begins like JSON"),
        (b"[" * 200_000, "no GPU topology matrix"),
        (b'<graphs version="1"/>', "NCCL graph XML: the rings and trees"),
        (b'<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology/>', "no <object> in this topology"),
        (b'<!DOCTYPE nvidia_smi_log SYSTEM "x"><nvidia_smi_log/>', "no GPU topology matrix"),
        (b'<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]><nvidia_smi_log/>', "document type with rules of its own"),
        (b'<?xml version="1.0"?><other/>', "this XML is none"),
        (XML.encode()[:60], "the XML is broken here"),
        (b"host:1:1 [0] NCCL INFO Bootstrap\n", "a log of NCCL"),
        (b"==============NVSMI LOG==============\n", "no GPU topology matrix"),
        (b"00:01.0 Host bridge: AMD\n", "no GPU topology matrix"),
        (b"hello\n", "no GPU topology matrix"),
        (b"hello\n" * 11_000_000, "no GPU topology matrix"),
        (b"a" * (detect.MAX_BYTES + 1), "no GPU topology matrix"),
        (b"{" * (detect.MAX_BYTES + 1), "more than 64 MiB"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_a_hint(data: bytes, words: str) -> None:
    started = time.perf_counter()
    with pytest.raises(InputError) as error:
        of(data)
    assert words in error.value.message
    assert error.value.message.startswith("input")
    assert error.value.hint
    assert time.perf_counter() - started < 10, "something is not linear"


def read(source: str, stdin: bytes = b"") -> Snapshot:
    return detect.read(source, stdin=io.BytesIO(stdin))


def test_a_file_and_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(MATRIX, encoding="utf-8")
    assert read(str(path)).matrices == read("-", MATRIX.encode()).matrices
    with pytest.raises(InputError, match="standard input: this is empty"):
        read("-")


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    for source, words in (
        (str(tmp_path / "nothing"), "no such file"),
        (str(tmp_path), "no file in it"),
        ("", "empty name"),
        ("a\0b", "cannot be read"),
        ("x" * 5000, "cannot be read"),
    ):
        with pytest.raises(InputError) as error:
            read(source)
        assert words in error.value.message
        assert error.value.hint
        assert len(error.value.message) < 300


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(MATRIX, encoding="utf-8")
    path.chmod(0)
    with pytest.raises(InputError, match="may not read"):
        read(str(path))


def test_a_permission_error_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="secret: you may not read this file"):
        read("secret")


@pytest.fixture
def fixtures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dgx-a100", "dgx-h100", "gh200"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "snapshot.json").write_bytes(encode(SNAPSHOT))
    (tmp_path / "notes").mkdir()
    monkeypatch.setattr(files, "shipped", lambda kind: tmp_path)


@pytest.mark.usefixtures("fixtures")
def test_a_fixture() -> None:
    assert read("fixture:gh200") == SNAPSHOT


@pytest.mark.usefixtures("fixtures")
@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("fixture:", "none follows", "There are: dgx-a100, dgx-h100, gh200."),
        ("fixture:dgx-a10", "no fixture 'dgx-a10'", "Did you mean dgx-a100"),
        ("fixture:../gh200", "no fixture", "gh200"),
        ("fixture:notes", "no fixture", "There are:"),
        ("gh200", "no such file", "Did you mean fixture:gh200?"),
    ],
)
def test_fixtures_that_are_not_there(source: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        read(source)
    assert message in error.value.message
    assert hint in str(error.value.hint)


TWO = [Gpu(index=0), Gpu(index=1)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": [Gpu(index=n) for n in range(129)]}, "129 GPUs; topoadvisor takes up to 128"),
        ({"nics": [Nic(name=f"eth{n}") for n in range(513)]}, "513 network devices"),
        ({"settings": [Setting(name="A", value="", origin="x")] * 5000}, "5000 settings"),
        ({"gpus": TWO, "trials": [Trial(settings={"A": "1"}, gpus=[0, 1])] * 5000}, "5000 trials"),
        ({"host": Host(numa_nodes=[NumaNode(id=n) for n in range(2000)])}, "2000 NUMA nodes"),
        ({"gpus": [Gpu(index=0, name="A" * 2000)]}, "a device in 2000 letters"),
    ],
)
def test_more_than_one_machine_has_is_refused_at_once(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        of(encode(msgspec.structs.replace(SNAPSHOT, **change)))


def test_more_than_one_machine_has_is_refused_from_a_foreign_file_too() -> None:
    cpus = "".join(f"<cpu numaid='{n}' arch='x86_64'/>" for n in range(3000))
    with pytest.raises(InputError, match="3000 NUMA nodes"):
        of(f"<system version='1'>{cpus}</system>".encode())


@pytest.mark.parametrize("text", ["x\n" + "\n" * 65_536, "=" * 65_536, " " * 65_536 + "x", "GPU " * 20_000])
def test_a_long_text_without_a_matrix_is_refused_in_linear_time(text: str) -> None:
    start = time.process_time()
    with pytest.raises(InputError):
        of(text.encode())
    assert time.process_time() - start < 5  # it took minutes when a pattern could start anywhere


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.gpus[0].index", -1),
        ("$.gpus[0].index", 10**30),
        ("$.gpus[0].memory_bytes", 10**400),
        ("$.host.memlock_bytes", -(2**63) - 1),
        ("$.host.shm_total_bytes", 2**63),
    ],
)
def test_a_number_that_no_machine_has_is_named_with_its_path(path: str, value: int) -> None:
    document = msgspec.to_builtins(msgspec.structs.replace(SNAPSHOT, gpus=[Gpu(index=0)]))
    _, group, field = path.replace("[0]", "").split(".")
    where = document["gpus"][0] if group == "gpus" else document.setdefault(group, {})
    where[field] = value
    with pytest.raises(InputError, match=re.escape(path)):
        of(json.dumps({"schema": "topoadvisor.snapshot/1", **document}).encode())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": [{"index": 1}, {"index": 1}]}, r"\$\.gpus\[1\]\.index is 1 like \$\.gpus\[0\]\.index"),
        (
            {"gpus": [{"index": 0, "address": "0000:1a:00.0"}, {"index": 1, "address": "0000:1a:00.0"}]},
            r"\$\.gpus\[1\]\.address is 0000:1a:00\.0 like",
        ),
        ({"gpus": [{"index": 0, "nvlinks": [{"link": 3}, {"link": 3}]}]}, r"nvlinks\[1\]\.link is 3 like"),
        ({"p2p": [{"a": 0, "b": 1}, {"a": 0, "b": 1}]}, r"\$\.p2p\[1\]\.b is 1 like"),
        ({"pci": [{"address": "0000:1a:00.0"}] * 2}, r"\$\.pci\[1\]\.address is"),
        ({"host": {"numa_nodes": [{"id": 0}, {"id": 0}]}}, r"numa_nodes\[1\]\.id is 0 like"),
        ({"gpus": [{"index": 0, "address": "zz:zz"}]}, r"\$\.gpus\[0\]\.address is 'zz:zz', which is no PCI address"),
        ({"pci": [{"address": "0000:1a:00.0", "parent": "1"}]}, r"\$\.pci\[0\]\.parent is '1'"),
        ({"nics": [{"name": "mlx5_0", "address": "1A:00.0"}]}, r"\$\.nics\[0\]\.address is '1A:00\.0'"),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused_with_the_place(change: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        detect.from_bytes(json.dumps({"schema": "topoadvisor.snapshot/1", **change}).encode(), file="s.json")


def test_links_and_pairs_of_different_devices_may_have_one_number() -> None:
    change = {
        "gpus": [{"index": gpu, "nvlinks": [{"link": 0}, {"link": 1}]} for gpu in (0, 1)],
        "p2p": [{"a": 0, "b": 1}, {"a": 1, "b": 0}, {"a": 2, "b": 1}],
    }
    found = detect.from_bytes(json.dumps({"schema": "topoadvisor.snapshot/1", **change}).encode(), file="s.json")
    assert len(found.p2p or []) == 3
