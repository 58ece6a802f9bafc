from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topoadvisor.rules.facts import FactBase, Known, Unknown
from topoadvisor.snapshot import (
    Assumption,
    CallError,
    Cpu,
    Driver,
    Fabric,
    Gpu,
    Host,
    IommuGroup,
    NcclLibrary,
    PciDevice,
    Snapshot,
    Source,
)

Machines = Callable[..., FactBase]


def value(facts: FactBase, name: str) -> Any:
    fact = facts.fact(name)
    return fact.value if isinstance(fact, Known) else None


def reason(facts: FactBase, name: str) -> str:
    fact = facts.fact(name)
    assert isinstance(fact, Unknown), fact
    return fact.reason


def test_two_gpus_and_nothing_else_tell_only_their_number(machine: Machines) -> None:
    facts = machine(2, sources=[])
    told = {name for name, fact in facts.node.items() if isinstance(fact, Known)}
    reported = {name for name in told if name.startswith("job.")}
    assert all(facts.node[name].value in ("", 0, 0.0, -1, []) for name in reported)
    assert told - reported == {
        "gpus.count",
        "topology.disagreements",
        "measured.any",
        "measured.failed_pairs",
        "measured.failed_staged_pairs",
        "measured.failed_collectives",
        "measured.failed_patterns",
        "p2p.redirected_pairs",
        "measured.contention",
    }
    told = {name for name, fact in facts.subjects["pair"][0].facts.items() if isinstance(fact, Known)}
    assert told == {
        "pair.a",
        "pair.b",
        "pair.path.acs_known",
        "pair.measured.any",
        "pair.measured.both_ways",
        "pair.measured.failed",
        "pair.measured.failed_copies",
        "pair.measured.peer_denied",
        "pair.measured.slow_way",
    }


@pytest.mark.parametrize(
    ("origin", "sources", "words"),
    [
        ("live", [Source(name="nvml", status="absent", reason="no driver loaded")], "NVML: no driver loaded"),
        ("live", [Source(name="nvml", status="ok")], "NVML does not say"),
        ("live", [], "NVML was not asked"),
        ("matrix", [Source(name="paste", status="ok")], "a pasted matrix does not hold it"),
        ("nccl-topology-xml", [], "an NCCL topology XML does not hold it"),
        (
            "live",
            [
                Source(
                    name="nvml",
                    status="partial",
                    reason="one call failed",
                    errors=[
                        CallError(call="nvmlDeviceGetName", error="Timeout", subject="gpu:1"),
                        CallError(call="nvmlDeviceGetName", error="GpuIsLost", subject="gpu:0"),
                    ],
                )
            ],
            "NVML: nvmlDeviceGetName: GpuIsLost",
        ),
    ],
)
def test_an_unknown_fact_says_why_in_the_words_of_its_source(
    machine: Machines, origin: str, sources: list[Source], words: str
) -> None:
    facts = machine(1, origin=origin, sources=sources)
    name = facts.subjects["gpu"][0].facts["gpu.name"]
    assert name == Unknown(words)


def test_a_read_fact_names_its_source(machine: Machines) -> None:
    facts = machine(driver=Driver(version="580.1"), host=Host(kernel="6.8.0"))
    assert facts.fact("driver.version") == Known("580.1", "nvml")
    assert facts.fact("kernel.version") == Known("6.8.0", "procfs")


@pytest.mark.parametrize(
    ("banner", "version", "patched"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module 570.1-p2p", "570.1", True),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module 570.1", "570.1", False),
        (None, "570.1", False),
        (None, None, None),
    ],
)
def test_patched_driver(machine: Machines, banner: str | None, version: str | None, patched: bool | None) -> None:
    assert value(machine(driver=Driver(banner=banner, version=version)), "driver.patched_p2p") is patched


def test_the_first_library_with_a_version_counts(machine: Machines) -> None:
    libraries = [
        NcclLibrary(path="/a"),
        NcclLibrary(path="/b", version="2.28.9"),
        NcclLibrary(path="/c", version="2.3"),
    ]
    facts = machine(nccl_libraries=libraries)
    assert value(facts, "nccl.version") == "2.28.9"
    assert value(facts, "nccl.libraries") == 3
    assert reason(machine(nccl_libraries=[]), "nccl.version") == "no NCCL library was found"


