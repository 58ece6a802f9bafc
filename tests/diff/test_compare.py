"""What counts as a change of the machine, what does not, and what is only known on one side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor import files
from topoadvisor.advice import Change
from topoadvisor.diff import compare
from topoadvisor.diff.document import KINDS, Diff
from topoadvisor.ingest import detect
from topoadvisor.numbers import natural
from topoadvisor.rules import facts
from topoadvisor.rules.scope import Known
from topoadvisor.snapshot import (
    CallError,
    Gpu,
    Matrix,
    NcclLibrary,
    Setting,
    Snapshot,
    Source,
    decode,
)
from topoadvisor.topology import graph

FIXTURES = sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json"))
replace = msgspec.structs.replace


def fixture(name: str = "dgx-h100") -> Snapshot:
    return decode((files.shipped("fixtures") / name / "snapshot.json").read_bytes())


def real_uuids(snapshot: Snapshot) -> Snapshot:
    """The same machine as an unredacted capture would show it."""
    gpus = [replace(gpu, uuid=f"GPU-{gpu.index:08x}-1111-4222-8333-444455556666") for gpu in snapshot.gpus]
    return replace(snapshot, gpus=gpus, redacted=False)


def with_gpu(snapshot: Snapshot, index: int, **values: Any) -> Snapshot:
    gpus = [replace(gpu, **values) if gpu.index == index else gpu for gpu in snapshot.gpus]
    return replace(snapshot, gpus=gpus)


def with_host(snapshot: Snapshot, **values: Any) -> Snapshot:
    return replace(snapshot, host=replace(snapshot.host, **values))


def only(found: Diff) -> Change:
    assert len(found.changes) == 1, [change.message for change in found.changes]
    assert not found.same
    return found.changes[0]


def told(change: Change) -> tuple[str, str, str, Any, Any, str]:
    return change.kind, change.subject, change.field, change.before, change.after, change.severity


@pytest.mark.parametrize("name", FIXTURES)
def test_a_capture_is_the_same_as_itself(name: str) -> None:
    found = compare(fixture(name), fixture(name))
    assert (found.same, found.changes, found.unread, found.other_machine) == (True, [], [], None)
    assert all(group.compared == group.unchanged for group in found.groups)
    assert {"GPUs", "link classes"} <= {group.group for group in found.groups}


def test_two_links_that_went_down() -> None:
    found = compare(fixture("dgx-h100"), fixture("dgx-h100-broken-link"))
    links = [change for change in found.changes if change.kind == "nvlink"]
    assert [told(change) for change in links] == [
        ("nvlink", "gpu:5/link:7", "active", True, False, "error"),
        ("nvlink", "gpu:5/link:12", "active", True, False, "error"),
    ]
    classes = [change for change in found.changes if change.kind == "link-class"]
    assert {(change.before, change.after, change.severity) for change in classes} == {("NV18", "NV16", "error")}
    assert len(classes) == 7
    assert len(found.changes) == 9
    back = compare(fixture("dgx-h100-broken-link"), fixture("dgx-h100"))
    assert {change.severity for change in back.changes} == {"info"}


def test_a_width_that_was_halved_is_said_once() -> None:
    """Three sources show it: NVML, the GPU's own PCI function, the port above."""
    old = real_uuids(fixture("8x4090"))
    gpu = old.gpus[2]
    assert gpu.pcie is not None
    assert old.pci is not None
    parent = next(device.parent for device in old.pci if device.address == gpu.address)
    pci = [replace(device, link_width=8) if device.address in (gpu.address, parent) else device for device in old.pci]
    new = replace(with_gpu(old, 2, pcie=replace(gpu.pcie, current_width=8)), pci=pci)
    change = only(compare(old, new))
    assert told(change) == ("pcie", "gpu:2", "pcie.current_width", 16, 8, "error")
    assert change.message == f"GPU2 ({gpu.address}): PCIe width x16 → x8"
    assert only(compare(new, old)).severity == "info"


def test_a_width_is_seen_without_nvml_too() -> None:
    old = fixture("8x4090")
    old = replace(old, gpus=[replace(gpu, pcie=None) for gpu in old.gpus])
    assert old.pci is not None
    pci = [replace(each, link_width=4) if each.address == old.gpus[0].address else each for each in old.pci]
    assert told(only(compare(old, replace(old, pci=pci)))) == ("pcie", "gpu:0", "link_width", 16, 4, "error")


