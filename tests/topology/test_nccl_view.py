from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.files import shipped
from topoadvisor.ingest import assume, detect, nccl_topo_xml
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.paths import Reach
from topoadvisor.nccl.topo_xml import Element
from topoadvisor.snapshot import (
    Cpu,
    Gpu,
    Host,
    NcclLibrary,
    NvLink,
    P2p,
    PciDevice,
    PcieLink,
    Setting,
    Snapshot,
    decode,
)
from topoadvisor.topology import nccl_document, nccl_view

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus"
REFERENCE = CORPUS / "nccl_reference.json"
NO_CORPUS = pytest.mark.skipif(not REFERENCE.exists(), reason="the corpus is not here")

INTEL = Cpu(architecture="x86_64", vendor="Intel", family=6, model=143)


def fixture(name: str) -> Snapshot:
    return decode((shipped("fixtures") / name / "snapshot.json").read_bytes())


def supplied(snapshot: Snapshot, *facts: str) -> Snapshot:
    return assume.apply(snapshot, assume.gather(list(facts), None))


def kinds(view: nccl_view.View) -> dict[tuple[str, str], str | None]:
    return {pair: reach.kind and reach.kind.name for pair, reach in view.pairs.items()}


def bridge(address: str, parent: str | None, *, numa: int = 0, port: str, **more: Any) -> PciDevice:
    return PciDevice(
        address=address,
        class_code="0x060400",
        parent=parent,
        root="0000:00",
        numa_node=numa,
        max_link_speed_gts=32.0,
        max_link_width=16,
        port_type=port,
        **more,
    )


def board(
    address: str, parent: str | None, *, numa: int = 0, gts: float | None = 16.0, width: int | None = 16
) -> PciDevice:
    return PciDevice(
        address=address,
        class_code="0x030200",
        vendor="0x10de",
        device="0x20b5",
        parent=parent,
        root="0000:00",
        numa_node=numa,
        max_link_speed_gts=gts,
        max_link_width=width,
    )


def card(index: int, address: str, **more: Any) -> Gpu:
    return Gpu(**{"index": index, "address": address, "compute_capability": "8.0", "nvlinks": [], **more})


SWITCHED = [
    bridge("0000:00:01.0", None, port="root-port"),
    bridge("0000:01:00.0", "0000:00:01.0", port="upstream"),
    bridge("0000:02:00.0", "0000:01:00.0", port="downstream"),
    bridge("0000:02:01.0", "0000:01:00.0", port="downstream"),
    board("0000:03:00.0", "0000:02:00.0"),
    board("0000:04:00.0", "0000:02:01.0"),
]


def machine(**more: Any) -> Snapshot:
    gpus = [card(0, "0000:03:00.0"), card(1, "0000:04:00.0")]
    return Snapshot(**{"gpus": gpus, "pci": SWITCHED, "host": Host(cpu=INTEL), **more})


def elements(snapshot: Snapshot, version: str | None = None) -> list[Element]:
    return list(nccl_document.describe(snapshot, version).root.walk())


def test_the_two_ports_of_a_switch_are_one_element() -> None:
    found = [(each.tag, each.attributes.get("busid")) for each in elements(machine())]
    assert found == [
        ("system", None),
        ("cpu", None),
        ("pci", "0000:01:00.0"),
        ("pci", "0000:03:00.0"),
        ("gpu", None),
        ("pci", "0000:04:00.0"),
        ("gpu", None),
    ]


def test_a_link_is_what_both_ends_reach() -> None:
    of = {each.attributes.get("busid"): each.attributes for each in elements(machine())}
    assert of["0000:03:00.0"]["link_speed"] == "16.0 GT/s PCIe"
    assert of["0000:01:00.0"]["link_speed"] == "32.0 GT/s PCIe"
    assert of["0000:01:00.0"]["link_width"] == "16"


def test_on_a_root_bus_the_width_is_0_and_counts_as_16() -> None:
    guest = machine(
        gpus=[card(0, "0000:00:06.0"), card(1, "0000:00:07.0")],
        pci=[board("0000:00:06.0", None, numa=-1), board("0000:00:07.0", None, numa=-1)],
    )
    cpu, first, *_ = elements(guest)[1:]
    assert (cpu.attributes["numaid"], first.attributes["link_width"]) == ("-1", "0")
    assert nccl_view.of(guest).pairs["GPU0", "GPU1"] == Reach(NcclPath.PHB, 24)


