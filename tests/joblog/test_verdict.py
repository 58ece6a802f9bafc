from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable

import msgspec
import nccl_logs as logs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor import files, snapshot
from topoadvisor.errors import InputError
from topoadvisor.ingest import nccl_log, nccl_log_snapshot
from topoadvisor.joblog import verdict
from topoadvisor.joblog.document import CODES, Log
from topoadvisor.render import log_text
from topoadvisor.snapshot import Gpu, IbPort, Nic, P2p, Setting, Snapshot
from topoadvisor.topology import graph


def judged(lines: Iterable[str], machine: Snapshot | None = None) -> Log:
    summary = nccl_log.read([("job.log", io.BytesIO(logs.data(lines)))])
    return verdict.judge(summary, machine, "machine.json" if machine is not None else None)


def found(log: Log) -> list[tuple[str, str]]:
    return [(each.id, each.severity) for each in log.findings]


def the(log: Log, code: str) -> str:
    return next(each.message for each in log.findings if each.id == code)


def asked(log: Log) -> list[str]:
    return [each.id for each in log.unknown]


def machine(name: str) -> Snapshot:
    return snapshot.decode((files.shipped("fixtures") / name / "snapshot.json").read_bytes())


def pasted(name: str) -> Snapshot:
    """What a pasted matrix shows of a machine: no PCI address."""
    whole = machine(name)
    gpus = [Gpu(index=gpu.index, name=gpu.name) for gpu in whole.gpus]
    return Snapshot(origin="matrix", gpus=gpus, matrices=whole.matrices)


def test_a_healthy_job_on_two_hosts_has_no_finding() -> None:
    assert found(judged(logs.modern(16, extra=logs.graph(0)))) == []


def test_nvlink_jobs_ask_nothing() -> None:
    log = judged(logs.modern(4, 4, extra=logs.graph(0, nvlink=240.0)))
    assert (found(log), asked(log)) == ([], [])


SHM = "SHM/direct/direct"


@pytest.mark.parametrize(
    ("variables", "tree", "expected"),
    [
        ([], {}, [("LOG001", "error"), ("LOG001", "info")]),  # PIX was possible, PHB is beyond the default
        ([], {"nvlink": 240.0}, [("LOG001", "error")]),
        (["NCCL_P2P_DISABLE set by environment to 1"], {"nvlink": 240.0}, [("LOG001", "error")]),
        (["NCCL_P2P_LEVEL set by environment to LOC"], {}, [("LOG001", "error"), ("LOG001", "warning")]),
        (["NCCL_P2P_LEVEL set by environment to NVL"], {}, [("LOG001", "error"), ("LOG001", "warning")]),
        (["NCCL_P2P_LEVEL set by environment to SYS"], {}, [("LOG001", "error")] * 2),
    ],
)
def test_shared_memory_although_p2p_is_possible(
    variables: list[str], tree: dict[str, float], expected: list[tuple[str, str]]
) -> None:
    log = judged(logs.modern(4, 4, inside=SHM, settings=variables, extra=logs.graph(0, **tree)))
    assert found(log) == expected
    assert asked(log) == []
    if variables and "SYS" not in variables[0]:
        assert "forbids" in the(log, "LOG001")


def test_shared_memory_without_a_path_is_a_question() -> None:
    log = judged(logs.modern(4, 4, inside=SHM))
    assert found(log) == []
    assert asked(log)[0] == "LOG001"
    assert "--topology" in str(log.unknown[0].ask)


def test_a_topology_answers_that_question() -> None:
    lines = logs.modern(8, 8, inside=SHM)
    assert found(judged(lines, pasted("dgx-a100"))) == [("LOG001", "error")]
    # The driver of these cards refuses P2P: shared memory is all there is.
    log = judged(logs.modern(4, 4, inside=SHM), refusing(pasted("dgx-a100")))
    assert found(log) == [("LOG001", "info")]
    assert "the driver refuses P2P (CNS)" in the(log, "LOG001")


def refusing(whole: Snapshot) -> Snapshot:
    pairs = [P2p(a=a, b=b, read="CNS", write="CNS") for a in range(8) for b in range(8) if a != b]
    return msgspec.structs.replace(whole, p2p=pairs)


def test_sockets_although_nccl_lists_rdma() -> None:
    lines = logs.modern(
        16, outside="NET/Socket/0", network="Socket", settings=["NCCL_NET set by environment to Socket"]
    )
    log = judged(lines)
    assert ("LOG002", "error") in found(log)
    assert "mlx5_0:1/IB, mlx5_1:1/IB; NCCL_NET=Socket forbids it" in the(log, "LOG002")


