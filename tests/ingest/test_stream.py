from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from topoadvisor.errors import InputError
from topoadvisor.ingest import detect, stream
from topoadvisor.snapshot import Snapshot, Source

LINE = "_" * 44 + "\n\n"
MATRIX = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV2\tPIX\t0-31\nGPU1\tNV2\t X \tSYS\t0-31\nNIC0\tPIX\tSYS\t X \n"
LEGEND = "\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
UUIDS = [f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in range(9)]
QUERY = "==============NVSMI LOG==============\n\nDriver Version : 580.65.06\nAttached GPUs : 2\n" + "".join(
    f"GPU 00000000:{bus}:00.0\n    Product Name : NVIDIA H100 80GB HBM3\n    GPU UUID : {uuid}\n"
    for bus, uuid in (("1b", UUIDS[0]), ("43", UUIDS[1]))
)
LSPCI = (
    "00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2]\n\tNUMA node: 0\n\n"
    "1b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n\tNUMA node: 0\n"
    "00: de 10 30 23 06 04 10 00 a1 00 02 03 00 00 00 00\n\n"
    "43:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n\tNUMA node: 0\n\n"
)
HEAD = "nvidia-bug-report.sh Version: 1\n\nuname: Linux node-a 6.8.0-1-generic #1 SMP x86_64 GNU/Linux\n\n"
LSCPU = "Architecture:        x86_64\nCPU(s):              16\nModel name:          AMD EPYC 7763\n"
SECTIONS = [LINE + HEAD, LINE + "lspci -nnDvvvxxxx\n\n" + LSPCI, LINE + QUERY, "\n" + MATRIX + LEGEND]
NOISE = "".join(
    f"Jan  5 10:00:{number % 60:02d} node-a kernel: NVRM: GPU at PCI:0000:1b:00: controller [{number}] up\n"
    for number in range(25_000)
)
"""2 MiB of a kernel log, more than is read as a whole."""


def of(data: bytes) -> Snapshot:
    return detect.from_bytes(data, file="report")


def facts(snapshot: Snapshot) -> Snapshot:
    """What was read, without the text itself and the lines where tables begin."""
    matrices = [msgspec.structs.replace(matrix, first_line=None) for matrix in snapshot.matrices]
    return msgspec.structs.replace(snapshot, raw=[], matrices=matrices)


def test_a_bug_report_names_its_parts() -> None:
    # The script appends each of its sections as a gzip member of its own.
    report = b"".join(gzip.compress(section.encode()) for section in SECTIONS)
    snapshot = of(report)
    assert [source.name for source in snapshot.sources] == [
        "nvidia-smi topo -m",
        "uname -a",
        "nvidia-smi -q",
        "lspci -vv",
    ]
    assert [(gpu.address, gpu.uuid) for gpu in snapshot.gpus] == [
        ("0000:1b:00.0", UUIDS[0]),
        ("0000:43:00.0", UUIDS[1]),
    ]
    assert (snapshot.host.hostname, snapshot.driver.version) == ("node-a", "580.65.06")
    assert [nic.name for nic in snapshot.nics or []] == ["mlx5_0"]
    assert facts(of("".join(SECTIONS).encode())) == facts(snapshot)


def test_a_long_report_says_the_same_as_a_short_one() -> None:
    long = NOISE + SECTIONS[0] + SECTIONS[1] + SECTIONS[2] + NOISE + SECTIONS[3] + "the end\n"
    assert len(long) > stream.WHOLE
    short = facts(of("".join(SECTIONS).encode()))
    for data in (long.encode(), long.replace("\n", "\r\n").encode(), gzip.compress(long.encode())):
        snapshot = of(data)
        assert facts(snapshot) == short
        (matrix,) = snapshot.matrices
        assert matrix.first_line == long[: long.index("\tGPU0\tGPU1")].count("\n") + 1
        assert sum(len(raw.text) for raw in snapshot.raw) < 10_000, "the log is not kept"