def test_cpus_are_spelt_as_nccl_spells_them() -> None:
    def spelt(cpu: Cpu) -> dict[str, str]:
        return elements(machine(host=Host(cpu=cpu)))[1].attributes

    assert spelt(INTEL) == {
        "numaid": "0",
        "arch": "x86_64",
        "vendor": "GenuineIntel",
        "familyid": "6",
        "modelid": "143",
    }
    assert spelt(Cpu(vendor="AMD", family=25, model=1))["familyid"] == "175"
    assert spelt(Cpu(architecture="aarch64", vendor="NVIDIA", family=8)) == {"numaid": "0", "arch": "arm64"}
    assert elements(machine(host=Host()))[1].missing["arch"].startswith("the CPU was not read")


def test_since_2_30_7_a_gpu_has_the_width_in_use() -> None:
    narrow = PcieLink(current_gen=1, max_gen=4, current_width=8, max_width=16)
    snapshot = machine(gpus=[card(0, "0000:03:00.0", pcie=narrow), card(1, "0000:04:00.0")])
    granted = {"p2p": [P2p(a=a, b=b, read="OK", write="OK") for a, b in ((0, 1), (1, 0))]}
    snapshot = msgspec.structs.replace(snapshot, **granted)
    older = msgspec.structs.replace(snapshot, nccl_libraries=[NcclLibrary(path="x", version="2.28.9")])
    assert nccl_view.of(snapshot).pairs["GPU0", "GPU1"] == Reach(NcclPath.PIX, 12)
    assert nccl_view.of(older).pairs["GPU0", "GPU1"] == Reach(NcclPath.PIX, 24)


def test_nvlinks_by_their_far_end() -> None:
    links = [
        NvLink(link=0, active=True, remote_type="gpu", remote_address="0000:04:00.0"),
        NvLink(link=1, active=True, remote_address="0000:04:00.0"),
        NvLink(link=2, active=False, remote_type="gpu", remote_address="0000:04:00.0"),
        NvLink(link=3, active=True, remote_type="switch", remote_hidden=True),
    ]
    first = next(
        each
        for each in elements(machine(gpus=[card(0, "0000:03:00.0", nvlinks=links), card(1, "0000:04:00.0")]))
        if each.tag == "gpu"
    )
    assert [link.attributes for link in first.children] == [
        {"target": "0000:04:00.0", "count": "2", "tclass": "0x030200"},
        {"target": "fffffff:ff:ff.0", "count": "1", "tclass": "0x068000"},
    ]
    assert "nvlink" not in first.missing


def test_a_link_whose_far_end_is_lost_makes_the_type_unknown() -> None:
    links = [NvLink(link=0, active=True), NvLink(link=1)]
    snapshot = machine(gpus=[card(index, f"0000:0{3 + index}:00.0", nvlinks=links) for index in range(2)])
    assert nccl_view.of(snapshot).pairs["GPU0", "GPU1"] == Reach(
        None, None, unknown="the state or far end of 2 NVLinks was not read"
    )


@pytest.mark.parametrize("code", ["0x0680", "0x068000"])
def test_an_address_that_may_be_a_gpu_or_a_switch_is_looked_up(code: str) -> None:
    links = [NvLink(link=0, active=True, remote_address="0000:09:00.0")]
    gpus = [card(index, f"0000:0{3 + index}:00.0", nvlinks=links) for index in range(2)]
    assert nccl_view.of(machine(gpus=gpus)).pairs["GPU0", "GPU1"].kind is None
    switch = PciDevice(address="0000:09:00.0", class_code=code, root="0000:00")
    seen = machine(gpus=gpus, pci=[*SWITCHED, switch])
    assert nccl_view.of(seen).pairs["GPU0", "GPU1"].kind is NcclPath.NVL


