from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from topoadvisor.hardware import catalogue

TABLES = Path(catalogue.__file__).parent


@pytest.mark.parametrize(
    ("name", "family", "form", "links"),
    [
        ("NVIDIA H200", "H200", "sxm", 18),
        ("NVIDIA H200 NVL", "H200 NVL", "pcie", 18),
        ("NVIDIA GH200 480GB", "GH200", "soc", 18),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", "sxm", 18),
        ("NVIDIA H100 PCIe", "H100 PCIe", "pcie", 12),
        ("NVIDIA H100 NVL", "H100 NVL", "pcie", 12),
        ("NVIDIA H800", "H800", "sxm", 8),
        ("NVIDIA H20", "H20", "sxm", 18),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe", "pcie", 12),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe", "pcie", 12),
        ("NVIDIA A100X", "A100X", "pcie", None),
        ("A100-SXM4-40GB", "A100 SXM4", "sxm", 12),
        ("NVIDIA A100-SXM-64GB", "A100 SXM4", "sxm", 12),
        ("NVIDIA A800-SXM4-80GB", "A800 SXM4", "sxm", 8),
        ("NVIDIA A800 40GB Active", "A800 PCIe", "pcie", 8),
        ("NVIDIA GB200", "GB200", "soc", 18),
        ("NVIDIA GB10", "GB10", "soc", 0),
        ("NVIDIA B300 SXM6 AC", "B300", "sxm", 18),
        ("NVIDIA L40S", "L40S", "pcie", 0),
        ("NVIDIA L40", "L40", "pcie", 0),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell", "pcie", 0),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", "pcie", 0),
        ("NVIDIA RTX A6000", "RTX A6000", "pcie", 4),
        ("Quadro RTX 8000", "Quadro RTX 6000 or 8000", "pcie", 2),
        ("Tesla V100-SXM2-32GB", "V100 SXM2", "sxm", 6),
        ("Tesla T4", "T4", "pcie", 0),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090", "pcie", 0),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 40 laptop", "mobile", 0),
        ("NVIDIA GeForce RTX 5060 Ti", "GeForce RTX 5050 or 5060", "pcie", 0),
        ("NVIDIA GeForce RTX 5080", "GeForce RTX 5070 or 5080", "pcie", 0),
        ("NVIDIA GeForce RTX 5080 Laptop GPU", "GeForce RTX 50 laptop", "mobile", 0),
        ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 Ada or 5000 Ada", "pcie", 0),
        ("NVIDIA RTX 2000 Ada Generation", "RTX 2000 Ada", "pcie", 0),
        ("Quadro RTX 5000", "Quadro RTX 5000", "pcie", 1),
        ("NVIDIA TITAN Xp", "TITAN X or Xp", "pcie", 0),
        ("NVIDIA TITAN X (Pascal)", "TITAN X or Xp", "pcie", 0),
        ("Tesla P4", "P4", "pcie", 0),
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090", "pcie", 4),
        ("GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti", "pcie", 2),
        ("NVIDIA RTX 5000 Ada Generation Laptop GPU", "RTX Ada laptop", "mobile", 0),
    ],
)
def test_names(name: str, family: str, form: str, links: int | None) -> None:
    model = catalogue.gpu_model(name)
    assert model is not None
    assert (model.family, model.form, model.max_nvlinks) == (family, form, links)


@pytest.mark.parametrize("name", ["AMD Instinct MI300X", "Quadro RTX 3000 with Max-Q Design", "", None, "NVIDIA"])
def test_unknown_names_stay_unknown(name: str | None) -> None:
    assert catalogue.gpu_model(name) is None


def test_a_device_id_stands_in_for_a_name() -> None:
    assert catalogue.gpu_model(None, "0x2335") == catalogue.gpu_model("NVIDIA H200")
    assert catalogue.gpu_model("Graphics Device", "0x2684") == catalogue.gpu_model("NVIDIA GeForce RTX 4090")
    assert catalogue.gpu_model("NVIDIA H200 NVL", "0x2335") == catalogue.gpu_model("NVIDIA H200 NVL")
    assert catalogue.gpu_model(None, "0x0000") is None


