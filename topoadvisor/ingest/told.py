"""What a person wrote as a fact: its name as the vocabulary has it, its value in the type of the fact.

Tickets do not spell as programs do. What is unambiguous is taken, by the tables below and nothing else; the rest is
refused, all of it at once, with the facts that were probably meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from topoadvisor.errors import InputError
from topoadvisor.ingest.smi_query import FABRIC_STATUSES
from topoadvisor.nccl import consumers, settings, versions
from topoadvisor.snapshot import ON_COMMAND_LINE, Assumption
from topoadvisor.vocabulary import FORMS, TYPE_WORDS, VOCABULARY, FactType, bounds, nearest, search, spec

NAME: Final = re.compile(r"[A-Za-z_][\w-]*(?:\[[^\]=]{1,64}\])?(?:\.[\w-]+)*")
"""How the name of a fact is written: `pair[0,1].p2p.read`."""

_ANSWERS: Final = ("pair.p2p.read", "pair.p2p.write", "pair.p2p.nvlink")
_LAYERS: Final = ("nic.link_layer", "rdma.link_layers", "rdma.local_link_layers")
_SERVICES: Final = ("fabricmanager.state", "imex.state")
_VERSIONS: Final = ("nccl.version", "driver.version", "cuda.version", "kernel.version")


def _words(**listed: str) -> dict[str, str]:
    """Spelling → word, from word → its spellings; an underscore in the word stands for a hyphen."""
    return {each: word.replace("_", "-") for word, spellings in listed.items() for each in spellings.split(", ")}


SPELLINGS: Final[dict[str, dict[str, str]]] = {
    "job.symptom": _words(
        hang="hangs, hung, hanging, stuck, freeze, frozen, deadlock, timeout, timed-out, time-out, no-progress",
        slow="slowness, slower, degraded, degradation, drops, low-bandwidth, slow-bandwidth, low-performance, "
        "bad-performance",
        refused="peer-access-refused, p2p-refused, peer-access-not-supported",
        crash="crashes, crashed, error, fails, failed, failure, init-failure, abort, segfault",
        wrong_data="wrong-results, wrong-result, wrong, corruption, data-corruption, corrupt, corrupted, nan, nans, "
        "garbage, garbled, gibberish",
        out_of_memory="oom, cuda-oom, cuda-out-of-memory",
    ),
    **dict.fromkeys(
        _ANSWERS,
        _words(
            OK="yes, true, supported, on",
            NS="no, false, not-supported, off",
            CNS="chipset-not-supported",
            GNS="gpu-not-supported",
            TNS="topology-not-supported",
            DR="disabled-by-regkey, disabled-by-registry-key",
        ),
    ),
    "pair.p2p.ok": _words(true="ok, supported, granted", false="ns, cns, gns, tns, dr, not-supported, refused"),
    **dict.fromkeys(_LAYERS, _words(InfiniBand="ib", Ethernet="eth, roce, rocev2, roce-v2")),
    **dict.fromkeys(
        _SERVICES,
        _words(
            active="running, up, true, yes, ok",
            inactive="stopped, dead, down, not-running, false, no",
            not_installed="missing, absent, none",
        ),
    ),
    "driver.flavour": _words(open="open-source, nvidia-open, open-kernel-modules", proprietary="closed"),
    "iommu.mode": _words(
        off="no, false, none, disabled",
        identity="pt, iommu=pt, passthrough, pass-through",
        DMA="translated, translating",
    ),
    "nic.state": _words(ACTIVE="active", INIT="initializing, initialising"),
    "vm.hypervisor": _words(
        none="no, false, bare-metal, baremetal",
        KVM="kvm, qemu, qemu/kvm, nitro, proxmox, libvirt",
        VMware="vmware, esxi",
        Xen="xen",
        Microsoft="microsoft, hyper-v, hyperv",
    ),
    "container.kind": _words(none="no, false", kubernetes="k8s, pod, openshift", wsl="wsl2"),
    "platform.cloud": _words(
        none="no, false, on-prem, on-premises",
        aws="amazon, ec2, eks",
        azure="microsoft",
        gcp="google, google-cloud, gce, gke",
        oci="oracle, oracle-cloud",
    ),
    "job.transport": {"socket": "NET/Socket", "sockets": "NET/Socket", "tcp": "NET/Socket", "ib": "NET/IB"},
    "job.framework": {name.lower(): name for name in consumers.NAMES}
    | _words(TensorRT_LLM="trt-llm, trtllm, tensorrt", PyTorch="torch, pytorch-ddp, ddp, fsdp")
    | {"llamacpp": "llama.cpp", "llama-cpp": "llama.cpp", "ggml": "llama.cpp"},
    "cpu.vendor": _words(
        AMD="amd, authenticamd",
        Intel="intel, genuineintel",
        Arm="arm",
        IBM="ibm",
        NVIDIA="nvidia",
        Zhaoxin="zhaoxin, centaurhauls, shanghai",
    ),
    "cpu.architecture": {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "ppc64": "ppc64le"},
}
"""Other spellings of values, by fact; blanks and underscores count as hyphens, capital letters as small ones."""

_REFUSALS: Final = frozenset(
    each for each, answer in SPELLINGS["pair.p2p.read"].items() if answer in ("CNS", "GNS", "TNS", "DR")
)
"""Refusals with their reason, which a bare no does not have."""

_LOWER: Final = frozenset(
    {"gpu.architecture", "gpus.architecture", "container.kind", "platform.cloud", "cpu.governor", "driver.flavour"}
)
"""Facts whose words are all in small letters."""

TRUTH: Final[dict[str, bool]] = {
    **dict.fromkeys(("true", "yes", "on", "1", "enabled", "present", "loaded"), True),
    **dict.fromkeys(("false", "no", "off", "0", "disabled", "absent", "not-loaded"), False),
}
"""Spellings of true and false."""

UNITS: Final[dict[str, dict[str, float]]] = {
    "_bytes": {"b": 1.0, "bytes": 1.0}
    | {unit + tail: 1024.0**power for power, unit in enumerate("kmgt", 1) for tail in ("", "b", "ib")},
    "_gbps": {"GB/s": 1.0, "GBps": 1.0, "MB/s": 1e-3, "TB/s": 1e3},
    "_gbit": {"Gbit/s": 1.0, "Gb/s": 1.0, "Gbps": 1.0, "Gbit": 1.0, "G": 1.0},
    "_gts": {"gt/s": 1.0},
    "_seconds": {"s": 1.0, "seconds": 1.0, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0},
    "_width": {"x": 1.0, "lanes": 1.0},
}
"""End of a fact's name → units that may follow the number → factor. Units in small letters may have capital ones."""