def test_broadcom_switches_without_subsystem_ids_may_be_one() -> None:
    def two_levels(**ids: str) -> Snapshot:
        broadcom = {"vendor": "0x1000", "device": "0xc010", **ids}
        devices = [
            bridge("0000:00:01.0", None, port="root-port"),
            bridge("0000:01:00.0", "0000:00:01.0", port="upstream", **broadcom),
            bridge("0000:02:00.0", "0000:01:00.0", port="downstream"),
            bridge("0000:02:01.0", "0000:01:00.0", port="downstream"),
            bridge("0000:03:00.0", "0000:02:00.0", port="upstream", **broadcom),
            bridge("0000:04:00.0", "0000:02:01.0", port="upstream", **broadcom),
            bridge("0000:05:00.0", "0000:03:00.0", port="downstream"),
            bridge("0000:06:00.0", "0000:04:00.0", port="downstream"),
            board("0000:07:00.0", "0000:05:00.0"),
            board("0000:08:00.0", "0000:06:00.0"),
        ]
        return machine(gpus=[card(0, "0000:07:00.0"), card(1, "0000:08:00.0")], pci=devices)

    reach = nccl_view.of(two_levels()).pairs["GPU0", "GPU1"]
    assert (reach.kind, reach.gbps) == (None, None)
    assert "subsystem ids" in (reach.unknown or "")
    known = nccl_view.of(two_levels(subsystem_vendor="0x1000", subsystem_device="0xa096"))
    assert kinds(known)["GPU0", "GPU1"] == "PIX"
    other = nccl_view.of(two_levels(subsystem_vendor="0x1000", subsystem_device="0x0001"))
    assert kinds(other)["GPU0", "GPU1"] == "PXB"


def test_functions_that_are_nested_without_end_are_cut() -> None:
    bridges = [
        bridge(
            f"0000:{number >> 5:02x}:{number & 31:02x}.0",
            None if number == 0 else f"0000:{number - 1 >> 5:02x}:{number - 1 & 31:02x}.0",
            port="upstream",
        )
        for number in range(5000)
    ]
    deep = [*bridges, board("0001:03:00.0", bridges[-1].address), board("0001:04:00.0", bridges[-1].address)]
    snapshot = machine(gpus=[card(0, "0001:03:00.0"), card(1, "0001:04:00.0")], pci=deep)
    view = nccl_view.of(snapshot)
    assert any("More than 64 PCI functions" in note for note in view.notes)


def test_peer_access_by_what_was_read_then_the_catalogue_then_for_granted() -> None:
    assert nccl_view.of(machine()).pairs["GPU0", "GPU1"].inferred == (nccl_view.GRANTED,)
    refused = machine(p2p=[P2p(a=0, b=1, read="CNS"), P2p(a=1, b=0, read="OK", write="CNS")])
    assert set(kinds(nccl_view.of(refused)).values()) == {"PHB"}
    granted = machine(p2p=[P2p(a=a, b=b, read="OK", write="OK") for a, b in ((0, 1), (1, 0))])
    assert nccl_view.of(granted).pairs["GPU0", "GPU1"] == Reach(NcclPath.PIX, 24)
    consumer = machine(gpus=[card(i, f"0000:0{3 + i}:00.0", name="NVIDIA GeForce RTX 4090") for i in range(2)])
    assert nccl_view.of(consumer).pairs["GPU0", "GPU1"] == Reach(NcclPath.PHB, 24, inferred=(nccl_view._REFUSED,))


def test_assumed_peer_access_counts() -> None:
    machine = fixture("8xl40s")
    near = ("GPU0", "GPU1")
    assert kinds(nccl_view.of(machine))[near] == "PIX"
    assert kinds(nccl_view.of(supplied(machine, "pair.p2p.ok=false")))[near] == "PHB"
    one = kinds(nccl_view.of(supplied(machine, "pair[0-1].p2p.ok=no")))
    assert (one[near], one["GPU0", "GPU2"]) == ("PHB", "PIX")
    granted = nccl_view.of(supplied(msgspec.structs.replace(machine, p2p=None), "p2p.ok=true"))
    assert (kinds(granted)[near], granted.pairs[near].inferred) == ("PIX", ())
    with pytest.raises(InputError, match="names a GPU that is not here"):
        nccl_view.of(supplied(machine, "pair[0-9].p2p.ok=no"))


@NO_CORPUS
def test_a_machine_that_nccl_divides_says_so() -> None:
    text = (CORPUS / "nccl_topo" / "pub_16xl20.xml").read_text(encoding="utf-8")
    machine = nccl_topo_xml.parse(text, file="x")
    divided = [note for note in nccl_view.of(machine).notes if "divides these GPUs into 2 groups" in note]
    assert len(divided) == 1
    assert divided[0].endswith("GPU2, GPU3, GPU6, GPU7, GPU10, GPU11, GPU14, GPU15.")
    one = nccl_view.of(machine, [0, 1, 4, 5])
    assert not [note for note in one.notes if "divides" in note]


