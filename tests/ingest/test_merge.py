from __future__ import annotations

import io
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from topoadvisor import advise, files
from topoadvisor.errors import InputError
from topoadvisor.ingest import assume, detect, joining, text
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.predict import predict
from topoadvisor.rules import facts
from topoadvisor.rules.scope import Known, Unknown
from topoadvisor.snapshot import CallError, Driver, Gpu, NvLink, Snapshot, Source, decode, encode
from topoadvisor.topology import graph, matrix, nccl_view

UUIDS = [f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in range(9)]
MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV2\t0-31\t0\nGPU1\tNV2\t X \t0-31\t0\n\n"
P2P = "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\n"


def listing(*uuids: str, name: str = "NVIDIA A100-SXM4-80GB") -> str:
    return "".join(f"GPU {index}: {name} (UUID: {uuid})\n" for index, uuid in enumerate(uuids))


def query(*gpus: tuple[str, str], attached: int | None = None, gen: int = 4) -> str:
    body = (
        "==============NVSMI LOG==============\n\nDriver Version : 550.54.15\n"
        f"Attached GPUs : {len(gpus) if attached is None else attached}\n"
    )
    for bus, uuid in gpus:
        body += (
            f"GPU 00000000:{bus}:00.0\n    Product Name : NVIDIA A100-SXM4-80GB\n    GPU UUID : {uuid}\n    PCI\n"
            f"        GPU Link Info\n            PCIe Generation\n                Max : {gen}\n"
        )
    return body


def blocks(*buses: str) -> str:
    return "".join(
        f"{bus}:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)\n"
        f"\tNUMA node: 1\n\tKernel driver in use: nvidia\n\n"
        for bus in buses
    )


def read(*bodies: str, folder: Path) -> Snapshot:
    """Each body as a file of its own, read together."""
    names = []
    for number, body in enumerate(bodies):
        path = folder / f"{number}.txt"
        path.write_text(body, encoding="utf-8")
        names.append(str(path))
    return detect.read(names, stdin=io.BytesIO())


def test_the_parts_of_one_text_are_one_machine() -> None:
    body = MATRIX + P2P + listing(*UUIDS[:2]) + "\n" + query(("1b", UUIDS[0]), ("43", UUIDS[1])) + blocks("1b", "43")
    snapshot = text.read(body, "all.txt")
    first, second = snapshot.gpus
    assert (first.name, first.address, first.uuid, first.numa_node) == (
        "NVIDIA A100-SXM4-80GB",
        "0000:1b:00.0",
        UUIDS[0],
        0,
    )
    assert (second.index, second.address) == (1, "0000:43:00.0")
    assert [source.name for source in snapshot.sources] == [
        "nvidia-smi topo -m",
        "nvidia-smi topo -p2p r",
        "nvidia-smi -L",
        "nvidia-smi -q",
        "lspci -vv",
    ]
    assert snapshot.origin == "text"
    assert graph.build(snapshot).pair("gpu:0", "gpu:1").link_class == "NV2"


@pytest.mark.parametrize("first", ["topo -m", "topo -mp"])
def test_the_two_tables_of_one_machine_share_the_work(first: str) -> None:
    """`topo -m` has the NVLinks and `topo -mp` what is behind them, whichever of them was pasted first."""
    tables = {"topo -m": MATRIX, "topo -mp": MATRIX.replace("NV2", "PIX")}
    second = next(name for name in tables if name != first)
    snapshot = text.read(tables[first] + "\n" + tables[second] + P2P, "all.txt")
    topology = graph.build(snapshot)
    pair = topology.pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.pcie_class) == ("NV2", "PIX")
    assert snapshot.p2p is not None
    assert snapshot.sources[0].status == "ok"
    lines = {first: 1, second: 6}
    assert [note for note in topology.notes if note.startswith("Two tables")] == [
        f"Two tables tell of this machine: the NVLinks are from the one in line {lines['topo -m']} (`topo -m`), the "
        f"PCIe classes behind them from the one in line {lines['topo -mp']} without NVLinks (`topo -mp`)."
    ]
    assert matrix.shown(snapshot, topology).cells["GPU0"]["GPU1"] == "NV2"


