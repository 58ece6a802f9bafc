from __future__ import annotations

import re
import time

import pytest
from hwloc_texts import VERSION_1, VERSION_2, VERSION_3, matrix, parse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topoadvisor.errors import InputError
from topoadvisor.ingest import detect, hwloc_xml
from topoadvisor.snapshot import Cpu, Gpu, IbPort, Nic, NumaNode, NvLink, PciDevice, Snapshot, decode, encode
from topoadvisor.topology.graph import build


def test_gpus_are_numbered_as_nvml_numbers_them() -> None:
    found = parse(VERSION_2)
    assert [(gpu.index, gpu.address, gpu.numa_node) for gpu in found.gpus] == [
        (0, "0000:19:00.0", 0),
        (1, "0000:1a:00.0", 0),
        (2, "0000:65:00.0", 1),
        (3, "0000:66:00.0", 1),
    ]
    assert (found.gpus[0].name, found.gpus[0].pci_device) == ("Tesla V100-SXM2-32GB", "0x1db5")
    assert found.gpus[3].uuid == "GPU-00000000-0000-4000-8000-000000000003"
    assert (found.origin, found.sources[0].status, found.sources[0].reason) == ("hwloc-xml", "ok", None)


def test_nvlinks_are_counted_from_their_bandwidth() -> None:
    links = parse(VERSION_2).gpus[0].nvlinks
    assert links == [
        NvLink(link=0, active=True, remote_type="gpu", remote_address="0000:1a:00.0"),
        NvLink(link=1, active=True, remote_type="gpu", remote_address="0000:1a:00.0"),
        NvLink(link=2, active=True, remote_type="gpu", remote_address="0000:65:00.0"),
    ]


def test_the_tree_of_bridges_and_what_matters_in_it() -> None:
    devices = {device.address: device for device in parse(VERSION_2).pci or []}
    assert list(devices) == [
        *("0000:16:00.0", "0000:17:00.0", "0000:18:00.0", "0000:18:04.0", "0000:18:08.0"),
        *("0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0"),
        *("0000:64:00.0", "0000:64:01.0", "0000:65:00.0", "0000:66:00.0", "0000:80:03.0"),
    ]
    assert devices["0000:17:00.0"] == PciDevice(
        address="0000:17:00.0",
        class_code="0x0604",
        vendor="0x10b5",
        device="0x8764",
        parent="0000:16:00.0",
        root="0000:16",
        numa_node=0,
        link_gbps=15.753846,
    )
    assert (devices["0000:16:00.0"].parent, devices["0000:64:01.0"].root) == (None, "0000:64")


def test_a_gpu_of_generation_3_has_16_lanes_where_the_bandwidth_is_theirs() -> None:
    devices = {device.address: device for device in parse(VERSION_2).pci or []}
    gpu, adapter = devices["0000:19:00.0"], devices["0000:1b:00.0"]
    assert (gpu.link_speed_gts, gpu.link_width, gpu.link_gbps) == (8.0, 16, None)
    assert (adapter.link_speed_gts, adapter.link_width, adapter.link_gbps) == (None, None, 7.876923)


def test_an_adapter_is_one_entry_with_the_interface_of_its_first_port() -> None:
    assert parse(VERSION_2).nics == [
        Nic(
            name="mlx5_0",
            interface="ib0",
            rdma=True,
            address="0000:1b:00.0",
            kind="physical",
            ports=[IbPort(port=1, state="ACTIVE"), IbPort(port=2, state="DOWN")],
            numa_node=0,
        ),
        Nic(name="eno1", interface="eno1", address="0000:80:03.0", kind="physical", numa_node=1),
        Nic(name="ib1", interface="ib1", address="0000:1b:00.0", kind="physical", numa_node=0),
    ]


def test_the_host() -> None:
    host = parse(VERSION_2).host
    assert host.cpu == Cpu(
        architecture="x86_64",
        vendor="Intel",
        model_name="Xeon 8168",
        family=6,
        model=85,
        sockets=2,
        online="0-3",
    )
    assert host.numa_nodes == [
        NumaNode(id=0, cpus="0-1", memory_bytes=1 << 30, distances=[10, 20]),
        NumaNode(id=1, cpus="2-3", memory_bytes=2 << 30, distances=[21, 10]),
    ]
    assert (host.hostname, host.kernel) == ("node-a", "5.15.0")
    assert host.dmi == {"sys_vendor": "A Maker", "product_name": "Server 4"}