def test_variables_that_are_set_count() -> None:
    view = nccl_view.of(machine(settings=[Setting(name="NCCL_P2P_DISABLE", value="1", origin="environment")]))
    assert kinds(view)["GPU0", "GPU1"] == "PHB"
    assert any("LOC the farthest path" in note for note in view.notes)


def test_the_overhead_of_intel_cpus_is_told_where_it_matters() -> None:
    apart = machine(gpus=[card(0, "0000:03:00.0"), card(1, "0000:08:00.0")])
    assert not any("1.2 times" in note for note in nccl_view.of(machine()).notes)
    apart = msgspec.structs.replace(apart, pci=[*SWITCHED, board("0000:08:00.0", None)])
    assert any("1.2 times" in note for note in nccl_view.of(apart).notes)


def test_a_printed_matrix_gives_types_and_with_assumptions_bandwidths() -> None:
    text = "\tGPU0\tGPU1\tGPU2\tNUMA Affinity\nGPU0\t X \tPHB\tSYS\t0\nGPU1\tPHB\t X \tSYS\t0\nGPU2\tSYS\tSYS\t X \t1\n"
    bare = detect.from_bytes(text.encode(), file="x")
    found = nccl_view.of(bare).pairs
    assert found["GPU0", "GPU1"].kind is NcclPath.PHB
    assert found["GPU0", "GPU1"].gbps is None
    assert "gpu.name" in (found["GPU0", "GPU1"].unknown or "")
    full = nccl_view.of(supplied(bare, "gpu.name=NVIDIA L40S", "cpu.vendor=AMD")).pairs
    assert (full["GPU0", "GPU1"].kind, full["GPU0", "GPU1"].gbps) == (NcclPath.PHB, 24)
    assert (full["GPU0", "GPU2"].kind, full["GPU0", "GPU2"].gbps) == (NcclPath.SYS, 16)
    assert all(reach.inferred for reach in full.values())


def status(links: int, *, down: int = 0) -> str:
    """`nvidia-smi nvlink -s` of three A100, of which the second has links that are down. It names no far end."""
    rows = []
    for gpu in range(3):
        rows.append(f"GPU {gpu}: NVIDIA A100-SXM4-40GB (UUID: GPU-0000000{gpu}-0000-0000-0000-000000000000)")
        lost = down if gpu == 1 else 0
        rows += [f"\t Link {link}: {'<inactive>' if link < lost else '25 GB/s'}" for link in range(links)]
    return "\n".join(rows) + "\n"


def test_link_states_without_far_ends_leave_what_the_printed_matrix_says() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tNV4\nGPU1\tNV4\t X \tNV4\nGPU2\tNV4\tNV4\t X \n"
    alone = nccl_view.of(supplied(detect.from_bytes(text.encode(), file="x"), "gpu.name=NVIDIA A100-SXM4-40GB"))
    found = nccl_view.of(detect.from_bytes((status(8) + text).encode(), file="x"))
    assert {pair: (reach.kind, reach.gbps) for pair, reach in found.pairs.items()} == dict.fromkeys(
        alone.pairs, (NcclPath.NVL, 80)
    )
    broken = nccl_view.of(detect.from_bytes((status(8, down=1) + text).encode(), file="x")).pairs
    assert broken["GPU0", "GPU2"].gbps == 80
    assert "far end of 7 NVLinks" in (broken["GPU0", "GPU1"].unknown or "")
    more = nccl_view.of(detect.from_bytes((status(12) + text).encode(), file="x")).pairs
    assert "far end of 12 NVLinks" in (more["GPU0", "GPU1"].unknown or "")


def test_the_link_of_an_implied_switch_is_taken_as_that_of_its_gpus_and_that_is_said() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPIX\tPHB\nGPU1\tPIX\t X \tPHB\nGPU2\tPHB\tPHB\t X \n"
    bare = detect.from_bytes(text.encode(), file="x")
    found = nccl_view.of(supplied(bare, "gpu.name=NVIDIA L40S")).pairs
    assert (found["GPU0", "GPU1"].kind, found["GPU0", "GPU1"].gbps) == (NcclPath.PIX, 24)
    assert found["GPU0", "GPU2"].gbps == 24
    assert any("switches that the link classes imply" in each for each in found["GPU0", "GPU2"].inferred)