def test_a_second_machine_in_one_text_is_shown_and_not_used() -> None:
    other = "\tGPU0\tGPU1\nGPU0\t X \tNODE\nGPU1\tNODE\t X \n"
    snapshot = text.read(other + "\nnode2:\n" + other.replace("NODE", "SYS") + P2P, "all.txt")
    topology = graph.build(snapshot)
    assert [matrix.other_machine for matrix in snapshot.matrices] == [False, True]
    assert (topology.pair("gpu:0", "gpu:1").link_class, snapshot.p2p) == ("NODE", None)
    assert snapshot.sources[0].reason == (
        "the text holds 2 matrices; that in line 1 is analysed, and that in line 6 may be of another machine"
    )


def test_it_does_not_matter_whether_the_parts_are_one_file_or_several(tmp_path: Path) -> None:
    bodies = [MATRIX, P2P, listing(*UUIDS[:2]), query(("1b", UUIDS[0]), ("43", UUIDS[1])), blocks("1b", "43")]
    one = text.read("\n".join(bodies), "all.txt")
    several = read(*bodies, folder=tmp_path)
    without = {"raw": [], "matrices": []}
    assert msgspec.structs.replace(one, **without) == msgspec.structs.replace(several, **without)


def test_every_value_knows_who_said_it(tmp_path: Path) -> None:
    snapshot = read(MATRIX, listing(*UUIDS[:2]), query(("1b", UUIDS[0]), ("43", UUIDS[1])), folder=tmp_path)
    assert snapshot.origins["gpu:0.name"] == "nvidia-smi -L"
    assert snapshot.origins["gpu:0.cpu_affinity"] == "nvidia-smi topo -m"
    assert snapshot.origins["gpu:1.pcie.max_gen"] == "nvidia-smi -q"
    base = facts.gather(snapshot, graph.build(snapshot))
    gpu = base.subjects["gpu"][0]
    told = {name: fact.origin for name, fact in gpu.facts.items() if isinstance(fact, Known)}
    assert told["gpu.name"] == "nvidia-smi -L"
    assert told["gpu.pcie.max_gen"] == "nvidia-smi -q"
    assert told["gpu.numa_node"] == "nvidia-smi topo -m"
    assert told["gpu.architecture"] == "catalogue"
    version = base.node["driver.version"]
    assert isinstance(version, Known)
    assert version.origin == "nvidia-smi -q"


def links(option: str) -> str:
    """`nvidia-smi nvlink` of two GPUs with two links each."""
    lines = {"-s": "25 GB/s", "-e": "Replay Errors: 3", "-R": "Remote Device 00000000:{}:00.0: Link 0"}
    return "".join(
        f"GPU {index}: NVIDIA A100-SXM4-80GB (UUID: {UUIDS[index]})\n"
        + "".join(f"\t Link {link}: {lines[option].format(far)}\n" for link in range(2))
        for index, far in ((0, "43"), (1, "1b"))
    )


TOGETHER = (
    MATRIX,
    MATRIX.replace("NV2", "PIX"),
    P2P,
    links("-s"),
    links("-e"),
    links("-R"),
    query(("1b", UUIDS[0]), ("43", UUIDS[1])) + "    Performance State : P0\n",
    blocks("1b", "43"),
    "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 200\n\t\tLink layer: InfiniBand\n",
    "Architecture:   x86_64\nOn-line CPU(s) list: 0-63\nVendor ID: AuthenticAMD\nNUMA node0 CPU(s):   0-63\n",
)


@pytest.mark.parametrize("turn", [0, 3, 7])
def test_each_fact_names_a_text_that_says_the_same_by_itself(turn: int, tmp_path: Path) -> None:
    bodies = [*TOGETHER[turn:], *TOGETHER[:turn]]
    alone: dict[str, list[dict[tuple[str, str], object]]] = {}
    for body in bodies:
        by_itself = text.read(body, "one.txt")
        told = {(subject, name): fact for subject, name, fact in facts.gather(by_itself, graph.build(by_itself)).walk()}
        values = {key: fact.value for key, fact in told.items() if isinstance(fact, Known)}
        alone.setdefault(by_itself.sources[0].name, []).append(values)
    together = read(*bodies, folder=tmp_path)
    walk = facts.gather(together, graph.build(together)).walk()
    said = {(subject, name): fact for subject, name, fact in walk if isinstance(fact, Known) and fact.origin in alone}
    wrong = {key: fact for key, fact in said.items() if all(v.get(key) != fact.value for v in alone[fact.origin])}
    assert wrong == {}
    assert len(said) > 40


