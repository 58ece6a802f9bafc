from __future__ import annotations

from pathlib import Path

import pytest

from topoadvisor.errors import InputError
from topoadvisor.ingest import nccl_topo_xml
from topoadvisor.snapshot import (
    Cpu,
    Gpu,
    IbPort,
    Nic,
    NumaNode,
    NvLink,
    PciDevice,
    PcieLink,
    Snapshot,
    decode,
    encode,
)

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus/nccl_topo"
FILES = sorted([*CORPUS.glob("*.xml"), *CORPUS.glob("raw/*.xml")])

MACHINE = """<!-- written by hand -->
<system version="1">
  <cpu host_hash="0x1" numaid="1" affinity="0,0000f00f" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17">
    <pci busid="0000:80:00.0" class="0x060400" vendor="0x1000" device="0xc030" link_speed="16 GT/s" link_width="16">
      <pci busid="0000:82:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="fffffff:ff:ff.0" count="2" tclass="0x068000"/>
          <nvlink target="0000:81:00.0" count="1" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:81:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="" link_width="0">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <c2c bw="44712" count="5"/>
        </gpu>
      </pci>
      <pci busid="0000:83:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="5 GT/s" link_width="8">
        <nic>
          <net name="mlx5_1" dev="1" speed="200000" port="2" guid="0xabc" maxconn="1" gdr="1"/>
          <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0xdef" maxconn="1" gdr="0"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu host_hash="0x1" numaid="0" affinity="00000000" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17">
    <nic><net name="eth0" dev="2" speed="10000" port="0" guid="0x0" gdr="0"/></nic>
  </cpu>
</system>
"""


def parse(text: str) -> Snapshot:
    return nccl_topo_xml.parse(text, file="topology.xml")


def test_gpus_in_the_order_of_their_device_numbers() -> None:
    hidden = {"active": True, "remote_type": "switch", "remote_hidden": True}
    assert parse(MACHINE).gpus == [
        Gpu(
            index=0,
            address="0000:81:00.0",
            pci_device="0x2330",
            compute_capability="9.0",
            pcie=PcieLink(),
            numa_node=1,
            nvlinks=[],
            c2c_gbps=223.56,
        ),
        Gpu(
            index=1,
            address="0000:82:00.0",
            pci_device="0x2330",
            compute_capability="9.0",
            pcie=PcieLink(max_gen=5, max_width=16),
            numa_node=1,
            nvlinks=[
                NvLink(link=0, **hidden),
                NvLink(link=1, **hidden),
                NvLink(link=2, active=True, remote_type="gpu", remote_address="0000:81:00.0"),
            ],
        ),
    ]


def test_the_tree_keeps_its_parents_and_what_is_written() -> None:
    devices = parse(MACHINE).pci
    assert devices is not None
    assert devices[0] == PciDevice(
        address="0000:80:00.0",
        class_code="0x060400",
        vendor="0x1000",
        device="0xc030",
        numa_node=1,
        max_link_speed_gts=16.0,
        max_link_width=16,
    )
    assert [(device.address[5:7], device.parent) for device in devices[1:]] == [
        ("82", "0000:80:00.0"),
        ("81", "0000:80:00.0"),
        ("83", "0000:80:00.0"),
    ]
    assert [(device.max_link_speed_gts, device.max_link_width) for device in devices[1:]] == [
        (32.0, 16),
        (None, None),
        (5.0, 8),
    ]


def test_network_devices_by_number_sockets_without_a_port() -> None:
    assert parse(MACHINE).nics == [
        Nic(
            name="mlx5_0",
            rdma=True,
            address="0000:83:00.0",
            speed_mbit=400000,
            ports=[IbPort(port=1, state="ACTIVE", rate_gbit=400.0)],
            numa_node=1,
            gdr=False,
        ),
        Nic(
            name="mlx5_1",
            rdma=True,
            address="0000:83:00.0",
            speed_mbit=200000,
            ports=[IbPort(port=2, state="ACTIVE", rate_gbit=200.0)],
            numa_node=1,
            gdr=True,
        ),
        Nic(name="eth0", interface="eth0", speed_mbit=10000, gdr=False),
    ]


def test_the_host() -> None:
    host = parse(MACHINE).host
    assert host.cpu == Cpu(architecture="x86_64", vendor="AMD", family=25, model=17)
    assert host.numa_nodes == [NumaNode(id=0), NumaNode(id=1, cpus="0-3,12-15")]


@pytest.mark.parametrize(
    ("attributes", "cpu"),
    [
        (
            'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"',
            Cpu(architecture="x86_64", vendor="Intel", family=6, model=207),
        ),
        (
            'arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49"',
            Cpu(architecture="x86_64", vendor="AMD", family=23, model=49),
        ),
        (
            'arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="17"',
            Cpu(architecture="x86_64", vendor="AMD", family=25, model=17),
        ),
        (
            'arch="x86_64" vendor="  Shanghai  " familyid="7" modelid="91"',
            Cpu(architecture="x86_64", vendor="Zhaoxin", family=7, model=91),
        ),
        ('arch="arm64"', Cpu(architecture="aarch64")),
        ('arch="ppc64"', Cpu(architecture="ppc64le", vendor="IBM")),
        ("", None),
    ],
)
def test_processors(attributes: str, cpu: Cpu | None) -> None:
    assert parse(f'<system version="1"><cpu numaid="0" {attributes}/></system>').host.cpu == cpu


