from __future__ import annotations

from typing import Any

import pytest

from topoadvisor.errors import InputError
from topoadvisor.ingest import told, told_values
from topoadvisor.nccl import settings
from topoadvisor.snapshot import Assumption
from topoadvisor.vocabulary import FORMS, VOCABULARY, bounds, spec


def understood(name: str, value: Any) -> tuple[str, Any]:
    (found,) = told.understood([Assumption(fact=name, value=value)])
    return found.fact, found.value


@pytest.mark.parametrize(
    ("written", "fact"),
    [
        ("gpu.count", "gpus.count"),
        ("symptom", "job.symptom"),
        ("busbw", "job.busbw_gbps"),
        ("memlock", "limits.memlock_bytes"),
        ("gpu.pcie.width", "gpu.pcie.current_width"),
        ("gpu[1].pcie.width", "gpu[1].pcie.current_width"),
        ("pair[0,1].p2p", "pair[0,1].p2p.ok"),
        ("gpu[0].fabric", "gpu[0].fabric.state"),
        ("bar1", "gpu.bar1_bytes"),
        ("mtu", "nic.mtu"),
        ("governor", "cpu.governor"),
        ("fabric-manager", "fabricmanager.state"),
        ("FabricManager", "fabricmanager.state"),
        ("instance", "platform.product"),
        ("shm", "shm.total_bytes"),
        ("shm.total", "shm.total_bytes"),
        ("vm", "vm.guest"),
        ("acs", "pair.path.acs_redirect"),
        ("iommu", "iommu.mode"),
        ("driver", "driver.version"),
        ("nccl", "nccl.version"),
        ("cpu", "cpu.model_name"),
        ("gpu", "gpu.name"),
        ("p2p", "pair.p2p.ok"),
        ("p2p.read", "pair.p2p.read"),
        ("gpu[0].model", "gpu[0].name"),
        ("pair[0,1].p2p.read", "pair[0,1].p2p.read"),
        ("NCCL_P2P_LEVEL", "env.NCCL_P2P_LEVEL"),
        ("nccl_p2p_level", "env.NCCL_P2P_LEVEL"),
        ("MASTER_ADDR", "env.MASTER_ADDR"),
        ("driver_version", "driver.version"),
        ("gpu_count", "gpus.count"),
        ("pcie_width", "gpu.pcie.current_width"),
        ("shm_size", "shm.total_bytes"),
        ("num_nodes", "job.nodes"),
        ("error_message", "job.message"),
        ("peer_access", "pair.p2p.ok"),
        ("version", None),
        ("gpu[0].bar1.size", "gpu[0].bar1_bytes"),
        ("gpu[0].pcie.width", "gpu[0].pcie.current_width"),
        ("gpu[0].nccl", None),
        ("gpu[0].version", None),
        ("count", None),
        ("hang", None),
    ],
)
def test_names(written: str, fact: str | None) -> None:
    assert told.canonical(written) == fact


@pytest.mark.parametrize(
    ("written", "value", "fact", "meant"),
    [
        ("iommu", "on", "iommu.enabled", True),
        ("iommu", "pt", "iommu.mode", "identity"),
        ("iommu", "off", "iommu.mode", "off"),
        ("vm", "KVM", "vm.hypervisor", "KVM"),
        ("vm", "bare metal", "vm.hypervisor", "none"),
        ("vm", "no", "vm.guest", False),
        ("container", "yes", "container.any", True),
        ("container", "docker", "container.kind", "docker"),
        ("cpu.model", "AMD EPYC 7742 64-Core Processor", "cpu.model_name", "AMD EPYC 7742 64-Core Processor"),
        ("cpu.model", "106", "cpu.model", 106),
        ("fabricmanager.running", "no", "fabricmanager.state", "inactive"),
    ],
)
def test_the_value_tells_which_of_two_facts_is_meant(written: str, value: str, fact: str, meant: object) -> None:
    assert understood(written, value) == (fact, meant)


def test_every_fact_keeps_its_name() -> None:
    assert all(told.canonical(name) == name for name in VOCABULARY)


def test_every_other_name_leads_to_a_fact_and_is_none() -> None:
    assert set(told.ALSO_CALLED.values()) <= set(VOCABULARY)
    assert not set(told.ALSO_CALLED) & set(VOCABULARY)