@pytest.mark.parametrize(
    ("name", "granted"),
    [
        ("NVIDIA A100-PCIE-40GB", True),
        ("NVIDIA RTX A6000", True),
        ("NVIDIA GeForce RTX 4090", False),
        ("NVIDIA GeForce RTX 5090", False),
        ("GeForce RTX 2080 Ti", False),
        ("NVIDIA GeForce RTX 3090", None),
        ("TITAN RTX", False),
        ("NVIDIA L40S", None),
    ],
)
def test_peer_to_peer_over_pcie(name: str, granted: bool | None) -> None:
    model = catalogue.gpu_model(name)
    assert model is not None
    assert model.p2p_over_pcie is granted


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("NVIDIA GeForce RTX 5070 Ti", 16),
        ("NVIDIA GeForce RTX 5060", 8),
        ("NVIDIA GeForce RTX 4080 SUPER", 16),
        ("NVIDIA GeForce RTX 4060 Ti", 8),
        ("NVIDIA RTX 4000 SFF Ada Generation", 16),
        ("NVIDIA A16", 8),
        ("NVIDIA A10G", 16),
        ("NVIDIA H20", None),
    ],
)
def test_pcie_width(name: str, width: int | None) -> None:
    model = catalogue.gpu_model(name)
    assert model is not None
    assert model.pcie_width == width


def test_every_name_of_every_family_leads_to_it() -> None:
    for family in yaml.safe_load((TABLES / "gpus.yaml").read_text())["families"]:
        for name in family["names"]:
            model = catalogue.gpu_model(name.replace("#", "0"))
            assert model is not None
            assert model.family == family["family"], name


def test_device_ids_are_not_shared() -> None:
    families = yaml.safe_load((TABLES / "gpus.yaml").read_text())["families"]
    ids = [id for family in families for id in family.get("ids", ())]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("file", ["gpus.yaml", "links.yaml", "cpus.yaml", "systems.yaml"])
def test_every_row_names_sources_that_exist(file: str) -> None:
    table = yaml.safe_load((TABLES / file).read_text())
    legend = table.pop("sources")
    used: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            used.update(value.get("sources", ()), value.get("measured", ()))
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(table)
    assert used <= legend.keys()
    for row in (
        *table.get("families", ()),
        *table.get("nvlink", ()),
        *table.get("cpus", ()),
        *table.get("systems", ()),
    ):
        assert row["sources"], row
    if file != "cpus.yaml":
        assert used == legend.keys()


@pytest.mark.parametrize(
    ("generation", "model", "gbps"),
    [
        ("4.0", None, 25.0),
        ("5.0", None, 50.0),
        ("1.0", None, 20.0),
        ("3.0", "NVIDIA GeForce RTX 3090", 14.0625),
        (None, "NVIDIA H200", 25.0),
        ("9.9", None, None),
        (None, None, None),
    ],
)
def test_nvlink_payload(generation: str | None, model: str | None, gbps: float | None) -> None:
    assert catalogue.nvlink_payload_gbps(generation, catalogue.gpu_model(model)) == gbps


def test_line_rates_that_the_driver_reports() -> None:
    rates = {26562: "NVLink 4", 53125: "NVLink 5", 25781: "NVLink 2", 14062: "NVLink 3 (GA10x)", 25000: "NVLink 3"}
    for raw, kind in rates.items():
        found = catalogue.nvlink_kind(raw_mbps=raw)
        assert found is not None
        assert found.kind == kind
    assert catalogue.nvlink_kind(raw_mbps=1234) is None


def test_pcie() -> None:
    assert catalogue.pcie_gbps(4, 16) == pytest.approx(28.8, abs=0.02)
    assert catalogue.pcie_raw_gbps(4, 16) == pytest.approx(31.51, abs=0.01)
    assert catalogue.pcie_gbps(5, 8) == catalogue.pcie_gbps(4, 16)
    assert catalogue.pcie_gbps(None, 16) is None
    assert catalogue.pcie_gbps(4, 0) is None
    assert [catalogue.pcie_gen(gts) for gts in (2.5, 8.0, 32.0, 3.3, None)] == [1, 3, 5, None, None]


@pytest.mark.parametrize(
    ("cpu", "name", "nccl"),
    [
        (("Intel", 6, 79), "Broadwell", 6.0),
        (("Intel", 6, 85), "Skylake or Cascade Lake", 10.0),
        (("Intel", 6, 106), "Ice Lake", 10.0),
        (("GenuineIntel", 6, 143), "Sapphire Rapids", 22.0),
        (("Intel", 6, 207), "Emerald Rapids", 40.0),
        (("AMD", 23, 49), "Rome", 16.0),
        (("AuthenticAMD", 143, 49), "Rome", 16.0),
        (("AuthenticAMD", 175, 17), "Genoa", 16.0),
        (("AMD", 26, 2), "Turin", 16.0),
        (("AMD", None, None), None, 16.0),
        (("Zhaoxin", 7, 91), None, 9.0),
        (("CentaurHauls", 7, 59), None, 6.0),
        (("IBM", None, None), "POWER9", 32.0),
    ],
)
def test_cpus(cpu: tuple[str, int | None, int | None], name: str | None, nccl: float) -> None:
    found = catalogue.cpu_model(*cpu)
    assert found is not None
    assert (found.name, found.nccl_gbps) == (name, nccl)