def test_sockets_because_one_host_has_no_rdma_device() -> None:
    lines = logs.modern(16, outside="NET/Socket/0", network="Socket")
    there = [line for line in lines if "NET/IB : Using" in line and line.startswith("node2:")]
    lines = [logs.info(8, "NET/IB : No device found.") if line in there else line for line in lines]
    log = judged(lines)
    assert there
    assert log.ib_absent_on == ["node2"]
    assert "NCCL found none on node2" in the(log, "LOG002")


def test_sockets_without_rdma_are_a_question_that_a_topology_answers() -> None:
    lines = logs.modern(16, outside="NET/Socket/0", network="Socket", ib=None)
    log = judged(lines)
    assert "LOG002" not in dict(found(log))
    assert "LOG002" in asked(log)
    rdma = Snapshot(gpus=[Gpu(index=0)], nics=[Nic(name="mlx5_9", rdma=True, ports=[IbPort(port=1, state="ACTIVE")])])
    assert "machine.json shows mlx5_9; NCCL found none in this process" in the(judged(lines, rdma), "LOG002")
    down = Snapshot(gpus=[Gpu(index=0)], nics=[Nic(name="mlx5_9", rdma=True, ports=[IbPort(port=1, state="DOWN")])])
    log = judged(lines, down)
    assert "LOG002" not in [*dict(found(log)), *asked(log)]


def test_rdma_switched_off() -> None:
    lines = logs.modern(
        16, outside="NET/Socket/0", network="Socket", ib=None, settings=["NCCL_IB_DISABLE set by environment to 1."]
    )
    assert ("LOG002", "warning") in found(judged(lines))


def test_the_network_inside_a_host() -> None:
    lines = logs.modern(
        4,
        4,
        inside="NET/Socket/0",
        settings=["NCCL_P2P_DISABLE set by environment to 1", "NCCL_SHM_DISABLE set by environment to 1."],
    )
    lines = [line.replace("via NET", "[send] via NET") for line in lines]
    log = judged(lines)
    assert ("LOG003", "error") in found(log)
    assert "because of NCCL_SHM_DISABLE=1 and NCCL_P2P_DISABLE=1" in the(log, "LOG003")


def test_two_machines_of_one_name_are_not_taken_for_one() -> None:
    lines = logs.modern(16, outside="NET/Socket/0", network="Socket", ib=None)
    log = judged(line.replace("node2:7", "node1:9") for line in lines)
    assert found(log) == []
    assert {each.same_host for each in log.communicators[0].connections} == {None}


@pytest.mark.parametrize(
    ("said", "severity", "words"),
    [
        (["NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"], "error", "NCCL says that mlx5_0 cannot do it"),
        (["GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 8 > 5)"], "warning", "(PHB) is beyond the level PXB"),
        ([], "warning", "the log does not say why"),
    ],
)
def test_gdr_off_and_why(said: list[str], severity: str, words: str) -> None:
    log = judged(logs.modern(16, outside="NET/IB/0", extra=[(0, each) for each in said]))
    assert found(log) == [("LOG004", severity)]
    assert words in the(log, "LOG004")


def test_a_device_that_has_only_a_number_is_called_hca() -> None:
    said = "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 8 > 5)"
    log = judged(logs.modern(16, outside="NET/IB/0", extra=[(0, said)]))
    assert log.findings[0].evidence == ["GPU Direct RDMA disabled for GPU 0 / HCA 0: PHB is beyond PXB"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (["Failed to open libibverbs.so[.1]"], "NCCL could not open libibverbs"),
        (["Count not open libibverbs.so", "Count not open libibverbs.so.1"], "NCCL could not open libibverbs"),
        (["Count not open libibverbs.so", "NET/IB : No device found."], "NCCL found no RDMA device"),
    ],
)
def test_why_nccl_took_sockets(said: list[str], reason: str) -> None:
    lines = logs.modern(16, outside="NET/Socket/0", network="Socket", ib=None, extra=[(0, each) for each in said])
    (open_question,) = [each for each in judged(lines).unknown if each.id == "LOG002"]
    assert open_question.reason == reason


def test_ranks_that_differ() -> None:
    lines = logs.modern(16, settings=["NCCL_ALGO set by environment to Ring"])
    other = [
        line.replace("2.28.9", "2.27.3").replace("to Ring", "to Tree").replace("network IB", "network Socket")
        if line.startswith("node2")
        else line
        for line in lines
    ]
    log = judged(other)
    assert found(log) == [("LOG005", "error"), ("LOG006", "error"), ("LOG007", "error")]
    assert "2.27.3 on node2; 2.28.9 on node1" in the(log, "LOG005")
    assert "NCCL_ALGO differs between ranks: Ring on node1; Tree on node2" in the(log, "LOG007")