def classes(snapshot: Snapshot) -> dict[str, str | None]:
    return {f"{pair.a[4:]}-{pair.b[4:]}": pair.pcie_class for pair in build(snapshot).pairs.values()}


def test_link_classes_follow_from_the_tree() -> None:
    found = classes(parse(VERSION_2))
    assert (found["0-1"], found["0-2"], found["2-3"], found["0-mlx5_0"]) == ("PIX", "SYS", "PHB", "PIX")
    topology = build(parse(VERSION_2))
    assert topology.pair("gpu:0", "gpu:1").link_class == "NV2"
    assert topology.pair("gpu:0", "gpu:1").origin == "hwloc-xml"
    # 256 of 280 bytes are payload.
    assert topology.graph.edges["pci:0000:17:00.0", "pci:0000:16:00.0"]["gbps"] == pytest.approx(14.403, abs=0.01)


def test_power_links_to_the_processor() -> None:
    found = parse(VERSION_3)
    assert [link.remote_type for link in found.gpus[0].nvlinks or []] == ["gpu", "gpu", "npu", "npu"]
    assert (found.pci or [])[1].class_code == "0x030200"
    assert found.host.cpu is not None
    assert (found.host.cpu.vendor, found.host.cpu.architecture, found.host.kernel) == ("IBM", "ppc64le", "4.12")
    topology = build(found)
    assert topology.pair("gpu:0", "gpu:1").link_class == "NV2"
    assert topology.pair("gpu:0", "gpu:1").pcie_class == "NODE"


def nvswitch_machine(model: str, device: str, each: int, version: str = "3.0.0") -> str:
    """Two GPUs with a link to each of two NVSwitches, of which one could not be read."""
    gpus = "".join(
        f'<object type="PCIDev" pci_busid="0000:0{n}:00.0" pci_type="0302 [10de:{device}] [10de:0000] a1 00">'
        f'<object type="OSDev" gp_index="{40 + n}" name="nvml{n - 1}" osdev_type="12">'
        f'<info name="GPUModel" value="{model}"/></object></object>'
        for n in (1, 2)
    )
    switches = (
        '<object type="PCIDev" gp_index="51" subtype="NVSwitch" pci_busid="0000:03:00.0" pci_type="0680 [10de:1ac2] '
        '[0000:0000] a1 00"/><object type="PCIDev" gp_index="52" subtype="NVSwitch" pci_busid="0000:04:00.0" '
        'pci_type="0000 [0000:0000] [0000:0000] 00 00"/>'
    )
    bridges = (
        '<object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-04]"><object type="Bridge" bridge_type="1-1" '
    )
    bridges += 'pci_busid="0000:00:01.0" pci_type="0604 [8086:2030] [8086:0000] 04 00">'
    rows = [[10**6, 0, each, each], [0, 10**6, each, each], [each, each, 10**6, 0], [each, each, 0, 10**6]]
    return (
        '<topology version="3.0"><object type="Machine" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1">'
        '<object type="NUMANode" os_index="0" cpuset="0x1" nodeset="0x1"/>'
        f"{bridges}{gpus}{switches}</object></object></object>"
        + matrix(["OSDev:41", "OSDev:42", "PCIDev:51", "PCIDev:52"], rows)
        + f'<info name="hwlocVersion" value="{version}"/></topology>'
    )


def test_nvswitches_are_the_other_ends() -> None:
    found = parse(nvswitch_machine("Tesla V100-SXM3-32GB", "1db8", 25_000))
    assert [(link.remote_type, link.remote_address) for link in found.gpus[0].nvlinks or []] == [
        ("switch", "0000:03:00.0"),
        ("switch", "0000:04:00.0"),
    ]
    assert [(device.address, device.class_code) for device in (found.pci or [])[-2:]] == [
        ("0000:03:00.0", "0x068000"),
        ("0000:04:00.0", None),
    ]
    pair = build(found).pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.through_switch) == ("NV2", True)


@pytest.mark.parametrize(
    ("model", "device", "each", "version", "count"),
    [
        ("Tesla P100-SXM2-16GB", "15f9", 40_000, "2.5.0", 4),
        ("NVIDIA A100-SXM4-80GB", "20b2", 50_000, "2.11.0", 4),
        # hwloc 2.9.0 counted these links twice.
        ("NVIDIA A100-SXM4-80GB", "20b2", 50_000, "2.9.0", 2),
        ("NVIDIA H100 80GB HBM3", "2330", 225_000, "2.12.1", 18),
        ("NVIDIA B200", "2901", 450_000, "3.0.0", 18),
    ],
)
def test_what_hwloc_counts_for_one_link(model: str, device: str, each: int, version: str, count: int) -> None:
    links = parse(nvswitch_machine(model, device, each, version)).gpus[0].nvlinks
    assert links is not None
    assert len(links) == count


