from __future__ import annotations

from pathlib import Path

import pytest

from topoadvisor.ingest import text
from topoadvisor.snapshot import PciDevice, Snapshot
from topoadvisor.topology import graph

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus/other"

TREE = r"""-+-[0000:80]-+-00.0  Intel Corporation Device 09a2
 |           \-01.0-[81]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
 \-[0000:00]-+-00.0  Intel Corporation Device 09a2
             +-01.0-[01-05]----00.0-[02-05]--+-00.0-[03]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
             |                               +-04.0-[04]--+-00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
             |                               |            \-00.1  NVIDIA Corporation GA100 HD Audio Controller
             |                               \-08.0-[05]----00.0  Mellanox Technologies MT28908 Family [ConnectX-6]
             +-1d.0-[06]--
             \-1f.0  Intel Corporation LPC Controller
"""
BLOCKS = """00:00.0 Host bridge: Intel Corporation Device 09a2
	NUMA node: 0

00:01.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])
	NUMA node: 0
	Bus: primary=00, secondary=01, subordinate=05, sec-latency=0
	Capabilities: [40] Express (v2) Root Port (Slot+), MSI 00
		LnkCap:	Port #1, Speed 16GT/s, Width x16, ASPM not supported
		LnkSta:	Speed 16GT/s, Width x16
	Capabilities: [100 v1] Advanced Error Reporting
	Capabilities: [148 v1] Access Control Services
		ACSCap:	SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
	Kernel driver in use: pcieport

01:00.0 PCI bridge: PMC-Sierra Inc. Device 4000 (prog-if 00 [Normal decode])
	Bus: primary=01, secondary=02, subordinate=05, sec-latency=0
	Capabilities: [40] Express (v2) Upstream Port, MSI 00

02:00.0 PCI bridge: PMC-Sierra Inc. Device 4000 (prog-if 00 [Normal decode])
	Bus: primary=02, secondary=03, subordinate=03, sec-latency=0
	Capabilities: [40] Express (v2) Downstream Port (Slot+), MSI 00
	Capabilities: [100 v1] Advanced Error Reporting
		LnkSta:	Speed 16GT/s, Width x16

02:04.0 PCI bridge: PMC-Sierra Inc. Device 4000 (prog-if 00 [Normal decode])
	Bus: primary=02, secondary=04, subordinate=04, sec-latency=0
	Capabilities: [40] Express (v2) Downstream Port (Slot+), MSI 00

03:00.0 3D controller: NVIDIA Corporation Device 20b5 (rev a1)
	NUMA node: 0
	IOMMU group: 12
	Capabilities: [68] Express (v2) Endpoint, MSI 00
		LnkCap:	Port #0, Speed 16GT/s, Width x16, ASPM not supported
		LnkSta:	Speed 2.5GT/s (downgraded), Width x8 (downgraded)
	Kernel driver in use: nvidia
00: de 10 b5 20 06 04 10 00 a1 00 02 03 00 00 00 00
10: 00 00 00 aa 0c 00 00 00 40 00 00 00 0c 00 00 00

04:00.0 3D controller: NVIDIA Corporation Device 20b5 (rev a1)
	NUMA node: 0
	Kernel driver in use: vfio-pci
"""


def read(body: str) -> Snapshot:
    return text.read(body, "lspci.txt")


def device(snapshot: Snapshot, address: str) -> PciDevice:
    return next(device for device in snapshot.pci or [] if device.address == address)


@pytest.mark.parametrize("before", ["", "$ lspci -tv\n", "## PCI tree\n\n"])
@pytest.mark.parametrize("indent", ["", "    "])
def test_a_tree(before: str, indent: str) -> None:
    snapshot = read(before + "".join(indent + line for line in TREE.splitlines(keepends=True)))
    assert [(gpu.index, gpu.name, gpu.address) for gpu in snapshot.gpus] == [
        (0, "A100 PCIe 80GB", "0000:03:00.0"),
        (1, "A100 PCIe 80GB", "0000:04:00.0"),
        (2, "A100 PCIe 80GB", "0000:81:00.0"),
    ]
    assert device(snapshot, "0000:04:00.0").parent == "0000:02:04.0"
    assert device(snapshot, "0000:02:04.0").parent == "0000:01:00.0"
    assert device(snapshot, "0000:01:00.0").parent == "0000:00:01.0"
    assert (device(snapshot, "0000:00:01.0").parent, device(snapshot, "0000:00:01.0").root) == (None, "0000:00")
    assert (device(snapshot, "0000:05:00.0").vendor, device(snapshot, "0000:81:00.0").root) == ("0x15b3", "0000:80")
    assert "0000:04:00.1" not in {each.address for each in snapshot.pci or []}, "audio moves no data"


def test_a_tree_gives_link_classes() -> None:
    topology = graph.build(read(TREE))
    assert topology.pair("gpu:0", "gpu:1").pcie_class == "PIX"
    assert topology.pair("gpu:0", "gpu:2").pcie_class is None, "two roots: NODE or SYS, the tree does not say"
    with_cpu = read(TREE + "\nArchitecture:   x86_64\nNUMA node(s):   1\nNUMA node0 CPU(s):  0-31\nSocket(s):  1\n")
    assert graph.build(with_cpu).pair("gpu:0", "gpu:2").pcie_class == "NODE"


