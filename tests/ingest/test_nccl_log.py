from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import sys
import tracemalloc
from pathlib import Path

import msgspec
import nccl_logs as logs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.errors import InputError
from topoadvisor.ingest import nccl_log, nccl_log_records, nccl_log_warnings
from topoadvisor.ingest.nccl_log_summary import Connection, Summary

CAPTURE = Path(__file__).parents[3] / "shared" / "capture_h200x2"


def read(lines: list[str] | bytes) -> Summary:
    data = lines if isinstance(lines, bytes) else logs.data(lines)
    return nccl_log.read([("job.log", io.BytesIO(data))])


def same(summary: Summary) -> Summary:
    """Without what depends on how the text was wrapped."""
    return msgspec.structs.replace(summary, size_bytes=0, lines=0, nccl_lines=0, settings=[], warnings=[])


def test_a_job_on_two_hosts() -> None:
    found = read(
        logs.modern(
            16, channels=4, settings=["NCCL_IB_HCA set to mlx5", "NCCL_BUFFSIZE set by environment to 8388608."]
        )
    )
    assert [(each.version, each.cuda, each.processes) for each in found.versions] == [("2.28.9", "13.0", 16)]
    assert found.hosts == ["node1", "node2"]
    assert found.cuda_driver == "13.0"
    assert [(each.name, each.value, each.processes) for each in found.settings] == [
        ("NCCL_BUFFSIZE", "8388608", 16),
        ("NCCL_IB_HCA", "mlx5", 16),
    ]
    assert {(each.name, each.address) for each in found.bootstrap} == {("eth0", "10.0.0.1"), ("eth0", "10.0.0.2")}
    assert [(each.name, each.index) for each in found.ib_devices] == [("mlx5_0:1/IB", 0), ("mlx5_1:1/IB", 1)]
    assert [(each.kind, each.name) for each in found.plugins] == [("network", "IB")]
    (communicator,) = found.communicators
    assert (communicator.id, communicator.size, communicator.nodes) == ("d8289d3e6e217d26", 16, 2)
    assert (communicator.channels, communicator.started, communicator.complete) == (4, 16, 16)
    assert communicator.ranks[9].host == "node2"
    assert communicator.ranks[9].address == "0000:3b:00.0"
    (ring,) = communicator.rings
    assert (ring.order, ring.channels, ring.complete) == (list(range(16)), [0, 1, 2, 3], True)
    (tree,) = communicator.trees
    assert tree.parents == list(range(-1, 15))
    by_pair = {(each.a, each.b): each for each in communicator.connections}
    assert by_pair[0, 1] == Connection(a=0, b=1, transport="P2P", via="P2P/CUMEM", channels=4, same_host=True)
    crossing = by_pair[7, 8]
    assert (crossing.via, crossing.gdr, crossing.devices, crossing.same_host) == ("NET/IB", "on", [0], False)
    assert found.transports == {"NET/IB": 2, "P2P/CUMEM": 14}
    assert found.notes == []


def test_a_log_without_the_number_of_ranks_knows_the_least_only() -> None:
    lines = [line for line in logs.old(4) if "nranks" not in line]
    (communicator,) = read(lines).communicators
    assert (communicator.size, communicator.at_least) == (4, True)
    assert [rank.rank for rank in communicator.ranks] == [0, 1, 2, 3]
    assert not read(logs.old(4)).communicators[0].at_least


def test_nccl_2_7_without_announcement_or_identity() -> None:
    found = read(logs.old(4))
    assert [(each.version, each.processes) for each in found.versions] == [("2.7.8", 0)]
    (communicator,) = found.communicators
    assert (communicator.id, communicator.size, communicator.complete, communicator.started) == ("#1", 4, 4, 0)
    assert [ring.order for ring in communicator.rings] == [[0, 1, 2, 3]]
    assert communicator.trees[0].parents == [-1, 0, 1, 2]
    assert {each.via for each in communicator.connections} == {"P2P/IPC"}
    assert found.ib_devices[0].name == "mlx5_0:1/IB"


def test_two_communicators_of_one_size_before_identities() -> None:
    second = logs.old(4, inside="direct shared memory")
    found = read([*logs.old(4), *second[second.index("NCCL version 2.7.8+cuda11.0") + 1 :]])
    assert [communicator.size for communicator in found.communicators] == [4, 4]
    assert [{each.transport for each in one.connections} for one in found.communicators] == [{"P2P"}, {"SHM"}]