def test_a_gpu_that_is_gone_and_the_numbers_that_shift() -> None:
    old = real_uuids(fixture("8x4090"))
    rest = [gpu for gpu in old.gpus if gpu.index != 6]
    new = replace(old, gpus=[replace(gpu, index=place) for place, gpu in enumerate(rest)], p2p=None, matrices=[])
    found = compare(replace(old, p2p=None, matrices=[]), new)
    assert told(found.changes[0])[:3] == ("gpu-gone", "gpu:6", "gpu")
    assert found.changes[0].severity == "error"
    assert old.gpus[6].address is not None
    assert old.gpus[6].address in found.changes[0].message
    assert [told(change) for change in found.changes[1:]] == [("gpu", "gpu:7", "index", 7, 6, "info")]
    assert [change.kind for change in compare(new, old).changes if change.kind != "gpu"] == ["gpu-new"]


def of_job(snapshot: Snapshot, origin: str, **values: Any) -> Snapshot:
    """What NCCL shows of the same machine."""
    return replace(
        snapshot,
        origin=origin,
        p2p=None,
        settings=None,
        nccl_libraries=None,
        matrices=[],
        gpus=[replace(gpu, numa_node=-1) for gpu in snapshot.gpus[:4]],
        nics=(snapshot.nics or [])[:2],
        pci=[device for device in snapshot.pci or () if device.address in {gpu.address for gpu in snapshot.gpus}],
        **values,
    )


@pytest.mark.parametrize("origin", ["nccl-log", "nccl-topology-xml"])
def test_what_nccl_never_shows_is_no_change(origin: str) -> None:
    old = fixture()
    for found in (compare(old, of_job(old, origin)), compare(of_job(old, origin), old)):
        assert [change.message for change in found.changes] == []
        unread = {(each.subject, each.field) for each in found.unread}
        assert {("gpu:7", "gpu"), ("gpu:0", "numa_node"), ("nic:mlx5_5", "nic"), ("pci:0000:05:00.0", "pci")} <= unread


def test_a_log_is_compared_by_what_was_in_force_and_which_version_ran() -> None:
    def live(*versions: str) -> Snapshot:
        libraries = [NcclLibrary(path=f"/lib{place}/libnccl.so.2", version=each) for place, each in enumerate(versions)]
        settings = [
            Setting(name="NCCL_ALGO", value="Ring", origin="environment"),
            Setting(name="NCCL_ALGO", value="Tree", origin="/etc/nccl.conf"),
            Setting(name="NCCL_IB_HCA", value="mlx5", origin="/etc/nccl.conf"),
        ]
        return replace(fixture(), nccl_libraries=libraries, settings=settings)

    def log(version: str, **values: str) -> Snapshot:
        settings = [Setting(name=name, value=value, origin="nccl-log") for name, value in values.items()]
        return replace(
            of_job(fixture(), "nccl-log"),
            nccl_libraries=[NcclLibrary(path="nccl-log", version=version)],
            settings=settings or None,
        )

    same = compare(live("2.28.9", "2.20.5"), log("2.28.9", NCCL_ALGO="Ring"))
    assert same.same
    assert {("nccl:/lib1/libnccl.so.2", "library"), ("variable:NCCL_IB_HCA", "in_force")} <= {
        (each.subject, each.field) for each in same.unread
    }
    changed = only(compare(live("2.28.9"), log("2.29.1", NCCL_ALGO="Tree")))
    assert told(changed) == ("setting", "variable:NCCL_ALGO", "in_force", "Ring", "Tree", "warning")
    back = compare(log("2.29.1"), live("2.28.9"))
    assert back.same
    assert [each.before for each in back.unread if each.field == "nccl.loaded"] == ["2.29.1"]


@pytest.mark.parametrize("make", [real_uuids, lambda snapshot: snapshot])
def test_a_gpu_that_moved(make: Callable[[Snapshot], Snapshot]) -> None:
    old = replace(make(fixture("2x3090-bridge")), pci=None)
    found = compare(old, with_gpu(old, 1, address="0000:0a:00.0"))
    moved = next(change for change in found.changes if change.kind == "gpu-moved")
    assert told(moved) == ("gpu-moved", "gpu:1", "address", old.gpus[1].address, "0000:0a:00.0", "warning")


def test_a_gpu_that_was_replaced() -> None:
    old = real_uuids(fixture("2x3090-bridge"))
    fresh = str(real_uuids(fixture("8x4090")).gpus[7].uuid)
    found = compare(old, with_gpu(old, 1, uuid=fresh))
    assert told(only(found)) == ("gpu-replaced", "gpu:1", "uuid", old.gpus[1].uuid, fresh, "warning")
    assert found.notes == []


