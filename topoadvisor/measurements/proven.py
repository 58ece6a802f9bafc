"""What trials of settings say (`topoadvisor prove`): lines for the screen, and which settings are advised. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from topoadvisor.advice import AdvisedSetting, AlreadyRight, SettingClass
from topoadvisor.measurements import runs, variables
from topoadvisor.measurements.model import Measurement, Trial, TrialSize
from topoadvisor.measurements.variables import words
from topoadvisor.nccl import conf, reading, versions
from topoadvisor.nccl import settings as register
from topoadvisor.numbers import size_text
from topoadvisor.snapshot import Snapshot, places

TRIAL: Final = "trial"
"""Stands where a setting names its rule: it comes from `topoadvisor prove`."""

MEASURES_WITH: Final = (
    *("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_COMM_ID", "NCCL_HOSTID", "CUDA_VISIBLE_DEVICES"),
)
"""A trial sets them itself, or would be another one with them."""

MOVES_TRAFFIC: Final = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_P2P_DIRECT_DISABLE", "NCCL_SHM_DISABLE")
"""They decide which way traffic takes. What helps a ring there can ruin all pairs at once: with P2P between GPUs that
only CPUs join all_reduce gained a fifth, and alltoall lost nine tenths (NVIDIA/nccl#1817)."""

_NAME_FILES: Final = ("_PLUGIN", "_FILE", "_PATH", "_LIB", "_DIR", "_DIRECTORY")
"""How names of variables end that name files or libraries, where the register does not say so."""
_LARGE_BYTES: Final = 8 << 20
_AGREE: Final = 1.25
_AGREE_SMALL: Final = 2.0
"""How far two measurements of one collective lie apart at most, as a ratio: large ones scatter by a few percent, and
the start of small ones by far more."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
"""Of a trial without a date: any other is newer."""


def lines(snapshot: Snapshot) -> list[str]:
    """One line per trial."""
    return [_line(each, snapshot) for each in snapshot.trials]


def _everywhere(trial: Trial, snapshot: Snapshot) -> bool:
    return set(trial.gpus) == {gpu.index for gpu in snapshot.gpus}


def _over(trial: Trial, snapshot: Snapshot) -> str:
    """The GPUs of a trial that did not take all."""
    return "" if _everywhere(trial, snapshot) else f" over {', '.join(f'GPU{index}' for index in trial.gpus)}"


def _line(trial: Trial, snapshot: Snapshot) -> str:
    told_of = words(trial.settings) + _over(trial, snapshot)
    alike = next((each for each in snapshot.trials if each is not trial and _tried(each) == _tried(trial)), None)
    date = f" ({_on(trial, alike).removeprefix(' on ')})" if trial.date else ""
    if trial.failure:
        return f"{told_of}: broke in a trial{date}"
    faster, slower = _at(trial, "faster"), _at(trial, "slower")
    told = [
        f"faster at {_spread(faster)}" if faster else "",
        f"slower at {_spread(slower)}" if slower else "",
        _undecided(trial).removeprefix(", "),
    ]
    outcome = "; ".join(filter(None, told)) or ("no difference" if trial.sizes else "no size was compared")
    return f"{told_of}: {outcome} in a trial of {_rounds(trial)}{date}"


def _rounds(trial: Trial) -> str:
    return f"{trial.rounds} round{'s' * (trial.rounds != 1)}"


def _undecided(trial: Trial) -> str:
    count = len(_at(trial, "unknown"))
    return f", not decided at {count} size{'s' * (count != 1)}" if count else ""


def _hidden(trial: Trial) -> str:
    """Losses that may hide in scatter, at how many sizes, and the largest."""
    losses = [each.may_lose for each in trial.sizes if each.may_lose is not None]
    count = f"{len(losses)} size{'s' * (len(losses) != 1)}"
    return f" (scatter at {count} may hide a loss of up to {100 * max(losses):.0f} %)" if losses else ""


def _untried(trial: Trial) -> str:
    moved = any(name in MOVES_TRAFFIC for name in trial.settings)
    return ", alltoall not tried, which can lose by it" if moved and "alltoall" not in _collectives(trial) else ""


def _at(trial: Trial, verdict: str) -> list[TrialSize]:
    return [size for size in trial.sizes if size.verdict == verdict]


def _spread(sizes: Sequence[TrialSize]) -> str:
    shares = [100 * (each.difference or 0) for each in sizes]
    low, high = min(shares), max(shares)
    by = f"{low:+.1f} %" if high - low < 0.05 else f"{low:+.1f} to {high:+.1f} %"
    return f"{len(sizes)} size{'s' * (len(sizes) != 1)} ({by})"


@dataclass(frozen=True)
class Proven:
    """What the trials of a snapshot come to."""

    settings: list[AdvisedSetting] = field(default_factory=list)
    right: list[AlreadyRight] = field(default_factory=list)
    """What of the best trial is in force already."""
    passed_over: list[str] = field(default_factory=list)
    """Trials that won and are not advised, with the reason, one sentence each."""


@dataclass(frozen=True)
class _Here:
    """What a trial is held against."""

    snapshot: Snapshot
    version: str | None
    """NCCL's; None = not known."""
    taken: Collection[str]
    gpus: Collection[int]

    def elsewhere(self, trial: Trial) -> str | None:
        """With what else it was made; None when that is what is here, as far as is known.

        What broke counts until it does not, also where the variables were not recorded.
        """
        driver = self.snapshot.driver.version
        if self.version is not None and trial.nccl is None:
            return "a trial that does not say with which NCCL"
        if self.version is not None and versions.release(trial.nccl or "") != versions.release(self.version):
            return f"a trial with NCCL {trial.nccl}, and this is {self.version}"
        if driver is not None and trial.driver is None:
            return "a trial that does not say with which driver"
        if driver is not None and trial.driver != driver:
            return f"a trial with driver {trial.driver}, and this is {driver}"
        if trial.failure is not None and trial.variables is None:
            return None
        how = variables.changed(trial.variables, self.snapshot, trial.settings)
        return f"a trial {how}" if how is not None else None

    @cached_property
    def _groups(self) -> dict[Hashable, list[Trial]]:
        groups: dict[Hashable, list[Trial]] = {}
        for each in sorted(self.snapshot.trials, key=lambda trial: trial.moment or _LONG_AGO):
            if (each.failure is not None or _collectives(each)) and self.elsewhere(each) is None:
                groups.setdefault(_tried(each), []).append(each)
        return groups

    def alike(self, trial: Trial) -> list[Trial]:
        """Trials of the same settings over the same GPUs that were made with what is here and decided something.

        The newest last; of one moment that which stands last in the snapshot.
        """
        return self._groups.get(_tried(trial), [])

    def overtaken(self, trial: Trial) -> Trial | None:
        """The newest trial that says anew whatever this one says."""
        alike, said = self.alike(trial), _collectives(trial)
        place = next((place for place, each in enumerate(alike) if each is trial), len(alike))
        newer = reversed(alike[place + 1 :])
        return next((each for each in newer if each.failure is not None or _collectives(each) >= said), None)


def advised(
    snapshot: Snapshot,
    *,
    version: str | None,
    taken: Collection[str],
    gpus: Collection[int],
    by_itself: Callable[[str, str], bool] = lambda name, value: False,
    most_gbps: Callable[[Trial, str], float | None] = lambda trial, collective: None,
) -> Proven:
    """Settings of the best trial that won and counts here.

    A trial counts for the NCCL and driver that it was made with, and over all GPUs or those of the job, by index
    (`gpus`); not when a newer one of the same settings decided otherwise, and not while measurements of its GPUs fail.
    Trials of several calls can win. The one that gains most is taken; one that holds only a part of its settings says
    nothing more. `taken` are variables that rules decide: a trial does not overrule them. `by_itself` says whether NCCL
    does here what a variable asks for when it is not set, `most_gbps` what the links of a trial's GPUs let a collective
    have, in GB/s of bus bandwidth, None = not known.
    """
    here = _Here(snapshot, version if version is not None and _is_release(version) else None, taken, gpus)
    found = Proven()
    won: list[Trial] = []
    for trial in sorted((each for each in snapshot.trials if each.won), key=_worth, reverse=True):
        overtaken = here.overtaken(trial)
        if (overtaken is not None and overtaken.won) or (here.elsewhere(trial) and here.alike(trial)):
            continue
        why = _why_not(trial, overtaken, here) or _impossible(trial, most_gbps)
        if why is not None:
            found.passed_over.append(f"{words(trial.settings)} won {why}")
        elif all(trial.settings != each.settings for each in won):
            won.append(trial)
    # A combination was kept because it beat its parts, whatever these gained in a trial of another day.
    whole = [each for each in won if not any(each.settings.items() < other.settings.items() for other in won)]
    for trial in whole[:1]:
        for name, value in trial.settings.items():
            _advise(trial, name, value, here, by_itself, found)
    counting = [each for each in snapshot.trials if _counts(each, here)]
    found.passed_over.extend(_second_to(each, whole[0], counting) for each in whole[1:])
    return found


def _why_not(trial: Trial, overtaken: Trial | None, here: _Here) -> str | None:
    """Why a trial that won is not advised, as the end of a sentence."""
    unfit = why_unfit(trial.settings, here.version) or variables.at_odds(trial.settings, here.snapshot)
    if unfit is not None:
        return f"a trial and is not advised: {unfit}."
    if not _counts(trial, here):
        return f"a trial{_over(trial, here.snapshot)} alone: prove it over all GPUs."
    if other := here.elsewhere(trial):
        return f"{other}: prove it again."
    if overtaken is not None:
        return f"a trial{_on(trial, overtaken)}, and in a newer one{_on(overtaken, trial)} it {_ended(overtaken)}."
    if hurt := next((each for each in here.alike(trial) if _hurts(each) and not here.overtaken(each)), None):
        return f"a trial{_on(trial, hurt)}, and in another one{_on(hurt, trial)} it {_ended(hurt)}."
    if failed := failures(trial, here.snapshot):
        return f"a trial, which is evidence of nothing while measurements of its GPUs fail ({failed})."
    if (other := next(_contradictions(trial, here.snapshot), None)) is not None:
        return f"a trial{_on(trial)}, and its rates are not those of this machine: {other}: prove it again."
    if not set(trial.settings).isdisjoint(here.taken):
        return "a trial, but rules decide about the variable."
    return None


def _contradictions(trial: Trial, snapshot: Snapshot) -> Iterator[str]:
    """Collectives that were measured as the trial's baseline was, and are much faster or slower than that."""
    for run in snapshot.measurements:
        if runs.failed(run) or not run.gbps or set(runs.ends(run)) != {f"gpu:{index}" for index in trial.gpus}:
            continue
        size = next(
            (each for each in trial.sizes if (each.collective, each.size_bytes) == (run.kind, run.size_bytes)), None
        )
        if size is None or not size.baseline_gbps or not _alike(trial, run):
            continue
        apart = max(run.gbps / size.baseline_gbps, size.baseline_gbps / run.gbps) / (1 + (run.spread or 0.0))
        if apart > (_AGREE if size.size_bytes >= _LARGE_BYTES else _AGREE_SMALL):
            yield (
                f"{run.kind} of {size_text(size.size_bytes)} reached {size.baseline_gbps:.1f} GB/s without it, and "
                f"{run.gbps:.1f} when it was measured{_on(run)}"
            )


def _alike(trial: Trial, run: Measurement) -> bool:
    """Nothing is known that one was made with and the other was not."""
    library = runs.nccl_version(run)
    return (
        (None in (trial.driver, run.driver) or trial.driver == run.driver)
        and (None in (trial.nccl, library) or trial.nccl == library)
        and (trial.variables is None or run.variables is None or trial.variables == run.variables)
    )


def _impossible(trial: Trial, most_gbps: Callable[[Trial, str], float | None]) -> str | None:
    for size in trial.sizes:
        most = most_gbps(trial, size.collective)
        rate = max(size.baseline_gbps or 0.0, size.variant_gbps or 0.0)
        if most is not None and rate > runs.IMPOSSIBLE * most:
            return (
                f"a trial{_on(trial)}, which cannot be of this machine as it is: {size.collective} reached {rate:.1f} "
                f"GB/s, and what joins these GPUs carries {most:.4g}."
            )
    return None


def failures(trial: Trial, snapshot: Snapshot) -> str | None:
    """`all_reduce GPU0, GPU1: wrong-data, and 2 more`: what failed on the GPUs of a trial; None when nothing did."""
    mine = {f"gpu:{index}" for index in trial.gpus}
    failed = [run for run in snapshot.measurements if runs.failed(run) and not mine.isdisjoint(runs.ends(run))]
    if not failed:
        return None
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"{failed[0].kind} {runs.in_words(failed[0].subject)}: {runs.ended(failed[0])}{more}"


def why_unfit(settings: Mapping[str, str | None], version: str | None) -> str | None:
    """Why settings are not advised whatever a trial of them says, without a full stop; None when they may be.

    `version` is NCCL's; None = not known. Raises ValueError when it is no version.
    """
    return next((why for each in settings.items() if (why := _unfit(*each, version)) is not None), None)


def setting_class(name: str) -> SettingClass:
    """As the register has it; what it does not hold is as little for a configuration as what is diagnostic."""
    info = register.find(name)
    return "diagnostic" if info is None else info.setting_class


def _unfit(name: str, value: str | None, version: str | None) -> str | None:
    info = register.find(name)
    if name in MEASURES_WITH:
        return f"trials set {name} themselves, or stand on it"
    if info is None or (info.owner != "NCCL" and not conf.in_time(info.owner)):
        return f"neither NCCL nor a library that it loads is known to read {name}, and a trial measures NCCL alone"
    if variables.leaves_the_machine(name):
        return f"{name} steers what goes between machines, and a trial stays within one"
    if value is None:
        return None
    if info.setting_class == "diagnostic":
        return f"{name} is diagnostic, and does not belong in a configuration"
    if info.kind == "path" or name.endswith(_NAME_FILES) or (info.parser is None and "/" in value):
        return f"{name} names a file, and what will be in it is not known"
    if info.owner == "NCCL" and info.since is not None and not info.exists_in(version):
        return f"NCCL {version or register.NEWEST} does not read {name}"
    found = reading.read(info, value, version)
    if found is not None and (found.surprises or found.becomes is None):
        told = words({name: value})
        if found.becomes != value:
            told += " counts as not set" if found.becomes is None else f" is {found.becomes} to NCCL"
        return ": ".join(filter(None, (told, "; ".join(found.reasons))))
    if fault := conf.unwritable(name, value):
        return f"{words({name: value})} cannot be written into a file, {fault}"
    return None


def _is_release(version: str) -> bool:
    try:
        versions.release(version)
    except ValueError:
        return False
    return True


def _counts(trial: Trial, here: _Here) -> bool:
    """It took all GPUs, or those of the job."""
    return _everywhere(trial, here.snapshot) or set(trial.gpus) == set(here.gpus)


def _tried(trial: Trial) -> Hashable:
    return frozenset(trial.settings.items()), frozenset(trial.gpus)


def _collectives(trial: Trial) -> set[str]:
    """Those that it decided something about."""
    return {size.collective for size in trial.sizes if size.verdict != "unknown"}


def _hurts(trial: Trial) -> bool:
    return trial.failure is not None or bool(_at(trial, "slower"))


def _ended(trial: Trial) -> str:
    """Behind `it`."""
    if trial.failure is not None:
        return "broke"
    if slower := _at(trial, "slower"):
        return f"was slower at {_spread(slower)}"
    return "gained less than others that were tried with it" if _at(trial, "faster") else "made no difference"


def _on(made: Trial | Measurement, other: Trial | None = None) -> str:
    """The day, with the time where another one was made on the same."""
    if not made.date:
        return " without a date"
    same = other is not None and other.date is not None and other.date[:10] == made.date[:10]
    return f" on {made.moment:%Y-%m-%d %H:%M:%S} UTC" if same else f" on {made.date[:10]}"


def _second_to(trial: Trial, best: Trial, trials: Sequence[Trial]) -> str:
    """Why a winner is not advised next to a better one."""
    told = f"{words(trial.settings)} won a trial too, and gained no more than {words(best.settings)}"
    if any(best.settings.get(name, value) != value for name, value in trial.settings.items()):
        return f"{told}."
    both = {**best.settings, **trial.settings}
    tried = next((each for each in trials if each.settings == both and not each.won), None)
    if tried is not None:
        return f"{told}; together they were tried and not worth keeping."
    asked = " ".join(f"{name}={value or ''}" for name, value in both.items())
    return f"{told}; together they were not tried: `topoadvisor prove {asked}`."


def _worth(trial: Trial) -> tuple[float, str]:
    """Mean gain over the sizes of the trial, those without a difference counting as none; then the date."""
    gains = [each.difference or 0.0 for each in trial.sizes if each.verdict == "faster"]
    return sum(gains) / max(len(trial.sizes), 1), trial.date or ""


def _advise(
    trial: Trial,
    name: str,
    value: str | None,
    here: _Here,
    by_itself: Callable[[str, str], bool],
    found: Proven,
) -> None:
    present = next((each for each in here.snapshot.settings or () if each.name == name), None)
    told = words({name: value})
    if value is not None and present is not None and present.value == value:
        found.right.append(AlreadyRight(text=f"{told}, which won a trial here, is set already.", rule=TRIAL))
        return
    if value is None and present is None and here.snapshot.settings is not None:
        found.right.append(AlreadyRight(text=f"{name}, without which a trial won here, is not set.", rule=TRIAL))
        return
    if value is not None and present is None and by_itself(name, value):
        found.right.append(
            AlreadyRight(text=f"NCCL does as with {told}, which won a trial here, by itself.", rule=TRIAL)
        )
        return
    kind = setting_class(name)
    collectives = ", ".join(dict.fromkeys(size.collective for size in _at(trial, "faster")))
    found.settings.append(
        AdvisedSetting(
            name=name,
            action="set" if value is not None else "unset",
            setting_class=kind,
            rule=TRIAL,
            reason=(
                f"measured on this machine{_over(trial, here.snapshot)}: {collectives} faster at "
                f"{_spread(_at(trial, 'faster'))}, slower at none{_hidden(trial)}{_undecided(trial)}{_untried(trial)}, "
                f"{_rounds(trial)}, {(trial.date or 'no date')[:10]}"
            ),
            value=value,
            remove_when="a new trial of it does not win" if kind == "workaround" and value is not None else None,
            nccl=f"=={trial.nccl}" if trial.nccl else None,
            cost=trial.cost,
            where=present.place if present is not None and value is not None else places(here.snapshot.settings, name),
        )
    )
