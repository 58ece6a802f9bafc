"""Whatever happens to a file on its way, reading it gives a machine or one sentence, and does so at once."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.errors import InputError
from topoadvisor.ingest import detect
from topoadvisor.snapshot import decode, encode
from topoadvisor.topology import graph

SHARED = Path(__file__).resolve().parents[2] / "../shared"
TEXT = b"""uname: Linux node-a 6.8.0-1 #1 SMP x86_64
$ nvidia-smi topo -p2p r
 \tGPU0\tGPU1\t
 GPU0\tX\tOK\t
 GPU1\tOK\tX\t

GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-4000-8000-000000000000)
\t Link 0: 25 GB/s
\t Link 1: <inactive>
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-4000-8000-000000000001)
\t Link 0: 25 GB/s
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-4000-8000-000000000000)
\t Link 0: Remote Device 00000000:43:00.0: Link 0
\t Link 1: CRC Errors: 12
==============NVSMI LOG==============
Driver Version                            : 580.65.06
Attached GPUs                             : 2
GPU 00000000:1B:00.0
    GPU UUID                              : GPU-00000000-0000-4000-8000-000000000000
    PCI
        GPU Link Info
            Link Width
                Max                       : 16x
    FB Memory Usage
        Total                             : 81559 MiB
GPU 00000000:43:00.0
    Performance State                     : P0
-+-[0000:00]-+-01.0-[1b]----00.0  NVIDIA Corporation GA100 [A100 SXM4 80GB]
 |           \\-02.0-[43]----00.0  NVIDIA Corporation GA100 [A100 SXM4 80GB]
 \\-[0000:80]---01.0-[81]--+-00.0  Mellanox Technologies MT28908 Family [ConnectX-6]
1b:00.0 3D controller: NVIDIA Corporation Device 20b2 (rev a1)
\tNUMA node: 0
\t\tLnkSta:\tSpeed 16GT/s, Width x16
CA 'mlx5_0'
\tPort 1:
\t\tState: Active
\t\tRate: 200
hca_id:\tmlx5_1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
Architecture:   x86_64
On-line CPU(s) list: 0-63
NUMA node0 CPU(s):   0-63
available: 1 nodes (0)
node 0 cpus: 0 1 2 3
node distances:
node   0
  0:  10
<nvidia_smi_log>
<gpu id="00000000:1B:00.0"><uuid>GPU-00000000-0000-4000-8000-000000000000</uuid></gpu>
</nvidia_smi_log>
"""


def reads(data: bytes) -> None:
    """Read, write, read back and build; nothing but an InputError may come out, within a second or so."""
    started = time.perf_counter()
    refusal = ""
    try:
        snapshot = detect.from_bytes(data, file="input")
    except InputError as error:
        refusal = error.message
    else:
        assert decode(encode(snapshot)) == snapshot
        graph.build(snapshot)
    assert not refusal or (refusal.startswith("input") and "\n" not in refusal)
    assert time.perf_counter() - started < 5, "something is not linear"


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The text with some of its bytes changed, lost, doubled or put elsewhere."""
    body = bytearray(data)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(len(body) - 1, 0)))
        length = draw(st.sampled_from([1, 1, 1, 4, 40, 400]))
        match draw(st.sampled_from(["byte", "cut", "double", "move", "insert", "end"])):
            case "byte" if body:
                body[place] = draw(st.integers(0, 255))
            case "cut":
                del body[place : place + length]
            case "double":
                body[place:place] = body[place : place + length] * draw(st.integers(1, 30))
            case "move":
                piece = body[place : place + length]
                del body[place : place + length]
                other = draw(st.integers(0, len(body)))
                body[other:other] = piece
            case "insert":
                odd = [
                    "9" * 5000,
                    "१२३",
                    "²",
                    "\0",
                    "\x1b[4m",
                    "GPU",
                    ": ",
                    "[",
                    "\n",
                    "\t",
                    " " * 3000,
                    "-",
                    "ffffffff:",
                ]
                body[place:place] = draw(st.sampled_from(odd)).encode()
            case "end":
                del body[place:]
    return bytes(body)


def test_the_text_itself_is_read_in_full() -> None:
    snapshot = detect.from_bytes(TEXT, file="input")
    assert len(snapshot.gpus) == 2
    assert len(snapshot.sources) == 13


@settings(max_examples=300, deadline=None)
@given(damaged(TEXT))
def test_any_damage_to_a_text(data: bytes) -> None:
    reads(data)


@pytest.mark.parametrize("packed", [gzip.compress(TEXT, mtime=0), bz2.compress(TEXT), lzma.compress(TEXT)])
def test_any_damage_to_a_compressed_file(packed: bytes) -> None:
    @settings(max_examples=60, deadline=None)
    @given(damaged(packed))
    def damage(data: bytes) -> None:
        reads(data)

    damage()


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in (("a.txt", TEXT), ("b.txt", TEXT[:300])):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@settings(max_examples=60, deadline=None)
@given(damaged(archive()))
def test_any_damage_to_a_tar(data: bytes) -> None:
    reads(data)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize(
    "path",
    sorted([*SHARED.glob("corpus/other/*.txt"), *SHARED.glob("capture_h200x2/*.txt")]),
    ids=lambda path: path.name,
)
def test_any_damage_to_a_real_file(path: Path) -> None:
    data = path.read_bytes()

    @settings(max_examples=8, deadline=None, database=None)
    @given(damaged(data))
    def damage(changed: bytes) -> None:
        reads(changed)

    reads(data)
    damage()


@pytest.mark.parametrize(
    "line",
    [
        b"GPU 0: " * 60_000,
        b"GPU 0: NVIDIA" + b" " * 400_000 + b"x",
        b"GPU 0: NVIDIA H100 (UUID: GPU-0)\n" + b" Link 0: 25 GB/s\n" * 20_000,
        b"00:00.0 Host bridge: x\n" + b"\t" * 400_000,
        b"0000:00:00.0 3D controller: NVIDIA Corporation [" * 8000,
        b"-[0000:00]-" + b"+-" * 200_000,
        b"-[0000:00]-+-00.0\n" + b" " * 400_000,
        b"(" * 200_000 + b"NVSMI LOG" * 10_000,
        b"==NVSMI LOG==\nGPU 00000000:00:00.0\n" + b"    a : b\n" * 40_000,
        b"==============NVSMI LOG==============\n" + b" " * 4000 + b"a\n" * 1000,
        b"Architecture: x86_64\n" + b"A: b\n" * 80_000,
        b"available: 1 nodes (0)\nnode 0 cpus: " + b"1 " * 200_000,
        b"CA 'mlx5_0'\n" + b"\tPort 1:\n" * 40_000,
        b"<nvidia_smi_log>" + b"<a>" * 100_000,
        b"GPU0 GPU1\n" * 40_000,
        b"\n" * 4_000_000,
        b"NIC0 NIC0 " * 300_000,
        b" \t" * 1_500_000 + b"\n",
    ],
    ids=lambda line: line[:24].decode(errors="replace"),
)
def test_lines_that_would_be_slow_are_not(line: bytes) -> None:
    reads(line)