def test_two_gpus_that_changed_places() -> None:
    old = replace(real_uuids(fixture("2x3090-bridge")), pci=None)
    first, second = old.gpus
    new = replace(old, gpus=[replace(first, uuid=second.uuid), replace(second, uuid=first.uuid)])
    kinds = {change.kind for change in compare(old, new).changes}
    assert "gpu-moved" in kinds
    assert not {"gpu-gone", "gpu-new", "gpu-replaced"} & kinds


def test_placeholders_of_two_redactions_tell_nothing() -> None:
    """GPU 3 is gone; a redaction of its own gives the others new placeholders."""
    old = replace(fixture("8x4090"), p2p=None, matrices=[])
    rest = [gpu for gpu in old.gpus if gpu.index != 3]
    gpus = [replace(gpu, uuid=old.gpus[place].uuid) for place, gpu in enumerate(rest)]
    found = compare(old, replace(old, gpus=gpus))
    assert told(only(found))[:2] == ("gpu-gone", "gpu:3")
    assert "placeholders" in found.notes[0]


def test_a_redacted_capture_against_one_that_is_not() -> None:
    plain = with_host(real_uuids(fixture("dgx-h100")), hostname="node17.example.org")
    from topoadvisor.redact import redact

    assert compare(redact(plain), plain).same
    assert compare(plain, redact(plain)).same


def test_gpus_without_any_identity_are_matched_by_number() -> None:
    def paste(count: int, relation: str) -> Snapshot:
        names = [f"GPU{place}" for place in range(count)]
        cells = {row: {column: relation for column in names if column != row} for row in names}
        return Snapshot(
            origin="matrix",
            gpus=[Gpu(index=place) for place in range(count)],
            matrices=[Matrix(gpus=names, nics=[], cells=cells)],
        )

    assert compare(paste(4, "NV4"), paste(4, "NV4")).same
    found = compare(paste(3, "PIX"), paste(2, "SYS"))
    assert [told(change) for change in found.changes] == [
        ("gpu-gone", "gpu:2", "gpu", "index 2", None, "error"),
        ("link-class", "gpu:0-gpu:1", "link_class", "PIX", "SYS", "warning"),
    ]
    rows = {"GPU0": {"GPU1": "PIX"}}
    cut = replace(paste(2, "PIX"), matrices=[replace(paste(2, "PIX").matrices[0], cells=rows)])
    incomplete = compare(paste(3, "PIX"), cut)
    assert incomplete.same
    assert "does not show every GPU" in incomplete.unread[0].message


def test_what_changes_by_itself_is_no_change() -> None:
    old = fixture("8x4090")
    gpus = []
    for gpu in old.gpus:
        assert gpu.pcie is not None
        idle = replace(gpu.pcie, current_gen=1)
        gpus.append(replace(gpu, pcie=idle, performance_state=8, pcie_replays=0))
    new = replace(
        with_host(old, shm_free_bytes=1),
        gpus=gpus,
        captured_at="2031-01-01T00:00:00Z",
        tool="another",
        raw=[],
        sources=[replace(source, seconds=99.0) for source in old.sources],
    )
    assert compare(old, new).same
    assert compare(new, old).same


def test_the_generation_of_a_busy_gpu_counts() -> None:
    old = with_gpu(fixture("8x4090"), 0, performance_state=0)
    pcie = old.gpus[0].pcie
    assert pcie is not None
    new = with_gpu(old, 0, performance_state=2, pcie=replace(pcie, current_gen=1))
    assert told(only(compare(old, new))) == ("pcie", "gpu:0", "pcie.current_gen", pcie.current_gen, 1, "warning")
    assert compare(with_gpu(old, 0, performance_state=None), new).same


def test_replays_count_when_they_rose() -> None:
    old, new = (with_gpu(fixture("8x4090"), 0, pcie_replays=count) for count in (3, 9))
    assert told(only(compare(old, new))) == ("pcie", "gpu:0", "pcie_replays", 3, 9, "warning")
    assert compare(new, old).same


def test_a_value_not_read_is_no_change_and_is_named() -> None:
    old = fixture("8x4090")
    new = with_gpu(old, 1, numa_node=None)
    for before, after, words in ((old, new, "0 before, not read now"), (new, old, "not read before, 0 now")):
        found = compare(before, after)
        assert found.same
        assert [(each.subject, each.field) for each in found.unread] == [("gpu:1", "numa_node")]
        assert words in found.unread[0].message


