from __future__ import annotations

from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.emit import nccl_topo
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.files import shipped
from topoadvisor.ingest import detect, nccl_topo_xml
from topoadvisor.snapshot import Gpu, Snapshot, decode
from topoadvisor.topology import nccl_view

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus/nccl_topo"
FILES = sorted(path for path in CORPUS.rglob("*.xml") if "graph" not in path.name)


DUMP = """<!-- written by hand -->
<system version="1" name="rack 7">
  <cpu host_hash="0x1" numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="00000000:1B:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="" link_width="0">
      <gpu dev="0" sm="90" rank="3" gdr="1" colour="green">
        <nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>
      </gpu>
    </pci>
    <pci busid="0000:1c:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="32 GT/s" link_width="16">
      <nic>
        <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0xa" maxconn="7" gdr="1" keep="1" coll="1"/>
      </nic>
      <strange/>
    </pci>
  </cpu>
</system>
"""

WRITTEN = """<!-- Topology of one machine, written by topoadvisor {} for NCCL_TOPO_FILE -->
<system version="1" name="rack 7">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:1b:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="" link_width="0">
      <gpu dev="0" sm="90" rank="3" gdr="1">
        <nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>
      </gpu>
    </pci>
    <pci busid="0000:1c:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="32 GT/s" link_width="16">
      <nic>
        <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0xa" maxconn="7" gdr="1" coll="1"/>
      </nic>
    </pci>
  </cpu>
</system>
"""


def parse(text: str) -> Snapshot:
    return nccl_topo_xml.parse(text, file="x")


def fixture(name: str) -> Snapshot:
    return decode((shipped("fixtures") / name / "snapshot.json").read_bytes())


def test_a_dump_comes_back_without_what_belongs_to_one_run() -> None:
    text, remarks = nccl_topo.render(parse(DUMP))
    assert text == WRITTEN.format(nccl_topo.__version__)
    assert remarks == []


def test_writing_again_changes_nothing() -> None:
    text, _ = nccl_topo.render(parse(DUMP))
    assert nccl_topo.render(parse(text))[0] == text


@pytest.mark.parametrize(
    "name",
    [
        "2x3090-bridge",
        "2x5090-container",
        "2xh200-kvm",
        "4xa100-pcie",
        "8x4090",
        "8xl40s",
        "dgx-1v",
        "dgx-h100",
        "gh200",
    ],
)
def test_a_fixture_gives_a_file_that_nccl_reads(name: str, nccl_parser: ModuleType) -> None:
    snapshot = fixture(name)
    text, remarks = nccl_topo.render(snapshot)
    system = nccl_parser.load(text)
    assert [cpu.name for cpu in system.children]
    assert text.count("<gpu ") == len(snapshot.gpus)
    assert all(remark.endswith(".") for remark in remarks)
    assert any("GPUDirect RDMA support" in remark for remark in remarks)
    assert "gdr=" not in text, "what was not read is left to NCCL"


def test_what_is_inferred_is_not_written() -> None:
    snapshot = fixture("4xa100-pcie")
    gpus = [msgspec.structs.replace(gpu, compute_capability=None, pcie=None) for gpu in snapshot.gpus]
    devices = [msgspec.structs.replace(device, max_link_speed_gts=None) for device in snapshot.pci or []]
    text, remarks = nccl_topo.render(msgspec.structs.replace(snapshot, gpus=gpus, pci=devices))
    assert " sm=" not in text
    assert "link_speed" not in text
    assert "Left to NCCL, because it was not read: the compute capability of 4 devices." in remarks


