"""Vendors' files, device nodes, driver parameters, plugins and kernel switches of a made-up file tree."""

from topoadvisor.collect import surroundings
from topoadvisor.collect.world import Files
from topoadvisor.hardware import vendor_files
from topoadvisor.snapshot import Driver, Host, Setting


def read(tree, world):
    return surroundings.add_to_host(Host(), Files(tree.root), world)


def test_an_aws_machine(tree, make_world):
    tree.file("/proc/sys/kernel/numa_balancing", "1\n")
    tree.file("/proc/self/status", "Name:\tx\nCapEff:\t0000000000804000\n")
    tree.file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n")
    tree.folder("/opt/amazon/efa")
    tree.file("/opt/amazon/ofi-nccl/lib/libnccl-net.so", "")
    tree.file("/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "")
    tree.file("/opt/amazon/ofi-nccl/lib/libother.so", "")
    tree.file("/dev/infiniband/uverbs0", "")
    tree.file("/dev/infiniband/uverbs1", "")
    tree.file("/dev/infiniband/rdma_cm", "")
    machine = read(tree, make_world())
    assert (machine.numa_balancing, machine.governor, machine.uverbs) == (True, "schedutil", 2)
    assert machine.capabilities == ["IPC_LOCK", "SYS_NICE"]
    assert {path for path, there in machine.paths.items() if there} == {"/opt/amazon/efa", "/opt/amazon/ofi-nccl"}
    assert set(machine.paths) == set(vendor_files.ALL)
    assert machine.network_plugins == [
        "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so",
        "/opt/amazon/ofi-nccl/lib/libnccl-net.so",
    ]


def test_an_empty_tree_tells_nothing_that_was_not_read(tree, make_world):
    machine = read(tree, make_world())
    assert (machine.numa_balancing, machine.governor, machine.uverbs, machine.capabilities) == (None, None, None, None)
    assert machine.network_plugins == []
    assert machine.fabric_manager is None


def test_no_capability_is_not_the_same_as_unread(tree, make_world):
    tree.file("/proc/self/status", "CapEff:\t0000000000000000\n")
    tree.folder("/dev")
    machine = read(tree, make_world())
    assert machine.capabilities == []
    assert machine.uverbs == 0


def test_driver_parameters_are_a_choice(tree):
    tree.file(
        "/proc/driver/nvidia/params",
        'EnableStreamMemOPs: 1\nRegistryDwords: "PeerMappingOverride=1;"\nModifyDeviceFiles: 1\n',
    )
    files = Files(tree.root)
    loaded = surroundings.driver_parameters(Driver(banner="NVRM version: x"), files)
    assert loaded.parameters == {"EnableStreamMemOPs": "1", "RegistryDwords": "PeerMappingOverride=1;"}
    assert surroundings.driver_parameters(Driver(), files).parameters is None


def test_files_that_settings_name(tree, make_world):
    tree.file("/opt/microsoft/ndv5/topo.xml", "<system/>")
    settings = [
        Setting(name="NCCL_TOPO_FILE", value="/opt/microsoft/ndv5/topo.xml", origin="environment"),
        Setting(name="NCCL_GRAPH_FILE", value="/nowhere.xml", origin="environment"),
        Setting(name="NCCL_TOPO_DUMP_FILE", value="/tmp/dump.xml", origin="environment"),
        Setting(name="NCCL_TUNER_CONFIG_FILE", value="relative.csv", origin="environment"),
    ]
    found = surroundings.with_existence(settings, Files(tree.root), make_world())
    assert [each.exists for each in found] == [True, False, None, None]
    assert surroundings.with_existence(None, Files(tree.root), make_world()) is None