def test_a_tree_with_numbers() -> None:
    body = TREE.replace("GA100 [A100 PCIe 80GB]", "GA100 [A100 PCIe 80GB] [10de:20b5]").replace(
        "[ConnectX-6]", "[ConnectX-6] [15b3:101b]"
    )
    snapshot = read(body)
    assert [(gpu.name, gpu.pci_device) for gpu in snapshot.gpus] == [("A100 PCIe 80GB", "0x20b5")] * 3
    assert device(snapshot, "0000:05:00.0").device == "0x101b"


def test_blocks() -> None:
    snapshot = read(BLOCKS)
    assert device(snapshot, "0000:00:01.0") == PciDevice(
        address="0000:00:01.0",
        class_code="0x0604",
        vendor="0x8086",
        device="0x352a",
        root="0000:00",
        driver="pcieport",
        numa_node=0,
        link_speed_gts=16.0,
        link_width=16,
        max_link_speed_gts=16.0,
        max_link_width=16,
        port_type="root-port",
        acs_redirect=True,
    )
    gpu = device(snapshot, "0000:03:00.0")
    assert (gpu.parent, gpu.root, gpu.iommu_group, gpu.port_type) == ("0000:02:00.0", "0000:00", "12", "endpoint")
    assert (gpu.link_speed_gts, gpu.link_width, gpu.max_link_speed_gts, gpu.max_link_width) == (2.5, 8, 16.0, 16)
    assert device(snapshot, "0000:02:00.0").acs_redirect is False, "extended capabilities without ACS"
    assert device(snapshot, "0000:01:00.0").acs_redirect is None, "no extended capabilities were shown"
    assert [gpu.address for gpu in snapshot.gpus] == ["0000:03:00.0"], "the other is given away to a guest"
    assert snapshot.sources[0].status == "ok"


def test_a_bridge_that_is_not_in_the_text_leaves_the_place_unknown() -> None:
    snapshot = read(BLOCKS[: BLOCKS.index("02:00.0")] + BLOCKS[BLOCKS.index("03:00.0") :])
    gpu = device(snapshot, "0000:03:00.0")
    assert (gpu.parent, gpu.root) == (None, None)
    assert snapshot.sources[0].reason == "the bridges above bus 0000:03, 0000:04 are not in the text"


def test_a_plain_list_knows_root_buses_alone() -> None:
    snapshot = read(
        "00:00.0 Host bridge [0600]: Intel Corporation 440FX - 82441FX PMC [Natoma] [8086:1237] (rev 02)\n"
        "00:06.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)\n"
        "05:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)\n"
        "0001:00:00.0 Bridge [0680]: NVIDIA Corporation Device [10de:22a3] (rev a1)\n"
    )
    assert [(each.address, each.class_code, each.root) for each in snapshot.pci or []] == [
        ("0000:00:06.0", "0x0302", "0000:00"),
        ("0000:05:00.0", "0x0302", None),
        ("0001:00:00.0", "0x0680", "0001:00"),
    ]
    assert [gpu.pci_device for gpu in snapshot.gpus] == ["0x2335", "0x2335"]


def test_a_list_and_blocks_of_the_same_devices() -> None:
    plain = (
        "03:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 80GB] [10de:20b5] (rev a1)\n"
        "04:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 80GB] [10de:20b5] (rev a1)\n\n"
        "____________________________________________\n\n/usr/bin/lspci -nnDvvvxxxx\n\n"
    )
    assert read(plain + BLOCKS).pci == read(BLOCKS).pci


@pytest.mark.parametrize("count", [4, 16])
@pytest.mark.parametrize("form", ["tree", "list", "blocks"])
def test_virtual_functions_of_a_gpu_are_no_gpus(form: str, count: int) -> None:
    """A host of vGPUs: they begin at function 4 and go on in further devices of the bus."""
    places = [f"{number // 8:02x}.{number % 8}" for number in (0, *range(4, 4 + count))]
    name = "NVIDIA Corporation GA100 [A100 PCIe 40GB]"
    if form == "tree":
        body = f"-[0000:00]---01.0-[41]--+-{places[0]}  {name}\n"
        body += "".join(f"                        +-{place}  {name}\n" for place in places[1:-1])
        body += f"                        \\-{places[-1]}  {name}\n"
    else:
        more = "\tNUMA node: 0\n\tKernel driver in use: nvidia\n\n" if form == "blocks" else ""
        body = "00:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a]\n" + more
        body += "".join(f"41:{place} 3D controller [0302]: {name} [10de:20f1] (rev a1)\n{more}" for place in places)
    snapshot = text.read(body, "a")
    assert [gpu.address for gpu in snapshot.gpus] == ["0000:41:00.0"]
    # A tree names no class, and nothing but the first function of a device is taken for one there.
    virtual = {device.address: device.sriov_of for device in snapshot.pci or [] if device.address > "0000:41:00.0"}
    assert set(virtual.values()) <= {"0000:41:00.0"}
    assert ("0000:41:00.4" in virtual) == (form != "tree")


