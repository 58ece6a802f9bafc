import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoadvisor.measurements.model import Trial
from topoadvisor.redact import redact
from topoadvisor.snapshot import (
    Driver,
    Fabric,
    Gpu,
    Host,
    NcclLibrary,
    Nic,
    PciDevice,
    RawText,
    Setting,
    Snapshot,
    Source,
    encode,
)

UUID = "GPU-0f2cba44-98d1-4e77-a1f0-3c9d7be61a{:02x}"
NAMES = ("gpu-node-17", "alice", "0f2cba44", "10.20.30", "aa:bb:cc", "fe80::1234", "corp.example", "node99", "A1B2C3")


def machine():
    """A machine that names itself, its network and its user in as many places as it can."""
    return Snapshot(
        captured_at="2026-11-29T12:00:00Z",
        tool="topoadvisor 0.1.0",
        sources=[Source(name="sysfs", status="partial", reason="could not read /home/alice/x on gpu-node-17 (EACCES)")],
        gpus=[
            Gpu(index=0, name="NVIDIA H200", uuid=UUID.format(7), address="0000:1a:00.0"),
            Gpu(
                index=1,
                uuid=UUID.format(3),
                fabric=Fabric(state="completed", cluster_uuid="11112222-3333-4444-5555-666677778888", clique=1),
            ),
        ],
        nics=[Nic(name="enxaabbccddeeff", interface="enxaabbccddeeff"), Nic(name="mlx5_0", rdma=True)],
        pci=[PciDevice(address="0000:1a:00.0", root="0000:16", class_code="0x030200")],
        host=Host(
            hostname="gpu-node-17",
            kernel="6.8.0-49-generic",
            command_line="root=UUID=99998888-7777-6666-5555-444433332222 ip=10.20.30.40::10.20.30.1:255.255.255.0 "
            "nfsroot=files.corp.example.com:/x BOOTIF=01-aa-bb-cc-dd-ee-ff mlx5_core.prof=2",
            dmi={"product_name": "p5.48xlarge", "bios_version": "1.2.3.4", "chassis_asset_tag": "A1B2C3"},
            modules=["nvidia", "nvidia_peermem"],
        ),
        driver=Driver(version="580.159.04", banner="NVRM version: 580.159.04  Release Build  (alice@gpu-node-17)"),
        nccl_libraries=[NcclLibrary(path="/home/alice/venv/libnccl.so.2", version="2.28.9")],
        settings=[
            Setting(name="NCCL_SOCKET_IFNAME", value="=eth0,ib0", origin="environment"),
            Setting(name="NCCL_COMM_ID", value="node99:29500", origin="environment"),
            Setting(name="MASTER_ADDR", value="gpu-node-17.corp.example.com", origin="environment"),
            Setting(name="NCCL_IB_ADDR_RANGE", value="10.20.30.0/24", origin="environment"),
            Setting(
                name="CUDA_VISIBLE_DEVICES", value="GPU-0f2cba44-98d1-4e77-a1f0-3c9d7be61a03", origin="environment"
            ),
            Setting(name="NCCL_DEBUG_FILE", value="/tmp/alice.log", origin="/home/alice/.nccl.conf", line=3),
            Setting(name="NCCL_P2P_LEVEL", value="SYS", origin="environment"),
        ],
        raw=[
            RawText(
                source="nvidia-smi nvlink -s",
                text=f"alice@gpu-node-17:~$ nvidia-smi\nGPU 0: NVIDIA H200 (UUID: {UUID.format(7)})\n"
                "\t Link 0: 26.562 GB/s  00000000:1A:00.0\nfe80::1234 10.20.30.40 aa:bb:cc:dd:ee:ff\n"
                "Serial Number : A1B2C3\nSun Nov 29 13:59:45 2026 127.0.0.1\n",
            )
        ],
    )


def test_nothing_that_names_it_is_left():
    text = encode(redact(machine())).decode().lower()
    assert [name for name in NAMES if name.lower() in text] == []
    assert "aabbccddeeff" not in text
    assert "aa-bb-cc" not in text


