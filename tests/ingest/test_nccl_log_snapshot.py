from __future__ import annotations

import io
from pathlib import Path

import nccl_logs as logs
import pytest

from topoadvisor import advise, plans, snapshot
from topoadvisor.errors import InputError
from topoadvisor.ingest import detect
from topoadvisor.rules.facts import Known, Unknown
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph


def scanned(lines: list[str]) -> Snapshot:
    return detect.from_bytes(logs.data(lines), file="job.log")


def classes(found: Snapshot) -> dict[str, str | None]:
    topology = graph.build(found)
    return {f"{pair.a}-{pair.b}": pair.link_class for pair in topology.pairs.values() if pair.b.startswith("gpu")}


def test_a_log_with_a_tree_gives_the_topology() -> None:
    found = scanned(logs.modern(4, 4, extra=logs.graph(0)))
    assert found.origin == "nccl-log"
    assert [(gpu.index, gpu.address, gpu.numa_node) for gpu in found.gpus] == [
        (0, "0000:1b:00.0", 0),
        (1, "0000:3b:00.0", 0),
        (2, "0000:5b:00.0", 1),
        (3, "0000:7b:00.0", 1),
    ]
    assert found.host.hostname == "node1"
    assert (found.host.cpu.architecture, found.host.cpu.vendor) == ("x86_64", "Intel")  # type: ignore[union-attr]
    assert (found.nccl_libraries or [])[0].version == "2.28.9"
    assert found.driver.cuda == "13.0"
    assert [(nic.name, nic.address, nic.numa_node) for nic in found.nics or []] == [
        ("mlx5_0", "0000:14:00.0", 0),
        ("mlx5_1", "0000:94:00.0", 1),
    ]
    assert classes(found)["gpu:0-gpu:1"] == "PIX"
    assert classes(found)["gpu:0-gpu:2"] == "SYS"
    assert {(pair.a, pair.b) for pair in found.p2p or []} == {
        (a, b) for a in range(4) for b in range(4) if (a - b) % 4 in (1, 3)
    }


@pytest.mark.parametrize(
    ("version", "gbps", "links"),
    [("2.28.9", 370.8, 18), ("2.28.9", 240.0, 12), ("2.28.9", 721.8, 18), ("2.10.3", 264.0, 12), ("2.28.9", 48.0, 4)],
)
def test_nvlinks_are_counted_from_the_bandwidth_and_marked_as_inferred(version: str, gbps: float, links: int) -> None:
    found = scanned(logs.modern(4, 4, version=version, extra=logs.graph(0, nvlink=gbps)))
    assert {len(gpu.nvlinks or []) for gpu in found.gpus} == {links}
    assert "(inferred)" in str(found.sources[0].reason)
    assert set(classes(found).values()) == {f"NV{links}"}
    topology = graph.build(found)
    assert topology.pair("gpu:0", "gpu:1").origin.startswith("inferred")


def test_a_link_between_two_gpus_is_one_of_both() -> None:
    lines = logs.modern(2, 2, version="2.27.7", extra=[(0, line) for line in _BRIDGED])
    assert classes(scanned(lines)) == {"gpu:0-gpu:1": "NV12"}


_BRIDGED = (
    "=== System : maxBw 240.0 totalBw 240.0 ===",
    "CPU/0-0 (1/1/2)",
    f"+ PCI[24.0] - GPU/0-{logs.bus(0)} (0)",
    f"              + NVL[240.0] - GPU/0-{logs.bus(1)}",
    f"+ PCI[24.0] - GPU/0-{logs.bus(1)} (1)",
    f"              + NVL[240.0] - GPU/0-{logs.bus(0)}",
    "==========================================",
    f"GPU/0-{logs.bus(0)} :GPU/0-{logs.bus(0)} (0/5000.0/LOC) GPU/0-{logs.bus(1)} (1/240.0/NVL) CPU/0-0 (1/24.0/PHB) ",
    f"GPU/0-{logs.bus(1)} :GPU/0-{logs.bus(0)} (1/240.0/NVL) GPU/0-{logs.bus(1)} (0/5000.0/LOC) CPU/0-0 (1/24.0/PHB) ",
)
"""Two GPUs with a bridge, as NCCL 2.27 prints them."""


def test_a_tree_that_nccl_was_told_is_not_taken_for_the_machine_silently() -> None:
    told = (0, "NCCL_TOPO_FILE set by environment to /x/topo.xml")
    reason = scanned(logs.modern(4, 4, extra=[told, *logs.graph(0)])).sources[0].reason or ""
    assert "NCCL_TOPO_FILE=/x/topo.xml" in reason
    assert "NCCL_TOPO_FILE" not in (scanned(logs.modern(4, 4, extra=logs.graph(0))).sources[0].reason or "")


def test_a_bandwidth_of_no_number_of_links_gives_no_links() -> None:
    found = scanned(logs.modern(4, 4, extra=logs.graph(0, nvlink=77.7)))
    assert {gpu.nvlinks is None for gpu in found.gpus} == {True}
    assert "cannot be told" in str(found.sources[0].reason)