ALSO_CALLED: Final[dict[str, str]] = {
    "gpu": "gpu.name",
    "gpus": "gpus.count",
    "p2p": "pair.p2p.ok",
    "fabric": "gpu.fabric.state",
    "gpu.count": "gpus.count",
    "gpus.name": "gpu.name",
    "gpu.model": "gpu.name",
    "gpus.driver": "driver.version",
    "nvlink": "nvlink.any",
    "nvlink.active": "nvlink.any",
    "nvlink.present": "nvlink.any",
    "pcie.width": "gpu.pcie.current_width",
    "pcie.gen": "gpu.pcie.current_gen",
    "fabric_manager": "fabricmanager.state",
    "fabric_manager.state": "fabricmanager.state",
    "fabricmanager": "fabricmanager.state",
    "fabricmanager.status": "fabricmanager.state",
    "imex": "imex.state",
    "nccl.transport": "job.transport",
    "transport": "job.transport",
    "instance": "platform.product",
    "instance_type": "platform.product",
    "platform.instance": "platform.product",
    "platform.instance_type": "platform.product",
    "rdma.devices": "rdma.names",
    "ib.active": "rdma.active",
    "nccl": "nccl.version",
    "cuda": "cuda.version",
    "driver": "driver.version",
    "kernel": "kernel.version",
    "kernel.cmdline": "kernel.command_line",
    "cpu": "cpu.model_name",
    "cpu.name": "cpu.model_name",
    "cpu.cores": "cpu.allowed",
    "numa.nodes": "numa.count",
    "vm": "vm.guest",
    "virtual_machine": "vm.guest",
    "container": "container.kind",
    "iommu": "iommu.mode",
    "iommu.type": "iommu.mode",
    "acs": "pair.path.acs_redirect",
    "acs.redirect": "pair.path.acs_redirect",
    "acs.enabled": "pair.path.acs_redirect",
    "pair.acs_redirect": "pair.path.acs_redirect",
    "shm": "shm.total_bytes",
    "shm.size": "shm.total_bytes",
    "shm.size_bytes": "shm.total_bytes",
    "nofile": "limits.open_files",
    "limits.nofile": "limits.open_files",
    "peermem": "modules.nvidia_peermem",
    "peermem.loaded": "modules.nvidia_peermem",
    "dmabuf": "gdr.dmabuf_possible",
    "gdr.dmabuf": "gdr.dmabuf_possible",
    "error": "job.message",
    "bar1.bytes": "gpu.bar1_bytes",
    "mig": "gpu.mig",
    "mig.enabled": "gpu.mig",
    "fabric.state": "gpu.fabric.state",
    "nvshmem": "nvshmem.used",
    "confidential": "confidential.enabled",
    "confidential_computing": "confidential.enabled",
    "num_gpus": "gpus.count",
    "ngpus": "gpus.count",
    "gpu.type": "gpu.name",
    "sm": "gpu.compute_capability",
    "cpu_model": "cpu.model_name",
    "cpu.type": "cpu.model_name",
    "numa": "numa.count",
    "numa_nodes": "numa.count",
    "nvidia_driver": "driver.version",
    "driver.type": "driver.flavour",
    "vm.type": "vm.hypervisor",
    "is_vm": "vm.guest",
    "container.runtime": "container.kind",
    "in_container": "container.any",
    "acs.on": "pair.path.acs_redirect",
    "acs_redirect": "pair.path.acs_redirect",
    "p2p.supported": "pair.p2p.ok",
    "p2p.access": "pair.p2p.ok",
    "peer_access": "pair.p2p.ok",
    "nvlink.errors": "gpu.nvlinks.errors",
    "nvswitch": "nvlink.switch",
    "pcie.link_width": "gpu.pcie.current_width",
    "pcie.generation": "gpu.pcie.current_gen",
    "bar1.size": "gpu.bar1_bytes",
    "rdma.link_layer": "rdma.link_layers",
    "dma_buf": "gdr.dmabuf_possible",
    "nic_count": "rdma.count",
    "network.transport": "job.transport",
    "bootstrap.interface": "net.bootstrap",
    "dev_shm": "shm.total_bytes",
    "ulimit.memlock": "limits.memlock_bytes",
    "ulimit_l": "limits.memlock_bytes",
    "problem": "job.symptom",
    "error_message": "job.message",
    "job.error": "job.message",
    "log.message": "job.message",
    "dmesg": "job.message",
    "xid": "job.xids",
    "xids": "job.xids",
    "job.xid": "job.xids",
    "num_nodes": "job.nodes",
    "nnodes": "job.nodes",
    "cloud.provider": "platform.cloud",
    "machine_type": "platform.machine",
    "mig.mode": "gpu.mig",
    "cc": "confidential.enabled",
    "imex.status": "imex.state",
    "imex.running": "imex.state",
    "fabricmanager.running": "fabricmanager.state",
    "fabric_manager.status": "fabricmanager.state",
    "fabric_manager_status": "fabricmanager.state",
    "cpus": "cpu.allowed",
    "node_count": "job.nodes",
    "hosts": "job.nodes",
    "machines": "job.nodes",
    "docker.shm_size": "shm.total_bytes",
    "container.shm_size": "shm.total_bytes",
    "max_locked_memory": "limits.memlock_bytes",
    "link_width": "gpu.pcie.current_width",
    "pcie.link_gen": "gpu.pcie.current_gen",
    "pcie.speed": "gpu.pcie.current_gen",
    "rebar": "gpu.bar1_covers_memory",
    "resizable_bar": "gpu.bar1_covers_memory",
    "cpu.socket_count": "cpu.sockets",
    "cpu.numa_nodes": "numa.count",
    "numa.balancing": "kernel.numa_balancing",
    "cmdline": "kernel.command_line",
    "driver.kind": "driver.flavour",
    "nvidia_peermem_loaded": "modules.nvidia_peermem",
    "nv_peer_mem": "modules.nvidia_peermem",
    "gdr": "gdr.any_path",
    "gpudirect": "gdr.any_path",
    "gpudirect.rdma": "gdr.any_path",
    "fm.version": "fabricmanager.version",
    "nic.speed": "nic.rate_gbit",
    "rdma.rate": "nic.rate_gbit",
    "operation": "job.collective",
    "application": "job.framework",
    "workload": "job.framework",
    "software": "job.framework",
    "symptoms": "job.symptom",
    "net_plugin": "nccl.net_plugins",
    "patched_driver": "driver.patched_p2p",
    "motherboard": "platform.product",
    "mainboard": "platform.product",
    "gpu.names": "gpus.models",
    "engine": "job.framework",
}
"""Other names of facts, as people write them in tickets."""