def test_where_two_parts_disagree_both_stay_and_the_first_counts(tmp_path: Path) -> None:
    snapshot = read(
        query(("1b", UUIDS[0]), ("43", UUIDS[1]), gen=4),
        query(("1b", UUIDS[0]), ("43", UUIDS[1]), gen=5),
        folder=tmp_path,
    )
    first, second = snapshot.sources
    assert (first.status, second.status) == ("ok", "partial")
    assert second.errors[0] == CallError(
        call="pcie.max_gen",
        error="is 5 here and 4 in nvidia-smi -q, which is believed because it was read first",
        subject="gpu:0",
    )
    assert second.reason is not None
    assert second.reason.startswith("gpu:0 pcie.max_gen is 5 here and 4 in nvidia-smi -q")
    assert second.reason.endswith(", and 1 more")
    assert [gpu.pcie.max_gen for gpu in snapshot.gpus if gpu.pcie] == [4, 4]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (listing(*UUIDS[:2]), listing(UUIDS[0], UUIDS[5]), f"GPU1 has the UUID {UUIDS[5]} here and {UUIDS[1]} there"),
        (
            query(("1b", UUIDS[0])),
            query(("43", UUIDS[0])).replace(UUIDS[0], "N/A"),
            "GPU0 has the PCI address 0000:43:00.0 here and 0000:1b:00.0 there",
        ),
        (MATRIX, query(*[(f"{bus}0", UUIDS[bus]) for bus in range(4)]), "it has 4 GPUs here and 2 GPUs there"),
        (MATRIX, listing(*UUIDS[:3]), "it has a GPU2 here and 2 GPUs there"),
        (listing(*UUIDS[:3]), MATRIX, "it has 2 GPUs here and a GPU2 there"),
        (
            "uname: Linux node-a 6.8.0-1 #1 SMP\n" + listing(UUIDS[0]),
            "uname: Linux node-b 6.8.0-1 #1 SMP\n" + listing(UUIDS[0]),
            "the host is node-b here and node-a there",
        ),
    ],
)
def test_two_machines_in_two_files_are_refused_in_one_sentence(
    tmp_path: Path, first: str, second: str, words: str
) -> None:
    with pytest.raises(InputError) as error:
        read(first, second, folder=tmp_path)
    assert error.value.message == f"{tmp_path}/1.txt: this is another machine than that of {tmp_path}/0.txt: {words}"


_CLASSES = MATRIX.replace("NV2", "PXB")
_OLDER = Snapshot(gpus=[Gpu(index=0), Gpu(index=1)], driver=Driver(version="570.172.08"))
_NO_LINKS = encode(Snapshot(gpus=[Gpu(index=index, nvlinks=[]) for index in (0, 1)])).decode()


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (MATRIX, _CLASSES.replace("0-31", "0-15"), "GPU0-GPU1 is PXB here and NV2 there"),
        (
            "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV2\tSYS\nGPU1\tNV2\tX\tSYS\nGPU2\tSYS\tSYS\tX\n",
            "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tSYS\tNV2\nGPU1\tSYS\tX\tSYS\nGPU2\tNV2\tSYS\tX\n",
            "GPU0-GPU2 is NV2 here and SYS there",
        ),
        (_NO_LINKS, MATRIX, "GPU0 has NVLinks here and none that is up there"),
        (MATRIX, _NO_LINKS, "GPU0 has no NVLink that is up here and some there"),
        (
            encode(_OLDER).decode(),
            encode(msgspec.structs.replace(_OLDER, driver=Driver(version="580.95.05"))).decode(),
            "the driver is 580.95.05 here and 570.172.08 there",
        ),
        (
            query(("1b", UUIDS[0]), ("43", UUIDS[1])),
            encode(_OLDER).decode(),
            "the driver is 570.172.08 here and 550.54.15 there",
        ),
    ],
)
def test_one_machine_at_two_times_is_refused_and_diff_is_named(
    tmp_path: Path, first: str, second: str, words: str
) -> None:
    with pytest.raises(InputError, match="or the same at another time: ") as error:
        read(first, second, folder=tmp_path)
    assert words in error.value.message
    assert "topoadvisor diff" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (MATRIX, _CLASSES),
        (_CLASSES, MATRIX),
        (MATRIX, _CLASSES.replace("0-31", "N/A")),
        (_NO_LINKS, _CLASSES),
        (encode(_OLDER).decode(), encode(msgspec.structs.replace(_OLDER, driver=Driver(version="570.172"))).decode()),
    ],
)
def test_texts_that_may_be_of_one_time_are_put_together(tmp_path: Path, first: str, second: str) -> None:
    """`topo -mp` shows PCIe classes where `topo -m` shows NVLinks."""
    assert len(read(first, second, folder=tmp_path).gpus) == 2


