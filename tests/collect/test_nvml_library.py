"""The worker against a real shared library: a stand-in built from `standin_nvml.c`, with faults on request."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from topoadvisor.collect import live, nvml, nvml_door
from topoadvisor.collect.world import Process, World

HERE = Path(__file__).resolve().parent
PACKAGE = str(Path(nvml.__file__).resolve().parents[2])
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
OLD_DRIVER = (
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetC2cModeInfoV",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetGpuFabricInfo",
)
"""What driver 470 lacks of what we ask."""

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to build the stand-in library with"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-in is a Linux library"),
]
Build = Callable[..., Path]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds the stand-in, without the functions named; returns the folder it is in."""
    built: dict[tuple[str, ...], Path] = {}

    def build(*without: str) -> Path:
        if without not in built:
            folder = tmp_path_factory.mktemp("nvml")
            defines = [f"-DWITHOUT_{name}" for name in without]
            output = str(folder / "libnvidia-ml.so.1")
            source = str(HERE / "standin_nvml.c")
            command = [COMPILER or "", "-shared", "-fPIC", "-O1", "-w", *defines, "-o", output, source]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            built[without] = folder
        return built[without]

    return build


def environment(folder: Path, **faults: str) -> dict[str, str]:
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join([PACKAGE, *sys.path]),
        **faults,
    }


def ask(folder: Path, *, deadline_s: float = 30.0, **faults: str) -> nvml.Reading:
    """What `live.capture` makes of the worker's answers."""
    worker = [sys.executable, "-m", "topoadvisor.collect.nvml"]
    done = Process(worker, environment(folder, **faults)).finish(deadline_s)
    cut = "it was too slow" if done.code is None else f"it ended with {done.code}"
    return nvml.gather(nvml.parse_pieces(done.out), cut=cut, seconds=done.seconds)


def errors(read: nvml.Reading) -> dict[tuple[str, str | None], str]:
    return {(error.call, error.subject): error.error for error in read.source.errors}


def test_everything_that_the_library_tells(library: Build) -> None:
    read = ask(library())
    assert read.source.status == "ok", read.source
    assert (read.driver.version, read.driver.cuda) == ("470.57.02", "11.4")
    first, second = read.gpus
    assert (first.name, first.address, first.pci_device) == ("NVIDIA A100-SXM4-40GB", "0000:10:00.0", "0x20b0")
    assert (first.compute_capability, first.memory_bytes, first.bar1_bytes) == ("8.0", 42949672960, 68719476736)
    assert (first.numa_node, first.memory_numa_node, first.cpu_affinity, first.mig) == (0, None, "0-3", False)
    assert first.pcie is not None
    assert (first.pcie.current_gen, first.pcie.current_width, first.pcie.device_max_gen) == (4, 16, 4)
    links = second.nvlinks
    assert links is not None
    assert [(link.remote_type, link.remote_address) for link in links] == [
        ("gpu", "0000:10:00.0"),
        ("gpu", "0000:10:00.0"),
        ("switch", "0000:20:00.0"),
        ("switch", "0000:20:00.0"),
    ]
    assert {(link.generation, link.raw_mbps) for link in links} == {("3.0", 25000)}
    assert first.c2c_gbps == 0.0
    assert first.fabric is not None
    assert (first.fabric.state, first.fabric.clique, first.fabric.cluster_uuid) == ("completed", 7, None)
    assert read.p2p is not None
    assert [(pair.a, pair.b, pair.read, pair.pci, pair.common_ancestor) for pair in read.p2p] == [
        (0, 1, "OK", "NS", "PHB"),
        (1, 0, "OK", "NS", "PHB"),
    ]


