from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topoadvisor.measurements.model import Measurement
from topoadvisor.rules.facts import FactBase, Known, Unknown
from topoadvisor.snapshot import Assumption, Cpu, Driver, Gpu, Host, NcclLibrary, NvLink, P2p, PciDevice, Setting

Machines = Callable[..., FactBase]


def of(facts: FactBase, name: str, place: int = 0) -> Any:
    fact = facts.subjects["pair"][place].facts[name] if name.startswith("pair.") else facts.fact(name)
    return fact.value if isinstance(fact, Known) else None


def granted(a: int, b: int, status: str | None = "OK") -> list[P2p]:
    return [P2p(a=x, b=y, read=status, write=status) for x, y in ((a, b), (b, a))]


@pytest.mark.parametrize(
    ("link_class", "path"),
    [("NV18", "NVL"), ("PIX", "PIX"), ("PXB", "PXB"), ("NODE", "PHB"), ("PHB", "PHB"), ("SYS", "SYS"), (None, None)],
)
def test_nccl_path(machine: Machines, link_class: str | None, path: str | None) -> None:
    assert of(machine(2, {(0, 1): link_class}), "pair.nccl_path") == path


def test_a_pair_with_a_common_nvlink_neighbour_is_nvb_for_nccl(machine: Machines) -> None:
    facts = machine(3, {(0, 1): "NV1", (1, 2): "NV2", (0, 2): "SYS"})
    assert of(facts, "pair.nccl_path", 1) == "NVB"
    assert of(facts, "p2p.worst_nccl_path") == "NVB"
    assert of(facts, "p2p.worst_nvlinkless_path") == "NVB"


def test_worst_paths_and_counts(machine: Machines) -> None:
    facts = machine(3, {(0, 1): "NV4", (0, 2): "NODE", (1, 2): "SYS"})
    assert of(facts, "p2p.worst_nccl_path") == "SYS"
    assert of(facts, "p2p.worst_nvlinkless_path") == "SYS"
    assert of(facts, "p2p.pairs_without_nvlink") == 2
    assert of(facts, "nvlink.any") is True
    assert of(facts, "nvlink.full_mesh") is False
    assert of(facts, "nvlink.summary") == "no NVLink on 2, NV4 on 1 of 3 pairs"


def test_a_full_mesh_has_no_path_without_nvlink(machine: Machines) -> None:
    facts = machine(2, {(0, 1): "NV18"})
    assert of(facts, "nvlink.full_mesh") is True
    assert of(facts, "p2p.worst_nvlinkless_path") == ""


@pytest.mark.parametrize(
    ("there", "back", "way", "ok"),
    [
        ({"read": "OK"}, {"read": "TNS"}, "GPU1→GPU0", False),
        ({"read": "OK", "write": "CNS"}, {"read": "OK", "write": "OK"}, "GPU0→GPU1", False),
        ({"read": "NS"}, {"read": "TNS"}, "", False),
        ({"read": "TNS"}, {}, "", False),
        ({"read": "OK", "write": "TNS"}, {"read": "TNS", "write": "OK"}, "", False),
        ({"read": "OK", "write": "OK"}, {"read": "OK", "write": "OK"}, "", True),
    ],
)
def test_access_that_is_refused_one_way_is_refused_and_the_way_is_told(
    machine: Machines, there: dict[str, str], back: dict[str, str], way: str, ok: bool
) -> None:
    facts = machine(2, {(0, 1): "NV18"}, p2p=[P2p(a=0, b=1, **there), P2p(a=1, b=0, **back)])
    assert (of(facts, "pair.p2p.refused_way"), of(facts, "pair.p2p.ok")) == (way, ok)
    assert of(facts, "nvlink.refused_pairs") == ("" if ok else way or "GPU0-GPU1")


@pytest.mark.parametrize("answer", ["NS", "TNS", "GNS"])
def test_nvlinks_grant_nothing_where_the_driver_refuses_traffic_over_them(machine: Machines, answer: str) -> None:
    one_way = [P2p(a=0, b=1, nvlink="OK"), P2p(a=1, b=0, nvlink=answer)]
    facts = machine(2, {(0, 1): "NV18"}, p2p=one_way)
    assert of(facts, "pair.p2p.nvlink") == answer
    assert of(facts, "pair.p2p.ok") is None
    granted_all = machine(2, {(0, 1): "NV18"}, p2p=[P2p(a=0, b=1, nvlink="OK"), P2p(a=1, b=0, nvlink="OK")])
    assert of(granted_all, "pair.p2p.ok") is True