MADE_FROM: Final[dict[str, str]] = {
    "gpus.beyond_level_pairs": "gpus.beyond_level",
    "nvlink.summary": "pair.link_class",
    "nvlink.groups": "pair.link_class",
    "p2p.worst_class": "pair.link_class",
    "p2p.uplink_groups": "pair.link_class",
    "p2p.host_pairs": "pair.link_class",
    "p2p.network_pairs": "pair.nccl.transport",
    "job.xid_kind": "job.xids",
    "pair.nccl_path": "pair.link_class",
    "pair.same_numa": "gpu.numa_node",
    "pair.same_model": "gpu.name",
    "pair.path.acs_known": "pair.path.acs_redirect",
    "pair.path.bridges": "pair.path.acs_redirect",
    "bridge.acs_redirect": "pair.path.acs_redirect",
    "nccl.default_reason": "nccl.version, cpu.vendor",
    "nccl.libraries": "nccl.versions",
    "numa.gpu_nodes": "gpu.numa_node",
    "gdr.far_gpus": "rdma.gpu_local",
    "rdma.others": "rdma.active, rdma.gpu_local",
    "rdma.hca_exact": "rdma.gpu_local",
    "visible.groups": "env.CUDA_VISIBLE_DEVICES",
    "visible.worst_class": "env.CUDA_VISIBLE_DEVICES",
    "net.suspicious": "net.bootstrap",
    "pcie.chipset_gpus": "gpu.pcie.chipset",
}
"""Facts that are made from others, and that no rule asks → the facts to assume instead."""