@pytest.mark.parametrize(
    ("hypervisor", "virtualization", "guest"),
    [("KVM", None, True), ("none", None, False), (None, "passthrough", True), (None, "none", None), (None, None, None)],
)
def test_guest(machine: Machines, hypervisor: str | None, virtualization: Any, guest: bool | None) -> None:
    facts = machine([Gpu(index=0, virtualization=virtualization)], host=Host(hypervisor=hypervisor))
    assert value(facts, "vm.guest") is guest


def test_a_gpu_given_to_a_guest_of_this_host(machine: Machines) -> None:
    gpu = {"address": "0000:01:00.0", "vendor": "0x10de", "class_code": "0x030200"}
    nic = {"address": "0000:02:00.0", "vendor": "0x15b3", "class_code": "0x020000", "driver": "vfio-pci"}
    assert value(machine(pci=[PciDevice(**gpu, driver="vfio-pci")]), "vm.host_with_passthrough") is True
    assert (
        value(machine(pci=[PciDevice(**gpu, driver="nvidia"), PciDevice(**nic)]), "vm.host_with_passthrough") is False
    )
    assert value(machine(pci=None), "vm.host_with_passthrough") is None


@pytest.mark.parametrize(
    ("groups", "mode", "translated"),
    [
        ([], "off", False),
        ([IommuGroup(id="1", type="DMA-FQ", devices=["0000:01:00.0"])], "DMA-FQ", True),
        ([IommuGroup(id="1", type="identity", devices=["0000:01:00.0"])], "identity", False),
        ([IommuGroup(id="1", devices=["0000:01:00.0"])], None, None),
        ([IommuGroup(id="1", type="DMA", devices=["0000:09:00.0"])], "off", False),
        (None, None, None),
    ],
)
def test_iommu(machine: Machines, groups: Any, mode: str | None, translated: bool | None) -> None:
    facts = machine([Gpu(index=0, address="0000:01:00.0")], host=Host(iommu_groups=groups))
    assert value(facts, "iommu.mode") == mode
    assert value(facts, "iommu.translated") is translated


@pytest.mark.parametrize(
    ("dmi", "cloud", "system"),
    [
        ({"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge"}, "aws", "none"),
        (
            {"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"},
            "azure",
            None,
        ),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, "none", "none"),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "gcp", "none"),
        ({"chassis_asset_tag": "OracleCloud.com", "product_name": "ORACLE SERVER E5"}, "oci", "none"),
        ({"sys_vendor": "NVIDIA", "product_name": "NVIDIA DGX A100 920-23687"}, "none", "dgx-a100"),
        ({"product_name": "DGXH100"}, "none", "dgx-h100"),
        ({"product_name": "DGX-1 with V100-32"}, "none", "dgx-1"),
        (None, None, None),
    ],
)
def test_platform(machine: Machines, dmi: dict[str, str] | None, cloud: str | None, system: str | None) -> None:
    facts = machine(host=Host(dmi=dmi))
    assert value(facts, "platform.cloud") == cloud
    assert value(facts, "platform.system") == system


@pytest.mark.parametrize(
    ("modules", "flavour", "kernel", "any_path"),
    [
        (["nvidia_peermem"], None, None, True),
        ([], "open", "5.15.0-91-generic", True),
        ([], "open", "5.4.0", False),
        ([], "proprietary", None, False),
        ([], None, "5.15.0", None),
        ([], None, "5.4.0", False),
        (None, "proprietary", "6.8", None),
    ],
)
def test_gpudirect_paths(
    machine: Machines, modules: list[str] | None, flavour: Any, kernel: str | None, any_path: bool | None
) -> None:
    facts = machine(host=Host(modules=modules, kernel=kernel), driver=Driver(flavour=flavour))
    assert value(facts, "gdr.any_path") is any_path


