"""Which of the advised variables go into a configuration file, and whether their values are safe to write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from topoadvisor.advice import Advice, AdvisedSetting, SettingClass
from topoadvisor.errors import TopoAdvisorError
from topoadvisor.measurements.proven import TRIAL
from topoadvisor.nccl import conf, versions
from topoadvisor.snapshot import Snapshot

INCLUDABLE: Final[frozenset[SettingClass]] = frozenset({"tuning", "workaround"})
"""Classes that are written only when asked for. `system` always is, `diagnostic` never."""


@dataclass(frozen=True)
class Chosen:
    """One variable to write. Several rules may ask for the same value."""

    name: str
    value: str
    settings: tuple[AdvisedSetting, ...]


@dataclass(frozen=True)
class LeftOut:
    """A setting that is advised but not written."""

    setting: AdvisedSetting
    why: str


@dataclass(frozen=True)
class Selection:
    """What a configuration file gets: each list in the order of the advice."""

    chosen: tuple[Chosen, ...]
    left_out: tuple[LeftOut, ...]
    unset: tuple[AdvisedSetting, ...]
    passed_over: tuple[str, ...]
    """Trials that won and are not advised, one sentence each."""
    nothing: str | None
    """Why nothing is written, when nothing is."""


def parse_classes(texts: Iterable[str]) -> frozenset[SettingClass]:
    """The classes named in `--include`, each text a list with commas. Raises TopoAdvisorError for any other word."""
    wanted: set[SettingClass] = set()
    for word in (word.strip() for text in texts for word in text.split(",")):
        if word in INCLUDABLE:
            wanted.add(word)
        elif word == "diagnostic":
            raise TopoAdvisorError(
                "diagnostic variables are never written into a configuration file",
                hint="Set them by hand for the one run that needs them.",
            )
        elif word and word != "system":
            raise TopoAdvisorError(
                f"there is no class of settings called {word!r}",
                hint="`--include` takes tuning and workaround; system settings are always included.",
            )
    return frozenset(wanted)


def nccl_version(snapshot: Snapshot) -> str | None:
    """The NCCL that the settings are for: the version assumed last, or else of the library found first."""
    assumed = [str(assumption.value) for assumption in snapshot.assumptions if assumption.fact == "nccl.version"]
    found = [library.version for library in snapshot.nccl_libraries or [] if library.version]
    return next((version for version in [*reversed(assumed), *found] if versions.is_version(version)), None)


def select(
    advice: Advice, include: frozenset[SettingClass], nccl_version: str | None, *, for_conf: bool = False
) -> Selection:
    """Choose by class and NCCL version, and check that every chosen value can be written.

    `nccl_version` None = not known: conditions on it are then not applied. `for_conf`: for NCCL's own file, which
    other libraries do not read.

    Raises TopoAdvisorError for a value that is not safe to write and for two values of one variable.
    """
    groups: dict[str, list[AdvisedSetting]] = {}
    left_out = []
    wanted = [setting for setting in advice.settings if setting.action == "set"]
    reasons = [
        _why_not(setting, include, nccl_version) or (_why_not_in_conf(setting.name) if for_conf else None)
        for setting in wanted
    ]
    # What won a trial together is known to do good together only.
    apart = next((each.name for each, why in zip(wanted, reasons, strict=True) if why and each.rule == TRIAL), None)
    for setting, why in zip(wanted, reasons, strict=True):
        if why is None and setting.rule == TRIAL and apart is not None:
            left_out.append(LeftOut(setting, f"it was tried together with {apart}, which is not written"))
        elif why is None:
            groups.setdefault(setting.name, []).append(setting)
        else:
            left_out.append(LeftOut(setting, why))
    chosen = tuple(_checked(name, settings) for name, settings in groups.items())
    nothing = None
    if not chosen:
        nothing = advice.set_nothing or "Nothing that is advised is to be written here."
    return Selection(
        chosen=chosen,
        left_out=tuple(left_out),
        unset=tuple(setting for setting in advice.settings if setting.action == "unset"),
        passed_over=tuple(advice.passed_over),
        nothing=nothing,
    )


def _why_not(setting: AdvisedSetting, include: frozenset[SettingClass], nccl_version: str | None) -> str | None:
    kind = setting.setting_class
    if kind == "diagnostic":
        return "diagnostic, which never belongs in a file"
    if kind in INCLUDABLE and kind not in include:
        return f"class {kind}; `--include {kind}` adds it"
    if setting.nccl and nccl_version and not versions.satisfies(nccl_version, setting.nccl):
        return f"it is for NCCL {version_words(setting.nccl)}, and this is {nccl_version}"
    return None


def _why_not_in_conf(name: str) -> str | None:
    if name == conf.NAMED_BY:
        return "it counts in the process environment only; `topoadvisor emit shell` writes it"
    owner = conf.reader(name)
    if owner is not None and conf.in_time(owner):
        return None
    who = "whoever reads it" if owner is None else f"{owner}, which reads it,"
    return f"{who} may do so before NCCL hands on the lines of its file; `topoadvisor emit shell` writes it"


def version_words(conditions: str) -> str:
    """A version condition such as `>=2.21,<2.27` in words, without any of its signs."""
    words = {
        ">=": "{} or newer",
        ">": "newer than {}",
        "<=": "up to {}",
        "<": "older than {}",
        "==": "{}",
        "!=": "other than {}",
    }
    return " and ".join(words[sign].format(version) for sign, version in versions.split(conditions))


def _checked(name: str, settings: list[AdvisedSetting]) -> Chosen:
    values = {setting.value for setting in settings}
    rules = ", ".join(dict.fromkeys(setting.rule for setting in settings))
    if len(values) > 1:
        raise TopoAdvisorError(
            f"the rules {rules} want different values of {name}",
            hint="One of the rules must say that it overrides the other; `topoadvisor rules check` finds such pairs.",
        )
    value = values.pop()
    fault = conf.unwritable(name, value or "")
    if fault or value is None:
        raise TopoAdvisorError(
            f"rule {rules} wants {name} to be {value!r}, which cannot be written: {fault}",
            hint="NCCL reads its files literally. Correct the rule, or report this if the rule ships with topoadvisor.",
        )
    return Chosen(name, value, tuple(settings))
