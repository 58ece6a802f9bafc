"""Facts about NCCL's variables: what is set, where, and which P2P level that gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Final

from topoadvisor.nccl import choices, defaults, levels, settings, versions
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.rules import facts_vendor, facts_visible
from topoadvisor.rules.assumed import Assumed
from topoadvisor.rules.functions import exact, matches_set
from topoadvisor.rules.scope import ASSUMED, SETTINGS, Fact, Known, Scope, Sources, Unknown, blend, follow
from topoadvisor.snapshot import LOG, Setting, Snapshot, only_logged

_UNIFORM_SINCE: Final = "2.23.4"
"""First NCCL whose default P2P level depends on nothing but an AMD CPU with at most two GPUs."""

_NEIGHBOURS: Final = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "LOCAL_WORLD_SIZE",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "NVSHMEM_HCA_LIST",
)
"""Variables of others that facts are made of."""

_TAKEN_AS_UNSET: Final = "inferred: NCCL's variables were not read and are taken as unset"
_DISABLE, _LEVEL = "env.NCCL_P2P_DISABLE", "env.NCCL_P2P_LEVEL"


def gather(node: Scope, snapshot: Snapshot, sources: Sources, assumed: Assumed) -> Fact:
    """Record `env.*` and the P2P levels; needs `gpus.count` and `cpu.*`. Returns what any unnamed variable is."""
    read = snapshot.settings is not None
    unset: Fact = Known("", sources.origin(*SETTINGS)) if read else Unknown(sources.why(*SETTINGS))
    if snapshot.origin == LOG or only_logged(snapshot.settings):
        unset = Unknown("a log of NCCL shows only variables that are set and were used so far")
    names = dict.fromkeys([*settings.registry(), *_NEIGHBOURS], unset)
    for setting in reversed(snapshot.settings or []):
        names[setting.name] = Known(setting.value, setting.origin)
    for name in assumed.of("node"):
        if name.startswith("env."):
            names.setdefault(name.removeprefix("env."), unset)
    for name, fact in names.items():
        node.put(f"env.{name}", fact)
    _p2p_levels(node)
    return unset


def _p2p_levels(node: Scope) -> None:
    version = node.facts["nccl.version"]
    number = version.value if isinstance(version, Known) else None
    if number is not None and not _is_version(number):
        version, number = Unknown(f"{number!r} is no version"), None
    machine = [node.facts["cpu.architecture"], node.facts["cpu.vendor"], node.facts["gpus.count"]]
    # NCCL counts the GPUs of a job, not of the machine, and a job sees no more than CUDA_VISIBLE_DEVICES lets it.
    count = node.value("gpus.count")
    visible = facts_visible.indexes(str(node.value("env.CUDA_VISIBLE_DEVICES") or ""), count or 0)
    default = defaults.p2p_level(
        number,
        arch=node.value("cpu.architecture"),
        cpu_vendor=node.value("cpu.vendor"),
        cpu_family=node.value("cpu.family"),
        cpu_model=node.value("cpu.model"),
        gpus=len(visible) if visible else count,
    )
    missing = next((fact.reason for fact in (version, *machine) if isinstance(fact, Unknown)), "NCCL is too old to say")
    why = blend([version, *machine])
    known = node.read("nccl.default_p2p_level", default.name if default is not None else None, why, missing)
    node.put("nccl.default_reason", follow(lambda level: _reason(level, number, node.value("cpu.vendor")), known))
    disable, level = node.facts[_DISABLE], node.facts[_LEVEL]
    first, second = (fact.value or None if isinstance(fact, Known) else None for fact in (disable, level))
    chosen = levels.user_p2p_level(first, second, number).level
    used: Fact = known if chosen is None else Known(chosen.name, blend([disable, level]))
    if isinstance(used, Known) and (isinstance(disable, Unknown) or isinstance(level, Unknown)):
        used = Known(used.value, _TAKEN_AS_UNSET)
    node.put("nccl.p2p_level", used)


def _reason(level: str, version: str | None, vendor: str | None) -> str:
    """Why this is NCCL's default, as one clause."""
    if version is None:
        return f"by default every NCCL stops at {level} on such a machine"
    if not versions.at_least(version, _UNIFORM_SINCE):
        return f"NCCL {version} stops at {level} by default on {vendor or 'such'} CPUs"
    if level == NcclPath.SYS.name:
        return (
            f"since {_UNIFORM_SINCE} NCCL allows P2P across the whole machine only with an AMD CPU and at most two GPUs"
        )
    return f"since {_UNIFORM_SINCE} NCCL stops at {level} by default, except with an AMD CPU and at most two GPUs"