def test_trees_of_two_machines_are_refused(tmp_path: Path) -> None:
    tree = "-[0000:00]---01.0-[1b]----00.0  NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2]\n"
    with pytest.raises(InputError, match=r"another machine than that of .*0\.txt: its tree has 1 GPU here"):
        read(tree, tree.replace("1b", "2b"), folder=tmp_path)
    assert len(read(tree, tree + "\n", folder=tmp_path).gpus) == 1


def test_another_machine_in_the_same_text_is_left_out_and_named() -> None:
    snapshot = text.read(listing(*UUIDS[:2]) + "\nthe other node\n\n" + listing(*UUIDS[3:5], name="NVIDIA H100"), "a")
    assert [gpu.uuid for gpu in snapshot.gpus] == UUIDS[:2]
    assert snapshot.sources[1].reason == (
        f"left out, for it is about another machine: GPU0 has the UUID {UUIDS[3]} here and {UUIDS[0]} there"
    )


@pytest.mark.parametrize("painted", ["GPU-略-332e-08e4-72fe-略", "GPU-xxxxxxxx", "[redacted]"])
def test_a_uuid_that_was_painted_over_tells_nothing(painted: str) -> None:
    snapshot = text.read(listing(UUIDS[0]) + "\n" + query(("1b", painted)), "a")
    assert snapshot.gpus[0].address == "0000:1b:00.0"


def test_a_report_about_one_gpu_finds_its_place_by_uuid() -> None:
    snapshot = text.read(listing(*UUIDS[:3]) + query(("43", UUIDS[1]), attached=3), "a")
    assert [gpu.address for gpu in snapshot.gpus] == [None, "0000:43:00.0", None]


def test_devices_without_numbers_are_numbered_in_bus_order_where_as_many_are_known() -> None:
    snapshot = text.read(blocks("c3", "1b") + MATRIX, "a")
    assert [gpu.address for gpu in snapshot.gpus] == ["0000:1b:00.0", "0000:c3:00.0"]
    source = snapshot.source("lspci -vv")
    assert source is not None
    assert joining.IN_BUS_ORDER in (source.reason or "")
    assert snapshot.gpus[0].numa_node == 0, "the matrix named it"


def test_devices_that_cannot_be_told_apart_are_left_out_and_named() -> None:
    snapshot = text.read(blocks("1b", "43", "c3") + MATRIX, "a")
    assert [gpu.address for gpu in snapshot.gpus] == [None, None]
    source = snapshot.source("lspci -vv")
    assert source is not None
    assert "which of the 2 GPUs these are is not known: 0000:1b:00.0, 0000:43:00.0, 0000:c3:00.0" in (
        source.reason or ""
    )
    assert len(snapshot.pci or []) == 3