def test_every_spelling_is_a_word_of_its_fact() -> None:
    for name, words in told_values.SPELLINGS.items():
        for written, word in words.items():
            assert written == written.lower()
            meant = {"texts": [word], "bool": word == "true"}.get(VOCABULARY[name].type, word)
            assert understood(name, word)[1] == understood(name, written)[1] == meant, name


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("symptom", "Hang", "hang"),
        ("symptom", "timeout", "hang"),
        ("symptom", "Timed out", "hang"),
        ("symptom", "OOM", "out-of-memory"),
        ("symptom", "wrong data", "wrong-data"),
        ("symptom", "silent data corruption", "wrong-data"),
        ("symptom", "garbage output", "wrong-data"),
        ("symptom", "very slow training", "slow"),
        ("framework", "TRT-LLM", "TensorRT-LLM"),
        ("framework", "llama-cpp", "llama.cpp"),
        ("transport", "NET/Socket/0", "NET/Socket"),
        ("fabric.status", "Insufficient Resources", 23),
        ("symptom", "out_of_memory", "out-of-memory"),
        ("mig", "enabled", True),
        ("vm.guest", "yes", True),
        ("vm.guest", "No", False),
        ("modules.nvidia_peermem", "not loaded", False),
        ("gpu.pcie.current_width", "x8", 8),
        ("gpu.pcie.current_width", "8x", 8),
        ("gpu.pcie.current_width", "16 lanes", 16),
        ("gpu.pcie.current_gen", "Gen4", 4),
        ("gpu.pcie.current_gen", "PCIe 5.0", 5),
        ("gpu.compute_capability", "sm_120", 12.0),
        ("gpu.compute_capability", "sm_90a", 9.0),
        ("gpu.fabric.state", "In Progress", "in-progress"),
        ("shm", "16 GB", 16 << 30),
        ("shm.total_bytes", "1.5 GiB", 3 << 29),
        ("memlock", "8 MiB", 8 << 20),
        ("memlock", "64kb", 64 << 10),
        ("memlock", "unlimited", -1),
        ("limits.open_files", "unlimited", -1),
        ("busbw", "22 GB/s", 22.0),
        ("nic.rate_gbit", "400 Gb/s", 400.0),
        ("nic.rate_gbit", "200G", 200.0),
        ("job.failed_after_seconds", "10 min", 600),
        ("job.failed_after_seconds", "2 h", 7200),
        ("p2p.read", "chipset not supported", "CNS"),
        ("p2p.read", "ok", "OK"),
        ("p2p", "OK", True),
        ("p2p", "CNS", False),
        ("pair.link_class", "nv18", "NV18"),
        ("pair.link_class", "phb", "PHB"),
        ("iommu", "pt", "identity"),
        ("iommu", "passthrough", "identity"),
        ("iommu", "dma-fq", "DMA-FQ"),
        ("iommu", "DMA, identity", "DMA, identity"),
        ("iommu", False, "off"),
        ("fabricmanager", "running", "active"),
        ("container", "Docker", "docker"),
        ("container", "k8s", "kubernetes"),
        ("vm.hypervisor", "bare metal", "none"),
        ("platform.cloud", "Google Cloud", "gcp"),
        ("rdma.link_layers", "RoCE", ["Ethernet"]),
        ("rdma.active", "mlx5_0, mlx5_1", ["mlx5_0", "mlx5_1"]),
        ("rdma.active", "[mlx5_0, 'mlx5_1']", ["mlx5_0", "mlx5_1"]),
        ("nccl.net_plugins", "none", []),
        ("rdma.rocev2_indexes", 3, ["3"]),
        ("framework", "vllm", "vLLM"),
        ("nccl", "NCCL 2.28.9+cuda13.0", "2.28.9"),
        ("driver", "r580", "580"),
        ("gpu.architecture", "Ada", "ada"),
        ("NCCL_BUFFSIZE", "8 MiB", "8 MiB"),  # NCCL reads it so, and a rule says how
    ],
)
def test_values(name: str, written: Any, value: Any) -> None:
    found = understood(name, written)[1]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "written", "words"),
    [
        ("symptom", "no hang", "is one of hang, slow, refused, crash, wrong-data, out-of-memory, not 'no hang'"),
        (
            "symptom",
            "hang or crash",
            "is one of hang, slow, refused, crash, wrong-data, out-of-memory, not 'hang or crash'",
        ),
        ("symptom", "odd", "is one of hang, slow, refused, crash, wrong-data, out-of-memory, not 'odd'"),
        ("iommu", "lazy", "is one of off, identity, DMA, DMA-FQ"),
        ("gpu.pcie.current_gen", "Gen4 x16", "is a whole number"),
        ("gpu.pcie.current_width", "Gen4 x16", "is a whole number"),
        ("busbw", "200 Gb/s", "is a number, in GB/s"),  # bits are no bytes
        ("nic.rate_gbit", "50 GB/s", "is a number, in Gbit/s"),
        ("rdma.active", 8, "is a list of texts"),
        ("rdma.active", True, "is a list of texts"),
        ("rdma.link_layers", "Ethernet, Omni-Path", "is one of InfiniBand, Ethernet"),
        ("gpus.count", "eight", "is a whole number"),
        ("gpus.count", True, "is a whole number"),
        ("gpus.count", 7.5, "is a whole number"),
        ("gpu.mig", "maybe", "is true or false"),
        ("cpu.vendor", ["AMD"], "is a text"),
        ("driver.flavour", "grey", "is one of open, proprietary"),
        ("p2p.read", "perhaps", "is one of OK, CNS, GNS, TNS, NS, DR, U"),
        ("pair.link_class", "NVLink", "is one of NV#, C2C, PIX, PXB, PHB, NODE, SYS"),
        ("nccl.version", "latest", "is a version"),
        ("cpu.vendor", "unknown", "is left out where it is not known"),
    ],
)
def test_a_value_of_another_type_is_one_sentence_with_a_hint(name: str, written: Any, words: str) -> None:
    with pytest.raises(InputError) as error:
        understood(name, written)
    assert words in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    ("name", "written", "words"),
    [
        ("cpu.sockets", "-3", "is 1 or more"),
        ("gpu.count", "-1", "is 0 or more"),
        ("gpu.count", "129", "is 128 at most"),
        ("numa.count", "0", "is 1 or more"),
        ("job.nodes", "-2", "is 0 or more"),
        ("busbw", "-1 GB/s", "is 0 or more"),
        ("gpu.pcie.current_width", "x64", "is 32 at most"),
        ("gpu[0].pcie.max_gen", "0", "is 1 or more"),
        ("memlock", "-2", "is -1 or more"),
    ],
)
def test_a_number_that_the_fact_cannot_be_is_refused(name: str, written: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        understood(name, written)


def test_minus_one_is_taken_where_the_meaning_says_what_it_stands_for() -> None:
    assert {name for name in VOCABULARY if (limits := bounds(name)) and limits[0] == -1} == {
        name for name, fact in VOCABULARY.items() if "; -1 " in fact.meaning
    }
    assert understood("memlock", "-1") == ("limits.memlock_bytes", -1)
    assert bounds("variable.integer") is None


@pytest.mark.parametrize(
    ("word", "fact"),
    [
        ("hang", "job.symptom"),
        ("docker", "container.kind"),
        ("p2p.status", "pair.p2p.read"),
        ("gid", "rdma.rocev2_indexes"),
        ("gid", "NCCL_IB_GID_INDEX"),
        ("vendor", "cpu.vendor"),
        ("kvm", "vm.hypervisor"),
        ("cpu.vendorr", "cpu.vendor"),
        ("gpu.pcie.lanes", "gpu.pcie.current_width"),
    ],
)
def test_an_unknown_name_leads_to_the_fact_and_its_meaning(word: str, fact: str) -> None:
    with pytest.raises(InputError) as error:
        understood(word, "x")
    assert f"`{word}`" in error.value.message
    meaning = VOCABULARY[fact].meaning if fact in VOCABULARY else "the variable"
    assert f"`{fact}` ({meaning})" in str(error.value.hint)


def test_an_unknown_name_like_nothing_leads_to_the_search() -> None:
    with pytest.raises(InputError) as error:
        understood("zzzz", "x")
    assert "facts --find" in str(error.value.hint)


def test_everything_that_cannot_be_used_is_told_at_once() -> None:
    with pytest.raises(InputError) as error:
        told.understood(
            [
                Assumption(fact="docker", value="x", origin="f.yaml:1"),
                Assumption(fact="cpu.vendor", value="AMD", origin="f.yaml:2"),
                Assumption(fact="gpus.count", value="many", origin="f.yaml:3"),
            ]
        )
    assert error.value.message == "2 of the assumed facts cannot be used"
    first, second = error.value.details
    assert first.startswith("f.yaml:1: there is no fact `docker`")
    assert "`container.kind`" in first
    assert second.startswith("f.yaml:3: the assumed fact `gpus.count` is a whole number, not 'many'.")


def test_what_was_understood_stays_as_it_is() -> None:
    once = told.understood([Assumption(fact="symptom", value="OOM"), Assumption(fact="NCCL_ALGO", value=True)])
    assert told.understood(once) == once


def test_variables_and_facts_do_not_share_names() -> None:
    assert not [name for name in settings.registry() if name.lower() in VOCABULARY or name in told.ALSO_CALLED]
    assert all(spec(name) is not None for name in FORMS)