def test_a_guest_without_numa_has_no_nodes() -> None:
    found = parse(MACHINE.replace('numaid="1"', 'numaid="-1"').replace('numaid="0"', 'numaid="-1"'))
    assert found.host.numa_nodes is None
    assert [gpu.numa_node for gpu in found.gpus] == [-1, -1]


def test_gpus_that_nccl_would_fill_in_at_run_time() -> None:
    found = parse(
        '<system version="1"><cpu numaid="0">'
        '<pci busid="0000:03:00.0" class="0x030200"/><pci busid="0000:02:00.0" class="0x030200"/>'
        '<pci busid="0000:01:00.0" class="0x030000" vendor="0x1a03"/></cpu></system>'
    )
    assert [(gpu.index, gpu.address, gpu.nvlinks) for gpu in found.gpus] == [
        (0, "0000:02:00.0", None),
        (1, "0000:03:00.0", None),
    ]
    assert "bare PCI devices" in str(found.sources[0].reason)


def test_of_several_hosts_the_first_is_read() -> None:
    second = MACHINE[MACHINE.index("  <cpu") : MACHINE.index("</system>")].replace("0x1", "0x2")
    found = parse(MACHINE.replace("</system>", second + "</system>"))
    assert found.gpus == parse(MACHINE).gpus
    assert found.sources[0].status == "partial"
    assert "2 hosts" in str(found.sources[0].reason)


def test_a_link_to_the_gpu_itself_leads_nowhere_known() -> None:
    found = parse(MACHINE.replace('target="0000:81:00.0"', 'target="0000:82:00.0"'))
    assert found.gpus[1].nvlinks is not None
    assert found.gpus[1].nvlinks[2].remote_address is None
    assert [(error.subject, error.error) for error in found.sources[0].errors] == [("gpu:1", "itself")]


def test_an_interface_listed_below_every_cpu_is_one() -> None:
    nic = '<nic><net name="docker0" dev="3" speed="10000" port="0"/></nic>'
    nics = parse(MACHINE.replace("</cpu>", nic + "</cpu>")).nics
    assert nics is not None
    assert [each.name for each in nics].count("docker0") == 1


def test_both_ports_of_one_device_are_one_entry() -> None:
    nics = parse(MACHINE.replace('"mlx5_1"', '"mlx5_0"')).nics
    assert nics is not None
    assert [[port.port for port in nic.ports or []] for nic in nics] == [[2, 1], []]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("<graphs/>", (1, 1), "not <system>"),
        ('<system version="2"/>', (1, 1), "version 2"),
        (MACHINE[:400], (4, 2), "broken"),
        (MACHINE.replace("0000:82:00.0", "82"), (5, 7), "'82' is no PCI address"),
        (MACHINE.replace("0000:82:00.0", "0000:81:00.0"), (11, 7), "a second time"),
        (MACHINE.replace('dev="1" sm', 'dev="0" sm'), (12, 9), "dev=0 stands here a second time"),
        (MACHINE.replace('dev="1" sm', "sm"), (6, 9), "no device number"),
        (MACHINE.replace('count="2"', 'count="many"'), (7, 11), "no whole number"),
        (MACHINE.replace('count="2"', 'count="2000000000"'), (7, 11), "no plausible count"),
        (MACHINE.replace("fffffff:ff:ff.0", "elsewhere"), (7, 11), "'elsewhere' is no PCI address"),
        (
            '<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><system version="1">&c;</system>',
            (1, 13),
            "document type",
        ),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><system version="1"/>', (1, 40), "document type"),
        ('<system version="1">' + '<pci busid="0000:00:00.0">' * 100_000, (1, 1659), "deeper"),
        ('<system version="1">' + "<cpu/>" * 60_000 + "</system>", (1, 300_015), "elements"),
    ],
)
def test_what_cannot_be_is_named_with_its_place(text: str, place: tuple[int, int], words: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text)
    assert words in error.value.message
    if "broken" not in words:
        assert (error.value.line, error.value.column) == place
    assert error.value.hint


@pytest.mark.skipif(not FILES, reason="the corpus is not here")
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_corpus(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "<graphs" in text:
        with pytest.raises(InputError, match="not <system>"):
            parse(text)
        return
    found = parse(text)
    one_host = "hosts" not in str(found.sources[0].reason)
    if one_host and "<gpu" in text:
        assert len(found.gpus) == text.count("<gpu ")
    assert [gpu.index for gpu in found.gpus] == sorted({gpu.index for gpu in found.gpus})
    assert decode(encode(found)) == found


def test_ranks_that_share_a_gpu() -> None:
    shared = MACHINE.replace(
        '<gpu dev="0" sm="90" rank="0" gdr="1">',
        '<gpu dev="0" sm="90" rank="2" gdr="1"/><gpu dev="0" sm="90" rank="0" gdr="1">',
    )
    snapshot = parse(shared)
    assert [gpu.index for gpu in snapshot.gpus] == [0, 1]
    assert "share GPU 0" in (snapshot.sources[0].reason or "")


def test_a_nic_without_a_speed() -> None:
    snapshot = parse(MACHINE.replace('speed="10000"', 'speed="-1"'))
    assert [nic.speed_mbit for nic in snapshot.nics or [] if nic.name == "eth0"] == [None]


def test_subsystem_ids() -> None:
    ids = 'subsystem_vendor="0x1000" subsystem_device="0xa096"'
    snapshot = parse(MACHINE.replace('device="0xc030"', f'device="0xc030" {ids}'))
    bridge = next(device for device in snapshot.pci or [] if device.address == "0000:80:00.0")
    assert (bridge.subsystem_vendor, bridge.subsystem_device) == ("0x1000", "0xa096")