def test_a_gpu_that_the_driver_does_not_see_is_named() -> None:
    snapshot = text.read(query(("1b", UUIDS[0])) + blocks("1b", "43"), "a")
    source = snapshot.source("lspci -vv")
    assert source is not None
    assert source.reason is not None
    assert "0000:43:00.0" in source.reason
    assert [gpu.address for gpu in snapshot.gpus] == ["0000:1b:00.0"]


def test_links_join_what_each_listing_says() -> None:
    heads = [line + "\n" for line in listing(*UUIDS[:2]).splitlines()]
    body = query(("1b", UUIDS[0]), ("43", UUIDS[1]))
    body += "".join(head + "\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n" for head in heads)
    body += heads[0] + "\t Link 0: Remote Device 00000000:43:00.0: Link 0\n"
    body += heads[1] + "\t Link 0: Remote Device 00000000:1B:00.0: Link 0\n"
    body += heads[0] + "\t Link 0: CRC Errors: 4\n\t Link 1: CRC Errors: 0\n"
    snapshot = text.read(body, "a")
    assert snapshot.gpus[0].nvlinks == [
        NvLink(link=0, active=True, raw_mbps=25000, remote_type="gpu", remote_address="0000:43:00.0", crc_errors=4),
        NvLink(link=1, active=False, crc_errors=0),
    ]
    pair = graph.build(snapshot).pair("gpu:0", "gpu:1")
    assert (pair.nvlinks, pair.origin) == (1, "nvidia-smi nvlink")


def far_ends(count: int) -> Snapshot:
    """What `-R` says of two GPUs whose board has 12 links."""
    heads = [line + "\n" for line in listing(*UUIDS[:2]).splitlines()]
    body = query(("1b", UUIDS[0]), ("43", UUIDS[1]))
    rows = "".join(f"\t Link {link}: Remote Device 00000000:A1:00.0: Link 4\n" for link in range(count))
    return text.read(body + "".join(head + rows for head in heads), "a")


def test_far_ends_alone_say_that_links_are_up_and_that_is_inferred() -> None:
    snapshot = far_ends(12)
    assert (snapshot.gpus[0].nvlinks or [])[0] == NvLink(
        link=0, active=True, remote_type="switch", remote_address="0000:a1:00.0"
    )
    source = snapshot.source("nvidia-smi nvlink -R")
    assert source is not None
    assert "up is inferred" in (source.reason or "")
    assert "NVSwitches is inferred" in (source.reason or "")
    assert graph.build(snapshot).pair("gpu:0", "gpu:1").through_switch


def test_fewer_far_ends_than_the_board_has_links_say_not_how_many_are_up() -> None:
    snapshot = far_ends(4)
    assert [link.active for link in snapshot.gpus[0].nvlinks or []] == [None] * 4
    assert graph.build(snapshot).pair("gpu:0", "gpu:1").nvlinks is None
    matrix = text.read("\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n", "b")
    pair = graph.build(msgspec.structs.replace(snapshot, matrices=matrix.matrices)).pair("gpu:0", "gpu:1")
    assert pair.nvlinks == 12


FOUR = ("17", "37", "57", "77")
"""Buses of four A100 that four NVLinks join pair by pair."""


def wired(*seen: int) -> str:
    """`-q` and `nvlink -R` of some of them, as a container shows them that has been given only these."""
    uuids = [f"GPU-0a0b0c0d-1111-4222-8333-44445555666{number}" for number in range(4)]
    body = query(*((FOUR[number], uuids[number]) for number in seen))
    heads = listing(*(uuids[number] for number in seen)).splitlines()
    for head, number in zip(heads, seen, strict=True):
        peers = [bus for bus in FOUR if bus != FOUR[number]]
        body += head + "\n"
        body += "".join(
            f"\t Link {link}: Remote Device 00000000:{peers[link // 4]}:00.0: Link {link}\n" for link in range(12)
        )
    return body


