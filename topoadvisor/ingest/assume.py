"""Facts that the user supplies: reading them, and writing into the snapshot those that the topology is built from.

Every assumption is also kept in `Snapshot.assumptions`. The facts layer checks its name against the vocabulary and lets
it win over what was read; here nothing is rejected for being an unknown fact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from topoadvisor.errors import InputError
from topoadvisor.nccl import versions
from topoadvisor.snapshot import (
    Assumption,
    Cpu,
    NcclLibrary,
    P2p,
    PcieLink,
    Setting,
    Snapshot,
)

ORIGIN: Final = "assumed"
MAX_FILE = 1 << 20
MAX_FACTS = 10_000
MAX_DEPTH = 16

_NAME = re.compile(r"[A-Za-z_]\w*(?:\[[^\]=]{1,64}\])?(?:\.\w+)*")
_INDEXED = re.compile(r"(?P<kind>\w+)\[(?P<which>[^\]]*)\]\.(?P<rest>.+)")
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}|0x[0-9a-fA-F]{1,15}")
_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18}(?:\.[0-9]{0,18})?[eE][-+]?[0-9]{1,3})"
)
_HINT = "Write it as FACT=VALUE, for example cpu.vendor=AMD; `topoadvisor facts` lists every fact."

_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([KMGT])i?B?", re.I)
_VARIABLE = re.compile(r"(?:NCCL|TORCH|NVSHMEM|UCX|FI|OFI_NCCL|VLLM|SGLANG|GLOO|CUDA|SLURM|GGML|RDMAV|OMPI)_[A-Z0-9_]+")
"""A variable that was written without `env.`."""
_ALSO_CALLED: Final = {
    "gpu.count": "gpus.count",
    "gpus.name": "gpu.name",
    "gpu.model": "gpu.name",
    "gpus.driver": "driver.version",
    "nvlink.active": "nvlink.any",
    "nvlink.present": "nvlink.any",
    "pcie.width": "gpu.pcie.current_width",
    "pcie.gen": "gpu.pcie.current_gen",
    "fabric_manager.state": "fabricmanager.state",
    "fabricmanager.status": "fabricmanager.state",
    "nccl.transport": "job.transport",
    "transport": "job.transport",
    "nodes": "job.nodes",
    "platform.instance": "platform.product",
    "rdma.devices": "rdma.names",
    "ib.active": "rdma.active",
    "nccl": "nccl.version",
    "cuda": "cuda.version",
    "driver": "driver.version",
    "cpu.name": "cpu.model_name",
    "cpu.cores": "cpu.allowed",
    "numa.nodes": "numa.count",
    "hypervisor": "vm.hypervisor",
    "virtual_machine": "vm.guest",
    "container": "container.kind",
    "cloud": "platform.cloud",
    "platform.instance_type": "platform.product",
    "iommu.type": "iommu.mode",
    "acs.redirect": "pair.path.acs_redirect",
    "acs.enabled": "pair.path.acs_redirect",
    "pair.acs_redirect": "pair.path.acs_redirect",
    "shm.size_bytes": "shm.total_bytes",
    "shm.size": "shm.total_bytes",
    "limits.memlock": "limits.memlock_bytes",
    "limits.nofile": "limits.open_files",
    "limits.stack": "limits.stack_bytes",
    "peermem.loaded": "modules.nvidia_peermem",
    "nvidia_peermem": "modules.nvidia_peermem",
    "gdr.dmabuf": "gdr.dmabuf_possible",
    "bar1.bytes": "gpu.bar1_bytes",
    "kernel": "kernel.version",
    "kernel.cmdline": "kernel.command_line",
    "symptom": "job.symptom",
    "message": "job.message",
    "error": "job.message",
    "framework": "job.framework",
    "collective": "job.collective",
    "mig.enabled": "gpu.mig",
    "fabric.state": "gpu.fabric.state",
    "confidential": "confidential.enabled",
}
"""Other spellings of facts, as people write them in tickets."""


def _canonical(name: str) -> str:
    """The name as the vocabulary has it: a bare variable is `env.NAME`, and some facts go by other names."""
    return f"env.{name}" if _VARIABLE.fullmatch(name) else _ALSO_CALLED.get(name, name)


_VENDORS = {
    "amd": "AMD",
    "authenticamd": "AMD",
    "intel": "Intel",
    "genuineintel": "Intel",
    "arm": "Arm",
    "ibm": "IBM",
    "nvidia": "NVIDIA",
    "zhaoxin": "Zhaoxin",
    "centaurhauls": "Zhaoxin",
    "shanghai": "Zhaoxin",
}
_ARCHITECTURES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "ppc64": "ppc64le"}
_P2P: Final = ("read", "write", "nvlink", "atomics", "pci")
_STATUSES = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")


def gather(texts: list[str], file: Path | None) -> list[Assumption]:
    """The facts of a YAML mapping and of `fact=value` texts; a text wins over the file, a later text over an earlier.

    Nested mappings are joined by dots. Values are typed as YAML types a plain scalar, except those of text facts
    (`nccl.version` 2.30 is no number) and of `env.*`.

    Raises InputError for a text that is not `fact=value`, and with line and column for a file that is no such mapping.
    """
    facts: dict[str, Assumption] = {}
    if file is not None:
        for name, value, line in _from_file(file):
            facts[name] = Assumption(fact=name, value=_spelled(name, value), origin=f"{file}:{line}")
    for text in texts:
        name, equals, value = text.partition("=")
        name = _canonical(name.strip())
        if not equals or not _NAME.fullmatch(name):
            raise InputError(f"--assume {text[:80]!r} is not FACT=VALUE", hint=_HINT)
        if not value.strip() and not name.startswith("env."):
            raise InputError(f"--assume {text[:80]!r} gives no value", hint=_HINT)
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InputError(f"--assume {text[:80]!r} holds bytes that are no UTF-8 text", hint=_HINT)
        facts[name] = Assumption(fact=name, value=_spelled(name, _from_text(name, value.strip())))
    return list(facts.values())


def _from_text(name: str, text: str) -> Any:
    if text.startswith("[") and text.endswith("]") and not _is_text(name):
        return [_scalar(item.strip().strip("\"'")) for item in text[1:-1].split(",") if item.strip()]
    return text if _is_text(name) else _scalar(text)


def _scalar(text: str) -> bool | int | float | str:
    """A plain scalar by the core schema of YAML 1.2, where `no` and `1:30` are texts."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text, 16) if text.startswith("0x") else int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _is_text(name: str) -> bool:
    """Facts whose value stays as it is written, because a version or a variable is not a number."""
    return name.startswith("env.") or name.rpartition(".")[2] in _TEXT_FACTS


