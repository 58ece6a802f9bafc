"""Trees of other machines below --root: what real ones look like, each as small as it can be."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topoadvisor.collect import host, live, sysfs
from topoadvisor.collect.world import Files
from topoadvisor.snapshot import decode, encode
from topoadvisor.topology.graph import build

BRIDGE = {"class": "0x060400", "vendor": "0x1000", "device": "0xc030"}
GPU = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"}
CONTENT = st.one_of(
    st.binary(max_size=80),
    st.text("0123456789abcdefx-,:. \n٣²", max_size=20).map(str.encode),
    st.sampled_from([b"", b"9" * 5000, b"-1", b"0-999999", b"ffffffff," * 999, b"1 " * 3000]),
)
NIC = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021"}


@pytest.fixture
def elsewhere(tree, make_world):
    """A capture of the tree as that of another machine."""
    return lambda **world: live.capture(make_world(elsewhere=True, **world))


def numa(tree, *nodes):
    """NUMA nodes as (id, CPU list, distances)."""
    for node, cpus, distances in nodes:
        tree.file(f"/sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
        tree.file(f"/sys/devices/system/node/node{node}/distance", f"{distances}\n")


def classes(snapshot):
    """PCIe class of each pair, `0-1` for two GPUs."""
    return {f"{pair.a[4:]}-{pair.b[4:]}": pair.pcie_class for pair in build(snapshot).pairs.values()}


def chain(tree, place, numa_node, kinds):
    """Bridges below each other, those that are there already too, then one device; returns the device's folder."""
    *bridges, (name, last) = kinds
    for bridge in bridges:
        place = f"{place}/{bridge}"
        if not (tree.root / f"sys/devices/{place}").exists():
            tree.pci(place, **BRIDGE, numa_node=numa_node)
    return tree.pci(f"{place}/{name}", **last, numa_node=numa_node)


def test_link_classes_below_several_levels_of_switches(tree, elsewhere):
    """Two leaf switches below a root switch, a switch on another port of that root complex, one on another socket."""
    numa(tree, (0, "0-3", "10 21"), (1, "4-7", "21 10"))
    trunk = ["0000:16:01.0", "0000:17:00.0"]
    for leaf, port, gpu in (
        (["0000:18:00.0", "0000:19:00.0"], "0000:1a:00.0", "0000:1b:00.0"),
        (["0000:18:00.0", "0000:19:00.0"], "0000:1a:01.0", "0000:1c:00.0"),
        (["0000:18:01.0", "0000:1d:00.0"], "0000:1e:00.0", "0000:1f:00.0"),
        (["0000:18:01.0", "0000:1d:00.0"], "0000:1e:01.0", "0000:20:00.0"),
    ):
        chain(tree, "pci0000:16", "0", [*trunk, *leaf, port, (gpu, GPU)])
    chain(tree, "pci0000:16", "0", ["0000:16:02.0", "0000:30:00.0", "0000:31:00.0", ("0000:32:00.0", GPU)])
    chain(tree, "pci0000:40", "0", ["0000:40:01.0", ("0000:41:00.0", GPU)])
    chain(tree, "pci0000:80", "1", ["0000:80:01.0", ("0000:81:00.0", GPU)])
    found = elsewhere()
    assert [gpu.address[5:7] for gpu in found.gpus] == ["1b", "1c", "1f", "20", "32", "41", "81"]
    assert [classes(found)[f"0-{other}"] for other in range(1, 7)] == ["PIX", "PXB", "PXB", "PHB", "NODE", "SYS"]
    assert classes(found)["2-3"] == "PIX"