def test_a_source_that_was_lost_is_no_change() -> None:
    old = fixture("dgx-h100")
    new = replace(old, pci=None, nics=None, p2p=None, settings=None, nccl_libraries=None, matrices=[])
    found = compare(replace(old, matrices=[]), new)
    assert found.changes == []
    assert {"pci", "nics", "p2p", "nccl_libraries", "settings"} <= {each.field for each in found.unread}


def test_a_gpu_that_nvml_calls_lost_is_a_change() -> None:
    old = fixture("8x4090")
    nvml = old.source("nvml")
    assert nvml is not None
    error = CallError(call="nvmlDeviceGetName", error="GpuIsLost", subject="gpu:2", code=15)
    status = replace(nvml, status="partial", errors=[*nvml.errors, error])
    lost = with_gpu(old, 2, **dict.fromkeys(("name", "uuid", "pcie", "nvlinks", "bar1_bytes", "memory_bytes")))
    lost = replace(lost, sources=[status if each is nvml else each for each in lost.sources])
    (found,) = [each for each in compare(old, lost).changes if each.kind == "gpu-gone"]
    assert (found.subject, found.field, found.severity) == ("gpu:2", "lost", "error")
    assert not [each for each in compare(lost, lost).changes if each.kind == "gpu-gone"]
    facts_of = facts.gather(lost, graph.build(lost))
    assert facts_of.node["gpus.lost"] == Known(["GPU2"], "nvml")


def test_gpus_that_could_not_be_listed_are_not_gone() -> None:
    old = fixture("8x4090")
    failed = Source(name="nvml", status="failed", reason="the NVIDIA kernel driver is not loaded")
    found = compare(old, replace(old, gpus=[], pci=None, p2p=None, matrices=[], sources=[failed]))
    assert not [change for change in found.changes if change.kind == "gpu-gone"]
    assert sum("kernel driver is not loaded" in each.message for each in found.unread) == 8


def nic(snapshot: Snapshot, place: int, **values: Any) -> Snapshot:
    assert snapshot.nics is not None
    return replace(
        snapshot, nics=[replace(each, **values) if n == place else each for n, each in enumerate(snapshot.nics)]
    )


CHANGES: list[tuple[Callable[[Snapshot], Snapshot], tuple[str, str, str, Any, Any, str]]] = [
    (
        lambda old: replace(old, driver=replace(old.driver, version="1.2.3")),
        ("driver", "node", "version", None, "1.2.3", "warning"),
    ),
    (
        lambda old: replace(old, driver=replace(old.driver, flavour="proprietary")),
        ("driver", "node", "flavour", None, "proprietary", "warning"),
    ),
    (lambda old: with_host(old, kernel="6.9"), ("host", "node", "kernel", None, "6.9", "info")),
    (
        lambda old: with_host(old, services={**(old.host.services or {}), "nvidia-fabricmanager": "failed"}),
        ("service", "service:nvidia-fabricmanager", "state", "active", "failed", "error"),
    ),
    (
        lambda old: with_host(old, numa_nodes=(old.host.numa_nodes or [])[:1]),
        ("numa", "numa:1", "numa", 1, None, "warning"),
    ),
    (
        lambda old: with_host(old, modules=[each for each in old.host.modules or [] if each != "nvidia_peermem"]),
        ("host", "module:nvidia_peermem", "module", True, None, "warning"),
    ),
    (
        lambda old: with_host(old, dmi={**(old.host.dmi or {}), "product_name": "X"}),
        ("firmware", "node", "dmi.product_name", None, "X", "warning"),
    ),
    (lambda old: with_gpu(old, 4, mig=True), ("gpu", "gpu:4", "mig", False, True, "warning")),
    (lambda old: with_gpu(old, 4, numa_node=0), ("numa", "gpu:4", "numa_node", 1, 0, "warning")),
    (lambda old: nic(old, 0, mtu=77), ("nic", None, "mtu", None, 77, "warning")),
    (
        lambda old: replace(old, p2p=[replace(p, write="CNS") if (p.a, p.b) == (3, 1) else p for p in old.p2p or []]),
        ("p2p", "gpu:3>gpu:1", "write", "OK", "CNS", "error"),
    ),
    (
        lambda old: with_host(old, command_line=f"{old.host.command_line} pci=noacs"),
        ("command-line", "node", "command_line", None, None, "warning"),
    ),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=[f"{each[0]}-{each[2]}" for _, each in CHANGES])