def test_fabric_registration_is_complete_when_every_gpu_says_so(machine: Machines) -> None:
    def registered(*states: Any) -> object:
        gpus = [Gpu(index=index, fabric=Fabric(state=state) if state else None) for index, state in enumerate(states)]
        return value(machine(gpus), "fabric.completed")

    assert registered("completed", "completed") is True
    assert registered("completed", "in-progress") is False
    assert registered("completed", "not-supported") is False
    assert registered("completed", None) is None


def test_a_guest_with_many_gpus_on_a_flat_bus_hides_switches(machine: Machines) -> None:
    def guest(count: int, name: str, depth: int, hypervisor: str = "KVM") -> FactBase:
        devices = [PciDevice(address="0000:00:01.0"), PciDevice(address="0000:00:02.0", parent="0000:00:01.0")]
        parent = [None, "0000:00:01.0", "0000:00:02.0"][depth]
        devices += [PciDevice(address=f"0000:01:0{index}.0", parent=parent) for index in range(count)]
        gpus = [Gpu(index=index, name=name, address=f"0000:01:0{index}.0") for index in range(count)]
        return machine(gpus, pci=devices, host=Host(hypervisor=hypervisor))

    assert value(guest(2, "NVIDIA H200", 0), "pcie.hidden_switches") is True
    assert value(guest(2, "NVIDIA H200", 1), "pcie.hidden_switches") is True
    assert value(guest(2, "NVIDIA H200", 2), "pcie.hidden_switches") is False
    assert value(guest(2, "NVIDIA L40S", 0), "pcie.hidden_switches") is False
    assert value(guest(8, "NVIDIA L40S", 0), "pcie.hidden_switches") is True
    assert value(guest(8, "NVIDIA H200", 0, hypervisor="none"), "pcie.hidden_switches") is False


def test_every_fact_is_in_the_vocabulary_with_its_type(machine: Machines) -> None:
    from topoadvisor.vocabulary import spec

    types = {"bool": bool, "int": int, "number": float | int, "text": str, "texts": list}
    facts = machine([Gpu(index=0, name="NVIDIA H200", compute_capability="9.0")], host=Host(cpu=Cpu(family=6)))
    for _, name, fact in facts.walk():
        found = spec(name)
        assert found is not None, name
        if isinstance(fact, Known):
            assert isinstance(fact.value, types[found.type]), name  # type: ignore[arg-type]


def test_snapshots_compare_equal_after_gathering() -> None:
    """Gathering reads a snapshot and changes nothing in it."""
    from topoadvisor.rules.facts import gather
    from topoadvisor.topology import graph

    snapshot = Snapshot(gpus=[Gpu(index=0), Gpu(index=1)])
    gather(snapshot, graph.build(snapshot))
    assert snapshot == Snapshot(gpus=[Gpu(index=0), Gpu(index=1)])


@pytest.mark.parametrize(
    ("product", "cloud", "machine_type"),
    [
        ("p5.48xlarge", "aws", "p5.48xlarge"),
        ("Standard_ND96isr_H100_v5", "azure", "NDv5"),
        ("Standard_ND96amsr_A100_v4", "azure", "NDv4"),
        ("Standard_NC40ads_H100_v5", "azure", "NCv5"),
        ("Standard_NC96ads_A100_v4", "azure", "NCv4"),
        ("Standard_NC24ads_A100_v4", "azure", "NC24ads_A100_v4"),
        ("a3-megagpu-8g", "gcp", "a3-megagpu-8g"),
        ("a4x-highgpu-4g", "gcp", "a4x"),
        ("BM.GPU.H100.8", "oci", "BM.GPU.H100.8"),
        ("AS -5126GS-TNRT", "none", "none"),
    ],
)
def test_an_instance_type_names_its_cloud(machine: Machines, product: str, cloud: str, machine_type: str) -> None:
    facts = machine(8, assumptions=[Assumption(fact="instance", value=product)])
    assert value(facts, "platform.cloud") == cloud
    assert value(facts, "platform.machine") == machine_type
