from __future__ import annotations

import re
from pathlib import Path

import pytest

from topoadvisor.errors import InputError
from topoadvisor.ingest import detect, text
from topoadvisor.snapshot import CallError, Driver, Fabric, Gpu, PcieLink, Snapshot

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus/other"
CAPTURE = Path(__file__).resolve().parents[2] / "../shared/capture_h200x2"

HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Mon Jan  5 10:00:00 2026
Driver Version                            : 580.65.06
CUDA Version                              : 13.0

Attached GPUs                             : {count}
"""
GPU = """GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Product Brand                         : NVIDIA
    MIG Mode
        Current                           : Disabled
        Pending                           : Enabled
    GPU UUID                              : GPU-00000000-0000-4000-8000-0000000000{bus}
    Minor Number                          : 0
    GPU C2C Mode                          : Disabled
    GPU Virtualization Mode
        Virtualization Mode               : Pass-Through
        Host VGPU Mode                    : N/A
    PCI
        Bus                               : 0x{bus}
        Device Id                         : 0x233010DE
        Bus Id                            : 00000000:{bus}:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 1
                Device Current            : 1
                Device Max                : 5
                Host Max                  : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 3
    Performance State                     : P8
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 4 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 7
        ClusterUUID                       : 11111111-2222-4333-8444-555555555555
    Temperature
        GPU Current Temp                  : 35 C
"""
READ = Gpu(
    index=0,
    name="NVIDIA H100 80GB HBM3",
    address="0000:1b:00.0",
    uuid="GPU-00000000-0000-4000-8000-00000000001b",
    pci_device="0x2330",
    brand="NVIDIA",
    memory_bytes=81559 << 20,
    bar1_bytes=131072 << 20,
    pcie=PcieLink(current_gen=1, max_gen=5, device_max_gen=5, current_width=8, max_width=16),
    c2c_gbps=0.0,
    fabric=Fabric(state="completed", status=0, clique=7, cluster_uuid="11111111-2222-4333-8444-555555555555"),
    mig=False,
    virtualization="passthrough",
    performance_state=8,
    pcie_replays=3,
)


def read(body: str) -> Snapshot:
    return text.read(body, "q.txt")


def query(*buses: str, count: int | None = None) -> str:
    return HEAD.format(count=len(buses) if count is None else count) + "".join(GPU.format(bus=bus) for bus in buses)


@pytest.mark.parametrize(
    "change",
    [
        str,
        lambda body: body.replace("\n", "\r\n"),
        lambda body: "$ nvidia-smi -q\n" + body + "$ exit\n",
        lambda body: re.sub(r"^", "        ", body, flags=re.M),
        lambda body: body.replace("    ", "\t"),
        lambda body: re.sub(r" {2,}: ", ": ", body),
        lambda body: body.replace("    Performance State", "a stranger's line\n    Performance State"),
        lambda body: body[body.index("Driver Version") :].replace("Attached", "Attached"),
    ],
)
def test_everything_about_a_gpu(change) -> None:  # type: ignore[no-untyped-def]
    snapshot = read(change(query("1b")))
    assert snapshot.gpus == [READ]
    assert (snapshot.origin, [source.name for source in snapshot.sources]) == ("text", ["nvidia-smi -q"])


def test_the_driver_of_the_report() -> None:
    assert read(query("1b")).driver == Driver(version="580.65.06", cuda="13.0")


def test_gpus_are_numbered_in_the_order_of_the_report() -> None:
    snapshot = read(query("1b", "43", "c3"))
    assert [(gpu.index, gpu.address) for gpu in snapshot.gpus] == [
        (0, "0000:1b:00.0"),
        (1, "0000:43:00.0"),
        (2, "0000:c3:00.0"),
    ]
    assert snapshot.sources[0].status == "ok"


def test_some_of_the_gpus_are_no_whole_machine() -> None:
    snapshot = read(query("43", count=8))
    (source,) = snapshot.sources
    assert (source.status, source.reason) == ("partial", "1 of 8 GPUs are shown, and not which numbers they have")
    assert [gpu.address for gpu in snapshot.gpus] == ["0000:43:00.0", *[None] * 7]


def test_what_is_not_available_is_not_read() -> None:
    body = re.sub(r": [^\n]+", ": N/A", GPU.format(bus="1b"))
    (gpu,) = read(HEAD.format(count=1) + body).gpus
    assert gpu == Gpu(index=0, address="0000:1b:00.0", mig=False), "no MIG mode is none that is on"


@pytest.mark.parametrize(("printed", "status"), [("Insufficient Resources", 23), ("Of Another Kind", None)])
def test_a_fabric_that_failed_keeps_its_error(printed: str, status: int | None) -> None:
    snapshot = read(query("1b").replace("Success", printed))
    assert snapshot.gpus[0].fabric == Fabric(
        state="completed", status=status, clique=7, cluster_uuid="11111111-2222-4333-8444-555555555555"
    )
    unread = [CallError(call="Fabric Status", error=printed, subject="gpu:0")]
    assert snapshot.sources[0].errors == ([] if status is not None else unread)


@pytest.mark.parametrize("text_", ["9" * 5000, "१२", "-1x", "²"])
def test_numbers_that_are_none(text_: str) -> None:
    body = (
        query("1b").replace(": 16x", f": {text_}x").replace("Since Reset               : 3", f"Since Reset : {text_}")
    )
    (gpu,) = read(body).gpus
    assert (gpu.pcie.max_width if gpu.pcie else 0, gpu.pcie_replays) == (None, None)


XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <timestamp>Mon Jan  5 10:00:00 2026</timestamp>
  <driver_version>580.65.06</driver_version>
  <cuda_version>13.0</cuda_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:1B:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <product_brand>NVIDIA</product_brand>
    <mig_mode><current_mig>Disabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
    <uuid>GPU-00000000-0000-4000-8000-00000000001b</uuid>
    <c2c_mode>Disabled</c2c_mode>
    <gpu_virtualization_mode><virtualization_mode>Pass-Through</virtualization_mode></gpu_virtualization_mode>
    <pci>
      <pci_bus>1B</pci_bus><pci_device_id>233010DE</pci_device_id><pci_bus_id>00000000:1B:00.0</pci_bus_id>
      <pci_gpu_link_info>
        <pcie_gen>
          <max_link_gen>5</max_link_gen><current_link_gen>1</current_link_gen>
          <device_current_link_gen>1</device_current_link_gen><max_device_link_gen>5</max_device_link_gen>
        </pcie_gen>
        <link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
      </pci_gpu_link_info>
      <replay_counter>3</replay_counter>
    </pci>
    <performance_state>P8</performance_state>
    <fb_memory_usage><total>81559 MiB</total><used>4 MiB</used></fb_memory_usage>
    <bar1_memory_usage><total>131072 MiB</total></bar1_memory_usage>
    <fabric>
      <state>Completed</state><status>Success</status><cliqueId>7</cliqueId>
      <clusterUuid>11111111-2222-4333-8444-555555555555</clusterUuid>
    </fabric>
  </gpu>
</nvidia_smi_log>
"""