def test_one_change_is_one_change(
    change: Callable[[Snapshot], Snapshot], expected: tuple[str, str, str, Any, Any, str]
) -> None:
    found = only(compare(fixture("dgx-h100"), change(fixture("dgx-h100"))))
    # None stands for what the fixture happens to hold.
    assert [want for want in expected if want is not None] == [
        got for want, got in zip(expected, told(found), strict=True) if want is not None
    ]
    assert " → " in found.message or "gone" in found.message or "now" in found.message or "no longer" in found.message


NICS = """\tGPU0\tGPU1\tNIC0\tNIC1
GPU0\t X \tNV18\tPIX\tSYS
GPU1\tNV18\t X \tSYS\tPIX
NIC0\tPIX\tSYS\t X \tSYS
NIC1\tSYS\tPIX\tSYS\t X
"""
LEGEND = "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_3\n"


def pasted(text: str) -> Snapshot:
    return detect.from_bytes(text.encode(), file="paste")


def test_a_nic_without_its_legend_is_the_one_of_its_column() -> None:
    old_style = NICS.replace("NIC0", "mlx5_0").replace("NIC1", "mlx5_3")
    named = [pasted(NICS + LEGEND), pasted(old_style), pasted(NICS + LEGEND.rpartition("\n  ")[0])]
    for whole in named:
        assert compare(whole, pasted(NICS)).changes == compare(pasted(NICS), whole).changes == []
    moved = pasted(
        NICS.replace("NIC1\tSYS\tPIX", "NIC1\tSYS\tNODE").replace("NV18\t X \tSYS\tPIX", "NV18\t X \tSYS\tNODE")
    )
    assert only(compare(named[0], moved)).message == "GPU1–mlx5_3: link class PIX → NODE"
    other = compare(pasted(NICS + LEGEND), pasted(NICS + LEGEND.replace("mlx5_3", "mlx5_9")))
    assert [each.kind for each in other.changes] == ["nic-gone", "nic-new"]


def test_a_nic_whose_column_cannot_be_told_is_neither_gone_nor_new() -> None:
    fewer = pasted("\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tSYS\nGPU1\tNV18\t X \tPIX\nNIC0\tSYS\tPIX\t X \n")
    for found in (compare(pasted(NICS + LEGEND), fewer), compare(fewer, pasted(NICS + LEGEND))):
        assert found.changes == []
        assert {each.subject for each in found.unread} == {"nic:mlx5_0", "nic:mlx5_3", "nic:NIC0"}


def test_a_port_that_went_down_and_a_card_that_is_gone() -> None:
    old = fixture("dgx-h100")
    assert old.nics is not None
    place, card = next((n, each) for n, each in enumerate(old.nics) if each.ports)
    assert card.ports is not None
    down = compare(old, nic(old, place, ports=[replace(card.ports[0], state="DOWN", rate_gbit=10.0)]))
    assert [(change.subject, change.field, change.severity) for change in down.changes] == [
        (f"nic:{card.name}/port:{card.ports[0].port}", "rate_gbit", "error"),
        (f"nic:{card.name}/port:{card.ports[0].port}", "state", "error"),
    ]
    gone = compare(old, replace(old, nics=[each for each in old.nics if each is not card]))
    assert told(only(gone))[:2] == ("nic-gone", f"nic:{card.name}")
    renamed = compare(old, nic(old, place, name="renamed0"))
    assert told(only(renamed)) == ("nic", f"nic:{card.name}", "name", card.name, "renamed0", "warning")


def test_settings_by_place_and_by_what_is_in_force() -> None:
    def place(*settings: tuple[str, str, str]) -> Snapshot:
        made = [Setting(name=name, value=value, origin=origin) for name, value, origin in settings]
        return replace(fixture("2x3090-bridge"), settings=made)

    base = place(("NCCL_DEBUG", "INFO", "environment"), ("NCCL_DEBUG", "WARN", "/etc/nccl.conf"))
    assert compare(base, base).same
    changed = only(
        compare(base, place(("NCCL_DEBUG", "TRACE", "environment"), *[("NCCL_DEBUG", "WARN", "/etc/nccl.conf")]))
    )
    assert told(changed) == ("setting", "variable:NCCL_DEBUG", "environment", "INFO", "TRACE", "warning")
    behind = only(compare(base, place(("NCCL_DEBUG", "INFO", "environment"))))
    assert told(behind) == ("setting", "variable:NCCL_DEBUG", "/etc/nccl.conf", "WARN", None, "info")
    assert "in force as before: INFO" in behind.message
    added = only(compare(place(), place(("NCCL_ALGO", "", "environment"))))
    assert told(added) == ("setting", "variable:NCCL_ALGO", "environment", None, "", "warning")


