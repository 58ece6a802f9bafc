from __future__ import annotations

import pytest

from topoadvisor.nccl import paths, rates, system, topo_xml
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.paths import Given, Grant, Reach
from topoadvisor.nccl.system import Kind, Node

PCI = 'link_speed="16.0 GT/s PCIe" link_width="16"'
GEN3 = 'link_speed="8.0 GT/s PCIe" link_width="16"'
AMD = 'arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1"'
INTEL = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'


def gpu(index: int, inside: str = "", sm: int = 80, link: str = PCI) -> str:
    return (
        f'<pci busid="0000:0{index + 1}:00.0" class="0x030200" vendor="0x10de" {link}>'
        f'<gpu dev="{index}" sm="{sm}" rank="{index}" gdr="1">{inside}</gpu></pci>'
    )


def to(index: int, count: int = 1) -> str:
    return f'<nvlink target="0000:0{index + 1}:00.0" count="{count}" tclass="0x030200"/>'


def switch(busid: str, inside: str, ids: str = "", link: str = PCI) -> str:
    return f'<pci busid="0000:{busid}:00.0" class="0x060400" {ids} {link}>{inside}</pci>'


def cpu(numa: int, inside: str, kind: str = AMD) -> str:
    return f'<cpu numaid="{numa}" {kind}>{inside}</cpu>'


def reckon(
    *cpus: str, version: str = "2.30.7", given: Given | None = None
) -> dict[tuple[int, int], tuple[str | None, float | None]]:
    return {
        pair: (reach.kind and reach.kind.name, reach.gbps)
        for pair, reach in reach_of(*cpus, version=version, given=given).items()
    }


def reach_of(*cpus: str, version: str = "2.30.7", given: Given | None = None) -> dict[tuple[int, int], Reach]:
    root = topo_xml.parse(f'<system version="1">{"".join(cpus)}</system>', file="x")
    machine = system.build(root, rates.rules(version))
    reached = paths.between_gpus(machine, given or Given((NcclPath.PXB,)))
    return {(number(a), number(b)): reach for (a, b), reach in reached.items()}


def number(node: Node) -> int:
    return int(node.element.attributes["dev"])


VERSIONS = ["2.18.1", "2.29.7", "2.30.4", "2.30.7"]


@pytest.mark.parametrize("version", VERSIONS)
def test_pcie_types(version: str) -> None:
    two = switch("80", gpu(0) + gpu(1))
    other = switch("81", gpu(2, link='link_speed="8.0 GT/s PCIe" link_width="16"'))
    far = switch("90", switch("91", gpu(3)) + switch("92", gpu(4)))
    found = reckon(cpu(0, two + other + far), cpu(1, gpu(5)), version=version)
    assert found[0, 1] == ("PIX", 24)
    assert found[3, 4] == ("PXB", 24)
    assert found[0, 2] == found[2, 0] == ("PHB", 12)
    assert found[0, 5] == ("SYS", 24 if version == "2.18.1" else 16)


@pytest.mark.parametrize(
    ("kind", "version", "gbps"),
    [
        (INTEL, "2.30.7", 22),
        (INTEL, "2.25.1", 10),
        ('arch="arm64"', "2.30.7", 6),
        ('arch="ppc64"', "2.30.7", 24),
    ],
)
def test_the_link_between_numa_nodes(kind: str, version: str, gbps: float) -> None:
    assert reckon(cpu(0, gpu(0), kind), cpu(1, gpu(1), kind), version=version)[0, 1] == ("SYS", gbps)


@pytest.mark.parametrize("version", VERSIONS)
def test_nvlink_through_one_gpu_but_not_through_two(version: str) -> None:
    inside = [to(1, 2), to(0, 2) + to(2), to(1) + to(3, 4), to(2, 4)]
    chain = "".join(gpu(index, links, link=GEN3) for index, links in enumerate(inside))
    found = reckon(cpu(0, chain), version=version)
    assert found[0, 1] == ("NVL", 40)
    assert found[0, 2] == ("NVB", 20)
    assert found[1, 3] == ("NVB", 20)
    assert found[0, 3] == ("PHB", 12)


def test_nvb_can_be_switched_off() -> None:
    chain = gpu(0, to(1)) + gpu(1, to(0) + to(2)) + gpu(2, to(1))
    assert reckon(cpu(0, chain), given=Given((NcclPath.PXB,), nvb_disabled=True))[0, 2] == ("PHB", 24)