@pytest.mark.parametrize(("model", "each"), [("a card of the future", 25_000), ("Tesla V100-SXM3-32GB", 30_000)])
def test_links_that_cannot_be_counted_stay_unknown(model: str, each: int) -> None:
    found = parse(nvswitch_machine(model, "ffff", each))
    assert [gpu.nvlinks for gpu in found.gpus] == [None, None]
    assert "no whole number of links" in str(found.sources[0].reason)


def test_without_a_matrix_nothing_is_said_about_nvlinks() -> None:
    assert [gpu.nvlinks for gpu in parse(VERSION_1).gpus] == [None, None]


def test_virtual_functions_of_a_gpu_are_no_gpus() -> None:
    text = nvswitch_machine("NVIDIA A100-SXM4-80GB", "20b2", 50000)
    virtual = "".join(
        f'<object type="PCIDev" pci_busid="0000:01:{place}" pci_type="0302 [10de:20b2] [10de:0000] a1 00"/>'
        for place in ("00.4", "00.5", "01.0")
    )
    first = text.index('<object type="PCIDev"')
    found = parse(text[:first] + virtual + text[first:])
    assert [gpu.address for gpu in found.gpus] == ["0000:01:00.0", "0000:02:00.0"]


def test_version_1_and_display_devices_without_a_driver() -> None:
    found = parse(VERSION_1)
    assert found.gpus == [
        Gpu(index=0, address="0000:00:06.0", pci_device="0x2235", numa_node=0),
        Gpu(index=1, name="A100-SXM4-40GB", address="0000:81:00.0", pci_device="0x20b0", numa_node=1),
    ]
    host = found.host
    assert host.cpu == Cpu(architecture="x86_64", vendor="AMD", family=23, model=49, sockets=2, online="0-3")
    assert host.numa_nodes == [
        NumaNode(id=0, cpus="0-1", memory_bytes=8192, distances=[10, 21, 28]),
        NumaNode(id=1, cpus="2-3", memory_bytes=4096, distances=[21, 10, 17]),
        NumaNode(id=2, cpus="", memory_bytes=16384, distances=[28, 17, 10]),
    ]
    gpu = next(device for device in found.pci or [] if device.address == "0000:81:00.0")
    assert (gpu.class_code, gpu.link_speed_gts, gpu.link_width) == ("0x0302", 16.0, 16)
    assert classes(found)["0-1"] == "SYS"


def test_bridges_that_were_filtered_out_leave_the_distance_unknown() -> None:
    begin = VERSION_2.index('<object type="Bridge" gp_index="25"')
    end = VERSION_2.index("<object", begin + 1)
    text = VERSION_2[:begin] + VERSION_2[end:].replace("</object></object></object>\n   </object>", "", 1)
    begin = text.index('<object type="Bridge" gp_index="26"')
    end = text.index("<object", begin + 1)
    text = text[:begin] + text[end:]
    # Two closing tags of the two bridges.
    text = text.replace("\n   </object>\n   ", "\n   ", 1).replace(
        "\n   </object></object>\n  <object type", "</object><object type", 1
    )
    found = parse(text)
    assert "bridges above 2 PCI devices are not in the file" in str(found.sources[0].reason)
    assert {device.root for device in found.pci or [] if device.address[5:7] in ("65", "66")} == {None}
    apart = classes(found)
    assert (apart["2-3"], apart["0-2"], apart["0-1"]) == (None, "SYS", "PIX")


def test_memory_of_gpus_as_numa_nodes() -> None:
    text = (
        '<topology version="3.0"><object type="Machine" cpuset="0x3" complete_cpuset="0x3" nodeset="0x7">'
        '<object type="NUMANode" os_index="0" cpuset="0x3" nodeset="0x1" local_memory="4096"/>'
        '<object type="NUMANode" os_index="1" subtype="GPUMemory" cpuset="0x3" nodeset="0x2" local_memory="8192">'
        '<info name="PCIBusID" value="0009:01:00.0"/></object>'
        '<object type="NUMANode" os_index="2" cpuset="0x3" nodeset="0x4"/>'
        '<object type="Bridge" bridge_type="0-1" bridge_pci="0009:[00-01]"><object type="Bridge" bridge_type="1-1" '
        'pci_busid="0009:00:00.0" pci_type="0604 [10de:22b8] [0000:0000] 00 00"><object type="PCIDev" '
        'pci_busid="0009:01:00.0" pci_type="0302 [10de:2342] [10de:16eb] a1 00"/></object></object></object></topology>'
    )
    found = parse(text)
    assert [(gpu.numa_node, gpu.memory_numa_node) for gpu in found.gpus] == [(0, 1)]
    assert [node.cpus for node in found.host.numa_nodes or []] == ["0-1", "", ""]
    assert "NUMA node 1, 2 belong to others" in str(found.sources[0].reason)