def test_domains_of_five_digits_and_devices_behind_a_vmd(tree, elsewhere):
    tree.pci("pci0000:64/0000:64:00.5", **{"class": "0x010400", "vendor": "0x8086"}, numa_node="0")
    chain(tree, "pci0000:64/0000:64:00.5/pci10000:e0", "0", ["10000:e0:02.0", ("10000:e1:00.0", GPU)])
    behind = chain(tree, "pci0000:64/0000:64:00.5/pci10000:e0", "0", ["10000:e0:03.0", ("10000:e2:00.0", NIC)])
    chain(tree, "pci0000:64", "0", ["0000:64:02.0", ("0000:65:00.0", GPU)])
    tree.interface("ib0", behind)
    numa(tree, (0, "0-3", "10"))
    found = elsewhere()
    assert [gpu.address for gpu in found.gpus] == ["0000:65:00.0", "10000:e1:00.0"]
    assert [(nic.name, nic.address) for nic in found.nics] == [("ib0", "10000:e2:00.0")]
    assert classes(found) == {"0-1": "NODE", "0-ib0": "NODE", "1-ib0": "PHB"}


def test_virtual_functions_are_neither_gpus_nor_apart_from_their_card(tree, elsewhere):
    place = "pci0000:16/0000:16:01.0"
    tree.pci(place, **BRIDGE, numa_node="0")
    tree.pci(f"{place}/0000:17:00.0", **GPU, numa_node="0")
    tree.pci(f"{place}/0000:17:00.4", **GPU, numa_node="0", physfn="../0000:17:00.0")
    chain(tree, "pci0000:16", "0", ["0000:16:02.0", ("0000:18:00.0", NIC)])
    # A function of a card with many stands on the bus behind its own.
    virtual = tree.pci("pci0000:16/0000:16:02.0/0000:19:02.1", **NIC, numa_node="0", physfn="../0000:18:00.0")
    tree.interface("vf9", virtual)
    found = elsewhere()
    assert [gpu.address for gpu in found.gpus] == ["0000:17:00.0"]
    listed = {device.address: device for device in found.pci}
    assert listed["0000:19:02.1"].sriov_of == "0000:18:00.0"
    assert listed["0000:19:02.1"].parent == "0000:16:02.0"
    assert classes(found) == {"0-vf9": "PHB"}


def test_a_bridge_that_is_not_listed_still_stands_in_the_path(tree, elsewhere):
    chain(tree, "pci0000:16", "0", ["0000:16:01.0", "0000:17:00.0", "0000:18:00.0", ("0000:19:00.0", GPU)])
    chain(tree, "pci0000:16/0000:16:01.0/0000:17:00.0", "0", ["0000:18:01.0", ("0000:1a:00.0", GPU)])
    for hidden in ("0000:17:00.0", "0000:18:01.0"):
        (tree.root / f"sys/bus/pci/devices/{hidden}").unlink()
    found = elsewhere()
    listed = {device.address: device for device in found.pci}
    assert listed["0000:17:00.0"].class_code == "0x060400"
    assert listed["0000:1a:00.0"].parent == "0000:18:01.0"
    assert classes(found)["0-1"] == "PIX"


def test_nodes_without_memory_and_nodes_without_cpus(tree):
    numa(tree, (0, "0-3", "10 20 40"), (1, "4-7", "20 10 60"), (2, "", "40 60 10"))
    for node, size in ((0, 0), (1, 4096), (2, 8192)):
        tree.file(f"/sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal: {size} kB\n")
    nodes = sysfs.read_numa(Files(tree.root))
    assert [(node.id, node.cpus, node.memory_bytes, node.distances) for node in nodes] == [
        (0, "0-3", 0, [10, 20, 40]),
        (1, "4-7", 4096 << 10, [20, 10, 60]),
        (2, "", 8192 << 10, [40, 60, 10]),
    ]


def test_cpus_that_are_offline_belong_to_no_node_and_no_socket(tree, make_world):
    numa(tree, (0, "0-3", "10 21"), (1, "4-7", "21 10"))
    tree.file("/sys/devices/system/cpu/online", "1-2,4-5\n")
    for cpu, package in ((1, "0-3"), (4, "4-7")):
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/topology/package_cpus_list", f"{package}\n")
    assert [node.cpus for node in sysfs.read_numa(Files(tree.root))] == ["1-2", "4-5"]
    cpu = host.read_host(Files(tree.root), make_world(), None).cpu
    assert (cpu.online, cpu.sockets) == ("1-2,4-5", 2)


