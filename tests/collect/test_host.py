import pytest

from topoadvisor.collect import host
from topoadvisor.collect.world import Files

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480C
flags\t\t: fpu vme{flag}

processor\t: 1
vendor_id\t: GenuineIntel
model\t\t: 99
"""
GRACE = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nmachine\t\t: PowerNV\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (b@c)\nGCC version:\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\n"


def read(tree, world, dmi=None):
    return host.read_host(Files(tree.root), world, dmi)


@pytest.fixture
def server(tree):
    tree.file("/proc/cpuinfo", XEON.format(flag=""))
    tree.file("/proc/version", "Linux version 6.8.0 (gcc)\n")
    tree.file("/sys/devices/system/cpu/online", "0-7\n")
    for cpu, package in ((0, "0-1,4-5"), (2, "2-3,6-7")):
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/topology/package_cpus_list", f"{package}\n")
    tree.folder("/dev/shm")
    tree.folder("/run/systemd/system")
    return tree


def test_server(server, make_world):
    server.file("/proc/sys/kernel/hostname", "gpu-17\n")
    server.file("/proc/sys/kernel/osrelease", "6.8.0-49-generic\n")
    server.link("/etc/os-release", "../usr/lib/os-release")
    server.file("/usr/lib/os-release", 'ID=ubuntu\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n')
    server.file("/proc/cmdline", "BOOT_IMAGE=/vmlinuz iommu=pt\n")
    server.file("/proc/modules", "nvidia_peermem 16384 0 - Live 0x0\nib_core 1 2 - Live 0x0\n")
    server.file("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3\n")
    machine = read(server, make_world())
    assert (machine.hostname, machine.kernel, machine.distribution) == (
        "gpu-17",
        "6.8.0-49-generic",
        "Ubuntu 24.04.1 LTS",
    )
    assert machine.command_line == "BOOT_IMAGE=/vmlinuz iommu=pt"
    assert machine.modules == ["ib_core", "nvidia_peermem"]
    assert machine.allowed_cpus == "0-3"
    cpu = machine.cpu
    assert (cpu.architecture, cpu.vendor, cpu.family, cpu.model, cpu.sockets, cpu.online) == (
        "x86_64",
        "Intel",
        6,
        143,
        2,
        "0-7",
    )
    assert (machine.hypervisor, machine.container) == ("none", "none")
    assert machine.shm_total_bytes > 0
    assert machine.topology_file is False


def test_nothing_at_all(tree, make_world):
    tree.folder("/")
    machine = read(tree, make_world())
    assert (machine.hostname, machine.hypervisor, machine.container, machine.modules) == (None, None, None, None)
    assert (machine.services, machine.nvswitch_control, machine.shm_total_bytes) == (None, None, None)
    assert machine.cpu.vendor is None


def test_limits(tree, make_world):
    tree.file(
        "/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max stack size            8388608              unlimited            bytes     \n"
        "Max open files            1024                 1048576              files     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n"
        "Max nice priority         0                    0                    \n",
    )
    machine = read(tree, make_world())
    assert (machine.stack_bytes, machine.open_files, machine.memlock_bytes) == (8388608, 1024, -1)


@pytest.mark.parametrize(
    ("cpuinfo", "vendor", "model", "name"),
    [
        (GRACE, "Arm", 0xD4F, "Neoverse-V2"),
        (POWER, "IBM", None, "POWER9, altivec supported"),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 1\n", "AMD", 1, None),
        ("vendor_id\t:   Shanghai  \ncpu family\t: 7\nmodel\t: 91\n", "Zhaoxin", 91, None),
        ("vendor_id\t: Newcomer\n", "Newcomer", None, None),
    ],
)
def test_cpu_makers(tree, make_world, cpuinfo, vendor, model, name):
    tree.file("/proc/cpuinfo", cpuinfo)
    cpu = read(tree, make_world()).cpu
    assert (cpu.vendor, cpu.model, cpu.model_name) == (vendor, model, name)


def test_sockets_by_older_kernels_and_unknown_without_topology(tree, make_world):
    tree.file("/sys/devices/system/cpu/online", "0-1\n")
    assert read(tree, make_world()).cpu.sockets is None
    tree.file("/sys/devices/system/cpu/cpu0/topology/core_siblings_list", "0-1\n")
    assert read(tree, make_world()).cpu.sockets == 1


@pytest.mark.parametrize(
    ("flag", "dmi", "clock", "hypervisor"),
    [
        (" hypervisor", {"sys_vendor": "QEMU", "product_name": "Standard PC"}, "", "KVM"),
        (" hypervisor", {"sys_vendor": "VMware, Inc."}, "", "VMware"),
        (" hypervisor", {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, "", "Microsoft"),
        (" hypervisor", {"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge"}, "", "KVM"),
        ("", {"sys_vendor": "Amazon EC2", "product_name": "p5.metal"}, "", "none"),
        (" hypervisor", None, "kvm-clock tsc", "KVM"),
        (" hypervisor", None, "tsc", "unknown"),
        ("", None, "tsc", "none"),
    ],
)
def test_hypervisors(server, make_world, flag, dmi, clock, hypervisor):
    server.file("/proc/cpuinfo", XEON.format(flag=flag))
    server.file("/sys/devices/system/clocksource/clocksource0/available_clocksource", f"{clock}\n")
    assert read(server, make_world(), dmi).hypervisor == hypervisor


def test_arm_is_bare_metal_only_when_the_firmware_says_who_made_it(tree, make_world):
    tree.file("/proc/cpuinfo", GRACE)
    assert read(tree, make_world()).hypervisor is None
    assert read(tree, make_world(), {"sys_vendor": "Supermicro"}).hypervisor == "none"


@pytest.mark.parametrize(
    ("path", "content", "environ", "container"),
    [
        ("/.dockerenv", "", {}, "docker"),
        ("/run/.containerenv", "", {}, "podman"),
        ("/.singularity.d/labels.json", "", {}, "apptainer"),
        ("/.dockerenv", "", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ("/proc/1/cgroup", "0::/kubepods.slice/pod1\n", {}, "kubernetes"),
        ("/proc/1/cgroup", "12:cpu:/docker/ab\n", {}, "docker"),
        ("/run/systemd/container", "lxc\n", {}, "lxc"),
        ("/proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2\n", {}, "wsl"),
    ],
)
def test_containers(server, make_world, path, content, environ, container):
    server.file(path, content)
    assert read(server, make_world(environ=environ)).container == container


def test_kubernetes_around_us_is_not_around_another_root(server, make_world):
    world = make_world(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, elsewhere=True)
    assert read(server, world).container == "none"


def test_default_route_with_the_lowest_metric(tree, make_world):
    header = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
    tree.file(
        "/proc/net/route",
        header
        + "wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\n"
        + "eth1\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\n"
        + "down0\t00000000\t0100A8C0\t0002\t0\t0\t1\t00000000\n"
        + "eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
        + "broken line\n",
    )
    assert read(tree, make_world()).default_interface == "eth1"


def test_another_root_has_the_route_and_name_of_its_own(tree, make_world):
    line = "Iface\n{}\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\n"
    tree.file("/proc/net/route", line.format("inside0"))
    tree.file("/proc/1/net/route", line.format("host0"))
    tree.file("/proc/sys/kernel/hostname", "container\n")
    tree.file("/etc/hostname", "node\n")
    assert read(tree, make_world()).default_interface == "inside0"
    machine = read(tree, make_world(elsewhere=True))
    assert (machine.default_interface, machine.hostname) == ("host0", "node")


SERVICE = "nvidia-fabricmanager"


def state(tree, make_world, **world):
    services = read(tree, make_world(**world)).services
    return services and services.get(SERVICE)


def test_service_by_its_cgroup(server, make_world):
    server.folder(f"/sys/fs/cgroup/system.slice/{SERVICE}.service")
    assert state(server, make_world) == "active"


def test_service_that_is_not_installed(server, make_world):
    assert state(server, make_world) == "not-installed"


def test_service_that_systemctl_knows_better(server, make_world):
    server.file(f"/usr/lib/systemd/system/{SERVICE}.service", "")
    assert state(server, make_world) == "inactive"
    programs = {f"systemctl is-active {SERVICE}.service": (3, "failed\n")}
    assert state(server, make_world, programs=programs) == "failed"
    assert state(server, make_world, programs=programs, elsewhere=True) == "inactive"
    assert state(server, make_world, programs={f"systemctl is-active {SERVICE}.service": (None, "")}) is None


def test_no_claim_about_services_without_systemd(tree, make_world):
    tree.file(f"/usr/lib/systemd/system/{SERVICE}.service", "")
    assert state(tree, make_world) is None


def test_nvswitch_control_device(server, make_world):
    assert read(server, make_world()).nvswitch_control is False
    server.file("/.dockerenv", "")
    assert read(server, make_world()).nvswitch_control is None
    server.file("/dev/nvidia-nvswitchctl", "")
    assert read(server, make_world()).nvswitch_control is True


@pytest.mark.parametrize(
    ("text", "version", "flavour"), [(OPEN, "580.159.04", "open"), (CLOSED, "535.54.03", "proprietary")]
)
def test_driver(tree, text, version, flavour):
    tree.file("/proc/driver/nvidia/version", text)
    driver = host.read_driver(Files(tree.root))
    assert (driver.version, driver.flavour, driver.banner) == (version, flavour, text.splitlines()[0])


def test_no_driver(tree):
    driver = host.read_driver(Files(tree.root))
    assert (driver.version, driver.flavour, driver.banner) == (None, None, None)


def test_dmi_without_what_names_one_machine(tree):
    for name in ("sys_vendor", "product_name", "product_serial", "product_uuid", "board_serial", "board_asset_tag"):
        tree.file(f"/sys/class/dmi/id/{name}", f"{name}-text\n")
    tree.file("/sys/class/dmi/id/bios_version", "\n")
    assert host.read_dmi(Files(tree.root)) == {"sys_vendor": "sys_vendor-text", "product_name": "product_name-text"}


def test_dmi_absent(tree):
    assert host.read_dmi(Files(tree.root)) is None