def test_one_gpu_is_no_mesh(machine: Machines) -> None:
    facts = machine(1)
    assert of(facts, "nvlink.full_mesh") is False
    assert of(facts, "p2p.any_refused") is False


@pytest.mark.parametrize(
    ("entries", "read", "ok", "refused"),
    [
        (granted(0, 1), "OK", True, False),
        (granted(0, 1, "CNS"), "CNS", False, True),
        ([P2p(a=0, b=1, read="OK", write="OK"), P2p(a=1, b=0, read="NS", write="OK")], "NS", False, True),
        ([P2p(a=0, b=1, read="OK", write="OK"), P2p(a=1, b=0)], None, None, None),
        ([P2p(a=0, b=1, read="OK"), P2p(a=1, b=0, read="OK")], "OK", True, False),
        ([P2p(a=0, b=1, read="OK"), P2p(a=1, b=0, read="OK", write="OK")], "OK", None, None),
        ([P2p(a=0, b=1, write="OK"), P2p(a=1, b=0, write="OK")], None, None, None),
        ([P2p(a=0, b=1, read="OK", write="GNS")], None, False, True),
        ([P2p(a=0, b=1, read="OK", write="OK")], None, None, None),
        (granted(0, 1, "U"), "U", None, None),
        (None, None, None, None),
    ],
)
def test_p2p_needs_both_directions_and_both_operations(
    machine: Machines, entries: list[P2p] | None, read: str | None, ok: bool | None, refused: bool | None
) -> None:
    facts = machine(2, {(0, 1): "PIX"}, p2p=entries)
    assert of(facts, "pair.p2p.read") == read
    assert of(facts, "pair.p2p.ok") is ok
    assert of(facts, "pair.p2p.refused") is refused
    assert of(facts, "p2p.all_ok") is ok
    assert of(facts, "p2p.any_refused") is refused


def test_a_table_of_reads_alone_is_enough_and_what_follows_is_marked(machine: Machines) -> None:
    """People paste `topo -p2p r` and no table of writes; a leftover level must not be passed over for that."""
    reads = [P2p(a=0, b=1, read="OK"), P2p(a=1, b=0, read="OK")]
    write = machine(2, {(0, 1): "PHB"}, p2p=reads).subjects["pair"][0].facts["pair.p2p.write"]
    assert isinstance(write, Known)
    assert write.origin.startswith("inferred")


def test_p2p_over_the_whole_machine(machine: Machines) -> None:
    joins = {(0, 1): "PIX", (0, 2): "PIX", (1, 2): "PIX"}
    mixed = machine(3, joins, p2p=granted(0, 1) + granted(0, 2, "CNS") + granted(1, 2, "CNS"))
    assert of(mixed, "p2p.summary") == "CNS on 2, OK on 1 of 3 pairs"
    assert [of(mixed, f"p2p.{name}") for name in ("any_refused", "all_ok", "none_ok")] == [True, False, False]
    partly = machine(3, joins, p2p=granted(0, 1))
    assert [of(partly, f"p2p.{name}") for name in ("any_refused", "all_ok", "none_ok")] == [None, None, False]
    refused = machine(2, {(0, 1): "PIX"}, p2p=granted(0, 1, "NS"))
    assert of(refused, "p2p.none_ok") is True


CARDS = [Gpu(index=index, name="NVIDIA GeForce RTX 4090") for index in range(2)]


def test_a_stock_driver_refuses_p2p_between_geforce_cards_even_when_nobody_asked(machine: Machines) -> None:
    facts = machine(CARDS, {(0, 1): "PIX"}, driver=Driver(version="590.48.01"))
    read = facts.subjects["pair"][0].facts["pair.p2p.read"]
    assert isinstance(read, Known)
    assert read.origin == "inferred: stock drivers refuse P2P on this model"
    assert of(facts, "pair.p2p.refused") is True
    refused = facts.fact("p2p.any_refused")
    assert isinstance(refused, Known)
    assert refused.origin.startswith("inferred")


@pytest.mark.parametrize(
    ("driver", "gpus"),
    [
        (Driver(), CARDS),
        (Driver(version="570.1", banner="Open Kernel Module 570.1-p2p"), CARDS),
        (Driver(version="535.54.03"), CARDS),
        (Driver(version="590.48.01"), [Gpu(index=0, name="NVIDIA L40S"), Gpu(index=1, name="NVIDIA L40S")]),
    ],
    ids=["driver not known", "patched", "old driver that claims it", "another model"],
)
def test_nothing_is_inferred_about_other_drivers_and_models(machine: Machines, driver: Driver, gpus: list[Gpu]) -> None:
    assert of(machine(gpus, {(0, 1): "PIX"}, driver=driver), "pair.p2p.read") is None