def test_facts_stay():
    before, after = machine(), redact(machine())
    assert after.pci == before.pci
    assert after.gpus[0].address == "0000:1a:00.0"
    assert after.host.kernel == "6.8.0-49-generic"
    assert after.host.modules == before.host.modules
    assert (after.host.dmi["product_name"], after.host.dmi["bios_version"]) == ("p5.48xlarge", "1.2.3.4")
    assert (after.driver.version, after.captured_at, after.tool) == ("580.159.04", before.captured_at, before.tool)
    settings = {setting.name: setting.value for setting in after.settings}
    assert (settings["NCCL_SOCKET_IFNAME"], settings["NCCL_P2P_LEVEL"]) == ("=eth0,ib0", "SYS")
    assert after.nics[1] == before.nics[1]
    assert "mlx5_core.prof=2" in after.host.command_line
    assert ":255.255.255.0" in after.host.command_line
    text = after.raw[0].text
    assert "26.562 GB/s  00000000:1A:00.0" in text
    assert "13:59:45 2026 127.0.0.1" in text


def test_gpus_are_numbered_in_order_and_the_same_everywhere():
    after = redact(machine())
    first, second = (gpu.uuid for gpu in after.gpus)
    assert first == "GPU-00000000-0000-4000-8000-000000000000"
    assert second == "GPU-00000000-0000-4000-8000-000000000001"
    assert first in after.raw[0].text
    assert next(s.value for s in after.settings if s.name == "CUDA_VISIBLE_DEVICES") == second


def test_this_machine_is_one_host_by_short_and_full_name():
    after = redact(machine())
    assert after.host.hostname == "host-1"
    assert next(s.value for s in after.settings if s.name == "MASTER_ADDR") == "host-1"
    other = next(s.value for s in after.settings if s.name == "NCCL_COMM_ID")
    assert other in ("host-2:29500", "host-3:29500")  # the file server is the other one
    assert after.driver.banner.endswith("(user-1@host-1)")
    assert after.nccl_libraries[0].path == "/home/user-1/venv/libnccl.so.2"


def test_address_is_the_same_in_every_text():
    after = redact(machine())
    address = after.host.command_line.split("ip=")[1].split("::")[0]
    assert address.startswith("192.0.2.")
    assert f" {address} " in after.raw[0].text


def test_twice_changes_nothing_and_once_is_marked():
    once = redact(machine())
    assert once.redacted
    assert redact(once) == once


def test_new_values_beside_old_placeholders_get_new_numbers():
    once = redact(machine())
    mixed = Snapshot(
        gpus=[Gpu(index=0, uuid=UUID.format(9)), *once.gpus[:1]], host=Host(hostname="other-name"), raw=once.raw
    )
    after = redact(mixed)
    assert after.gpus[1].uuid == once.gpus[0].uuid
    assert after.gpus[0].uuid not in (gpu.uuid for gpu in once.gpus[:1])
    assert after.host.hostname not in once.raw[0].text


@pytest.mark.parametrize("cut", ["GPU-0f2cba44", "GPU-0f2c", "MIG-GPU-0f2cba44-98d1-4e77-a1f0-3c9d7be61a07/1/0"])
def test_gpu_named_by_part_of_its_uuid(cut):
    snapshot = Snapshot(
        gpus=[Gpu(index=0, uuid=UUID.format(7))],
        settings=[Setting(name="CUDA_VISIBLE_DEVICES", value=cut, origin="environment")],
    )
    value = redact(snapshot).settings[0].value
    assert "GPU-00000000-0000-4000-8000-000000000000" in value
    assert "5f2c" not in value


@pytest.mark.parametrize(
    "value",
    [
        "GPU-accelerated",
        "0,1",
        "::1",
        "0.0.0.0",
        "127.0.0.1",
        "2.28.9",
        "mlx5_0:1",
        "^docker0,lo",
        "libnccl-net.so",
        "1",
    ],
)
def test_ordinary_values_are_left_alone(value):
    snapshot = Snapshot(settings=[Setting(name="NCCL_X", value=value, origin="environment")])
    assert redact(snapshot).settings[0].value == value


@pytest.mark.parametrize("hostname", ["1", "localhost", "(none)"])
def test_host_name_that_names_nothing_is_left_alone(hostname):
    snapshot = Snapshot(
        host=Host(hostname=hostname), settings=[Setting(name="NCCL_DEBUG", value="1", origin="environment")]
    )
    assert redact(snapshot).settings[0].value == "1"


@pytest.mark.parametrize("account", ["root", "ubuntu"])
def test_accounts_of_images_name_nobody(account):
    snapshot = Snapshot(nccl_libraries=[NcclLibrary(path=f"/home/{account}/libnccl.so.2")])
    assert redact(snapshot).nccl_libraries[0].path == f"/home/{account}/libnccl.so.2"


