"""The table that `nvidia-smi` prints when it is asked for nothing."""

from __future__ import annotations

import pytest

from topoadvisor.ingest import detect
from topoadvisor.snapshot import Snapshot

NEW = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |
| N/A   31C    P0             73W /  700W |       0MiB /  81559MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:43:00.0 Off |                    0 |
| N/A   29C    P0             69W /  700W |      10MiB /  81559MiB |      0%      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|    0   N/A  N/A            2921      C   python                                22934MiB |
+-----------------------------------------------------------------------------------------+
"""
OLD = """\
| NVIDIA-SMI 418.67       Driver Version: 418.67       CUDA Version: 10.1     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:00:1B.0 Off |                    0 |
| N/A   42C    P0    43W / 300W |      0MiB / 16130MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
|   1  TITAN V             Off  | 00000000:00:1C.0 Off |                  N/A |
+-------------------------------+----------------------+----------------------+
"""
MATRIX = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"


def read(text: str) -> Snapshot:
    return detect.from_bytes(text.encode(), file="x")


@pytest.mark.parametrize("text", [NEW, NEW + MATRIX, MATRIX + NEW])
def test_alone_and_beside_a_matrix(text: str) -> None:
    found = read(text)
    assert (found.driver.version, found.driver.cuda) == ("570.86.15", "12.8")
    assert [(gpu.index, gpu.name, gpu.address, gpu.mig) for gpu in found.gpus] == [
        (0, "NVIDIA H100 80GB HBM3", "0000:1b:00.0", False),
        (1, "NVIDIA H100 80GB HBM3", "0000:43:00.0", True),
    ]
    assert {gpu.memory_bytes for gpu in found.gpus} == {81559 << 20}


def test_a_name_that_the_table_cuts_short_is_not_taken() -> None:
    found = read(OLD)
    assert [(gpu.name, gpu.address) for gpu in found.gpus] == [(None, "0000:00:1b.0"), ("TITAN V", "0000:00:1c.0")]
    assert (found.sources[0].status, found.sources[0].reason) == ("partial", "it cuts the names of GPU 0 short")
    assert [gpu.mig for gpu in found.gpus] == [None, None]


def test_the_headings_of_newer_drivers() -> None:
    banner = "| NVIDIA-SMI 590.44.01              KMD Version: 590.44.01     CUDA UMD Version: 13.1     |"
    found = read("\n".join([banner, *NEW.split("\n")[2:]]))
    assert (found.driver.version, found.driver.cuda) == ("590.44.01", "13.1")


def test_another_machine_in_the_table_is_no_part_of_this_one() -> None:
    other = NEW.replace("1B:00.0", "2B:00.0")
    query = "==============NVSMI LOG==============\nAttached GPUs : 2\n" + "".join(
        f"GPU 00000000:{bus}:00.0\n    Product Name : NVIDIA H100 80GB HBM3\n" for bus in ("1B", "43")
    )
    assert [gpu.address for gpu in read(query + NEW).gpus] == ["0000:1b:00.0", "0000:43:00.0"]
    found = read(query + other)
    assert any(source.status != "ok" for source in found.sources)
