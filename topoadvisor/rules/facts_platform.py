"""Facts about the platform: which cloud machine this is, what its vendor put here, and what other libraries need."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from topoadvisor import cpu_lists
from topoadvisor.hardware import catalogue, vendor_files
from topoadvisor.rules.scope import ASSUMED, DRIVER, NUMA, NVML, PROC, Fact, Known, Scope, Sources, Unknown, follow
from topoadvisor.snapshot import Snapshot

SURROUNDINGS: Final = ("surroundings",)

_EXPECTED_GPUS: Final = {"dgx-1": 8, "dgx-2": 16, "dgx-station": 4, "dgx-spark": 1, "dgx-gb200": 4, "dgx-gb300": 4}
_DESKTOP: Final = re.compile(r"\b(Core\(TM\)|Core Ultra|i[3579]-\d|Ryzen(?! Threadripper))", re.I)
"""Names of processors whose root complexes were not built for peer traffic."""
_EFA_DEVICES: Final = {
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
}
"""EFA devices of a whole instance (aws-ofi-nccl, `src/platform-aws.cpp`)."""
_GPU_WORDS: Final = ("V100", "A100", "H100", "H200", "B200", "B300", "GB200", "GB300")


def gather(node: Scope, snapshot: Snapshot, sources: Sources) -> None:
    """Record what needs only the node: CPU, kernel switches, vendor files, driver parameters."""
    host = snapshot.host
    origin, why = sources.origin(*SURROUNDINGS), sources.why(*SURROUNDINGS)
    if snapshot.origin == "live" and snapshot.source(SURROUNDINGS[0]) is None:
        why = "this capture is older than the question"
    proc, proc_why = sources.origin(*PROC), sources.why(*PROC)
    node.put("cpu.desktop", follow(lambda name: bool(_DESKTOP.search(name)), node.facts["cpu.model_name"]))
    node.put("cpu.generation", _generation(node))
    allowed = cpu_lists.parse(host.allowed_cpus) if host.allowed_cpus is not None else None
    node.read("cpu.allowed", None if allowed is None else len(allowed), proc, proc_why)
    node.read("cpu.governor", host.governor, origin, why)
    node.read("kernel.numa_balancing", host.numa_balancing, origin, why)
    node.read("limits.stack_bytes", host.stack_bytes, proc, proc_why)
    for name in ("IPC_LOCK", "SYS_NICE"):
        held = None if host.capabilities is None else name in host.capabilities
        node.read(f"capabilities.{name.lower()}", held, origin, why)
    empty = [each for each in host.numa_nodes or [] if each.cpus and each.memory_bytes == 0]
    counted = host.numa_nodes is not None and all(each.memory_bytes is not None for each in host.numa_nodes)
    node.read("numa.without_memory", len(empty) if counted else None, sources.origin(*NUMA), sources.why(*NUMA))
    node.read("rdma.uverbs", host.uverbs, origin, why)
    node.read("nccl.net_plugins", host.network_plugins, origin, why)
    libraries = snapshot.nccl_libraries
    if libraries and libraries[0].path == ASSUMED:
        # Who assumes a version has said which one the job loads.
        node.put("nccl.versions", follow(lambda version: [str(version)], node.facts["nccl.version"]))
    else:
        found = None if libraries is None else sorted({each.version for each in libraries if each.version})
        node.read("nccl.versions", found, sources.origin("nccl"), sources.why("nccl"))
    node.read("fabricmanager.version", host.fabric_manager, origin, why)
    same = follow(lambda own, driver: own == driver, node.facts["fabricmanager.version"], node.facts["driver.version"])
    node.put("fabricmanager.matches_driver", same)
    node.read("imex.state", (host.services or {}).get("nvidia-imex"), proc, proc_why)
    _paths(node, host.paths, origin, why)
    _driver(node, snapshot, sources)


def _generation(node: Scope) -> Fact:
    told = node.facts["cpu.model_name"]
    if isinstance(told, Known) and (name := catalogue.cpu_generation(str(told.value))):
        return Known(name, "catalogue")
    model = catalogue.cpu_model(
        node.value("cpu.vendor"),
        node.value("cpu.family"),
        node.value("cpu.model"),
        node.value("cpu.architecture"),
    )
    name = model.name if model else None
    return Known(name, "catalogue") if name else Unknown("the catalogue does not know this CPU")


def _paths(node: Scope, paths: dict[str, bool] | None, origin: str, why: str) -> None:
    def first(candidates: Iterable[str]) -> str | None:
        return None if paths is None else next((path for path in candidates if paths.get(path)), "")

    def any_of(candidates: Iterable[str]) -> bool | None:
        return None if paths is None else bool(first(candidates))

    profiles = (*vendor_files.GCP_GIB, *vendor_files.GCP_TCPXO, *vendor_files.AZURE_TOPOLOGIES)
    node.read("vendor.profile", first(profiles), origin, why)
    node.read("vendor.efa_plugin", any_of(vendor_files.AWS_PLUGIN), origin, why)
    node.read("imex.channel", any_of(vendor_files.IMEX_CHANNELS), origin, why)
    node.read("gdr.memory_peers", any_of(vendor_files.MEMORY_PEERS), origin, why)


def _driver(node: Scope, snapshot: Snapshot, sources: Sources) -> None:
    parameters = snapshot.driver.parameters
    origin, why = sources.origin(*DRIVER), sources.why(*DRIVER)
    if parameters is None and snapshot.driver.banner is not None:
        why = "the driver's parameters were not read"

    def has(name: str, sign: str) -> bool | None:
        return None if parameters is None else sign in parameters.get(name, "")

    node.read("driver.stream_mem_ops", has("EnableStreamMemOPs", "1"), origin, why)
    node.read("driver.nvlink_disabled", has("NvLinkDisable", "1"), origin, why)
    node.read("driver.peer_mapping_override", has("RegistryDwords", "PeerMappingOverride=1"), origin, why)
    node.read("driver.registry", None if parameters is None else parameters.get("RegistryDwords", ""), origin, why)
    confidential = snapshot.driver.confidential
    node.read(
        "confidential.enabled",
        None if confidential is None else confidential == "on",
        sources.origin(*NVML),
        sources.why(*NVML, call="ConfCompute"),
    )


def summarise(node: Scope, snapshot: Snapshot) -> None:
    """Record what needs the GPUs and the network devices."""
    node.put("platform.machine", _machine(node))
    node.put("gpus.expected", _complete(node))
    node.put("platform.efa_expected", follow(lambda name: _EFA_DEVICES.get(name, 0), node.facts["platform.machine"]))
    soc = follow(
        lambda names: bool(names) and all(any(word in name for word in ("GB200", "GB300")) for name in names),
        node.facts["gpus.models"],
    )
    clusters = [gpu.fabric.cluster_uuid if gpu.fabric else None for gpu in snapshot.gpus]
    joined = follow(
        # A GPU of this kind may also stand outside of a rack: only the number of its NVLink cluster tells.
        lambda rack, done: any(clusters) if rack and done and any(each is not None for each in clusters) else None,
        soc,
        node.facts["fabric.completed"],
        reason="the NVLink cluster of the GPUs was not read",
    )
    if node.value("fabric.completed") is False:
        joined = Known(False, "derived")
    node.put("mnnvl.possible", Known(False, "derived") if isinstance(soc, Known) and not soc.value else joined)
    node.put("nvshmem.used", _nvshmem(node, snapshot))


def _nvshmem(node: Scope, snapshot: Snapshot) -> Fact:
    if node.value("job.framework") in ("NVSHMEM", "DeepEP"):
        return follow(lambda _: True, node.facts["job.framework"])
    names = [each.name for each in snapshot.settings or []]
    names += [name.removeprefix("env.") for name, fact in node.facts.items() if name.startswith("env.") and _said(fact)]
    if any(name.startswith("NVSHMEM_") for name in names):
        return Known(True, "derived")
    unset = node.facts.get("env.NVSHMEM_HCA_LIST")
    if snapshot.settings is None:
        return unset if isinstance(unset, Unknown) else Unknown("variables were not read")
    return Known(False, "derived")


def _said(fact: Fact) -> bool:
    return isinstance(fact, Known) and bool(fact.value)


def _complete(node: Scope) -> Fact:
    """GPUs of the machine when it is complete."""
    return follow(_expected, node.facts["platform.system"], node.facts["gpus.models"])


def _expected(system: str, models: Sequence[str]) -> int:
    """GPUs of a complete machine by its name; 0 when it has no fixed number, or is named after none of its models."""
    if system in _EXPECTED_GPUS:
        return _EXPECTED_GPUS[system]
    named = re.fullmatch(r"dgx-(a100|a800|h100|h200|h800|b200|b300)", system)
    return 8 if named and (not models or any(named[1].upper() in model for model in models)) else 0


def _machine(node: Scope) -> Fact:
    """Cloud shape or system: read where the firmware states it, else inferred from GPUs and devices."""
    cloud = node.facts["platform.cloud"]
    if isinstance(cloud, Unknown):
        return cloud
    if cloud.value == "aws":
        return follow(str, node.facts["platform.product"])
    product = node.facts["platform.product"]
    if isinstance(product, Known) and (named := _named_type(str(cloud.value), str(product.value))):
        return Known(named, product.origin)
    if cloud.value == "none":
        return Known(node.value("platform.system") or "none", cloud.origin)
    models = node.facts["gpus.models"]
    if isinstance(models, Unknown):
        return models
    shape = _shape(str(cloud.value), models.value, node.value("gpus.count") or 0, node.value("rdma.count") or 0)
    return Known(shape or "other", f"inferred: from GPUs and network devices on {cloud.value}")


def _named_type(cloud: str, product: str) -> str | None:
    """The machine type that a name states, as rules know it; None when it states none."""
    match cloud:
        case "azure":
            # Of NC A100 v4 the images prepare the size with four GPUs only.
            if smaller := re.match(r"Standard_(NC(?:24|48)ads_A100_v4)$", product, re.I):
                return smaller[1]
            size = re.match(r"Standard_(N[DC])C?[0-9].*_v([0-9])$", product, re.I)
            return f"{size[1].upper()}v{size[2]}" if size else None
        case "gcp":
            return "a4x" if product.startswith("a4x-") else product if re.match(r"a[2-9]-", product) else None
        case "oci":
            return product if product.startswith(("BM.", "VM.")) else None
    return None


def _shape(cloud: str, models: Sequence[str], count: int, devices: int) -> str | None:
    words = Counter(word for name in models for word in _GPU_WORDS if word in name)
    gpu = next((word for word in reversed(_GPU_WORDS) if words[word]), None)
    match cloud, gpu, count:
        case "azure", "V100", 8:
            return "NDv2"
        case "azure", "A100", 8:
            return "NDv4"
        case "azure", "H100" | "H200", 8:
            return "NDv5"
        case "azure", "A100", 1 | 2 | 4:
            return "NCv4"
        case "azure", "H100", 1 | 2:
            return "NCv5"
        case "azure", "GB200" | "GB300", 4:
            return "NDv6"
        case "gcp", "H200", 8:
            return "a3-ultragpu-8g"
        case "gcp", "H100", 8:
            return "a3-highgpu-8g or a3-megagpu-8g"
        case "gcp", "B200", 8:
            return "a4-highgpu-8g"
        case "gcp", "GB200" | "GB300", 4:
            return "a4x"
        case "oci", "A100", 8:
            return "BM.GPU4.8 or BM.GPU.A100-v2.8"
        case "oci", _, 8 if gpu:
            return f"BM.GPU.{gpu}.8"
        case "oci", "GB200" | "GB300", 4:
            return f"BM.GPU.{gpu}.4"
    return None