def test_public_asset_tag_tells_the_cloud_and_stays():
    tag = "7783-7084-3265-9085-8269-3286-77"
    assert redact(Snapshot(host=Host(dmi={"chassis_asset_tag": tag}))).host.dmi["chassis_asset_tag"] == tag


def test_empty_snapshot():
    assert redact(Snapshot()) == Snapshot(redacted=True)


PIECES = st.sampled_from(
    [
        *(
            "10.1.2.3",
            "fe80::9",
            "aa:bb:cc:dd:ee:01",
            "bob@node-5",
            "/home/carol/x",
            "deadbeef-0000-1111-2222-333344445555",
        ),
        *(
            "GPU-deadbeef",
            "node-5",
            "node-5.lan",
            "host-1",
            "192.0.2.1",
            "0000:1a:00.0",
            "serial: XYZ9",
            "carol",
            " ",
            ":",
        ),
        *("enx001122334455", "0011:2233:4455:6677", "1", ".", ",", "\n", "a.b.com", "2001:db8::1", "user-1", "/"),
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.lists(PIECES, max_size=6).map("".join))
def test_redacting_any_text_twice_is_redacting_it_once(text, value):
    snapshot = Snapshot(
        host=Host(hostname="node-5", command_line=text),
        raw=[RawText(source="x", text=text)],
        settings=[Setting(name="MASTER_ADDR", value=value, origin="environment")],
    )
    once = redact(snapshot)
    assert redact(once) == once


def test_serials_and_host_in_an_hwloc_xml():
    text = (
        '<info name="NVIDIASerial" value="1234A5678"/><info name="NVIDIAUUID" value="GPU-0f2cba44-98d1-4e77-a1f0-'
        '3c9d7be61a07"/><info name="DMIProductSerial" value="1234A5678"/><info name="HostName" value="gpu-node-17"/>'
        '<info name="DMIProductName" value="Server 4"/><info name="Address" value="aa:bb:cc:00:11:22"/>'
    )
    plain = Snapshot(host=Host(hostname="gpu-node-17"), raw=[RawText(source="hwloc-xml", text=text)])
    assert redact(plain).raw[0].text == (
        '<info name="NVIDIASerial" value="serial-1"/><info name="NVIDIAUUID" value="GPU-00000000-0000-4000-8000-'
        '000000000000"/><info name="DMIProductSerial" value="serial-1"/><info name="HostName" value="host-1"/>'
        '<info name="DMIProductName" value="Server 4"/><info name="Address" value="02:00:00:00:00:00"/>'
    )
    assert redact(redact(plain)) == redact(plain)


def test_what_nccl_calls_hosts_and_nics_by() -> None:
    text = '<cpu host_hash="0xa2e49e7a5e3bf47f"/><net guid="0x98039b0300aabbcc"/><net guid="0x98039b0300aabbcc"/>'
    text += '<net guid="0x0" speed="0x1234"/>'
    snapshot = Snapshot(raw=[RawText(source="nccl-topology-xml", text=text)])
    hidden = redact(snapshot)
    assert hidden.raw[0].text == (
        '<cpu host_hash="0x0200000000000000"/><net guid="0x0200000000000001"/><net guid="0x0200000000000001"/>'
        '<net guid="0x0" speed="0x1234"/>'
    )
    assert redact(hidden) == hidden


def test_values_that_were_tried_are_redacted_like_those_that_are_set():
    tried = {"NCCL_RAS_ADDR": "node99:28028", "NCCL_TOPO_FILE": "/home/alice/gpu-node-17.xml", "NCCL_ALGO": None}
    before = msgspec.structs.replace(machine(), trials=[Trial(settings=tried, gpus=[0, 1], nccl="2.28.9")])
    after = redact(before).trials[0]
    told = " ".join(filter(None, after.settings.values()))
    assert not any(name in told for name in NAMES)
    assert list(after.settings) == list(tried)
    assert (after.settings["NCCL_ALGO"], after.nccl) == (None, "2.28.9")


def test_secrets_of_a_kernel_command_line_are_hidden():
    line = "quiet iommu=pt coreos.inst.ignition_token=hunter2 ROOT_PASSWORD=x api-key=abc nokaslr"
    after = redact(Snapshot(host=Host(command_line=line)))
    hidden = "quiet iommu=pt coreos.inst.ignition_token=hidden ROOT_PASSWORD=hidden api-key=hidden nokaslr"
    assert after.host.command_line == hidden
    assert redact(after).host.command_line == after.host.command_line