_OF_EVERY: Final = ("pair", "gpu", "nic")
"""Subject kinds whose facts may be written without the kind: `p2p.read` is `pair.p2p.read`."""
_INDEXED: Final = re.compile(r"(gpu|pair|nic|bridge)\[([^\]]+)\]\.(.+)")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+")
"""A variable that was written without `env.`: no fact has capital letters."""
_MEASURED: Final = re.compile(r"([+-]?[0-9]{1,18}(?:\.[0-9]{0,18})?) ?([A-Za-z/]*)")
_LEADING: Final = re.compile(r"(?:nccl|cuda|nvidia|driver|linux|r)[ -]*(?=v?[0-9])", re.I)
_EXAMPLES: Final[dict[FactType, str]] = {"bool": "true", "int": "8", "number": "9.0", "text": "TEXT", "texts": "a, b"}


def understood(assumptions: Iterable[Assumption]) -> list[Assumption]:
    """The facts with their names as the vocabulary has them and their values in the type of the fact.

    What went through this once passes unchanged. Raises InputError that tells everything that cannot be used.
    """
    found: list[Assumption] = []
    wrong: list[InputError] = []
    for each in assumptions:
        try:
            found.append(_understood(each))
        except InputError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        details = [" ".join(filter(None, (f"{error.message}.", error.hint))) for error in wrong]
        raise InputError(f"{len(wrong)} of the assumed facts cannot be used", details=details, hint=_FIND)
    return found