def test_nccl_2_4_calls_connections_rings() -> None:
    lines = [
        logs.info(0, "Channel 00 :    0   1"),
        logs.info(0, "Ring 00 : 0[0] -> 1[1] via P2P/direct pointer"),
        logs.info(1, "Ring 00 : 1[1] -> 0[0] via direct shared memory"),
        logs.info(0, "Trees [0] -1->0->1/-1/-1"),
        logs.info(0, "comm 0x7f01 rank 0 nranks 2 cudaDev 0 nvmlDev 0 - Init COMPLETE"),
        logs.info(1, "comm 0x7f02 rank 1 nranks 2 cudaDev 1 nvmlDev 1 - Init COMPLETE"),
    ]
    (communicator,) = read(lines).communicators
    assert [(each.a, each.b, each.via) for each in communicator.connections] == [
        (0, 1, "P2P/direct pointer"),
        (1, 0, "SHM/direct shared memory"),
    ]
    assert communicator.trees[0].parents == [-1, None]


@pytest.mark.parametrize(
    ("text", "transport", "via", "devices", "gdr", "proxy"),
    [
        ("via P2P/IPC/read", "P2P", "P2P/IPC/read", [], None, False),
        ("via P2P/direct pointer comm 0x55d900000000 nRanks 04", "P2P", "P2P/direct pointer", [], None, False),
        ("via P2P/indirect/2[1f000]/read", "P2P", "P2P/indirect/2[1f000]/read", [], None, False),
        ("via P2P/MNNVL", "P2P", "P2P/MNNVL", [], None, False),
        ("via SHM/direct/direct", "SHM", "SHM/direct/direct", [], None, False),
        ("via SHM/CE/direct", "SHM", "SHM/CE/direct", [], None, False),
        ("[send] via NET/IB/3/GDRDMA", "NET", "NET/IB", [3], "on", False),
        ("[send] via NET/IB/3(2)/GDRDMA/Shared", "NET", "NET/IB", [3], "on", True),
        ("[send] via NET/IBext_v8/1/GDRDMA(PCI)", "NET", "NET/IBext_v8", [1], "on", False),
        ("[send] via NET/IB/1/GDRDMA/Shared/flush=none", "NET", "NET/IB", [1], "on", False),
        ("[send] via NET/Socket/0", "NET", "NET/Socket", [0], "off", False),
        ("[send] via NET/AWS Libfabric/2/GDRDMA", "NET", "NET/AWS Libfabric", [2], "on", False),
        ("[send] via NET/IB/0 [repeated 3x across cluster]", "NET", "NET/IB", [0], "off", False),
    ],
)
def test_every_transport(text: str, transport: str, via: str, devices: list[int], gdr: str | None, proxy: bool) -> None:
    lines = logs.modern(4, 4, complete=False)
    lines = [line for line in lines if " via " not in line]
    lines += [logs.info(0, f"Channel {channel:02d}/0 : 0[0] -> 1[1] {text}", 4) for channel in (0, 1)]
    (found,) = read(lines).communicators[0].connections
    assert (found.a, found.b, found.transport, found.via) == (0, 1, transport, via)
    assert (found.devices, found.gdr, found.proxy, found.channels) == (devices, gdr, proxy, 2)


def _docker(line: str) -> str:
    return json.dumps(
        {"log": line + "\n", "stream": "stdout", "time": f"2026-01-01T00:00:{random.random():.9f}Z"},
        separators=(",", ":"),
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda line: f"[rank{len(line) % 8}]:{line}",
        lambda line: f"[default3]:{line}",
        lambda line: f"[1,{len(line) % 16}]<stdout>:{line}",
        lambda line: f"[1,{len(line) % 16}]<stderr>: {line}",
        lambda line: f" 3: {line}",
        lambda line: f"node7: {line}",
        lambda line: f"2026-01-01T00:00:{len(line) % 60:02d}.{len(line):06d}Z stdout F {line}",
        lambda line: f"2026-01-01 00:00:{len(line) % 60:02d},{len(line) % 1000:03d} - INFO - {line}",
        lambda line: f"\x1b[36m(RayWorkerWrapper pid={len(line)}, ip=10.0.0.9)\x1b[0m {line}",
        lambda line: f"(RayWorkerWrapper pid=7, ip=10.0.0.9) {line} [repeated 2x across cluster]",
        lambda line: f"[2026-01-01 00:00:{len(line) % 60:02d}] {line}",
        lambda line: f"\x1b[0m{line}\r",
        _docker,
    ],
)
def test_launchers_and_collectors_put_things_around_the_lines(wrap: object) -> None:
    lines = logs.modern(16, settings=["NCCL_IB_TIMEOUT set by environment to 22."])
    plain, wrapped = read(lines), read([wrap(line) for line in lines])  # type: ignore[operator]
    assert same(wrapped) == same(plain)
    assert [(each.name, each.value, each.processes) for each in wrapped.settings] == [("NCCL_IB_TIMEOUT", "22", 16)]