@pytest.mark.parametrize("matrix", [False, True])
def test_nccl_takes_links_from_gpu_to_gpu_that_far_ends_show(matrix: bool) -> None:
    """The most complete ticket: `topo -m`, `nvlink -R` and `-q`, but no list of PCI functions."""
    rows = [["X" if a == b else "NV4" for a in range(4)] for b in range(4)]
    table = "\t".join(["", *(f"GPU{gpu}" for gpu in range(4))]) + "\n"
    table += "".join("\t".join([f"GPU{gpu}", *row]) + "\n" for gpu, row in enumerate(rows))
    snapshot = text.read((table if matrix else "") + wired(0, 1, 2, 3), "a")
    reached = {reach.kind for reach in nccl_view.of(snapshot).pairs.values()}
    assert reached == {NcclPath.NVL}
    assert {reach.gbps for reach in nccl_view.of(snapshot).pairs.values()} == {80}


def test_links_to_gpus_that_a_container_hides_leave_the_others_alone() -> None:
    snapshot = text.read(wired(0, 1), "a")
    topology = graph.build(snapshot)
    assert topology.pair("gpu:0", "gpu:1").nvlinks == 4
    assert not topology.pair("gpu:0", "gpu:1").through_switch
    assert any("none of the GPUs that were read: GPU0 (8), GPU1 (8)" in note for note in topology.notes)
    source = snapshot.source("nvidia-smi nvlink -R")
    assert source is not None
    assert "lead to GPUs too is inferred" in (source.reason or "")
    assert nccl_view.of(snapshot).pairs["GPU0", "GPU1"].kind is NcclPath.NVL


def test_a_snapshot_and_a_text(tmp_path: Path) -> None:
    captured = Snapshot(
        sources=[Source(name="nvml", status="ok"), Source(name="sysfs", status="ok")],
        gpus=[Gpu(index=0, uuid=UUIDS[0]), Gpu(index=1, uuid=UUIDS[1])],
    )
    path = tmp_path / "snapshot.json"
    path.write_bytes(encode(captured))
    body = tmp_path / "list.txt"
    body.write_text(listing(*UUIDS[:2]), encoding="utf-8")
    snapshot = detect.read([str(path), str(body)], stdin=io.BytesIO())
    assert (snapshot.origin, [gpu.name for gpu in snapshot.gpus]) == ("live", ["NVIDIA A100-SXM4-80GB"] * 2)
    assert [source.name for source in snapshot.sources] == ["nvml", "sysfs", "nvidia-smi -L"]
    assert snapshot.origins["gpu:0.name"] == "nvidia-smi -L"
    body.write_text(listing(*UUIDS[:3]), encoding="utf-8")
    with pytest.raises(InputError, match="another machine"):
        detect.read([str(path), str(body)], stdin=io.BytesIO())


def test_a_whole_list_of_devices_is_better_than_that_of_nccl(tmp_path: Path) -> None:
    dump = (
        '<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x060400"><pci busid="0000:1b:00.0" '
        'class="0x030200"><gpu dev="0" sm="80"/></pci></pci></cpu></system>'
    )
    tree = "-[0000:00]---01.0-[1b]----00.0  NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2]\n"
    snapshot = read(dump, tree, folder=tmp_path)
    assert [device.address for device in snapshot.pci or []] == ["0000:00:01.0", "0000:1b:00.0"]
    assert (snapshot.gpus[0].compute_capability, snapshot.origin) == ("8.0", "text")
    assert "not used" in (snapshot.sources[0].reason or "")
    alone = read(dump, MATRIX.replace("\tGPU1", "").replace("\tNV2", "").split("GPU1")[0], folder=tmp_path)
    assert (alone.origin, len(alone.pci or [])) == ("nccl-topology-xml", 2)