def test_nccl_library_by_path() -> None:
    def having(**versions: str) -> Snapshot:
        libraries = [NcclLibrary(path=f"/{path}", version=version) for path, version in versions.items()]
        return replace(fixture("2x3090-bridge"), nccl_libraries=libraries)

    assert told(only(compare(having(a="2.20.1"), having(a="2.21.5")))) == (
        "nccl",
        "nccl:/a",
        "version",
        "2.20.1",
        "2.21.5",
        "warning",
    )
    assert [change.field for change in compare(having(a="2.20.1"), having(b="2.20.1")).changes] == ["library"] * 2


def test_two_machines_are_called_two_machines() -> None:
    other = compare(fixture("dgx-a100"), fixture("dgx-h100")).other_machine
    assert other is not None
    assert "DGXA100 there and DGXH100 here" in other
    twin = real_uuids(fixture("dgx-h100"))
    strangers = replace(
        twin, gpus=[replace(gpu, uuid=f"GPU-f{gpu.index:07x}-1111-4222-8333-444455556666") for gpu in twin.gpus]
    )
    same_kind = compare(twin, strangers).other_machine
    assert same_kind is not None
    assert "none of the 8 GPUs there is among the 8 here" in same_kind
    one_left = with_gpu(strangers, 7, uuid=twin.gpus[7].uuid)
    assert compare(twin, one_left).other_machine is None


def test_a_bridge_that_vanished_and_an_address_that_is_another_device() -> None:
    old = fixture("dgx-h100")
    assert old.pci is not None
    told_of = {gpu.address for gpu in old.gpus} | {each.address for each in old.nics or ()}
    spare = next(device for device in old.pci if device.address not in told_of and device.device)
    without = replace(old, pci=[device for device in old.pci if device is not spare])
    assert ("pci-gone", f"pci:{spare.address}") in [told(each)[:2] for each in compare(old, without).changes]
    other = replace(
        old, pci=[replace(each, device="0xffff", link_width=1) if each is spare else each for each in old.pci]
    )
    assert [told(each)[:3] for each in compare(old, other).changes if each.kind == "pci"] == [
        ("pci", f"pci:{spare.address}", "device")
    ]


def test_order_is_worst_first_and_numbers_sort_as_numbers() -> None:
    found = compare(fixture("dgx-a100"), fixture("dgx-h100"))
    severities = [change.severity for change in found.changes]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert {change.kind for change in found.changes} <= KINDS.keys()
    assert sorted(["gpu:10", "gpu:9", "gpu:1"], key=natural) == ["gpu:1", "gpu:9", "gpu:10"]
    assert sorted(["gpu:" + "9" * 9000, "gpu:²"], key=natural)


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=6), st.just([]))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_two_valid_snapshots_compare(data: st.DataObject) -> None:
    """Random values at random places, where the schema takes them: never an exception, and always the same answer."""
    document = msgspec.to_builtins(fixture(data.draw(st.sampled_from(["2x3090-bridge", "gh200", "4xa6000-acs"]))))
    original = msgspec.convert(document, Snapshot)
    for _ in range(data.draw(st.integers(1, 4))):
        node: Any = document
        while True:
            keys = sorted(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            child = node[key]
            if not isinstance(child, (dict, list)) or not child or data.draw(st.integers(0, 9)) == 0:
                node[key] = data.draw(VALUES)
                break
            node = child
    try:
        changed = msgspec.convert(document, Snapshot)
    except msgspec.ValidationError:
        return
    found = compare(original, changed)
    assert msgspec.json.encode(compare(original, changed)) == msgspec.json.encode(found)
    assert found.same == (found.changes == [])
    assert compare(changed, changed).same


@pytest.mark.parametrize(("name", "changes"), [("1xh200-kvm", 0), ("dgx-h100", 1)])
def test_memory_of_a_guest_comes_and_goes(name: str, changes: int) -> None:
    """A guest's grew from 4.6 to 6.7 GiB between two captures of a minute; a host's has lost a module."""

    def holding(memory_bytes: int) -> Snapshot:
        first, *others = fixture(name).host.numa_nodes or ()
        return with_host(fixture(name), numa_nodes=[replace(first, memory_bytes=memory_bytes), *others])

    found = compare(holding(512 << 30), holding(256 << 30))
    assert [each.field for each in found.changes] == ["memory_bytes"] * changes