def test_any_mixture_of_the_ranks_reads_alike() -> None:
    lines = logs.modern(16, channels=3)
    by_rank: dict[str, list[str]] = {}
    for line in lines:
        by_rank.setdefault(line.split()[0], []).append(line)
    order = random.Random(7)
    queues = list(by_rank.values())
    mixed = []
    while queues:
        queue = order.choice(queues)
        mixed.append(queue.pop(0))
        queues = [each for each in queues if each]
    assert same(read(mixed)) == same(read(lines))


def test_several_messages_on_one_line() -> None:
    lines = logs.modern(4, 4)
    start = next(number for number, line in enumerate(lines) if " via " in line)
    pairs = zip(lines[start::2], lines[start + 1 :: 2], strict=True)
    found = read([*lines[:start], *(a + b for a, b in pairs)])
    assert found.communicators == read(lines).communicators
    assert found.hosts == ["node1"]
    # Before a host is known, nobody can tell where its name begins.
    assert any("written into each other" in note for note in read([lines[1] + lines[2], *lines]).notes)


def test_a_log_without_line_ends_is_not_healthy() -> None:
    lines = logs.modern(4)
    for joined in (b" ".join(line.encode() for line in lines), logs.data(lines) * 40):
        flat = joined.replace(b"\n", b" ")
        with pytest.raises(InputError, match="nothing of NCCL in it can be read"):
            read(flat)
    found = read(logs.data(lines) + flat)
    assert found.unread > 0
    assert found.communicators == read(lines).communicators
    assert read(logs.data(lines).replace(b"\n", b"\r")).communicators == found.communicators


def test_gzip_whole_cut_and_joined() -> None:
    lines = logs.modern(8)
    packed = gzip.compress(logs.data(lines[:60])) + gzip.compress(logs.data(lines[60:]))
    assert same(read(packed)) == same(read(lines))
    cut = read(gzip.compress(logs.data(lines))[:-40])
    assert "the gzip data is damaged or ends too early" in cut.notes[0]
    assert cut.versions[0].version == "2.28.9"