_FIND: Final = "`topoadvisor facts --find WORD` lists facts by what they mean."


def canonical(name: str) -> str | None:
    """The name as the vocabulary has it, None when no fact is meant, or one of several.

    Beside other names of facts (`ALSO_CALLED`) a name may lack its first parts and its unit where one fact alone ends
    so: `memlock` is `limits.memlock_bytes`. It may have the kind of device in front: `gpu.pcie.width` is `pcie.width`.
    The first dot may be an underscore. A variable may lack `env.`.
    """
    if indexed := _INDEXED.fullmatch(name):
        kind, which, rest = indexed.groups()
        inner = canonical(f"{kind}.{rest}")
        return f"{kind}[{which}]{inner.removeprefix(kind)}" if inner and inner.startswith(f"{kind}.") else None
    if spec(name) is not None:
        return name
    if _VARIABLE.fullmatch(name) or settings.find(name.upper()) is not None:
        return f"env.{name.upper()}"
    plain = name.lower().replace("-", "_")
    dotted = plain.replace("_", ".", 1)
    known = ALSO_CALLED.get(plain) or ALSO_CALLED.get(dotted) or (dotted if dotted in VOCABULARY else plain)
    candidates = [known, *(f"{kind}.{known}" for kind in _OF_EVERY)]
    exact = next((each for each in candidates if each in VOCABULARY), None)
    if exact is not None:
        return exact
    kind, _, rest = known.partition(".")
    inner = canonical(rest) if kind in _OF_EVERY and rest else None
    if inner and inner.startswith(f"{kind}."):
        return inner
    if any(f".{known}." in f".{each}" for each in VOCABULARY):
        return None  # a group of facts
    ends = [each for each in VOCABULARY if f".{_without_unit(each)}".endswith(f".{_without_unit(known)}")]
    return ends[0] if len(ends) == 1 else None


def parts(fact: str) -> tuple[str, str | None]:
    """Name of a fact in the vocabulary, and which device is meant: `gpu[0].name` is `gpu.name` of `0`."""
    indexed = _INDEXED.fullmatch(fact)
    return (f"{indexed[1]}.{indexed[3]}", indexed[2]) if indexed else (fact, None)


def about(name: str, which: str | None) -> str:
    """The fact of one device, written as `parts` takes it apart."""
    kind, _, rest = name.partition(".")
    return f"{kind}[{which}].{rest}" if which else name


def may_be_empty(name: str) -> bool:
    """Whether an empty value says something: a variable that is not set, a text that is empty when there is none."""
    fact = spec(canonical(name) or "")
    return fact is not None and fact.type == "text" and "empty" in fact.meaning


def _without_unit(name: str) -> str:
    unit = next((end for end in UNITS if end != "_width" and name.endswith(end)), "")
    return name.removesuffix(unit)


def _understood(assumption: Assumption) -> Assumption:
    name = canonical(assumption.fact)
    if name is None:
        where = None if assumption.origin == ON_COMMAND_LINE else assumption.origin
        raise InputError(
            f"there is no fact `{assumption.fact}` to assume", file=where, hint=near(assumption.fact) or _FIND
        )
    assumption = msgspec.structs.replace(assumption, fact=_by_value(name, str(assumption.value).strip()))
    name = assumption.fact
    if (instead := MADE_FROM.get(parts(name)[0])) is not None:
        where = None if assumption.origin == ON_COMMAND_LINE else assumption.origin
        message = f"`{assumption.fact}` is made from other facts and cannot be assumed by itself"
        raise InputError(message, file=where, hint=f"Assume {instead} instead.")
    return msgspec.structs.replace(assumption, value=_typed(assumption, parts(name)[0]))