def test_old_kernels_and_copies_have_masks_alone(tree, make_world):
    tree.file("/sys/devices/system/node/node0/cpumap", "00000000,00000055\n\0")
    tree.file("/sys/devices/system/node/node1/cpumap", "00000000,000000aa\n\0")
    for cpu in range(8):
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_siblings", "55\n" if cpu % 2 == 0 else "aa\n")
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{cpu % 2}\n")
    tree.file("/sys/devices/system/cpu/cpu6/online", "0\n")
    assert [node.cpus for node in sysfs.read_numa(Files(tree.root))] == ["0,2,4", "1,3,5,7"]
    cpu = host.read_host(Files(tree.root), make_world(), None).cpu
    assert (cpu.online, cpu.sockets) == ("0-5,7", 2)


def test_sockets_that_the_kernel_does_not_know_are_unknown(tree, make_world):
    for cpu in range(2):
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_siblings_list", f"{cpu}\n")
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", "-1\n")
    assert host.read_host(Files(tree.root), make_world(), None).cpu.sockets is None


@pytest.mark.parametrize(
    ("cpulist", "distance", "complaint"),
    [
        ("0-3", "10", "not one number for each of 2 nodes"),
        ("0-3", "10 ²", "not one number for each of 2 nodes"),
        ("2-5", "10 21", "its CPUs are those of node 0 too"),
    ],
)
def test_nodes_that_cannot_be_are_said(tree, elsewhere, cpulist, distance, complaint):
    numa(tree, (0, "0-3", "10 21"), (1, cpulist if cpulist != "0-3" else "4-7", distance))
    source = elsewhere().source("sysfs numa")
    assert source.status == "partial"
    assert complaint in source.reason


def test_a_list_of_cpus_that_is_none_is_unknown(tree):
    numa(tree, (0, "0-3,x", "10"))
    assert sysfs.read_numa(Files(tree.root))[0].cpus is None


def test_numa_node_minus_1_is_kept_and_no_file_is_reasoned_from_local_cpus(tree, elsewhere):
    numa(tree, (0, "0-3", "10 21"), (1, "4-7", "21 10"))
    for bus, local in (("10", {"numa_node": "-1"}), ("20", {"local_cpus": "000000f0"}), ("30", {"local_cpus": "ff"})):
        tree.pci(f"pci0000:{bus}/0000:{bus}:01.0", **BRIDGE)
        tree.pci(f"pci0000:{bus}/0000:{bus}:01.0/0000:{bus[0]}1:00.0", **GPU, **local)
    found = elsewhere()
    assert [gpu.numa_node for gpu in found.gpus] == [-1, 1, None]
    topology = build(found)
    assert topology.pair("gpu:0", "gpu:1").pcie_class is None
    assert any("NUMA node of root:0000:10, root:0000:30 is not known" in note for note in topology.notes)


def grace(tree):
    """Two superchips: the memory of each GPU is a NUMA node, and seven more wait for MIG."""
    ids = [0, 1, 2, *range(4, 11), 12]
    for node in ids:
        cpus = {0: "0-71", 1: "72-143"}.get(node, "")
        far = {0: 40, 1: 80}
        row = " ".join("10" if other == node else str(far.get(other, 120)) for other in ids)
        numa(tree, (node, cpus, row))
        tree.file(
            f"/sys/devices/system/node/node{node}/meminfo",
            f"Node {node} MemTotal: {1 if node in (0, 1, 4, 12) else 0} kB\n",
        )
    tree.file("/sys/devices/system/cpu/online", "0-143\n")
    for cpu, package in ((0, "0-71"), (72, "72-143")):
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/topology/package_cpus_list", f"{package}\n")
    for domain, node, memory in (("0009", "0", 4), ("0019", "1", 12)):
        chain(tree, f"pci{domain}:00", node, [f"{domain}:00:00.0", (f"{domain}:01:00.0", {**GPU, "device": "0x2342"})])
        tree.file(f"/proc/driver/nvidia/gpus/{domain}:01:00.0/information", "Model: \t\t NVIDIA GH200 480GB\n")
        tree.file(
            f"/proc/driver/nvidia/gpus/{domain}:01:00.0/numa_status", f"Node: {memory}\nStatus: online\nSize: 3f0\n"
        )
    tree.file("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n")


