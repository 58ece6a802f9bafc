"""What rules find worth proving, on the bundled machines."""

from __future__ import annotations

import io

import msgspec
import pytest

from topoadvisor import advise
from topoadvisor.ingest import detect
from topoadvisor.snapshot import Setting, Snapshot
from topoadvisor.verify.candidates import GraphFile, candidates


def machine(name: str, **settings: str) -> Snapshot:
    snapshot = detect.read([f"fixture:{name}"], stdin=io.BytesIO())
    own = [Setting(name=variable, value=value, origin="environment") for variable, value in settings.items()]
    return msgspec.structs.replace(snapshot, settings=own)


def tried(
    snapshot: Snapshot, *, version: str = "2.28.9", channels: int | None = 24, graph_file: str | None = None
) -> tuple[list[str], str]:
    indexes = [gpu.index for gpu in snapshot.gpus]
    facts = advise.analyse(snapshot).facts
    arms, rest = candidates(facts, indexes, version=version, channels=channels, graph=GraphFile(graph_file))
    assert all(arm.why for arm in arms)
    return [arm.name for arm in arms], " ".join(map(str, rest))


def test_more_channels_where_all_pairs_have_nvlink() -> None:
    names, reasons = tried(machine("dgx-h100"))
    assert names == ["NCCL_MIN_CTAS=32"]
    assert "no pair uses P2P over PCIe" in reasons


@pytest.mark.parametrize(
    ("version", "channels", "expected"),
    [
        ("2.28.9", 32, ["NCCL_MIN_CTAS=64"]),
        ("2.24.3", 32, []),
        ("2.28.9", 64, []),
        ("2.16.2", 24, ["NCCL_MIN_NCHANNELS=32"]),
        ("2.28.9", None, []),
    ],
)
def test_the_number_of_channels_follows_version_and_default(
    version: str, channels: int | None, expected: list[str]
) -> None:
    names, reasons = tried(machine("dgx-h100"), version=version, channels=channels)
    assert names == expected
    assert expected or "More channels: not tried" in reasons


def test_what_the_user_set_is_not_fought_over() -> None:
    names, reasons = tried(machine("dgx-h100", NCCL_MAX_CTAS="16"))
    assert names == []
    assert "NCCL_MAX_CTAS is set already" in reasons


def test_pcie_machines_try_p2p_as_far_as_the_driver_grants_it() -> None:
    names, reasons = tried(machine("4xa100-pcie"))
    assert [name.partition("=")[0] for name in names if "LEVEL" in name] == ["NCCL_P2P_LEVEL"]
    assert "not every pair has NVLink" in reasons


def test_without_p2p_there_is_nothing_to_try() -> None:
    assert tried(machine("8x4090"))[0] == []


def test_a_graph_file_is_tried_where_its_rings_are_better() -> None:
    assert "NCCL_GRAPH_FILE=/tmp/graph.xml" in tried(machine("dgx-h100"), graph_file="/tmp/graph.xml")[0]
    names, reasons = tried(machine("dgx-h100", NCCL_GRAPH_FILE="/etc/own.xml"), graph_file="/tmp/graph.xml")
    assert not any("GRAPH" in name for name in names)
    assert "NCCL_GRAPH_FILE is set already" in reasons


def test_several_candidates_are_also_tried_together() -> None:
    names, _ = tried(machine("dgx-h100"), graph_file="/tmp/graph.xml")
    assert names == [
        "NCCL_MIN_CTAS=32",
        "NCCL_GRAPH_FILE=/tmp/graph.xml",
        "NCCL_MIN_CTAS=32 NCCL_GRAPH_FILE=/tmp/graph.xml",
    ]


def test_what_was_not_read_is_no_reason_against_trying() -> None:
    def unknown(snapshot: Snapshot, channels: int | None = 24, graph: GraphFile | None = None) -> list[str]:
        facts = advise.analyse(snapshot).facts
        indexes = [gpu.index for gpu in snapshot.gpus]
        _, rest = candidates(facts, indexes, version="2.28.9", channels=channels, graph=graph or GraphFile())
        return [str(each) for each in rest if each.unknown]

    assert unknown(machine("dgx-h100")) == []
    (channels,) = unknown(machine("dgx-h100"), channels=None)
    assert channels == "More channels: not tried, because NCCL's log does not say how many it takes by itself."
    assert unknown(machine("dgx-h100"), graph=GraphFile(unknown="of a reason")) == [
        "A graph file: not tried, because of a reason."
    ]
    plain = machine("4xa100-pcie")
    silent = [msgspec.structs.replace(each, read=None, write=None) for each in plain.p2p or ()]
    told = unknown(msgspec.structs.replace(plain, p2p=silent))
    assert [each[: each.index(" (")] for each in told] == [
        "P2P farther away: not tried, because pair.p2p.ok of GPU0-GPU2 is not known"
    ]