def test_a_driver_that_grants_what_stock_drivers_refuse_is_patched(machine: Machines) -> None:
    facts = machine(CARDS, {(0, 1): "PIX"}, driver=Driver(version="570.1", banner="plain"), p2p=granted(0, 1))
    assert of(facts, "driver.patched_p2p") is True
    old = machine(CARDS, {(0, 1): "PIX"}, driver=Driver(version="535.1", banner="plain"), p2p=granted(0, 1))
    assert of(old, "driver.patched_p2p") is False


def test_nvlink_that_is_up_implies_p2p_when_nobody_asked(machine: Machines) -> None:
    fact = machine(2, {(0, 1): "NV12"}).subjects["pair"][0].facts["pair.p2p.ok"]
    assert fact == Known(True, "inferred: NVLinks are up between the two")


def test_what_was_read_wins_over_what_could_be_inferred(machine: Machines) -> None:
    facts = machine(2, {(0, 1): "NV12"}, p2p=granted(0, 1, "NS"))
    assert of(facts, "pair.p2p.ok") is False


BRIDGES = ("gpu:0", "pci:0000:00:01.0", "pci:0000:00:02.0", "gpu:1")


@pytest.mark.parametrize(
    ("first", "second", "guest", "redirect", "bridges"),
    [
        (True, False, "none", True, ["0000:00:01.0"]),
        (False, False, "none", False, []),
        (None, False, "none", None, None),
        (True, None, "none", True, ["0000:00:01.0"]),
        (False, False, "KVM", None, None),
    ],
)
def test_acs_on_the_path(
    machine: Machines,
    pair: Any,
    first: bool | None,
    second: bool | None,
    guest: str,
    redirect: bool | None,
    bridges: Any,
) -> None:
    devices = [
        PciDevice(address="0000:00:01.0", class_code="0x060400", acs_redirect=first),
        PciDevice(address="0000:00:02.0", class_code="0x060400", acs_redirect=second),
    ]
    path = pair("gpu:0", "gpu:1", "PHB", pcie_path=BRIDGES)
    facts = machine(2, {(0, 1): path}, pci=devices, host=Host(hypervisor=guest))
    assert of(facts, "pair.path.acs_redirect") is redirect
    assert of(facts, "pair.path.acs_bridges") == bridges
    assert of(facts, "pair.path.bridges") == ["0000:00:01.0", "0000:00:02.0"]


def test_an_upstream_port_cannot_redirect(machine: Machines, pair: Any) -> None:
    devices = [
        PciDevice(address="0000:00:01.0", class_code="0x060400", port_type="upstream"),
        PciDevice(address="0000:00:02.0", class_code="0x060400", port_type="downstream", acs_redirect=False),
    ]
    path = pair("gpu:0", "gpu:1", "PXB", pcie_path=BRIDGES)
    facts = machine(2, {(0, 1): path}, pci=devices, host=Host(hypervisor="none"))
    assert of(facts, "pair.path.acs_redirect") is False


def test_inferred_switches_have_no_addresses(machine: Machines, pair: Any) -> None:
    path = pair("gpu:0", "gpu:1", "PIX", pcie_path=("gpu:0", "switch:0", "gpu:1"), inferred=True, origin="paste")
    facts = machine(2, {(0, 1): path})
    assert isinstance(facts.subjects["pair"][0].facts["pair.path.bridges"], Unknown)
    assert facts.subjects["pair"][0].facts["pair.link_class"] == Known("PIX", "inferred: from paste")


@pytest.mark.parametrize(
    ("link_class", "crosses"), [("PIX", False), ("PXB", False), ("PHB", True), ("NODE", True), ("SYS", True)]
)
def test_crossing_the_host(machine: Machines, link_class: str, crosses: bool) -> None:
    assert of(machine(2, {(0, 1): link_class}), "pair.path.crosses_host") is crosses


NCCL = [NcclLibrary(path="libnccl.so.2", version="2.28.9")]


def host(vendor: str) -> Host:
    return Host(cpu=Cpu(vendor=vendor, architecture="x86_64"))