def test_what_lstopo_was_not_allowed_to_use_is_said() -> None:
    text = VERSION_3.replace('complete_cpuset="0x00000003"', 'complete_cpuset="0x0000000f"', 1)
    found = parse(text)
    assert found.host.cpu is not None
    assert (found.host.cpu.online, found.host.cpu.sockets) == (None, None), "a package may be missing too"
    whole = parse(text.replace('nodeset="0x00000001"', 'nodeset="0x00000001" complete_nodeset="0x00000001"', 1))
    assert whole.host.cpu is not None
    assert (whole.host.cpu.online, whole.host.cpu.sockets) == (None, 1)
    assert "not allowed" in str(found.sources[0].reason)


def test_gpus_that_nvml_did_not_see_come_last() -> None:
    begin = VERSION_2.index('<object type="OSDev" gp_index="400"')
    end = VERSION_2.index("</object>", begin) + len("</object>")
    found = parse(VERSION_2[:begin] + VERSION_2[end:])
    assert [(gpu.index, gpu.address[5:7] if gpu.address else None) for gpu in found.gpus] == [
        (1, "1a"),
        (2, "65"),
        (3, "66"),
        (4, "19"),
    ]
    assert "NVML did not show 0000:19:00.0" in str(found.sources[0].reason)


def test_nvml_without_the_right_to_see_pci_devices() -> None:
    text = (
        '<topology version="2.0"><object type="Machine" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1">'
        '<object type="OSDev" gp_index="8" name="nvml0" osdev_type="1"><info name="GPUModel" value="NVIDIA A10"/>'
        "</object></object></topology>"
    )
    assert parse(text).gpus == [Gpu(index=0, name="NVIDIA A10")]


def test_of_several_machines_the_first_is_read() -> None:
    body = VERSION_1[VERSION_1.index('<object type="Machine"') : VERSION_1.index("</topology>")]
    text = f'<topology><object type="System">{body}{body}</object></topology>'
    found = parse(text)
    assert found.gpus == parse(VERSION_1).gpus
    assert "2 machines" in str(found.sources[0].reason)


def test_a_device_listed_twice_is_read_once() -> None:
    found = parse(VERSION_2.replace('"0000:80:1f.2"', '"0000:80:03.0"'))
    assert [device.address for device in found.pci or []].count("0000:80:03.0") == 0
    assert "second PCI device 0000:80:03.0" in str(found.sources[0].reason)


def test_a_file_without_devices_says_so() -> None:
    found = parse('<topology version="2.0"><object type="Machine" cpuset="0x1" nodeset="0x1"/></topology>')
    assert (found.gpus, found.pci, found.nics) == ([], None, None)
    assert "no NVIDIA GPU" in str(found.sources[0].reason)


@pytest.mark.parametrize("text", [VERSION_1, VERSION_2, VERSION_3])
def test_recognised_by_content_and_kept_whole(text: str) -> None:
    found = detect.from_bytes(text.encode(), file="machine.txt")
    assert found.origin == "hwloc-xml"
    assert found.raw[0].text == text
    assert decode(encode(found)) == found


def place(text: str, begin: str) -> tuple[int, int]:
    """Line and column of the first element in `text` that begins like this."""
    before = text[: text.index(begin)]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


