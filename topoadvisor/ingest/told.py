"""What a person wrote as a fact: its name as the vocabulary has it, its value in the type of the fact.

Tickets do not spell as programs do. What is unambiguous is taken, by the tables below and nothing else; the rest is
refused, all of it at once, with the facts that were probably meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from topoadvisor.errors import InputError
from topoadvisor.ingest import told_values
from topoadvisor.nccl import settings
from topoadvisor.snapshot import ON_COMMAND_LINE, Assumption
from topoadvisor.vocabulary import VOCABULARY, nearest, search, spec

NAME: Final = re.compile(r"[A-Za-z_][\w-]*(?:\[[^\]=]{1,64}\])?(?:\.[\w-]+)*")
"""How the name of a fact is written: `pair[0,1].p2p.read`."""

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


def understood(assumptions: Iterable[Assumption]) -> list[Assumption]:
    """The facts with their names as the vocabulary has them and their values in the type of the fact.

    What went through this once passes unchanged. Raises InputError that tells everything that cannot be used.
    """
    found: list[Assumption] = []
    wrong: list[InputError] = []
    for each in assumptions:
        try:
            found.append(_understood(each, suggest=len(wrong) < _SUGGESTED))
        except InputError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        details = [" ".join(filter(None, (f"{error.message}.", error.hint))) for error in wrong[:_TOLD_OF]]
        if len(wrong) > _TOLD_OF:
            details.append(f"… and {len(wrong) - _TOLD_OF} more.")
        raise InputError(f"{len(wrong)} of the assumed facts cannot be used", details=details, hint=_FIND)
    return found


_SUGGESTED: Final = 5
"""Unknown names for which a search says what was probably meant; further ones are names of something else."""
_TOLD_OF: Final = 20
"""Faults that are told one by one; the others are counted."""
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


def numbers(which: str) -> list[str]:
    """The GPUs that stand between brackets, as `0,1`, `0-1`, `gpu:0-gpu:1`, `GPU0`."""
    return [
        re.sub(r"^gpu:?(?=[0-9])", "", part.strip(), flags=re.I).lstrip("0") or "0" * ("0" in part)
        for part in re.split(r"[,-]", which)
    ]


def about(name: str, which: str | None) -> str:
    """The fact of one device, written as `parts` takes it apart."""
    kind, _, rest = name.partition(".")
    return f"{kind}[{which}].{rest}" if which else name


def may_be_empty(name: str) -> bool:
    """Whether an empty value says something: a variable that is not set, a text that is empty when there is none."""
    fact = spec(canonical(name) or "")
    return fact is not None and fact.type == "text" and "empty" in fact.meaning


def _without_unit(name: str) -> str:
    unit = next((end for end in told_values.UNITS if end != "_width" and name.endswith(end)), "")
    return name.removesuffix(unit)


def _understood(assumption: Assumption, *, suggest: bool) -> Assumption:
    name = canonical(assumption.fact)
    if name is None:
        where = None if assumption.origin == ON_COMMAND_LINE else assumption.origin
        raise InputError(
            f"there is no fact `{assumption.fact}` to assume",
            file=where,
            hint=(near(assumption.fact) if suggest else None) or _FIND,
        )
    assumption = msgspec.structs.replace(assumption, fact=_by_value(name, str(assumption.value).strip()))
    name = assumption.fact
    if (instead := MADE_FROM.get(parts(name)[0])) is not None:
        where = None if assumption.origin == ON_COMMAND_LINE else assumption.origin
        message = f"`{assumption.fact}` is made from other facts and cannot be assumed by itself"
        raise InputError(message, file=where, hint=f"Assume {instead} instead.")
    return msgspec.structs.replace(assumption, value=told_values.read(assumption, parts(name)[0]))


def _by_value(name: str, text: str) -> str:
    """The fact that is meant where one word is used for two: `iommu: on` says that there is one, not how it works."""
    folded = told_values.fold(text)
    truth = told_values.TRUTH.get(folded)
    meant = {
        "cpu.model": None if told_values.number_of(name, text) is not None else "cpu.model_name",
        "pair.p2p.ok": "pair.p2p.read" if folded in told_values.REFUSALS else None,
        "vm.guest": "vm.hypervisor" if truth is None and folded in told_values.SPELLINGS["vm.hypervisor"] else None,
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