def test_several_files_are_one_job() -> None:
    lines = logs.modern(8)
    parts = [[line for line in lines if f"[{rank}] NCCL" in line] for rank in range(8)]
    found = nccl_log.read([(f"rank{rank}.log", io.BytesIO(logs.data(part))) for rank, part in enumerate(parts)])
    assert found.communicators == read(lines).communicators
    assert len(found.files) == 8


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there is no line of NCCL in it"),
        (b"Epoch 1 loss 2.3\n" * 100, "there is no line of NCCL in it"),
        (b"BZh91AY", "this is bzip2 data"),
        (b"\xff\xfeN\0C\0C\0L\0", "this is UTF-16 text"),
    ],
)
def test_what_is_no_log(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read(data)
    assert error.value.hint


def test_a_ring_that_nccl_cut_is_put_together_from_the_connections() -> None:
    lines = logs.modern(64, channels=2)
    cut = [line[:90] + "..." if " Channel 0" in line and " via " not in line else line for line in lines]
    (ring,) = read(cut).communicators[0].rings
    assert (ring.order, ring.origin, ring.complete) == (list(range(64)), "connections", True)
    lost = [line for line in cut if "10[2] -> 11[3]" not in line]
    (ring,) = read(lost).communicators[0].rings
    assert (ring.complete, ring.origin) == (False, "printed")


def test_neighbours_give_a_ring_when_the_list_is_cut() -> None:
    lines = [line for line in logs.modern(8) if " via " not in line and " : 0 1" not in line]
    order = [0, 2, 4, 6, 7, 5, 3, 1]
    for place, rank in enumerate(order):
        before, after = order[place - 1], order[(place + 1) % 8]
        lines += [logs.info(rank, f"Ring {channel:02d} : {before} -> {rank} -> {after}") for channel in (0, 1)]
    (ring,) = read(lines).communicators[0].rings
    assert (ring.order, ring.origin, ring.channels) == (order, "neighbours", [0, 1])


def test_late_connections_find_their_communicator() -> None:
    """Since 2.22 connections are made when they are needed, by whatever thread needs them."""
    lines = [line for line in logs.modern(4, 4) if " via " not in line]
    lines += [line for line in logs.modern(2, 2, commid="1111", inside="SHM/direct/direct") if "node1:700" in line]
    lines = [line.replace("0x55d9", "0x66d9") if "1111" in line else line for line in lines]
    lines.append(logs.info(3, "Channel 00/0 : 3[3] -> 0[0] via P2P/CUMEM", 4, tid=99))
    large, small = read(lines).communicators
    assert [(each.a, each.b, each.via) for each in large.connections] == [(3, 0, "P2P/CUMEM")]
    assert {each.via for each in small.connections} == {"SHM/direct/direct"}


def test_splits_of_one_parent_are_one_communicator() -> None:
    lines = logs.modern(4, 4)
    for rank in range(4):
        where = f"comm 0x77{rank:04x} rank {rank % 2} nranks 2 cudaDev {rank} nvmlDev {rank} busId {logs.bus(rank)}"
        about = f"{where} parent 0x55d9{rank:08x} splitCount 1 color {rank // 2 + 5} key 0"
        lines.append(logs.info(rank, f"ncclCommSplit {about}- Init START", 4))
        lines.append(logs.info(rank, f"ncclCommSplit {about} - Init COMPLETE", 4))
    found = read(lines).communicators
    assert [(each.size, [rank.cuda_device for rank in each.ranks]) for each in found] == [
        (4, [0, 1, 2, 3]),
        (2, [0, 1]),
        (2, [2, 3]),
    ]


def test_the_tree_and_the_paths() -> None:
    found = read(logs.modern(4, 4, extra=logs.graph(0, nvlink=370.8)))
    (topology,) = found.topologies
    nodes = {f"{node.kind}/{node.id}": node for node in topology.nodes}
    assert nodes["CPU/0-1"].cpu == (1, 1, 3)
    assert nodes["GPU/0-5b000"].address == "0000:5b:00.0"
    assert (nodes["GPU/0-5b000"].rank, nodes["GPU/0-5b000"].parent) == (2, "PCI/0-90000")
    assert nodes["NET/0-1"].parent == "NIC/0-94000"
    assert {(wire.kind, wire.gbps) for wire in topology.wires} == {("NVL", 370.8), ("SYS", 10.0)}
    assert sum(path.type == "NVL" for path in topology.paths if path.b.startswith("GPU")) == 12


def test_the_tuner_in_both_layouts() -> None:
    latencies = {
        "Max NThreads": ["512", "640", "512", "512", "640", "512"],
        "AllReduce": ["8.0/  61.1", "16.5/ 180.6", "16.4/ 232.2", "7.8/ 141.0", "17.8/   0.0", "15.2/ 360.0"],
        "ReduceScatter": ["0.0/   0.0", "0.0/   0.0", "0.0/   0.0", "7.2/ 282.0", "15.9/ 662.4", "11.8/ 720.0"],
    }
    rows = [f"{name:>13} |" + "".join(f" {cell:>14} |" for cell in cells) for name, cells in latencies.items()]
    protocols = ["LL", "LL128", "Simple"]
    new = ["  Algorithm   |" + "".join(f" {'':>14}   {name:>14}   {'':>14} |" for name in ("Tree", "Ring"))]
    new.append("  Protocol    |" + "".join(f" {name:>14} |" for name in protocols * 2))
    names = [f"{algorithm:>7}/{protocol:>6}" for algorithm in ("Tree", "Ring") for protocol in protocols]
    old = ["Latency/AlgBw |" + "".join(f" {name} |" for name in names)]
    tables = []
    for head in (new, old):
        found = read(logs.modern(2, 2, extra=[(0, line) for line in [*head, *rows]]))
        tables.append(found.communicators[0].tuner)
    assert tables[0] == tables[1]
    cells = {(cell.collective, cell.algorithm, cell.protocol): (cell.latency_us, cell.gbps) for cell in tables[0]}
    assert len(cells) == 12
    assert cells["AllReduce", "Ring", "Simple"] == (15.2, 360.0)
    assert cells["AllReduce", "Ring", "LL128"] == (17.8, 0.0)
    assert cells["ReduceScatter", "Tree", "LL"] == (0.0, 0.0)


def test_choices_of_the_tuner_by_size() -> None:
    said = [
        "AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
        "AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
        "AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
        "AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 33.000000",
        "AllGather [Symmetric]: 65536 Bytes -> Kernel AllGather_LL nchannels 4 nthreads 512 nWorks 1",
        "AllReduce: opCount 1f sendbuff 0x7f recvbuff 0x7f count 256 datatype 7 op 0 root 0 comm 0x55 [nranks=2]",
    ]
    found = read(logs.modern(2, 2, extra=[(0, line) for line in said]))
    assert [
        (each.collective, each.algorithm, each.protocol, each.min_bytes, each.max_bytes, each.channels, each.count)
        for each in found.choices
    ] == [
        ("AllGather", "Symmetric", "AllGather_LL", 65536, 65536, 4, 1),
        ("AllReduce", "RING", "LL", 1024, 4096, 1, 3),
        ("AllReduce", "Ring", "Simple", 1048576, 1048576, None, 1),
    ]
    assert found.operations == {"AllReduce": 1}


def test_warnings_by_kind() -> None:
    lines = logs.modern(2, 2)
    for port in (100, 200):
        lines.append("")
        lines.append(
            f"node1:7000:7200 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
            f"10.0.0.2<{port}> with status=12 opcode=0 len=0 vendor err 129 (Recv)"
        )
    lines.append(
        "node1:7001:7201 [1] transport/shm.cc:590 (shmOpen) NCCL WARN Error while creating shared memory segment "
        "/dev/shm/nccl-x (size 9637888)"
    )
    lines.append(logs.info(0, "Call to connect returned Connection refused, retrying", 2))
    found = {each.kind: each for each in read(lines).warnings}
    assert found["network completion error"].count == 2
    assert found["network completion error"].place.line == len(logs.modern(2, 2)) + 2
    assert found["network completion error"].hosts == ["node1"]
    assert found["shared memory failed"].severity == "error"
    assert found["connection retried"].severity == "warning"


def test_gdr_and_its_reasons() -> None:
    said = [
        "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)",
        "NET/IB : GPU Direct RDMA Enabled for HCA 1 'mlx5_1'",
        "GPU Direct RDMA Disabled for GPU 1b000 / HCA 2 (distance 8 > 5)",
        "GPU Direct RDMA Enabled for GPU 3 / HCA 1 (distance 4 <= 5), read 0 mode Default",
    ]
    found = {(each.device, each.gpu): each for each in read(logs.modern(2, 2, extra=[(0, each) for each in said])).gdr}
    assert found["mlx5_0", None].module_missing
    assert found["mlx5_1", None].enabled
    far = found["2", "1b000"]
    assert (far.enabled, far.path, far.limit_path) == (False, "PHB", "PXB")
    assert (found["1", None].path, found["1", None].enabled) == ("PIX", True)


def test_a_topology_that_was_dumped_into_the_log() -> None:
    xml = '<system version="1">\n  <cpu numaid="0" affinity="ff" arch="x86_64">\n  </cpu>\n</system>'
    lines = logs.modern(2, 2)
    dumped = [f"[rank0]:{line}" for line in xml.splitlines()]
    found = read([*lines[:8], dumped[0], dumped[1], lines[8], *dumped[2:], *lines[9:]])
    assert (found.topology_xml or "").split() == xml.split()
    assert found.communicators[0].complete == 2


def test_bootstrap_interfaces_and_plugins_in_all_spellings() -> None:
    said = {
        "Bootstrap : Using [0]ib0:10.1.0.1<0> [1]ib1:10.1.1.1<0>": ("ib0", "10.1.0.1"),
        "Bootstrap : Using ens5:172.31.0.4<0>": ("ens5", "172.31.0.4"),
        "Bootstrap: Using eth0:fe80::22:1%eth0<0>": ("eth0", "fe80::22:1%eth0"),
        "Bootstrap: Using mlx5_0:1": ("mlx5_0:1", None),
    }
    for line, expected in said.items():
        (found,) = read([logs.info(0, line)]).bootstrap
        assert (found.name, found.address) == expected
    lines = [
        "NET/OFI Initializing aws-ofi-nccl 1.9.2-aws",
        "NET/Plugin: Loaded net plugin AWS Libfabric (v8)",
        "NET/Plugin: Loaded collnet plugin SHARP (v8)",
        "TUNER/Plugin: Using nccl_ofi_tuner (v3)",
        "Using network AWS Libfabric",
    ]
    plugins = read([logs.info(0, line) for line in lines]).plugins
    assert [(plugin.kind, plugin.name) for plugin in plugins] == [
        ("collnet plugin", "SHARP"),
        ("net plugin", "AWS Libfabric"),
        ("net plugin release", "aws-ofi-nccl 1.9.2-aws"),
        ("network", "AWS Libfabric"),
        ("tuner plugin", "nccl_ofi_tuner"),
    ]


def test_lines_of_nobody() -> None:
    lines = [line.partition("] ")[2] for line in logs.modern(2, 2)]
    for before in ("worker ", ""):
        found = read([before + line for line in lines])
        assert found.processes == 0
        assert found.communicators[0].size == 2
        assert found.lines == len(lines)


def test_what_a_plugin_sets_is_in_force() -> None:
    lines = logs.modern(2, 2)
    for rank, said in enumerate(
        ("Setting NCCL_TOPO_FILE environment variable", "NCCL_TOPO_FILE environment variable is already set")
    ):
        lines.append(logs.info(rank, f"NET/OFI Running on P4d platform, {said} to /opt/p4d.xml", 2))
    lines.append(logs.info(0, "NET/OFI Setting OFI_NCCL_GDR_FLUSH_DISABLE environment variable to 1", 2))
    seen = {each.name: (each.value, each.processes) for each in read(lines).settings}
    assert "NCCL_GDR_FLUSH_DISABLE" not in seen
    assert seen["NCCL_TOPO_FILE"] == ("/opt/p4d.xml", 2)


def test_what_nccls_own_diagnostics_found_is_a_warning() -> None:
    lines = [
        *logs.modern(2, 2),
        "node1:7000 NCCL DIAG === RAS Diagnostics ===",
        "node1:7000 NCCL DIAG [OK]   CUDA driver version: 13000 consistent across 2 ranks in comm 0x1",
        "node1:7000 NCCL DIAG [INFO] NCCL environment: NCCL_IB_TC=96 on rank(s) {0}",
        "node1:7000 NCCL DIAG [INFO] NCCL environment: NCCL_IB_TC=106 on rank(s) {1}",
        "node1:7000 NCCL DIAG RAS diagnostics completed in 12.3 ms across 2 RAS peers",
    ]
    (warned,) = read(lines).warnings
    assert (warned.kind, warned.severity, warned.count) == ("found by NCCL's diagnostics", "warning", 2)
    assert warned.message == "NCCL environment: NCCL_IB_TC=96 on rank(s) {0}"
    assert (warned.hosts, warned.place.line) == (["node1"], len(logs.modern(2, 2)) + 3)


@pytest.mark.skipif(not CAPTURE.is_dir(), reason="the capture is not here")
def test_the_real_logs_are_read_fully() -> None:
    streams = [(path.name, io.BytesIO(path.read_bytes())) for path in sorted(CAPTURE.glob("nccl_debug.rank*.log"))]
    found = nccl_log.read(streams)
    (communicator,) = found.communicators
    assert (communicator.channels, communicator.complete) == (24, 2)
    assert [(ring.order, len(ring.channels)) for ring in communicator.rings] == [([0, 1], 24)]
    assert {(each.via, each.channels) for each in communicator.connections} == {("P2P/CUMEM", 24)}
    assert {path.type for path in found.topologies[0].paths if path.a[:3] == path.b[:3] == "GPU"} == {"NVL"}
    assert len(communicator.tuner) == 5 * 3 * 7
    cells = {(cell.collective, cell.algorithm, cell.protocol): cell.gbps for cell in communicator.tuner}
    assert cells["AllReduce", "Ring", "Simple"] == 360.0
    assert sorted(len(tree.channels) for tree in communicator.trees) == [12, 12]
    assert {(each.pattern, each.channels) for each in found.graphs} == {("ring", 12), ("balanced tree", 12)}
    assert [each.name for each in found.settings] == ["NCCL_GRAPH_DUMP_FILE", "NCCL_NVLS_ENABLE", "NCCL_TOPO_DUMP_FILE"]
    assert found.versions[0].version == "2.28.9"
    assert found.warnings == []


WHOLE = logs.data(
    [
        *logs.modern(8, 4, settings=["NCCL_P2P_LEVEL set by environment to SYS"], extra=logs.graph(0, nvlink=240.0)),
        *logs.old(4),
        "node1:7000:7200 [0] transport/net_ib.cc:12 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5>",
        '<system version="1">',
        "</system>",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.sampled_from(["set", "cut", "copy", "drop"])),
        max_size=12,
    )
)
def test_any_mutation_gives_a_result_or_one_sentence(changes: list[tuple[int, int, str]]) -> None:
    data = bytearray(WHOLE)
    for place, byte, change in changes:
        at = place % max(len(data), 1)
        match change:
            case "set" if data:
                data[at] = byte
            case "cut":
                del data[at : at + byte]
            case "copy":
                data[at:at] = data[at : at + byte] * 3
            case "drop":
                del data[at:]
    with contextlib.suppress(InputError):
        msgspec.json.encode(read(bytes(data)))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(nccl_log._KINDS)), st.binary(max_size=80))
