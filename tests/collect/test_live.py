import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from topoadvisor.collect import capture_live, live, sysfs
from topoadvisor.collect.world import Process
from topoadvisor.snapshot import decode, encode

MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-31\t0\nGPU1\tNV18\t X \t0-31\t0\n"


@pytest.fixture
def guest(tree):
    """The file side of a guest with two GPUs on a flat bus."""
    for slot in ("06", "07"):
        tree.pci(
            f"pci0000:00/0000:00:{slot}.0",
            **{"class": "0x030200", "vendor": "0x10de", "device": "0x2335", "numa_node": "-1"},
        )
    tree.file(
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Build\n"
    )
    tree.file("/proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t: hypervisor\n")
    tree.file("/sys/class/dmi/id/sys_vendor", "QEMU\n")
    tree.file("/etc/nccl.conf", "NCCL_DEBUG=INFO\n")
    tree.file("/usr/lib64/libnccl.so.2.28.9", b"")
    return tree


def test_whole_machine_survives_being_written_and_read(guest, make_world, fakes):
    world = make_world(
        module=fakes.FakeNvml(fakes.h200_pair()),
        programs={"nvidia-smi topo -m": (0, MATRIX)},
        environ={"NCCL_P2P_LEVEL": "SYS"},
    )
    snapshot = live.capture(world)
    assert decode(encode(snapshot)) == snapshot
    assert snapshot.captured_at == "2026-11-29T12:00:00Z"
    assert [gpu.numa_node for gpu in snapshot.gpus] == [0, 0]
    assert [device.numa_node for device in snapshot.pci] == [-1, -1]
    assert (snapshot.driver.version, snapshot.driver.flavour, snapshot.driver.cuda) == ("580.159.04", "open", "13.0")
    assert [(setting.name, setting.origin) for setting in snapshot.settings] == [
        ("NCCL_P2P_LEVEL", "environment"),
        ("NCCL_DEBUG", "/etc/nccl.conf"),
    ]
    assert snapshot.nccl_libraries[0].version == "2.28.9"
    assert (snapshot.host.hypervisor, snapshot.host.dmi) == ("KVM", {"sys_vendor": "QEMU"})
    assert snapshot.matrices[0].gpus == ["GPU0", "GPU1"]
    assert snapshot.source("nvml").status == "ok"
    assert snapshot.source("sysfs").status == "ok"


def test_numa_node_from_sysfs_where_nvml_names_none(guest, make_world, fakes):
    answers = {**fakes.h200_pair(), "nvmlDeviceGetMemoryAffinity": fakes.NOT_SUPPORTED}
    snapshot = live.capture(make_world(module=fakes.FakeNvml(answers)))
    assert [gpu.numa_node for gpu in snapshot.gpus] == [-1, -1]


def test_gpus_on_the_bus_when_nvml_is_not_there(guest, make_world):
    guest.pci("pci0000:00/0000:00:08.0", **{"class": "0x030200", "vendor": "0x10de", "driver": "../x/vfio-pci"})
    guest.pci("pci0000:00/0000:00:09.0", **{"class": "0x030200", "vendor": "0x10de", "physfn": "../0000:00:06.0"})
    guest.pci("pci0000:00/0000:00:0a.0", **{"class": "0x030000", "vendor": "0x1a03"})
    guest.file(
        "/proc/driver/nvidia/gpus/0000:00:07.0/information",
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\nGPU UUID: \t GPU-????????-????-????-????-????????????\n",
    )
    snapshot = live.capture(make_world())
    assert snapshot.source("nvml").status == "failed"
    assert [(gpu.index, gpu.address, gpu.name, gpu.uuid) for gpu in snapshot.gpus] == [
        (0, "0000:00:06.0", None, None),
        (1, "0000:00:07.0", "NVIDIA H200", None),
    ]


def test_empty_root_is_a_snapshot_of_reasons(tree, make_world):
    tree.folder("/")
    snapshot = live.capture(make_world())
    status = {source.name: source.status for source in snapshot.sources}
    assert status["sysfs"] == status["dmi"] == status["procfs driver"] == status["nccl"] == "absent"
    assert all(source.reason for source in snapshot.sources if source.status != "ok")
    assert (snapshot.pci, snapshot.nics, snapshot.gpus) == (None, None, [])


def test_source_that_raises_costs_its_own_facts_only(guest, make_world, fakes, monkeypatch):
    def broken(files):
        raise RuntimeError("surprise")

    monkeypatch.setattr(sysfs, "read_pci", broken)
    snapshot = live.capture(make_world(module=fakes.FakeNvml(fakes.h200_pair())))
    source = snapshot.source("sysfs")
    assert (source.status, source.reason) == ("failed", "reading it failed: RuntimeError: surprise")
    assert snapshot.pci is None
    assert len(snapshot.gpus) == 2
    assert snapshot.host.dmi == {"sys_vendor": "QEMU"}


def test_another_root_says_that_the_environment_is_ours(guest, make_world):
    snapshot = live.capture(make_world(environ={"NCCL_DEBUG": "WARN"}, elsewhere=True))
    source = snapshot.source("environment")
    assert source.status == "partial"
    assert "of this process" in source.reason


def test_unreadable_files_make_the_source_partial(guest, make_world, monkeypatch):
    real_open = os.open

    def refuse(path, *arguments, **named):
        if str(path).endswith("/device"):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)
    snapshot = live.capture(make_world())
    source = snapshot.source("sysfs")
    assert source.status == "partial"
    assert "EACCES" in source.reason
    assert snapshot.pci[0].vendor == "0x10de"


def test_worker_that_dies_is_one_failed_source(guest, make_world):
    world = make_world()
    script = "import os; os.kill(os.getpid(), 11)"
    object.__setattr__(world, "start_nvml", lambda: Process([sys.executable, "-c", script], os.environ))
    snapshot = live.capture(world)
    assert snapshot.source("nvml").reason == (
        "the process that asks NVML was ended by signal 11, while asking about the driver"
    )
    assert len(snapshot.gpus) == 2


def test_hung_worker_is_killed_at_the_deadline(guest, make_world):
    world = make_world()
    object.__setattr__(
        world, "start_nvml", lambda: Process([sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    )
    started = time.monotonic()
    snapshot = live.capture(world, deadline_s=0.5)
    assert time.monotonic() - started < 10
    assert "cut off after 0.5 s" in snapshot.source("nvml").reason


INTERRUPTED = textwrap.dedent(
    """
    import os, sys
    from topoadvisor.collect import live
    from topoadvisor.collect.world import Process, World
    world = World.real()
    hang = [sys.executable, "-c", "import os, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"]
    hang[2] = "import sys; " + hang[2]
    object.__setattr__(world, "start_nvml", lambda: Process([*hang, sys.argv[1]], os.environ))
    try:
        live.capture(world, deadline_s=50)
    except KeyboardInterrupt:
        sys.exit(130)
    """
)


def test_interrupt_ends_us_and_the_hung_worker(tmp_path):
    note = tmp_path / "pid"
    package = str(Path(live.__file__).resolve().parents[2])
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(note)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([package, *sys.path])},
    )
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=15) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_this_machine_whatever_it_is():
    snapshot = capture_live()
    assert decode(encode(snapshot)) == snapshot
    assert snapshot.source("nvml") is not None
    assert snapshot.host.cpu.architecture
    assert all(source.reason for source in snapshot.sources if source.status != "ok")