@pytest.mark.parametrize(
    ("version", "expected"), [("2.30.7", ("NVB", 20)), ("2.30.4", ("PIX", 48)), ("2.29.7", ("PIX", 48))]
)
def test_since_2_30_7_the_nearer_type_wins_over_the_wider_way(version: str, expected: tuple[str, float]) -> None:
    """One NVLink through a third GPU against a fast PCIe switch of no more hops."""
    wide = 'link_speed="32.0 GT/s PCIe" link_width="16"'
    inside = gpu(0, to(1), link=wide) + gpu(1, to(0) + to(2), link=wide) + gpu(2, to(1), link=wide)
    assert reckon(cpu(0, switch("80", inside)), version=version)[0, 2] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_all_nvswitches_are_one(version: str) -> None:
    links = '<nvlink target="0000:0{}:00.0" count="6" tclass="0x068000"/>'
    found = reckon(cpu(0, gpu(0, links.format(8) + links.format(9))), cpu(1, gpu(1, links.format(8))), version=version)
    assert found[0, 1] == ("NVL", 120)


def test_a_hidden_far_end_is_an_nvswitch() -> None:
    link = '<nvlink target="fffffff:ffff:ff" count="18"/>'
    assert reckon(cpu(-1, gpu(0, link, sm=90) + gpu(1, link, sm=90)))[0, 1] == ("NVL", 370.8)


def test_a_target_without_class_is_the_gpu_at_that_address() -> None:
    bare = '<nvlink target="0000:0{}:00.0" count="4"/>'
    assert reckon(cpu(0, gpu(0, bare.format(2)) + gpu(1, bare.format(1))))[0, 1] == ("NVL", 80)


@pytest.mark.parametrize("version", VERSIONS)
def test_links_to_itself_or_to_strangers_lead_nowhere(version: str) -> None:
    found = reckon(cpu(0, gpu(0, to(0, 12)) + gpu(1, to(7, 12))), version=version)
    assert found == {(0, 1): ("PHB", 24), (1, 0): ("PHB", 24)}


def test_one_direction_of_nvlink_may_be_missing() -> None:
    found = reckon(cpu(0, gpu(0, to(1, 2)) + gpu(1, to(0, 1))))
    assert (found[0, 1], found[1, 0]) == (("NVL", 20), ("NVL", 40))


def c2c(bw: int = 44712, count: int = 5) -> str:
    return f'<c2c bw="{bw}" count="{count}"/>'


def test_chip_to_chip_links() -> None:
    kind = 'arch="arm64"'
    machine = cpu(0, gpu(0, c2c()) + gpu(1, c2c()) + gpu(2), kind)
    found = reckon(machine)
    assert found[0, 1] == ("C2C", 223.56)
    assert found[0, 2] == ("P2C", 24)
    assert reckon(machine, version="2.27.3")[0, 2] == ("PHB", 24)
    assert reckon(machine, version="2.25.1")[0, 1] == ("NVL", 223.56)


GEN4 = 'vendor="0x1000" device="0xc010" subsystem_vendor="0x1000" subsystem_device="0xa096"'
GEN5 = 'vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x{}"'


@pytest.mark.parametrize(
    ("outer", "inner", "version", "kind"),
    [
        (GEN4, GEN4, "2.30.7", "PIX"),
        (GEN5.format("0001"), GEN5.format("1001"), "2.30.7", "PIX"),
        (GEN5.format("0001"), GEN5.format("0001"), "2.30.7", "PXB"),
        (GEN5.format("0001"), GEN5.format("1001"), "2.19.4", "PXB"),
        (GEN4, GEN5.format("1001"), "2.30.7", "PXB"),
        ("", "", "2.30.7", "PXB"),
    ],
)
def test_two_levels_of_one_broadcom_switch_are_one(outer: str, inner: str, version: str, kind: str) -> None:
    inside = switch("81", gpu(0), inner) + switch("82", gpu(1), inner)
    assert reckon(cpu(0, switch("80", inside, outer)), version=version)[0, 1] == (kind, 24)


def test_switches_that_are_linked_are_near() -> None:
    first = switch("80", gpu(0) + '<pcilink target="0000:81:00.0"/>')
    second = switch("81", gpu(1) + '<pcilink target="0000:80:00.0"/>')
    assert reckon(cpu(0, first + second))[0, 1] == ("PXB", 24)


def test_gpus_without_a_rank_take_no_part() -> None:
    third = gpu(1, to(0) + to(2)).replace('rank="1"', "")
    found = reckon(cpu(0, gpu(0, to(1)) + third + gpu(2, to(1))))
    assert found == {(0, 2): ("PHB", 24), (2, 0): ("PHB", 24)}


def test_without_peer_access_the_way_is_through_the_cpu() -> None:
    inside = switch(
        "80", gpu(0) + gpu(1) + gpu(2, to(3)) + gpu(3, to(2)), link='link_speed="8.0 GT/s PCIe" link_width="8"'
    )
    given = Given((NcclPath.PXB,), grant=lambda a, b: Grant(given=False))
    found = reckon(cpu(0, inside), given=given)
    assert found[0, 1] == ("PHB", 6)
    assert found[2, 3] == ("NVL", 20), "NCCL stops when NVLink is refused, it makes no detour"


