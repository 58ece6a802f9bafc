from __future__ import annotations

from pathlib import Path

import pytest

from topoadvisor.errors import InputError
from topoadvisor.ingest import text
from topoadvisor.snapshot import Cpu, Driver, Host, NumaNode

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus/other"

LSCPU = """Architecture:            x86_64
  CPU op-mode(s):        32-bit, 64-bit
CPU(s):                  64
  On-line CPU(s) list:   0-63
Vendor ID:               GenuineIntel
  Model name:            Intel(R) Xeon(R) Platinum 8480+
    CPU family:          6
    Model:               143
    Socket(s):           2
    Flags:               fpu vme de {flags}
NUMA:
  NUMA node(s):          2
  NUMA node0 CPU(s):     0-31
  NUMA node1 CPU(s):     32-63
"""
NUMACTL = """available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3 8
node 0 size: 128 MB
node 0 free: 100 MB
node 1 cpus:
node 1 size: 256 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""


def host(body: str) -> Host:
    return text.read(body, "host.txt").host


@pytest.mark.parametrize(("flags", "hypervisor"), [("hypervisor", "unknown"), ("vmx", "none")])
def test_lscpu(flags: str, hypervisor: str) -> None:
    assert host(LSCPU.format(flags=flags)) == Host(
        cpu=Cpu(
            architecture="x86_64",
            vendor="Intel",
            model_name="Intel(R) Xeon(R) Platinum 8480+",
            family=6,
            model=143,
            sockets=2,
            online="0-63",
        ),
        numa_nodes=[NumaNode(id=0, cpus="0-31"), NumaNode(id=1, cpus="32-63")],
        hypervisor=hypervisor,
    )


GERMAN = """Architektur:                   x86_64
CPU Operationsmodus:           32-bit, 64-bit
CPU(s):                        64
Liste der Online-CPU(s):0-63
Sockel:                        2
NUMA-Knoten:                   2
Anbieterkennung:               GenuineIntel
Prozessorfamilie:              6
Modell:                        143
Modellname:                    Intel(R) Xeon(R) Platinum 8480+
NUMA-Knoten0 CPU(s):           0-31
NUMA-Knoten1 CPU(s):           32-63
Markierungen:                  fpu vme de vmx
"""
FRENCH = """Architecture :                          x86_64
Mode(s) opératoire(s) des processeurs : 32-bit, 64-bit
Processeur(s) :                         64
Liste de processeur(s) en ligne :       0-63
Socket(s) :                             2
Nœud(s) NUMA :                          2
Identifiant constructeur :              GenuineIntel
Famille de processeur :                 6
Modèle :                                143
Nom de modèle :                         Intel(R) Xeon(R) Platinum 8480+
Nœud NUMA 0 de processeur(s) :          0-31
Nœud NUMA 1 de processeur(s) :          32-63
Drapaux :                               fpu vme de vmx
"""
CHINESE = """架构：                           x86_64
CPU 运行模式：                   32-bit, 64-bit
CPU:                             64
在线 CPU 列表：                  0-63
座：                             2
NUMA 节点：                      2
厂商 ID：                        GenuineIntel
CPU 系列：                       6
型号：                           143
型号名称：                       Intel(R) Xeon(R) Platinum 8480+
NUMA 节点0 CPU：                 0-31
NUMA 节点1 CPU：                 32-63
标记：                           fpu vme de vmx
"""


@pytest.mark.parametrize("body", [GERMAN, FRENCH, CHINESE])
def test_lscpu_in_other_languages(body: str) -> None:
    snapshot = text.read(body, "host.txt")
    assert snapshot.host == host(LSCPU.format(flags="vmx"))
    assert [source.status for source in snapshot.sources] == ["ok"]


def test_of_a_language_that_is_not_known_the_rest_is_told() -> None:
    body = (
        "アーキテクチャ:      x86_64\nベンダー ID:      AuthenticAMD\nモデル名:      AMD EPYC 7543 32-Core Processor\n"
        "ソケット数:      2\nNUMA ノード 0 CPU:      0-7\nフラグ:      fpu vme de hypervisor\n"
        "ハイパーバイザのベンダー:      KVM\n"
    )
    snapshot = text.read(body, "host.txt")
    assert snapshot.host == Host(
        cpu=Cpu(architecture="x86_64", vendor="AMD"), numa_nodes=[NumaNode(id=0, cpus="0-7")], hypervisor="KVM"
    )
    (source,) = snapshot.sources
    assert (source.status, source.reason) == (
        "partial",
        "labels in a language that is not read; `LC_ALL=C lscpu` prints them in English",
    )


def test_an_architecture_alone_is_no_lscpu() -> None:
    with pytest.raises(InputError):
        text.read("machine: x86_64\nPython: 3.12\n", "host.txt")


def test_the_vendor_of_the_hypervisor() -> None:
    assert host(LSCPU.format(flags="hypervisor") + "Hypervisor vendor:  KVM\n").hypervisor == "KVM"


def test_numactl() -> None:
    assert host("$ numactl -H\n" + NUMACTL).numa_nodes == [
        NumaNode(id=0, cpus="0-3,8", memory_bytes=128 << 20, distances=[10, 21]),
        NumaNode(id=1, cpus="", memory_bytes=256 << 20, distances=[21, 10]),
    ]


def test_single_lines_of_a_bug_report() -> None:
    snapshot = text.read(
        "uname: Linux node-a 6.8.0-51-generic #52-Ubuntu SMP x86_64 GNU/Linux\n\n"
        "*** /proc/cmdline\nBOOT_IMAGE=/boot/vmlinuz ro iommu=pt\n"
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (a@b)\n",
        "report.log",
    )
    assert (snapshot.host.hostname, snapshot.host.kernel) == ("node-a", "6.8.0-51-generic")
    assert snapshot.host.command_line == "BOOT_IMAGE=/boot/vmlinuz ro iommu=pt"
    assert snapshot.driver == Driver(
        version="580.65.06",
        flavour="open",
        banner="NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (a@b)",
    )


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_corpus() -> None:
    found = host((CORPUS / "host_lscpu_numa_cmdline_rtxpro6000.txt").read_text(encoding="utf-8"))
    assert found.cpu == Cpu(
        architecture="x86_64",
        vendor="AMD",
        model_name="AMD EPYC 9575F 64-Core Processor",
        family=26,
        model=2,
        sockets=2,
        online="0-238,240-255",
    )
    assert [(node.cpus, node.distances) for node in found.numa_nodes or []] == [
        ("0-63,128-191", [10, 32]),
        ("64-127,192-238,240-255", [32, 10]),
    ]
    assert found.hypervisor == "none"
    assert "iommu=off" in (found.command_line or "")


REPORT = """\
Collecting environment information...
PyTorch version: 2.4.0+cu121
CUDA runtime version: 12.1.105
GPU models and configuration:
GPU 0: NVIDIA A100-SXM4-80GB
GPU 1: NVIDIA A100-SXM4-80GB