def _by_value(name: str, text: str) -> str:
    """The fact that is meant where one word is used for two: `iommu: on` says that there is one, not how it works."""
    truth = TRUTH.get(_fold(text))
    meant = {
        "cpu.model": None if _number(name, text) is not None else "cpu.model_name",
        "pair.p2p.ok": "pair.p2p.read" if _fold(text) in _REFUSALS else None,
        "vm.guest": "vm.hypervisor" if _fold(text) in SPELLINGS["vm.hypervisor"] and truth is None else None,
        "iommu.mode": "iommu.enabled" if truth else None,
        "container.kind": "container.any" if truth else None,
    }
    return meant.get(name) or name


def near(name: str) -> str | None:
    """What was probably meant, with its meaning; None when nothing is close."""
    close = nearest(name, VOCABULARY) if "." in name else None
    found = sorted(search(name), key=lambda each: each.rpartition(".")[2] != name)
    likely = [*([close] if close else []), *found]
    facts = [each for each in dict.fromkeys(likely) if each not in MADE_FROM][:3]
    variables = [each for each in settings.registry() if name.upper() in each.split("_")][: 3 - len(facts)]
    said = [f"`{each}` ({VOCABULARY[each].meaning})" for each in facts]
    said += [f"`{each}` (the variable)" for each in variables]
    return f"Did you mean {', or '.join(said)}?" if said else None


def _typed(assumption: Assumption, name: str) -> Any:
    """The value in the type of the fact. Raises InputError when it is of another type."""
    value, fact = assumption.value, spec(name)
    assert fact is not None
    if isinstance(value, str) and _fold(value.strip()) == "unknown" and name != "job.message":
        raise assumption.refused("is left out where it is not known", "Delete the line.")
    if fact.type == "texts":
        return _list(assumption, name)
    if not isinstance(value, str | int | float):
        raise assumption.refused(f"is {TYPE_WORDS[fact.type]}", _example(name, fact.type))
    text = str(value).strip()
    if fact.type == "text":
        return _text(assumption, name, str(value).lower() if isinstance(value, bool) else text)
    if fact.type == "bool":
        word = SPELLINGS.get(name, {}).get(_fold(text), _fold(text))
        if word in TRUTH:
            return TRUTH[word]
    elif not isinstance(value, bool):
        number = _number(name, text)
        if number is not None and (fact.type == "number" or number == int(number)):
            _in_bounds(assumption, name, number)
            return float(number) if fact.type == "number" else int(number)
    wanted = TYPE_WORDS[fact.type]
    if fact.type != "bool" and (units := next((UNITS[end] for end in UNITS if name.endswith(end)), None)):
        wanted += f", in {', '.join(units)}" if fact.type == "number" else ""
    raise assumption.refused(f"is {wanted}", _example(name, fact.type))


def _in_bounds(assumption: Assumption, name: str, number: float) -> None:
    """Raises InputError for a number that the fact cannot be."""
    limits = bounds(name)
    if limits is None or limits[0] <= number <= limits[1]:
        return
    least, most = limits
    wanted = f"is {least:,} or more" if number < least else f"is {most:,.0f} at most"
    raise assumption.refused(wanted, f"It says: {VOCABULARY[name].meaning}.")


def _example(name: str, kind: FactType) -> str:
    example = "2.28.9" if name in _VERSIONS else "64 MiB" if name.endswith("_bytes") else _EXAMPLES[kind]
    return f"Write it as {name}={example}."


