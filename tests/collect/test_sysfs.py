import pytest

from topoadvisor.collect import sysfs
from topoadvisor.collect.world import Files

SWITCH = "pci0000:16/0000:16:01.0/0000:17:00.0"
GPU_LINK = {
    "current_link_speed": "2.5 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_width": "16",
}


@pytest.fixture
def server(tree, fakes):
    """Two sockets: a switch with a GPU and an RDMA NIC below one, a GPU and a virtual function below the other."""
    bridge = {
        "class": "0x060400",
        "vendor": "0x1000",
        "device": "0xc030",
        "driver": "../../../../bus/pci/drivers/pcieport",
    }
    tree.pci("pci0000:16/0000:16:01.0", **bridge, numa_node="0", config=fakes.config_space(4, 0x1D))
    tree.pci(SWITCH, **bridge, numa_node="0", config=fakes.config_space(5, None))
    tree.pci(f"{SWITCH}/0000:18:00.0", **bridge, numa_node="0", config=fakes.config_space(6, 0x11))
    tree.pci(f"{SWITCH}/0000:18:01.0", **bridge, numa_node="0", config=fakes.config_space(6, 0x1D)[:64])
    gpu = {
        "class": "0x030200",
        "vendor": "0x10de",
        "device": "0x2330",
        "driver": "../../bus/pci/drivers/nvidia",
        **GPU_LINK,
    }
    tree.pci(f"{SWITCH}/0000:18:00.0/0000:19:00.0", **gpu, numa_node="0", iommu_group="../../../kernel/iommu_groups/12")
    nic = tree.pci(
        f"{SWITCH}/0000:18:01.0/0000:1a:00.0",
        **{"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "driver": "../../bus/pci/drivers/mlx5_core"},
        numa_node="0",
    )
    tree.pci("pci0000:97/0000:97:01.0", **bridge, numa_node="1")
    tree.pci("pci0000:97/0000:97:01.0/0000:98:00.0", **gpu, numa_node="1")
    tree.pci(
        "pci0000:97/0000:97:02.0",
        **{"class": "0x020000", "vendor": "0x15b3", "device": "0x101e", "physfn": "../0000:97:03.0", "numa_node": "1"},
        current_link_width="0",
        current_link_speed="Unknown",
    )
    tree.pci("pci0000:97/0000:97:1f.0", **{"class": "0x010601", "vendor": "0x8086", "device": "0x1d02"})
    tree.pci("pci0000:97/0000:97:1c.0", **bridge)
    return tree, nic


def test_tree_with_parents_roots_and_links(server):
    tree, _ = server
    devices = {device.address: device for device in sysfs.read_pci(Files(tree.root))}
    gpu = devices["0000:19:00.0"]
    assert (gpu.parent, gpu.root, gpu.numa_node, gpu.driver) == ("0000:18:00.0", "0000:16", 0, "nvidia")
    assert (gpu.link_speed_gts, gpu.max_link_speed_gts, gpu.link_width, gpu.max_link_width) == (2.5, 32.0, 16, 16)
    assert gpu.iommu_group == "12"
    assert devices["0000:17:00.0"].parent == "0000:16:01.0"
    assert devices["0000:16:01.0"].parent is None
    assert devices["0000:98:00.0"].root == "0000:97"


def test_only_what_matters_and_the_bridges_above_it_in_bus_order(server):
    tree, _ = server
    assert [device.address for device in sysfs.read_pci(Files(tree.root))] == [
        *("0000:16:01.0", "0000:17:00.0", "0000:18:00.0", "0000:18:01.0", "0000:19:00.0", "0000:1a:00.0"),
        *("0000:97:01.0", "0000:97:02.0", "0000:98:00.0"),
    ]


def test_acs_and_port_types_where_configuration_space_is_readable(server):
    tree, _ = server
    devices = {device.address: device for device in sysfs.read_pci(Files(tree.root))}
    assert (devices["0000:16:01.0"].port_type, devices["0000:16:01.0"].acs_redirect) == ("root-port", True)
    assert (devices["0000:17:00.0"].port_type, devices["0000:17:00.0"].acs_redirect) == ("upstream", False)
    assert (devices["0000:18:00.0"].port_type, devices["0000:18:00.0"].acs_redirect) == ("downstream", False)
    assert (devices["0000:18:01.0"].port_type, devices["0000:18:01.0"].acs_redirect) == (None, None)


@pytest.mark.parametrize(
    "config", [b"", b"\xff" * 4096, b"\xff" * 256, bytes(4096), b"\x86\x80" + b"\xff" * 4094], ids=range(5)
)
def test_odd_configuration_space_is_unknown_or_plain(config):
    port_type, redirect = sysfs.parse_config(config)
    assert redirect is None or port_type is not None


def test_capability_lists_that_loop_end(fakes):
    config = bytearray(fakes.config_space(4, 0x1D))
    config[0x41] = 0x40
    assert sysfs.parse_config(bytes(config)) == (None, None)
    config = bytearray(fakes.config_space(4, None))
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert sysfs.parse_config(bytes(config)) == ("root-port", False)


def test_short_extended_space_leaves_acs_unknown(fakes):
    assert sysfs.parse_config(fakes.config_space(4, None, size=256)) == ("root-port", None)


def test_virtual_function_names_its_physical_one_and_has_no_width(server):
    tree, _ = server
    device = next(device for device in sysfs.read_pci(Files(tree.root)) if device.address == "0000:97:02.0")
    assert (device.sriov_of, device.link_width, device.link_speed_gts) == ("0000:97:03.0", None, None)


def test_vmd_is_a_root_of_its_own(tree):
    tree.pci("pci0000:64/0000:64:00.5", **{"class": "0x010400", "vendor": "0x8086"})
    nvme = "pci0000:64/0000:64:00.5/pci10000:e0/10000:e0:02.0/10000:e1:00.0"
    tree.pci(nvme.rpartition("/")[0], **{"class": "0x060400", "vendor": "0x8086"})
    tree.pci(nvme, **{"class": "0x010802", "vendor": "0x144d"})
    devices = {device.address: device for device in sysfs.read_pci(Files(tree.root))}
    assert (devices["10000:e1:00.0"].parent, devices["10000:e1:00.0"].root) == ("10000:e0:02.0", "10000:e0")
    assert (devices["10000:e0:02.0"].parent, devices["10000:e0:02.0"].root) == (None, "10000:e0")
    assert next(iter(devices)) == "0000:64:00.5"


def test_guest_with_a_flat_bus(tree):
    for slot in ("06", "07"):
        tree.pci(f"pci0000:00/0000:00:{slot}.0", **{"class": "0x030200", "vendor": "0x10de", "numa_node": "-1"})
    devices = sysfs.read_pci(Files(tree.root))
    assert {(device.parent, device.root, device.numa_node) for device in devices} == {(None, "0000:00", -1)}


def test_nvswitch_counts_and_other_bridges_of_that_class_do_not(tree):
    tree.pci("pci0000:07/0000:07:00.0", **{"class": "0x068000", "vendor": "0x10de"})
    tree.pci("pci0000:00/0000:00:01.3", **{"class": "0x068000", "vendor": "0x8086"})
    assert [device.address for device in sysfs.read_pci(Files(tree.root))] == ["0000:07:00.0"]


def test_nothing_without_sysfs(tree):
    files = Files(tree.root)
    assert sysfs.read_pci(files) is None
    assert sysfs.read_numa(files) is None
    assert sysfs.read_nics(files) is None
    assert sysfs.read_iommu(files) is None
    assert files.errors == []


def test_numa_nodes(tree):
    base = "/sys/devices/system/node"
    for node, cpus, distance in ((0, "0-31,64-95", "10 21 40"), (1, "32-63", "21 10 80"), (8, "", "40 80 10")):
        tree.file(f"{base}/node{node}/cpulist", f"{cpus}\n")
        tree.file(f"{base}/node{node}/distance", f"{distance}\n")
        tree.file(f"{base}/node{node}/meminfo", f"Node {node} MemTotal:       1024 kB\nNode {node} MemFree: 1 kB\n")
    tree.file(f"{base}/node_control", "")
    nodes = sysfs.read_numa(Files(tree.root))
    assert [(node.id, node.cpus, node.memory_bytes, node.distances) for node in nodes] == [
        (0, "0-31,64-95", 1048576, [10, 21, 40]),
        (1, "32-63", 1048576, [21, 10, 80]),
        (8, "", 1048576, [40, 80, 10]),
    ]


def test_iommu_groups_by_number_with_type(tree):
    for group in ("2", "10"):
        tree.file(f"/sys/kernel/iommu_groups/{group}/type", "DMA-FQ\n")
        tree.folder(f"/sys/kernel/iommu_groups/{group}/devices/0000:1{group[-1]}:00.0")
    groups = sysfs.read_iommu(Files(tree.root))
    assert [(group.id, group.type, group.devices) for group in groups] == [
        ("2", "DMA-FQ", ["0000:12:00.0"]),
        ("10", "DMA-FQ", ["0000:10:00.0"]),
    ]


def test_no_iommu_group_is_not_the_same_as_not_shown(tree):
    tree.folder("/sys/kernel/iommu_groups")
    assert sysfs.read_iommu(Files(tree.root)) == []


def rdma(tree, name, device, **port):
    folder = f"{device}/infiniband/{name}"
    tree.link(f"/sys/class/infiniband/{name}", f"../../..{folder}")
    tree.link(f"{folder}/device", "../..")
    for attribute, text in {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "link_layer": "InfiniBand",
        **port,
    }.items():
        tree.file(f"{folder}/ports/1/{attribute}", f"{text}\n")


def test_rdma_device_and_its_interface_are_one_entry(server):
    tree, nic = server
    rdma(tree, "mlx5_10", nic)
    tree.interface("ib0", nic, type="32", operstate="up", mtu="2044", speed="400000")
    tree.interface("lo", type="772", mtu="65536")
    (entry, loopback) = sysfs.read_nics(Files(tree.root))
    assert (entry.name, entry.interface, entry.rdma, entry.address) == ("mlx5_10", "ib0", True, "0000:1a:00.0")
    assert (entry.driver, entry.state, entry.speed_mbit, entry.mtu, entry.kind) == (
        "mlx5_core",
        "up",
        400000,
        2044,
        "physical",
    )
    port = entry.ports[0]
    assert (port.port, port.state, port.physical_state, port.rate_gbit, port.link_layer) == (
        1,
        "ACTIVE",
        "LinkUp",
        400.0,
        "InfiniBand",
    )
    assert entry.numa_node == 0
    assert (loopback.name, loopback.kind, loopback.rdma) == ("lo", "loopback", False)


def test_rdma_devices_in_human_order(server):
    tree, nic = server
    for number in (10, 2):
        rdma(tree, f"mlx5_{number}", nic)
    assert [entry.name for entry in sysfs.read_nics(Files(tree.root))] == ["mlx5_2", "mlx5_10"]


def test_bond_behind_a_gid_and_types_of_gids_in_use(server):
    tree, nic = server
    rdma(
        tree,
        "mlx5_bond_0",
        nic,
        **{
            "link_layer": "Ethernet",
            "gid_attrs/ndevs/0": "bond0",
            "gid_attrs/types/0": "IB/RoCE v1",
            "gid_attrs/types/1": "RoCE v2",
            "gid_attrs/types/2": "",
            "gid_attrs/types/3": "RoCE v2",
        },
    )
    tree.interface("bond0", **{"bonding/mode": "802.3ad 4"})
    tree.interface("eth1", nic)
    entries = {entry.name: entry for entry in sysfs.read_nics(Files(tree.root))}
    assert (entries["mlx5_bond_0"].interface, entries["mlx5_bond_0"].kind) == ("bond0", "bond")
    assert entries["mlx5_bond_0"].ports[0].gid_types == {"0": "IB/RoCE v1", "1": "RoCE v2", "3": "RoCE v2"}
    assert entries["eth1"].kind == "physical"


def test_representors_are_not_taken_for_the_uplink(server):
    tree, nic = server
    rdma(tree, "mlx5_0", nic)
    tree.interface("eth0_vf0", nic, phys_port_name="pf0vf0")
    tree.interface("uplink", nic, phys_port_name="p0")
    assert sysfs.read_nics(Files(tree.root))[0].interface == "uplink"


def test_virtio_interface_belongs_to_the_function_above_it(tree):
    folder = tree.pci("pci0000:00/0000:00:03.0", **{"class": "0x020000", "numa_node": "-1"})
    tree.folder(f"{folder}/virtio2")
    tree.interface("eth0", f"{folder}/virtio2", speed="-1")
    (entry,) = sysfs.read_nics(Files(tree.root))
    assert (entry.address, entry.speed_mbit, entry.numa_node) == ("0000:00:03.0", None, -1)


@pytest.mark.parametrize(
    ("name", "attributes", "kind"),
    [
        ("docker0", {"bridge/bridge_id": "8000"}, "bridge"),
        ("br0", {"uevent": "DEVTYPE=bridge"}, "bridge"),
        ("veth12ab", {"iflink": "9"}, "veth"),
        ("eth0", {"iflink": "9"}, "veth"),
        ("eth0.5", {"uevent": "DEVTYPE=vlan", "iflink": "9"}, "vlan"),
        ("macvlan0", {"uevent": "DEVTYPE=macvlan", "iflink": "9"}, "virtual"),
        ("ib0.8001", {"type": "32", "iflink": "9"}, "virtual"),
        ("vxlan.calico", {"uevent": "DEVTYPE=vxlan"}, "tunnel"),
        ("tunl0", {"type": "768", "iflink": "0"}, "tunnel"),
        ("tun0", {"type": "65534", "tun_flags": "0x1001"}, "tunnel"),
        ("wg0", {"type": "65534", "uevent": "DEVTYPE=wireguard"}, "tunnel"),
        ("dummy0", {}, "virtual"),
    ],
)
def test_kinds_of_interfaces(tree, name, attributes, kind):
    tree.interface(name, **attributes)
    assert sysfs.interface_kind(Files(tree.root), name) == kind


def test_control_files_are_no_interfaces(tree):
    tree.file("/sys/class/net/bonding_masters", "bond0\n")
    assert sysfs.read_nics(Files(tree.root)) == []