def test_any_message_is_survived(before: bytes, head: bytes, after: bytes) -> None:
    line = before.replace(b"\n", b" ") + b"node1:1:2 [0] NCCL INFO " + head + after
    with_company = logs.data(logs.modern(2, 2)) + line + b"\n"
    read(with_company)


@pytest.mark.parametrize(
    "noise",
    [
        lambda number: f"h{number}:{number}:{number} [0] NCCL INFO Channel 00/0 : {number}[0] -> 1[1] via P2P/CUMEM",
        lambda number: f"h:1:1 [0] NCCL INFO Channel 00/0 : {number}[0] -> 1[1] via P2P/{number}",
        lambda number: (
            f"h:1:1 [0] NCCL INFO comm 0x{number:x} rank 0 nranks 8 cudaDev 0 commId 0x{number:x} - Init START"
        ),
        lambda number: f"h:1:1 [0] NCCL INFO NCCL_X{number} set by environment to {number}",
        lambda number: f"h:{number}:1 [0] x.cc:1 NCCL WARN kind {chr(97 + number % 26) * (number % 190)}",
        lambda number: (
            f"{number} h:1:1 [0] NCCL INFO AllReduce: {number} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}"
        ),
        lambda number: f"h:1:1 [0] NCCL INFO GPU Direct RDMA Disabled for GPU {number} / HCA {number} (distance 8 > 5)",
    ],
)
def test_memory_is_bounded(noise: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small limits, three times the lines may not need three times the memory."""
    for module in ("nccl_log_records", "nccl_log_lines", "nccl_log"):
        loaded = sys.modules[f"topoadvisor.ingest.{module}"]
        for name in (
            "MAX_THREADS",
            "MAX_MEMBERS",
            "MAX_TEXTS",
            "MAX_KINDS",
            "MAX_PER_MEMBER",
            "MAX_VOICES",
            "MAX_ENTRIES",
            "_MAX_PREFIXES",
        ):
            if hasattr(loaded, name):
                monkeypatch.setattr(loaded, name, 200)
    peaks = []
    for count in (4_000, 12_000):
        data = "\n".join(noise(number) for number in range(count)).encode()  # type: ignore[operator]
        tracemalloc.start()
        reader = nccl_log.Reader()
        reader.feed("x", [data[at : at + 65536] for at in range(0, len(data), 65536)])
        peaks.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        summary = reader.summary(["x"])
        assert summary.lines == count
    assert peaks[1] < peaks[0] * 1.3 + 100_000


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log_records, "MAX_MEMBERS", 4)
    assert any("ranks of communicators were not kept" in note for note in read(logs.modern(8)).notes)


@pytest.mark.parametrize(
    "message",
    [
        b"Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000",
        b"Multiple ranks detected using the same GPU on this node",
        b"Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1",
    ],
)
def test_two_ranks_on_one_gpu_in_the_words_of_2_29_2_30_3_and_2_30_7(message: bytes) -> None:
    assert nccl_log_warnings.kind_of(message).name == "two ranks on one GPU"