def test_without_a_tree_only_the_gpus_are_known() -> None:
    found = scanned(logs.modern(4, 4))
    assert [gpu.address for gpu in found.gpus] == ["0000:1b:00.0", "0000:3b:00.0", "0000:5b:00.0", "0000:7b:00.0"]
    assert found.pci is None
    assert set(classes(found).values()) == {None}
    assert "NCCL_DEBUG_SUBSYS=GRAPH" in str(found.sources[0].reason)


def test_what_a_log_does_not_show_is_unknown_with_a_reason() -> None:
    lines = logs.modern(4, 4, extra=logs.graph(0), settings=["NCCL_IB_TIMEOUT set by environment to 22."])
    base = advise.analyse(scanned(lines)).facts
    assert base.fact("env.NCCL_IB_TIMEOUT") == Known("22", "nccl-log")
    for name in ("env.NCCL_P2P_LEVEL", "driver.version", "iommu.enabled", "vm.host_with_passthrough"):
        fact = base.fact(name)
        assert isinstance(fact, Unknown)
        assert "a log of NCCL" in fact.reason


def test_a_snapshot_of_a_log_survives_being_saved(tmp_path: Path) -> None:
    found = scanned(logs.modern(4, 4, extra=logs.graph(0, nvlink=240.0)))
    snapshot.save(found, tmp_path / "x.json")
    assert detect.read(str(tmp_path / "x.json"), stdin=io.BytesIO()) == found


def test_a_log_with_a_topology_xml_gives_that() -> None:
    xml = [
        '<system version="1">',
        '<cpu numaid="1" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">',
        '<pci busid="0000:1b:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">',
        '<gpu dev="0" sm="90" rank="0" gdr="1"/></pci>',
        "</cpu></system>",
    ]
    found = scanned([*logs.modern(1, 1), *xml])
    assert (found.origin, found.gpus[0].compute_capability, found.gpus[0].numa_node) == ("nccl-log", "9.0", 1)
    damaged = scanned([*logs.modern(1, 1), *(line.replace('"0000:1b:00.0"', '"x"') for line in xml)])
    assert "the topology XML in it is damaged" in str(damaged.sources[0].reason)
    assert damaged.gpus[0].address == "0000:1b:00.0"


def test_of_several_hosts_one_is_read() -> None:
    found = scanned(logs.modern(12))
    assert len(found.gpus) == 8
    assert "the log is of 2 hosts; node1 is read" in str(found.sources[0].reason)


MATRIX = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n"


@pytest.mark.parametrize("padding", ["", "a line of something else\n" * 200_000], ids=["short", "long"])
def test_a_log_and_other_texts_in_one_file_are_put_together(padding: str) -> None:
    log = logs.data(logs.modern(2, 2, settings=["NCCL_P2P_LEVEL set by environment to NVL"]))
    found = detect.from_bytes(MATRIX.encode() + padding.encode() + log, file="x")
    assert [(source.name, source.status) for source in found.sources] == [
        ("nvidia-smi topo -m", "ok"),
        ("nccl-log", "partial"),
    ]
    assert [(gpu.index, gpu.address, gpu.cpu_affinity) for gpu in found.gpus] == [
        (0, "0000:1b:00.0", "0-7"),
        (1, "0000:3b:00.0", "0-7"),
    ]
    assert [(setting.name, setting.value) for setting in found.settings or []] == [("NCCL_P2P_LEVEL", "NVL")]
    base = advise.analyse(found).facts
    assert isinstance(base.fact("env.NCCL_P2P_DISABLE"), Unknown)
    assert base.fact("env.NCCL_P2P_LEVEL") == Known("NVL", "nccl-log")


def test_a_log_of_several_hosts_is_not_blended_into_other_texts() -> None:
    found = detect.from_bytes(MATRIX.encode() + logs.data(logs.modern(4, 2)), file="x")
    assert (found.origin, found.settings, found.gpus[0].address) == ("matrix", None, None)
    assert (found.sources[1].reason or "").endswith(
        "it is not used: which of these hosts the other texts are about is not known"
    )


def test_a_log_is_read_where_a_broken_matrix_stands_in_it() -> None:
    found = detect.from_bytes(b"\tGPU0\tGPU1\tCPU Affinity\n" + logs.data(logs.modern(2, 2)), file="x")
    assert (found.origin, len(found.gpus)) == ("nccl-log", 2)


def test_what_a_log_does_not_show_is_named_where_it_counts() -> None:
    settings = ["NCCL_ALGO set by environment to Ring"]
    plan = plans.analyse(scanned(logs.modern(4, 4, settings=settings, extra=logs.graph(0)))).advice.plan
    assert plan is not None
    assert plan.notes[-1] == ("Not read: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, NCCL_SHM_DISABLE; they are taken as unset.")


def test_a_log_without_gpus_is_one_sentence() -> None:
    with pytest.raises(InputError, match="does not show which GPUs"):
        scanned([logs.info(0, "Bootstrap: Using eth0:10.0.0.1<0>")])


def test_a_log_larger_than_other_sources_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "MAX_BYTES", 2000)
    path = tmp_path / "job.log"
    path.write_bytes(logs.data(logs.modern(8)))
    assert len(detect.read(str(path), stdin=io.BytesIO()).gpus) == 8