def test_nvlinks_of_a_gpu_are_written_all_or_none() -> None:
    """NCCL looks for NVLinks only at a GPU for which the file has none."""
    snapshot = fixture("dgx-1v")
    first, *others = snapshot.gpus
    assert first.nvlinks is not None
    known, *rest = first.nvlinks
    lost = msgspec.structs.replace(known, remote_address=None, remote_type=None)
    gpus = [msgspec.structs.replace(first, nvlinks=[lost, *rest]), *others]
    text, remarks = nccl_topo.render(msgspec.structs.replace(snapshot, gpus=gpus))
    blocks = [block.split("</gpu>")[0] for block in text.split("<gpu ")[1:]]
    assert ["<nvlink" in block for block in blocks] == [False, *[True] * 7]
    assert "Left to NCCL, because it was not read: the NVLinks of 1 device." in remarks


def test_only_the_first_of_several_hosts_is_written() -> None:
    start, end = DUMP.index("  <cpu"), DUMP.index("</system>")
    second = DUMP[start:end].replace('host_hash="0x1"', 'host_hash="0x2"')
    text, remarks = nccl_topo.render(parse(DUMP[:end] + second + DUMP[end:]))
    assert text == WRITTEN.format(nccl_topo.__version__)
    assert remarks == ["The source describes 2 hosts; only the first is written, a file is for one machine."]


def test_values_that_nccl_would_misread_are_left_out() -> None:
    text, remarks = nccl_topo.render(parse(DUMP.replace("mlx5_0", "mlx5&amp;0").replace("rack 7", "größer")))
    assert "<net" not in text
    assert "name=" not in text
    assert len([remark for remark in remarks if "misread" in remark]) == 2


MATRIX = "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n"


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (detect.from_bytes(MATRIX.encode(), file="x"), "this shows neither PCI addresses nor bridges"),
        (Snapshot(gpus=[Gpu(index=0, address="0000:1b:00.0")]), "this shows not the bridges above the GPUs"),
        (Snapshot(), "this shows no GPU"),
        (parse('<system version="1"><cpu numaid="0"/></system>'), "no PCI device"),
        (parse(DUMP.replace('numaid="0"', "")), "which NUMA node devices are near was not read"),
        (
            parse(DUMP.replace("<strange/>", "<pcilink target='0000:01:00.0'/>" * 200)),
            "200 elements|201 elements|202 elements",
        ),
    ],
)
def test_a_file_that_would_do_harm_is_refused(snapshot: Snapshot, message: str) -> None:
    with pytest.raises(TopoAdvisorError, match=message):
        nccl_topo.render(snapshot)


def test_a_machine_that_nccl_has_no_room_for_is_refused() -> None:
    devices = "".join(f'<pci busid="0000:{number:02x}:00.0" class="0x020000"/>' for number in range(100))
    other = devices.replace("0000:", "0001:")
    text = f'<system version="1"><cpu numaid="0">{devices}</cpu><cpu numaid="1">{other}</cpu></system>'
    with pytest.raises(TopoAdvisorError, match="has room for 256"):
        nccl_topo.render(parse(text))


@pytest.mark.skipif(not FILES, reason="the corpus is not here")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nccl_sees_the_same_machine_in_what_is_written(path: Path, nccl_parser: ModuleType) -> None:
    before = parse(path.read_text())
    text, _ = nccl_topo.render(before)
    nccl_parser.load(text)
    after = parse(text)
    if not before.gpus:
        return
    old, new = nccl_view.of(before), nccl_view.of(after)
    assert new.pairs == {pair: reach for pair, reach in old.pairs.items() if pair in new.pairs}
    if len(old.gpus) == len(before.gpus):  # not a fused dump of several hosts
        assert new.gpus == old.gpus


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_changed_byte_gives_a_file_or_one_error(data: st.DataObject, nccl_parser: ModuleType) -> None:
    source = bytearray(DUMP.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        source[data.draw(st.integers(0, len(source) - 1))] = data.draw(st.integers(0, 255))
    try:
        snapshot = parse(source.decode("latin-1"))
        text, _ = nccl_topo.render(snapshot)
    except TopoAdvisorError:
        return
    nccl_parser.load(text)
    try:
        nccl_view.of(snapshot)
    except TopoAdvisorError:
        return