def test_standard_input_can_be_one_of_several_but_only_once(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(listing(*UUIDS[:2]), encoding="utf-8")
    snapshot = detect.read(["-", str(path)], stdin=io.BytesIO(MATRIX.encode()))
    assert len(snapshot.sources) == 2
    with pytest.raises(InputError, match="given twice"):
        detect.read(["-", "-"], stdin=io.BytesIO(MATRIX.encode()))


def test_a_text_about_the_host_alone_has_no_gpu() -> None:
    snapshot = text.read("Architecture:  x86_64\nSocket(s):  2\n", "a")
    assert (snapshot.gpus, snapshot.origin) == ([], "text")


FIXTURES = sorted(files.shipped("fixtures").glob("*/snapshot.json"))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.parent.name)
def test_the_printed_outputs_of_a_machine_join_its_gpus_as_the_capture_does(path: Path, tmp_path: Path) -> None:
    captured = decode(path.read_bytes())
    for raw in captured.raw:
        (tmp_path / f"{raw.source}.txt").write_text(f"$ {raw.source}\n{raw.text}", encoding="utf-8")
    printed = detect.read(str(tmp_path), stdin=io.BytesIO())
    # Without any NVLink `nvlink -s` prints nothing, and the file of it is named as passed over.
    troubled = [source.reason for source in printed.sources if source.status != "ok"]
    assert all(reason and reason.startswith("passed over: nvidia-smi nvlink") for reason in troubled)
    whole, part = graph.build(captured), graph.build(printed)
    assert part.gpus == whole.gpus
    for a, b in combinations(whole.gpus, 2):
        assert part.pair(a, b).link_class == whole.pair(a, b).link_class
    told = [(pair.a, pair.b, pair.read, pair.write, pair.nvlink, pair.atomics, pair.pci) for pair in printed.p2p or []]
    known = [
        (pair.a, pair.b, pair.read, pair.write, pair.nvlink, pair.atomics, pair.pci) for pair in captured.p2p or []
    ]
    assert told == known


def test_a_snapshot_that_names_no_source_is_joined_like_any_other(tmp_path: Path) -> None:
    for bare in (Snapshot(), Snapshot(gpus=[Gpu(index=0), Gpu(index=1)])):
        snapshot = read(encode(bare).decode(), MATRIX, folder=tmp_path)
        assert len(snapshot.gpus) == 2
        assert snapshot.sources[0] == Source(
            name="snapshot", status="partial", reason="it names no source that its values come from"
        )


@pytest.mark.parametrize("swapped", [False, True])
def test_a_board_without_nvlink_is_not_that_of_a_matrix_with_nvlinks(tmp_path: Path, swapped: bool) -> None:
    """`nvidia-smi -L` of a machine with one T4, and the matrix of another with two linked GPUs."""
    texts = [listing(UUIDS[0], name="Tesla T4"), MATRIX]
    with pytest.raises(InputError, match="this is another machine than that of") as error:
        read(*(texts[::-1] if swapped else texts), folder=tmp_path)
    assert "GPU0 is a board without NVLink (Tesla T4)" in error.value.message
    blended = read("".join(texts[::-1] if swapped else texts), folder=tmp_path)
    told = [source.reason for source in blended.sources if source.reason]
    assert any("left out, for it is about another machine: GPU0 is a board without NVLink" in each for each in told)
    assert {gpu.name for gpu in blended.gpus} == {None}


def test_a_board_without_nvlink_goes_with_a_matrix_without_any(tmp_path: Path) -> None:
    found = read(listing(*UUIDS[:2], name="Tesla T4"), MATRIX.replace("NV2", "SYS"), folder=tmp_path)
    assert [gpu.name for gpu in found.gpus] == ["Tesla T4", "Tesla T4"]


THREE = (
    "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV2\tNV2\nGPU1\tNV2\t X \tNV2\nGPU2\tNV2\tNV2\t X \n\n",
    "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tOK\n GPU1\tOK\tX\tOK\n GPU2\tOK\tOK\tX\n\n",
)


@pytest.mark.parametrize(
    ("matrix", "table", "words"),
    [
        (MATRIX, THREE[1], "it has GPU2, which the matrix has not"),
        (THREE[0], P2P, "it has 2 GPUs here and 3 GPUs there"),
    ],
)
def test_a_peer_table_of_more_or_fewer_gpus_is_of_another_machine(
    matrix: str, table: str, words: str, tmp_path: Path
) -> None:
    snapshot = text.read(matrix + table, "a")
    assert snapshot.p2p is None
    assert snapshot.sources[1].reason == f"left out, for it is about another machine: {words}"
    with pytest.raises(InputError, match="another machine than that of"):
        read(matrix, table, folder=tmp_path)