def test_only_functions_that_read_are_called_and_in_a_process_of_their_own(library: Build, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    assert ask(library(), STANDIN_LOG=str(log)).source.status == "ok"
    calls = [line.split() for line in log.read_text().splitlines()]
    names = {name for _, name in calls}
    assert {name for name in names if not name.startswith(("nvmlDeviceGet", "nvmlSystemGet"))} == {
        "nvmlInitWithFlags",
        "nvmlShutdown",
    }
    assert {process for process, _ in calls} != {str(os.getpid())}
    assert [name for _, name in calls].count("nvmlInitWithFlags") == [name for _, name in calls].count("nvmlShutdown")


def test_no_other_function_is_named_in_the_source() -> None:
    text = "".join(Path(module.__file__ or "").read_text(encoding="utf-8") for module in (nvml, nvml_door))
    named = set(re.findall(r"nvml(?!Gpu|Pci|Return)[A-Z][A-Za-z0-9]*", text))
    assert {name for name in named if not name.startswith(("nvmlDeviceGet", "nvmlSystemGet"))} <= {
        "nvmlInit",
        "nvmlShutdown",
    }
    with pytest.raises(ValueError, match="only reads"):
        nvml_door.Door(None, lambda piece: None).ask("nvmlDeviceSetPersistenceMode", 1)


def test_functions_that_an_old_driver_lacks_are_no_fault(library: Build) -> None:
    read = ask(library(*OLD_DRIVER))
    assert read.source.status == "ok"
    gpu = read.gpus[0]
    assert gpu.pcie is not None
    assert (gpu.pcie.device_max_gen, gpu.pcie.max_gen, gpu.fabric, gpu.c2c_gbps) == (None, 4, None, None)
    assert errors(read)["nvmlDeviceGetGpuFabricInfo", "gpu:0"] == "FunctionNotFound"
    assert gpu.nvlinks is not None
    assert len(gpu.nvlinks) == 4


def test_fabric_of_a_driver_before_550_is_asked_in_the_older_way(library: Build) -> None:
    fabric = ask(library("nvmlDeviceGetGpuFabricInfoV")).gpus[0].fabric
    assert fabric is not None
    assert (fabric.state, fabric.clique, fabric.status, fabric.health_mask) == ("completed", 9, 0, None)


def test_links_that_cannot_be_asked_are_unknown_not_absent(library: Build) -> None:
    read = ask(library("nvmlDeviceGetNvLinkState"))
    assert read.gpus[0].nvlinks is None
    assert errors(read)["nvmlDeviceGetNvLinkState", "gpu:0/link:0"] == "FunctionNotFound"


@pytest.mark.parametrize(
    ("call", "blamed", "names"),
    [
        ("nvmlInitWithFlags", "the driver (nvmlInit)", None),
        ("nvmlDeviceGetName@1", "gpu:1 (nvmlDeviceGetName)", ["NVIDIA A100-SXM4-40GB", None, None]),
        ("nvmlDeviceGetNvLinkState@0", "gpu:0/link:0 (nvmlDeviceGetNvLinkState)", ["NVIDIA A100-SXM4-40GB"] * 3),
        ("nvmlDeviceGetP2PStatus@2", "gpu:2>gpu:0 (nvmlDeviceGetP2PStatus)", ["NVIDIA A100-SXM4-40GB"] * 3),
    ],
)
def test_a_call_that_never_returns_is_blamed_and_the_rest_is_kept(
    library: Build, call: str, blamed: str, names: list[str | None] | None
) -> None:
    started = time.monotonic()
    read = ask(library(), deadline_s=3.0, STANDIN_HANG=call, STANDIN_GPUS="3")
    assert time.monotonic() - started < 10
    assert read.source.reason == f"it was too slow, while asking about {blamed}"
    assert read.source.status == ("failed" if names is None else "partial")
    assert [gpu.name for gpu in read.gpus] == (names or [])
    if call.startswith("nvmlDeviceGetNvLinkState"):
        assert [gpu.memory_bytes for gpu in read.gpus] == [42949672960, None, None]
        assert [gpu.uuid is not None for gpu in read.gpus] == [True] * 3
    if call.startswith("nvmlDeviceGetP2P"):
        assert read.p2p is not None
        assert [(pair.a, pair.b) for pair in read.p2p] == [(0, 1), (0, 2), (1, 0), (1, 2)]


def test_a_shutdown_that_never_returns_costs_nothing(library: Build) -> None:
    started = time.monotonic()
    read = ask(library(), STANDIN_HANG="nvmlShutdown")
    assert time.monotonic() - started < 15
    assert (read.source.status, len(read.gpus)) == ("ok", 2)


def test_a_library_that_ends_the_process_keeps_what_was_said(library: Build) -> None:
    read = ask(library(), STANDIN_CRASH="nvmlDeviceGetFieldValues@1")
    assert (read.source.status, read.source.reason) == ("partial", "it ended with -6, while asking about gpu:1")
    assert [gpu.memory_bytes for gpu in read.gpus] == [42949672960] * 2
    assert [gpu.nvlinks is None for gpu in read.gpus] == [False, True]


@pytest.mark.parametrize(
    ("code", "name"), [(15, "GpuIsLost"), (999, "Unknown"), (3, "NotSupported"), (77, "NVMLError")]
)
def test_every_single_failing_call_is_noted_and_costs_itself(library: Build, code: int, name: str) -> None:
    calls = ("nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetFieldValues", "nvmlDeviceGetMigMode")
    for call in calls:
        read = ask(library(), STANDIN_FAIL=f"{call}@0:{code}")
        assert errors(read)[call, "gpu:0"] == name
        assert read.source.status == ("ok" if code == 3 else "partial")
        assert read.gpus[0].name == "NVIDIA A100-SXM4-40GB"
        assert read.gpus[1].uuid is not None
        assert read.gpus[1].nvlinks is not None


def test_a_lost_gpu_keeps_its_name_and_the_others_everything(library: Build) -> None:
    read = ask(library(), STANDIN_LOST="0", STANDIN_GPUS="3")
    lost, *rest = read.gpus
    assert (lost.name, lost.uuid, lost.nvlinks, lost.memory_bytes) == ("NVIDIA A100-SXM4-40GB", None, None, None)
    assert all(gpu.memory_bytes and gpu.nvlinks for gpu in rest)
    assert read.p2p is not None
    assert [(pair.a, pair.b) for pair in read.p2p] == [(1, 2), (2, 1)]
    assert (read.source.status, errors(read)["nvmlDeviceGetUUID", "gpu:0"]) == ("partial", "GpuIsLost")


def test_a_gpu_lost_among_its_links_has_no_half_list_of_them(library: Build) -> None:
    read = ask(library(), STANDIN_FAIL="nvmlDeviceGetNvLinkRemoteDeviceType@0:15")
    assert read.gpus[0].nvlinks is None
    assert read.gpus[0].memory_bytes == 42949672960


def test_text_that_is_not_utf8(library: Build) -> None:
    read = ask(library(), STANDIN_BYTES="1")
    gpu = read.gpus[1]
    assert (gpu.name, gpu.uuid, gpu.address) == ("NVIDIA \ufffd\ufffd", "GPU-\ufffd1", "0000:11:00.0")
    assert gpu.nvlinks is not None
    assert gpu.nvlinks[0].remote_address == "0000:10:00.0"


@pytest.mark.parametrize("count", ["4294967295", "257"])
def test_a_count_that_cannot_be_true_is_counted_by_asking(library: Build, count: str) -> None:
    read = ask(library(), STANDIN_COUNT=count)
    assert [gpu.index for gpu in read.gpus] == [0, 1]
    assert (read.source.status, errors(read)["nvmlDeviceGetCount", None]) == ("partial", "ImplausibleValue")


def test_a_count_that_is_somewhat_too_high_shows_gpus_without_facts(library: Build) -> None:
    read = ask(library(), STANDIN_COUNT="4")
    assert [gpu.name is not None for gpu in read.gpus] == [True, True, False, False]
    assert read.source.status == "partial"


def test_numbers_of_all_ones_are_unknown_and_noted(library: Build) -> None:
    read = ask(library(), STANDIN_ONES="1")
    gpu = read.gpus[0]
    assert (gpu.name, gpu.address, gpu.pci_device, gpu.memory_bytes) == ("NVIDIA A100-SXM4-40GB", None, None, None)
    assert gpu.mig is None
    assert (gpu.pcie, gpu.pcie_replays, gpu.performance_state, gpu.memory_numa_node) == (None, None, None, None)
    assert gpu.nvlinks is not None
    assert [link.active for link in gpu.nvlinks] == [True] * 4
    assert all(link.remote_hidden and link.remote_address is None and link.raw_mbps is None for link in gpu.nvlinks)
    assert read.driver.cuda is None
    noted = errors(read)
    for call in ("nvmlDeviceGetPciInfo", "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMemoryInfo"):
        assert noted[call, "gpu:0"] == "ImplausibleValue"
    assert read.source.status == "partial"


def test_mig_is_told(library: Build) -> None:
    assert ask(library(), STANDIN_MIG="1").gpus[0].mig is True


@pytest.mark.parametrize(
    ("code", "status", "sentence"),
    [(9, "failed", "not loaded"), (18, "failed", "different versions"), (4, "failed", "may not"), (77, "failed", "77")],
)
def test_a_library_that_does_not_start(library: Build, code: int, status: str, sentence: str) -> None:
    read = ask(library(), STANDIN_FAIL=f"nvmlInitWithFlags:{code}")
    assert (read.source.status, read.gpus, read.p2p) == (status, [], None)
    assert sentence in (read.source.reason or "")


@pytest.mark.parametrize("call", ["nvmlDeviceGetCount_v2:13", "nvmlDeviceGetCount_v2:3", "nvmlDeviceGetCount_v2:999"])
def test_no_count_is_a_failure_whatever_its_error(library: Build, call: str) -> None:
    source = ask(library(), STANDIN_FAIL=call).source
    assert source.status == "failed"
    assert "nvmlDeviceGetCount failed" in (source.reason or "")


def test_a_library_that_is_no_library_names_the_cause(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not an ELF file at all")
    source = ask(tmp_path).source
    assert source.status == "failed"
    assert "cannot be loaded" in (source.reason or "")


def test_a_whole_capture_survives_a_hung_driver(library: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(library(), STANDIN_HANG="nvmlDeviceGetUUID").items():
        monkeypatch.setenv(name, value)
    snapshot = live.capture(World.real(), deadline_s=4.0)
    source = snapshot.source("nvml")
    assert source is not None
    assert "gpu:0 (nvmlDeviceGetUUID)" in (source.reason or "")
    assert snapshot.host.cpu is not None


@pytest.mark.parametrize("verb", [["scan"], ["capture"]])
def test_ctrl_c_ends_the_program_and_the_hung_worker(library: Build, tmp_path: Path, verb: list[str]) -> None:
    log = tmp_path / "calls"
    faults = {"STANDIN_HANG": "nvmlDeviceGetName@0", "STANDIN_LOG": str(log)}
    child = subprocess.Popen(
        [sys.executable, "-m", "topoadvisor", *verb],
        env=environment(library(), **faults),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 20
    while not (log.exists() and "nvmlDeviceGetName" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=10)
    assert child.returncode == 130
    assert b"Traceback" not in told
    worker = int(log.read_text().split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_the_program_shows_the_machine_of_the_library(library: Build) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "topoadvisor", "capture"],
        env=environment(library()),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [gpu["name"] for gpu in document["gpus"]] == ["NVIDIA A100-SXM4-40GB"] * 2