@pytest.mark.parametrize(
    ("level", "expected"),
    [(NcclPath.LOC, ("PHB", 24)), (NcclPath.NVL, ("PHB", 24)), (NcclPath.PIX, ("PIX", 24))],
)
def test_beyond_the_level_the_way_is_through_the_cpu(level: NcclPath, expected: tuple[str, float]) -> None:
    assert reckon(cpu(0, switch("80", gpu(0) + gpu(1))), given=Given((level,)))[0, 1] == expected


def test_a_level_that_is_not_known_matters_only_where_it_changes_something() -> None:
    given = Given((NcclPath.NVL, NcclPath.PXB), why_levels="the level is not known")
    found = reach_of(cpu(0, switch("80", gpu(0) + gpu(1)) + gpu(2)), given=given)
    assert found[0, 1] == Reach(None, None, unknown="the level is not known")
    assert found[0, 2] == Reach(NcclPath.PHB, 24)


def test_taken_for_granted_is_marked_only_where_it_matters() -> None:
    given = Given((NcclPath.PXB,), grant=lambda a, b: Grant(given=True, reason="nobody asked"))
    found = reach_of(cpu(0, switch("80", gpu(0) + gpu(1)) + gpu(2)), given=given)
    assert found[0, 1] == Reach(NcclPath.PIX, 24, inferred=("nobody asked",))
    assert found[0, 2] == Reach(NcclPath.PHB, 24)


def test_what_is_missing_makes_a_value_unknown_and_only_that() -> None:
    root = topo_xml.parse(f'<system version="1">{cpu(0, gpu(0) + gpu(1), "")}{cpu(1, gpu(2), "")}</system>', file="x")
    for element in root.walk():
        if element.attributes.get("busid") == "0000:02:00.0":
            del element.attributes["link_speed"]
            element.missing["link_speed"] = "nobody read it"
    machine = system.build(root, rates.rules(None))
    found = {
        (number(a), number(b)): reach for (a, b), reach in paths.between_gpus(machine, Given((NcclPath.PXB,))).items()
    }
    assert found[0, 1] == Reach(NcclPath.PHB, None, unknown="nobody read it")
    assert found[0, 2] == Reach(NcclPath.SYS, None, unknown="the CPU is not known")


def test_nvlinks_that_were_not_read_make_the_type_unknown_unless_the_other_end_has_none() -> None:
    root = topo_xml.parse(f'<system version="1">{cpu(0, gpu(0, to(2)) + gpu(1) + gpu(2, to(0)))}</system>', file="x")
    for element in root.walk():
        if element.attributes.get("dev") == "0":
            element.missing["nvlink"] = "nobody read them"
    machine = system.build(root, rates.rules(None))
    found = {
        (number(a), number(b)): reach for (a, b), reach in paths.between_gpus(machine, Given((NcclPath.PXB,))).items()
    }
    assert found[0, 2] == Reach(None, None, unknown="nobody read them")
    assert found[0, 1] == Reach(NcclPath.PHB, 24)


def test_more_nodes_than_nccl_takes_are_refused() -> None:
    bridges = "".join(switch(f"{number:02x}", "") for number in range(system.MOST_NODES + 1))
    root = topo_xml.parse(f'<system version="1">{cpu(0, bridges)}</system>', file="x")
    with pytest.raises(system.TooLarge, match="640 PCI"):
        system.build(root, rates.rules(None))


def test_what_would_take_too_long_is_refused() -> None:
    cpus = "".join(cpu(number, "") for number in range(200))
    root = topo_xml.parse(f'<system version="1">{cpus}{cpu(999, gpu(0) + gpu(1))}</system>', file="x")
    with pytest.raises(system.TooLarge, match="too long"):
        paths.between_gpus(system.build(root, rates.rules(None)), Given((NcclPath.PXB,)))


@pytest.mark.parametrize(
    ("text", "value"),
    [("0x1F", 31), ("7", 7), ("-1", -1), ("  9 x", 9), ("", 0), ("x", 0), ("٣", 0), ("010", 8), ("9" * 5000, 0)],
)
def test_numbers_as_strtol_reads_them(text: str, value: int) -> None:
    assert system.integer(topo_xml.Element("gpu", {"dev": text}), "dev") == value


def test_addresses_are_compared_by_their_digits() -> None:
    assert system.bus_number("0000:1b:00.0") == system.bus_number("00000000:1B:00.0") == 0x1B000
    assert system.bus_number("fffffff:ffff:ff") == 0xFFFFFFFFFFFFF
    assert system.bus_number("") == system.bus_number("bus") - 0xB == 0


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_its_list(kind: Kind) -> None:
    assert system.System(rates.rules(None)).nodes[kind] == []