@pytest.mark.parametrize(
    ("vendor", "gpus", "settings", "level", "transport"),
    [
        ("AMD", 2, [], "SYS", "P2P"),
        ("Intel", 2, [], "PXB", "SHM"),
        ("AMD", 3, [], "PXB", "SHM"),
        ("Intel", 2, [("NCCL_P2P_LEVEL", "SYS")], "SYS", "P2P"),
        ("Intel", 2, [("NCCL_P2P_LEVEL", "3")], "PHB", "P2P"),
        ("Intel", 2, [("NCCL_P2P_LEVEL", "node")], "PXB", "SHM"),
        ("AMD", 2, [("NCCL_P2P_DISABLE", "1")], "LOC", "SHM"),
        ("AMD", 2, [("NCCL_P2P_DISABLE", "0x1")], "LOC", "SHM"),
        ("AMD", 2, [("NCCL_P2P_DISABLE", "yes")], "SYS", "P2P"),
        ("AMD", 2, [("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")], "LOC", "NET"),
    ],
)
def test_the_transport_that_nccl_takes(
    machine: Machines, vendor: str, gpus: int, settings: list[tuple[str, str]], level: str, transport: str
) -> None:
    facts = machine(
        gpus,
        {(0, 1): "PHB"},
        p2p=granted(0, 1),
        nccl_libraries=NCCL,
        host=host(vendor),
        settings=[Setting(name=name, value=value, origin="environment") for name, value in settings],
    )
    assert of(facts, "nccl.p2p_level") == level
    assert of(facts, "pair.nccl.transport") == transport


def test_settings_that_were_not_read_are_taken_as_unset_and_that_shows(machine: Machines) -> None:
    fields: dict[str, Any] = {"p2p": granted(0, 1), "nccl_libraries": NCCL, "host": host("Intel")}
    facts = machine(2, {(0, 1): "PHB"}, **fields)
    assert of(facts, "nccl.default_p2p_level") == "PXB"
    level = facts.fact("nccl.p2p_level")
    assert isinstance(level, Known)
    assert level.value == "PXB"
    assert level.origin == "inferred: NCCL's variables were not read and are taken as unset"


def test_pairs_beyond_the_level_are_named(machine: Machines) -> None:
    joins = {(a, b): "PHB" for a in range(4) for b in range(a + 1, 4)} | {(0, 1): "NV4"}
    fields: dict[str, Any] = {
        "p2p": [entry for a, b in joins for entry in granted(a, b)],
        "nccl_libraries": NCCL,
        "host": host("AMD"),
        "settings": [],
    }
    facts = machine(4, joins, **fields)
    assert of(facts, "gpus.beyond_level") == 5
    assert of(facts, "gpus.beyond_level_pairs") == "GPU0-GPU2, GPU0-GPU3, GPU1-GPU2, GPU1-GPU3 and 1 more"
    wide = [Assumption(fact="env.NCCL_P2P_LEVEL", value="SYS")]
    assert of(machine(4, joins, **fields, assumptions=wide), "gpus.beyond_level") == 0


def test_the_reason_of_the_default_fits_the_level(machine: Machines) -> None:
    few = machine(2, nccl_libraries=NCCL, host=host("AMD"))
    many = machine(4, nccl_libraries=NCCL, host=host("AMD"))
    assert "AMD CPU and at most two GPUs" in of(few, "nccl.default_reason")
    assert "stops at PXB" in of(many, "nccl.default_reason")
    old = machine(4, nccl_libraries=[NcclLibrary(path="x", version="2.10.3")], host=host("AMD"))
    assert "NCCL 2.10.3 stops at SYS" in of(old, "nccl.default_reason")


def test_hidden_and_visible_nvswitches(machine: Machines) -> None:
    link = NvLink(link=0, active=True, remote_type="switch", remote_hidden=True)
    facts = machine([Gpu(index=0, nvlinks=[link])], topology={"hidden_switches": 1})
    assert of(facts, "nvlink.any") is True
    assert of(facts, "nvlink.switch") is True
    assert of(facts, "nvlink.hidden_switch") is True
    assert of(machine([Gpu(index=0, nvlinks=[])]), "nvlink.hidden_switch") is False
    assert of(machine(1), "nvlink.hidden_switch") is None