def _number(name: str, text: str) -> float | int | None:
    """A number with or without its unit, None when it is none."""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,15}", text):
        return int(text, 16)
    if text.lower() in ("unlimited", "infinity") and name.startswith("limits."):
        return -1
    if name == "gpu.fabric.status" and _fold(text) in FABRIC_STATUSES:
        return FABRIC_STATUSES[_fold(text)]
    if name.endswith("_gen") and (gen := re.fullmatch(r"(?:pcie ?)?(?:gen ?)?([0-9])(?:\.0)?", text, re.I)):
        return int(gen[1])
    if "compute_capability" in name and (arch := re.fullmatch(r"sm_?([0-9]{1,2})([0-9])[af]?", text, re.I)):
        return float(f"{arch[1]}.{arch[2]}")
    if name.endswith("_width") and (lanes := re.fullmatch(r"x ?([0-9]{1,2})", text, re.I)):
        return int(lanes[1])
    found = _MEASURED.fullmatch(text)
    if found is None:
        return None
    number, unit = found.groups()
    if not unit:
        return float(number) if "." in number else int(number)
    units = next((UNITS[end] for end in UNITS if name.endswith(end)), {})
    factor = units.get(unit, units.get(unit.lower()))
    return None if factor is None else float(number) * factor


def _list(assumption: Assumption, name: str) -> list[str]:
    value = assumption.value
    numbers = isinstance(value, bool | int | float) or (isinstance(value, str) and value.strip().isdigit())
    if (numbers and not name.endswith(("_indexes", ".xids"))) or not isinstance(value, list | str | int):
        raise assumption.refused(f"is {TYPE_WORDS['texts']}", _example(name, "texts"))
    if isinstance(value, list):
        parts = value
    else:
        bare = str(value).strip().removeprefix("[").removesuffix("]")
        parts = [] if bare.lower() == "none" else [part.strip().strip("\"'") for part in bare.split(",")]
    return [_text(assumption, name, part) for part in (str(item).strip() for item in parts) if part]


def _text(assumption: Assumption, name: str, text: str) -> str:
    if name in _VERSIONS:
        version = _LEADING.sub("", text, count=1)
        if not versions.is_version(version):
            raise assumption.refused("is a version", _example(name, "text"))
        several = name == "nccl.version" and len(versions.parse(version)) > 1
        return versions.release(version) if several else version
    text = SPELLINGS.get(name, {}).get(_fold(text), text.lower() if name in _LOWER else text)
    if name == "job.symptom":
        text = _symptom(text)
    if name == "job.transport":
        text = re.sub(r"^(NET/[A-Za-z]+)/[0-9]+.*", r"\1", text)
    if name not in FORMS:
        return text
    # The GPUs' IOMMU groups may be of several types.
    parts = text.split(", ") if name == "iommu.mode" else [text]
    found = [_word(FORMS[name], part) for part in parts]
    if None in found:
        raise assumption.refused(f"is one of {shown(FORMS[name])}", f"It means: {VOCABULARY[name].meaning}.")
    return ", ".join(filter(None, found))


def _symptom(text: str) -> str:
    """The one symptom that the words of a phrase mean: `silent corruption`; the phrase itself where they mean more."""
    spellings = SPELLINGS["job.symptom"]
    words = _fold(text).split("-")
    meant = {
        each if each in spellings.values() else spellings[each]
        for each in words
        if each in spellings or each in spellings.values()
    }
    return meant.pop() if len(meant) == 1 and not {"no", "not", "without"} & set(words) else text


def _word(form: str, text: str) -> str | None:
    """The word of a form that is meant, whatever its capital letters, blanks and hyphens."""
    written = (text, text.upper(), text.lower(), _fold(text))
    return next((each for each in written if re.fullmatch(form, each)), None) or next(
        (word for word in form.split("|") if _fold(word) == _fold(text)), None
    )


def _fold(text: str) -> str:
    return re.sub(r"[\s_-]+", "-", text.lower())


def shown(form: str) -> str:
    """The words of a form as a person reads them: NV#, C2C, PIX."""
    return ", ".join(word.partition("[")[0] + "#" * ("[" in word) for word in form.split("|") if word)