@pytest.mark.parametrize(
    ("variable", "values", "expected"),
    [
        ("NCCL_CROSS_NIC", ("0", "1"), [("LOG007", "error")]),
        ("NCCL_IB_HCA", ("mlx5_0", "mlx5_4"), []),
        ("NCCL_IB_GID_INDEX", ("1", "3"), []),
        ("NCCL_IB_SORT_MERGE_NICS", ("0", "1"), [("LOG007", "warning")]),
    ],
)
def test_values_that_hosts_may_have_of_their_own(
    variable: str, values: tuple[str, str], expected: list[tuple[str, str]]
) -> None:
    lines = logs.modern(16, settings=[f"{variable} set by environment to {values[0]}"])
    other = [line.replace(f"to {values[0]}", f"to {values[1]}") if "node2" in line else line for line in lines]
    assert found(judged(other)) == expected


def test_a_nic_list_for_each_rank_of_a_host() -> None:
    own = [(rank, f"NCCL_IB_HCA set by environment to mlx5_{rank % 8}") for rank in range(16)]
    assert found(judged(logs.modern(16, extra=own))) == [("LOG007", "error")]


def test_plugins_of_two_releases() -> None:
    release = "NET/OFI Initializing aws-ofi-nccl 1.{minor}.0-aws"
    loaded = [(rank, "NET/Plugin: Loaded net plugin AWS Libfabric (v8)") for rank in range(16)]
    own = [(rank, "NET/Plugin: Loaded net plugin Socket (v8)") for rank in range(16)]
    one = [(rank, release.format(minor=9)) for rank in range(16)]
    two = [(rank, release.format(minor=9 if rank < 8 else 7)) for rank in range(16)]
    assert found(judged(logs.modern(16, extra=[*loaded, *own, *one]))) == []
    assert found(judged(logs.modern(16, extra=[*loaded, *own, *two]))) == [("LOG006", "warning")]
    assert found(judged(logs.modern(16, extra=[*loaded, *own[:8]]))) == [("LOG006", "warning")]


def test_a_setting_that_only_some_ranks_have() -> None:
    lines = logs.modern(16, settings=["NCCL_IB_GID_INDEX set by environment to 3."])
    some = [line for line in lines if not (line.startswith("node2") and "GID_INDEX" in line)]
    assert found(judged(some)) == [("LOG007", "warning")]
    assert found(judged(lines)) == []
    dumped = logs.modern(16, extra=[(0, "NCCL_TOPO_DUMP_FILE set by environment to /tmp/x")])
    assert found(judged(dumped)) == []


def test_a_ring_that_crosses_too_often() -> None:
    lines = [line for line in logs.modern(4, 4, extra=logs.graph(0)) if " : 0 1 2 3" not in line]
    zigzag = [*lines, *(logs.info(0, f"Channel {channel:02d}/02 : 0 2 1 3", 4) for channel in (0, 1))]
    log = judged(zigzag)
    assert found(log) == [("LOG008", "warning")]
    assert "4 times where 2 would do" in the(log, "LOG008")
    with_nvlink = [line.replace("/PIX)", "/NVL)").replace("/PHB)", "/NVL)") for line in zigzag]
    assert found(judged(with_nvlink)) == []


def test_sockets_of_the_ring_from_a_topology() -> None:
    lines = [line for line in logs.modern(8, 8) if " : 0 1 2" not in line]
    zigzag = [*lines, *(logs.info(0, f"Channel {channel:02d}/02 : 0 4 1 5 2 6 3 7") for channel in (0, 1))]
    assert ("LOG008", "warning") in found(judged(zigzag, pasted("8xl40s")))
    assert "LOG008" in asked(judged(zigzag))


@pytest.mark.parametrize(
    ("size", "bootstrap", "expected"),
    [
        (16, "docker0:172.17.0.{host}<0>", [("LOG009", "error")]),
        (16, "lo:127.0.0.1<0>", [("LOG009", "error")]),
        (16, "br-1a2b3c:172.18.0.1<0>", [("LOG009", "error")]),
        (16, "ib0:10.0.0.{host}<0>", []),
        (16, "eth0:fe80::1%eth0<0>", []),
        (16, "lom1:10.0.0.{host}<0>", []),
        (16, "eth{host}:10.0.0.{host}<0>", [("LOG009", "info")]),
        (8, "docker0:172.17.0.1<0>", [("LOG009", "info")]),
        (8, "lo:127.0.0.1<0>", []),
    ],
)
def test_bootstrap_interfaces(size: int, bootstrap: str, expected: list[tuple[str, str]]) -> None:
    assert found(judged(logs.modern(size, bootstrap=bootstrap))) == expected