_TEXT_FACTS: Final = frozenset(
    {"version", "name", "model_name", "banner", "command_line", "product", "vendor", "message", "registry"}
)


def _from_file(file: Path) -> Iterator[tuple[str, Any, int]]:
    """(fact, value, line) of a YAML file."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE + 1)
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or error}", file=str(file), hint="--assume-file takes a YAML mapping."
        ) from None
    if len(data) > MAX_FILE:
        raise InputError("this file is too long for a mapping of facts", file=str(file), hint=_FILE_HINT)
    try:
        node = yaml.compose(data.decode("utf-8-sig"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it is not UTF-8 text, or nested too deeply"
        raise InputError(
            f"this is no YAML: {problem}",
            file=str(file),
            line=mark.line + 1 if mark else None,
            column=mark.column + 1 if mark else None,
            hint=_FILE_HINT,
        ) from None
    if node is None:
        return
    for count, entry in enumerate(_flatten(node, "", str(file), 0, set())):
        if count >= MAX_FACTS:
            raise InputError(f"this file has more than {MAX_FACTS} facts", file=str(file), hint=_FILE_HINT)
        yield entry


_FILE_HINT = "Write one `fact: value` a line, for example `cpu.vendor: AMD`."


def _flatten(node: yaml.Node, prefix: str, file: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any, int]]:
    line, column = node.start_mark.line + 1, node.start_mark.column + 1

    def wrong(message: str) -> InputError:
        return InputError(message, file=file, line=line, column=column, hint=_FILE_HINT)

    if isinstance(node, yaml.CollectionNode):
        if id(node) in seen:  # mappings that name each other could be walked for ever
            raise wrong("aliases are not taken here")
        seen.add(id(node))
    if isinstance(node, yaml.MappingNode) and depth < MAX_DEPTH:
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or not _NAME.fullmatch(prefix + key.value):
                line, column = key.start_mark.line + 1, key.start_mark.column + 1
                raise wrong(f"{str(key.value)[:60]!r} is no name of a fact")
            last = isinstance(value, yaml.ScalarNode | yaml.SequenceNode)
            name = _canonical(prefix + key.value) if last else f"{prefix}{key.value}."
            yield from _flatten(value, name, file, depth + 1, seen)
    elif not prefix or isinstance(node, yaml.MappingNode):
        raise wrong("this is no mapping of facts")
    elif isinstance(node, yaml.SequenceNode):
        if not all(isinstance(item, yaml.ScalarNode) for item in node.value):
            raise wrong(f"{prefix} is a list of something other than single values")
        yield prefix, [_node_value(prefix, item) for item in node.value], line
    elif isinstance(node, yaml.ScalarNode):
        if not node.value.strip() and not prefix.startswith("env."):
            raise wrong(f"{prefix} has no value")
        yield prefix, _node_value(prefix, node), line


def _node_value(name: str, node: yaml.ScalarNode) -> Any:
    quoted = bool(node.style)
    return node.value if quoted or _is_text(name) else _scalar(node.value)


def _spelled(fact: str, value: Any) -> Any:
    """The value as the rest of topoadvisor spells it."""
    if not isinstance(value, str):
        return value
    if fact.endswith("_bytes"):
        size = _SIZE.fullmatch(value.strip())
        if value.strip().lower() in ("unlimited", "infinity"):
            return -1
        return int(float(size[1]) * 1024 ** ("KMGT".index(size[2].upper()) + 1)) if size else value
    match fact.rpartition("].")[2]:
        case "cpu.vendor":
            return _VENDORS.get(value.lower(), value)
        case "cpu.architecture":
            return _ARCHITECTURES.get(value.lower(), value)
        case "driver.flavour":
            return value.lower()
        case "nccl.version" if versions.is_version(value) and len(versions.parse(value)) > 1:
            return versions.release(value)
        case name if name.removeprefix("pair.") in {f"p2p.{kind}" for kind in _P2P}:
            return value.upper()
    return value


def apply(snapshot: Snapshot, assumptions: Sequence[Assumption]) -> Snapshot:
    """The snapshot with the assumed facts in it where it has a place for them, and all of them in `assumptions`.

    Raises InputError for a value of another type, or a GPU that is not there.
    """
    assumptions = [msgspec.structs.replace(each, value=_spelled(each.fact, each.value)) for each in assumptions]
    for assumption in assumptions:
        snapshot = _applied(snapshot, assumption)
    return msgspec.structs.replace(snapshot, assumptions=[*snapshot.assumptions, *assumptions])


def _applied(snapshot: Snapshot, assumption: Assumption) -> Snapshot:
    indexed = _INDEXED.fullmatch(assumption.fact)
    name = f"{indexed['kind']}.{indexed['rest']}" if indexed else assumption.fact
    if name.startswith("gpu."):
        return _apply_to_gpus(snapshot, assumption, name, indexed["which"] if indexed else None)
    if name.removeprefix("pair.") in {f"p2p.{kind}" for kind in _P2P}:
        return _apply_to_pairs(snapshot, assumption, name.rpartition(".")[2], indexed["which"] if indexed else None)
    if name.startswith("env."):
        return _apply_to_settings(snapshot, name.removeprefix("env."), _text(assumption))
    if name == "nccl.version":
        library = NcclLibrary(path=ORIGIN, version=_text(assumption), read_by=ORIGIN)
        found = [each for each in snapshot.nccl_libraries or [] if each.path != ORIGIN]
        return msgspec.structs.replace(snapshot, nccl_libraries=[library, *found])
    if name not in _PLACES:
        return snapshot
    path, convert = _PLACES[name]
    changed: Snapshot = _with(snapshot, path, convert(assumption))
    return changed


def _apply_to_gpus(snapshot: Snapshot, assumption: Assumption, name: str, which: str | None) -> Snapshot:
    place = _GPU_PLACES.get(name.removeprefix("gpu."))
    chosen = {gpu.index for gpu in snapshot.gpus} if which is None else set(_indices(snapshot, assumption, which, 1))
    if place is None:
        return snapshot
    path, convert = place
    value = convert(assumption)
    gpus = [_with(gpu, path, value) if gpu.index in chosen else gpu for gpu in snapshot.gpus]
    return msgspec.structs.replace(snapshot, gpus=gpus)


def _apply_to_pairs(snapshot: Snapshot, assumption: Assumption, kind: str, which: str | None) -> Snapshot:
    """Both directions of one pair, or every ordered pair."""
    status = _one_of(*_STATUSES)(assumption)
    every = [gpu.index for gpu in snapshot.gpus]
    chosen = set(permutations(every if which is None else _indices(snapshot, assumption, which, 2), 2))
    known = {(pair.a, pair.b): pair for pair in snapshot.p2p or []}
    for a, b in sorted(chosen):
        known[a, b] = msgspec.structs.replace(known.get((a, b), P2p(a=a, b=b)), **{kind: status})
    return msgspec.structs.replace(snapshot, p2p=list(known.values()))


def _indices(snapshot: Snapshot, assumption: Assumption, which: str, count: int) -> list[int]:
    numbers = [part.strip().removeprefix("gpu:") for part in re.split(r"[,-]", which)]
    present = {str(gpu.index): gpu.index for gpu in snapshot.gpus}
    if len(set(numbers)) != count or not set(numbers) <= set(present):
        raise InputError(
            f"the assumed fact `{assumption.fact}` names a GPU that is not here",
            hint=f"The GPUs here are {', '.join(present)}." if present else "There is no GPU here.",
        )
    return [present[number] for number in numbers]


def _apply_to_settings(snapshot: Snapshot, name: str, value: str) -> Snapshot:
    """Put the variable first, or with an empty value remove it.

    Settings that were not read stay so: one assumed variable says nothing about the others.
    """
    if snapshot.settings is None:
        return snapshot
    others = [setting for setting in snapshot.settings if setting.origin != ORIGIN or setting.name != name]
    if not value:
        return msgspec.structs.replace(snapshot, settings=[each for each in others if each.name != name])
    return msgspec.structs.replace(snapshot, settings=[Setting(name=name, value=value, origin=ORIGIN), *others])


def settings(snapshot: Snapshot) -> list[Setting]:
    """The variables that are set as far as that is known: those that were read, else those that are assumed."""
    if snapshot.settings is not None:
        return snapshot.settings
    return [
        Setting(name=each.fact.removeprefix("env."), value=_text(each), origin=ORIGIN)
        for each in snapshot.assumptions
        if each.fact.startswith("env.") and _text(each)
    ]


def grants(snapshot: Snapshot) -> dict[tuple[int, int], bool]:
    """Ordered pair of GPU indexes → whether peer access is assumed to be granted (`pair.p2p.ok`), the last word wins.

    Raises InputError for a pair that is not there.
    """
    found: dict[tuple[int, int], bool] = {}
    for each in snapshot.assumptions:
        indexed = _INDEXED.fullmatch(each.fact)
        name = f"{indexed['kind']}.{indexed['rest']}" if indexed else each.fact
        if name.removeprefix("pair.") == "p2p.ok":
            every = [gpu.index for gpu in snapshot.gpus]
            chosen = _indices(snapshot, each, indexed["which"], 2) if indexed else every
            granted = str(each.value).lower() in ("true", "yes", "on", "1")
            found |= dict.fromkeys(permutations(chosen, 2), granted)
    return found


def _text(assumption: Assumption) -> str:
    value = assumption.value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise assumption.refused("is a text", _HINT)


def _integer(assumption: Assumption) -> int:
    value = _scalar(assumption.value) if isinstance(assumption.value, str) else assumption.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise assumption.refused("is a whole number", _HINT)


def _number(assumption: Assumption) -> float:
    value = _scalar(assumption.value) if isinstance(assumption.value, str) else assumption.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise assumption.refused("is a number", _HINT)


def _bool(assumption: Assumption) -> bool:
    value = _scalar(assumption.value) if isinstance(assumption.value, str) else assumption.value
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("yes", "on", "no", "off"):
        return str(value).lower() in ("yes", "on")
    raise assumption.refused("is true or false", _HINT)


def _one_of(*words: str) -> Callable[[Assumption], str]:
    def convert(assumption: Assumption) -> str:
        if assumption.value in words:
            return str(assumption.value)
        raise assumption.refused(f"is one of {', '.join(words)}", _HINT)

    return convert


def _capability(assumption: Assumption) -> str:
    return f"{_number(assumption):.1f}"


_Place = tuple[tuple[str, ...], Callable[[Assumption], Any]]

_GPU_PLACES: dict[str, _Place] = {
    "name": (("name",), _text),
    "memory_bytes": (("memory_bytes",), _integer),
    "bar1_bytes": (("bar1_bytes",), _integer),
    "compute_capability": (("compute_capability",), _capability),
    "numa_node": (("numa_node",), _integer),
    "c2c_gbps": (("c2c_gbps",), _number),
    "mig": (("mig",), _bool),
    "virtualization": (("virtualization",), _one_of("none", "passthrough", "vgpu", "host-vgpu", "host-vsga")),
    "pcie.current_gen": (("pcie", "current_gen"), _integer),
    "pcie.max_gen": (("pcie", "max_gen"), _integer),
    "pcie.device_max_gen": (("pcie", "device_max_gen"), _integer),
    "pcie.current_width": (("pcie", "current_width"), _integer),
    "pcie.max_width": (("pcie", "max_width"), _integer),
}
_PLACES: dict[str, _Place] = {
    "cpu.vendor": (("host", "cpu", "vendor"), _text),
    "cpu.architecture": (("host", "cpu", "architecture"), _text),
    "cpu.model_name": (("host", "cpu", "model_name"), _text),
    "cpu.family": (("host", "cpu", "family"), _integer),
    "cpu.model": (("host", "cpu", "model"), _integer),
    "cpu.sockets": (("host", "cpu", "sockets"), _integer),
    "driver.version": (("driver", "version"), _text),
    "driver.flavour": (("driver", "flavour"), _one_of("open", "proprietary")),
    "driver.banner": (("driver", "banner"), _text),
    "cuda.version": (("driver", "cuda"), _text),
    "vm.hypervisor": (("host", "hypervisor"), _text),
    "container.kind": (("host", "container"), _text),
    "shm.total_bytes": (("host", "shm_total_bytes"), _integer),
    "shm.free_bytes": (("host", "shm_free_bytes"), _integer),
    "limits.memlock_bytes": (("host", "memlock_bytes"), _integer),
    "limits.open_files": (("host", "open_files"), _integer),
    "kernel.version": (("host", "kernel"), _text),
    "kernel.command_line": (("host", "command_line"), _text),
    "platform.vendor": (("host", "dmi", "sys_vendor"), _text),
    "platform.product": (("host", "dmi", "product_name"), _text),
    "net.default_interface": (("host", "default_interface"), _text),
}
_EMPTY: dict[str, Any] = {"cpu": Cpu(), "pcie": PcieLink(), "dmi": {}}


def _with(struct: Any, path: tuple[str, ...], value: Any) -> Any:
    """A copy of a struct (or mapping) in which one nested value is another."""
    name, *rest = path
    inside = struct.get(name) if isinstance(struct, dict) else getattr(struct, name)
    if rest:
        value = _with(_EMPTY[name] if inside is None else inside, tuple(rest), value)
    return {**struct, name: value} if isinstance(struct, dict) else msgspec.structs.replace(struct, **{name: value})