def test_a_way_to_the_cpu_that_may_not_be_pcie() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV3\tSYS\nGPU1\tNV3\t X \tSYS\nGPU2\tSYS\tSYS\t X \n"
    bare = detect.from_bytes(text.encode(), file="x")
    volta = supplied(bare, "gpu.name=Tesla V100-SXM2-16GB")
    found = nccl_view.of(volta).pairs
    assert (found["GPU0", "GPU1"].kind, found["GPU0", "GPU1"].gbps) == (NcclPath.NVL, 60)
    assert found["GPU0", "GPU2"].kind is None
    assert "POWER" in (found["GPU0", "GPU2"].unknown or "")
    intel = nccl_view.of(supplied(volta, "cpu.architecture=x86_64", "cpu.vendor=AMD")).pairs
    assert (intel["GPU0", "GPU2"].kind, intel["GPU0", "GPU2"].gbps) == (NcclPath.SYS, 12)
    grace = machine(gpus=[card(i, f"0000:0{3 + i}:00.0", compute_capability="9.0") for i in range(2)])
    grace = msgspec.structs.replace(grace, host=Host(cpu=Cpu(architecture="aarch64")))
    assert nccl_view.of(grace).pairs["GPU0", "GPU1"].unknown == "the chip-to-chip link was not read"


def test_chip_to_chip_links_that_were_read() -> None:
    gpus = [card(i, f"0000:0{3 + i}:00.0", compute_capability="9.0", c2c_gbps=223.56) for i in range(2)]
    refused = [P2p(a=a, b=b, read="NS", write="NS") for a, b in ((0, 1), (1, 0))]
    snapshot = machine(gpus=gpus, p2p=refused, host=Host(cpu=Cpu(architecture="aarch64")))
    assert nccl_view.of(snapshot).pairs["GPU0", "GPU1"] == Reach(NcclPath.C2C, 223.56)


@pytest.mark.parametrize(
    ("name", "expected", "gbps"),
    [
        ("dgx-1v", {"NVL": 32, "NVB": 24}, {20.0, 40.0}),
        ("dgx-h100", {"NVL": 56}, {370.8}),
        ("dgx-h100-broken-link", {"NVL": 56}, {370.8, 329.6}),
        ("4xa100-pcie", {"NVL": 4, "SYS": 8}, {240.0, 16.0}),
        ("8x4090", {"PHB": 56}, {24.0}),
        ("8xl40s", {"PIX": 24, "SYS": 32}, {24.0, 22.0}),
        ("2xh200-kvm", {"NVL": 2}, {370.8}),
    ],
)
def test_fixtures(name: str, expected: dict[str, int], gbps: set[float]) -> None:
    view = nccl_view.of(fixture(name))
    found = list(kinds(view).values())
    assert {kind: found.count(kind) for kind in set(found)} == expected
    assert {round(reach.gbps or 0, 4) for reach in view.pairs.values()} == gbps


def test_gpus_of_a_job() -> None:
    view = nccl_view.of(fixture("dgx-1v"), [0, 1, 5])
    assert view.gpus == ["GPU0", "GPU1", "GPU5"]
    assert kinds(view)["GPU0", "GPU5"] == "NVB", "through GPU1"
    assert kinds(nccl_view.of(fixture("dgx-1v"), [0, 5]))["GPU0", "GPU5"] == "SYS"
    with pytest.raises(InputError, match="no GPU 9"):
        nccl_view.of(fixture("dgx-1v"), [0, 9])


def test_versions() -> None:
    def with_version(version: str) -> Snapshot:
        return machine(nccl_libraries=[NcclLibrary(path="x", version=version)])

    assert nccl_view.of(machine()).version == "2.30.7"
    assert "not known" in nccl_view.of(machine()).notes[0]
    assert nccl_view.of(with_version("2.28.9")).notes == []
    assert "newer than" in nccl_view.of(with_version("2.99.1")).notes[0]
    with pytest.raises(NothingDetermined, match=r"NCCL 2\.17\.1"):
        nccl_view.of(with_version("2.17.1"))
    with pytest.raises(NothingDetermined, match="no GPU"):
        nccl_view.of(Snapshot())


TWO_HOSTS = """<system version="1">
<cpu host_hash="0x1" numaid="0" arch="arm64">
<pci busid="0008:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="100" rank="0" gdr="1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci></cpu>
<cpu host_hash="0x2" numaid="0" arch="arm64">
<pci busid="0008:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="100" rank="1" gdr="1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci></cpu>
</system>"""