def test_initialisation_that_did_not_finish() -> None:
    lines = logs.modern(8)
    hung = [line for line in lines if not ("Init COMPLETE" in line and "rank 5 " in line)]
    log = judged(hung)
    assert found(log) == [("LOG010", "error")]
    assert "5 (node1)" in the(log, "LOG010")
    lost = judged([line for line in lines if "[5] NCCL" not in line])
    assert found(lost) == []
    assert "LOG010" in asked(lost)


def test_warnings_and_a_buffer_of_eight_bytes() -> None:
    lines = logs.modern(2, 2, settings=["NCCL_BUFFSIZE set by environment to 8."])
    lines.append("node1:7000:7100 [0] include/alloc.h:226 NCCL WARN Cuda failure 2 'out of memory'")
    log = judged(lines)
    assert found(log) == [("LOG011", "error"), ("LOG012", "error")]
    assert the(log, "LOG011").startswith("out of GPU memory, 1 time on node1")
    assert "as 8 bytes" in the(log, "LOG012")


def test_nvls_switched_off_where_there_are_switches() -> None:
    off = ["NCCL_NVLS_ENABLE set by environment to 0."]
    assert found(judged(logs.modern(4, 4, settings=off, extra=logs.graph(0, nvlink=370.8)))) == [("LOG013", "info")]
    assert found(judged(logs.modern(4, 4, settings=off, extra=logs.graph(0)))) == []


def test_a_topology_says_where_a_setting_is_from() -> None:
    lines = logs.modern(2, 2, settings=["NCCL_IB_HCA set to mlx5", "NCCL_DEBUG_FILE set by environment to /x"])
    there = Setting(name="NCCL_IB_HCA", value="mlx5", origin="/etc/nccl.conf", line=4)
    log = judged(lines, Snapshot(gpus=[Gpu(index=0), Gpu(index=1)], settings=[there]))
    assert {each.name: each.origin for each in log.settings} == {
        "NCCL_IB_HCA": "/etc/nccl.conf:4",
        "NCCL_DEBUG_FILE": None,
    }


def test_every_code_is_named_and_documents_are_sorted() -> None:
    lines = logs.modern(16, outside="NET/Socket/0", bootstrap="lo:127.0.0.1<0>", inside=SHM, extra=logs.graph(0))
    log = judged(lines)
    assert {each.id for each in log.findings} <= set(CODES)
    assert all(CODES[each.id][0] == each.name for each in log.findings)
    order = ["error", "warning", "info"]
    assert [each.severity for each in log.findings] == sorted((each.severity for each in log.findings), key=order.index)
    assert msgspec.json.encode(judged(lines)) == msgspec.json.encode(log)


WHOLE = logs.data(
    [
        *logs.modern(
            8,
            4,
            inside=SHM,
            outside="NET/IB/0",
            settings=["NCCL_P2P_LEVEL set by environment to SYS", "NCCL_BUFFSIZE set by environment to 8."],
            bootstrap="docker0:172.17.0.{host}<0>",
            extra=[
                *logs.graph(0, nvlink=240.0),
                (1, "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 8 > 5)"),
                (2, "Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1"),
                (3, "AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"),
            ],
        ),
        *logs.old(4),
        "node1:7000:7200 [0] transport/net_ib.cc:12 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5>",
        '<system version="1"><cpu numaid="0" affinity="ff"><pci busid="0000:1b:00.0" class="0x030200">',
        '<gpu dev="0" sm="90" rank="0"/></pci></cpu></system>',
    ]
)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.booleans()), min_size=1, max_size=20),
    st.sampled_from([None, "dgx-a100", "paste-8xa100", "8xl40s"]),
)
def test_any_mutation_is_judged_shown_and_scanned(changes: list[tuple[int, int, bool]], name: str | None) -> None:
    data = bytearray(WHOLE)
    for place, byte, cut in changes:
        at = place % len(data)
        if cut:
            del data[at : at + byte]
        else:
            data[at] = byte
    with contextlib.suppress(InputError):
        summary = nccl_log.read([("job.log", io.BytesIO(bytes(data)))])
        log = verdict.judge(summary, None if name is None else machine(name), name)
        assert log_text.render(log)
        assert msgspec.json.encode(log)
        scanned = nccl_log_snapshot.convert(summary, file="job.log").snapshot
        assert snapshot.decode(snapshot.encode(scanned)) == scanned
        graph.build(scanned)