Nvidia driver version: 535.104.12

CPU:
Architecture:                       x86_64
Vendor ID:                          AuthenticAMD
Socket(s):                          2

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] nvidia-nccl-cu12==2.20.5
[pip3] torch==2.4.0
[conda] nvidia-nccl-cu12          2.20.5                   pypi_0    pypi
"""


def test_what_a_framework_reports_of_its_environment() -> None:
    found = text.read(REPORT, "report.txt")
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA A100-SXM4-80GB"] * 2
    assert found.driver.version == "535.104.12"
    assert [(each.version, each.read_by) for each in found.nccl_libraries or ()] == [("2.20.5", "package metadata")]
    assert (found.origins["driver.version"], found.origins["nccl_libraries"]) == ("collect_env", "pip list")
    assert found.host.cpu is not None
    assert found.host.cpu.vendor == "AMD"


@pytest.mark.parametrize(
    "line",
    [
        "CUDA Driver Version / Runtime Version          12.2 / 12.1",
        "Nvidia driver version: Could not collect",
        "pip install nvidia-nccl-cu12==2.20.5",
        "nvidia-nccl-cu12",
        "[pip3] nvidia-nccl-cu12==2.x",
    ],
)
def test_what_looks_like_a_report_and_is_none(line: str) -> None:
    found = text.read(f"{line}\nGPU 0: NVIDIA A100-SXM4-80GB\n", "x")
    assert (found.driver.version, found.nccl_libraries) == (None, None)