def test_gpus_side_by_side_on_a_guests_bus_are_gpus() -> None:
    body = "".join(
        f"01:{number:02x}.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 40GB] [10de:20f1] (rev a1)\n"
        f"01:{number:02x}.1 Audio device [0403]: NVIDIA Corporation Device [10de:1aef] (rev a1)\n"
        for number in range(3)
    )
    assert len(text.read(body, "a").gpus) == 3


def test_one_v_has_some_details_in_its_flags() -> None:
    snapshot = read(
        "00:06.0 3D controller: NVIDIA Corporation Device 2335 (rev a1)\n"
        "\tFlags: bus master, fast devsel, latency 0, IRQ 42, NUMA node 1, IOMMU group 7\n"
        "\tCapabilities: <access denied>\n\tKernel driver in use: nvidia\n"
    )
    (gpu,) = snapshot.pci or []
    assert (gpu.numa_node, gpu.iommu_group, gpu.root, gpu.acs_redirect) == (1, "7", "0000:00", None)


def test_tree_and_blocks_fill_each_other_up() -> None:
    snapshot = read(TREE + "\n" + BLOCKS[BLOCKS.index("03:00.0") :])
    gpu = device(snapshot, "0000:03:00.0")
    assert (gpu.parent, gpu.class_code, gpu.link_width) == ("0000:02:00.0", "0x0302", 8)
    assert [source.name for source in snapshot.sources] == ["lspci -tv", "lspci -vv"]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize(
    ("name", "addresses", "parents"),
    [
        ("lspci_tv_asus-esc8000a_4gpu.txt", ["01", "41", "c1", "e1"], ["00:01.1", "40:01.1", "c0:01.1", "e0:01.1"]),
        ("lspci_tv_wrx90_2gpu.txt", ["c1", "c2"], ["c0:01.1", "c0:03.1"]),
        ("lspci_nn_a10_gpud.txt", ["06"], [None]),
        ("lspci_vvv_excerpt_pex890xx_rtxpro6000.txt", ["06", "07", "75"], [None, None, None]),
    ],
)
def test_corpus(name: str, addresses: list[str], parents: list[str | None]) -> None:
    snapshot = read((CORPUS / name).read_text(encoding="utf-8"))
    assert [gpu.address for gpu in snapshot.gpus] == [f"0000:{bus}:00.0" for bus in addresses]
    found = [device(snapshot, gpu.address or "").parent for gpu in snapshot.gpus]
    assert found == [None if parent is None else f"0000:{parent}" for parent in parents]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_classes_of_a_tree_are_those_of_the_matrix_of_the_same_machine() -> None:
    matrix = next((CORPUS.parent / "matrices").glob("015_*.txt")).read_text(encoding="utf-8")
    tree = (CORPUS / "lspci_tv_asus-esc8000a_4gpu.txt").read_text(encoding="utf-8")
    topology = graph.build(read(matrix + "\n\n" + tree))
    assert topology.disagreements == ()
    assert topology.pair("gpu:0", "gpu:1").link_class == "NODE"


MATRIX = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
BARE_TREE = """\
-[0000:00]-+-00.0
           +-01.1-[01]--+-00.0
           |            \\-00.1
           \\-03.1-[02]----00.0
"""
CARDS = """\
01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)
\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
02:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)
\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16
"""


def test_a_tree_without_names_places_what_other_texts_name() -> None:
    found = read(f"{BARE_TREE}\n{CARDS}")
    assert [device.address for device in found.pci or () if device.parent == "0000:00:01.1"] == [
        "0000:01:00.0",
        "0000:01:00.1",
    ]
    assert str(graph.build(found).pair("gpu:0", "gpu:1").link_class) == "PHB"
    assert found.origins["pci"] == "lspci -t"
    assert found.origins["pci:0000:01:00.0.link_width"] == "lspci -vv"
    assert read(BARE_TREE).gpus == []


def test_a_link_that_lspci_shows_narrow_is_narrow_below_a_printed_matrix_too() -> None:
    built = graph.build(read(f"{MATRIX}\n{CARDS}"))
    rates = {a: edge["gbps"] for a, b, edge in built.graph.edges(data=True) if a.startswith("gpu:")}
    assert rates["gpu:1"] == pytest.approx(2 * rates["gpu:0"], rel=1e-3)


def test_bridges_that_another_listing_shows_are_not_missed() -> None:
    blocks = "".join(
        f"{bus}:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
        "\tLnkSta:\tSpeed 32GT/s, Width x16\n"
        for bus in ("17", "65")
    )
    tree = "-+-[0000:16]---00.0-[17]----00.0\n \\-[0000:00]-+-00.0\n             \\-1f.0\n"
    assert text.read(blocks, "a").sources[0].reason == "the bridges above bus 0000:17, 0000:65 are not in the text"
    both = text.read(f"{blocks}\n$ lspci -t\n{tree}", "a")
    said = both.source("lspci -vv")
    assert said is not None
    assert said.reason == "the bridges above bus 0000:65 are not in the text"
