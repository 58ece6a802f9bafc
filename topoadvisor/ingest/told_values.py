"""The value of a fact as a person wrote it, in the type of the fact."""

from __future__ import annotations

import re
from typing import Any, Final

from topoadvisor.ingest.smi_query import FABRIC_STATUSES
from topoadvisor.nccl import consumers, versions
from topoadvisor.snapshot import Assumption
from topoadvisor.vocabulary import FORMS, TYPE_WORDS, VOCABULARY, FactType, bounds, spec

_ANSWERS: Final = ("pair.p2p.read", "pair.p2p.write", "pair.p2p.nvlink")
_LAYERS: Final = ("nic.link_layer", "rdma.link_layers", "rdma.local_link_layers")
_SERVICES: Final = ("fabricmanager.state", "imex.state")
_VERSIONS: Final[dict[str, tuple[str, int, int]]] = {
    "nccl.version": ("2.28.9", 2, 99),
    "nccl.versions": ("2.28.9", 2, 99),
    "driver.version": ("580.95.05", 300, 999),
    "fabricmanager.version": ("580.95.05", 300, 999),
    "cuda.version": ("13.0", 7, 99),
    "kernel.version": ("6.8.0", 2, 99),
}
"""Facts that are versions → one of them, and the least and greatest first number."""


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

REFUSALS: Final = frozenset(
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

_MEASURED: Final = re.compile(r"([+-]?[0-9]{1,18}(?:\.[0-9]{0,18})?) ?([A-Za-z/]*)")
_STEERING: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Colours of a log, and what else acts on a terminal."""
_LEADING: Final = re.compile(r"(?:nccl|cuda|nvidia|driver|linux|r)[ -]*(?=v?[0-9])", re.I)
_EXAMPLES: Final[dict[FactType, str]] = {"bool": "true", "int": "8", "number": "9.0", "text": "TEXT", "texts": "a, b"}


def typed(value: Any) -> str:
    """A value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def read(assumption: Assumption, name: str) -> Any:
    """The value in the type of the fact. Raises InputError when it is of another type."""
    value, fact = assumption.value, spec(name)
    assert fact is not None
    if isinstance(value, str) and fold(value.strip()) == "unknown" and name != "job.message":
        raise assumption.refused("is left out where it is not known", "Delete the line.")
    if fact.type == "texts":
        return _list(assumption, name)
    if not isinstance(value, str | int | float):
        raise assumption.refused(f"is {TYPE_WORDS[fact.type]}", _example(name, fact.type))
    text = str(value).strip()
    if fact.type == "text":
        return _text(assumption, name, str(value).lower() if isinstance(value, bool) else text)
    if fact.type == "bool":
        word = SPELLINGS.get(name, {}).get(fold(text), fold(text))
        if word in TRUTH:
            return TRUTH[word]
    elif not isinstance(value, bool):
        number = number_of(name, text)
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
    example = _VERSIONS[name][0] if name in _VERSIONS else "64 MiB" if name.endswith("_bytes") else _EXAMPLES[kind]
    return f"Write it as {name}={example}."


def number_of(name: str, text: str) -> float | int | None:
    """A number with or without its unit, None when it is none."""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,15}", text):
        return int(text, 16)
    if text.lower() in ("unlimited", "infinity") and name.startswith("limits."):
        return -1
    if name == "gpu.fabric.status" and fold(text) in FABRIC_STATUSES:
        return FABRIC_STATUSES[fold(text)]
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
    if name == "job.message":
        text = _STEERING.sub("", text)
    elif not name.startswith("env.") and not (text := re.sub(r"[\t\xa0]+", " ", text)).isprintable():
        raise assumption.refused("is a text of one line without control characters", _example(name, "text"))
    if name in _VERSIONS:
        version = _LEADING.sub("", text, count=1)
        _check_version(assumption, name, version)
        return versions.release(version) if name == "nccl.version" else version
    text = SPELLINGS.get(name, {}).get(fold(text), text.lower() if name in _LOWER else text)
    if name == "job.symptom":
        text = _symptom(text)
    if name == "job.xids":
        return _xid(assumption, text)
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


def _xid(assumption: Assumption, text: str) -> str:
    found = re.fullmatch(r"(?:xid[ :]*)?0*([1-9][0-9]{0,2})", text, re.I)
    if found is None:
        raise assumption.refused("lists numbers of Xids, 1 to 999", "Write it as job.xids=79, 119.")
    return found[1]


def _check_version(assumption: Assumption, name: str, version: str) -> None:
    """Raises InputError for what is no version of this software, or of one that no GPU of today ran with."""
    example, least, most = _VERSIONS[name]
    dated = re.match(r"(?:19|20)[0-9]{2}-?[01][0-9]-?[0-3][0-9]", version)
    if dated or not versions.is_version(version):
        raise assumption.refused("is a version", _example(name, "text"))
    numbers = versions.parse(version)
    if name.startswith("nccl.") and len(numbers) == 1:
        raise assumption.refused("names a release or a series", _example(name, "text"))
    if name.startswith("nccl.") and numbers[0] == 1:
        raise assumption.refused(
            "is a release of NCCL 2",
            "NCCL 1 has no networks and none of today's settings, and no rule is about it: leave it out.",
        )
    if not least <= numbers[0] <= most:
        raise assumption.refused(f"begins with a number from {least} to {most}", f"Write it as {name}={example}.")


def _symptom(text: str) -> str:
    """The one symptom that the words of a phrase mean: `silent corruption`; the phrase itself where they mean more."""
    spellings = SPELLINGS["job.symptom"]
    words = fold(text).split("-")
    meant = {
        each if each in spellings.values() else spellings[each]
        for each in words
        if each in spellings or each in spellings.values()
    }
    return meant.pop() if len(meant) == 1 and not {"no", "not", "without"} & set(words) else text


def _word(form: str, text: str) -> str | None:
    """The word of a form that is meant, whatever its capital letters, blanks and hyphens."""
    written = (text, text.upper(), text.lower(), fold(text))
    return next((each for each in written if re.fullmatch(form, each)), None) or next(
        (word for word in form.split("|") if fold(word) == fold(text)), None
    )


def fold(text: str) -> str:
    return re.sub(r"[\s_-]+", "-", text.lower())


def shown(form: str) -> str:
    """The words of a form as a person reads them: NV#, C2C, PIX."""
    return ", ".join(word.partition("[")[0] + "#" * ("[" in word) for word in form.split("|") if word)