def test_grace_with_the_memory_of_its_gpus_as_nodes(tree, elsewhere):
    grace(tree)
    found = elsewhere()
    assert [(gpu.name, gpu.numa_node, gpu.memory_numa_node) for gpu in found.gpus] == [
        ("NVIDIA GH200 480GB", 0, 4),
        ("NVIDIA GH200 480GB", 1, 12),
    ]
    cpu = found.host.cpu
    assert (cpu.architecture, cpu.vendor, cpu.model_name, cpu.sockets) == ("aarch64", "Arm", "Neoverse-V2", 2)
    assert classes(found) == {"0-1": "SYS"}
    graph = build(found).graph
    assert sorted(node for node, facts in graph.nodes(data=True) if facts["kind"] in ("numa", "socket")) == [
        *("numa:0", "numa:1", "socket:0", "socket:1"),
    ]


def test_power_whose_copy_has_little_more_than_the_names_of_gpus(tree, elsewhere):
    """The driver's own list says that these are GPUs; their vendors were not copied."""
    numa(
        tree, (0, "0-7", "10 40 80 80"), (8, "8-15", "40 10 80 80"), (254, "", "80 80 10 80"), (255, "", "80 80 80 10")
    )
    for address, local, memory in (("0004:04:00.0", "00ff", 255), ("0035:03:00.0", "ff00", 254)):
        tree.pci(f"pci{address[:7]}/{address}", **{"class": "0x030000"}, local_cpus=local)
        tree.file(f"/proc/driver/nvidia/gpus/{address}/numa_status", f"Node:      {memory}\nStatus:    online\n")
    tree.file("/proc/cpuinfo", "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nmachine\t\t: PowerNV\n")
    tree.file("/proc/sys/kernel/osrelease", "4.14.0-49.6.1.el7a.ppc64le\n")
    found = elsewhere()
    assert [(gpu.address, gpu.numa_node, gpu.memory_numa_node) for gpu in found.gpus] == [
        ("0004:04:00.0", 0, 255),
        ("0035:03:00.0", 8, 254),
    ]
    assert (found.host.cpu.vendor, found.host.cpu.architecture) == ("IBM", "ppc64le")
    assert classes(found) == {"0-1": "SYS"}


def test_without_sysfs_the_driver_still_names_its_gpus(tree, elsewhere):
    """As in gVisor, which shows files of /proc and no PCI devices."""
    tree.file("/proc/version", "Linux version 4.4.0\n")
    tree.file("/proc/driver/nvidia/gpus/0000:0b:00.0/information", "Model: \t\t NVIDIA H100 80GB HBM3\n")
    found = elsewhere()
    assert (found.pci, found.nics, found.host.numa_nodes) == (None, None, None)
    assert [(gpu.address, gpu.name, gpu.numa_node) for gpu in found.gpus] == [
        ("0000:0b:00.0", "NVIDIA H100 80GB HBM3", None)
    ]
    status = {source.name: source.status for source in found.sources}
    assert {status[name] for name in ("sysfs", "sysfs numa", "sysfs network", "sysfs iommu", "dmi")} == {"absent"}
    assert build(found).gpus == ("gpu:0",)


def test_wsl_where_the_gpu_is_no_pci_device_of_nvidia(tree, make_world, fakes):
    tree.file("/proc/version", "Linux version 5.15.167.4-microsoft-standard-WSL2\n")
    tree.pci("pcifd3a:00/fd3a:00:00.0", **{"class": "0x030200", "vendor": "0x1414", "device": "0x008e"})
    found = live.capture(make_world(module=fakes.FakeNvml(fakes.h200_pair())))
    assert len(found.gpus) == 2
    assert (found.host.container, found.host.hypervisor) == ("wsl", "Microsoft")
    assert classes(found)["0-1"] is not None