@pytest.mark.parametrize(
    ("old", "new", "begin", "words"),
    [
        ('version="2.0"', 'version="4.0"', "<topology", "version '4.0'"),
        ("0000:17:00.0", "17", '<object type="Bridge" gp_index="8"', "'17' is no PCI address"),
        (
            'NUMANode" os_index="1"',
            'NUMANode" os_index="0"',
            '<object type="NUMANode" os_index="0" cpuset="0x0000000c"',
            "second",
        ),
        ('NUMANode" os_index="1"', 'NUMANode"', '<object type="NUMANode" cpuset', "no os_index"),
        (
            'NUMANode" os_index="0" cpuset="0x00000003"',
            'NUMANode" os_index="0" cpuset="0-1"',
            '<object type="NUMANode"',
            "'0-1' is no set",
        ),
        ('"15.753846"', '"fast"', '<object type="Bridge" gp_index="7"', "'fast' is no number"),
        ('"nvml1"', '"nvml0"', '<object type="OSDev" gp_index="401"', "nvml0 stands here a second time"),
        (">1 0 <", ">1 <", "<distances2 ", "2 objects has 1 indexes"),
        ('nbobjs="2"', "", "<distances2 ", "does not say how many"),
        ('nbobjs="2"', 'nbobjs="2000000000"', "<distances2 ", "too large"),
        ('nbobjs="2"', 'nbobjs="' + "2" * 5000 + '"', "<distances2 ", "no whole number"),
        ("OSDev:401", "OSDev", '<indexes length="40"', "'OSDev' is no index"),
        ("21 20", "21 ٢٠", "<u64values", "is no whole number"),
    ],
)
def test_what_cannot_be_is_named_with_its_place(old: str, new: str, begin: str, words: str) -> None:
    text = VERSION_2.replace(old, new, 1)
    with pytest.raises(InputError) as error:
        parse(text)
    assert words in error.value.message
    assert (error.value.line, error.value.column) == place(text, begin)
    assert error.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<topology/>", "no <object>"),
        ("<system/>", "not <topology>"),
        (VERSION_2[:900], "broken"),
        ('<!DOCTYPE topology [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><topology>&c;</topology>', "rules of its own"),
        ('<!DOCTYPE other SYSTEM "hwloc.dtd"><topology/>', "document type"),
        ("<topology>" + '<object type="Group">' * 100_000, "deeper"),
        ("<topology>" + "<support/>" * 300_000 + "</topology>", "elements"),
    ],
    ids=["empty", "other", "cut", "entities", "other type", "deep", "long"],
)
def test_what_is_no_topology_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        parse(text)
    assert error.value.line is not None


def test_an_external_document_type_is_never_fetched() -> None:
    assert parse(VERSION_3.replace('SYSTEM "hwloc2.dtd"', 'SYSTEM "file:///dev/zero"')).gpus


def test_huge_values_cost_little() -> None:
    values = "1 " * 5_000_000
    text = (
        '<topology version="2.0"><object type="Machine"/><distances2 type="NUMANode" nbobjs="1000" kind="5">'
        f"<u64values>{values}</u64values></distances2></topology>"
    )
    begun = time.perf_counter()
    with pytest.raises(InputError, match="5000000 values"):
        parse(text)
    many = (
        '<object type="PCIDev" pci_busid="{:04x}:00:00.0" pci_type="0302 [10de:1db5] [0000:0000] a1">'
        '<object type="OSDev" name="mlx5_0" osdev_type="3"/></object>'
    )
    text = '<topology version="2.0"><object type="Machine" nodeset="0x1">' + "".join(
        many.format(number) for number in range(20_000)
    )
    assert len(parse(text + "</object></topology>").gpus) == 20_000
    assert time.perf_counter() - begun < 20


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=st.sampled_from([VERSION_1, VERSION_2, VERSION_3]),
    edits=st.lists(st.tuples(st.integers(0, 9000), st.binary(max_size=3), st.integers(0, 40)), min_size=1, max_size=4),
)
def test_any_change_of_bytes_gives_a_result_or_one_error(text: str, edits: list[tuple[int, bytes, int]]) -> None:
    data = bytearray(text.encode())
    for start, replacement, length in edits:
        start %= len(data)
        data[start : start + length] = replacement
    gives_a_result_or_one_error(bytes(data).decode("utf-8", "replace"))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=st.sampled_from([VERSION_1, VERSION_2, VERSION_3]),
    edits=st.lists(
        st.tuples(st.integers(0, 500), st.text("0123456789abcdefx:,.[]- ٣²", max_size=8)), min_size=1, max_size=4
    ),
)
def test_any_change_of_values_gives_a_result_or_one_error(text: str, edits: list[tuple[int, str]]) -> None:
    for number, replacement in edits:
        places = [match.span(1) for match in re.finditer(r'="([^"<]*)"', text)]
        start, end = places[number % len(places)]
        text = text[:start] + replacement + text[end:]
    gives_a_result_or_one_error(text)


def gives_a_result_or_one_error(text: str) -> None:
    try:
        found = hwloc_xml.parse(text, file="x")
    except InputError:
        return
    assert decode(encode(found)) == found
    build(found)