@pytest.mark.parametrize(
    "line", ["GPU0 hello", "GPU0: 35 %", "GPU 0: 35 %", "the controller of a bridge", "rank 3 GPU memory 80 GiB"]
)
def test_lines_that_only_name_a_device_cost_nothing_and_hide_nothing(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []
    monkeypatch.setattr(stream._Sieve, "_line", lambda self, raw, *rest: looked_at.append(raw))
    noise = f"{line}\n" * (stream.WHOLE // len(line))
    with pytest.raises(InputError, match="no GPU topology"):
        of(noise.encode())
    assert not looked_at
    monkeypatch.undo()
    assert facts(of((noise + "".join(SECTIONS)).encode())) == facts(of("".join(SECTIONS).encode()))


def test_two_machines_far_apart_in_a_long_text_stay_two() -> None:
    snapshot = of((MATRIX + NOISE + MATRIX.replace("NV2", "SYS").replace("0-31", "0-15")).encode())
    assert len(snapshot.matrices) == 2
    assert "2 matrices" in (snapshot.sources[0].reason or "")


def test_a_long_text_is_read_in_little_memory() -> None:
    class Endless(io.RawIOBase):
        left = 20 << 20

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            size = min(size, self.left, 1 << 16)
            self.left -= size
            return (b"all quiet on this line\n" * 4096)[:size]

    tracemalloc.start()
    with pytest.raises(InputError, match="no GPU topology matrix"):
        stream.parts(Endless(), "long", detect.parts, detect.check)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_line_without_an_end_is_passed_over() -> None:
    snapshot = of(b"x" * (stream.WHOLE + 10) + b"\n" + QUERY.encode() + b"\n" + NOISE.encode())
    assert len(snapshot.gpus) == 2


def test_what_unpacks_to_too_much_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_UNPACKED", 8 << 20)
    bomb = gzip.compress(b"nothing\n" * (4 << 20))
    for data in (bomb, tar({"a.gz": bomb})):
        with pytest.raises(InputError) as error:
            of(data)
        assert "more than 8 MiB once it is unpacked" in error.value.message
        assert error.value.hint


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_texts_one_behind_the_other(pack: Callable[[bytes], bytes]) -> None:
    packed = b"".join(pack(section.encode()) for section in SECTIONS)
    assert of(packed) == of("".join(SECTIONS).encode())
    assert of(packed + b"\0" * 512) == of(packed)


def test_gzip_data_that_was_cut_gives_what_is_in_it() -> None:
    body = "".join(SECTIONS).encode()
    packed = gzip.compress(body) + gzip.compress(NOISE.encode())[:-200]
    snapshot = of(packed)
    assert len(snapshot.gpus) == 2
    assert all("the gzip data ends too early" in (source.reason or "") for source in snapshot.sources)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gzip.compress(b"hello" * 1000, mtime=0)[:20], "the gzip data ends too early"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 100, "the gzip data is damaged"),
        (b"\x1f\x8b", "the gzip data ends too early"),
        (b"\x1f\x8b" + b"\0" * 100, "the gzip data is damaged"),
        (bz2.compress(b"hello" * 1000)[:20], "the bzip2 data ends too early"),
        (b"BZh9" + b"\xff" * 100, "the bzip2 data is damaged"),
        (lzma.compress(b"hello" * 1000)[:40], "the xz data ends too early"),
        (lzma.compress(b"a", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]), "asks for more than 256 MiB"),
    ],
)
def test_compressed_data_that_hold_nothing(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        of(data)


def tar(members: dict[str, bytes], *extra: tarfile.TarInfo, mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in extra:
            archive.addfile(info)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_of_texts(mode: str) -> None:
    data = tar(
        {
            "node/topo.txt": (MATRIX + LEGEND).encode(),
            "node/q.txt.gz": gzip.compress(QUERY.encode()),
            "node/" + "long-name/" * 20 + "lspci.txt": LSPCI.encode(),
            "node/readme.md": b"# no part of anything\n",
            "node/picture.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 5000,
            "node/head.txt": HEAD.encode(),
        },
        mode=mode,
    )
    snapshot = of(data)
    assert facts(snapshot).gpus == facts(of("".join(SECTIONS).encode())).gpus
    assert {source.name for source in snapshot.sources} == {
        "nvidia-smi topo -m",
        "nvidia-smi -q",
        "lspci -vv",
        "uname -a",
        "report",
    }
    left_out = snapshot.source("report")
    assert left_out is not None
    assert left_out.reason == (
        "passed over: node/readme.md (this text has no GPU topology matrix), "
        "node/picture.png (this is a picture, not text)"
    )


def test_nothing_in_a_tar_is_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(MATRIX, encoding="utf-8")
    links = []
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
        info = tarfile.TarInfo(f"link-{kind!r}")
        info.type, info.linkname = kind, str(secret)
        links.append(info)
    with pytest.raises(InputError, match="there is no file in it"):
        of(tar({}, *links))
    before = sorted(path.name for path in tmp_path.iterdir())
    outside = tmp_path / "outside.txt"
    snapshot = of(tar({str(outside): QUERY.encode(), "../../up.txt": LSPCI.encode()}, *links))
    assert len(snapshot.gpus) == 2, "a name is only a name"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_tar_that_is_damaged_or_was_cut() -> None:
    data = bytearray(tar({"q.txt": QUERY.encode(), "z.txt": LSPCI.encode()}))
    cut = of(bytes(data[: len(QUERY) + 600]))
    assert len(cut.gpus) == 2
    assert cut.sources[-1] == Source(name="report", status="partial", reason="the tar ends too early")
    inside = of(bytes(data[: data.index(LSPCI.encode()) + 100]))
    assert (inside.sources[-1].reason or "").startswith("the tar ends too early, inside z.txt")
    data[140] ^= 0xFF
    with pytest.raises(InputError, match="the tar is damaged"):
        of(bytes(data))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_cut_archive_is_damaged_input_where_no_gpu_stands_before_the_cut(mode: str) -> None:
    noise = random.Random(1).randbytes(2_000_000).hex().encode()
    data = tar({"lscpu.txt": LSCPU.encode(), "noise.txt": noise, "topo.txt": MATRIX.encode()}, mode=mode)
    assert len(of(data).gpus) == 2
    with pytest.raises(InputError, match="too early"):
        of(data[: len(data) // 2])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_cut_text_is_used_beside_another_that_shows_gpus(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(2_000_000).hex().encode()
    data = pack(LSCPU.encode() + noise + MATRIX.encode())
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    (tmp_path / "topo.txt").write_text(MATRIX)
    with pytest.raises(InputError, match="too early"):
        detect.read(str(tmp_path / "cut"), stdin=io.BytesIO())
    both = detect.read([str(tmp_path / "topo.txt"), str(tmp_path / "cut")], stdin=io.BytesIO())
    assert len(both.gpus) == 2
    assert both.host.cpu is not None
    assert both.host.cpu.model_name == "AMD EPYC 7763"
    assert any("too early" in (source.reason or "") for source in both.sources)


def test_a_tar_in_a_tar_is_not_opened() -> None:
    with pytest.raises(InputError, match="none of the"):
        of(tar({"a.tar": tar({"b.tar": tar({"q.txt": QUERY.encode()})})}))


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "q.txt").write_text(QUERY, encoding="utf-8")
    (tmp_path / "topo.txt.gz").write_bytes(gzip.compress((MATRIX + LEGEND).encode()))
    (tmp_path / "notes.md").write_text("nothing\n", encoding="utf-8")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    snapshot = detect.read(str(tmp_path), stdin=io.BytesIO())
    assert {source.name for source in snapshot.sources} == {"nvidia-smi topo -m", "nvidia-smi -q", tmp_path.name}
    assert [gpu.address for gpu in snapshot.gpus] == ["0000:1b:00.0", "0000:43:00.0"]
    link = "a link, which is not followed, or no plain file"
    assert snapshot.sources[-1].reason == (
        f"passed over: again ({link}), notes.md (this text has no GPU topology matrix), passwd ({link}), pipe ({link})"
    )


def test_a_broken_file_in_a_directory_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(QUERY, encoding="utf-8")
    (tmp_path / "topo.xml").write_text('<system version="1"><cpu', encoding="utf-8")
    snapshot = detect.read(str(tmp_path), stdin=io.BytesIO())
    assert [(source.name, source.status) for source in snapshot.sources] == [
        ("nvidia-smi -q", "ok"),
        ("topo.xml", "failed"),
    ]
    (tmp_path / "q.txt").unlink()
    with pytest.raises(InputError, match="the XML is broken here"):
        detect.read(str(tmp_path), stdin=io.BytesIO())


def test_two_machines_in_a_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(QUERY, encoding="utf-8")
    (tmp_path / "b.txt").write_text(QUERY.replace(UUIDS[1], UUIDS[7]), encoding="utf-8")
    with pytest.raises(InputError) as error:
        detect.read(str(tmp_path), stdin=io.BytesIO())
    assert error.value.message.startswith(f"{tmp_path}/b.txt: this is another machine than that of {tmp_path}/a.txt: ")


def test_a_directory_of_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("hello\n", encoding="utf-8")
    with pytest.raises(InputError, match="more than 3 files"):
        detect.read(str(tmp_path), stdin=io.BytesIO())


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_packed_tar_of_many_small_and_empty_files_comes_to_its_end(mode: str) -> None:
    """More than is read at once: members are read to their ends from the decompressor itself."""
    packed = io.BytesIO()
    matrix = b"\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV1\t X \n"
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]  # the mode is one of them
        for number, data in enumerate([b"", bytes(stream.WHOLE), b"", *[b"notes\n", b""] * 50, matrix, b""]):
            member = tarfile.TarInfo(f"{number}.txt")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    found = detect.from_bytes(packed.getvalue(), file="sos.tar")
    assert found.matrices[0].cells == {"GPU0": {"GPU1": "NV1"}, "GPU1": {"GPU0": "NV1"}}