def test_cpus_by_architecture_alone() -> None:
    arm = catalogue.cpu_model(None, architecture="aarch64")
    assert arm is not None
    assert arm.nccl_gbps == 6.0
    assert catalogue.cpu_model(None, architecture="x86_64") is None
    assert catalogue.cpu_model("Nobody") is None


def band(link_class: str, model: str | None = None, **facts: object) -> catalogue.Band:
    found = catalogue.peer_copy_band(link_class, model=catalogue.gpu_model(model), **facts)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("link_class", "model", "measured_uni", "measured_bi"),
    [
        ("NV18", "NVIDIA H200", 396.4, 783.7),
        ("NV18", "NVIDIA B200", 765.0, 1520.0),
        ("NV12", "NVIDIA A100-SXM4-80GB", 276.0, 518.0),
        ("NV4", "NVIDIA GeForce RTX 3090", 52.7, 101.2),
        ("NV2", "Tesla V100-SXM2-32GB", 47.9, 96.9),
        ("NV6", "Tesla V100-SXM3-32GB", 145.5, 270.0),
        ("NV6", "NVIDIA H100 80GB HBM3", 130.4, 260.9),
        ("NV8", "NVIDIA H800", 174.0, None),
    ],
)
def test_nvlink_bands_hold_what_was_measured(
    link_class: str, model: str, measured_uni: float, measured_bi: float | None
) -> None:
    expected = band(link_class, model)
    assert measured_uni == pytest.approx(expected.expected_uni, rel=0.02)
    if measured_bi is not None:
        assert measured_bi == pytest.approx(expected.expected_bi, rel=0.04)
    assert expected.fail_below < expected.warn_below < expected.expected_uni < expected.theoretical_uni
    assert expected.origin


def test_pcie_bands_hold_what_was_measured() -> None:
    assert 52.7 < band("NODE", pcie_gen=5, pcie_width=16).expected_uni < 56.6
    assert band("PIX", pcie_gen=4, pcie_width=16).expected_uni == pytest.approx(25.9, abs=0.2)
    assert band("SYS", pcie_gen=4, pcie_width=16).expected_uni == pytest.approx(22.1, abs=0.2)
    assert band("PHB", pcie_gen=5, pcie_width=8).expected_uni == pytest.approx(27.7, abs=0.2)
    turin = catalogue.cpu_model("AMD", 26, 2)
    assert band("SYS", pcie_gen=5, pcie_width=16, cpu=turin).expected_uni == pytest.approx(50.5, abs=0.5)
    assert band("SYS", pcie_gen=5, pcie_width=16).expected_uni == pytest.approx(39.0, abs=0.5)


def test_no_band_where_nobody_measured() -> None:
    assert catalogue.peer_copy_band("SYS", pcie_gen=3, pcie_width=16) is None
    assert catalogue.peer_copy_band("PIX", pcie_gen=6, pcie_width=16) is None
    assert catalogue.peer_copy_band("PIX") is None
    assert catalogue.peer_copy_band("NV4") is None
    assert catalogue.peer_copy_band("X", pcie_gen=4, pcie_width=16) is None
    assert catalogue.peer_copy_band("NV4", nvlink_generation="6.0") is None


def test_copies_through_the_host() -> None:
    assert catalogue.staged_copy_range(5, 16) == (36.0, 39.0)
    assert catalogue.staged_copy_range(3, 16) == (8.5, 11.5)
    assert catalogue.staged_copy_range(4, 8) == (5.5, 11.25)
    assert catalogue.staged_copy_range(6, 16) is None
    assert catalogue.staged_copy_range(None, 16) is None


@pytest.mark.parametrize(
    ("name", "maker", "generation"),
    [
        ("AMD EPYC 7742 64-Core Processor", "AMD", "Rome"),
        ("AMD EPYC 7K62 48-Core Processor", "AMD", "Rome"),
        ("EPYC 9354P", "AMD", "Genoa"),
        ("AMD Ryzen Threadripper PRO 5975WX 32-Cores", "AMD", None),
        ("Intel(R) Xeon(R) Platinum 8480C", "Intel", "Sapphire Rapids"),
        ("Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", "Intel", "Broadwell"),
        ("POWER9", "IBM", "POWER9"),
        ("Virtual CPU", None, None),
    ],
)
def test_a_cpu_by_its_model_name(name: str, maker: str | None, generation: str | None) -> None:
    assert (catalogue.cpu_maker(name), catalogue.cpu_generation(name)) == (maker, generation)