def test_gpus_of_several_hosts_are_numbered_by_rank() -> None:
    view = nccl_view.of(nccl_topo_xml.parse(TWO_HOSTS, file="x"))
    assert view.gpus == ["GPU0", "GPU1"]
    assert view.pairs["GPU0", "GPU1"].kind is NcclPath.NVL
    assert round(view.pairs["GPU0", "GPU1"].gbps or 0, 4) == 721.8
    assert nccl_view.of(nccl_topo_xml.parse(TWO_HOSTS, file="x"), [1]).gpus == ["GPU1"]


def test_a_file_that_leaves_things_to_nccl() -> None:
    text = """<system version="1"><cpu numaid="0">
    <pci busid="0000:10:00.0" class="0x030200" vendor="0x10de" device="0x2330"/>
    <pci busid="0000:11:00.0" class="0x030200" vendor="0x10de" device="0x2330"/></cpu></system>"""
    snapshot = nccl_topo_xml.parse(text, file="x")
    assert nccl_view.of(snapshot).pairs["GPU0", "GPU1"].unknown == "the file leaves the NVLinks to NCCL"


def test_assumed_facts_win_over_a_dump() -> None:
    text = TWO_HOSTS.replace('host_hash="0x2" numaid="0"', 'host_hash="0x1" numaid="1"').replace(
        "0008:01", "0009:01", 1
    )
    text = text.replace('<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>', "").replace(
        'dev="0" sm="100" rank="1"', 'dev="1" sm="100" rank="1"'
    )
    snapshot = nccl_topo_xml.parse(text.replace('sm="100"', 'sm="86"'), file="x")
    assert nccl_view.of(snapshot).pairs["GPU0", "GPU1"].gbps == 6
    intel = supplied(snapshot, "cpu.architecture=x86_64", "cpu.vendor=Intel", "cpu.family=6", "cpu.model=143")
    assert nccl_view.of(intel).pairs["GPU0", "GPU1"].gbps == 22
    slow = supplied(snapshot, "gpu.pcie.max_gen=1", "gpu.pcie.max_width=1")
    assert nccl_view.of(slow).pairs["GPU0", "GPU1"].gbps == 0.1875


def reference() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(REFERENCE.read_text())["topologies"] if REFERENCE.exists() else {}
    return document


@NO_CORPUS
@pytest.mark.parametrize("name", sorted(reference()))
def test_types_and_bandwidths_are_nccls_own(name: str) -> None:
    """Given what the reference run took for granted about peer access, every pair is equal."""
    entry = reference()[name]
    snapshot = detect.from_bytes((CORPUS / "nccl_topo" / entry["xml"]).read_bytes(), file=name)
    if entry["p2p_assumption"] != "all":
        snapshot = supplied(snapshot, "pair.p2p.read=NS")
    chosen = [int(number) for number in entry["gpu_devs"].split(",")] if "gpu_devs" in entry else None
    view = nccl_view.of(snapshot, chosen)
    run = entry["single_node"]
    numbered = "dev" if len({gpu["dev"] for gpu in run["gpus"]}) == len(run["gpus"]) else "rank"
    # Where NCCL splits a host, the reference shows the part of rank 0.
    labels = [f"GPU{gpu[numbered]}" for gpu in run["gpus"]]
    assert set(labels) <= set(view.gpus)
    for row, source in enumerate(labels):
        for column, to in enumerate(labels):
            if source != to:
                reach = view.pairs[source, to]
                assert reach.kind is not None
                assert (source, to, reach.kind.name) == (source, to, run["path_gpu_gpu"]["type"][row][column])
                assert reach.gbps == pytest.approx(run["path_gpu_gpu"]["bw"][row][column], rel=1e-4)


def test_nvlinks_to_a_power_cpu_need_no_address() -> None:
    """hwloc names the CPU's package at their far end; NCCL joins such links to the CPU above the GPU."""
    link = NvLink(link=0, active=True, remote_type="npu")
    gpus = [
        card(index, address, compute_capability="7.0", nvlinks=[link, msgspec.structs.replace(link, link=1)])
        for index, address in enumerate(("0000:03:00.0", "0000:04:00.0"))
    ]
    reach = nccl_view.of(machine(gpus=gpus)).pairs["GPU0", "GPU1"]
    assert (reach.kind, reach.gbps, reach.unknown) == (NcclPath.NVL, 40.0, None)
    (told,) = {tuple(sorted(each.attributes.items())) for each in elements(machine(gpus=gpus)) if each.tag == "nvlink"}
    assert dict(told)["tclass"] == "0x068001"
    assert dict(told)["count"] == "2"