def _is_version(text: str) -> bool:
    try:
        versions.parse(text)
    except ValueError:
        return False
    return True


_SELECTED = {"hca": "rdma.names", "ifname": "net.interfaces"}
"""Parser kind → the fact with the names that a value of this kind selects from."""

_WORDS = {"algo": choices.ALGORITHMS, "proto": choices.PROTOCOLS}


def variables(snapshot: Snapshot, node: Scope, assumed: Assumed) -> dict[str, Scope]:
    """Subject id → facts of every setting, overridden ones too, in the order of precedence: assumed ones first."""
    scopes: dict[str, Scope] = {}
    entries = [*_supplied(snapshot, assumed), *(snapshot.settings or [])]
    removed = {name for name, value in assumed.of("node").items() if value == ""}
    entries = [setting for setting in entries if f"env.{setting.name}" not in removed]
    seen: set[str] = set()
    winners: dict[str, Setting] = {}
    for setting in entries:
        winners.setdefault(setting.name, setting)
    for setting in entries:
        identity = f"variable:{setting.name}"
        if setting.name in seen:
            identity += f"@{setting.origin}" + (f":{setting.line}" if setting.line else "")
        scope = _variable(setting, setting.name in seen, node, assumed.of("variable"))
        winner = winners[setting.name]
        scope.put("variable.winner", Known(winner.value, "derived"))
        scope.put("variable.winner_origin", Known(winner.origin, "derived"))
        scopes[identity] = scope
        seen.add(setting.name)
    return scopes


def _supplied(snapshot: Snapshot, assumed: Assumed) -> list[Setting]:
    """Assumed variables that the snapshot does not hold as such yet."""
    there = {setting.name for setting in snapshot.settings or [] if setting.origin == ASSUMED}
    names = {name.removeprefix("env."): value for name, value in assumed.of("node").items() if name.startswith("env.")}
    return [Setting(name=name, value=text, origin=ASSUMED) for name, text in names.items() if name not in there]


def _variable(setting: Setting, overridden: bool, node: Scope, assumed: Mapping[str, object]) -> Scope:
    scope = Scope(assumed)
    info = settings.registry().get(setting.name)
    origin = setting.origin
    scope.put("variable.name", Known(setting.name, origin))
    scope.put("variable.value", Known(setting.value, origin))
    scope.put("variable.origin", Known(setting.origin, origin))
    scope.put("variable.line", Known(setting.line or 0, origin))
    scope.put("variable.known", Known(info is not None, "catalogue"))
    scope.put("variable.class", Known(info.setting_class if info else "", "catalogue"))
    scope.put("variable.parser", Known((info.parser if info else None) or "", "catalogue"))
    scope.put("variable.since", Known((info.since if info else None) or "", "catalogue"))
    scope.put("variable.removed", Known((info.removed if info else None) or "", "catalogue"))
    release = node.value("nccl.version")
    alike = defaults.is_default(setting.name, setting.value, release if release and _is_version(release) else None)
    scope.put("variable.is_default", Known(alike, "catalogue"))
    numeric = info is not None and info.parser in ("int", "bool-int")
    integer = levels.parse_int(setting.value) if numeric else None
    why = "NCCL keeps its default for this text" if numeric else f"{setting.name} is no number for NCCL"
    scope.read("variable.integer", integer, "derived", why)
    selectable = _SELECTED.get(info.parser or "") if info is not None else None
    nothing = Unknown(f"{setting.name} selects no devices")
    selects = follow(lambda names: matches_set(setting.value, names), node.facts[selectable]) if selectable else nothing
    scope.put("variable.selects", selects)
    near = node.facts["rdma.gpu_local"]
    omits = follow(lambda chosen, local: [name for name in local if name not in chosen], selects, near)
    scope.put("variable.omits", omits if info is not None and info.parser == "hca" else nothing)
    scope.put("variable.missing", _missing(setting, node))
    scope.put("variable.exact", Known(exact(setting.value), "derived") if selectable else nothing)
    known_words = _WORDS.get(info.parser or "") if info is not None else None
    no_list = Unknown(f"{setting.name} is no list of algorithms or protocols")
    unknown_words = choices.unknown_words(setting.value, known_words) if known_words else []
    scope.put("variable.unknown_words", Known(unknown_words, "derived") if known_words else no_list)
    forced = Known(choices.forces_ll128(setting.value), "derived")
    scope.put("variable.forces_ll128", forced if known_words is choices.PROTOCOLS else no_list)
    no_algorithms = Unknown(f"{setting.name} is no list of algorithms")
    only = Known(choices.needs_nvls(setting.value), "derived")
    scope.put("variable.needs_nvls", only if known_words is choices.ALGORITHMS else no_algorithms)
    scope.put("variable.level", _level(setting, info, node))
    scope.put("variable.overridden", Known(overridden, "derived"))
    _register(scope, setting)
    facts_vendor.of_variable(scope, setting.name, overridden, node)
    return scope