def test_the_gpus_of_this_machine_are_not_put_into_the_tree_of_another(tree, elsewhere, fakes):
    chain(tree, "pci0000:16", "0", ["0000:16:01.0", ("0000:17:00.0", GPU)])
    module = fakes.FakeNvml(fakes.h200_pair())
    found = elsewhere(module=module, programs={"nvidia-smi topo -m": (0, "\tGPU0\tCPU Affinity\nGPU0\t X \t0-31\n")})
    assert [gpu.address for gpu in found.gpus] == ["0000:17:00.0"]
    assert (found.matrices, found.raw, found.p2p, found.driver.version) == ([], [], None, None)
    assert "another machine" in found.source("nvml").reason
    assert found.source("nvidia-smi topo -m").status == "absent"


def test_the_root_of_this_machine_seen_from_a_container_keeps_its_gpus(tree, elsewhere, fakes):
    for slot in ("06", "07"):
        tree.pci(f"pci0000:00/0000:00:{slot}.0", **{**GPU, "device": "0x2335"})
    found = elsewhere(module=fakes.FakeNvml(fakes.h200_pair()))
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA H200", "NVIDIA H200"]


def test_a_copied_tree_says_nothing_about_our_memory_and_machine(tree, elsewhere):
    tree.folder("/dev/shm")
    found = elsewhere()
    assert (found.host.shm_total_bytes, found.host.topology_file, found.host.cpu.architecture) == (None, None, None)


@pytest.mark.parametrize(
    ("release", "cpuinfo", "architecture"),
    [
        ("4.18.0-513.el8.aarch64", "", "aarch64"),
        ("6.8.0-49-generic", "flags\t\t: fpu lm sse2\n", "x86_64"),
        ("6.8.0-49-generic", "flags\t\t: fpu sse2\n", None),
        ("6.8.0-49-generic", "CPU implementer\t: 0x41\nCPU architecture: 7\n", None),
    ],
)
def test_the_architecture_of_another_root(tree, elsewhere, release, cpuinfo, architecture):
    tree.file("/proc/sys/kernel/osrelease", f"{release}\n")
    tree.file("/proc/cpuinfo", f"processor\t: 0\n{cpuinfo}")
    assert elsewhere().host.cpu.architecture == architecture


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 999), CONTENT), min_size=1, max_size=5))
def test_whatever_stands_in_a_file_no_source_fails(tree, make_world, edits):
    """Values, not readers: a file that holds anything costs its own value."""
    if not (tree.root / "sys").exists():
        grace(tree)
        folder = chain(tree, "pci0000:16", "0", ["0000:16:01.0", ("0000:17:00.0", NIC)])
        tree.interface("ib0", folder, speed="400000", operstate="up", mtu="2044")
        tree.link("/sys/class/infiniband/mlx5_0", f"../../..{folder}/infiniband/mlx5_0")
        tree.link(f"{folder}/infiniband/mlx5_0/device", "../..")
        for name, text in {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "gid_attrs/types/0": "RoCE v2"}.items():
            tree.file(f"{folder}/infiniband/mlx5_0/ports/1/{name}", text)
        tree.file("/sys/devices/system/cpu/cpu0/topology/physical_package_id", "0")
        tree.file("/proc/sys/kernel/osrelease", "6.8.0")
    files = sorted(path for path in tree.root.rglob("*") if path.is_file() and not path.is_symlink())
    before = {}
    for number, content in edits:
        path = files[number % len(files)]
        before.setdefault(path, path.read_bytes())
        path.write_bytes(content)
    try:
        found = live.capture(make_world(elsewhere=True))
    finally:
        for path, content in before.items():
            path.write_bytes(content)
    assert [source.name for source in found.sources if source.status == "failed"] == ["nvml"]
    assert decode(encode(found)) == found
    build(found)