@pytest.mark.parametrize("before", ["", "$ nvidia-smi -q -x\n", "\n\n"])
def test_the_xml_says_the_same(before: str) -> None:
    snapshot = detect.from_bytes((before + XML).encode(), file="q.xml")
    assert snapshot.gpus == [READ]
    assert snapshot.driver == Driver(version="580.65.06", cuda="13.0")
    assert [source.name for source in snapshot.sources] == ["nvidia-smi -q -x"]


def test_xml_in_one_line_is_read_too() -> None:
    body = re.sub(r">\s+<", "><", XML) + " " * 40_000
    assert detect.from_bytes(body.encode(), file="q.xml").gpus == [READ]


@pytest.mark.parametrize("before", ["", "$ nvidia-smi -q -x\n"])
def test_xml_that_was_cut_is_one_sentence_with_its_line(before: str) -> None:
    with pytest.raises(InputError) as error:
        detect.from_bytes((before + XML[:900]).encode(), file="q.xml")
    assert "the XML is broken here" in error.value.message
    assert error.value.line == 1 + (before + XML[:900]).count("\n")


def test_broken_xml_beside_other_parts_costs_only_itself() -> None:
    snapshot = read("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n\n" + XML[:900])
    assert [(source.name, source.status) for source in snapshot.sources] == [
        ("nvidia-smi -L", "ok"),
        ("nvidia-smi -q -x", "failed"),
    ]


def test_an_xml_that_defines_anything_is_refused() -> None:
    bomb = XML.replace('SYSTEM "nvsmi_device_v12.dtd"', '[<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]')
    with pytest.raises(InputError, match="rules of its own"):
        detect.from_bytes(bomb.encode(), file="q.xml")


@pytest.mark.skipif(not CORPUS.is_dir() or not CAPTURE.is_dir(), reason="the corpus is not here")
def test_real_reports() -> None:
    def of(path: Path) -> list[tuple[str | None, str | None, int | None, int | None]]:
        found = []
        for gpu in text.read(path.read_text(encoding="utf-8"), path.name).gpus:
            pcie = gpu.pcie or PcieLink()
            found.append((gpu.name, gpu.address, pcie.current_gen, pcie.max_gen))
        return found

    assert of(CAPTURE / "smi-q.txt") == [
        ("NVIDIA H200", "0000:00:06.0", 5, 5),
        ("NVIDIA H200", "0000:00:07.0", 5, 5),
    ]
    assert of(CORPUS / "nvsmi_q_h800_gpu0.txt")[:1] == [("NVIDIA H800", "0000:18:00.0", 5, 5)]
    eight = of(CORPUS / "nvsmi_q_pci-sections_8x_rtxpro6000.txt")
    assert [address for _, address, *_ in eight] == [
        f"0000:{bus}:00.0" for bus in ("06", "07", "75", "76", "84", "85", "f4", "f5")
    ]
    assert {(now, top) for _, _, now, top in eight} == {(1, 5)}