def test_measurements_show_the_slower_intact_direction_and_the_worst_outcome(machine: Machines) -> None:
    runs = [
        Measurement(kind="peer-copy", subject="gpu:0>gpu:1", gbps=25.0, data_ok=True),
        Measurement(kind="peer-copy", subject="gpu:1>gpu:0", gbps=12.0, data_ok=False, outcome="wrong-data"),
        Measurement(kind="peer-copy-both", subject="gpu:0<>gpu:1", gbps=40.0, data_ok=True),
        Measurement(kind="peer-copy", subject="gpu:0>gpu:2", outcome="timeout"),
    ]
    facts = machine(3, measurements=runs)
    found = [of(facts, f"pair.measured.{name}") for name in ("uni_gbps", "bi_gbps", "outcome", "data_ok")]
    assert found == [25.0, 40.0, "wrong-data", False]
    assert of(facts, "pair.measured.outcome", 1) == "timeout"
    assert of(facts, "pair.measured.outcome", 2) is None


@pytest.mark.parametrize(
    ("nodes", "count", "same"), [((0, 0), 2, True), ((0, 1), 2, False), ((-1, 0), 2, None), ((-1, -1), 1, True)]
)
def test_same_numa(machine: Machines, nodes: tuple[int, int], count: int, same: bool | None) -> None:
    from topoadvisor.snapshot import NumaNode

    gpus = [Gpu(index=index, numa_node=node) for index, node in enumerate(nodes)]
    facts = machine(gpus, host=Host(numa_nodes=[NumaNode(id=index) for index in range(count)]))
    assert of(facts, "pair.same_numa") is same


L40S, A40 = "NVIDIA L40S", "NVIDIA A40"


@pytest.mark.parametrize(
    ("names", "joins", "refused", "odd"),
    [
        ([L40S] * 3, "PXB", [(0, 1)], ["GPU0-GPU1"]),
        ([L40S] * 3, "PXB", [(0, 1), (0, 2)], ["GPU0-GPU1", "GPU0-GPU2"]),
        ([L40S] * 3, "PXB", [(0, 1), (0, 2), (1, 2)], []),
        ([L40S] * 3, "PHB", [(0, 1)], []),
        ([L40S] * 3, "NV4", [(0, 1)], []),
        ([L40S, A40, L40S], "PIX", [(0, 1)], []),
        ([L40S, A40, L40S], "PIX", [(0, 2)], []),
    ],
)
def test_a_refused_pair_is_odd_where_an_equal_neighbour_is_granted(
    machine: Machines, names: list[str], joins: str, refused: list[tuple[int, int]], odd: list[str]
) -> None:
    keys = [(0, 1), (0, 2), (1, 2)]
    facts = machine(
        [Gpu(index=index, name=name) for index, name in enumerate(names)],
        dict.fromkeys(keys, joins),
        p2p=[entry for key in keys for entry in granted(*key, "CNS" if key in refused else "OK")],
    )
    assert of(facts, "p2p.refused_among_equals") == odd


def test_no_pair_is_odd_or_not_where_answers_are_missing(machine: Machines) -> None:
    gpus = [Gpu(index=index, name=L40S) for index in range(3)]
    keys: dict[tuple[int, int | str], Any] = {(0, 1): "PIX", (0, 2): "PIX", (1, 2): "PIX"}
    assert isinstance(machine(gpus, keys).fact("p2p.refused_among_equals"), Unknown)
    partly = machine(gpus, keys, p2p=[*granted(0, 1, "CNS"), *granted(0, 2)])
    assert of(partly, "p2p.refused_among_equals") == ["GPU0-GPU1"]
    assert isinstance(machine(3, keys).fact("p2p.refused_among_equals"), Unknown)


def test_staged_pairs_are_told_apart_by_the_numa_node(machine: Machines) -> None:
    keys = [(0, 1), (0, 2), (1, 2)]
    facts = machine(
        3,
        {(0, 1): "NODE", (0, 2): "SYS", (1, 2): "SYS"},
        p2p=[entry for key in keys for entry in granted(*key, "CNS")],
        settings=[],
    )
    assert of(facts, "p2p.staged_pairs") == 3
    assert of(facts, "p2p.staged_pairs_within_numa") == 1


def test_the_path_beside_an_nvlink_of_a_matrix_is_not_known_for_that_reason(machine: Machines) -> None:
    facts = machine(2, {(0, 1): "NV12"}).subjects["pair"][0].facts
    assert facts["pair.pcie_class"] == Unknown("NV12 joins the two, and the PCIe path beside it was not read")
    assert machine(2, {(0, 1): None}).subjects["pair"][0].facts["pair.pcie_class"] == Unknown(
        "how the two are joined could not be determined"
    )