def _missing(setting: Setting, node: Scope) -> Fact:
    """Names in the value that nothing here has. Gloo takes whole names, NCCL beginnings of them."""
    names = [name.strip() for name in setting.value.split(",") if name.strip()]
    if setting.name == "GLOO_SOCKET_IFNAME":
        return follow(lambda here: [name for name in names if name not in here], node.facts["net.interfaces"])
    if setting.name == "NCCL_IB_HCA":
        prefix = "=" if setting.value.lstrip("^").startswith("=") else ""
        bare = [name.lstrip("^=") for name in names]
        return follow(
            lambda here: [name for name in bare if not matches_set(f"{prefix}{name}", here)], node.facts["rdma.names"]
        )
    return Unknown(f"{setting.name} is no list of devices")


def _register(scope: Scope, setting: Setting) -> None:
    """What the register of variables says of the name, and what is odd about how it is written."""
    info, invention = settings.find(setting.name), settings.inventions().get(setting.name)
    scope.put("variable.owner", Known(info.owner if info else "", "catalogue"))
    scope.put("variable.replacement", Known((info.replacement if info else None) or "", "catalogue"))
    scope.put("variable.invented", Known(invention is not None, "catalogue"))
    instead = ", ".join(invention.instead) if invention else ""
    scope.put("variable.instead", Known(instead, "catalogue"))
    near = "" if info or invention or settings.family(setting.name) else _slip(setting.name)
    scope.put("variable.nearest", Known(near, "catalogue"))
    bent = bool(_BENT_NAME.search(setting.name)) or _bent_value(setting)
    scope.put("variable.bent", Known(bent, "derived"))
    scope.read("variable.file_exists", setting.exists, setting.origin, "whether the file exists was not looked at")


_BENT_NAME: Final = re.compile(r"^export\b|\s|^[^A-Za-z_]")


def _bent_value(setting: Setting) -> bool:
    """Blanks and quotes that a shell would take away and NCCL's files do not; a value from the environment is meant."""
    text = setting.value
    in_file = setting.line is not None
    return in_file and (text != text.strip() or (len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"))


_OF_BUILDS: Final = re.compile(r"NCCL_(VERSION|HOME|ROOT|ROOT_DIR|DIR|PREFIX|INCLUDE\w*|LIB\w*|LINK\w*|PATH)")
"""What images and build scripts call their own settings; NCCL is not meant to read them."""
_ALIKE: Final = 0.88
_PREFIX_SLIP: Final = re.compile(r"CCL|NCC|NCL+|NN+CCL|NCCC+L|NCCLL+")
"""NCCL with a letter lost or doubled."""


@lru_cache(maxsize=10_000)
def _slip(name: str) -> str:
    """The name that NCCL reads and that was probably meant; empty when none is close."""
    head, _, rest = name.partition("_")
    if _PREFIX_SLIP.fullmatch(head):
        return f"NCCL_{rest}" if f"NCCL_{rest}" in _names() else ""
    if head != "NCCL" or _OF_BUILDS.fullmatch(name):
        return ""
    close = get_close_matches(name, _names(), n=1, cutoff=_ALIKE)
    return close[0] if close else _by_words().get(_words(name), "")


def _words(name: str) -> tuple[str, ...]:
    return tuple(sorted(name.split("_")))


@cache
def _by_words() -> dict[tuple[str, ...], str]:
    """Names by the words in them, for those that have theirs in another order: `NCCL_DISABLE_P2P`."""
    return {_words(name): name for name in _names() if name.startswith("NCCL_")}


@cache
def _names() -> tuple[str, ...]:
    return tuple(settings.registry())


def _level(setting: Setting, info: settings.SettingInfo | None, node: Scope) -> Fact:
    if info is None or info.parser not in ("level", "merge-level"):
        return Unknown(f"{setting.name} is no level variable")
    if info.parser == "merge-level":
        reading = levels.parse_merge_level(setting.value)
    else:
        version = node.value("nccl.version")
        reading = levels.parse_level(setting.value, version if version and _is_version(version) else None)
    return Known(reading.level.name if reading.level is not None else "", "derived")