def test_a_cut_peer_table_does_not_count_the_gpus() -> None:
    cut = THREE[1].replace("\tGPU2\n", "\n").replace(" GPU2\tOK\tOK\tX\n", "").replace("OK\tOK\n", "OK\n")
    rows = "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tOK\n GPU1\tOK\tX\tOK\n\n"
    assert text.read(THREE[0] + rows, "a").p2p
    assert "left out" in (text.read(THREE[0] + cut, "a").sources[1].reason or "")


def test_a_tree_whose_gpus_are_elsewhere_is_of_another_machine(tmp_path: Path) -> None:
    tree = "-[0000:00]---01.0-[{}]----00.0  NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2]\n"
    body = query(("1b", UUIDS[0]), ("43", UUIDS[1]))
    snapshot = text.read(body + tree.format("2b"), "a")
    assert snapshot.pci is None
    words = "its tree has a GPU at 0000:2b:00.0 and none of those there, such as 0000:1b:00.0"
    assert words in (snapshot.sources[1].reason or "")
    with pytest.raises(InputError, match=words):
        read(tree.format("2b"), body, folder=tmp_path)
    assert read(body, tree.format("1b"), folder=tmp_path).pci


def test_a_table_beside_the_matrix_is_named() -> None:
    other = MATRIX.replace("NV2", "SYS").splitlines()
    body = "".join(
        f"{line.expandtabs(8):60}{more.expandtabs(8)}\n" for line, more in zip(MATRIX.splitlines(), other, strict=True)
    )
    snapshot = text.read(body, "a")
    (read_one,) = snapshot.matrices
    assert (read_one.cells["GPU0"]["GPU1"], read_one.cpu_affinity["GPU0"]) == ("NV2", "0-31")
    assert snapshot.sources[0].reason == "another table stands beside it and is not read: line 1, column 69"


@pytest.mark.parametrize("order", [("OK", "CNS"), ("CNS", "OK"), ("OK", "CNS", "OK"), ("OK", "CNS", "NS")])
def test_of_peer_tables_that_contradict_each_other_none_is_believed(order: tuple[str, ...], tmp_path: Path) -> None:
    tables = [P2P.replace("OK", answer) for answer in order]
    bare = MATRIX.replace("NV2", "PHB")
    for snapshot in (text.read(bare + "".join(tables), "a"), read(bare, *tables, folder=tmp_path)):
        kept = list(dict.fromkeys(order))
        assert [(pair.read, pair.disputed) for pair in snapshot.p2p or ()] == [(None, {"read": kept})] * 2
        base = facts.gather(snapshot, graph.build(snapshot))
        told = base.subjects["pair"][0].facts
        assert told["pair.p2p.read"] == Unknown(f"texts contradict each other about it: {' and '.join(kept)}")
        assert isinstance(told["pair.p2p.ok"], Unknown)
        (error,) = [each for each in snapshot.sources[2].errors if each.subject == "gpu:0>gpu:1"]
        there = "nvidia-smi topo -p2p r"
        assert error.error == f"is {order[1]} here and {order[0]} in {there}, so that none is believed"
        assert advise.advise(snapshot).node.interconnect.endswith("P2P: texts contradict each other")
        assert read(bare, *tables, encode(snapshot).decode(), folder=tmp_path).p2p == snapshot.p2p
        # What stock drivers do on a model decides nothing then.
        told = assume.gather(["gpu.name=NVIDIA GeForce RTX 4090", "nccl.version=2.28.9", "cpu.vendor=AMD"], None)
        assert {pair.transport for pair in predict.predict(assume.apply(snapshot, told)).pairs} == {"unknown"}


def test_links_whose_state_was_not_read_hide_none_of_the_matrix() -> None:
    remote = "".join(
        f"{gpu}\t Link 0: Remote Device 00000008:00:00.0: Link {number}\n"
        f"\t Link 1: Remote Device 00000009:00:00.0: Link {number}\n"
        for number, gpu in enumerate(listing(*UUIDS[:2]).splitlines(keepends=True))
    )
    said = advise.advise(text.read(f"{MATRIX}$ nvidia-smi nvlink -R\n{remote}", "a")).node.interconnect
    assert said.startswith("NVLink: NV2 on 1 of 1 pairs")
